//! A bottleneck in miniature: one queue, one delay, random loss, and flows that share them.
//!
//! It drives [`Sampler`], [`Pacer`] and a policy alone, without the machine, so that the policy is
//! judged in seconds over many paths. Packets are not events: a first-in-first-out queue tells the
//! time of arrival as soon as a packet is sent.

mod cubic;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

pub(super) use cubic::Cubic;

use crate::rate::pacer::Pacer;
use crate::rate::sampler::Sampler;
use crate::rate::{RateControl, is_long};
use crate::time::{Instant, nanos};
use crate::units::{PacketNumber, Rate};
use crate::wire::packet::Report;

pub(super) const PACKET: u64 = 1260;
const OVERHEAD: u64 = 28;

#[derive(Debug)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.roll() % n }
    }
}

/// The path that all flows share.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) rate: Rate,
    pub(super) rtt: Duration,
    pub(super) queue_bytes: u64,
    /// Random loss behind the bottleneck, per million.
    pub(super) loss: u64,
    /// Extra delay of one packet in fifty, at most this: reordering.
    pub(super) jitter: Duration,
    /// Extra delay of all packets, which wanders from nothing to this.
    pub(super) wander: Duration,
    /// Queue above which packets are marked.
    pub(super) mark_bytes: u64,
    /// From these times on the bottleneck has these rates; zero is an outage, reports included.
    pub(super) steps: Vec<(Duration, Rate)>,
    /// The queue delays nothing: it is the bucket of a policer.
    pub(super) policer: bool,
    /// The wire before the bottleneck, which spreads what passes a policer.
    pub(super) line: Option<Rate>,
    /// What is delivered waits for the next tick of this clock: aggregation.
    pub(super) clump: Duration,
}

impl Path {
    pub(super) fn new(bits: u64, rtt: Duration, loss: u64, queue_percent: u64) -> Self {
        let rate = Rate::from_bits_per_second(bits);
        let queue_bytes = rate.bytes_in(rtt) * queue_percent / 100;
        Self {
            rate,
            rtt,
            queue_bytes: queue_bytes.max(10 * PACKET),
            loss,
            jitter: Duration::ZERO,
            wander: Duration::ZERO,
            mark_bytes: u64::MAX,
            steps: Vec::new(),
            policer: false,
            line: None,
            clump: Duration::ZERO,
        }
    }
}

/// What the bottleneck did in a stretch of time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) sent: u64,
    pub(super) passed: u64,
    pub(super) dropped: u64,
    pub(super) random: u64,
    pub(super) marked: u64,
    /// Sum and maximum of the time in the queue, of the packets that passed.
    pub(super) waited: Duration,
    pub(super) longest: Duration,
}

impl Tally {
    pub(super) fn mean_wait(&self) -> Duration {
        self.waited / (self.passed.max(1) as u32)
    }
}

#[derive(Debug)]
struct Bottleneck {
    path: Path,
    busy_until: Instant,
    line_until: Instant,
    dice: Dice,
    tally: Tally,
}

/// What became of a packet.
enum Fate {
    Lost,
    Arrives { at: Instant, marked: bool },
}

impl Bottleneck {
    fn rate(&self, now: Instant) -> Rate {
        let passed = now.since(Instant::EPOCH);
        let step = self.path.steps.iter().rev().find(|(from, _)| *from <= passed);
        step.map_or(self.path.rate, |(_, rate)| *rate)
    }

