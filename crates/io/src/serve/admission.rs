//! Admission of connections to a server.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use netblt_proto::buffer::Buffer;
use netblt_proto::config::{Config, PublicKey, Role};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_proto::wire::packet::Parameters;

use super::audit::{StatusObserver, TransferStatus};
use super::buffer_share::BufferShare;
use super::connection::{Arrival, Connection};
use super::connection_state::{AnswerStep, ConnectionState, Upload};
use super::memory_pool::MemoryPool;
use super::pending_uploads::{PendingUpload, PendingUploads};
use super::rate_limiter::ClientId;
use super::requests::facts::UploadKey;
use super::requests::request::{ASK, SESSION};
use super::response::PreparedUpload;
use super::service::Service;
use super::sessions::{Sessions, most_requests, stock};
use crate::cancel::Cancel;
use crate::control::Control;
use crate::error::{Error, RequestErrorKind};
use crate::memory_budget::MemoryBudget;
use crate::name_log::NameLog;
use crate::net::listener::ConnectionKey;
use crate::net::poller::{ReadySet, Waker};
use crate::options::Options;
use crate::permissions::Permissions;
use crate::request_error::RequestError;
use crate::transfer::announcement::Announcement;
use crate::transfer::receive::Receiving;
use crate::transfer::send::Sending;
use crate::transfer::session::TransferSession;
use crate::transfer::subflows::SubflowFactory;

/// A request without progress for this long makes room for those of other clients.
const STANDS: Duration = Duration::from_secs(1);

/// The state of a server: its connections, and the resources for them.
pub(super) struct ServerState<'a> {
    pub(super) service: &'a Service,
    pub(super) options: Options,
    pub(super) config: Config,
    /// The permissions of clients with the ticket.
    pub(super) permissions: Arc<Permissions>,
    pub(super) cancel: &'a Cancel,
    pub(super) waker: Waker,
    /// The connections whose threads have results.
    pub(super) marks: Arc<ReadySet>,
    pub(super) connections: HashMap<ConnectionKey, Connection>,
    pub(super) sessions: Sessions,
    pub(super) puts: PendingUploads,
    pub(super) pool: MemoryPool,
    /// Memory for names and what clients say that they have.
    pub(super) budget: MemoryBudget<ClientId>,
    /// Makes subflows, where a transfer may have some.
    pub(super) subflows: Option<Arc<SubflowFactory>>,
}

