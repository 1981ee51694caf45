//! What [`Adaptive`] does where a queue is someone else's and stays: to yield does not end it, and
//! who yields has nothing. It takes its part as a TCP does, by CUBIC's window, until the queue is
//! gone (docs/decisions/adaptive-rate.md, *Contest*).
//!
//! Two others look alike. A way that has become longer makes every round trip longer by the same,
//! whatever is sent. And who is alone has a queue of its own making: it sends little for a moment
//! ([`Phase::MinRtt`]), and the queue is gone.

use std::time::Duration;

use super::overflow::Heard;
use super::rounds::OVERFLOW_TIME;
use super::{Adaptive, MOST, Phase, UNITY};
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
/// In a short queue, of the time in which a CUBIC with such a window is back where it was: who
/// overflows it sooner does not yield, and to yield to that again is to leave it everything.
const BACK: (u32, u32) = (9, 16);
/// A queue that is longer than this, in millionths of the round trip, is no short one.
const LONG_QUEUE: u64 = MILLION;
/// The window and the round trip are compared with what they were so long ago, and so many round
/// trips.
const SPAN: Duration = Duration::from_secs(1);
const SPAN_TRIPS: u32 = 8;
/// No more often than this it is looked whether the queue is its own.
const LOOK_INTERVAL: Duration = Duration::from_secs(3);

/// For so long this host has not made up for a time in which it stood still.
const AWAKE: Duration = Duration::from_millis(250);

/// What a path holds at least, in packets: of less than that the own two make a queue that stays.
const LEAST_PACKETS: f64 = 4.0;
/// Below this round trip the own start may leave a queue of a hundred products.
pub(super) const LEAST_RTT: Duration = Duration::from_millis(5);

/// The window, and what it was told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contest {
    curve: Cubic,
    packets: f64,
    /// Bytes per second.
    aim: u64,
    /// The queue is short: it comes and goes.
    brief: bool,
    /// When the window was reduced, and what had been sent by then, or by the last change of size.
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

    /// The window, in packets.
    pub(super) fn packets(&self) -> f64 {
        self.packets
    }

    /// Whether the queue is short, and the contest goes on without it.
    pub(super) fn is_brief(&self) -> bool {
        self.brief
    }

    /// Packets are so many times as large as they were. Those on their way count for nothing.
    fn resize(&mut self, times: f64) {
        self.packets = (self.packets / times).max(2.0);
        self.span.packets /= times;
        self.curve.resize(times);
        self.recover = u64::MAX;
    }

    /// The window is back where it was before the last loss, or nearly.
    fn is_back(&self) -> bool {
        self.packets >= self.curve.last_max() * 0.98
    }

    /// How soon others that yield as well may overflow a short queue again.
    fn patience(&self, rtt: Duration) -> Duration {
        (self.curve.cubic_time() * BACK.0 / BACK.1).min(self.curve.reno_time(rtt))
    }

    /// A loss that is the queue's, which stays.
    fn reduce(&mut self, now: Instant, sent_bytes: u64, (rate, rtt): (u64, Duration)) {
        if now.since(self.reduced) > rtt * AIM_ROUNDS {
            self.aim = rate.max(self.aim - self.aim.saturating_sub(rate) / AIM_FALLS);
        }
        (self.reduced, self.recover) = (now, sent_bytes);
        self.packets = self.curve.reduce(self.packets).max(2.0);
    }
}

impl Adaptive {
    /// Whether it may come to that: where only OKs tell of what became of the data, or a round
    /// trip takes a second, or this host itself stands still, a queue is not known well enough.
    pub(super) fn may_contend(&self, now: Instant) -> bool {
        let known = self.grain_bytes == 0 && !is_long(self.min_rtt());
        let long = self.min_rtt() >= LEAST_RTT && self.packets_in(self.min_rtt()) >= LEAST_PACKETS;
        self.is_awake(now) && known && long
    }

    /// This host did not stand still of late.
    pub(super) fn is_awake(&self, now: Instant) -> bool {
        self.hearing.made_up.is_none_or(|at| now.since(at) >= AWAKE)
    }

    /// A queue stays although it yielded.
    pub(super) fn contend(&mut self, now: Instant) {
        self.overflow.begin();
        let aim = self.half();
        // That the queue stays shows that to yield was in vain.
        if let Some(before) = self.yielded.take() {
            self.bandwidth = self.bandwidth.max(before.min(aim));
        }
        self.contest = Some(self.new_contest(now, aim, false));
    }

    fn half(&self) -> u64 {
        self.free / AIM.1 * AIM.0
    }

    fn new_contest(&self, now: Instant, aim: u64, brief: bool) -> Contest {
        let rtt = self.round_trip();
        let packets = self.packets_in(rtt);
        Contest {
            curve: Cubic::default(),
            packets,
            aim,
            brief,
            reduced: now,
            recover: 0,
            looked: now,
            span: Span::new(now, packets, rtt),
        }
    }

    /// A queue that does not stay lost packets. There is no aim: where it is short, many who aim
    /// for half would lose most.
    pub(super) fn begin_brief(&mut self, now: Instant, sample: &Sample) {
        let mut contest = self.new_contest(now, 0, true);
        self.reduce_brief(now, sample, &mut contest);
        let rate = Rate::over(contest.bytes(self.packet_bytes), self.round_trip());
        self.bandwidth = rate.bytes_per_second().min(MOST);
        self.contest = Some(contest);
    }

