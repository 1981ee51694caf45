//! The capabilities of a wire: how the machines behave on it, fixed when a connection opens.
//!
//! The wires differ in bytes in [`crate::codec`] and in behaviour here, and nowhere else. A machine
//! asks for the capability that it needs, never for the wire, and never for another capability that
//! the same wire happens to have.

use std::time::Duration;

use crate::limits::DEATH_TIMER;
use crate::wire::{Wire, data_overhead, keepalive_bytes};

/// Shortest dally.
const LEAST_DALLY: Duration = Duration::from_millis(100);
/// Longest dally beyond two control timer values.
pub(crate) const LONG_DALLY: Duration = Duration::from_secs(3);

/// How control messages are carried (`docs/protocol §6.2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ControlPolicy {
    /// Consecutive control packets that carry a new message without a timeout. `None`: all of them,
    /// until it is acknowledged (RFC 998 §5.2.1).
    pub(crate) copies: Option<u8>,
    /// GO and OK name ranges of buffers, so messages that have not left can be merged.
    pub(crate) merges_ranges: bool,
}

impl ControlPolicy {
    /// Each control packet carries all messages that are not acknowledged.
    pub(crate) fn carries_all(self) -> bool {
        self.copies.is_none()
    }
}

/// The capabilities of one wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WireProfile {
    /// The receiver sends REPORTs of arrivals (`docs/protocol §6.3`).
    pub(crate) reports: bool,
    /// The transfer ends with END and a verdict (`docs/protocol §7`); else with the last OK.
    pub(crate) verdict: bool,
    /// OK carries an offer of burst values (RFC 998 §4); else each control packet carries the
    /// receiver's rate limit.
    pub(crate) ok_offers: bool,
    /// The pacer keeps burst values strictly: it keeps bursts apart, and uses the values that
    /// NULL-ACK announces (`docs/protocol §6.7`).
    pub(crate) strict_bursts: bool,
    /// Burst values count bytes, in units of whole packets; else packets of any size.
    pub(crate) paces_bytes: bool,
    /// Control messages are acknowledged in DATA, so their round trip includes the time between two
    /// packets of data.
    pub(crate) piggybacks_acks: bool,
    /// RESEND names ranges of packets; else single packets (RFC 998 §8).
    pub(crate) resends_ranges: bool,
    /// A message shows to which connection it belongs; else one that the path delayed may belong to
    /// an earlier connection of the same ports.
    pub(crate) marks_connection: bool,
    /// NULL-ACK announces a pause, so it may also stop buffers that have begun.
    pub(crate) announces_pause: bool,
    /// A client's QUIT waits for the end of the current buffer (RFC 998 §5.3.2).
    pub(crate) quits_between_buffers: bool,
    /// QUIT is repeated until QUITACK or the death timer (RFC 998 §5.3.2); else a few times.
    pub(crate) quits_until_acked: bool,
    /// How control messages are carried.
    pub(crate) control: ControlPolicy,
    /// Control packets are spaced, and repeated at an interval; else each new message leaves at
    /// once.
    pub(crate) spaced_control: bool,
    /// How often the sender repeats that nothing is left to send (`docs/protocol §6.4`).
    pub(crate) drained_repeats: Option<u8>,
    /// Length of a dally in values of the receiver's control timer, if that is no more than 3 s;
    /// else two. `dally` has its bounds (`docs/protocol §7.3`).
    pub(crate) dally_timers: u32,
    pub(crate) dally: (Duration, Duration),
    /// A silent peer is probed, and the client gets an event (`docs/protocol §7.4`).
    pub(crate) probes: bool,
    /// Packets have a connection id, so the peer may move (`docs/protocol §4.5`).
    pub(crate) peer_may_move: bool,
    /// The packet size follows path MTU discovery (`docs/protocol §6.5`).
    pub(crate) discovers_mtu: bool,
    /// A sender's packets after OPEN are ECN-capable, if its rate law responds to marks.
    pub(crate) ecn: bool,
    /// Bytes of a DATA datagram that are not data.
    pub(crate) data_overhead: u32,
    /// Bytes of a KEEPALIVE without padding, the smallest packet.
    pub(crate) keepalive_bytes: usize,
}

impl WireProfile {
    /// The profile of `wire`. Each wire lists all capabilities, so that none is inherited.
    pub(crate) fn of(wire: Wire) -> Self {
        match wire {
            Wire::Sealed => Self {
                reports: true,
                verdict: true,
                ok_offers: false,
                strict_bursts: false,
                paces_bytes: true,
                piggybacks_acks: false,
                resends_ranges: true,
                marks_connection: true,
                announces_pause: true,
                quits_between_buffers: false,
                quits_until_acked: false,
                control: ControlPolicy { copies: Some(3), merges_ranges: true },
                spaced_control: true,
                drained_repeats: Some(2),
                dally_timers: 2,
                dally: (LEAST_DALLY, LONG_DALLY),
                probes: true,
                peer_may_move: true,
                discovers_mtu: true,
                ecn: true,
                data_overhead: data_overhead(wire),
                keepalive_bytes: keepalive_bytes(wire),
            },
            Wire::Rfc998 => Self {
                reports: false,
                verdict: false,
                ok_offers: true,
                strict_bursts: true,
                paces_bytes: false,
                piggybacks_acks: true,
                resends_ranges: false,
                marks_connection: false,
                announces_pause: false,
                quits_between_buffers: true,
                quits_until_acked: true,
                control: ControlPolicy { copies: None, merges_ranges: false },
                spaced_control: false,
                drained_repeats: None,
                // The receiver has repeated its message four times by then, at intervals that grow
                // by half.
                dally_timers: 9,
                dally: (LEAST_DALLY, *DEATH_TIMER.end()),
                probes: false,
                peer_may_move: false,
                discovers_mtu: false,
                ecn: false,
                data_overhead: data_overhead(wire),
                keepalive_bytes: keepalive_bytes(wire),
            },
        }
    }
}
