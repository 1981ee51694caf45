//! Pairs of hosts that share a network card at each end and the network between them: the nodes of
//! a [`Simulator`].
//!
//! A processor does one thing at a time: it receives a packet, sends one, or runs its machine and
//! client, which takes no time. The programs' data are not simulated: a packet of data has
//! [`CARRIED_BYTES`] and counts, in rates and on the wire, as the size it models.

use std::collections::VecDeque;
use std::time::Duration;

use netblt_path::{LinkOptions, Path, Payload};
use netblt_proto::api::{Datagram, Ecn, Event};
use netblt_proto::config::Config;
use netblt_proto::stats::Stats;
use netblt_proto::time::Instant;
use netblt_sim::check::{Oracle, kind};
use netblt_sim::host::{Host, HostOptions, Transfer};
use netblt_sim::side::{Pair, Side};
use netblt_sim::simulator::{Bounds, Nodes, Simulator};

use crate::model::{
    FRAME_BYTES, FULL_CARD, HEADER_BYTES, PACKET_CPU_TIME, RECEIVE_BUFFER, RING, ROUND_TRIP,
    SEND_BUFFER,
};

/// Data bytes in a simulated packet of data, whatever size it models.
pub(crate) const CARRIED_BYTES: u32 = 128;
/// Limit on the steps of one world.
const MAX_STEPS: u64 = 50_000_000;
/// Limit on rounds between machine and client at one instant; more is a livelock.
const MAX_ROUNDS: u32 = 1000;
/// Poll interval of a sender that waits for its card: about a packet's time.
const CARD_POLL_INTERVAL: Duration = Duration::from_micros(120);

/// A program's behaviour apart from its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Behaviour {
    /// Size of a packet of data on the wire, frames and fragments included.
    pub(crate) wire_bytes: u32,
    /// The program does not wait for its card: a packet that finds no room there is lost.
    pub(crate) overruns: bool,
    /// The host notifies the program when its card has no room, as Linux notifies TCP. Modelled by
    /// a mark on the packet that found no room. The notified sender slows down, which takes effect
    /// a round trip later, so there is at most one notification in a round trip.
    pub(crate) full_card_mark: bool,
    /// Time to write each new packet, where packets are written one by one.
    pub(crate) write: Duration,
    /// Buffers read or written at once, and the time it takes; the program does nothing else
    /// meanwhile.
    pub(crate) chunk: Option<(u64, Duration)>,
}

/// A packet in transit.
#[derive(Clone, Debug)]
struct Packet {
    pair: usize,
    /// Bytes on the wire beyond the packet's own.
    overhead: u32,
    bytes: Vec<u8>,
}

impl Payload for Packet {
    fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn flip_bit(&mut self, _bit: usize) {}
}

/// Result of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// First problem, if any.
    pub(crate) problem: Option<String>,
    /// Time from the sender's start to its success.
    pub(crate) time: Duration,
    pub(crate) sent: Stats,
    pub(crate) received: Stats,
    /// New packets of data received in the window of [`Lab::measure`].
    pub(crate) measured: u64,
}

/// A host with its processor and its sockets.
struct Station {
    host: Host,
    behaviour: Behaviour,
    /// The card of its own, if it is a sender that has one, among the media.
    card: Option<usize>,
    /// Until when the processor is busy.
    busy: Instant,
    to_send: VecDeque<Vec<u8>>,
    arrived: VecDeque<(Vec<u8>, Option<Ecn>)>,
    /// Until when the client is blocked by reading or writing a chunk.
    held: Option<Instant>,
    filled: u64,
    /// When all data received so far will have been written.
    written: Instant,
    /// A packet was handled and the machine has something to send, which goes next.
    answers: bool,
    /// When the machine or the client is due next.
    wake: Instant,
    started: bool,
    over: bool,
}

impl Station {
    fn new(side: Side, options: HostOptions, transfer: Transfer, behaviour: Behaviour) -> Self {
        Self {
            host: Host::new(side, options, transfer),
            behaviour,
            card: None,
            busy: Instant::EPOCH,
            to_send: VecDeque::new(),
            arrived: VecDeque::new(),
            held: None,
            filled: 0,
            written: Instant::EPOCH,
            answers: false,
            wake: Instant::EPOCH,
            started: false,
            over: false,
        }
    }

