//! Arbitrary bytes through every parser.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| netblt_fuzz::harness::packet::run(data));
