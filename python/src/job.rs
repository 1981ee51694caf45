//! A transfer as Python holds it.
//!
//! One caller at a time asks for its events, by waiting ([`Job::next`]) or when the descriptor of
//! [`Job::fileno`] becomes readable ([`Job::poll`]); anybody may stop it at any time. No lock is
//! kept while Python's is waited for.

use std::ffi::OsString;
use std::io::{Cursor, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use netblt::{Cancel, Destination, Event, Rendezvous, Selection, Source, Transfer};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::control::Control;
use crate::errors;
use crate::events::{self, Summary};
use crate::files::{Sink, Stash, Stream};
use crate::options::Options;

/// The name of an event and its value, in Python.
type PyEvent = (&'static str, Py<PyAny>);

/// A transfer that runs, until [`Job::finish`].
#[pyclass(frozen, module = "netblt._netblt")]
pub(crate) struct Job {
    transfer: Mutex<Option<Transfer>>,
    cancel: Cancel,
    /// What a file of Python's raised.
    stash: Stash,
    sends: bool,
    /// The connection is open, or was.
    open: AtomicBool,
    ring: Mutex<Option<Ring>>,
}

/// How an event loop hears of a transfer.
struct Ring {
    woken: UnixStream,
    waker: Waker,
}

/// Rings at a descriptor that an event loop watches.
struct Bell(UnixStream);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // A full pipe would mean that it was rung before, which is as good.
        let _ = (&self.0).write(&[1]);
    }
}

#[pymethods]
impl Job {
    /// Begins to send paths, bytes or what a file gives; exactly one of them is given.
    #[staticmethod]
    fn send(
        what: Sent,
        name: Option<OsString>,
        ticket: Option<&str>,
        options: Options,
        control: Option<PyRef<'_, Control>>,
    ) -> PyResult<Self> {
        let stash = Stash::default();
        let name = name.unwrap_or_else(|| "stream".into());
        let source = match what {
            Sent::Bytes(bytes) => Source::reader(name, Cursor::new(bytes)),
            Sent::Paths(paths) => Source::Selection(Selection {
                exclude: options.exclude.clone(),
                follow: options.follow,
                allow_changes: options.allow_changes,
                ..Selection::from(paths)
            }),
            Sent::File(file) => Source::reader(name, Stream::new(file, stash.clone())),
        };
        let (rendezvous, cancel) = (rendezvous(ticket)?, Cancel::default());
        let options = options.into_library(control.as_deref())?;
        let transfer = Transfer::send(source, rendezvous, options, cancel.clone());
        Self::begun(transfer, cancel, stash, true)
    }

    /// Begins to receive into a directory, or into what a file takes.
    #[staticmethod]
    fn receive(
        into: Received,
        ticket: Option<&str>,
        options: Options,
        control: Option<PyRef<'_, Control>>,
    ) -> PyResult<Self> {
        let stash = Stash::default();
        let destination = match into {
            Received::Path(path) => Destination::Directory(path),
            Received::File(file) => Destination::writer(Sink::new(file, stash.clone())),
        };
        let (rendezvous, cancel) = (rendezvous(ticket)?, Cancel::default());
        let options = options.into_library(control.as_deref())?;
        let transfer = Transfer::receive(destination, rendezvous, options, cancel.clone());
        Self::begun(transfer, cancel, stash, false)
    }

    /// Asks it to stop, and to tell the other end.
    fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Asks it to stop without waiting for anybody.
    fn abort(&self) {
        self.cancel.abort();
    }

    /// The next event, waited for no longer than so many seconds, with Python's lock released;
    /// `None` then. `("over", None)` is the last.
    ///
    /// Raises what a signal's handler raises, of which `KeyboardInterrupt` is one.
    fn next(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<PyEvent>> {
        let timeout = Duration::try_from_secs_f64(seconds)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        py.check_signals()?;
        let event = py.detach(|| {
            let mut transfer = lock(&self.transfer);
            let transfer = transfer.as_mut()?;
            let event = transfer.next_event_within(timeout);
            Some((event, transfer.is_over()))
        });
        match event {
            Some((Some(event), _)) => self.to_python(py, event).map(Some),
            Some((None, false)) => py.check_signals().map(|()| None),
            Some((None, true)) | None => Ok(Some(over(py))),
        }
    }

    /// The next event, if there is one; if not, [`Job::fileno`] becomes readable when there is.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<PyEvent>> {
        let waker = lock(&self.ring).as_ref().map(Ring::hush).ok_or_else(closed)?;
        let event = py.detach(|| match lock(&self.transfer).as_mut() {
            Some(transfer) => transfer.poll_event(&mut Context::from_waker(&waker)),
            None => Poll::Ready(None),
        });
        match event {
            Poll::Ready(Some(event)) => self.to_python(py, event).map(Some),
            Poll::Ready(None) => Ok(Some(over(py))),
            Poll::Pending => Ok(None),
        }
    }

