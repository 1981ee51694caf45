//! The connections that one thread reads for many: a stem, by whichever address its peer answers,
//! what branches from it, and those branches whose clients have gone (`docs/protocol.md §4.10`).
//!
//! To the loop it is one connection, the stem.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netblt_proto::api::{Datagram, Event, Transmit};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::{Instant, earliest};
use netblt_proto::trace::TraceEvent;
use netblt_proto::wire::sealed;

use crate::net::connections::{Connections, Oversize};
use crate::net::dialer::Dialer;
use crate::net::icmp::{IcmpError, Quote};
use crate::net::inbox::Inbox;

/// The branches. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Branches(Arc<Mutex<All>>);

#[derive(Debug, Default)]
pub(crate) struct All {
    /// Where what comes for those that have clients goes, by their ids.
    pub(crate) inboxes: HashMap<u32, Arc<Inbox<IcmpError>>>,
    /// Those that only have to part.
    pub(crate) leaving: Vec<Endpoint>,
}

impl Branches {
    pub(crate) fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, error: IcmpError) {
        self.all().inboxes.values().for_each(|inbox| inbox.tell(&error));
    }
}

/// A stem and its branches.
#[derive(Debug)]
pub(crate) struct Trunk {
    stem: Dialer,
    branches: Branches,
}

impl Trunk {
    pub(crate) fn new(stem: Dialer, branches: Branches) -> Self {
        Self { stem, branches }
    }

    /// Where it was tried to reach the peer.
    pub(crate) fn tried(&self) -> String {
        self.stem.to_string()
    }

    /// Those that are over go, and what they tell is nobody's.
    fn sweep(&mut self, now: Instant) {
        self.branches.all().leaving.retain_mut(|end| {
            while end.poll_event().is_some() {}
            end.next_timeout(now).is_some()
        });
    }
}

impl Connections for Trunk {
    type Key = ();

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        // A branch has one id for both directions, and so an UNKNOWN gives it back.
        let unknown = || sealed::parse_unknown(datagram.bytes).ok().map(|(id, _)| id);
        let id = sealed::destination(datagram.bytes).or_else(unknown);
        let mut all = self.branches.all();
        if let Some(inbox) = id.and_then(|id| all.inboxes.get(&id)) {
            return inbox.put(&datagram);
        }
        let leaving = all.leaving.iter_mut();
        match leaving.filter(|_| id.is_some()).find(|end| end.connection_id() == id) {
            Some(end) => end.handle_datagram(now, datagram),
            None => {
                drop(all);
                self.stem.handle_datagram(now, datagram);
            }
        }
    }

    fn handle_refused(&mut self, now: Instant, to: SocketAddr, quote: &[u8]) {
        self.branches.tell(IcmpError::Refused(to, Quote::of(quote)));
        self.branches.all().leaving.iter_mut().for_each(|end| end.handle_unreachable(now, quote));
        self.stem.handle_refused(now, to, quote);
    }

    fn handle_no_route(&mut self, now: Instant, to: SocketAddr, quote: &[u8]) {
        self.stem.handle_no_route(now, to, quote);
    }

    fn handle_path_limit(&mut self, now: Instant, to: SocketAddr, bytes: u32) {
        self.branches.tell(IcmpError::TooBig(to, bytes));
        self.stem.handle_path_limit(now, to, bytes);
    }

    fn handle_oversize(&mut self, now: Instant, (): (), refused: &Oversize) -> bool {
        // Whose it was is not known; none of these is anything but a few words.
        let Oversize { bytes, limit, .. } = *refused;
        let mut all = self.branches.all();
        all.leaving.iter_mut().for_each(|end| _ = end.handle_oversize(now, bytes, limit));
        drop(all);
        self.stem.handle_oversize(now, (), refused)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.stem.handle_timeout(now);
        for end in &mut self.branches.all().leaving {
            if end.next_timeout(now).is_some_and(|due| due <= now) {
                end.handle_timeout(now);
            }
        }
    }

    fn poll_transmit(&mut self, now: Instant, batch: &mut Vec<u8>) -> Option<((), Transmit)> {
        if let Some(sent) = self.stem.poll_transmit(now, batch) {
            return Some(sent);
        }
        let mut all = self.branches.all();
        let sent = all.leaving.iter_mut().find_map(|end| end.poll_transmit(now, batch));
        drop(all);
        if sent.is_none() {
            self.sweep(now);
        }
        sent.map(|sent| ((), sent))
    }

    fn poll_event(&mut self) -> Option<((), Event)> {
        self.stem.poll_event()
    }

    fn poll_trace(&mut self) -> Option<(Instant, TraceEvent)> {
        None
    }

    fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let all = self.branches.all();
        let leaving = all.leaving.iter().map(|end| end.next_timeout(now));
        earliest(leaving.chain([self.stem.next_timeout(now)]))
    }

    fn poll_ready(&mut self) -> Option<()> {
        self.stem.poll_ready()
    }

    fn rouse(&mut self) {
        self.stem.rouse();
    }

    fn rouse_one(&mut self, (): ()) {
        self.stem.rouse();
    }

    fn end(&mut self, (): ()) -> Option<&mut Endpoint> {
        self.stem.end(())
    }

    fn forget(&mut self, (): ()) {}
}
