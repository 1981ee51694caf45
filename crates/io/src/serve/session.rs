//! A session with a server: one connection that is opened once, and of which every request is a
//! branch (`docs/protocol §4.10, §8.8`).
//!
//! A thread reads its socket and keeps it alive. Each request is driven by the thread that asks.
//! The next request opens a lost session again. With a given local port each request has a
//! connection of its own instead.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use netblt_proto::api::{CloseReason, Event};
use netblt_proto::config::{Config, Role, UNLIMITED_BURST, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::limits::{MAX_OUTSTANDING, MAX_TABLE_BYTES, SEALED_BUFFER_BYTES};
use netblt_proto::time::Instant;

use super::requests::request::SESSION;
use crate::cancel::Cancel;
use crate::config::config;
use crate::error::Error;
use crate::net::connections::Oversize;
use crate::net::demux_queue::{Batch, DemuxQueue};
use crate::net::dialer::Dialer;
use crate::net::establish::{self, BranchRequest, BranchResult, Establish, Mux, MuxRequest};
use crate::net::event_loop::{self, Application, Feed};
use crate::net::io_context::{Clock, IoContext};
use crate::net::mux::{MuxBranches, MuxConnections};
use crate::net::mux_branch::{BranchMessage, MuxBranch};
use crate::net::poller::Poller;
use crate::net::socket::Socket;
use crate::observer::Observer;
use crate::options::Options;
use crate::ticket::Rendezvous;
use crate::transfer::subflows;

/// A session in which nothing is asked for so long is closed, and opened again when something is.
const IDLE: Duration = Duration::from_secs(60);
/// Branches at once, and with those that only have to part: fewer than a server takes, which may
/// see the end of one after this end.
const AT_ONCE: usize = 24;
const IN_ALL: usize = 48;
/// Uploads at once. The next ones wait before they announce anything: a server has room for as many
/// announcements of all clients as it has for clients, and no other request shall wait until they
/// are through.
const PUTS: usize = 16;
/// Of these, uploads with connections of their own: each uses a processor or more.
const BESIDE: usize = 2;
/// The interval at which a waiting upload looks whether it was cancelled.
const LOOKS: Duration = Duration::from_millis(50);
/// Bytes that wait for a branch, where the socket's own room is less or is not known.
const LEAST_ROOM: u32 = 4 << 20;
/// How long a closing session waits for branches that are closing.
const PATIENCE: Duration = Duration::from_secs(2);

/// A connection that requests to one server share. It opens with a request, closes after a minute
/// without any, and opens again if it was lost. Cloning shares it.
///
/// A child of `fork` must not use it, nor drop it: it has the parent's keys.
#[derive(Clone, Debug)]
pub struct Session(Arc<SessionInner>);

#[derive(Debug)]
struct SessionInner {
    rendezvous: Rendezvous,
    options: Options,
    state: Mutex<SessionState>,
    /// Running uploads.
    puts: Mutex<usize>,
    /// Of these, the number with connections of their own.
    beside: AtomicUsize,
    /// An upload has ended.
    over: Condvar,
}

/// A running upload, until it is dropped.
#[derive(Debug)]
pub(super) struct UploadTurn<'a>(&'a SessionInner);

impl Drop for UploadTurn<'_> {
    fn drop(&mut self) {
        *lock(&self.0.puts) -= 1;
        self.0.over.notify_one();
    }
}

/// An upload with a connection of its own, until it is dropped.
#[derive(Debug)]
pub(super) struct OwnConnection<'a>(&'a AtomicUsize);

impl Drop for OwnConnection<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug)]
enum SessionState {
    /// No request so far, or none for a while.
    Closed,
    Open(Mux, JoinHandle<()>),
    /// Each request has a connection of its own: the session has a given local port, which can have
    /// one connection only, and large fetches need it.
    Unshared,
}

impl Session {
    /// With the server at `rendezvous`. The options of the connection, such as address, family and
    /// death timer, are those of the session.
    pub fn new(rendezvous: Rendezvous, options: &Options) -> Self {
        let mut options = options.clone();
        (options.trace, options.control) = (None, None);
        let state =
            if options.network.port == 0 { SessionState::Closed } else { SessionState::Unshared };
        let state = Mutex::new(state);
        let (puts, beside, over) = (Mutex::new(0), AtomicUsize::new(0), Condvar::new());
        Self(Arc::new(SessionInner { rendezvous, options, state, puts, beside, over }))
    }