    fn send(&mut self, now: Instant) -> Fate {
        self.tally.sent += 1;
        let rate = self.rate(now);
        let wait = self.busy_until.since(now);
        let queued = rate.bytes_in(wait);
        if rate == Rate::ZERO || queued + PACKET > self.path.queue_bytes {
            self.tally.dropped += 1;
            return Fate::Lost;
        }
        self.busy_until = self.busy_until.max(now) + rate.time_for(PACKET);
        self.tally.passed += 1;
        self.tally.waited += wait;
        self.tally.longest = self.tally.longest.max(wait);
        if self.dice.below(1_000_000) < self.path.loss {
            self.tally.random += 1;
            return Fate::Lost;
        }
        let marked = queued > self.path.mark_bytes;
        self.tally.marked += u64::from(marked);
        let mut left = if self.path.policer { now } else { self.busy_until };
        if let Some(line) = self.path.line {
            self.line_until = self.line_until.max(now) + line.time_for(PACKET);
            left = left.max(self.line_until);
        }
        let mut at = left + self.path.rtt / 2 + wandering(left, self.path.wander);
        if !self.path.jitter.is_zero() && self.dice.below(50) == 0 {
            at += Duration::from_nanos(self.dice.below(nanos(self.path.jitter)));
        }
        if !self.path.clump.is_zero() {
            let clump = nanos(self.path.clump);
            at = Instant::from_nanos(at.as_nanos().div_ceil(clump) * clump);
        }
        Fate::Arrives { at, marked }
    }
}

