//! Requests to a server of files, each on a thread of its own, as Python holds them.
//!
//! All requests to one server go through one session, which the first request opens. A
//! child of `fork` must not use its parent's, and is given another one by `netblt/_client.py`.

use std::ffi::OsString;
use std::io::{Cursor, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use netblt::keys::tofu::{self, KnownSince};
use netblt::keys::{KnownServers, ask, file, fingerprint};
use netblt::serve::client::{Client, Fetch, Read, RemoveOptions, into_directory};
use netblt::serve::{Entry, EntryType, PORT, Piece, Session};
use netblt::{
    Cancel, Error, Observer, Rendezvous, RequestErrorKind, Selection, Source, Summary, Warning,
    ticket,
};
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::errors;
use crate::events;
use crate::files::{Stash, Stream};
use crate::options::Options;

/// For how long a server that is busy is asked to take files, and how long the pauses are.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A server, how it is met, and the options of every connection.
#[pyclass(frozen, module = "netblt._netblt")]
pub(crate) struct Remote(Arc<Meeting>);

struct Meeting {
    /// `host:port`; `None` where the ticket has it.
    address: Option<String>,
    proof: Proof,
    options: netblt::Options,
    /// Once the server was met.
    met: Mutex<Option<(Rendezvous, Session)>>,
    /// Requests under way.
    asking: AtomicUsize,
}

/// A request under way; dropped when it is over.
struct Asking(Arc<Meeting>);

impl Asking {
    fn new(meeting: Arc<Meeting>) -> Self {
        meeting.asking.fetch_add(1, Ordering::SeqCst);
        Self(meeting)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.asking.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Clone)]
enum Proof {
    Ticket(ticket::Ticket),
    Key { own: PathBuf, known: PathBuf },
}

/// What came of a request.
enum Answer {
    Entry(Entry),
    Entries(Vec<Entry>),
    Count(u64),
    Pieces(Vec<Read>),
    Moved(Box<Summary>),
}

/// The warnings of a request.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Observer for Warnings {
    fn warn(&mut self, warning: &Warning) {
        lock(&self.0).push(warning.to_string());
    }
}

impl Meeting {
    fn new(address: Option<String>, proof: Proof, options: netblt::Options) -> Self {
        Self { address, proof, options, met: Mutex::new(None), asking: AtomicUsize::new(0) }
    }

    /// How to call the server; of one that is met for the first time, its key is asked for.
    fn meet(&self, cancel: &Cancel, warnings: &Warnings) -> Result<(Rendezvous, Session), Error> {
        if let Some(met) = &*lock(&self.met) {
            return Ok(met.clone());
        }
        let met = match (&self.proof, &self.address) {
            (Proof::Ticket(ticket), address) => {
                let mut ticket = ticket.clone();
                if let Some(address) = address {
                    ticket.addresses = vec![address.clone()];
                }
                Rendezvous::Connect(ticket)
            }
            (Proof::Key { own, known }, Some(address)) => {
                let own = file::read(own)?;
                let mut known = KnownServers::read(known)?;
                let warnings = warnings.clone();
                let warn = |warning: &Warning| lock(&warnings.0).push(warning.to_string());
                let ask = || ask(std::slice::from_ref(address), &self.options, cancel, warn);
                let (key, met) = tofu::server_key(address, &mut known, ask)?;
                if met == KnownSince::Now {
                    let shown = fingerprint(&key);
                    let text = format!("{address} is met for the first time; its key is {shown}");
                    lock(&warnings.0).push(text);
                }
                tofu::call(address, own, key)?
            }
            (Proof::Key { .. }, None) => {
                return Err(netblt::OptionsError::NoKey.into());
            }
        };
        let mut known = lock(&self.met);
        let session = || Session::new(met.clone(), &self.options);
        Ok(known.get_or_insert_with(|| (met.clone(), session())).clone())
    }

