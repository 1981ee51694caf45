//! The two-host world: a whole transfer between two hosts, over a path each way.
//!
//! Its hosts are the nodes of an [`Simulator`]. Each takes the steps of the real loop:
//!
//! 1. feed from disk: what was read is supplied, what was written is offered again;
//! 2. fire timers;
//! 3. bursts out, onto the path;
//! 4. events out, to the client;
//! 5. wait: the simulator's clock jumps to the next time at which anything happens;
//! 6. datagrams in.
//!
//! Nothing here reads a clock, and everything random comes from the seed: the same setup is the
//! same world on every machine. No world is endless: [`Setup::deadline`] and [`Setup::max_steps`]
//! bound it, and reaching either is a finding.

use std::net::SocketAddr;
use std::time::Duration;

use netblt_path::Path;
use netblt_path::rng::Rng;
use netblt_proto::api::{Datagram, Ecn, Event, RecvMeta};
use netblt_proto::config::{Role, RuntimeSettings, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::{Instant, earliest};

use crate::addresses::Addresses;
use crate::attacker::Attacker;
use crate::bottleneck::Neighbours;
use crate::check::{Clear, Oracle};
use crate::coverage::Mark;
use crate::host::{Host, Transfer};
use crate::marks::Marks;
use crate::outcome::Outcome;
use crate::packet::{Packet, PacketKind, Pool};
pub use crate::setup::{Kill, Setup};
use crate::side::{Pair, Side};
use crate::simulator::{Bounds, End, Nodes, Simulator};
pub use crate::tamper::{Sight, Tamper};
use crate::tamper::{Tampering, ask_all};
use crate::transcript::Transcript;

/// Turns of one host before a datagram of an attacker, which counts as going round in circles.
const MAX_TURNS: u32 = 10_000;
/// The finding of hosts that never wait.
const STUCK: &str = "timers that are due stay due for ever";
/// Batches in one turn: more than any machine may have ready.
const MAX_BATCHES: u32 = 100_000;
/// IP and ICMP headers of an "unreachable", with the datagram's own that it quotes.
const ICMP_BYTES: u32 = 56;
/// A program that ended without success is started again after this.
const START_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The clock, the events and the paths, each by the side from which it leads.
type Net = Simulator<Path<Packet>, Happening>;

/// The origin of an arriving datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// It took the path.
    True,
    /// It took the path, and bits flipped.
    Spoiled,
    /// It was sent by the attacker, and is true.
    Copy,
    /// It was sent by the attacker, and carries no news.
    Stale,
}

/// Something the world does at a set time.
#[derive(Clone, Debug)]
enum Happening {
    Start(Side),
    Kill(Kill),
    Quit(Side),
    Move(Side),
    Steer(Side, RuntimeSettings),
    Attack,
    Stray(SocketAddr, Vec<u8>),
}

/// A world before its first moment.
pub struct World {
    setup: Setup,
    hosts: Pair<Host>,
    addresses: Addresses,
    tampering: Vec<Tampering>,
    attacker: Option<Attacker>,
    neighbours: Neighbours,
    oracle: Oracle,
    transcript: Transcript,
    marks: Marks,
    pool: Pool,
    batch: Vec<u8>,
}

impl World {
    /// The world of `setup`.
    pub fn new(setup: Setup) -> Self {
        let (seed, bytes) = (setup.seed, setup.bytes);
        let Setup { at_least_one, have, greets, .. } = setup;
        let transfer = Transfer { seed, bytes, at_least_one, have, greets };
        let host = |side| Host::new(side, setup.host(side).clone(), transfer);
        let configs = Pair(Side::BOTH.map(|side| &setup.host(side).config));
        Self {
            hosts: Pair(Side::BOTH.map(host)),
            addresses: Addresses::default(),
            tampering: Vec::new(),
            attacker: setup.attacker.as_ref().map(|options| Attacker::new(options.clone(), seed)),
            neighbours: Neighbours::new(&setup.neighbours, seed),
            oracle: Oracle::new(configs),
            transcript: Transcript::new(setup.transcript),
            marks: Marks::default(),
            pool: Pool::default(),
            batch: Vec::new(),
            setup,
        }
    }

