//! How [`Adaptive`] takes a rate on trust: it sends at it for a round trip, grows no further
//! meanwhile, and goes back to what came through at the first sign that it is too much.

use super::{Adaptive, MOST, Phase};
use crate::rate::Sample;
use crate::rate::path::{MILLION, RestLoss};
use crate::time::Instant;
use crate::units::Rate;

/// Cap in flight, in thousandths of the rate times the smallest round trip.
pub(super) const LEAP_CAP_GAIN: u64 = 1250;
/// A leap goes to so many times the rate before at most.
const FARTHEST: u64 = 16;
/// A queue of this part of the smallest round trip, in millionths, is a sign that it is too much.
const QUEUE: u64 = MILLION / 4;
/// So is this much more loss than trains had, in millionths, which were few packets.
const EXCESS: u64 = 80_000;
/// So many reports in a row that lack a quarter are one too, before what they lack can count as
/// lost.
const SHORT_STRETCHES: u32 = 2;

/// What is lost, in millionths, up to which it is taken for the path's own.
pub(super) const MOST_LOSS: u64 = 100_000;

/// A leap under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leap {
    /// Where it is to lead.
    pub(super) goal: u64,
    /// Bytes sent before it, and by the end of its round trip.
    pub(super) from: u64,
    until: Option<u64>,
    /// Counts at its beginning, and the share lost before.
    delivered: u64,
    lost: u64,
    pub(super) share: u64,
    /// Reports in a row that lack a quarter of what had left.
    short: u32,
    /// It was too far.
    pub(super) failed: bool,
    /// Packets arrived marked since.
    pub(super) marked: bool,
}

impl Leap {
    /// What was counted before it.
    pub(super) fn note(&mut self, sample: &Sample) {
        let total = sample.lost_packets + sample.delivered_packets;
        self.delivered = sample.delivered_packets;
        self.lost = sample.lost_packets;
        self.share = sample.lost_packets * MILLION / total.max(1);
    }
}

impl Adaptive {
    /// From now on, and until that is reported, at `rate` (bytes per second), or as far towards it
    /// as may be.
    pub(super) fn leap_to(&mut self, now: Instant, sample: &Sample, rate: u64) {
        let most = self.most_of_trains().saturating_mul(FARTHEST);
        self.bandwidth = rate.min(most).clamp(1, MOST);
        self.growth.proven = 0;
        self.leap = Leap { goal: rate, from: sample.sent_bytes, ..Leap::default() };
        self.leap.note(sample);
        self.enter(Phase::Leap, now);
    }

    /// A report came while what was taken on trust is on its way.
    pub(super) fn judge_leap(&mut self, now: Instant, sample: &Sample) {
        let reached = sample.sent_bytes.saturating_sub(sample.in_flight_bytes);
        if self.leap.until.is_none() && now.since(self.since) >= self.min_rtt() {
            self.leap.until = Some(sample.sent_bytes);
        }
        if reached <= self.leap.from {
            // What was lost before it shows only now, and what went faster.
            self.leap.note(sample);
            if self.shows_twice_as_much(sample) {
                self.try_longer_trains(now, sample);
            }
            return;
        }
        let delivered = sample.delivered_packets.saturating_sub(self.leap.delivered);
        let lost = sample.lost_packets.saturating_sub(self.leap.lost);
        let share = lost * MILLION / (lost + delivered).max(1);
        let mut before = RestLoss::default();
        before.set(self.leap.share);
        let excess = share > self.leap.share + EXCESS && before.is_excess(share, lost + delivered);
        let queue = self.trips.newest_queue(self.pacing.burst.interval);
        if let Some(stretch) = &sample.stretch {
            let held = MILLION - self.leap.share;
            let short = stretch.arrived_bytes.saturating_mul(MILLION) / 1000 * 4
                < stretch.sent_bytes.saturating_mul(held) / 1000 * 3;
            self.leap.short = if short { self.leap.short + 1 } else { 0 };
        }
        let short = self.leap.short >= SHORT_STRETCHES;
        if self.leap.marked || excess || short || queue > QUEUE {
            let shown = sample.stretch.filter(|stretch| !stretch.arriving.is_zero());
            let shown = shown.map(|s| Rate::over(s.arrived_bytes, s.arriving).bytes_per_second());
            if short {
                self.retreat(now, shown.unwrap_or(self.growth.proven));
            } else {
                // Before any of it arrived there is nothing better to go by.
                let proven = Some(self.growth.proven).filter(|proven| *proven > 0);
                self.bandwidth = self.bandwidth.min(proven.unwrap_or(self.bandwidth));
                self.hearing.deaf = 2;
                self.enter(Phase::Drain, now);
            }
            return;
        }
        if self.leap.until.is_none_or(|until| reached < until) {
            return;
        }
        // More than that may have been lost to the trains themselves.
        self.rest.set(if share > MOST_LOSS { 0 } else { share });
        if self.bandwidth < self.leap.goal && !sample.app_limited {
            self.leap_to(now, sample, self.leap.goal);
        } else {
            self.enter(Phase::Up(0), now);
        }
    }

    /// Back to what came through last, when everything that was sent could; a little less until
    /// what was too much has run off.
    pub(super) fn retreat(&mut self, now: Instant, shown: u64) {
        self.bandwidth = self.bandwidth.min(shown.max(self.bandwidth / (FARTHEST * 4)));
        self.leap.failed = true;
        self.hearing.deaf = 3;
        self.enter(Phase::Drain, now);
    }

    /// What is on its way from a leap that failed shows nothing that may be gone by.
    pub(super) fn is_retreating(&self) -> bool {
        self.phase == Phase::Drain && self.leap.failed
    }
}
