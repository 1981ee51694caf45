//! RFC 1030 §6: loss on the Ethernet with two outstanding buffers, by the burst interval, on the
//! noisy network and on one "with the only two hosts attached being the two NETBLT machines". The
//! RFC has three intervals for the first and says of the second that nothing was lost above 40 ms;
//! here every interval is run, so that the model cannot fit its rows by chance.

use std::ops::RangeInclusive;

use crate::ethernet;
use crate::rows::{Network, Row};
use netblt_sim::parallel;

/// Intervals in milliseconds.
pub const INTERVALS: RangeInclusive<u32> = 25..=120;
/// Seeds of every interval.
pub const SEEDS: RangeInclusive<u64> = 1..=20;

/// One interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Milliseconds from burst to burst.
    pub interval_ms: u32,
    /// Data packets lost with all of [`SEEDS`] on the noisy network.
    pub noisy: u64,
    /// Data packets lost with all of them where the two hosts are alone.
    pub alone: u64,
    /// Number of those runs with loss.
    pub alone_runs: u64,
    /// A transfer that failed.
    pub failed: bool,
}

impl Point {
    /// Mean number of packets lost in a transfer of 1000: on the noisy network, and where the two
    /// hosts are alone.
    pub fn means(&self) -> [f64; 2] {
        [self.noisy, self.alone].map(|sum| sum as f64 / SEEDS.count() as f64)
    }
}

/// Every interval of [`INTERVALS`], on `threads` threads.
pub fn points(threads: usize) -> Vec<Point> {
    let Some(row) = row() else { return Vec::new() };
    let intervals: Vec<u32> = INTERVALS.collect();
    parallel::map(&intervals, threads, |interval_ms| {
        point(&Row { interval_ms: *interval_ms, ..row })
    })
}

/// The first row with two outstanding buffers: five full packets a burst.
fn row() -> Option<Row> {
    Network::Ethernet.rows().into_iter().find(|row| row.outstanding == 2)
}

fn point(row: &Row) -> Point {
    let mut point = Point { interval_ms: row.interval_ms, ..Point::default() };
    for seed in SEEDS {
        let (noisy, alone) = (ethernet::run(row, seed, false), ethernet::run_alone(row, seed));
        point.noisy += noisy.lost;
        point.alone += alone.lost;
        point.alone_runs += u64::from(alone.lost > 0);
        point.failed |= noisy.problem.is_some() || alone.problem.is_some();
    }
    point
}
