//! Finds the path's rate by itself and shares it (in the family of BBRv3).
//!
//! It keeps a model of the path - bandwidth, smallest round trip, loss at rest - made of samples
//! only, and sends at the bandwidth. The order of work at each sample:
//!
//! 1. round trip and bandwidth are brought up to date;
//! 2. at the end of a round trip the loss, marks and queue of that round are judged;
//! 3. the phase is advanced: startup, drain, then cruise with probes up and, rarely, for the
//!    smallest round trip;
//! 4. burst size, interval and cap are worked out anew.
//!
//! Bandwidth falls only on evidence that the path is full (a queue, marks, excess loss), so a
//! sender without data never lowers it. Loss alone, if it does not depend on the rate, costs
//! nothing: see `rate/path.rs`.

mod phases;

use std::time::Duration;

use crate::rate::path::{MILLION, RestLoss, RoundTrips};
use crate::rate::train::{Train, is_long, train_for};
use crate::rate::{Belief, Pacing, RateControl, Sample, burst_for};
use crate::time::{Instant, nanos};
use crate::units::Burst;
use crate::units::Rate;

/// Packets sent in the first round trip.
const INITIAL_PACKETS: u64 = 32;
/// ...or a buffer in this time, if only its OK will tell anything.
const FIRST_BUFFER: Duration = Duration::from_secs(10);
/// Round trip assumed before one was measured.
const INITIAL_RTT: Duration = Duration::from_millis(100);
/// Gains are in thousandths of the bandwidth.
const UNITY: u64 = 1000;
/// Doubles the rate each round trip although samples lag behind it: 4 ln 2 (as BBR), and a little
/// more because reports are an eighth of a round trip apart.
const STARTUP_GAIN: u64 = 2950;
/// After startup, until its queue is gone.
const DRAIN_GAIN: u64 = 500;
/// After a probe, until its queue is gone.
const DOWN_GAIN: u64 = 800;
/// Gains of successive probes up while each finds more.
const UP_GAINS: [u64; 3] = [1250, 1500, 2000];
/// The most that a standing queue lowers the rate in cruise.
const MAX_CORRECTION: u64 = 250;
/// Cap in flight, in thousandths of bandwidth times smallest round trip: below two, so that a
/// queue of one such product never overflows.
const CAP_GAIN: u64 = 1900;
/// ...and less in startup, where that much is bound to be in flight when the path is found full.
const STARTUP_CAP_GAIN: u64 = 1750;
/// ...and more while there is no sign of that: samples are a round trip old, and the rate doubles.
const CALM_CAP_GAIN: u64 = 2300;
/// Cap in flight while the smallest round trip is looked for.
const MIN_RTT_CAP_GAIN: u64 = 500;
/// How long that lasts at least.
const MIN_RTT_TIME: Duration = Duration::from_millis(200);
/// Turns (see [`Adaptive::turn`]) between probes up, and time at least.
const CRUISE_TURNS: u32 = 8;
const CRUISE_TIME: Duration = Duration::from_millis(25);
/// Rounds without growth that end startup.
const FULL_ROUNDS: u32 = 3;
/// A queue of this part of the smallest round trip, in millionths, shows that the path is full...
const FULL_QUEUE: u64 = 190_000;
/// ...and so does one of this time, where a round trip is long.
const FULL_QUEUE_TIME: Duration = Duration::from_millis(100);
/// The most that a probe up adds to a queue where a round trip is long.
const PROBE_TIME: Duration = Duration::from_millis(75);
/// A queue that stays although this much of the rate was forgone, in thousandths of a turn's worth,
/// is not this sender's.
const FOREIGN: u64 = 1000;
/// Packets that may always be in flight.
const MIN_CAP_PACKETS: u64 = 4;
/// Never slower than so many packets in a round trip as it is now: on a path for which that is too
/// much, the round trip grows until it is not.
const FLOOR_PACKETS: u64 = 2;
/// ...nor than this, in bytes per second: one small packet in the longest interval would be.
const FLOOR: Rate = Rate::from_bytes_per_second(1000);
/// Bursts that a phase lasts at least: what was not sent shows nothing.
const PHASE_BURSTS: u32 = 4;

/// Nothing faster is believed, in bytes per second: arithmetic stays far from its limits.
const MOST: u64 = 10_000_000_000_000;
/// Silence for this many smallest round trips was an outage.
const OUTAGE_ROUND_TRIPS: u32 = 3;

/// ...and for so many buffers' time, where only their OKs tell: data timers run as long.
const OUTAGE_GRAINS: u32 = 4;

