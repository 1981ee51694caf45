//! The real loop: one thread drives one socket and the connections that talk through it, whichever
//! end of the data that is.
//!
//! 1. Feed: what the disk has done goes into the machine.
//! 2. Timers that are due fire.
//! 3. Bursts out, a bounded number, until nothing is due or the socket is full.
//! 4. Events out, to the application.
//! 5. Wait, if the turn before brought nothing: for the socket, the disk, the next timer.
//! 6. Datagrams in: what there is, a bounded number of batches.
//!
//! Nothing here allocates once it runs, takes a lock or blocks anywhere but in step 5.

use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use netblt_proto::api::{Datagram, Event, Transmit};
use netblt_proto::config::Authorized;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;

use crate::error::Error;
use crate::net::connections::{Connections, Oversize};
use crate::net::host::Host;
use crate::net::icmp::IcmpError;
use crate::net::socket::Sent;
use crate::net::trace_file::DiskEvent;
use crate::net::wait::PreciseTimers;

/// Bursts sent before the socket is read again: acknowledgements must not wait behind data.
const MAX_BURSTS: usize = 8;
/// Batches read before timers fire: after a time without a processor the newest packet tells how
/// long the path is, the first of those that wait only how long the pause was.
const MAX_READS: usize = 8;
/// Longest sleep: how late a cancellation may be noticed.
const MAX_WAIT: Duration = Duration::from_millis(100);
/// Shortest sleep while the socket is full, unless it gets room or something arrives.
const BLOCKED_WAIT: Duration = Duration::from_millis(2);
/// Last words sent when the application is done.
const MAX_LAST_WORDS: usize = 16;
/// Room for one send.
const BATCH_BYTES: usize = 1 << 16;

/// Whose client is to be asked what it has for the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// That of each connection with which something has happened.
    Ready,
    /// That of every connection.
    All,
}

/// The clients of the connections, as the loop sees them: each acts on its connection's end.
pub trait Application {
    /// What tells one connection from another.
    type Key: Copy;
    /// What it ends with.
    type Outcome;

    /// A turn of the loop begins; at least every 100 ms.
    fn turn(&mut self, now: Instant) -> ControlFlow<Self::Outcome, Feed>;

    /// Moves what the disk has done into the connection.
    fn feed(
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

    /// Something cannot be sent. Smaller things may still pass, so the other end can be told.
    fn broken(
        &mut self,
        now: Instant,
        key: Self::Key,
        error: Error,
        end: &mut Endpoint,
    ) -> ControlFlow<Self::Outcome>;

    /// The way there takes IP packets of at most this many bytes, a router says.
    fn path_limit(&mut self, bytes: u32);

    /// This machine refused to send what cannot be smaller: it is lost.
    fn oversize(
        &mut self,
        now: Instant,
        key: Self::Key,
        refused: &Oversize,
        end: &mut Endpoint,
    ) -> ControlFlow<Self::Outcome>;

    /// Whom to let in from now on, if that has changed.
    fn poll_authorized(&mut self) -> Option<Arc<Authorized>> {
        None
    }

    /// The next connection whose client another thread wants to be asked.
    fn poll_marked(&mut self) -> Option<Self::Key> {
        None
    }

    /// What has changed about the disk since the last call, for the trace.
    fn poll_disk(&mut self) -> Option<DiskEvent> {
        None
    }
}

/// What is to be sent and had no room.
#[derive(Debug)]
struct Outbox<K> {
    batch: Vec<u8>,
    held: Option<(K, Transmit, usize)>,
}

/// What a round of sending came to.
#[derive(Debug)]
enum Round<K> {
    /// Nothing more is due.
    Dry,
    /// There may be more.
    More,
    /// The socket is full.
    Blocked,
    /// What this connection wants to send cannot be sent.
    Failed(K, Error),
    /// What this connection has sent is too large for this machine, and cannot be smaller.
    Refused(K, Oversize),
}

/// Runs `connections` until `app` has what it wants.
pub fn run<C, A>(connections: &mut C, app: &mut A, host: &mut Host) -> Result<A::Outcome, Error>
where
    C: Connections,
    A: Application<Key = C::Key>,
{
    let _timers = PreciseTimers::new();
    let mut outbox = Outbox { batch: Vec::with_capacity(BATCH_BYTES), held: None };
    let mut brought = true;
    loop {
        let now = host.clock.now();
        let turn = turn(now, connections, app, &mut outbox, host);
        if let Some(trace) = &mut host.trace {
            trace.record(connections);
            if let Some(event) = app.poll_disk() {
                trace.record_disk(now, event);
            }
        }
        match turn {
            ControlFlow::Break(outcome) => return Ok(outbox.finish(connections, host, outcome)),
            ControlFlow::Continue(Turn { busy, blocked }) => {
                if !busy && !brought {
                    wait(connections, host, blocked)?;
                }
            }
        }
        brought = receive(connections, app, host)?;
    }
}

/// What a turn came to.
struct Turn {
    /// It brought something, so that another one may at once.
    busy: bool,
    /// The socket is full.
    blocked: bool,
}

/// Steps 1 to 4.
fn turn<C, A>(
    now: Instant,
    connections: &mut C,
    app: &mut A,
    outbox: &mut Outbox<C::Key>,
    host: &mut Host,
) -> ControlFlow<A::Outcome, Turn>
where
    C: Connections,
    A: Application<Key = C::Key>,
{
    if app.turn(now)? == Feed::All {
        connections.rouse();
    }
    if let Some(authorized) = app.poll_authorized() {
        connections.authorize(authorized);
    }
    while let Some(key) = app.poll_marked() {
        connections.rouse_one(key);
    }
    while let Some(key) = connections.poll_ready() {
        if let Some(end) = connections.end(key) {
            app.feed(now, key, end)?;
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
                app.broken(now, key, error, end)?;
            }
        }
        Round::Refused(key, refused) => {
            busy = true;
            if let Some(end) = connections.end(key) {
                app.oversize(now, key, &refused, end)?;
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
    ControlFlow::Continue(Turn { busy, blocked })
}

fn wait(connections: &impl Connections, host: &mut Host, blocked: bool) -> Result<(), Error> {
    let now = host.clock.now();
    let due = connections.next_timeout(now);
    let mut timeout = due.map_or(MAX_WAIT, |due| due.since(now)).min(MAX_WAIT);
    if blocked {
        // What is due is mostly what cannot leave: asking for it again and again helps nobody.
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

/// The datagrams that wait, and what the network said about ours. Whether there was anything.
fn receive<C, A>(connections: &mut C, app: &mut A, host: &mut Host) -> Result<bool, Error>
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
    /// Sends what is due, at most `bursts` of it.
    fn send(
        &mut self,
        connections: &mut impl Connections<Key = K>,
        host: &mut Host,
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
        host: &mut Host,
        outcome: T,
    ) -> T {
        let _ = self.send(connections, host, MAX_LAST_WORDS);
        if let Some(trace) = &mut host.trace {
            trace.record(connections);
        }
        outcome
    }
}
