//! How [`Adaptive`] finds the rate of a path nobody described (docs/decisions/fast-start.md).
//!
//! 1. Packets leave in trains, back to back. How long after its first packets the end of one
//!    arrives shows what the path carries, if that is long enough for the hosts' clocks; else the
//!    next trains are longer.
//! 2. A longer train, paced a little above that rate, confirms it: what others send meanwhile
//!    takes its part.
//! 3. A leap (`leap.rs`) goes to what came through.
//!
//! Where two of the first trains come at once, one of the second kind tries what they leave open
//! (`trains/guess.rs`).
//!
//! Whatever does not fit ends in startup, which doubles.

mod guess;

use std::time::Duration;

use super::leap::MOST_LOSS;
use super::{Adaptive, INITIAL_PACKETS, Phase};
use crate::rate::path::MILLION;
use crate::rate::train::is_long;
use crate::rate::{Pacing, Sample, Stretch, burst_for};
use crate::time::Instant;
use crate::units::{Burst, Rate};

/// Packets in each of the first trains, and how many of those make the first round trip's worth.
const FIRST_PACKETS: u64 = INITIAL_PACKETS / FIRST_TRAINS as u64;
const FIRST_TRAINS: u32 = 2;
/// What is no longer than this in all, 64 KiB and what names them, need not wait for a report: so
/// many first trains to a round trip, of which it takes three or four, [`LEAST_INTERVAL`] apart.
const SHORT_BYTES: u64 = 66 << 10;
const SHORT_TRAINS: u32 = 12;
/// A train that told nothing is followed by ones so many times as long.
const LONGER: u64 = 6;
/// Packets in a train at most.
const MOST_PACKETS: u64 = 1024;
/// Time that a train must take to arrive before its rate is believed: seven times what a host's
/// clock ticks, or its interrupts wait.
const RESOLVED: Duration = Duration::from_micros(700);
/// Fewer packets tell nothing: those that open a connection are small and come one by one.
const LEAST_PACKETS: u64 = 4;
/// Trains after the first round trip are so many to one; still longer ones are two, as the first.
const TO_A_ROUND: u32 = 5;
/// No shorter is the time between them: a path that did not resolve one is not overrun by six
/// times as much in twelve times the time.
const LEAST_INTERVAL: Duration = Duration::from_micros(8400);
/// Below this round trip doubling is as fast.
const LEAST_RTT: Duration = Duration::from_millis(16);
/// What is sent to confirm goes faster than what was seen, which is a little low, by this, in
/// hundredths.
const CONFIRM_GAIN: u64 = 125;
/// It takes this part of a round trip, within bounds, and a first train's packets at least.
const CONFIRM_PART: u32 = 12;
const CONFIRM_TIME: (Duration, Duration) = (Duration::from_millis(3), Duration::from_millis(20));
/// Before it, this part of a round trip passes in silence: the receiver then tells of its first
/// packet.
const HUSH_PART: u32 = 32;
/// What left within this part of a round trip, or in half of the time in which it arrived, was one
/// train.
const PAUSE_PART: u32 = 100;
/// A receiver reports each eighth of a round trip anyhow; what it tells in less time than this part
/// of one was told for a pause.
const SOON_PART: u32 = 16;
/// What arrives in at most this part more of the time in which it left was not held up: the path
/// may carry more, and twice as much is tried.
const HELD_UP_PART: u32 = 32;
/// Of what is sent to confirm so much arrives at least, in hundredths, or it is not gone by.
const CONFIRM_ARRIVES: u64 = 60;
/// Trains of which a quarter was lost, and which end this.
const CUT_TRAINS: u32 = 2;
/// Rounds without a leap that end this, and confirmations.
const ROUNDS: u64 = 6;
const CONFIRMATIONS: u32 = 3;
/// A host's clock makes what is shown uncertain by so much, and nothing is believed nearer than a
/// hundredth, or needs to be cut by more than five.
const GRAIN: Duration = Duration::from_micros(250);
/// Up to so many times the rate of the trains nothing needs to be confirmed: doubling would go
/// there as well.
const UNCONFIRMED: u64 = 3;

