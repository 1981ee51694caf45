//! What is said at the end: RFC 1030's two throughputs, and what limited them.

use std::time::Duration;

use netblt_proto::config::{Config, Policy, Role};
use netblt_proto::stats::Stats;
use netblt_proto::time::Instant;

use crate::progress::{LimitedBy, Summary};

/// A thread that is busy for this share of the time is the limit.
const BUSY: f64 = 0.85;
/// Time that was lost to one cause for this share of the transfer makes it the limit.
const SHARE: f64 = 0.5;
/// With this share of the packets that were agreed on, the pace is the limit.
const AT_PACE: f64 = 0.85;
/// A transfer over within so many round trips is limited by those.
const FEW_ROUND_TRIPS: u32 = 6;

/// What a session knows of itself when it is over.
pub(crate) struct Facts<'a> {
    pub(crate) config: &'a Config,
    pub(crate) stats: Stats,
    /// When it was over.
    pub(crate) at: Instant,
    pub(crate) bytes: u64,
    /// Those of them that were at the receiver before.
    pub(crate) kept: u64,
    pub(crate) files: u64,
    pub(crate) skipped: u64,
    pub(crate) verified: bool,
    pub(crate) digest: [u8; 32],
    /// How busy the loop's thread was.
    pub(crate) cpu_share: f64,
    /// Receiver: how long most buffers waited for the disk.
    pub(crate) stalled: Duration,
}

/// The summary of a transfer that is over.
pub(crate) fn summary(facts: Facts<'_>) -> Summary {
    let opened = facts.stats.opened_at.unwrap_or(facts.at);
    let elapsed = facts.at.since(opened);
    let real_bps = bits_per_second(facts.bytes.saturating_sub(facts.kept), elapsed);
    let steady = steady_time(&facts.stats);
    let steady_bps = match steady {
        Some(time) => bits_per_second(facts.stats.steady_bytes, time),
        None => real_bps,
    };
    Summary {
        bytes: facts.bytes,
        kept: facts.kept,
        files: facts.files,
        skipped: facts.skipped,
        elapsed,
        real_bps,
        steady_bps,
        verified: facts.verified,
        digest: facts.digest,
        limited_by: limited_by(&facts, elapsed),
        stats: facts.stats,
    }
}

pub(crate) fn bits_per_second(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { bytes as f64 * 8.0 / time.as_secs_f64() }
}

/// From the first DATA packet to the beginning of the first pass's last burst; `None` of one burst
/// alone, which takes no time that could be told.
fn steady_time(stats: &Stats) -> Option<Duration> {
    let time = stats.steady_until?.since(stats.first_data_at?);
    (!time.is_zero() && stats.steady_bytes > 0).then_some(time)
}

/// Whether packets came about as fast as the burst values let them that were agreed on: the path
/// may carry more.
fn is_at_agreed_pace(stats: &Stats, data_time: Duration) -> bool {
    let Some(agreed) = stats.agreed else { return false };
    let bursts = data_time.as_secs_f64() / agreed.interval.as_secs_f64().max(1e-9);
    stats.data_packets_received as f64 >= bursts * f64::from(agreed.packets) * AT_PACE
}

fn limited_by(facts: &Facts<'_>, elapsed: Duration) -> LimitedBy {
    let stats = &facts.stats;
    let data_time = steady_time(stats).unwrap_or_default();
    if stats.min_rtt.is_some_and(|rtt| data_time < rtt * FEW_ROUND_TRIPS) {
        return LimitedBy::RoundTrips;
    }
    if facts.cpu_share > BUSY {
        return LimitedBy::Cpu;
    }
    let share = |time: Duration| time.as_secs_f64() / data_time.as_secs_f64().max(1e-9);
    let path = match facts.config.policy {
        Policy::Fixed(_) => LimitedBy::RateCap,
        Policy::Fair { ceiling: Some(ceiling) }
            if stats.pacing_rate >= ceiling.scaled(9, 10) && facts.config.role == Role::Sender =>
        {
            LimitedBy::RateCap
        }
        Policy::Fair { .. } => LimitedBy::Path,
    };
    if facts.config.role == Role::Receiver {
        let stalled = facts.stalled.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
        return match stalled > SHARE {
            true => LimitedBy::ReceiverDisk,
            false if is_at_agreed_pace(stats, data_time) => LimitedBy::RateCap,
            false => LimitedBy::Path,
        };
    }
    // All was sent, and what took most of the time was that it was stored.
    let tail = stats.steady_until.map_or(Duration::ZERO, |until| facts.at.since(until));
    let recovery = stats.rtt.unwrap_or_default() * FEW_ROUND_TRIPS;
    if tail.saturating_sub(recovery) > elapsed.mul_f64(SHARE) {
        return LimitedBy::ReceiverDisk;
    }
    let waited = stats.waited;
    let causes = [
        (share(waited.pacing + waited.in_flight), path),
        (share(waited.permission), LimitedBy::ReceiverDisk),
        (share(waited.source), LimitedBy::SenderDisk),
    ];
    // What is left is the time that sending itself took.
    let busy = 1.0 - causes.iter().map(|(share, _)| share).sum::<f64>();
    let most = causes.into_iter().max_by(|(a, _), (b, _)| a.total_cmp(b));
    most.filter(|(share, _)| *share > busy).map_or(LimitedBy::Cpu, |(_, cause)| cause)
}

