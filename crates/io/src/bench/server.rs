//! The end that waits: one thread and one socket for everyone who calls.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::Duration;

use netblt_proto::api::{Event, Reason};
use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_proto::wire::packet::Parameters;

use super::messages::{Load, TestRequest};
use super::outcome::{Outcome, config, outcome};
use super::pump::Pump;
use crate::cancel::Cancel;
use crate::config::for_peer;
use crate::error::Error;
use crate::net::addresses;
use crate::net::connections::Oversize;
use crate::net::driver::{self, Application, Feed};
use crate::net::entropy::entropy;
use crate::net::host::{Clock, Host};
use crate::net::listener::{ConnectionKey, Listener};
use crate::net::raw_ip;
use crate::net::socket::{Bind, Socket};
use crate::net::wait::Poller;
use crate::options::{Family, Options};
use crate::ticket::Ticket;

/// The secret of a server that is not private: there is nothing to protect but its time, and still
/// nobody can draw data to an address that is not his own.
pub const OPEN_TO_ALL: Secret = Secret(*b"netblt bench serves whoever asks");
/// The port of a server that was told none.
pub const PORT: u16 = 9980;

/// Memory for the buffers of all connections. Each gets an equal share of it at most; who finds no
/// room for a buffer is told to come later.
const MEMORY_BYTES: u64 = 2 << 30;
/// Of that, kept for those who come while the others still have more than their share.
const RESERVE_BYTES: u64 = MEMORY_BYTES / 8;
/// Who comes gets this part of what is free at once, or one buffer.
const FIRST_PART: u64 = 64;
/// How long callers are given to hear that the server stops.
const PATIENCE: Duration = Duration::from_secs(2);
/// A server for one test waits this long for another stream of it.
const LINGER: Duration = Duration::from_secs(1);
/// What a stranger gets who reads and does not say how much.
const UNASKED: Load = Load::Time(Duration::from_secs(10));

/// Hears what a server does. Called from its thread; must not block.
pub trait ServerObserver: Send {
    /// Ready: this is where, and the secret (`sealed`). An error ends the server.
    fn listening(&mut self, ticket: &Ticket) -> std::io::Result<()>;
    /// A connection opened, in which this end has this role.
    fn opened(&mut self, peer: SocketAddr, role: Role, parameters: &Parameters);
    /// Something cannot be sent, and the connection that it concerns will not get on.
    fn warn(&mut self, error: &Error);
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
    let raw_ip = options.rfc998.raw_ip;
    let port = if raw_ip { options.rfc998.port.unwrap_or(raw_ip::PORT) } else { options.port };
    let family = match options.family {
        // No raw socket hears both IP versions.
        Family::Any if raw_ip && options.bind.is_none() => Family::V4,
        family => family,
    };
    let socket = Socket::bind(&Bind {
        address: options.bind,
        port,
        family,
        answering: true,
        raw_ip,
        ..Bind::default()
    })?;
    let config = Config { any_role: true, ..config(options, Role::Receiver, None) };
    let v6 = socket.local().is_ipv6();
    let known = (options.wire == Wire::Sealed).then(|| secret.clone());
    let config = for_peer(&config, options, known, v6);
    let config = Config { either_version: v6, socket_bytes: socket.room(), ..config };
    let ticket = addresses::ticket(socket.local(), options, secret)?;
    observer.listening(&ticket).map_err(Error::Unseen)?;
    let poller = Poller::new()
        .map_err(|source| Error::Socket { what: "cannot make a waker".to_owned(), source })?;
    let mut host = Host { socket, poller, clock: Clock::start(), trace: None };
    let mut listener = Listener::new(config.clone(), entropy()?);
    let mut app = Serving {
        observer,
        cancel,
        config,
        at_first: options.buffers,
        once,
        tests: HashMap::new(),
        memory: 0,
        idle: None,
        until: None,
        told: None,
    };
    driver::run(&mut listener, &mut app, &mut host)?
}

struct Test {
    pump: Pump,
    peer: SocketAddr,
    role: Role,
    parameters: Parameters,
    /// Its caller knows that the server stops.
    told: bool,
}

impl Test {
    /// Bytes in its buffers.
    fn memory(&mut self) -> u64 {
        u64::from(self.pump.buffers()) * u64::from(self.parameters.buffer_bytes)
    }

    /// Ends it if there is no memory for it.
    fn end_without_memory(&mut self, now: Instant, end: &mut Endpoint) {
        if self.pump.lacks_memory().is_some() && !std::mem::replace(&mut self.told, true) {
            end.quit(now, "the server has no memory for a test; try again later");
        }
    }

    /// Lets it have this much memory, one buffer at least.
    fn allow(&mut self, bytes: u64) {
        let buffers = bytes / u64::from(self.parameters.buffer_bytes).max(1);
        self.pump.allow(u32::try_from(buffers).unwrap_or(u32::MAX));
    }
}

