//! Cleanup after finished transfers, on a thread of its own. A new upload to the same path waits
//! for it, because it resumes from what is kept (`docs/protocol §8.8`).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::disk::rename::id;
use crate::disk::staging::LABEL_BYTES;
use crate::error::{Error, RequestErrorKind};
use crate::request_error::RequestError;

/// How long an upload waits for the cleanup of an earlier one.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);

/// The place of a transfer's parts: the directory, and the label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeptAt {
    /// Its device, and its number there.
    directory: (u64, u64),
    label: Option<[u8; LABEL_BYTES]>,
}

impl KeptAt {
    pub(super) fn new(directory: &OwnedFd, label: Option<[u8; LABEL_BYTES]>) -> io::Result<Self> {
        Ok(Self { directory: id(&rustix::fs::fstat(directory)?), label })
    }
}

/// Drops finished transfers on a thread of its own: the drop waits until the disk's thread has
/// cleaned up, and the loop must not wait for that.
pub(super) struct CleanupQueue {
    queue: Sender<Box<dyn Send>>,
    cleanups: Cleanups,
}

impl CleanupQueue {
    pub(super) fn new() -> Result<Self, Error> {
        let (queue, receiver) = channel::<Box<dyn Send>>();
        let run = move || receiver.into_iter().for_each(drop);
        let spawned = std::thread::Builder::new().name("netblt-leave".to_owned()).spawn(run);
        spawned.map_err(|source| Error::Thread { purpose: "for what is over", source })?;
        Ok(Self { queue, cleanups: Cleanups::default() })
    }

    /// Drops a finished transfer, which may keep parts.
    pub(super) fn enqueue(&self, what: impl Send + 'static, kept_at: Option<KeptAt>) {
        let left = kept_at.map(|kept_at| self.cleanups.begin(kept_at));
        // In this order.
        let _ = self.queue.send(Box::new((what, left)));
    }

    /// The running cleanups.
    pub(super) fn cleanups(&self) -> Cleanups {
        self.cleanups.clone()
    }
}

/// The places where cleanups run.
#[derive(Clone, Debug, Default)]
pub(super) struct Cleanups(Arc<CleanupState>);

#[derive(Debug, Default)]
struct CleanupState {
    list: Mutex<List>,
    /// Something is in order.
    changed: Condvar,
    /// How often a wait began.
    #[cfg(test)]
    waiters: std::sync::atomic::AtomicU64,
}

#[derive(Debug, Default)]
struct List {
    next: u64,
    /// By their numbers.
    places: Vec<(u64, KeptAt)>,
}

impl Cleanups {
    fn list(&self) -> MutexGuard<'_, List> {
        self.0.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, kept_at: KeptAt) -> CleanupGuard {
        let mut list = self.list();
        let number = list.next;
        list.next += 1;
        list.places.push((number, kept_at));
        CleanupGuard { cleanups: self.clone(), number }
    }

    /// Waits for the cleanups of a directory and label, and returns the place.
    pub(super) fn wait_for(
        &self,
        directory: &OwnedFd,
        label: Option<[u8; LABEL_BYTES]>,
    ) -> Result<KeptAt, RequestError> {
        let kept_at = KeptAt::new(directory, label)?;
        if self.wait(kept_at, CLEANUP_TIMEOUT) {
            return Ok(kept_at);
        }
        let why = "an earlier upload to this path is still being finalised; try again later";
        Err(RequestError::new(RequestErrorKind::Busy, why))
    }

    /// Waits until the cleanups that have begun at a place are done, for at most this long. Returns
    /// whether they are.
    fn wait(&self, kept_at: KeptAt, most: Duration) -> bool {
        #[cfg(test)]
        self.0.waiters.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let list = self.list();
        let before = list.next;
        let is_left = |list: &mut List| {
            list.places.iter().any(|(number, place)| *number < before && *place == kept_at)
        };
        let waited = self.0.changed.wait_timeout_while(list, most, is_left);
        let (_list, over) = waited.unwrap_or_else(PoisonError::into_inner);
        !over.timed_out()
    }
}

/// A running cleanup, until it is dropped.
struct CleanupGuard {
    cleanups: Cleanups,
    number: u64,
}

