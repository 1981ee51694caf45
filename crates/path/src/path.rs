//! One direction of a path as a function of its inputs: packets with the times they came go in,
//! packets come out at deadlines. The virtual world and the real-time relay both run this.
//!
//! A packet passes, in this order:
//!
//! 1. the MTU, which drops what is larger;
//! 2. a policer, if there is one, which drops what is beyond its rate and its bucket;
//! 3. the queue, bounded to the byte, which drops what does not fit and marks what waits too long;
//!    PIE or RED, if asked for, drop or mark at its tail, CoDel at its head;
//! 4. the link, which sends whole IP packets one after the other, exact to the nanosecond over any
//!    length of time;
//! 5. the wire, on which outages and random loss take it, bits flip, copies appear, others overtake
//!    it, and time passes.
//!
//! Whether the n-th packet pushed is lost, corrupted, duplicated or reordered depends on the seed
//! and on n alone, never on timing, and each of these has a random stream of its own: changing the
//! rate or the delay leaves the very same packets lost. There is no clock and no float in here.

mod counters;
mod early;
mod fate;
mod gates;
mod options;
mod payload;

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use netblt_proto::api::Ecn;
use netblt_proto::time::Instant;
use netblt_proto::units::Rate;

use crate::rng::key;

pub use counters::{Counters, Tally};
pub use early::EarlyDrop;
use early::{EarlyState, Verdict};
use fate::{Fate, Fates};
use gates::{Bucket, Judge};
pub use gates::{CoDel, Policer};
pub use options::{Change, Displacement, LinkOptions, MarkAbove, Outage, PATIENCE, QueueLimit};
pub use payload::Payload;

/// A packet that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<T> {
    /// The payload that was pushed, perhaps corrupted.
    pub payload: T,
    /// Its ECN mark, which the queue may have set.
    pub ecn: Option<Ecn>,
    /// Whether bits were flipped.
    pub corrupted: bool,
    /// IP bytes: the datagram and its overhead.
    pub ip_bytes: u64,
    /// When it was pushed.
    pub entered: Instant,
    /// When it arrived, which is when it should be popped.
    pub at: Instant,
}

/// One direction of a path; see the module's description.
#[derive(Clone, Debug)]
pub struct Path<T> {
    options: LinkOptions,
    /// Changes still to come, soonest first.
    schedule: VecDeque<Change>,
    fates: Fates,
    bucket: Bucket,
    judge: Judge,
    early: EarlyState,
    /// The latest time so far.
    now: Instant,
    /// What waits for the link; the first is being sent when `sent_at` is set.
    queue: VecDeque<Waiting<T>>,
    /// When the first packet of the queue will have been sent.
    sent_at: Option<Instant>,
    /// What the link has sent too little by rounding down, in billionths of a byte.
    remainder: u64,
    /// On the way, in order of arrival.
    flight: VecDeque<Delivery<T>>,
    /// On the way, to arrive later than those behind them.
    late: BinaryHeap<Late<T>>,
    /// Held back until enough others have passed.
    held: VecDeque<Held<T>>,
    /// Packets that went out in order so far.
    in_order: u64,
    /// Arrival of the last of them.
    last_arrival: Instant,
    counters: Counters,
}

#[derive(Clone, Debug)]
struct Waiting<T> {
    delivery: Delivery<T>,
    fate: Fate,
}

#[derive(Clone, Debug)]
struct Held<T> {
    delivery: Delivery<T>,
    /// It is let go when so many have gone out in order, or at the deadline.
    until: u64,
    /// The latest time at which it is let go.
    deadline: Instant,
}

#[derive(Clone, Debug)]
struct Late<T> {
    delivery: Delivery<T>,
    /// Tells apart those of one time, so that their order is defined.
    number: u64,
}

impl<T> Late<T> {
    fn key(&self) -> (Instant, u64) {
        (self.delivery.at, self.number)
    }
}

impl<T> PartialEq for Late<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Late<T> {}

