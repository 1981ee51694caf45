//! RFC 998's data timers (§5.2.2), adaptive as RFC 1030 reports.
//!
//! A buffer whose control message is acknowledged gets a loose timer, which allows for everything
//! still due in lower buffers. Its first packet replaces that by a tight one, and gives one to
//! every lower buffer that has none yet. While packets of it or of lower buffers arrive, its timer
//! restarts from the newest of them. When a timer expires, every hole of the buffer is requested.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::sender_gaps::SenderGaps;
use super::{Arrival, LossDetector, MissingRanges, REQUESTS_PER_POLL, ResendRequest, TimingInfo};
use crate::time::Instant;
use crate::units::{BufferNumber, ControlSeq};
use crate::wire::packet::IndexRange;

/// Delays of the host itself: no data timer is finer.
const SLACK: Duration = Duration::from_millis(5);
/// At most this many outstanding buffers: one that is not complete soon stops the sender.
const FEW_BUFFERS: usize = 2;
/// A host that was suspended handles the packets in its queues before it requests them.
const HOST_GRACE: Duration = Duration::from_millis(1);
/// Time beyond the timer for which a packet that the sender passed may be only late. A timer that
/// was set when the sender was far slower would wait longer.
const LATE: Duration = Duration::from_millis(200);
/// Packets of a buffer after which its pace is measured, before its end.
const PACE_PACKETS: u32 = 32;
/// The most that a measured pace, and gaps, add to a timer each. An outage within a buffer looks
/// like a slow sender, and a gap that long justifies a request.
const LONGEST: Duration = Duration::from_secs(8);
/// Longest interval at which buffers are checked that wait for a sender that sends nothing at all:
/// as long as it has been silent, up to this.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Doublings of a loose timer that expired before the buffer's first packet: the sender's client
/// may have nothing to send.
const MAX_DOUBLINGS: u32 = 3;

/// The timer of one granted buffer.
#[derive(Debug, Default)]
struct BufferTimer {
    /// ACK-WAIT: the newest control message for it, not acknowledged.
    waiting: Option<ControlSeq>,
    deadline: Option<Instant>,
    /// The deadline is over, and packets in the host's own queues get one more chance.
    graced: bool,
    /// Its packets, as far as is known.
    expected: u32,
    /// Missing packets, as far as is known.
    missing: u32,
    received: u32,
    /// Time and index of the first arrival, and of the one with the highest index.
    first: Option<(Instant, u32)>,
    last: Option<(Instant, u32)>,
    /// When the newest arrived.
    last_arrival: Option<Instant>,
    /// Packets were requested again: its arrivals no longer show the pace of a first pass.
    asked: bool,
    /// Expiries since its last arrival.
    expired: u32,
}

impl BufferTimer {
    fn set(&mut self, deadline: Instant) {
        (self.deadline, self.graced) = (Some(deadline), false);
    }

    /// Packets that the first pass has not reached yet.
    fn ahead(&self) -> u32 {
        match self.last {
            Some((_, furthest)) if !self.asked => self.expected.saturating_sub(furthest + 1),
            _ => self.missing,
        }
    }

    /// Time per packet of its first pass, if that spans at least `least` indexes. Indexes and not
    /// arrivals: lost packets took their time too.
    fn pace(&self, least: u32) -> Option<Duration> {
        let ((first, from), (last, to)) = self.first.zip(self.last).filter(|_| !self.asked)?;
        let packets = to.checked_sub(from).filter(|packets| *packets >= least)?;
        Some(last.since(first) / packets)
    }
}

/// Loose and tight data timers.
#[derive(Debug, Default)]
pub struct DataTimer {
    /// As in the first implementations ([`DataTimer::first`]).
    first: bool,
    due: BTreeMap<BufferNumber, BufferTimer>,
    /// The earliest deadline, cached because it is read with every packet.
    soonest: Option<Instant>,
    /// Smoothed time per packet and its deviation, once a buffer was measured.
    pace: Option<(Duration, Duration)>,
    /// The same of the newest buffer, as soon as it is known: it shows a sender that became faster.
    latest: Option<Duration>,
    gaps: SenderGaps,
    /// The buffer that was completed last, and when.
    completed: Option<(BufferNumber, Instant)>,
    /// The newest arrival; before that, the first acknowledged grant.
    newest: Option<Instant>,
    /// The highest buffer with an arrival.
    furthest: BufferNumber,
    expiries: u64,
}

