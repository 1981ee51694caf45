//! How much is lost, and whether it is lost in runs.

use super::ablation::{Part, is_left_out};
use super::rounds::Round;
use crate::rate::Sample;

/// Packets over which the loss share is averaged.
const LONG: f64 = 2048.0;
/// Packets before which no dispersion is measured.
const FIRST: f64 = 200.0;
/// Round trips over which the recent loss share is averaged.
const RECENT: f64 = 32.0;
/// Reports over which the dispersion of losses is averaged. The first ones count as if they had
/// followed so many without dispersion: few reports are no reason to call losses dispersed.
const REPORTS: f64 = 256.0;
const FIRST_REPORTS: f64 = 64.0;
/// Losses in runs of mean length b have a dispersion of 2 b - 1; no longer runs are believed.
const MAX_DISPERSION: f64 = 40.0;
/// Loss share below which no dispersion can be measured.
const LEAST_LOSS_SHARE: f64 = 0.001;

/// Counts of lost packets, averaged over several lengths.
#[derive(Debug, Default)]
pub(super) struct LossRecord {
    delivered: u64,
    lost: u64,
    /// Packets that arrived, of each of the last two reports.
    arrived: [f64; 2],
    /// Packets since the beginning.
    packets: f64,
    share: f64,
    recent_packets: f64,
    recent_lost: f64,
    lossy_rounds: f64,
    /// Reports that the dispersion is made of.
    reports: f64,
    /// Mean of the squared deviation of a report's losses, in units of the variance of independent
    /// losses.
    dispersion: f64,
    /// What was known before the present start; nothing before the first one.
    before_start: Option<Lasting>,
}

/// What is known of losses for longer than a start takes.
#[derive(Clone, Copy, Debug, Default)]
struct Lasting {
    packets: f64,
    share: f64,
    reports: f64,
    dispersion: f64,
}

impl LossRecord {
    /// Takes in a report.
    pub(super) fn on_sample(&mut self, sample: &Sample) {
        let arrived = sample.delivered_packets.saturating_sub(self.delivered);
        let lost = sample.lost_packets.saturating_sub(self.lost);
        (self.delivered, self.lost) = (sample.delivered_packets, sample.lost_packets);
        let (lost, packets) = (lost as f64, (arrived + lost) as f64);
        // A packet is found missing two reports after its neighbours arrived.
        let with = self.arrived[0];
        self.arrived = [self.arrived[1], arrived as f64];
        if packets == 0.0 {
            return;
        }
        self.packets += packets;
        self.share += (lost / packets - self.share) * (packets / self.packets.min(LONG)).min(1.0);
        if self.packets < FIRST {
            return;
        }
        let share = self.share.clamp(LEAST_LOSS_SHARE, 0.9);
        let packets = with + lost;
        let deviation = lost - share * packets;
        let measured = deviation * deviation / (share * (1.0 - share) * packets.max(1.0));
        self.reports = (self.reports + 1.0).min(REPORTS);
        self.dispersion += (measured - self.dispersion) / self.reports.max(FIRST_REPORTS);
    }

    /// Takes in a round trip.
    pub(super) fn on_round(&mut self, round: &Round) {
        self.recent_packets += round.packets as f64 - self.recent_packets / RECENT;
        self.recent_lost += round.lost as f64 - self.recent_lost / RECENT;
        let lossy = if round.lost > 0 { 1.0 } else { 0.0 };
        self.lossy_rounds += lossy - self.lossy_rounds / RECENT;
    }

    /// A start begins: what it loses to a queue at its end says nothing of other losses.
    pub(super) fn begin_start(&mut self) {
        let Self { packets, share, reports, dispersion, .. } = *self;
        self.before_start = Some(Lasting { packets, share, reports, dispersion });
    }

    /// Forgets what was lost since the start began.
    pub(super) fn forget(&mut self) {
        let Lasting { packets, share, reports, dispersion } =
            self.before_start.take().unwrap_or_default();
        let Self { delivered, lost, arrived, .. } = *self;
        *self = Self {
            delivered,
            lost,
            arrived,
            packets,
            share,
            reports,
            dispersion,
            ..Self::default()
        };
    }

    /// Loss share of the last 32 round trips; older ones count less.
    pub(super) fn recent(&self) -> f64 {
        self.recent_lost / self.recent_packets.max(1.0)
    }

    /// Packets of the last 32 round trips, and how many of them were lost; older ones count less.
    pub(super) fn recent_counts(&self) -> (f64, f64) {
        (self.recent_packets, self.recent_lost)
    }

    /// How many of the last 32 round trips lost packets; older ones count less.
    pub(super) fn lossy_rounds(&self) -> f64 {
        self.lossy_rounds
    }

    /// By how much the variance of the losses exceeds that of independent ones: 2 b - 1 for runs of
    /// mean length b. From 1 to 40.
    pub(super) fn dispersion(&self) -> f64 {
        if is_left_out(Part::Dispersion) {
            return 1.0;
        }
        self.dispersion.clamp(1.0, MAX_DISPERSION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(reports: u64, lost: impl Fn(u64) -> u64) -> LossRecord {
        let (mut record, mut sample) = (LossRecord::default(), Sample::default());
        for n in 0..reports {
            let lost = lost(n);
            sample.delivered_packets += 20 - lost;
            sample.lost_packets += lost;
            record.on_sample(&sample);
        }
        record
    }

    #[test]
    fn losses_in_runs_are_dispersed_and_even_ones_are_not() {
        assert!(after(2000, |_| 1).dispersion() < 1.01);
        let runs = after(2000, |n| if n % 10 == 0 { 10 } else { 0 }).dispersion();
        assert!((5.0..20.0).contains(&runs), "{runs}");
    }

    #[test]
    fn losses_that_are_found_while_little_arrives_are_not_dispersed() {
        let (mut record, mut sample) = (LossRecord::default(), Sample::default());
        for n in 0..2000 {
            let (arrived, lost) = if n % 4 < 2 { (1000, 0) } else { (5, 10) };
            sample.delivered_packets += arrived;
            sample.lost_packets += lost;
            record.on_sample(&sample);
        }
        assert!(record.dispersion() < 1.5, "{}", record.dispersion());
    }

    #[test]
    fn the_recent_share_follows_the_last_round_trips() {
        let mut record = LossRecord::default();
        let round = |lost| Round {
            packets: 100,
            lost,
            rate: 1000.0,
            min_rtt: std::time::Duration::from_millis(10),
        };
        (0..100).for_each(|_| record.on_round(&round(5)));
        assert!((record.recent() - 0.05).abs() < 1e-3);
        (0..100).for_each(|_| record.on_round(&round(0)));
        assert!(record.recent() < 0.003);
    }
}
