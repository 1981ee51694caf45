//! Yields to all other traffic, and takes what that leaves: after LEDBAT (RFC 6817) and LEDBAT++
//! (draft-irtf-iccrg-ledbat-plus-plus), with what they lack where queues are short.
//!
//! What is in flight is a window, spread over the round trip. It grows while packets wait no longer
//! than a host may be late, and shrinks in proportion to what they wait beyond: alone it settles at
//! that much of a queue, and two of its kind at the same share of it (as LEDBAT++ has it). LEDBAT's
//! target of 60 ms would be a full queue to most paths; this one is a sixteenth of a round trip.
//!
//! A wait of twice that is the doing of others, or too long: the window is halved every
//! round trip while that lasts, down to two packets, and does not grow before it was over for
//! `CALM`. So a TCP that has just lost, and leaves the queue empty for a while, is not taken for
//! one that has gone. A queue may also hide in the smallest round trip that was ever seen; so it
//! lets go of everything now and then, for two round trips, and looks, as LEDBAT++'s slowdowns do.

use std::time::Duration;

use crate::rate::ceilings::Ceilings;
use crate::rate::path::{MILLION, RestLoss, RoundTrips};
use crate::rate::{Belief, Pacing, RateControl, Sample, burst_for};
use crate::time::{Instant, nanos};
use crate::units::{Burst, Rate};

/// Packets in flight at first.
const INITIAL_PACKETS: u64 = 16;
/// And at least, as LEDBAT++ has it.
const FLOOR_PACKETS: u64 = 2;
/// Round trip assumed before one was measured.
const INITIAL_RTT: Duration = Duration::from_millis(100);
/// Growth in a round trip, in thousandths of the window: at first, until something waits.
const START_GAIN: u64 = 500;
/// The same on the way back to what it had before.
const RETURN_GAIN: u64 = 250;
/// What may wait, in thousandths of what may be a host's lateness: growth ends, it is too much, and
/// too much for one that has yielded, whose own packets do not wait.
const TARGET: u64 = 600;
const TOO_MUCH: u64 = 1600;
const OTHERS: u64 = 1100;
/// Packets of which a loss is judged at least.
const JUDGED_PACKETS: u64 = 64;
/// Most loss that is taken for the path's own, in millionths: without a test no more is.
const MOST_REST_LOSS: u64 = 20_000;
/// So long nothing may wait before the window grows again, at least, and so many round trips.
const CALM: Duration = Duration::from_secs(2);
const CALM_ROUNDS: u32 = 32;
/// If that was too early, the next calm is longer, up to so many times.
const MOST_CALMS: u32 = 2;
/// A queue that comes back within so many round trips is not its own.
const PATIENCE_ROUNDS: u32 = 16;
/// Between two looks at the path with nothing in flight, at least, and in round trips.
const LOOK_AFTER: Duration = Duration::from_secs(10);
const LOOK_ROUNDS: u32 = 128;
/// The first look is sooner: the sender may have begun in a queue of others.
const FIRST_LOOK_ROUNDS: u32 = 24;
/// A look lasts so many round trips: in the first what is in flight leaves.
const LOOK_LASTS: u32 = 2;
/// Smallest round trips that are remembered, one of each look: the path may become longer.
const LOOKS: usize = 12;
/// The rate of a window, in thousandths: a little more than it needs, so that the window decides.
const PACE: u64 = 1050;
/// Nothing larger is in flight, in bytes: arithmetic stays far from its limits.
const MOST: u64 = 1 << 40;

/// What it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BackgroundPhase {
    /// Grows until something waits.
    Start,
    /// Steers by what waits.
    Steady,
    /// Shrinks, or waits for calm.
    Yield,
    /// Grows back to what it had.
    Return,
    /// Has let go, to see the path without its own packets.
    Look,
}

