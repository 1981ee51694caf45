//! A world of subflows: one transfer over several connections of its own, between hosts whose
//! processors take time for every packet, with other flows beside it (`docs/protocol §4.11,
//! §6.11`).
//!
//! Every end of a subflow is a unit: one socket, one thread, one processor. As in the program, the
//! units of a host share their client and nothing else.

mod client;
mod exchange;
mod losses;
mod packet;
mod processors;
mod unit;

use std::net::SocketAddr;
use std::time::Duration;

use netblt_path::rng::Rng;
use netblt_path::{Delivery, LinkOptions, Path};
use netblt_proto::api::{CloseReason, Datagram, RecvMeta};
use netblt_proto::config::{Config, Policy, Role, Secret, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::endpoint::subflows::Subflow;
use netblt_proto::time::{Instant, earliest};
use netblt_proto::units::Rate;

use client::{ImageSink, ImageSource, SubflowClient};
use exchange::Exchange;
use losses::Losses;
use packet::{SentPacket, SubflowPacket};
use processors::Processors;
use unit::{Arrived, Unit};

use crate::host::HostOptions;
use crate::setup::Setup;
use crate::side::Side;
use crate::simulator::{Bounds, End, Nodes, Simulator};

/// The addresses: an active end's subflows have a port each, a passive end has one.
const ACTIVE: [u8; 4] = [10, 0, 0, 1];
const PASSIVE: [u8; 4] = [10, 0, 0, 2];
const PORT: u16 = 4000;
/// The first port of the flows beside it.
const BESIDE: u16 = 5000;
/// How much longer than the main connection a subflow may be silent.
const PATIENCE: Duration = Duration::from_secs(1);
/// Steps that no world needs.
const MAX_STEPS: u64 = 200_000_000;

/// The parameters of a transfer over subflows.
#[derive(Clone, Debug)]
pub struct Subflows {
    /// The seed of all randomness.
    pub seed: u64,
    /// How much is sent.
    pub bytes: u64,
    /// Over how many subflows, the main connection among them.
    pub subflows: u8,
    /// Whether the active end sends.
    pub pushes: bool,
    /// How long a processor takes for a packet, at the sender and at the receiver.
    pub costs: [Duration; 2],
    /// How many processors either host has; subflows share them.
    pub cores: usize,
    /// A slower processor: the host (0: the sender's), the processor, and the factor.
    pub slow: Option<(usize, usize, u32)>,
    /// The path from the sender, and back.
    pub there: LinkOptions,
    /// The way back.
    pub back: LinkOptions,
    /// Bytes in a buffer, and how many buffers either end has.
    pub buffers: (u32, u32),
    /// How the sender chooses its rate.
    pub policy: Policy,
    /// Other flows on the path, from the first moment to the last.
    pub beside: Vec<Policy>,
    /// The bytes of each of these; `None`: until the transfer has ended.
    pub beside_bytes: Option<u64>,
    /// From when on nothing of this subflow (1 is the first after the main connection) passes.
    pub cuts: Vec<(u8, Duration)>,
    /// When the active end gets another address, with all its subflows.
    pub moves: Vec<Duration>,
    /// The largest datagram of either end.
    pub datagram_bytes: u32,
    /// The death timer of either end.
    pub death_timer: Duration,
    /// By then it must be over.
    pub deadline: Duration,
}

/// Its result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubflowsOutcome {
    /// Until the sender had the verdict.
    pub took: Duration,
    /// Data packets that the sender's ends sent on each subflow that there was, the main one first.
    pub packets: Vec<u64>,
    /// Ends of subflows that were lost.
    pub lost: u32,
    /// Why the main connection ended before the transfer, where the path was such that it may.
    pub gave_up: Option<CloseReason>,
    /// Images that arrived a second time.
    pub again: u64,
    /// IP bytes that arrived, of it and of each flow beside it.
    pub arrived: Vec<u64>,
    /// The same when the first of those that have an end was over, and when that was.
    pub arrived_first: (Duration, Vec<u64>),
    /// Packets that came to the path there.
    pub entered: u64,
    /// Packets that the path dropped there.
    pub dropped: u64,
    /// Its mean rate: the bytes asked for in that time.
    pub goodput: Rate,
}

/// The clock, the events, and the paths: from the sender, and back.
type Net = Simulator<Path<SubflowPacket>, Event>;

/// Something that happens at a set time.
#[derive(Debug)]
enum Event {
    /// The active end gets another address, and its old one no longer receives.
    Move,
    Leave(SentPacket),
}

