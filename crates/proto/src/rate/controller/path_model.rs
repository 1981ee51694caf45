//! What a controller holds for true of its path, and the window that follows from it.
//!
//! It is the only owner of these numbers.

use std::time::Duration;

use super::ablation::{Part, is_left_out};
use super::base_rtt::BaseRtt;
use super::capacity::{Capacity, LONGEST_LEAST_TRAIN};
use super::cause::{Cause, WindowChange};
use super::congestion_window::CongestionWindow;
use super::loss_record::LossRecord;
use super::rounds::{Round, Rounds};
use super::start::Start;
use crate::rate::way_back::WayBack;
use crate::rate::{PathView, Sample};
use crate::time::Instant;
use crate::units::Rate;

/// First window of a sender that measures the bottleneck by trains, in packets.
pub(super) const INITIAL_TRAINS: f64 = 32.0;
/// Fewest packets of a window, and of a queue, that follows delay.
pub(super) const LEAST_DELAY_WINDOW: f64 = 4.0;
/// Round trip assumed before one was measured (RFC 6298 §2.1, RFC 9002 §6.2.2 assume more; the
/// handshake nearly always measured it).
const ASSUMED_RTT: Duration = Duration::from_millis(333);
/// A receiver reports eight times in a round trip, and not more often than this.
const UNREPORTED_PART: u64 = 8;
const LEAST_REPORT_GAP: Duration = Duration::from_millis(1);
/// Packets over which the rate of arrivals is taken for this sender's share of the bottleneck.
const SHARE_PACKETS: f64 = 64.0;
/// The bottleneck is not taken to carry more than this sender's rate over this share.
const LEAST_KNOWN_SHARE: f64 = 0.5;
/// What leaves at once is at most this part of a queue that once lost packets.
const QUEUE_PART: u32 = 4;
/// A sender's own queue is at most this part of the smallest round trip, and this long.
const OWN_QUEUE_PART: u32 = 10;
const MAX_OWN_QUEUE: Duration = Duration::from_micros(3200);

/// It grows to so many times what a bottleneck that is known carries, so that a queue shows.
const START_FILLS: f64 = 1.3;
/// A bottleneck carries more than is known if so many times that arrived.
const KNOWN_TOO_LOW: f64 = 1.1;
/// A queue stands, and an AQM may drop by it, from so many times a sender's own queue on.
const STANDING: f64 = 1.5;
/// A window that is larger than this part of the bottleneck's grows soon enough by doubling, and
/// so it does where round trips are shorter than this.
const PROBED_PART: f64 = 0.9;
const LEAST_PROBED_RTT: Duration = Duration::from_millis(10);

/// It has it until its share is smaller than this. A reduction alone leaves more.
pub(super) const COMPANY_SHARE: f64 = 0.6;

/// What a report brought.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// What is newly acknowledged, in packets of the size that the window counts.
    pub(super) acked: f64,
    /// Whether the window was used while they were in flight: a window that was not used must not
    /// grow (RFC 7661, RFC 9002 §7.8). In slow start half of it is use, for it was half as large
    /// when these packets left.
    pub(super) used: bool,
    /// The round trip that it ended.
    pub(super) round: Option<Round>,
}

/// The state of the path.
#[derive(Debug)]
pub(super) struct PathModel {
    /// Smoothed round trip (RFC 9002 §5.3).
    smoothed_rtt: Option<Duration>,
    base: BaseRtt,
    way_back: WayBack,
    rounds: Rounds,
    losses: LossRecord,
    capacity: Capacity,
    /// Bytes that arrived and seconds that passed, over the last 64 packets at least.
    arrivals: (f64, f64),
    /// When the last round trip ended.
    round_ended: Option<Instant>,
    /// Bytes a second that arrived at most; older round trips count less.
    best_rate: f64,
    window: CongestionWindow,
    /// A probe was lost.
    is_policed: bool,
    round: u64,
    delivered_bytes: u64,
    /// Bytes in flight after the newest report.
    in_flight_bytes: u64,
    /// The most bytes in flight in this round trip and in the one before.
    flights: [u64; 2],
    /// When the newest report arrived.
    reported_at: Option<Instant>,
    /// Time between the newest report and the one before.
    report_gap: Duration,
    delivery_rate: Option<Rate>,
}