/// Counts at the beginning of a round trip.
#[derive(Clone, Copy, Debug, Default)]
struct RoundStart {
    number: u64,
    delivered: u64,
    lost: u64,
    marked: u64,
}

/// When the path was seen without this sender's packets, and how long it was then.
#[derive(Clone, Copy, Debug, Default)]
struct BaseLooks {
    last: Instant,
    /// The shortest round trip of the one under way.
    seen: Option<Duration>,
    before: [Option<Duration>; LOOKS],
    next: usize,
}

/// The law of [`Policy::Background`](crate::config::Policy::Background).
#[derive(Clone, Copy, Debug)]
pub struct Background {
    packet: u64,
    ceilings: Ceilings,
    trips: RoundTrips,
    /// The round trip until one was measured.
    first_rtt: Duration,
    rest: RestLoss,
    phase: BackgroundPhase,
    since: Instant,
    /// What may be in flight, in bytes; and what it was before it yielded or looked.
    window: u64,
    before: u64,
    /// When something waited last, and how many calms are waited for.
    disturbed: Instant,
    calms: u32,
    /// When the window was halved last, and when it was made smaller for what may be its own queue.
    halved: Instant,
    warned: Option<Instant>,
    looks: BaseLooks,
    round: RoundStart,
    delivered_bytes: u64,
    /// A report came: what is counted from now on is its own.
    begun: bool,
    /// More was lost in the round trip before than the path at rest explains.
    lossy: bool,
    shown: Option<Rate>,
    pacing: Pacing,
}

impl Background {
    /// Packets of `packet_bytes` (IP and UDP headers included) over a path with this `rtt`, if it
    /// was measured; never faster than `ceiling`.
    pub fn new(packet_bytes: u32, rtt: Option<Duration>, ceiling: Option<Rate>) -> Self {
        let packet = u64::from(packet_bytes.max(1));
        let mut new = Self {
            packet,
            ceilings: Ceilings::new(packet_bytes.max(1), ceiling),
            // Packets of the handshake are short, and faster than any of data on a slow path.
            trips: RoundTrips::new(None),
            first_rtt: rtt.unwrap_or(INITIAL_RTT),
            rest: RestLoss::default(),
            phase: BackgroundPhase::Start,
            since: Instant::EPOCH,
            window: INITIAL_PACKETS * packet,
            before: 0,
            disturbed: Instant::EPOCH,
            calms: 1,
            halved: Instant::EPOCH,
            warned: None,
            looks: BaseLooks::default(),
            round: RoundStart::default(),
            delivered_bytes: 0,
            begun: false,
            lossy: false,
            shown: None,
            pacing: Pacing::of(Burst { packets: 1, interval: Duration::from_millis(1) }),
        };
        new.set_pacing();
        new
    }

    /// The same, never faster than these burst values.
    pub fn within(mut self, burst: Burst) -> Self {
        self.limit(burst);
        self
    }

    fn limit(&mut self, burst: Burst) {
        self.ceilings.set_receiver(burst);
        self.set_pacing();
    }

    fn min_rtt(&self) -> Duration {
        self.trips.min().unwrap_or(self.first_rtt)
    }

    /// A round trip as it is now.
    fn rtt(&self) -> Duration {
        self.trips.now().max(self.min_rtt())
    }

    fn floor(&self) -> u64 {
        FLOOR_PACKETS * self.packet
    }

    fn calm(&self) -> Duration {
        CALM.max(self.min_rtt() * CALM_ROUNDS) * self.calms
    }

    /// What is no more than the lateness of hosts.
    fn allowance(&self) -> Duration {
        self.trips.allowance(self.pacing.burst.interval)
    }

    /// How long packets wait, in thousandths of that.
    fn waits(&self) -> u64 {
        let over = nanos(self.trips.now().saturating_sub(self.min_rtt()));
        over.saturating_mul(1000) / nanos(self.allowance()).max(1)
    }

