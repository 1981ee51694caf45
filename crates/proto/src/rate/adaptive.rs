//! Finds the path's rate by itself (in the family of BBRv3) where the congestion controller cannot.
//!
//! On `rfc998` nothing is reported: what became of the data shows by the OK of a whole buffer, and
//! what is asked for again is a loss or only late. A window that answers each loss needs to know
//! which. On `sealed` this law has the paths whose round trip may take a second or more: a window
//! finds such a path full by a loss, and a network like RFC 1030's Wideband breaks down by it
//! (`docs/decisions/long-paths.md`). A path whose first OPENs were lost may be taken for one.
//!
//! It keeps a model of the path - bandwidth, smallest round trip, loss at rest - made of samples
//! only, and sends at the bandwidth. The order of work at each sample:
//!
//! 1. round trip and bandwidth are brought up to date;
//! 2. at the end of a round trip the loss, marks and queue of that round are judged;
//! 3. the phase is advanced: startup and drain, then cruise with probes up and, rarely, for the
//!    smallest round trip;
//! 4. burst size, interval and cap are computed again.
//!
//! Bandwidth falls only on evidence that the path is full (a queue, marks, excess loss), so a
//! sender without data never lowers it. Loss alone, if it does not depend on the rate, costs
//! nothing: see `rate/path.rs`.

mod hearing;
mod phases;
mod policed;

use std::time::Duration;

use hearing::Hearing;

use crate::rate::ceilings::Ceilings;
use crate::rate::path::{MILLION, RestLoss, RoundTrips};
use crate::rate::train::{Train, is_long};
use crate::rate::{Belief, Pacing, RateControl, Sample};
use crate::time::{Instant, nanos};
use crate::units::{Burst, Rate};

/// Packets sent in the first round trip.
const INITIAL_PACKETS: u64 = 32;
/// The first rate carries a buffer in this time, if only its OK will tell anything.
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
/// The same in startup: less, since that much is bound to be in flight when the path is found full.
const STARTUP_CAP_GAIN: u64 = 1750;
/// The same in startup with no sign of that: more, since samples are a round trip old and the rate
/// doubles.
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
/// A queue of this part of the smallest round trip, in millionths, shows that the path is full.
const FULL_QUEUE: u64 = 190_000;
/// A queue of this time shows it too, where a round trip is long.
const FULL_QUEUE_TIME: Duration = Duration::from_millis(100);
/// The most that a first probe up adds to a queue where a round trip is long; those after a find
/// add twice as much.
const PROBE_TIME: Duration = Duration::from_millis(25);
/// A queue that stays although this much of the rate was forgone, in thousandths of a turn's worth,
/// is not this sender's.
const FOREIGN: u64 = 1000;
/// Packets that may always be in flight.
const MIN_CAP_PACKETS: u64 = 4;
/// Of what was sent by fits and starts so much came through, in millionths, or less: the path is
/// full.
const HELD_UP: u64 = MILLION / 16;
/// Never slower than so many packets in a round trip as it is now: on a path for which that is too
/// much, the round trip grows until it is not.
const FLOOR_PACKETS: u64 = 2;
/// Never slower than this, in bytes per second: one small packet in the longest interval would be.
const FLOOR: Rate = Rate::from_bytes_per_second(1000);

/// Nothing faster is believed, in bytes per second: arithmetic stays far from its limits.
const MOST: u64 = 10_000_000_000_000;
/// Silence for this many smallest round trips was an outage.
const OUTAGE_ROUND_TRIPS: u32 = 3;
/// Silence for so many buffers' time was one, where only their OKs tell: data timers run as long.
const OUTAGE_GRAINS: u32 = 4;

/// After a pause as long as this the path may be another one.
const STALE_AFTER: Duration = Duration::from_secs(1);
/// Fewer packets ahead of the pace are no sign that this host stood still.
const MADE_UP_PACKETS: u64 = 4;
/// For so long this host has not made up for a time in which it stood still.
const AWAKE: Duration = Duration::from_millis(250);
/// A sender with less than one part in so many of what the path was seen to carry is not alone.
const FEW: u64 = 3;
/// Beside others a path carries this part of what it carried when it was free, at least.
const WHOLE: (u64, u64) = (2, 3);
/// No limit.
const UNLIMITED: Rate = Rate::from_bytes_per_second(u64::MAX);

