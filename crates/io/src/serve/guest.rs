//! One connection of a server: its transfer, and what there is to tell of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use netblt_proto::config::PublicKey;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_proto::units::Rate;

use super::account::{Account, Seen, Verdict};
use super::found::{Done, Held};
use super::leaving::KeptAt;
use super::pool::Pool;
use super::rate_limiter::{self, Client};
use super::request::Request;
use crate::cancel::Cancel;
use crate::denial::Denied;
use crate::disk::threads::Writer;
use crate::error::Error;
use crate::grant::Grant;
use crate::memory_budget::{MemoryLease, MemoryShare};
use crate::name_log::NameLog;
use crate::options::Control;
use crate::transfer::receive::{Received, Receiving};
use crate::transfer::send::{Sending, Sent};

/// A share that moved by less than this part of itself is not sent to the client.
const SLIGHT: u64 = 128;

/// The client of the machine at this end.
pub(super) enum Task {
    Sending(Box<Sending<'static, Held>>),
    Receiving(Box<Receiving<'static, Box<dyn Writer>>>),
    /// What is asked branches from it.
    Session,
}

/// What a task came to: bytes, or why not.
pub(super) type Came = Result<u64, Error>;

/// One connection.
pub(super) struct Guest {
    /// The number of its connection.
    pub(super) number: u64,
    pub(super) peer: SocketAddr,
    /// The key that it has shown, if it came by one.
    pub(super) who: Option<PublicKey>,
    /// What it may.
    pub(super) grant: Arc<Grant>,
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
    pub(super) seen: Arc<Seen>,
    pub(super) opened: Instant,
    /// What is asked, and of what ([`Request::spot`](super::request::Request::spot)).
    pub(super) asked: (&'static str, Vec<u8>),
    /// Its other path, or the name of what is put.
    pub(super) target: Vec<u8>,
    /// The same, until it is done: nothing is looked for before a buffer was granted for the
    /// answer.
    pub(super) pending: Option<Request>,
    /// The disk's answer to that, when it is there.
    pub(super) job: Option<Receiver<Result<Done, Denied>>>,
    /// A key is to be lent for what it announces.
    pub(super) lends: bool,
    /// Over how many lanes it takes what it asks for.
    pub(super) lanes: u64,
    /// What a transfer to another server comes to, if that fails.
    pub(super) fails: Option<Receiver<Denied>>,
    /// What the client has, until then.
    pub(super) had: Vec<u8>,
    /// Bytes of what it said so far, and memory for that.
    pub(super) heard: u64,
    pub(super) memory: MemoryLease,
    /// The names of what it sends or receives.
    pub(super) names: NameLog,
    /// What its client may take of the memory for names.
    pub(super) memory_share: MemoryShare,
    /// Packets of data that have moved, and when one did last.
    pub(super) moved: (u64, Instant),
    /// It has to make room for the request of another client.
    pub(super) yields: bool,
    /// Bytes in a buffer, and how many it has at most before its path has use of more.
    pub(super) image_bytes: usize,
    pub(super) at_first: u32,
    /// The session of which this is a request, or the connection.
    pub(super) session: Option<u32>,
    /// Memory of the session's share, and beyond a share.
    pub(super) shared: u64,
    pub(super) beyond: u64,
    /// What stands under paths that it uses, and where what comes is kept.
    pub(super) held: Option<Arc<std::os::fd::OwnedFd>>,
    pub(super) kept_at: Option<KeptAt>,
    /// How many datagrams have come, and when there was a new one.
    pub(super) datagrams: (u64, Instant),
    /// What it was told instead of being served.
    pub(super) denied: Option<Denied>,
}

/// What is known of a connection when it opens.
pub(super) struct Arrival {
    pub(super) number: u64,
    pub(super) peer: SocketAddr,
    pub(super) who: Option<PublicKey>,
    pub(super) session: Option<u32>,
    pub(super) grant: Arc<Grant>,
    pub(super) control: Control,
    pub(super) cancel: Cancel,
    pub(super) seen: Arc<Seen>,
    pub(super) image_bytes: usize,
    pub(super) at_first: u32,
    pub(super) memory_share: MemoryShare,
}

impl Guest {
    /// A connection that has opened and asked nothing, of which so many datagrams came.
    pub(super) fn new((now, datagrams): (Instant, u64), arrival: Arrival, task: Task) -> Self {
        let Arrival { number, peer, who, session, grant, control, cancel, seen, .. } = arrival;
        Self {
            number,
            peer,
            who,
            grant,
            control,
            is_limited: false,
            share: None,
            total: None,
            moves: false,
            task,
            cancel,
            seen,
            opened: now,
            asked: ("none", Vec::new()),
            target: Vec::new(),
            pending: None,
            job: None,
            lends: false,
            lanes: 0,
            fails: None,
            had: Vec::new(),
            heard: 0,
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

    /// Its client, beside others.
    pub(super) fn client(&self) -> Client {
        Client::of(self.who, self.peer)
    }

    /// What is asked, once there is a buffer for the answer.
    pub(super) fn take_pending(&mut self) -> Option<Request> {
        match &self.task {
            Task::Sending(task) if task.has_grant() => self.pending.take(),
            _ => None,
        }
    }

    /// Takes note of what has moved.
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
    pub(super) fn puts(&self, (grant, spot): (&Grant, &[u8])) -> bool {
        self.asked.0 == "receive" && self.asked.1 == spot && self.grant.root == grant.root
    }

    /// When it was heard last, as far as that was looked at.
    pub(super) fn last_heard(&self) -> Instant {
        self.datagrams.1
    }

    /// Whether it was heard again since this was asked last.
    pub(super) fn hear(&mut self, now: Instant, end: &Endpoint) -> bool {
        let count = end.datagrams_received();
        let is_new = count != self.datagrams.0;
        if is_new {
            self.datagrams = (count, now);
        }
        is_new
    }

    /// Lets it have more buffers, if its path has use of them and there are some.
    pub(super) fn grow(&mut self, now: Instant, end: &Endpoint, pool: &mut Pool) {
        let growth = match &mut self.task {
            Task::Sending(task) => &mut task.growth,
            Task::Receiving(task) => &mut task.growth,
            Task::Session => return,
        };
        let lacking = growth.wanted(now, end).saturating_sub(growth.most());
        if lacking > 0 && growth.made() > 0 {
            let (more, bytes) = pool.more(lacking, self.image_bytes);
            growth.allow(more);
            self.beyond += bytes;
        }
    }

    /// What there is to see of it for the rate limiter.
    pub(super) fn look(&self, end: &Endpoint) -> rate_limiter::Seen {
        let (sent, came) = end.carried_bytes();
        let (moved, ahead, moves) = match &self.task {
            Task::Sending(task) => (sent + task.moved_beside(), 0, self.moves),
            Task::Receiving(task) => {
                let (arrived, _) = end.moved();
                let beside = task.moved_beside();
                let ahead = task.ahead(self.image_bytes as u64, arrived + beside);
                (came + beside, ahead, ahead > 0 || task.wants_grant())
            }
            Task::Session => (0, 0, false),
        };
        let moved = moved + self.seen.sent.load(Ordering::Relaxed);
        rate_limiter::Seen { moved, ahead, total: self.total, moves }
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

    /// What there is to tell when it is over.
    pub(super) fn account(&self, now: Instant, came: Came) -> Account {
        let seen = self.seen.bytes.load(Ordering::Relaxed);
        // What is answered about files that go elsewhere is not them.
        let bytes = match self.fails {
            Some(_) => seen,
            None => *came.as_ref().unwrap_or(&seen),
        };
        let verdict = match (came, &self.denied) {
            (_, Some(denied)) => Verdict::Denied(denied.what, denied.why.clone()),
            (Ok(_), None) => Verdict::Done,
            (Err(error), None) => Verdict::Failed(error.to_string()),
        };
        let (request, mut path) = self.asked.clone();
        path.truncate(path.iter().position(|byte| *byte == 0).unwrap_or(path.len()));
        let (peer, elapsed) = (self.peer, now.since(self.opened));
        let (name, target) = (self.grant.name.clone(), self.target.clone());
        let (names, names_omitted) = self.names.all();
        Account { peer, name, request, path, target, names, names_omitted, bytes, elapsed, verdict }
    }
}

/// What was sent.
pub(super) fn sent(result: Result<Sent, Error>) -> Came {
    result.map(|sent| sent.end.map_or(0, |end| end.bytes))
}

/// What was stored.
pub(super) fn received(result: Result<Received, Error>) -> Came {
    result.map(|received| received.outcome.bytes)
}