/// The end of a run, before its bounds.
#[derive(Debug)]
enum Ending {
    /// Every flow with an end has ended.
    Complete,
    /// The main connection ended before the transfer.
    Lost(CloseReason),
    Failed(String),
}

/// The units of all hosts, and their clients.
struct SubflowWorld {
    setup: Subflows,
    units: Vec<Unit>,
    clients: Vec<SubflowClient>,
    processors: Processors,
    exchange: Exchange,
    entropy: Rng,
    losses: Losses,
    /// The bytes that had arrived when the first flow ended.
    first_over: Option<(Duration, Vec<u64>)>,
    /// How often the active end got another address.
    moved: usize,
    turns: usize,
    ending: Option<Ending>,
}

impl Subflows {
    /// 30 MB over `subflows` subflows of a path of `rate` and `rtt`, with processors that take no
    /// time.
    pub fn new(subflows: u8, rate: Rate, rtt: Duration) -> Self {
        let queue = netblt_path::QueueLimit::bdp(Some(rate), rtt);
        let link =
            LinkOptions { rate: Some(rate), delay: rtt / 2, queue, ..LinkOptions::default() };
        Self {
            seed: 1,
            bytes: 30_000_000,
            subflows,
            pushes: true,
            costs: [Duration::ZERO; 2],
            cores: 32,
            slow: None,
            there: link.clone(),
            back: link,
            buffers: (1 << 16, 64),
            policy: Policy::Fair { ceiling: None },
            beside: Vec::new(),
            beside_bytes: None,
            cuts: Vec::new(),
            moves: Vec::new(),
            datagram_bytes: 1472,
            death_timer: Duration::from_secs(60),
            deadline: Duration::from_secs(600),
        }
    }

    /// Runs it; what went wrong, if anything did.
    pub fn run(self) -> Result<SubflowsOutcome, String> {
        SubflowWorld::new(self).run()
    }
}

fn address(of: [u8; 4], port: u16) -> SocketAddr {
    (of, port).into()
}

impl SubflowWorld {
    fn new(setup: Subflows) -> Self {
        let mut world = Self {
            units: Vec::new(),
            clients: Vec::new(),
            processors: Processors::new(setup.costs, setup.slow, setup.cores),
            exchange: Exchange::new(),
            entropy: Rng::named(setup.seed, "lanes"),
            losses: Losses::new(),
            first_over: None,
            moved: 0,
            turns: 0,
            ending: None,
            setup,
        };
        let (policy, pushes) = (world.setup.policy, world.setup.pushes);
        let bytes = world.setup.bytes;
        world.flow(PORT, policy, pushes, Some(bytes));
        for (at, policy) in world.setup.beside.clone().into_iter().enumerate() {
            world.flow(BESIDE + at as u16 * 100, policy, true, world.setup.beside_bytes);
        }
        world
    }

    fn draw(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        self.entropy.fill(&mut bytes);
        bytes
    }

    fn config(&self, role: Role, port: u16) -> Config {
        let (buffer_bytes, max_outstanding) = self.setup.buffers;
        Config {
            secret: Some(Secret([port as u8; 32])),
            buffer_bytes,
            max_outstanding,
            datagram_bytes: self.setup.datagram_bytes,
            death_timer: self.setup.death_timer,
            ..Config::new(Wire::Sealed, role)
        }
    }

    /// Both ends of a flow, and their clients.
    fn flow(&mut self, port: u16, policy: Policy, pushes: bool, bytes: Option<u64>) {
        for sends in [true, false] {
            let role = if sends { Role::Sender } else { Role::Receiver };
            let config = Config { policy, ..self.config(role, port) };
            let active = sends == pushes;
            let entropy = self.draw();
            let (own, peer) = match active {
                true => (address(ACTIVE, port), address(PASSIVE, port)),
                false => (address(PASSIVE, port), address(ACTIVE, port)),
            };
            let end = match active {
                true => Endpoint::active(config, peer, Instant::EPOCH, entropy),
                false => Endpoint::passive(config, Instant::EPOCH, entropy),
            };
            let (buffer_bytes, stock) = self.setup.buffers;
            let client = match sends {
                true => SubflowClient::Source(ImageSource::new(bytes, buffer_bytes, stock)),
                false => SubflowClient::Sink(ImageSink::new(buffer_bytes, stock)),
            };
            let mut unit = Unit::new(end, own, peer, self.clients.len(), 0, sends, active);
            unit.costs_nothing = bytes.is_none();
            self.clients.push(client);
            self.units.push(unit);
        }
    }

