//! The end that waits: one thread and one socket for everyone who calls.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::Duration;

use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_proto::machine::{Event, Reason};
use netblt_proto::time::Instant;
use netblt_proto::wire::packet::Parameters;

use super::outcome::{Outcome, config, outcome};
use super::pump::Pump;
use super::request::{Load, TestRequest};
use crate::config::for_peer;
use crate::error::Error;
use crate::net::addresses;
use crate::net::driver::{self, Application, Clock, Host};
use crate::net::entropy::entropy;
use crate::net::listener::Listener;
use crate::net::socket::{Bind, Socket};
use crate::net::wait::Poller;
use crate::options::{Cancel, Options};
use crate::ticket::Ticket;

/// The secret of a server that is not private: there is nothing to protect but its time, and still
/// nobody can draw data to an address that is not his own.
pub const OPEN_TO_ALL: Secret = Secret(*b"netblt bench serves whoever asks");
/// The port of a server that was told none.
pub const PORT: u16 = 9980;

/// Memory for the buffers of all connections: who asks beyond that is told to come later.
const MEMORY_BYTES: u64 = 2 << 30;
/// How long callers are given to hear that the server stops.
const PATIENCE: Duration = Duration::from_secs(2);
/// A server for one test waits this long for another stream of it.
const LINGER: Duration = Duration::from_secs(1);
/// What a stranger gets who reads and does not say how much.
const UNASKED: Load = Load::Time(Duration::from_secs(10));

/// Hears what a server does. Called from its thread; must not block.
pub trait ServerObserver: Send {
    /// Ready: this is where, and the secret (`sealed`).
    fn listening(&mut self, ticket: &Ticket);
    /// A connection opened, in which this end has this role.
    fn opened(&mut self, peer: SocketAddr, role: Role, parameters: &Parameters);
    /// Something cannot be sent, and the connection that it concerns will not get on.
    fn warn(&mut self, message: &str);
    /// It ended.
    fn closed(&mut self, peer: SocketAddr, result: Result<Outcome, Error>);
}

/// For whom a server is there, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// Only for those who have the ticket of this run, and not for whoever reaches the port.
    pub private: bool,
    /// End after one test, which may be of several connections.
    pub once: bool,
}

/// Waits for tests and takes part in them, until it is cancelled.
pub fn serve(
    service: Service,
    options: &Options,
    observer: &mut dyn ServerObserver,
    cancel: &Cancel,
) -> Result<(), Error> {
    let Service { private, once } = service;
    let secret = if private { Secret(entropy()?) } else { OPEN_TO_ALL };
    let (address, port) = (options.bind, options.port);
    let socket = Socket::bind(&Bind {
        address,
        port,
        family: options.family,
        answering: true,
        ..Bind::default()
    })?;
    let config = Config { any_role: true, ..config(options, Role::Receiver, None) };
    let v6 = socket.local().is_ipv6();
    let known = (options.wire == Wire::Sealed).then(|| secret.clone());
    let config = for_peer(&config, options, known, v6);
    observer.listening(&addresses::ticket(&socket, options, secret)?);
    let poller = Poller::new()
        .map_err(|source| Error::Socket { what: "cannot make a waker".to_owned(), source })?;
    let mut host = Host { socket, poller, clock: Clock::start(), trace: None };
    let mut listener = Listener::new(config.clone());
    let mut app = Serving {
        observer,
        cancel,
        config,
        once,
        tests: BTreeMap::new(),
        memory: 0,
        idle: None,
        until: None,
        told: None,
    };
    driver::run(&mut listener, &mut app, &mut host)?
}

struct Test {
    pump: Pump,
    role: Role,
    parameters: Parameters,
    memory: u64,
}

/// The client of all connections.
struct Serving<'a> {
    observer: &'a mut dyn ServerObserver,
    cancel: &'a Cancel,
    config: Config,
    once: bool,
    tests: BTreeMap<SocketAddr, Test>,
    /// Bytes in the buffers of all of them.
    memory: u64,
    /// Since when there is none, after there was one.
    idle: Option<Instant>,
    /// Cancelled: the callers are told, until then at the latest.
    until: Option<Instant>,
    /// The last warning.
    told: Option<String>,
}