    /// Starts the program when its start time is reached.
    fn start(&mut self, now: Instant, oracle: &mut Oracle) {
        if self.started || now < Instant::EPOCH + self.host.options().starts_at {
            return;
        }
        self.started = true;
        oracle.on_started(self.host.side);
        if self.host.start(now).is_err() {
            oracle.find(now, self.host.side, "a program's buffers are not its own");
        }
    }

    /// When the host is due next.
    fn next(&self) -> Instant {
        let idle = self.arrived.is_empty() && self.to_send.is_empty();
        let wake = if idle { self.wake } else { Instant::EPOCH };
        self.busy.max(wake)
    }

    /// Handles at most one packet at `now`; returns a packet that leaves. Neither direction starves
    /// the other.
    fn work(&mut self, now: Instant, waiting: u64, oracle: &mut Oracle) -> Option<Vec<u8>> {
        self.start(now, oracle);
        let receives = !self.arrived.is_empty() && !std::mem::take(&mut self.answers);
        if receives {
            self.receive(now, oracle);
            return None;
        }
        self.think(now, oracle);
        if self.to_send.is_empty() && !self.must_wait(waiting) {
            self.poll(now);
            self.events(now, oracle);
            self.rewake(now);
        }
        if self.must_wait(waiting) {
            self.busy = now + CARD_POLL_INTERVAL;
            return None;
        }
        let bytes = self.to_send.pop_front()?;
        self.busy = now + PACKET_CPU_TIME;
        Some(bytes)
    }

    fn receive(&mut self, now: Instant, oracle: &mut Oracle) {
        let Some((mut bytes, ecn)) = self.arrived.pop_front() else { return };
        let from = self.host.side.other().address();
        let writes = is_data(&bytes) && !self.behaviour.write.is_zero();
        let Some(endpoint) = &mut self.host.endpoint else { return };
        let before = if writes { endpoint.stats(now).data_packets_received } else { 0 };
        let datagram = Datagram { from, local: None, meta: ecn.into(), bytes: &mut bytes };
        endpoint.handle_datagram(now, datagram);
        let new = writes && endpoint.stats(now).data_packets_received > before;
        self.busy = now + PACKET_CPU_TIME;
        if new {
            // Another thread writes; when its ring is full, this thread waits for a slot.
            self.written = self.written.max(now) + self.behaviour.write;
            self.busy = self.busy.max(self.written.before(self.behaviour.write * RING));
        }
        self.think(now, oracle);
        self.answers = self.wake <= now;
    }

    /// Whether a program that waits for its card has to wait: `waiting` bytes are queued there.
    fn must_wait(&self, waiting: u64) -> bool {
        !self.behaviour.overruns && waiting >= SEND_BUFFER
    }

    /// Runs the machine's timers and its client.
    fn think(&mut self, now: Instant, oracle: &mut Oracle) {
        for _ in 0..MAX_ROUNDS {
            self.held.take_if(|until| *until <= now);
            if self.held.is_none() && self.host.feed(now).is_err() {
                oracle.find(now, self.host.side, "a buffer came out that is still in the machine");
            }
            self.host.fire(now);
            if !self.events(now, oracle) {
                self.rewake(now);
                return;
            }
        }
        oracle.find(now, self.host.side, "events without end");
    }

    fn rewake(&mut self, now: Instant) {
        let whole = self.host.rewake(now);
        self.wake = match (self.held, &self.host.endpoint) {
            (Some(held), Some(endpoint)) => {
                endpoint.next_timeout(now).map_or(held, |at| at.min(held))
            }
            _ => whole,
        };
    }

    /// Whether there were any.
    fn events(&mut self, now: Instant, oracle: &mut Oracle) -> bool {
        let mut any = false;
        while let Some(event) = self.host.endpoint.as_mut().and_then(|e| e.poll_event()) {
            any = true;
            self.note_chunk(now, &event);
            if !self.host.on_event(now, event, oracle) {
                self.poll(now);
                self.host.stop(now);
                self.over = true;
            }
        }
        any
    }

    /// Begins to read or write a chunk.
    fn note_chunk(&mut self, now: Instant, event: &Event) {
        let Some((buffers, takes)) = self.behaviour.chunk else { return };
        let whole = match event {
            Event::Wanted(number) => number.0 % buffers == 1,
            Event::Filled(..) => {
                self.filled += 1;
                self.filled.is_multiple_of(buffers)
            }
            _ => false,
        };
        if whole {
            self.held = Some(now + takes);
        }
    }

