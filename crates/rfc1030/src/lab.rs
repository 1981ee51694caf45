//! Pairs of stations and the medium between them: the nodes of a [`Simulator`], with any number of
//! connections on one network.

use std::time::Duration;

use netblt_proto::config::Config;
use netblt_proto::stats::Stats;
use netblt_proto::time::Instant;
use netblt_sim::check::Oracle;
use netblt_sim::host::Transfer;
use netblt_sim::side::{Pair, Side};
use netblt_sim::simulator::{Bounds, Medium, Nodes, Simulator};

use crate::station::{Departure, Station, StationOptions};

/// Limit on the steps of one world.
const MAX_STEPS: u64 = 100_000_000;
/// The number of the one medium.
const MEDIUM: usize = 0;

/// One end of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) pair: usize,
    pub(crate) side: Side,
}

/// The one medium between all hosts.
pub(crate) trait SharedMedium: Medium<Arrival = (Port, Vec<u8>)> {
    /// Sends a packet from a host.
    fn push(&mut self, now: Instant, from: Port, bytes: Vec<u8>);
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

/// A connection starts.
#[derive(Debug)]
struct Start {
    pair: usize,
}

/// Stations and the medium between them.
pub(crate) struct Lab<M> {
    net: Simulator<M, Start>,
    pairs: Pairs,
}

/// The stations of all connections.
#[derive(Default)]
struct Pairs {
    stations: Vec<[Station; 2]>,
    oracles: Vec<Oracle>,
    started: Vec<bool>,
    /// The packets that leave a station.
    out: Vec<Vec<u8>>,
}

impl<M: SharedMedium> Lab<M> {
    pub(crate) fn new(medium: M, deadline: Duration) -> Self {
        let bounds = Bounds { deadline, steps: MAX_STEPS };
        Self { net: Simulator::new([medium], bounds), pairs: Pairs::default() }
    }

    /// The medium, for what became of it.
    pub(crate) fn medium(&self) -> &M {
        &self.net.media()[MEDIUM]
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
        self.pairs.oracles.push(Oracle::new(configs));
        let mut sender = Station::new(Side::Active, sender, transfer);
        sender.steady.departures = record.then(Vec::new);
        let mut receiver = Station::new(Side::Passive, receiver, transfer);
        receiver.steady.controls = record.then(Vec::new);
        let pair = self.pairs.stations.len();
        self.pairs.stations.push([sender, receiver]);
        self.pairs.started.push(false);
        self.net.schedule(Instant::EPOCH + starts, Start { pair });
    }

    /// Runs until every connection is over, the deadline, or a crash of the medium.
    pub(crate) fn run(&mut self) -> Vec<Run> {
        self.net.run(&mut self.pairs);
        self.pairs.conclude(self.net.now())
    }
}

impl<M: SharedMedium> Nodes<M, Start> for Pairs {
    fn handle_events(&mut self, net: &mut Simulator<M, Start>) {
        while let Some(Start { pair }) = net.poll_event() {
            self.started[pair] = true;
            for station in self.stations[pair].iter_mut().rev() {
                station.start(net.now(), &mut self.oracles[pair]);
            }
        }
    }

    fn handle_arrivals(&mut self, net: &mut Simulator<M, Start>, medium: usize) {
        while let Some((port, bytes)) = net.poll_arrival(medium) {
            if let Some(pair) = self.stations.get_mut(port.pair) {
                pair[port.side as usize].arrive(net.now(), bytes);
            }
        }
    }

    /// The connections in their order, of each the sender first.
    fn handle_timeouts(&mut self, net: &mut Simulator<M, Start>) {
        let now = net.now();
        for pair in 0..self.stations.len() {
            for side in Side::BOTH {
                let station = &mut self.stations[pair][side as usize];
                if self.started[pair] && station.next() <= now {
                    station.work(now, &mut self.oracles[pair], &mut self.out);
                    for bytes in self.out.drain(..) {
                        net.medium(MEDIUM).push(now, Port { pair, side }, bytes);
                    }
                }
            }
        }
    }

    fn next_timeout(&self, _: Instant) -> Option<Instant> {
        let started = self.stations.iter().zip(&self.started).filter(|(_, started)| **started);
        started.flat_map(|(pair, _)| pair.iter().map(Station::next)).min()
    }

    fn is_over(&self, net: &Simulator<M, Start>) -> bool {
        let over = self.stations.iter().flatten().all(Station::is_over);
        over || net.media()[MEDIUM].crashed().is_some()
    }
}

impl Pairs {
    fn conclude(&mut self, now: Instant) -> Vec<Run> {
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