    fn run(mut self) -> Result<SubflowsOutcome, String> {
        let Subflows { seed, there, back, moves, deadline, .. } = &self.setup;
        let paths =
            [Path::new(there.clone(), *seed, "there"), Path::new(back.clone(), *seed, "back")];
        let mut net = Simulator::new(paths, Bounds { deadline: *deadline, steps: MAX_STEPS });
        moves.iter().for_each(|at| net.schedule(Instant::EPOCH + *at, Event::Move));
        let end = net.run(&mut self);
        match (end, self.ending.take()) {
            (_, Some(Ending::Complete)) => self.conclude(&net),
            (_, Some(Ending::Lost(reason))) => self.give_up(&net, reason),
            (_, Some(Ending::Failed(what))) => Err(what),
            (End::Idle, None) => Err(format!("nothing will happen any more at {:?}", net.now())),
            (End::Deadline, None) => {
                Err(format!("not over by the deadline: {}", self.states(net.now())))
            }
            (End::Over | End::Steps | End::Livelock, None) => Err("too many steps".to_owned()),
        }
    }

    /// All that is done at one time. Returns the end of the run, if this is it.
    fn work(&mut self, net: &mut Net) -> Result<Option<Ending>, String> {
        self.exchange.work(net.now(), &mut self.units);
        let count = self.units.len();
        self.turns += 1;
        for at in 0..count {
            // Subflows that share a processor get it in turn.
            self.turn(net, (at + self.turns) % count)?;
        }
        if let Some(reason) = self.losses.take_main() {
            return Ok(Some(Ending::Lost(reason)));
        }
        self.open_subflows(net.now());
        Ok(self.is_complete(net.now()).then_some(Ending::Complete))
    }

    /// Whether every flow with an end has ended.
    fn is_complete(&mut self, now: Instant) -> bool {
        let (mut any, mut all) = (false, true);
        for client in &self.clients {
            if let SubflowClient::Source(source) = client
                && source.has_end()
            {
                any |= source.verified;
                all &= source.verified;
            }
        }
        if any && self.first_over.is_none() {
            self.first_over = Some((now.since(Instant::EPOCH), self.arrived(now)));
        }
        all
    }

    /// IP bytes that have arrived, of each flow.
    fn arrived(&self, now: Instant) -> Vec<u64> {
        let receives = |unit: &&Unit, client: usize| unit.client == client && !unit.sends;
        let ip = |unit: &Unit| {
            let stats = unit.end.stats(now);
            stats.bytes_received + 28 * stats.datagrams_received
        };
        let of =
            |client| self.units.iter().filter(move |unit| receives(unit, client)).map(ip).sum();
        (1..self.clients.len()).step_by(2).map(of).collect()
    }

    fn states(&self, now: Instant) -> String {
        let unit = |unit: &Unit| {
            let stats = unit.end.stats(now);
            let (done, out) = (stats.buffers_done, stats.outstanding);
            format!("[{} {} done {done}, outstanding {out}]", unit.own, unit.subflow)
        };
        self.units.iter().map(unit).collect()
    }

    /// The active end gets another address, and its old one no longer receives.
    fn relocate(&mut self) {
        self.moved += 1;
        let ip = self.active_ip();
        let units = self.units.iter_mut().filter(|unit| unit.active && unit.client < 2);
        units.for_each(|unit| unit.own.set_ip(ip.into()));
    }

    fn active_ip(&self) -> [u8; 4] {
        let [a, b, _, d] = ACTIVE;
        [a, b, self.moved as u8, d]
    }

    fn is_cut(&self, now: Instant, packet: &SubflowPacket) -> bool {
        let subflow = |port: u16| (PORT..BESIDE).contains(&port).then(|| port - PORT);
        let subflow = subflow(packet.from.port()).max(subflow(packet.to.port()));
        let cut = |(of, at): &(u8, Duration)| {
            Some(u16::from(*of)) == subflow && now >= Instant::EPOCH + *at
        };
        self.setup.cuts.iter().any(cut)
    }

    /// Puts an arrival into its socket.
    fn arrive(&mut self, delivery: Delivery<SubflowPacket>) {
        let SubflowPacket { from, to, bytes } = delivery.payload;
        // A subflow's socket at a passive end is connected; all else is the main one's.
        let whole = |unit: &Unit| unit.own == to && unit.peer == from && unit.subflow > 0;
        let subflow = self.units.iter().position(whole);
        let main = || self.units.iter().position(|unit| unit.own == to && unit.subflow == 0);
        if let Some(unit) = subflow.or_else(main).and_then(|at| self.units.get_mut(at)) {
            unit.arrived(Arrived { at: delivery.at, from, ecn: delivery.ecn, bytes });
        }
    }

