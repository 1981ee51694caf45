//! The capabilities of a wire: how the machines behave on it, fixed when a connection opens.
//!
//! The wires differ in bytes in [`crate::codec`] and in behaviour here, and nowhere else: no
//! machine asks which wire it is on.

use std::time::Duration;

use crate::limits::DEATH_TIMER;
use crate::wire::{Wire, data_overhead};

/// Longest dally beyond two control timer values.
pub(crate) const LONG_DALLY: Duration = Duration::from_secs(3);

/// The capabilities of one wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WireProfile {
    /// The receiver sends REPORTs of arrivals (`docs/protocol §6.3`).
    pub(crate) reports: bool,
    /// The transfer ends with END and a verdict (`docs/protocol §7`); else with the last OK.
    pub(crate) verdict: bool,
    /// OK carries an offer of burst values (RFC 998 §4).
    pub(crate) ok_offers: bool,
    /// The pacer keeps burst values strictly: it counts packets, keeps bursts apart, and uses the
    /// values that NULL-ACK announces (`docs/protocol §6.7`).
    pub(crate) strict_bursts: bool,
    /// Control packets that carry a new message without a timeout. `None`: all of them, until it is
    /// acknowledged (`docs/protocol §6.2`).
    pub(crate) copies: Option<u8>,
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
}

impl WireProfile {
    /// The profile of `wire`.
    pub(crate) fn of(wire: Wire) -> Self {
        let sealed = Self {
            reports: true,
            verdict: true,
            ok_offers: false,
            strict_bursts: false,
            copies: Some(3),
            spaced_control: true,
            drained_repeats: Some(2),
            dally_timers: 2,
            dally: (Duration::from_millis(100), LONG_DALLY),
            probes: true,
            peer_may_move: true,
            discovers_mtu: true,
            ecn: true,
            data_overhead: data_overhead(wire),
        };
        match wire {
            Wire::Sealed => sealed,
            Wire::Rfc998 => Self {
                reports: false,
                verdict: false,
                ok_offers: true,
                strict_bursts: true,
                copies: None,
                spaced_control: false,
                drained_repeats: None,
                // The receiver has repeated its message four times by then, at intervals that grow
                // by half.
                dally_timers: 9,
                dally: (sealed.dally.0, *DEATH_TIMER.end()),
                probes: false,
                peer_may_move: false,
                discovers_mtu: false,
                ecn: false,
                ..sealed
            },
        }
    }
}
