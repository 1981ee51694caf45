//! What the bottleneck carries in all, and this sender's share of it.
//!
//! A train of packets that leave together comes to the bottleneck together, and each of them waits
//! until those before it are sent on. By how much a packet's one-way time grows with its place in
//! the train is the bottleneck's time for a byte, whatever else is in its queue.

use std::time::Duration;

use crate::rate::Sample;
use crate::time::Instant;
use crate::units::Rate;

/// Packets in a train at least, before trains get several lengths, and after that.
const LEAST_TRAIN: u64 = 8;
pub(super) const LONGEST_LEAST_TRAIN: u64 = LEAST_TRAIN + LENGTHS - 1;
const LENGTHS: u64 = 4;
/// A train is at most as much as is sent in this time.
const TRAIN_TIME: Duration = Duration::from_millis(2);
/// Reports before which nothing is known.
const LEAST_REPORTS: f64 = 6.0;
/// The same, of steps within trains.
const LEAST_STEPS: f64 = 3.0;
/// A share below this may be known from an upper bound alone.
const SMALL: f64 = 0.5;
/// Trains leave again after this time.
const EVERY: Duration = Duration::from_secs(5);
/// Trains leave, and their reports are taken in, for so many round trips.
const ROUNDS: u64 = 3;
/// What earlier trains showed counts by this part with each newer one.
const KEPT: f64 = 0.75;
/// An estimate is not more exact than this part of itself, nor than one-way times are reported, in
/// seconds.
const LEAST_ERROR: f64 = 0.02;
const GRAIN: f64 = 1e-6;
/// Estimates that are so many standard errors apart are of different bottlenecks.
const CONTRADICTION: f64 = 4.0;
/// A capacity is known for this time.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Trains before which trains leave in every round trip.
const FIRST_TRAINS: u32 = 3;
/// The largest relative error of a capacity that is believed.
const MAX_ERROR: f64 = 0.2;

/// Reports of one session of trains, at most: these bound what it remembers.
const MOST_REPORTS: usize = 128;

/// What trains show: seconds that the bottleneck takes for a byte.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Estimate {
    seconds: f64,
    /// Its standard error.
    error: f64,
}

impl Estimate {
    /// A linear regression of the differences of two neighbouring reports' one-way times, in
    /// seconds, on those of their places, in bytes; `None` if these are too few. Differences leave
    /// out the queue that others make. The mean of these is its growth, and their trend what
    /// becomes of that: neither has to do with places.
    fn of(reports: &[(f64, f64)]) -> Option<Self> {
        let steps = || reports.windows(2).map(|two| (two[1].0 - two[0].0, two[1].1 - two[0].1));
        let count = reports.len().saturating_sub(1) as f64;
        if count < LEAST_REPORTS {
            return None;
        }
        let centre = (count - 1.0) / 2.0;
        let (mut means, mut trends, mut spread) = ((0.0, 0.0), (0.0, 0.0), 0.0);
        for (n, (place, way)) in steps().enumerate() {
            let from_centre = n as f64 - centre;
            means = (means.0 + place / count, means.1 + way / count);
            trends = (trends.0 + from_centre * place, trends.1 + from_centre * way);
            spread += from_centre * from_centre;
        }
        let (mut place_place, mut place_way, mut way_way) = (0.0, 0.0, 0.0);
        for (n, (place, way)) in steps().enumerate() {
            let of_spread = (n as f64 - centre) / spread;
            let place = place - means.0 - trends.0 * of_spread;
            let way = way - means.1 - trends.1 * of_spread;
            place_place += place * place;
            place_way += place * way;
            way_way += way * way;
        }
        if place_place <= 0.0 {
            return None;
        }
        let seconds = place_way / place_place;
        let left = (way_way - seconds * place_way).max(0.0);
        let error = (left / (count - 3.0) / place_place).sqrt();
        let error = error.max(LEAST_ERROR * seconds.abs()).max(GRAIN / place_place.sqrt());
        Some(Self { seconds, error })
    }