impl<T> PartialOrd for Late<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Late<T> {
    /// Backwards, because the heap hands out the greatest and the earliest is wanted.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<T: Payload> Path<T> {
    /// An idle path. Its faults are drawn from `seed` under `name`, which should differ between
    /// the paths of one world; its schedule counts from [`Instant::EPOCH`].
    pub fn new(mut options: LinkOptions, seed: u64, name: &str) -> Self {
        let mut schedule = std::mem::take(&mut options.schedule);
        schedule.sort_by_key(|change| change.at);
        Self {
            fates: Fates::new(&options, seed, name),
            options,
            bucket: Bucket::default(),
            judge: Judge::default(),
            early: EarlyState::new(key(seed, name)),
            schedule: schedule.into(),
            now: Instant::EPOCH,
            queue: VecDeque::new(),
            sent_at: None,
            remainder: 0,
            flight: VecDeque::new(),
            late: BinaryHeap::new(),
            held: VecDeque::new(),
            in_order: 0,
            last_arrival: Instant::EPOCH,
            counters: Counters::default(),
        }
    }

    /// Puts a packet in: `payload` behind `overhead_bytes` of headers that count for rate, queue
    /// and MTU (`docs/protocol §6.1`). Times never go back; one that does counts as the latest.
    pub fn push(&mut self, now: Instant, overhead_bytes: u32, ecn: Option<Ecn>, payload: T) {
        self.advance(now);
        let fate = self.fates.draw(&self.options);
        let ip_bytes = payload.len_bytes() as u64 + u64::from(overhead_bytes);
        let packet = Tally::packet(ip_bytes);
        self.counters.entered += packet;
        if self.options.mtu.is_some_and(|mtu| ip_bytes > u64::from(mtu)) {
            self.counters.lost_mtu += packet;
            return;
        }
        let now = self.now;
        let policer = self.options.policer;
        if policer.is_some_and(|policer| !self.bucket.passes(now, policer, ip_bytes)) {
            self.counters.lost_policer += packet;
            return;
        }
        let verdict = self.early_verdict(ecn);
        if verdict == Verdict::Dropped || !self.fits(ip_bytes) {
            self.counters.lost_queue += packet;
            return;
        }
        let ecn = self.mark(ecn, packet, verdict == Verdict::Marked);
        let delivery = Delivery { payload, ecn, corrupted: false, ip_bytes, entered: now, at: now };
        self.counters.inside += packet;
        self.counters.queue_bytes += ip_bytes;
        self.queue.push_back(Waiting { delivery, fate });
        if self.sent_at.is_none() {
            self.remainder = 0;
            self.serve(now);
        }
        self.note_queue();
    }

    /// When [`Path::pop`] should be called next; `None` when nothing is inside or everything waits
    /// for a change that will not come. `pop` may then still have nothing to hand out.
    pub fn next(&self) -> Option<Instant> {
        let late = self.late.peek().map(|late| late.delivery.at);
        if let Some(first) = self.flight.front() {
            // Nothing that leaves the link from now on can arrive before the packets of the
            // flight, so what happens on the link until then can wait.
            return late.map_or(Some(first.at), |late| Some(late.min(first.at)));
        }
        let change = self.schedule.front().map(|change| Instant::EPOCH + change.at);
        let link = match self.sent_at {
            // The packet needs the delay as well, unless that changes before.
            Some(sent) if change.is_none_or(|change| change > sent) => {
                Some(sent + self.options.delay)
            }
            Some(sent) => Some(sent),
            None if self.queue.is_empty() => None,
            None => change,
        };
        let held = self.held.front().map(|held| held.deadline);
        netblt_proto::time::earliest([late, link, held])
    }

    /// Takes out the next packet that has arrived by `now`.
    pub fn pop(&mut self, now: Instant) -> Option<Delivery<T>> {
        self.advance(now);
        let first = self.flight.front().map_or(Instant::NEVER, |first| first.at);
        let late = self.late.peek().map_or(Instant::NEVER, |late| late.delivery.at);
        if first.min(late) > self.now {
            return None;
        }
        let delivery =
            if late < first { self.late.pop()?.delivery } else { self.flight.pop_front()? };
        let packet = Tally::packet(delivery.ip_bytes);
        self.counters.inside -= packet;
        self.counters.delivered += packet;
        Some(delivery)
    }

