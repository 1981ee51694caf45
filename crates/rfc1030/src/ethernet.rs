//! The noisy Ethernet and its PC/ATs with 3C500 interfaces (RFC 1030 §4, §6, appendix III).
//!
//! The interface has one buffer for both directions. While the driver has it for sending, and until
//! it is enabled again, it is deaf. With one outstanding buffer the ends take turns and only noise
//! loses packets; with two, the receiver's control packets make it deaf to data.

use std::time::Duration;

use netblt_path::LinkOptions;

use super::lan::Lan;
use super::report::{DATA_HEADER, Sample, pair_of, run_row};
use super::rows::Row;
use super::station::{Costs, IP_BYTES, Interface};

/// See `docs/decisions/rfc1030-models.md` for where each is from.
pub(super) const PC_AT: Costs = Costs {
    send: Duration::from_micros(1850),
    send_byte_ns: 2800,
    receive: Duration::from_micros(1800),
    receive_byte_ns: 2900,
    outstanding: Duration::ZERO,
    made: Duration::from_micros(2260),
    heard: Duration::from_micros(300),
    burst: Duration::from_micros(2100),
    timer: Duration::from_micros(150),
};

/// The 3C500.
pub(super) const INTERFACE: Interface = Interface {
    buffers: 16,
    deaf: true,
    copy_byte_ns: 940,
    claim: Duration::from_micros(2000),
    turn: Duration::from_micros(3200),
    enable: Duration::from_micros(2200),
    wire_byte_ns: 800,
};

/// Noise of the network for every row with two outstanding buffers: how often it hits a byte, in
/// parts per billion.
const NOISE_PPB: u32 = 6000;

pub(super) fn run(row: &Row, seed: u64, record: bool) -> Sample {
    let noise = if row.outstanding == 1 {
        // What noise must be for as many packets of data to be lost as the row says.
        let sent = row.packets() + u64::from(row.resent);
        let bytes = sent * u64::from(row.packet_bytes + DATA_HEADER + IP_BYTES);
        (u64::from(row.lost) * 1_000_000_000 / bytes.max(1)) as u32
    } else {
        NOISE_PPB
    };
    let link = LinkOptions { delay: Duration::from_micros(10), ..LinkOptions::default() };
    let (sender, receiver) = pair_of(row, (PC_AT, INTERFACE), (PC_AT, INTERFACE));
    run_row(row, seed, Lan::new(&link, noise, seed), sender, receiver, record)
}
