//! TCP friendliness: two flows between separate hosts over one router, and the share that each
//! program leaves to a TCP, as the review defines it ("A protocol P is TCP friendly if the
//! coexisting TCP connections share approximately the same amount of bandwidth as if P is a TCP
//! connection").
//!
//! The hosts and their cards are those of every row. The review names no router and no queue, so
//! the figures of [`Shared`] are assumptions. There is no random loss.

use std::time::Duration;

use netblt_path::{LinkOptions, Policer, QueueLimit};
use netblt_proto::config::{EmulatedProtocol, Role};
use netblt_proto::units::Rate;
use netblt_sim::host::{HostOptions, Transfer};
use netblt_sim::parallel;

use crate::contest::{Entry, Trial};
use crate::lab::{CARRIED_BYTES, Lab};
use crate::model::{self, FRAME_BYTES, LINK, ROUND_TRIP};

/// Duration of both flows.
pub const LASTS: Duration = Duration::from_secs(60);
/// Start of the measurement: both flows have settled by then.
pub const SETTLED: Duration = Duration::from_secs(10);
/// One run of each: without random loss the seed has almost no effect.
const SEED: u64 = 1;

/// The bottleneck that two flows share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Rate of the router's link, frames included.
    pub rate: Rate,
    /// Round-trip time without queue.
    pub round_trip: Duration,
    /// The router's queue, in quarters of the bandwidth-delay product.
    pub quarters: u64,
    /// A policer in place of the queue, with a bucket of so many bytes; no packet waits.
    pub bucket_bytes: Option<u64>,
}

impl Shared {
    /// The review's network, with a queue of one bandwidth-delay product.
    pub const REVIEW: Self =
        Self { rate: LINK, round_trip: ROUND_TRIP, quarters: 4, bucket_bytes: None };

    /// A path that is slower than every card, with a queue of a quarter, one, and four
    /// bandwidth-delay products.
    pub const NEIGHBOURS: [Self; 3] = [Self::narrow(1), Self::narrow(4), Self::narrow(16)];

    /// The same path with another queue.
    pub const fn narrow(quarters: u64) -> Self {
        let rate = Rate::from_bits_per_second(50_000_000);
        Self { rate, round_trip: Duration::from_millis(40), quarters, bucket_bytes: None }
    }

    fn there(self) -> LinkOptions {
        let bytes = self.rate.bytes_in(self.round_trip) * self.quarters / 4;
        if let Some(bucket_bytes) = self.bucket_bytes {
            return LinkOptions {
                policer: Some(Policer { rate: self.rate, bucket_bytes }),
                delay: self.round_trip / 2,
                ..LinkOptions::default()
            };
        }
        LinkOptions {
            rate: Some(self.rate),
            delay: self.round_trip / 2,
            queue: QueueLimit::Bytes(bytes),
            ..LinkOptions::default()
        }
    }

    fn back(self) -> LinkOptions {
        LinkOptions { delay: self.round_trip / 2, ..model::link(false, 1) }
    }
}

/// Two flows over one bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pairing {
    /// The program under test.
    pub entry: Entry,
    /// The program beside it.
    pub beside: Entry,
    /// The bottleneck.
    pub shared: Shared,
    /// By how much the first flow's round trip is longer.
    pub farther: Duration,
    /// How much later the second flow begins.
    pub later: Duration,
}

/// Bits of data a second of each flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// The program under test.
    pub own: u64,
    /// The program beside it.
    pub beside: u64,
    /// First problem, if any.
    pub problem: Option<String>,
}

impl Shares {
    /// The first flow's share of the total, in tenths of a per cent.
    pub fn part(&self) -> u64 {
        self.own * 1000 / (self.own + self.beside).max(1)
    }
}

impl Pairing {
    /// Two flows that begin at once, with equal round-trip times.
    pub fn new(entry: Entry, beside: Entry, shared: Shared) -> Self {
        Self { entry, beside, shared, farther: Duration::ZERO, later: Duration::ZERO }
    }

    /// Runs both flows, from memory.
    pub fn run(&self) -> Shares {
        let lasts = LASTS + self.later;
        let mut lab = Lab::new(self.shared.there(), self.shared.back(), SEED, lasts);
        lab.measure(SETTLED + self.later);
        for (flow, entry) in [self.entry, self.beside].into_iter().enumerate() {
            self.add(&mut lab, entry, flow as u64);
        }
        let (runs, _) = lab.run();
        let mut rates = [0; 2];
        let mut problem = None;
        for ((rate, run), entry) in rates.iter_mut().zip(runs).zip([self.entry, self.beside]) {
            let bytes = run.measured * u64::from(trial(entry).packet().0);
            *rate = Rate::over(bytes, LASTS - SETTLED).bits_per_second();
            problem = problem.or(run.problem.map(|what| format!("{}: {what}", entry.name())));
        }
        let [own, beside] = rates;
        Shares { own, beside, problem }
    }