impl ServerState<'_> {
    /// Makes the state of a new connection, or refuses it.
    pub(super) fn accept(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        peer: SocketAddr,
        parameters: &Parameters,
        image_bytes: u32,
        end: &Endpoint,
    ) -> Result<Connection, RequestError> {
        let (peer_key, stem) = (end.peer_key(), end.stem());
        let role = Role::left_by(parameters.mode);
        let (shown, lender) = (peer_key, peer_key.and_then(|shown| self.puts.lender(shown)));
        let peer_key = lender.or(shown);
        let permissions = self.authorize(now, peer_key, peer, role, stem)?;
        let (seen, cancel): (Arc<TransferStatus>, Cancel) = Default::default();
        let memory_share = self.budget.share(ClientId::of(peer_key, peer));
        let control = Control::new();
        let session =
            TransferSession::new(StatusObserver(Arc::clone(&seen)), &cancel, &self.config);
        let session = session.with_control(Some(&control));
        let waker = self.waker.marking(&self.marks, key.number());
        let subflows = self.subflows_for(stem, &waker);
        let at_first = parameters.max_outstanding.min(self.options.buffers.count);
        let image_bytes = image_bytes as usize;
        let mut buffers = BufferShare { image_bytes, at_first, shared: 0, beyond: 0 };
        let mut names = NameLog::new(memory_share.lease());
        let state = match role {
            Role::Sender if parameters.client == ASK && lender.is_none() => {
                let task = Sending::on_request(session, waker, subflows);
                ConnectionState::Answering(Box::new(task), AnswerStep::Idle)
            }
            Role::Sender if parameters.client == SESSION && lender.is_none() && stem.is_none() => {
                ConnectionState::Session
            }
            Role::Receiver => {
                let waiting = self.announced(&parameters.client, shown)?;
                let count = most_at_first(parameters, at_first, image_bytes);
                let place = (&mut self.pool, &mut self.sessions);
                let stock =
                    stock(place, stem, (count, image_bytes), (self.connections.len(), true));
                let busy =
                    |error: Error| RequestError::new(RequestErrorKind::Busy, error.to_string());
                let (stock, shared, beyond) = stock.map_err(busy)?;
                buffers.add(shared, beyond);
                names = waiting.prepared.names.clone();
                let with = (waker, subflows, self.options.settings.max_bytes);
                let PendingUpload { upload_key, prepared, .. } = waiting;
                receiving(upload_key, *prepared, promised(parameters), session, stock, with)
            }
            Role::Sender => {
                let why = "this is a server of files: netblt cp, ls, stat, mv, rm, mkdir";
                return Err(RequestError::new(RequestErrorKind::NotUnderstood, why));
            }
        };
        let arrival = Arrival {
            number: key.number(),
            peer,
            peer_key,
            session: stem,
            permissions,
            control,
            cancel,
            seen,
            buffers,
            memory_share,
            names,
            datagrams: end.datagrams_received(),
        };
        Ok(Connection::new(now, arrival, state))
    }

    /// The factory of subflows for a connection with this stem, if it may have some. A branch of a
    /// session has none.
    fn subflows_for(&self, stem: Option<u32>, waker: &Waker) -> Option<Arc<SubflowFactory>> {
        let subflows = self.subflows.as_ref().filter(|_| stem.is_none());
        subflows.map(|subflows| subflows.waking(waker.clone()))
    }

    /// The prepared upload with the number in a client string.
    fn announced(
        &mut self,
        client: &str,
        peer_key: Option<PublicKey>,
    ) -> Result<PendingUpload, RequestError> {
        let Some(number) = Announcement::parse(client).put else {
            let why = "this server accepts only announced uploads";
            return Err(RequestError::new(RequestErrorKind::NotUnderstood, why));
        };
        // Announced again, they may come.
        let late = "this upload was not announced, or too long ago, or to another server process; \
                    try again";
        self.puts
            .take(number, peer_key)
            .ok_or_else(|| RequestError::new(RequestErrorKind::Busy, late))
    }

    /// The permissions of a new connection, if it is admitted.
    fn authorize(
        &mut self,
        now: Instant,
        peer_key: Option<PublicKey>,
        peer: SocketAddr,
        role: Role,
        stem: Option<u32>,
    ) -> Result<Arc<Permissions>, RequestError> {
        let busy = |why| Err(RequestError::new(RequestErrorKind::Busy, why));
        let expired =
            || RequestError::new(RequestErrorKind::Forbidden, "your permissions have expired");
        let today = SystemTime::now();
        let permissions = match &self.service.members {
            None => {
                Some(Arc::clone(&self.permissions)).filter(|permissions| permissions.holds(today))
            }
            // A key may have been taken away since its owner began to open.
            Some(members) => peer_key.and_then(|key| members.find(&key, today)),
        };
        let permissions = permissions.ok_or_else(expired)?;
        // An upload that was announced before may still come.
        let goes_on = role == Role::Receiver && !self.cancel.is_aborting();
        if self.cancel.is_cancelled() && !goes_on {
            return busy("the server is about to stop; try again later");
        }
        if let Some(stem) = stem {
            // Its session was admitted.
            let is_full = self.requests() >= most_requests(self.service.max_sessions);
            if is_full && !self.make_place(now, ClientId::of(peer_key, peer)) {
                return busy("too many requests at once; try again later");
            }
            return self.sessions.may_branch(stem).map(|()| permissions);
        }
        if self.sessions_now() >= self.service.max_sessions as usize && !self.make_room(now) {
            return busy("server busy: session limit reached; try again later");
        }
        let is_own = |connection: &&Connection| {
            connection.session.is_none() && connection.peer_key == peer_key
        };
        let own = self
            .connections
            .values()
            .filter(is_own)
            .filter(|connection| !connection.is_session())
            .count();
        let own = own + self.sessions.count(peer_key);
        if permissions.max_sessions.is_some_and(|most| own >= most as usize) {
            return busy("you have reached your session limit; try again later");
        }
        Ok(permissions)
    }

    /// How many sessions there are, of one request or of many.
    pub(super) fn sessions_now(&self) -> usize {
        let is_one =
            |connection: &&Connection| connection.session.is_none() && !connection.is_session();
        self.connections.values().filter(is_one).count() + self.sessions.len()
    }

    /// How many requests there are, those not counted that are to go.
    fn requests(&self) -> usize {
        self.connections.values().filter(|connection| !connection.yields).count()
    }

    /// Makes room for a request. Of the client with the most requests, if it has more than this
    /// one, the newest request without progress for a while goes. Returns whether there is one.
    fn make_place(&mut self, now: Instant, client: ClientId) -> bool {
        let mut counts: BTreeMap<ClientId, usize> = BTreeMap::new();
        let asking = |connection: &&Connection| !connection.is_session() && !connection.yields;
        for connection in self.connections.values().filter(asking) {
            *counts.entry(connection.client()).or_default() += 1;
        }
        let own = counts.get(&client).copied().unwrap_or(0);
        let stands = |connection: &Connection| {
            let most = counts.get(&connection.client()).copied().unwrap_or(0);
            let idle = connection.stalled(now) >= STANDS;
            (most > own + 1 && idle).then_some((most, connection.number))
        };
        let standing = self.connections.values_mut().filter(|connection| asking(&&**connection));
        let newest = standing.filter_map(|connection| Some((stands(connection)?, connection)));
        let Some((_, connection)) = newest.max_by_key(|(turn, _)| *turn) else { return false };
        connection.yields = true;
        self.waker.marking(&self.marks, connection.number).wake();
        true
    }

    /// Closes an idle session to make room, if there is one.
    fn make_room(&mut self, now: Instant) -> bool {
        let Some(key) = self.sessions.yield_one(now) else { return false };
        if let Some(connection) = self.connections.get(&key) {
            connection.cancel.cancel();
            self.waker.marking(&self.marks, key.number()).wake();
        }
        true
    }

    /// A session's connection ends when it is to.
    pub(super) fn check_session(&mut self, now: Instant, key: ConnectionKey, end: &mut Endpoint) {
        let Some((connection, id)) = self.connections.get(&key).zip(end.connection_id()) else {
            return;
        };
        if let Some(denied) = self.ends(now, connection, id) {
            end.quit(now, &denied.words());
        }
    }

    /// Why it is to end now, if it is.
    fn ends(&self, now: Instant, connection: &Connection, id: u32) -> Option<RequestError> {
        let check_permission = || match &self.service.members {
            None => !self.permissions.holds(SystemTime::now()),
            Some(members) => {
                let found =
                    connection.peer_key.and_then(|key| members.find(&key, SystemTime::now()));
                found.is_none()
            }
        };
        let busy = |why| Some(RequestError::new(RequestErrorKind::Busy, why));
        if connection.cancel.is_cancelled() {
            return busy("the session was closed to make room for others; try again later");
        }
        if !self.sessions.is_idle(id) {
            return None;
        }
        if self.cancel.is_cancelled() {
            return busy("the server is about to stop; try again later");
        }
        if check_permission() {
            let why = "your permissions have expired";
            return Some(RequestError::new(RequestErrorKind::Forbidden, why));
        }
        if self.sessions.is_late(now, id) {
            return busy("idle timeout: no request for a long time");
        }
        None
    }
}