/// Straight lines between random points, one every twice the limit: nothing overtakes.
fn wandering(at: Instant, limit: Duration) -> Duration {
    let limit = nanos(limit);
    let step = (limit * 2).max(1);
    let point = |n: u64| {
        let mut dice = Dice((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (0..4).for_each(|_| _ = dice.roll());
        dice.below(limit + 1)
    };
    let (index, into) = (at.as_nanos() / step, at.as_nanos() % step);
    let (from, to) = (u128::from(point(index)), u128::from(point(index + 1)));
    let sum = from * u128::from(step - into) + to * u128::from(into);
    Duration::from_nanos((sum / u128::from(step)) as u64)
}

/// A host that stands still for `stopped` of every `period`, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stops {
    pub(super) stopped: u64,
    pub(super) period: u64,
    pub(super) offset: u64,
}

impl Stops {
    fn runs_at(&self, at: Instant) -> Instant {
        if self.stopped == 0 || at == Instant::NEVER {
            return at;
        }
        let place = (at.as_nanos() + self.offset) % self.period;
        at + Duration::from_nanos(self.stopped.saturating_sub(place))
    }
}

/// The receiver of one flow, which reports as `docs/protocol §6.3` says.
#[derive(Debug, Default)]
struct Receiver {
    coming: BinaryHeap<Reverse<(Instant, u64, bool)>>,
    report: Report,
    arrived: Instant,
    /// When reports were made, the highest number by then, and how many below it have not come.
    past: VecDeque<(Instant, u64, u64)>,
    last: Option<Instant>,
    repeats: u32,
    /// The newest arrival, whether a pause was before it, and whether it was reported.
    newest: Instant,
    begun: bool,
    unreported: bool,
    reports: u32,
}

/// Reports that come early where packets come in trains, and the pause that tells trains apart.
const EARLY: u32 = 64;
const LEAST_BEAT: Duration = Duration::from_millis(2);
fn pause(beat: Duration) -> Duration {
    (beat / 8).max(Duration::from_millis(1))
}

impl Receiver {
    fn due(&self, beat: Duration) -> Option<Instant> {
        let least = |at: Instant| self.last.map_or(at, |last| at.max(last + pause(beat) / 2));
        let next = match self.coming.peek() {
            Some(Reverse((at, ..))) => *at,
            None if self.unreported => Instant::NEVER,
            None if self.repeats > 0 => Instant::EPOCH,
            None => return None,
        };
        let mut due = match self.unreported {
            true => self.last.map_or(Instant::EPOCH, |last| last + beat).min(next),
            false => self.last.map_or(next, |last| next.max(last + beat)),
        };
        if self.reports < EARLY && beat >= LEAST_BEAT {
            if self.begun {
                due = due.min(least(self.newest));
            } else if self.unreported {
                due = due.min(least(self.newest + pause(beat)));
            }
            if next < Instant::NEVER && !self.coming.is_empty() {
                due = due.min(next);
            }
        }
        Some(due)
    }

    /// Takes in what arrived; a report if one is due.
    fn work(&mut self, now: Instant, beat: Duration, rtt: Duration) -> Option<Report> {
        let early = self.reports < EARLY && beat >= LEAST_BEAT;
        let paused = early && !self.begun;
        while let Some(Reverse((at, number, marked))) = self.coming.peek().copied() {
            if at > now {
                break;
            }
            self.coming.pop();
            self.begun |= paused && at.since(self.newest) >= pause(beat);
            self.newest = at;
            self.unreported = true;
            self.repeats = 2;
            self.report.packets += 1;
            self.report.bytes += PACKET - OVERHEAD;
            self.report.marked += u64::from(marked);
            if number >= self.report.highest.0 {
                self.report.highest = PacketNumber(number);
                self.arrived = at;
            } else {
                let later = |(_, highest, _): &&mut (Instant, u64, u64)| number < *highest;
                self.past.iter_mut().rev().take_while(later).for_each(|past| past.2 -= 1);
            }
        }
        let whole = self.last.map_or(Instant::EPOCH, |last| last + beat);
        let least = self.last.map_or(Instant::EPOCH, |last| last + pause(beat) / 2);
        let quiet = self.unreported && self.newest + pause(beat) <= now;
        let over = early && (self.begun || quiet) && now >= least;
        if (self.unreported || self.repeats > 0) && (now >= whole || over) {
            return Some(self.make_report(now, rtt));
        }
        None
    }

    fn make_report(&mut self, now: Instant, rtt: Duration) -> Report {
        self.repeats = if self.unreported { 2 } else { self.repeats.saturating_sub(1) };
        self.unreported = false;
        self.begun = false;
        self.reports += 1;
        let highest = self.report.highest.0;
        self.past.push_back((now, highest, highest + 1 - self.report.packets));
        let settled = now.before(rtt / 4);
        while let Some((_, _, absent)) = self.past.pop_front_if(|past| past.0 <= settled) {
            self.report.missing = self.report.missing.max(absent);
        }
        self.last = Some(now);
        self.report.at_micros = (now.as_nanos() / 1000) as u32;
        self.report.highest_age_micros = (now.since(self.arrived).as_nanos() / 1000) as u32;
        self.report
    }
}

/// One transfer under a policy.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) policy: Box<dyn RateControl>,
    pacer: Pacer,
    sampler: Sampler,
    start: Instant,
    next_number: u64,
    receiver: Receiver,
    reports: VecDeque<(Instant, Report)>,
    last_report: Instant,
    silence_told: Instant,
    /// When something was sent while nothing was in flight.
    resumed: Instant,
    probed: Instant,
    late: Duration,
    touched: Instant,
    /// Since when something else than pacing holds packets back.
    held: Option<Instant>,
    /// The application has data only in the first half of each such period.
    pub(super) pauses: Duration,
    /// The host cannot send faster than this.
    pub(super) host: Option<Rate>,
    host_free: Instant,
    /// How late the loop may wake.
    pub(super) lateness: Duration,
    /// It stands still so, and what comes for it waits.
    pub(super) stops: Option<Stops>,
    /// Of each report: when it came, what it showed, and what the law made of it.
    pub(super) record: blake3::Hasher,
}

impl Flow {
    pub(super) fn new(policy: Box<dyn RateControl>, start: Duration) -> Self {
        let start = Instant::EPOCH + start;
        Self {
            policy,
            pacer: Pacer::new(),
            sampler: Sampler::new(OVERHEAD as u32),
            start,
            next_number: 0,
            receiver: Receiver::default(),
            reports: VecDeque::new(),
            last_report: start,
            silence_told: start,
            resumed: start,
            probed: start,
            late: Duration::ZERO,
            touched: start,
            held: None,
            pauses: Duration::ZERO,
            host: None,
            host_free: start,
            lateness: Duration::from_micros(100),
            stops: None,
            record: blake3::Hasher::new(),
        }
    }