    /// When a unit has something to do, and a processor for it.
    fn runs_at(&self, now: Instant, unit: &Unit) -> Option<Instant> {
        Some(unit.due(now)?.max(self.processors.free_at(unit)))
    }

    /// One end has its turn, if its processor is free.
    fn turn(&mut self, net: &mut Net, at: usize) -> Result<(), String> {
        let now = net.now();
        let Some(unit) = self.units.get(at) else { return Ok(()) };
        if self.runs_at(now, unit).is_none_or(|runs_at| runs_at > now) {
            return Ok(());
        }
        let cost = self.processors.cost(unit);
        let mut busy = now;
        let Some(unit) = self.units.get_mut(at) else { return Ok(()) };
        for Arrived { at, from, ecn, mut bytes } in unit.batch() {
            busy += cost;
            let meta = RecvMeta { ecn, age: now.since(at), overrun: 0 };
            let datagram = Datagram { from, local: None, meta, bytes: &mut bytes };
            unit.end.handle_datagram(now, datagram);
        }
        if unit.end.next_timeout(now).is_some_and(|due| due <= now) {
            unit.end.handle_timeout(now);
        }
        let client = unit.client;
        self.exchange.stir();
        self.take_events(now, at, client)?;
        if self.gives_up_subflow(now, at) {
            self.take_events(now, at, client)?;
        }
        if let Some(of) = self.clients.get_mut(client) {
            of.feed(now, &mut self.units, client);
        }
        self.put_out(net, at, cost, &mut busy);
        self.processors.occupy(&self.units[at], busy);
        Ok(())
    }

    fn take_events(&mut self, now: Instant, at: usize, client: usize) -> Result<(), String> {
        while let Some(event) = self.units[at].end.poll_event() {
            let Some(client) = self.clients.get_mut(client) else { break };
            client.take(now, &mut self.units, at, event, &mut self.losses)?;
        }
        Ok(())
    }

    /// A subflow on which nothing arrives, while the main connection is alive.
    fn gives_up_subflow(&mut self, now: Instant, at: usize) -> bool {
        let is_main = |unit: &&Unit, of: usize| unit.client == of && unit.subflow == 0;
        let Some(of) = self.units.get(at).map(|unit| unit.client) else { return false };
        let main = self.units.iter().find(|unit| is_main(unit, of));
        let main_is_silent = main.is_some_and(|main| main.silent.is_some());
        let Some(unit) = self.units.get_mut(at).filter(|unit| unit.subflow > 0) else {
            return false;
        };
        let silent = unit.silent.is_some_and(|since| now.since(since) >= PATIENCE);
        let gives_up = silent && !main_is_silent && !unit.gone;
        if gives_up {
            unit.end.forget(now, "the lane is given up");
        }
        gives_up
    }

    /// Sends one burst, as the program does between two reads of its socket.
    fn put_out(&mut self, net: &mut Net, at: usize, cost: Duration, busy: &mut Instant) {
        let mut batch = Vec::new();
        for _ in 0..8 {
            batch.clear();
            let Some(unit) = self.units.get_mut(at) else { return };
            let Some(transmit) = unit.end.poll_transmit(net.now(), &mut batch) else { return };
            let (own, back) = (unit.own, !unit.sends);
            for bytes in batch.chunks(transmit.segment.max(1)) {
                *busy += cost;
                let packet = SubflowPacket { from: own, to: transmit.to, bytes: bytes.to_vec() };
                let sent = SentPacket { back, ecn: transmit.ecn, packet };
                net.schedule(*busy, Event::Leave(sent));
            }
        }
    }