#[cfg(test)]
mod tests {
    use netblt_proto::config::Wire;
    use netblt_proto::stats::Waited;
    use netblt_proto::units::{Burst, Rate};

    use super::*;

    fn facts(config: &Config) -> Facts<'_> {
        let second = |s: u64| Instant::from_nanos(s * 1_000_000_000);
        let stats = Stats {
            opened_at: Some(second(1)),
            first_data_at: Some(second(2)),
            steady_until: Some(second(10)),
            steady_bytes: 8_000_000,
            min_rtt: Some(Duration::from_millis(100)),
            pacing_rate: Rate::from_bytes_per_second(1_000_000),
            ..Stats::default()
        };
        Facts {
            config,
            stats,
            at: second(11),
            bytes: 8_000_000,
            kept: 0,
            files: 1,
            skipped: 0,
            verified: true,
            digest: [0; 32],
            cpu_share: 0.1,
            stalled: Duration::ZERO,
        }
    }

    #[test]
    fn both_throughputs_are_told() {
        let config = Config::new(Wire::Sealed, Role::Sender);
        let summary = summary(facts(&config));
        assert_eq!((summary.real_bps, summary.steady_bps), (6_400_000.0, 8_000_000.0));
        assert_eq!(summary.elapsed, Duration::from_secs(10));
    }

    #[test]
    fn the_limit_is_where_the_time_went() {
        let config = Config::new(Wire::Sealed, Role::Sender);
        let limit = |waited: Waited, cpu_share: f64, config: &Config| {
            let mut facts = facts(config);
            (facts.stats.waited, facts.cpu_share) = (waited, cpu_share);
            summary(facts).limited_by
        };
        let most = Duration::from_secs(6);
        let none = Waited::default();
        assert_eq!(limit(Waited { pacing: most, ..none }, 0.2, &config), LimitedBy::Path);
        assert_eq!(limit(Waited { in_flight: most, ..none }, 0.2, &config), LimitedBy::Path);
        let permission = Waited { permission: most, ..none };
        assert_eq!(limit(permission, 0.2, &config), LimitedBy::ReceiverDisk);
        assert_eq!(limit(Waited { source: most, ..none }, 0.2, &config), LimitedBy::SenderDisk);
        assert_eq!(limit(none, 0.7, &config), LimitedBy::Cpu);
        assert_eq!(limit(Waited { pacing: most, ..none }, 0.95, &config), LimitedBy::Cpu);
        let ceiling = Some(Rate::from_bytes_per_second(1_050_000));
        let capped = Config { policy: Policy::Fair { ceiling }, ..config };
        assert_eq!(limit(Waited { pacing: most, ..none }, 0.2, &capped), LimitedBy::RateCap);
    }

    #[test]
    fn a_sender_that_waits_for_the_verdict_waits_for_a_disk() {
        let config = Config::new(Wire::Sealed, Role::Sender);
        let mut facts = facts(&config);
        facts.at = Instant::from_nanos(60_000_000_000);
        assert_eq!(summary(facts).limited_by, LimitedBy::ReceiverDisk);
    }

    #[test]
    fn a_receiver_knows_its_own_disk_and_short_transfers_are_round_trips() {
        let config = Config::new(Wire::Sealed, Role::Receiver);
        let mut slow = facts(&config);
        slow.stalled = Duration::from_secs(8);
        assert_eq!(summary(slow).limited_by, LimitedBy::ReceiverDisk);
        assert_eq!(summary(facts(&config)).limited_by, LimitedBy::Path);
        let mut paced = facts(&config);
        let interval = Duration::from_millis(10);
        paced.stats.agreed = Some(Burst { packets: 10, interval });
        paced.stats.data_packets_received = 7900;
        assert_eq!(summary(paced).limited_by, LimitedBy::RateCap);
        let mut slower = facts(&config);
        slower.stats.agreed = Some(Burst { packets: 20, interval });
        slower.stats.data_packets_received = 7900;
        assert_eq!(summary(slower).limited_by, LimitedBy::Path);
        let mut short = facts(&config);
        short.stats.min_rtt = Some(Duration::from_secs(2));
        assert_eq!(summary(short).limited_by, LimitedBy::RoundTrips);
    }
}
