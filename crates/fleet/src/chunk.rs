//! One chunk, from any state to done. An engine calls only this, and a person can, too.
//!
//! 1. A chunk that is done stays as it is.
//! 2. The task claims the chunk (`claims/K.N`). An older task at work notices and stops.
//! 3. It puts the files on a server of the pool. A busy server passes it on to the next. The server
//!    keeps data under the names of run and chunk, so any later task resumes them, from any machine
//!    and through any server of the pool.
//! 4. An error is retried a few times here, and then by the program that started the task.
//! 5. When every byte is verified, `done/K.json` gets its name.

mod ranged;

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use netblt::serve::client::Client;
use netblt::{
    Cancel, Control, Error as TransferError, ErrorKind, ExitCode, NameFilter, Observer, Options,
    Overwrite, Policy, Progress, Rendezvous, RequestErrorKind, Selection, SkipFilter, Summary,
    Warning,
};
use netblt_proto::api::printable_bytes;

use crate::claim::Claim;
use crate::error::{Error, at};
use crate::names::{Names, since, stamp};
use crate::pool::{Ceiling, Pool};
use crate::range_record;
use crate::record::{Done, End, Failed, Running, Verdict};
use crate::run::{self, Chunk, DONE, FAILED, RUNNING, Run, node, now};
use crate::survey;
use crate::wait::{jittered, wait};

/// How often a chunk is tried before the program that started the task is asked to start another.
pub const TRIES: u32 = 5;
/// The pause after a first failure. It doubles with each.
const PAUSE: Duration = Duration::from_secs(1);
/// How long after a busy server the next one is asked; after each round twice as long, to a bound.
const BUSY: Duration = Duration::from_millis(500);
const BUSY_MOST: Duration = Duration::from_secs(30);
/// How often all servers may be busy: about ten minutes.
const BUSY_ROUNDS: u32 = 25;
/// An older task has so long to notice that it is not wanted any more.
const HAND_OVER: Duration = Duration::from_secs(10);
/// The interval of looks at the claim and at the ceiling.
const LOOK: Duration = Duration::from_millis(500);
/// The interval of its records, in seconds.
const TELL: u64 = 2;
/// Most names and warnings in a record.
const MAX_NAMES: usize = 100;

/// Why a server cannot be called.
#[derive(Clone, Debug)]
pub struct ConnectError {
    /// The exit code of the program for it.
    pub code: ExitCode,
    /// For people.
    pub message: String,
    /// Whether it may be otherwise soon.
    pub passing: bool,
}

/// How a host of the pool is called: from its address as `pool.toml` has it.
pub type Connect<'a> = dyn Fn(&str, &Options) -> Result<Rendezvous, ConnectError> + Sync + 'a;

/// How a task ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// It was done before.
    Already(Done),
    /// It is done.
    Done(Done),
    /// Not now: another task is to be started later.
    Again(Failed),
    /// It makes no sense to try again.
    Failed(Failed),
    /// It was cancelled. Received data are kept.
    Stopped,
    /// Another task has taken the chunk.
    Superseded,
}

/// Whether a chunk is done, and its list is still the one that is.
///
/// # Errors
/// The run's directory cannot be read.
pub fn done(run: &Run, chunk: &Chunk) -> Result<Option<Done>, Error> {
    let done = run::read::<Done>(&run.record(DONE, chunk.number))?;
    let id = blake3::Hash::from_bytes(chunk.id).to_hex();
    let Some(done) = done.filter(|done| done.id == id.as_str()) else { return Ok(None) };
    let is_whole = match chunk.part {
        // Its sums are the file's, which is whole when all others are there and it was joined.
        Some(part) if part.is_last() => {
            run.sums(chunk.number).exists() || range_record::values(run, chunk)?.is_none()
        }
        _ => run.sums(chunk.number).exists(),
    };
    Ok(is_whole.then_some(done))
}

