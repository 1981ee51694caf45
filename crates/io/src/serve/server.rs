//! The loop of a server: guests come, ask, are served and go.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::Duration;

use netblt_proto::api::Event;
use netblt_proto::config::{Authorized, Config, Identity, Policy, Role, Secret, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_proto::wire::packet::Parameters;

use super::anew::{self, HeldBack};
use super::errand::Outward;
use super::found::{Done, Outgoing, Prepared};
use super::guest::{Came, Guest, Task, received, sent};
use super::jobs::Jobs;
use super::leaving::Undertaker;
use super::listings::Listings;
use super::pool::{Pool, buffer_at};
use super::rate_limiter::{Place, RateLimiter};
use super::request::{Line, Request, What};
use super::roots::Roots;
use super::service::{ServerObserver, Service};
use super::sessions::{Sessions, most_requests, stock};
use super::waiting::{self, Puts, Waiting};
use super::welcome::{Hall, carried};
use super::work;
use crate::cancel::Cancel;
use crate::config::{config, for_peer};
use crate::denial::Denied;
use crate::disk::beneath;
use crate::disk::layout::Layout;
use crate::error::{Denial, Error, OptionsError, file_error};
use crate::grant::Grant;
use crate::memory_budget::MemoryBudget;
use crate::net::addresses;
use crate::net::connections::Oversize;
use crate::net::driver::{self, Application, Feed};
use crate::net::entropy::entropy;
use crate::net::host::{Clock, Host};
use crate::net::listener::{ConnectionKey, Listener, MAX_BRANCHES};
use crate::net::socket::{Bind, Socket};
use crate::net::wait::Poller;
use crate::options::Options;
use crate::transfer::lanes::{self, Making};

/// How long a guest has to say what it wants.
const ASKING: Duration = Duration::from_secs(10);
/// How long a number waits for the files that are put under it.
const WAITING: Duration = Duration::from_secs(60);
/// From one look at every guest to the next.
const ROUND: Duration = Duration::from_millis(100);
/// How long guests are given to hear that the server stops.
const PATIENCE: Duration = Duration::from_secs(2);
/// What a guest may say of what it has: a million small files. Each piece costs more than itself.
const MOST_HEARD: u64 = 24 << 20;
const PIECE: u64 = 64;
/// Names and what clients say that they have take at most this part of the memory for buffers,
/// beside it.
const NAMES_PART: u64 = 2;
/// Connections beyond the guests: those that are told to come later.
const TURNED_AWAY: usize = 64;

/// Serves until it is cancelled: then those who are there are served to their end, and nobody else;
/// hurried, all are told to go.
pub fn serve(
    service: &Service,
    options: &Options,
    observer: &mut dyn ServerObserver,
    cancel: &Cancel,
) -> Result<(), Error> {
    serve_as(true, (service, options), observer, cancel)
}

/// The same; without `sessions` like servers that never heard of them, whom a client may meet.
pub(super) fn serve_as(
    sessions: bool,
    (service, options): (&Service, &Options),
    observer: &mut dyn ServerObserver,
    cancel: &Cancel,
) -> Result<(), Error> {
    let grant = Arc::new(service.grant.clone());
    let root = beneath::open_directory(&grant.root);
    let root = root.map_err(|e| file_error(&grant.root, "cannot be served", e))?;
    // Paths that stand for open files are all that disk's threads are given.
    beneath::open_directory(&beneath::path_of(&root))
        .map_err(|e| file_error(&beneath::path_of(&root), "cannot be used (is /proc there?)", e))?;
    let pool = Pool::new(service.memory, service.max_sessions.into());
    let options = within(service, options, &pool)?;
    let socket = Socket::bind(&Bind {
        address: options.bind,
        port: options.port,
        family: options.family,
        answering: true,
        ..Bind::default()
    })?;
    let secret = match &service.secret {
        Some(secret) => secret.clone(),
        None => Secret(entropy()?),
    };
    // Who receives proposes the ceiling of who sends.
    let config =
        Config { any_role: true, branches: sessions, ..config(&options, Role::Receiver, None) };
    let v6 = socket.local().is_ipv6();
    let identity = service.members.as_ref().map(|members| Identity::server(members.authorized()));
    let shared = identity.is_none().then(|| secret.clone());
    let config = Config { identity, ..for_peer(&config, &options, shared, v6) };
    let config = Config { either_version: v6, socket_bytes: socket.room(), ..config };
    let config = lanes::tells(lanes::SERVER, (&options, Some(true)), config);
    let ticket = addresses::ticket(socket.local(), &options, secret)?;
    match &service.members {
        Some(_) => observer.listening_at(&ticket.addresses),
        None => observer.listening(&ticket).map_err(Error::Unseen)?,
    }
    let mut host = host(socket)?;
    let lanes = Making::of(&options, Some(true), &host);
    let room = most_ends(service.max_sessions);
    let mut listener = Listener::new(config.clone(), entropy()?).with_room(room);
    let (roots, layout) = (Roots::new(grant.root.clone(), root), Layout::of(&config)?);
    let hall = Hall {
        service,
        options,
        config,
        grant,
        cancel,
        waker: host.poller.waker(),
        marks: Arc::default(),
        guests: HashMap::new(),
        sessions: Sessions::default(),
        puts: Puts::default(),
        pool,
        budget: MemoryBudget::new(service.memory / NAMES_PART),
        lanes,
    };
    let mut app = Serving {
        hall,
        layout,
        roots,
        jobs: Jobs::new(most_requests(service.max_sessions)),
        listings: Listings::default(),
        limiter: RateLimiter::new(service.max_rate),
        is_uneven: false,
        observer,
        marked: Vec::new(),
        undertaker: Undertaker::new()?,
        held_back: HeldBack::default(),
        next_round: Instant::EPOCH,
        until: None,
        told: None,
    };
    driver::run(&mut listener, &mut app, &mut host)?
}

/// The same options, with buffers for which there is memory, and no more than the server's rate.
fn within(service: &Service, options: &Options, pool: &Pool) -> Result<Options, OptionsError> {
    let mut options = options.clone();
    let table = Config::new(Wire::Sealed, Role::Sender).table_bytes;
    let most = pool.buffer_bytes(table).ok_or(OptionsError::Memory(service.memory))?;
    let slow = service.max_rate.map_or(u32::MAX, buffer_at);
    options.buffer_bytes = options.buffer_bytes.min(most).min(slow);
    if let (Some(rate), Policy::Fair { ceiling }) = (service.max_rate, &mut options.policy) {
        *ceiling = Some(ceiling.map_or(rate, |ceiling| ceiling.min(rate)));
    }
    Ok(options)
}

fn host(socket: Socket) -> Result<Host, Error> {
    let poller = Poller::new()
        .map_err(|source| Error::Socket { what: "cannot make a waker".to_owned(), source })?;
    Ok(Host { socket, poller, clock: Clock::start(), trace: None })
}

/// Connections at once: sessions, what is asked in them, and those who are told to come later.
fn most_ends(sessions: u32) -> usize {
    sessions as usize + most_requests(sessions) + MAX_BRANCHES + TURNED_AWAY
}

/// The client of all connections.
struct Serving<'a> {
    hall: Hall<'a>,
    layout: Layout,
    /// The directories that were opened, by their paths.
    roots: Roots,
    /// The threads that look for what was asked.
    jobs: Jobs,
    /// What is remembered of directories that are listed.
    listings: Listings,
    limiter: RateLimiter,
    /// A client has come, begun or gone since rates were divided.
    is_uneven: bool,
    observer: &'a mut dyn ServerObserver,
    marked: Vec<u64>,
    undertaker: Undertaker,
    held_back: HeldBack,
    next_round: Instant,
    /// Everybody is told to go, until then at the latest.
    until: Option<Instant>,
    /// The last warning.
    told: Option<String>,
}

