//! The summary of a transfer: RFC 1030's two throughputs, and the limit.

use std::time::Duration;

use netblt_proto::stats::Stats;
use netblt_proto::time::Instant;

use crate::progress::{LimitedBy, Summary};
use crate::transfer::limited_by::steady_time;

/// The facts of a session at its end.
pub(crate) struct SessionFacts {
    pub(crate) stats: Stats,
    /// When it was over.
    pub(crate) at: Instant,
    pub(crate) bytes: u64,
    /// Those of them that the receiver had before.
    pub(crate) kept: u64,
    pub(crate) files: u64,
    pub(crate) skipped: u64,
    /// Those that are not the ones that are expected.
    pub(crate) unexpected: u64,
    pub(crate) verified: bool,
    pub(crate) digest: [u8; 32],
    /// Its limit.
    pub(crate) limited_by: LimitedBy,
    /// The counts of each subflow, if there was more than one.
    pub(crate) streams: Vec<Stats>,
}

/// The summary of a transfer that has ended.
pub(crate) fn summary(facts: SessionFacts) -> Summary {
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
        unexpected: facts.unexpected,
        elapsed,
        real_bps,
        steady_bps,
        verified: facts.verified,
        digest: facts.digest,
        limited_by: facts.limited_by,
        stats: facts.stats,
        streams: facts.streams,
    }
}

pub(crate) fn bits_per_second(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { bytes as f64 * 8.0 / time.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use netblt_proto::units::Rate;

    use super::*;

    fn facts() -> SessionFacts {
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
        SessionFacts {
            stats,
            at: second(11),
            bytes: 8_000_000,
            kept: 0,
            files: 1,
            skipped: 0,
            unexpected: 0,
            verified: true,
            digest: [0; 32],
            limited_by: LimitedBy::Path,
            streams: Vec::new(),
        }
    }

    #[test]
    fn the_summary_has_both_throughputs() {
        let summary = summary(facts());
        assert_eq!((summary.real_bps, summary.steady_bps), (6_400_000.0, 8_000_000.0));
        assert_eq!(summary.elapsed, Duration::from_secs(10));
    }
}
