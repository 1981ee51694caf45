//! What [`Adaptive`] does where a queue is someone else's and stays: to yield does not end it, and
//! who yields has nothing. It takes its part as a TCP does, by CUBIC's window, until the queue is
//! gone (docs/decisions/adaptive-rate.md, *Contest*).
//!
//! Two others look alike. A way that has become longer makes every round trip longer by the same,
//! whatever is sent. And who is alone has a queue of its own making: it sends little for a moment
//! ([`Phase::MinRtt`]), and the queue is gone.

use std::time::Duration;

use super::{Adaptive, Phase};
use crate::rate::path::MILLION;
use crate::rate::train::is_long;
use crate::rate::{Cubic, Pacing, Sample, burst_for};
use crate::time::Instant;
use crate::units::Rate;

/// What may be in flight, of the window: reports are an eighth of a round trip apart.
const IN_FLIGHT: (u64, u64) = (5, 4);
/// Of what the path carried when it was free, the part that is aimed at: half of it for each of
/// two, and a little of that is lost to looking.
const AIM: (u64, u64) = (9, 16);
/// A loss below the aim takes this part of what is missing from it: there are more of them.
const AIM_FALLS: u64 = 16;
/// No more often than once in so many round trips: many losses may be one.
const AIM_ROUNDS: u32 = 16;
/// Round trips from one reduction to the next: a BBR loses some in every one, and does not yield.
const CUT_ROUNDS: u32 = 8;
/// What is lost while the queue is shorter than this part of the longest seen, in tenths, was not
/// lost to it.
const HIGH: u64 = 7;
/// How much more than loss at rest is its chance, squared, in packets.
const CHANCE: f64 = 16.0;
/// The window and the round trip are compared with what they were so long ago, and so many round
/// trips.
const SPAN: Duration = Duration::from_secs(1);
const SPAN_TRIPS: u32 = 8;
/// No more often than this it is looked whether the queue is its own.
const LOOK_INTERVAL: Duration = Duration::from_secs(3);

/// For so long this host has not made up for a time in which it stood still.
const AWAKE: Duration = Duration::from_millis(250);

/// Below this round trip the own start may leave a queue of a hundred products.
const LEAST_RTT: Duration = Duration::from_millis(5);

/// The window, and what it was told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contest {
    curve: Cubic,
    packets: f64,
    /// Bytes per second.
    aim: u64,
    /// The longest queue, in millionths of the smallest round trip; it is slowly forgotten.
    top: u64,
    /// Packets reported, found missing, and marked.
    told: (u64, u64, u64),
    /// Packets lost that loss at rest does not explain.
    missed: f64,
    /// When the window was reduced, and what had been sent by then.
    reduced: Instant,
    recover: u64,
    looked: Instant,
    span: Span,
}

/// What was seen in a time.
#[derive(Clone, Copy, Debug)]
struct Span {
    since: Instant,
    /// The window and the round trip when it began.
    packets: f64,
    rtt: Duration,
    /// The shortest and the longest round trip since.
    shortest: Duration,
    longest: Duration,
    /// More was lost than at rest.
    missed: bool,
}

impl Span {
    fn new(since: Instant, packets: f64, rtt: Duration) -> Self {
        Self { since, packets, rtt, shortest: rtt, longest: rtt, missed: false }
    }
}

impl Contest {
    fn bytes(&self, packet_bytes: u32) -> u64 {
        (self.packets * f64::from(packet_bytes)) as u64
    }

    /// Whether what is lost with such a queue may have been lost to it.
    pub(super) fn is_high(&self, queue: u64) -> bool {
        queue * 10 >= self.top * HIGH
    }

    /// A loss that is the queue's.
    fn reduce(&mut self, now: Instant, sent_bytes: u64, (rate, rtt): (u64, Duration)) {
        if now.since(self.reduced) > rtt * AIM_ROUNDS {
            self.aim = rate.max(self.aim - self.aim.saturating_sub(rate) / AIM_FALLS);
        }
        (self.reduced, self.recover) = (now, sent_bytes);
        self.packets = self.curve.reduce(self.packets).max(2.0);
        self.top -= self.top / 16;
    }

    /// Packets that a report is the first to tell of, and whether more are missing than loss at
    /// rest explains, or one is marked.
    fn hear(&mut self, sample: &Sample, rest: f64) -> (f64, bool) {
        let arrived = sample.delivered_packets.saturating_sub(self.told.0) as f64;
        let lost = sample.lost_packets.saturating_sub(self.told.1) as f64;
        let marked = sample.marked_packets > self.told.2;
        self.told = told(sample);
        self.missed = (self.missed + lost - (arrived + lost) * rest * 1.5).max(0.0);
        let chance = CHANCE * rest * self.packets;
        let missing = self.missed >= 1.0 && self.missed * self.missed > chance;
        if missing {
            self.missed = 0.0;
        }
        (arrived, missing || marked)
    }
}

fn told(sample: &Sample) -> (u64, u64, u64) {
    (sample.delivered_packets, sample.lost_packets, sample.marked_packets)
}