    /// Waits until files may be put.
    pub(super) fn upload_turn(&self, cancel: &Cancel) -> Result<UploadTurn<'_>, Error> {
        let mut puts = lock(&self.0.puts);
        while *puts >= PUTS {
            if cancel.is_cancelled() {
                return Err(Error::Interrupted);
            }
            let waited = self.0.over.wait_timeout(puts, LOOKS);
            (puts, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        *puts += 1;
        drop(puts);
        Ok(UploadTurn(&self.0))
    }

    /// The permission for an upload with a connection of its own, which takes the place of a
    /// session at the server.
    pub(super) fn beside(&self) -> Option<OwnConnection<'_>> {
        let beside = &self.0.beside;
        let add = |now: usize| Some(now + 1).filter(|count| *count <= BESIDE);
        let added = beside.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
        added.is_ok().then_some(OwnConnection(beside))
    }

    /// The connection to branch from; `None` if each request needs one of its own.
    pub(super) fn mux(
        &self,
        observer: &mut dyn Observer,
        cancel: &Cancel,
    ) -> Result<Option<Mux>, Error> {
        let mut state = lock(&self.0.state);
        match &*state {
            SessionState::Unshared => return Ok(None),
            SessionState::Open(mux, _) if !mux.is_over() => return Ok(Some(mux.clone())),
            SessionState::Open(..) | SessionState::Closed => {}
        }
        let SessionInner { rendezvous, options, .. } = &*self.0;
        let config = stem(options);
        let met = establish::meet(Establish::Meet(rendezvous), options, &config, observer, cancel)?;
        let (mux, thread) = begin(met)?;
        *state = SessionState::Open(mux.clone(), thread);
        Ok(Some(mux))
    }

    /// The same if a session is open, and its server has answered on a branch.
    pub(super) fn known_mux(&self) -> Option<Mux> {
        match &*lock(&self.0.state) {
            SessionState::Open(mux, _) if mux.is_confirmed() => Some(mux.clone()),
            _ => None,
        }
    }

    /// Closes the session, if it is open, when its requests are over. The server is notified, which
    /// takes a round trip, and two seconds at most. The next request opens it again.
    pub fn close(&self) {
        let mut state = lock(&self.0.state);
        if let SessionState::Open(mux, _) = &*state {
            mux.close();
            if let SessionState::Open(_, thread) =
                std::mem::replace(&mut *state, SessionState::Closed)
            {
                drop(state);
                let _ = thread.join();
            }
        }
    }
}

impl Drop for SessionInner {
    fn drop(&mut self) {
        if let SessionState::Open(mux, _) = &*lock(&self.state) {
            mux.close();
        }
    }
}

/// The configuration of a stem: the most that any of its branches may have.
fn stem(options: &Options) -> Config {
    Config {
        client: SESSION.to_owned(),
        branches: true,
        buffer_bytes: *SEALED_BUFFER_BYTES.end(),
        max_outstanding: MAX_OUTSTANDING,
        table_bytes: MAX_TABLE_BYTES,
        burst: UNLIMITED_BURST,
        ..config(options, Role::Receiver, None)
    }
}

/// A thread reads for all.
fn begin((mut host, dialer): (IoContext, Dialer)) -> Result<(Mux, JoinHandle<()>), Error> {
    let ((jobs, incoming), (sender, messages)) = (channel(), channel());
    let mux = Mux::new(jobs, host.poller.waker());
    let branches = MuxBranches::default();
    let none = |source| Error::Socket { what: "cannot share a socket".to_owned(), source };
    let seed = host.socket.share(Arc::new(DemuxQueue::new(0, || ()))).map_err(none)?;
    let mut reading = SessionReader {
        incoming,
        messages,
        sender,
        requests: VecDeque::new(),
        made: Vec::new(),
        branches: branches.clone(),
        mux: mux.clone(),
        seed,
        clock: host.clock,
        stem: StemState::Opening,
        closing: None,
        busy: host.clock.now(),
    };
    let run = move || {
        let mut trunk = MuxConnections::new(dialer, branches);
        let ended = event_loop::run(&mut trunk, &mut reading, &mut host);
        reading.mux.end();
        let tried = matches!(reading.stem, StemState::Opening).then(|| trunk.tried());
        let confirmed = matches!(reading.stem, StemState::Over { confirmed: true, .. });
        reading.fail_all(|| match &ended {
            Ok(_) if confirmed => Error::Ended(CloseReason::Forgotten),
            Ok(reason) => lost(tried.as_ref(), reason),
            Err(error) => Error::Socket {
                what: error.to_string(),
                source: std::io::Error::other("no branch can be made"),
            },
        });
    };
    let thread = std::thread::Builder::new().name("netblt-session".to_owned()).spawn(run);
    let failed = |source| Error::Thread { purpose: "for a session", source };
    Ok((mux, thread.map_err(failed)?))
}

