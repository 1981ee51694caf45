//! When data count as lost (`docs/protocol §6.4`). There are three definitions, because a hole in a
//! buffer, a missing packet number and a RESEND show different things at different times:
//!
//! * For repair ([`gap`], [`data_timer`]): a hole in a buffer that a later packet overtook, or that
//!   a timer found. The receiver sends RESEND for it.
//! * For reports ([`reported`], on `sealed`): a packet number that is absent although a higher one
//!   came. REPORT carries the count to the sender's rate law.
//! * Inferred by the sender (`inferred`, on `rfc998`): a packet that RESEND named, unless its OK
//!   comes too soon. The rate law has that in place of a REPORT.
//!
//! The protocol's page has their thresholds side by side.
//!
//! For repair, the receiving machine reports arrivals and requests to the detector (RFC 998
//! §5.2.2). The detector returns, for all outstanding buffers at once, the ranges to request again
//! and the time of its next poll. It is independent of the rate law.

pub mod data_timer;
pub mod gap;
pub(crate) mod inferred;
pub mod reported;
mod sender_gaps;

use std::fmt::Debug;
use std::time::Duration;

use data_timer::DataTimer;
use gap::GapDetector;

use crate::time::Instant;
use crate::units::{BufferNumber, ControlSeq, PacketIndex, PacketNumber};
use crate::wire::Wire;
use crate::wire::packet::{Burst, IndexRange};

/// Requests appended in one poll; the rest wait for the next.
pub(crate) const REQUESTS_PER_POLL: usize = 1024;

/// A packet of data that arrived and was new.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Order of sending (0 on `rfc998`).
    pub number: PacketNumber,
    /// Its buffer.
    pub buffer: BufferNumber,
    /// Its index in the buffer.
    pub index: PacketIndex,
    /// It was the last packet of its buffer.
    pub last_of_buffer: bool,
    /// The control messages that its sender had received when it left.
    pub ack: ControlSeq,
}

/// Times and burst values that the receiving machine knows.
#[derive(Clone, Copy, Debug)]
pub struct TimingInfo {
    /// Smoothed round trip time, if one was measured.
    pub rtt: Option<Duration>,
    /// The control timer with its back-off: a round trip may take as long. `None` where the sender
    /// reports a queue on the reverse path: then the queue made the timer expire.
    pub timeout: Option<Duration>,
    /// The last announced burst values.
    pub burst: Burst,
    /// They are not the negotiated ones: the sender chooses its own rate.
    pub varies: bool,
    /// Largest number of packets in a buffer.
    pub packets_per_buffer: u32,
    /// Most packets of one buffer to request at once, until that is acknowledged.
    pub packets_per_round: u32,
}

/// The missing packets as the receiving machine knows them.
pub trait MissingRanges {
    /// The holes of `buffer` within `range`, ascending, each handed to `each`. The packets past
    /// the known end are holes too while the end is unknown: as one range ending in `u32::MAX`
    /// if `range` reaches that far. Nothing for a buffer that is complete or was never granted.
    fn holes(&self, buffer: BufferNumber, range: IndexRange, each: &mut dyn FnMut(IndexRange));
    /// Upper bound of the missing packets of `buffer`; 0 if it is complete or was never granted.
    fn missing(&self, buffer: BufferNumber) -> u32;
}

/// A request for packets of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResendRequest {
    /// The buffer.
    pub buffer: BufferNumber,
    /// The packets; an end of `u32::MAX` means the end of the buffer.
    pub range: IndexRange,
}

/// The loss detector of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossDetection {
    /// RFC 998's data timers ([`data_timer`]).
    DataTimers,
    /// The same as on the hosts of RFC 1030: they run from a buffer's first packet, whatever
    /// arrives after it.
    FirstDataTimers,
    /// Overtaken packets are missing ([`gap`]).
    EarlyGaps,
}

impl LossDetection {
    /// The default on `wire`.
    pub const fn of(wire: Wire) -> Self {
        match wire {
            Wire::Rfc998 => Self::DataTimers,
            Wire::Sealed => Self::EarlyGaps,
        }
    }
}

/// Builds the detector that `law` names.
pub(crate) fn build(law: LossDetection) -> Box<dyn LossDetector> {
    match law {
        LossDetection::DataTimers => Box::new(DataTimer::new()),
        LossDetection::FirstDataTimers => Box::new(DataTimer::first()),
        LossDetection::EarlyGaps => Box::new(GapDetector::new()),
    }
}

/// A loss detector.
pub trait LossDetector: Debug + Send {
    /// GO for `buffer` was put in the FIFO under `seq`.
    fn on_granted(&mut self, now: Instant, buffer: BufferNumber, seq: ControlSeq);
    /// RESEND for `ask` was put in the FIFO under `seq`.
    fn on_requested(&mut self, now: Instant, ask: ResendRequest, seq: ControlSeq);
    /// The sender acknowledged every control message up to `ack`.
    fn on_acknowledged(&mut self, now: Instant, ack: ControlSeq, timing: &TimingInfo);
    /// A missing packet arrived.
    fn on_arrival(&mut self, now: Instant, arrival: &Arrival, timing: &TimingInfo);
    /// A duplicate arrived.
    fn on_duplicate(&mut self, _now: Instant) {}
    /// Whether packet `index` of `buffer` is the only one due next, so that its arrival changes
    /// nothing else (header prediction). A detector that does not know returns false.
    fn expects(&self, _buffer: BufferNumber, _index: u32) -> bool {
        false
    }
    /// The packet that [`LossDetector::expects`] confirmed has arrived, at the same moment; or the
    /// one behind it, and so on.
    fn on_expected(&mut self, _now: Instant, _buffer: BufferNumber) {}
    /// The sender reported that it has nothing left to send: of buffers up to `through` it has sent
    /// all that messages up to `ack` ask for.
    fn on_drained(&mut self, now: Instant, ack: ControlSeq, through: BufferNumber);
    /// `buffer` will be granted again, with another packet size.
    fn on_renewed(&mut self, buffer: BufferNumber);
    /// `buffer` is complete.
    fn on_complete(&mut self, buffer: BufferNumber);
    /// Appends the ranges to request again now, at most 1,024 to an empty list; if there are more,
    /// [`LossDetector::next_poll`] is due at once.
    fn poll(
        &mut self,
        now: Instant,
        holes: &dyn MissingRanges,
        timing: &TimingInfo,
        asks: &mut Vec<ResendRequest>,
    );
    /// When to call [`LossDetector::poll`] next if nothing arrives.
    fn next_poll(&self) -> Option<Instant>;
    /// How often a timer of the detector expired with packets missing (RFC 1030's data timeouts).
    fn expiries(&self) -> u64;
}
