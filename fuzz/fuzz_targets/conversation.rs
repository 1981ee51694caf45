//! Arbitrary faults, and clients of any mood, between two real endpoints.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| netblt_fuzz::harness::conversation::run(data));