    /// The same of differences within trains alone, where their queue does not empty between them:
    /// then the place says little of how long a packet waits.
    fn within(steps: &[(f64, f64)]) -> Option<Self> {
        let count = steps.len() as f64;
        if count < LEAST_STEPS {
            return None;
        }
        let sum = |of: fn(f64, f64) -> f64| steps.iter().map(|(p, w)| of(*p, *w)).sum::<f64>();
        let place_place = sum(|place, _| place * place);
        let seconds = sum(|place, way| place * way) / place_place;
        let left = (sum(|_, way| way * way) - seconds * seconds * place_place).max(0.0);
        let error = (left / (count - 1.0) / place_place).sqrt();
        let error = error.max(LEAST_ERROR * seconds.abs()).max(GRAIN / place_place.sqrt());
        Some(Self { seconds, error }).filter(|of| of.is_exact())
    }

    /// Whether this and another one are hardly of the same bottleneck.
    fn contradicts(self, other: Self) -> bool {
        let apart = (self.seconds - other.seconds).abs();
        apart > CONTRADICTION * self.error.hypot(other.error)
    }

    /// The mean of this and a newer one, by their precisions.
    fn combined(self, newer: Self) -> Self {
        let precision = |of: Self| 1.0 / (of.error * of.error);
        let (old, new) = (KEPT * precision(self), precision(newer));
        let seconds = (self.seconds * old + newer.seconds * new) / (old + new);
        Self { seconds, error: 1.0 / (old + new).sqrt() }
    }

    /// Whether it is known well enough to be a share.
    fn is_exact(self) -> bool {
        self.seconds > 0.0 && self.error <= MAX_ERROR * self.seconds
    }

    /// What it is at most, in all probability.
    fn bound(self) -> f64 {
        (self.seconds + 2.0 * self.error).max(0.0)
    }
}

/// Measures the bottleneck's capacity.
#[derive(Debug, Default)]
pub(super) struct Capacity {
    /// The round trip in which trains leave.
    training: Option<u64>,
    /// It is judged as soon as it shows enough.
    at_once: bool,
    /// Place, in bytes, and one-way time, in seconds, of each report of the present trains.
    reports: Vec<(f64, f64)>,
    /// What these differ by from the one before, of the same train.
    steps: Vec<(f64, f64)>,
    /// Where in what was sent the train of the newest report began.
    train_from: Option<u64>,
    estimate: Option<Estimate>,
    /// The newest one, if it contradicts that: by chance, or the bottleneck is another one now.
    rival: Option<Estimate>,
    judged_at: Option<Instant>,
    trains: u32,
    /// Seconds a byte, as last measured.
    known: Option<(f64, Instant)>,
    /// Seconds a byte are at most this.
    bound: Option<(f64, Instant)>,
}

impl Capacity {
    /// Takes in a report of IP packets of `packet` bytes. Trains leave in the round trips that
    /// follow [`Capacity::begin`], and their reports are judged at the end.
    pub(super) fn on_sample(&mut self, now: Instant, sample: &Sample, packet: u64) {
        let Some(began) = self.training else { return };
        // What left before the trains is reported first, but for the first trains of all.
        if sample.round == began && began > 0 {
            return;
        }
        if let Some(way) = sample.way_micros
            && self.reports.len() < MOST_REPORTS
        {
            let place = sample.burst_bytes.saturating_sub(packet);
            // As if it had left with the first one.
            let way = way as f64 / 1e6 + sample.burst_time.as_secs_f64();
            self.add_report(sample, place, way);
        }
        let early = self.at_once
            && (self.reports.len() as f64 > LEAST_REPORTS
                || self.steps.len() as f64 >= LEAST_STEPS);
        if sample.round <= began + ROUNDS && !early {
            return;
        }
        let newer = Estimate::within(&self.steps).or_else(|| Estimate::of(&self.reports));
        // What is not exact yet becomes so by more reports.
        if sample.round <= began + ROUNDS && !newer.is_some_and(Estimate::is_exact) {
            return;
        }
        if let Some(all) = newer.and_then(|newer| self.combine(newer)) {
            self.estimate = Some(all);
            match all.is_exact() {
                true => (self.known, self.bound) = (Some((all.seconds, now)), None),
                false => self.bound = Some((all.bound(), now)),
            }
        }
        self.reports.clear();
        self.steps.clear();
        (self.judged_at, self.training) = (Some(now), None);
        self.trains += 1;
    }