    /// Perhaps the server has another key than the one that is known.
    fn explain(&self, error: Error, cancel: &Cancel) -> Error {
        let (Proof::Key { known, .. }, Some(address)) = (&self.proof, &self.address) else {
            return error;
        };
        let Ok(known) = KnownServers::read(known) else { return error };
        let ask = || ask(std::slice::from_ref(address), &self.options, cancel, |_| {});
        tofu::explain(error, address, &known, ask)
    }
}

#[pymethods]
impl Remote {
    /// A server at `host:port`, whose clients have a ticket, or the key in a file.
    #[new]
    fn new(
        host: Option<&str>,
        port: Option<u16>,
        ticket: Option<&str>,
        key: Option<PathBuf>,
        known_servers: Option<PathBuf>,
        options: Options,
    ) -> PyResult<Self> {
        let raise = |error: Error| Python::attach(|py| errors::raised(py, &error, false));
        let bracketed = |host: &str| match host.contains(':') {
            true => format!("[{host}]"),
            false => host.to_owned(),
        };
        let address = host.map(|host| ticket::address(&bracketed(host), port.or(Some(PORT))));
        let address = address.transpose();
        let address = address.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let home = |name| {
            let none = || PyValueError::new_err("there is no home directory to keep keys in");
            file::place(name).ok_or_else(none)
        };
        let proof = match ticket {
            Some(text) => {
                let ticket = text.trim().parse().map_err(Error::Ticket);
                Proof::Ticket(ticket.map_err(raise)?)
            }
            None => {
                if address.is_none() {
                    let why = "without a ticket the server's host is needed: netblt://HOST/";
                    return Err(PyValueError::new_err(why));
                }
                let own = key.map_or_else(|| home("key"), Ok)?;
                let known = known_servers.map_or_else(|| home("known_servers"), Ok)?;
                Proof::Key { own, known }
            }
        };
        let options = options.into_library(None)?;
        Ok(Self(Arc::new(Meeting::new(address, proof, options))))
    }

    /// The same server, asked in a session of its own: for a child of `fork`, which takes no lock
    /// of its parent's.
    fn fresh(&self) -> Self {
        let Meeting { address, proof, options, .. } = &*self.0;
        let (address, proof, options) = (address.clone(), proof.clone(), options.clone());
        Self(Arc::new(Meeting::new(address, proof, options)))
    }

    /// Closes the session, if there is one; the next request opens another. Requests under way end
    /// it with the last of them. They are not waited for: one of them may wait for the caller,
    /// which may be in a file's `read()`.
    fn close(&self, py: Python<'_>) {
        let meeting = &*self.0;
        let session = lock(&meeting.met).as_mut().map(|(met, session)| {
            std::mem::replace(session, Session::new(met.clone(), &meeting.options))
        });
        py.detach(|| {
            let idle = meeting.asking.load(Ordering::SeqCst) == 0;
            session.filter(|_| idle).into_iter().for_each(|session| session.close());
        });
    }

    fn stat(&self, path: Vec<u8>) -> PyResult<Call> {
        self.call(move |server, warnings| server.stat(&path, warnings).map(Answer::Entry))
    }

    fn list(&self, path: Vec<u8>) -> PyResult<Call> {
        self.call(move |server, warnings| {
            let mut entries = Vec::new();
            server.list(&path, warnings, |entry| {
                entries.push(entry);
                Ok(())
            })?;
            Ok(Answer::Entries(entries))
        })
    }

    /// Files beneath a path, by their paths, whatever that is or if it is nothing.
    fn walk(&self, path: Vec<u8>) -> PyResult<Call> {
        self.call(move |server, warnings| walk(server, path, warnings).map(Answer::Entries))
    }

    fn make_directory(&self, path: Vec<u8>, parents: bool) -> PyResult<Call> {
        self.call(move |server, warnings| {
            server.make_directory(&path, parents, warnings).map(Answer::Count)
        })
    }

