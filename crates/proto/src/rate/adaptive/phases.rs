//! The phases of [`Adaptive`]: startup, drain, then cruise with probes up and, rarely, for the
//! smallest round trip.

use std::time::Duration;

use super::{
    Adaptive, AdaptivePhase, CRUISE_TIME, CRUISE_TURNS, FOREIGN, MAX_CORRECTION, MIN_RTT_TIME,
    PROBE_TIME, StartupGrowth, UNITY, UP_GAINS,
};
use crate::rate::Sample;
use crate::rate::path::MILLION;
use crate::rate::train::is_long;
use crate::time::{Instant, nanos};
use crate::units::Rate;

/// So many probes in a row found more, where each may look for a few hundredths at most: the path
/// is another one than it was taken for.
const MANY_FINDS: u32 = 8;

/// Bursts that a phase lasts at least: what was not sent shows nothing.
const PHASE_BURSTS: u32 = 4;

/// How bold probes up are.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeGain {
    /// Bandwidth when the probe up began.
    pub(super) before: u64,
    /// How much of [`UP_GAINS`]' excess is used, in thousandths: less where queues are short.
    pub(super) caution: u64,
    /// There was a queue at some time since the newest probe began.
    pub(super) queued: bool,
    /// Probes in a row that found more.
    pub(super) finds: u32,
}

impl Adaptive {
    pub(super) fn enter(&mut self, phase: AdaptivePhase, now: Instant) {
        match phase {
            AdaptivePhase::Up(_) => {
                self.probe.before = self.bandwidth;
                self.probe.queued = false;
            }
            AdaptivePhase::Cruise => {
                self.cruise.forgone = 0;
                self.cruise.least = self.bandwidth / 8;
                self.cruise.emptied = false;
                self.cruise.dice ^= self.cruise.dice << 13;
                self.cruise.dice ^= self.cruise.dice >> 7;
                self.cruise.dice ^= self.cruise.dice << 17;
            }
            _ => {}
        }
        self.phase = phase;
        self.since = now;
    }

    pub(super) fn advance(&mut self, now: Instant, sample: &Sample) {
        self.rested = sample.in_flight_bytes <= self.resting_bytes();
        let passed = now.since(self.since);
        let turn = self.turn();
        match self.phase {
            AdaptivePhase::Startup => {
                let queue = self.trips.newest_queue(self.pacing.burst.interval);
                let full = self.round.accepted < 900_000 && queue > MILLION / 64;
                if full && !sample.app_limited && !self.sends_trains() {
                    self.enter(AdaptivePhase::Drain, now);
                }
            }
            AdaptivePhase::Drain => {
                if self.rested || passed >= turn * 4 {
                    self.enter(AdaptivePhase::Cruise, now);
                }
            }
            AdaptivePhase::Cruise => self.cruise(now, passed, turn),
            AdaptivePhase::Up(_) if passed < self.probe_time() => {}
            AdaptivePhase::Up(step) => self.enter(AdaptivePhase::Down(step), now),
            AdaptivePhase::Down(step) => self.go_down(now, passed, step),
            AdaptivePhase::MinRtt => {
                if passed >= MIN_RTT_TIME.max(turn * 2) {
                    self.trips.renew(now, self.trips.now());
                    self.enter(AdaptivePhase::Cruise, now);
                }
            }
        }
    }

    /// What held it below what it believes has changed. What was believed may be long ago, so it
    /// begins with twice what it sent, and looks for more at once.
    pub(super) fn go_on_from(&mut self, now: Instant, before: Rate) {
        if before < self.most() && before.bytes_per_second() < self.bandwidth {
            self.bandwidth = self.bandwidth.min(before.bytes_per_second().saturating_mul(2));
            if self.phase != AdaptivePhase::Startup {
                self.enter(AdaptivePhase::Up(0), now);
            }
        }
        self.set_pacing();
    }

    /// How long a buffer takes.
    pub(super) fn grain_time(&self) -> Duration {
        Rate::from_bytes_per_second(self.bandwidth).time_for(self.grain_bytes)
    }

    /// How long what a sample is of was under way: where only OKs tell, a buffer longer. Not on a
    /// long path, where a probe looks for little, and twice the time would be twice the queue.
    pub(super) fn flight_time(&self) -> Duration {
        if is_long(self.min_rtt()) {
            return self.min_rtt();
        }
        self.min_rtt() + self.grain_time()
    }

    /// The time in which the effect of a change of rate is seen.
    pub(super) fn turn(&self) -> Duration {
        let round_trip = self.trips.now().clamp(self.min_rtt(), self.min_rtt() * 4);
        (round_trip + self.trips.back())
            .max(self.hearing.gap * 2)
            .max(self.some_bursts())
            .max(Duration::from_millis(1))
    }

    pub(super) fn some_bursts(&self) -> Duration {
        self.pacing.burst.interval.saturating_mul(PHASE_BURSTS)
    }