    /// The active end opens subflows, the passive one takes them.
    fn open_subflows(&mut self, now: Instant) {
        if self.setup.subflows < 2 {
            return;
        }
        for at in 0..2 {
            let entropy = self.draw();
            let Some(main) = self.units.get_mut(at).filter(|unit| unit.open && !unit.gone) else {
                continue;
            };
            let (client, sends, active) = (main.client, main.sends, main.active);
            if !active && !std::mem::replace(&mut main.admits, true) {
                main.end.admit_subflows(entropy);
            }
            let calls = active && self.losses.may_call(now) && main.end.subflows_may_begin(now);
            let of = |unit: &&Unit| unit.client == client && unit.subflow > 0 && !unit.gone;
            let live = self.units.iter().filter(of).count();
            let room = live + 1 < usize::from(self.setup.subflows);
            let main = &mut self.units[at].end;
            let subflow = match calls && room {
                true => main.call_subflow(now, entropy),
                false => main.poll_subflow(),
            };
            let Some(Subflow { number, peer, mut end }) = subflow else { continue };
            if !room {
                end.forget(now, "there are enough lanes");
            }
            let own = match active {
                true => address(self.active_ip(), PORT + u16::from(number)),
                false => address(PASSIVE, PORT),
            };
            let unit = Unit::new(end, own, peer.peer, client, number, sends, active);
            self.units.push(unit);
        }
    }

    /// The main connection ended before the transfer.
    fn give_up(self, net: &Net, reason: CloseReason) -> Result<SubflowsOutcome, String> {
        let narrow = net.media().iter().any(|path| path.counters().lost_mtu.packets > 0);
        let host = |role| HostOptions::new(self.config(role, PORT));
        let hosts = [host(Role::Sender), host(Role::Receiver)];
        let [active, passive] = hosts;
        let (there, back) = (self.setup.there.clone(), self.setup.back.clone());
        let moves = self.setup.moves.iter().map(|at| (Side::Active, *at)).collect();
        let setup = Setup { there, back, moves, ..Setup::new(self.setup.seed, 0, active, passive) };
        // A path may be dead for longer than OPENs are repeated: no transfer has begun then.
        let vain = matches!(reason, CloseReason::NoAnswer { .. });
        match vain || narrow || setup.may_stand_still() {
            true => Ok(SubflowsOutcome { gave_up: Some(reason), ..SubflowsOutcome::default() }),
            false => Err(format!("closed: {reason}: {}", self.states(net.now()))),
        }
    }

    fn conclude(mut self, net: &Net) -> Result<SubflowsOutcome, String> {
        let sizes = [Some(self.setup.bytes)].into_iter();
        let sizes = sizes.chain(self.setup.beside.iter().map(|_| self.setup.beside_bytes));
        let sinks = self.clients.iter().filter_map(|client| match client {
            SubflowClient::Sink(sink) => Some(sink),
            SubflowClient::Source(_) => None,
        });
        let mut again = 0;
        for (sink, bytes) in sinks.zip(sizes) {
            if let Some(bytes) = bytes {
                sink.check(bytes, self.setup.buffers.0)?;
                again += sink.again;
            }
        }
        let now = net.now();
        let took = now.since(Instant::EPOCH);
        let main = self.units.iter().filter(|unit| unit.client == 0 && unit.sends);
        let packets = main.map(|unit| unit.end.stats(now).data_packets_sent).collect();
        let arrived = self.arrived(now);
        let arrived_first = self.first_over.take().unwrap_or_default();
        let there = net.media()[0].counters();
        let (entered, dropped) = (there.entered.packets, there.lost_queue.packets);
        Ok(SubflowsOutcome {
            took,
            packets,
            lost: self.losses.subflows(),
            gave_up: None,
            again,
            arrived,
            arrived_first,
            entered,
            dropped,
            goodput: Rate::over(self.setup.bytes, took),
        })
    }
}

impl Nodes<Path<SubflowPacket>, Event> for SubflowWorld {
    /// Packets that processors have finished go onto the path.
    fn handle_events(&mut self, net: &mut Net) {
        while let Some(event) = net.poll_event() {
            match event {
                Event::Move => self.relocate(),
                Event::Leave(SentPacket { packet, .. }) if self.is_cut(net.now(), &packet) => {}
                Event::Leave(SentPacket { back, ecn, packet }) => {
                    let now = net.now();
                    net.medium(usize::from(back)).push(now, 28, ecn, packet);
                }
            }
        }
    }

    fn handle_arrivals(&mut self, net: &mut Net, path: usize) {
        while let Some(delivery) = net.poll_arrival(path) {
            self.arrive(delivery);
        }
    }

    fn handle_timeouts(&mut self, net: &mut Net) {
        self.ending = self.work(net).unwrap_or_else(|what| Some(Ending::Failed(what)));
    }

    fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let units = self.units.iter().map(|unit| self.runs_at(now, unit));
        earliest(units.chain([self.exchange.next()]))
    }

    fn is_over(&self, _: &Net) -> bool {
        self.ending.is_some()
    }
}
