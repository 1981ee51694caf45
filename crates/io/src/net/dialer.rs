//! One peer, several addresses: every address gets its own opening, and the first to open is it.
//!
//! A ticket names all addresses of a machine, and which of them can be reached from here only
//! trying tells. The openings begin one after the other, the preferred address first
//! (as RFC 8305 does for TCP). When one opens, the others are dropped before they can say another
//! word: the listening end keeps an opening that is never confirmed out of everything
//! (`docs/protocol.md §4.3`), so nothing has to be taken back.
//!
//! To the loop this is one machine, before and after.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use netblt_proto::config::Config;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::machine::{Datagram, Event, Reason, Transmit};
use netblt_proto::time::{Instant, earliest};
use netblt_proto::trace::TraceEvent;

use crate::net::peer::{Peer, is_meant};

/// From one opening to the next, unless one has failed by then.
const STAGGER: Duration = Duration::from_millis(250);
/// Addresses tried at most; a ticket holds fewer, but a name may stand for many.
pub const MAX_CANDIDATES: usize = 32;

/// An address to try, and what the connection to it needs.
#[derive(Debug)]
pub struct Candidate {
    /// Where to.
    pub address: SocketAddr,
    /// Its configuration: header sizes differ by IP version.
    pub config: Config,
    /// Never used before.
    pub entropy: [u8; 32],
}

#[derive(Debug)]
struct Runner {
    /// Its peer; `None` for an end that waits to be opened.
    to: Option<SocketAddr>,
    end: Endpoint,
}

/// One end of a connection that may still be choosing its peer's address.
#[derive(Debug)]
pub struct Race {
    runners: Vec<Runner>,
    waiting: VecDeque<Candidate>,
    next_start: Instant,
    /// The first runner is the only one and stays.
    settled: bool,
    ready: VecDeque<Event>,
    lost: Vec<(SocketAddr, Reason)>,
}

impl Race {
    /// An end that waits to be opened.
    pub fn listen(config: Config, now: Instant, entropy: [u8; 32]) -> Self {
        let end = Endpoint::passive(config, now, entropy);
        Self {
            runners: vec![Runner { to: None, end }],
            waiting: VecDeque::new(),
            next_start: Instant::NEVER,
            settled: true,
            ready: VecDeque::new(),
            lost: Vec::new(),
        }
    }

    /// An end that opens a connection to whichever candidate answers first.
    pub fn connect(candidates: Vec<Candidate>, now: Instant) -> Self {
        let mut race = Self {
            runners: Vec::with_capacity(candidates.len()),
            waiting: candidates.into_iter().take(MAX_CANDIDATES).collect(),
            next_start: now,
            settled: false,
            ready: VecDeque::new(),
            lost: Vec::new(),
        };
        race.start(now);
        race
    }

    /// The end that won, or the only one.
    pub fn end(&mut self) -> Option<&mut Endpoint> {
        self.runners.first_mut().filter(|_| self.settled).map(|runner| &mut runner.end)
    }

    /// Like [`Race::end`], to look at.
    pub fn view(&self) -> Option<&Endpoint> {
        self.runners.first().filter(|_| self.settled).map(|runner| &runner.end)
    }

    fn start(&mut self, now: Instant) {
        if let Some(candidate) = self.waiting.pop_front() {
            let Candidate { address, config, entropy } = candidate;
            let end = Endpoint::active(config, address, now, entropy);
            self.runners.push(Runner { to: Some(address), end });
            self.next_start = now + STAGGER;
        }
    }

