//! The real loop: one thread drives one socket and what talks through it, whichever end of the
//! data that is.
//!
//! 1. Feed: what the disk has done goes into the machine.
//! 2. Timers that are due fire.
//! 3. Bursts out, a bounded number, until nothing is due or the socket is full.
//! 4. Events out, to the application.
//! 5. Wait, if the turn before brought nothing: for the socket, the disk, the next timer.
//! 6. Datagrams in, one batch.
//!
//! Nothing here allocates once it runs, takes a lock or blocks anywhere but in step 5.

use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::time::Duration;

use netblt_proto::machine::Transmit;
use netblt_proto::time::Instant;

use crate::error::Error;
use crate::net::icmp::IcmpError;
use crate::net::peer::Peer;
use crate::net::socket::{Sent, Socket};
use crate::net::trace_file::TraceFile;
use crate::net::wait::{Poller, PreciseTimers};

/// Bursts sent before the socket is read again: acknowledgements must not wait behind data.
const MAX_BURSTS: usize = 8;
/// Longest sleep: how late a cancellation may be noticed.
const MAX_WAIT: Duration = Duration::from_millis(100);
/// Shortest sleep while the socket is full, unless it gets room or something arrives.
const BLOCKED_WAIT: Duration = Duration::from_millis(2);
/// Last words sent when the application is done.
const MAX_LAST_WORDS: usize = 16;
/// Room for one send.
const BATCH_BYTES: usize = 1 << 16;

/// The client of what talks, as the loop sees it.
pub trait Application {
    /// Who talks for it.
    type Peer: Peer;
    /// What it ends with.
    type Outcome;

    /// Moves what the disk has done into the connection. Called every turn, at least every 100 ms.
    fn feed(&mut self, now: Instant, peer: &mut Self::Peer) -> ControlFlow<Self::Outcome>;

    /// Something happened.
    fn take(
        &mut self,
        now: Instant,
        event: <Self::Peer as Peer>::Event,
        peer: &mut Self::Peer,
    ) -> ControlFlow<Self::Outcome>;

    /// Something cannot be sent. Smaller things may still pass, so the other end can be told.
    fn broken(
        &mut self,
        now: Instant,
        error: Error,
        peer: &mut Self::Peer,
    ) -> ControlFlow<Self::Outcome>;

    /// The way there takes IP packets of at most this many bytes.
    fn path_limit(&mut self, bytes: u32);
}

/// The clock of the loop: nanoseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock(std::time::Instant);

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// What it says.
    pub fn now(&self) -> Instant {
        Instant::EPOCH + self.0.elapsed()
    }
}

/// What the loop stands on.
#[derive(Debug)]
pub struct Host {
    /// The way out.
    pub socket: Socket,
    /// Where it sleeps.
    pub poller: Poller,
    /// What time it is.
    pub clock: Clock,
    /// Where traces go, if anywhere.
    pub trace: Option<TraceFile>,
}

/// What is to be sent and had no room.
#[derive(Debug)]
struct Outbox {
    batch: Vec<u8>,
    held: Option<(Transmit, usize)>,
}

/// What a round of sending came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// Nothing more is due.
    Dry,
    /// There may be more.
    More,
    /// The socket is full.
    Blocked,
}

/// Runs `peer` until `app` has what it wants.
pub fn run<A: Application>(
    peer: &mut A::Peer,
    app: &mut A,
    host: &mut Host,
) -> Result<A::Outcome, Error> {
    let _timers = PreciseTimers::new();
    let mut outbox = Outbox { batch: Vec::with_capacity(BATCH_BYTES), held: None };
    let mut brought = true;
    loop {
        let now = host.clock.now();
        if let ControlFlow::Break(outcome) = app.feed(now, peer) {
            return Ok(outbox.finish(peer, host, outcome));
        }
        if peer.next_timeout(now).is_some_and(|due| due <= now) {
            peer.handle_timeout(now);
        }
        let round = match outbox.send(peer, host, MAX_BURSTS) {
            Ok(round) => round,
            Err(error) => match app.broken(now, error, peer) {
                ControlFlow::Continue(()) => Round::More,
                ControlFlow::Break(outcome) => return Ok(outbox.finish(peer, host, outcome)),
            },
        };
        brought |= round == Round::More;
        while let Some(event) = peer.poll_event() {
            brought = true;
            if let ControlFlow::Break(outcome) = app.take(now, event, peer) {
                return Ok(outbox.finish(peer, host, outcome));
            }
        }
        if let Some(trace) = &mut host.trace {
            trace.record(peer);
        }
        if !brought {
            wait(peer, host, round == Round::Blocked)?;
        }
        brought = receive(peer, app, host)?;
    }
}

fn wait(peer: &impl Peer, host: &mut Host, blocked: bool) -> Result<(), Error> {
    let now = host.clock.now();
    let mut timeout = peer.next_timeout(now).map_or(MAX_WAIT, |due| due.since(now)).min(MAX_WAIT);
    if blocked {
        // What is due is mostly what cannot leave: asking for it again and again helps nobody.
        timeout = timeout.max(BLOCKED_WAIT);
    }
    let ready = host.poller.wait(host.socket.as_fd(), blocked, timeout);
    let ready = ready.map_err(|source| Error::Socket { what: "cannot wait".to_owned(), source })?;
    if ready.error {
        host.socket.read_errors();
    }
    Ok(())
}

/// One batch of datagrams, and what the network said about ours. Whether there was anything.
fn receive<A: Application>(
    peer: &mut A::Peer,
    app: &mut A,
    host: &mut Host,
) -> Result<bool, Error> {
    let now = host.clock.now();
    let received = host.socket.recv(|datagram| peer.handle_datagram(now, datagram))?;
    while let Some(error) = host.socket.poll_icmp_error() {
        match error {
            IcmpError::Refused(to) => peer.handle_refused(now, to),
            IcmpError::NoRoute(to) => peer.handle_no_route(now, to),
            IcmpError::TooBig(bytes) => app.path_limit(bytes),
        }
    }
    Ok(received.datagrams > 0)
}

impl Outbox {
    /// Sends what is due, at most `bursts` of it.
    fn send(
        &mut self,
        peer: &mut impl Peer,
        host: &mut Host,
        bursts: usize,
    ) -> Result<Round, Error> {
        for _ in 0..bursts {
            if self.held.is_none() {
                self.batch.clear();
                self.held =
                    peer.poll_transmit(host.clock.now(), &mut self.batch).map(|next| (next, 0));
            }
            let Some((transmit, at)) = self.held else { return Ok(Round::Dry) };
            let rest = self.batch.get(at..).unwrap_or_default();
            let sent = host.socket.send(&transmit, rest).inspect_err(|_| self.held = None)?;
            match sent {
                Sent::All => self.held = None,
                Sent::Blocked(sent) => {
                    self.held = Some((transmit, at + sent));
                    return Ok(Round::Blocked);
                }
                Sent::NoRoute => {
                    self.held = None;
                    peer.handle_no_route(host.clock.now(), transmit.to);
                }
            }
        }
        Ok(Round::More)
    }

    /// Sends last words as far as that goes without waiting.
    fn finish<T>(&mut self, peer: &mut impl Peer, host: &mut Host, outcome: T) -> T {
        let _ = self.send(peer, host, MAX_LAST_WORDS);
        if let Some(trace) = &mut host.trace {
            trace.record(peer);
        }
        outcome
    }
}
