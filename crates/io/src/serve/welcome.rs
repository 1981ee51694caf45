//! Who comes to a server, and whether he is served.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use netblt_proto::buffer::Buffer;
use netblt_proto::config::{Config, PublicKey, Role};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_proto::wire::packet::Parameters;

use super::account::{Seen, Watch};
use super::found::Prepared;
use super::guest::{Arrival, Guest, Task};
use super::leaving::KeptAt;
use super::pool::Pool;
use super::rate_limiter::Client;
use super::request::{ASK, SESSION};
use super::service::Service;
use super::sessions::{Sessions, most_requests, stock};
use super::waiting::{Puts, Waiting};
use crate::cancel::Cancel;
use crate::denial::Denied;
use crate::disk::threads::Writer;
use crate::error::{Denial, Error};
use crate::grant::Grant;
use crate::memory_budget::MemoryBudget;
use crate::net::listener::ConnectionKey;
use crate::net::wait::{Marks, Waker};
use crate::options::{Control, Options};
use crate::transfer::lanes::Making;
use crate::transfer::promise::Promise;
use crate::transfer::receive::Receiving;
use crate::transfer::send::Sending;
use crate::transfer::session::Session;

/// A request of which nothing has moved for so long makes room for those of other clients.
const STANDS: Duration = Duration::from_secs(1);

/// Who is there, and what there is for them.
pub(super) struct Hall<'a> {
    pub(super) service: &'a Service,
    pub(super) options: Options,
    pub(super) config: Config,
    /// What whoever has the ticket may.
    pub(super) grant: Arc<Grant>,
    pub(super) cancel: &'a Cancel,
    pub(super) waker: Waker,
    /// Whose threads have something to say.
    pub(super) marks: Arc<Marks>,
    pub(super) guests: HashMap<ConnectionKey, Guest>,
    pub(super) sessions: Sessions,
    pub(super) puts: Puts,
    pub(super) pool: Pool,
    /// Memory for names and what clients say that they have.
    pub(super) budget: MemoryBudget<Client>,
    /// What lanes are made with, where a transfer may have some.
    pub(super) lanes: Option<Arc<Making>>,
}

