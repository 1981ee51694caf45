//! The passive side for many peers on one socket: each peer gets an endpoint of its own.
//!
//! On `sealed` one [`PassiveListener`] answers all openings, and hands out an [`Endpoint`] for
//! each peer whose address is validated. All other datagrams go to the endpoint whose connection
//! id they bear, from whatever address they come. `rfc998` has no ids and validates nothing: an
//! address that sends something worth an answer gets a passive [`Endpoint`]. Few of those that
//! never open are kept, and the oldest makes room, so that a flood of openings costs a fixed
//! amount of memory.
//!
//! The cost of a datagram hardly grows with the number of endpoints. They are found in trees, and
//! by hash where strangers choose the key. Only those are polled that received something, whose
//! timer is due or whose client did something.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use netblt_proto::api::{Datagram, Event, Transmit};
use netblt_proto::config::{AuthorizedKeys, Config, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::listener::PassiveListener;
use netblt_proto::time::{Instant, earliest};
use netblt_proto::trace::TraceEvent;
use netblt_proto::wire::sealed;

use crate::net::connections::{Connections, Oversize, is_meant};
use crate::net::entropy::entropy;

/// Ends that have not opened yet, at most.
const MAX_CALLERS: usize = 64;
/// Endpoints in all, at most: on `rfc998` one datagram from a forged address opens a connection.
/// Beyond that a peer gets no answer, and may try again.
const MAX_MEMBERS: usize = 512;

/// Branches of one connection at once, including those that are only asked to come later.
pub(crate) const MAX_BRANCHES: usize = 80;

/// Which connection; later ones have higher numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionKey(u64);

impl ConnectionKey {
    /// Its number, for a [`Waker`](crate::net::poller::Waker) of its own.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// The connection of this number, if there is one.
    pub(crate) fn of(number: u64) -> Self {
        Self(number)
    }
}

/// The key for packets of the door.
const NO_CONNECTION: ConnectionKey = ConnectionKey(u64::MAX);

#[derive(Debug)]
struct Member {
    address: SocketAddr,
    end: Endpoint,
    /// Connection ids that lead here.
    ids: Vec<u32>,
    /// The ids of subflows that are opening.
    subflows: Vec<u32>,
    opened: bool,
    /// Its stem, if it is a branch, and the number of its own branches.
    stem: Option<ConnectionKey>,
    branches: usize,
    /// Its entry among the deadlines.
    due: Option<Instant>,
    queued: Queued,
}

/// In which queues a member is, so that it is in each once.
#[derive(Clone, Copy, Debug, Default)]
struct Queued {
    sending: bool,
    eventful: bool,
    ready: bool,
}

/// Passive ends, one for each peer.
#[derive(Debug)]
pub struct Listener {
    config: Config,
    /// Ends in all, at most.
    most: usize,
    /// The answerer of openings (`sealed`).
    door: Option<PassiveListener>,
    /// The newest packet was the door's: now the others have their turn.
    answered: bool,
    /// Each in an allocation of its own: it has 2 KB, and a tree moves its elements.
    members: BTreeMap<ConnectionKey, Box<Member>>,
    by_address: HashMap<SocketAddr, ConnectionKey>,
    /// By the ids that our ends have chosen, so that no peer can make many alike.
    by_id: BTreeMap<u32, ConnectionKey>,
    next_key: u64,
    /// Those that have not opened, the oldest first.
    callers: BTreeSet<ConnectionKey>,
    /// The deadline of each end, unless it is in `sending`.
    deadlines: BTreeSet<(Instant, ConnectionKey)>,
    /// Those that may have something to send, one after the other.
    sending: VecDeque<ConnectionKey>,
    /// Those that may have an event.
    eventful: VecDeque<ConnectionKey>,
    /// Those whose application is to be called.
    ready: VecDeque<ConnectionKey>,
    /// How often an end was polled.
    #[cfg(test)]
    looks: u64,
}

impl Listener {
    /// A listener without connections. Each new peer gets an endpoint with this configuration.
    /// `entropy` must never have been used before.
    pub fn new(config: Config, entropy: [u8; 32]) -> Self {
        let sealed = config.wire == Wire::Sealed;
        Self {
            door: sealed.then(|| PassiveListener::new(config.clone(), entropy)),
            answered: false,
            config,
            most: MAX_MEMBERS,
            members: BTreeMap::new(),
            by_address: HashMap::new(),
            by_id: BTreeMap::new(),
            next_key: 0,
            callers: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            sending: VecDeque::new(),
            eventful: VecDeque::new(),
            ready: VecDeque::new(),
            #[cfg(test)]
            looks: 0,
        }
    }

    /// From now on only these keys may open connections. Open connections stay.
    pub fn authorize(&mut self, authorized: Arc<AuthorizedKeys>) {
        if let Some(door) = &mut self.door {
            door.authorize(authorized);
        }
    }

    /// Accepts at most this many ends in all.
    pub fn with_room(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// The connection of the end that talks to `peer`.
    pub fn key_of(&self, peer: SocketAddr) -> Option<ConnectionKey> {
        match self.door {
            None => self.by_address.get(&peer).copied(),
            Some(_) => {
                let mut all = self.members.iter();
                all.find(|(_, member)| member.end.peer() == Some(peer)).map(|(key, _)| *key)
            }
        }
    }

    /// The endpoint for a datagram. A false id leads to an endpoint that drops the datagram.
    fn addressee(&self, datagram: &Datagram<'_>) -> Option<ConnectionKey> {
        match self.door {
            None => self.by_address.get(&datagram.from).copied(),
            Some(_) => self.by_id.get(&sealed::destination(datagram.bytes)?).copied(),
        }
    }

    fn member(&mut self, key: ConnectionKey) -> Option<&mut Member> {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        self.members.get_mut(&key).map(Box::as_mut)
    }

    /// A datagram for no endpoint: it goes to the door, or an unknown address gets an endpoint if
    /// the datagram deserves an answer.
    fn meet(&mut self, now: Instant, datagram: Datagram<'_>) {
        if self.members.len() >= self.most && self.callers.is_empty() {
            return;
        }
        let address = datagram.from;
        if let Some(door) = &mut self.door {
            let end = door.handle_datagram(now, datagram);
            end.into_iter().for_each(|end| _ = self.admit(now, address, end));
            return;
        }
        // Without random numbers no peer can be accepted. They may be there for the next try.
        let Ok(entropy) = entropy() else { return };
        let mut end = Endpoint::passive(self.config.clone(), now, entropy);
        end.handle_datagram(now, datagram);
        if end.next_timeout(now).is_none() {
            return;
        }
        if self.callers.len() >= MAX_CALLERS || self.members.len() >= self.most {
            let oldest = self.callers.first().copied();
            oldest.into_iter().for_each(|oldest| self.remove(oldest));
        }
        let _ = self.admit(now, address, end);
    }

    /// Gives new branches of an end ends of their own.
    fn grow(&mut self, now: Instant, stem: ConnectionKey) {
        loop {
            let Self { door, members, by_id, most, .. } = self;
            let full = members.len() >= *most;
            // On `rfc998` nothing branches.
            let (Some(door), Some(member)) = (door, members.get_mut(&stem)) else { return };
            if full || member.branches >= MAX_BRANCHES {
                return;
            }
            let is_taken = |id| by_id.contains_key(&id);
            let end = door.take_branch(now, &mut member.end, || entropy().ok(), is_taken);
            let Some(end) = end else { return };
            member.branches += 1;
            let address = member.address;
            let key = self.admit(now, address, end);
            self.members.get_mut(&key).into_iter().for_each(|new| new.stem = Some(stem));
        }
    }

    fn admit(&mut self, now: Instant, address: SocketAddr, end: Endpoint) -> ConnectionKey {
        let key = ConnectionKey(self.next_key);
        self.next_key += 1;
        let (ids, subflows, opened) = (Vec::new(), Vec::new(), false);
        let queued = Queued::default();
        let (stem, branches, due) = (None, 0, None);
        let member = Member { address, end, ids, subflows, opened, stem, branches, due, queued };
        self.members.insert(key, Box::new(member));
        if self.door.is_none() {
            self.by_address.insert(address, key);
        }
        self.callers.insert(key);
        self.mark_active(now, key);
        self.touch(key, true);
        key
    }

    /// Something arrived for this end: it may have opened, or answer to other ids than before.
    fn mark_active(&mut self, now: Instant, key: ConnectionKey) {
        let Some(member) = self.members.get_mut(&key) else { return };
        if !member.opened && member.end.stats(now).opened_at.is_some() {
            member.opened = true;
            self.callers.remove(&key);
        }
        if !member.end.connection_ids().eq(member.ids.iter().copied()) {
            for id in member.ids.drain(..) {
                self.by_id.remove(&id);
            }
            member.ids.extend(member.end.connection_ids());
            self.by_id.extend(member.ids.iter().map(|id| (*id, key)));
        }
        // One by one: there are mostly none, and slices of none are compared by a glibc that reads
        // nothing where nothing is. That takes a third of opening a packet (AVX-512).
        if !member.end.subflow_ids().iter().eq(&member.subflows) {
            let before = std::mem::replace(&mut member.subflows, member.end.subflow_ids().to_vec());
            before.iter().for_each(|id| free(&mut self.by_id, *id, key));
            // An id that already has an endpoint is no subflow's.
            let subflows = self.members.get(&key).into_iter().flat_map(|member| &member.subflows);
            subflows.for_each(|id| _ = self.by_id.entry(*id).or_insert(key));
        }
    }

    /// Marks that this end may have packets and events, and, unless its own application has touched
    /// it, that this one is to be called.
    fn touch(&mut self, key: ConnectionKey, ready: bool) {
        let Some(member) = self.members.get_mut(&key) else { return };
        if let Some(due) = member.due.take() {
            self.deadlines.remove(&(due, key));
        }
        let queued = &mut member.queued;
        if !std::mem::replace(&mut queued.sending, true) {
            self.sending.push_back(key);
        }
        if !std::mem::replace(&mut queued.eventful, true) {
            self.eventful.push_back(key);
        }
        if ready && !std::mem::replace(&mut queued.ready, true) {
            self.ready.push_back(key);
        }
    }

    /// This end has nothing to send now: when is its time?
    fn rest(&mut self, now: Instant, key: ConnectionKey) {
        let Some(member) = self.member(key) else { return };
        member.queued.sending = false;
        member.due = member.end.next_timeout(now);
        if let Some(due) = member.due {
            self.deadlines.insert((due, key));
        }
    }

    /// The door's next answer to a peer that has no endpoint yet.
    fn next_answer(&mut self, batch: &mut Vec<u8>) -> Option<(ConnectionKey, Transmit)> {
        let transmit = self.door.as_mut()?.poll_transmit(batch)?;
        self.answered = true;
        Some((NO_CONNECTION, transmit))
    }

    /// The connections whose peers may be at an address in an ICMP message. A raw socket does not
    /// know the port.
    fn meant(&self, to: SocketAddr) -> Vec<ConnectionKey> {
        let is_meant = |member: &Member| {
            member.end.peer().or(Some(member.address)).is_some_and(|peer| is_meant(peer, to))
        };
        let all = self.members.iter().filter(|(_, member)| is_meant(member));
        all.map(|(key, _)| *key).collect()
    }

    fn remove(&mut self, key: ConnectionKey) {
        // The queues may still hold its key, which then leads to nothing.
        let Some(member) = self.members.remove(&key) else { return };
        if self.by_address.get(&member.address) == Some(&key) {
            self.by_address.remove(&member.address);
        }
        let stem = member.stem.and_then(|stem| self.members.get_mut(&stem));
        stem.into_iter().for_each(|stem| stem.branches -= 1);
        self.callers.remove(&key);
        for id in member.ids {
            self.by_id.remove(&id);
        }
        member.subflows.iter().for_each(|id| free(&mut self.by_id, *id, key));
        if let Some(due) = member.due {
            self.deadlines.remove(&(due, key));
        }
    }
}

/// The id leads to this connection no more, if it did.
fn free(by_id: &mut BTreeMap<u32, ConnectionKey>, id: u32, key: ConnectionKey) {
    if by_id.get(&id) == Some(&key) {
        by_id.remove(&id);
    }
}

impl Connections for Listener {
    type Key = ConnectionKey;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        let Some(key) = self.addressee(&datagram) else { return self.meet(now, datagram) };
        if let Some(member) = self.member(key) {
            member.end.handle_datagram(now, datagram);
            self.mark_active(now, key);
            self.touch(key, true);
            if self.config.branches {
                self.grow(now, key);
            }
        }
    }

    fn handle_refused(&mut self, now: Instant, to: SocketAddr, quote: &[u8]) {
        for key in self.meant(to) {
            if let Some(member) = self.member(key) {
                member.end.handle_unreachable(now, quote);
                self.touch(key, true);
            }
        }
    }

    fn handle_path_limit(&mut self, now: Instant, to: SocketAddr, bytes: u32) {
        for key in self.meant(to) {
            if let Some(member) = self.member(key) {
                member.end.handle_path_limit(now, bytes);
                self.touch(key, true);
            }
        }
    }

    fn handle_oversize(&mut self, now: Instant, key: ConnectionKey, refused: &Oversize) -> bool {
        let Oversize { bytes, limit, .. } = *refused;
        let member = self.member(key);
        let helped = member.is_some_and(|member| member.end.handle_oversize(now, bytes, limit));
        self.touch(key, true);
        helped
    }

    /// Everyone here has an open connection or none: the way may come back.
    fn handle_no_route(&mut self, _now: Instant, _to: SocketAddr, _quote: &[u8]) {}

    fn handle_timeout(&mut self, now: Instant) {
        // Each is polled once: packets that it then has come first.
        while let Some((_, key)) = self.deadlines.first().copied().filter(|(due, _)| *due <= now) {
            if let Some(member) = self.member(key) {
                member.end.handle_timeout(now);
            }
            self.touch(key, true);
        }
    }

    /// One after the other, so that no connection starves.
    fn poll_transmit(
        &mut self,
        now: Instant,
        batch: &mut Vec<u8>,
    ) -> Option<(ConnectionKey, Transmit)> {
        if !std::mem::take(&mut self.answered)
            && let Some(answer) = self.next_answer(batch)
        {
            return Some(answer);
        }
        while let Some(key) = self.sending.pop_front() {
            let sent = self.member(key).map(|member| member.end.poll_transmit(now, batch));
            match sent {
                Some(Some(transmit)) => {
                    self.sending.push_back(key);
                    self.touch(key, true);
                    return Some((key, transmit));
                }
                Some(None) => self.rest(now, key),
                None => {}
            }
        }
        self.next_answer(batch)
    }

    fn poll_event(&mut self) -> Option<(ConnectionKey, Event)> {
        while let Some(key) = self.eventful.front().copied() {
            if let Some(member) = self.member(key) {
                if let Some(event) = member.end.poll_event() {
                    return Some((key, event));
                }
                member.queued.eventful = false;
            }
            self.eventful.pop_front();
        }
        None
    }

    /// A trace is of one connection. Here there are many.
    fn poll_trace(&mut self) -> Option<(Instant, TraceEvent)> {
        None
    }

    fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let answers = self.door.as_ref().is_some_and(PassiveListener::has_answers);
        let sending = (answers || !self.sending.is_empty()).then_some(now);
        earliest([sending, self.deadlines.first().map(|(due, _)| *due)])
    }

    fn poll_ready(&mut self) -> Option<ConnectionKey> {
        while let Some(key) = self.ready.pop_front() {
            if let Some(member) = self.member(key) {
                member.queued.ready = false;
                return Some(key);
            }
        }
        None
    }

    fn wake_all(&mut self) {
        let all: BTreeSet<ConnectionKey> = self.members.keys().copied().collect();
        for key in all {
            self.touch(key, true);
        }
    }

    fn authorize(&mut self, authorized: Arc<AuthorizedKeys>) {
        Self::authorize(self, authorized);
    }

    fn wake(&mut self, key: ConnectionKey) {
        self.touch(key, true);
    }

    fn end(&mut self, key: ConnectionKey) -> Option<&mut Endpoint> {
        self.touch(key, false);
        self.member(key).map(|member| &mut member.end)
    }

    fn forget(&mut self, key: ConnectionKey) {
        self.remove(key);
    }
}

#[cfg(test)]
#[path = "listener_tests.rs"]
mod tests;