    /// When it does what is due `at`.
    fn runs_at(&self, at: Instant) -> Instant {
        self.stops.map_or(at, |stops| stops.runs_at(at))
    }

    /// Packets that have arrived.
    pub(super) fn arrived(&self) -> u64 {
        self.receiver.report.packets
    }

    fn room(&self) -> u32 {
        match self.policy.pacing().cap_bytes {
            None => u32::MAX,
            Some(cap) => {
                (cap.saturating_sub(self.sampler.in_flight_bytes()).div_ceil(PACKET)) as u32
            }
        }
    }

    fn breaker_open(&self, now: Instant, rtt: Duration) -> bool {
        let patience = Duration::from_secs(2).max(rtt * 8);
        self.sampler.in_flight_bytes() > 0 && now.since(self.last_report) > patience
    }

    fn silence_due(&self, rtt: Duration) -> Option<Instant> {
        let patience = (rtt * 3).max(Duration::from_millis(200));
        let since = self.last_report.max(self.silence_told).max(self.resumed);
        (self.sampler.in_flight_bytes() > 0).then(|| since + patience)
    }

    /// When the application has data again, from `now` on.
    fn data_at(&self, now: Instant) -> Instant {
        let period = nanos(self.pauses);
        if period == 0 {
            return now;
        }
        let place = now.as_nanos() % period;
        if place < period / 2 { now } else { Instant::from_nanos(now.as_nanos() - place + period) }
    }

    fn due(&self, now: Instant, rtt: Duration, beat: Duration) -> Instant {
        let mut due = Instant::NEVER;
        if self.breaker_open(now, rtt) {
            due = self.probed + Duration::from_secs(1);
        } else if self.room() > 0 {
            let next = self.pacer.next(self.touched, &self.policy.pacing()) + self.late;
            due = self.data_at(next.max(now).max(self.start).max(self.host_free));
        }
        due = due.min(self.policy.next_timeout().unwrap_or(Instant::NEVER).max(now));
        due = due.min(self.reports.front().map_or(Instant::NEVER, |(at, _)| *at));
        due = due.min(self.silence_due(rtt).unwrap_or(Instant::NEVER));
        self.runs_at(due.max(now)).min(self.receiver.due(beat).unwrap_or(Instant::NEVER))
    }

    fn work(&mut self, now: Instant, link: &mut Bottleneck, beat: Duration) {
        let rtt = link.path.rtt;
        if self.receiver.due(beat).is_some_and(|at| at <= now)
            && let Some(report) = self.receiver.work(now, beat, rtt)
        {
            // Reports are lost as often as packets are.
            let lost = link.dice.below(1_000_000) < link.path.loss || link.rate(now) == Rate::ZERO;
            if !lost {
                self.reports.push_back((now + rtt / 2, report));
            }
        }
        if self.runs_at(now) > now {
            return;
        }
        while let Some((_, report)) = self.reports.pop_front_if(|(at, _)| *at <= now) {
            self.last_report = now;
            if let Some(sample) = self.sampler.on_report(now, &report) {
                self.policy.on_sample(now, &sample);
                let (pacing, belief) = (self.policy.pacing(), self.policy.belief());
                self.record.update(format!("{now:?} {sample:?} {pacing:?} {belief:?}").as_bytes());
            }
        }
        if self.silence_due(rtt).is_some_and(|at| at <= now) {
            self.silence_told = now;
            self.policy.on_silence(now);
        }
        if self.policy.next_timeout().is_some_and(|at| at <= now) {
            self.policy.on_timeout(now);
        }
        self.transmit(now, link);
    }

