//! The early gap detector of the `sealed` wire (`docs/protocol §6.4`).
//!
//! The sender keeps one order, lowest position first. So a packet that acknowledges request *r*
//! proves that everything *r* asked for at lower positions was sent before it. A packet that is
//! overtaken in this way and still missing after the reordering window is requested again. The
//! window grows with the lateness seen, so that late packets are not requested (RFC 8985 §6.2).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{Arrival, LossDetector, MissingRanges, REQUESTS_PER_POLL, ResendRequest, TimingInfo};
use crate::time::{Instant, earliest};
use crate::units::{BufferNumber, ControlSeq};
use crate::wire::packet::IndexRange;

/// The window before any lateness was seen, as a fraction of the round trip.
const FIRST_WINDOW: u32 = 4;
/// The smallest window, as a fraction of the round trip.
const SMALLEST_WINDOW: u32 = 16;
/// The smallest window whatever the round trip: interrupts alone scatter packets this much.
const MIN_WINDOW: Duration = Duration::from_millis(1);
/// A packet overtaken by at most this many counts as late and not as lost.
const REORDERED_PACKETS: u32 = 4;
/// Packets of a first pass requested without proof of loss; as many more for each time before in a
/// row. If the path only paused, or became longer, all of them arrive twice.
const UNPROVEN_PACKETS: u32 = 64;
/// The round trip assumed before one was measured.
const ASSUMED_RTT: Duration = Duration::from_millis(200);

/// Overtaken packets, which may only be late.
#[derive(Clone, Copy, Debug)]
struct SuspectedLoss {
    ask: ResendRequest,
    since: Instant,
}

/// A position in the sender's order.
type SendOrder = (BufferNumber, u32);

/// Requests overtaken packets early, and others after too long a silence.
#[derive(Debug, Default)]
pub struct GapDetector {
    /// Buffers whose first pass has not been seen whole, and the index it has reached.
    fresh: BTreeMap<BufferNumber, u32>,
    /// Granted buffers whose GO is not acknowledged, in order of granting.
    granted: VecDeque<(ControlSeq, BufferNumber)>,
    /// Requests that are not acknowledged, in order.
    waiting: VecDeque<(ControlSeq, ResendRequest)>,
    /// Acknowledged requests by position, with the end of the range.
    acknowledged: BTreeMap<SendOrder, u32>,
    /// Overtaken packets, oldest first.
    suspects: VecDeque<SuspectedLoss>,
    /// Current reordering window.
    window: Duration,
    /// Largest lateness since `lateness_from`.
    lateness: Duration,
    lateness_from: Instant,
    /// The last arrival or request; the idle timer runs from it.
    last_activity: Option<Instant>,
    quiet_expiries: u32,
    expiries: u64,
    rtt: Option<Duration>,
    timeout: Option<Duration>,
    interval: Duration,
    /// The sender's mean time between packets, by the burst values it announced.
    per_packet: Duration,
}

impl GapDetector {
    /// A new detector.
    pub fn new() -> Self {
        Self::default()
    }

    fn window(&self) -> Duration {
        let rtt = self.rtt.unwrap_or(ASSUMED_RTT);
        // On a slow path being overtaken by a few packets takes longer than a short round trip.
        let few = self.per_packet.saturating_mul(REORDERED_PACKETS);
        let window = if self.window.is_zero() { rtt / FIRST_WINDOW } else { self.window };
        window
            .clamp(MIN_WINDOW.max(rtt / SMALLEST_WINDOW).max(few), MIN_WINDOW.max(rtt).max(few * 4))
    }

    /// Time without arrival or request after which missing packets are requested without proof.
    fn idle_time(&self) -> Duration {
        let rtt = self.rtt.unwrap_or(ASSUMED_RTT);
        let base = rtt + rtt / 4 + self.interval * 2 + Duration::from_millis(10);
        // If the control timer expired without an answer, the round trip has become longer.
        let base = base.max(self.timeout.unwrap_or_default());
        base * (1 << self.quiet_expiries.min(5))
    }

    fn suspect(&mut self, now: Instant, buffer: BufferNumber, range: IndexRange) {
        if range.start < range.end {
            self.suspects
                .push_back(SuspectedLoss { ask: ResendRequest { buffer, range }, since: now });
        }
    }