    fn remove(&self, path: Vec<u8>, directory: bool, tree: bool) -> PyResult<Call> {
        self.call(move |server, warnings| {
            server
                .remove(&path, RemoveOptions { empty_directory: directory, tree }, warnings)
                .map(Answer::Count)
        })
    }

    fn rename(&self, path: Vec<u8>, to: Vec<u8>, replace: bool) -> PyResult<Call> {
        self.call(move |server, warnings| {
            server.rename(&path, &to, replace, warnings).map(|()| Answer::Count(1))
        })
    }

    fn copy(&self, path: Vec<u8>, to: Vec<u8>, trees: bool, replace: bool) -> PyResult<Call> {
        self.replacing(replace, move |server, warnings| {
            server.copy(&path, &to, trees, warnings).map(Answer::Count)
        })
    }

    /// Pieces of files: path, offset and bytes of each.
    fn read(&self, pieces: Vec<(Vec<u8>, u64, u64)>) -> PyResult<Call> {
        let piece = |(path, offset, bytes)| Piece { path, offset, bytes };
        let pieces: Vec<Piece> = pieces.into_iter().map(piece).collect();
        self.call(move |server, warnings| server.read(&pieces, warnings).map(Answer::Pieces))
    }

    /// Files and directories here go there.
    fn put(&self, paths: Vec<PathBuf>, path: Vec<u8>, replace: bool) -> PyResult<Call> {
        self.replacing(replace, move |server, warnings| {
            patiently(server, || server.put(Selection::from(paths.clone()), &path, warnings))
        })
    }

    /// A file here goes to exactly that path.
    fn put_path(&self, file: PathBuf, path: Vec<u8>, replace: bool) -> PyResult<Call> {
        self.replacing(replace, move |server, warnings| {
            patiently(server, || server.put_file(Source::path(&file), &path, warnings))
        })
    }

    /// These bytes go there, as one file.
    fn put_bytes(
        &self,
        data: &Bound<'_, PyBytes>,
        name: OsString,
        path: Vec<u8>,
        replace: bool,
    ) -> PyResult<Call> {
        let data: Arc<[u8]> = data.as_bytes().into();
        self.replacing(replace, move |server, warnings| {
            patiently(server, || {
                let source = Source::reader(name.clone(), Cursor::new(Arc::clone(&data)));
                server.put_file(source, &path, warnings)
            })
        })
    }

    /// What anything with `read(n)` gives goes there, as one file.
    fn put_stream(
        &self,
        file: Py<PyAny>,
        name: OsString,
        path: Vec<u8>,
        replace: bool,
    ) -> PyResult<Call> {
        let stash = Stash::default();
        let source = Source::reader(name, Stream::new(file, stash.clone()));
        let call = self.replacing(replace, move |server, warnings| {
            let moved = server.put_file(source, &path, warnings);
            moved.map(|summary| Answer::Moved(Box::new(summary)))
        })?;
        Ok(Call { stash, ..call })
    }

    /// A file or a tree comes into a directory here, under this name.
    fn get(
        &self,
        path: Vec<u8>,
        into: PathBuf,
        name: OsString,
        trees: bool,
        replace: bool,
    ) -> PyResult<Call> {
        self.replacing(replace, move |server, warnings| {
            let data = server.data_bytes(&path, warnings)?;
            let fetch = Fetch { path, name, trees, bytes: None, data };
            let moved = server.get(&fetch, into_directory(into), warnings);
            moved.map(|summary| Answer::Moved(Box::new(summary)))
        })
    }
}

