//! A peer that holds the secret and says what it likes, against one real endpoint.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| netblt_fuzz::harness::rogue::run(data));