impl Hall<'_> {
    /// What is needed to serve somebody, or why he is not served.
    pub(super) fn welcome(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        (peer, parameters, image_bytes): (SocketAddr, &Parameters, u32),
        end: &Endpoint,
    ) -> Result<Guest, Denied> {
        let (who, stem) = (end.peer_key(), end.stem());
        let role = Role::left_by(parameters.mode);
        let (shown, lender) = (who, who.and_then(|shown| self.puts.lender(shown)));
        let who = lender.or(shown);
        let grant = self.admit(now, (who, peer, role), stem)?;
        let (seen, cancel): (Arc<Seen>, Cancel) = Default::default();
        let memory_share = self.budget.share(Client::of(who, peer));
        let control = Control::new();
        let session = Session::new(Watch(Arc::clone(&seen)), &cancel, &self.config);
        let session = session.steered_by(Some(&control));
        let waker = self.waker.marking(&self.marks, key.number());
        let lanes = self.lanes_for(stem, &waker);
        let at_first = parameters.max_outstanding.min(self.options.buffers);
        let image_bytes = image_bytes as usize;
        let may_branch = stem.is_none() && self.config.branches;
        let mut put = None;
        let task = match role {
            Role::Sender if parameters.client == ASK && lender.is_none() => {
                Task::Sending(Box::new(Sending::on_request(session, waker, lanes)))
            }
            Role::Sender if parameters.client == SESSION && lender.is_none() && may_branch => {
                Task::Session
            }
            Role::Receiver => {
                let waiting = self.announced(&parameters.client, shown)?;
                let count = most_at_first(parameters, (at_first, image_bytes));
                let place = (&mut self.pool, &mut self.sessions);
                let stock = stock(place, stem, (count, image_bytes), (self.guests.len(), true));
                let busy = |error: Error| Denied::new(Denial::Busy, error.to_string());
                let (stock, own, more) = stock.map_err(busy)?;
                let named = (waiting.place.1, waiting.prepared.name.clone());
                let names = waiting.prepared.names.clone();
                let with = (waker, lanes, self.options.max_bytes);
                let (task, held, kept_at) = receiving(*waiting.prepared, session, stock, with);
                put = Some((named, (own, more), (held, kept_at), names));
                Task::Receiving(Box::new(task))
            }
            Role::Sender => {
                let why = "this is a server of files: netblt cp, ls, stat, mv, rm, mkdir";
                return Err(Denied::new(Denial::NotUnderstood, why));
            }
        };
        let arrival = Arrival {
            number: key.number(),
            peer,
            who,
            session: stem,
            grant,
            control,
            cancel,
            seen,
            image_bytes,
            at_first,
            memory_share,
        };
        let mut guest = Guest::new((now, end.datagrams_received()), arrival, task);
        if let Some(((path, name), (shared, beyond), (held, kept_at), names)) = put {
            (guest.asked, guest.target) = (("receive", path), name);
            (guest.shared, guest.beyond) = (shared, beyond);
            (guest.held, guest.kept_at) = (Some(held), Some(kept_at));
            (guest.total, guest.names) = (promised(parameters), names);
        }
        Ok(guest)
    }

    /// What lanes are made with of a connection that has this stem, if it may have some:
    /// what branches from a session has none.
    fn lanes_for(&self, stem: Option<u32>, waker: &Waker) -> Option<Arc<Making>> {
        let lanes = self.lanes.as_ref().filter(|_| stem.is_none());
        lanes.map(|lanes| lanes.waking(waker.clone()))
    }

    /// Where files may go that come under the number that a client string tells.
    fn announced(&mut self, client: &str, who: Option<PublicKey>) -> Result<Waiting, Denied> {
        let Some(number) = Promise::parse(client).put else {
            let why = "a server of files takes none that were not announced";
            return Err(Denied::new(Denial::NotUnderstood, why));
        };
        // Announced anew they may come.
        let late = "these files were not announced, or too long ago, or to a server that is no \
                    more; try again";
        self.puts.take(number, who).ok_or_else(|| Denied::new(Denial::Busy, late))
    }

    /// What somebody who comes may, if anything.
    fn admit(
        &mut self,
        now: Instant,
        (who, peer, role): (Option<PublicKey>, SocketAddr, Role),
        stem: Option<u32>,
    ) -> Result<Arc<Grant>, Denied> {
        let busy = |why| Err(Denied::new(Denial::Busy, why));
        let expired = || Denied::new(Denial::Forbidden, "what was allowed here has expired");
        let today = SystemTime::now();
        let grant = match &self.service.members {
            None => Some(Arc::clone(&self.grant)).filter(|grant| grant.holds(today)),
            // A key may have been taken away since its owner began to open.
            Some(members) => who.and_then(|key| members.find(&key, today)),
        };
        let grant = grant.ok_or_else(expired)?;
        // What was announced before may still come.
        let goes_on = role == Role::Receiver && !self.cancel.is_hurried();
        if self.cancel.is_cancelled() && !goes_on {
            return busy("the server is about to stop; try again later");
        }
        if let Some(stem) = stem {
            // Its session was admitted.
            let is_full = self.requests() >= most_requests(self.service.max_sessions);
            if is_full && !self.make_place(now, Client::of(who, peer)) {
                return busy("as much is asked as may be at once; try again later");
            }
            return self.sessions.may_branch(stem).map(|()| grant);
        }
        if self.sessions_now() >= self.service.max_sessions as usize && !self.make_room(now) {
            return busy("as many are served as may be at once; try again later");
        }
        let is_own = |guest: &&Guest| guest.session.is_none() && guest.who == who;
        let own = self.guests.values().filter(is_own).filter(|guest| !guest.is_session()).count();
        let own = own + self.sessions.count(who);
        if grant.max_sessions.is_some_and(|most| own >= most as usize) {
            return busy("you have as many sessions as you may at once; try again later");
        }
        Ok(grant)
    }

    /// How many sessions there are, of one request or of many.
    pub(super) fn sessions_now(&self) -> usize {
        let is_one = |guest: &&Guest| guest.session.is_none() && !guest.is_session();
        self.guests.values().filter(is_one).count() + self.sessions.len()
    }

    /// How many requests there are, those not counted that are to go.
    fn requests(&self) -> usize {
        self.guests.values().filter(|guest| !guest.yields).count()
    }

    /// Of the client that asks most at once, if that is more than this one does, the newest request
    /// goes of which nothing has moved for a while. Whether there is one.
    fn make_place(&mut self, now: Instant, client: Client) -> bool {
        let mut counts: BTreeMap<Client, usize> = BTreeMap::new();
        let asking = |guest: &&Guest| !guest.is_session() && !guest.yields;
        for guest in self.guests.values().filter(asking) {
            *counts.entry(guest.client()).or_default() += 1;
        }
        let own = counts.get(&client).copied().unwrap_or(0);
        let stands = |guest: &Guest| {
            let most = counts.get(&guest.client()).copied().unwrap_or(0);
            let idle = now.since(guest.moved.1) >= STANDS;
            (most > own + 1 && idle).then_some((most, guest.number))
        };
        let standing = self.guests.values_mut().filter(|guest| asking(&&**guest));
        let newest = standing.filter_map(|guest| Some((stands(guest)?, guest)));
        let Some((_, guest)) = newest.max_by_key(|(turn, _)| *turn) else { return false };
        guest.yields = true;
        self.waker.marking(&self.marks, guest.number).wake();
        true
    }

    /// A session in which nothing is asked ends for somebody else's sake, if there is one.
    fn make_room(&mut self, now: Instant) -> bool {
        let Some(key) = self.sessions.yield_one(now) else { return false };
        if let Some(guest) = self.guests.get(&key) {
            guest.cancel.cancel();
            self.waker.marking(&self.marks, key.number()).wake();
        }
        true
    }

    /// A session's connection ends when it is to.
    pub(super) fn look_after(&mut self, now: Instant, key: ConnectionKey, end: &mut Endpoint) {
        let Some((guest, id)) = self.guests.get(&key).zip(end.connection_id()) else { return };
        if let Some(denied) = self.ends(now, guest, id) {
            end.quit(now, &denied.words());
        }
    }

    /// Why it is to end now, if it is.
    fn ends(&self, now: Instant, guest: &Guest, id: u32) -> Option<Denied> {
        let forbidden = || match &self.service.members {
            None => !self.grant.holds(SystemTime::now()),
            Some(members) => {
                let found = guest.who.and_then(|key| members.find(&key, SystemTime::now()));
                found.is_none()
            }
        };
        let busy = |why| Some(Denied::new(Denial::Busy, why));
        if guest.cancel.is_cancelled() {
            return busy("the session has to make room; try again later");
        }
        if !self.sessions.is_idle(id) {
            return None;
        }
        if self.cancel.is_cancelled() {
            return busy("the server is about to stop; try again later");
        }
        if forbidden() {
            let why = "what was allowed here has expired";
            return Some(Denied::new(Denial::Forbidden, why));
        }
        if self.sessions.is_late(now, id) {
            return busy("nothing was asked for a long time");
        }
        None
    }
}