    fn transmit(&mut self, now: Instant, link: &mut Bottleneck) {
        if now < self.start || now < self.host_free {
            return;
        }
        if self.data_at(now) > now {
            self.sampler.on_app_limited();
            self.held.get_or_insert(now);
            return;
        }
        let pacing = self.policy.pacing();
        if self.room() == 0 {
            self.held.get_or_insert(now);
        } else if self.held.take().is_some_and(|since| now.since(since) >= Duration::from_millis(1))
        {
            self.pacer.forget(now, &pacing);
        }
        let breaker = self.breaker_open(now, link.path.rtt);
        let mut count = self.pacer.available(now, &pacing).min(self.room());
        if breaker {
            count = u32::from(now >= self.probed + Duration::from_secs(1));
            self.probed = if count > 0 { now } else { self.probed };
        }
        if count == 0 {
            return;
        }
        if let Some(host) = self.host {
            count = count.min(64);
            self.host_free = now + host.time_for(u64::from(count) * PACKET);
        }
        self.late = Duration::from_nanos(link.dice.below(nanos(self.lateness)));
        self.touched = now;
        self.pacer.consumed(now, count, &pacing);
        let bytes = u64::from(count) * (PACKET - OVERHEAD);
        if self.sampler.in_flight_bytes() == 0 {
            self.resumed = now;
        }
        self.sampler.on_sent(now, PacketNumber(self.next_number), count, bytes);
        let late = self.pacer.lateness(now, &pacing).filter(|_| !is_long(link.path.rtt));
        if let Some(late) = late {
            let burst = u64::from(pacing.burst.packets) * PACKET;
            let made_up = Rate::over(burst, pacing.burst.interval).bytes_in(late.made_up);
            self.sampler.on_late(late.due_at, made_up);
        }
        for _ in 0..count {
            if let Fate::Arrives { at, marked } = link.send(now) {
                self.receiver.coming.push(Reverse((at, self.next_number, marked)));
            }
            self.next_number += 1;
        }
    }
}

/// The path and all that use it.
#[derive(Debug)]
pub(super) struct World {
    link: Bottleneck,
    now: Instant,
    pub(super) flows: Vec<Flow>,
    pub(super) cubic: Option<Cubic>,
}

impl World {
    pub(super) fn new(path: Path, flows: Vec<Flow>) -> Self {
        let dice = Dice(0x2545_f491_4f6c_dd1d);
        let link = Bottleneck {
            path,
            busy_until: Instant::EPOCH,
            line_until: Instant::EPOCH,
            dice,
            tally: Tally::default(),
        };
        Self { link, now: Instant::EPOCH, flows, cubic: None }
    }

    /// The same with other chances: `seed` is any number but 0.
    pub(super) fn by_chance(mut self, seed: u64) -> Self {
        self.link.dice = Dice(self.link.dice.0.wrapping_mul(2 * seed - 1));
        self
    }

    /// Lets `time` pass; answers what the bottleneck did in it.
    pub(super) fn run(&mut self, time: Duration) -> Tally {
        self.link.tally = Tally::default();
        let end = self.now + time;
        let rtt = self.link.path.rtt;
        let beat = (rtt / 8).max(Duration::from_millis(1));
        let mut turns = 0_u64;
        loop {
            let flows = self.flows.iter().map(|flow| flow.due(self.now, rtt, beat));
            let cubic = self.cubic.iter().map(|cubic| cubic.due(self.now));
            let due = flows.chain(cubic).min().unwrap_or(end).max(self.now);
            turns = if due > self.now { 0 } else { turns + 1 };
            assert!(turns < 1000, "no progress at {:?}", self.now);
            if due >= end {
                self.now = end;
                return self.link.tally;
            }
            self.now = due;
            for flow in &mut self.flows {
                if flow.due(due, rtt, beat) <= due {
                    flow.work(due, &mut self.link, beat);
                }
            }
            if let Some(cubic) = self.cubic.as_mut() {
                cubic.work(due, &mut self.link);
            }
        }
    }

    /// The part of what the bottleneck could have carried in `time` that passed, in thousandths.
    pub(super) fn used(&self, tally: &Tally, time: Duration) -> u64 {
        tally.passed * PACKET * 1000 / self.link.path.rate.bytes_in(time).max(1)
    }
}