    /// The estimate of all trains after a newer one; `None` if the newer one contradicts it. A
    /// second one that agrees with that takes its place.
    fn combine(&mut self, newer: Estimate) -> Option<Estimate> {
        let Some(before) = self.estimate else { return Some(newer) };
        let rival = self.rival.take();
        if !before.contradicts(newer) {
            return Some(before.combined(newer));
        }
        match rival.filter(|rival| !rival.contradicts(newer)) {
            Some(rival) => Some(rival.combined(newer)),
            None => {
                self.rival = Some(newer);
                None
            }
        }
    }

    fn add_report(&mut self, sample: &Sample, place: u64, way: f64) {
        let reached = sample.stretch.map(|stretch| stretch.from_bytes + stretch.sent_bytes);
        let from = reached.map(|reached| reached.saturating_sub(place));
        let before = std::mem::replace(&mut self.train_from, from);
        if let Some(last) = self.reports.last()
            && before.is_some()
            && before == from
            && place as f64 > last.0
        {
            self.steps.push((place as f64 - last.0, way - last.1));
        }
        self.reports.push((place as f64, way));
    }

    /// Begins a round trip with trains, if the last one is long over, or `at_once`. They begin in
    /// `round`.
    pub(super) fn begin(&mut self, now: Instant, round: u64, at_once: bool) {
        let is_long_ago = self.judged_at.is_none_or(|at| now.since(at) >= EVERY);
        let open = self.trains < FIRST_TRAINS || self.rival.is_some();
        let due = at_once || open || is_long_ago;
        if self.training.is_none() && due {
            (self.training, self.at_once) = (Some(round), at_once);
        }
    }

    /// The packets of a train at `rate`, if trains are to leave now: no more than are sent in
    /// `most`, but for the least train.
    pub(super) fn train(&self, round: u64, rate: Rate, packet: u64, most: Duration) -> Option<u32> {
        let began = self.training?;
        let time = TRAIN_TIME.min(most);
        // Trains of different lengths, or reports that come with their period see one place only.
        let packets = (rate.bytes_in(time) / packet.max(1)).max(LEAST_TRAIN) + round % LENGTHS;
        (round < began + ROUNDS).then(|| u32::try_from(packets).unwrap_or(u32::MAX))
    }

    /// Seconds that the bottleneck takes for a byte, if an estimate is exact and not too old.
    pub(super) fn seconds(&self, now: Instant) -> Option<f64> {
        self.known.filter(|(_, at)| now.since(*at) <= MAX_AGE).map(|(seconds, _)| seconds)
    }

