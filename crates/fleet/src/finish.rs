//! The last steps of a run: verification, one list for `b3sum --check`, the times of directories,
//! and the removal of leftovers.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use netblt::serve::Entry;
use netblt::serve::client::{Client, RemoveOptions};
use netblt::{
    Cancel, Error as TransferError, Observer, Options, Overwrite, RequestErrorKind, Warning,
};

use crate::chunk::{Connect, ConnectError, put_directories};
use crate::error::{Error, at};
use crate::list::{EntryType, Item, Items};
use crate::names::arriving;
use crate::pool::Pool;
use crate::range_record;
use crate::run::{self, Part, Run, create, publish, run_watched};
use crate::survey::{self, State, Survey};

/// Why a server could not be asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerError {
    /// The run's directory.
    Here(Error),
    /// No server of the pool could be called; the last one's words.
    ConnectError(ConnectError),
    /// The server.
    There(TransferError),
}

impl From<Error> for ServerError {
    fn from(error: Error) -> Self {
        Self::Here(error)
    }
}

/// An observer that passes on only warnings.
struct WarningObserver<'a>(&'a (dyn Fn(&str) + Sync));

impl Observer for WarningObserver<'_> {
    fn warn(&mut self, warning: &Warning) {
        (self.0)(&warning.to_string());
    }
}

/// Asks a server of the pool, the first that answers.
fn ask<T>(
    run: &Run,
    connect: &Connect<'_>,
    cancel: &Cancel,
    options: &Options,
    mut act: impl FnMut(&Client<'_>) -> Result<T, TransferError>,
) -> Result<T, ServerError> {
    let pool = Pool::read(run)?;
    let mut last = None;
    for host in &pool.hosts {
        let rendezvous = match connect(host, options) {
            Ok(rendezvous) => rendezvous,
            Err(unmet) => {
                last = Some(ServerError::ConnectError(unmet));
                continue;
            }
        };
        match act(&Client { rendezvous: &rendezvous, options, cancel, session: None }) {
            Err(error) if error.is_retryable() => last = Some(ServerError::There(error)),
            Err(error) => return Err(ServerError::There(error)),
            Ok(answer) => return Ok(answer),
        }
    }
    let none = || Error::InvalidRequest("there is no host in the pool".to_owned()).into();
    Err(last.unwrap_or_else(none))
}

/// The contents of a directory on a server, by name.
type Found = HashMap<Vec<u8>, Entry>;

/// Compares what is done with the servers: names, kinds, lengths, and times of files, against the
/// plan. The bytes were verified when they came. `report` is called for each difference. Returns
/// how many entries were looked at, and how many differ.
///
/// # Errors
/// No server answers, or the run's directory cannot be read.
pub fn verify(
    run: &Run,
    connect: &Connect<'_>,
    cancel: &Cancel,
    report: &mut dyn FnMut(&[u8], &'static str),
) -> Result<(u64, u64), ServerError> {
    let (parent, leaf) = run.target();
    let target = if parent.is_empty() { Vec::new() } else { [&parent[..], b"/"].concat() };
    let options = Options::default();
    let quiet = |_: &str| {};
    // The contents of each directory from the top down to the present one: a walk goes down and up.
    let mut above: Vec<(Vec<u8>, Found)> = Vec::new();
    let (mut looked, mut wrong) = (0, 0);
    for chunk in run.chunks()? {
        if !matches!(survey::of(run, &chunk)?, State::Done(_)) {
            continue;
        }
        // A file is there when its ranges were joined. It is looked at once.
        let is_none = |part: Part| !part.is_last() || !run.sums(chunk.number).exists();
        if chunk.part.is_some_and(is_none) {
            continue;
        }
        for item in Items::open(&run.list(chunk.number))? {
            if cancel.is_cancelled() {
                return Err(Error::Interrupted.into());
            }
            let item = item?;
            let path = [&target[..], &arriving(leaf.as_bytes(), &item.name)].concat();
            let cut = path.iter().rposition(|byte| *byte == b'/');
            let (directory, name) = match cut {
                Some(at) => (&path[..at], &path[at + 1..]),
                None => (&b""[..], &path[..]),
            };
            let holds = |(above, _): &(Vec<u8>, Found)| {
                above.is_empty()
                    || above == directory
                    || directory.strip_prefix(&above[..]).is_some_and(|rest| rest[0] == b'/')
            };
            above.truncate(above.iter().take_while(|one| holds(one)).count());
            if above.last().is_none_or(|(last, _)| last != directory) {
                let list =
                    |server: &Client<'_>| list(server, directory, &mut WarningObserver(&quiet));
                let found = ask(run, connect, cancel, &options, list)?;
                above.push((directory.to_vec(), found));
            }
            let entry = above.last().and_then(|(_, found)| found.get(name));
            looked += 1;
            if let Some(why) = differs(&item, entry) {
                wrong += 1;
                report(&path, why);
            }
        }
    }
    Ok((looked, wrong))
}

fn list(
    server: &Client<'_>,
    directory: &[u8],
    observer: &mut dyn Observer,
) -> Result<Found, TransferError> {
    let mut found = Found::new();
    let listed = server.list(directory, observer, |entry| {
        found.insert(entry.name.clone(), entry);
        Ok(())
    });
    match listed {
        Err(TransferError::Denied { what: RequestErrorKind::NotFound, .. }) => Ok(Found::new()),
        listed => listed.map(|()| found),
    }
}

fn differs(item: &Item, entry: Option<&Entry>) -> Option<&'static str> {
    use netblt::serve::EntryType as There;
    let Some(entry) = entry else { return Some("is not there") };
    let same = match item.sort {
        EntryType::File | EntryType::Range { .. } => entry.sort == There::File,
        EntryType::Link => entry.sort == There::Link,
        EntryType::Directory => entry.sort == There::Directory,
    };
    match item.sort {
        _ if !same => Some("is something else there"),
        EntryType::File if entry.length != item.bytes => Some("has another length there"),
        EntryType::Range { total, .. } if entry.length != total => Some("has another length there"),
        EntryType::File | EntryType::Range { .. } if entry.modified != item.modified => {
            Some("has another time there")
        }
        _ => None,
    }
}

/// The result of [`manifest`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Manifest {
    /// The names and BLAKE3 of all files of chunks that are done, as `b3sum --check` reads them in
    /// the directory above the target.
    pub sums: PathBuf,
    /// A line of JSON for each chunk that is not done.
    pub failed: PathBuf,
    /// How far the run is.
    pub survey: Survey,
}