    fn enter(&mut self, phase: BackgroundPhase, now: Instant) {
        if matches!(phase, BackgroundPhase::Yield | BackgroundPhase::Look)
            && !matches!(self.phase, BackgroundPhase::Yield | BackgroundPhase::Look)
        {
            self.before = self.window;
        }
        (self.phase, self.since) = (phase, now);
    }

    /// Packets were lost or marked beyond what is excused, which halves the window once in a round
    /// trip, as LEDBAT has it (RFC 6817 §2.4.2).
    fn on_congestion(&mut self, now: Instant) {
        let before = self.window;
        self.on_disturbed(now);
        if self.disturbed == self.halved || self.warned == Some(now) {
            self.window = self.window.min(before / 2).max(self.floor());
        }
    }

    /// Something waits that should not, or is lost or marked.
    fn on_disturbed(&mut self, now: Instant) {
        self.disturbed = now;
        if now.since(self.halved) < self.rtt() + self.rtt() / 4 {
            return;
        }
        self.halved = now;
        match self.phase {
            // Most likely its own growth; and once in a while another's of its kind.
            BackgroundPhase::Start | BackgroundPhase::Return => return self.give_way(now),
            BackgroundPhase::Steady
                if self.warned.is_none_or(|at| now.since(at) >= self.patience()) =>
            {
                return self.give_way(now);
            }
            BackgroundPhase::Steady if now.since(self.since) < self.calm() => {
                self.calms = (self.calms * 2).min(MOST_CALMS);
            }
            BackgroundPhase::Steady => self.calms = (self.calms / 2).max(1),
            BackgroundPhase::Yield | BackgroundPhase::Look => {}
        }
        if self.phase != BackgroundPhase::Yield {
            self.enter(BackgroundPhase::Yield, now);
        }
        self.window = (self.window / 2).max(self.floor());
    }

    /// There is a queue, most likely its own: what came through is what there is.
    fn give_way(&mut self, now: Instant) {
        if self.phase == BackgroundPhase::Start {
            self.looks.last = now.before(self.look_after()) + self.rtt() * FIRST_LOOK_ROUNDS;
        }
        let came = self.shown.unwrap_or_default().bytes_in(self.min_rtt());
        self.window = self.window.min(came).max(self.floor());
        self.warned = Some(now);
        // It takes a round trip or two until that queue has gone.
        self.halved = now + self.rtt();
        if self.phase != BackgroundPhase::Steady {
            self.enter(BackgroundPhase::Steady, now);
        }
    }

    /// If a queue comes back sooner than that, others made it.
    fn patience(&self) -> Duration {
        self.min_rtt() * PATIENCE_ROUNDS
    }

    fn look_after(&self) -> Duration {
        LOOK_AFTER.max(self.min_rtt() * LOOK_ROUNDS)
    }

    /// The end of a round trip: whether any packet was marked, or, twice running, more was lost
    /// than the path at rest explains.
    fn end_round(&mut self, sample: &Sample) -> bool {
        let marked = sample.marked_packets > self.round.marked;
        self.round.number = sample.round;
        let counted = |now: u64, before: u64| now.saturating_sub(before);
        let lost = counted(sample.lost_packets, self.round.lost);
        let all = lost + counted(sample.delivered_packets, self.round.delivered);
        if all < JUDGED_PACKETS && !marked {
            return false;
        }
        let share = lost.saturating_mul(MILLION) / all.max(1);
        let excess = all >= JUDGED_PACKETS && self.rest.is_excess(share, all);
        match self.phase {
            // What is lost while nothing waits, or next to nothing is sent, is the path's own.
            BackgroundPhase::Start if share <= MOST_REST_LOSS => self.rest.set(share),
            BackgroundPhase::Yield if self.window <= self.floor() => {
                self.rest.set((self.rest.share() + share) / 2);
            }
            _ if !excess => self.rest.learn(share, all),
            _ => {}
        }
        self.rest.set(self.rest.share().min(MOST_REST_LOSS));
        self.round = RoundStart {
            number: sample.round,
            delivered: sample.delivered_packets,
            lost: sample.lost_packets,
            marked: sample.marked_packets,
        };
        let before = std::mem::replace(&mut self.lossy, excess);
        marked || excess && (before || self.phase == BackgroundPhase::Start)
    }