/// What has been sent and heard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trains {
    packets: u64,
    /// First trains in a round trip.
    first: u32,
    /// The train that the newest report told of, as far as it did.
    heard: Stretch,
    /// Reports of it, and bytes of it that its first one told of.
    marks: u32,
    first_bytes: u64,
    /// What its first one told of did not wait for those before it.
    begins_at_once: bool,
    /// Nearly all of it came at once: what is late of it was held up by a host.
    at_once: bool,
    /// What had been told of when a first train was seen to have come at once.
    told: Option<u64>,
    /// Trains of which the end was lost.
    cut: u32,
    /// Bytes sent when a train showed that trains are too much, and when they began again for all
    /// that: what left before is no train.
    given_up: u64,
    again_from: u64,
    /// What a train showed: that is being confirmed.
    shown: u64,
    /// It was seen, and is not only what to try next.
    measured: bool,
    /// It is what first trains that came at once leave open.
    guessed: bool,
    /// When the next step of that is due, and where in what was sent it began.
    step_at: Instant,
    confirm_from: u64,
    confirm_bytes: u64,
    confirmed: Stretch,
    confirmations: u32,
}

impl Default for Trains {
    fn default() -> Self {
        Self {
            packets: FIRST_PACKETS,
            first: FIRST_TRAINS,
            heard: Stretch::default(),
            marks: 0,
            first_bytes: 0,
            begins_at_once: false,
            at_once: false,
            told: None,
            cut: 0,
            given_up: 0,
            again_from: 0,
            shown: 0,
            measured: false,
            guessed: false,
            step_at: Instant::EPOCH,
            confirm_from: 0,
            confirm_bytes: 0,
            confirmed: Stretch::default(),
            confirmations: 0,
        }
    }
}

impl Trains {
    /// When the next step towards a confirmation is due.
    pub(super) fn next_timeout(&self, phase: Phase) -> Option<Instant> {
        matches!(phase, Phase::Hush | Phase::Confirm | Phase::Listen).then_some(self.step_at)
    }

    /// What the path carries by what a train showed, others included.
    pub(super) fn seen(&self) -> u64 {
        if self.measured { self.shown } else { 0 }
    }

    /// Adds what a report told, with which a train begins or goes on; whether it was of one that
    /// had been told of before.
    fn hear(&mut self, stretch: &Stretch, burst_bytes: u64, begins: bool) -> bool {
        if begins {
            self.heard = Stretch {
                from_bytes: stretch.from_bytes + stretch.sent_bytes,
                ..Stretch::default()
            };
            self.marks = 1;
            self.first_bytes = burst_bytes;
            self.at_once = false;
            return false;
        }
        if self.marks == 0 {
            self.heard.from_bytes = stretch.from_bytes;
        }
        self.marks += 1;
        self.heard.extend(stretch);
        true
    }
}

impl Adaptive {
    /// The same without trains, for comparison.
    #[cfg(test)]
    pub(in crate::rate) fn doubling(mut self) -> Self {
        self.phase = Phase::Startup;
        self.set_pacing();
        self
    }

    /// It has not found the path's rate yet, nor begun to double.
    pub(super) fn is_starting(&self) -> bool {
        use Phase::{Confirm, Hush, Leap, Listen, Trains};
        matches!(self.phase, Trains | Hush | Confirm | Listen | Leap)
    }

    /// Whether doubling takes long, and still not so long that it must not be tried.
    pub(super) fn is_for_trains(&self) -> bool {
        !is_long(self.min_rtt()) && self.min_rtt() >= LEAST_RTT
    }

    fn train_interval(&self) -> Duration {
        self.interval_of(self.trains.packets)
    }

    fn interval_of(&self, packets: u64) -> Duration {
        if packets == FIRST_PACKETS {
            let usual = self.min_rtt() / FIRST_TRAINS;
            return (self.min_rtt() / self.trains.first).max(LEAST_INTERVAL).min(usual);
        }
        let parts = if packets <= FIRST_PACKETS * LONGER { TO_A_ROUND } else { 2 };
        (self.min_rtt() / parts).max(LEAST_INTERVAL)
    }

