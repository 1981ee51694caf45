//! One connection of a server: its transfer, and what there is to tell of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use netblt_proto::config::PublicKey;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;

use super::account::{Account, Seen, Verdict};
use super::found::{Done, Held};
use super::leaving::KeptAt;
use super::pool::Pool;
use crate::cancel::Cancel;
use crate::denial::Denied;
use crate::disk::threads::Writer;
use crate::error::Error;
use crate::grant::Grant;
use crate::options::Control;
use crate::transfer::receive::{Received, Receiving};
use crate::transfer::send::{Sending, Sent};

/// The client of the machine at this end.
pub(super) enum Task {
    Sending(Box<Sending<'static, Held>>),
    Receiving(Box<Receiving<'static, Box<dyn Writer>>>),
    /// What is asked branches from it.
    Session,
}

/// What a task came to: bytes, or why not.
pub(super) type Came = Result<u64, Error>;

/// What one guest may have, and what it had by the last division.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    /// Bytes a second; `None` as long as nothing was divided.
    pub(super) most: Option<f64>,
    /// File bytes by then.
    pub(super) bytes: u64,
}

/// One connection.
pub(super) struct Guest {
    pub(super) peer: SocketAddr,
    /// The key that it has shown, if it came by one.
    pub(super) who: Option<PublicKey>,
    /// What it may.
    pub(super) grant: Arc<Grant>,
    /// Its rate is told to it here, and what it had of it.
    pub(super) control: Control,
    pub(super) share: Share,
    pub(super) task: Task,
    pub(super) cancel: Cancel,
    pub(super) seen: Arc<Seen>,
    pub(super) opened: Instant,
    /// What is asked, and of what ([`Request::spot`](super::request::Request::spot)).
    pub(super) asked: (&'static str, Vec<u8>),
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
    /// Bytes of what it said so far.
    pub(super) heard: u64,
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

impl Guest {
    /// Whether it is a session's connection.
    pub(super) fn is_session(&self) -> bool {
        matches!(self.task, Task::Session)
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
        Account { peer, name: self.grant.name.clone(), request, path, bytes, elapsed, verdict }
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
