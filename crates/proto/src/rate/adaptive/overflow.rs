//! What tells [`Adaptive`] that a queue loses packets which it shares with others, and what it does
//! where such a queue is short: it comes and goes, so that no contest begins for its staying. Then
//! each probe up costs a TCP beside it its window, and little of what this sender has. So it takes
//! its part by CUBIC's window until that is back where it was, and only then looks for more
//! (docs/decisions/adaptive-rate.md, *A short queue*).

use std::time::Duration;

use super::{Adaptive, Phase, Round};
use crate::rate::Sample;
use crate::rate::path::MILLION;
use crate::time::Instant;
use crate::units::Rate;

/// What is lost while the queue is shorter than this part of the longest seen, in tenths, was not
/// lost to it.
const HIGH: u64 = 7;
/// How much more than loss at rest is its chance, squared, in packets.
const CHANCE: f64 = 16.0;
/// A queue shorter than this part of the round trip, in millionths, is none.
const LEAST_QUEUE: u64 = MILLION / 16;
/// The round trip of a short queue was longer than at best by this part of it at most, in so long.
const SHORT: u32 = 2;
const SPAN: Duration = Duration::from_secs(60);
/// The own probe's losses are told of so many turns after a cruise began at the latest.
const TOLD_TURNS: u32 = 4;
/// Whose rate is more than this part of what the path carried is alone: what its probe loses is its
/// own doing.
const ALONE: (u64, u64) = (15, 16);
/// Who has less than one part in so many of it is not.
const FEW: u64 = 3;
/// Beside others a path carries this part of what it carried when it was free, at least.
const WHOLE: (u64, u64) = (2, 3);
/// What the path carried is forgotten by this part of the difference in each contest: it may carry
/// less by now.
const FORGOTTEN: u64 = 64;
/// Where more than this is lost, in millionths, it is lost at random, or those beside it do not
/// yield: to yield to them is to leave them everything.
const SOME: u64 = 15_000;
/// What a loss takes of the window, in parts of what this sender has of the path: three tenths of
/// who has half or less, as of a CUBIC, and more of who has more.
const CUT: f64 = 0.6;
const CUTS: (f64, f64) = (0.3, 0.4);
/// Where more than this is lost, in millionths, there are many, and no loss is left unanswered.
const HEAVY: u64 = 60_000;

/// Where this much more than at rest is lost of late, no contest does that: the path carries less
/// than it did, or what is taken for its queue is another one.
const FLOODS: u64 = 250_000;

/// What shows whether a queue loses packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overflow {
    /// The longest queue, in millionths of the smallest round trip; it is slowly forgotten.
    top: u64,
    /// The longest one of the round trip before this one.
    before: u64,
    /// Packets reported, found missing, and marked.
    told: (u64, u64, u64),
    /// Packets lost that loss at rest does not explain.
    missed: f64,
    /// What is lost of late, and what of it loss at rest does not explain, in millionths.
    share: u64,
    excess: u64,
    /// What the path carried at best, in bytes per second.
    whole: u64,
    /// The longest time that the round trip was longer than at best, of late and before, and since
    /// when of late is.
    longest: (Duration, Duration),
    since: Instant,
    /// Until then the loss is the one that was answered.
    answered: Instant,
}

/// What a report is the first to tell.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heard {
    /// Packets that came.
    pub(super) acked: f64,
    /// More are missing than loss at rest explains.
    pub(super) missing: bool,
    /// One is marked.
    pub(super) marked: bool,
}

impl Overflow {
    /// Whether what is lost with such a queue may have been lost to it.
    pub(super) fn is_high(&self, queue: u64) -> bool {
        queue * 10 >= self.top * HIGH
    }

    /// There are many.
    pub(super) fn is_heavy(&self) -> bool {
        self.excess > HEAVY
    }