/// The client of a machine that receives what was prepared for, what keeps its paths good, and
/// where it is kept.
fn receiving(
    prepared: Prepared,
    session: Session<'static>,
    stock: Vec<Buffer>,
    (waker, lanes, max_bytes): (Waker, Option<Arc<Making>>, Option<u64>),
) -> (Receiving<'static, Box<dyn Writer>>, Arc<OwnedFd>, KeptAt) {
    let Prepared { writer, room, held, kept_at, .. } = prepared;
    let kept = writer.kept_bytes();
    let mut task = Receiving::new(session, writer, stock, waker);
    task.over_lanes(lanes);
    (task.room, task.max_bytes) = (Some((room, kept)), max_bytes);
    (task, held, kept_at)
}

/// Bytes of packets that are to come, by what their sender says.
fn promised(parameters: &Parameters) -> Option<u64> {
    let promise = Promise::parse(&parameters.client);
    let data = promise.data_bytes.or(parameters.transfer_bytes)?;
    Some(carried(data, promise.files))
}

/// About as many bytes of packets as so many bytes of so many files take.
pub(super) fn carried(bytes: u64, files: Option<u64>) -> u64 {
    const OF_EACH: u64 = 300;
    let files = files.unwrap_or(1).saturating_mul(OF_EACH);
    bytes.saturating_add(bytes / 16).saturating_add(files)
}

/// How many buffers a transfer has use of at first: no more than it can fill, by what its sender
/// says of it. A single file fills as many as its bytes need, each of which has half of its room
/// for data at least.
fn most_at_first(parameters: &Parameters, (count, bytes): (u32, usize)) -> u64 {
    let promise = Promise::parse(&parameters.client);
    let filled = match (promise.data_bytes, promise.files) {
        (Some(data), Some(0 | 1)) => data / (bytes as u64 / 2).max(1) + 2,
        _ => u64::MAX,
    };
    u64::from(count).min(filled)
}
