//! The event loop of a server: connections come, send requests, are served and go.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

use netblt_proto::api::Event;
use netblt_proto::config::{AuthorizedKeys, Config, Identity, Policy, Role, Secret, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_proto::wire::packet::Parameters;

use super::admission::{ServerState, carried};
use super::cleanup::CleanupQueue;
use super::connection::Connection;
use super::connection_state::{
    Answer, Asked, ConnectionState, Preparation, TaskResult, received, sent,
};
use super::handlers;
use super::jobs::Jobs;
use super::listings::Listings;
use super::memory_pool::{MemoryPool, buffer_at};
use super::pending_uploads::{self, PendingUpload, PendingUploads};
use super::push::PushContext;
use super::rate_limiter::{RateLimiter, RequestOrigin};
use super::requests::facts::{UploadFacts, UploadKey};
use super::requests::request::Request;
use super::requests::response_item::ResponseItem;
use super::response::{Done, OutgoingData, PreparedUpload};
use super::roots::Roots;
use super::service::{ServerObserver, Service};
use super::sessions::{Sessions, most_requests, stock};
use super::takeover::{self, DeferredUploads};
use crate::cancel::Cancel;
use crate::config::{config, for_peer};
use crate::disk::layout::Layout;
use crate::disk::safe_open;
use crate::error::{Error, OptionsError, RequestErrorKind, file_error};
use crate::memory_budget::MemoryBudget;
use crate::net::addresses;
use crate::net::connections::Oversize;
use crate::net::entropy::entropy;
use crate::net::event_loop::{self, Application, Feed};
use crate::net::io_context::{Clock, IoContext};
use crate::net::listener::{ConnectionKey, Listener, MAX_BRANCHES};
use crate::net::poller::Poller;
use crate::net::socket::{Bind, Socket};
use crate::options::Options;
use crate::permissions::Permissions;
use crate::request_error::RequestError;
use crate::transfer::subflows::{self, SubflowFactory};

/// How long a new connection may take to send its request.
const ASKING: Duration = Duration::from_secs(10);
/// How long a number waits for the files that are put under it.
const WAITING: Duration = Duration::from_secs(60);
/// The interval at which all connections are looked at.
const ROUND: Duration = Duration::from_millis(100);
/// How long connections get for their closing when the server stops.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most bytes of a client's HAVE: a million small files. Each piece costs more than itself.
const MAX_HAVE_BYTES: u64 = 24 << 20;
const PIECE: u64 = 64;
/// Names and HAVEs take at most this part of the memory for buffers, beside it.
const NAMES_PART: u64 = 2;
/// Connections beyond those that are served: they are refused as busy.
const TURNED_AWAY: usize = 64;

/// Serves until it is cancelled. Then running transfers finish, and no new ones begin. If it is
/// aborted, all connections are closed.
pub fn serve(
    service: &Service,
    options: &Options,
    observer: &mut dyn ServerObserver,
    cancel: &Cancel,
) -> Result<(), Error> {
    let permissions = Arc::new(service.permissions.clone());
    let root = open_root(&permissions.root)?;
    let pool = MemoryPool::new(service.memory, service.max_sessions.into());
    let options = within(service, options, &pool)?;
    let socket = Socket::bind(&Bind {
        address: options.network.bind,
        port: options.network.port,
        family: options.settings.family,
        answering: true,
        ..Bind::default()
    })?;
    let secret = match &service.secret {
        Some(secret) => secret.clone(),
        None => Secret(entropy()?),
    };
    // The receiver proposes the ceiling of the sender.
    let config =
        Config { accept_any_role: true, branches: true, ..config(&options, Role::Receiver, None) };
    let v6 = socket.local().is_ipv6();
    let identity = service.members.as_ref().map(|members| Identity::server(members.authorized()));
    let shared = identity.is_none().then(|| secret.clone());
    let config = Config { identity, ..for_peer(&config, &options, shared, v6) };
    let config = Config { either_version: v6, socket_bytes: socket.room(), ..config };
    let config = subflows::announce(subflows::SERVER, &options, Some(true), config);
    let ticket = addresses::ticket(socket.local(), &options, secret)?;
    match &service.members {
        Some(_) => observer.listening_at(&ticket.addresses),
        None => observer.listening(&ticket).map_err(Error::Unseen)?,
    }
    let mut host = host(socket)?;
    let subflows = SubflowFactory::of(&options, Some(true), &host);
    let room = most_ends(service.max_sessions);
    let mut listener = Listener::new(config.clone(), entropy()?).with_room(room);
    let (roots, layout) = (Roots::new(permissions.root.clone(), root), Layout::of(&config)?);
    let state = ServerState {
        service,
        options,
        config,
        permissions,
        cancel,
        waker: host.poller.waker(),
        marks: Arc::default(),
        connections: HashMap::new(),
        sessions: Sessions::default(),
        puts: PendingUploads::default(),
        pool,
        budget: MemoryBudget::new(service.memory / NAMES_PART),
        subflows,
    };
    let mut app = ServerApp {
        state,
        layout,
        roots,
        jobs: Jobs::new(most_requests(service.max_sessions)),
        listings: Listings::default(),
        limiter: RateLimiter::new(service.max_rate),
        is_uneven: false,
        observer,
        marked: Vec::new(),
        cleanup_queue: CleanupQueue::new()?,
        deferred: DeferredUploads::default(),
        next_round: Instant::EPOCH,
        until: None,
        last_warning: None,
    };
    event_loop::run(&mut listener, &mut app, &mut host)?
}

/// The directory that is served.
fn open_root(path: &Path) -> Result<OwnedFd, Error> {
    let root =
        safe_open::open_directory(path).map_err(|e| file_error(path, "cannot be served", e))?;
    // The disk's threads get only paths of open files.
    let opened = safe_open::path_of(&root);
    safe_open::open_directory(&opened)
        .map_err(|e| file_error(&opened, "cannot be used (is /proc there?)", e))?;
    Ok(root)
}

/// The same options, with buffers for which there is memory, and no more than the server's rate.
fn within(
    service: &Service,
    options: &Options,
    pool: &MemoryPool,
) -> Result<Options, OptionsError> {
    let mut options = options.clone();
    let table = Config::new(Wire::Sealed, Role::Sender).table_bytes;
    let most = pool.buffer_bytes(table).ok_or(OptionsError::Memory(service.memory))?;
    let slow = service.max_rate.map_or(u32::MAX, buffer_at);
    options.buffers.bytes = options.buffers.bytes.min(most).min(slow);
    if let (Some(rate), Policy::Fair { ceiling }) = (service.max_rate, &mut options.settings.policy)
    {
        *ceiling = Some(ceiling.map_or(rate, |ceiling| ceiling.min(rate)));
    }
    Ok(options)
}

fn host(socket: Socket) -> Result<IoContext, Error> {
    let poller = Poller::new()
        .map_err(|source| Error::Socket { what: "cannot make a waker".to_owned(), source })?;
    Ok(IoContext { socket, poller, clock: Clock::start(), trace: None })
}

/// Connections at once: sessions, their requests, and those that are refused as busy.
fn most_ends(sessions: u32) -> usize {
    sessions as usize + most_requests(sessions) + MAX_BRANCHES + TURNED_AWAY
}

/// The client of all connections.
struct ServerApp<'a> {
    state: ServerState<'a>,
    layout: Layout,
    /// The directories that were opened, by their paths.
    roots: Roots,
    /// The threads that perform requests.
    jobs: Jobs,
    /// Cached listings of directories.
    listings: Listings,
    limiter: RateLimiter,
    /// A client has come, begun or gone since rates were divided.
    is_uneven: bool,
    observer: &'a mut dyn ServerObserver,
    marked: Vec<u64>,
    cleanup_queue: CleanupQueue,
    deferred: DeferredUploads,
    next_round: Instant,
    /// All connections are being closed, until then at the latest.
    until: Option<Instant>,
    /// The last warning.
    last_warning: Option<String>,
}