/// What the sender is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdaptivePhase {
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
struct RoundCounts {
    number: u64,
    /// Counts at its start.
    delivered: u64,
    lost: u64,
    marked: u64,
    /// Packets reported in it, when it is over.
    reported: u64,
    /// The least share of what was sent that came through, in millionths.
    accepted: u64,
    /// The largest queue, in millionths of the smallest round trip.
    queue: u64,
    app_limited: bool,
}

/// What was seen in about one smallest round trip: a queue makes rounds longer, and must be
/// answered the sooner.
#[derive(Clone, Copy, Debug, Default)]
struct WindowCounts {
    since: Instant,
    /// What the bandwidth is if the path is full.
    if_full: u64,
    /// The largest queue, in millionths of the smallest round trip.
    queue: u64,
    app_limited: bool,
}

/// What startup goes by.
#[derive(Clone, Copy, Debug, Default)]
struct StartupGrowth {
    train: Train,
    /// Rounds without growth, and the bandwidth they are compared with.
    full_rounds: u32,
    full_bandwidth: u64,
    /// Far more was missing in this round than before: no growth until later packets are reported.
    holds: Option<u64>,
    /// It was lost, and what left since was not: more carefully from there on.
    careful: bool,
    /// Packets reported since the last of those, or since it grew.
    reported: u64,
    /// Packets lost and delivered before the first round that is judged.
    before: (u64, u64),
    /// The most that was seen to come through: the rest of the bandwidth is a guess.
    proven: u64,
    /// The share lost one round ago, from which startup learns the loss at rest.
    earlier_share: Option<u64>,
    /// The least share lost up to the end of any round.
    least_share: Option<u64>,
}

/// What was seen in the cruise that is under way.
#[derive(Clone, Copy, Debug)]
struct Cruise {
    /// Rate forgone to get rid of a queue, in thousandths of turns.
    forgone: u64,
    /// The least that the bandwidth may fall to for a queue's sake: if the queue is someone else's,
    /// falling does not end it.
    least: u64,
    /// The queue was empty at some time.
    emptied: bool,
    dice: u64,
}

/// What is known of the packets in flight.
#[derive(Clone, Copy, Debug, Default)]
struct FlightState {
    /// The newest flight came through as fast as it was sent, and met no queue.
    calm: bool,
    /// No more is in flight than the path holds without a queue.
    rested: bool,
}

/// What the path carried at best, in bytes per second.
#[derive(Clone, Copy, Debug, Default)]
struct BestCarried {
    whole: u64,
    /// What it carried, or was believed to, when it was free; without a queue it falls by a 256th
    /// each round trip.
    free: u64,
}

