//! Round trips as units of judgement: what one of them carried, and how long it took.

use std::time::Duration;

use crate::rate::Sample;
use crate::time::Instant;

/// What the reports of one round trip showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Round {
    /// Packets that arrived or were found missing.
    pub(super) packets: u64,
    /// Packets found missing.
    pub(super) lost: u64,
    /// Bytes of IP packets that arrived in a second.
    pub(super) rate: f64,
    /// The smallest round trip of a packet.
    pub(super) min_rtt: Duration,
}

impl Round {
    /// The share of its packets that were found missing.
    pub(super) fn loss(&self) -> f64 {
        self.lost as f64 / self.packets.max(1) as f64
    }
}

/// Cuts the reports into round trips.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    round: u64,
    began: Option<Instant>,
    delivered: u64,
    bytes: u64,
    lost: u64,
    min_rtt: Option<Duration>,
}

impl Rounds {
    /// What was counted before this report is of no round trip.
    pub(super) fn begin_at(&mut self, now: Instant, sample: &Sample) {
        (self.round, self.began) = (sample.round, Some(now));
        (self.delivered, self.lost) = (sample.delivered_packets, sample.lost_packets);
        self.bytes = sample.delivered_bytes;
    }

    /// Takes in a report. Answers with the round trip that it ends, if it ends one in which a round
    /// trip was measured.
    pub(super) fn on_sample(&mut self, now: Instant, sample: &Sample) -> Option<Round> {
        if let Some(rtt) = sample.rtt {
            self.min_rtt = Some(self.min_rtt.map_or(rtt, |least| least.min(rtt)));
        }
        let began = *self.began.get_or_insert(now);
        if sample.round == self.round || now == began {
            return None;
        }
        let arrived = sample.delivered_packets.saturating_sub(self.delivered);
        let bytes = sample.delivered_bytes.saturating_sub(self.bytes);
        let lost = sample.lost_packets.saturating_sub(self.lost);
        let min_rtt = self.min_rtt.take();
        self.begin_at(now, sample);
        let rate = bytes as f64 / now.since(began).as_secs_f64();
        Some(Round { packets: arrived + lost, lost, rate, min_rtt: min_rtt? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_counts_what_came_since_the_one_before() {
        let mut rounds = Rounds::default();
        let sample = |round, delivered_packets, lost_packets, rtt| Sample {
            round,
            delivered_packets,
            delivered_bytes: delivered_packets * 100,
            lost_packets,
            rtt: Some(Duration::from_millis(rtt)),
            ..Sample::default()
        };
        let at = |millis| Instant::EPOCH + Duration::from_millis(millis);
        assert_eq!(rounds.on_sample(at(0), &sample(0, 10, 0, 40)), None);
        assert_eq!(rounds.on_sample(at(20), &sample(0, 20, 1, 30)), None);
        let round = rounds.on_sample(at(40), &sample(1, 38, 2, 50)).expect("a round trip");
        assert_eq!((round.packets, round.lost), (40, 2));
        assert_eq!(round.min_rtt, Duration::from_millis(30));
        assert!((round.rate - 95_000.0).abs() < 1e-6 && (round.loss() - 0.05).abs() < 1e-9);
        assert_eq!(rounds.on_sample(at(60), &sample(1, 50, 2, 50)), None);
    }
}