/// What the sender is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Doubles every round until the path is full.
    Startup,
    /// Lets the queue of startup run off.
    Drain,
    /// Sends at the bandwidth.
    Cruise,
    /// Looks for more, with this one of [`UP_GAINS`].
    Up(usize),
    /// Lets the queue of that probe run off and waits for what it found.
    Down(usize),
    /// Looks for the smallest round trip.
    MinRtt,
}

/// What was seen in the round trip that is under way.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    number: u64,
    /// Counts at its start.
    delivered: u64,
    lost: u64,
    marked: u64,
    /// The least share of what was sent that came through, in millionths.
    accepted: u64,
    /// The largest queue, in millionths of the smallest round trip.
    queue: u64,
    app_limited: bool,
}

/// What was seen in about one smallest round trip: a queue makes rounds longer, and must be
/// answered the sooner.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    since: Instant,
    /// What the bandwidth is if the path is full.
    if_full: u64,
    /// The largest queue, in millionths of the smallest round trip.
    queue: u64,
    app_limited: bool,
}

/// Adaptive rate control.
#[derive(Clone, Copy, Debug)]
pub struct Adaptive {
    packet_bytes: u32,
    ceiling: Option<Rate>,
    /// Bytes that arrive before anything is reported of them: a buffer, where only OK tells.
    grain_bytes: u64,
    /// What the path takes, in bytes per second sent.
    bandwidth: u64,
    trips: RoundTrips,
    rest: RestLoss,
    phase: Phase,
    since: Instant,
    round: Round,
    window: Window,
    train: Train,
    /// Rounds of startup without growth, and the bandwidth they are compared with.
    full_rounds: u32,
    full_bandwidth: u64,
    /// Totals one round ago, from which startup learns the loss at rest.
    earlier_share: Option<u64>,
    /// Bandwidth when the probe up, or the reduction for suspected loss, began.
    before: u64,
    /// How much of [`UP_GAINS`]' excess is used, in thousandths: less where queues are short.
    caution: u64,
    /// Rate forgone in this cruise to get rid of a queue, in thousandths of turns.
    forgone: u64,
    /// The newest flight came through as fast as it was sent, and met no queue.
    calm: bool,
    /// No more is in flight than the path holds without a queue.
    rested: bool,
    /// The least that the bandwidth may fall to in this cruise for a queue's sake: if the queue is
    /// someone else's, falling does not end it.
    least: u64,
    /// The queue was empty at some time in this cruise.
    emptied: bool,
    /// There was a queue at some time since the newest probe began.
    queued: bool,
    /// The queue is someone else's: it does not go away when this sender yields.
    foreign: bool,
    /// Rounds until loss and marks are judged again.
    deaf: u32,
    last_sample: Option<Instant>,
    /// Longest recent time between samples.
    gap: Duration,
    silences: u32,
    dice: u64,
    pacing: Pacing,
}

impl Adaptive {
    /// Starts with 32 packets of `packet_bytes` (IP and UDP headers included) per `rtt` (of the
    /// handshake, if measured), and is never faster than `ceiling`.
    pub fn new(packet_bytes: u32, rtt: Option<Duration>, ceiling: Option<Rate>) -> Self {
        let packet_bytes = packet_bytes.max(1);
        let trips = RoundTrips::new(rtt);
        let burst = Burst { packets: 1, interval: Duration::from_millis(1) };
        let mut new = Self {
            packet_bytes,
            ceiling,
            grain_bytes: 0,
            bandwidth: 0,
            trips,
            rest: RestLoss::default(),
            phase: Phase::Startup,
            since: Instant::EPOCH,
            round: Round { accepted: MILLION, ..Round::default() },
            window: Window::default(),
            train: Train::default(),
            full_rounds: 0,
            full_bandwidth: 0,
            earlier_share: None,
            before: 0,
            caution: UNITY,
            forgone: 0,
            calm: false,
            rested: false,
            least: 0,
            emptied: false,
            queued: false,
            foreign: false,
            deaf: 0,
            last_sample: None,
            gap: Duration::ZERO,
            silences: 0,
            dice: 0x9e37_79b9_7f4a_7c15,
            pacing: Pacing { burst, cap_bytes: None },
        };
        new.set_out();
        new
    }

    /// The rate to begin with.
    fn set_out(&mut self) {
        let initial = INITIAL_PACKETS * u64::from(self.packet_bytes);
        let initial = Rate::over(initial, self.min_rtt());
        let buffer = Rate::over(self.grain_bytes, FIRST_BUFFER);
        self.bandwidth = initial.max(buffer).max(FLOOR).bytes_per_second();
        self.set_pacing();
    }