impl Remote {
    fn call(
        &self,
        act: impl FnOnce(&Client<'_>, &mut Warnings) -> Result<Answer, Error> + Send + 'static,
    ) -> PyResult<Call> {
        Call::begin(Arc::clone(&self.0), self.0.options.clone(), Box::new(act))
    }

    fn replacing(
        &self,
        replace: bool,
        act: impl FnOnce(&Client<'_>, &mut Warnings) -> Result<Answer, Error> + Send + 'static,
    ) -> PyResult<Call> {
        let mut options = self.0.options.clone();
        options.settings.overwrite =
            if replace { netblt::Overwrite::Always } else { netblt::Overwrite::Never };
        Call::begin(Arc::clone(&self.0), options, Box::new(act))
    }
}

/// A server that is busy is asked again, for a minute: nothing of what it refused has begun, and
/// what is in its way may be other things that this program puts.
fn patiently(server: &Client<'_>, mut put: impl FnMut() -> Result<Summary, Error>) -> Outcome {
    let (begun, mut pause) = (Instant::now(), PAUSE);
    loop {
        match put() {
            Err(Error::Denied { what: RequestErrorKind::Busy, .. })
                if begun.elapsed() < PATIENCE => {}
            came => return came.map(|summary| Answer::Moved(Box::new(summary))),
        }
        // Requests that were refused at the same time are not repeated at the same time.
        let chance = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let until = Instant::now() + pause / 2 + pause.mul_f64(chance.subsec_nanos() as f64 / 1e9);
        while Instant::now() < until {
            if server.cancel.is_cancelled() {
                return Err(Error::Interrupted);
            }
            std::thread::sleep(PAUSE / 2);
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// All files beneath a path, or it itself, named by their paths; none if nothing is there.
fn walk(server: &Client<'_>, path: Vec<u8>, warnings: &mut Warnings) -> Result<Vec<Entry>, Error> {
    let mut top = match server.stat(&path, warnings) {
        Ok(entry) => entry,
        Err(Error::Denied {
            what: RequestErrorKind::NotFound | RequestErrorKind::NotADirectory,
            ..
        }) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    top.name = path;
    let (mut found, mut left) = (Vec::new(), vec![top]);
    while let Some(entry) = left.pop() {
        if entry.sort != EntryType::Directory {
            found.push(entry);
            continue;
        }
        let above = entry.name;
        let before = left.len();
        server.list(&above, warnings, |mut entry| {
            let slash: &[u8] = if above.is_empty() { b"" } else { b"/" };
            entry.name = [&above[..], slash, &entry.name].concat();
            left.push(entry);
            Ok(())
        })?;
        // They are taken from the end.
        left.get_mut(before..).unwrap_or_default().reverse();
    }
    Ok(found)
}

type Outcome = Result<Answer, Error>;

/// A request under way, until its answer is taken.
#[pyclass(frozen, module = "netblt._netblt")]
pub(crate) struct Call {
    outcome: Arc<(Mutex<Option<Outcome>>, Condvar)>,
    cancel: Cancel,
    warnings: Warnings,
    /// What a file of Python's raised.
    stash: Stash,
    /// How an event loop hears of its end.
    woken: Mutex<Option<UnixStream>>,
}

type Act = Box<dyn FnOnce(&Client<'_>, &mut Warnings) -> Outcome + Send>;

impl Call {
    fn begin(meeting: Arc<Meeting>, options: netblt::Options, act: Act) -> PyResult<Self> {
        let (woken, bell) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let outcome: Arc<(Mutex<Option<Outcome>>, Condvar)> = Arc::default();
        let (cancel, warnings) = (Cancel::default(), Warnings::default());
        let run = {
            let (outcome, cancel, mut warnings) =
                (Arc::clone(&outcome), cancel.clone(), warnings.clone());
            let asking = Asking::new(meeting);
            move || {
                let meeting = &*asking.0;
                let came = meeting.meet(&cancel, &warnings).and_then(|(rendezvous, session)| {
                    let (rendezvous, options) = (&rendezvous, &options);
                    let session = Some(&session);
                    let server = Client { rendezvous, options, cancel: &cancel, session };
                    act(&server, &mut warnings).map_err(|error| meeting.explain(error, &cancel))
                });
                drop(asking);
                *lock(&outcome.0) = Some(came);
                outcome.1.notify_all();
                // This byte wakes what watches the request; its end does so, too.
                let _ = (&bell).write(&[1]);
            }
        };
        let thread = std::thread::Builder::new().name("netblt-ask".to_owned()).spawn(run);
        thread.map_err(|source| {
            let error = Error::Thread { purpose: "to ask a server", source };
            Python::attach(|py| errors::raised(py, &error, false))
        })?;
        let (stash, woken) = (Stash::default(), Mutex::new(Some(woken)));
        Ok(Self { outcome, cancel, warnings, stash, woken })
    }
}

#[pymethods]
impl Call {
    /// Asks it to stop.
    fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Asks it to stop without waiting for anybody.
    fn abort(&self) {
        self.cancel.abort();
    }

    /// Waits no longer than so many seconds, with Python's lock released: whether it is over.
    ///
    /// Raises what a signal's handler raises, of which `KeyboardInterrupt` is one.
    fn wait(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let timeout = Duration::try_from_secs_f64(seconds)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        py.check_signals()?;
        let over = py.detach(|| {
            let waiting = lock(&self.outcome.0);
            let more = |outcome: &mut Option<Outcome>| outcome.is_none();
            let (outcome, _) = self
                .outcome
                .1
                .wait_timeout_while(waiting, timeout, more)
                .unwrap_or_else(PoisonError::into_inner);
            outcome.is_some()
        });
        py.check_signals()?;
        Ok(over)
    }

    /// The descriptor that becomes readable when it is over.
    fn fileno(&self) -> PyResult<i32> {
        let woken = lock(&self.woken);
        woken.as_ref().map(UnixStream::as_raw_fd).ok_or_else(taken)
    }

    /// What the answer is, once; what the server tells of files are tuples of name, kind, bytes,
    /// seconds and nanoseconds of the time of modification, and permissions.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        lock(&self.woken).take();
        let outcome = lock(&self.outcome.0).take().ok_or_else(taken)?;
        match (outcome, self.stash.take()) {
            (Ok(answer), _) => answered(py, answer),
            (Err(Error::Interrupted), _) => Err(errors::raised(py, &Error::Interrupted, false)),
            (Err(_), Some(theirs)) => Err(theirs),
            (Err(error), None) => Err(errors::raised(py, &error, false)),
        }
    }

    /// The warnings so far, which are taken.
    fn warnings(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.warnings.0))
    }
}

fn answered(py: Python<'_>, answer: Answer) -> PyResult<Py<PyAny>> {
    match answer {
        Answer::Entry(entry) => shown(py, &entry),
        Answer::Entries(entries) => {
            let entries = entries.iter().map(|entry| shown(py, entry));
            let entries = entries.collect::<PyResult<Vec<_>>>()?;
            entries.into_py_any(py)
        }
        Answer::Count(count) => count.into_py_any(py),
        Answer::Moved(summary) => events::Summary::of(py, &summary).into_py_any(py),
        Answer::Pieces(pieces) => {
            let found = PyList::empty(py);
            for piece in pieces {
                match piece {
                    Ok((entry, data)) => {
                        let data = PyBytes::new(py, &data);
                        found.append((shown(py, &entry)?, data))?;
                    }
                    Err(error) => found.append(errors::raised(py, &error, false).value(py))?,
                }
            }
            found.into_py_any(py)
        }
    }
}

fn shown(py: Python<'_>, entry: &Entry) -> PyResult<Py<PyAny>> {
    let kind = match entry.sort {
        EntryType::File => "file",
        EntryType::Directory => "directory",
        EntryType::Link => "link",
        _ => "other",
    };
    let (seconds, nanos) = entry.modified;
    let name = PyBytes::new(py, &entry.name);
    (name, kind, entry.length, seconds, nanos, entry.mode).into_py_any(py)
}

fn taken() -> PyErr {
    PyRuntimeError::new_err("the answer was taken")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
