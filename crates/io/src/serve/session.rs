//! A session with a server: one connection that is opened once, and of which every request is a
//! branch (`docs/protocol.md §4.10, §8.8`).
//!
//! A thread reads its socket and keeps it alive; each request is driven by the thread that asks. A
//! session that is lost is opened again by who asks next, and where a server knows none, each
//! request has a connection of its own.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use netblt_proto::api::{Event, Reason};
use netblt_proto::config::{Config, NO_LIMIT, Role, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::limits::{MAX_OUTSTANDING, MAX_TABLE_BYTES, SEALED_BUFFER_BYTES};
use netblt_proto::time::Instant;

use super::request::SESSION;
use crate::cancel::Cancel;
use crate::config::config;
use crate::denial::Denied;
use crate::error::{Denial, Error};
use crate::net::connections::Oversize;
use crate::net::dialer::Dialer;
use crate::net::driver::{self, Application, Feed};
use crate::net::host::{Clock, Host};
use crate::net::inbox::{Batch, Inbox};
use crate::net::joined::{Joined, Word};
use crate::net::rendezvous::{self, Answer, Job, Line, Way, Wish};
use crate::net::socket::Socket;
use crate::net::trunk::{Branches, Trunk};
use crate::net::wait::Poller;
use crate::observer::Observer;
use crate::options::Options;
use crate::ticket::Rendezvous;
use crate::transfer::lanes;

/// A session in which nothing is asked for so long is closed, and opened again when something is.
const IDLE: Duration = Duration::from_secs(60);
/// Branches at once, and with those that only have to part: fewer than a server takes, which may
/// see the end of one after this end.
const AT_ONCE: usize = 24;
const IN_ALL: usize = 48;
/// Files, or several together, that are put at once: the next wait before they announce anything,
/// for a server has room for as many announcements of all clients as it has for clients, and
/// somebody who asks shall not wait until they are through.
const PUTS: usize = 16;
/// Of these, by connections of their own: each has a processor or more.
const BESIDE: usize = 2;
/// How soon who waits for that hears that he is not to.
const LOOKS: Duration = Duration::from_millis(50);
/// Bytes that wait for a branch, where the socket's own room is less or is not known.
const LEAST_ROOM: u32 = 4 << 20;
/// How long one that is to be closed waits for branches that only have to part.
const PATIENCE: Duration = Duration::from_secs(2);

/// Requests to one server that share a connection. It is opened when something is asked, closed
/// when nothing was for a minute, and opened anew when it was lost. Cloning shares it.
///
/// A child of `fork` must not use it, nor drop it: it has the parent's keys.
#[derive(Clone, Debug)]
pub struct Session(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    rendezvous: Rendezvous,
    options: Options,
    state: Mutex<State>,
    /// Puts under way.
    puts: Mutex<usize>,
    /// Of these, by connections of their own.
    beside: AtomicUsize,
    /// One of them is over.
    over: Condvar,
}

/// Somebody puts files. Dropped, he does no more.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a Shared);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(&self.0.puts) -= 1;
        self.0.over.notify_one();
    }
}

/// Somebody puts files by a connection of his own. Dropped, he does no more.
#[derive(Debug)]
pub(super) struct Beside<'a>(&'a AtomicUsize);

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug)]
enum State {
    /// Nothing was asked yet, or not for long.
    Closed,
    Open(Line, JoinHandle<()>),
    /// The server knows no sessions.
    Unknown,
}

impl Session {
    /// With whoever is met there. The options that concern the way, as address, family and death
    /// timer, are those of the session.
    pub fn new(rendezvous: Rendezvous, options: &Options) -> Self {
        let mut options = options.clone();
        (options.trace, options.control) = (None, None);
        // Of a port that is named there is one, and what is fetched in large needs it.
        let state = if options.port == 0 { State::Closed } else { State::Unknown };
        let state = Mutex::new(state);
        let (puts, beside, over) = (Mutex::new(0), AtomicUsize::new(0), Condvar::new());
        Self(Arc::new(Shared { rendezvous, options, state, puts, beside, over }))
    }