    fn poll(&mut self, now: Instant) {
        let Some(endpoint) = &mut self.host.endpoint else { return };
        let mut batch = Vec::new();
        if let Some(transmit) = endpoint.poll_transmit(now, &mut batch) {
            let whole = batch.get(..transmit.len).unwrap_or(&batch);
            self.to_send.extend(whole.chunks(transmit.segment.max(1)).map(<[u8]>::to_vec));
        }
    }
}

/// The measurement begins.
#[derive(Debug)]
struct Look;

/// The clock, the events, and the media: the cards that senders have of their own, and the network
/// from the senders and back.
type Net = Simulator<Path<Packet>, Look>;

/// The hosts, and the network between them before the run.
pub(crate) struct Lab {
    stations: Vec<[Station; 2]>,
    oracles: Vec<Oracle>,
    media: Vec<Path<Packet>>,
    /// How many of them are cards.
    cards: usize,
    /// Packets received by each receiver when the measurement began.
    looked: Option<Vec<u64>>,
    look: Instant,
    /// Data packets sent, and data packets that arrived and found room.
    left: u64,
    come: u64,
    /// When a card last reported that it was full.
    marked: Instant,
    /// The run ends after so many packets of data were received.
    enough: u64,
    deadline: Duration,
}

impl Lab {
    pub(crate) fn new(
        there: LinkOptions,
        back: LinkOptions,
        seed: u64,
        deadline: Duration,
    ) -> Self {
        Self {
            stations: Vec::new(),
            oracles: Vec::new(),
            media: vec![Path::new(there, seed, "there"), Path::new(back, seed, "back")],
            cards: 0,
            looked: None,
            look: Instant::NEVER,
            left: 0,
            come: 0,
            marked: Instant::EPOCH,
            enough: u64::MAX,
            deadline,
        }
    }

    /// Adds a connection: its sender, which opens, and its receiver.
    pub(crate) fn add(
        &mut self,
        transfer: Transfer,
        sender: HostOptions,
        receiver: HostOptions,
        behaviour: Behaviour,
    ) {
        let configs: Pair<&Config> = Pair([&sender.config, &receiver.config]);
        let mut oracle = Oracle::new(configs);
        let mut pair = [
            Station::new(Side::Active, sender, transfer, behaviour),
            Station::new(Side::Passive, receiver, transfer, behaviour),
        ];
        for station in pair.iter_mut().rev() {
            station.wake = Instant::EPOCH + station.host.options().starts_at;
            station.start(Instant::EPOCH, &mut oracle);
        }
        self.oracles.push(oracle);
        self.stations.push(pair);
    }

    /// Gives the sender that was added last a card of its own before the network.
    pub(crate) fn own_card(&mut self, card: LinkOptions, seed: u64) {
        if let Some([sender, _]) = self.stations.last_mut() {
            sender.card = Some(self.cards);
            self.media.insert(self.cards, Path::new(card, seed, "card"));
            self.cards += 1;
        }
    }

    /// Counts arrivals from then on until the deadline, before which no transfer finishes.
    pub(crate) fn measure(&mut self, from: Duration) {
        self.look = Instant::EPOCH + from;
    }

    /// Ends the run after so many packets of data were received, on all connections together.
    pub(crate) fn until(&mut self, packets: u64) {
        self.enough = packets;
    }

    /// Runs until every connection is over, or the deadline. Returns also how many of the sender's
    /// packets did not reach their program.
    pub(crate) fn run(mut self) -> (Vec<Run>, u64) {
        let bounds = Bounds { deadline: self.deadline, steps: MAX_STEPS };
        let mut net = Simulator::new(std::mem::take(&mut self.media), bounds);
        if self.look < Instant::NEVER {
            net.schedule(self.look, Look);
        }
        net.run(&mut self);
        self.conclude(&mut net)
    }

    /// The network from `side`, among the media.
    fn network(&self, side: Side) -> usize {
        self.cards + side as usize
    }

    /// New packets of data received by each receiver.
    fn arrivals(&mut self, now: Instant) -> Vec<u64> {
        let of = |[_, receiver]: &mut [Station; 2]| {
            let endpoint = receiver.host.endpoint.as_mut();
            endpoint.map_or(0, |endpoint| endpoint.stats(now).data_packets_received)
        };
        self.stations.iter_mut().map(of).collect()
    }