impl PathModel {
    /// A path of which no more is known than a round trip, perhaps.
    pub(super) fn new(packet_bytes: u32, rtt: Option<Duration>) -> Self {
        Self {
            smoothed_rtt: rtt,
            base: BaseRtt::new(rtt),
            way_back: WayBack::default(),
            rounds: Rounds::default(),
            losses: LossRecord::default(),
            capacity: Capacity::default(),
            arrivals: (0.0, 0.0),
            round_ended: None,
            best_rate: 0.0,
            window: CongestionWindow::new(packet_bytes),
            is_policed: false,
            round: 0,
            delivered_bytes: 0,
            in_flight_bytes: 0,
            flights: [0; 2],
            reported_at: None,
            report_gap: Duration::ZERO,
            delivery_rate: None,
        }
    }

    /// The first window is this, in packets of an Ethernet's size at most. Later it is too late.
    pub(super) fn begin_with(&mut self, window: f64) {
        if self.delivered_bytes == 0 {
            self.window.begin_with(window);
        }
    }

    /// The window grows as fast as those of so many senders.
    pub(super) fn set_weight(&mut self, weight: f64) {
        self.window.set_weight(weight);
    }

    /// What is left of the window after a loss that leaves `beta` of one sender's.
    pub(super) fn after_loss(&self, beta: f64) -> f64 {
        self.window.after_loss(beta)
    }

