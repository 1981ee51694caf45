//! One connection of a server: its transfer, and its audit record.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use netblt_proto::config::PublicKey;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_proto::units::Rate;

use super::audit::{AuditKind, AuditRecord, TransferStatus, Verdict};
use super::cleanup::KeptAt;
use super::memory_pool::MemoryPool;
use super::rate_limiter::{self, ClientId};
use super::requests::facts::UploadKey;
use super::requests::request::Request;
use super::response::{Done, HeldReader};
use crate::cancel::Cancel;
use crate::disk::threads::Writer;
use crate::error::Error;
use crate::memory_budget::{MemoryLease, MemoryShare};
use crate::name_log::NameLog;
use crate::options::Control;
use crate::permissions::Permissions;
use crate::request_error::RequestError;
use crate::transfer::receive::{ReceiveResult, Receiving};
use crate::transfer::send::{SendResult, Sending};

/// A share that moved by less than this part of itself is not sent to the client.
const SLIGHT: u64 = 128;

/// The client of the machine at this end.
pub(super) enum Task {
    Sending(Box<Sending<'static, HeldReader>>),
    Receiving(Box<Receiving<'static, Box<dyn Writer>>>),
    /// Requests branch from it.
    Session,
}

/// The result of a task: bytes, or an error.
pub(super) type TaskResult = Result<u64, Error>;

/// One connection.
pub(super) struct Connection {
    /// The number of its connection.
    pub(super) number: u64,
    pub(super) peer: SocketAddr,
    /// The key that it has shown, if it came by one.
    pub(super) peer_key: Option<PublicKey>,
    /// Its permissions.
    pub(super) permissions: Arc<Permissions>,
    /// Its rate is set here, if there is one to keep, and the share that was set last.
    pub(super) control: Control,
    pub(super) is_limited: bool,
    pub(super) share: Option<Rate>,
    /// Bytes that it will have moved in the end, as far as that is known.
    pub(super) total: Option<u64>,
    /// Its answer has begun.
    pub(super) moves: bool,
    pub(super) task: Task,
    pub(super) cancel: Cancel,
    pub(super) seen: Arc<TransferStatus>,
    pub(super) opened: Instant,
    /// What it is about, and the key of its upload.
    pub(super) kind: AuditKind,
    pub(super) upload_key: UploadKey,
    /// Its other path, or the name of an uploaded file.
    pub(super) target: Vec<u8>,
    /// The request, until it is performed: that waits until a buffer was granted for the answer.
    pub(super) pending: Option<Request>,
    /// The disk's answer to that, when it is there.
    pub(super) job: Option<Receiver<Result<Done, RequestError>>>,
    /// The announced upload needs a lent key.
    pub(super) lends: bool,
    /// The number of subflows for the answer.
    pub(super) subflows: u64,
    /// The error of a transfer to another server.
    pub(super) fails: Option<Receiver<RequestError>>,
    /// The client's HAVE, until then.
    pub(super) had: Vec<u8>,
    /// Bytes of the client's HAVE so far, and memory for them.
    pub(super) have_bytes: u64,
    pub(super) memory: MemoryLease,
    /// The names of the files that are sent or received.
    pub(super) names: NameLog,
    /// The client's share of the memory for names.
    pub(super) memory_share: MemoryShare,
    /// Packets of data that have moved, and when one did last.
    pub(super) moved: (u64, Instant),
    /// It has to make room for the request of another client.
    pub(super) yields: bool,
    /// Bytes in a buffer, and how many it has at most before its path has use of more.
    pub(super) image_bytes: usize,
    pub(super) at_first: u32,
    /// The session of this request, or its own connection.
    pub(super) session: Option<u32>,
    /// Memory of the session's share, and beyond a share.
    pub(super) shared: u64,
    pub(super) beyond: u64,
    /// The directory of the paths that it uses, and the place of its parts.
    pub(super) held: Option<Arc<std::os::fd::OwnedFd>>,
    pub(super) kept_at: Option<KeptAt>,
    /// How many datagrams have come, and when there was a new one.
    pub(super) datagrams: (u64, Instant),
    /// The refusal that was sent in place of an answer.
    pub(super) denied: Option<RequestError>,
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
    pub(super) image_bytes: usize,
    pub(super) at_first: u32,
    pub(super) memory_share: MemoryShare,
}

impl Connection {
    /// A connection that has opened without a request so far, with so many datagrams.
    pub(super) fn new((now, datagrams): (Instant, u64), arrival: Arrival, task: Task) -> Self {
        let Arrival { number, peer, peer_key, session, permissions, control, cancel, seen, .. } =
            arrival;
        Self {
            number,
            peer,
            peer_key,
            permissions,
            control,
            is_limited: false,
            share: None,
            total: None,
            moves: false,
            task,
            cancel,
            seen,
            opened: now,
            kind: AuditKind::None,
            upload_key: UploadKey::default(),
            target: Vec::new(),
            pending: None,
            job: None,
            lends: false,
            subflows: 0,
            fails: None,
            had: Vec::new(),
            have_bytes: 0,
            memory: arrival.memory_share.lease(),
            names: NameLog::new(arrival.memory_share.lease()),
            memory_share: arrival.memory_share,
            moved: (0, now),
            yields: false,
            image_bytes: arrival.image_bytes,
            at_first: arrival.at_first,
            session,
            shared: 0,
            beyond: 0,
            held: None,
            kept_at: None,
            datagrams: (datagrams, now),
            denied: None,
        }
    }

    /// Whether it is a session's connection.
    pub(super) fn is_session(&self) -> bool {
        matches!(self.task, Task::Session)
    }

    /// The id of its client.
    pub(super) fn client(&self) -> ClientId {
        ClientId::of(self.peer_key, self.peer)
    }

    /// The request, once there is a buffer for the answer.
    pub(super) fn take_pending(&mut self) -> Option<Request> {
        match &self.task {
            Task::Sending(task) if task.has_grant() => self.pending.take(),
            _ => None,
        }
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
        self.kind == AuditKind::Receive
            && self.upload_key == *upload_key
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
        let buffers = match &mut self.task {
            Task::Sending(task) => &mut task.pool,
            Task::Receiving(task) => &mut task.pool,
            Task::Session => return,
        };
        let lacking = buffers.wanted(now, end).saturating_sub(buffers.most());
        if lacking > 0 && buffers.made() > 0 {
            let (more, bytes) = memory.more(lacking, self.image_bytes);
            buffers.allow(more);
            self.beyond += bytes;
        }
    }

    /// Its progress, for the rate limiter.
    pub(super) fn look(&self, end: &Endpoint) -> rate_limiter::FlowCounts {
        let (sent, result) = end.carried_bytes();
        let (moved, ahead, moves) = match &self.task {
            Task::Sending(task) => (sent + task.moved_beside(), 0, self.moves),
            Task::Receiving(task) => {
                let (arrived, _) = end.moved();
                let beside = task.moved_beside();
                let ahead = task.ahead(self.image_bytes as u64, arrived + beside);
                (result + beside, ahead, ahead > 0 || task.wants_grant())
            }
            Task::Session => (0, 0, false),
        };
        let moved = moved + self.seen.sent.load(Ordering::Relaxed);
        rate_limiter::FlowCounts { moved, ahead, total: self.total, moves }
    }

    /// Has the sender here, or the one at the other end, keep to a share from now on. Whether that
    /// is another one than before.
    pub(super) fn keep_to(&mut self, share: Option<Rate>) -> bool {
        let of = |rate: Option<Rate>| rate.map_or(u64::MAX, Rate::bytes_per_second);
        let (old, new) = (of(self.share), of(share));
        if old.abs_diff(new) <= old / SLIGHT {
            return false;
        }
        self.share = share;
        self.control.set_rate(share);
        true
    }

    /// Its audit record.
    pub(super) fn account(&self, now: Instant, result: TaskResult) -> AuditRecord {
        let seen = self.seen.bytes.load(Ordering::Relaxed);
        // The bytes of a response about files that go elsewhere are not those of the files.
        let bytes = match self.fails {
            Some(_) => seen,
            None => *result.as_ref().unwrap_or(&seen),
        };
        let verdict = match (result, &self.denied) {
            (_, Some(denied)) => Verdict::Denied(denied.what, denied.why.clone()),
            (Ok(_), None) => Verdict::Done,
            (Err(error), None) => Verdict::Failed(error.to_string()),
        };
        let (request, path) = (self.kind, self.upload_key.path.clone());
        let (peer, elapsed) = (self.peer, now.since(self.opened));
        let (name, target) = (self.permissions.name.clone(), self.target.clone());
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

/// The bytes that were sent.
pub(super) fn sent(result: Result<SendResult, Error>) -> TaskResult {
    result.map(|sent| sent.end.map_or(0, |end| end.bytes))
}

/// The bytes that were stored.
pub(super) fn received(result: Result<ReceiveResult, Error>) -> TaskResult {
    result.map(|received| received.outcome.bytes)
}