    /// One host does one thing, and a packet may leave onto `path`.
    fn serve(&mut self, now: Instant, path: &mut Path<Packet>, pair: usize, side: Side) {
        path.advance(now);
        let waiting = path.counters().queue_bytes;
        let station = &mut self.stations[pair][side as usize];
        let Some(bytes) = station.work(now, waiting, &mut self.oracles[pair]) else { return };
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.left += u64::from(is_data(&bytes));
        let overhead = match is_data(&bytes) {
            true => station.behaviour.wire_bytes.saturating_sub(len),
            false => HEADER_BYTES + FRAME_BYTES,
        };
        let full = station.behaviour.full_card_mark && waiting >= FULL_CARD;
        let ecn = (full && self.marked + ROUND_TRIP <= now).then_some(Ecn::Ce);
        if ecn.is_some() {
            self.marked = now;
        }
        path.push(now, overhead, ecn, Packet { pair, overhead, bytes });
    }

    fn conclude(mut self, net: &mut Net) -> (Vec<Run>, u64) {
        let now = net.now();
        let there = self.network(Side::Active);
        let looked = self.looked.take();
        let before = looked.clone().unwrap_or_else(|| vec![0; self.stations.len()]);
        let pairs = self.stations.iter_mut().zip(&self.oracles).zip(before);
        let runs = pairs.map(|(([sender, receiver], oracle), before)| {
            let done = sender.host.report.done && receiver.host.report.done;
            let failed = match looked {
                Some(_) => sender.over || receiver.over,
                None => !done && self.come < self.enough,
            };
            let failure = failed.then(|| "the transfer did not succeed".to_owned());
            let at = sender.host.report.done_at.unwrap_or(now);
            let stats = |station: &mut Station| {
                station.host.stop(now);
                station.host.report.stats.last().cloned().unwrap_or_default()
            };
            let (sent, received) = (stats(sender), stats(receiver));
            Run {
                problem: oracle.finding().map(ToString::to_string).or(failure),
                time: at.since(Instant::EPOCH),
                sent,
                measured: received.data_packets_received - before,
                received,
            }
        });
        let runs = runs.collect();
        // Packets still in transit are not lost.
        while let Some(at) = net.media()[there].next() {
            while let Some(delivery) = net.medium(there).pop(at) {
                self.come += u64::from(is_data(&delivery.payload.bytes));
            }
        }
        let lost = self.left.saturating_sub(self.come);
        (runs, lost)
    }
}

impl Nodes<Path<Packet>, Look> for Lab {
    fn handle_events(&mut self, net: &mut Net) {
        while let Some(Look) = net.poll_event() {
            self.looked = Some(self.arrivals(net.now()));
        }
    }

    fn handle_arrivals(&mut self, net: &mut Net, medium: usize) {
        while let Some(delivery) = net.poll_arrival(medium) {
            if medium < self.cards {
                let (overhead, now) = (delivery.payload.overhead, net.now());
                let network = net.medium(self.network(Side::Active));
                network.push(now, overhead, delivery.ecn, delivery.payload);
                continue;
            }
            let from = Side::BOTH[medium - self.cards];
            let Packet { pair, bytes, .. } = delivery.payload;
            let station = &mut self.stations[pair][from.other() as usize];
            if station.arrived.len() < RECEIVE_BUFFER {
                self.come += u64::from(is_data(&bytes));
                station.arrived.push_back((bytes, delivery.ecn));
            }
        }
    }

    /// The connections in their order, of each the sender first, for as long as it is due.
    fn handle_timeouts(&mut self, net: &mut Net) {
        let now = net.now();
        for pair in 0..self.stations.len() {
            for side in Side::BOTH {
                let card = self.stations[pair][side as usize].card;
                let path = net.medium(card.unwrap_or(self.network(side)));
                while self.stations[pair][side as usize].next() <= now {
                    self.serve(now, path, pair, side);
                }
            }
        }
    }

    fn next_timeout(&self, _: Instant) -> Option<Instant> {
        self.stations.iter().flatten().map(Station::next).min()
    }

    fn is_over(&self, _: &Net) -> bool {
        let over = self.stations.iter().flatten().all(|station| station.over);
        over || self.come >= self.enough
    }
}

fn is_data(bytes: &[u8]) -> bool {
    matches!(bytes.get(3), Some(&kind::DATA | &kind::LDATA))
}
