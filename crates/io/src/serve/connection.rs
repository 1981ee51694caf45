//! One connection of a server: its client, its share of the resources, and its audit record.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use netblt_proto::config::PublicKey;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_proto::units::Rate;

use super::audit::{AuditRecord, TransferStatus, Verdict};
use super::buffer_share::BufferShare;
use super::connection_state::{ConnectionState, TaskResult};
use super::memory_pool::MemoryPool;
use super::rate_limiter::{self, ClientId};
use super::requests::facts::UploadKey;
use super::requests::request::Request;
use super::response::Done;
use crate::cancel::Cancel;
use crate::control::Control;
use crate::error::Error;
use crate::memory_budget::{MemoryLease, MemoryShare};
use crate::name_log::NameLog;
use crate::permissions::Permissions;
use crate::request_error::RequestError;

/// A share that moved by less than this part of itself is not sent to the client.
const SLIGHT: u64 = 128;

/// One connection.
pub(super) struct Connection {
    /// The number of its connection.
    pub(super) number: u64,
    pub(super) peer: SocketAddr,
    /// The key that it has shown, if it came by one.
    pub(super) peer_key: Option<PublicKey>,
    /// The session of this request, or its own connection.
    pub(super) session: Option<u32>,
    /// Its permissions.
    pub(super) permissions: Arc<Permissions>,
    pub(super) state: ConnectionState,
    pub(super) rate: ConnectionRate,
    pub(super) buffers: BufferShare,
    /// Bytes of the client's HAVE so far, and memory for them.
    pub(super) have_bytes: u64,
    pub(super) memory: MemoryLease,
    /// The names of the files that are sent or received.
    pub(super) names: NameLog,
    /// The client's share of the memory for names.
    pub(super) memory_share: MemoryShare,
    pub(super) cancel: Cancel,
    pub(super) seen: Arc<TransferStatus>,
    opened: Instant,
    /// Packets of data that have moved, and when one did last.
    moved: (u64, Instant),
    /// How many datagrams have come, and when there was a new one.
    datagrams: (u64, Instant),
    /// It has to make room for the request of another client.
    pub(super) yields: bool,
    /// The refusal that was sent in place of an answer.
    denied: Option<RequestError>,
}

/// The rate of a connection.
pub(super) struct ConnectionRate {
    /// It is set here, if there is one to keep.
    pub(super) control: Control,
    pub(super) is_limited: bool,
    /// The share that was set last.
    share: Option<Rate>,
}

/// The facts of a connection when it opens.
pub(super) struct Arrival {
    pub(super) number: u64,
    pub(super) peer: SocketAddr,
    pub(super) peer_key: Option<PublicKey>,
    pub(super) session: Option<u32>,
    pub(super) permissions: Arc<Permissions>,
    pub(super) control: Control,
    pub(super) cancel: Cancel,
    pub(super) seen: Arc<TransferStatus>,
    pub(super) buffers: BufferShare,
    pub(super) memory_share: MemoryShare,
    pub(super) names: NameLog,
    /// Datagrams so far.
    pub(super) datagrams: u64,
}

impl Connection {
    /// A connection that has opened.
    pub(super) fn new(now: Instant, arrival: Arrival, state: ConnectionState) -> Self {
        let Arrival { number, peer, peer_key, session, permissions, control, cancel, seen, .. } =
            arrival;
        Self {
            number,
            peer,
            peer_key,
            session,
            permissions,
            state,
            rate: ConnectionRate { control, is_limited: false, share: None },
            buffers: arrival.buffers,
            have_bytes: 0,
            memory: arrival.memory_share.lease(),
            names: arrival.names,
            memory_share: arrival.memory_share,
            cancel,
            seen,
            opened: now,
            moved: (0, now),
            datagrams: (arrival.datagrams, now),
            yields: false,
            denied: None,
        }
    }

    /// Whether it is a session's connection.
    pub(super) fn is_session(&self) -> bool {
        matches!(self.state, ConnectionState::Session)
    }

    /// The id of its client.
    pub(super) fn client(&self) -> ClientId {
        ClientId::of(self.peer_key, self.peer)
    }

    /// The request, once there is a buffer for the answer.
    pub(super) fn granted(&self) -> Option<Arc<Request>> {
        self.state.granted().filter(|_| self.denied.is_none())
    }

    /// The result of the thread that performs its request, if it is to be answered.
    pub(super) fn poll_job(&self) -> Option<Result<Done, RequestError>> {
        self.state.poll_job().filter(|_| self.denied.is_none())
    }

