//! The noisy Ethernet and its PC/ATs with 3C500 interfaces (RFC 1030 §4, §6, appendix III).
//!
//! The interface has one buffer for both directions. While the driver has it for sending, and until
//! it is enabled again, the interface cannot receive ("deaf" below). With one outstanding buffer
//! the ends take turns and only noise loses packets; with two, the receiver cannot receive data
//! while it sends control packets.

use std::time::Duration;

use netblt_path::LinkOptions;

use crate::lan::Lan;
use crate::machines::ETHERNET_PC_AT;
use crate::rows::Row;
use crate::run::{DATA_HEADER, Sample, pair_of, run_row};
use crate::station::IP_BYTES;

/// Noise of the network for every row with two outstanding buffers: how often it hits a byte, in
/// parts per billion.
const NOISE_PPB: u32 = 22_000;

pub(super) fn run(row: &Row, seed: u64, record: bool) -> Sample {
    run_amid(noise_of(row), row, seed, record)
}

/// Noise on the network of `row`, in parts per billion of bytes.
fn noise_of(row: &Row) -> u32 {
    if row.outstanding != 1 {
        return NOISE_PPB;
    }
    // The noise at which as many packets of data are lost as the row says.
    let sent = row.packets() + u64::from(row.resent);
    let bytes = sent * u64::from(row.packet_bytes + DATA_HEADER + IP_BYTES);
    (u64::from(row.lost) * 1_000_000_000 / bytes.max(1)) as u32
}

/// The same on "a special Ethernet LAN with the only two hosts attached being the two NETBLT
/// machines" (§6): no noise.
pub(super) fn run_alone(row: &Row, seed: u64) -> Sample {
    run_amid(0, row, seed, false)
}

fn run_amid(noise: u32, row: &Row, seed: u64, record: bool) -> Sample {
    let link = LinkOptions { delay: Duration::from_micros(10), ..LinkOptions::default() };
    let (sender, receiver) = pair_of(row, ETHERNET_PC_AT, ETHERNET_PC_AT);
    run_row(row, seed, Lan::new(&link, noise, seed), sender, receiver, record)
}