/// The client of all connections.
struct Serving<'a> {
    observer: &'a mut dyn ServerObserver,
    cancel: &'a Cancel,
    config: Config,
    /// Buffers of a test before its path has use of more.
    at_first: u32,
    once: bool,
    tests: HashMap<ConnectionKey, Test>,
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
        (key, peer): (ConnectionKey, SocketAddr),
        parameters: Parameters,
        end: &mut Endpoint,
    ) {
        let role = Role::left_by(parameters.mode);
        // The same address again: its program was started anew.
        if let Some(mut old) = self.tests.remove(&key) {
            self.memory -= old.memory();
        }
        let buffer = u64::from(parameters.buffer_bytes);
        let free = MEMORY_BYTES.saturating_sub(self.memory);
        if free < buffer || self.until.is_some() {
            end.quit(now, "the server is busy with other tests; try again later");
            return;
        }
        self.idle = None;
        let load = TestRequest::parse(&parameters.client, UNASKED).load;
        let pump = Pump::open(now, role, load, (self.config.wire, &parameters, self.at_first));
        self.observer.opened(peer, role, &parameters);
        let mut test = Test { pump, peer, role, parameters, told: false };
        test.allow(free / FIRST_PART);
        test.pump.feed(now, end);
        test.end_without_memory(now, end);
        self.memory += test.memory();
        self.tests.insert(key, test);
    }

    /// Lets a test do something, within its share of the memory.
    fn within_share(&mut self, key: ConnectionKey, act: impl FnOnce(&mut Pump)) {
        let most = MEMORY_BYTES - RESERVE_BYTES;
        let share = most / self.tests.len().max(1) as u64;
        let Some(test) = self.tests.get_mut(&key) else { return };
        let before = test.memory();
        test.allow(share.min(before + most.saturating_sub(self.memory)));
        act(&mut test.pump);
        self.memory = self.memory - before + test.memory();
    }

    fn close(&mut self, now: Instant, key: ConnectionKey, reason: Reason, end: &Endpoint) {
        let Some(mut test) = self.tests.remove(&key) else { return };
        self.memory -= test.memory();
        let result = match test.pump.done(&reason) {
            Some(done) => done.map(|done| {
                let known = (now, end.stats(now), 0.0);
                let started = known.1.opened_at.unwrap_or(now);
                outcome(&self.config, test.role, test.parameters, done, started, known)
            }),
            None => Err(Error::Ended(reason)),
        };
        self.observer.closed(test.peer, result);
        if self.tests.is_empty() {
            self.idle = Some(now);
        }
    }
}

impl Application for Serving<'_> {
    type Key = ConnectionKey;
    type Outcome = Result<(), Error>;

    /// Whether it is time to stop; if so, every caller is told.
    fn turn(&mut self, now: Instant) -> ControlFlow<Self::Outcome, Feed> {
        let stops = self.cancel.is_cancelled() && self.until.is_none();
        if stops {
            self.until = Some(now + PATIENCE);
        }
        if self.until.is_some_and(|until| until <= now || self.tests.is_empty()) {
            return ControlFlow::Break(Err(Error::Interrupted));
        }
        if self.once && self.idle.is_some_and(|since| now.since(since) >= LINGER) {
            return ControlFlow::Break(Ok(()));
        }
        ControlFlow::Continue(if stops { Feed::All } else { Feed::Ready })
    }

    fn feed(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        end: &mut Endpoint,
    ) -> ControlFlow<Self::Outcome> {
        if let Some(test) = self.tests.get_mut(&key) {
            match self.until {
                Some(_) if !std::mem::replace(&mut test.told, true) => {
                    end.quit(now, "the server was stopped");
                }
                _ => self.within_share(key, |pump| pump.feed(now, end)),
            }
        }
        if let Some(test) = self.tests.get_mut(&key) {
            test.end_without_memory(now, end);
        }
        ControlFlow::Continue(())
    }

    fn take(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        event: Event,
        end: &mut Endpoint,
    ) -> ControlFlow<Self::Outcome> {
        match event {
            Event::Opened { peer, parameters, .. } => self.open(now, (key, peer), parameters, end),
            Event::Closed(reason) => self.close(now, key, reason, end),
            event => self.within_share(key, |pump| pump.take(now, event, end)),
        }
        ControlFlow::Continue(())
    }

    /// The connection that it concerns will fall silent; the others go on.
    fn broken(
        &mut self,
        _: Instant,
        _: ConnectionKey,
        error: Error,
        _: &mut Endpoint,
    ) -> ControlFlow<Self::Outcome> {
        let message = error.to_string();
        // Each packet fails in the same way.
        if self.told.as_ref() != Some(&message) {
            self.observer.warn(&error);
            self.told = Some(message);
        }
        ControlFlow::Continue(())
    }

    fn path_limit(&mut self, _bytes: u32) {}

    fn oversize(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        refused: &Oversize,
        end: &mut Endpoint,
    ) -> ControlFlow<Self::Outcome> {
        match self.config.wire {
            Wire::Sealed => ControlFlow::Continue(()),
            Wire::Rfc998 => {
                let Oversize { bytes, limit, .. } = *refused;
                self.broken(now, key, Error::DatagramSize { bytes, limit }, end)
            }
        }
    }
}
