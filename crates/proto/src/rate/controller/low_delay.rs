//! Loss at a low delay: a queue that was seen to be long when it lost packets, and is short now,
//! did not lose these.

use std::time::Duration;

use super::ablation::{Part, is_left_out};
use super::base_rtt::BaseRtt;
use super::path_model::{COMPANY_SHARE, PathModel};
use crate::time::Instant;

/// The loss share that is excused so, at most.
pub(super) const MOST: f64 = 0.02;
/// Losses beyond it that are no chance any more.
const BUDGET: f64 = 8.0;
/// What is left of the count after it was answered.
const LEFT: f64 = 4.0;
/// Round trips with losses, of the last 32, that make losses a habit of the path: three in a row.
const HABIT_ROUNDS: f64 = 2.5;
/// A low delay is below this part of the queue that was seen.
const QUEUE_PART: f64 = 0.7;
/// It is below so many times the sender's own queue.
const ALONE: f64 = 3.5;
const COMPANY: f64 = 1.2;

/// Counts losses at a low delay (a leaky bucket).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LowDelay {
    count: f64,
    packets: u64,
}

/// Whether the delay is low on a path whose range of delays is known.
fn is_low(now: Instant, path: &PathModel, base: &BaseRtt, alone: bool) -> bool {
    // Of a sender that has the path for itself all that waits is its own, and follows its window.
    // Else a queue that lost packets may be short again when they are found missing, and less may
    // wait than CoDel allows before it drops (5 ms, RFC 8289).
    let (excess, own) = match alone {
        true => (base.excess(), ALONE),
        false => (base.highest_excess(), COMPANY),
    };
    // The steps of a queue in which others have more packets are not its own.
    let large = path.share(now).is_some_and(|share| share >= COMPANY_SHARE);
    let chance = if large { base.by_chance() } else { base.tolerance() };
    // A sender that has the path for itself, or where nothing waited of late, does not see how long
    // the queue may become.
    let seen = |queue: Duration| queue > chance + base.noise();
    let queue = if !alone && seen(base.range()) { base.range() } else { base.longest_queue() };
    // Losses that came before any queue are the path's own while the first queue grows.
    let habit = alone && !path.was_reduced() && path.losses().lossy_rounds() >= HABIT_ROUNDS;
    base.is_confirmed(now)
        && seen(queue)
        && (habit || excess < queue.mul_f64(QUEUE_PART))
        && excess < chance + path.own_queue(now).mul_f64(own)
}

impl LowDelay {
    /// Whether `lost` of the newly `reported` packets are excused by a low delay, of `packets` in
    /// all; `alone` says that the sender has the path for itself.
    pub(super) fn excuses(
        &mut self,
        now: Instant,
        (path, alone): (&PathModel, bool),
        (lost, reported): (u64, u64),
        packets: u64,
    ) -> bool {
        if is_left_out(Part::LowDelay) || !is_low(now, path, path.base(), alone) {
            return false;
        }
        let since = packets.saturating_sub(self.packets) as f64;
        self.packets = packets;
        self.count = (self.count - MOST * since).max(0.0);
        self.count = (self.count + lost as f64 - MOST * reported as f64).max(0.0);
        if self.count <= BUDGET * path.losses().dispersion() {
            return true;
        }
        self.count = LEFT;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Sample;

    /// A path of 40 ms whose smallest round trip was seen before and after a queue of 20 ms.
    fn confirmed() -> (PathModel, Instant) {
        let mut path = PathModel::new(1250, Some(Duration::from_millis(40)));
        let (mut sample, mut now) = (Sample::default(), Instant::EPOCH);
        for n in 0..60 {
            now += Duration::from_millis(5);
            let rtt = if (20..40).contains(&n) { 60 } else { 40 };
            sample.rtt = Some(Duration::from_millis(rtt));
            (sample.round, sample.delivered_packets) = (n / 8, n * 20);
            sample.delivered_bytes = sample.delivered_packets * 1250;
            path.on_sample(now, &sample);
        }
        (path, now)
    }

    #[test]
    fn losses_count_against_the_packets_of_their_report() {
        let (path, now) = confirmed();
        let excused = |lost, reported| {
            let mut law = LowDelay::default();
            law.excuses(now, (&path, false), (lost, reported), 1200)
        };
        assert!(excused(9, 1000), "0.9 %");
        assert!(!excused(9, 20), "45 %");
        assert!(excused(8, 20), "by chance, perhaps");
    }

    #[test]
    fn a_queue_excuses_nothing() {
        let (mut path, now) = confirmed();
        let rtt = Some(Duration::from_millis(58));
        for n in 0..12 {
            let sample = Sample { rtt, round: 8, delivered_packets: 1200 + n, ..Sample::default() };
            path.on_sample(now, &sample);
        }
        assert!(!LowDelay::default().excuses(now, (&path, false), (1, 1000), 1300));
    }
}