/// Writes a list of all finished files, and one of the others.
///
/// # Errors
/// The run's directory cannot be used.
pub fn manifest(run: &Run) -> Result<Manifest, Error> {
    let (sums, failed) = (run.place.join("manifest.b3"), run.place.join("failed.jsonl"));
    let new = run_watched(&sums)?;
    let file = create(&new).map_err(at(&new, "cannot be written"))?;
    let mut out = BufWriter::new(file);
    let (mut lines, mut copied) = (String::new(), Ok(()));
    let survey = survey::survey(run, |chunk, state| match state {
        State::Done(_) if copied.is_ok() => {
            let path = run.sums(chunk.number);
            // The last range of a file that waits for others.
            if chunk.part.is_some_and(Part::is_last) && !path.exists() {
                return;
            }
            let open = File::open(&path);
            let bytes = open.and_then(|mut file| std::io::copy(&mut file, &mut out));
            copied = bytes.map(|_| ()).map_err(at(&path, "cannot be copied"));
        }
        State::Done(_) => {}
        State::Failed(failed) => {
            lines.push_str(&serde_json::to_string(failed).unwrap_or_default());
            lines.push('\n');
        }
        State::Running(_) | State::Waiting => {
            let message = if matches!(state, State::Waiting) { "waits" } else { "is at work" };
            let line = serde_json::json!({
                "chunk": chunk.number, "permanent": false, "message": message,
            });
            lines.push_str(&format!("{line}\n"));
        }
    })?;
    copied?;
    let synced = out.flush().and_then(|()| run::sync(out.get_ref()));
    synced.map_err(at(&new, "cannot be written"))?;
    fs::rename(&new, &sums).map_err(at(&sums, "cannot be written"))?;
    publish(&failed, lines.as_bytes())?;
    Ok(Manifest { sums, failed, survey })
}