    fn train_bytes(&self) -> u64 {
        self.trains.packets * u64::from(self.packet_bytes)
    }

    /// The mean rate of trains of so many packets.
    fn mean_of(&self, packets: u64) -> u64 {
        let bytes = packets * u64::from(self.packet_bytes);
        Rate::over(bytes, self.interval_of(packets)).bytes_per_second()
    }

    fn mean_of_trains(&self) -> u64 {
        self.mean_of(self.trains.packets)
    }

    fn confirm_rate(&self) -> Rate {
        Rate::from_bytes_per_second(self.trains.shown).scaled(CONFIRM_GAIN, 100)
    }

    fn confirm_time(&self) -> Duration {
        let (least, most) = CONFIRM_TIME;
        if self.is_first_guess() {
            return self.guess_time().min(most);
        }
        let shown = Rate::from_bytes_per_second(self.trains.shown);
        let packets = shown.time_for(FIRST_PACKETS * u64::from(self.packet_bytes));
        (self.min_rtt() / CONFIRM_PART).clamp(least, most).max(packets)
    }

    /// How trains leave; `None` in other phases.
    pub(super) fn train_pacing(&self, ceiling: Rate) -> Option<Pacing> {
        let bytes = self.train_bytes();
        let round = self.min_rtt();
        let interval = self.train_interval().max(ceiling.time_for(bytes));
        let trains = Burst { packets: self.trains.packets as u32, interval };
        let burst = match self.phase {
            Phase::Trains => trains,
            // Those that told nothing do no harm.
            Phase::Listen => Burst {
                packets: (self.trains.packets / LONGER).max(FIRST_PACKETS) as u32,
                interval,
            },
            Phase::Confirm => burst_for(self.confirm_rate().min(ceiling), self.packet_bytes),
            Phase::Hush => Burst { packets: 1, interval: round * 4 },
            _ => return None,
        };
        let mean = Rate::over(bytes, interval);
        let probes = u64::from(self.packet_bytes) * 2 * u64::from(self.hearing.silences);
        // First trains of which one is not told of a round trip and a half later are too much.
        let first = self.trains.packets == FIRST_PACKETS && self.trains.confirmations == 0;
        let spare = if first { 0 } else { mean.bytes_in(round) / 2 };
        let confirm = self.trains.confirm_bytes * 2;
        let cap = mean.bytes_in(round) + spare + bytes + confirm + probes;
        Some(Pacing { burst, cap_bytes: Some(cap), catch_up: Duration::ZERO })
    }

    /// All that there is to send is so little, and nothing is known of the path.
    pub(super) fn hasten_trains(&mut self, bytes: u64) {
        if bytes <= SHORT_BYTES {
            self.trains.first = SHORT_TRAINS;
        }
    }

    /// Trains after the first ones are as long as before.
    pub(super) fn resize_trains(&mut self, before: u32) {
        if self.trains.packets > FIRST_PACKETS {
            let packets = self.trains.packets * u64::from(before) / u64::from(self.packet_bytes);
            self.trains.packets = packets.clamp(FIRST_PACKETS, MOST_PACKETS);
        }
    }

    /// A report came.
    pub(super) fn hear_trains(&mut self, now: Instant, sample: &Sample) {
        let marks = std::mem::take(&mut self.leap.marked);
        if !self.is_for_trains() {
            self.enter(Phase::Startup, now);
            return;
        }
        if marks || sample.round > ROUNDS {
            self.double(now, sample);
            return;
        }
        let Some(stretch) = sample.stretch else {
            self.trains.marks = 1;
            self.trains.first_bytes = sample.burst_bytes;
            return;
        };
        if self.phase == Phase::Listen && self.is_of_confirmation(now, sample, &stretch) {
            return;
        }
        if stretch.from_bytes < self.trains.again_from {
            return;
        }
        if self.is_cut(&stretch) {
            self.growth.learns_nothing = true;
            self.bandwidth = self.bandwidth.min(self.mean_of_trains());
            self.double(now, sample);
            return;
        }
        self.hear_train(now, sample, &stretch);
    }