    /// The queue is another one than before, as far as is known.
    pub(super) fn begin(&mut self) {
        (self.top, self.missed) = (0, 0.0);
    }

    /// Losses were answered, and those until `until` are.
    pub(super) fn answer(&mut self, until: Instant) {
        self.answered = until;
        self.top -= self.top / 16;
    }

    /// What is left of a window with such a rate, in bytes per second: who has more than half gives
    /// more, or it would take minutes to share alike.
    pub(super) fn left(&self, rate: u64) -> f64 {
        let share = rate as f64 / self.whole.max(1) as f64;
        1.0 - (share * CUT).clamp(CUTS.0, CUTS.1)
    }

    /// At this rate, in bytes per second, nobody else can be there.
    pub(super) fn is_all(&self, rate: u64) -> bool {
        rate > self.whole / ALONE.1 * ALONE.0
    }

    /// The queue that a round trip at this rate, in bytes per second, makes where nobody else is,
    /// in millionths of the round trip.
    fn queue_of(&self, rate: u64) -> u64 {
        let over = u128::from(rate.saturating_sub(self.whole)) * u128::from(MILLION);
        u64::try_from(over / u128::from(self.whole.max(1))).unwrap_or(u64::MAX)
    }

    /// At this rate, in bytes per second, several others are likely to be there.
    fn is_few(&self, rate: u64) -> bool {
        rate < self.whole / FEW
    }

    /// A contest with such a rate is over.
    pub(super) fn end(&mut self, rate: u64) {
        self.whole -= self.whole.saturating_sub(rate) / FORGOTTEN;
    }

    /// By how much the round trip was longer than at best at most. Where a queue is long enough to
    /// stay, a contest begins for that; with both, four in such a queue lose more.
    fn longest(&self) -> Duration {
        self.longest.0.max(self.longest.1)
    }

    fn measure(&mut self, now: Instant, queue: Duration) {
        if now.since(self.since) > SPAN {
            (self.since, self.longest) = (now, (Duration::ZERO, self.longest.0));
        }
        self.longest.0 = self.longest.0.max(queue);
    }

    fn hear(&mut self, sample: &Sample, rest: f64, packets: f64) -> Heard {
        let acked = sample.delivered_packets.saturating_sub(self.told.0) as f64;
        let lost = sample.lost_packets.saturating_sub(self.told.1) as f64;
        let marked = sample.marked_packets > self.told.2;
        self.told = (sample.delivered_packets, sample.lost_packets, sample.marked_packets);
        self.missed = (self.missed + lost - (acked + lost) * rest * 1.5).max(0.0);
        let missing = self.missed >= 1.0 && self.missed * self.missed > CHANCE * rest * packets;
        if missing {
            self.missed = 0.0;
        }
        Heard { acked, missing, marked }
    }
}

impl Adaptive {
    /// Takes in what a report tells of losses.
    pub(super) fn hear_losses(&mut self, now: Instant, sample: &Sample) -> Heard {
        self.overflow.whole = self.overflow.whole.max(self.free);
        let packets = match &self.contest {
            // What is lost while the smallest round trip is looked for is answered after that.
            Some(contest) if !contest.is_brief() && self.phase != Phase::Cruise => {
                return Heard::default();
            }
            Some(contest) => contest.packets(),
            None => self.packets_in(self.round_trip()),
        };
        self.overflow.top = self.overflow.top.max(self.longer());
        self.overflow.measure(now, self.round_trip().saturating_sub(self.min_rtt()));
        let rest = self.rest.share() as f64 / MILLION as f64;
        self.overflow.hear(sample, rest, packets)
    }

    /// The round trip with what is queued now.
    pub(super) fn round_trip(&self) -> Duration {
        self.trips.now().max(self.min_rtt())
    }

    /// What is sent in such a time, in packets.
    pub(super) fn packets_in(&self, time: Duration) -> f64 {
        let bytes = Rate::from_bytes_per_second(self.bandwidth).bytes_in(time);
        (bytes / u64::from(self.packet_bytes)).max(2) as f64
    }

