//! The active side: one peer, several addresses. Every address gets an opening of its own, and the
//! first to be answered is the connection.
//!
//! A ticket has all addresses of a machine, and only attempts show which of them can be reached
//! from here. The openings begin one after the other, the preferred address first (as RFC 8305 does
//! for TCP). When one opens, the others are dropped before they can send another packet. The
//! listening end ignores an opening that is never confirmed (`docs/protocol §4.3`), so nothing
//! has to be undone.
//!
//! To the event loop this is one machine, before and after.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use netblt_proto::api::{CloseReason, Datagram, Event, Transmit};
use netblt_proto::config::Config;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::{Instant, earliest};
use netblt_proto::trace::TraceEvent;
use netblt_proto::wire::sealed;

use crate::error::Error;
use crate::net::connections::{Connections, Oversize, is_meant};
use crate::net::mux_branch::MuxBranch;

/// From one opening to the next, unless one has failed by then.
const STAGGER: Duration = Duration::from_millis(250);
/// Most addresses that are tried. A ticket holds fewer, but a name may have many.
pub const MAX_CANDIDATES: usize = 32;

/// An address to try, and the configuration of a connection to it.
#[derive(Debug)]
pub struct Candidate {
    /// The address.
    pub address: SocketAddr,
    /// Its configuration: header sizes differ by IP version.
    pub config: Config,
    /// Never used before.
    pub entropy: [u8; 32],
}

/// An opening underway, or the connection that came of it.
#[derive(Debug)]
struct Attempt {
    /// Its peer; `None` for an end that waits to be opened.
    to: Option<SocketAddr>,
    end: Endpoint,
}

/// One end of a connection, which may still be choosing its peer's address among the candidates.
#[derive(Debug)]
pub struct Dialer {
    attempts: Vec<Attempt>,
    waiting: VecDeque<Candidate>,
    next_start: Instant,
    /// The first attempt is the only one and stays.
    settled: bool,
    /// Events of openings that are decided.
    events: VecDeque<Event>,
    /// The application is to be called.
    roused: bool,
    lost: Vec<(SocketAddr, CloseReason)>,
    /// The configuration of an end that listens.
    waits: Option<Config>,
    /// For a branch of a shared connection.
    joined: Option<MuxBranch>,
}

impl Dialer {
    /// An end that waits to be opened.
    pub fn listen(config: Config, now: Instant, entropy: [u8; 32]) -> Self {
        let mut new = Self::of(Endpoint::passive(config.clone(), now, entropy));
        new.waits = Some(config);
        new
    }

    /// A subflow, whose end is open already (`docs/protocol §4.11`).
    pub(crate) fn of(end: Endpoint) -> Self {
        Self {
            attempts: vec![Attempt { to: None, end }],
            waiting: VecDeque::new(),
            next_start: Instant::NEVER,
            settled: true,
            events: VecDeque::new(),
            roused: true,
            lost: Vec::new(),
            waits: None,
            joined: None,
        }
    }

    /// The end of a subflow, to be given up.
    pub(crate) fn subflow(&mut self) -> Option<&mut Endpoint> {
        self.attempts.first_mut().map(|attempt| &mut attempt.end)
    }

    /// Another end that waits to be opened, like this one.
    pub(crate) fn again(&self, now: Instant, entropy: [u8; 32]) -> Option<Self> {
        Some(Self::listen(self.waits.clone()?, now, entropy))
    }

    /// An end that opens a connection to whichever candidate answers first.
    pub fn connect(candidates: Vec<Candidate>, now: Instant) -> Self {
        let mut dialer = Self {
            attempts: Vec::with_capacity(candidates.len()),
            waiting: candidates.into_iter().take(MAX_CANDIDATES).collect(),
            next_start: now,
            settled: false,
            events: VecDeque::new(),
            roused: true,
            lost: Vec::new(),
            waits: None,
            joined: None,
        };
        dialer.start(now);
        dialer
    }

    /// A branch, which is open.
    pub(crate) fn joined(end: Endpoint, joined: MuxBranch) -> Self {
        let mut new = Self::of(end);
        new.attempts.iter_mut().for_each(|attempt| attempt.to = attempt.end.peer());
        new.joined = Some(joined);
        new
    }

    /// Whether it is a branch, which others see off.
    pub(crate) fn is_branch(&self) -> bool {
        self.joined.is_some()
    }