impl Adaptive {
    /// Whether it may come to that: where only OKs tell of what became of the data, or a round
    /// trip takes a second, or this host itself stands still, a queue is not known well enough.
    pub(super) fn may_contend(&self, now: Instant) -> bool {
        let awake = self.hearing.made_up.is_none_or(|at| now.since(at) >= AWAKE);
        let known = self.grain_bytes == 0 && !is_long(self.min_rtt());
        awake && known && !self.bold && self.min_rtt() >= LEAST_RTT
    }

    /// A queue stays although it yielded.
    pub(super) fn contend(&mut self, now: Instant, sample: &Sample) {
        let rtt = self.trips.now().max(self.min_rtt());
        let bytes = Rate::from_bytes_per_second(self.bandwidth).bytes_in(rtt);
        let packets = (bytes / u64::from(self.packet_bytes)).max(2) as f64;
        self.contest = Some(Contest {
            curve: Cubic::default(),
            packets,
            aim: self.free / AIM.1 * AIM.0,
            top: 0,
            told: told(sample),
            missed: 0.0,
            reduced: now,
            recover: 0,
            looked: now,
            span: Span::new(now, packets, rtt),
        });
    }

    /// A report came in a contest.
    pub(super) fn compete(&mut self, now: Instant, sample: &Sample) {
        let Some(mut contest) = self.contest else { return };
        let queue = self.queue();
        let rtt = self.trips.now().max(self.min_rtt());
        contest.top = contest.top.max(queue);
        contest.span.shortest = contest.span.shortest.min(rtt);
        contest.span.longest = contest.span.longest.max(rtt);
        if queue == 0 {
            // As fast as in the mean of late: the window without the queue would be faster.
            let mean = (contest.span.shortest + contest.span.longest) / 2;
            let rate = Rate::over(contest.bytes(self.packet_bytes), mean);
            self.bandwidth = self.bandwidth.min(rate.bytes_per_second());
            self.end_contest(now);
            return;
        }
        let (acked, missed) = contest.hear(sample, self.rest.share() as f64 / MILLION as f64);
        contest.span.missed |= missed;
        // A window that is not used, for want of data or because of a ceiling, does not grow.
        let used = !sample.app_limited && self.bandwidth < self.most().bytes_per_second();
        let known = sample.sent_bytes.saturating_sub(sample.in_flight_bytes);
        let answered = known > contest.recover && now.since(contest.reduced) >= rtt * CUT_ROUNDS;
        if missed && answered && contest.is_high(queue) {
            contest.reduce(now, sample.sent_bytes, (self.bandwidth, rtt));
        } else if known > contest.recover && acked > 0.0 && used {
            let aim = Rate::from_bytes_per_second(contest.aim).bytes_in(rtt);
            contest.curve.aim((aim / u64::from(self.packet_bytes)) as f64);
            contest.packets = contest.curve.grow(now, contest.packets, acked, rtt);
        }
        let rate = Rate::over(contest.bytes(self.packet_bytes), rtt);
        self.bandwidth = rate.bytes_per_second();
        self.contest = Some(contest);
        self.look(now, rtt);
    }

    /// Whether the queue is its own, or none: both show when the window has grown by an eighth.
    fn look(&mut self, now: Instant, rtt: Duration) {
        let allowance = self.trips.allowance(self.pacing.burst.interval);
        let Some(contest) = &mut self.contest else { return };
        let Span { since, packets, rtt: before, shortest, longest, missed } = contest.span;
        if now.since(since) < SPAN.max(rtt * SPAN_TRIPS) {
            return;
        }
        contest.span = Span::new(now, contest.packets, rtt);
        let grown = contest.packets > packets * 1.125;
        // A queue that is full does not grow with the window either.
        if grown && !missed && longest - shortest <= allowance {
            self.trips.renew(now, shortest);
            self.end_contest(now);
        } else if self.trips.is_stale(now)
            || grown && longest * 10 > before * 11 && now.since(contest.looked) >= LOOK_INTERVAL
        {
            contest.looked = now;
            self.enter(Phase::MinRtt, now);
        }
    }

    /// Little was sent for a moment. Whether the queue is still there.
    pub(super) fn goes_on(&self) -> bool {
        self.contest.is_some() && self.queue() > MILLION / 4
    }

    fn end_contest(&mut self, now: Instant) {
        self.contest = None;
        self.enter(Phase::Cruise, now);
    }

    /// How fast it goes in a contest; `None` otherwise.
    pub(super) fn contest_pacing(&self, most: Rate) -> Option<Pacing> {
        let contest = self.contest.filter(|_| self.phase == Phase::Cruise)?;
        let rate = Rate::from_bytes_per_second(self.bandwidth).min(most);
        let window = contest.bytes(self.packet_bytes);
        let cap = window * IN_FLIGHT.0 / IN_FLIGHT.1 + u64::from(self.packet_bytes) * 4;
        Some(Pacing { cap_bytes: Some(cap), ..Pacing::of(burst_for(rate, self.packet_bytes)) })
    }
}