/// Adaptive rate control.
#[derive(Clone, Copy, Debug)]
pub struct Adaptive {
    packet_bytes: u32,
    ceilings: Ceilings,
    /// Bytes that arrive before anything is reported of them: a buffer, where only OK tells.
    grain_bytes: u64,
    /// Burst values are whole milliseconds, and never looser than these.
    agreed: Option<Burst>,
    /// What the path takes, in bytes per second sent.
    bandwidth: u64,
    trips: RoundTrips,
    rest: RestLoss,
    phase: AdaptivePhase,
    since: Instant,
    round: RoundCounts,
    window: WindowCounts,
    growth: StartupGrowth,
    cruise: Cruise,
    probe: phases::ProbeGain,
    policed: policed::Policed,
    hearing: Hearing,
    flight: FlightState,
    /// The queue is someone else's: it does not go away when this sender yields.
    foreign: bool,
    carried: BestCarried,
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
            ceilings: Ceilings::new(packet_bytes, ceiling),
            grain_bytes: 0,
            agreed: None,
            bandwidth: 0,
            trips,
            rest: RestLoss::default(),
            phase: AdaptivePhase::Startup,
            since: Instant::EPOCH,
            round: RoundCounts { accepted: MILLION, ..RoundCounts::default() },
            window: WindowCounts::default(),
            growth: StartupGrowth::default(),
            cruise: Cruise { forgone: 0, least: 0, emptied: false, dice: 0x9e37_79b9_7f4a_7c15 },
            probe: phases::ProbeGain { before: 0, caution: UNITY, queued: false, finds: 0 },
            policed: Default::default(),
            hearing: Hearing::default(),
            flight: FlightState::default(),
            foreign: false,
            carried: BestCarried::default(),
            pacing: Pacing::of(burst),
        };
        new.set_out();
        new
    }

    /// The rate to begin with.
    fn set_out(&mut self) {
        self.bandwidth = self.initial();
        self.set_pacing();
    }

    fn trips_from(&self, rtt: Duration) -> RoundTrips {
        RoundTrips::new(Some(rtt)).by_buffers(self.grain_bytes > 0)
    }

    /// The same where only OKs tell, of `buffer_bytes` (IP packets) at once.
    pub fn told_by_buffers(mut self, buffer_bytes: u64) -> Self {
        self.grain_bytes = buffer_bytes;
        self.trips = self.trips.by_buffers(buffer_bytes > 0);
        self.set_out();
        self
    }

    /// The same with burst values that RFC 998 can say, never looser than those `agreed` on.
    pub fn to_the_letter(mut self, agreed: Burst) -> Self {
        self.agreed = Some(agreed);
        self.set_out();
        self
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

    /// The fastest that it may be.
    fn most(&self) -> Rate {
        self.ceilings.least().unwrap_or(UNLIMITED)
    }

    /// It starts with trains (`rate/train.rs`).
    fn sends_trains(&self) -> bool {
        self.phase == AdaptivePhase::Startup && is_long(self.min_rtt())
    }

    fn min_rtt(&self) -> Duration {
        self.trips.min().unwrap_or(INITIAL_RTT)
    }

    fn queue(&self) -> u64 {
        self.trips.queue(self.pacing.burst.interval)
    }

    // ---- 1. measurements

    /// How long the queue is that this host made by making up for a time in which it stood still.
    /// It is no sign that the path is full: without it the path would stand still next time.
    fn own_queue(&self, sample: &Sample) -> Duration {
        let bandwidth = Rate::from_bytes_per_second(self.bandwidth);
        bandwidth.time_for(sample.made_up_bytes).min(self.most_catch_up())
    }

    /// Compares round trips. A host that stands still makes them long itself; and a sender with so
    /// little of what the path was seen to carry sees a queue of others come and go.
    fn look_for_wander(&mut self, now: Instant, rtt: Duration, sample: &Sample) {
        let Some(stretch) = &sample.stretch else { return };
        let awake = self.hearing.made_up.is_none_or(|at| now.since(at) >= AWAKE);
        if !awake || self.bandwidth < self.carried.whole / FEW {
            self.trips.overlook(rtt);
            return;
        }
        // Of a queue that is others' the path carries off more than this one's part. What it was
        // seen to carry in all may be a little too much, which would hide what wanders.
        let all = if self.foreign { self.carried.free / WHOLE.1 * WHOLE.0 } else { 0 };
        let most = Rate::from_bytes_per_second(all.max(self.bandwidth));
        self.trips.compare(now, rtt, stretch, most);
    }

    fn measure(&mut self, now: Instant, sample: &Sample) {
        self.hearing.on_sample(now, self.min_rtt());
        if let Some(rtt) = sample.rtt {
            let interval = self.pacing.burst.interval;
            let own = self.own_queue(sample);
            let some = sample.made_up_bytes >= MADE_UP_PACKETS * u64::from(self.packet_bytes);
            if some && own > self.min_rtt() / 8 {
                self.hearing.made_up = Some(now);
            }
            let long = is_long(self.min_rtt());
            let rtt = self.trips.sample(now, rtt, sample.way_micros, (interval, own));
            self.begin_faster(now, long);
            self.look_for_wander(now, rtt, sample);
            if self.sends_trains() {
                let late = rtt.saturating_sub(self.min_rtt());
                self.growth.train.sample(sample.burst_bytes, self.packet_bytes, late);
            }
        }
        let queue = self.queue();
        if queue == 0 {
            let decay = if sample.round > self.round.number { self.carried.free / 256 } else { 0 };
            self.carried.free = (self.carried.free - decay).max(self.bandwidth);
        }
        self.cruise.emptied |= queue == 0;
        self.probe.queued |= queue > 0;
        self.foreign &= queue > 0;
        self.round.queue = self.round.queue.max(queue);
        self.window.queue = self.window.queue.max(queue);
        self.round.app_limited |= sample.app_limited;
        let (Some(sent), Some(arrived)) = (sample.send_rate, sample.delivery_rate) else { return };
        let sent = sent.bytes_per_second().min(MOST);
        let taken = self.rest.scale_up(arrived.bytes_per_second()).min(sent);
        let accepted = u128::from(taken) * u128::from(MILLION) / u128::from(sent.max(1));
        self.round.accepted = self.round.accepted.min(accepted as u64);
        self.flight.calm =
            accepted >= 950_000 && self.trips.newest_is_least(self.pacing.burst.interval);
        // Had a little less been sent than the bandwidth, its share that came through would still
        // tell. Much less was sent only because of the cap: the path is slower than believed.
        let yielding = sent < self.bandwidth && sent >= self.bandwidth / 10 * 7;
        let if_full = if yielding || self.foreign {
            (u128::from(self.bandwidth) * accepted / u128::from(MILLION)) as u64
        } else {
            taken
        };
        // A sender without data fills no path: whatever it sees, it is not the bandwidth. But it
        // had none for less than the time of sending, and what takes sixteen times that to arrive
        // has met a full path all the same: enough to give up what was only a guess.
        let guessed = self.bandwidth / 2 > self.growth.proven;
        let held_up = guessed && accepted < u128::from(HELD_UP);
        self.window.app_limited |= sample.app_limited && !held_up;
        self.window.if_full = self.window.if_full.max(if_full);
        self.growth.proven = self.growth.proven.max(taken);
        self.carried.free = self.carried.free.max(taken);
        self.carried.whole = self.carried.whole.max(self.carried.free);
        if !self.is_holding() {
            self.bandwidth = self.bandwidth.max(taken);
        }
    }
}

