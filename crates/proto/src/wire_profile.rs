//! How the wires differ in what the machines do: settled once, when a connection opens.
//!
//! Bytes differ in [`crate::codec`], behaviour differs here, and in nothing else: no machine asks
//! which wire it is on.

use std::time::Duration;

use crate::limits::DEATH_TIMER;
use crate::wire::{Wire, data_overhead};

/// A dally that is longer than two control timer values is no longer than this.
pub(crate) const LONG_DALLY: Duration = Duration::from_secs(3);

/// What holds on one wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The receiver tells the sender what arrives, in REPORTs (`docs/protocol.md §6.3`).
    pub(crate) reports: bool,
    /// The transfer ends with END and a verdict (`docs/protocol.md §7`); else with the last OK.
    pub(crate) verdict: bool,
    /// OK carries an offer of burst values (RFC 998 §4).
    pub(crate) offers: bool,
    /// Burst values are kept to the letter: packets count, bursts keep their distance, and what
    /// NULL-ACK says of them is what is done (`docs/protocol.md §6.7`).
    pub(crate) to_the_letter: bool,
    /// How many control packets carry a message without being asked; `None`: all of them, until it
    /// is acknowledged (`docs/protocol.md §6.2`).
    pub(crate) copies: Option<u8>,
    /// Control packets keep a distance, and repeat themselves on a beat; else each new message
    /// leaves at once.
    pub(crate) beats: bool,
    /// How often the news that nothing is left to send is repeated (`docs/protocol.md §6.4`).
    pub(crate) dry_repeats: Option<u8>,
    /// How many of the receiver's control timer values a dally lasts if that is no more than 3 s,
    /// else two, and its bounds (`docs/protocol.md §7.3`).
    pub(crate) dally_timers: u32,
    pub(crate) dally: (Duration, Duration),
    /// A silent peer is asked, and the client told of it (`docs/protocol.md §7.4`).
    pub(crate) asks: bool,
    /// The peer is known by a connection id, wherever its packets come from, and may move
    /// (`docs/protocol.md §4.5`).
    pub(crate) moves: bool,
    /// The size of packets follows the path (`docs/protocol.md §6.5`).
    pub(crate) sizes: bool,
    /// A sender's packets after OPEN ask for ECN marks, if its rate law answers them.
    pub(crate) marks: bool,
    /// Bytes of a DATA datagram that are not data.
    pub(crate) data_overhead: u32,
}

impl Rules {
    /// The rules of `wire`.
    pub(crate) fn of(wire: Wire) -> Self {
        let sealed = Self {
            reports: true,
            verdict: true,
            offers: false,
            to_the_letter: false,
            copies: Some(3),
            beats: true,
            dry_repeats: Some(2),
            dally_timers: 2,
            dally: (Duration::from_millis(100), LONG_DALLY),
            asks: true,
            moves: true,
            sizes: true,
            marks: true,
            data_overhead: data_overhead(wire),
        };
        match wire {
            Wire::Sealed => sealed,
            Wire::Rfc998 => Self {
                reports: false,
                verdict: false,
                offers: true,
                to_the_letter: true,
                copies: None,
                beats: false,
                dry_repeats: None,
                // The receiver says it again four times by then, each half as long after again.
                dally_timers: 9,
                dally: (sealed.dally.0, *DEATH_TIMER.end()),
                asks: false,
                moves: false,
                sizes: false,
                marks: false,
                ..sealed
            },
        }
    }
}
