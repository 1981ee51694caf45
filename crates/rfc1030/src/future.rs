//! The experiments of RFC 1030 §8, "Future Directions": transfers of 50 million bytes over the
//! modelled Wideband, several in parallel, the overload that broke it, and senders that find its
//! rate by themselves.
//!
//! All of it runs over the one channel of `wideband`, with the loss that RFC 1030 §7 reports.

pub mod page;

use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_proto::config::{Config, Policy, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::time::Instant;
use netblt_sim::host::{HostOptions, Transfer};
use netblt_sim::parallel;

use crate::lab::{Lab, SharedMedium as _};
use crate::machines::{ETHERNET_PC_AT, SUN_3};
use crate::rows::{Network, Row};
use crate::run::pair_of;
use crate::station::{IP_BYTES, StationOptions};
pub use crate::wideband::BUFFER_BYTES as STATION_BYTES;
use crate::wideband::{Channel, Wideband};

/// Seeds of every experiment.
pub const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;
/// The best that RFC 1030 §7 thinks possible: two packets of 1438 bytes every 22 ms.
pub const BEST_BITS_PER_SECOND: u64 = 2 * 1438 * 8 * 1000 / 22;
/// Data in all transfers of an experiment: the upper end of what §8 wants.
const BYTES: u64 = 50_000_000;
/// A SUN-3 drops 0.5 % of the packets (§7).
const LOSS_PPM: u32 = 5000;
/// IP packets that the network takes whole: 1432 bytes of data behind RFC 998's headers.
const PACKET_BYTES: u32 = 1432 + 24 + IP_BYTES;
/// The buffers of RFC 1030's best tests there.
const BUFFER_BYTES: u32 = 14_320;
/// Upper bound on the duration of an experiment.
const DEADLINE: Duration = Duration::from_secs(7200);

/// One experiment of RFC 1030 §8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// `fixed` senders in parallel, each with 5 packets every so many milliseconds.
    Fixed {
        /// Number of connections.
        senders: u32,
        /// Burst interval of each, in milliseconds.
        interval_ms: u32,
        /// Bursts are evenly staggered; else all at once.
        staggered: bool,
    },
    /// One sender that finds its rate, starting from the defaults.
    Adaptive(Wire),
}

impl Experiment {
    /// Every experiment. A list of 22 buffers and a timer that may be late make 59 ms of RFC 1030's
    /// 55, so a quarter of that sender's rate is 5 packets every 236 ms, and every 250 is a little
    /// less; every 220 is a quarter of the best possible rate, and with the receivers' control
    /// packets more than that.
    pub const ALL: [Self; 8] = [
        Self::Fixed { senders: 1, interval_ms: 55, staggered: false },
        Self::Fixed { senders: 1, interval_ms: 50, staggered: false },
        Self::Fixed { senders: 4, interval_ms: 250, staggered: false },
        Self::Fixed { senders: 4, interval_ms: 250, staggered: true },
        Self::Fixed { senders: 4, interval_ms: 220, staggered: false },
        Self::Fixed { senders: 4, interval_ms: 220, staggered: true },
        Self::Adaptive(Wire::Rfc998),
        Self::Adaptive(Wire::Sealed),
    ];

    /// Its name.
    pub fn name(&self) -> String {
        match self {
            Self::Fixed { senders: 1, interval_ms, .. } => {
                format!("fixed, 5 packets every {interval_ms} ms")
            }
            Self::Fixed { senders, interval_ms, staggered } => {
                let how = if *staggered { "apart" } else { "together" };
                format!("{senders} x fixed, 5 packets every {interval_ms} ms, bursts {how}")
            }
            Self::Adaptive(Wire::Rfc998) => "adaptive, rfc998".to_owned(),
            Self::Adaptive(Wire::Sealed) => "adaptive, sealed".to_owned(),
        }
    }
}

/// One run of an experiment.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    /// Steady-state throughput of each connection.
    pub bits_per_second: Vec<u64>,
    /// Most bytes queued in the earth station's buffer.
    pub most_waiting: u64,
    /// How many of the ten BSATs went down.
    pub stations_down: u64,
    /// Data packets that did not reach the receiver's machine.
    pub lost: u64,
    /// Data packets sent again.
    pub resent: u64,
    /// When the network broke down, if it did.
    pub crashed: Option<Instant>,
    /// First other problem, if any.
    pub problem: Option<String>,
}

impl Trial {
    /// Throughput of all connections together.
    pub fn sum(&self) -> u64 {
        self.bits_per_second.iter().sum()
    }

    /// Jain's index of fairness in thousandths: 1000 if all are equally fast.
    pub fn jain(&self) -> u64 {
        let squares: u128 = self.bits_per_second.iter().map(|b| u128::from(*b).pow(2)).sum();
        let count = self.bits_per_second.len() as u128;
        (u128::from(self.sum()).pow(2) * 1000 / (count * squares).max(1)) as u64
    }
}

/// An experiment and its result with every seed.
#[derive(Clone, Debug)]
pub struct Result {
    /// The experiment.
    pub experiment: Experiment,
    /// One trial for each of [`SEEDS`], in their order.
    pub trials: Vec<Trial>,
}

