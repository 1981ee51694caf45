//! What sender and receiver have in common: what was negotiated, and what becomes of a packet.

use std::time::Duration;

use crate::buffer::Geometry;
use crate::fec::Repair;
use crate::time::Instant;
use crate::wire::packet::Burst;
use crate::wire_profile::Rules;

/// What both ends agreed on when the connection opened, as the machines need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Negotiated {
    pub(crate) rules: Rules,
    pub(crate) geometry: Geometry,
    pub(crate) max_outstanding: u32,
    /// Bytes that this end's socket holds, if grants depend on it.
    pub(crate) socket_bytes: Option<u32>,
    pub(crate) burst: Burst,
    /// What this end spends on repair packets, as a sender.
    pub(crate) repair: Repair,
    /// Largest datagram to build, in bytes.
    pub(crate) datagram_bytes: usize,
    /// Largest control packet to build, in bytes.
    pub(crate) control_bytes: usize,
    /// The datagram that burst values count, in bytes (`docs/protocol.md §4.4`).
    pub(crate) burst_bytes: u32,
    /// When the connection opened.
    pub(crate) opened: Instant,
    /// Round trip of the handshake, if it was measured.
    pub(crate) rtt: Option<Duration>,
    /// The same; or the longest that it may have been, if nothing is known but that it may have
    /// been long.
    pub(crate) longest_rtt: Option<Duration>,
}

impl Negotiated {
    /// Bytes of an IP packet of DATA: the largest, or the mean of a full buffer's where packets
    /// count and not bytes. There a buffer's short packet would make any other measure untrue.
    pub(crate) fn mean_packet_bytes(&self, overhead: u32) -> u32 {
        if !self.rules.to_the_letter {
            return self.datagram_bytes as u32 + overhead;
        }
        let packets = u64::from(self.geometry.max_packets().max(1));
        let headers = packets * u64::from(self.rules.data_overhead + overhead);
        let bytes = u64::from(self.geometry.buffer_bytes) + headers;
        u32::try_from(bytes / packets).unwrap_or(u32::MAX)
    }

    /// The burst values agreed on, unless they are no limit or the least that a wire can say
    /// (`docs/protocol.md §2.1`).
    pub(crate) fn burst_limit(&self) -> Option<Burst> {
        let least = Duration::from_millis(1);
        let free = self.burst.packets >= u32::from(u16::MAX) && self.burst.interval <= least;
        (!free && !self.burst.interval.is_zero()).then_some(self.burst)
    }
}

/// What a machine says of something that must move on while its peer is heard
/// (`docs/protocol.md §7.6`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Underway {
    /// Grows with every sign that it does.
    pub(crate) signs: u64,
    /// How often something was tried for it so far.
    pub(crate) tries: u64,
}

/// How soon anything can move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) round_trip: Duration,
    /// What the last acknowledgement took, round trips that are not measured included.
    pub(crate) answer: Duration,
    /// Between two bursts.
    pub(crate) interval: Duration,
}

/// What became of a DATA packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Authentic (new or not).
    Authentic,
    /// Forged, corrupt or replayed: nothing was believed.
    Dropped,
    /// Authentic, and impossible.
    Violation(&'static str),
}
