//! Every short history of an opening that a bounded adversary can make: which packets arrive, in
//! which order, how often, and from where. The histories are not random: the search is breadth
//! first over the real machines and takes all of them.
//!
//! The adversary sees and keeps every packet and may deliver any of them, again and again, from its
//! true address or from an unused one. Packets that it does not deliver are lost. The caller may
//! move to another port, and time may pass. After every step it is checked that that address has at
//! most three times the bytes that came from it and nothing but openings and questions, that packet
//! numbers go up by one, and that neither end has given up. From every state a network without the
//! adversary must lead both ends to a connection with each other, where the caller truly is.
//!
//! `NETBLT_MODEL_STATES` bounds how many states are looked at.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use netblt_proto::api::{Datagram, Event, RecvMeta};
use netblt_proto::buffer::Buffer;
use netblt_proto::config::{
    AuthorizedKeys, Config, Identity, PublicKey, Role, Secret, StaticKey, Wire,
};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_sim::check::{Clear, kind};

/// Packets of each end that the adversary cares for, and how often he delivers each from where.
const PACKETS: usize = 6;
const TIMES: u8 = 2;
/// Steps of a history.
const STEPS: usize = 12;
/// How often time passes until something is due.
const TICKS: u8 = 3;
/// Within which both ends must find each other once the adversary has stopped.
const PATIENCE: Duration = Duration::from_secs(20);
/// One way without the adversary.
const DELAY: Duration = Duration::from_millis(20);

/// The two ends.
const CALLER: usize = 0;
const LISTENER: usize = 1;

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Step {
    /// This packet of this end is delivered to the other one, from the adversary's address or not.
    Deliver { from: usize, packet: usize, falsely: bool },
    /// The caller gets another port; packets to the old one are lost.
    Move,
    /// Time passes until something is due.
    Tick,
}

fn address(end: usize, moved: bool) -> SocketAddr {
    match end {
        CALLER => ([192, 0, 2, 1], if moved { 2 } else { 1 }).into(),
        _ => ([198, 51, 100, 1], 1).into(),
    }
}

fn adversary() -> SocketAddr {
    ([203, 0, 113, 9], 9).into()
}

struct Packet {
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// A history so far.
struct World {
    now: Instant,
    ends: [Endpoint; 2],
    sent: [Vec<Packet>; 2],
    moved: bool,
    ticks: u8,
    delivered: BTreeMap<Step, u8>,
    /// Of each end: bytes from the adversary's address, and bytes to it.
    books: [(usize, usize); 2],
    numbers: BTreeMap<(usize, u32), u64>,
    opened: [Option<u32>; 2],
    /// Whose key each end finds its peer to have.
    peer_keys: Option<[PublicKey; 2]>,
}

/// How the two ends prove themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Secret,
    Keys,
}

/// What the caller and the listener hold in place of a secret, computed once.
fn identities() -> &'static [Identity; 2] {
    static BOTH: OnceLock<[Identity; 2]> = OnceLock::new();
    BOTH.get_or_init(|| {
        let [client, server] = [5, 6].map(|byte| StaticKey::from_bytes([byte; 32]));
        let (authorized, _) = AuthorizedKeys::new(server.clone(), &[client.public()]);
        let calling = Identity::client(client, server.public()).expect("a key");
        [calling, Identity::server(Arc::new(authorized))]
    })
}

fn config(role: Role, end: usize, by: By) -> Config {
    Config {
        secret: Some(Secret([7; 32])),
        identity: (by == By::Keys).then(|| identities()[end].clone()),
        cipher: Cipher::Aes256Gcm,
        buffer_bytes: 1 << 14,
        max_outstanding: 1,
        ..Config::new(Wire::Sealed, role)
    }
}

impl World {
    /// The beginning: the caller has sent its OPEN. It sends the data, or the listener does.
    fn new(caller_sends: bool, by: By) -> Self {
        let now = Instant::EPOCH;
        let (role, other) = match caller_sends {
            true => (Role::Sender, Role::Receiver),
            false => (Role::Receiver, Role::Sender),
        };
        let caller =
            Endpoint::active(config(role, CALLER, by), address(LISTENER, false), now, [1; 32]);
        let listener = Endpoint::passive(config(other, LISTENER, by), now, [2; 32]);
        let mut world = Self {
            now,
            ends: [caller, listener],
            sent: [Vec::new(), Vec::new()],
            moved: false,
            ticks: 0,
            delivered: BTreeMap::new(),
            books: [(0, 0); 2],
            numbers: BTreeMap::new(),
            opened: [None; 2],
            peer_keys: (by == By::Keys)
                .then(|| [6, 5].map(|n| StaticKey::from_bytes([n; 32]).public())),
        };
        let receiver = usize::from(caller_sends);
        world.ends[receiver].offer(now, Buffer::new((1 << 14) + 8192));
        world.turn(CALLER);
        world.turn(LISTENER);
        world
    }