type Flow = ControlFlow<Result<(), Error>>;

impl ServerApp<'_> {
    fn open(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        peer: SocketAddr,
        parameters: Parameters,
        image_bytes: u32,
        end: &mut Endpoint,
    ) {
        if let Some(old) = self.state.connections.remove(&key) {
            self.deferred.forget(key);
            self.finish_connection(now, old, Err(Error::Restarted("its client restarted")));
        }
        match self.state.accept(now, key, peer, &parameters, image_bytes, end) {
            Ok(connection) => {
                if let (true, Some(id)) = (connection.is_session(), end.connection_id()) {
                    self.state.sessions.begin(now, id, (key, connection.peer_key));
                }
                connection.session.into_iter().for_each(|id| self.state.sessions.branch(id));
                self.state.connections.insert(key, connection);
                self.limit(now, key);
                self.pass(now, key, Event::Opened { peer, parameters, image_bytes }, end);
            }
            Err(denied) => {
                if denied.what == RequestErrorKind::Busy {
                    self.state.service.metrics.turned_away();
                }
                end.quit(now, &denied.words());
            }
        }
    }

    /// Has a client that has come keep to a share, if there is a rate to keep.
    fn limit(&mut self, now: Instant, key: ConnectionKey) {
        let Some(connection) = self.state.connections.get_mut(&key) else { return };
        let most = connection.permissions.max_rate;
        if connection.is_session() || !self.limiter.limits(most) {
            return;
        }
        connection.rate.is_limited = true;
        if let ConnectionState::Receiving(task, _) = &mut connection.state {
            task.grant_by_turns();
        }
        let client = connection.client();
        // Numbers of connections never come to this bit.
        let session =
            connection.session.map_or(connection.number, |stem| 1 << 63 | u64::from(stem));
        self.limiter.open(now, connection.number, RequestOrigin { client, session, most });
        self.is_uneven = true;
    }

    /// Divides rates again.
    fn divide(&mut self, now: Instant) {
        self.is_uneven = false;
        self.limiter.divide(now);
        for connection in
            self.state.connections.values_mut().filter(|connection| connection.rate.is_limited)
        {
            if connection.keep_to(self.limiter.share(connection.number)) {
                self.marked.push(connection.number);
            }
        }
    }

    /// Measures a connection's progress, and grants it buffers.
    fn measure(&mut self, now: Instant, key: ConnectionKey, end: &mut Endpoint) {
        let Some(connection) =
            self.state.connections.get_mut(&key).filter(|connection| connection.rate.is_limited)
        else {
            return;
        };
        let number = connection.number;
        self.is_uneven |= self.limiter.see(now, number, connection.look(end));
        let ConnectionState::Receiving(task, _) = &mut connection.state else { return };
        let bytes = connection.buffers.image_bytes as u64;
        while task.wants_grant() {
            if !self.limiter.grant(now, number, bytes) {
                return;
            }
            task.grant_one(now, end);
            self.is_uneven = true;
        }
        self.limiter.is_content(number);
    }

    /// An event of a connection's transfer.
    fn pass(&mut self, now: Instant, key: ConnectionKey, event: Event, end: &mut Endpoint) {
        let Some(connection) = self.state.connections.get_mut(&key) else { return };
        if let Event::PeerHas { bytes, .. } = &event {
            let more = bytes.len() as u64 + PIECE;
            connection.have_bytes += more;
            let have_bytes = match connection.session {
                Some(id) => self.state.sessions.add_have_bytes(id, more),
                None => connection.have_bytes,
            };
            if have_bytes > MAX_HAVE_BYTES {
                let why = "the list of files to resume is too long for this server";
                return self.deny(now, key, RequestError::new(RequestErrorKind::Failed, why), end);
            }
            if !connection.memory.take(more) {
                let why = "no memory for the list of files to resume; try again later";
                return self.deny(now, key, RequestError::new(RequestErrorKind::Busy, why), end);
            }
        }
        let over = match &mut connection.state {
            ConnectionState::Answering(task, _) => {
                let over = task.take(now, (), event, end).break_value().map(sent);
                let request = task.take_request();
                if let Some(request) = request.filter(|_| over.is_none()) {
                    self.begin(now, key, &request, end);
                }
                over
            }
            ConnectionState::Receiving(task, _) => {
                task.take(now, (), event, end).break_value().map(received)
            }
            ConnectionState::Session => {
                let closed = matches!(event, Event::Closed(_));
                let id = end.connection_id().filter(|_| closed);
                id.into_iter().for_each(|id| self.state.sessions.end(id));
                closed.then_some(Ok(0))
            }
        };
        match over {
            Some(result) => self.leave(now, key, result),
            // The grant that it waits for may have come.
            None => self.proceed(now, key, end),
        }
    }

    /// A request has arrived: a thread performs it.
    fn begin(&mut self, now: Instant, key: ConnectionKey, text: &[u8], end: &mut Endpoint) {
        let Some((request, had)) = Request::parse(text) else {
            let why = "the server does not know this request; it may be of another version";
            return self.deny(
                now,
                key,
                RequestError::new(RequestErrorKind::NotUnderstood, why),
                end,
            );
        };
        let Some(connection) = self.state.connections.get_mut(&key) else { return };
        let (facts, kind) = (request.facts(), request.kind());
        let (upload, memory, target) = (facts.upload, facts.memory, facts.target.to_vec());
        connection.state.ask(Asked { request: Arc::new(request), had: had.to_vec(), target });
        let (permissions, peer_key) = (Arc::clone(&connection.permissions), connection.peer_key);
        if let Some(why) = kind.access().refusal(permissions.read, permissions.write) {
            return self.deny(now, key, RequestError::new(RequestErrorKind::Forbidden, why), end);
        }
        match upload {
            Some(UploadFacts::Cancelled(number)) => self.state.puts.take_back(number, peer_key),
            Some(UploadFacts::Announced { .. }) | None => {}
        }
        if !connection.memory.take(memory) {
            let why = "no memory for so many pieces; ask for fewer, or try again later";
            return self.deny(now, key, RequestError::new(RequestErrorKind::Busy, why), end);
        }
        self.proceed(now, key, end);
    }

    /// Performs a connection's request, once a buffer was granted for the answer.
    fn proceed(&mut self, now: Instant, key: ConnectionKey, end: &mut Endpoint) {
        let Some(connection) = self.state.connections.get(&key) else { return };
        let Some(request) = connection.granted() else { return };
        let waits = request.is_upload()
            && takeover::peer_liveness_unknown(
                &self.state.connections,
                &connection.permissions,
                &request.upload_key(),
                now,
            );
        if waits {
            let connection = self.state.connections.get_mut(&key);
            connection.into_iter().for_each(|connection| connection.state.defer(now));
            return self.deferred.add(key);
        }
        self.perform(now, key, end);
    }

    /// Performs a request on a thread.
    fn perform(&mut self, now: Instant, key: ConnectionKey, end: &mut Endpoint) {
        let connections = self.state.connections.len();
        let Some(connection) = self.state.connections.get_mut(&key) else { return };
        let permissions = Arc::clone(&connection.permissions);
        let Some(asked) = connection.state.asked_mut() else { return };
        let request = Arc::clone(&asked.request);
        let is_push = request.facts().connects;
        let push = match is_push {
            true => {
                let image_bytes =
                    (self.state.options.buffers.bytes + self.state.config.table_bytes) as usize;
                let waker = self.state.waker.marking(&self.state.marks, key.number());
                let options = (&self.state.options, image_bytes);
                let place = (&mut self.state.pool, &mut self.state.sessions, connections);
                let of = (&*permissions, connection.session, &connection.rate.control);
                match PushContext::new(of, &mut connection.buffers, place, options, waker) {
                    Ok(push) => {
                        // From now on the progress of those files counts, not that of the response.
                        connection.seen = push.seen();
                        Some(push.naming(connection.names.clone()))
                    }
                    Err(denied) => return self.deny(now, key, denied, end),
                }
            }
            false => None,
        };
        let (answer, job) = channel();
        connection.state.prepare(Preparation { job, is_push });
        let cancel = connection.cancel.clone();
        let root = match self.roots.of(&permissions.root, self.state.service.members.as_ref()) {
            Ok(root) => root,
            Err(denied) => return self.deny(now, key, denied, end),
        };
        if request.is_upload() {
            self.take_over(now, &request.upload_key(), &permissions);
        }
        let Some(job) = self.jobs.begin() else {
            let why = "as much is looked for as may be at once; try again later";
            return self.deny(now, key, RequestError::new(RequestErrorKind::Busy, why), end);
        };
        let Some(connection) = self.state.connections.get(&key) else { return };
        let (client, memory_share) = (connection.client(), connection.memory_share.clone());
        let name_log = Some(connection.names.clone());
        let options = Options { memory_share, name_log, ..self.state.options.clone() };
        let (layout, listings) = (self.layout, self.listings.clone());
        let cleanups = self.cleanup_queue.cleanups();
        let waker = self.state.waker.marking(&self.state.marks, key.number());
        let work = move || {
            let with = handlers::context::HandlerContext {
                options: &options,
                layout,
                cleanups: &cleanups,
                listings: &listings,
                client,
                may_read: permissions.read,
                cancel: &cancel,
            };
            let done = handlers::dispatch::perform(&request, &root, &with, push);
            // From now on it is no thread of a request's any more.
            drop(job);
            let _ = answer.send(done);
            waker.wake();
        };
        if std::thread::Builder::new().name("netblt-ask".to_owned()).spawn(work).is_err() {
            let why = "no thread can be started; try again later";
            self.deny(now, key, RequestError::new(RequestErrorKind::Busy, why), end);
        }
    }

    /// A new upload to a path whose earlier upload has fallen silent comes most likely from the
    /// same client, restarted. What has come is to be resumed, so the old connection goes.
    fn take_over(&mut self, now: Instant, upload_key: &UploadKey, permissions: &Permissions) {
        for connection in
            takeover::evict_stale(&mut self.state.connections, permissions, upload_key)
        {
            self.finish_connection(now, connection, Err(Error::Restarted("its client restarted")));
        }
        self.forget(|waiting| {
            waiting.root == permissions.root
                && waiting.upload_key == *upload_key
                && waiting.is_late(now)
        });
    }

    /// Numbers under which nothing is to come any more.
    fn forget(&mut self, is_late: impl Fn(&PendingUpload) -> bool) {
        for waiting in self.state.puts.take_if(is_late) {
            let kept_at = waiting.prepared.kept_at;
            self.cleanup_queue.enqueue(waiting.prepared, Some(kept_at));
        }
    }

    /// The result of the thread.
    fn answer(&mut self, now: Instant, key: ConnectionKey, done: Done, end: &mut Endpoint) {
        let outgoing = match done {
            Done::Send(outgoing) => *outgoing,
            Done::Put(prepared) => match self.await_files(now, key, prepared) {
                Ok(outgoing) => outgoing,
                Err(denied) => return self.deny(now, key, denied, end),
            },
        };
        let connections = self.state.connections.len();
        let Some(connection) = self.state.connections.get_mut(&key) else { return };
        // One more than its bytes fill, for the tables beside them.
        let count = outgoing.bytes / self.layout.data_bytes().max(1) as u64 + 2;
        let count = count.min(connection.buffers.at_first.into());
        let totals = (outgoing.total, outgoing.files);
        let bytes = outgoing.total.or(Some(outgoing.bytes).filter(|bytes| *bytes < u64::MAX));
        let total = bytes.map(|bytes| carried(bytes, outgoing.files));
        let answer = Answer { total, push_failure: outgoing.fails };
        let Some((task, had, subflows)) = connection.state.send(answer) else { return };
        let place = (&mut self.state.pool, &mut self.state.sessions);
        let wanted = (count, connection.buffers.image_bytes);
        let begun = stock(place, connection.session, wanted, (connections, false)).and_then(
            |(stock, shared, beyond)| {
                connection.buffers.add(shared, beyond);
                task.answer_with(outgoing.reader, stock, totals, (&had, subflows), end)
            },
        );
        if let Err(error) = begun {
            let what = match &error {
                Error::Memory { .. } | Error::Thread { .. } => RequestErrorKind::Busy,
                _ => RequestErrorKind::Failed,
            };
            self.deny(now, key, RequestError::new(what, error.to_string()), end);
        }
    }

    /// Awaits an upload, under a number that cannot be guessed.
    fn await_files(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        prepared: Box<PreparedUpload>,
    ) -> Result<OutgoingData, RequestError> {
        let busy = |why: String| RequestError::new(RequestErrorKind::Busy, why);
        let gone = || busy("you have gone".to_owned());
        let connection = self.state.connections.get_mut(&key).ok_or_else(gone)?;
        let asked = connection.state.asked_mut().ok_or_else(gone)?;
        asked.target.clone_from(&prepared.name);
        let (request, upload_key) = (Arc::clone(&asked.request), asked.request.upload_key());
        let lends =
            matches!(request.facts().upload, Some(UploadFacts::Announced { via_server: true, .. }));
        let (peer_key, most) =
            (connection.peer_key, connection.permissions.max_sessions.unwrap_or(u32::MAX) as usize);
        let root = connection.permissions.root.clone();
        // A client that announces and sends nothing takes no other's place for long.
        if self.state.puts.len() >= self.state.service.max_sessions as usize {
            self.forget(|waiting| waiting.is_late(now));
        }
        if self.state.puts.len() >= self.state.service.max_sessions as usize
            || self.state.puts.count(peer_key) >= most
        {
            return Err(busy("too many have announced files; try again later".to_owned()));
        }
        let random = entropy().map_err(|error| busy(error.to_string()))?;
        let number = random.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let (lent, line) = pending_uploads::lend(self.state.service.members.as_ref(), lends)?;
        let put = ResponseItem::Put(number, prepared.name.clone());
        let outgoing = handlers::answer::outgoing([put].into_iter().chain(line), self.layout)?;
        let since = now;
        let waiting = PendingUpload { peer_key, root, upload_key, since, prepared, lent };
        self.state.puts.add(number, waiting);
        Ok(outgoing)
    }

    /// Refuses a request.
    fn deny(&mut self, now: Instant, key: ConnectionKey, denied: RequestError, end: &mut Endpoint) {
        let Some(connection) = self.state.connections.get_mut(&key) else { return };
        let over = connection.deny(now, end, denied);
        if let Some(result) = over {
            self.leave(now, key, result);
        }
    }

    /// The same, for one that does not count any more.
    fn turn_away(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        denied: RequestError,
        end: &mut Endpoint,
    ) -> Flow {
        if self.state.connections.get(&key).is_some_and(|connection| !connection.is_denied()) {
            self.deny(now, key, denied, end);
        }
        let connection = self.state.connections.get_mut(&key);
        let over = connection.and_then(|connection| connection.state.on_ready(now, end));
        if let Some(result) = over {
            self.leave(now, key, result);
        }
        ControlFlow::Continue(())
    }

    /// A connection ends.
    fn leave(&mut self, now: Instant, key: ConnectionKey, result: TaskResult) {
        if let Some(connection) = self.state.connections.remove(&key) {
            self.deferred.forget(key);
            self.recheck_deferred();
            self.finish_connection(now, connection, result);
        }
    }

    /// Looks again at the uploads that wait for a sign of life of an earlier one, or for its end.
    fn recheck_deferred(&mut self) {
        self.marked.extend(self.deferred.keys().map(ConnectionKey::number));
    }

    fn finish_connection(&mut self, now: Instant, connection: Connection, result: TaskResult) {
        self.limiter.close(now, connection.number);
        self.is_uneven |= connection.rate.is_limited;
        self.state.pool.give(connection.buffers.beyond);
        connection.cancel.cancel();
        connection.session.into_iter().for_each(|id| {
            self.state.sessions.over(now, id, connection.buffers.shared, connection.have_bytes)
        });
        if connection.is_session() {
            return;
        }
        let account = connection.account(now, result);
        self.state.service.metrics.ended(&account);
        self.observer.ended(&account);
        let kept_at = connection.state.kept_at();
        self.cleanup_queue.enqueue(connection.state, kept_at);
    }
}

