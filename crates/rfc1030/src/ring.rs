//! The Proteon Token Ring and its PC/ATs (RFC 1030 §4, §5, appendix II).
//!
//! The interface sends and receives at the same time, and no packet is lost. A packet of 1990 bytes
//! takes 8 ms to send and as long to receive, one of 1438 about 6 ms; between bursts the sender
//! needs 2 to 3 ms. See `docs/decisions/rfc1030-models.md` for what was fitted.

use std::time::Duration;

use netblt_path::LinkOptions;
use netblt_proto::units::Rate;

use crate::lan::Lan;
use crate::machines::RING_PC_AT;
use crate::rows::Row;
use crate::run::{Sample, pair_of, run_row};

pub(super) fn run(row: &Row, seed: u64, record: bool) -> Sample {
    let link = LinkOptions {
        rate: Some(Rate::from_bits_per_second(10_000_000)),
        delay: Duration::from_micros(10),
        ..LinkOptions::default()
    };
    let (sender, receiver) = pair_of(row, RING_PC_AT, RING_PC_AT);
    run_row(row, seed, Lan::new(&link, 0, seed), sender, receiver, record)
}