    /// What a report changes: growth, and less where something waits.
    fn steer(&mut self, now: Instant, acked: u64, used: bool) {
        let waits = self.waits();
        let calm = now.since(self.disturbed) >= self.calm();
        match self.phase {
            BackgroundPhase::Start if used && waits < TARGET / 2 => self.grow(acked, START_GAIN),
            BackgroundPhase::Start | BackgroundPhase::Return if waits >= TARGET / 2 => {
                self.give_way(now)
            }
            BackgroundPhase::Return if self.window >= self.before => {
                self.enter(BackgroundPhase::Steady, now)
            }
            BackgroundPhase::Return if used => self.grow(acked, RETURN_GAIN),
            BackgroundPhase::Steady => self.settle(acked, waits, used),
            BackgroundPhase::Yield if waits > OTHERS => self.disturbed = now,
            BackgroundPhase::Yield if calm => self.enter(BackgroundPhase::Return, now),
            _ => {}
        }
    }

    /// By `gain` thousandths of what arrived: of the window in a round trip.
    fn grow(&mut self, acked: u64, gain: u64) {
        self.window = (self.window + acked.saturating_mul(gain) / 1000).min(MOST);
    }

    /// Less than proportional growth, and proportional decrease, as LEDBAT++ has it: so two of them
    /// come to the same window. Half of the queue beyond the target goes in a round trip, and what
    /// arrived is so much of one.
    fn settle(&mut self, acked: u64, waits: u64, used: bool) {
        let part = |amount: u64| {
            let done = u128::from(amount) * u128::from(acked) / u128::from(self.window.max(1));
            u64::try_from(done).unwrap_or(u64::MAX)
        };
        let step = (self.window * self.packet).isqrt() / 4;
        let more = if used { part(step * TOO_MUCH.saturating_sub(waits) / TOO_MUCH) } else { 0 };
        let rate = self.shown.unwrap_or_default();
        let target = rate.bytes_in(self.allowance()).min(self.window);
        let less = part(target / 2000 * waits.saturating_sub(TARGET).min(TARGET));
        self.window = (self.window + more).saturating_sub(less).clamp(self.floor(), MOST);
    }

    /// Looks at the path now and then, and in any case while nothing of its own is in the way.
    fn look(&mut self, now: Instant, sample: &Sample) {
        let alone = match self.phase {
            BackgroundPhase::Look => now.since(self.since) >= self.rtt(),
            BackgroundPhase::Yield => self.window <= self.floor() * 2,
            _ => false,
        };
        if let Some(rtt) = sample.rtt.filter(|_| alone) {
            self.looks.seen = Some(self.looks.seen.map_or(rtt, |seen| seen.min(rtt)));
        }
        let passed = now.since(self.looks.last);
        match self.phase {
            BackgroundPhase::Steady if passed >= self.look_after() => {
                self.enter(BackgroundPhase::Look, now);
                (self.window, self.looks.seen) = (self.floor(), None);
            }
            BackgroundPhase::Look if now.since(self.since) >= self.rtt() * LOOK_LASTS => {
                let others = self.waits() > OTHERS;
                self.end_look(now);
                self.window = self.before;
                match others {
                    true => {
                        self.window = self.floor();
                        self.disturbed = now;
                        self.enter(BackgroundPhase::Yield, now);
                    }
                    false => self.enter(BackgroundPhase::Steady, now),
                }
            }
            BackgroundPhase::Yield if alone && passed >= self.look_after() => self.end_look(now),
            _ => {}
        }
    }