    /// The sender acknowledged every request up to `ack`.
    fn acknowledge(&mut self, ack: ControlSeq) {
        while self.granted.pop_front_if(|(seq, _)| ack.reaches(*seq)).is_some() {}
        while let Some((_, ask)) = self.waiting.pop_front_if(|(seq, _)| ack.reaches(*seq)) {
            let end = self.acknowledged.entry((ask.buffer, ask.range.start)).or_default();
            *end = ask.range.end.max(*end);
        }
    }

    /// Every acknowledged request below `position` was sent before the packet that just arrived.
    fn overtake(&mut self, now: Instant, position: SendOrder) {
        while let Some(entry) = self.acknowledged.first_entry() {
            let (buffer, start) = *entry.key();
            if (buffer, start) >= position {
                return;
            }
            let end = entry.remove();
            if buffer == position.0 && end > position.1 {
                // The sender has come this far into the range; the rest is still due.
                self.suspect(now, buffer, IndexRange { start, end: position.1 });
                let rest = self.acknowledged.entry((buffer, position.1)).or_default();
                *rest = end.max(*rest);
                return;
            }
            self.suspect(now, buffer, IndexRange { start, end });
        }
    }

    /// First passes end in order: those of buffers below `buffer` are over.
    fn first_passes_over(&mut self, now: Instant, buffer: BufferNumber) {
        while let Some(entry) = self.fresh.first_entry() {
            if *entry.key() >= buffer {
                return;
            }
            let (below, reached) = entry.remove_entry();
            self.suspect(now, below, IndexRange { start: reached, end: u32::MAX });
        }
    }

    /// A suspected packet arrived: the path reorders by at least this much.
    fn late(&mut self, now: Instant, arrival: &Arrival) {
        let found = self.suspects.iter().find(|s| {
            s.ask.buffer == arrival.buffer
                && (s.ask.range.start..s.ask.range.end).contains(&arrival.index.0)
        });
        if let Some(suspect) = found {
            self.note_lateness(now.since(suspect.since));
            return;
        }
        // It was requested already, and arrived before the sender had the request.
        let asked = self.waiting.iter().any(|(seq, ask)| {
            ask.buffer == arrival.buffer
                && (ask.range.start..ask.range.end).contains(&arrival.index.0)
                && !arrival.ack.reaches(*seq)
        });
        if asked {
            self.note_lateness(self.window() * 2);
        }
    }

    fn note_lateness(&mut self, by: Duration) {
        self.lateness = self.lateness.max(by);
        self.window = self.window().max(by + by / 2);
    }

    /// Every 32 round trips the window moves a quarter of the way down to what was seen in them.
    fn decay(&mut self, now: Instant) {
        let period = self.rtt.unwrap_or(ASSUMED_RTT) * 32;
        if now.since(self.lateness_from) >= period {
            let enough = self.lateness + self.lateness / 2;
            let window = self.window();
            self.window = window - window.saturating_sub(enough) / 4;
            self.lateness = Duration::ZERO;
            self.lateness_from = now;
        }
    }

    /// Nothing arrives although packets are missing: requests packets that may be lost without
    /// proof, of buffers of at `most` this many packets. A packet that the sender has not sent yet
    /// is not sent twice for this.
    fn request_when_idle(&mut self, now: Instant, most: u32) {
        while let Some(((buffer, start), end)) = self.acknowledged.pop_first() {
            self.suspect(now, buffer, IndexRange { start, end });
        }
        // From here on the request stands for the first pass, so that no hole is requested twice.
        // The control timer repeats a GO that may not have arrived.
        let ungranted = self.granted.front().map_or(BufferNumber(u64::MAX), |(_, buffer)| *buffer);
        let times = self.quiet_expiries.min(16);
        let Some(mut entry) = self.fresh.first_entry().filter(|e| *e.key() < ungranted) else {
            return;
        };
        let (buffer, start) = (*entry.key(), *entry.get());
        let end = start.saturating_add(UNPROVEN_PACKETS << times.saturating_sub(1));
        // Where the reverse path has a queue each request waits in it, so few requests ask for all
        // packets.
        let all = end >= most || self.timeout.is_none();
        let end = if all { u32::MAX } else { end };
        match end {
            u32::MAX => _ = entry.remove(),
            end => *entry.get_mut() = end,
        }
        self.suspect(now, buffer, IndexRange { start, end });
    }
}

