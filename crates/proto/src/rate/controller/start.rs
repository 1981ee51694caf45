//! The start of a sender that may excuse loss: the window doubles while more arrives, the loss
//! share does not rise, and no queue stands.

use std::time::Duration;

use super::loss_record::LossRecord;
use super::rounds::Round;

/// A round trip in which the rate grew by less is a slow one; two in a row end the start.
const GROWTH: f64 = 1.3;
const SLOW_ROUNDS: u32 = 2;
/// A round trip of fewer packets decides nothing about growth.
const LEAST_PACKETS: u64 = 16;
/// Packets before which no loss share is known to compare with.
const LEAST_HISTORY: f64 = 20.0;
/// The loss share has risen if it exceeds the mean by this, or by this many standard deviations.
const RISE: f64 = 0.02;
const DEVIATIONS: f64 = 3.0;

/// Loss share from which on a probe shows little.
pub(super) const MOST_PROBED: f64 = 0.1;

/// Why the start is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum StartEnd {
    /// A queue stands; so much was lost before it did.
    Queue { loss: f64 },
    /// The loss share rose.
    Loss,
    /// The rate does not grow any more; this was the highest, in bytes a second. So much was lost.
    NoGrowth { rate: f64, loss: f64 },
}

/// A start under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    /// Packets of the rounds so far and how many of them were lost.
    packets: f64,
    lost: f64,
    best_rate: f64,
    slow_rounds: u32,
    /// The round trip at its beginning.
    first_rtt: Option<Duration>,
    /// A probe was made in it.
    probed: bool,
    /// It only looks whether the path carries more.
    look: bool,
}

impl Start {
    /// A start on a path that lost `lost` of the last `packets`.
    pub(super) fn new(packets: f64, lost: f64) -> Self {
        Self {
            packets,
            lost,
            best_rate: 0.0,
            slow_rounds: 0,
            first_rtt: None,
            probed: false,
            look: false,
        }
    }

    /// The same on a path that has lost packets: these losses are nothing new.
    pub(super) fn after(losses: &LossRecord) -> Self {
        let (packets, lost) = losses.recent_counts();
        Self::new(packets, lost)
    }

    /// The same, in which no probe is made.
    pub(super) fn probed(self) -> Self {
        Self { probed: true, ..self }
    }

    /// The same, which only looks whether the path carries more.
    pub(super) fn as_look(self) -> Self {
        Self { look: true, ..self }
    }

    /// Whether it only looks for that.
    pub(super) fn is_look(&self) -> bool {
        self.look
    }

    /// Whether a probe may be made: once, and where few packets are lost.
    pub(super) fn may_probe(&self) -> bool {
        !self.probed && self.loss() < MOST_PROBED
    }

    /// Loss share of the round trips so far.
    pub(super) fn loss(&self) -> f64 {
        (self.lost / self.packets.max(1.0)).min(0.6)
    }

    /// Takes in a report: `low` is the smallest of the last round trips, `queue` the excess over
    /// `base` from which on a queue stands.
    pub(super) fn on_rtt(
        &mut self,
        low: Duration,
        (base, queue): (Duration, Duration),
    ) -> Option<StartEnd> {
        let first = *self.first_rtt.get_or_insert(low);
        (low > base.max(first) + queue).then(|| StartEnd::Queue { loss: self.loss() })
    }

    /// Whether more of this round trip is lost than of those before: a test of two proportions.
    fn loss_rises(&self, round: &Round, dispersion: f64) -> bool {
        let packets = round.packets.max(1) as f64;
        if self.packets < LEAST_HISTORY {
            return false;
        }
        let mean = (self.lost + round.lost as f64) / (self.packets + packets);
        let each = dispersion * mean * (1.0 - mean);
        let deviation = (each / packets + each / self.packets).sqrt();
        let rise = round.loss() - self.lost / self.packets;
        rise > RISE.max(DEVIATIONS * deviation)
    }

    /// Takes in a round trip, where losses have this dispersion. A window that was not `used` shows
    /// nothing by its rate.
    pub(super) fn on_round(
        &mut self,
        round: &Round,
        dispersion: f64,
        used: bool,
    ) -> Option<StartEnd> {
        let rises = self.loss_rises(round, dispersion);
        let slow = used && round.rate < GROWTH * self.best_rate && round.packets >= LEAST_PACKETS;
        self.slow_rounds = if slow { self.slow_rounds + 1 } else { 0 };
        self.best_rate = self.best_rate.max(round.rate);
        if rises {
            return Some(StartEnd::Loss);
        }
        if self.slow_rounds >= SLOW_ROUNDS {
            return Some(StartEnd::NoGrowth { rate: self.best_rate, loss: self.loss() });
        }
        self.packets += round.packets as f64;
        self.lost += round.lost as f64;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(40);
    const QUEUE: Duration = Duration::from_millis(4);

    fn round(packets: u64, lost: u64) -> Round {
        Round { packets, lost, rate: (packets - lost) as f64 * 25.0, min_rtt: BASE }
    }

    #[test]
    fn steady_loss_does_not_end_it_and_a_queue_does() {
        let mut start = Start::new(0.0, 0.0);
        for n in 0..6 {
            assert_eq!(start.on_rtt(BASE, (BASE, QUEUE)), None);
            assert_eq!(start.on_round(&round(20 << n, 1 << n), 1.0, true), None);
        }
        let end = start.on_rtt(BASE * 2, (BASE, QUEUE));
        assert!(matches!(end, Some(StartEnd::Queue { loss }) if (loss - 0.05).abs() < 1e-3));
    }

    #[test]
    fn a_loss_share_that_rises_and_a_rate_that_stands_end_it() {
        let mut start = Start::new(0.0, 0.0);
        assert_eq!(start.on_round(&round(40, 0), 1.0, true), None);
        let end = start.on_round(&round(80, 20), 1.0, true);
        assert_eq!(end, Some(StartEnd::Loss));
        let mut start = Start::new(0.0, 0.0);
        assert_eq!(start.on_round(&round(40, 0), 1.0, true), None);
        assert_eq!(start.on_round(&round(42, 0), 1.0, true), None);
        let end = start.on_round(&round(42, 0), 1.0, true);
        assert_eq!(end, Some(StartEnd::NoGrowth { rate: 42.0 * 25.0, loss: 0.0 }));
    }
}
