//! The event loop: one thread drives one socket and its connections, at the sending and the
//! receiving end alike.
//!
//! 1. The application moves the results of the disk into the machine.
//! 2. Timers that are due fire.
//! 3. Bursts out, a bounded number, until nothing is due or the socket is full.
//! 4. Events out, to the application.
//! 5. Wait, if the round before did nothing: for the socket, the disk, the next timer.
//! 6. Datagrams in: what there is, a bounded number of batches.
//!
//! Nothing here allocates once it runs, takes a lock or blocks anywhere but in step 5.

use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use netblt_proto::api::{Datagram, Event, Transmit};
use netblt_proto::config::AuthorizedKeys;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;

use crate::error::Error;
use crate::net::connections::{Connections, Oversize};
use crate::net::icmp::IcmpError;
use crate::net::io_context::IoContext;
use crate::net::poller::PreciseTimers;
use crate::net::socket::Sent;
use crate::net::trace_file::DiskEvent;

/// Bursts sent before the socket is read again: acknowledgements must not wait behind data.
const MAX_BURSTS: usize = 8;
/// Batches that are read before timers fire. After a time without a processor, only the newest
/// packet shows the round trip. The first ones that waited show how long the pause was.
const MAX_READS: usize = 8;
/// Longest sleep: how late a cancellation may be noticed.
const MAX_WAIT: Duration = Duration::from_millis(100);
/// Shortest sleep while the socket is full, unless it gets room or something arrives.
const BLOCKED_WAIT: Duration = Duration::from_millis(2);
/// Last words sent when the application is done.
const MAX_LAST_WORDS: usize = 16;
/// Room for one send.
const BATCH_BYTES: usize = 1 << 16;

/// The connections whose applications are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// Those with which something has happened.
    Ready,
    /// All connections.
    All,
}

/// The clients of the connections, as the loop sees them: each acts on its connection's end.
pub trait Application {
    /// The key of a connection.
    type Key: Copy;
    /// The result of the loop.
    type Outcome;

    /// A turn of the loop begins; at least every 100 ms.
    fn on_tick(&mut self, now: Instant) -> ControlFlow<Self::Outcome, Feed>;

    /// Moves the results of the disk into the connection.
    fn on_ready(
        &mut self,
        now: Instant,
        key: Self::Key,
        end: &mut Endpoint,
    ) -> ControlFlow<Self::Outcome>;

    /// Something happened.
    fn take(
        &mut self,
        now: Instant,
        key: Self::Key,
        event: Event,
        end: &mut Endpoint,
    ) -> ControlFlow<Self::Outcome>;

    /// A datagram cannot be sent. Smaller ones may still pass, so the other end can be notified.
    fn on_io_error(
        &mut self,
        now: Instant,
        key: Self::Key,
        error: Error,
        end: &mut Endpoint,
    ) -> ControlFlow<Self::Outcome>;

    /// A router reports that the path takes IP packets of at most this many bytes.
    fn path_limit(&mut self, bytes: u32);

    /// This machine refused to send what cannot be smaller: it is lost.
    fn on_oversize(
        &mut self,
        now: Instant,
        key: Self::Key,
        refused: &Oversize,
        end: &mut Endpoint,
    ) -> ControlFlow<Self::Outcome>;

    /// The keys to let in from now on, if they have changed.
    fn poll_authorized(&mut self) -> Option<Arc<AuthorizedKeys>> {
        None
    }

    /// The next connection that another thread has marked.
    fn poll_marked(&mut self) -> Option<Self::Key> {
        None
    }

    /// The change of the disk's state since the last call, for the trace.
    fn poll_disk(&mut self) -> Option<DiskEvent> {
        None
    }
}

/// Datagrams to send that had no room.
#[derive(Debug)]
struct Outbox<K> {
    batch: Vec<u8>,
    held: Option<(K, Transmit, usize)>,
}

/// The result of a round of sending.
#[derive(Debug)]
enum Round<K> {
    /// Nothing more is due.
    Dry,
    /// There may be more.
    More,
    /// The socket is full.
    Blocked,
    /// A packet of this connection cannot be sent.
    Failed(K, Error),
    /// A packet of this connection is too large for this machine, and cannot be smaller.
    Refused(K, Oversize),
}

/// Runs `connections` until `app` has its result.
pub fn run<C, A>(
    connections: &mut C,
    app: &mut A,
    host: &mut IoContext,
) -> Result<A::Outcome, Error>
where
    C: Connections,
    A: Application<Key = C::Key>,
{
    let _timers = PreciseTimers::new();
    let mut outbox = Outbox { batch: Vec::with_capacity(BATCH_BYTES), held: None };
    let mut brought = true;
    loop {
        let now = host.clock.now();
        let on_tick = on_tick(now, connections, app, &mut outbox, host);
        if let Some(trace) = &mut host.trace {
            trace.record(connections);
            if let Some(event) = app.poll_disk() {
                trace.record_disk(now, event);
            }
        }
        match on_tick {
            ControlFlow::Break(outcome) => return Ok(outbox.finish(connections, host, outcome)),
            ControlFlow::Continue(LoopStep { busy, blocked }) => {
                if !busy && !brought {
                    wait(connections, host, blocked)?;
                }
            }
        }
        brought = receive(connections, app, host)?;
    }
}

/// The result of a step.
struct LoopStep {
    /// It brought something, so that another one may at once.
    busy: bool,
    /// The socket is full.
    blocked: bool,
}