/// The error of a request for a branch when there is no connection.
fn lost(tried: Option<&String>, reason: &CloseReason) -> Error {
    match tried {
        Some(peer) => {
            let (peer, wire) = (peer.clone(), Wire::Sealed);
            Error::Connect { peer, wire, reason: reason.clone() }
        }
        None => Error::Ended(reason.clone()),
    }
}

/// The state of the stem.
enum StemState {
    Opening,
    Open,
    /// It is closed: why, and whether the server had answered on a branch.
    Over {
        reason: CloseReason,
        confirmed: bool,
    },
}

/// The client of the stem.
struct SessionReader {
    incoming: Receiver<MuxRequest>,
    messages: Receiver<BranchMessage>,
    sender: Sender<BranchMessage>,
    /// Until it is open.
    requests: VecDeque<BranchRequest>,
    /// Handed over when BRANCH has left.
    made: Vec<(Sender<BranchResult>, BranchResult)>,
    branches: MuxBranches,
    mux: Mux,
    seed: Socket,
    clock: Clock,
    stem: StemState,
    /// No more branches are wanted, since then.
    closing: Option<Instant>,
    /// When a branch was last in use.
    busy: Instant,
}

impl SessionReader {
    /// Handles the messages of branches and the requests for new ones.
    fn handle_messages(&mut self, now: Instant, end: &mut Endpoint) {
        for word in self.messages.try_iter() {
            match word {
                BranchMessage::Confirmed(id) => {
                    end.confirm_branch(id);
                    self.mux.confirm();
                    self.branches.table().queues.get(&id).iter().for_each(|queue| queue.confirm());
                }
                BranchMessage::Leave(id, mut left) => {
                    end.confirm_branch(id);
                    let mut table = self.branches.table();
                    // The datagrams since its client's last read may hold its peer's last message.
                    let (queue, mut rest) = (table.queues.remove(&id), Batch::default());
                    let taken = queue.is_some_and(|queue| queue.take(&mut rest).is_ok());
                    if taken {
                        rest.for_each(|datagram| left.handle_datagram(now, datagram));
                    }
                    if let StemState::Over { reason, .. } = &self.stem {
                        left.on_stem_closed(now, reason);
                    }
                    left.part(now, "its application has ended");
                    table.closing_branches.push(*left);
                }
            }
        }
        for job in self.incoming.try_iter() {
            match job {
                MuxRequest::Branch(request) => self.requests.push_back(request),
                MuxRequest::Close => self.closing = self.closing.or(Some(now)),
            }
        }
    }

    /// A branch for a request. Returns the request if it must wait.
    fn make(
        &mut self,
        now: Instant,
        end: &mut Endpoint,
        request: BranchRequest,
    ) -> Option<BranchRequest> {
        let BranchRequest { configs, entropy, .. } = &request;
        let v6 = end.peer().is_some_and(|peer| peer.is_ipv6());
        let config = &configs[usize::from(v6)];
        // A peer is not to send more at once than can wait here.
        let config = Config { socket_bytes: Some(self.room()), ..config.clone() };
        let branch = match end.branch(now, config, *entropy) {
            Some(branch) => branch,
            None => return Some(request),
        };
        let made = self.host(&branch).map(|host| {
            let id = branch.connection_id().unwrap_or_default();
            let (sender, waker) = (self.sender.clone(), self.mux.waker());
            // If the reading thread has ended, nothing can be sent either.
            let joined = MuxBranch::new(id, move |word| {
                let _ = sender.send(word);
                waker.wake();
            });
            Box::new((host, branch, joined))
        });
        self.made.push((request.answer, made));
        None
    }

    /// The I/O context of a branch.
    fn host(&self, branch: &Endpoint) -> Result<IoContext, Error> {
        let none = |source| Error::Socket { what: "cannot share a socket".to_owned(), source };
        let poller = Poller::new().map_err(none)?;
        let waker = poller.waker();
        let queue = Arc::new(DemuxQueue::new(2 * self.room() as usize, move || waker.wake()));
        let socket = self.seed.share(Arc::clone(&queue)).map_err(none)?;
        let id = branch.connection_id().unwrap_or_default();
        self.branches.table().queues.insert(id, queue);
        Ok(IoContext { socket, poller, clock: self.clock, trace: None })
    }

    /// Bytes that are to wait for a branch at most: as much as the socket holds. For what its peer
    /// takes to be on the path, there is as much again.
    fn room(&self) -> u32 {
        self.seed.room().map_or(LEAST_ROOM, |room| room.max(LEAST_ROOM))
    }

    fn has_room(&self) -> bool {
        let table = self.branches.table();
        table.queues.len() < AT_ONCE && table.queues.len() + table.closing_branches.len() < IN_ALL
    }

