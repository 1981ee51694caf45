//! The virtual loop: two hosts, two paths, one clock that jumps.
//!
//! The same six steps as the real loop, for each host whose time has come:
//!
//! 1. feed from disk: what was read is supplied, what was written is offered again;
//! 2. fire timers;
//! 3. bursts out, onto the path;
//! 4. events out, to the client;
//! 5. wait: the clock jumps to the next time at which anything happens;
//! 6. datagrams in.
//!
//! Nothing here reads a clock, and everything random comes from the seed: the same setup is the
//! same world on every machine. No world is endless: [`Setup::deadline`] and [`Setup::max_steps`]
//! bound it, and reaching either is a finding.

mod arrival;
mod crowd;
mod keys;
mod moves;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use netblt_path::Path;
use netblt_proto::api::{Datagram, Ecn, Event, RecvMeta};
use netblt_proto::config::{Role, RuntimeSettings, Wire};
use netblt_proto::time::{Instant, earliest};
use netblt_proto::wire::sealed::VERSION;

use crate::attacker::Attacker;
use crate::bottleneck::Neighbours;
use crate::check::{Clear, Oracle, kind};
use crate::coverage::{Coverage, Mark};
use crate::host::{Host, Transfer};
use crate::outcome::Outcome;
use crate::packet::{Packet, PacketKind};
pub use crate::setup::{Kill, Setup};
use crate::side::{Pair, Side};
pub use crate::tamper::{Sight, Tamper};
use crate::tamper::{Tampering, ask_all};
use crate::transcript::Transcript;

/// Turns of one host at one instant before that counts as going round in circles.
const MAX_TURNS_AT_ONCE: u32 = 10_000;
/// Batches in one turn: more than any machine may have ready.
const MAX_BATCHES: u32 = 100_000;
/// IP and ICMP headers of an "unreachable", with the datagram's own that it quotes.
const ICMP_BYTES: u32 = 56;
/// Bytes of a NULL-ACK that holds an END (`docs/protocol §3.3`).
const NULL_ACK_WITH_END: usize = 16 + 24 + 48 + 16;
/// Spare datagram buffers kept.
const POOL: usize = 4096;
/// A program that ended without success is started again after this.
const START_AGAIN_AFTER: Duration = Duration::from_secs(1);

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

/// A running world.
pub struct World {
    setup: Setup,
    now: Instant,
    hosts: Pair<Host>,
    /// By the side from which they lead.
    paths: Pair<Path<Packet>>,
    agenda: BTreeMap<(Instant, u64), Happening>,
    scheduled: u64,
    /// How often each end got another address.
    moves: Pair<u16>,
    tampering: Vec<Tampering>,
    attacker: Option<Attacker>,
    neighbours: Neighbours,
    oracle: Oracle,
    transcript: Transcript,
    coverage: Coverage,
    /// First bytes of the newest OPEN and RESPONSE, to know the next ones for repetitions.
    handshakes: Pair<Vec<u8>>,
    /// ENDs sent in this connection.
    ends_said: u64,
    /// The receiver's DONE packet arrived.
    done_arrived: bool,
    pool: Vec<Vec<u8>>,
    batch: Vec<u8>,
    steps: u64,
    turns_at_once: u32,
}

impl World {
    /// A world before its first moment.
    pub fn new(setup: Setup) -> Self {
        let (seed, bytes) = (setup.seed, setup.bytes);
        let Setup { at_least_one, have, greets, .. } = setup;
        let transfer = Transfer { seed, bytes, at_least_one, have, greets };
        let host = |side| Host::new(side, setup.host(side).clone(), transfer);
        let configs = Pair(Side::BOTH.map(|side| &setup.host(side).config));
        let mut world = Self {
            now: Instant::EPOCH,
            hosts: Pair(Side::BOTH.map(host)),
            paths: Pair([
                Path::new(setup.there.clone(), seed, "there"),
                Path::new(setup.back.clone(), seed, "back"),
            ]),
            agenda: BTreeMap::new(),
            scheduled: 0,
            moves: Pair::default(),
            tampering: Vec::new(),
            attacker: setup.attacker.as_ref().map(|options| Attacker::new(options.clone(), seed)),
            neighbours: Neighbours::new(&setup.neighbours, seed),
            oracle: Oracle::new(configs),
            transcript: Transcript::new(setup.transcript),
            coverage: Coverage::default(),
            handshakes: Pair::default(),
            ends_said: 0,
            done_arrived: false,
            pool: Vec::new(),
            batch: Vec::new(),
            steps: 0,
            turns_at_once: 0,
            setup,
        };
        world.schedule_setup();
        world
    }

