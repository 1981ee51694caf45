//! How [`Adaptive`] judges the loss, the marks and the queue of a round trip.

use super::{
    Adaptive, AdaptivePhase, FLOOR, FULL_QUEUE, FULL_QUEUE_TIME, FULL_ROUNDS, RoundCounts, UNITY,
    WindowCounts,
};
use crate::rate::Sample;
use crate::rate::ledger::FEW_PACKETS;
use crate::rate::path::MILLION;
use crate::rate::train::is_long;
use crate::time::{Instant, nanos};
use std::time::Duration;

/// So much more loss, in millionths, than the least so far is far more.
const FAR_MORE: u64 = MILLION / 20;

/// Fewer packets tell nothing of the path by how many came of them: so many, and so many more by
/// the share that is lost.
const FEW: (u64, u64) = (16, 128);

impl RoundCounts {
    /// The share lost in it so far, in millionths.
    fn lost_share(&self, sample: &Sample) -> u64 {
        let delivered = sample.delivered_packets.saturating_sub(self.delivered);
        let lost = sample.lost_packets.saturating_sub(self.lost);
        // Of few packets many may be lost by chance.
        lost * MILLION / (lost + delivered).max(256)
    }
}

impl Adaptive {
    /// A queue is answered by taking what came through for the bandwidth.
    pub(super) fn judge_queue(&mut self, now: Instant) {
        if now.since(self.window.since) < self.min_rtt().max(self.hearing.gap * 2) {
            return;
        }
        let window = std::mem::replace(
            &mut self.window,
            WindowCounts { since: now, ..WindowCounts::default() },
        );
        let resting = matches!(
            self.phase,
            AdaptivePhase::Startup | AdaptivePhase::Drain | AdaptivePhase::MinRtt
        );
        let shown = window.if_full > 0 && !window.app_limited;
        if !resting && window.queue > self.full_queue() && shown {
            let least = (self.bandwidth / 2).max(self.cruise.least);
            self.bandwidth = self.bandwidth.min(window.if_full.max(least));
        }
    }

    pub(super) fn end_round(&mut self, now: Instant, sample: &Sample) {
        let round = self.round;
        let delivered = sample.delivered_packets.saturating_sub(round.delivered);
        let lost = sample.lost_packets.saturating_sub(round.lost);
        let marked = sample.marked_packets.saturating_sub(round.marked);
        self.round = RoundCounts {
            number: sample.round,
            delivered: sample.delivered_packets,
            lost: sample.lost_packets,
            marked: sample.marked_packets,
            accepted: MILLION,
            ..RoundCounts::default()
        };
        if self.hearing.deaf > 0 {
            self.hearing.deaf -= 1;
            // Nor is it what startup learns loss at rest from.
            self.growth.before = (sample.lost_packets, sample.delivered_packets);
            return;
        }
        let round = RoundCounts { reported: lost + delivered, ..round };
        let share = lost.saturating_mul(MILLION) / (lost + delivered).max(1);
        let excess = self.rest.is_excess(share, lost + delivered);
        if self.phase == AdaptivePhase::Startup {
            self.judge_startup(now, &round, sample, marked > 0);
            return;
        }
        if marked > 0 {
            self.yield_to_marks(now);
        }
        self.judge_loss(share, excess, &round);
    }

    pub(super) fn full_queue(&self) -> u64 {
        self.long_part(FULL_QUEUE_TIME, MILLION).min(FULL_QUEUE)
    }

    /// `time` as a part of a long smallest round trip, in parts of `whole`; all of it for others.
    pub(super) fn long_part(&self, time: Duration, whole: u64) -> u64 {
        let min = self.min_rtt();
        if is_long(min) { nanos(time).saturating_mul(whole) / nanos(min).max(1) } else { whole }
    }

    pub(super) fn judge_startup(
        &mut self,
        now: Instant,
        round: &RoundCounts,
        sample: &Sample,
        marked: bool,
    ) {
        if self.sends_trains()
            && let Some(believed) = self.growth.train.end_round()
            && believed <= self.bandwidth + self.bandwidth / 10
        {
            self.enter(AdaptivePhase::Drain, now);
            return;
        }
        let (lost, delivered) = self.growth.before;
        let lost = sample.lost_packets.saturating_sub(lost);
        let total = lost + sample.delivered_packets.saturating_sub(delivered);
        let share = lost.saturating_mul(MILLION) / total.max(1);
        let least = self.growth.least_share.map_or(share, |least| least.min(share));
        self.growth.least_share = Some(least);
        let overrun = self.overruns(round, sample, least);
        let grew = self.bandwidth >= self.growth.full_bandwidth + self.growth.full_bandwidth / 4;
        self.growth.reported += round.reported;
        if overrun && self.is_seldom_told() {
            self.growth.holds.get_or_insert(sample.round);
        } else if round.reported > 0
            && self.growth.holds.is_some_and(|from| sample.round > from + 1)
        {
            self.growth.holds = None;
            self.growth.careful |= self.growth.full_rounds > 0;
        }
        if grew {
            self.growth.full_bandwidth = self.bandwidth;
            (self.growth.full_rounds, self.growth.reported) = (0, 0);
            let earlier = self.growth.earlier_share.filter(|_| round.queue == 0);
            // What was lost a round ago was not lost to a rate that has grown since.
            if let Some(earlier) = earlier {
                self.rest.set(earlier);
            }
        } else if !round.app_limited
            && (self.is_held_up(round, share) || round.queue > FULL_QUEUE || overrun)
        {
            (self.growth.full_rounds, self.growth.reported) = (self.growth.full_rounds + 1, 0);
        }
        self.growth.earlier_share = Some(share);
        if marked || self.growth.full_rounds >= FULL_ROUNDS {
            if overrun {
                // What was too much is about to be found missing.
                self.hearing.deaf = self.hearing.deaf.max(2);
            }
            self.enter(AdaptivePhase::Drain, now);
        }
    }