    /// The world after these steps.
    fn after(caller_sends: bool, by: By, steps: &[Step]) -> Self {
        let mut world = Self::new(caller_sends, by);
        for step in steps {
            world.step(*step);
        }
        world
    }

    /// What may happen now.
    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for from in [CALLER, LISTENER] {
            for (packet, sent) in self.sent[from].iter().enumerate().take(PACKETS) {
                for falsely in [false, true] {
                    let step = Step::Deliver { from, packet, falsely };
                    let often = self.delivered.get(&step).copied().unwrap_or(0);
                    // Nothing comes to where the caller was, nor to where the adversary says he is.
                    let arrives = sent.to == address(1 - from, self.moved);
                    if often < TIMES && arrives {
                        steps.push(step);
                    }
                }
            }
        }
        if !self.moved {
            steps.push(Step::Move);
        }
        if self.ticks < TICKS {
            steps.push(Step::Tick);
        }
        steps
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Deliver { from, packet, falsely } => {
                *self.delivered.entry(step).or_default() += 1;
                let source = if falsely { adversary() } else { address(from, self.moved) };
                let bytes = self.sent[from][packet].bytes.clone();
                self.deliver(1 - from, source, bytes);
            }
            Step::Move => self.moved = true,
            Step::Tick => {
                self.ticks += 1;
                let due = self.ends.iter().filter_map(|end| end.next_timeout(self.now)).min();
                self.now = due.unwrap_or(self.now).max(self.now);
                for end in [CALLER, LISTENER] {
                    self.ends[end].handle_timeout(self.now);
                    self.turn(end);
                }
            }
        }
    }

    fn deliver(&mut self, to: usize, from: SocketAddr, mut bytes: Vec<u8>) {
        if from == adversary() {
            self.books[to].0 += bytes.len();
        }
        let datagram = Datagram { from, local: None, meta: RecvMeta::default(), bytes: &mut bytes };
        self.ends[to].handle_datagram(self.now, datagram);
        self.turn(to);
    }

    /// Takes over what an end says, and looks at it.
    fn turn(&mut self, end: usize) {
        let mut batch = Vec::new();
        while let Some(transmit) = self.ends[end].poll_transmit(self.now, &mut batch) {
            for bytes in batch.chunks(transmit.segment) {
                self.check(end, transmit.to, bytes);
                self.sent[end].push(Packet { to: transmit.to, bytes: bytes.to_vec() });
            }
            batch.clear();
        }
        while let Some(event) = self.ends[end].poll_event() {
            match event {
                Event::Opened { parameters, .. } => {
                    let key = self.ends[end].peer_key();
                    assert_eq!(key, self.peer_keys.map(|keys| keys[end]), "whose key it has");
                    assert!(self.opened[end].is_none(), "opened once");
                    self.opened[end] = Some(parameters.uid);
                }
                Event::Closed(reason) => panic!("end {end} gave up: {reason}"),
                _ => {}
            }
        }
        if let [Some(one), Some(other)] = self.opened {
            assert_eq!(one, other, "they opened the same connection");
        }
    }

    fn check(&mut self, end: usize, to: SocketAddr, bytes: &[u8]) {
        let clear = Clear::read(bytes);
        if let Some((connection, number)) = clear.number {
            let next = self.numbers.entry((end, connection)).or_default();
            assert_eq!(number, *next, "numbers go up by one");
            *next += 1;
        }
        if to == adversary() {
            self.books[end].1 += bytes.len();
            let (came, went) = self.books[end];
            assert!(went <= 3 * came, "{went} bytes to who sent {came}");
            let harmless = [
                kind::RESPONSE,
                kind::COOKIE,
                kind::REFUSED,
                kind::UNKNOWN,
                kind::CHALLENGE,
                kind::ANSWER,
            ];
            assert!(
                harmless.contains(&clear.kind),
                "end {end}: type {} to the adversary",
                clear.kind
            );
        }
    }

    /// All that its future depends on. An end prints its whole state except the packets that it
    /// has received.
    fn fingerprint(&self) -> [u8; 32] {
        let delivered: Vec<&Step> = self.delivered.keys().collect();
        let text = format!(
            "{:?} {:?} {delivered:?} {} {:?}",
            self.now, self.ends, self.moved, self.delivered
        );
        *blake3::hash(text.as_bytes()).as_bytes()
    }

    /// Without the adversary both ends find each other, where they are.
    fn must_end_well(mut self, history: &[Step]) {
        let until = self.now + PATIENCE;
        let mut flying: VecDeque<(Instant, usize, usize)> = VecDeque::new();
        let mut seen = [self.sent[CALLER].len(), self.sent[LISTENER].len()];
        loop {
            let found = self.ends[LISTENER].peer() == Some(address(CALLER, self.moved));
            if self.opened.iter().all(Option::is_some) && found {
                return;
            }
            let due = self.ends.iter().filter_map(|end| end.next_timeout(self.now)).min();
            let arrival = flying.front().map(|(at, ..)| *at);
            let next = due.into_iter().chain(arrival).min().expect("an end waits");
            assert!(next <= until, "they do not find each other after {history:?}");
            self.now = self.now.max(next);
            if arrival.is_some_and(|at| at <= self.now)
                && let Some((_, from, packet)) = flying.pop_front()
            {
                let Packet { to, bytes } = &self.sent[from][packet];
                if *to == address(1 - from, self.moved) {
                    let bytes = bytes.clone();
                    self.deliver(1 - from, address(from, self.moved), bytes);
                }
            } else {
                for end in [CALLER, LISTENER] {
                    self.ends[end].handle_timeout(self.now);
                    self.turn(end);
                }
            }
            for end in [CALLER, LISTENER] {
                for packet in seen[end]..self.sent[end].len() {
                    flying.push_back((self.now + DELAY, end, packet));
                }
                seen[end] = self.sent[end].len();
            }
        }
    }
}