/// Runs one chunk. `log` is called with messages for people.
///
/// # Errors
///
/// The run's directory cannot be used. An error of the transfer is an [`Outcome`].
pub fn run_chunk(
    run: &Run,
    number: u64,
    connect: &Connect<'_>,
    cancel: &Cancel,
    log: &(dyn Fn(&str) + Sync),
) -> Result<Outcome, Error> {
    let chunk = run.chunk(number)?;
    if let Some(done) = done(run, &chunk)? {
        return Ok(Outcome::Already(done));
    }
    let mut claim = Claim::take(run, number)?;
    if let Some(done) = hand_over(run, &chunk, cancel)? {
        // The older task ended when this one came, and left that to it.
        Claim::clear(run, number, claim.number);
        return Ok(Outcome::Already(done));
    }
    claim.found(run::read(&run.record(RUNNING, number)).ok().flatten());
    let names = Arc::new(Names::read(run, &chunk)?);
    let (control, shown) = (Control::new(), Mutex::new(TaskState::default()));
    let mut task = Task { run, chunk, claim, names, connect, cancel, control, shown: &shown, log };
    let attempt = task.claim.number;
    let outcome = run_watched(&mut task, attempt);
    Claim::clear(run, number, attempt);
    let outcome = match outcome? {
        Outcome::Stopped if task.claim.is_superseded() => Outcome::Superseded,
        outcome => outcome,
    };
    let failed = run.record(FAILED, number);
    match &outcome {
        Outcome::Again(why) | Outcome::Failed(why) => run::write(&failed, why)?,
        Outcome::Done(_) => {
            let _ = fs::remove_file(failed);
        }
        _ => {}
    }
    Ok(outcome)
}

/// Waits for an older task to stop, if there is one at work.
fn hand_over(run: &Run, chunk: &Chunk, cancel: &Cancel) -> Result<Option<Done>, Error> {
    let path = run.record(RUNNING, chunk.number);
    let mut waited = Duration::ZERO;
    while waited < HAND_OVER && wait(cancel, Duration::ZERO) {
        // One that cannot be read is being written.
        let running = run::read::<Running>(&path).ok().flatten();
        if !running.is_some_and(|running| running.is_at_work(now())) {
            break;
        }
        wait(cancel, LOOK / 2);
        waited += LOOK / 2;
    }
    done(run, chunk)
}

/// The state of a task at work, for its record.
#[derive(Default)]
struct TaskState {
    host: Option<String>,
    bytes: u64,
    /// Of these, the bytes of this attempt.
    brought: u64,
    /// The warnings so far.
    warnings: Vec<String>,
}

