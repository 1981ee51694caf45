//! The receive queue of one branch of a shared socket: one thread reads the socket, and puts each
//! datagram into the queue of its branch (`docs/protocol §4.10`).

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use netblt_proto::api::{CloseReason, Datagram, RecvMeta};

/// Room of a waiting datagram beside its bytes.
const BESIDE: usize = 128;
/// Errors of the network that wait.
const MAX_ERRORS: usize = 16;

/// A datagram that has come for a branch.
#[derive(Debug)]
struct QueuedDatagram {
    at: Instant,
    from: SocketAddr,
    local: Option<IpAddr>,
    meta: RecvMeta,
    len: usize,
}

/// Datagrams that have arrived, one behind the other. The batch goes back and forth between the
/// reading thread and the branch. Memory for each single datagram, allocated by the one and freed
/// by the other, cost more than all the rest.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    arrived: Vec<QueuedDatagram>,
}

impl Batch {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.arrived.len()
    }

    /// Hands on each, as if it came now after it had waited.
    pub(crate) fn for_each(&mut self, mut each: impl FnMut(Datagram<'_>)) {
        let mut rest = &mut self.bytes[..];
        for QueuedDatagram { at, from, local, meta, len } in self.arrived.drain(..) {
            let Some((bytes, behind)) = rest.split_at_mut_checked(len) else { return };
            rest = behind;
            let meta = RecvMeta { age: meta.age + at.elapsed(), ..meta };
            each(Datagram { from, local, meta, bytes });
        }
    }

    fn put(&mut self, datagram: &Datagram<'_>) {
        self.bytes.extend_from_slice(datagram.bytes);
        self.arrived.push(QueuedDatagram {
            at: Instant::now(),
            from: datagram.from,
            local: datagram.local,
            meta: datagram.meta,
            len: datagram.bytes.len(),
        });
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.arrived.clear();
    }

    /// The room that it takes.
    fn taken(&self) -> usize {
        self.bytes.len() + self.arrived.len() * BESIDE
    }
}

/// The received datagrams of a branch that were not read yet.
pub(crate) struct DemuxQueue<E> {
    waiting: Mutex<QueueState<E>>,
    /// Bytes that wait at most.
    room: usize,
    wake: Box<dyn Fn() + Send + Sync>,
    confirmed: AtomicBool,
}

struct QueueState<E> {
    batch: Batch,
    errors: Vec<E>,
    /// No answer will ever come, for this reason.
    closed: Option<CloseReason>,
}

impl<E> Default for QueueState<E> {
    fn default() -> Self {
        Self { batch: Batch::default(), errors: Vec::new(), closed: None }
    }
}

impl<E> fmt::Debug for DemuxQueue<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inbox")
    }
}

impl<E: Copy> DemuxQueue<E> {
    /// A queue for so many bytes. `wake` wakes its reader.
    pub(crate) fn new(room: usize, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let confirmed = AtomicBool::new(false);
        Self { waiting: Mutex::default(), room, wake: Box::new(wake), confirmed }
    }

    /// Adds a datagram. One beyond the room is lost, as in a socket.
    pub(crate) fn put(&self, datagram: &Datagram<'_>) {
        let mut waiting = lock(&self.waiting);
        if waiting.batch.taken() + datagram.bytes.len() + BESIDE > self.room {
            return;
        }
        waiting.batch.put(datagram);
        drop(waiting);
        (self.wake)();
    }

    /// Adds an ICMP error about a packet of the socket.
    pub(crate) fn add_error(&self, error: &E) {
        let mut waiting = lock(&self.waiting);
        if waiting.errors.len() < MAX_ERRORS {
            waiting.errors.push(*error);
        }
        drop(waiting);
        (self.wake)();
    }

    /// The peer has answered on the branch.
    pub(crate) fn confirm(&self) {
        self.confirmed.store(true, Ordering::SeqCst);
    }

    /// The stem is closed. If the peer has not answered on the branch, it never will.
    pub(crate) fn close(&self, reason: &CloseReason) {
        if !self.confirmed.load(Ordering::SeqCst) {
            lock(&self.waiting).closed = Some(reason.clone());
            (self.wake)();
        }
    }

    /// Moves all that waits into `batch`, which is emptied first, and returns the ICMP errors.
    /// Fails with the reason if no answer will ever come.
    pub(crate) fn take(&self, batch: &mut Batch) -> Result<Vec<E>, CloseReason> {
        batch.clear();
        let mut waiting = lock(&self.waiting);
        match &waiting.closed {
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
    fn datagrams_come_in_order_as_far_as_there_was_room() {
        let woken = Arc::new(AtomicUsize::new(0));
        let wakes = Arc::clone(&woken);
        let wake = move || _ = wakes.fetch_add(1, Ordering::Relaxed);
        let queue: DemuxQueue<u8> = DemuxQueue::new(2 * (BESIDE + 10), wake);
        let from = SocketAddr::from(([127, 0, 0, 1], 7));
        let put = |text: &[u8]| {
            let (bytes, meta) = (&mut text.to_vec()[..], RecvMeta::default());
            queue.put(&Datagram { from, local: None, meta, bytes });
        };
        let take = |batch: &mut Batch| {
            let errors = queue.take(batch).expect("it is open");
            let (count, mut found) = (batch.len(), Vec::new());
            batch.for_each(|datagram| found.push(datagram.bytes.to_vec()));
            assert_eq!(found.len(), count);
            (found, errors)
        };
        let mut batch = Batch::default();
        put(b"first");
        put(b"");
        put(b"this one finds no room any more");
        queue.add_error(&3);
        assert_eq!(take(&mut batch), (vec![b"first".to_vec(), Vec::new()], vec![3]));
        // Each datagram comes once, and after that takes no room.
        assert_eq!(take(&mut batch), (Vec::new(), Vec::new()));
        put(b"second");
        assert_eq!(take(&mut batch), (vec![b"second".to_vec()], Vec::new()));
        assert_eq!(woken.load(Ordering::Relaxed), 4);
        queue.close(&CloseReason::Quit);
        assert_eq!(queue.take(&mut batch).expect_err("the stem is closed"), CloseReason::Quit);
        assert_eq!(batch.len(), 0);
    }
}