    /// The same where only OKs tell, of `buffer_bytes` (IP packets) at once.
    pub fn told_by_buffers(mut self, buffer_bytes: u64) -> Self {
        self.grain_bytes = buffer_bytes;
        self.set_out();
        self
    }

    /// The same, never faster than these burst values.
    pub fn within(mut self, burst: Burst) -> Self {
        self.limit(burst);
        self
    }

    fn limit(&mut self, burst: Burst) {
        if !burst.interval.is_zero() {
            let bytes = u64::from(burst.packets.max(1)) * u64::from(self.packet_bytes);
            let limit = Rate::over(bytes, burst.interval);
            self.ceiling = Some(self.ceiling.map_or(limit, |ceiling| ceiling.min(limit)));
            self.set_pacing();
        }
    }

    /// How long a buffer takes.
    fn grain_time(&self) -> Duration {
        Rate::from_bytes_per_second(self.bandwidth).time_for(self.grain_bytes)
    }

    /// It starts with trains (`rate/train.rs`).
    fn sends_trains(&self) -> bool {
        self.phase == Phase::Startup && is_long(self.min_rtt())
    }

    /// The time in which the effect of a change of rate is seen.
    fn turn(&self) -> Duration {
        let round_trip = self.trips.now().clamp(self.min_rtt(), self.min_rtt() * 4);
        round_trip.max(self.gap * 2).max(self.some_bursts()).max(Duration::from_millis(1))
    }

    fn some_bursts(&self) -> Duration {
        self.pacing.burst.interval.saturating_mul(PHASE_BURSTS)
    }

    fn min_rtt(&self) -> Duration {
        self.trips.min().unwrap_or(INITIAL_RTT)
    }

    fn queue(&self) -> u64 {
        self.trips.queue(self.pacing.burst.interval)
    }

    // ---- 1. measurements

    fn measure(&mut self, now: Instant, sample: &Sample) {
        if let Some(last) = self.last_sample {
            let gap = now.since(last).min(self.min_rtt() / 2 + Duration::from_millis(10));
            self.gap = gap.max(self.gap - self.gap / 16);
        }
        self.last_sample = Some(now);
        if let Some(rtt) = sample.rtt {
            self.trips.sample(now, rtt, self.pacing.burst.interval);
            if self.sends_trains() {
                let late = rtt.saturating_sub(self.min_rtt());
                self.train.sample(sample.burst_bytes, self.packet_bytes, late);
            }
        }
        let queue = self.queue();
        self.emptied |= queue == 0;
        self.queued |= queue > 0;
        self.foreign &= queue > 0;
        self.round.queue = self.round.queue.max(queue);
        self.window.queue = self.window.queue.max(queue);
        self.round.app_limited |= sample.app_limited;
        let (Some(sent), Some(arrived)) = (sample.send_rate, sample.delivery_rate) else { return };
        let sent = sent.bytes_per_second().min(MOST);
        let taken = self.rest.scale_up(arrived.bytes_per_second()).min(sent);
        let accepted = u128::from(taken) * u128::from(MILLION) / u128::from(sent.max(1));
        self.round.accepted = self.round.accepted.min(accepted as u64);
        self.calm = accepted >= 950_000 && self.trips.newest_is_least(self.pacing.burst.interval);
        // Had a little less been sent than the bandwidth, its share that came through would still
        // tell. Much less was sent only because of the cap: the path is slower than believed.
        let yielding = sent < self.bandwidth && sent >= self.bandwidth / 10 * 7;
        let if_full = if yielding || self.foreign {
            (u128::from(self.bandwidth) * accepted / u128::from(MILLION)) as u64
        } else {
            taken
        };
        // A sender without data fills no path: whatever it sees, it is not the bandwidth.
        self.window.app_limited |= sample.app_limited;
        self.window.if_full = self.window.if_full.max(if_full);
        self.bandwidth = self.bandwidth.max(taken);
    }

    // ---- 2. rounds

    /// A queue is answered by taking what came through for the bandwidth.
    fn judge_queue(&mut self, now: Instant) {
        if now.since(self.window.since) < self.min_rtt().max(self.gap * 2) {
            return;
        }
        let window =
            std::mem::replace(&mut self.window, Window { since: now, ..Window::default() });
        let resting = matches!(self.phase, Phase::Startup | Phase::Drain | Phase::MinRtt);
        let shown = window.if_full > 0 && !window.app_limited;
        if !resting && window.queue > self.full_queue() && shown {
            let least = (self.bandwidth / 2).max(self.least);
            self.bandwidth = self.bandwidth.min(window.if_full.max(least));
        }
    }