    /// The smallest round trip is the smallest that was seen lately.
    fn end_look(&mut self, now: Instant) {
        self.looks.last = now;
        let Some(seen) = self.looks.seen.take() else { return };
        let place = self.looks.next % LOOKS;
        self.looks.before[place] = Some(seen);
        self.looks.next += 1;
        if self.looks.next >= LOOKS
            && let Some(least) = self.looks.before.into_iter().flatten().min()
        {
            self.trips.renew(now, least);
        }
    }

    fn rate(&self) -> Rate {
        Rate::over(self.window.saturating_mul(PACE) / 1000, self.rtt())
    }

    fn set_pacing(&mut self) {
        let least = self.ceilings.least();
        let rate = least.map_or(self.rate(), |least| self.rate().min(least));
        let burst = burst_for(rate, u32::try_from(self.packet).unwrap_or(u32::MAX));
        let catch_up = self.min_rtt() / 16;
        self.pacing = Pacing { burst, cap_bytes: Some(self.window), catch_up };
    }
}

impl RateControl for Background {
    fn answers_marks(&self) -> bool {
        true
    }

    fn on_sample(&mut self, now: Instant, sample: &Sample) {
        let acked = sample.delivered_bytes.saturating_sub(self.delivered_bytes);
        self.delivered_bytes = sample.delivered_bytes;
        if let Some(rtt) = sample.rtt {
            self.trips.sample(
                now,
                rtt,
                sample.way_micros,
                (self.pacing.burst.interval, Duration::ZERO),
            );
        }
        self.shown = sample.delivery_rate.or(self.shown);
        if !std::mem::replace(&mut self.begun, true) {
            self.end_round(sample);
            (self.looks.last, self.since) = (now, now);
            return self.set_pacing();
        }
        if sample.round > self.round.number && self.end_round(sample) {
            self.on_congestion(now);
        } else if self.waits() > TOO_MUCH {
            self.on_disturbed(now);
        }
        // A window that was not used says nothing (RFC 7661).
        let used = (sample.in_flight_bytes + acked) * 4 >= self.window * 3 && !sample.app_limited;
        self.steer(now, acked, used);
        self.look(now, sample);
        self.set_pacing();
    }

    fn on_silence(&mut self, now: Instant) {
        self.on_disturbed(now);
        self.set_pacing();
    }

    fn on_offer(&mut self, _now: Instant, offer: Burst) {
        self.limit(offer);
    }

    fn on_ceiling(&mut self, _now: Instant, ceiling: Option<Rate>) {
        self.ceilings.set_client(ceiling);
        self.set_pacing();
    }

    fn on_packet_bytes(&mut self, bytes: u32) {
        self.packet = u64::from(bytes.max(1));
        self.window = self.window.max(self.floor());
        self.set_pacing();
    }

    fn take_over(&mut self, now: Instant, rate: Rate, rtt: Duration) {
        self.trips = RoundTrips::new(Some(rtt));
        self.window = rate.bytes_in(rtt).clamp(self.floor(), MOST);
        self.enter(BackgroundPhase::Steady, now);
        self.set_pacing();
    }

    fn on_pause_over(&mut self, now: Instant, _lasted: Duration) {
        self.before = self.window;
        self.window = self.floor() * 2;
        self.enter(BackgroundPhase::Return, now);
        self.set_pacing();
    }

    fn belief(&self) -> Belief {
        let phase = match self.phase {
            BackgroundPhase::Start => "start",
            BackgroundPhase::Steady => "steady",
            BackgroundPhase::Yield => "yield",
            BackgroundPhase::Return => "return",
            BackgroundPhase::Look => "look",
        };
        let min_rtt = self.trips.min();
        let queue = self.trips.now().saturating_sub(self.min_rtt());
        Belief { phase, bandwidth: Some(self.rate()), min_rtt, queue }
    }

    fn charges_bytes(&self) -> bool {
        true
    }

    fn pacing(&self) -> Pacing {
        self.pacing
    }
}
