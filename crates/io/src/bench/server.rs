//! The server of `netblt bench`: one thread and one socket for all clients.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::Duration;

use netblt_proto::api::{CloseReason, Event};
use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_proto::wire::packet::Parameters;

use super::messages::{Load, TestRequest};
use super::outcome::{Outcome, config, outcome};
use super::traffic::Traffic;
use crate::cancel::Cancel;
use crate::config::for_peer;
use crate::error::Error;
use crate::net::addresses;
use crate::net::connections::Oversize;
use crate::net::entropy::entropy;
use crate::net::event_loop::{self, Application, Feed};
use crate::net::io_context::{Clock, IoContext};
use crate::net::listener::{ConnectionKey, Listener};
use crate::net::poller::Poller;
use crate::net::raw_ip;
use crate::net::socket::{Bind, Socket};
use crate::options::Options;
use crate::settings::Family;
use crate::ticket::Ticket;

/// The secret of a server that is not private. Only its time needs protection. Even so, no client
/// can direct data to an address that is not its own.
pub const OPEN_TO_ALL: Secret = Secret(*b"netblt bench serves whoever asks");
/// The default port of a server.
pub const PORT: u16 = 9980;

/// Memory for the buffers of all connections. Each gets an equal share of it at most. A client for
/// which no buffer is left is asked to come later.
const MEMORY_BYTES: u64 = 2 << 30;
/// The part of it that is kept for new clients while others still have more than their share.
const RESERVE_BYTES: u64 = MEMORY_BYTES / 8;
/// A new client gets this part of the free memory at once, or one buffer.
const FIRST_PART: u64 = 64;
/// How long clients get for their closing when the server stops.
const PATIENCE: Duration = Duration::from_secs(2);
/// A server for one test waits this long for another stream of it.
const LINGER: Duration = Duration::from_secs(1);
/// The load for a peer that receives and does not say how much.
const UNASKED: Load = Load::Time(Duration::from_secs(10));

/// Observes a server. Called from its thread; must not block.
pub trait BenchObserver: Send {
    /// Ready: this is where, and the secret (`sealed`). An error ends the server.
    fn listening(&mut self, ticket: &Ticket) -> std::io::Result<()>;
    /// A connection opened, in which this end has this role.
    fn opened(&mut self, peer: SocketAddr, role: Role, parameters: &Parameters);
    /// Something cannot be sent, and the connection that it concerns will not get on.
    fn warn(&mut self, error: &Error);
    /// It ended.
    fn closed(&mut self, peer: SocketAddr, result: Result<Outcome, Error>);
}

/// The clients that a server accepts, and how long it runs.
#[derive(Clone, Copy, Debug)]
pub struct BenchService {
    /// Accept only clients with the ticket of this run. Otherwise any client that reaches the port
    /// is served.
    pub private: bool,
    /// End after one test, which may be of several connections.
    pub once: bool,
}

/// Waits for tests and takes part in them, until it is cancelled.
pub fn serve(
    service: BenchService,
    options: &Options,
    observer: &mut dyn BenchObserver,
    cancel: &Cancel,
) -> Result<(), Error> {
    let BenchService { private, once } = service;
    let secret = if private { Secret(entropy()?) } else { OPEN_TO_ALL };
    let raw_ip = options.rfc998.raw_ip;
    let port =
        if raw_ip { options.rfc998.port.unwrap_or(raw_ip::PORT) } else { options.network.port };
    let family = match options.settings.family {
        // No raw socket receives both IP versions.
        Family::Any if raw_ip && options.network.bind.is_none() => Family::V4,
        family => family,
    };
    let socket = Socket::bind(&Bind {
        address: options.network.bind,
        port,
        family,
        answering: true,
        raw_ip,
        ..Bind::default()
    })?;
    let config = Config { accept_any_role: true, ..config(options, Role::Receiver, None) };
    let v6 = socket.local().is_ipv6();
    let known = (options.wire == Wire::Sealed).then(|| secret.clone());
    let config = for_peer(&config, options, known, v6);
    let config = Config { either_version: v6, socket_bytes: socket.room(), ..config };
    let ticket = addresses::ticket(socket.local(), options, secret)?;
    observer.listening(&ticket).map_err(Error::Unseen)?;
    let poller = Poller::new()
        .map_err(|source| Error::Socket { what: "cannot make a waker".to_owned(), source })?;
    let mut host = IoContext { socket, poller, clock: Clock::start(), trace: None };
    let mut listener = Listener::new(config.clone(), entropy()?);
    let mut app = BenchApp {
        observer,
        cancel,
        config,
        at_first: options.buffers.count,
        once,
        tests: HashMap::new(),
        memory: 0,
        idle: None,
        until: None,
        last_warning: None,
    };
    event_loop::run(&mut listener, &mut app, &mut host)?
}