    fn end_round(&mut self, now: Instant, sample: &Sample) {
        let round = self.round;
        let delivered = sample.delivered_packets.saturating_sub(round.delivered);
        let lost = sample.lost_packets.saturating_sub(round.lost);
        let marked = sample.marked_packets.saturating_sub(round.marked);
        self.round = Round {
            number: sample.round,
            delivered: sample.delivered_packets,
            lost: sample.lost_packets,
            marked: sample.marked_packets,
            accepted: MILLION,
            ..Round::default()
        };
        if self.deaf > 0 {
            self.deaf -= 1;
            return;
        }
        let share = lost.saturating_mul(MILLION) / (lost + delivered).max(1);
        let excess = self.rest.is_excess(share, lost + delivered);
        if self.phase == Phase::Startup {
            self.judge_startup(now, &round, sample, marked > 0);
            return;
        }
        if marked > 0 {
            self.yield_to_marks(now);
        }
        self.judge_loss(share, excess, &round);
    }

    fn full_queue(&self) -> u64 {
        self.long_part(FULL_QUEUE_TIME, MILLION).min(FULL_QUEUE)
    }

    /// `time` as a part of a long smallest round trip, in parts of `whole`; all of it for others.
    fn long_part(&self, time: Duration, whole: u64) -> u64 {
        let min = self.min_rtt();
        if is_long(min) { nanos(time).saturating_mul(whole) / nanos(min).max(1) } else { whole }
    }

    fn judge_startup(&mut self, now: Instant, round: &Round, sample: &Sample, marked: bool) {
        if self.sends_trains()
            && let Some(believed) = self.train.end_round()
            && believed <= self.bandwidth + self.bandwidth / 10
        {
            self.enter(Phase::Drain, now);
            return;
        }
        let total = sample.lost_packets + sample.delivered_packets;
        let share = sample.lost_packets.saturating_mul(MILLION) / total.max(1);
        let grew = self.bandwidth >= self.full_bandwidth + self.full_bandwidth / 4;
        if grew {
            self.full_bandwidth = self.bandwidth;
            self.full_rounds = 0;
            // What was lost a round ago was not lost to a rate that has grown since.
            if let Some(earlier) = self.earlier_share.filter(|_| round.queue == 0) {
                self.rest.set(earlier);
            }
        } else if !round.app_limited && (round.accepted < 900_000 || round.queue > FULL_QUEUE) {
            self.full_rounds += 1;
        }
        self.earlier_share = Some(share);
        if marked || self.full_rounds >= FULL_ROUNDS {
            self.enter(Phase::Drain, now);
        }
    }

    fn yield_to_marks(&mut self, now: Instant) {
        match self.phase {
            Phase::Up(_) | Phase::Down(_) => {
                self.caution = (self.caution / 2).max(UNITY / 4);
                self.enter(Phase::Down(0), now);
            }
            _ => self.cut(),
        }
        self.deaf = 1;
    }

    fn judge_loss(&mut self, share: u64, excess: bool, round: &Round) {
        if self.rest.suspected().is_some() {
            if self.rest.judge(share) {
                self.bandwidth = self.bandwidth.max(self.before);
            }
            return;
        }
        let probing = matches!(self.phase, Phase::Up(_) | Phase::Down(_));
        if !excess {
            if round.queue == 0 && !matches!(self.phase, Phase::Up(_)) {
                self.rest.learn(share);
            }
            return;
        }
        if probing {
            self.caution = (self.caution / 2).max(UNITY / 4);
        } else if round.queue == 0 {
            self.before = self.bandwidth;
            self.rest.suspect(share);
            let left = MILLION - share.saturating_sub(self.rest.share());
            let reduced = u128::from(self.bandwidth) * u128::from(left) / u128::from(MILLION);
            self.bandwidth = (reduced as u64) * 95 / 100;
            self.deaf = 2;
            return;
        } else {
            self.cut();
        }
        self.deaf = 1;
    }

    /// The path may have come back as another one: half the old rate, then doubling.
    fn start_again(&mut self, now: Instant) {
        self.bandwidth = (self.bandwidth / 2).max(FLOOR.bytes_per_second());
        self.full_bandwidth = self.bandwidth;
        self.full_rounds = 0;
        self.earlier_share = None;
        self.last_sample = None;
        // What the outage swallowed is about to be found missing; it says nothing of congestion.
        self.deaf = 3;
        self.enter(Phase::Startup, now);
    }

    /// Congestion without a probe to blame. The next probe is a small one, lest it take what was
    /// given up here for a discovery.
    fn cut(&mut self) {
        self.bandwidth = self.bandwidth * 85 / 100;
        self.caution = UNITY / 4;
    }