    /// Lets `tampering` decide about every datagram that leaves.
    #[must_use]
    pub fn tamper(mut self, tampering: impl FnMut(&Sight<'_>) -> Tamper + 'static) -> Self {
        self.tampering.push(Box::new(tampering));
        self
    }

    /// Runs to the end.
    pub fn run(mut self) -> Outcome {
        let Setup { seed, there, back, deadline, max_steps, .. } = &self.setup;
        let paths =
            [Path::new(there.clone(), *seed, "there"), Path::new(back.clone(), *seed, "back")];
        let mut net = Simulator::new(paths, Bounds { deadline: *deadline, steps: *max_steps });
        self.schedule(&mut net);
        let end = net.run(&mut self);
        self.conclude(&net, end)
    }

    /// Everything that happens at a time of the setup.
    fn schedule(&mut self, net: &mut Net) {
        let setup = &self.setup;
        let mut at = |at: Duration, happening| net.schedule(Instant::EPOCH + at, happening);
        for side in Side::BOTH {
            at(setup.host(side).starts_at, Happening::Start(side));
        }
        for kill in &setup.kills {
            at(kill.at, Happening::Kill(*kill));
        }
        for (side, moved) in &setup.moves {
            at(*moved, Happening::Move(*side));
        }
        for (side, steered, steering) in &setup.steers {
            at(*steered, Happening::Steer(*side, *steering));
        }
        if let Some((side, quit)) = setup.quit {
            at(quit, Happening::Quit(side));
        }
        if let Some(first) = self.attacker.as_mut().and_then(Attacker::next) {
            net.schedule(first, Happening::Attack);
        }
        self.schedule_crowd(net);
    }

    /// Other peers with the same secret open as well, and then send nothing more.
    fn schedule_crowd(&self, net: &mut Net) {
        let mut rng = Rng::named(self.setup.seed, "crowd");
        for n in 0..self.setup.crowd {
            let from = SocketAddr::from(([203, 0, 113, 100 + n % 100], 1000 + u16::from(n)));
            let mut entropy = [0; 32];
            rng.fill(&mut entropy);
            let at = Instant::EPOCH + self.setup.passive.starts_at;
            let at = at + Duration::from_nanos(rng.below(100_000_000));
            let config = self.setup.active.config.clone();
            let mut other = Endpoint::active(config, Side::Passive.address(), at, entropy);
            let mut open = Vec::new();
            other.poll_transmit(at, &mut open);
            net.schedule(at, Happening::Stray(from, open));
        }
    }

    /// Whether no program is left to come back, or only in vain.
    fn is_vain(&self, net: &Net) -> bool {
        let sender = &self.hosts[self.setup.sender()];
        let receiver = &self.hosts[sender.side.other()];
        let in_vain = sender.report.starts > 1 && !sender.stood();
        if in_vain && receiver.endpoint.is_none() && receiver.report.done {
            return true;
        }
        let gone = Side::BOTH.iter().all(|side| self.hosts[*side].endpoint.is_none());
        gone && !net.events().any(|happening| matches!(happening, Happening::Start(_)))
    }

    /// Steps 1 to 4, once.
    fn turn(&mut self, net: &mut Net, side: Side) {
        let now = net.now();
        if self.hosts[side].feed(now).is_err() {
            self.oracle.find(now, side, "a buffer came out that is still in the machine");
        }
        self.hosts[side].fire(now);
        self.put_out(net, side);
    }

    /// Steps 3 and 4.
    fn put_out(&mut self, net: &mut Net, side: Side) {
        self.bursts_out(net, side);
        self.events_out(net, side);
        self.hosts[side].keep_trace();
        self.hosts[side].rewake(net.now());
    }

    fn bursts_out(&mut self, net: &mut Net, side: Side) {
        let now = net.now();
        for _ in 0..MAX_BATCHES {
            let Some(endpoint) = &mut self.hosts[side].endpoint else { return };
            let mut batch = std::mem::take(&mut self.batch);
            batch.clear();
            let transmit = endpoint.poll_transmit(now, &mut batch);
            if let Some(transmit) = transmit {
                let bytes = batch.get(..transmit.len).unwrap_or(&batch);
                self.transcript.sent(now, side, transmit.segment, bytes);
                for datagram in bytes.chunks(transmit.segment.max(1)) {
                    self.send(net, side, transmit.to, transmit.ecn, datagram);
                }
            }
            self.batch = batch;
            if transmit.is_none() {
                return;
            }
        }
        self.oracle.find(now, side, "batches without end");
    }

    /// Timers of the other flows run out, and what they send joins the path.
    fn serve_neighbours(&mut self, net: &mut Net) {
        let now = net.now();
        if self.neighbours.next(now).is_none_or(|at| at > now) {
            return;
        }
        let sender = self.setup.sender();
        for leaving in self.neighbours.work(now) {
            let from = if leaving.back { sender.other() } else { sender };
            let (own, peer) = (self.addresses.of(from), self.addresses.of(from.other()));
            let packet = Packet::foreign(own, peer, leaving.packet);
            net.medium(from as usize).push(now, 0, leaving.ecn, packet);
        }
    }

    /// One datagram leaves.
    fn send(&mut self, net: &mut Net, side: Side, to: SocketAddr, ecn: Option<Ecn>, bytes: &[u8]) {
        let now = net.now();
        let clear = Clear::read(bytes);
        let lent = (self.hosts[side].lent(), self.hosts[side.other()].lent());
        self.oracle.on_sent(now, side, to, bytes, &clear, lent);
        self.marks.on_sent(side, &clear, bytes, self.hosts[side].is_open());
        if let Some(attacker) = &mut self.attacker {
            attacker.see(side, to, bytes);
        }
        if !side.other().may_be_at(to) {
            return;
        }
        if self.addresses.has_moved(side.other()) && to == self.addresses.of(side.other()) {
            self.marks.see(Mark::Followed, 1);
        }
        let copies = match self.tampered(now, side, clear, bytes) {
            Tamper::Drop => 0,
            Tamper::Pass => 1,
            Tamper::Twice => 2,
        };
        for _ in 0..copies {
            let sealed = self.setup.active.config.wire == Wire::Sealed;
            let packet = Packet::datagram(self.addresses.of(side), to, self.pool.copy(bytes));
            let packet = if sealed { packet } else { packet.checksummed() };
            let overhead = self.setup.host(side).config.overhead_bytes;
            net.medium(side as usize).push(now, overhead, ecn, packet);
        }
    }

    fn tampered(&mut self, now: Instant, from: Side, clear: Clear, bytes: &[u8]) -> Tamper {
        if self.tampering.is_empty() {
            return Tamper::Pass;
        }
        let sender = self.setup.sender();
        let receiver = &self.hosts[sender.other()];
        let sight = Sight {
            now,
            from,
            bytes,
            clear,
            filled: receiver.filled(),
            judged: receiver.judged(),
            sender_done: self.hosts[sender].report.done,
        };
        ask_all(&mut self.tampering, &sight)
    }

    fn events_out(&mut self, net: &mut Net, side: Side) {
        let now = net.now();
        let mut any = false;
        while let Some(event) = self.hosts[side].endpoint.as_mut().and_then(|e| e.poll_event()) {
            any = true;
            self.transcript.event(now, side, &event);
            if let Event::Opened { .. } = event {
                self.marks.on_opened(self.hosts[side].stood());
                self.check_keys(now, side);
            }
            if !self.hosts[side].on_event(now, event, &mut self.oracle) {
                self.gone(net, side);
                return;
            }
        }
        if any && !self.hosts[side].stock_is_whole() {
            self.oracle.find(now, side, "buffers came into being, or went out of it");
        }
    }

    /// An end that opens by keys knows the key of the other end.
    fn check_keys(&mut self, now: Instant, side: Side) {
        let expected = self.setup.keys.map(|[active, passive]| match side {
            Side::Active => passive,
            Side::Passive => active,
        });
        let proven = self.hosts[side].endpoint.as_ref().and_then(|end| end.peer_key());
        if proven != expected {
            let what = format!("its peer's key is {proven:?} and not {expected:?}");
            self.oracle.find(now, side, what);
        }
        self.marks.see(Mark::ByKeys, u64::from(proven.is_some()));
    }

    /// The machine has closed: nothing may follow. The program ends, and perhaps is restarted.
    fn gone(&mut self, net: &mut Net, side: Side) {
        let now = net.now();
        let host = &mut self.hosts[side];
        if let Some(endpoint) = &mut host.endpoint {
            let speaks = endpoint.poll_transmit(now, &mut self.batch).is_some();
            if speaks || endpoint.poll_event().is_some() {
                self.oracle.find(now, side, "something followed the last word");
            }
        }
        host.stop(now);
        if !host.report.done && self.setup.persistent && !self.marks.has(Mark::Quit) {
            net.schedule(now + START_AGAIN_AFTER, Happening::Start(side));
        }
    }

    /// The states of both ends, for a violation without a culprit.
    fn states(&self, now: Instant) -> String {
        let state = |side: Side| {
            let host = &self.hosts[side];
            let life = match (&host.endpoint, &host.report.closed) {
                (Some(_), _) => "running".to_owned(),
                (None, Some(reason)) => format!("closed ({reason})"),
                (None, None) => "not running".to_owned(),
            };
            let Some(endpoint) = &host.endpoint else { return format!("{side} {life}") };
            let stats = endpoint.stats(now);
            format!(
                "{side} {life}, {} openings, {} buffers done, {} outstanding",
                host.report.openings, stats.buffers_done, stats.outstanding
            )
        };
        let [active, passive] = Side::BOTH.map(state);
        format!("{active}; {passive}")
    }

    fn happen(&mut self, net: &mut Net, happening: Happening) {
        match happening {
            Happening::Start(side) => self.start(net.now(), side),
            Happening::Kill(kill) => self.kill(net, kill),
            Happening::Quit(side) => self.quit(net, side),
            Happening::Move(side) => self.relocate(net.now(), side),
            Happening::Steer(side, steering) => self.steer(net, side, steering),
            Happening::Attack => self.attack(net),
            Happening::Stray(from, open) => {
                let meta = RecvMeta::default();
                self.receive(net, Side::Passive, from, meta, open, Origin::Stale);
            }
        }
    }

    fn start(&mut self, now: Instant, side: Side) {
        if self.hosts[side].endpoint.is_some() {
            return;
        }
        self.transcript.happening(now, side, "start");
        self.oracle.on_started(side);
        if self.hosts[side].start(now).is_err() {
            self.oracle.find(now, side, "a new program's buffers are not its own");
        }
    }

    /// Kills a program unless the transfer is all but over: a verdict that has not arrived is lost
    /// with its end, and no protocol can help that.
    fn kill(&mut self, net: &mut Net, kill: Kill) {
        let now = net.now();
        let sender = self.setup.sender();
        let settled = self.hosts[sender].report.done || self.hosts[sender.other()].complete();
        if settled || self.hosts[kill.side].endpoint.is_none() {
            return;
        }
        self.transcript.happening(now, kill.side, "kill");
        self.hosts[kill.side].stop(now);
        let role = self.setup.host(kill.side).config.role;
        let mark = if role == Role::Sender { Mark::SenderKilled } else { Mark::ReceiverKilled };
        self.marks.see(mark, 1);
        net.schedule(now + kill.down, Happening::Start(kill.side));
    }

    fn quit(&mut self, net: &mut Net, side: Side) {
        if self.hosts[side].report.done {
            return;
        }
        let Some(endpoint) = &mut self.hosts[side].endpoint else { return };
        self.transcript.happening(net.now(), side, "quit");
        endpoint.quit(net.now(), "the world asked for it");
        self.marks.see(Mark::Quit, 1);
        self.put_out(net, side);
    }

    fn relocate(&mut self, now: Instant, side: Side) {
        if self.hosts[side].endpoint.is_none() {
            return;
        }
        self.transcript.happening(now, side, "move");
        self.marks.see(Mark::Moved, 1);
        self.addresses.relocate(side);
    }

    /// The client of `side` changes its steering.
    fn steer(&mut self, net: &mut Net, side: Side, steering: RuntimeSettings) {
        let Some(endpoint) = &mut self.hosts[side].endpoint else { return };
        self.transcript.happening(net.now(), side, "steer");
        endpoint.steer(net.now(), steering);
        self.put_out(net, side);
    }

    fn attack(&mut self, net: &mut Net) {
        let Some(attacker) = &mut self.attacker else { return };
        let shots = attacker.act();
        let next = attacker.next();
        for shot in shots {
            self.marks.see(Mark::Attack, 1);
            // Packets that would have left anyway must not look like an answer.
            self.settle(net, shot.to);
            let origin = if shot.stale { Origin::Stale } else { Origin::Copy };
            let from = self.addresses.current(shot.from);
            self.receive(net, shot.to, from, RecvMeta::default(), shot.bytes, origin);
        }
        if let Some(at) = next {
            net.schedule(at, Happening::Attack);
        }
    }

    /// Everything that is due at `side` is done.
    fn settle(&mut self, net: &mut Net, side: Side) {
        for _ in 0..MAX_TURNS {
            self.turn(net, side);
            if self.hosts[side].wake > net.now() || self.oracle.finding().is_some() {
                return;
            }
        }
        self.oracle.find(net.now(), side, STUCK);
    }

    /// A datagram arrives at `side`.
    fn receive(
        &mut self,
        net: &mut Net,
        side: Side,
        from: SocketAddr,
        meta: RecvMeta,
        mut bytes: Vec<u8>,
        origin: Origin,
    ) {
        let stale = matches!(origin, Origin::Stale);
        if stale {
            // The pending packets of a suspended host are no answer.
            self.turn(net, side);
        }
        let now = net.now();
        if self.hosts[side].endpoint.is_none() {
            if self.setup.icmp && side.other().may_be_at(from) {
                let packet = Packet::unreachable(self.addresses.of(side), from, bytes);
                net.medium(side as usize).push(now, ICMP_BYTES, None, packet);
            }
            return;
        }
        self.oracle.on_received(side, from, &bytes);
        self.marks.on_received(&bytes);
        if stale {
            self.oracle.begin_answer(side, bytes.len());
        }
        self.hand_over(now, side, origin, Datagram { from, local: None, meta, bytes: &mut bytes });
        self.put_out(net, side);
        self.oracle.end_answer(now);
        self.pool.give(bytes);
    }

    /// Gives `datagram` to the machine of `side`. An attacker sees what took the path, and learns
    /// from the world whether it was dropped.
    fn hand_over(&mut self, now: Instant, side: Side, origin: Origin, datagram: Datagram<'_>) {
        let Some(endpoint) = &mut self.hosts[side].endpoint else { return };
        let took_the_path = matches!(origin, Origin::True | Origin::Spoiled);
        let Some(attacker) = self.attacker.as_mut().filter(|_| took_the_path) else {
            endpoint.handle_datagram(now, datagram);
            return;
        };
        attacker.arrived(side, datagram.bytes);
        let before = endpoint.stats(now).datagrams_dropped;
        endpoint.handle_datagram(now, datagram);
        if endpoint.stats(now).datagrams_dropped > before {
            attacker.dropped(side);
        }
    }

    fn unreachable(&mut self, net: &mut Net, side: Side, quote: &[u8]) {
        let Some(endpoint) = &mut self.hosts[side].endpoint else { return };
        self.transcript.happening(net.now(), side, "unreachable");
        self.marks.see(Mark::Unreachable, 1);
        endpoint.handle_unreachable(net.now(), quote);
        self.put_out(net, side);
    }

    /// Closes the books.
    fn conclude(mut self, net: &Net, end: End) -> Outcome {
        let now = net.now();
        let problem = match end {
            End::Over => None,
            // No end will open a connection to one that still waits.
            End::Idle if self.marks.has(Mark::Quit) => None,
            End::Idle => Some("nothing will ever happen again"),
            End::Deadline => Some("not over by the deadline"),
            End::Steps => Some("too many steps"),
            End::Livelock => Some(STUCK),
        };
        if let Some(problem) = problem {
            let states = self.states(now);
            self.oracle.find(now, None, format!("{problem}: {states}"));
        }
        let paths = net.media();
        for (side, path) in Side::BOTH.into_iter().zip(paths) {
            self.hosts[side].stop(now);
            if !path.counters().balance() {
                self.oracle.find(now, side, "the books of the path do not balance");
            }
        }
        let dallied = self.hosts[self.setup.sender()].report.dallied;
        let paths = Side::BOTH.map(|side| *paths[side as usize].counters());
        Outcome::new(
            self.setup,
            now,
            self.hosts.0.map(|host| host.report),
            paths,
            self.marks.finish(dallied.is_some()),
            self.oracle.into_finding(),
            self.transcript.finish(),
        )
    }
}

impl Nodes<Path<Packet>, Happening> for World {
    /// Other flows on the paths send before anything arrives.
    fn handle_events(&mut self, net: &mut Net) {
        while let Some(happening) = net.poll_event() {
            self.happen(net, happening);
        }
        self.serve_neighbours(net);
    }