/// Runs it, with a thread beside it that watches its claim and its rate.
fn run_watched(task: &mut Task<'_>, attempt: u64) -> Result<Outcome, Error> {
    let (run, number, cancel) = (task.run, task.chunk.number, task.cancel);
    let (control, shown) = (task.control.clone(), task.shown);
    let next = Claim::successor(run, number, attempt);
    let over = Cancel::default();
    std::thread::scope(|scope| {
        let end = over.clone();
        let look = move || {
            let mut rate = crate::pool::Watch::new(run);
            let mut written = 0;
            loop {
                if next.exists() {
                    cancel.cancel();
                }
                if rate.has_changed()
                    && let Ok(Some(ceiling)) = Ceiling::read(run)
                {
                    control.set_rate(ceiling.share());
                }
                if now() >= written + TELL && !next.exists() {
                    written = now();
                    let shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
                    let (host, bytes, brought) = (shown.host.clone(), shown.bytes, shown.brought);
                    drop(shown);
                    let (chunk, node, pid, at) = (number, node(), std::process::id(), written);
                    let running = Running { chunk, node, pid, host, attempt, bytes, brought, at };
                    // Readers of the record see an older one.
                    let _ = run::write(&run.record(RUNNING, number), &running);
                    if next.exists() {
                        // It came meanwhile, and may be over.
                        Claim::clear(run, number, attempt);
                    }
                }
                if !wait(&end, LOOK) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().spawn_scoped(scope, look);
        thread.map_err(at(&run.place, "no thread can be started to look after a chunk"))?;
        let outcome = task.work();
        over.cancel();
        outcome
    })
}

/// One task.
struct Task<'a> {
    run: &'a Run,
    chunk: Chunk,
    claim: Claim,
    names: Arc<Names>,
    connect: &'a Connect<'a>,
    cancel: &'a Cancel,
    control: Control,
    shown: &'a Mutex<TaskState>,
    log: &'a (dyn Fn(&str) + Sync),
}

/// The result of a try.
enum TryResult {
    Done(Done),
    Busy(Failed),
    Again(Failed),
    Never(Failed),
    Stopped,
}

impl Task<'_> {
    fn work(&mut self) -> Result<Outcome, Error> {
        let (mut failures, mut rounds) = (0, 0);
        loop {
            let pool = Pool::read(self.run)?;
            let busy = survey::tasks_by_host(self.run);
            let tasks = |host: &str| busy.get(host).copied().unwrap_or(0);
            let order = pool.order(&self.chunk.id, self.claim.turn, tasks);
            let mut busy = None;
            let mut moved = false;
            for host in order {
                match self.tried(host)? {
                    TryResult::Done(done) => return Ok(Outcome::Done(done)),
                    TryResult::Never(why) => return Ok(Outcome::Failed(why)),
                    TryResult::Stopped => return Ok(Outcome::Stopped),
                    TryResult::Busy(why) => {
                        (self.log)(&format!("{host} is busy: {}", why.message));
                        busy = Some(why);
                        let pause = BUSY.saturating_mul(1 << rounds.min(10)).min(BUSY_MOST);
                        if !wait(self.cancel, jittered(pause)) {
                            return Ok(Outcome::Stopped);
                        }
                    }
                    TryResult::Again(why) => {
                        failures += 1;
                        (self.log)(&format!("{host}: {} ({failures} of {TRIES})", why.message));
                        if failures >= TRIES {
                            return Ok(Outcome::Again(why));
                        }
                        if !wait(self.cancel, jittered(PAUSE * (1 << failures.min(6)))) {
                            return Ok(Outcome::Stopped);
                        }
                        moved = true;
                        break;
                    }
                }
            }
            rounds += u32::from(!moved);
            if let Some(why) = busy.filter(|_| rounds >= BUSY_ROUNDS) {
                return Ok(Outcome::Again(why));
            }
        }
    }

    fn options(&self) -> Result<Options, Error> {
        let ceiling = Ceiling::read(self.run)?.and_then(|ceiling| ceiling.share());
        let mut options = Options::default();
        options.settings.policy = Policy::Fair { ceiling };
        options.control = Some(self.control.clone());
        options.settings.overwrite = Overwrite::Always;
        (options.settings.preserve, options.settings.keep_times) = (true, true);
        options.label = Some(self.run.label(&self.chunk));
        options.manifest = Some(run::run_watched(&self.run.sums(self.chunk.number))?);
        Ok(options)
    }

    /// The same, and notes it in the claim.
    fn tried(&mut self, host: &str) -> Result<TryResult, Error> {
        self.shown(|shown| (shown.host, shown.bytes) = (Some(host.to_owned()), 0));
        self.shown(|shown| shown.brought = 0);
        self.claim.begin(host, run_clock())?;
        let came = self.once(host)?;
        let brought = self.shown(|shown| shown.brought);
        let (verdict, brought, message) = match &came {
            TryResult::Busy(_) => {
                self.claim.pass_on();
                return Ok(came);
            }
            TryResult::Done(done) => (Verdict::Done, done.bytes.saturating_sub(done.kept), None),
            TryResult::Again(why) => (Verdict::Failed, brought, Some(why.message.clone())),
            TryResult::Never(why) => (Verdict::Lost, brought, Some(why.message.clone())),
            TryResult::Stopped => (Verdict::Stopped, brought, None),
        };
        let end = End { at: run_clock(), verdict, brought, message };
        self.claim.end(end, matches!(came, TryResult::Again(_)))?;
        Ok(came)
    }

    /// Puts it on one server.
    fn once(&self, host: &str) -> Result<TryResult, Error> {
        let options = self.options()?;
        let rendezvous = match (self.connect)(host, &options) {
            Ok(rendezvous) => rendezvous,
            Err(_) if self.cancel.is_cancelled() => return Ok(TryResult::Stopped),
            Err(ConnectError { code, message, passing }) => {
                let failed = self.failed(host, code, message, !passing, Vec::new());
                return Ok(if passing {
                    TryResult::Again(failed)
                } else {
                    TryResult::Never(failed)
                });
            }
        };
        let began = run_clock();
        let (cancel, session) = (self.cancel, None);
        let server = Client { rendezvous: &rendezvous, options: &options, cancel, session };
        if self.chunk.part.is_some() {
            return self.range(host, began, &server);
        }
        let looked = Arc::new(FoundNames::default());
        let put = put(&server, self.run, &self.names, &looked, self);
        let sums = options.manifest.as_deref().unwrap_or(Path::new(""));
        let came = match put {
            Ok(summary) => self.conclude(host, began, &summary, &looked, sums)?,
            Err(error) => self.trouble(host, &error),
        };
        let _ = fs::remove_file(sums);
        Ok(came)
    }

    /// Everything that is there has come, and is verified.
    fn conclude(
        &self,
        host: &str,
        began: f64,
        summary: &Summary,
        looked: &FoundNames,
        sums: &Path,
    ) -> Result<TryResult, Error> {
        let seen = looked.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = |name: &&[u8]| !seen.contains(*name);
        let files = self.names.files.iter().map(|name| &name[..]);
        let missing: Vec<&[u8]> = files.filter(missing).collect();
        if !summary.verified {
            let why = "not everything is verified".to_owned();
            return Ok(TryResult::Again(self.failed(
                host,
                ExitCode::Unverified,
                why,
                false,
                Vec::new(),
            )));
        }
        if !missing.is_empty() {
            let count = missing.len();
            let why = format!("{count} of the files that were planned are not there any more");
            let names = missing.into_iter().take(MAX_NAMES);
            let names = names.map(printable_bytes).collect();
            return Ok(TryResult::Never(self.failed(host, ExitCode::Vanished, why, true, names)));
        }
        if summary.skipped > 0 {
            let why = format!("{} files could not be sent or stored", summary.skipped);
            let names = self.shown(|shown| shown.warnings.clone());
            return Ok(TryResult::Never(self.failed(host, ExitCode::Partial, why, true, names)));
        }
        let path = self.run.sums(self.chunk.number);
        fs::rename(sums, &path).map_err(at(&path, "cannot be written"))?;
        let changed = looked.changed.lock().unwrap_or_else(PoisonError::into_inner).len();
        let Summary { bytes, kept, files, .. } = *summary;
        self.done(host, began, [bytes, kept, files, changed as u64])
    }

    /// The chunk is done: bytes, those that were there before, files, and those that had changed.
    fn done(&self, host: &str, began: f64, came: [u64; 4]) -> Result<TryResult, Error> {
        let [bytes, kept, files, changed] = came;
        let done = Done {
            chunk: self.chunk.number,
            id: blake3::Hash::from_bytes(self.chunk.id).to_hex().to_string(),
            items: self.chunk.items,
            bytes,
            kept,
            files,
            changed,
            node: node(),
            host: host.to_owned(),
            attempt: self.claim.number,
            began,
            ended: run_clock(),
        };
        run::write(&self.run.record(DONE, self.chunk.number), &done)?;
        Ok(TryResult::Done(done))
    }

    /// The result of a try that failed: all errors are retried but those that stay.
    fn trouble(&self, host: &str, error: &TransferError) -> TryResult {
        if self.cancel.is_cancelled() {
            return TryResult::Stopped;
        }
        let never = stays(error);
        let (code, why) = (error.kind().exit_code(), error.to_string());
        let failed = self.failed(host, code, why, never, Vec::new());
        match error {
            _ if never => TryResult::Never(failed),
            _ if error.kind() == ErrorKind::Refused => TryResult::Busy(failed),
            _ => TryResult::Again(failed),
        }
    }

    fn failed(
        &self,
        host: &str,
        code: ExitCode,
        message: String,
        permanent: bool,
        names: Vec<String>,
    ) -> Failed {
        Failed {
            chunk: self.chunk.number,
            permanent,
            code: code.number(),
            message,
            names,
            node: node(),
            host: Some(host.to_owned()),
            attempt: self.claim.number,
            at: now(),
        }
    }

    fn shown<T>(&self, change: impl FnOnce(&mut TaskState) -> T) -> T {
        change(&mut self.shown.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The names that were found.
#[derive(Default)]
struct FoundNames {
    seen: Mutex<HashSet<Box<[u8]>>>,
    changed: Mutex<HashSet<[u8; 16]>>,
}

fn put(
    server: &Client<'_>,
    run: &Run,
    names: &Arc<Names>,
    looked: &Arc<FoundNames>,
    task: &Task<'_>,
) -> Result<Summary, TransferError> {
    let (parent, leaf) = run.target();
    let mut watch = TaskObserver(task);
    if !parent.is_empty() {
        server.make_directory(&parent, true, &mut watch)?;
    }
    let mut selection =
        Selection { items: vec![(run.source(), Some(leaf))], ..Selection::default() };
    let (own, found) = (Arc::clone(names), Arc::clone(looked));
    selection.only = Some(NameFilter::new(move |name, directory| {
        if directory {
            return own.directories.contains(name);
        }
        let is_own = own.files.contains(name);
        if is_own {
            found.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(name.into());
        }
        is_own
    }));
    let (own, found) = (Arc::clone(names), Arc::clone(looked));
    selection.skip = Some(SkipFilter::new(move |name, bytes, modified| {
        let (seconds, nanos) = since(modified);
        if !own.planned.contains(&stamp(name, bytes, seconds, nanos)) {
            let name = stamp(name, 0, 0, 0);
            found.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
        }
        false
    }));
    // Other files are still to be put into directories that are read-only in the end.
    selection.modes =
        Some(netblt::Modes::new(|mode, directory| if directory { mode | 0o700 } else { mode }));
    server.put(selection, &parent, &mut watch)
}

/// Sends only the directories of a run, with their own permissions and times, as the last step.
pub(crate) fn put_directories(
    server: &Client<'_>,
    run: &Run,
    names: HashSet<Box<[u8]>>,
    observer: &mut dyn Observer,
) -> Result<Summary, TransferError> {
    let (parent, leaf) = run.target();
    let items: Vec<(std::path::PathBuf, Option<OsString>)> = vec![(run.source(), Some(leaf))];
    let mut selection = Selection { items, ..Selection::default() };
    selection.only =
        Some(NameFilter::new(move |name, directory| directory && names.contains(name)));
    server.put(selection, &parent, observer)
}

/// The short list of what does not pass by itself.
fn stays(error: &TransferError) -> bool {
    use std::io;
    match error {
        TransferError::Denied { what, .. } => matches!(
            what,
            RequestErrorKind::Forbidden
                | RequestErrorKind::Exists
                | RequestErrorKind::NotADirectory
                | RequestErrorKind::IsADirectory
                | RequestErrorKind::NotUnderstood
        ),
        TransferError::File { source, .. } => {
            let kind = source.kind();
            matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
        }
        // Another machine answers in the server's place: people have to look.
        TransferError::ServerKey { .. } => true,
        error => error.kind() == ErrorKind::Usage,
    }
}

struct TaskObserver<'a>(&'a Task<'a>);

impl Observer for TaskObserver<'_> {
    fn progress(&mut self, progress: &Progress) {
        let brought = progress.stats.image_bytes;
        self.0.shown(|shown| (shown.bytes, shown.brought) = (progress.bytes, brought));
    }

    fn warn(&mut self, warning: &Warning) {
        let text = warning.to_string();
        (self.0.log)(&text);
        self.0.shown(|shown| {
            if shown.warnings.len() < MAX_NAMES {
                shown.warnings.push(text);
            }
        });
    }
}

/// Seconds since 1970, with their parts.
fn run_clock() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn few_errors_stay() {
        let file = |kind| TransferError::File {
            path: "x".into(),
            what: "open",
            source: io::Error::from(kind),
        };
        let denied = |what| TransferError::Denied { what, why: String::new() };
        for (error, never) in [
            (file(io::ErrorKind::NotFound), true),
            (file(io::ErrorKind::PermissionDenied), true),
            (file(io::ErrorKind::StorageFull), false),
            (denied(RequestErrorKind::Forbidden), true),
            (denied(RequestErrorKind::NotFound), false),
            (denied(RequestErrorKind::NoRoom), false),
            (denied(RequestErrorKind::Busy), false),
            (denied(RequestErrorKind::Failed), false),
            (TransferError::NotVerified(String::new()), false),
            (TransferError::Fault("x"), false),
        ] {
            assert_eq!(stays(&error), never, "{error:?}");
        }
    }
}
