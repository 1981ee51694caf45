//! The connections of a shared socket: a stem, its branches, and those branches whose applications
//! have gone (`docs/protocol §4.10`).
//!
//! To the event loop it is one connection, the stem.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netblt_proto::api::{Datagram, Event, Transmit};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::{Instant, earliest};
use netblt_proto::trace::TraceEvent;
use netblt_proto::wire::sealed;

use crate::net::connections::{Connections, Oversize};
use crate::net::demux_queue::DemuxQueue;
use crate::net::dialer::Dialer;
use crate::net::icmp::{IcmpError, Quote};

/// The branches. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub(crate) struct MuxBranches(Arc<Mutex<MuxTable>>);

#[derive(Debug, Default)]
pub(crate) struct MuxTable {
    /// The queues of branches with applications, by their ids.
    pub(crate) queues: HashMap<u32, Arc<DemuxQueue<IcmpError>>>,
    /// Branches that only have to close.
    pub(crate) closing_branches: Vec<Endpoint>,
}

impl MuxBranches {
    pub(crate) fn table(&self) -> MutexGuard<'_, MuxTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_error(&self, error: IcmpError) {
        self.table().queues.values().for_each(|queue| queue.add_error(&error));
    }
}

/// A stem and its branches.
#[derive(Debug)]
pub(crate) struct MuxConnections {
    stem: Dialer,
    branches: MuxBranches,
}

impl MuxConnections {
    pub(crate) fn new(stem: Dialer, branches: MuxBranches) -> Self {
        Self { stem, branches }
    }

    /// The addresses that were tried.
    pub(crate) fn tried(&self) -> String {
        self.stem.to_string()
    }

    /// Drops closed branches, and their events with them.
    fn sweep(&mut self, now: Instant) {
        self.branches.table().closing_branches.retain_mut(|end| {
            while end.poll_event().is_some() {}
            end.next_timeout(now).is_some()
        });
    }
}

impl Connections for MuxConnections {
    type Key = ();

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        // A branch has one id for both directions, and so an UNKNOWN gives it back.
        let unknown = || sealed::parse_unknown(datagram.bytes).ok().map(|(id, _)| id);
        let id = sealed::destination(datagram.bytes).or_else(unknown);
        let mut table = self.branches.table();
        if let Some(queue) = id.and_then(|id| table.queues.get(&id)) {
            return queue.put(&datagram);
        }
        let closing_branches = table.closing_branches.iter_mut();
        match closing_branches.filter(|_| id.is_some()).find(|end| end.connection_id() == id) {
            Some(end) => end.handle_datagram(now, datagram),
            None => {
                drop(table);
                self.stem.handle_datagram(now, datagram);
            }
        }
    }

    fn handle_refused(&mut self, now: Instant, to: SocketAddr, quote: &[u8]) {
        self.branches.add_error(IcmpError::Refused(to, Quote::of(quote)));
        self.branches
            .table()
            .closing_branches
            .iter_mut()
            .for_each(|end| end.handle_unreachable(now, quote));
        self.stem.handle_refused(now, to, quote);
    }

    fn handle_no_route(&mut self, now: Instant, to: SocketAddr, quote: &[u8]) {
        self.stem.handle_no_route(now, to, quote);
    }

    fn handle_path_limit(&mut self, now: Instant, to: SocketAddr, bytes: u32) {
        self.branches.add_error(IcmpError::TooBig(to, bytes));
        self.stem.handle_path_limit(now, to, bytes);
    }

    fn handle_oversize(&mut self, now: Instant, (): (), refused: &Oversize) -> bool {
        // The datagram's connection is not known. All of these send only short packets.
        let Oversize { bytes, limit, .. } = *refused;
        let mut table = self.branches.table();
        table
            .closing_branches
            .iter_mut()
            .for_each(|end| _ = end.handle_oversize(now, bytes, limit));
        drop(table);
        self.stem.handle_oversize(now, (), refused)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.stem.handle_timeout(now);
        for end in &mut self.branches.table().closing_branches {
            if end.next_timeout(now).is_some_and(|due| due <= now) {
                end.handle_timeout(now);
            }
        }
    }

    fn poll_transmit(&mut self, now: Instant, batch: &mut Vec<u8>) -> Option<((), Transmit)> {
        if let Some(sent) = self.stem.poll_transmit(now, batch) {
            return Some(sent);
        }
        let mut table = self.branches.table();
        let sent = table.closing_branches.iter_mut().find_map(|end| end.poll_transmit(now, batch));
        drop(table);
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
        let table = self.branches.table();
        let closing_branches = table.closing_branches.iter().map(|end| end.next_timeout(now));
        earliest(closing_branches.chain([self.stem.next_timeout(now)]))
    }

    fn poll_ready(&mut self) -> Option<()> {
        self.stem.poll_ready()
    }

    fn wake_all(&mut self) {
        self.stem.wake_all();
    }

    fn wake(&mut self, (): ()) {
        self.stem.wake_all();
    }

    fn end(&mut self, (): ()) -> Option<&mut Endpoint> {
        self.stem.end(())
    }

    fn forget(&mut self, (): ()) {}
}