    /// Compares round trips. A host that stands still makes them long itself; and who has so little
    /// of what the path was seen to carry sees a queue come and go that is of others.
    pub(super) fn look_for_wander(&mut self, now: Instant, rtt: Duration, sample: &Sample) {
        let Some(stretch) = &sample.stretch else { return };
        if !self.is_awake(now) || self.overflow.is_few(self.bandwidth) {
            self.trips.overlook(rtt);
            return;
        }
        // Of a queue that is others' the path carries off more than this one's part. What it was
        // seen to carry in all may be a little too much, which would hide what wanders.
        let shared = self.contest.is_some() || self.foreign;
        let all = if shared { self.free / WHOLE.1 * WHOLE.0 } else { 0 };
        let most = all.max(self.bandwidth);
        self.trips.compare(now, rtt, stretch, Rate::from_bytes_per_second(most));
    }

    /// The longest queue of this round trip and the one before: what is lost is found missing a
    /// little later.
    pub(super) fn recent_queue(&self) -> u64 {
        self.round.longer.max(self.overflow.before).max(self.longer())
    }

    /// A round trip is over in which this share was lost. What loss at rest is, is learned in a
    /// contest too: from what is lost without a queue, or with a queue that is not full; and it is
    /// no more than all that is lost. A long contest that loses far too much is over.
    pub(super) fn judge_overflow(&mut self, now: Instant, share: u64, round: &Round) {
        let before = std::mem::replace(&mut self.overflow.before, round.longer);
        let excess = share.saturating_sub(self.rest.share());
        self.overflow.share = (self.overflow.share * 15 + share) / 16;
        self.overflow.excess = (self.overflow.excess * 7 + excess) / 8;
        let Some(contest) = &self.contest else { return };
        if !contest.is_brief() && self.overflow.excess > FLOODS {
            self.bandwidth = self.bandwidth / 1000 * ((MILLION - excess.min(MILLION)) / 1000);
            self.enter(Phase::Drain, now);
            return;
        }
        let own = if contest.is_brief() {
            round.longer == 0 && before == 0
        } else {
            !self.overflow.is_high(round.longer)
        };
        if own && excess <= FLOODS {
            self.rest.learn(share, round.told);
        } else if self.overflow.share < self.rest.share() {
            self.rest.learn(self.overflow.share, u64::MAX);
        }
    }

    /// Whether a queue lost packets that is too short to stay, and not to the own probe alone.
    pub(super) fn meets_others(&mut self, now: Instant, heard: Heard) -> bool {
        let queue = self.recent_queue();
        if !heard.missing || self.contest.is_some() || queue <= LEAST_QUEUE {
            return false;
        }
        if !self.overflow.is_high(queue) {
            self.overflow.top -= self.overflow.top / 16;
            return false;
        }
        let others = match self.phase {
            // What a path loses that carries less than it did is judged by itself.
            Phase::Cruise => {
                now.since(self.since) >= self.turn() * TOLD_TURNS && self.hearing.deaf == 0
            }
            Phase::Up(_) | Phase::Down(_) => {
                let own = self.overflow.queue_of(self.probe.rate);
                !self.overflow.is_all(self.probe.before) && own < queue
            }
            _ => false,
        };
        let short = self.overflow.longest() <= self.min_rtt() / SHORT;
        let yields = self.overflow.share < SOME;
        others && short && yields && now >= self.overflow.answered && self.may_contend(now)
    }

    /// Takes its part of a queue that comes and goes.
    pub(super) fn contend_briefly(&mut self, now: Instant, sample: &Sample) {
        if self.phase != Phase::Cruise {
            self.bandwidth = self.bandwidth.min(self.probe.before);
        }
        self.enter(Phase::Cruise, now);
        self.begin_brief(now, sample);
    }
}