    /// Whether a report is of what confirms, and then deals with it; or of what left since.
    fn is_of_confirmation(&mut self, now: Instant, sample: &Sample, stretch: &Stretch) -> bool {
        let pause = self.min_rtt() / 10;
        if stretch.from_bytes >= self.trains.confirm_from
            && stretch.sending <= pause.max(self.confirm_time())
        {
            self.trains.confirmed.extend(stretch);
            self.hear_confirmation(now, sample);
            return true;
        }
        let reached = stretch.from_bytes + stretch.sent_bytes;
        if reached >= self.trains.confirm_from + self.trains.confirm_bytes / 2 {
            // The report of its beginning was lost, or not enough of it could be sent.
            if !self.drops_guess(now) {
                self.confirm(now, sample);
            }
            return true;
        }
        self.trains.guessed && reached > self.trains.confirm_from
    }

    /// Until a guess is reported, longer trains that left before it are.
    fn hear_train(&mut self, now: Instant, sample: &Sample, stretch: &Stretch) {
        let before = self.trains;
        let reached = stretch.from_bytes + stretch.sent_bytes;
        let rtt = self.min_rtt();
        // A receiver may take what is no longer for no pause, and tell of both sides as of one.
        let short = stretch.waited <= rtt / HUSH_PART;
        // But where it told of the beginning alone, and soon, it did so because of the pause, which
        // a host may have made longer: there the train begins.
        let whole = stretch.sent_bytes * 4 >= self.train_bytes() * 3;
        let soon = stretch.arriving < rtt / SOON_PART;
        let paused = stretch.waited >= RESOLVED && soon && !whole;
        let stretch = if short { stretch.without_wait() } else { *stretch };
        let begins = paused || stretch.sending > (rtt / PAUSE_PART).max(stretch.arriving / 2);
        let more = self.trains.hear(&stretch, sample.burst_bytes, begins);
        if begins {
            let way = self.trips.newest_way();
            self.trains.begins_at_once = way.is_some_and(|longer| longer < RESOLVED);
        }
        let waits = self.phase == Phase::Listen && self.trains.guessed;
        if self.phase != Phase::Trains && !waits {
            return;
        }
        let heard = self.trains.heard;
        let enough = heard.arrived_bytes >= LEAST_PACKETS * u64::from(self.packet_bytes);
        if more && !self.trains.at_once && enough && heard.arriving >= RESOLVED {
            let shown = Rate::over(heard.arrived_bytes, heard.arriving).bytes_per_second().max(1);
            if self.came_sooner_before() || self.came_in_clumps(shown) {
                return;
            }
            self.trains.shown = shown;
            self.trains.measured = true;
            if !waits || self.trains.shown <= self.most_unconfirmed() {
                self.trains.guessed = false;
                self.on_shown(now, sample);
            }
            return;
        }
        // All of it came at once, or nearly: its last report says so, its only one, or its first.
        let only = if before.marks == 1 { before.first_bytes } else { 0 };
        let newest = self.trains.first_bytes + if more { heard.sent_bytes } else { 0 };
        let (whole, is_newest) = (newest.max(only), newest >= only);
        self.trains.at_once |= newest * 4 >= self.train_bytes() * 3;
        if waits {
            return;
        }
        if whole * 4 >= self.train_bytes() * 3 {
            self.trains.packets = (self.trains.packets * LONGER).min(MOST_PACKETS);
        }
        if is_newest && self.is_second_at_once(whole, reached) {
            self.guess(now, sample);
        }
    }