    fn reduce_brief(&mut self, now: Instant, sample: &Sample, contest: &mut Contest) {
        let rtt = self.round_trip();
        let left = self.overflow.left(self.bandwidth);
        (contest.reduced, contest.recover) = (now, sample.sent_bytes);
        contest.packets = contest.curve.reduce_to(contest.packets, left).max(2.0);
        let heavy = self.overflow.is_heavy();
        self.overflow.answer(if heavy { now } else { now + contest.patience(rtt) });
        self.hearing.overflowed = Some(now);
    }

    /// The window is as many bytes as before.
    pub(super) fn resize_contest(&mut self, before: u32) {
        if let Some(contest) = &mut self.contest {
            contest.resize(f64::from(self.packet_bytes) / f64::from(before));
        }
    }

    /// A report came in a contest.
    pub(super) fn compete(&mut self, now: Instant, sample: &Sample, heard: Heard) {
        let Some(mut contest) = self.contest else { return };
        let queue = if contest.brief { self.longer() } else { self.queue() };
        let rtt = self.round_trip();
        contest.span.shortest = contest.span.shortest.min(rtt);
        contest.span.longest = contest.span.longest.max(rtt);
        if queue == 0 && (!contest.brief || contest.is_back()) {
            // As fast as in the mean of late: the window without the queue would be faster.
            let mean = (contest.span.shortest + contest.span.longest) / 2;
            let rate = Rate::over(contest.bytes(self.packet_bytes), mean);
            self.bandwidth = self.bandwidth.min(rate.bytes_per_second());
            self.end_contest(now);
            return;
        }
        if contest.brief && queue > LONG_QUEUE {
            (contest.brief, contest.aim) = (false, self.half());
        }
        let missed = heard.missing || heard.marked;
        contest.span.missed |= missed;
        // A window that is not used, for want of data or because of a ceiling, does not grow.
        let used = !sample.app_limited && self.bandwidth < self.most().bytes_per_second();
        let known = sample.sent_bytes.saturating_sub(sample.in_flight_bytes);
        contest.recover = contest.recover.min(sample.sent_bytes);
        let passed = known > contest.recover;
        if missed && passed && self.is_to_answer(now, &contest) {
            if contest.brief && self.overflow.is_all(self.bandwidth) {
                self.bandwidth = self.bandwidth / 16 * 15;
                self.end_contest(now);
                return;
            }
            if contest.brief {
                self.reduce_brief(now, sample, &mut contest);
            } else {
                contest.reduce(now, sample.sent_bytes, (self.bandwidth, rtt));
                self.overflow.answer(now);
            }
        } else if passed && heard.acked > 0.0 && used {
            let aim = Rate::from_bytes_per_second(contest.aim).bytes_in(rtt);
            contest.curve.aim((aim / u64::from(self.packet_bytes)) as f64);
            contest.packets = contest.curve.grow(now, contest.packets, heard.acked, rtt);
        }
        let rate = Rate::over(contest.bytes(self.packet_bytes), rtt);
        self.bandwidth = rate.bytes_per_second().min(MOST);
        self.contest = Some(contest);
        self.look(now, rtt);
    }

    /// Whether what is lost now is the queue's, and another loss than the last one.
    fn is_to_answer(&self, now: Instant, contest: &Contest) -> bool {
        let rtt = self.round_trip();
        let apart = now.since(contest.reduced) >= rtt * CUT_ROUNDS;
        if !contest.brief {
            return apart && self.overflow.is_high(self.longer());
        }
        let queue = self.recent_queue();
        let patient =
            self.overflow.is_heavy() || now.since(contest.reduced) >= contest.patience(rtt);
        apart && patient && queue > 0 && self.overflow.is_high(queue)
    }

    /// Whether the queue is its own, or none: both show when the window has grown by an eighth.
    fn look(&mut self, now: Instant, rtt: Duration) {
        let allowance = self.trips.allowance(self.pacing.burst.interval);
        let overflowed = self.hearing.overflowed.is_some_and(|at| now.since(at) < OVERFLOW_TIME);
        let Some(contest) = &mut self.contest else { return };
        let full = contest.brief && overflowed;
        let Span { since, packets, rtt: before, shortest, longest, missed } = contest.span;
        if now.since(since) < SPAN.max(rtt * SPAN_TRIPS) {
            return;
        }
        contest.span = Span::new(now, contest.packets, rtt);
        let grown = contest.packets > packets * 1.125;
        // A queue that is full does not grow with the window either.
        if grown && !missed && !full && longest - shortest <= allowance {
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
        let queue = |contest: &Contest| if contest.brief { 0 } else { MILLION / 4 };
        self.contest.as_ref().is_some_and(|contest| self.queue() > queue(contest))
    }

    fn end_contest(&mut self, now: Instant) {
        if self.contest.take().is_some_and(|contest| contest.brief) {
            self.overflow.end(self.bandwidth);
            // Others are there: the next probes are small ones.
            self.probe.caution = UNITY / 4;
        }
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