    /// Step 6.
    fn handle_arrivals(&mut self, net: &mut Net, path: usize) {
        let now = net.now();
        let to = Side::BOTH[path].other();
        let waits = net.media()[path].next().is_some_and(|at| at <= now);
        if !waits || self.hosts[to].runs_at(now) > now {
            self.marks.see(Mark::Starved, u64::from(waits));
            return;
        }
        let mut waiting = 0;
        while let Some(delivery) = net.poll_arrival(path) {
            let packet = delivery.payload;
            if !self.addresses.reaches(to, packet.to) {
                self.marks.see(Mark::Misdirected, 1);
                continue;
            }
            match packet.kind {
                PacketKind::Datagram => {
                    let age = now.since(delivery.at);
                    if !age.is_zero() {
                        waiting += packet.bytes.len();
                    }
                    if !self.hosts[to].has_room(waiting) {
                        continue;
                    }
                    let origin = if delivery.corrupted { Origin::Spoiled } else { Origin::True };
                    let overrun = self.hosts[to].overrun();
                    let meta = RecvMeta { ecn: delivery.ecn, age, overrun };
                    self.receive(net, to, packet.from, meta, packet.bytes, origin);
                }
                PacketKind::Unreachable => self.unreachable(net, to, &packet.bytes),
                PacketKind::Foreign(packet) => {
                    self.neighbours.arrived(now, &packet, delivery.ecn);
                }
            }
        }
    }

    /// Steps 1 to 4 of each host whose time has come, the active one first.
    fn handle_timeouts(&mut self, net: &mut Net) {
        if self.is_over(net) {
            return;
        }
        for side in Side::BOTH {
            if self.hosts[side].is_due(net.now()) {
                self.turn(net, side);
            }
        }
    }

    fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let wakes = self.hosts.0.iter().map(|host| Some(host.runs_at(host.wake.max(now))));
        earliest(wakes.chain([self.neighbours.next(now)]))
    }

    fn takes_at(&self, path: usize, at: Instant) -> Instant {
        self.hosts[Side::BOTH[path].other()].runs_at(at)
    }

    fn is_over(&self, net: &Net) -> bool {
        self.oracle.finding().is_some() || self.is_vain(net)
    }
}
