//! One transfer for every combination of rate, round trip, loss and policy, as a table that a
//! reviewer can compare with the one before.
//!
//! Goodput is bytes of content over the time from the sender's start to its knowledge of success.
//! It is compared with the best that such a path allows: its rate, less losses and headers, from
//! the first instant to the last.

use std::fmt;
use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{LinkOptions, QueueLimit};
use netblt_proto::config::{Config, FixedRate, Policy, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::units::Rate;
use netblt_proto::wire::packet::Burst;

use crate::host::HostOptions;
use crate::outcome::Outcome;
use crate::setup::Setup;
use crate::world::World;

/// IP packets on these paths, in bytes.
const PACKET_BYTES: u32 = 1500;
/// IP and UDP headers in them.
const OVERHEAD_BYTES: u32 = 28;
/// Data in them at best.
const DATA_BYTES: u64 = 1432;
/// How many packets are overtaken by three others.
const REORDER: Probability = Probability::from_percent(1);

/// How a cell's sender chooses its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Given the path's rate.
    Fixed,
    /// Left to find it.
    Adaptive,
}

/// One combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Rate of the path, both ways.
    pub rate: Rate,
    /// Its round trip.
    pub rtt: Duration,
    /// Packets lost, both ways.
    pub loss: Probability,
    /// The policy.
    pub choice: Choice,
    /// Bytes to transfer.
    pub bytes: u64,
}

/// A combination and what became of its world.
#[derive(Clone, Debug)]
pub struct Row {
    /// The combination.
    pub cell: Cell,
    /// The world's outcome.
    pub outcome: Outcome,
}

impl Cell {
    /// The world of this cell.
    pub fn setup(&self) -> Setup {
        let host = |role| {
            let mut config = Config::new(Wire::Sealed, role);
            config.secret = Some(Secret([1; 32]));
            config.cipher = Cipher::Aes256Gcm;
            config.datagram_bytes = PACKET_BYTES - OVERHEAD_BYTES;
            config.overhead_bytes = OVERHEAD_BYTES;
            if role == Role::Sender {
                match self.choice {
                    Choice::Fixed => {
                        let pace = FixedRate::bursts(self.burst()).expect("a cell has a rate");
                        config.policy = Policy::Fixed(pace);
                    }
                    Choice::Adaptive => config.policy = Policy::Fair { ceiling: None },
                }
            }
            HostOptions::new(config)
        };
        let mut setup = Setup::new(1, self.bytes, host(Role::Sender), host(Role::Receiver));
        let link = LinkOptions {
            rate: Some(self.rate),
            delay: self.rtt / 2,
            loss: self.loss,
            reorder: REORDER,
            queue: QueueLimit::bdp(Some(self.rate), self.rtt),
            ..LinkOptions::default()
        };
        setup.there = link.clone();
        setup.back = link;
        setup
    }

    /// Runs it.
    pub fn run(&self) -> Row {
        Row { cell: *self, outcome: World::new(self.setup()).run() }
    }

    /// Bursts of eight packets, or of as many as make whole microseconds.
    fn burst(&self) -> Burst {
        let packet = u64::from(PACKET_BYTES);
        let packets = (self.rate.bytes_in(Duration::from_micros(200)) / packet).clamp(8, 64);
        let micros = self.rate.time_for(packets * packet).as_micros() as u64;
        Burst { packets: packets as u32, interval: Duration::from_micros(micros.max(1)) }
    }

    /// The most bytes of content a second that such a path can carry.
    pub fn possible(&self) -> Rate {
        let kept = u64::from(Probability::ALWAYS.ppb() - self.loss.ppb());
        let rate = self.rate.scaled(kept, u64::from(Probability::ALWAYS.ppb()));
        rate.scaled(DATA_BYTES, u64::from(PACKET_BYTES))
    }
}

impl Row {
    /// Goodput as a share of the best possible, in parts of ten thousand.
    pub fn efficiency(&self) -> u64 {
        let possible = self.cell.possible().bytes_per_second().max(1);
        self.outcome.goodput().bytes_per_second() * 10_000 / possible
    }

    /// Data packets that did not arrive.
    pub fn lost(&self) -> u64 {
        let (sent, received) = (self.outcome.sent(), self.outcome.received());
        let arrived = received.data_packets_received + received.data_packets_duplicate;
        sent.data_packets_sent.saturating_sub(arrived)
    }

    /// Data packets sent again.
    pub fn resent(&self) -> u64 {
        self.outcome.sent().data_packets_resent
    }

    /// Duplicate data packets, of a million sent.
    pub fn duplicate_ppm(&self) -> u64 {
        let sent = self.outcome.sent().data_packets_sent.max(1);
        self.outcome.received().data_packets_duplicate * 1_000_000 / sent
    }

    /// Column headings.
    pub fn heading() -> String {
        format!(
            "{:>10} {:>6} {:>7} {:<8} {:>7} {:>9} {:>9} {:>8} {:>8} {:>7}",
            "rate",
            "rtt",
            "loss",
            "policy",
            "bytes",
            "seconds",
            "possible",
            "lost",
            "resent",
            "twice"
        )
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cell = &self.cell;
        let ppm = cell.loss.ppb() / 1000;
        let millis = self.outcome.transfer_time().as_millis();
        let efficiency = self.efficiency();
        let policy = match cell.choice {
            Choice::Fixed => "fixed",
            Choice::Adaptive => "adaptive",
        };
        write!(
            f,
            "{:>10} {:>6} {:>7} {:<8} {:>7} {:>9} {:>9} {:>8} {:>8} {:>7}",
            format!("{} Mbit/s", cell.rate.bits_per_second() / 1_000_000),
            format!("{} ms", cell.rtt.as_millis()),
            format!("{}.{:02} %", ppm / 10_000, ppm % 10_000 / 100),
            policy,
            format!("{} MB", cell.bytes / 1_000_000),
            format!("{}.{:03}", millis / 1000, millis % 1000),
            format!("{}.{:02} %", efficiency / 100, efficiency % 100),
            self.lost(),
            self.resent(),
            format!("{} ppm", self.duplicate_ppm())
        )
    }
}
