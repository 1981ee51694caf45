//! NAK reports of SABUL and its successors: every gap in the sequence is a loss, at once.

use std::collections::VecDeque;
use std::time::Duration;

use crate::loss_detection::{
    Arrival, LossDetector, MissingRanges, REQUESTS_PER_POLL, ResendRequest, TimingInfo,
};
use crate::time::{Instant, earliest};
use crate::units::{BufferNumber, ControlSeq};
use crate::wire::packet::IndexRange;

/// The round trip assumed before one was measured.
const ASSUMED_RTT: Duration = Duration::from_millis(100);

/// The highest position of the first pass that has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct HighestArrival {
    /// The position after the highest that arrived.
    next: (BufferNumber, u32),
}

impl Default for HighestArrival {
    fn default() -> Self {
        Self { next: (BufferNumber::FIRST, 0) }
    }
}

impl HighestArrival {
    /// The position after the furthest that arrived.
    pub(super) fn next(&self) -> (BufferNumber, u32) {
        self.next
    }

    /// A packet arrived: calls `each` for the gap before it, one range per buffer.
    pub(super) fn pass(&mut self, arrival: &Arrival, mut each: impl FnMut(ResendRequest)) {
        let (buffer, index) = (arrival.buffer, arrival.index.0);
        let (before, from) = self.next;
        if (buffer, index) < self.next {
            return;
        }
        for number in before.0..=buffer.0 {
            let start = if number == before.0 { from } else { 0 };
            let end = if number == buffer.0 { index } else { u32::MAX };
            if start < end {
                each(ResendRequest {
                    buffer: BufferNumber(number),
                    range: IndexRange { start, end },
                });
            }
        }
        self.next = match arrival.last_of_buffer {
            true => (buffer.next(), 0),
            false => (buffer, index + 1),
        };
    }

    /// `buffer` restarts.
    pub(super) fn renew(&mut self, buffer: BufferNumber) {
        self.next = self.next.min((buffer, 0));
    }
}

/// A reported loss that is still missing.
#[derive(Clone, Copy, Debug)]
struct ReportedLoss {
    ask: ResendRequest,
    at: Instant,
    /// How often it was reported.
    times: u32,
}

/// Reports every loss at once, and again at an interval while it is missing.
#[derive(Debug)]
pub(super) struct NakReports {
    top: HighestArrival,
    /// Losses not reported yet, and since when.
    found: VecDeque<ResendRequest>,
    since: Instant,
    reported: VecDeque<ReportedLoss>,
    /// The interval, `trips` round trips longer, and when it is due; stopped while nothing is
    /// missing.
    every: Duration,
    trips: u32,
    due: Option<Instant>,
    /// Round trips by which the interval of a loss grows with each report.
    growth: u32,
    /// Whether half a round trip is added.
    patient: bool,
    rtt: Option<Duration>,
    expiries: u64,
}

impl NakReports {
    /// Checks reported losses at this interval, and reports each again after a round trip.
    pub(super) fn every(every: Duration) -> Self {
        Self {
            top: HighestArrival::default(),
            found: VecDeque::new(),
            since: Instant::EPOCH,
            reported: VecDeque::new(),
            every,
            trips: 0,
            due: None,
            growth: 0,
            patient: false,
            rtt: None,
            expiries: 0,
        }
    }

    /// Adds half a round trip to that.
    pub(super) fn patient(self) -> Self {
        Self { patient: true, ..self }
    }

    /// Adds `trips` round trips to the interval.
    pub(super) fn and_trips(self, trips: u32) -> Self {
        Self { trips, ..self }
    }

    /// Adds `trips` round trips with each report of a loss.
    pub(super) fn growing(self, trips: u32) -> Self {
        Self { growth: trips, ..self }
    }

    fn clock(&self) -> Duration {
        self.every + self.rtt.unwrap_or(ASSUMED_RTT) * self.trips
    }

    /// Requests the holes of `ask`; returns the part without room.
    fn report(
        &mut self,
        now: Instant,
        ask: ResendRequest,
        times: u32,
        holes: &dyn MissingRanges,
        asks: &mut Vec<ResendRequest>,
    ) -> Option<ResendRequest> {
        let mut left = None;
        let reported = &mut self.reported;
        holes.holes(ask.buffer, ask.range, &mut |range| {
            if asks.len() < REQUESTS_PER_POLL {
                let ask = ResendRequest { range, ..ask };
                asks.push(ask);
                reported.push_back(ReportedLoss { ask, at: now, times });
            } else {
                left.get_or_insert(range.start);
            }
        });
        left.map(|start| ResendRequest { range: IndexRange { start, ..ask.range }, ..ask })
    }

    /// The interval is over: reports again each loss that is still missing and was reported long
    /// enough ago.
    fn tabulate(&mut self, now: Instant, holes: &dyn MissingRanges, asks: &mut Vec<ResendRequest>) {
        let rtt = self.rtt.unwrap_or(ASSUMED_RTT);
        let more = if self.patient { rtt / 2 } else { Duration::ZERO };
        for _ in 0..self.reported.len() {
            let Some(reported) = self.reported.pop_front() else { break };
            let ReportedLoss { ask, at, times } = reported;
            if at + rtt * (1 + self.growth * times) + more > now || asks.len() >= REQUESTS_PER_POLL
            {
                self.reported.push_back(reported);
                continue;
            }
            let before = asks.len();
            if let Some(ask) = self.report(now, ask, times + 1, holes, asks) {
                self.reported.push_back(ReportedLoss { ask, ..reported });
            }
            self.expiries += u64::from(asks.len() > before);
        }
        self.due = (!self.reported.is_empty()).then(|| now + self.clock());
    }
}

impl LossDetector for NakReports {
    fn on_granted(&mut self, _: Instant, _: BufferNumber, _: ControlSeq) {}

    fn on_requested(&mut self, _: Instant, _: ResendRequest, _: ControlSeq) {}

    fn on_acknowledged(&mut self, _: Instant, _: ControlSeq, timing: &TimingInfo) {
        self.rtt = timing.rtt;
    }

    fn on_arrival(&mut self, now: Instant, arrival: &Arrival, timing: &TimingInfo) {
        self.rtt = timing.rtt;
        let found = &mut self.found;
        self.top.pass(arrival, |ask| found.push_back(ask));
        self.since = now;
    }

    fn on_drained(&mut self, _: Instant, _: ControlSeq, _: BufferNumber) {}

    fn on_renewed(&mut self, buffer: BufferNumber) {
        self.top.renew(buffer);
        self.found.retain(|ask| ask.buffer != buffer);
        self.reported.retain(|reported| reported.ask.buffer != buffer);
    }

    fn on_complete(&mut self, buffer: BufferNumber) {
        self.reported.retain(|reported| reported.ask.buffer != buffer);
    }

    fn poll(
        &mut self,
        now: Instant,
        holes: &dyn MissingRanges,
        _: &TimingInfo,
        asks: &mut Vec<ResendRequest>,
    ) {
        while asks.len() < REQUESTS_PER_POLL
            && let Some(ask) = self.found.pop_front()
        {
            if let Some(left) = self.report(now, ask, 0, holes, asks) {
                self.found.push_front(left);
                break;
            }
        }
        if self.due.is_some_and(|at| at <= now) {
            self.tabulate(now, holes, asks);
        } else if self.due.is_none() && !self.reported.is_empty() {
            self.due = Some(now + self.clock());
        }
    }

    fn next_poll(&self) -> Option<Instant> {
        earliest([(!self.found.is_empty()).then_some(self.since), self.due])
    }

    fn expiries(&self) -> u64 {
        self.expiries
    }
}