    /// Changes the link now, whatever `change.at` says, besides its schedule.
    pub fn change(&mut self, now: Instant, change: &Change) {
        self.advance(now);
        self.apply(self.now, change);
    }

    /// The options in force at the latest time so far. Their schedule is empty.
    pub fn options(&self) -> &LinkOptions {
        &self.options
    }

    /// The counters, and the waiting bytes, at the latest time so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether nothing is inside.
    pub fn is_empty(&self) -> bool {
        self.counters.inside.packets == 0
    }

    /// How long a packet pushed at the latest time so far would wait for the link.
    /// [`Duration::MAX`] when something waits and the rate is zero.
    pub fn queue_time(&self) -> Duration {
        let sending = self.sent_at.map_or(Duration::ZERO, |sent| sent.since(self.now));
        match (self.counters.queue_bytes, self.options.rate) {
            (0, _) | (_, None) => sending,
            (bytes, Some(rate)) => sending.saturating_add(rate.time_for(bytes)),
        }
    }

    /// Lets everything happen on the link that happens until `now`, in order of time.
    pub fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        loop {
            let change = self.schedule.front().map(|change| Instant::EPOCH + change.at);
            let held = self.held.front().map(|held| held.deadline);
            let at = |time: Option<Instant>| time.unwrap_or(Instant::NEVER);
            let earliest = at(change).min(at(self.sent_at)).min(at(held));
            if earliest > self.now || earliest == Instant::NEVER {
                return;
            }
            if change == Some(earliest) {
                if let Some(change) = self.schedule.pop_front() {
                    self.apply(earliest, &change);
                }
            } else if self.sent_at == Some(earliest) {
                self.sent_at = None;
                if let Some(waiting) = self.queue.pop_front() {
                    self.leave(earliest, waiting);
                }
                self.serve(earliest);
            } else if let Some(held) = self.held.pop_front() {
                self.arrive_in_order(earliest + self.options.delay, held.delivery);
            }
        }
    }

    fn apply(&mut self, at: Instant, change: &Change) {
        if change.rate.is_some() {
            self.remainder = 0;
        }
        self.options.apply(change);
        self.fates.change(&self.options);
        if self.sent_at.is_none() {
            self.serve(at);
        }
    }

    /// Whether so many bytes more may wait. A free link takes a packet however small its queue.
    fn fits(&self, ip_bytes: u64) -> bool {
        if self.queue.is_empty() && self.options.outage != Outage::Hold {
            return true;
        }
        let bytes = self.counters.queue_bytes.saturating_add(ip_bytes);
        match (self.options.queue, self.options.rate) {
            (QueueLimit::Unlimited, _) | (QueueLimit::Time(_), None) => true,
            (QueueLimit::Bytes(limit), _) => bytes <= limit,
            (QueueLimit::Packets(limit), _) => {
                let sending = usize::from(self.sent_at.is_some());
                self.queue.len() - sending < limit as usize
            }
            (QueueLimit::Time(limit), Some(rate)) => bytes <= rate.bytes_in(limit),
        }
    }

    /// What PIE or RED do with a packet that joins now.
    fn early_verdict(&mut self, ecn: Option<Ecn>) -> Verdict {
        let Some(early) = self.options.early_drop else { return Verdict::Passes };
        let waiting = early::QueueState {
            bytes: self.counters.queue_bytes,
            delay: self.queue_time(),
            rate: self.options.rate,
        };
        self.early.judge(self.now, early, waiting, ecn == Some(Ecn::Ect0))
    }

    fn mark(&mut self, ecn: Option<Ecn>, packet: Tally, early: bool) -> Option<Ecn> {
        let congested = early
            || match self.options.ecn_mark {
                None => false,
                Some(MarkAbove::Bytes(limit)) => self.counters.queue_bytes > limit,
                Some(MarkAbove::Time(limit)) => self.queue_time() > limit,
            };
        if !congested || ecn != Some(Ecn::Ect0) {
            return ecn;
        }
        self.counters.marked += packet;
        Some(Ecn::Ce)
    }

    fn note_queue(&mut self) {
        let time = self.queue_time();
        let counters = &mut self.counters;
        counters.queue_bytes_max = counters.queue_bytes_max.max(counters.queue_bytes);
        // A link that stands still would make this "for ever", which says nothing.
        if time < Duration::MAX {
            counters.queue_time_max = counters.queue_time_max.max(time);
        }
    }

    /// Begins to send what waits, at `at`, when the link is free and works.
    fn serve(&mut self, at: Instant) {
        while self.sent_at.is_none() && self.options.outage != Outage::Hold {
            if self.condemned(at) {
                continue;
            }
            let Some(first) = self.queue.front() else {
                return;
            };
            let ip_bytes = first.delivery.ip_bytes;
            self.counters.queue_time_sum += at.since(first.delivery.entered);
            match self.options.rate.map(Rate::bytes_per_second) {
                Some(0) => return,
                Some(rate) => {
                    let billionths = ip_bytes.saturating_mul(1_000_000_000);
                    let billionths = billionths.saturating_add(self.remainder);
                    self.sent_at = Some(at + Duration::from_nanos(billionths / rate));
                    self.remainder = billionths % rate;
                }
                None => {
                    if let Some(waiting) = self.queue.pop_front() {
                        self.leave(at, waiting);
                    }
                }
            }
            self.counters.queue_bytes -= ip_bytes;
        }
    }

    /// Whether CoDel dropped the packet whose turn it is.
    fn condemned(&mut self, at: Instant) -> bool {
        let (Some(codel), Some(first)) = (self.options.codel, self.queue.front_mut()) else {
            return false;
        };
        let packet = Tally::packet(first.delivery.ip_bytes);
        let waiting = self.counters.queue_bytes - packet.bytes;
        if !self.judge.condemns(at, first.delivery.entered, waiting, codel) {
            return false;
        }
        if codel.marks && first.delivery.ecn == Some(Ecn::Ect0) {
            first.delivery.ecn = Some(Ecn::Ce);
            self.counters.marked += packet;
            return false;
        }
        self.queue.pop_front();
        self.counters.queue_bytes = waiting;
        self.counters.inside -= packet;
        self.counters.lost_queue += packet;
        true
    }

    /// A packet leaves the link for the wire, where chance waits for it.
    fn leave(&mut self, at: Instant, Waiting { mut delivery, fate }: Waiting<T>) {
        let packet = Tally::packet(delivery.ip_bytes);
        if self.options.outage == Outage::Drop {
            self.counters.lost_outage += packet;
            self.counters.inside -= packet;
            return;
        }
        if fate.lost {
            self.counters.lost_random += packet;
            self.counters.inside -= packet;
            return;
        }
        if fate.corrupt(&mut delivery.payload) {
            delivery.corrupted = true;
            self.counters.corrupted += packet;
        }
        let jitter = self.fates.jitter(&self.options, at);
        let arrival = at + self.options.delay + jitter;
        if fate.duplicate {
            self.counters.duplicated += packet;
            self.counters.inside += packet;
            self.arrive_in_order(arrival, delivery.clone());
        }
        match self.options.reorder_by {
            Displacement::Packets(packets) if fate.reorder && packets > 0 => {
                self.counters.reordered += packet;
                let until = self.in_order + u64::from(packets);
                self.held.push_back(Held { delivery, until, deadline: at + PATIENCE });
            }
            Displacement::Time(time) if fate.reorder && !time.is_zero() => {
                self.counters.reordered += packet;
                delivery.at = arrival.max(self.last_arrival) + time;
                let number = self.counters.reordered.packets;
                self.late.push(Late { delivery, number });
            }
            _ => self.arrive_in_order(arrival, delivery),
        }
    }

    /// Sets a packet to arrive no earlier than those before it, and lets those go behind it that
    /// were to be overtaken by it.
    fn arrive_in_order(&mut self, at: Instant, mut delivery: Delivery<T>) {
        self.last_arrival = self.last_arrival.max(at);
        delivery.at = self.last_arrival;
        self.flight.push_back(delivery);
        self.in_order += 1;
        while self.held.front().is_some_and(|held| held.until <= self.in_order) {
            if let Some(mut held) = self.held.pop_front() {
                held.delivery.at = self.last_arrival;
                self.flight.push_back(held.delivery);
            }
        }
    }
}

#[cfg(test)]
mod tests;