    /// Lets `tampering` decide about every datagram that leaves.
    #[must_use]
    pub fn tamper(mut self, tampering: impl FnMut(&Sight<'_>) -> Tamper + 'static) -> Self {
        self.tampering.push(Box::new(tampering));
        self
    }

    /// Runs to the end.
    pub fn run(mut self) -> Outcome {
        while self.oracle.finding().is_none() && !self.is_over() {
            self.step();
        }
        self.conclude()
    }

    fn schedule_setup(&mut self) {
        for side in Side::BOTH {
            let at = self.setup.host(side).starts_at;
            self.schedule(Instant::EPOCH + at, Happening::Start(side));
        }
        for kill in self.setup.kills.clone() {
            self.schedule(Instant::EPOCH + kill.at, Happening::Kill(kill));
        }
        for (side, at) in self.setup.moves.clone() {
            self.schedule(Instant::EPOCH + at, Happening::Move(side));
        }
        for (side, at, steering) in self.setup.steers.clone() {
            self.schedule(Instant::EPOCH + at, Happening::Steer(side, steering));
        }
        if let Some((side, at)) = self.setup.quit {
            self.schedule(Instant::EPOCH + at, Happening::Quit(side));
        }
        if let Some(at) = self.attacker.as_mut().and_then(Attacker::next) {
            self.schedule(at, Happening::Attack);
        }
        self.schedule_crowd();
    }

    fn schedule(&mut self, at: Instant, happening: Happening) {
        self.scheduled += 1;
        self.agenda.insert((at, self.scheduled), happening);
    }

    /// Whether no program is left to come back, or only in vain.
    fn is_over(&self) -> bool {
        let sender = &self.hosts[self.setup.sender()];
        let receiver = &self.hosts[sender.side.other()];
        let in_vain = sender.report.starts > 1 && !sender.stood();
        if in_vain && receiver.endpoint.is_none() && receiver.report.done {
            return true;
        }
        if self.coverage.count(Mark::Quit) > 0 && self.next() == Instant::NEVER {
            // No end will open a connection to one that still waits.
            return true;
        }
        let gone = Side::BOTH.iter().all(|side| self.hosts[*side].endpoint.is_none());
        gone && !self.agenda.values().any(|happening| matches!(happening, Happening::Start(_)))
    }

    /// One round: each host whose time has come acts, then the clock jumps, then datagrams come in.
    fn step(&mut self) {
        self.steps += 1;
        for side in Side::BOTH {
            if self.hosts[side].is_due(self.now) {
                self.turn(side);
            }
        }
        if !self.is_over() && self.wait() {
            self.happen();
            self.serve_neighbours();
            self.datagrams_in();
        }
    }

    /// Steps 1 to 4, once.
    fn turn(&mut self, side: Side) {
        self.turns_at_once += 1;
        if self.turns_at_once > MAX_TURNS_AT_ONCE {
            self.oracle.find(self.now, side, "timers that are due stay due for ever");
            return;
        }
        if self.hosts[side].feed(self.now).is_err() {
            self.oracle.find(self.now, side, "a buffer came out that is still in the machine");
        }
        self.hosts[side].fire(self.now);
        self.put_out(side);
    }

    /// Steps 3 and 4.
    fn put_out(&mut self, side: Side) {
        self.bursts_out(side);
        self.events_out(side);
        self.hosts[side].keep_trace();
        self.hosts[side].rewake(self.now);
    }

    fn bursts_out(&mut self, side: Side) {
        for _ in 0..MAX_BATCHES {
            let Some(endpoint) = &mut self.hosts[side].endpoint else { return };
            let mut batch = std::mem::take(&mut self.batch);
            batch.clear();
            let transmit = endpoint.poll_transmit(self.now, &mut batch);
            if let Some(transmit) = transmit {
                let bytes = batch.get(..transmit.len).unwrap_or(&batch);
                self.transcript.sent(self.now, side, transmit.segment, bytes);
                for datagram in bytes.chunks(transmit.segment.max(1)) {
                    self.send(side, transmit.to, transmit.ecn, datagram);
                }
            }
            self.batch = batch;
            if transmit.is_none() {
                return;
            }
        }
        self.oracle.find(self.now, side, "batches without end");
    }

    /// Timers of the other flows run out, and what they send joins the path.
    fn serve_neighbours(&mut self) {
        if self.neighbours.next(self.now).is_none_or(|at| at > self.now) {
            return;
        }
        let sender = self.setup.sender();
        for leaving in self.neighbours.work(self.now) {
            let from = if leaving.back { sender.other() } else { sender };
            let (own, peer) = (self.address(from), self.address(from.other()));
            let packet = Packet::foreign(own, peer, leaving.packet);
            self.paths[from].push(self.now, 0, leaving.ecn, packet);
        }
    }

    /// One datagram leaves.
    fn send(&mut self, side: Side, to: SocketAddr, ecn: Option<Ecn>, bytes: &[u8]) {
        let clear = Clear::read(bytes);
        let lent = (self.hosts[side].lent(), self.hosts[side.other()].lent());
        self.oracle.on_sent(self.now, side, to, bytes, &clear, lent);
        self.note_sent(side, &clear, bytes);
        if let Some(attacker) = &mut self.attacker {
            attacker.see(side, to, bytes);
        }
        if !side.other().may_be_at(to) {
            return;
        }
        if self.moves[side.other()] > 0 && to == self.address(side.other()) {
            self.coverage.see(Mark::Followed, 1);
        }
        let copies = match self.tampered(side, clear, bytes) {
            Tamper::Drop => 0,
            Tamper::Pass => 1,
            Tamper::Twice => 2,
        };
        for _ in 0..copies {
            let mut copy = self.pool.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(bytes);
            let sealed = self.setup.active.config.wire == Wire::Sealed;
            let packet = Packet::datagram(self.address(side), to, copy);
            let packet = if sealed { packet } else { packet.checksummed() };
            let overhead = self.setup.host(side).config.overhead_bytes;
            self.paths[side].push(self.now, overhead, ecn, packet);
        }
    }

    fn tampered(&mut self, from: Side, clear: Clear, bytes: &[u8]) -> Tamper {
        if self.tampering.is_empty() {
            return Tamper::Pass;
        }
        let sender = self.setup.sender();
        let receiver = &self.hosts[sender.other()];
        let sight = Sight {
            now: self.now,
            from,
            bytes,
            clear,
            filled: receiver.filled(),
            judged: receiver.judged(),
            sender_done: self.hosts[sender].report.done,
        };
        ask_all(&mut self.tampering, &sight)
    }

    fn note_sent(&mut self, side: Side, clear: &Clear, bytes: &[u8]) {
        let mark = match clear.kind {
            kind::CONTROL if !self.hosts[side].is_open() => Mark::Greeted,
            kind::DATA | kind::LDATA | kind::CONTROL => return,
            kind::OPEN | kind::RESPONSE => {
                let first = bytes.get(..16).unwrap_or(bytes);
                if self.handshakes[side] != first {
                    self.handshakes[side] = first.to_vec();
                    return;
                }
                if clear.kind == kind::OPEN { Mark::OpenRetried } else { Mark::ResponseRepeated }
            }
            kind::COOKIE => Mark::Cookie,
            kind::REFUSED => Mark::Refused,
            kind::UNKNOWN => Mark::Unknown,
            kind::CHALLENGE => Mark::Challenged,
            kind::NULL_ACK => {
                let says_end = clear.version == VERSION && bytes.len() >= NULL_ACK_WITH_END;
                self.ends_said += u64::from(says_end);
                if says_end && self.ends_said > 1 { Mark::EndRepeated } else { Mark::NullAck }
            }
            kind::KEEPALIVE => Mark::Keepalive,
            kind::ABORT => Mark::Aborted,
            kind::DONE => Mark::DonePacket,
            _ => return,
        };
        self.coverage.see(mark, 1);
    }

    fn events_out(&mut self, side: Side) {
        let mut any = false;
        while let Some(event) = self.hosts[side].endpoint.as_mut().and_then(|e| e.poll_event()) {
            any = true;
            self.transcript.event(self.now, side, &event);
            if let Event::Opened { .. } = event {
                self.ends_said = 0;
                self.coverage.see(Mark::Superseded, u64::from(self.hosts[side].stood()));
                self.check_keys(side);
            }
            if !self.hosts[side].on_event(self.now, event, &mut self.oracle) {
                self.gone(side);
                return;
            }
        }
        if any && !self.hosts[side].stock_is_whole() {
            self.oracle.find(self.now, side, "buffers came into being, or went out of it");
        }
    }

    /// The machine has closed: nothing may follow. The program ends, and perhaps is restarted.
    fn gone(&mut self, side: Side) {
        let host = &mut self.hosts[side];
        if let Some(endpoint) = &mut host.endpoint {
            let speaks = endpoint.poll_transmit(self.now, &mut self.batch).is_some();
            if speaks || endpoint.poll_event().is_some() {
                self.oracle.find(self.now, side, "something followed the last word");
            }
        }
        host.stop(self.now);
        let gave_up = self.coverage.count(Mark::Quit) > 0;
        if !host.report.done && self.setup.persistent && !gave_up {
            self.schedule(self.now + START_AGAIN_AFTER, Happening::Start(side));
        }
    }

    /// When something happens next.
    fn next(&self) -> Instant {
        let runs_at = |side: Side, at: Instant| self.hosts[side].runs_at(at.max(self.now));
        let wakes = Side::BOTH.map(|side| Some(runs_at(side, self.hosts[side].wake)));
        let arrivals = Side::BOTH.map(|from| Some(runs_at(from.other(), self.paths[from].next()?)));
        let happening = self.agenda.keys().next().map(|(at, _)| *at);
        let others = self.neighbours.next(self.now).map(|at| at.max(self.now));
        let next = earliest(wakes.into_iter().chain(arrivals).chain([happening, others]));
        next.unwrap_or(Instant::NEVER)
    }

    /// Step 5: jumps to when something happens next. False when that was too long, or for ever.
    fn wait(&mut self) -> bool {
        let next = self.next();
        let problem = if next == Instant::NEVER {
            "nothing will ever happen again"
        } else if next > Instant::EPOCH + self.setup.deadline {
            "not over by the deadline"
        } else if self.steps >= self.setup.max_steps {
            "too many steps"
        } else {
            if next > self.now {
                self.now = next;
                self.turns_at_once = 0;
            }
            return true;
        };
        let states = self.states();
        self.oracle.find(self.now, None, format!("{problem}: {states}"));
        false
    }

    /// The states of both ends, for a violation without a culprit.
    fn states(&self) -> String {
        let state = |side: Side| {
            let host = &self.hosts[side];
            let life = match (&host.endpoint, &host.report.closed) {
                (Some(_), _) => "running".to_owned(),
                (None, Some(reason)) => format!("closed ({reason})"),
                (None, None) => "not running".to_owned(),
            };
            let Some(endpoint) = &host.endpoint else { return format!("{side} {life}") };
            let stats = endpoint.stats(self.now);
            format!(
                "{side} {life}, {} openings, {} buffers done, {} outstanding",
                host.report.openings, stats.buffers_done, stats.outstanding
            )
        };
        let [active, passive] = Side::BOTH.map(state);
        format!("{active}; {passive}")
    }

    /// The events of the world itself.
    fn happen(&mut self) {
        while let Some(entry) = self.agenda.first_entry() {
            if entry.key().0 > self.now {
                return;
            }
            match entry.remove() {
                Happening::Start(side) => self.start(side),
                Happening::Kill(kill) => self.kill(kill),
                Happening::Quit(side) => self.quit(side),
                Happening::Move(side) => self.relocate(side),
                Happening::Steer(side, steering) => self.steer(side, steering),
                Happening::Attack => self.attack(),
                Happening::Stray(from, open) => {
                    let meta = RecvMeta::default();
                    self.receive(Side::Passive, from, meta, open, Origin::Stale);
                }
            }
        }
    }

    fn start(&mut self, side: Side) {
        if self.hosts[side].endpoint.is_some() {
            return;
        }
        self.transcript.happening(self.now, side, "start");
        self.oracle.on_started(side);
        if self.hosts[side].start(self.now).is_err() {
            self.oracle.find(self.now, side, "a new program's buffers are not its own");
        }
    }

    /// Kills a program unless the transfer is all but over: a verdict that has not arrived is lost
    /// with its end, and no protocol can help that.
    fn kill(&mut self, kill: Kill) {
        let sender = self.setup.sender();
        let settled = self.hosts[sender].report.done || self.hosts[sender.other()].complete();
        if settled || self.hosts[kill.side].endpoint.is_none() {
            return;
        }
        self.transcript.happening(self.now, kill.side, "kill");
        self.hosts[kill.side].stop(self.now);
        let role = self.setup.host(kill.side).config.role;
        let mark = if role == Role::Sender { Mark::SenderKilled } else { Mark::ReceiverKilled };
        self.coverage.see(mark, 1);
        self.schedule(self.now + kill.down, Happening::Start(kill.side));
    }

    fn quit(&mut self, side: Side) {
        if self.hosts[side].report.done {
            return;
        }
        let Some(endpoint) = &mut self.hosts[side].endpoint else { return };
        self.transcript.happening(self.now, side, "quit");
        endpoint.quit(self.now, "the world asked for it");
        self.coverage.see(Mark::Quit, 1);
        self.put_out(side);
    }

    fn attack(&mut self) {
        let Some(attacker) = &mut self.attacker else { return };
        let shots = attacker.act();
        let next = attacker.next();
        for shot in shots {
            self.coverage.see(Mark::Attack, 1);
            // Packets that would have left anyway must not look like an answer.
            self.turn(shot.to);
            while self.hosts[shot.to].wake <= self.now && self.oracle.finding().is_none() {
                self.turn(shot.to);
            }
            let origin = if shot.stale { Origin::Stale } else { Origin::Copy };
            let from = self.current_address(shot.from);
            self.receive(shot.to, from, RecvMeta::default(), shot.bytes, origin);
        }
        if let Some(at) = next {
            self.schedule(at, Happening::Attack);
        }
    }

    /// Step 6.
    fn datagrams_in(&mut self) {
        for from in Side::BOTH {
            let (to, waits) =
                (from.other(), self.paths[from].next().is_some_and(|at| at <= self.now));
            if !waits || self.hosts[to].runs_at(self.now) > self.now {
                self.coverage.see(Mark::Starved, u64::from(waits));
                continue;
            }
            let mut waiting = 0;
            while let Some(delivery) = self.paths[from].pop(self.now) {
                let packet = delivery.payload;
                if !self.is_at(to, packet.to) {
                    self.coverage.see(Mark::Misdirected, 1);
                    continue;
                }
                match packet.kind {
                    PacketKind::Datagram => {
                        let age = self.now.since(delivery.at);
                        if !age.is_zero() {
                            waiting += packet.bytes.len();
                        }
                        if !self.hosts[to].has_room(waiting) {
                            continue;
                        }
                        let spoiled = delivery.corrupted;
                        let origin = if spoiled { Origin::Spoiled } else { Origin::True };
                        let overrun = self.hosts[to].overrun();
                        let meta = RecvMeta { ecn: delivery.ecn, age, overrun };
                        self.receive(to, packet.from, meta, packet.bytes, origin);
                    }
                    PacketKind::Unreachable => self.unreachable(to, &packet.bytes),
                    PacketKind::Foreign(packet) => {
                        self.neighbours.arrived(self.now, &packet, delivery.ecn);
                    }
                }
            }
        }
    }

    /// A datagram arrives at `side`.
    fn receive(
        &mut self,
        side: Side,
        from: SocketAddr,
        meta: RecvMeta,
        mut bytes: Vec<u8>,
        origin: Origin,
    ) {
        let stale = matches!(origin, Origin::Stale);
        if stale {
            // The pending packets of a suspended host are no answer.
            self.turn(side);
        }
        if self.hosts[side].endpoint.is_none() {
            if self.setup.icmp && side.other().may_be_at(from) {
                let packet = Packet::unreachable(self.address(side), from, bytes);
                self.paths[side].push(self.now, ICMP_BYTES, None, packet);
            }
            return;
        }
        self.oracle.on_received(side, from, &bytes);
        self.done_arrived |= bytes.get(3) == Some(&kind::DONE);
        if stale {
            self.oracle.begin_answer(side, bytes.len());
        }
        self.hand_over(side, origin, Datagram { from, local: None, meta, bytes: &mut bytes });
        self.put_out(side);
        self.oracle.end_answer(self.now);
        if self.pool.len() < POOL {
            self.pool.push(bytes);
        }
    }

    fn unreachable(&mut self, side: Side, quote: &[u8]) {
        let Some(endpoint) = &mut self.hosts[side].endpoint else { return };
        self.transcript.happening(self.now, side, "unreachable");
        self.coverage.see(Mark::Unreachable, 1);
        endpoint.handle_unreachable(self.now, quote);
        self.put_out(side);
    }

    /// Closes the books.
    fn conclude(mut self) -> Outcome {
        for side in Side::BOTH {
            self.hosts[side].stop(self.now);
            if !self.paths[side].counters().balance() {
                self.oracle.find(self.now, side, "the books of the path do not balance");
            }
        }
        let dallied = self.hosts[self.setup.sender()].report.dallied;
        if dallied.is_some() && !self.done_arrived {
            self.coverage.see(Mark::Dallied, 1);
        }
        let paths = Side::BOTH.map(|side| *self.paths[side].counters());
        Outcome::new(
            self.setup,
            self.now,
            self.hosts.0.map(|host| host.report),
            paths,
            self.coverage,
            self.oracle.into_finding(),
            self.transcript.finish(),
        )
    }
}
