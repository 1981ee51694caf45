//! Many clients that open connections at one listener, on a path that belongs to an attacker.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| netblt_fuzz::harness::door::run(data));