/// Steps 1 to 4.
fn on_tick<C, A>(
    now: Instant,
    connections: &mut C,
    app: &mut A,
    outbox: &mut Outbox<C::Key>,
    host: &mut IoContext,
) -> ControlFlow<A::Outcome, LoopStep>
where
    C: Connections,
    A: Application<Key = C::Key>,
{
    if app.on_tick(now)? == Feed::All {
        connections.wake_all();
    }
    if let Some(authorized) = app.poll_authorized() {
        connections.authorize(authorized);
    }
    while let Some(key) = app.poll_marked() {
        connections.wake(key);
    }
    while let Some(key) = connections.poll_ready() {
        if let Some(end) = connections.end(key) {
            app.on_ready(now, key, end)?;
        }
    }
    if connections.next_timeout(now).is_some_and(|due| due <= now) {
        connections.handle_timeout(now);
    }
    let (mut busy, mut blocked) = (false, false);
    match outbox.send(connections, host, MAX_BURSTS) {
        Round::Dry => {}
        Round::More => busy = true,
        Round::Blocked => blocked = true,
        Round::Failed(key, error) => {
            busy = true;
            if let Some(end) = connections.end(key) {
                app.on_io_error(now, key, error, end)?;
            }
        }
        Round::Refused(key, refused) => {
            busy = true;
            if let Some(end) = connections.end(key) {
                app.on_oversize(now, key, &refused, end)?;
            }
        }
    }
    while let Some((key, event)) = connections.poll_event() {
        busy = true;
        let closed = matches!(event, Event::Closed(_));
        if let Some(end) = connections.end(key) {
            app.take(now, key, event, end)?;
        }
        if closed {
            connections.forget(key);
        }
    }
    ControlFlow::Continue(LoopStep { busy, blocked })
}

fn wait(connections: &impl Connections, host: &mut IoContext, blocked: bool) -> Result<(), Error> {
    let now = host.clock.now();
    let due = connections.next_timeout(now);
    let mut timeout = due.map_or(MAX_WAIT, |due| due.since(now)).min(MAX_WAIT);
    if blocked {
        // Most of what is due cannot leave. Asking for it again and again does not help.
        timeout = timeout.max(BLOCKED_WAIT);
    }
    let ready = match host.socket.is_shared() {
        false => host.poller.wait(host.socket.as_fd(), blocked, timeout),
        true => host.poller.wait_for_word(host.socket.as_fd(), blocked, timeout),
    };
    let ready = ready.map_err(|source| Error::Socket { what: "cannot wait".to_owned(), source })?;
    if ready.error && !host.socket.is_shared() {
        host.socket.read_errors();
    }
    Ok(())
}

/// Handles the waiting datagrams, and ICMP errors. Returns whether there were any.
fn receive<C, A>(connections: &mut C, app: &mut A, host: &mut IoContext) -> Result<bool, Error>
where
    C: Connections,
    A: Application<Key = C::Key>,
{
    let clock = host.clock;
    let mut any = false;
    for _ in 0..MAX_READS {
        let each = |now, datagram: Datagram<'_>| connections.handle_datagram(now, datagram);
        let received = host.socket.recv(|| clock.now(), each)?;
        any |= received.datagrams > 0;
        if !received.full {
            break;
        }
    }
    let now = clock.now();
    while let Some(error) = host.socket.poll_icmp_error() {
        match error {
            IcmpError::Refused(to, quote) => connections.handle_refused(now, to, quote.bytes()),
            IcmpError::NoRoute(to, quote) => connections.handle_no_route(now, to, quote.bytes()),
            IcmpError::TooBig(to, bytes) => {
                connections.handle_path_limit(now, to, bytes);
                app.path_limit(bytes);
            }
            // The send that drew it has taken it.
            IcmpError::Oversize(_) => {}
        }
    }
    Ok(any)
}

impl<K: Copy> Outbox<K> {
    /// Sends due packets, at most `bursts` of them.
    fn send(
        &mut self,
        connections: &mut impl Connections<Key = K>,
        host: &mut IoContext,
        bursts: usize,
    ) -> Round<K> {
        for _ in 0..bursts {
            if self.held.is_none() {
                self.batch.clear();
                let next = connections.poll_transmit(host.clock.now(), &mut self.batch);
                self.held = next.map(|(key, transmit)| (key, transmit, 0));
            }
            let Some((key, transmit, at)) = self.held else { return Round::Dry };
            let rest = self.batch.get(at..).unwrap_or_default();
            self.held = None;
            let sent = host.socket.send(&transmit, rest);
            let refused = host.socket.take_oversize();
            let refused = refused
                .filter(|refused| !connections.handle_oversize(host.clock.now(), key, refused));
            match sent {
                Ok(Sent::All) => {}
                Ok(Sent::Blocked(sent)) => {
                    self.held = Some((key, transmit, at + sent));
                    return Round::Blocked;
                }
                Ok(Sent::NoRoute) => {
                    connections.handle_no_route(host.clock.now(), transmit.to, rest);
                }
                Err(error) => return Round::Failed(key, error),
            }
            if let Some(refused) = refused {
                return Round::Refused(key, refused);
            }
        }
        Round::More
    }

    /// Sends last words as far as that goes without waiting.
    fn finish<T>(
        &mut self,
        connections: &mut impl Connections<Key = K>,
        host: &mut IoContext,
        outcome: T,
    ) -> T {
        let _ = self.send(connections, host, MAX_LAST_WORDS);
        if let Some(trace) = &mut host.trace {
            trace.record(connections);
        }
        outcome
    }
}