impl Application for ServerApp<'_> {
    type Key = ConnectionKey;
    type Outcome = Result<(), Error>;

    fn on_tick(&mut self, now: Instant) -> ControlFlow<Self::Outcome, Feed> {
        if self.state.cancel.is_aborting() && self.until.is_none() {
            self.until = Some(now + PATIENCE);
            self.state.connections.values().for_each(|connection| connection.cancel.cancel());
            self.next_round = now;
        }
        let awaited =
            self.state.cancel.is_cancelled() && self.state.puts.len() > 0 && self.until.is_none();
        let over = self.until.is_some_and(|until| until <= now);
        if over
            || (self.state.cancel.is_cancelled() && self.state.connections.is_empty() && !awaited)
        {
            return ControlFlow::Break(Ok(()));
        }
        let is_round = self.next_round <= now;
        if (is_round && self.limiter.measure(now)) || self.is_uneven {
            self.divide(now);
        }
        if !is_round {
            return ControlFlow::Continue(Feed::Ready);
        }
        self.next_round = now + ROUND;
        self.observer.alive();
        let bytes = self
            .state
            .connections
            .values()
            .map(|connection| connection.seen.bytes.load(Ordering::Relaxed));
        let bytes = bytes.sum();
        self.state.service.metrics.is_serving(self.state.sessions_now() as u64, bytes);
        self.forget(|waiting| now.since(waiting.since) >= WAITING);
        self.listings.forget_old();
        ControlFlow::Continue(Feed::All)
    }

    fn on_ready(&mut self, now: Instant, key: ConnectionKey, end: &mut Endpoint) -> Flow {
        let Some(connection) = self.state.connections.get_mut(&key) else {
            return ControlFlow::Continue(());
        };
        if connection.is_session() {
            self.state.check_session(now, key, end);
            return ControlFlow::Continue(());
        }
        if connection.note_datagrams(now, end) {
            self.recheck_deferred();
        }
        let Some(connection) = self.state.connections.get_mut(&key) else {
            return ControlFlow::Continue(());
        };
        if connection.yields {
            let why = "no progress, and other clients are waiting; try again later";
            return self.turn_away(now, key, RequestError::new(RequestErrorKind::Busy, why), end);
        }
        connection.watch(now, end);
        self.proceed(now, key, end);
        if self.deferred.take(key, &self.state.connections) {
            self.perform(now, key, end);
        }
        let Some(connection) = self.state.connections.get_mut(&key) else {
            return ControlFlow::Continue(());
        };
        let done = connection.poll_job();
        if let Some(done) = done {
            match done {
                Ok(done) => self.answer(now, key, done, end),
                Err(denied) => self.deny(now, key, denied, end),
            }
        } else if connection.state.is_idle() && connection.age(now) >= ASKING {
            let why = "timed out: no request within 10 s";
            self.deny(now, key, RequestError::new(RequestErrorKind::NotUnderstood, why), end);
        }
        let connection = self.state.connections.get(&key);
        let failed = connection.and_then(|connection| connection.state.poll_push_failure());
        if let Some(denied) = failed {
            self.deny(now, key, denied, end);
        }
        let Some(connection) = self.state.connections.get_mut(&key) else {
            return ControlFlow::Continue(());
        };
        connection.grow(now, end, &mut self.state.pool);
        match connection.state.on_ready(now, end) {
            Some(result) => self.leave(now, key, result),
            None => self.measure(now, key, end),
        }
        ControlFlow::Continue(())
    }

    fn take(&mut self, now: Instant, key: ConnectionKey, event: Event, end: &mut Endpoint) -> Flow {
        match event {
            Event::Opened { peer, parameters, image_bytes } => {
                self.open(now, key, peer, parameters, image_bytes, end);
            }
            event => self.pass(now, key, event, end),
        }
        ControlFlow::Continue(())
    }

    /// The connection will fall silent. The others go on.
    fn on_io_error(
        &mut self,
        _: Instant,
        _: ConnectionKey,
        error: Error,
        _: &mut Endpoint,
    ) -> Flow {
        let message = error.to_string();
        // Each packet fails in the same way.
        if self.last_warning.as_ref() != Some(&message) {
            self.observer.warn(&error);
            self.last_warning = Some(message);
        }
        ControlFlow::Continue(())
    }

    fn path_limit(&mut self, _bytes: u32) {}

    fn on_oversize(
        &mut self,
        _: Instant,
        _: ConnectionKey,
        _: &Oversize,
        _: &mut Endpoint,
    ) -> Flow {
        ControlFlow::Continue(())
    }

    fn poll_authorized(&mut self) -> Option<Arc<AuthorizedKeys>> {
        self.state.service.members.as_ref()?.take_change()
    }

    fn poll_marked(&mut self) -> Option<ConnectionKey> {
        if self.marked.is_empty() {
            self.marked = self.state.marks.take();
        }
        self.marked.pop().map(ConnectionKey::of)
    }
}
