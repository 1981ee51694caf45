//! What comes for one of those who share a socket: one thread reads it, and hands each what is for
//! it (`docs/protocol.md §4.10`).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use netblt_proto::api::{Datagram, Reason, Reception};

/// What a datagram that waits takes beside its bytes.
const BESIDE: usize = 128;
/// Errors of the network that wait.
const MAX_ERRORS: usize = 16;

/// A datagram that has come for a branch.
#[derive(Debug)]
struct Arrived {
    at: Instant,
    from: SocketAddr,
    local: Option<IpAddr>,
    reception: Reception,
    len: usize,
}

/// Datagrams that have come, one behind the other. It goes to and fro between who reads and who is
/// read for: memory for each datagram, taken by the one and given back by the other, cost more
/// than all the rest.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    arrived: Vec<Arrived>,
}

impl Batch {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.arrived.len()
    }

    /// Hands on each, as if it came now after it had waited.
    pub(crate) fn for_each(&mut self, mut each: impl FnMut(Datagram<'_>)) {
        let mut rest = &mut self.bytes[..];
        for Arrived { at, from, local, reception, len } in self.arrived.drain(..) {
            let Some((bytes, behind)) = rest.split_at_mut_checked(len) else { return };
            rest = behind;
            let reception = Reception { age: reception.age + at.elapsed(), ..reception };
            each(Datagram { from, local, reception, bytes });
        }
    }

    fn put(&mut self, datagram: &Datagram<'_>) {
        self.bytes.extend_from_slice(datagram.bytes);
        self.arrived.push(Arrived {
            at: Instant::now(),
            from: datagram.from,
            local: datagram.local,
            reception: datagram.reception,
            len: datagram.bytes.len(),
        });
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.arrived.clear();
    }

    /// What it takes of the room.
    fn taken(&self) -> usize {
        self.bytes.len() + self.arrived.len() * BESIDE
    }
}

/// What has come for a branch and was not read.
pub(crate) struct Inbox<E> {
    waiting: Mutex<Waiting<E>>,
    /// Bytes that wait at most.
    room: usize,
    wake: Box<dyn Fn() + Send + Sync>,
    heard: AtomicBool,
}

struct Waiting<E> {
    batch: Batch,
    errors: Vec<E>,
    /// Nobody will ever answer: why.
    void: Option<Reason>,
}

impl<E> Default for Waiting<E> {
    fn default() -> Self {
        Self { batch: Batch::default(), errors: Vec::new(), void: None }
    }
}

impl<E> fmt::Debug for Inbox<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inbox")
    }
}

impl<E: Copy> Inbox<E> {
    /// One for so many bytes, whose reader is woken so.
    pub(crate) fn new(room: usize, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let heard = AtomicBool::new(false);
        Self { waiting: Mutex::default(), room, wake: Box::new(wake), heard }
    }

    /// Something for it. What is beyond the room is lost, as in a socket.
    pub(crate) fn put(&self, datagram: &Datagram<'_>) {
        let mut waiting = lock(&self.waiting);
        if waiting.batch.taken() + datagram.bytes.len() + BESIDE > self.room {
            return;
        }
        waiting.batch.put(datagram);
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

    /// All that waits, in place of what `batch` had, and what was said; or why nobody will ever
    /// answer.
    pub(crate) fn take(&self, batch: &mut Batch) -> Result<Vec<E>, Reason> {
        batch.clear();
        let mut waiting = lock(&self.waiting);
        match &waiting.void {
            Some(reason) => Err(reason.clone()),
            None => {
                std::mem::swap(&mut waiting.batch, batch);
                Ok(std::mem::take(&mut waiting.errors))
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn what_came_is_taken_in_its_order_as_far_as_there_was_room() {
        let woken = Arc::new(AtomicUsize::new(0));
        let wakes = Arc::clone(&woken);
        let wake = move || _ = wakes.fetch_add(1, Ordering::Relaxed);
        let inbox: Inbox<u8> = Inbox::new(2 * (BESIDE + 10), wake);
        let from = SocketAddr::from(([127, 0, 0, 1], 7));
        let put = |text: &[u8]| {
            let (bytes, reception) = (&mut text.to_vec()[..], Reception::default());
            inbox.put(&Datagram { from, local: None, reception, bytes });
        };
        let take = |batch: &mut Batch| {
            let errors = inbox.take(batch).expect("it is open");
            let (count, mut found) = (batch.len(), Vec::new());
            batch.for_each(|datagram| found.push(datagram.bytes.to_vec()));
            assert_eq!(found.len(), count);
            (found, errors)
        };
        let mut batch = Batch::default();
        put(b"first");
        put(b"");
        put(b"this one finds no room any more");
        inbox.tell(&3);
        assert_eq!(take(&mut batch), (vec![b"first".to_vec(), Vec::new()], vec![3]));
        // Nothing is there twice, and what was taken takes no room.
        assert_eq!(take(&mut batch), (Vec::new(), Vec::new()));
        put(b"second");
        assert_eq!(take(&mut batch), (vec![b"second".to_vec()], Vec::new()));
        assert_eq!(woken.load(Ordering::Relaxed), 4);
        inbox.close(&Reason::Quit);
        assert_eq!(inbox.take(&mut batch).expect_err("nobody answers"), Reason::Quit);
        assert_eq!(batch.len(), 0);
    }
}