impl DataTimer {
    /// Timers that start from the negotiated burst values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Timers that run from the first packet of a buffer, whatever arrives after it, and then
    /// request all missing packets at once: those of RFC 1030's hosts.
    pub fn first() -> Self {
        Self { first: true, ..Self::default() }
    }

    /// A loose timer for `packets` that may not have left: one burst interval until the sender
    /// begins, and the tight one.
    fn loose(&self, packets: u32, timing: &TimingInfo) -> Duration {
        self.tight(packets, timing).saturating_add(timing.burst.interval)
    }

    /// A tight timer for `packets` that follow the one that just arrived: the measured time, at
    /// least the burst intervals between them, four deviations, and the longest recent gap of the
    /// sender beyond its burst intervals. It adapts to a sender that became faster. Until a buffer
    /// was measured it is half again as long as the burst values imply: the first timers must not
    /// fire because a host is slow to start.
    fn tight(&self, packets: u32, timing: &TimingInfo) -> Duration {
        let interval = timing.burst.interval;
        let bursts = packets.div_ceil(timing.burst.packets.max(1));
        let promised = interval.saturating_mul(bursts);
        let longest = if self.first { Duration::MAX } else { LONGEST };
        let silence = if self.first { Duration::ZERO } else { self.gaps.longest().min(longest) };
        let Some((mean, deviation)) = self.pace else {
            return (promised.saturating_mul(3) / 2).saturating_add(SLACK + silence);
        };
        let least = match timing.varies {
            // n bursts begin within n - 1 intervals.
            false => promised.saturating_sub(interval),
            // The sender may be slower by now, and may change its pace within a buffer.
            true => promised.saturating_mul(3) / 2 + interval,
        };
        // While others arrive the transfer does not wait for this one, and it may only be late.
        let spare = if self.due.len() > FEW_BUFFERS { interval } else { Duration::ZERO };
        let variance = (deviation * 4).max(silence).min(longest) + SLACK;
        let mean = self.latest.filter(|_| !self.first).map_or(mean, |latest| latest.min(mean));
        least.max(mean.saturating_mul(packets).min(longest)).saturating_add(spare + variance)
    }

    /// Packets due before `buffer` is complete, those of lower buffers included (the ordering
    /// rule).
    fn due_up_to(&self, buffer: BufferNumber) -> u32 {
        let ahead = |due: &BufferTimer| if self.first { due.missing } else { due.ahead() };
        self.due.range(..=buffer).fold(0, |sum, (_, due)| sum.saturating_add(ahead(due)))
    }

    /// A timer for `buffer` from now on.
    fn value(&self, buffer: BufferNumber, due: &BufferTimer, timing: &TimingInfo) -> Duration {
        let packets = self.due_up_to(buffer);
        match due.received {
            0 => self.loose(packets, timing).saturating_mul(1 << due.expired.min(MAX_DOUBLINGS)),
            _ => self.tight(packets, timing),
        }
    }

    /// The last arrival of `buffer` or a lower one.
    fn last_arrival_up_to(&self, buffer: BufferNumber) -> Option<Instant> {
        let last_arrival = self.due.range(..=buffer).filter_map(|(_, due)| due.last_arrival).max();
        let completed = self.completed.filter(|(number, _)| *number < buffer).map(|(_, at)| at);
        last_arrival.max(completed)
    }

    /// The new deadline of the expired timer of `buffer`, if it is postponed.
    fn later(&self, now: Instant, buffer: BufferNumber, timing: &TimingInfo) -> Option<Instant> {
        if self.furthest > buffer {
            // Its first pass is over: the missing packets were sent.
            return None;
        }
        let due = self.due.get(&buffer)?;
        let value = self.value(buffer, due, timing);
        let restarted = self.last_arrival_up_to(buffer).map(|at| at + value);
        if let Some(restarted) = restarted.filter(|at| *at > now) {
            return Some(restarted);
        }
        // The request for a lower buffer is not acknowledged, and nothing higher arrived: the
        // sender sends nothing at all, and must answer that request first.
        let asks = self.due.range(..buffer).any(|(_, due)| due.asked && due.waiting.is_some());
        let silent = self.newest.map_or(Duration::ZERO, |newest| now.since(newest));
        asks.then(|| now + value.max(silent.min(CHECK_INTERVAL)))
    }

