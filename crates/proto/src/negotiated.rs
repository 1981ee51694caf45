//! What sender and receiver have in common: the negotiated parameters, the outcome of a packet, and
//! the counters of the stall watchdog.

use std::time::Duration;

use crate::buffer::Geometry;
use crate::fec::FecPolicy;
use crate::time::Instant;
use crate::wire::packet::Burst;
use crate::wire_profile::WireProfile;

/// The parameters that both ends agreed on when the connection opened, as the machines need them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Negotiated {
    pub(crate) profile: WireProfile,
    pub(crate) geometry: Geometry,
    pub(crate) max_outstanding: u32,
    /// Bytes of this end's socket buffer, if grants depend on it.
    pub(crate) socket_bytes: Option<u32>,
    pub(crate) burst: Burst,
    /// The repair policy of this end as a sender.
    pub(crate) repair: FecPolicy,
    /// Largest datagram to build, in bytes.
    pub(crate) datagram_bytes: usize,
    /// Largest control packet to build, in bytes.
    pub(crate) control_bytes: usize,
    /// The datagram that burst values count, in bytes (`docs/protocol §4.4`).
    pub(crate) burst_bytes: u32,
    /// When the connection opened.
    pub(crate) opened: Instant,
    /// Round trip of the handshake, if it was measured.
    pub(crate) rtt: Option<Duration>,
    /// The same; or an upper bound, if only that is known.
    pub(crate) longest_rtt: Option<Duration>,
}

/// The round trip of a handshake.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HandshakeRtt {
    /// The round trip, if it was measured.
    pub(crate) measured: Option<Duration>,
    /// The same; or an upper bound, if only that is known.
    pub(crate) longest: Option<Duration>,
}

impl Negotiated {
    /// Bytes of an IP packet of DATA: of the largest one, or, where the pacer counts packets and
    /// not bytes, the mean over a full buffer, whose last packet may be short.
    pub(crate) fn mean_packet_bytes(&self, overhead: u32) -> u32 {
        if self.profile.paces_bytes {
            return self.datagram_bytes as u32 + overhead;
        }
        let packets = u64::from(self.geometry.max_packets().max(1));
        let headers = packets * u64::from(self.profile.data_overhead + overhead);
        let bytes = u64::from(self.geometry.buffer_bytes) + headers;
        u32::try_from(bytes / packets).unwrap_or(u32::MAX)
    }

    /// The negotiated burst values, unless they are no limit or the smallest that the wire can
    /// encode (`docs/protocol §2.1`).
    pub(crate) fn burst_limit(&self) -> Option<Burst> {
        let least = Duration::from_millis(1);
        let free = self.burst.packets >= u32::from(u16::MAX) && self.burst.interval <= least;
        (!free && !self.burst.interval.is_zero()).then_some(self.burst)
    }
}

#[cfg(test)]
impl Negotiated {
    /// Parameters of `wire` for tests: buffers of ten packets, and a round trip of 40 ms.
    pub(crate) fn example(wire: crate::wire::Wire) -> Self {
        let rtt = Some(Duration::from_millis(40));
        Self {
            profile: WireProfile::of(wire),
            geometry: Geometry { buffer_bytes: 10_000, packet_bytes: 1000 },
            max_outstanding: 4,
            socket_bytes: None,
            burst: Burst { packets: 8, interval: Duration::from_millis(1) },
            repair: FecPolicy::Never,
            datagram_bytes: 1200,
            control_bytes: 1200,
            burst_bytes: 1200,
            opened: Instant::EPOCH,
            rtt,
            longest_rtt: rtt,
        }
    }
}

/// Counters by which the stall watchdog judges one kind of progress (`docs/protocol §7.6`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProgressCounter {
    /// Signs of progress so far.
    pub(crate) signs: u64,
    /// Attempts so far.
    pub(crate) tries: u64,
}

/// The time scale on which progress can be expected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgressTimescale {
    pub(crate) round_trip: Duration,
    /// Delay of the last acknowledgement, also where no round trip was measured.
    pub(crate) answer: Duration,
    /// Between two bursts.
    pub(crate) interval: Duration,
}

/// The outcome of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketOutcome {
    /// Authentic (new or not).
    Authentic,
    /// Forged, corrupt or replayed, and ignored.
    Dropped,
    /// Authentic, and impossible.
    Violation(&'static str),
}