fn states() -> usize {
    let default = 4_000;
    let text = std::env::var("NETBLT_MODEL_STATES").ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Looks at so many states; answers how many there were, and how long the longest history was.
fn explore(caller_sends: bool, by: By, states: usize) -> (usize, usize) {
    let mut known = HashSet::new();
    let mut histories = VecDeque::from([Vec::new()]);
    let mut longest = 0;
    while let Some(history) = histories.pop_front() {
        let world = World::after(caller_sends, by, &history);
        if !known.insert(world.fingerprint()) {
            continue;
        }
        longest = longest.max(history.len());
        if history.len() < STEPS && known.len() + histories.len() < 4 * states {
            for step in world.steps() {
                let mut longer = history.clone();
                longer.push(step);
                histories.push_back(longer);
            }
        }
        world.must_end_well(&history);
        if known.len() >= states {
            break;
        }
    }
    (known.len(), longest)
}

#[test]
fn no_short_history_of_an_opening_ends_badly() {
    for caller_sends in [true, false] {
        let (seen, longest) = explore(caller_sends, By::Secret, states());
        println!("{seen} states, histories of up to {longest} steps");
        assert!(seen >= states().min(1000));
    }
}

/// The same of one by static keys; who opened it is in the end whose key each expects.
#[test]
fn no_short_history_of_an_opening_by_keys_ends_badly() {
    for caller_sends in [true, false] {
        let (seen, longest) = explore(caller_sends, By::Keys, states() / 2);
        println!("{seen} states, histories of up to {longest} steps");
        assert!(seen >= (states() / 2).min(1000));
    }
}

/// Both ends got the other's first packet from a wrong address, and all their challenges were lost:
/// each sent four and then waited for the other.
#[test]
fn ends_that_are_both_in_doubt_find_each_other() {
    let deliver = |from, packet, falsely| Step::Deliver { from, packet, falsely };
    let history = [
        deliver(CALLER, 0, false),
        deliver(LISTENER, 0, false),
        deliver(CALLER, 1, true),
        deliver(LISTENER, 1, true),
        Step::Tick,
        Step::Tick,
        Step::Tick,
    ];
    for caller_sends in [true, false] {
        World::after(caller_sends, By::Secret, &history).must_end_well(&history);
    }
}
