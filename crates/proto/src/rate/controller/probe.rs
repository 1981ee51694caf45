//! What part of a bottleneck is free: a train, paced a little faster than the bottleneck, whose
//! packets wait the longer the more others send.
//!
//! The queue of a bottleneck that carries `c` grows by `(s + x - c) / c` in a unit of time, where
//! this sender sends `s` and others send `x`. So `c - x`, which is free, is `s - c * growth`.

use std::time::Duration;

use crate::rate::Sample;
use crate::units::Rate;

/// The train is paced at so many times what the bottleneck carries: its queue must show.
const GAIN: f64 = 1.5;
/// It takes this part of a round trip: a receiver reports a little more often.
const PART: f64 = 1.0 / 8.0;
/// No burst of it is longer than this part of it.
const BURST_PART: f64 = 1.0 / 32.0;
/// A report decides that is of a packet in this last part of it.
const LAST_PART: f64 = 0.4;
/// A queue that grows by less shows that the bottleneck carries more than the train.
const NOT_HELD_UP: f64 = 1.0 / 32.0;
/// Where others have a larger part of the bottleneck than what is left of this, a jump would be at
/// their cost: what they leave free they may have given up for a moment.
const LEAST_FREE: f64 = 0.8;
/// Of what is free this part is used.
const USED: f64 = 0.98;
/// Of the train so much arrives at least, of what random loss leaves.
const LEAST_ARRIVES: f64 = 0.9;

/// What a train showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Finding {
    /// Nothing yet.
    Open,
    /// So many bytes a second are free; the train waited so long for that, or not at all, and more
    /// may be free.
    Free { rate: f64, waited: Option<Duration> },
    /// The train does not show it, or others have a part of it.
    Unknown,
    /// The train was lost: a policer, or a queue that is full.
    Lost,
}

/// A train that leaves, or that is not reported yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Probe {
    /// Bytes a second that the bottleneck carries.
    capacity: f64,
    /// Bytes sent before the train, and in it.
    from: u64,
    bytes: u64,
    left: u64,
    /// The round trip in which its report is overdue.
    until: u64,
    /// The loss share of the packets before it.
    loss: f64,
    /// Bytes that were sent and that arrived, of its reports.
    reported: (u64, u64),
    /// The newest report of one of its packets: how far it is from the first, in seconds, and how
    /// much longer its round trip is than the smallest one.
    newest: Option<(f64, f64)>,
}

impl Probe {
    /// A train over a bottleneck of `capacity` bytes a second and a round trip of `rtt`, where this
    /// share of the packets is lost, after this report.
    pub(super) fn new(capacity: f64, rtt: Duration, loss: f64, sample: &Sample) -> Self {
        let bytes = capacity * GAIN * rtt.as_secs_f64() * PART;
        Self {
            capacity,
            from: sample.sent_bytes,
            bytes: bytes as u64,
            left: bytes as u64,
            until: sample.round + 2,
            loss,
            reported: (0, 0),
            newest: None,
        }
    }

    /// The pace of the train, while it leaves.
    pub(super) fn rate(&self) -> Option<Rate> {
        (self.left > 0).then(|| Rate::from_bytes_per_second(self.pace() as u64))
    }

    /// What leaves at once waits for itself, and must be a small part of the train.
    pub(super) fn longest_burst(&self) -> Duration {
        Duration::try_from_secs_f64(self.bytes as f64 / self.pace() * BURST_PART)
            .unwrap_or_default()
    }

    fn pace(&self) -> f64 {
        self.capacity * GAIN
    }

    /// Bytes of the train.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// So many bytes left. Whether the train is over by that.
    pub(super) fn on_sent(&mut self, bytes: u64) -> bool {
        let leaves = self.left > 0;
        self.left = self.left.saturating_sub(bytes);
        leaves && self.left == 0
    }