    /// Looks at once whether the runner at `at` has won or given up.
    fn hear(&mut self, now: Instant, at: usize) {
        if self.settled {
            return;
        }
        while let Some(event) = self.runners.get_mut(at).and_then(|r| r.end.poll_event()) {
            match event {
                Event::Opened { .. } => {
                    self.runners.swap(0, at);
                    self.runners.truncate(1);
                    self.waiting.clear();
                    self.settled = true;
                    self.ready.push_back(event);
                    return;
                }
                Event::Closed(reason) => {
                    let runner = self.runners.remove(at);
                    if let Some(to) = runner.to {
                        self.lost.push((to, reason));
                    }
                    self.next_start = now;
                    if self.runners.is_empty() && self.waiting.is_empty() {
                        let reason = self.telling();
                        self.ready.push_back(Event::Closed(reason));
                    }
                    return;
                }
                // Nothing else happens before a connection opens.
                _ => {}
            }
        }
    }

    /// The reason that says most.
    fn telling(&self) -> Reason {
        let weight = |reason: &Reason| match reason {
            Reason::Refused(_) | Reason::PeerQuit(_) | Reason::PeerAborted(_) => 4,
            Reason::Violation(_) => 3,
            Reason::NoAnswer { hint: Some(_), .. } => 2,
            Reason::NoAnswer { hint: None, unreachable: true } | Reason::Unreachable => 1,
            _ => 0,
        };
        let reasons = self.lost.iter().map(|(_, reason)| reason);
        reasons
            .max_by_key(|reason| weight(reason))
            .cloned()
            .unwrap_or(Reason::NoAnswer { hint: None, unreachable: false })
    }
}

impl Peer for Race {
    type Event = Event;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        if self.settled {
            if let Some(runner) = self.runners.first_mut() {
                runner.end.handle_datagram(now, datagram);
            }
            return;
        }
        let from = Some(datagram.from);
        if let Some(at) = self.runners.iter().position(|runner| runner.to == from) {
            self.runners[at].end.handle_datagram(now, datagram);
            self.hear(now, at);
        }
    }

    /// What is said of other addresses is about strangers that a listening end answered, or about
    /// openings that were given up.
    fn handle_refused(&mut self, now: Instant, to: SocketAddr) {
        for at in (0..self.runners.len()).rev() {
            if self.runners[at].to.is_some_and(|peer| is_meant(peer, to)) {
                self.runners[at].end.handle_unreachable(now);
                self.hear(now, at);
            }
        }
    }

    /// Before a connection opens that is as good as a refusal. Afterwards the way may come back, as
    /// it does when a cable is plugged in again or a laptop changes its network: then the death
    /// timer decides.
    fn handle_no_route(&mut self, now: Instant, to: SocketAddr) {
        if !self.settled {
            self.handle_refused(now, to);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        if !self.settled && !self.waiting.is_empty() && self.next_start <= now {
            self.start(now);
        }
        for at in (0..self.runners.len()).rev() {
            let Some(runner) = self.runners.get_mut(at) else { continue };
            if runner.end.next_timeout(now).is_some_and(|due| due <= now) {
                runner.end.handle_timeout(now);
                self.hear(now, at);
            }
        }
    }

    fn poll_transmit(&mut self, now: Instant, batch: &mut Vec<u8>) -> Option<Transmit> {
        self.runners.iter_mut().find_map(|runner| runner.end.poll_transmit(now, batch))
    }

    /// Of several openings, `Opened` of the first and `Closed` of the last
    /// are told.
    fn poll_event(&mut self) -> Option<Event> {
        if let Some(event) = self.ready.pop_front() {
            return Some(event);
        }
        let runner = self.runners.first_mut().filter(|_| self.settled)?;
        let event = runner.end.poll_event()?;
        if let Event::Opened { peer, .. } = &event {
            // An end that waited learns only now who its peer is; another one may follow.
            runner.to = Some(*peer);
        }
        Some(event)
    }

    /// Of the end that won.
    fn poll_trace(&mut self) -> Option<(Instant, TraceEvent)> {
        self.end()?.poll_trace()
    }

    fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let start = (!self.settled && !self.waiting.is_empty()).then_some(self.next_start);
        let ends = self.runners.iter().map(|runner| runner.end.next_timeout(now));
        earliest(ends.chain([start]))
    }
}

/// The addresses that were tried, and what became of each where that differs.
impl fmt::Display for Race {
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
