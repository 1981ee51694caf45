//! Event loop over pairs of stations and the medium between them, in virtual time as in
//! [`netblt_sim::world`], with any number of connections on one network.

use std::time::Duration;

use netblt_proto::config::Config;
use netblt_proto::stats::Stats;
use netblt_proto::time::Instant;
use netblt_sim::check::Oracle;
use netblt_sim::host::Transfer;
use netblt_sim::side::{Pair, Side};

use crate::station::{Departure, Station, StationOptions};

/// Limit on the steps of one world.
const MAX_STEPS: u64 = 100_000_000;

/// One end of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) pair: usize,
    pub(crate) side: Side,
}

/// The network between the hosts.
pub(crate) trait Medium {
    /// Sends a packet from a host.
    fn push(&mut self, now: Instant, from: Port, bytes: Vec<u8>);
    /// When a packet may arrive next.
    fn next(&self) -> Option<Instant>;
    /// Takes the next packet that has arrived, with its destination.
    fn pop(&mut self, now: Instant) -> Option<(Port, Vec<u8>)>;
    /// DATA packets lost.
    fn lost_data(&self) -> u64;
    /// When the network broke down, if it did.
    fn crashed(&self) -> Option<Instant> {
        None
    }
    /// Number of stations that went down.
    fn down(&self) -> u64 {
        0
    }
}

/// Result of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Both ends know that everything arrived.
    pub(crate) success: bool,
    /// First invariant violated, if any.
    pub(crate) finding: Option<String>,
    /// First-pass bytes over the time of the first pass.
    pub(crate) bits_per_second: u64,
    /// Counts of the sender and of the receiver.
    pub(crate) sent: Stats,
    pub(crate) received: Stats,
    /// Data packets that the receiver's interface did not take.
    pub(crate) deafened: u64,
    /// Every data packet sent, if recorded.
    pub(crate) departures: Vec<Departure>,
    /// When control packets left the receiver, if recorded.
    pub(crate) controls: Vec<Instant>,
}

/// Stations and the medium between them.
pub(crate) struct Lab<M> {
    now: Instant,
    stations: Vec<[Station; 2]>,
    oracles: Vec<Oracle>,
    pub(crate) medium: M,
    deadline: Instant,
    starts: Vec<Instant>,
}

impl<M: Medium> Lab<M> {
    pub(crate) fn new(medium: M, deadline: Duration) -> Self {
        Self {
            now: Instant::EPOCH,
            stations: Vec::new(),
            oracles: Vec::new(),
            medium,
            deadline: Instant::EPOCH + deadline,
            starts: Vec::new(),
        }
    }

    /// Adds a connection that starts after `starts`: its sender, which opens, and its receiver.
    pub(crate) fn add(
        &mut self,
        transfer: Transfer,
        sender: StationOptions,
        receiver: StationOptions,
        starts: Duration,
        record: bool,
    ) {
        let configs: Pair<&Config> = Pair([&sender.host.config, &receiver.host.config]);
        self.oracles.push(Oracle::new(configs));
        let mut sender = Station::new(Side::Active, sender, transfer);
        sender.steady.departures = record.then(Vec::new);
        let mut receiver = Station::new(Side::Passive, receiver, transfer);
        receiver.steady.controls = record.then(Vec::new);
        self.stations.push([sender, receiver]);
        self.starts.push(Instant::EPOCH + starts);
    }

    /// Runs until every connection is over, the deadline, or a crash of the medium.
    pub(crate) fn run(&mut self) -> Vec<Run> {
        let mut out = Vec::new();
        let mut started = vec![false; self.stations.len()];
        for _ in 0..MAX_STEPS {
            for (pair, begun) in started.iter_mut().enumerate() {
                if !*begun && self.starts[pair] <= self.now {
                    *begun = true;
                    for station in self.stations[pair].iter_mut().rev() {
                        station.start(self.now, &mut self.oracles[pair]);
                    }
                }
                for side in Side::BOTH {
                    let station = &mut self.stations[pair][side as usize];
                    if *begun && station.next() <= self.now {
                        station.work(self.now, &mut self.oracles[pair], &mut out);
                        for bytes in out.drain(..) {
                            self.medium.push(self.now, Port { pair, side }, bytes);
                        }
                    }
                }
            }
            let stations = self.stations.iter().zip(&started).filter(|(_, started)| **started);
            let next = stations.flat_map(|(pair, _)| pair.iter().map(Station::next)).min();
            let start = self.starts.iter().zip(&started).filter(|(_, started)| !**started);
            let next = [next, start.map(|(at, _)| *at).min(), self.medium.next()];
            let next = next.into_iter().flatten().min().unwrap_or(Instant::NEVER);
            let over = self.stations.iter().all(|pair| pair.iter().all(Station::is_over));
            if over || next > self.deadline || self.medium.crashed().is_some() {
                break;
            }
            self.now = self.now.max(next);
            while let Some((port, bytes)) = self.medium.pop(self.now) {
                if let Some(pair) = self.stations.get_mut(port.pair) {
                    pair[port.side as usize].arrive(self.now, bytes);
                }
            }
        }
        self.conclude()
    }

    fn conclude(&mut self) -> Vec<Run> {
        let now = self.now;
        let pairs = self.stations.iter_mut().zip(&self.oracles);
        let runs = pairs.map(|([sender, receiver], oracle)| {
            let steady = std::mem::take(&mut sender.steady);
            let time = steady.until.since(steady.from.unwrap_or(steady.until));
            let nanos = time.as_nanos().max(1);
            Run {
                success: sender.is_done() && receiver.is_done(),
                finding: oracle.finding().map(ToString::to_string),
                bits_per_second: (u128::from(steady.bytes) * 8_000_000_000 / nanos) as u64,
                sent: sender.stats(now),
                received: receiver.stats(now),
                deafened: receiver.deafened,
                departures: steady.departures.unwrap_or_default(),
                controls: receiver.steady.controls.take().unwrap_or_default(),
            }
        });
        runs.collect()
    }
}