    /// How long a probe up lasts: as long as the flight that each sample is of, or it would show
    /// only in part. Reports that come late by the way back make that longer than the round trip.
    fn probe_time(&self) -> Duration {
        let trip = self.min_rtt() + self.trips.wander();
        (trip + self.trips.least_back())
            .max(self.hearing.gap * 2)
            .max(self.some_bursts())
            .max(self.flight_time())
    }

    fn cruise(&mut self, now: Instant, passed: Duration, turn: Duration) {
        let correction = UNITY - self.cruise_gain();
        let step =
            nanos(self.hearing.gap.min(turn)).saturating_mul(correction) / nanos(turn).max(1);
        self.cruise.forgone += step;
        let stays = !self.foreign && self.cruise.forgone > FOREIGN && self.queue() > MILLION / 4;
        self.foreign |= stays;
        if stays || self.trips.is_stale(now) {
            self.enter(AdaptivePhase::MinRtt, now);
            return;
        }
        let turns = CRUISE_TURNS + (self.cruise.dice >> 60) as u32 % 4;
        if passed >= (turn * turns * self.policed.patience()).max(CRUISE_TIME) {
            if !self.cruise.emptied && !self.foreign {
                self.bandwidth = self.bandwidth * self.cruise_gain() / UNITY;
            }
            if self.policed.on_cruised() {
                self.probe.caution = (self.probe.caution * 2).min(UNITY);
            }
            let full = is_long(self.min_rtt()) && self.queue() > 0;
            self.enter(if full { AdaptivePhase::Cruise } else { AdaptivePhase::Up(0) }, now);
        }
    }

    fn go_down(&mut self, now: Instant, passed: Duration, step: usize) {
        let excess = self.up_gain(step) - UNITY;
        let turn = self.turn().max(self.flight_time());
        // A long path's queue may be no longer than one probe makes it; and what comes out of it
        // faster than before was found only because the rate had fallen.
        let clear = !is_long(self.min_rtt()) || !self.probe.queued;
        self.policed.on_probed(&self.probe, self.bandwidth);
        if self.bandwidth >= self.probe.before + self.probe.before * excess * 2 / (3 * UNITY)
            && clear
        {
            // Where probes met loss or marks, a small find may be chance: no bolder for it.
            let bolder = usize::from(self.probe.caution == UNITY);
            if is_long(self.min_rtt()) {
                // While probes find more no cruise comes that would forget what made them small.
                self.probe.caution = (self.probe.caution * 2).min(UNITY);
                self.probe.finds += 1;
                if self.probe.finds >= MANY_FINDS {
                    self.look_again(now);
                    return;
                }
            }
            self.enter(AdaptivePhase::Up((step + bolder).min(UP_GAINS.len() - 1)), now);
            return;
        }
        self.probe.finds = 0;
        // What the probe found shows a turn after it; until then there is nothing to judge.
        if self.rested && passed >= turn + turn / 4 || passed >= turn * 3 {
            self.enter(AdaptivePhase::Cruise, now);
        }
    }

    /// A long path carries far more than was believed: trains show how much, as at first.
    pub(super) fn look_again(&mut self, now: Instant) {
        self.probe.finds = 0;
        let (full_bandwidth, proven) = (self.bandwidth, self.growth.proven);
        self.growth = StartupGrowth { full_bandwidth, proven, ..StartupGrowth::default() };
        // Loss is compared with what is lost from here on.
        self.hearing.deaf = self.hearing.deaf.max(1);
        self.enter(AdaptivePhase::Startup, now);
    }

    /// What is in flight when the path is full and its queue empty: packets on their way, and
    /// lost ones not yet found missing.
    pub(super) fn resting_bytes(&self) -> u64 {
        let bandwidth = Rate::from_bytes_per_second(self.bandwidth);
        let unresolved = (self.min_rtt() / 4 + self.hearing.gap * 3 / 2)
            * (self.rest.share() as u32 / 1000)
            / 1000;
        let trip = self.min_rtt() + self.trips.wander() / 2 + self.trips.back();
        bandwidth.bytes_in(trip + unresolved + self.hearing.gap / 4)
            + u64::from(self.packet_bytes) * (u64::from(self.pacing.burst.packets) + 1)
            + self.grain_bytes
    }

    pub(super) fn up_gain(&self, step: usize) -> u64 {
        let gain = UP_GAINS.get(step).copied().unwrap_or(UNITY);
        let most = self.long_part(PROBE_TIME, UNITY) << step.min(1);
        UNITY + ((gain - UNITY) * self.probe.caution / UNITY).min(most)
    }

    pub(super) fn cruise_gain(&self) -> u64 {
        if self.foreign {
            return UNITY;
        }
        UNITY - (self.queue() / 2 / (MILLION / UNITY)).min(MAX_CORRECTION)
    }
}
