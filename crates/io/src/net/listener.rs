//! The passive side for many peers on one socket: whoever calls gets an end of its own.
//!
//! An address that says something worth an answer gets a passive [`Endpoint`]; what else comes from
//! it goes there. Ends that never open are few at once and the oldest makes room, so that a flood
//! of callers costs a fixed amount of memory.

use std::net::SocketAddr;

use netblt_proto::config::Config;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::machine::{Datagram, Event, Transmit};
use netblt_proto::time::{Instant, earliest};
use netblt_proto::trace::TraceEvent;

use crate::net::entropy::entropy;
use crate::net::peer::{Peer, is_meant};

/// Ends that have not opened yet, at most.
const MAX_CALLERS: usize = 64;
/// Ends in all, at most: on `rfc998` one datagram from a forged address opens a connection, and
/// every turn of the loop looks at each. Who comes then hears nothing, and may ask again.
const MAX_MEMBERS: usize = 512;

#[derive(Debug)]
struct Member {
    address: SocketAddr,
    end: Endpoint,
}

impl Member {
    fn has_opened(&self, now: Instant) -> bool {
        self.end.stats(now).opened_at.is_some()
    }
}

/// Passive ends, one for each peer.
#[derive(Debug)]
pub struct Listener {
    config: Config,
    /// In the order of their first words.
    members: Vec<Member>,
    /// Who may send next.
    turn: usize,
}

impl Listener {
    /// Nobody yet; whoever comes gets an end with this configuration.
    pub fn new(config: Config) -> Self {
        Self { config, members: Vec::new(), turn: 0 }
    }

    /// The end that talks to `peer`.
    pub fn end(&mut self, peer: SocketAddr) -> Option<&mut Endpoint> {
        self.members.iter_mut().find(|m| m.address == peer).map(|m| &mut m.end)
    }

    /// The end that talks to `peer` is not needed any more.
    pub fn remove(&mut self, peer: SocketAddr) {
        self.members.retain(|member| member.address != peer);
        self.turn = 0;
    }

    /// An unknown address: an end is made for it if what it says deserves an answer.
    fn meet(&mut self, now: Instant, datagram: Datagram<'_>) {
        let first_unopened = self.members.iter().position(|member| !member.has_opened(now));
        if self.members.len() >= MAX_MEMBERS && first_unopened.is_none() {
            return;
        }
        // Without random numbers nobody can be met; they may be there for the next try.
        let Ok(entropy) = entropy() else { return };
        let address = datagram.from;
        let mut end = Endpoint::passive(self.config.clone(), now, entropy);
        end.handle_datagram(now, datagram);
        if end.next_timeout(now).is_none() {
            return;
        }
        let callers = self.members.iter().filter(|member| !member.has_opened(now)).count();
        if callers >= MAX_CALLERS || self.members.len() >= MAX_MEMBERS {
            first_unopened.map(|oldest| self.members.remove(oldest));
        }
        self.members.push(Member { address, end });
    }
}

impl Peer for Listener {
    type Event = (SocketAddr, Event);

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        match self.end(datagram.from) {
            Some(end) => end.handle_datagram(now, datagram),
            None => self.meet(now, datagram),
        }
    }

    fn handle_refused(&mut self, now: Instant, to: SocketAddr) {
        for member in &mut self.members {
            if is_meant(member.address, to) {
                member.end.handle_unreachable(now);
            }
        }
    }

    /// Everyone here has an open connection or none: the way may come back.
    fn handle_no_route(&mut self, _now: Instant, _to: SocketAddr) {}

    fn handle_timeout(&mut self, now: Instant) {
        for Member { end, .. } in &mut self.members {
            if end.next_timeout(now).is_some_and(|due| due <= now) {
                end.handle_timeout(now);
            }
        }
    }

    /// One after the other, so that nobody starves.
    fn poll_transmit(&mut self, now: Instant, batch: &mut Vec<u8>) -> Option<Transmit> {
        for _ in 0..self.members.len() {
            self.turn = (self.turn + 1) % self.members.len().max(1);
            let member = self.members.get_mut(self.turn)?;
            if let Some(transmit) = member.end.poll_transmit(now, batch) {
                return Some(transmit);
            }
        }
        None
    }

    fn poll_event(&mut self) -> Option<(SocketAddr, Event)> {
        self.members.iter_mut().find_map(|member| {
            let event = member.end.poll_event()?;
            Some((member.address, event))
        })
    }

    /// Traces tell of one connection each; here there are many.
    fn poll_trace(&mut self) -> Option<(Instant, TraceEvent)> {
        None
    }

    fn next_timeout(&self, now: Instant) -> Option<Instant> {
        earliest(self.members.iter().map(|member| member.end.next_timeout(now)))
    }
}

#[cfg(test)]
#[path = "listener_tests.rs"]
mod tests;