    /// The end whose opening was answered first, or the only one.
    pub fn view(&self) -> Option<&Endpoint> {
        self.attempts.first().filter(|_| self.settled).map(|attempt| &attempt.end)
    }

    fn start(&mut self, now: Instant) {
        if let Some(candidate) = self.waiting.pop_front() {
            let Candidate { address, config, entropy } = candidate;
            let end = Endpoint::active(config, address, now, entropy);
            self.attempts.push(Attempt { to: Some(address), end });
            self.next_start = now + STAGGER;
        }
    }

    /// Handles the events of the attempt at `at`.
    fn handle_events(&mut self, now: Instant, at: usize) {
        if self.settled {
            return;
        }
        while let Some(event) = self.attempts.get_mut(at).and_then(|r| r.end.poll_event()) {
            match event {
                Event::Opened { .. } => {
                    self.attempts.swap(0, at);
                    for mut lost in self.attempts.drain(1..) {
                        // The buffers that the application had lent it come back, before they are
                        // needed here.
                        lost.end.quit(now, "another address answered first");
                        let events = std::iter::from_fn(|| lost.end.poll_event());
                        let lent = events.filter(|event| matches!(event, Event::Returned(_)));
                        self.events.extend(lent);
                    }
                    self.waiting.clear();
                    self.settled = true;
                    self.events.push_back(event);
                    return;
                }
                Event::Closed(reason) => {
                    if let Some(to) = self.attempts.get(at).and_then(|attempt| attempt.to) {
                        self.lost.push((to, reason));
                    }
                    self.next_start = now;
                    // The last one stays: there is always an end for the client to look at.
                    if self.attempts.len() > 1 || !self.waiting.is_empty() {
                        self.attempts.remove(at);
                    } else {
                        let reason = self.best_reason();
                        self.events.push_back(Event::Closed(reason));
                    }
                    return;
                }
                Event::Returned(_) => self.events.push_back(event),
                // No other event precedes the opening.
                _ => {}
            }
        }
    }

    /// The most informative reason.
    fn best_reason(&self) -> CloseReason {
        let weight = |reason: &CloseReason| match reason {
            CloseReason::Refused(_) | CloseReason::PeerQuit(_) | CloseReason::PeerAborted(_) => 4,
            CloseReason::Violation(_) => 3,
            CloseReason::NoAnswer { hint: Some(_), .. } => 2,
            CloseReason::NoAnswer { hint: None, unreachable: true }
            | CloseReason::Unreachable
            | CloseReason::Forgotten => 1,
            _ => 0,
        };
        let reasons = self.lost.iter().map(|(_, reason)| reason);
        reasons
            .max_by_key(|reason| weight(reason))
            .cloned()
            .unwrap_or(CloseReason::NoAnswer { hint: None, unreachable: false })
    }
}

