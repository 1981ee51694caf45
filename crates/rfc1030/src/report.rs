//! Every row of RFC 1030's tables run again, beside what was published.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use netblt_proto::config::{Config, Pace, Policy, Role, Wire};
use netblt_proto::time::Instant;
use netblt_proto::wire::packet::Burst;
use netblt_sim::host::{HostOptions, Transfer};

use super::lab::{Lab, Medium};
use super::rows::{Network, Row};
pub use super::station::Departure;
use super::station::{Costs, IP_BYTES, Interface, StationOptions};
use super::{ethernet, ring, wideband};

/// Every row is the mean of runs with these seeds.
pub const SEEDS: std::ops::RangeInclusive<u64> = 1..=20;
/// Header of a DATA packet on the `rfc998` wire.
pub(super) const DATA_HEADER: u32 = 24;
/// No run takes as long.
const DEADLINE: Duration = Duration::from_secs(600);

/// One run of a row.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Steady-state throughput.
    pub bits_per_second: u64,
    /// Data packets that did not reach the receiver's machine.
    pub lost: u64,
    /// Those of them that arrived while its interface was deaf.
    pub deafened: u64,
    /// Data packets sent again.
    pub resent: u64,
    /// Data timeouts.
    pub timeouts: u64,
    /// When the network broke down, if it did.
    pub crashed: Option<Instant>,
    /// What went wrong, if anything.
    pub problem: Option<String>,
    /// Every data packet that left, if that was asked for.
    pub departures: Vec<Departure>,
    /// When control packets left the receiver, if that was asked for.
    pub controls: Vec<Instant>,
}

/// A row, and what became of it here: sums over [`SEEDS`].
#[derive(Clone, Debug)]
pub struct Compared {
    /// What RFC 1030 says.
    pub row: Row,
    /// How many runs.
    pub runs: u64,
    /// Sums over them.
    pub sum: Sample,
}

impl Compared {
    /// Mean steady-state throughput.
    pub fn bits_per_second(&self) -> u64 {
        self.sum.bits_per_second / self.runs.max(1)
    }

    /// How far that is from the published one, in hundredths of a per cent.
    pub fn error(&self) -> i64 {
        let (ours, theirs) = (self.bits_per_second() as i64, self.row.bits_per_second as i64);
        (ours - theirs) * 10_000 / theirs.max(1)
    }
}

/// Everything about one network.
#[derive(Clone, Debug)]
pub struct Table {
    /// Which.
    pub network: Network,
    /// Its rows.
    pub rows: Vec<Compared>,
}

impl Table {
    /// The mean of the errors' sizes, in hundredths of a per cent.
    pub fn mean_error(&self) -> i64 {
        let sum: i64 = self.rows.iter().map(|row| row.error().abs()).sum();
        sum / (self.rows.len() as i64).max(1)
    }
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
    // Rows that are told the same come out the same: each such run is made once.
    let key = |row: &Row| Row { bits_per_second: 0, timeouts: None, ..*row };
    let mut distinct: Vec<Row> = Vec::new();
    for row in &rows {
        let row = key(row);
        if !distinct.contains(&row) {
            distinct.push(row);
        }
    }
    let sums = sums(&distinct, threads);
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

fn sums(rows: &[Row], threads: usize) -> Vec<Sample> {
    let next = AtomicUsize::new(0);
    let sums = Mutex::new(vec![Sample::default(); rows.len()]);
    let work = || {
        while let Some((at, row)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, rows.get(at)?)))
        {
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
            if let Some(place) =
                sums.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_mut(at)
            {
                *place = sum;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    sums.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Sender and receiver of `row`, with these costs and interfaces.
pub(super) fn pair_of(
    row: &Row,
    sender: (Costs, Interface),
    receiver: (Costs, Interface),
) -> (StationOptions, StationOptions) {
    let burst = Burst { packets: row.burst_packets, interval: row.interval() };
    let options = |role, (costs, interface)| {
        let mut config = Config::new(Wire::Rfc998, role);
        config.buffer_bytes = row.buffer_bytes;
        config.table_bytes = 0;
        config.datagram_bytes = row.packet_bytes + DATA_HEADER;
        config.overhead_bytes = IP_BYTES;
        config.max_outstanding = row.outstanding;
        config.checksum = false;
        if role == Role::Sender {
            let pace = Pace::bursts(burst).expect("the report's rows have intervals");
            config.policy = Policy::Fixed(pace);
        }
        StationOptions { host: HostOptions::new(config), costs, interface }
    };
    (options(Role::Sender, sender), options(Role::Receiver, receiver))
}

/// One run of `row` over `medium`.
pub(super) fn run_row(
    row: &Row,
    seed: u64,
    medium: impl Medium,
    sender: StationOptions,
    receiver: StationOptions,
    record: bool,
) -> Sample {
    let transfer = Transfer { seed, bytes: row.bytes(), at_least_one: true };
    let mut lab = Lab::new(medium, DEADLINE);
    lab.add(transfer, sender, receiver, Duration::ZERO, record);
    let Some(run) = lab.run().pop() else { return Sample::default() };
    let crashed = lab.medium.crashed();
    let crash = crashed.map(|_| "the network broke down".to_owned());
    let failure = (!run.success).then(|| "the transfer did not succeed".to_owned());
    Sample {
        bits_per_second: run.bits_per_second,
        lost: lab.medium.lost_data() + run.deafened,
        deafened: run.deafened,
        resent: run.sent.data_packets_resent,
        timeouts: run.received.data_timeouts,
        crashed,
        problem: crash.or(run.finding).or(failure),
        departures: run.departures,
        controls: run.controls,
    }
}
