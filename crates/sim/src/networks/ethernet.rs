//! The noisy Ethernet and its PC/ATs with 3C500 interfaces (RFC 1030 §4, §6, appendix III).
//!
//! The interface has one buffer for both directions. While it sends, and until it is enabled again,
//! it is deaf; while it holds a packet for the processor, the next one is lost. With one
//! outstanding
//! buffer the ends take turns and only noise loses packets; with two, the receiver's control
//! packets
//! make it deaf to data.

use std::time::Duration;

use super::lan::Lan;
use super::report::{Sample, pair_of, run_row};
use super::rows::Row;
use super::station::{Costs, Interface};
use crate::path::LinkOptions;
use crate::rng::Probability;

/// Fitted once for the whole table; see `docs/decisions/rfc1030-models.md`.
pub(super) const PC_AT: Costs = Costs {
    send: Duration::from_micros(1520),
    send_byte_ns: 3000,
    receive: Duration::from_micros(1500),
    receive_byte_ns: 3100,
    outstanding: Duration::ZERO,
    control: Duration::from_micros(1158),
    message: Duration::from_micros(1800),
    burst: Duration::from_micros(2048),
    timer: Duration::from_micros(0),
};

/// The 3C500.
pub(super) const INTERFACE: Interface = Interface {
    buffers: 1,
    deaf: true,
    copy_byte_ns: 937,
    enable: Duration::from_micros(2028),
    wire_byte_ns: 800,
};

/// Noise of the network, in parts per million, for every row with two outstanding buffers.
const NOISE_PPM: u32 = 18233;

pub(super) fn run(row: &Row, seed: u64, record: bool) -> Sample {
    let noise = if row.outstanding == 1 {
        let sent = row.packets() + u64::from(row.resent);
        Probability::from_ppb((u64::from(row.lost) * 1_000_000_000 / sent.max(1)) as u32)
    } else {
        Probability::from_ppm(NOISE_PPM)
    };
    let delay = Duration::from_micros(10);
    let link = LinkOptions { delay, loss: noise, ..LinkOptions::default() };
    let (sender, receiver) = pair_of(row, (PC_AT, INTERFACE), (PC_AT, INTERFACE));
    run_row(row, seed, Lan::new(&link, seed), sender, receiver, record)
}