impl Result {
    /// Mean throughput of all connections together, of the runs that did not break the network.
    pub fn bits_per_second(&self) -> Option<u64> {
        let whole = self.trials.iter().filter(|trial| trial.crashed.is_none());
        let count = whole.clone().count() as u64;
        (count > 0).then(|| whole.map(Trial::sum).sum::<u64>() / count)
    }

    /// That throughput as a share of [`BEST_BITS_PER_SECOND`], in thousandths.
    pub fn of_best(&self) -> Option<u64> {
        self.bits_per_second().map(|bits| bits * 1000 / BEST_BITS_PER_SECOND)
    }

    /// The least of the trials' [`Trial::jain`].
    pub fn jain(&self) -> u64 {
        self.trials.iter().map(Trial::jain).min().unwrap_or_default()
    }

    /// Maximum over the trials of the bytes queued in the earth station's buffer.
    pub fn most_waiting(&self) -> u64 {
        self.trials.iter().map(|trial| trial.most_waiting).max().unwrap_or_default()
    }

    /// When the network broke down, for every seed with which it did.
    pub fn crashes(&self) -> Vec<Duration> {
        let crashed = self.trials.iter().filter_map(|trial| trial.crashed);
        crashed.map(|at| at.since(Instant::EPOCH)).collect()
    }
}

/// Every experiment with every seed, on `threads` threads.
pub fn results(threads: usize) -> Vec<Result> {
    let jobs: Vec<(Experiment, u64)> = Experiment::ALL
        .iter()
        .flat_map(|experiment| SEEDS.map(|seed| (*experiment, seed)))
        .collect();
    let trials = parallel::map(&jobs, threads, |(experiment, seed)| run(*experiment, *seed));
    let each = trials.chunks(SEEDS.count());
    let results = Experiment::ALL.into_iter().zip(each);
    results.map(|(experiment, t)| Result { experiment, trials: t.to_vec() }).collect()
}

/// One run of `experiment`.
pub fn run(experiment: Experiment, seed: u64) -> Trial {
    let channel = Channel { loss: Probability::from_ppm(LOSS_PPM), ..Channel::usual() };
    let mut lab = Lab::new(Wideband::new(channel, seed), DEADLINE);
    match experiment {
        Experiment::Fixed { senders, interval_ms, staggered } => {
            for n in 0..senders {
                let (sender, receiver) = pair_of(&row(interval_ms), ETHERNET_PC_AT, SUN_3);
                let bytes = BYTES / u64::from(senders);
                let transfer = Transfer {
                    seed: seed * 100 + u64::from(n),
                    bytes,
                    at_least_one: true,
                    have: 0,
                    greets: false,
                };
                let share = Duration::from_millis(u64::from(interval_ms)) * n / senders;
                let starts = if staggered { share } else { Duration::ZERO };
                lab.add(transfer, sender, receiver, starts, false);
            }
        }
        Experiment::Adaptive(wire) => {
            let at_least_one = wire == Wire::Rfc998;
            let transfer = Transfer { seed, bytes: BYTES, at_least_one, have: 0, greets: false };
            let ends = [Role::Sender, Role::Receiver].map(|role| adaptive(wire, role));
            let [sender, receiver] = ends;
            lab.add(transfer, sender, receiver, Duration::ZERO, false);
        }
    }
    let runs = lab.run();
    let crashed = lab.medium().crashed();
    let failure = runs.iter().any(|run| !run.success) && crashed.is_none();
    let failure = failure.then(|| "a transfer did not succeed".to_owned());
    Trial {
        bits_per_second: runs.iter().map(|run| run.bits_per_second).collect(),
        most_waiting: lab.medium().most_waiting(),
        stations_down: lab.medium().down(),
        lost: lab.medium().lost_data() + runs.iter().map(|run| run.deafened).sum::<u64>(),
        resent: runs.iter().map(|run| run.sent.data_packets_resent).sum(),
        crashed,
        problem: runs.iter().find_map(|run| run.finding.clone()).or(failure),
    }
}

/// A row as in appendix IV, with this interval; its loss figure is not used.
fn row(interval_ms: u32) -> Row {
    Row {
        network: Network::Wideband,
        burst_packets: 5,
        interval_ms,
        packet_bytes: 1432,
        buffer_bytes: BUFFER_BYTES,
        transfer_kilobytes: 0,
        outstanding: 22,
        lost: 0,
        resent: 0,
        timeouts: None,
        bits_per_second: 0,
    }
}

/// An end with a given packet size and, on `rfc998`, buffer size, but without a given rate.
fn adaptive(wire: Wire, role: Role) -> StationOptions {
    let mut config = Config::new(wire, role);
    // No address is forged here, and the answer to an OPEN is that of 1987.
    (config.client, config.validate_addresses) = (String::new(), false);
    config.policy = Policy::Fair { ceiling: None };
    config.datagram_bytes = PACKET_BYTES - IP_BYTES;
    config.overhead_bytes = IP_BYTES;
    match wire {
        Wire::Rfc998 => {
            config.buffer_bytes = BUFFER_BYTES;
            config.checksum = false;
        }
        Wire::Sealed => {
            config.secret = Some(Secret([1; 32]));
            config.cipher = Cipher::Aes256Gcm;
        }
    }
    StationOptions { host: HostOptions::new(config), machine: SUN_3 }
}