    /// Less came through than was sent. Of few packets, none of which waited, that is chance, the
    /// more so where more are lost: then rounds are taken together.
    fn is_held_up(&self, round: &RoundCounts, share: u64) -> bool {
        let few = FEW.0 + share * FEW.1 / MILLION;
        let chance = self.grain_bytes == 0 && round.queue == 0 && self.growth.reported < few;
        round.accepted < 900_000 && !chance
    }

    /// Where only OKs tell, and each buffer is asked for again and again, no time is known any
    /// more: neither what is accepted nor a queue shows that it is too much, but that far more is
    /// lost than the `least` so far. Twice a path's rate loses half; a path that takes nearly
    /// nothing was dead, or is too narrow for the packets, however slowly they come.
    fn overruns(&self, round: &RoundCounts, sample: &Sample, least: u64) -> bool {
        let came = sample.delivered_packets.saturating_sub(round.delivered);
        let lost = sample.lost_packets.saturating_sub(round.lost);
        let more = round.lost_share(sample) > least + FAR_MORE;
        self.grain_bytes > 0 && more && lost < came.saturating_mul(3)
    }

    /// Only OKs tell, and of buffers so large that they come long after what shows first.
    fn is_seldom_told(&self) -> bool {
        self.grain_bytes > FEW_PACKETS * u64::from(self.packet_bytes)
    }

    /// Startup waits for what became of much that is missing.
    pub(super) fn is_holding(&self) -> bool {
        self.phase == AdaptivePhase::Startup && self.growth.holds.is_some()
    }

    /// So many packets of a buffer are asked for again: far more than the least share lost so far,
    /// and startup, which gets few reports, goes no faster before these are reported.
    pub(super) fn hold_for(&mut self, packets: u64) {
        let least = self.growth.least_share.filter(|_| self.phase == AdaptivePhase::Startup);
        let bytes = u128::from(packets) * u128::from(self.packet_bytes);
        let much = |least| {
            let usual = u128::from(least + FAR_MORE) * u128::from(self.grain_bytes);
            bytes * u128::from(MILLION) > usual
        };
        if self.is_seldom_told() && packets >= FEW.0 && least.is_some_and(much) {
            self.growth.holds.get_or_insert(self.round.number);
            self.set_pacing();
        }
    }

    pub(super) fn yield_to_marks(&mut self, now: Instant) {
        match self.phase {
            AdaptivePhase::Up(_) | AdaptivePhase::Down(_) => {
                self.probe.caution = (self.probe.caution / 2).max(UNITY / 4);
                self.enter(AdaptivePhase::Down(0), now);
            }
            _ => self.cut(),
        }
        self.hearing.deaf = 1;
    }

    pub(super) fn judge_loss(&mut self, share: u64, excess: bool, round: &RoundCounts) {
        if self.rest.is_suspected() {
            match self.rest.judge(share, round.reported) {
                Some(judged) if judged.unchanged => {
                    self.bandwidth = self.bandwidth.max(judged.bandwidth);
                }
                Some(judged) => self.take_back(judged.bandwidth, self.bandwidth / 95 * 100),
                None => {}
            }
            return;
        }
        let probing = matches!(self.phase, AdaptivePhase::Up(_) | AdaptivePhase::Down(_));
        if !excess {
            let grows = share > self.rest.share() && self.policed.patience() > 1;
            if round.queue == 0 && !matches!(self.phase, AdaptivePhase::Up(_)) && !grows {
                self.rest.learn(share, round.reported);
            }
            return;
        }
        if probing {
            self.note_harm();
            self.probe.caution = (self.probe.caution / 2).max(UNITY / 4);
        } else if round.queue == 0 {
            self.rest.suspect(share, self.bandwidth);
            let left = MILLION - share.saturating_sub(self.rest.share());
            let reduced = u128::from(self.bandwidth) * u128::from(left) / u128::from(MILLION);
            self.bandwidth = (reduced as u64) * 95 / 100;
            self.hearing.deaf = 2;
            return;
        } else {
            self.cut();
        }
        self.hearing.deaf = 1;
    }

    /// The path may have come back as another one: half the old rate, then doubling.
    pub(super) fn start_again(&mut self, now: Instant) {
        self.bandwidth = (self.bandwidth / 2).max(FLOOR.bytes_per_second());
        self.growth.full_bandwidth = self.bandwidth;
        self.growth.full_rounds = 0;
        self.growth.earlier_share = None;
        self.growth.least_share = None;
        (self.growth.holds, self.growth.careful) = (None, false);
        self.hearing.last_sample = None;
        // What the outage swallowed is about to be found missing; it says nothing of congestion.
        self.hearing.deaf = 3;
        self.enter(AdaptivePhase::Startup, now);
    }

    /// Congestion without a probe to blame. The next probe is a small one, lest it take what was
    /// given up here for a discovery.
    pub(super) fn cut(&mut self) {
        self.bandwidth = self.bandwidth * 85 / 100;
        self.probe.caution = UNITY / 4;
    }
}