    /// Whether no branch is left, and none is being made.
    fn is_alone(&self) -> bool {
        let table = self.branches.table();
        table.queues.is_empty() && table.closing_branches.is_empty() && self.made.is_empty()
    }

    /// Whether nothing is left to wait for: no branch at all, or, when [`Session::close`] has
    /// waited long enough, none with a client.
    fn has_parted(&self, now: Instant) -> bool {
        let late = |since: Instant| now.since(since) >= PATIENCE;
        self.is_alone() || self.is_unwanted() && self.closing.is_some_and(late)
    }

    /// Whether no branch is in use.
    fn is_unwanted(&self) -> bool {
        self.branches.table().queues.is_empty() && self.made.is_empty()
    }

    fn fail_all(&mut self, error: impl Fn() -> Error) {
        while let Ok(job) = self.incoming.try_recv() {
            if let MuxRequest::Branch(request) = job {
                self.requests.push_back(request);
            }
        }
        self.requests.drain(..).for_each(|request| _ = request.answer.send(Err(error())));
    }
}

impl Application for SessionReader {
    type Key = ();
    type Outcome = CloseReason;

    fn on_tick(&mut self, now: Instant) -> ControlFlow<Self::Outcome, Feed> {
        for (to, answer) in std::mem::take(&mut self.made) {
            // A requester that has gone closes the branch at once.
            if let Err(unwanted) = to.send(answer)
                && let Ok(made) = unwanted.0
            {
                let (_, end, joined) = *made;
                joined.leave(end);
            }
        }
        match &self.stem {
            StemState::Over { reason, .. } if self.has_parted(now) => {
                ControlFlow::Break(reason.clone())
            }
            StemState::Opening | StemState::Open | StemState::Over { .. } => {
                ControlFlow::Continue(Feed::All)
            }
        }
    }

    fn on_ready(&mut self, now: Instant, (): (), end: &mut Endpoint) -> ControlFlow<CloseReason> {
        self.handle_messages(now, end);
        if let StemState::Over { reason, confirmed } = &self.stem {
            // After a stem with answered branches, or an idle one, another one is opened. One that
            // never served anything was refused, and the error says why.
            let messages = if *confirmed || *reason == CloseReason::Quit {
                CloseReason::Forgotten
            } else {
                reason.clone()
            };
            self.fail_all(|| Error::Ended(messages.clone()));
            return ControlFlow::Continue(());
        }
        if !self.is_alone() || !self.requests.is_empty() {
            self.busy = now;
        }
        if matches!(self.stem, StemState::Open) {
            while self.has_room()
                && let Some(request) = self.requests.pop_front()
            {
                if let Some(waits) = self.make(now, end, request) {
                    self.requests.push_front(waits);
                    break;
                }
            }
        }
        let idle = self.closing.is_some() || now.since(self.busy) >= IDLE;
        if idle && self.has_parted(now) && self.requests.is_empty() {
            self.mux.end();
            // It leaves in this turn, and if it is lost the server sees for itself.
            end.quit(now, "no more requests");
            self.branches.table().closing_branches.clear();
            self.stem = StemState::Over { reason: CloseReason::Quit, confirmed: false };
        }
        ControlFlow::Continue(())
    }

    fn take(
        &mut self,
        now: Instant,
        (): (),
        event: Event,
        _: &mut Endpoint,
    ) -> ControlFlow<CloseReason> {
        match event {
            Event::Opened { parameters, .. } => {
                self.stem = StemState::Open;
                self.mux.open(subflows::from_client_string(&parameters.client) > Some(1));
            }
            Event::Closed(reason) => {
                let confirmed = self.mux.is_confirmed();
                self.mux.end();
                // For one that has served branches it does not matter why it is gone.
                let messages = if confirmed { &CloseReason::Forgotten } else { &reason };
                let mut table = self.branches.table();
                table.queues.values().for_each(|queue| queue.close(messages));
                table.closing_branches.iter_mut().for_each(|end| end.on_stem_closed(now, messages));
                drop(table);
                if matches!(self.stem, StemState::Opening) {
                    return ControlFlow::Break(reason);
                }
                self.stem = StemState::Over { reason, confirmed };
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    /// It will fall silent.
    fn on_io_error(
        &mut self,
        _: Instant,
        (): (),
        _: Error,
        _: &mut Endpoint,
    ) -> ControlFlow<CloseReason> {
        ControlFlow::Continue(())
    }

    fn path_limit(&mut self, _bytes: u32) {}

    fn on_oversize(
        &mut self,
        _: Instant,
        (): (),
        _: &Oversize,
        _: &mut Endpoint,
    ) -> ControlFlow<CloseReason> {
        ControlFlow::Continue(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
