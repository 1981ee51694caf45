//! Every row of RFC 1030's tables run again, beside the published figures.

use crate::rows::{Network, Row};
use crate::run::Sample;
use crate::{ethernet, ring, wideband};
use netblt_sim::parallel;

/// Seeds; every row is the mean of its runs.
pub const SEEDS: std::ops::RangeInclusive<u64> = 1..=20;

/// A row and its result: sums over [`SEEDS`].
#[derive(Clone, Debug)]
pub struct Compared {
    /// RFC 1030's row.
    pub row: Row,
    /// Number of runs.
    pub runs: u64,
    /// Sums over all runs.
    pub sum: Sample,
}

impl Compared {
    /// Mean steady-state throughput.
    pub fn bits_per_second(&self) -> u64 {
        (self.sum.bits_per_second + self.runs / 2) / self.runs.max(1)
    }

    /// Error of the throughput against the published one, in hundredths of a per cent, rounded.
    pub fn error(&self) -> i64 {
        let runs = self.runs.max(1) as i64;
        let theirs = self.row.bits_per_second as i64 * runs;
        rounded((self.sum.bits_per_second as i64 - theirs) * 10_000, theirs)
    }
}

/// The rows of one network.
#[derive(Clone, Debug)]
pub struct Table {
    /// The network.
    pub network: Network,
    /// Its rows.
    pub rows: Vec<Compared>,
}

impl Table {
    /// Mean absolute error, in hundredths of a per cent, rounded.
    pub fn mean_error(&self) -> i64 {
        let sum: i64 = self.rows.iter().map(|row| row.error().abs()).sum();
        rounded(sum, self.rows.len() as i64)
    }
}

/// `a / b` for `b` above zero, to the nearest; halves away from zero.
fn rounded(a: i64, b: i64) -> i64 {
    let b = b.max(1);
    (a + a.signum() * (b / 2)) / b
}

/// One run of `row`.
pub fn run(row: &Row, seed: u64, record: bool) -> Sample {
    match row.network {
        Network::Ring => ring::run(row, seed, record),
        Network::Ethernet => ethernet::run(row, seed, record),
        Network::Wideband => wideband::run(row, seed, record),
    }
}

/// All rows of these networks, on `threads` threads.
pub fn tables(networks: &[Network], threads: usize) -> Vec<Table> {
    let rows: Vec<Row> = networks.iter().flat_map(|network| network.rows()).collect();
    // Rows with the same parameters have the same result: each such run happens once.
    let key = |row: &Row| Row { bits_per_second: 0, timeouts: None, ..*row };
    let mut distinct: Vec<Row> = Vec::new();
    for row in &rows {
        let row = key(row);
        if !distinct.contains(&row) {
            distinct.push(row);
        }
    }
    let sums = parallel::map(&distinct, threads, sum);
    let compared = rows.iter().map(|row| {
        let at = distinct.iter().position(|known| *known == key(row)).unwrap_or_default();
        Compared { row: *row, runs: SEEDS.count() as u64, sum: sums[at].clone() }
    });
    let compared: Vec<Compared> = compared.collect();
    let table = |network: &Network| {
        let rows = compared.iter().filter(|compared| compared.row.network == *network);
        Table { network: *network, rows: rows.cloned().collect() }
    };
    networks.iter().map(table).collect()
}

/// The sum of all runs of `row`.
fn sum(row: &Row) -> Sample {
    let mut sum = Sample::default();
    for seed in SEEDS {
        let sample = run(row, seed, false);
        sum.bits_per_second += sample.bits_per_second;
        sum.lost += sample.lost;
        sum.deafened += sample.deafened;
        sum.resent += sample.resent;
        sum.timeouts += sample.timeouts;
        sum.problem = sum.problem.or(sample.problem);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_their_mean_are_rounded_and_not_cut() {
        let compared = |ours: u64| Compared {
            row: Row { bits_per_second: 1_000_000, ..Network::Ring.rows()[0] },
            runs: 2,
            sum: Sample { bits_per_second: ours, ..Sample::default() },
        };
        let errors = [2_000_299, 2_000_301, 1_999_699, 1_999_701].map(|o| compared(o).error());
        assert_eq!(errors, [1, 2, -2, -1]);
        let rows = vec![compared(2_000_200), compared(2_000_400)];
        assert_eq!(Table { network: Network::Ring, rows }.mean_error(), 2);
    }
}
