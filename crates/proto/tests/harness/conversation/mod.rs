//! Two real endpoints, joined by a bag of datagrams from which the fuzzer takes what it likes.
//!
//! First it chooses a world, then what happens in it, one event after the other: datagrams arrive
//! in any order, twice, changed or never; time passes; the clients do something, or not. After each
//! event the oracle looks (see [`side`]). In the end the path heals, the clients do all they can,
//! and both ends must come to an end: a good one, unless a client gave up or had good reason to.

pub mod faults;
pub mod healing;
pub mod setup;
pub mod side;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use netblt_proto::api::{Datagram, Ecn};
use netblt_proto::config::{Role, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::{Instant, earliest};

use super::bytes::Bytes;
use setup::Setup;
use side::{Common, Side};

/// Events in one conversation at most.
const MAX_EVENTS: usize = 600;
/// Datagrams in flight, and datagrams remembered for replay.
const BAG: usize = 1024;
const MEMORY: usize = 256;
/// How often a program may be started again.
const MAX_RESTARTS: u8 = 3;

/// The sender's place among the two ends, and the receiver's.
pub const SENDER: usize = 0;
/// See [`SENDER`].
pub const RECEIVER: usize = 1;

/// A datagram in flight.
#[derive(Clone)]
pub struct Flying {
    to: usize,
    bytes: Vec<u8>,
    /// It is not, or not only, what the other end sent.
    touched: bool,
    /// It arrived before.
    again: bool,
    /// When it arrives on a path without faults.
    due: Instant,
}

/// What is demanded of the end depends on what happened before.
#[derive(Default)]
pub struct Excuses {
    quit: bool,
    unreachable: bool,
    restarts: u8,
}

/// The conversation.
pub struct World {
    common: Common,
    now: Instant,
    sides: [Side; 2],
    bag: VecDeque<Flying>,
    memory: Vec<Flying>,
    excuses: Excuses,
}

/// Lives through the conversation that `data` describe.
pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let mut world = World::new(Setup::read(&mut bytes));
    for _ in 0..MAX_EVENTS {
        if bytes.is_empty() {
            break;
        }
        world.event(&mut bytes);
    }
    world.heal();
    world.judge();
}

fn addresses() -> [SocketAddr; 2] {
    [([192, 0, 2, 1], 1).into(), ([192, 0, 2, 2], 2).into()]
}

impl World {
    fn new(setup: Setup) -> Self {
        let now = Instant::EPOCH;
        let sides = [side(&setup, SENDER, now, 0), side(&setup, RECEIVER, now, 0)];
        let mut world = Self {
            common: Common { setup, plan: None, ever_complete: false },
            now,
            sides,
            bag: VecDeque::new(),
            memory: Vec::new(),
            excuses: Excuses::default(),
        };
        world.turn(SENDER);
        world.turn(RECEIVER);
        world
    }

    /// The active end's program dies and is started again.
    fn restart(&mut self) {
        let active = if self.common.setup.sender_is_active { SENDER } else { RECEIVER };
        // On `rfc998` the ports are taken, and nothing tells the new program from an attacker.
        if self.common.setup.wire == Wire::Rfc998 || self.excuses.restarts == MAX_RESTARTS {
            return;
        }
        self.excuses.restarts += 1;
        self.sides[active] = side(&self.common.setup, active, self.now, self.excuses.restarts);
        self.turn(active);
    }

    /// When either end wants to be called.
    fn next_timeout(&self) -> Option<Instant> {
        earliest(self.sides.iter().map(|side| side.endpoint.next_timeout(self.now)))
    }

    fn advance_to(&mut self, at: Instant) {
        self.now = self.now.max(at);
        self.turn(SENDER);
        self.turn(RECEIVER);
    }

    /// A datagram arrives at its end; `from` is where it seems to come from.
    fn deliver(&mut self, flying: &Flying, from: SocketAddr, ecn: Option<Ecn>) {
        let side = &mut self.sides[flying.to];
        let kind = flying.bytes.get(3).copied();
        let handshake = matches!(kind, Some(0 | 1 | 10 | 12 | 13));
        let fresh = !flying.touched && !flying.again && !handshake && self.excuses.restarts == 0;
        if fresh && side.openings > 0 && from == addresses()[1 - flying.to] {
            side.last_received = self.now;
        }
        side.on_received(from, flying.bytes.len());
        let mut bytes = flying.bytes.clone();
        side.endpoint.handle_datagram(
            self.now,
            Datagram { from, local: None, meta: ecn.into(), bytes: &mut bytes },
        );
        if !flying.again && !flying.bytes.is_empty() && self.memory.len() < MEMORY {
            self.memory.push(Flying { again: true, ..flying.clone() });
        }
        self.turn(flying.to);
    }

    /// Polls an end until it has no more to say; what it says goes into the bag.
    fn turn(&mut self, at: usize) {
        let peer = addresses()[1 - at];
        let mut sent = Vec::new();
        let ended = self.sides[at].turn(self.now, &mut self.common, &mut sent);
        let due = self.now + healing::DELAY;
        for (to, bytes) in sent {
            // What goes to an address that only seemed to speak reaches no end.
            if to == peer {
                let flying = Flying { to: 1 - at, bytes, touched: false, again: false, due };
                self.bag.push_back(flying);
            }
        }
        if ended {
            self.check_reason(at);
        }
    }

    fn death_timer(&self, at: usize) -> Duration {
        match at {
            SENDER => self.common.setup.sender.death_timer,
            _ => self.common.setup.receiver.death_timer,
        }
    }

    fn state(&self) -> String {
        let [sender, receiver] = self.sides.each_ref().map(|side| side.state(self.now));
        format!("{} in flight; {sender}; {receiver}", self.bag.len())
    }
}

/// An end as it is when its program starts for the `start`th time.
fn side(setup: &Setup, at: usize, now: Instant, start: u8) -> Side {
    let (role, config, stock) = match at {
        SENDER => (Role::Sender, &setup.sender, setup.stocks.0),
        _ => (Role::Receiver, &setup.receiver, setup.stocks.1),
    };
    let active = (role == Role::Sender) == setup.sender_is_active;
    let entropy = [1 + at as u8 + 2 * start; 32];
    let endpoint = if active {
        Endpoint::active(config.clone(), addresses()[1 - at], now, entropy)
    } else {
        Endpoint::passive(config.clone(), now, entropy)
    };
    let capacity = (config.buffer_bytes + config.table_bytes) as usize;
    let mut side = Side::new(role, endpoint, addresses()[at], (stock, capacity));
    (side.active, side.automatic, side.last_received) = (active, setup.automatic[at], now);
    side.homes = vec![addresses()[1 - at]];
    side
}
