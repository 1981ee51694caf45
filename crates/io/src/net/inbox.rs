//! What comes for one of those who share a socket: one thread reads it, and hands each what is for
//! it (`docs/protocol.md §4.10`).

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use netblt_proto::machine::{Datagram, Reason, Reception};

/// Bytes that wait for a branch at most: as much as a socket holds.
const MAX_WAITING: usize = 4 << 20;
/// What a datagram that waits takes beside its bytes.
const BESIDE: usize = 128;
/// Errors of the network that wait.
const MAX_ERRORS: usize = 16;

/// A datagram that has come for a branch.
#[derive(Debug)]
pub(crate) struct Arrived {
    at: Instant,
    from: SocketAddr,
    local: Option<IpAddr>,
    reception: Reception,
    bytes: Vec<u8>,
}

impl Arrived {
    /// It, as if it came now after it had waited.
    pub(crate) fn datagram(&mut self) -> Datagram<'_> {
        let age = self.reception.age + self.at.elapsed();
        let reception = Reception { age, ..self.reception };
        Datagram { from: self.from, local: self.local, reception, bytes: &mut self.bytes }
    }
}

/// What has come for a branch and was not read.
pub(crate) struct Inbox<E> {
    waiting: Mutex<Waiting<E>>,
    wake: Box<dyn Fn() + Send + Sync>,
    heard: AtomicBool,
}

struct Waiting<E> {
    bytes: usize,
    datagrams: VecDeque<Arrived>,
    errors: Vec<E>,
    /// Nobody will ever answer: why.
    void: Option<Reason>,
}

impl<E> Default for Waiting<E> {
    fn default() -> Self {
        Self { bytes: 0, datagrams: VecDeque::new(), errors: Vec::new(), void: None }
    }
}

impl<E> fmt::Debug for Inbox<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inbox")
    }
}

impl<E: Copy> Inbox<E> {
    /// One whose reader is woken so.
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        let heard = AtomicBool::new(false);
        Self { waiting: Mutex::default(), wake: Box::new(wake), heard }
    }

    /// Something for it. What is beyond the room is lost, as in a socket.
    pub(crate) fn put(&self, datagram: &Datagram<'_>) {
        let mut waiting = lock(&self.waiting);
        let bytes = datagram.bytes.len() + BESIDE;
        if waiting.bytes + bytes > MAX_WAITING {
            return;
        }
        waiting.bytes += bytes;
        waiting.datagrams.push_back(Arrived {
            at: Instant::now(),
            from: datagram.from,
            local: datagram.local,
            reception: datagram.reception,
            bytes: datagram.bytes.to_vec(),
        });
        drop(waiting);
        (self.wake)();
    }

    /// What the network said of something that the socket sent.
    pub(crate) fn tell(&self, error: &E) {
        let mut waiting = lock(&self.waiting);
        if waiting.errors.len() < MAX_ERRORS {
            waiting.errors.push(*error);
        }
        drop(waiting);
        (self.wake)();
    }

    /// The branch was heard of.
    pub(crate) fn hear(&self) {
        self.heard.store(true, Ordering::SeqCst);
    }

    /// The stem is closed: if nothing was heard of the branch, nothing will be.
    pub(crate) fn close(&self, reason: &Reason) {
        if !self.heard.load(Ordering::SeqCst) {
            lock(&self.waiting).void = Some(reason.clone());
            (self.wake)();
        }
    }

    /// All that waits, and what was said; or why nobody will ever answer.
    pub(crate) fn take(&self) -> Result<(VecDeque<Arrived>, Vec<E>), Reason> {
        let Waiting { datagrams, errors, void, .. } = std::mem::take(&mut *lock(&self.waiting));
        match void {
            Some(reason) => Err(reason),
            None => Ok((datagrams, errors)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
