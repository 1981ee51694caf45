//! What the bottleneck carries in all, and this sender's share of it.
//!
//! A train of packets that leave together comes to the bottleneck together, and each of them waits
//! until those before it are sent on. By how much a packet's one-way time grows with its place in
//! the train is the bottleneck's time for a byte, whatever else is in its queue.

use std::time::Duration;

use crate::rate::Sample;
use crate::time::Instant;
use crate::units::Rate;

/// Packets in a train at least.
const LEAST_TRAIN: u64 = 8;
/// A train is at most as much as is sent in this time.
const TRAIN_TIME: Duration = Duration::from_millis(2);
/// Reports before which nothing is known.
const LEAST_REPORTS: f64 = 6.0;
/// A share below this may be known from an upper bound alone.
const SMALL: f64 = 0.5;
/// Trains leave again after this time.
const EVERY: Duration = Duration::from_secs(5);
/// Trains leave, and their reports are taken in, for so many round trips.
const ROUNDS: u64 = 3;
/// What earlier trains showed counts by this part of what newer ones do.
const KEPT: f64 = 0.75;
/// A capacity is known for this time.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Trains before which trains leave in every round trip.
const FIRST_TRAINS: u32 = 3;
/// The largest relative error of a capacity that is believed.
const MAX_ERROR: f64 = 0.2;

/// Sums of a linear regression of the difference of two packets' one-way times on that of their
/// places in their trains. Differences of neighbouring reports leave out a queue that slowly grows.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: f64,
    place_place: f64,
    place_way: f64,
    way_way: f64,
}

impl Sums {
    /// Adds a difference of places, in bytes, and of ways, in seconds.
    fn add(&mut self, place: f64, way: f64) {
        self.count += 1.0;
        self.place_place += place * place;
        self.place_way += place * way;
        self.way_way += way * way;
    }

    fn scaled(&self, by: f64) -> Self {
        Self {
            count: self.count * by,
            place_place: self.place_place * by,
            place_way: self.place_way * by,
            way_way: self.way_way * by,
        }
    }

    /// Seconds that the bottleneck takes for a byte, at most: the estimate where its error is
    /// small, else a bound that is as probable; `None` if nothing is known.
    fn seconds_a_byte(&self) -> Option<(f64, bool)> {
        if self.count < LEAST_REPORTS || self.place_place <= 0.0 {
            return None;
        }
        let slope = self.place_way / self.place_place;
        let left = (self.way_way - slope * self.place_way).max(0.0);
        let error = (left / (self.count - 1.0) / self.place_place).sqrt();
        match slope > 0.0 && error <= MAX_ERROR * slope {
            true => Some((slope, true)),
            false => Some(((slope + 2.0 * error).max(0.0), false)),
        }
    }
}

/// Measures the bottleneck's capacity.
#[derive(Debug, Default)]
pub(super) struct Capacity {
    /// The round trip in which trains leave.
    training: Option<u64>,
    /// Place and one-way time in microseconds of the last report.
    last: Option<(u64, i64)>,
    sums: Sums,
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
        if let Some(way) = sample.way_micros {
            let place = sample.burst_bytes.saturating_sub(packet);
            if let Some((before, before_way)) = self.last.replace((place, way)) {
                self.sums.add(place as f64 - before as f64, (way - before_way) as f64 / 1e6);
            }
        }
        if sample.round < began + ROUNDS {
            return;
        }
        match self.sums.seconds_a_byte() {
            Some((seconds, true)) => (self.known, self.bound) = (Some((seconds, now)), None),
            Some((seconds, false)) => self.bound = Some((seconds, now)),
            None => {}
        }
        self.sums = self.sums.scaled(KEPT);
        (self.judged_at, self.training, self.last) = (Some(now), None, None);
        self.trains += 1;
    }

    /// Begins a round trip with trains, if the last one is long over. They begin in `round`.
    pub(super) fn begin(&mut self, now: Instant, round: u64) {
        let due =
            self.trains < FIRST_TRAINS || self.judged_at.is_none_or(|at| now.since(at) >= EVERY);
        if self.training.is_none() && due {
            self.training = Some(round);
        }
    }

    /// The packets of a train at `rate`, if trains are to leave now: no more than are sent in
    /// `most`, but for the least train.
    pub(super) fn train(&self, round: u64, rate: Rate, packet: u64, most: Duration) -> Option<u32> {
        let began = self.training?;
        let time = TRAIN_TIME.min(most);
        // Trains of different lengths, or reports that come with their period see one place only.
        let packets = (rate.bytes_in(time) / packet.max(1)).max(LEAST_TRAIN) + round % 4;
        (round < began + ROUNDS).then(|| u32::try_from(packets).unwrap_or(u32::MAX))
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
            capacity.begin(now, round);
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

    #[test]
    fn trains_show_the_share_of_the_bottleneck() {
        let exact = share(0).expect("no noise");
        assert!((exact - 0.5).abs() < 0.01, "{exact}");
        let noisy = share(8000).expect("some noise");
        assert!((0.35..0.7).contains(&noisy), "{noisy}");
        assert_eq!(share(100_000), None, "nothing shows in that");
    }
}
