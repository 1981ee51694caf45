//! What is seen of a request, and what there is to tell when it is over.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::error::Denial;
use crate::observer::Observer;
use crate::progress::Progress;

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It was done; of files, every byte is verified.
    Done,
    /// It was not done, and the client was told why.
    Denied(Denial, String),
    /// It came to no end: why.
    Failed(String),
}

/// What is told of a request that is over: who, what, how much, and how it ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Account {
    /// Where it came from.
    pub peer: SocketAddr,
    /// Who asked, as far as that is known: the name of a key.
    pub name: String,
    /// `get`, `put`, `receive` (the data of a put), `stat`, `list`, `mkdir`, `remove`, `rename`,
    /// `copy`, `read`, `send` (to another server), `put-range`, `join`, or `none` if nothing was
    /// asked.
    pub request: &'static str,
    /// Relative to the root.
    pub path: Vec<u8>,
    /// Where something was to go, or what it was to become: of `rename`, `copy` and `join` the new
    /// name, of `send` the address of the other server, of `put` and `receive` the name of the
    /// single thing that came if it was not to keep its own. Empty if there is none.
    pub target: Vec<u8>,
    /// The names of all that was sent (of `get` and `send`), came (of `receive`) or was read (of
    /// `read`), in that order, whatever became of it: files, directories and links, relative to
    /// where they went; of `read` to the root. They are bounded: [`Account::names_omitted`].
    pub names: Vec<Vec<u8>>,
    /// How many more names there were than [`Account::names`] has room for, 64 KiB, of which each
    /// takes its bytes and 32, or than there was memory for.
    pub names_omitted: u64,
    /// File bytes sent or stored, or bytes of the answer.
    pub bytes: u64,
    /// Since the connection opened.
    pub elapsed: Duration,
    /// How it ended.
    pub verdict: Verdict,
}

/// What is seen of a transfer.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) bytes: AtomicU64,
    /// Bytes of IP packets that a transfer to another server has sent.
    pub(super) sent: AtomicU64,
    pub(super) silent: AtomicBool,
}

/// Looks at a transfer, and says nothing.
pub(super) struct Watch(pub(super) Arc<Seen>);

impl Observer for Watch {
    fn progress(&mut self, progress: &Progress) {
        self.0.bytes.store(progress.bytes, Ordering::Relaxed);
    }

    fn silent(&mut self, silent: bool) {
        self.0.silent.store(silent, Ordering::Relaxed);
    }
}