    /// The descriptor that becomes readable when [`Job::poll`] has something to tell.
    fn fileno(&self) -> PyResult<i32> {
        let ring = lock(&self.ring);
        ring.as_ref().map(|ring| ring.woken.as_raw_fd()).ok_or_else(closed)
    }

    /// Closes that descriptor, and cancels what is not over.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            lock(&self.ring).take();
            lock(&self.transfer).take();
        });
    }

    /// Waits until it is over, with Python's lock released: how it went, or why it went wrong. What
    /// a file of the caller's raised is raised again as it is.
    fn finish(&self, py: Python<'_>) -> PyResult<Summary> {
        let ended = py.detach(|| lock(&self.transfer).take().map(Transfer::join));
        let ended = ended.ok_or_else(|| PyRuntimeError::new_err("the transfer was finished"))?;
        match (ended, self.stash.take()) {
            (Ok(summary), _) => Ok(Summary::of(py, &summary)),
            (Err(netblt::Error::Interrupted), _) if self.cancel.is_cancelled() => {
                Err(errors::raised(py, &netblt::Error::Interrupted, false))
            }
            (Err(_), Some(theirs)) => Err(theirs),
            (Err(error), None) => {
                let sending = self.sends && self.open.load(Ordering::Relaxed);
                Err(errors::raised(py, &error, sending))
            }
        }
    }
}

impl Job {
    fn begun(
        transfer: Result<Transfer, netblt::Error>,
        cancel: Cancel,
        stash: Stash,
        sends: bool,
    ) -> PyResult<Self> {
        let transfer =
            transfer.map_err(|error| Python::attach(|py| errors::raised(py, &error, false)))?;
        let (woken, bell) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        let waker = Waker::from(Arc::new(Bell(bell)));
        let (transfer, open) = (Mutex::new(Some(transfer)), AtomicBool::new(false));
        let ring = Mutex::new(Some(Ring { woken, waker }));
        Ok(Self { transfer, cancel, stash, sends, open, ring })
    }

    fn to_python(&self, py: Python<'_>, event: Event) -> PyResult<PyEvent> {
        self.open.fetch_or(matches!(event, Event::Connected(_)), Ordering::Relaxed);
        events::to_python(py, event)
    }
}

impl Ring {
    /// Clears what rang before, so that the next ring shows.
    fn hush(&self) -> Waker {
        let mut bytes = [0; 64];
        while (&self.woken).read(&mut bytes).is_ok_and(|n| n == bytes.len()) {}
        self.waker.clone()
    }
}

/// What is to be sent.
#[derive(FromPyObject)]
enum Sent {
    #[pyo3(transparent)]
    Bytes(PyBackedBytes),
    #[pyo3(transparent)]
    Paths(Vec<PathBuf>),
    #[pyo3(transparent)]
    File(Py<PyAny>),
}

/// Where it is to go.
#[derive(FromPyObject)]
enum Received {
    #[pyo3(transparent)]
    Path(PathBuf),
    #[pyo3(transparent)]
    File(Py<PyAny>),
}

fn rendezvous(ticket: Option<&str>) -> PyResult<Rendezvous> {
    let Some(text) = ticket else { return Ok(Rendezvous::Listen) };
    let ticket = text.parse().map_err(netblt::Error::Ticket);
    let failed = |error| Python::attach(|py| errors::raised(py, &error, false));
    ticket.map(Rendezvous::Connect).map_err(failed)
}

fn over(py: Python<'_>) -> PyEvent {
    ("over", py.None())
}

fn closed() -> PyErr {
    PyRuntimeError::new_err("the transfer was closed")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