    // ---- 4. output

    fn gain(&self) -> u64 {
        match self.phase {
            Phase::Startup if self.last_sample.is_none() => UNITY,
            Phase::Startup => STARTUP_GAIN,
            Phase::Drain => DRAIN_GAIN,
            Phase::Cruise => self.cruise_gain(),
            Phase::Up(step) => self.up_gain(step),
            Phase::Down(_) if self.rested => UNITY,
            Phase::Down(_) => DOWN_GAIN,
            Phase::MinRtt => UNITY,
        }
    }

    fn set_pacing(&mut self) {
        let least = Rate::over(FLOOR_PACKETS * u64::from(self.packet_bytes), self.trips.now());
        self.bandwidth = self.bandwidth.max(least.bytes_per_second());
        let ceiling = self.ceiling.unwrap_or(Rate::from_bytes_per_second(u64::MAX));
        let bandwidth = Rate::from_bytes_per_second(self.bandwidth).min(ceiling);
        let mut rate = bandwidth.scaled(self.gain(), UNITY).max(FLOOR).min(ceiling);
        let burst = if self.sends_trains() {
            rate = rate.min(Rate::from_bytes_per_second(self.train.most(self.bandwidth)));
            train_for(rate, self.packet_bytes)
        } else {
            burst_for(rate, self.packet_bytes)
        };
        let cap_gain = match self.phase {
            Phase::MinRtt => MIN_RTT_CAP_GAIN,
            Phase::Startup if self.calm => CALM_CAP_GAIN,
            Phase::Startup => STARTUP_CAP_GAIN,
            _ => CAP_GAIN,
        };
        let product = bandwidth.bytes_in(self.min_rtt());
        let unreported = bandwidth.bytes_in(self.gap + self.gap / 2);
        let packet = u64::from(self.packet_bytes);
        let bursts = packet * (u64::from(burst.packets) * 2 + MIN_CAP_PACKETS);
        let probes = packet * 2 * u64::from(self.silences);
        let cap = (product / UNITY).saturating_mul(cap_gain).saturating_add(unreported);
        let rest = bursts + probes + self.grain_bytes * 2;
        self.pacing = Pacing { burst, cap_bytes: Some(cap.saturating_add(rest)) };
    }
}

impl RateControl for Adaptive {
    fn on_sample(&mut self, now: Instant, sample: &Sample) {
        if std::mem::take(&mut self.silences) > 0 {
            // Before the first report there is no saying how long one takes.
            let quiet = self.last_sample.map_or(Duration::ZERO, |last| now.since(last));
            if quiet >= self.min_rtt() * OUTAGE_ROUND_TRIPS + self.grain_time() * OUTAGE_GRAINS {
                self.start_again(now);
            }
        }
        self.measure(now, sample);
        self.judge_queue(now);
        if sample.round > self.round.number {
            self.end_round(now, sample);
        }
        self.advance(now, sample);
        self.set_pacing();
    }

    fn on_silence(&mut self, _now: Instant) {
        // A few packets more may be in flight each time: those that are may all be lost.
        self.silences = (self.silences + 1).min(16);
        self.set_pacing();
    }

    fn on_first_answer(&mut self, longest: Duration) {
        if self.last_sample.is_none() && self.trips.min().is_none() {
            self.trips = RoundTrips::new(Some(longest));
            self.set_out();
        }
    }

    fn on_offer(&mut self, _now: Instant, offer: Burst) {
        self.limit(offer);
    }

    fn on_packet_bytes(&mut self, bytes: u32) {
        self.packet_bytes = bytes.max(1);
        self.set_pacing();
    }

    fn belief(&self) -> Belief {
        let phase = match self.phase {
            Phase::Startup => "startup",
            Phase::Drain => "drain",
            Phase::Cruise => "cruise",
            Phase::Up(_) => "up",
            Phase::Down(_) => "down",
            Phase::MinRtt => "min_rtt",
        };
        let min_rtt = self.trips.min();
        let queued = u128::from(nanos(self.min_rtt())) * u128::from(self.queue());
        let queue = min_rtt.map_or(0, |_| (queued / u128::from(MILLION)) as u64);
        Belief {
            phase,
            bandwidth: Some(Rate::from_bytes_per_second(self.bandwidth)),
            min_rtt,
            queue: Duration::from_nanos(queue),
        }
    }

    fn charges_bytes(&self) -> bool {
        true
    }

    fn pacing(&self) -> Pacing {
        self.pacing
    }
}