type Flow = ControlFlow<Result<(), Error>>;

impl Serving<'_> {
    fn open(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        (peer, parameters, image_bytes): (SocketAddr, Parameters, u32),
        end: &mut Endpoint,
    ) {
        if let Some(old) = self.hall.guests.remove(&key) {
            self.held_back.forget(key);
            self.bury(now, old, Err(Error::Restarted("its client began anew")));
        }
        match self.hall.welcome(now, key, (peer, &parameters, image_bytes), end) {
            Ok(guest) => {
                if let (true, Some(id)) = (guest.is_session(), end.connection_id()) {
                    self.hall.sessions.begin(now, id, (key, guest.who));
                }
                guest.session.into_iter().for_each(|id| self.hall.sessions.branch(id));
                self.hall.guests.insert(key, guest);
                self.limit(now, key);
                self.pass(now, key, Event::Opened { peer, parameters, image_bytes }, end);
            }
            Err(denied) => {
                if denied.what == Denial::Busy {
                    self.hall.service.meter.turned_away();
                }
                end.quit(now, &denied.words());
            }
        }
    }

    /// Has a client that has come keep to a share, if there is a rate to keep.
    fn limit(&mut self, now: Instant, key: ConnectionKey) {
        let Some(guest) = self.hall.guests.get_mut(&key) else { return };
        let most = guest.grant.max_rate;
        if guest.is_session() || !self.limiter.limits(most) {
            return;
        }
        guest.is_limited = true;
        if let Task::Receiving(task) = &mut guest.task {
            task.grant_by_turns();
        }
        let client = guest.client();
        // Numbers of connections never come to this bit.
        let session = guest.session.map_or(guest.number, |stem| 1 << 63 | u64::from(stem));
        self.limiter.open(now, guest.number, Place { client, session, most });
        self.is_uneven = true;
    }

    /// Divides rates again.
    fn divide(&mut self, now: Instant) {
        self.is_uneven = false;
        self.limiter.divide(now);
        for guest in self.hall.guests.values_mut().filter(|guest| guest.is_limited) {
            if guest.keep_to(self.limiter.share(guest.number)) {
                self.marked.push(guest.number);
            }
        }
    }

    /// What a guest has moved, and what may be granted to it.
    fn meter(&mut self, now: Instant, key: ConnectionKey, end: &mut Endpoint) {
        let Some(guest) = self.hall.guests.get_mut(&key).filter(|guest| guest.is_limited) else {
            return;
        };
        let number = guest.number;
        self.is_uneven |= self.limiter.see(now, number, guest.look(end));
        let Task::Receiving(task) = &mut guest.task else { return };
        let bytes = guest.image_bytes as u64;
        while task.wants_grant() {
            if !self.limiter.grant(now, number, bytes) {
                return;
            }
            task.grant_one(now, end);
            self.is_uneven = true;
        }
        self.limiter.is_content(number);
    }

    /// Something for a guest's transfer.
    fn pass(&mut self, now: Instant, key: ConnectionKey, event: Event, end: &mut Endpoint) {
        let Some(guest) = self.hall.guests.get_mut(&key) else { return };
        if let Event::Had { bytes, .. } = &event {
            let more = bytes.len() as u64 + PIECE;
            guest.heard += more;
            let heard = match guest.session {
                Some(id) => self.hall.sessions.hear(id, more),
                None => guest.heard,
            };
            if heard > MOST_HEARD {
                let why = "you have more than this server listens to";
                return self.deny(now, key, Denied::new(Denial::Failed, why), end);
            }
            if !guest.memory.take(more) {
                let why = "there is no memory for what you have; try again later";
                return self.deny(now, key, Denied::new(Denial::Busy, why), end);
            }
        }
        let over = match &mut guest.task {
            Task::Sending(task) => {
                let over = task.take(now, (), event, end).break_value().map(sent);
                let request = task.take_request();
                if let Some(request) = request.filter(|_| over.is_none()) {
                    self.begin(now, key, &request, end);
                }
                over
            }
            Task::Receiving(task) => task.take(now, (), event, end).break_value().map(received),
            Task::Session => {
                let closed = matches!(event, Event::Closed(_));
                let id = end.connection_id().filter(|_| closed);
                id.into_iter().for_each(|id| self.hall.sessions.end(id));
                closed.then_some(Ok(0))
            }
        };
        match over {
            Some(came) => self.leave(now, key, came),
            // The grant that it waits for may have come.
            None => self.proceed(now, key, end),
        }
    }

    /// A guest has said what it wants: a thread looks for it.
    fn begin(&mut self, now: Instant, key: ConnectionKey, text: &[u8], end: &mut Endpoint) {
        let Some((request, had)) = Request::parse(text) else {
            let why = "the server does not know this request; it may be of another version";
            return self.deny(now, key, Denied::new(Denial::NotUnderstood, why), end);
        };
        let Some(guest) = self.hall.guests.get_mut(&key) else { return };
        (guest.asked, guest.had) = ((request.word(), request.spot()), had.to_vec());
        guest.target = request.target();
        let (grant, who) = (Arc::clone(&guest.grant), guest.who);
        if let Some(why) = request.forbidden(grant.read, grant.write) {
            return self.deny(now, key, Denied::new(Denial::Forbidden, why), end);
        }
        (guest.lends, guest.lanes) = (request.is_brought(), request.lanes());
        self.hall.puts.take_back(request.takes_back(), who);
        if !guest.memory.take(request.cost()) {
            let why = "there is no memory for as many pieces; ask for fewer, or try again later";
            return self.deny(now, key, Denied::new(Denial::Busy, why), end);
        }
        guest.pending = Some(request);
        self.proceed(now, key, end);
    }

    /// Does what a guest has asked, once a buffer was granted for the answer.
    fn proceed(&mut self, now: Instant, key: ConnectionKey, end: &mut Endpoint) {
        let Some(guest) = self.hall.guests.get_mut(&key) else { return };
        let grant = Arc::clone(&guest.grant);
        let Some(request) = guest.take_pending() else { return };
        if request.is_put() && anew::is_doubtful(&self.hall.guests, (&grant, &request.spot()), now)
        {
            return self.held_back.add(now, key, request);
        }
        self.perform(now, key, request, end);
    }

    /// A thread does what is asked.
    fn perform(&mut self, now: Instant, key: ConnectionKey, request: Request, end: &mut Endpoint) {
        let guests = self.hall.guests.len();
        let Some(guest) = self.hall.guests.get_mut(&key) else { return };
        let grant = Arc::clone(&guest.grant);
        let outward = match request.what {
            What::Send { .. } => {
                let image_bytes =
                    (self.hall.options.buffer_bytes + self.hall.config.table_bytes) as usize;
                let waker = self.hall.waker.marking(&self.hall.marks, key.number());
                let options = (&self.hall.options, image_bytes);
                let place = (&mut self.hall.pool, &mut self.hall.sessions, guests);
                let of = (&*grant, guest.session, &guest.control);
                let taken = (&mut guest.shared, &mut guest.beyond);
                match Outward::new(of, taken, place, options, waker) {
                    Ok(outward) => {
                        // From now on those files, not what is told of them.
                        (guest.seen, guest.moves) = (outward.seen(), true);
                        Some(outward.naming(guest.names.clone()))
                    }
                    Err(denied) => return self.deny(now, key, denied, end),
                }
            }
            _ => None,
        };
        let (answer, job) = channel();
        guest.job = Some(job);
        let cancel = guest.cancel.clone();
        let root = match self.roots.of(&grant.root, self.hall.service.members.as_ref()) {
            Ok(root) => root,
            Err(denied) => return self.deny(now, key, denied, end),
        };
        if request.is_put() {
            self.supersede(now, &request.spot(), &grant);
        }
        let Some(job) = self.jobs.begin() else {
            let why = "as much is looked for as may be at once; try again later";
            return self.deny(now, key, Denied::new(Denial::Busy, why), end);
        };
        let Some(guest) = self.hall.guests.get(&key) else { return };
        let (client, memory_share) = (guest.client(), guest.memory_share.clone());
        let name_log = Some(guest.names.clone());
        let options = Options { memory_share, name_log, ..self.hall.options.clone() };
        let (layout, listings) = (self.layout, self.listings.clone());
        let leaving = self.undertaker.leaving();
        let waker = self.hall.waker.marking(&self.hall.marks, key.number());
        let work = move || {
            let with = work::With {
                options: &options,
                layout,
                leaving: &leaving,
                listings: &listings,
                client,
                may_read: grant.read,
                cancel: &cancel,
            };
            let done = work::perform(&request, &root, &with, outward);
            // From now on it is no thread of a request's any more.
            drop(job);
            let _ = answer.send(done);
            waker.wake();
        };
        if std::thread::Builder::new().name("netblt-ask".to_owned()).spawn(work).is_err() {
            let why = "no thread can be started; try again later";
            self.deny(now, key, Denied::new(Denial::Busy, why), end);
        }
    }

    /// Whoever puts files anew where a client was putting some that has fallen silent is that
    /// client, started again, most likely: what has come is to be gone on with, so the old one
    /// goes.
    fn supersede(&mut self, now: Instant, path: &[u8], grant: &Grant) {
        for guest in anew::take_silent(&mut self.hall.guests, (grant, path)) {
            self.bury(now, guest, Err(Error::Restarted("its client began anew")));
        }
        self.forget(|waiting| {
            waiting.place.0 == grant.root && waiting.place.1 == path && waiting.is_late(now)
        });
    }

    /// Numbers under which nothing is to come any more.
    fn forget(&mut self, is_late: impl Fn(&Waiting) -> bool) {
        for waiting in self.hall.puts.take_if(is_late) {
            let kept_at = waiting.prepared.kept_at;
            self.undertaker.lay_out(waiting.prepared, Some(kept_at));
        }
    }

    /// What the thread has found.
    fn answer(&mut self, now: Instant, key: ConnectionKey, done: Done, end: &mut Endpoint) {
        let outgoing = match done {
            Done::Send(outgoing) => *outgoing,
            Done::Put(prepared) => match self.await_files(now, key, prepared) {
                Ok(outgoing) => outgoing,
                Err(denied) => return self.deny(now, key, denied, end),
            },
        };
        let guests = self.hall.guests.len();
        let Some(guest) = self.hall.guests.get_mut(&key) else { return };
        let Task::Sending(task) = &mut guest.task else { return };
        // One more than its bytes fill, for what stands beside them.
        let count = outgoing.bytes / self.layout.data_bytes().max(1) as u64 + 2;
        let count = count.min(guest.at_first.into());
        let totals = (outgoing.total, outgoing.files);
        let bytes = outgoing.total.or(Some(outgoing.bytes).filter(|bytes| *bytes < u64::MAX));
        (guest.total, guest.moves) = (bytes.map(|bytes| carried(bytes, outgoing.files)), true);
        let place = (&mut self.hall.pool, &mut self.hall.sessions);
        let begun = stock(place, guest.session, (count, guest.image_bytes), (guests, false))
            .and_then(|(stock, shared, beyond)| {
                (guest.shared, guest.beyond) = (guest.shared + shared, guest.beyond + beyond);
                guest.fails = outgoing.fails;
                let had = std::mem::take(&mut guest.had);
                task.answer_with(outgoing.reader, stock, totals, (&had, guest.lanes), end)
            });
        if let Err(error) = begun {
            let what = match &error {
                Error::Memory { .. } | Error::Thread { .. } => Denial::Busy,
                _ => Denial::Failed,
            };
            self.deny(now, key, Denied::new(what, error.to_string()), end);
        }
    }

    /// Files may come, under a number that nobody guesses.
    fn await_files(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        prepared: Box<Prepared>,
    ) -> Result<Outgoing, Denied> {
        let busy = |why: String| Denied::new(Denial::Busy, why);
        let gone = || busy("you have gone".to_owned());
        let guest = self.hall.guests.get_mut(&key).ok_or_else(gone)?;
        guest.target.clone_from(&prepared.name);
        let (who, most) = (guest.who, guest.grant.max_sessions.unwrap_or(u32::MAX) as usize);
        let (place, lends) = ((guest.grant.root.clone(), guest.asked.1.clone()), guest.lends);
        // Whoever announces and sends nothing takes nobody's place for long.
        if self.hall.puts.len() >= self.hall.service.max_sessions as usize {
            self.forget(|waiting| waiting.is_late(now));
        }
        if self.hall.puts.len() >= self.hall.service.max_sessions as usize
            || self.hall.puts.count(who) >= most
        {
            return Err(busy("too many have announced files; try again later".to_owned()));
        }
        let random = entropy().map_err(|error| busy(error.to_string()))?;
        let number = random.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let (lent, line) = waiting::lend(self.hall.service.members.as_ref(), lends)?;
        let put = Line::Put(number, prepared.name.clone());
        let outgoing = work::outgoing([put].into_iter().chain(line), self.layout)?;
        self.hall.puts.add(number, Waiting { who, place, since: now, prepared, lent });
        Ok(outgoing)
    }

    /// A guest is told that it does not get what it wants.
    fn deny(&mut self, now: Instant, key: ConnectionKey, denied: Denied, end: &mut Endpoint) {
        let Some(guest) = self.hall.guests.get_mut(&key) else { return };
        let Denied { what, why } = denied.clone();
        guest.denied.get_or_insert(denied);
        let error = Error::Denied { what, why };
        let over = match &mut guest.task {
            Task::Sending(task) => task.session.fail(now, end, error).break_value().map(sent),
            Task::Receiving(task) => task.session.fail(now, end, error).break_value().map(received),
            Task::Session => None,
        };
        if let Some(came) = over {
            self.leave(now, key, came);
        }
    }

    /// The same, for one that does not count any more.
    fn turn_away(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        denied: Denied,
        end: &mut Endpoint,
    ) -> Flow {
        if self.hall.guests.get(&key).is_some_and(|guest| guest.denied.is_none()) {
            self.deny(now, key, denied, end);
        }
        let over = match self.hall.guests.get_mut(&key).map(|guest| &mut guest.task) {
            Some(Task::Sending(task)) => task.feed(now, (), end).break_value().map(sent),
            Some(Task::Receiving(task)) => task.feed(now, (), end).break_value().map(received),
            Some(Task::Session) | None => None,
        };
        if let Some(came) = over {
            self.leave(now, key, came);
        }
        ControlFlow::Continue(())
    }

    /// A guest goes.
    fn leave(&mut self, now: Instant, key: ConnectionKey, came: Came) {
        if let Some(guest) = self.hall.guests.remove(&key) {
            self.held_back.forget(key);
            self.stir();
            self.bury(now, guest, came);
        }
    }

    /// Those are to be asked who wait for a sign of life of somebody, or for his end.
    fn stir(&mut self) {
        self.marked.extend(self.held_back.keys().map(ConnectionKey::number));
    }

    fn bury(&mut self, now: Instant, guest: Guest, came: Came) {
        self.limiter.close(now, guest.number);
        self.is_uneven |= guest.is_limited;
        self.hall.pool.give(guest.beyond);
        guest.cancel.cancel();
        guest
            .session
            .into_iter()
            .for_each(|id| self.hall.sessions.over(now, id, (guest.shared, guest.heard)));
        if let Task::Session = guest.task {
            return;
        }
        let account = guest.account(now, came);
        self.hall.service.meter.ended(&account);
        self.observer.ended(&account);
        self.undertaker.lay_out((guest.task, guest.held), guest.kept_at);
    }
}

