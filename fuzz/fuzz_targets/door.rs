//! Many who would open connections at one door, on a path that is somebody else's.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| netblt_fuzz::harness::door::run(data));