impl Serving<'_> {
    fn open(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        parameters: Parameters,
        listener: &mut Listener,
    ) {
        let Some(end) = listener.end(peer) else { return };
        let role = Role::left_by(parameters.mode);
        // The same address again: its program was started anew.
        if let Some(old) = self.tests.remove(&peer) {
            self.memory -= old.memory;
        }
        let memory = u64::from(parameters.buffer_bytes) * u64::from(parameters.max_outstanding);
        if memory > MEMORY_BYTES {
            end.quit(now, "that many buffers of that size are more than the server's 2 GiB");
            return;
        }
        if self.memory + memory > MEMORY_BYTES || self.until.is_some() {
            end.quit(now, "the server is busy with other tests; try again later");
            return;
        }
        self.memory += memory;
        self.idle = None;
        let load = TestRequest::parse(&parameters.client, UNASKED).load;
        let pump = Pump::open(now, role, load, (self.config.wire, &parameters), end);
        self.observer.opened(peer, role, &parameters);
        self.tests.insert(peer, Test { pump, role, parameters, memory });
    }

    fn close(&mut self, now: Instant, peer: SocketAddr, reason: Reason, listener: &mut Listener) {
        let stats = listener.end(peer).map(|end| end.stats(now)).unwrap_or_default();
        listener.remove(peer);
        let Some(mut test) = self.tests.remove(&peer) else { return };
        self.memory -= test.memory;
        let result = match test.pump.done(&reason) {
            Some(done) => done.map(|done| {
                outcome(&self.config, test.role, test.parameters, done, (now, stats, 0.0))
            }),
            None => Err(Error::Ended(reason)),
        };
        self.observer.closed(peer, result);
        if self.tests.is_empty() {
            self.idle = Some(now);
        }
    }

    /// Whether it is time to stop.
    fn stops(&mut self, now: Instant, listener: &mut Listener) -> ControlFlow<Result<(), Error>> {
        if self.cancel.is_cancelled() && self.until.is_none() {
            self.until = Some(now + PATIENCE);
            for peer in self.tests.keys() {
                if let Some(end) = listener.end(*peer) {
                    end.quit(now, "the server was stopped");
                }
            }
        }
        if self.until.is_some_and(|until| until <= now || self.tests.is_empty()) {
            return ControlFlow::Break(Err(Error::Interrupted));
        }
        if self.once && self.idle.is_some_and(|since| now.since(since) >= LINGER) {
            return ControlFlow::Break(Ok(()));
        }
        ControlFlow::Continue(())
    }
}

impl Application for Serving<'_> {
    type Peer = Listener;
    type Outcome = Result<(), Error>;

    fn feed(&mut self, now: Instant, listener: &mut Listener) -> ControlFlow<Self::Outcome> {
        self.stops(now, listener)?;
        for (peer, test) in &mut self.tests {
            if let Some(end) = listener.end(*peer) {
                test.pump.feed(now, end);
            }
        }
        ControlFlow::Continue(())
    }

    fn take(
        &mut self,
        now: Instant,
        (peer, event): (SocketAddr, Event),
        listener: &mut Listener,
    ) -> ControlFlow<Self::Outcome> {
        match event {
            Event::Opened { parameters, .. } => self.open(now, peer, parameters, listener),
            Event::Closed(reason) => self.close(now, peer, reason, listener),
            event => {
                if let (Some(test), Some(end)) = (self.tests.get_mut(&peer), listener.end(peer)) {
                    test.pump.take(now, event, end);
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// The connection that it concerns will fall silent; the others go on.
    fn broken(&mut self, _: Instant, error: Error, _: &mut Listener) -> ControlFlow<Self::Outcome> {
        let message = error.to_string();
        // Each packet fails in the same way.
        if self.told.as_ref() != Some(&message) {
            self.observer.warn(&message);
            self.told = Some(message);
        }
        ControlFlow::Continue(())
    }

    fn path_limit(&mut self, _bytes: u32) {}
}
