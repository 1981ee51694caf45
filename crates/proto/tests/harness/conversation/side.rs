//! One end: a real endpoint, its client, and what the oracle knows of both.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use netblt_proto::api::{CloseReason, Event};
use netblt_proto::buffer::Buffer;
use netblt_proto::config::{Role, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::limits::MAX_REASON;
use netblt_proto::time::Instant;
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::{End, Verdict};

use super::setup::{Plan, Setup};

/// Smaller ones are offered only to be handed back.
const SMALLEST_OF_USE: usize = 16;

/// Turns of one end at one instant: more is going round in circles.
const MAX_TURNS: usize = 20_000;
/// Turns in which a due timer may change nothing.
const MAX_IDLE_TURNS: usize = 3;

/// What both ends' clients and the oracle know.
pub struct Common {
    /// The world.
    pub setup: Setup,
    /// The transfer, once the sender is open.
    pub plan: Option<Plan>,
    /// All of the transfer was with the receiver's client at some time.
    pub ever_complete: bool,
}

/// One end of the conversation.
pub struct Side {
    /// What it is.
    pub role: Role,
    /// Its machine.
    pub endpoint: Endpoint,
    /// Where it lives.
    pub address: SocketAddr,
    /// Whether it opens.
    pub active: bool,
    /// Whether its client does all it can at once.
    pub automatic: bool,
    /// How it ended.
    pub closed: Option<CloseReason>,
    /// The number of events that it is open.
    pub openings: u32,
    /// Its client gave up.
    pub quit: bool,
    /// When an undamaged packet of the other end last came.
    pub last_received: Instant,
    /// OPENs that left.
    pub opens_sent: u32,
    /// Sender: the news that all is over. Receiver: that all is here.
    pub done: bool,
    /// Where the other end truly is.
    pub homes: Vec<SocketAddr>,
    /// What left last.
    pub last_sent: Vec<u8>,
    /// Bytes from an address and to it.
    books: BTreeMap<SocketAddr, (u64, u64)>,
    /// The next packet number of every connection id.
    numbers: BTreeMap<u32, u64>,
    /// Capacities of the buffers inside the machine: no two are alike.
    inside: BTreeSet<usize>,
    smallest: usize,
    free: Vec<Buffer>,
    /// Handed back because no data would come for them.
    idle: Vec<Buffer>,
    wanted: VecDeque<u64>,
    next_wanted: u64,
    filled: BTreeSet<u64>,
    /// What the client may say now: END, or a verdict on it.
    to_say: Option<End>,
    silent: bool,
}

impl Side {
    /// An end whose client has `stock` buffers of at least `capacity` bytes.
    pub fn new(
        role: Role,
        endpoint: Endpoint,
        address: SocketAddr,
        (stock, capacity): (usize, usize),
    ) -> Self {
        let smallest = capacity.max(SMALLEST_OF_USE);
        Self {
            role,
            endpoint,
            address,
            active: false,
            automatic: true,
            closed: None,
            openings: 0,
            quit: false,
            last_received: Instant::EPOCH,
            opens_sent: 0,
            done: false,
            homes: Vec::new(),
            last_sent: Vec::new(),
            books: BTreeMap::new(),
            numbers: BTreeMap::new(),
            inside: BTreeSet::new(),
            smallest,
            free: (0..stock).map(|n| Buffer::new(smallest + n)).collect(),
            idle: Vec::new(),
            wanted: VecDeque::new(),
            next_wanted: 1,
            filled: BTreeSet::new(),
            to_say: None,
            silent: false,
        }
    }

    // ---- the driver

    /// Polls the machine until it has no more to say; appends what it sends. Answers whether it
    /// came to its end just now.
    pub fn turn(
        &mut self,
        now: Instant,
        common: &mut Common,
        sent: &mut Vec<(SocketAddr, Vec<u8>)>,
    ) -> bool {
        let was_closed = self.closed.is_some();
        let mut idle = 0;
        for _ in 0..MAX_TURNS {
            let due = self.endpoint.next_timeout(now).is_some_and(|due| due <= now);
            if due {
                self.endpoint.handle_timeout(now);
            }
            let mut busy = self.take_transmits(now, common.setup.wire, sent);
            busy |= self.take_events(now, common);
            if self.automatic && !self.quit && self.closed.is_none() {
                busy |= self.act(now, common);
            }
            if busy {
                idle = 0;
            } else if due {
                idle += 1;
                assert!(idle <= MAX_IDLE_TURNS, "a timer stays in the past: {}", self.state(now));
            } else {
                self.on_turn_over(common.setup.wire);
                let _ = self.endpoint.stats(now);
                return self.closed.is_some() && !was_closed;
            }
        }
        panic!("no end of turns at one instant: {}", self.state(now));
    }

    fn take_transmits(
        &mut self,
        now: Instant,
        wire: Wire,
        sent: &mut Vec<(SocketAddr, Vec<u8>)>,
    ) -> bool {
        let before = sent.len();
        let mut batch = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut batch) {
            assert_eq!(batch.len(), transmit.len);
            assert!((1..=65_507).contains(&transmit.len) && transmit.segment > 0);
            assert!(transmit.len.div_ceil(transmit.segment) <= 64);
            for datagram in batch.chunks(transmit.segment) {
                self.on_sent(wire, transmit.to, datagram);
                sent.push((transmit.to, datagram.to_vec()));
            }
            batch.clear();
        }
        sent.len() > before
    }

    fn take_events(&mut self, now: Instant, common: &mut Common) -> bool {
        let mut any = false;
        while let Some(event) = self.endpoint.poll_event() {
            any = true;
            if let Event::Opened { parameters, image_bytes, .. } = &event {
                self.last_received = now;
                if self.role == Role::Sender {
                    common.plan = Some(common.setup.plan(*image_bytes, parameters.packet_bytes));
                }
            }
            common.ever_complete |= matches!(event, Event::Complete(_));
            self.on_event(event, common);
        }
        any
    }

    /// For the message with which a test fails.
    pub fn state(&self, now: Instant) -> String {
        let next = self.endpoint.next_timeout(now);
        let stats = self.endpoint.stats(now);
        format!("{:?} at {now:?}, next {next:?}, {:?}, {stats:?}", self.role, self.closed)
    }

    // ---- the client

    /// Does one thing of those that wait, if any does.
    fn act(&mut self, now: Instant, common: &Common) -> bool {
        match self.role {
            Role::Sender => self.supply(now, common) || self.end(now),
            Role::Receiver => self.offer(now) || self.judge(now, &common.setup),
        }
    }

    /// Supplies the next buffer that is wanted.
    pub fn supply(&mut self, now: Instant, common: &Common) -> bool {
        let Common { setup, plan, .. } = common;
        let Some(plan) = plan.as_ref().filter(|_| self.role == Role::Sender) else { return false };
        // The receiver may have room for more than there is.
        self.wanted.retain(|number| *number <= plan.count());
        if self.wanted.is_empty() {
            return false;
        }
        let Some(mut buffer) = self.free.pop() else { return false };
        let number = self.wanted.pop_front().unwrap_or_default();
        let len = plan.write(number, buffer.space());
        buffer.set_len(len);
        self.lend(&buffer);
        let last = number == plan.count();
        let flag = last && (setup.wire == Wire::Rfc998 || setup.flag_last);
        if last && setup.wire == Wire::Sealed && !setup.early_end {
            self.to_say = Some(plan.end());
        }
        self.endpoint.supply(now, BufferNumber(number), buffer, flag);
        true
    }

    /// Says END, if it is time.
    pub fn end(&mut self, now: Instant) -> bool {
        if self.role != Role::Sender {
            return false;
        }
        let Some(end) = self.to_say.take() else { return false };
        self.endpoint.end(now, end);
        true
    }

    /// Offers a buffer.
    pub fn offer(&mut self, now: Instant) -> bool {
        if self.role != Role::Receiver {
            return false;
        }
        let Some(buffer) = self.free.pop() else { return false };
        self.lend(&buffer);
        self.endpoint.offer(now, buffer);
        true
    }

    /// Offers a buffer that is of no use, or (`misused`) supplies one that no end wanted.
    pub fn offer_nonsense(&mut self, now: Instant, misused: u64) {
        let capacity = (1..SMALLEST_OF_USE).find(|capacity| !self.inside.contains(capacity));
        let Some(capacity) = capacity else { return };
        let mut buffer = Buffer::new(capacity);
        buffer.set_len(capacity);
        self.lend(&buffer);
        match self.role {
            // Number 0 belongs to no buffer, and those from 2^32 on are never granted here.
            Role::Sender => {
                self.endpoint.supply(now, BufferNumber(misused << 32), buffer, misused > 3);
            }
            Role::Receiver => self.endpoint.offer(now, buffer),
        }
    }

    /// Gives a verdict, if one is due.
    pub fn judge(&mut self, now: Instant, setup: &Setup) -> bool {
        if self.role != Role::Receiver {
            return false;
        }
        let Some(end) = self.to_say.take() else { return false };
        self.endpoint.judge(now, verdict(setup, &end));
        true
    }

    /// Gives up.
    pub fn give_up(&mut self, now: Instant, why: &str) {
        self.quit = true;
        self.endpoint.quit(now, why);
    }

    fn lend(&mut self, buffer: &Buffer) {
        assert!(self.inside.insert(buffer.capacity()), "the client has this buffer twice");
    }

    fn take_back(&mut self, mut buffer: Buffer, usable: bool) {
        let known = self.inside.remove(&buffer.capacity());
        assert!(known, "{:?} gives back {buffer:?}, which it did not have", self.role);
        buffer.set_len(0);
        if buffer.capacity() < self.smallest {
            return;
        }
        if usable { self.free.push(buffer) } else { self.idle.push(buffer) }
    }

    // ---- the oracle

    /// A datagram is about to be handed in.
    pub fn on_received(&mut self, from: SocketAddr, len: usize) {
        self.books.entry(from).or_default().0 += len as u64;
    }

    fn on_sent(&mut self, wire: Wire, to: SocketAddr, bytes: &[u8]) {
        self.last_sent = bytes.to_vec();
        assert!(self.closed.is_none(), "{:?} sends after Closed", self.role);
        let kind = bytes.get(3).copied();
        self.opens_sent += u32::from(kind == Some(0));
        self.books.entry(to).or_default().1 += bytes.len() as u64;
        if wire == Wire::Rfc998 || matches!(kind, Some(0 | 1 | 10 | 12 | 13)) {
            return;
        }
        let (clear, _) = bytes.split_at(16);
        let connection = u32::from_be_bytes([clear[4], clear[5], clear[6], clear[7]]);
        let number = clear[8..].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let next = self.numbers.entry(connection).or_default();
        // Now and then a sender passes over one.
        let follows = (*next..=*next + 1).contains(&number);
        assert!(follows, "{:?}: packet number {number} behind {next}", self.role);
        *next = number + 1;
    }

    fn on_turn_over(&mut self, wire: Wire) {
        if wire == Wire::Sealed && !self.active {
            for (address, (from, to)) in &self.books {
                // Who is not there answers no CHALLENGE.
                let proven = self.homes.contains(address);
                assert!(proven || *to <= 3 * from, "{to} bytes to {address} for {from}, unproven");
            }
        }
        if self.closed.is_some() {
            assert!(self.inside.is_empty(), "{:?} kept buffers: {:?}", self.role, self.inside);
        }
    }

    fn on_event(&mut self, event: Event, common: &Common) {
        let Common { setup, plan, ever_complete } = common;
        let plan = plan.as_ref();
        let late = self.closed.is_some();
        let handed_back = matches!(event, Event::Released(..) | Event::Returned(_));
        assert!(!late || handed_back, "{:?} says {event:?} after Closed", self.role);
        match event {
            Event::Opened { .. } => self.on_opened(setup, plan),
            Event::Wanted(number) => {
                assert!(self.role == Role::Sender);
                assert_eq!(number.0, self.next_wanted, "wanted in order, each once");
                self.next_wanted += 1;
                self.wanted.push_back(number.0);
            }
            Event::PeerHas { .. } => assert!(self.role == Role::Sender),
            Event::Released(_, buffer) => {
                assert!(self.role == Role::Sender);
                self.take_back(buffer, true);
            }
            Event::Filled(number, buffer) => self.on_filled(number.0, buffer, setup, plan),
            Event::Returned(buffer) => {
                assert!(self.role == Role::Receiver);
                self.take_back(buffer, false);
            }
            Event::Complete(end) => self.on_complete(end, setup, plan),
            Event::Finished(given) => self.on_finished(given, setup, plan, *ever_complete),
            Event::Silent => assert!(!std::mem::replace(&mut self.silent, true)),
            Event::Answering => assert!(std::mem::replace(&mut self.silent, false)),
            Event::Closed(reason) => self.closed = Some(reason),
        }
    }

    fn on_opened(&mut self, setup: &Setup, plan: Option<&Plan>) {
        if self.openings > 0 {
            assert!(self.inside.is_empty(), "of another connection: {:?}", self.inside);
        }
        self.openings += 1;
        (self.next_wanted, self.done, self.silent, self.to_say) = (1, false, false, None);
        self.wanted.clear();
        self.filled.clear();
        self.free.append(&mut self.idle);
        if let (Role::Sender, Wire::Sealed, Some(plan)) = (self.role, setup.wire, plan)
            && (setup.early_end || plan.count() == 0)
        {
            self.to_say = Some(plan.end());
        }
    }

    fn on_filled(&mut self, number: u64, buffer: Buffer, setup: &Setup, plan: Option<&Plan>) {
        assert!(self.role == Role::Receiver);
        if !setup.hostile {
            let plan = plan.expect("data come from a sender that is open");
            assert!(plan.is(number, buffer.filled()), "buffer {number} is not what was sent");
        }
        assert!(self.filled.insert(number), "buffer {number} twice");
        assert!(!self.done, "buffer {number} after Complete");
        self.take_back(buffer, true);
    }

    fn on_complete(&mut self, end: Option<End>, setup: &Setup, plan: Option<&Plan>) {
        assert!(self.role == Role::Receiver && !self.done);
        self.done = true;
        self.to_say = end;
        if setup.hostile {
            return;
        }
        let plan = plan.expect("data come from a sender that is open");
        assert_eq!(self.filled.len() as u64, plan.count(), "complete is when all is here");
        assert_eq!(end, (setup.wire == Wire::Sealed).then(|| plan.end()));
    }

    fn on_finished(
        &mut self,
        given: Option<Verdict>,
        setup: &Setup,
        plan: Option<&Plan>,
        complete: bool,
    ) {
        assert!(self.role == Role::Sender && !std::mem::replace(&mut self.done, true));
        if setup.hostile {
            return;
        }
        assert!(complete, "the sender's client gets the event of an end that has not come");
        let plan = plan.expect("the sender is open");
        assert_eq!(given.is_some(), setup.wire == Wire::Sealed);
        let Some(given) = given else { return };
        let said = verdict(setup, &plan.end());
        // It is cut to what fits a reason, and a packet.
        assert!(given.reason.len() <= MAX_REASON && said.reason.starts_with(&given.reason));
        assert_eq!(given, Verdict { reason: given.reason.clone(), ..said });
    }
}

fn verdict(setup: &Setup, end: &End) -> Verdict {
    let reason = if setup.verified { String::new() } else { "zu größ ".repeat(60) };
    Verdict { verified: setup.verified, bytes: end.bytes, digest: end.digest, reason }
}