impl LossDetector for GapDetector {
    fn on_granted(&mut self, now: Instant, buffer: BufferNumber, seq: ControlSeq) {
        self.fresh.insert(buffer, 0);
        self.granted.push_back((seq, buffer));
        self.last_activity.get_or_insert(now);
    }

    fn on_requested(&mut self, _: Instant, ask: ResendRequest, seq: ControlSeq) {
        self.waiting.push_back((seq, ask));
    }

    fn on_acknowledged(&mut self, now: Instant, ack: ControlSeq, timing: &TimingInfo) {
        self.acknowledge(ack);
        self.rtt = timing.rtt;
        self.timeout = timing.timeout;
        self.interval = timing.burst.interval;
        self.per_packet = timing.burst.interval / timing.burst.packets.max(1);
        self.last_activity = Some(now);
    }

    fn on_arrival(&mut self, now: Instant, arrival: &Arrival, timing: &TimingInfo) {
        self.rtt = timing.rtt;
        self.timeout = timing.timeout;
        self.interval = timing.burst.interval;
        self.per_packet = timing.burst.interval / timing.burst.packets.max(1);
        self.last_activity = Some(now);
        self.quiet_expiries = 0;
        let index = arrival.index.0;
        self.first_passes_over(now, arrival.buffer);
        match self.fresh.get_mut(&arrival.buffer) {
            Some(reached) if index >= *reached => {
                let range = IndexRange { start: *reached, end: index };
                *reached = index + 1;
                if arrival.last_of_buffer {
                    self.fresh.remove(&arrival.buffer);
                }
                self.suspect(now, arrival.buffer, range);
            }
            _ => self.late(now, arrival),
        }
        self.acknowledge(arrival.ack);
        self.overtake(now, (arrival.buffer, index));
        self.decay(now);
    }

    fn expects(&self, buffer: BufferNumber, index: u32) -> bool {
        self.acknowledged.is_empty() && self.fresh.get(&buffer) == Some(&index)
    }

    fn on_expected(&mut self, now: Instant, buffer: BufferNumber) {
        if let Some(reached) = self.fresh.get_mut(&buffer) {
            *reached += 1;
        }
        self.decay(now);
    }

    fn on_drained(&mut self, now: Instant, ack: ControlSeq, through: BufferNumber) {
        self.acknowledge(ack);
        self.first_passes_over(now, through.next());
        self.overtake(now, (through.next(), 0));
    }

    fn on_renewed(&mut self, buffer: BufferNumber) {
        self.fresh.remove(&buffer);
        self.waiting.retain(|(_, ask)| ask.buffer != buffer);
        self.suspects.retain(|suspect| suspect.ask.buffer != buffer);
        let positions: Vec<SendOrder> =
            self.acknowledged.range((buffer, 0)..=(buffer, u32::MAX)).map(|(at, _)| *at).collect();
        for position in positions {
            self.acknowledged.remove(&position);
        }
    }

    fn on_complete(&mut self, buffer: BufferNumber) {
        self.fresh.remove(&buffer);
    }

    fn poll(
        &mut self,
        now: Instant,
        holes: &dyn MissingRanges,
        timing: &TimingInfo,
        asks: &mut Vec<ResendRequest>,
    ) {
        self.timeout = timing.timeout;
        let quiet = self.last_activity.is_some_and(|at| at + self.idle_time() <= now);
        if quiet {
            self.quiet_expiries += 1;
            self.expiries += 1;
            self.last_activity = Some(now);
            if self.waiting.is_empty() {
                self.request_when_idle(now.before(self.window()), timing.packets_per_buffer);
            }
        }
        let window = self.window();
        while let Some(suspect) = self.suspects.pop_front_if(|s| s.since + window <= now) {
            let ResendRequest { buffer, range } = suspect.ask;
            let mut left = None;
            holes.holes(buffer, range, &mut |range| {
                if asks.len() < REQUESTS_PER_POLL {
                    asks.push(ResendRequest { buffer, range });
                } else {
                    left.get_or_insert(range.start);
                }
            });
            if let Some(start) = left {
                let ask = ResendRequest { buffer, range: IndexRange { start, ..range } };
                self.suspects.push_front(SuspectedLoss { ask, ..suspect });
                break;
            }
        }
    }

