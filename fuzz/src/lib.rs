//! The harness of the fuzz targets. It lives with the tests of `crates/proto`, which replay on a
//! stable compiler what the fuzzer has found.

#[path = "../../crates/proto/tests/harness/mod.rs"]
pub mod harness;
