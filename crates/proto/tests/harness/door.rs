//! One listener and several true callers, on a path that belongs to an attacker without their keys.
//! It drops, delays, doubles and changes any packet, and sends recorded or invented ones from any
//! address (`docs/protocol §4.6`).
//!
//! No end may be drawn into sending more to an address than came from there before a connection is
//! open; an opening makes one end, however often it is said; no caller is driven away; and when the
//! path heals, every caller is let in.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use netblt_proto::api::{Datagram, Event, RecvMeta};
use netblt_proto::config::{AuthorizedKeys, Config, Role, Secret, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::listener::PassiveListener;
use netblt_proto::time::Instant;
use netblt_proto::wire::sealed;

use super::bytes::Bytes;
use super::conversation::setup::Keys;

/// Things that happen at most.
const MAX_EVENTS: usize = 400;
/// Datagrams in flight, and datagrams remembered to be said again.
const BAG: usize = 256;
/// All that happens lasts less than any timer which ends an opening that hears nothing but hints
/// (`docs/protocol §4.1`), with time for one more OPEN.
const CHAOS: Duration = Duration::from_secs(2);
/// One way, once the path has healed.
const DELAY: Duration = Duration::from_millis(20);
/// Steps of [`DELAY`] in which everybody must be let in: the longest pause between two OPENs, and
/// what it takes to have a token again.
const HEALING_STEPS: usize = 1_000;

fn server() -> SocketAddr {
    ([198, 51, 100, 1], 7).into()
}

/// Lives through the openings that `data` describe.
pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let mut world = World::new(&mut bytes);
    for _ in 0..MAX_EVENTS {
        if bytes.is_empty() {
            break;
        }
        world.event(&mut bytes);
    }
    world.heal();
}

struct Caller {
    end: Endpoint,
    address: SocketAddr,
    opened: bool,
}

#[derive(Clone)]
struct Flying {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

struct World {
    began: Instant,
    now: Instant,
    by_keys: bool,
    door: PassiveListener,
    /// What the door has made.
    ends: Vec<Endpoint>,
    callers: Vec<Caller>,
    flying: VecDeque<Flying>,
    seen: Vec<Flying>,
    /// Bytes that the door had from an address, and that it sent there.
    books: BTreeMap<SocketAddr, (usize, usize)>,
}

impl World {
    fn new(bytes: &mut Bytes<'_>) -> Self {
        let flags = bytes.byte();
        let by_keys = flags & 1 == 1;
        let role = if flags & 2 == 0 { Role::Sender } else { Role::Receiver };
        let config = |role, index: Option<usize>| {
            let mut config = Config::new(Wire::Sealed, role);
            if by_keys {
                let keys = Keys::shared();
                let own = if index.is_some() { &keys.of_client } else { &keys.of_server };
                config.identity = Some(own.clone());
            } else {
                config.secret = Some(Secret([7; 32]));
            }
            config
        };
        let now = Instant::from_nanos(1_000_000_000);
        let mut at_door = config(role, None);
        at_door.accept_any_role = flags & 4 != 0;
        let callers = (0..1 + usize::from(flags >> 3 & 7)).map(|index| {
            let other = if role == Role::Sender { Role::Receiver } else { Role::Sender };
            let role = if at_door.accept_any_role && index % 2 == 1 { role } else { other };
            let number = index as u8;
            let end = Endpoint::active(config(role, Some(index)), server(), now, [number + 1; 32]);
            Caller { end, address: ([192, 0, 2, number], 9).into(), opened: false }
        });
        let callers = callers.collect();
        let mut world = Self {
            began: now,
            now,
            by_keys,
            door: PassiveListener::new(at_door, [99; 32]),
            ends: Vec::new(),
            callers,
            flying: VecDeque::new(),
            seen: Vec::new(),
            books: BTreeMap::new(),
        };
        world.turn();
        world
    }

    fn event(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.byte() % 10 {
            0..=2 => self.deliver_next(),
            3 => {
                let millis = bytes.pick([1, 20, 200, 1_000]);
                let later = self.now + Duration::from_millis(millis);
                self.now = later.min(self.began + CHAOS);
                self.turn();
            }
            4 if !self.flying.is_empty() => {
                let index = bytes.index(self.flying.len());
                let _ = self.flying.remove(index);
            }
            5 if !self.seen.is_empty() => {
                let again = self.seen[bytes.index(self.seen.len())].clone();
                self.arrive(again);
            }
            6 if !self.seen.is_empty() => {
                let again = self.seen[bytes.index(self.seen.len())].clone();
                self.arrive(Flying { from: stranger(bytes), ..again });
            }
            7 if !self.seen.is_empty() => {
                let mut again = self.seen[bytes.index(self.seen.len())].clone();
                let place = bytes.index(again.bytes.len());
                again.bytes[place] ^= bytes.byte();
                if bytes.flag() {
                    again.bytes.truncate(place);
                }
                self.arrive(again);
            }
            8 => {
                let index = bytes.index(self.callers.len());
                self.callers[index].address.set_port(bytes.short());
            }
            9 if self.by_keys => self.authorize(bytes.flag()),
            _ => {
                let from = stranger(bytes);
                let length = usize::from(bytes.byte()) * 6;
                let mut made_up = vec![bytes.byte(); length];
                made_up.iter_mut().take(16).for_each(|byte| *byte = bytes.byte());
                self.arrive(Flying { from, to: server(), bytes: made_up });
            }
        }
    }

