//! What drops or marks packets by chance as they join the queue, the more the longer it is: PIE
//! (RFC 8033) and RED (Floyd and Jacobson, 1993).

use std::time::Duration;

use netblt_proto::time::{Instant, nanos};
use netblt_proto::units::Rate;

use crate::rng::{Probability, Rng};

/// A queue manager at the tail of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyDrop {
    /// PIE, with RFC 8033's parameters for this target of the queueing delay.
    Pie {
        /// QDELAY_REF.
        target: Duration,
        /// ECN-capable packets are marked and not dropped, up to a probability of a tenth.
        marks: bool,
    },
    /// RED, with the gentle rule: from `most` to twice that the probability grows to one.
    Red {
        /// No packet is dropped below this mean queue, in IP bytes.
        least: u64,
        /// From this mean queue on, more than `at_most` are.
        most: u64,
        /// The probability at `most`.
        at_most: Probability,
        /// ECN-capable packets are marked and not dropped, up to twice `most`.
        marks: bool,
    },
}

/// What happens to a packet that joins the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passes,
    Marked,
    Dropped,
}

/// What waits as a packet joins.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueState {
    pub(super) bytes: u64,
    pub(super) delay: Duration,
    pub(super) rate: Option<Rate>,
}

/// A billion: probabilities are counted in billionths.
const ONE: u64 = 1_000_000_000;
/// T_UPDATE (RFC 8033 §4.2).
const UPDATE: Duration = Duration::from_millis(15);
/// After a rest of so many updates nothing of what was before is left.
const MOST_UPDATES: u32 = 1000;
/// MAX_BURST (RFC 8033 §4.4).
const BURST: Duration = Duration::from_millis(150);
/// Weight of one packet in RED's mean, one part in so many: 0.002.
const MEAN_PARTS: u64 = 512;
/// Bytes that a packet is taken to have where a mean is aged by the time it took.
const PACKET: u64 = 1500;

/// The state of an [`EarlyDrop`].
#[derive(Clone, Debug)]
pub(super) struct EarlyState {
    rng: Rng,
    probability: u64,
    updated: Instant,
    old_delay: Duration,
    allowance: Duration,
    /// RED's mean, in 512ths of a byte; packets since the last drop.
    mean: u64,
    since: u64,
    last: Instant,
}

impl EarlyState {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::named(seed, "early"),
            probability: 0,
            updated: Instant::EPOCH,
            old_delay: Duration::ZERO,
            allowance: BURST,
            mean: 0,
            since: 0,
            last: Instant::EPOCH,
        }
    }

    pub(super) fn judge(
        &mut self,
        now: Instant,
        early: EarlyDrop,
        waiting: QueueState,
        capable: bool,
    ) -> Verdict {
        let (hit, may_mark) = match early {
            EarlyDrop::Pie { target, marks } => {
                self.update_pie(now, target, waiting.delay);
                (self.pie_hits(target, waiting), marks && self.probability <= ONE / 10)
            }
            EarlyDrop::Red { least, most, at_most, marks } => {
                self.update_mean(now, waiting);
                let mean = self.mean / MEAN_PARTS;
                let at_most = u64::from(at_most.ppb());
                (self.red_hits(mean, least, most, at_most), marks && mean < most.saturating_mul(2))
            }
        };
        match hit {
            false => Verdict::Passes,
            true if may_mark && capable => Verdict::Marked,
            true => Verdict::Dropped,
        }
    }

    /// The probability of RFC 8033 §4.2, at every update that was due.
    fn update_pie(&mut self, now: Instant, target: Duration, delay: Duration) {
        self.updated = self.updated.max(now.before(UPDATE * MOST_UPDATES));
        while now.since(self.updated) >= UPDATE {
            self.updated += UPDATE;
            let signed = |time: Duration| nanos(time).min(1 << 58) as i64;
            let (delay_ns, old, wanted) = (signed(delay), signed(self.old_delay), signed(target));
            // ALPHA is 1/8 and BETA 5/4 a second: a nanosecond too much is so many billionths.
            let step = (delay_ns - wanted) / 8 + (delay_ns - old) * 5 / 4;
            let divisor = match self.probability {
                0..1_000 => 2048,
                1_000..10_000 => 512,
                10_000..100_000 => 128,
                100_000..1_000_000 => 32,
                1_000_000..10_000_000 => 8,
                10_000_000..100_000_000 => 2,
                _ => 1,
            };
            let mut step = step / divisor;
            if self.probability >= ONE / 10 {
                step = step.min(20_000_000);
            }
            if delay > Duration::from_millis(250) {
                step = 20_000_000;
            }
            self.probability = self.probability.saturating_add_signed(step).min(ONE);
            if delay.is_zero() && self.old_delay.is_zero() {
                self.probability = self.probability * 98 / 100;
            }
            self.allowance = self.allowance.saturating_sub(UPDATE);
            if self.probability == 0 && delay < target / 2 && self.old_delay < target / 2 {
                self.allowance = BURST;
            }
            self.old_delay = delay;
        }
    }

    fn pie_hits(&mut self, target: Duration, waiting: QueueState) -> bool {
        let short = self.old_delay < target / 2 && self.probability < ONE / 5;
        let drawn = self.rng.below(ONE) < self.probability;
        drawn && self.allowance.is_zero() && !short && waiting.bytes > 2 * PACKET
    }

    /// The mean, which falls while nothing waits as if so many packets had come meanwhile.
    fn update_mean(&mut self, now: Instant, waiting: QueueState) {
        let idle = now.since(std::mem::replace(&mut self.last, now));
        if waiting.bytes == 0 {
            let packets = waiting.rate.map_or(0, |rate| rate.bytes_in(idle) / PACKET);
            for _ in 0..packets.min(16 * MEAN_PARTS) {
                self.mean -= self.mean / MEAN_PARTS;
            }
        }
        self.mean = self.mean - self.mean / MEAN_PARTS + waiting.bytes;
    }

    fn red_hits(&mut self, mean: u64, least: u64, most: u64, at_most: u64) -> bool {
        let drawn = self.rng.below(ONE);
        if mean < least {
            self.since = 0;
            return false;
        }
        let part = |from: u64, to: u64, width: u64| {
            let share =
                u128::from(mean - from) * u128::from(width) / u128::from((to - from).max(1));
            share as u64
        };
        let twice = most.saturating_mul(2);
        let chance = match mean {
            _ if mean < most => part(least, most, at_most),
            _ if mean < twice => at_most + part(most, twice, ONE - at_most),
            _ => ONE,
        };
        // "pa = pb / (1 - count * pb)": drops are spread evenly.
        self.since += 1;
        let rest = ONE.saturating_sub(self.since.saturating_mul(chance));
        let hit = u128::from(drawn) * u128::from(rest) < u128::from(chance) * u128::from(ONE);
        if hit {
            self.since = 0;
        }
        hit
    }
}