impl Drop for CleanupGuard {
    fn drop(&mut self) {
        self.cleanups.list().places.retain(|(number, _)| *number != self.number);
        self.cleanups.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::Receiver;

    use netblt_proto::config::{Config, Role, Wire};

    use super::*;
    use crate::cancel::Cancel;
    use crate::disk::layout::Layout;
    use crate::disk::staging::{self, KEPT, Open, Staging};
    use crate::options::Options;
    use crate::serve::handlers;
    use crate::serve::listings::Listings;
    use crate::serve::rate_limiter::ClientId;
    use crate::serve::requests::put::{PutOptions, PutRequest};
    use crate::serve::requests::request::{Operation, Request};
    use crate::serve::response::Done;

    /// The parts of a transfer, held until the test lets them go.
    struct Held {
        go: Receiver<()>,
        _staging: Staging,
    }

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = self.go.recv();
        }
    }

    /// A directory with parts whose cleanup waits for the test.
    fn left() -> (tempfile::TempDir, Arc<OwnedFd>, CleanupQueue, Sender<()>) {
        let directory = tempfile::tempdir().unwrap();
        let root = Arc::new(OwnedFd::from(std::fs::File::open(directory.path()).unwrap()));
        let staging = Staging::keep(&root, KEPT, Open::Made).unwrap().expect("it is made");
        let (say, go) = channel();
        let cleanup_queue = CleanupQueue::new().unwrap();
        let kept_at = KeptAt::new(&root, None).unwrap();
        cleanup_queue.enqueue(Held { go, _staging: staging }, Some(kept_at));
        (directory, root, cleanup_queue, say)
    }

    fn put(root: &Arc<OwnedFd>, cleanups: &Cleanups, label: Option<[u8; 32]>) -> Done {
        put_as(true, root, cleanups, label)
    }

    /// The same of a client that may read, or may not.
    fn put_as(
        may_read: bool,
        root: &Arc<OwnedFd>,
        cleanups: &Cleanups,
        label: Option<[u8; 32]>,
    ) -> Done {
        let put = PutOptions { label, ..PutOptions::default() };
        let operation = Operation::Put(PutRequest::Announce(put));
        let request = Request { operation, path: b"f".to_vec() };
        let layout = Layout::of(&Config::new(Wire::Sealed, Role::Receiver)).unwrap();
        let (options, cancel) = (Options::default(), Cancel::default());
        let with = handlers::context::HandlerContext {
            options: &options,
            layout,
            cleanups,
            listings: &Listings::default(),
            client: ClientId::Key([1; 32]),
            may_read,
            cancel: &cancel,
        };
        let done = handlers::dispatch::perform(&request, root, &with, None);
        done.unwrap_or_else(|denied| panic!("{denied:?}"))
    }

    #[test]
    fn an_upload_waits_for_the_cleanup_of_the_last_one_and_resumes_it() {
        let (_directory, root, cleanup_queue, say) = left();
        let cleanups = cleanup_queue.cleanups();
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| put(&root, &cleanups, None));
            while !asked.is_finished() && cleanups.0.waiters.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            say.send(()).unwrap();
            let _put = asked.join().unwrap();
            assert!(cleanups.list().places.is_empty(), "it was not waited for");
            assert!(staging::is_taken(&root, KEPT), "it is not gone on with");
        });
    }

    #[test]
    fn a_client_without_read_permission_resumes_only_under_its_label() {
        let directory = tempfile::tempdir().unwrap();
        let root = Arc::new(OwnedFd::from(std::fs::File::open(directory.path()).unwrap()));
        let cleanups = Cleanups::default();
        let labelled = staging::kept_name(Some(&[7; 32]));
        for name in [KEPT, &labelled] {
            Staging::keep(&root, name, Open::Made).unwrap().expect("it is made").leave();
        }
        for (may_read, label, name, goes_on) in [
            (true, None, KEPT, true),
            (false, None, KEPT, false),
            (false, Some([7; 32]), &labelled[..], true),
        ] {
            let _put = put_as(may_read, &root, &cleanups, label);
            assert_eq!(staging::is_taken(&root, name), goes_on, "{may_read} {name}");
        }
    }

    #[test]
    fn an_upload_waits_for_no_other_cleanup_and_not_for_ever() {
        let (_directory, root, cleanup_queue, say) = left();
        let cleanups = cleanup_queue.cleanups();
        // Otherwise the answer would be that the server is busy.
        drop(put(&root, &cleanups, Some([7; 32])));
        let kept_at = KeptAt::new(&root, None).unwrap();
        assert!(!cleanups.wait(kept_at, Duration::ZERO));
        say.send(()).unwrap();
        assert!(cleanups.wait(kept_at, CLEANUP_TIMEOUT));
    }
}