impl Connections for Dialer {
    /// There is one connection.
    type Key = ();

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        if self.settled {
            if let Some(attempt) = self.attempts.first_mut() {
                attempt.end.handle_datagram(now, datagram);
                self.joined.iter_mut().for_each(|joined| joined.on_datagram(now, &attempt.end));
            }
            return;
        }
        // Found by its source address; or, if the peer answers from elsewhere, by its connection
        // id.
        let from = Some(datagram.from);
        let id = sealed::destination(datagram.bytes);
        let by_address = self.attempts.iter().position(|attempt| attempt.to == from);
        let by_id = || {
            let known = |attempt: &Attempt| id.is_some() && attempt.end.connection_id() == id;
            self.attempts.iter().position(known)
        };
        if let Some(at) = by_address.or_else(by_id) {
            self.attempts[at].end.handle_datagram(now, datagram);
            self.handle_events(now, at);
        }
    }

    /// ICMP messages about other addresses concern strangers that a listening end answered, or
    /// openings that were given up.
    fn handle_refused(&mut self, now: Instant, to: SocketAddr, quote: &[u8]) {
        for at in (0..self.attempts.len()).rev() {
            if self.attempts[at].end.peer().is_some_and(|peer| is_meant(peer, to)) {
                self.attempts[at].end.handle_unreachable(now, quote);
                self.handle_events(now, at);
            }
        }
    }

    /// Before a connection opens that is as good as a refusal. Afterwards the way may come back, as
    /// it does when a cable is plugged in again or a laptop changes its network: then the death
    /// timer decides.
    fn handle_no_route(&mut self, now: Instant, to: SocketAddr, quote: &[u8]) {
        if !self.settled {
            self.handle_refused(now, to, quote);
        }
    }

    fn handle_path_limit(&mut self, now: Instant, to: SocketAddr, bytes: u32) {
        for attempt in &mut self.attempts {
            if attempt.end.peer().is_some_and(|peer| is_meant(peer, to)) {
                attempt.end.handle_path_limit(now, bytes);
            }
        }
    }

    /// The destination of the datagram shows its attempt: there is one at each address.
    fn handle_oversize(&mut self, now: Instant, (): (), refused: &Oversize) -> bool {
        let Oversize { to, bytes, limit } = *refused;
        let settled = self.settled;
        let mut ends = self.attempts.iter_mut().map(|attempt| &mut attempt.end);
        let end = ends.find(|end| settled || end.peer() == Some(to));
        end.is_some_and(|end| end.handle_oversize(now, bytes, limit))
    }

    fn handle_timeout(&mut self, now: Instant) {
        if !self.settled && !self.waiting.is_empty() && self.next_start <= now {
            self.start(now);
        }
        for at in (0..self.attempts.len()).rev() {
            let Some(attempt) = self.attempts.get_mut(at) else { continue };
            if attempt.end.next_timeout(now).is_some_and(|due| due <= now) {
                attempt.end.handle_timeout(now);
                self.handle_events(now, at);
            }
        }
    }

    fn poll_transmit(&mut self, now: Instant, batch: &mut Vec<u8>) -> Option<((), Transmit)> {
        let mut attempts = self.attempts.iter_mut();
        attempts.find_map(|attempt| Some(((), attempt.end.poll_transmit(now, batch)?)))
    }

    /// Of several openings, only `Opened` of the first and `Closed` of the last are events.
    fn poll_event(&mut self) -> Option<((), Event)> {
        if let Some(event) = self.events.pop_front() {
            return Some(((), event));
        }
        let attempt = self.attempts.first_mut().filter(|_| self.settled)?;
        Some(((), attempt.end.poll_event()?))
    }

    /// Only the end that opened is traced.
    fn poll_trace(&mut self) -> Option<(Instant, TraceEvent)> {
        self.attempts.first_mut().filter(|_| self.settled)?.end.poll_trace()
    }

    fn poll_ready(&mut self) -> Option<()> {
        std::mem::take(&mut self.roused).then_some(())
    }

    fn wake_all(&mut self) {
        self.roused = true;
    }

    fn wake(&mut self, (): ()) {
        self.roused = true;
    }

    /// While none has opened, the first of those that are tried: its client can do nothing with it
    /// but give up.
    fn end(&mut self, (): ()) -> Option<&mut Endpoint> {
        self.attempts.first_mut().map(|attempt| &mut attempt.end)
    }

    /// The end's counts are still needed.
    fn forget(&mut self, (): ()) {}

    fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let start = (!self.settled && !self.waiting.is_empty()).then_some(self.next_start);
        let ends = self.attempts.iter().map(|attempt| attempt.end.next_timeout(now));
        earliest(ends.chain([start]))
    }
}

impl Drop for Dialer {
    fn drop(&mut self) {
        if let (Some(joined), Some(attempt)) = (self.joined.take(), self.attempts.pop()) {
            joined.leave(attempt.end);
        }
    }
}

impl Dialer {
    /// The same error. One about an opening also names the addresses that were tried.
    pub(crate) fn name(&self, error: Error) -> Error {
        match error {
            Error::Connect { wire, reason, .. } => {
                Error::Connect { peer: self.to_string(), wire, reason }
            }
            other => other,
        }
    }
}

/// The addresses that were tried, and what became of each where that differs.
impl fmt::Display for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.lost.first().map(|(_, reason)| reason);
        let alike = self.lost.iter().all(|(_, reason)| Some(reason) == first);
        for (i, (address, reason)) in self.lost.iter().enumerate() {
            let before = match i {
                0 if self.lost.len() == 1 => "",
                0 => "any of ",
                _ => ", ",
            };
            write!(f, "{before}{address}")?;
            if !alike {
                write!(f, " ({reason})")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "dialer_tests.rs"]
mod tests;