#[cfg(test)]
mod tests {
    use netblt_proto::api::Ecn;

    use super::*;
    use crate::path::{LinkOptions, Path, QueueLimit};

    const MS: Duration = Duration::from_millis(1);

    /// Sends a tenth more than the link carries for 40 s; what was dropped and marked of the second
    /// half, and the mean wait, in thousandths of the packets and in milliseconds.
    fn overload(early: EarlyDrop) -> (u64, u64, u64) {
        let rate = Rate::from_bits_per_second(12_000_000);
        let options = LinkOptions {
            rate: Some(rate),
            queue: QueueLimit::Bytes(1_500_000),
            early_drop: Some(early),
            ..LinkOptions::default()
        };
        let mut path: Path<Vec<u8>> = Path::new(options, 1, "early");
        let (mut now, mut half) = (Instant::EPOCH, *path.counters());
        for n in 0..44_000_u64 {
            if n == 22_000 {
                half = *path.counters();
            }
            path.push(now, 28, Some(Ecn::Ect0), vec![0; 1472]);
            now += rate.scaled(11, 10).time_for(1500);
            while path.pop(now).is_some() {}
        }
        let end = *path.counters();
        assert!(end.balance(), "{end:?}");
        let sent = (end.entered - half.entered).packets;
        let passed = (end.delivered - half.delivered).packets;
        let wait = (end.queue_time_sum - half.queue_time_sum).as_millis() as u64 / passed;
        let dropped = (end.lost_queue - half.lost_queue).packets;
        (dropped * 1000 / sent, (end.marked - half.marked).packets * 1000 / sent, wait)
    }

    #[test]
    fn pie_holds_its_target_by_drops() {
        let (dropped, marked, wait) = overload(EarlyDrop::Pie { target: MS * 15, marks: false });
        assert!((80..=100).contains(&dropped) && marked == 0, "{dropped} {marked}");
        assert!((10..=25).contains(&wait), "{wait} ms");
    }

    #[test]
    fn red_drops_as_much_as_its_mean_queue_says() {
        let red = |marks| EarlyDrop::Red {
            least: 15_000,
            most: 60_000,
            at_most: Probability::from_percent(10),
            marks,
        };
        // A tenth too much is nine hundredths of what is sent: the mean is near `most`.
        let (dropped, _, wait) = overload(red(false));
        assert!((80..=100).contains(&dropped), "{dropped}");
        assert!((20..=45).contains(&wait), "{wait} ms");
        // What is marked and goes on all the same is dropped at last.
        let (_, marked, _) = overload(red(true));
        assert!(marked > 50, "{marked}");
    }
}