    /// Waits until files may be put.
    pub(super) fn turn(&self, cancel: &Cancel) -> Result<Turn<'_>, Error> {
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
        Ok(Turn(&self.0))
    }

    /// Somebody may put files by a connection of his own, which takes the place of a session.
    pub(super) fn beside(&self) -> Option<Beside<'_>> {
        let beside = &self.0.beside;
        let add = |now: usize| Some(now + 1).filter(|count| *count <= BESIDE);
        let added = beside.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
        added.is_ok().then_some(Beside(beside))
    }

    /// What requests branch from now; `None` if each needs a connection of its own.
    pub(super) fn line(
        &self,
        observer: &mut dyn Observer,
        cancel: &Cancel,
    ) -> Result<Option<Line>, Error> {
        let mut state = lock(&self.0.state);
        match &*state {
            State::Unknown => return Ok(None),
            State::Open(line, _) if !line.is_over() => return Ok(Some(line.clone())),
            State::Open(..) | State::Closed => {}
        }
        let Shared { rendezvous, options, .. } = &*self.0;
        let config = stem(options);
        let met = rendezvous::meet(Way::Meet(rendezvous), options, &config, observer, cancel)?;
        let (line, thread) = begin(met)?;
        *state = State::Open(line.clone(), thread);
        Ok(Some(line))
    }

    /// The same if a session stands, and its server was heard to know what that is.
    pub(super) fn known_line(&self) -> Option<Line> {
        match &*lock(&self.0.state) {
            State::Open(line, _) if line.is_known() => Some(line.clone()),
            _ => None,
        }
    }

    /// Whether the server said that it knows no sessions.
    pub(super) fn is_unknown(&self) -> bool {
        let mut state = lock(&self.0.state);
        if let State::Open(line, _) = &*state
            && line.is_refused()
        {
            *state = State::Unknown;
        }
        matches!(*state, State::Unknown)
    }

    /// Closes it, if it is open, when what was asked in it is over; the server is told, which takes
    /// a round trip, and two seconds at most. It is opened again when something is asked.
    pub fn close(&self) {
        let mut state = lock(&self.0.state);
        if let State::Open(line, _) = &*state {
            line.close();
            if let State::Open(_, thread) = std::mem::replace(&mut *state, State::Closed) {
                drop(state);
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let State::Open(line, _) = &*lock(&self.state) {
            line.close();
        }
    }
}

/// What is proposed for a connection of which others branch: all that any of them may have.
fn stem(options: &Options) -> Config {
    Config {
        client: SESSION.to_owned(),
        branches: true,
        buffer_bytes: *SEALED_BUFFER_BYTES.end(),
        max_outstanding: MAX_OUTSTANDING,
        table_bytes: MAX_TABLE_BYTES,
        burst: NO_LIMIT,
        ..config(options, Role::Receiver, None)
    }
}

/// A thread reads for all.
fn begin((mut host, dialer): (Host, Dialer)) -> Result<(Line, JoinHandle<()>), Error> {
    let ((jobs, asked), (words, told)) = (channel(), channel());
    let line = Line::new(jobs, host.poller.waker());
    let branches = Branches::default();
    let none = |source| Error::Socket { what: "cannot share a socket".to_owned(), source };
    let seed = host.socket.share(Arc::new(Inbox::new(0, || ()))).map_err(none)?;
    let mut reading = Reading {
        asked,
        told,
        words,
        wishes: VecDeque::new(),
        made: Vec::new(),
        branches: branches.clone(),
        line: line.clone(),
        seed,
        clock: host.clock,
        opened: false,
        stood: false,
        closing: None,
        over: None,
        busy: host.clock.now(),
    };
    let run = move || {
        let mut trunk = Trunk::new(dialer, branches);
        let ended = driver::run(&mut trunk, &mut reading, &mut host);
        reading.line.end(false);
        let tried = (!reading.opened).then(|| trunk.tried());
        let stood = reading.stood;
        reading.fail_all(|| match &ended {
            Ok(_) if stood => Error::Ended(Reason::Forgotten),
            Ok(reason) => lost(tried.as_ref(), reason),
            Err(error) => Error::Socket {
                what: error.to_string(),
                source: std::io::Error::other("no branch can be made"),
            },
        });
    };
    let thread = std::thread::Builder::new().name("netblt-session".to_owned()).spawn(run);
    let failed = |source| Error::Thread { purpose: "for a session", source };
    Ok((line, thread.map_err(failed)?))
}

/// What it is to who wants a branch that there is no connection.
fn lost(tried: Option<&String>, reason: &Reason) -> Error {
    match tried {
        Some(peer) => {
            let (peer, wire) = (peer.clone(), Wire::Sealed);
            Error::Connect { peer, wire, reason: reason.clone() }
        }
        None => Error::Ended(reason.clone()),
    }
}

/// The client of the stem.
struct Reading {
    asked: Receiver<Job>,
    told: Receiver<Word>,
    words: Sender<Word>,
    /// Until it is open.
    wishes: VecDeque<Wish>,
    /// Handed over when BRANCH has left.
    made: Vec<(Sender<Answer>, Answer)>,
    branches: Branches,
    line: Line,
    seed: Socket,
    clock: Clock,
    opened: bool,
    /// Something was heard of its branches.
    stood: bool,
    /// No more branches are wanted, since then.
    closing: Option<Instant>,
    /// The stem is closed: why.
    over: Option<Reason>,
    /// When somebody had a branch last.
    busy: Instant,
}

impl Reading {
    /// What the others want.
    fn hear(&mut self, now: Instant, end: &mut Endpoint) {
        for word in self.told.try_iter() {
            match word {
                Word::Heard(id) => {
                    end.hear_of_branch(id);
                    self.line.hear();
                    self.branches.all().inboxes.get(&id).iter().for_each(|inbox| inbox.hear());
                }
                Word::Leave(id, mut left) => {
                    end.hear_of_branch(id);
                    let mut all = self.branches.all();
                    // What came since its client read last is its peer's last word, perhaps.
                    let (inbox, mut rest) = (all.inboxes.remove(&id), Batch::default());
                    let taken = inbox.is_some_and(|inbox| inbox.take(&mut rest).is_ok());
                    if taken {
                        rest.for_each(|datagram| left.handle_datagram(now, datagram));
                    }
                    if let Some(reason) = &self.over {
                        left.on_stem_closed(now, reason);
                    }
                    left.part(now, "its client has gone");
                    all.leaving.push(*left);
                }
            }
        }
        for job in self.asked.try_iter() {
            match job {
                Job::Branch(wish) => self.wishes.push_back(wish),
                Job::Close => self.closing = self.closing.or(Some(now)),
            }
        }
    }

    /// A branch for one who wants it; the wish comes back if it must wait.
    fn make(&mut self, now: Instant, end: &mut Endpoint, wish: Wish) -> Option<Wish> {
        let Wish { configs, entropy, .. } = &wish;
        let v6 = end.peer().is_some_and(|peer| peer.is_ipv6());
        let config = &configs[usize::from(v6)];
        // Nobody is to send more at once than waits here.
        let config = Config { socket_bytes: Some(self.room()), ..config.clone() };
        let branch = match end.branch(now, config, *entropy) {
            Some(branch) => branch,
            None => return Some(wish),
        };
        let made = self.host(&branch).map(|host| {
            let id = branch.connection_id().unwrap_or_default();
            let (words, waker) = (self.words.clone(), self.line.waker());
            // If nobody reads any more, nothing can be sent either.
            let joined = Joined::new(id, move |word| {
                let _ = words.send(word);
                waker.wake();
            });
            Box::new((host, branch, joined))
        });
        self.made.push((wish.answer, made));
        None
    }

    /// What a branch stands on.
    fn host(&self, branch: &Endpoint) -> Result<Host, Error> {
        let none = |source| Error::Socket { what: "cannot share a socket".to_owned(), source };
        let poller = Poller::new().map_err(none)?;
        let waker = poller.waker();
        let inbox = Arc::new(Inbox::new(2 * self.room() as usize, move || waker.wake()));
        let socket = self.seed.share(Arc::clone(&inbox)).map_err(none)?;
        let id = branch.connection_id().unwrap_or_default();
        self.branches.all().inboxes.insert(id, inbox);
        Ok(Host { socket, poller, clock: self.clock, trace: None })
    }

    /// Bytes that are to wait for a branch at most: as much as the socket holds. For what its peer
    /// takes to be on the path, there is as much again.
    fn room(&self) -> u32 {
        self.seed.room().map_or(LEAST_ROOM, |room| room.max(LEAST_ROOM))
    }

    fn has_room(&self) -> bool {
        let all = self.branches.all();
        all.inboxes.len() < AT_ONCE && all.inboxes.len() + all.leaving.len() < IN_ALL
    }

    /// There is nobody for whom to go on.
    fn is_alone(&self) -> bool {
        let all = self.branches.all();
        all.inboxes.is_empty() && all.leaving.is_empty() && self.made.is_empty()
    }

    /// Whether there is nothing to go on for: no branch at all, or, when [`Session::close`] has
    /// waited long enough, none that a client drives.
    fn has_parted(&self, now: Instant) -> bool {
        let late = |since: Instant| now.since(since) >= PATIENCE;
        self.is_alone() || self.is_unwanted() && self.closing.is_some_and(late)
    }

    /// Nobody drives a branch any more.
    fn is_unwanted(&self) -> bool {
        self.branches.all().inboxes.is_empty() && self.made.is_empty()
    }

    fn fail_all(&mut self, error: impl Fn() -> Error) {
        while let Ok(job) = self.asked.try_recv() {
            if let Job::Branch(wish) = job {
                self.wishes.push_back(wish);
            }
        }
        self.wishes.drain(..).for_each(|wish| _ = wish.answer.send(Err(error())));
    }
}

impl Application for Reading {
    type Key = ();
    type Outcome = Reason;

    fn turn(&mut self, now: Instant) -> ControlFlow<Self::Outcome, Feed> {
        for (to, answer) in std::mem::take(&mut self.made) {
            // Who wants it no more leaves it at once.
            if let Err(unwanted) = to.send(answer)
                && let Ok(made) = unwanted.0
            {
                let (_, end, joined) = *made;
                joined.leave(end);
            }
        }
        match &self.over {
            Some(reason) if self.has_parted(now) => ControlFlow::Break(reason.clone()),
            _ => ControlFlow::Continue(Feed::All),
        }
    }

    fn feed(&mut self, now: Instant, (): (), end: &mut Endpoint) -> ControlFlow<Reason> {
        self.hear(now, end);
        if let Some(reason) = &self.over {
            // After a stem whose branches were answered, or that idled, another one is opened. One
            // that never served anything is refused, and says why.
            let told = if self.stood || *reason == Reason::Quit {
                Reason::Forgotten
            } else {
                reason.clone()
            };
            self.fail_all(|| Error::Ended(told.clone()));
            return ControlFlow::Continue(());
        }
        if !self.is_alone() || !self.wishes.is_empty() {
            self.busy = now;
        }
        if self.opened {
            while self.has_room()
                && let Some(wish) = self.wishes.pop_front()
            {
                if let Some(waits) = self.make(now, end, wish) {
                    self.wishes.push_front(waits);
                    break;
                }
            }
        }
        let idle = self.closing.is_some() || now.since(self.busy) >= IDLE;
        if idle && self.has_parted(now) && self.wishes.is_empty() {
            self.line.end(false);
            // It leaves in this turn, and if it is lost the server sees for itself.
            end.quit(now, "nothing more is asked");
            self.branches.all().leaving.clear();
            self.over = Some(Reason::Quit);
        }
        ControlFlow::Continue(())
    }

    fn take(
        &mut self,
        now: Instant,
        (): (),
        event: Event,
        _: &mut Endpoint,
    ) -> ControlFlow<Reason> {
        match event {
            Event::Opened { parameters, .. } => {
                self.opened = true;
                self.line.open(lanes::told(&parameters.client) > Some(1));
            }
            Event::Closed(reason) => {
                let unknown = matches!(&reason, Reason::PeerQuit(words) if refuses(words));
                self.stood = self.line.is_known();
                self.line.end(unknown);
                // Of one that has stood it does not matter why it is gone.
                let told = if self.stood { &Reason::Forgotten } else { &reason };
                let mut all = self.branches.all();
                all.inboxes.values().for_each(|inbox| inbox.close(told));
                all.leaving.iter_mut().for_each(|end| end.on_stem_closed(now, told));
                drop(all);
                if !self.opened {
                    return ControlFlow::Break(reason);
                }
                self.over = Some(reason);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    /// It will fall silent.
    fn broken(&mut self, _: Instant, (): (), _: Error, _: &mut Endpoint) -> ControlFlow<Reason> {
        ControlFlow::Continue(())
    }

    fn path_limit(&mut self, _bytes: u32) {}

    fn oversize(
        &mut self,
        _: Instant,
        (): (),
        _: &Oversize,
        _: &mut Endpoint,
    ) -> ControlFlow<Reason> {
        ControlFlow::Continue(())
    }
}

/// Whether a server says by this that it knows no sessions.
fn refuses(words: &str) -> bool {
    Denied::parse(words).is_some_and(|denied| denied.what == Denial::NotUnderstood)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