impl Application for Serving<'_> {
    type Key = ConnectionKey;
    type Outcome = Result<(), Error>;

    fn turn(&mut self, now: Instant) -> ControlFlow<Self::Outcome, Feed> {
        if self.hall.cancel.is_hurried() && self.until.is_none() {
            self.until = Some(now + PATIENCE);
            self.hall.guests.values().for_each(|guest| guest.cancel.cancel());
            self.next_round = now;
        }
        let awaited =
            self.hall.cancel.is_cancelled() && self.hall.puts.len() > 0 && self.until.is_none();
        let over = self.until.is_some_and(|until| until <= now);
        if over || (self.hall.cancel.is_cancelled() && self.hall.guests.is_empty() && !awaited) {
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
        let bytes = self.hall.guests.values().map(|guest| guest.seen.bytes.load(Ordering::Relaxed));
        let bytes = bytes.sum();
        self.hall.service.meter.is_serving(self.hall.sessions_now() as u64, bytes);
        self.forget(|waiting| now.since(waiting.since) >= WAITING);
        self.listings.forget_old();
        ControlFlow::Continue(Feed::All)
    }

    fn feed(&mut self, now: Instant, key: ConnectionKey, end: &mut Endpoint) -> Flow {
        let Some(guest) = self.hall.guests.get_mut(&key) else { return ControlFlow::Continue(()) };
        if guest.is_session() {
            self.hall.look_after(now, key, end);
            return ControlFlow::Continue(());
        }
        if guest.hear(now, end) {
            self.stir();
        }
        let Some(guest) = self.hall.guests.get_mut(&key) else { return ControlFlow::Continue(()) };
        if guest.yields {
            let why = "nothing moved, and others ask, too; try again later";
            return self.turn_away(now, key, Denied::new(Denial::Busy, why), end);
        }
        guest.watch(now, end);
        self.proceed(now, key, end);
        if let Some(request) = self.held_back.take(key, &self.hall.guests) {
            self.perform(now, key, request, end);
        }
        let Some(guest) = self.hall.guests.get_mut(&key) else { return ControlFlow::Continue(()) };
        let failed = || Denied::new(Denial::Failed, "the server could not find out");
        let done = guest.job.as_ref().and_then(|job| match job.try_recv() {
            Ok(done) => Some(done),
            Err(TryRecvError::Empty) => None,
            // A fault of the thread's is no reason to let anybody wait.
            Err(TryRecvError::Disconnected) => Some(Err(failed())),
        });
        if let Some(done) = done {
            guest.job = None;
            match done {
                Ok(done) => self.answer(now, key, done, end),
                Err(denied) => self.deny(now, key, denied, end),
            }
        } else if guest.asked.0 == "none" && now.since(guest.opened) >= ASKING {
            let why = "nothing was asked for ten seconds";
            self.deny(now, key, Denied::new(Denial::NotUnderstood, why), end);
        }
        let failed =
            self.hall.guests.get(&key).and_then(|guest| guest.fails.as_ref()?.try_recv().ok());
        if let Some(denied) = failed {
            self.deny(now, key, denied, end);
        }
        let Some(guest) = self.hall.guests.get_mut(&key) else { return ControlFlow::Continue(()) };
        guest.grow(now, end, &mut self.hall.pool);
        let over = match &mut guest.task {
            Task::Sending(task) => task.feed(now, (), end).break_value().map(sent),
            Task::Receiving(task) => task.feed(now, (), end).break_value().map(received),
            Task::Session => None,
        };
        match over {
            Some(came) => self.leave(now, key, came),
            None => self.meter(now, key, end),
        }
        ControlFlow::Continue(())
    }

    fn take(&mut self, now: Instant, key: ConnectionKey, event: Event, end: &mut Endpoint) -> Flow {
        match event {
            Event::Opened { peer, parameters, image_bytes } => {
                self.open(now, key, (peer, parameters, image_bytes), end);
            }
            event => self.pass(now, key, event, end),
        }
        ControlFlow::Continue(())
    }

    /// The connection that it concerns will fall silent; the others go on.
    fn broken(&mut self, _: Instant, _: ConnectionKey, error: Error, _: &mut Endpoint) -> Flow {
        let message = error.to_string();
        // Each packet fails in the same way.
        if self.told.as_ref() != Some(&message) {
            self.observer.warn(&error);
            self.told = Some(message);
        }
        ControlFlow::Continue(())
    }

    fn path_limit(&mut self, _bytes: u32) {}

    fn oversize(&mut self, _: Instant, _: ConnectionKey, _: &Oversize, _: &mut Endpoint) -> Flow {
        ControlFlow::Continue(())
    }

    fn poll_authorized(&mut self) -> Option<Arc<Authorized>> {
        self.hall.service.members.as_ref()?.take_change()
    }

    fn poll_marked(&mut self) -> Option<ConnectionKey> {
        if self.marked.is_empty() {
            self.marked = self.hall.marks.take();
        }
        self.marked.pop().map(ConnectionKey::of)
    }
}