    /// A packet of `buffer` arrived after its timer had expired: the sender or the path has
    /// recovered, so the next buffer's timer, lengthened for the same reason, is set again.
    fn follow(&mut self, now: Instant, buffer: BufferNumber, timing: &TimingInfo) {
        let mut above = self.due.range_mut(buffer..).skip(1);
        let Some((next, due)) = above.next().filter(|(_, due)| due.received == 0) else { return };
        let next = *next;
        // As after one expiry, so that its first arrival counts as recovery as well.
        due.expired = due.expired.min(1);
        let soonest = now + self.loose(self.due_up_to(next), timing);
        if let Some(due) = self.due.get_mut(&next)
            && due.deadline.is_some_and(|deadline| deadline > soonest)
        {
            due.set(soonest);
        }
    }

    /// The sender has passed the end of every buffer below `number`, and resends before it sends
    /// anything new.
    fn hasten(&mut self, now: Instant, number: BufferNumber, timing: &TimingInfo) {
        if self.first {
            return;
        }
        let past = self.due.range(..number).filter(|(_, due)| {
            due.received > 0 && due.waiting.is_none() && due.expected > PACE_PACKETS
        });
        let late = |due: &BufferTimer| now + LATE + self.tight(due.ahead(), timing);
        let late: Vec<_> = past.map(|(number, due)| (*number, late(due))).collect();
        for (number, late) in late {
            if let Some(due) = self.due.get_mut(&number)
                && due.deadline.is_some_and(|at| at > late)
            {
                due.set(late);
            }
        }
    }

    /// Deadlines changed.
    fn update_soonest(&mut self) {
        self.soonest = self.due.values().filter_map(|due| due.deadline).min();
    }

    fn measure(&mut self, buffer: BufferNumber) {
        let Some(sample) = self.due.get(&buffer).and_then(|due| due.pace(1)) else { return };
        self.pace = Some(match self.pace {
            None => (sample, sample / 2),
            Some((mean, deviation)) => {
                ((mean * 7 + sample) / 8, (deviation * 3 + mean.abs_diff(sample)) / 4)
            }
        });
    }
}

impl LossDetector for DataTimer {
    fn on_granted(&mut self, _: Instant, buffer: BufferNumber, seq: ControlSeq) {
        self.due.insert(buffer, BufferTimer { waiting: Some(seq), ..BufferTimer::default() });
        self.update_soonest();
    }

    fn on_requested(&mut self, _: Instant, ask: ResendRequest, seq: ControlSeq) {
        if let Some(due) = self.due.get_mut(&ask.buffer) {
            due.waiting = Some(seq);
            due.deadline = None;
            due.asked = true;
        }
        self.update_soonest();
    }

    fn on_acknowledged(&mut self, now: Instant, ack: ControlSeq, timing: &TimingInfo) {
        let acknowledged: Vec<BufferNumber> = self
            .due
            .iter()
            .filter(|(_, due)| due.waiting.is_some_and(|seq| ack.reaches(seq)))
            .map(|(number, _)| *number)
            .collect();
        if !acknowledged.is_empty() {
            self.newest.get_or_insert(now);
        }
        for number in &acknowledged {
            if let Some(due) = self.due.get_mut(number) {
                due.waiting = None;
                if due.received == 0 {
                    due.missing = timing.packets_per_buffer;
                    due.expected = timing.packets_per_buffer;
                }
            }
        }
        for number in acknowledged {
            let packets = self.due_up_to(number);
            let loose = self.loose(packets, timing);
            let first = self.first;
            if let Some(due) = self.due.get_mut(&number) {
                // A buffer that has begun is complete at the sender.
                let begun = first || due.received > 0;
                let doublings = if begun { 0 } else { due.expired.min(MAX_DOUBLINGS) };
                due.set(now + loose.saturating_mul(1 << doublings));
            }
        }
        self.update_soonest();
    }

