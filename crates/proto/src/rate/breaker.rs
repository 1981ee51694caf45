//! The circuit breaker of a sender that keeps its rate whatever is lost (RFC 8084): a path that
//! loses a tenth of the packets for ten seconds carries less than it is sent, and the rate is
//! halved.
//!
//! A reduction is a test as well. Where a half of the rate loses as large a share, the losses do
//! not answer to the rate, and no more than that half is given up.

use std::time::Duration;

use crate::rate::Sample;
use crate::time::Instant;

/// Losses of this share for [`LASTS`] open the breaker. RFC 8084 leaves both to the protocol; they
/// are above what random loss and a full queue of TCPs make.
const MOST_LOSS: f64 = 0.1;
/// Time, round trips and packets over which a loss share is measured.
const LASTS: Duration = Duration::from_secs(10);
const LEAST_ROUNDS: u64 = 8;
const LEAST_PACKETS: u64 = 200;
/// A reduction is reported in full after so many round trips.
const SETTLES: u64 = 2;
/// The rate doubles again after it lost less for so long.
const RECOVERS: Duration = Duration::from_secs(60);
/// Losses answer to the rate if half of it loses less than this part of the share, or lets more
/// than this part more of the packets through.
const LESS_LOST: f64 = 0.75;
const MORE_ARRIVES: f64 = 1.25;
/// The rate is halved no more often than this.
const MOST_STEPS: u32 = 16;

/// Counts at the beginning of a measurement.
#[derive(Clone, Copy, Debug)]
struct Since {
    at: Instant,
    round: u64,
    lost: u64,
    reported: u64,
}

impl Since {
    fn new(now: Instant, sample: &Sample) -> Self {
        Self {
            at: now,
            round: sample.round,
            lost: sample.lost_packets,
            reported: sample.lost_packets.saturating_add(sample.delivered_packets),
        }
    }

    /// The loss share since then, if enough was reported to tell.
    fn loss(&self, now: Instant, sample: &Sample) -> Option<f64> {
        let reported = sample.lost_packets.saturating_add(sample.delivered_packets);
        let packets = reported.saturating_sub(self.reported);
        let rounds = sample.round.saturating_sub(self.round);
        let long = now.since(self.at) >= LASTS && rounds >= LEAST_ROUNDS;
        let lost = sample.lost_packets.saturating_sub(self.lost);
        (long && packets >= LEAST_PACKETS).then(|| lost as f64 / packets as f64)
    }
}

/// A circuit breaker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Breaker {
    since: Option<Since>,
    /// The round trip until which nothing is measured.
    settled_in: u64,
    /// The rate is halved so often.
    steps: u32,
    /// The loss share before the rate was halved last.
    before: Option<f64>,
    /// Since when little is lost.
    calm_since: Option<Instant>,
}

impl Breaker {
    /// How often the rate is halved.
    pub(super) fn steps(&self) -> u32 {
        self.steps
    }

    /// Takes in a report.
    pub(super) fn on_sample(&mut self, now: Instant, sample: &Sample) {
        if sample.round < self.settled_in {
            self.since = None;
            return;
        }
        let since = *self.since.get_or_insert(Since::new(now, sample));
        let Some(loss) = since.loss(now, sample) else { return };
        self.since = Some(Since::new(now, sample));
        if loss < MOST_LOSS {
            let calm_since = *self.calm_since.get_or_insert(since.at);
            if self.steps > 0 && now.since(calm_since) >= RECOVERS {
                self.change(self.steps - 1, None, sample);
            }
            return;
        }
        self.calm_since = None;
        let answers =
            |before: f64| loss < LESS_LOST * before || 1.0 - loss > MORE_ARRIVES * (1.0 - before);
        if self.steps < MOST_STEPS && self.before.is_none_or(answers) {
            self.change(self.steps + 1, Some(loss), sample);
        }
    }

    fn change(&mut self, steps: u32, before: Option<f64>, sample: &Sample) {
        *self = Self { steps, before, settled_in: sample.round + SETTLES, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps after each of `seconds`, at 1,000 packets a second and a round trip of 100 ms,
    /// where `loss` is the share of the packets that are lost at so many steps.
    fn run(seconds: u64, loss: impl Fn(u64, u32) -> f64) -> Vec<u32> {
        let (mut breaker, mut sample) = (Breaker::default(), Sample::default());
        let (mut sent, mut lost) = (0.0, 0.0);
        let second = |second: u64| {
            for tenth in 0..10 {
                let packets = 100.0 / f64::from(1_u32 << breaker.steps());
                sent += packets;
                lost += packets * loss(second, breaker.steps());
                (sample.round, sample.lost_packets) = (second * 10 + tenth, lost as u64);
                sample.delivered_packets = (sent - lost) as u64;
                let now = Instant::EPOCH + Duration::from_millis(second * 1000 + tenth * 100);
                breaker.on_sample(now, &sample);
            }
            breaker.steps()
        };
        (0..seconds).map(second).collect()
    }

    #[test]
    fn a_tenth_lost_for_ten_seconds_halves_the_rate_until_it_fits() {
        // The path carries an eighth of the rate.
        let steps = run(60, |_, steps| (1.0 - f64::from(1 << steps) / 8.0).max(0.0));
        assert_eq!((steps[8], steps[12], steps[24], steps[36]), (0, 1, 2, 3), "{steps:?}");
        assert_eq!(steps.last(), Some(&3), "{steps:?}");
    }

    #[test]
    fn losses_that_do_not_answer_cost_a_half_and_no_more() {
        let steps = run(300, |_, _| 0.3);
        assert_eq!((steps[12], steps.last()), (1, Some(&1)), "{steps:?}");
    }

    #[test]
    fn less_than_a_tenth_is_no_overload() {
        assert!(run(300, |_, _| 0.09).iter().all(|steps| *steps == 0));
        let bursts = |second: u64, _| if second % 20 < 4 { 0.4 } else { 0.0 };
        assert!(run(300, bursts).iter().filter(|steps| **steps > 1).count() == 0);
    }

    #[test]
    fn the_rate_returns_a_minute_after_the_overload() {
        let steps = run(200, |second, steps| match second {
            0..30 => (1.0 - f64::from(1 << steps) / 4.0).max(0.0),
            _ => 0.0,
        });
        assert_eq!((steps[29], steps[75]), (2, 2), "{steps:?}");
        assert_eq!(steps.last(), Some(&0), "{steps:?}");
    }

    #[test]
    fn few_packets_decide_nothing() {
        let (mut breaker, mut sample) = (Breaker::default(), Sample::default());
        for n in 0..100 {
            (sample.round, sample.lost_packets, sample.delivered_packets) = (n, n, n);
            breaker.on_sample(Instant::EPOCH + Duration::from_secs(n), &sample);
        }
        assert_eq!(breaker.steps(), 0);
        sample.lost_packets += 100;
        sample.round += 1;
        breaker.on_sample(Instant::EPOCH + Duration::from_secs(200), &sample);
        assert_eq!(breaker.steps(), 1);
    }
}
