//! Arbitrary bytes as questions to a server, and as its answers.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| netblt_fuzz::harness::asked::run(data));