    fn on_arrival(&mut self, now: Instant, arrival: &Arrival, timing: &TimingInfo) {
        let number = arrival.buffer;
        let Some(due) = self.due.get_mut(&number) else { return };
        if due.received == 0 && due.missing == 0 {
            due.missing = timing.packets_per_buffer;
            due.expected = timing.packets_per_buffer;
        }
        due.received += 1;
        let lives = std::mem::take(&mut due.expired) > 0 && !self.first;
        due.missing = due.missing.saturating_sub(1);
        if arrival.last_of_buffer {
            due.expected = arrival.index.0 + 1;
            due.missing = due.missing.min(due.expected.saturating_sub(due.received));
        }
        let here = (now, arrival.index.0);
        let newest = self.newest.replace(now).unwrap_or(now);
        self.gaps.expire(now);
        if let (Some((_, place)), false) = (due.last, due.asked) {
            // Since any arrival: resends of other buffers come in between.
            self.gaps.on_arrival((newest, place), here, timing.burst);
        }
        due.last_arrival = Some(now);
        due.first.get_or_insert(here);
        if due.last.is_none_or(|(_, furthest)| furthest < here.1) {
            due.last = Some(here);
        }
        self.latest = due.pace(PACE_PACKETS).or(self.latest);
        self.furthest = self.furthest.max(number);
        let begins = due.received == 1;
        if lives {
            self.follow(now, number, timing);
        }
        if arrival.last_of_buffer {
            self.hasten(now, number.next(), timing);
        }
        if lives || arrival.last_of_buffer {
            self.update_soonest();
        }
        if !begins {
            return;
        }
        // First packet: a tight timer here, and where a lower buffer is only waiting.
        let tight: Vec<BufferNumber> = self
            .due
            .range(..=number)
            .filter(|(n, due)| **n == number || (due.received == 0 && due.waiting.is_none()))
            .map(|(n, _)| *n)
            .collect();
        for lower in tight {
            let deadline = now + self.tight(self.due_up_to(lower), timing);
            if let Some(due) = self.due.get_mut(&lower)
                && due.waiting.is_none()
            {
                // New buffers do not postpone a request that was not answered.
                let before = due.deadline.filter(|_| lower < number && due.expired > 0);
                due.set(before.map_or(deadline, |before| before.min(deadline)));
            }
        }
        self.hasten(now, number, timing);
        self.update_soonest();
    }

    fn on_drained(&mut self, _: Instant, _: ControlSeq, _: BufferNumber) {}

    fn on_renewed(&mut self, buffer: BufferNumber) {
        self.due.remove(&buffer);
        self.update_soonest();
    }

    fn on_complete(&mut self, buffer: BufferNumber) {
        self.measure(buffer);
        if let Some(last_arrival) = self.due.remove(&buffer).and_then(|due| due.last_arrival) {
            self.completed = Some((buffer, last_arrival));
        }
        self.update_soonest();
    }

    fn poll(
        &mut self,
        now: Instant,
        holes: &dyn MissingRanges,
        timing: &TimingInfo,
        asks: &mut Vec<ResendRequest>,
    ) {
        let expired: Vec<BufferNumber> = self
            .due
            .iter()
            .filter(|(_, due)| due.deadline.is_some_and(|at| at <= now))
            .map(|(number, _)| *number)
            .collect();
        for buffer in expired {
            if asks.len() >= REQUESTS_PER_POLL {
                break;
            }
            let later = if self.first { None } else { self.later(now, buffer, timing) };
            let graced = self.first;
            let Some(due) = self.due.get_mut(&buffer) else { continue };
            if let Some(later) = later {
                due.set(later);
                continue;
            }
            if !graced && !std::mem::replace(&mut due.graced, true) {
                due.deadline = Some(now + HOST_GRACE);
                continue;
            }
            due.expired += 1;
            self.expiries += 1;
            self.measure(buffer);
            // The first ranges of a buffer are enough: the timer is set again when they are
            // acknowledged.
            let mut left = timing.packets_per_round;
            let all = IndexRange { start: 0, end: u32::MAX };
            holes.holes(buffer, all, &mut |range| {
                let len = range.end.min(timing.packets_per_buffer).saturating_sub(range.start);
                let end = if len > left { range.start + left } else { range.end };
                if asks.len() < REQUESTS_PER_POLL && end > range.start {
                    left = left.saturating_sub(len);
                    asks.push(ResendRequest { buffer, range: IndexRange { end, ..range } });
                }
            });
            if let Some(due) = self.due.get_mut(&buffer) {
                due.deadline = None;
                // Packets that were not requested will not arrive, and are not waited for.
                due.missing = holes.missing(buffer).min(timing.packets_per_round - left);
                // Set before the buffers above it are checked.
                due.asked = true;
                due.waiting.get_or_insert(ControlSeq::default());
            }
        }
        self.update_soonest();
    }

    fn next_poll(&self) -> Option<Instant> {
        self.soonest
    }

    fn expiries(&self) -> u64 {
        self.expiries
    }
}