/// Gives all directories that were planned their permissions and times, last of all, since every
/// file that came later has changed them. Answers how many that are.
///
/// # Errors
/// No server does it, or the run's directory cannot be read.
pub fn directories(
    run: &Run,
    connect: &Connect<'_>,
    cancel: &Cancel,
    log: &(dyn Fn(&str) + Sync),
) -> Result<u64, ServerError> {
    let leaf = run.target().1;
    let mut names: HashSet<Box<[u8]>> = HashSet::new();
    for number in 0..run.head.chunks {
        for item in Items::open(&run.list(number))? {
            let item = item?;
            if item.sort == EntryType::Directory {
                names.insert(arriving(leaf.as_bytes(), &item.name).into());
            }
        }
    }
    let count = names.len() as u64;
    if count == 0 {
        return Ok(0);
    }
    let mut options = Options::default();
    options.settings.overwrite = Overwrite::Always;
    (options.settings.preserve, options.settings.keep_times) = (true, true);
    options.label = Some(run.last_label());
    ask(run, connect, cancel, &options, |server| {
        put_directories(server, run, names.clone(), &mut WarningObserver(log))
    })?;
    Ok(count)
}

/// Removes the leftovers of unfinished chunks on the servers, and from the run's directory the
/// records of tasks that have ended. Returns how many chunks had leftovers.
///
/// # Errors
/// A task is at work; no server answers; or the run's directory cannot be used.
pub fn clean(run: &Run, connect: &Connect<'_>, cancel: &Cancel) -> Result<u64, ServerError> {
    let mut left = Vec::new();
    let mut broken = Vec::new();
    let survey = survey::survey(run, |chunk, state| match chunk.part {
        // Of a file that was not joined all ranges go, also finished ones.
        Some(part) if part.is_last() && !run.sums(chunk.number).exists() => {
            left.push(format!(".netblt-ranges-{}", hex(run.file_label(chunk))));
            broken.push(chunk.clone());
        }
        None if !matches!(state, State::Done(_)) => {
            left.push(format!(".netblt-partial-{}", hex(run.label(chunk))));
        }
        _ => {}
    })?;
    if survey.running > 0 {
        let why = format!("{} tasks are at work; stop them first", survey.running);
        return Err(Error::InvalidRequest(why).into());
    }
    let parent = run.target().0;
    let (options, quiet) = (Options::default(), |_: &str| {});
    let mut removed = 0;
    for leaf in left {
        let between = if parent.is_empty() { "" } else { "/" };
        let path = [&parent[..], between.as_bytes(), OsStr::new(&leaf).as_bytes()].concat();
        let gone = ask(run, connect, cancel, &options, |server| {
            match server.remove(&path, RemoveOptions::TREE, &mut WarningObserver(&quiet)) {
                Err(TransferError::Denied { what: RequestErrorKind::NotFound, .. }) => Ok(0),
                removed => removed,
            }
        })?;
        removed += u64::from(gone > 0);
    }
    // Chunks that could not be removed from a server stay known.
    broken.iter().try_for_each(|chunk| range_record::forget(run, chunk))?;
    survey::sweep(run)?;
    Ok(removed)
}

fn hex(label: [u8; 32]) -> String {
    blake3::Hash::from_bytes(label).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_on_the_server_are_compared_with_the_plan() {
        let item = |sort, bytes| Item { sort, bytes, modified: (5, 6), name: b"a".to_vec() };
        assert_eq!(differs(&item(EntryType::File, 3), None), Some("is not there"));
    }
}