impl RateControl for Adaptive {
    fn answers_marks(&self) -> bool {
        true
    }

    fn on_sample(&mut self, now: Instant, sample: &Sample) {
        if std::mem::take(&mut self.hearing.silences) > 0 {
            // Before the first report there is no saying how long one takes.
            let quiet = self.hearing.last_sample.map_or(Duration::ZERO, |last| now.since(last));
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
        self.compare_losses(now, sample);
        self.set_pacing();
    }

    fn on_resend(&mut self, _: Instant, packets: u64) {
        self.hold_for(packets);
    }

    fn on_silence(&mut self, _now: Instant) {
        // A few packets more may be in flight each time: those that are may all be lost.
        self.hearing.silences = (self.hearing.silences + 1).min(16);
        self.set_pacing();
    }

    fn on_first_answer(&mut self, longest: Duration) -> bool {
        let new = self.hearing.last_sample.is_none() && self.trips.min().is_none();
        if new {
            self.trips = self.trips_from(longest);
            // Trains need bursts of their own.
            self.agreed = self.agreed.filter(|_| !is_long(longest));
            self.set_out();
        }
        new
    }

    fn on_offer(&mut self, now: Instant, offer: Burst) {
        let before = self.most();
        self.agreed = self.agreed.map(|agreed| agreed.stricter(offer));
        self.limit(offer);
        self.go_on_from(now, before);
    }

    fn on_ceiling(&mut self, now: Instant, ceiling: Option<Rate>) {
        let before = self.most();
        self.ceilings.set_client(ceiling);
        self.go_on_from(now, before);
    }

    fn take_over(&mut self, now: Instant, rate: Rate, rtt: Duration) {
        self.trips = self.trips_from(rtt);
        self.bandwidth = rate.bytes_per_second().clamp(1, MOST);
        // What is lost of the other law's packets is that one's doing.
        self.hearing.deaf = 2;
        self.enter(AdaptivePhase::Cruise, now);
        self.set_pacing();
    }

    fn on_pause_over(&mut self, now: Instant, lasted: Duration) {
        if lasted >= STALE_AFTER {
            self.start_again(now);
            self.set_pacing();
        }
    }

    fn on_packet_bytes(&mut self, bytes: u32) {
        self.packet_bytes = bytes.max(1);
        self.set_pacing();
    }

    fn belief(&self) -> Belief {
        let phase = match self.phase {
            AdaptivePhase::Startup => "startup",
            AdaptivePhase::Drain => "drain",
            AdaptivePhase::Cruise => "cruise",
            AdaptivePhase::Up(_) => "up",
            AdaptivePhase::Down(_) => "down",
            AdaptivePhase::MinRtt => "min_rtt",
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
