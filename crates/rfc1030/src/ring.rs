//! The Proteon Token Ring and its PC/ATs (RFC 1030 §4, §5, appendix II).
//!
//! The interface sends and receives at the same time, and no packet is lost. A packet of 1990 bytes
//! takes 8 ms to send and as long to receive, one of 1438 about 6 ms; between bursts the sender
//! needs 2 to 3 ms. See `docs/decisions/rfc1030-models.md` for what was fitted.

use std::time::Duration;

use netblt_path::LinkOptions;
use netblt_proto::units::Rate;

use super::lan::Lan;
use super::report::{Sample, pair_of, run_row};
use super::rows::Row;
use super::station::{Costs, Interface};

/// See `docs/decisions/rfc1030-models.md` for where each is from.
const PC_AT: Costs = Costs {
    send: Duration::from_micros(700),
    send_byte_ns: 3700,
    receive: Duration::ZERO,
    receive_byte_ns: 4200,
    outstanding: Duration::ZERO,
    made: Duration::from_micros(1400),
    heard: Duration::from_micros(1100),
    burst: Duration::from_micros(3000),
    timer: Duration::from_micros(600),
};

const P1300: Interface = Interface {
    buffers: 16,
    deaf: false,
    copy_byte_ns: 0,
    claim: Duration::ZERO,
    turn: Duration::ZERO,
    enable: Duration::ZERO,
    wire_byte_ns: 800,
};

pub(super) fn run(row: &Row, seed: u64, record: bool) -> Sample {
    let link = LinkOptions {
        rate: Some(Rate::from_bits_per_second(10_000_000)),
        delay: Duration::from_micros(10),
        ..LinkOptions::default()
    };
    let (sender, receiver) = pair_of(row, (PC_AT, P1300), (PC_AT, P1300));
    run_row(row, seed, Lan::new(&link, 0, seed), sender, receiver, record)
}