    /// Takes in a report whose round trip exceeds the smallest one by `excess`.
    pub(super) fn on_sample(&mut self, sample: &Sample, excess: Duration) -> Finding {
        let Some(stretch) = &sample.stretch else { return Finding::Open };
        let reached = stretch.from_bytes + stretch.sent_bytes;
        if sample.round > self.until {
            return Finding::Unknown;
        }
        let end = self.from + self.bytes;
        if reached > self.from {
            self.reported.0 += stretch.sent_bytes;
            self.reported.1 += stretch.arrived_bytes;
        }
        if reached > self.from && reached <= end {
            let seconds = (reached - self.from) as f64 / self.pace();
            self.newest = Some((seconds, excess.as_secs_f64()));
        }
        // One that is not all there is waited for.
        if reached * 100 < end * 100 - self.bytes * 10 {
            return Finding::Open;
        }
        let least = self.bytes as f64 * LAST_PART / self.pace();
        let arrives = LEAST_ARRIVES * (1.0 - self.loss);
        match self.newest.filter(|(seconds, _)| *seconds >= least) {
            _ if (self.reported.1 as f64) < arrives * self.reported.0 as f64 => Finding::Lost,
            Some(newest) => self.judge(newest),
            None => Finding::Unknown,
        }
    }

    /// What a packet shows that left so many seconds after the first, and waited so long.
    fn judge(&self, (seconds, waited): (f64, f64)) -> Finding {
        let growth = waited / seconds;
        let pace = self.pace();
        if growth < NOT_HELD_UP {
            return Finding::Free { rate: pace, waited: None };
        }
        let arrived = pace / (1.0 + growth);
        let free = (pace - self.capacity * growth).min(arrived);
        if free < LEAST_FREE * self.capacity {
            return Finding::Unknown;
        }
        let waited = Duration::try_from_secs_f64(waited).ok();
        Finding::Free { rate: USED * free, waited }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Stretch;

    const CAPACITY: f64 = 1_000_000.0;
    const RTT: Duration = Duration::from_millis(80);

    /// The report of the packet at `place`, in bytes of the train.
    fn report(place: u64) -> Sample {
        let stretch = Stretch {
            from_bytes: 5000,
            sent_bytes: place,
            arrived_bytes: place,
            ..Stretch::default()
        };
        Sample { stretch: Some(stretch), delivered_packets: 10, round: 4, ..Sample::default() }
    }

    fn probe() -> Probe {
        let sample = Sample { sent_bytes: 5000, round: 3, ..Sample::default() };
        Probe::new(CAPACITY, RTT, 0.0, &sample)
    }

    /// 15,000 bytes in 10 ms. Where this sender is alone, the last packet waits for 5 ms.
    #[test]
    fn a_queue_that_grows_faster_is_made_by_others_too() {
        for (waited, free) in [(5000, 1_000_000.0), (6000, 900_000.0), (6800, 820_000.0)] {
            let mut probe = probe();
            assert_eq!(probe.bytes(), 15_000);
            assert_eq!(probe.on_sample(&report(1000), Duration::ZERO), Finding::Open);
            let waited = Duration::from_micros(waited);
            let finding = probe.on_sample(&report(15_000), waited);
            let Finding::Free { rate, waited: Some(_) } = finding else { panic!("{finding:?}") };
            assert!((rate - USED * free).abs() < 1.0, "{waited:?}: {rate}");
        }
    }

    #[test]
    fn a_train_that_does_not_wait_leaves_open_how_much_is_free() {
        let finding = probe().on_sample(&report(14_000), Duration::from_micros(200));
        assert_eq!(finding, Finding::Free { rate: 1_500_000.0, waited: None });
    }

    #[test]
    fn a_train_that_is_lost_or_not_reported_shows_nothing() {
        let mut lost = report(15_000);
        lost.stretch.as_mut().expect("one").arrived_bytes = 12_000;
        assert_eq!(probe().on_sample(&lost, Duration::ZERO), Finding::Lost);
        assert_eq!(probe().on_sample(&report(16_000), Duration::ZERO), Finding::Unknown);
        let late = Sample { round: 6, ..report(1000) };
        assert_eq!(probe().on_sample(&late, Duration::ZERO), Finding::Unknown);
        let waited = Duration::from_micros(8000);
        let finding = probe().on_sample(&report(15_000), waited);
        assert_eq!(finding, Finding::Unknown, "others have three tenths");
    }

    #[test]
    fn the_train_is_over_when_its_bytes_have_left() {
        let mut probe = probe();
        assert_eq!(probe.rate(), Some(Rate::from_bytes_per_second(1_500_000)));
        assert!(!probe.on_sent(14_500));
        assert!(probe.on_sent(1000));
        assert!(!probe.on_sent(1000));
        assert_eq!(probe.rate(), None);
    }
}