    /// Whether a quarter of a first train came at once, and the rest later, at `shown` bytes a
    /// second: what clumps packets, or held them up, is no rate. If longer trains are no more than
    /// that, they follow, and tell better.
    fn came_in_clumps(&mut self, shown: u64) -> bool {
        let clumped = self.trains.packets == FIRST_PACKETS
            && self.trains.begins_at_once
            && self.trains.first_bytes * 4 >= self.train_bytes()
            && shown >= self.mean_of(FIRST_PACKETS * LONGER);
        if clumped {
            self.trains.packets *= LONGER;
            self.trains.at_once = true;
        }
        clumped
    }

    /// Whether a train arrived in less than half of the time that the one took which was gone by
    /// without a confirmation: a host, not the path, had held that up.
    pub(super) fn shows_twice_as_much(&self, sample: &Sample) -> bool {
        let Some(stretch) = &sample.stretch else { return false };
        let train = FIRST_PACKETS * u64::from(self.packet_bytes);
        let whole = stretch.arrived_bytes * 4 >= train * 3;
        let at_once = stretch.sending <= self.min_rtt() / PAUSE_PART;
        let shown = Rate::over(stretch.arrived_bytes, stretch.arriving + GRAIN);
        let twice = shown.bytes_per_second() / 2 >= self.bandwidth;
        self.trains.confirmations == 0 && whole && at_once && twice
    }

    /// Whether trains were given up for one that a host, not the path, had held up: what was on its
    /// way by then arrived much faster.
    pub(super) fn gave_up_for_a_hold_up(&self, sample: &Sample) -> bool {
        let Some(stretch) = &sample.stretch else { return false };
        let settles = matches!(self.phase, Phase::Drain | Phase::Cruise);
        let reached = stretch.from_bytes + stretch.sent_bytes;
        settles && reached <= self.trains.given_up && self.shows_twice_as_much(sample)
    }

    /// Trains again, and no more of the first ones.
    pub(super) fn try_longer_trains(&mut self, now: Instant, sample: &Sample) {
        self.trains.packets = self.trains.packets.max(FIRST_PACKETS * LONGER);
        self.trains.again_from = sample.sent_bytes;
        (self.trains.heard, self.trains.marks) = (Stretch::default(), 0);
        self.leap.failed = false;
        self.enter(Phase::Trains, now);
    }

    /// What others leave of a path on which a train alone arrives as [`Trains::shown`], and a
    /// longer one, paced, as `shown`: a queue shares itself as what comes in.
    fn free_of_others(&self, shown: u64) -> u64 {
        let whole = self.trains.shown;
        if !self.trains.measured || shown >= whole {
            return u64::MAX;
        }
        let heard = self.trains.confirmed;
        let sent = Rate::over(heard.sent_bytes, heard.sending).bytes_per_second();
        let others = u128::from(sent) * u128::from(whole - shown) / u128::from(shown.max(1));
        whole.saturating_sub(u64::try_from(others).unwrap_or(u64::MAX))
    }

    /// Trains told nothing that can be gone by.
    fn double(&mut self, now: Instant, sample: &Sample) {
        // What becomes of those on their way says nothing of the rate.
        self.growth.judged_from = sample.round + 2;
        self.enter(Phase::Startup, now);
    }

    /// Whether the ends of trains are lost: the queue, or a policer's bucket, is too short.
    fn is_cut(&mut self, stretch: &Stretch) -> bool {
        let short = self.trains.packets <= FIRST_PACKETS;
        if short || stretch.sending <= self.min_rtt() / PAUSE_PART {
            return false;
        }
        let lost = stretch.sent_bytes.saturating_sub(stretch.arrived_bytes);
        self.trains.cut += u32::from(lost * 4 > self.train_bytes());
        self.trains.cut >= CUT_TRAINS
    }

    /// A train showed what the path carries.
    fn on_shown(&mut self, now: Instant, sample: &Sample) {
        let believed = believed(self.trains.shown, self.trains.heard.arriving);
        let total = sample.lost_packets + sample.delivered_packets;
        if sample.lost_packets * MILLION > total * MOST_LOSS && total >= FIRST_PACKETS * 4 {
            self.double(now, sample);
            return;
        }
        let packet = u64::from(self.packet_bytes);
        self.trips.lengthen(Rate::from_bytes_per_second(believed).time_for(packet));
        if believed <= self.mean_of_trains() {
            // The trains themselves were too much.
            self.trains.given_up = sample.sent_bytes;
            self.retreat(now, believed);
            return;
        }
        if believed <= self.most_unconfirmed() {
            self.leap_to(now, sample, believed);
            return;
        }
        self.confirm(now, sample);
    }

