//! How [`Adaptive`] judges a round trip and advances: startup, drain, then cruise with probes up
//! and, rarely, for the smallest round trip; and the burst size, interval and cap that follow.

use std::time::Duration;

use super::policed::{Comparison, Found};
use super::{
    Adaptive, AdaptivePhase, CALM_CAP_GAIN, CAP_GAIN, CRUISE_TIME, CRUISE_TURNS, DOWN_GAIN,
    DRAIN_GAIN, FIRST_BUFFER, FLOOR, FLOOR_PACKETS, FOREIGN, FULL_QUEUE, FULL_QUEUE_TIME,
    FULL_ROUNDS, INITIAL_PACKETS, MAX_CORRECTION, MIN_CAP_PACKETS, MIN_RTT_CAP_GAIN, MIN_RTT_TIME,
    MOST, PROBE_TIME, RoundCounts, STARTUP_CAP_GAIN, STARTUP_GAIN, StartupGrowth, UNITY, UP_GAINS,
    WindowCounts,
};
use crate::loss_detection::inferred::FEW_PACKETS;
use crate::rate::path::MILLION;
use crate::rate::train::{is_long, train_for};
use crate::rate::{Pacing, Sample, burst_for, millis};
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

/// In place of [`STARTUP_GAIN`] where large buffers showed, late as they are reported, that it was
/// too much.
const CAREFUL_GAIN: u64 = 1500;

/// Half of the round trip is made up for, and no more than half of this.
const MOST_CATCH_UP: Duration = Duration::from_millis(100);

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
        self.flight.rested = sample.in_flight_bytes <= self.resting_bytes();
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
                if self.flight.rested || passed >= turn * 4 {
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
        self.policed.on_probed(self.probe.before, self.bandwidth);
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
        if self.flight.rested && passed >= turn + turn / 4 || passed >= turn * 3 {
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

    // ---- the end of a round trip

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

    // ---- policers

    /// A probe up lost more than at rest.
    fn note_harm(&mut self) {
        let queued = self.probe.queued;
        self.policed.on_harm(self.min_rtt(), queued, self.rest.share());
    }

    /// Loss without a queue, which began at a bandwidth of `before`, went when that was lowered, to
    /// `passes` and a little less.
    fn take_back(&mut self, before: u64, passes: u64) {
        let found = Found { before, passes, queued: self.probe.queued };
        if let Some(bandwidth) = self.policed.take_back(self.min_rtt(), found) {
            self.bandwidth = bandwidth;
        }
    }

    /// Takes note of what a report tells of what was sent at the lower rate.
    pub(super) fn compare_losses(&mut self, now: Instant, sample: &Sample) {
        let comparison = Comparison {
            queue: self.queue(),
            lowered: matches!(self.phase, AdaptivePhase::Down(_)) && self.gain() == DOWN_GAIN,
            // A loss is reported a quarter of a round trip later than what came.
            late: self.min_rtt() / 4 + self.hearing.gap,
            min_rtt: self.min_rtt(),
            rest: self.rest.share(),
        };
        let Some(share) = self.policed.compare(now, sample, &comparison) else { return };
        self.rest.set(share);
        let part = u128::from(self.bandwidth) * u128::from(MILLION - comparison.rest);
        let passes = self.rest.scale_up((part / u128::from(MILLION)) as u64);
        self.bandwidth = match self.probe.queued {
            true => passes,
            false => self.policed.on_policed(passes),
        };
    }

    // ---- burst values

    pub(super) fn gain(&self) -> u64 {
        match self.phase {
            AdaptivePhase::Startup if self.hearing.last_sample.is_none() => UNITY,
            AdaptivePhase::Startup if self.is_holding() => UNITY,
            AdaptivePhase::Startup if self.growth.careful => CAREFUL_GAIN,
            AdaptivePhase::Startup => STARTUP_GAIN,
            AdaptivePhase::Drain => DRAIN_GAIN,
            AdaptivePhase::Cruise => self.cruise_gain(),
            AdaptivePhase::Up(step) => self.up_gain(step),
            AdaptivePhase::Down(_) if self.flight.rested => UNITY,
            AdaptivePhase::Down(_) => DOWN_GAIN,
            AdaptivePhase::MinRtt => UNITY,
        }
    }

    /// The bandwidth to begin with: that of a first round trip's packets, and that of a buffer in
    /// the time that the first may take.
    pub(super) fn initial(&self) -> u64 {
        let packets = INITIAL_PACKETS * u64::from(self.packet_bytes);
        let buffer = Rate::over(self.grain_bytes, FIRST_BUFFER);
        Rate::over(packets, self.min_rtt()).max(buffer).max(FLOOR).bytes_per_second()
    }

    /// A round trip was measured. If it is less `long` than the handshake left it, and only OKs
    /// tell, all that was learned of it so far was learned too slowly.
    pub(super) fn begin_faster(&mut self, now: Instant, long: bool) {
        if !long || is_long(self.min_rtt()) || self.grain_bytes == 0 {
            return;
        }
        self.bandwidth = self.bandwidth.max(self.initial());
        if self.phase != AdaptivePhase::Startup {
            self.look_again(now);
        }
    }

    pub(super) fn set_pacing(&mut self) {
        let least = Rate::over(FLOOR_PACKETS * u64::from(self.packet_bytes), self.trips.now());
        self.bandwidth = self.bandwidth.max(least.bytes_per_second()).min(MOST);
        let ceiling = self.most();
        let bandwidth = Rate::from_bytes_per_second(self.bandwidth).min(ceiling);
        let mut rate = bandwidth.scaled(self.gain(), UNITY).max(FLOOR).min(ceiling);
        let mut burst = if self.sends_trains() {
            rate = rate.min(Rate::from_bytes_per_second(self.growth.train.most(self.bandwidth)));
            train_for(rate, self.packet_bytes, self.grain_bytes)
        } else {
            burst_for(rate, self.packet_bytes)
        };
        if let Some(agreed) = self.agreed {
            let least = if self.sends_trains() { burst.packets } else { 1 };
            burst = millis::within(agreed, (rate, ceiling), self.packet_bytes, least);
        }
        let cap_gain = match self.phase {
            AdaptivePhase::MinRtt => MIN_RTT_CAP_GAIN,
            AdaptivePhase::Startup if self.flight.calm => CALM_CAP_GAIN,
            AdaptivePhase::Startup => STARTUP_CAP_GAIN,
            _ => CAP_GAIN,
        };
        let product = bandwidth.bytes_in(self.min_rtt());
        let unreported = self.hearing.gap + self.hearing.gap / 2 + self.trips.back();
        let unreported = bandwidth.bytes_in(unreported + self.trips.wander());
        let packet = u64::from(self.packet_bytes);
        let bursts = packet * (u64::from(burst.packets) * 2 + MIN_CAP_PACKETS);
        let probes = packet * 2 * u64::from(self.hearing.silences);
        let cap = (product / UNITY).saturating_mul(cap_gain).saturating_add(unreported);
        let rest = bursts + probes + self.grain_bytes * 2;
        // A host that stood still may make up for it as far as a queue has room.
        let catch_up = self.most_catch_up() * self.probe.caution as u32 / 1000;
        self.pacing = Pacing { burst, cap_bytes: Some(cap.saturating_add(rest)), catch_up };
    }

    /// The most that is made up for at once.
    pub(super) fn most_catch_up(&self) -> Duration {
        self.min_rtt().min(MOST_CATCH_UP) / 2
    }
}