    fn authorize(&mut self, whether: bool) {
        let keys = Keys::shared();
        let client = [keys.client.public()];
        let let_in = if whether { &client[..] } else { &[] };
        self.door.authorize(Arc::new(AuthorizedKeys::new(keys.server.clone(), let_in).0));
    }

    fn deliver_next(&mut self) {
        if let Some(next) = self.flying.pop_front() {
            self.arrive(next);
        }
    }

    fn arrive(&mut self, Flying { from, to, mut bytes }: Flying) {
        let now = self.now;
        let datagram = Datagram { from, local: None, meta: RecvMeta::default(), bytes: &mut bytes };
        if to != server() {
            if let Some(caller) = self.callers.iter_mut().find(|caller| caller.address == to) {
                caller.end.handle_datagram(now, datagram);
            }
        } else if let Some(end) = self.end_of(&datagram) {
            end.handle_datagram(now, datagram);
        } else {
            self.books.entry(from).or_default().0 += datagram.bytes.len();
            self.ends.extend(self.door.handle_datagram(now, datagram));
            assert!(self.ends.len() <= self.callers.len(), "an opening has made two ends");
        }
        self.turn();
    }

    fn end_of(&mut self, datagram: &Datagram<'_>) -> Option<&mut Endpoint> {
        let id = sealed::destination(datagram.bytes)?;
        self.ends.iter_mut().find(|end| end.connection_ids().any(|its| its == id))
    }

    /// Everybody says what there is to say.
    fn turn(&mut self) {
        let mut batch = Vec::new();
        while let Some(transmit) = self.door.poll_transmit(&mut batch) {
            let (had, sent) = self.books.entry(transmit.to).or_default();
            *sent += transmit.len;
            assert!(sent <= had, "{sent} bytes in answer to {had} at {}", transmit.to);
            self.flying.push_back(Flying {
                from: server(),
                to: transmit.to,
                bytes: std::mem::take(&mut batch),
            });
        }
        for end in &mut self.ends {
            let said = packets_of(end, self.now, server());
            self.flying.extend(said);
            while let Some(event) = end.poll_event() {
                assert!(!matches!(event, Event::Closed(_)), "an end of the door: {event:?}");
            }
        }
        for caller in &mut self.callers {
            let said = packets_of(&mut caller.end, self.now, caller.address);
            self.seen.extend(said.iter().cloned());
            self.flying.extend(said);
            while let Some(event) = caller.end.poll_event() {
                assert!(!matches!(event, Event::Closed(_)), "a caller: {event:?}");
                caller.opened |= matches!(event, Event::Opened { .. });
            }
        }
        self.seen.drain(..self.seen.len().saturating_sub(BAG));
        self.flying.drain(..self.flying.len().saturating_sub(BAG));
    }

    /// From here on everything arrives.
    fn heal(&mut self) {
        if self.by_keys {
            self.authorize(true);
        }
        for _ in 0..HEALING_STEPS {
            self.now += DELAY;
            self.turn();
            for _ in 0..self.flying.len() {
                self.deliver_next();
            }
            if self.callers.iter().all(|caller| caller.opened) {
                assert_eq!(self.ends.len(), self.callers.len());
                return;
            }
        }
        let out = self.callers.iter().filter(|caller| !caller.opened).count();
        panic!("{out} of {} callers are not let in", self.callers.len());
    }
}

/// An unused address, in one of many networks, or another port of a caller's.
fn stranger(bytes: &mut Bytes<'_>) -> SocketAddr {
    let (network, port) = (bytes.byte(), u16::from(bytes.byte()));
    match network {
        0..8 => ([192, 0, 2, network], port).into(),
        _ => ([10, network, 0, 1], port).into(),
    }
}

/// What an end says now, from where it is.
fn packets_of(end: &mut Endpoint, now: Instant, from: SocketAddr) -> Vec<Flying> {
    if end.next_timeout(now).is_some_and(|due| due <= now) {
        end.handle_timeout(now);
    }
    let (mut said, mut batch) = (Vec::new(), Vec::new());
    while let Some(transmit) = end.poll_transmit(now, &mut batch) {
        let each = batch.chunks(transmit.segment);
        said.extend(each.map(|bytes| Flying { from, to: transmit.to, bytes: bytes.to_vec() }));
        batch.clear();
    }
    said
}
