//! One end of a subflow: its machine, its socket, and what its thread knows.

use std::collections::VecDeque;
use std::net::SocketAddr;

use netblt_proto::api::Ecn;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::endpoint::subflows::SubflowTally;
use netblt_proto::time::Instant;

/// Bytes that a socket holds.
const SOCKET_BYTES: usize = 4 << 20;
/// Datagrams that are read before timers fire.
const BATCH: usize = 64;

/// A datagram that waits in a socket.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) at: Instant,
    pub(super) from: SocketAddr,
    pub(super) ecn: Option<Ecn>,
    pub(super) bytes: Vec<u8>,
}

/// One end of a subflow.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) end: Endpoint,
    pub(super) own: SocketAddr,
    pub(super) peer: SocketAddr,
    /// Which client it has.
    pub(super) client: usize,
    /// 0 for a main connection.
    pub(super) subflow: u8,
    pub(super) sends: bool,
    pub(super) active: bool,
    pub(super) open: bool,
    /// It is lost, or over.
    pub(super) gone: bool,
    pub(super) admits: bool,
    /// Since when nothing has arrived.
    pub(super) silent: Option<Instant>,
    pub(super) costs_nothing: bool,
    /// Empty buffers in a receiving machine.
    pub(super) outstanding: u32,
    /// Its last counts.
    pub(super) tally: SubflowTally,
    inbox: VecDeque<Arrived>,
    inbox_bytes: usize,
}

impl Unit {
    pub(super) fn new(
        end: Endpoint,
        own: SocketAddr,
        peer: SocketAddr,
        client: usize,
        subflow: u8,
        sends: bool,
        active: bool,
    ) -> Self {
        Self {
            end,
            own,
            peer,
            client,
            subflow,
            sends,
            active,
            open: false,
            gone: false,
            admits: false,
            silent: None,
            costs_nothing: false,
            outstanding: 0,
            tally: SubflowTally::default(),
            inbox: VecDeque::new(),
            inbox_bytes: 0,
        }
    }

    pub(super) fn arrived(&mut self, arrived: Arrived) {
        if self.inbox_bytes + arrived.bytes.len() <= SOCKET_BYTES {
            self.inbox_bytes += arrived.bytes.len();
            self.inbox.push_back(arrived);
        }
    }

    /// The datagrams that its thread reads at one time.
    pub(super) fn batch(&mut self) -> Vec<Arrived> {
        let count = self.inbox.len().min(BATCH);
        let batch: Vec<Arrived> = self.inbox.drain(..count).collect();
        self.inbox_bytes -= batch.iter().map(|arrived| arrived.bytes.len()).sum::<usize>();
        batch
    }

    /// When it has something to do.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        if self.gone {
            return None;
        }
        if !self.inbox.is_empty() {
            return Some(now);
        }
        self.end.next_timeout(now)
    }
}