    /// The share of the bottleneck of a sender whose packets arrive at `rate`, in bytes a second:
    /// from 0 to 1; `None` if it is not known.
    pub(super) fn share(&self, now: Instant, rate: f64) -> Option<f64> {
        let fresh = |of: Option<(f64, Instant)>| {
            of.filter(|(_, at)| now.since(*at) <= MAX_AGE).map(|(seconds, _)| rate * seconds)
        };
        let most = fresh(self.bound).filter(|share| *share < SMALL);
        let known = fresh(self.known);
        match (known, most) {
            (Some(known), Some(most)) => Some(known.min(most)),
            (known, most) => known.or(most).map(|share| share.min(1.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u64 = 1250;

    /// Shares that are found at 5 Mbit/s where the bottleneck carries 10, and others make packets
    /// wait for up to `noise` microseconds.
    fn share(noise: u64) -> Option<f64> {
        let (mut capacity, mut now) = (Capacity::default(), Instant::EPOCH);
        let mut dice = 7_u64;
        for round in 0..12 {
            capacity.begin(now, round, false);
            for _ in 0..8 {
                now += Duration::from_millis(5);
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let place = (dice >> 40) % 16;
                let wait = if noise == 0 { 0 } else { (dice >> 20) % noise };
                let sample = Sample {
                    round,
                    burst_bytes: (place + 1) * PACKET,
                    way_micros: Some((place * 1000 + wait) as i64),
                    ..Sample::default()
                };
                capacity.on_sample(now, &sample, PACKET);
            }
        }
        capacity.share(now, 625_000.0)
    }

    /// Reports of trains whose packets take 8 ns a byte, behind a queue that has this length.
    fn estimate(queue: impl Fn(f64) -> f64, byte: f64) -> Option<Estimate> {
        let places = (0..24).map(|n| f64::from(n * 7919 % 32) * PACKET as f64);
        let report = |(n, place): (usize, f64)| (place, place * byte + queue(n as f64));
        Estimate::of(&places.enumerate().map(report).collect::<Vec<_>>())
    }

    #[test]
    fn a_queue_that_grows_faster_and_faster_is_left_out() {
        for queue in [|_| 0.0, |n| n * 1e-3, |n: f64| n * n * 1e-4] {
            let found = estimate(queue, 8e-9).expect("24 reports");
            assert!(found.is_exact() && (found.seconds / 8e-9 - 1.0).abs() < 0.01, "{found:?}");
        }
    }

    #[test]
    fn a_bottleneck_that_takes_no_time_leaves_later_estimates_alone() {
        let none = estimate(|_| 0.0, 0.0).expect("24 reports");
        assert!(!none.is_exact() && none.error > 0.0, "{none:?}");
        let mut capacity = Capacity { estimate: Some(none), ..Capacity::default() };
        let later = estimate(|_| 0.0, 8e-9).expect("24 reports");
        assert_eq!(capacity.combine(later), None);
        assert!(capacity.combine(later).is_some_and(Estimate::is_exact));
    }

    #[test]
    fn estimates_count_by_their_precision() {
        let of = |seconds, error| Estimate { seconds, error };
        let mean = of(8e-9, 1e-10).combined(of(12e-9, 4e-9));
        assert!((mean.seconds / 8e-9 - 1.0).abs() < 0.01, "{mean:?}");
    }

    #[test]
    fn an_estimate_that_contradicts_the_others_counts_once_the_next_one_confirms_it() {
        let of = |seconds: f64| Estimate { seconds, error: seconds / 50.0 };
        let mut capacity = Capacity { estimate: Some(of(8e-9)), ..Capacity::default() };
        assert_eq!(capacity.combine(of(4e-9)), None, "by chance, perhaps");
        let same = capacity.combine(of(8e-9)).expect("it agrees");
        assert!((same.seconds / 8e-9 - 1.0).abs() < 1e-6, "{same:?}");
        assert_eq!(capacity.combine(of(4e-9)), None, "the one before was forgotten");
        let other = capacity.combine(of(4e-9)).expect("it is confirmed");
        assert!((other.seconds / 4e-9 - 1.0).abs() < 1e-6, "{other:?}");
    }

    #[test]
    fn trains_show_the_share_of_the_bottleneck() {
        let exact = share(0).expect("no noise");
        assert!((exact - 0.5).abs() < 0.01, "{exact}");
        let noisy = share(8000).expect("some noise");
        assert!((0.35..0.7).contains(&noisy), "{noisy}");
        assert_eq!(share(100_000), None, "nothing shows in that");
    }
}
