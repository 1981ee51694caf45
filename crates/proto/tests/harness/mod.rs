//! What the fuzzer does with the bytes it makes up. Nothing here is random or reads a clock: the
//! same bytes do the same on every machine, so `corpus.rs` can replay what was found.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "shared with the fuzz targets, each of which uses its own part"
)]

pub mod asked;
pub mod bytes;
pub mod conversation;
pub mod door;
pub mod packet;
pub mod rogue;
