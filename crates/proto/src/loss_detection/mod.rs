//! Error control: when a hole is a loss (RFC 998 §5.2.2), apart from how fast to send.
//!
//! The receiving machine tells the policy what arrived and what was asked; the policy answers, over
//! all outstanding buffers at once, which ranges to ask for again and when to look next.

pub mod data_timer;
pub mod gap;
mod sender_gaps;

use std::fmt::Debug;
use std::time::Duration;

use data_timer::DataTimer;
use gap::GapDetector;

use crate::time::Instant;
use crate::units::{BufferNumber, ControlSeq, PacketIndex, PacketNumber};
use crate::wire::Wire;
use crate::wire::packet::{Burst, IndexRange};

/// Questions appended in one poll; the rest wait for the next.
pub(crate) const ASKS_PER_POLL: usize = 1024;

/// A packet of data that arrived and was new.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Order of sending (0 on `rfc998`).
    pub number: PacketNumber,
    /// Its buffer.
    pub buffer: BufferNumber,
    /// Its place.
    pub index: PacketIndex,
    /// It was the last packet of its buffer.
    pub last_of_buffer: bool,
    /// The control messages its sender had when it left.
    pub ack: ControlSeq,
}

/// What the receiving machine knows of time.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Smoothed round trip time, if one was measured.
    pub rtt: Option<Duration>,
    /// The control timer, longer after each time that it ran out in vain: a round trip may take as
    /// long. `None` where the way back is full, as the sender says: then it is for its queue
    /// that the timer ran out.
    pub timeout: Option<Duration>,
    /// Burst values the sender announced last.
    pub burst: Burst,
    /// They are not the negotiated ones: the sender goes its own way.
    pub varies: bool,
    /// Largest number of packets in a buffer.
    pub packets_per_buffer: u32,
    /// How many packets of one buffer may be asked for at once, until that is acknowledged.
    pub packets_per_round: u32,
}

/// The holes as the receiving machine knows them.
pub trait Holes {
    /// The holes of `buffer` within `range`, ascending, each handed to `each`. The packets past
    /// the known end are holes too while the end is unknown: as one range ending in `u32::MAX`
    /// if `range` reaches that far. Nothing for a buffer that is complete or was never granted.
    fn holes(&self, buffer: BufferNumber, range: IndexRange, each: &mut dyn FnMut(IndexRange));
    /// How many packets of `buffer` are missing at most; 0 if it is complete or was never granted.
    fn missing(&self, buffer: BufferNumber) -> u32;
}

/// One question to the sender: these packets of this buffer again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The buffer.
    pub buffer: BufferNumber,
    /// The packets; an end of `u32::MAX` means the end of the buffer.
    pub range: IndexRange,
}

/// Which error control policy a receiver has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryLaw {
    /// RFC 998's data timers ([`data_timer`]).
    DataTimers,
    /// The same as the hosts of RFC 1030 had them: they run from a buffer's first packet, whatever
    /// comes after it.
    FirstDataTimers,
    /// What was overtaken is missing ([`gap`]).
    EarlyGaps,
}

impl RecoveryLaw {
    /// What a receiver on `wire` has if nothing is said.
    pub const fn of(wire: Wire) -> Self {
        match wire {
            Wire::Rfc998 => Self::DataTimers,
            Wire::Sealed => Self::EarlyGaps,
        }
    }
}

/// The policy that `law` names.
pub(crate) fn build(law: RecoveryLaw) -> Box<dyn Recovery> {
    match law {
        RecoveryLaw::DataTimers => Box::new(DataTimer::new()),
        RecoveryLaw::FirstDataTimers => Box::new(DataTimer::first()),
        RecoveryLaw::EarlyGaps => Box::new(GapDetector::new()),
    }
}

/// An error control policy.
pub trait Recovery: Debug + Send {
    /// GO for `buffer` was put in the FIFO under `seq`.
    fn on_granted(&mut self, now: Instant, buffer: BufferNumber, seq: ControlSeq);
    /// RESEND for `ask` was put in the FIFO under `seq`.
    fn on_asked(&mut self, now: Instant, ask: Ask, seq: ControlSeq);
    /// The sender acknowledged every control message up to `ack`.
    fn on_acknowledged(&mut self, now: Instant, ack: ControlSeq, timing: &Timing);
    /// A packet arrived that was missing.
    fn on_arrival(&mut self, now: Instant, arrival: &Arrival, timing: &Timing);
    /// A packet arrived that was here.
    fn on_duplicate(&mut self, _now: Instant) {}
    /// Whether nothing but packet `index` of `buffer` is due next, so that its arrival says no more
    /// than that it is here. A policy that cannot tell says no.
    fn expects(&self, _buffer: BufferNumber, _index: u32) -> bool {
        false
    }
    /// The packet arrived that [`Recovery::expects`] was asked about, at the moment of that
    /// question; or the one behind it, and so on.
    fn on_expected(&mut self, _now: Instant, _buffer: BufferNumber) {}
    /// The sender said that of the buffers up to `through` it has sent all it was asked for by
    /// messages up to `ack`, and has nothing else to send.
    fn on_drained(&mut self, now: Instant, ack: ControlSeq, through: BufferNumber);
    /// `buffer` is void: it will be granted anew, and come in other pieces.
    fn on_renewed(&mut self, buffer: BufferNumber);
    /// `buffer` is complete.
    fn on_complete(&mut self, buffer: BufferNumber);
    /// Appends what is to be asked for again now, at most 1,024 ranges to an empty list; if there
    /// is more, [`Recovery::next_look`] is due at once.
    fn poll(&mut self, now: Instant, holes: &dyn Holes, timing: &Timing, asks: &mut Vec<Ask>);
    /// When to call [`Recovery::poll`] next even if nothing arrives.
    fn next_look(&self) -> Option<Instant>;
    /// How often a timer of the policy's ran out with something missing (RFC 1030's data
    /// timeouts).
    fn expiries(&self) -> u64;
}