    /// How long it has been open.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.since(self.opened)
    }

    /// For how long nothing has moved.
    pub(super) fn stalled(&self, now: Instant) -> Duration {
        now.since(self.moved.1)
    }

    /// Whether it was refused.
    pub(super) fn is_denied(&self) -> bool {
        self.denied.is_some()
    }

    /// Refuses what it asks, once, and has its transfer fail. Returns its result, if it is over.
    pub(super) fn deny(
        &mut self,
        now: Instant,
        end: &mut Endpoint,
        denied: RequestError,
    ) -> Option<TaskResult> {
        let RequestError { what, why } = denied.clone();
        self.denied.get_or_insert(denied);
        self.state.fail(now, end, Error::Denied { what, why })
    }

    /// Records progress.
    pub(super) fn watch(&mut self, now: Instant, end: &Endpoint) {
        let packets = end.data_packets();
        if packets != self.moved.0 {
            self.moved = (packets, now);
        }
    }

    /// Whether its client has fallen silent.
    pub(super) fn is_silent(&self) -> bool {
        self.seen.silent.load(Ordering::Relaxed)
    }

    /// Whether it puts files there.
    pub(super) fn puts(&self, permissions: &Permissions, upload_key: &UploadKey) -> bool {
        matches!(&self.state, ConnectionState::Receiving(_, upload) if upload.key == *upload_key)
            && self.permissions.root == permissions.root
    }

    /// When its last datagram arrived, as of the last look.
    pub(super) fn last_received(&self) -> Instant {
        self.datagrams.1
    }

    /// Whether a datagram has arrived since the last call.
    pub(super) fn note_datagrams(&mut self, now: Instant, end: &Endpoint) -> bool {
        let count = end.datagrams_received();
        let is_new = count != self.datagrams.0;
        if is_new {
            self.datagrams = (count, now);
        }
        is_new
    }

    /// Lets it have more buffers, if its path has use of them and there are some.
    pub(super) fn grow(&mut self, now: Instant, end: &Endpoint, memory: &mut MemoryPool) {
        let Some(buffers) = self.state.pool_mut() else { return };
        let lacking = buffers.wanted(now, end).saturating_sub(buffers.most());
        if lacking > 0 && buffers.made() > 0 {
            let (more, bytes) = memory.more(lacking, self.buffers.image_bytes);
            buffers.allow(more);
            self.buffers.add(0, bytes);
        }
    }

    /// Its progress, for the rate limiter.
    pub(super) fn look(&self, end: &Endpoint) -> rate_limiter::FlowCounts {
        let (sent, result) = end.carried_bytes();
        let (moved, ahead, moves) = match &self.state {
            ConnectionState::Session => (0, 0, false),
            ConnectionState::Answering(task, _) => {
                (sent + task.moved_beside(), 0, self.state.has_begun())
            }
            ConnectionState::Receiving(task, _) => {
                let (arrived, _) = end.moved();
                let beside = task.moved_beside();
                let image_bytes = self.buffers.image_bytes as u64;
                let ahead = task.ahead(image_bytes, arrived + beside);
                (result + beside, ahead, ahead > 0 || task.wants_grant())
            }
        };
        let moved = moved + self.seen.sent.load(Ordering::Relaxed);
        rate_limiter::FlowCounts { moved, ahead, total: self.state.total(), moves }
    }

    /// Has the sender here, or the one at the other end, keep to a share from now on. Whether that
    /// is another one than before.
    pub(super) fn keep_to(&mut self, share: Option<Rate>) -> bool {
        let of = |rate: Option<Rate>| rate.map_or(u64::MAX, Rate::bytes_per_second);
        let (old, new) = (of(self.rate.share), of(share));
        if old.abs_diff(new) <= old / SLIGHT {
            return false;
        }
        self.rate.share = share;
        self.rate.control.set_rate(share);
        true
    }

    /// Its audit record.
    pub(super) fn account(&self, now: Instant, result: TaskResult) -> AuditRecord {
        let seen = self.seen.bytes.load(Ordering::Relaxed);
        // The bytes of a response about files that go elsewhere are not those of the files.
        let bytes = match self.state.reports_push() {
            true => seen,
            false => *result.as_ref().unwrap_or(&seen),
        };
        let verdict = match (result, &self.denied) {
            (_, Some(denied)) => Verdict::Denied(denied.what, denied.why.clone()),
            (Ok(_), None) => Verdict::Done,
            (Err(error), None) => Verdict::Failed(error.to_string()),
        };
        let (request, (path, target)) = (self.state.audit_kind(), self.state.paths());
        let (peer, elapsed) = (self.peer, now.since(self.opened));
        let name = self.permissions.name.clone();
        let (names, names_omitted) = self.names.all();
        AuditRecord {
            peer,
            name,
            request,
            path,
            target,
            names,
            names_omitted,
            bytes,
            elapsed,
            verdict,
        }
    }
}