    fn next_poll(&self) -> Option<Instant> {
        let window = self.window();
        let busy = !self.acknowledged.is_empty() || !self.fresh.is_empty();
        earliest([
            self.suspects.front().map(|s| s.since + window),
            self.last_activity.filter(|_| busy).map(|at| at + self.idle_time()),
        ])
    }

    fn expiries(&self) -> u64 {
        self.expiries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Burst;
    use crate::units::{PacketIndex, PacketNumber};

    /// Every other packet is missing.
    struct Comb;
    impl MissingRanges for Comb {
        fn holes(&self, _: BufferNumber, range: IndexRange, each: &mut dyn FnMut(IndexRange)) {
            let odd = (range.start..range.end).filter(|i| i % 2 == 1);
            odd.for_each(|start| each(IndexRange { start, end: start + 1 }));
        }
        fn missing(&self, _: BufferNumber) -> u32 {
            5000
        }
    }

    fn timing(timeout: Option<Duration>) -> TimingInfo {
        TimingInfo {
            rtt: Some(Duration::from_millis(40)),
            timeout,
            burst: Burst { packets: 8, interval: Duration::from_millis(1) },
            varies: false,
            packets_per_buffer: 10_001,
            packets_per_round: u32::MAX,
        }
    }

    /// All of a range is missing.
    struct WholeRange;
    impl MissingRanges for WholeRange {
        fn holes(&self, _: BufferNumber, range: IndexRange, each: &mut dyn FnMut(IndexRange)) {
            each(range);
        }
        fn missing(&self, _: BufferNumber) -> u32 {
            10_000
        }
    }

    /// On a path that became longer the detector waits for the timer, and requests few packets;
    /// with a queue on the reverse path it does neither.
    #[test]
    fn idle_time_with_a_reverse_path_queue_requests_all_at_once() {
        let asked_in_silence = |timeout| {
            let (mut gaps, timing) = (GapDetector::new(), timing(timeout));
            let arrival = Arrival {
                number: PacketNumber(0),
                buffer: BufferNumber(1),
                index: PacketIndex(9),
                last_of_buffer: false,
                ack: ControlSeq(1),
            };
            gaps.on_granted(Instant::EPOCH, BufferNumber(1), ControlSeq(1));
            // Ten came, one behind the other.
            for index in 0..10 {
                let index = PacketIndex(index);
                gaps.on_arrival(Instant::EPOCH, &Arrival { index, ..arrival }, &timing);
            }
            let mut asks = Vec::new();
            while asks.is_empty() {
                let now = gaps.next_poll().unwrap();
                gaps.poll(now, &WholeRange, &timing, &mut asks);
                if let Some(ask) = asks.first() {
                    return (now, ask.range);
                }
            }
            unreachable!()
        };
        let second = Duration::from_secs(1);
        let (at, range) = asked_in_silence(Some(second));
        assert!(at >= Instant::EPOCH + second, "{at:?}");
        assert_eq!(range, IndexRange { start: 10, end: 10 + UNPROVEN_PACKETS });
        let (at, range) = asked_in_silence(None);
        assert!(at < Instant::EPOCH + second / 4, "{at:?}");
        assert_eq!(range, IndexRange { start: 10, end: u32::MAX });
    }

    #[test]
    fn holes_beyond_one_poll_are_requested_by_the_next() {
        let timing = timing(Some(Duration::ZERO));
        let mut gaps = GapDetector::new();
        let arrival = Arrival {
            number: PacketNumber(0),
            buffer: BufferNumber(1),
            index: PacketIndex(10_000),
            last_of_buffer: true,
            ack: ControlSeq(1),
        };
        gaps.on_granted(Instant::EPOCH, BufferNumber(1), ControlSeq(1));
        gaps.on_arrival(Instant::EPOCH, &arrival, &timing);
        let now = gaps.next_poll().unwrap();
        let mut starts = Vec::new();
        while gaps.next_poll().is_some_and(|at| at <= now) {
            let mut asks = Vec::new();
            gaps.poll(now, &Comb, &timing, &mut asks);
            assert!((1..=REQUESTS_PER_POLL).contains(&asks.len()));
            starts.extend(asks.iter().map(|ask| ask.range.start));
        }
        assert!(starts.iter().copied().eq((1..10_000).step_by(2)));
    }
}