    /// The window of so many bytes a second over a round trip of `rtt`, if it is larger than the
    /// present one by `times`. Whether it is.
    pub(super) fn jump(
        &mut self,
        (mode, cause): (&'static str, Cause),
        rate: f64,
        rtt: Duration,
        times: f64,
    ) -> bool {
        let window = self.packets(rate * rtt.as_secs_f64());
        let larger = window >= times * self.window.packets();
        if larger {
            self.window.jump(mode, cause, window);
        }
        larger
    }

    /// A probe was lost. What trains show is the line before a policer, and no probe is made again.
    pub(super) fn on_lost_probe(&mut self) {
        self.is_policed = true;
    }

    /// Bytes a second that the bottleneck carries, if a probe can show what part of them is free:
    /// the window is not on the way to a threshold, and there is room.
    pub(super) fn probed_capacity(&self, now: Instant) -> Option<f64> {
        let there = !self.window.has_threshold() && !is_left_out(Part::Probe);
        self.has_room(now).filter(|_| there)
    }

    /// Bytes a second that the bottleneck carries, if it is known, nothing waits, round trips are
    /// not short, and the window is far from filling it.
    pub(super) fn has_room(&self, now: Instant) -> Option<f64> {
        let capacity = self.known_capacity(now)?;
        let rtt = self.least_rtt();
        let far = self.window.packets() < PROBED_PART * self.packets(capacity * rtt.as_secs_f64());
        let waits = self.base.excess() > self.base.tolerance();
        let can = far && !waits && !self.is_policed && rtt >= LEAST_PROBED_RTT;
        can.then_some(capacity)
    }

    /// Takes in a report.
    pub(super) fn on_sample(&mut self, now: Instant, sample: &Sample) -> Progress {
        let newly = sample.delivered_bytes.saturating_sub(self.delivered_bytes);
        self.delivered_bytes = sample.delivered_bytes;
        // Bytes, for packets are of several sizes while their size is being found.
        let acked = newly as f64 / f64::from(self.packet_bytes());
        if let Some(rtt) = sample.rtt {
            // A host that sleeps makes the handshake long, and data tell better.
            let before = self.smoothed_rtt.filter(|_| self.base.is_measured());
            self.smoothed_rtt = Some(before.map_or(rtt, |old| (old * 7 + rtt) / 8));
            let packet = u64::from(self.packet_bytes());
            let waited = self.carried_time(now, sample.burst_bytes.saturating_sub(packet));
            self.base.on_rtt(now, (rtt, waited), acked);
        }
        self.capacity.on_sample(now, sample, u64::from(self.packet_bytes()));
        self.losses.on_sample(sample);
        self.round = sample.round;
        self.window.on_round(sample.round);
        self.delivery_rate = sample.delivery_rate.or(self.delivery_rate);
        let round = self.rounds.on_sample(now, sample);
        if let Some(round) = &round {
            self.on_round(now, round);
        }
        let used = self.is_used(sample, newly, round.is_some());
        self.report_gap = self.reported_at.map_or(Duration::ZERO, |before| now.since(before));
        self.reported_at = Some(now);
        Progress { acked, used, round }
    }

    /// Whether the window is used. Outside slow start the fullest moment of two round trips counts:
    /// a path whose round trip varies is not full at every report.
    fn is_used(&mut self, sample: &Sample, newly: u64, round_ended: bool) -> bool {
        let before = std::mem::replace(&mut self.in_flight_bytes, sample.in_flight_bytes);
        let flight = before.max(sample.in_flight_bytes.saturating_add(newly));
        if round_ended {
            self.flights = [0, self.flights[0]];
        }
        self.flights[0] = self.flights[0].max(flight);
        let most = self.flights[0].max(self.flights[1]);
        let full = self.flight_bytes();
        let doubles = self.window.doubles();
        let used = match doubles {
            true => flight.saturating_mul(9) >= full.saturating_mul(4),
            false => most.saturating_mul(9) >= full.saturating_mul(7),
        };
        // A start that lacked data or permission may have been held by the window before.
        let held = doubles && most.saturating_mul(16) >= full.saturating_mul(15);
        used && (held || !sample.app_limited)
    }

    fn on_round(&mut self, now: Instant, round: &Round) {
        self.losses.on_round(round);
        self.base.on_round(round.min_rtt);
        self.best_rate = round.rate.max(self.best_rate * 0.9 + round.rate * 0.1);
        let time = self.round_ended.map_or(0.0, |before| now.since(before).as_secs_f64());
        let arrived = round.rate * time;
        self.round_ended = Some(now);
        // Old packets give way to new ones, a sixteenth of them at least.
        let few = SHARE_PACKETS * f64::from(self.packet_bytes());
        let kept = 1.0 - (arrived / few).clamp(1.0 / 16.0, 1.0);
        self.arrivals = (self.arrivals.0 * kept + arrived, self.arrivals.1 * kept + time);
    }

    /// The base round trip.
    pub(super) fn base(&self) -> &BaseRtt {
        &self.base
    }

    /// The losses.
    pub(super) fn losses(&self) -> &LossRecord {
        &self.losses
    }

    /// Number of the present round trip.
    pub(super) fn round(&self) -> u64 {
        self.round
    }

    /// Bytes a second that arrived over the last round trip.
    pub(super) fn flight_rate(&self) -> f64 {
        self.delivery_rate.map_or(0.0, |rate| rate.bytes_per_second() as f64)
    }

    /// Bytes a second that arrived at most, of late.
    pub(super) fn best_rate(&self) -> f64 {
        self.best_rate
    }

    /// Whether a congestion event ever reduced the window.
    pub(super) fn was_reduced(&self) -> bool {
        self.window.was_reduced()
    }

    fn arrival_rate(&self) -> f64 {
        self.arrivals.0 / self.arrivals.1.max(1e-6)
    }

    /// This sender's share of the bottleneck, from 0 to 1, if it is known.
    pub(super) fn share(&self, now: Instant) -> Option<f64> {
        self.capacity.share(now, self.arrival_rate())
    }

    /// The same by what arrived over the last round trip alone: in a start that is much more.
    pub(super) fn flight_share(&self, now: Instant) -> Option<f64> {
        self.capacity.share(now, self.flight_rate())
    }

    /// What a trace tells of the path.
    pub(super) fn view(&self, now: Instant) -> PathView {
        PathView {
            share_ppm: self.share(now).map(|share| (share * 1e6) as u64),
            varies_by: self.base.varies_by(),
            way_back: self.way_back.most_added(),
        }
    }

    /// Packets that the bottleneck carries in `seconds`, as far as that is known.
    pub(super) fn carried_in(&self, now: Instant, seconds: f64) -> f64 {
        let rate = self.arrival_rate();
        let capacity = self.share(now).map_or(rate, |share| rate / share.max(LEAST_KNOWN_SHARE));
        self.packets(seconds * capacity)
    }

    /// Bytes that the bottleneck carries in a second, if that is known exactly.
    pub(super) fn known_capacity(&self, now: Instant) -> Option<f64> {
        self.capacity.seconds(now).map(|seconds| 1.0 / seconds)
    }

    /// In which time the bottleneck carries so many bytes; zero if that is not known.
    pub(super) fn carried_time(&self, now: Instant, bytes: u64) -> Duration {
        let seconds = self.capacity.seconds(now).unwrap_or_default() * bytes as f64;
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// A start begins. What it loses is not kept.
    pub(super) fn begin_start(&mut self) -> Start {
        self.losses.begin_start();
        Start::after(&self.losses)
    }

    /// What was lost until now is not counted any more, for it was lost to a start.
    pub(super) fn forget_losses(&mut self) {
        self.losses.forget();
        self.base.on_drained();
    }

    /// A queue of this sender that need not be shorter: a tenth of the smallest round trip, 3.2 ms
    /// at most (below CoDel's target, RFC 8289 §4.3, and above what `background` keeps), but for
    /// four packets.
    pub(super) fn own_queue(&self, now: Instant) -> Duration {
        let time = (self.base.least().unwrap_or_default() / OWN_QUEUE_PART).min(MAX_OWN_QUEUE);
        let packets = LEAST_DELAY_WINDOW * f64::from(self.packet_bytes());
        time.max(self.carried_time(now, packets as u64))
    }

    /// An excess of the round trip from which on a queue stands that is longer than a short one.
    pub(super) fn standing(&self, now: Instant) -> Duration {
        self.base.by_chance() + self.own_queue(now).mul_f64(STANDING)
    }

    /// Trains that measure the bottleneck leave in the next round trip, unless that was lately.
    /// Where they are wanted `at_once` they leave as soon as the window holds one.
    pub(super) fn begin_trains(&mut self, now: Instant, at_once: bool) {
        let holds = self.window.packets() >= LONGEST_LEAST_TRAIN as f64;
        if holds || !at_once {
            self.capacity.begin(now, self.round, at_once);
        }
    }

    /// A train of this sender waited so long where nothing waits otherwise.
    pub(super) fn on_own_queue(&mut self, waited: Duration) {
        self.base.on_own_queue(waited);
    }

    /// Time in which as much may leave at once: a part of the queue that once lost packets.
    fn burst_time(&self) -> Duration {
        if self.window.was_reduced() { self.base.range() / QUEUE_PART } else { Duration::MAX }
    }

    /// The packets of a train at `rate`, if trains are to leave now.
    pub(super) fn train(&self, rate: Rate) -> Option<u32> {
        let (packet, most) = (u64::from(self.packet_bytes()), self.burst_time());
        let train = self.capacity.train(self.round, rate, packet, most);
        // A window that holds no train cuts it, and the pause after it would be too long. So it
        // would be where a ceiling makes a train take longer than a round trip.
        let most = rate.bytes_in(self.rtt()) / packet;
        train
            .filter(|train| f64::from(*train) <= self.window.packets() && u64::from(*train) <= most)
    }

    /// The most packets that leave at once at `rate` where no train does.
    pub(super) fn most_at_once(&self, rate: Rate) -> u32 {
        if !self.window.was_reduced() {
            return u32::MAX;
        }
        let packets = rate.bytes_in(self.burst_time()) / u64::from(self.packet_bytes());
        u32::try_from(packets).unwrap_or(u32::MAX).max(1)
    }

    /// The path has another length, whose smallest round trip is `rtt`.
    pub(super) fn replace_base(&mut self, rtt: Duration) {
        // What the way back seems to add may be a part of the new length.
        self.base.replace(rtt + self.way_back.least_added());
        self.way_back.on_new_path();
    }

    /// The window becomes `window`, which is not on the way to any earlier one.
    pub(super) fn settle(&mut self, mode: &'static str, cause: Cause, window: f64) {
        self.window.settle(mode, cause, window);
    }

    /// The window may double without a bound.
    pub(super) fn forget_threshold(&mut self) {
        self.window.forget_threshold();
    }

    /// Smoothed round trip, above zero.
    pub(super) fn rtt(&self) -> Duration {
        self.smoothed_rtt.unwrap_or(ASSUMED_RTT).max(Duration::from_micros(1))
    }

    /// The smallest round trip, or else the smoothed one.
    pub(super) fn least_rtt(&self) -> Duration {
        self.min_rtt().unwrap_or_else(|| self.rtt())
    }

    /// So many bytes, in packets.
    pub(super) fn packets(&self, bytes: f64) -> f64 {
        bytes / f64::from(self.packet_bytes())
    }

    /// The window, in packets, that so many bytes a second fill where nothing waits.
    pub(super) fn product(&self, rate: f64) -> f64 {
        self.packets(rate * self.least_rtt().as_secs_f64()).max(LEAST_DELAY_WINDOW)
    }

    /// The smallest round trip, if one was measured.
    pub(super) fn min_rtt(&self) -> Option<Duration> {
        self.base.least()
    }

    /// Rate at which packets arrived over the last round trip.
    pub(super) fn delivery_rate(&self) -> Option<Rate> {
        self.delivery_rate
    }

    /// How much longer round trips are than the smallest one: the queue, if the path is the same.
    pub(super) fn queue(&self) -> Duration {
        let least = self.min_rtt().unwrap_or(Duration::ZERO);
        self.smoothed_rtt.map_or(Duration::ZERO, |rtt| rtt.saturating_sub(least))
    }

    /// The window at which packets were lost last is nothing that limits it now.
    pub(super) fn is_beyond_last_loss(&self) -> bool {
        self.window.is_beyond_last_loss()
    }

    /// Slow start has come to its threshold.
    pub(super) fn is_past_threshold(&self) -> bool {
        !self.window.doubles()
    }

    /// Congestion window, in packets.
    pub(super) fn window(&self) -> f64 {
        self.window.packets()
    }

    /// Congestion window, in bytes of IP packets; at least a packet may always be in flight.
    pub(super) fn window_bytes(&self) -> u64 {
        self.window.bytes()
    }

    /// A window, and what arrives until the next report: an eighth of the window, or what is sent
    /// in a millisecond, if that is more (`docs/protocol §6.3`). In bytes of IP packets.
    pub(super) fn flight_bytes(&self) -> u64 {
        let window = self.window_bytes();
        let gap = self.window_rate().bytes_in(LEAST_REPORT_GAP);
        window.saturating_add((window / UNREPORTED_PART).max(gap))
    }

    /// What has arrived and is not reported yet, because the way back takes longer than it could.
    /// In bytes of IP packets.
    pub(super) fn unreported_bytes(&self) -> u64 {
        self.window_rate().bytes_in(self.way_back.most_added())
    }

    /// Whether the way back delays reports so much that the window does not bound the rate: what
    /// is not reported yet may be in flight beyond it.
    pub(super) fn is_reported_late(&self) -> bool {
        self.way_back.most_added() > self.rtt() / 3
    }

    /// The report's round trip, without what only the way back added.
    pub(super) fn without_way_back(&mut self, sample: &Sample) -> Option<Duration> {
        let rtt = sample.rtt?;
        if is_left_out(Part::WayBack) {
            return Some(rtt);
        }
        Some(self.way_back.on_rtt(rtt, self.base.least(), sample.way_micros))
    }

    /// The rate of one window a round trip.
    pub(super) fn window_rate(&self) -> Rate {
        let bytes = self.window.packets() * f64::from(self.window.packet_bytes());
        // In thousandths of a byte, or a window of a quarter packet would be cut to whole bytes.
        let rtt = self.rtt().as_nanos() as f64 / 1e9;
        Rate::from_bytes_per_second((bytes / rtt) as u64)
    }

    /// Bytes of an IP packet.
    pub(super) fn packet_bytes(&self) -> u32 {
        self.window.packet_bytes()
    }

    /// Growth of slow start: `share` of what was acknowledged.
    pub(super) fn grow_in_slow_start(&mut self, mode: &'static str, acked: f64, share: f64) {
        self.window.grow_in_slow_start(mode, acked, share);
    }

    /// Growth of a start, in what was acknowledged: the window doubles. It does not grow where it
    /// fills more than a bottleneck that is known, unless more than that has arrived.
    pub(super) fn growth_of_start(&self, now: Instant) -> f64 {
        // After silence the way to the threshold is slow start.
        let seconds = self.capacity.seconds(now).filter(|_| !self.window.has_threshold());
        let fills = seconds.is_some_and(|seconds| {
            let window = seconds * self.window_bytes() as f64;
            let filled = window / self.least_rtt().as_secs_f64();
            match self.is_reported_late() {
                // Late reports come close together, and rates that they show are too high.
                true => filled > 1.0,
                false => filled > START_FILLS && seconds * self.best_rate < KNOWN_TOO_LOW,
            }
        });
        if fills { 0.0 } else { 1.0 }
    }

    /// Growth of congestion avoidance (RFC 9438 §4.2 to §4.5).
    pub(super) fn grow_in_avoidance(&mut self, now: Instant, mode: &'static str, acked: f64) {
        let rtt = self.rtt();
        self.window.grow_in_avoidance(now, mode, acked, rtt);
    }

    /// Nothing grows while the window is not used, and the time that passes is no time of growth
    /// (RFC 9438 §5.8).
    pub(super) fn on_unused(&mut self) {
        self.window.on_unused(self.report_gap);
    }

    /// A congestion event leaves `beta` of the window (RFC 9438 §4.6).
    pub(super) fn reduce(&mut self, mode: &'static str, cause: Cause, beta: f64) {
        self.window.reduce(mode, cause, beta);
    }

    /// The window may double again, from what it is, to find out whether the path carries more.
    pub(super) fn look(&mut self, mode: &'static str) {
        self.window.look(mode);
    }

    /// Slow start ends at the present window.
    pub(super) fn end_slow_start(&mut self, mode: &'static str) {
        self.window.end_slow_start(mode);
    }

    /// The start is over at the present window, which the path is known to carry.
    pub(super) fn end_start(&mut self, mode: &'static str, cause: Cause) {
        self.settle(mode, cause, self.window.packets());
    }

    /// Begins again in slow start from `window`, up to `threshold`.
    pub(super) fn begin_again(
        &mut self,
        mode: &'static str,
        cause: Cause,
        window: f64,
        threshold: f64,
    ) {
        self.window.begin_again(mode, cause, window, threshold);
    }

    /// Goes on from another policy, which sent `rate` over a path of `rtt`.
    pub(super) fn take_over(&mut self, mode: &'static str, rate: Rate, rtt: Duration) {
        self.smoothed_rtt = Some(rtt);
        self.replace_base(rtt);
        self.window.take_over(mode, rate.bytes_in(rtt));
    }

    /// The first report of another policy's packets: it counts from the beginning of the
    /// connection.
    pub(super) fn begin_counts(&mut self, now: Instant, sample: &Sample) {
        self.on_sample(now, sample);
        self.rounds.begin_at(now, sample);
        self.losses = LossRecord::default();
        self.losses.on_sample(sample);
        (self.best_rate, self.arrivals, self.round_ended) = (0.0, (0.0, 0.0), None);
    }

    /// Packets have another size from now on; the window keeps its bytes. Answers how many times
    /// as large packets are, if windows changed by that.
    pub(super) fn set_packet_bytes(
        &mut self,
        mode: &'static str,
        packet_bytes: u32,
    ) -> Option<f64> {
        self.window.set_packet_bytes(mode, packet_bytes, self.delivered_bytes > 0)
    }

    /// The oldest change of the window that was not taken yet.
    pub(super) fn take_change(&mut self) -> Option<WindowChange> {
        self.window.take_change()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a path of large packets the first ones are small, until larger ones have been tried: a
    /// window that grew by their number lost 13 % where one that grows by their bytes loses 2 %.
    #[test]
    fn small_packets_count_by_their_bytes() {
        let mut path = PathModel::new(16_000, Some(Duration::from_millis(40)));
        let sample = Sample {
            delivered_packets: 10,
            delivered_bytes: 15_000,
            rtt: Some(Duration::from_millis(40)),
            ..Sample::default()
        };
        let progress = path.on_sample(Instant::EPOCH, &sample);
        assert!((progress.acked - 15.0 / 16.0).abs() < 1e-9, "{progress:?}");
    }
}