struct Test {
    traffic: Traffic,
    peer: SocketAddr,
    role: Role,
    parameters: Parameters,
    /// Its caller knows that the server stops.
    warned: bool,
}

impl Test {
    /// Bytes in its buffers.
    fn memory(&mut self) -> u64 {
        u64::from(self.traffic.buffers()) * u64::from(self.parameters.buffer_bytes)
    }

    /// Ends it if there is no memory for it.
    fn end_without_memory(&mut self, now: Instant, end: &mut Endpoint) {
        if self.traffic.lacks_memory().is_some() && !std::mem::replace(&mut self.warned, true) {
            end.quit(now, "the server has no memory for a test; try again later");
        }
    }

    /// Lets it have this much memory, one buffer at least.
    fn allow(&mut self, bytes: u64) {
        let buffers = bytes / u64::from(self.parameters.buffer_bytes).max(1);
        self.traffic.allow(u32::try_from(buffers).unwrap_or(u32::MAX));
    }
}

/// The client of all connections.
struct BenchApp<'a> {
    observer: &'a mut dyn BenchObserver,
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
    /// Cancelled: the clients are notified, until then at the latest.
    until: Option<Instant>,
    /// The last warning.
    last_warning: Option<String>,
}

impl BenchApp<'_> {
    fn open(
        &mut self,
        now: Instant,
        (key, peer): (ConnectionKey, SocketAddr),
        parameters: Parameters,
        end: &mut Endpoint,
    ) {
        let role = Role::left_by(parameters.mode);
        // The same address again: its program was restarted.
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
        let traffic =
            Traffic::open(now, role, load, (self.config.wire, &parameters, self.at_first));
        self.observer.opened(peer, role, &parameters);
        let mut test = Test { traffic, peer, role, parameters, warned: false };
        test.allow(free / FIRST_PART);
        test.traffic.supply(now, end);
        test.end_without_memory(now, end);
        self.memory += test.memory();
        self.tests.insert(key, test);
    }

    /// Lets a test do something, within its share of the memory.
    fn within_share(&mut self, key: ConnectionKey, act: impl FnOnce(&mut Traffic)) {
        let most = MEMORY_BYTES - RESERVE_BYTES;
        let share = most / self.tests.len().max(1) as u64;
        let Some(test) = self.tests.get_mut(&key) else { return };
        let before = test.memory();
        test.allow(share.min(before + most.saturating_sub(self.memory)));
        act(&mut test.traffic);
        self.memory = self.memory - before + test.memory();
    }

    fn close(&mut self, now: Instant, key: ConnectionKey, reason: CloseReason, end: &Endpoint) {
        let Some(mut test) = self.tests.remove(&key) else { return };
        self.memory -= test.memory();
        let result = match test.traffic.done(&reason) {
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

impl Application for BenchApp<'_> {
    type Key = ConnectionKey;
    type Outcome = Result<(), Error>;

    /// Whether it is time to stop. If so, every client is notified.
    fn on_tick(&mut self, now: Instant) -> ControlFlow<Self::Outcome, Feed> {
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

    fn on_ready(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        end: &mut Endpoint,
    ) -> ControlFlow<Self::Outcome> {
        if let Some(test) = self.tests.get_mut(&key) {
            match self.until {
                Some(_) if !std::mem::replace(&mut test.warned, true) => {
                    end.quit(now, "the server was stopped");
                }
                _ => self.within_share(key, |traffic| traffic.supply(now, end)),
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
            event => self.within_share(key, |traffic| traffic.take(now, event, end)),
        }
        ControlFlow::Continue(())
    }

    /// The connection will fall silent. The others go on.
    fn on_io_error(
        &mut self,
        _: Instant,
        _: ConnectionKey,
        error: Error,
        _: &mut Endpoint,
    ) -> ControlFlow<Self::Outcome> {
        let message = error.to_string();
        // Each packet fails in the same way.
        if self.last_warning.as_ref() != Some(&message) {
            self.observer.warn(&error);
            self.last_warning = Some(message);
        }
        ControlFlow::Continue(())
    }

    fn path_limit(&mut self, _bytes: u32) {}

    fn on_oversize(
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
                self.on_io_error(now, key, Error::DatagramSize { bytes, limit }, end)
            }
        }
    }
}