    fn most_unconfirmed(&self) -> u64 {
        self.mean_of_trains().max(self.bandwidth).saturating_mul(UNCONFIRMED)
    }

    /// Sends a train at what was shown, after a pause.
    fn confirm(&mut self, now: Instant, sample: &Sample) {
        if self.trains.confirmations >= CONFIRMATIONS {
            self.double(now, sample);
            return;
        }
        self.trains.confirmations += 1;
        self.leap.note(sample);
        self.trains.confirm_from = sample.sent_bytes;
        self.trains.confirm_bytes = self.confirm_rate().bytes_in(self.confirm_time());
        self.trains.confirmed = Stretch::default();
        self.trains.step_at = now + self.min_rtt() / HUSH_PART;
        self.enter(Phase::Hush, now);
    }

    /// The next step of a confirmation is due.
    pub(super) fn advance_confirm(&mut self, now: Instant) {
        if now < self.trains.step_at {
            return;
        }
        match self.phase {
            Phase::Hush => {
                self.trains.step_at = now + self.confirm_time();
                self.enter(Phase::Confirm, now);
            }
            Phase::Confirm => {
                self.trains.step_at = now + self.min_rtt() * 2;
                self.enter(Phase::Listen, now);
            }
            // Its beginning, or its end, was not heard of.
            Phase::Listen => {
                self.drops_guess(now);
                self.enter(Phase::Trains, now);
            }
            _ => {}
        }
    }

    fn hear_confirmation(&mut self, now: Instant, sample: &Sample) {
        let heard = self.trains.confirmed;
        if heard.arriving < RESOLVED || heard.sent_bytes * 2 < self.trains.confirm_bytes {
            return;
        }
        let shown = Rate::over(heard.arrived_bytes, heard.arriving).bytes_per_second();
        let lost = heard.arrived_bytes * 10 < heard.sent_bytes * 9;
        let held_up = heard.arriving > heard.sending + (heard.sending / HELD_UP_PART).max(GRAIN);
        if self.trains.guessed && self.hear_guess(now, sample, (shown, held_up)) {
            return;
        }
        if heard.arrived_bytes * 100 < heard.sent_bytes * CONFIRM_ARRIVES {
            self.retreat(now, shown);
            return;
        }
        if !held_up && !self.trains.guessed && self.trains.confirmations < CONFIRMATIONS {
            self.trains.shown = shown * 2 / CONFIRM_GAIN * 100;
            self.trains.measured = false;
            self.confirm(now, sample);
            return;
        }
        // What a queue that others fill makes of it is no measure.
        if lost && shown < self.trains.shown / 10 * 9 {
            self.double(now, sample);
            return;
        }
        self.rest.set(self.leap.share.min(MOST_LOSS));
        let free = self.rest.scale_up(shown).min(self.free_of_others(shown));
        let believed = believed(free, heard.arriving);
        // Others have it.
        if believed < self.mean_of_trains() {
            self.double(now, sample);
            return;
        }
        self.leap_to(now, sample, believed);
    }

    /// What was sent in a round trip so far, which a leap may be so many times of.
    pub(super) fn most_of_trains(&self) -> u64 {
        let confirmed = Rate::over(self.trains.confirm_bytes, self.min_rtt());
        self.mean_of_trains().max(self.bandwidth).max(confirmed.bytes_per_second())
    }
}

/// What is believed of a rate that was seen for so long.
fn believed(shown: u64, arriving: Duration) -> u64 {
    let uncertain = GRAIN.as_nanos() * 1000 / arriving.as_nanos().max(1);
    shown / 1000 * (1000 - (uncertain as u64).clamp(10, 50))
}