/// The state of a connection that brings an announced upload.
fn receiving(
    key: UploadKey,
    prepared: PreparedUpload,
    total: Option<u64>,
    session: TransferSession<'static>,
    stock: Vec<Buffer>,
    (waker, subflows, max_bytes): (Waker, Option<Arc<SubflowFactory>>, Option<u64>),
) -> ConnectionState {
    let PreparedUpload { writer, room, name, held, kept_at, .. } = prepared;
    let kept = writer.kept_bytes();
    let mut task = Receiving::new(session, writer, stock, waker);
    task.over_subflows(subflows);
    (task.room, task.max_bytes) = (Some((room, kept)), max_bytes);
    let upload = Upload { key, name, total, kept_at, _held: held };
    ConnectionState::Receiving(Box::new(task), upload)
}

/// Bytes of packets that are to come, by the sender's announcement.
fn promised(parameters: &Parameters) -> Option<u64> {
    let announcement = Announcement::parse(&parameters.client);
    let data = announcement.data_bytes.or(parameters.transfer_bytes)?;
    Some(carried(data, announcement.files))
}

/// About how many bytes of packets so many bytes of so many files take.
pub(super) fn carried(bytes: u64, files: Option<u64>) -> u64 {
    const OF_EACH: u64 = 300;
    let files = files.unwrap_or(1).saturating_mul(OF_EACH);
    bytes.saturating_add(bytes / 16).saturating_add(files)
}

/// How many buffers a transfer can use at first: no more than it can fill, by the sender's
/// announcement. A single file fills as many as its bytes need, each with at least half of its room
/// for data.
fn most_at_first(parameters: &Parameters, count: u32, bytes: usize) -> u64 {
    let announcement = Announcement::parse(&parameters.client);
    let filled = match (announcement.data_bytes, announcement.files) {
        (Some(data), Some(0 | 1)) => data / (bytes as u64 / 2).max(1) + 2,
        _ => u64::MAX,
    };
    u64::from(count).min(filled)
}
