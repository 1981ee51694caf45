//! What is over at a server and still has to be put in order, beside the loop; and who waits for
//! that, because he goes on from it (`docs/protocol.md §8.8`).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::denial::Denied;
use crate::disk::renaming::id;
use crate::disk::staging::LABEL_BYTES;
use crate::error::{Denial, Error};

/// How long somebody waits for what is over to be in order.
const LEAVING: Duration = Duration::from_secs(10);

/// Where is kept what has come of a transfer: in which directory, and under which label.
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

/// Drops what is over: a disk's thread is waited for until it has put in order what is kept, and
/// the loop is not to wait for that.
pub(super) struct Undertaker {
    queue: Sender<Box<dyn Send>>,
    leaving: Leaving,
}

impl Undertaker {
    pub(super) fn new() -> Result<Self, Error> {
        let (queue, receiver) = channel::<Box<dyn Send>>();
        let run = move || receiver.into_iter().for_each(drop);
        let spawned = std::thread::Builder::new().name("netblt-leave".to_owned()).spawn(run);
        spawned.map_err(|source| Error::Thread { purpose: "for what is over", source })?;
        Ok(Self { queue, leaving: Leaving::default() })
    }

    /// Has something dropped, of which something may be kept.
    pub(super) fn lay_out(&self, what: impl Send + 'static, kept_at: Option<KeptAt>) {
        let left = kept_at.map(|kept_at| self.leaving.begin(kept_at));
        // In this order.
        let _ = self.queue.send(Box::new((what, left)));
    }

    /// What it is at.
    pub(super) fn leaving(&self) -> Leaving {
        self.leaving.clone()
    }
}

/// Where what is over is being put in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaving(Arc<State>);

#[derive(Debug, Default)]
struct State {
    list: Mutex<List>,
    /// Something is in order.
    changed: Condvar,
    /// How often somebody began to wait.
    #[cfg(test)]
    waiters: std::sync::atomic::AtomicU64,
}

#[derive(Debug, Default)]
struct List {
    next: u64,
    /// By their numbers.
    places: Vec<(u64, KeptAt)>,
}

impl Leaving {
    fn list(&self) -> MutexGuard<'_, List> {
        self.0.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, kept_at: KeptAt) -> Left {
        let mut list = self.list();
        let number = list.next;
        list.next += 1;
        list.places.push((number, kept_at));
        Left { leaving: self.clone(), number }
    }

    /// Where is kept what comes into a directory under a label, once what is over there is in
    /// order.
    pub(super) fn wait_for(
        &self,
        directory: &OwnedFd,
        label: Option<[u8; LABEL_BYTES]>,
    ) -> Result<KeptAt, Denied> {
        let kept_at = KeptAt::new(directory, label)?;
        if self.wait(kept_at, LEAVING) {
            return Ok(kept_at);
        }
        let why = "what came there before is not in order yet; try again later";
        Err(Denied::new(Denial::Busy, why))
    }

    /// Waits until in order is what is over at a place by now, and so long at most. Whether it is.
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

/// Something that is over, until it is in order.
struct Left {
    leaving: Leaving,
    number: u64,
}

impl Drop for Left {
    fn drop(&mut self) {
        self.leaving.list().places.retain(|(number, _)| *number != self.number);
        self.leaving.0.changed.notify_all();
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
    use crate::serve::found::Done;
    use crate::serve::listings::Listings;
    use crate::serve::rate_limiter::Client;
    use crate::serve::request::{Put, Request, What};
    use crate::serve::work;

    /// What a transfer has left is in its hands until somebody says that it may go.
    struct Held {
        go: Receiver<()>,
        _staging: Staging,
    }

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = self.go.recv();
        }
    }

    /// A directory in which something is kept that is being put in order until it is said.
    fn left() -> (tempfile::TempDir, Arc<OwnedFd>, Undertaker, Sender<()>) {
        let directory = tempfile::tempdir().unwrap();
        let root = Arc::new(OwnedFd::from(std::fs::File::open(directory.path()).unwrap()));
        let staging = Staging::keep(&root, KEPT, Open::Made).unwrap().expect("it is made");
        let (say, go) = channel();
        let undertaker = Undertaker::new().unwrap();
        let kept_at = KeptAt::new(&root, None).unwrap();
        undertaker.lay_out(Held { go, _staging: staging }, Some(kept_at));
        (directory, root, undertaker, say)
    }

    fn put(root: &Arc<OwnedFd>, leaving: &Leaving, label: Option<[u8; 32]>) -> Done {
        put_as(true, root, leaving, label)
    }

    /// The same of a client that may read, or may not.
    fn put_as(
        may_read: bool,
        root: &Arc<OwnedFd>,
        leaving: &Leaving,
        label: Option<[u8; 32]>,
    ) -> Done {
        let what = What::Put(Put { label, ..Put::default() });
        let request = Request { what, path: b"f".to_vec() };
        let layout = Layout::of(&Config::new(Wire::Sealed, Role::Receiver)).unwrap();
        let (options, cancel) = (Options::default(), Cancel::default());
        let with = work::With {
            options: &options,
            layout,
            leaving,
            listings: &Listings::default(),
            client: Client::Key([1; 32]),
            may_read,
            cancel: &cancel,
        };
        let done = work::perform(&request, root, &with, None);
        done.unwrap_or_else(|denied| panic!("{denied:?}"))
    }

    #[test]
    fn who_comes_right_behind_somebody_goes_on_from_what_he_leaves() {
        let (_directory, root, undertaker, say) = left();
        let leaving = undertaker.leaving();
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| put(&root, &leaving, None));
            while !asked.is_finished() && leaving.0.waiters.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            say.send(()).unwrap();
            let _put = asked.join().unwrap();
            assert!(leaving.list().places.is_empty(), "it was not waited for");
            assert!(staging::is_taken(&root, KEPT), "it is not gone on with");
        });
    }

    #[test]
    fn a_client_that_may_not_read_goes_on_from_nothing_but_what_has_its_label() {
        let directory = tempfile::tempdir().unwrap();
        let root = Arc::new(OwnedFd::from(std::fs::File::open(directory.path()).unwrap()));
        let leaving = Leaving::default();
        let labelled = staging::kept_name(Some(&[7; 32]));
        for name in [KEPT, &labelled] {
            Staging::keep(&root, name, Open::Made).unwrap().expect("it is made").leave();
        }
        for (may_read, label, name, goes_on) in [
            (true, None, KEPT, true),
            (false, None, KEPT, false),
            (false, Some([7; 32]), &labelled[..], true),
        ] {
            let _put = put_as(may_read, &root, &leaving, label);
            assert_eq!(staging::is_taken(&root, name), goes_on, "{may_read} {name}");
        }
    }

    #[test]
    fn nobody_waits_for_what_is_left_elsewhere_or_for_ever() {
        let (_directory, root, undertaker, say) = left();
        let leaving = undertaker.leaving();
        // He would hear that the server is busy.
        drop(put(&root, &leaving, Some([7; 32])));
        let kept_at = KeptAt::new(&root, None).unwrap();
        assert!(!leaving.wait(kept_at, Duration::ZERO));
        say.send(()).unwrap();
        assert!(leaving.wait(kept_at, LEAVING));
    }
}