    fn add(&self, lab: &mut Lab, entry: Entry, flow: u64) {
        let seed = SEED * 100 + flow;
        let first = flow == 0;
        let trial = trial(entry);
        let (data, header) = trial.packet();
        let (fragments, wire_bytes) = model::on_wire(data + header);
        // More than the card carries meanwhile, so that no program finishes.
        let packets = LINK.bytes_in(LASTS + self.later).div_ceil(u64::from(wire_bytes)) + 1;
        let bytes = packets * u64::from(CARRIED_BYTES);
        let transfer = Transfer { seed, bytes, at_least_one: false, have: 0, greets: true };
        let host = |role| trial.host(role, wire_bytes - fragments * FRAME_BYTES, packets);
        let mut behaviour = trial.behaviour(wire_bytes);
        // A TCP waits for its card here; the relevant queue is the router's.
        if let Entry::Tcp { .. } = entry {
            (behaviour.overruns, behaviour.full_card_mark) = (false, false);
        }
        let starts_at = if first { Duration::ZERO } else { self.later };
        let sender = HostOptions { starts_at, ..host(Role::Sender) };
        lab.add(transfer, sender, host(Role::Receiver), behaviour);
        let delay = if first { self.farther } else { Duration::ZERO };
        let card = LinkOptions { delay, ..model::link(false, fragments) };
        lab.own_card(card, seed);
    }
}

const fn trial(entry: Entry) -> Trial {
    Trial { entry, file: false, loss: false }
}

/// The TCPs that each program is tested beside: the review's own, of Linux 2.4, and a current one.
pub const TCPS: [Entry; 2] =
    [Entry::Tcp { streams: 1, tuned: true }, Entry::Later(EmulatedProtocol::Cubic)];

/// One program beside each of [`TCPS`].
#[derive(Clone, Debug)]
pub struct Friendliness {
    /// The program.
    pub entry: Entry,
    /// The result beside each.
    pub shares: [Shares; 2],
    /// Throughput of each TCP relative to its throughput beside another TCP of its kind; in per
    /// cent, rounded.
    pub left: [u64; 2],
}

/// Each program beside a TCP, on [`Shared::REVIEW`]; the TCPs themselves come first.
pub fn friendliness(threads: usize) -> Vec<Friendliness> {
    let entries = [
        TCPS[0],
        TCPS[1],
        Entry::Fobs,
        Entry::Quanta,
        Entry::Sabul,
        Entry::Tsunami,
        Entry::Later(EmulatedProtocol::Udt),
        Entry::Later(EmulatedProtocol::HighSpeed),
        Entry::Later(EmulatedProtocol::Scalable),
        Entry::Ours,
    ];
    let jobs: Vec<Pairing> = entries
        .iter()
        .flat_map(|entry| TCPS.map(|beside| (*entry, beside)))
        .map(|(entry, beside)| Pairing::new(entry, beside, Shared::REVIEW))
        .collect();
    let mut shares = parallel::map(&jobs, threads, Pairing::run).into_iter();
    let mut next = || [shares.next().unwrap_or_default(), shares.next().unwrap_or_default()];
    let all: Vec<(Entry, [Shares; 2])> = entries.map(|entry| (entry, next())).into();
    // The reference: each TCP's throughput beside another of its kind.
    let alike = [0, 1].map(|tcp: usize| all[tcp].1[tcp].beside.max(1));
    let left = |shares: &[Shares; 2]| {
        [0, 1].map(|tcp: usize| (shares[tcp].beside * 100 + alike[tcp] / 2) / alike[tcp])
    };
    all.into_iter()
        .map(|(entry, shares)| Friendliness { entry, left: left(&shares), shares })
        .collect()
}

/// Two programs side by side with each queue of [`Shared::NEIGHBOURS`].
#[derive(Clone, Debug)]
pub struct Neighbours {
    /// The program.
    pub entry: Entry,
    /// The program beside it.
    pub beside: Entry,
    /// The result with each queue.
    pub shares: [Shares; 3],
}

/// NETBLT beside TCPs and beside itself on a slow path, and TCPs beside each other there.
pub fn neighbours(threads: usize) -> Vec<Neighbours> {
    let pairs = [
        (Entry::Ours, TCPS[1]),
        (Entry::Ours, TCPS[0]),
        (Entry::Ours, Entry::Later(EmulatedProtocol::Bbr)),
        (Entry::Ours, Entry::Ours),
        (TCPS[1], TCPS[0]),
        (Entry::Later(EmulatedProtocol::Bbr), TCPS[1]),
    ];
    let jobs: Vec<Pairing> = pairs
        .iter()
        .flat_map(|&(entry, beside)| {
            Shared::NEIGHBOURS.map(|shared| Pairing::new(entry, beside, shared))
        })
        .collect();
    let mut shares = parallel::map(&jobs, threads, Pairing::run).into_iter();
    pairs
        .map(|(entry, beside)| {
            let shares = Shared::NEIGHBOURS.map(|_| shares.next().unwrap_or_default());
            Neighbours { entry, beside, shares }
        })
        .into()
}
