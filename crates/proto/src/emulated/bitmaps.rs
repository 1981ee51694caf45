//! Bitmaps of all missing packets, once the sender has sent everything: RBUDP's, and FOBS's at the
//! end of a chunk.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::nak_reports::HighestArrival;
use crate::loss_detection::{
    Arrival, LossDetector, MissingRanges, REQUESTS_PER_POLL, ResendRequest, TimingInfo,
};
use crate::time::Instant;
use crate::units::{BufferNumber, ControlSeq};
use crate::wire::packet::IndexRange;

/// The round trip assumed before one was measured.
const ASSUMED_RTT: Duration = Duration::from_millis(100);

/// Requests all missing packets at once, and none before.
#[derive(Debug)]
pub(super) struct Bitmaps {
    /// Granted and not complete.
    open: BTreeSet<BufferNumber>,
    /// Buffers to request, and since when.
    wanted: VecDeque<BufferNumber>,
    since: Instant,
    /// The newest request, and its time.
    asked: Option<(ControlSeq, Instant)>,
    /// Buffers in a chunk; the sender repeats packets when it has sent all of it.
    chunk: Option<u64>,
    top: HighestArrival,
    rtt: Option<Duration>,
}

impl Bitmaps {
    /// Requests when the sender reports that it has sent everything; and, with chunks, when it has
    /// evidently sent all of one.
    pub(super) fn new(chunk: Option<u64>) -> Self {
        Self {
            open: BTreeSet::new(),
            wanted: VecDeque::new(),
            since: Instant::EPOCH,
            asked: None,
            chunk,
            top: HighestArrival::default(),
            rtt: None,
        }
    }

    fn want(&mut self, now: Instant, through: BufferNumber) {
        if self.wanted.is_empty() {
            self.since = now;
            self.wanted.extend(self.open.range(..=through));
        }
    }

    /// The last buffer of the chunk of the highest packet.
    fn chunk_end(&self) -> Option<BufferNumber> {
        let buffers = self.chunk?.max(1);
        let (next, index) = self.top.next();
        let reached = if index == 0 { next.0 - 1 } else { next.0 };
        (reached > 0).then(|| BufferNumber((reached - 1) / buffers * buffers + buffers))
    }

    /// The sender seems to have sent its chunk: requests its missing packets, once per round trip.
    fn on_chunk_over(&mut self, now: Instant) {
        let rtt = self.rtt.unwrap_or(ASSUMED_RTT);
        let again = self.asked.is_none_or(|(_, at)| at + rtt + rtt / 4 <= now);
        if let (true, Some(end)) = (again, self.chunk_end()) {
            self.want(now, end);
        }
    }
}

impl LossDetector for Bitmaps {
    fn on_granted(&mut self, _: Instant, buffer: BufferNumber, _: ControlSeq) {
        self.open.insert(buffer);
    }

    fn on_requested(&mut self, now: Instant, _: ResendRequest, seq: ControlSeq) {
        self.asked = Some((seq, now));
    }

    fn on_acknowledged(&mut self, _: Instant, _: ControlSeq, timing: &TimingInfo) {
        self.rtt = timing.rtt;
    }

    fn on_arrival(&mut self, now: Instant, arrival: &Arrival, timing: &TimingInfo) {
        self.rtt = timing.rtt;
        self.top.pass(arrival, |_| {});
        let (next, index) = self.top.next();
        if index == 0 && self.chunk_end().is_some_and(|end| end.next() == next) {
            self.on_chunk_over(now);
        }
    }

    fn on_duplicate(&mut self, now: Instant) {
        self.on_chunk_over(now);
    }

    fn on_drained(&mut self, now: Instant, ack: ControlSeq, through: BufferNumber) {
        // The last request must have been answered: the same NULL-ACK comes more than once.
        if self.asked.is_none_or(|(seq, _)| ack.reaches(seq)) {
            self.want(now, through);
        }
    }

    fn on_renewed(&mut self, buffer: BufferNumber) {
        self.top.renew(buffer);
        self.open.insert(buffer);
        self.wanted.retain(|wanted| *wanted != buffer);
    }

    fn on_complete(&mut self, buffer: BufferNumber) {
        self.open.remove(&buffer);
    }

    fn poll(
        &mut self,
        _: Instant,
        holes: &dyn MissingRanges,
        _: &TimingInfo,
        asks: &mut Vec<ResendRequest>,
    ) {
        let all = IndexRange { start: 0, end: u32::MAX };
        while asks.len() < REQUESTS_PER_POLL
            && let Some(buffer) = self.wanted.pop_front()
        {
            let mut left = false;
            holes.holes(buffer, all, &mut |range| match asks.len() < REQUESTS_PER_POLL {
                true => asks.push(ResendRequest { buffer, range }),
                false => left = true,
            });
            if left && asks.iter().any(|ask| ask.buffer != buffer) {
                // The whole buffer goes into the next one; of a single buffer the first holes are
                // enough.
                asks.retain(|ask| ask.buffer != buffer);
                self.wanted.push_front(buffer);
                return;
            }
        }
    }

    fn next_poll(&self) -> Option<Instant> {
        (!self.wanted.is_empty()).then_some(self.since)
    }

    fn expiries(&self) -> u64 {
        0
    }
}
