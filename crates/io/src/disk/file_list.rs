//! The list of files to send: a walk through files and directories, before anything is sent.
//!
//! The walk is plain and sorted, so that the same tree makes the same list. Links that the user
//! names are followed. Links inside trees are sent as links, and several names of one file as hard
//! links. A file that cannot be read, or has no content to send (pipes, sockets, devices), stops
//! the transfer here, before the other side has seen anything, unless it was found in a directory
//! and is to be left out.

mod walk;

use std::fmt;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netblt_proto::content::{FileRange, Kind, check_name};

use crate::cancel::Cancel;
use crate::disk::attributes::FileTimes;
use crate::disk::reading::{Reading, Readings};
use crate::error::{Error, UNEXPECTED, Unsendable, Warning, file_error, shown};
use crate::memory_budget::{MemoryLease, MemoryShare};
use crate::options::{Input, Modes, Selection, Source};

use walk::Walk;

/// So many entries are found before the connection opens. The length of a tree with no more can be
/// announced at the opening. Of a larger one the rest is found while it is sent, and never held.
const AHEAD: usize = 1 << 16;
/// And the entries of a tree that a client names take at most so many bytes of memory.
const AHEAD_BYTES: u64 = 4 << 20;

/// Most warnings that come while a list is sent and are about more than one file each.
const MAX_NOTES: usize = 100;

/// The list of files to send, in order. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct FileList {
    pub(crate) inner: Arc<ListInner>,
}

#[derive(Debug)]
pub(crate) struct ListInner {
    /// The first of them, or all.
    pub(crate) entries: Vec<ListEntry>,
    /// The state of the walk after those.
    rest: Option<Walk>,
    arguments: Vec<Argument>,
    stream: SharedStream,
    total_bytes: Option<u64>,
    data_bytes: Option<u64>,
    files: u64,
    warnings: Vec<Warning>,
    skipped: u64,
    /// Unreadable files are left out.
    pub(crate) lenient: bool,
    modes: Option<Modes>,
    /// A file that changes while it is read is sent as it was read.
    pub(crate) allows_changes: bool,
    /// Links were followed, so the reader follows them, too.
    pub(crate) follow: bool,
    /// The one file is not sent as a whole, but this of it, as if it were one.
    pub(crate) range: Option<FileRange>,
    late: Mutex<Late>,
    /// Memory for the entries.
    _memory: MemoryLease,
}

/// Results since the list was made.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// The files that were skipped or left out and why, for the user.
    pub(crate) warnings: Vec<Warning>,
    /// Entries that could not be read when their turn came.
    pub(crate) withdrawn: u64,
    /// Those of them that are not the ones that are expected.
    pub(crate) unexpected: u64,
    /// Files beyond those that were known.
    pub(crate) files: u64,
    /// How many more files cannot be read.
    pub(crate) skipped: u64,
    /// Files that were read to their ends, if they are to be reported.
    pub(crate) readings: Readings,
}

/// How far a reader of a list is.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    index: usize,
    walk: Option<Walk>,
}

/// A file, directory or stream of the list.
#[derive(Clone, Debug)]
pub(crate) struct ListEntry {
    pub(crate) kind: Kind,
    /// Which argument it came with.
    argument: u32,
    /// Its name for the receiver. The first part stands for the argument.
    pub(crate) name: Box<[u8]>,
    /// Bytes in it when the list was made; unknown (0) for a stream; for a hard link which entry
    /// it is another name of.
    pub(crate) length: u64,
    /// The times and mode of a file that was just found empty.
    pub(crate) empty: Option<FileTimes>,
}

impl ListEntry {
    fn new(kind: Kind, length: u64) -> Self {
        Self { kind, argument: 0, name: Box::default(), length, empty: None }
    }

    /// Bytes of memory that it takes.
    fn cost(&self) -> u64 {
        size_of::<Self>() as u64 + self.name.len() as u64
    }

    /// Bytes that it brings: another name of a file brings none.
    pub(crate) fn bytes(&self) -> u64 {
        if self.kind == Kind::HardLink { 0 } else { self.length }
    }
}

/// A path that is given.
#[derive(Clone, Debug)]
struct Argument {
    path: PathBuf,
    /// Only the contents of this directory are sent: names are relative to it.
    contents: bool,
}

/// The place of an entry.
pub(crate) enum EntryPlace<'a> {
    /// An argument itself: links in it are the user's own.
    Argument(&'a Path),
    /// Beneath an argument that is a directory.
    Beneath {
        argument: &'a Path,
        /// Relative to it.
        name: &'a [u8],
    },
}

/// The one stream of a list, until a reader takes it.
#[derive(Default)]
pub(crate) struct SharedStream(Mutex<Option<Box<dyn Read + Send>>>);

impl SharedStream {
    /// The stream, once.
    pub(crate) fn take(&self) -> Option<Box<dyn Read + Send>> {
        self.0.lock().ok()?.take()
    }
}

impl fmt::Debug for SharedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream(..)")
    }
}

impl FileList {
    /// Walks the source, unless it is cancelled meanwhile. `lenient`: unreadable files are left
    /// out.
    pub(crate) fn new(source: Source, lenient: bool, cancel: &Cancel) -> Result<Self, Error> {
        match source {
            Source::Paths(paths) => Self::walk(&paths.into(), lenient, cancel, AHEAD),
            Source::Selection(selection) => Self::walk(&selection, lenient, cancel, AHEAD),
            Source::Stream(input) => Self::stream(input),
        }
    }

    /// One stream.
    pub(crate) fn stream(input: Input) -> Result<Self, Error> {
        let Input { name, label, reader } = input;
        check_name(name.as_bytes()).map_err(|why| bad_name(name.as_bytes(), why))?;
        let entry = ListEntry { name: name.as_bytes().into(), ..ListEntry::new(Kind::Stream, 0) };
        let inner = ListInner {
            entries: vec![entry],
            rest: None,
            arguments: vec![Argument { path: PathBuf::from(label), contents: false }],
            stream: SharedStream(Mutex::new(Some(reader))),
            total_bytes: None,
            data_bytes: None,
            files: 1,
            warnings: Vec::new(),
            skipped: 0,
            lenient: false,
            modes: None,
            allows_changes: false,
            follow: false,
            range: None,
            late: Mutex::default(),
            _memory: MemoryLease::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Walks a selection of one item, which belongs to this handle: no file outside of it is found.
    /// Memory for its names is taken from this share.
    pub(crate) fn beneath(
        selection: &Selection,
        root: Arc<OwnedFd>,
        cancel: &Cancel,
        memory: &MemoryShare,
    ) -> Result<Self, Error> {
        let walk = Walk::new(cancel, selection, true)?.beneath(root, memory.lease());
        Self::take(walk, selection, true, (AHEAD, AHEAD_BYTES, memory.lease()))
    }

    /// Finds the first `ahead` entries.
    pub(crate) fn walk(
        selection: &Selection,
        lenient: bool,
        cancel: &Cancel,
        ahead: usize,
    ) -> Result<Self, Error> {
        let ahead = (ahead, u64::MAX, MemoryLease::default());
        Self::take(Walk::new(cancel, selection, lenient)?, selection, lenient, ahead)
    }

    fn take(
        mut walk: Walk,
        selection: &Selection,
        lenient: bool,
        (ahead, ahead_bytes, mut memory): (usize, u64, MemoryLease),
    ) -> Result<Self, Error> {
        let (mut entries, mut all, mut bytes) = (Vec::new(), false, 0);
        while entries.len() < ahead && bytes < ahead_bytes && !all {
            match walk.next()? {
                Some(entry) => {
                    let cost = entry.cost();
                    if !memory.take(cost) {
                        return Err(walk::full());
                    }
                    bytes += cost;
                    // It may be long until its turn comes: then it is examined again.
                    entries.push(ListEntry { empty: None, ..entry });
                }
                None => all = true,
            }
        }
        // If files are skipped, it may be all of them, and a directory may be empty.
        if entries.is_empty() && selection.skip.is_none() && selection.contents.is_empty() {
            return Err(Unsendable::Nothing.into());
        }
        let mut counts = walk.take_counts();
        if let Some(range) = selection.range {
            let [entry] = &mut entries[..] else { return Err(Unsendable::Range.into()) };
            let is_it = entry.kind == Kind::File && entry.length == range.total;
            if !is_it || !range.is_good() || !all {
                return Err(Unsendable::Range.into());
            }
            entry.length = range.length;
            (counts.bytes, counts.data_bytes) = (range.length, range.length);
        }
        let inner = ListInner {
            entries,
            arguments: walk.arguments(),
            rest: (!all).then_some(walk),
            stream: SharedStream::default(),
            total_bytes: all.then_some(counts.bytes),
            data_bytes: all.then_some(counts.data_bytes),
            files: counts.files,
            warnings: counts.take_warnings(),
            skipped: counts.skipped,
            lenient,
            modes: selection.modes.clone(),
            allows_changes: selection.allow_changes,
            follow: selection.follow,
            range: selection.range,
            late: Mutex::default(),
            _memory: memory,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// A reader begins, or starts over.
    pub(crate) fn begin(&self) -> Cursor {
        *self.late() = Late::default();
        Cursor::default()
    }

    /// Whether it is a stream, which is read once.
    pub(crate) fn is_stream(&self) -> bool {
        self.inner.entries.iter().any(|entry| entry.kind == Kind::Stream)
    }

    /// File bytes in all, if they are known.
    pub(crate) fn total_bytes(&self) -> Option<u64> {
        self.inner.total_bytes
    }

    /// The same without holes.
    pub(crate) fn data_bytes(&self) -> Option<u64> {
        self.inner.data_bytes
    }

    /// Files found before anybody was called, the stream among them; directories are not counted.
    pub(crate) fn files(&self) -> u64 {
        self.inner.files
    }

    /// Files in all, if that is known.
    pub(crate) fn files_in_all(&self) -> Option<u64> {
        self.inner.rest.is_none().then_some(self.inner.files)
    }

    /// How many files could not be read when the list was made.
    pub(crate) fn skipped(&self) -> u64 {
        self.inner.skipped
    }

    /// Something cannot be read now that its turn has come: it is left out, or ends all.
    pub(crate) fn withdraw(&self, error: Error) -> Result<(), Error> {
        match error {
            Error::Unexpected { name, why } if self.inner.lenient => {
                let (path, what) = (shown(&name), UNEXPECTED);
                let mut late = self.late();
                late.warnings.push(Warning::Unreadable { path, what, why });
                late.withdrawn += 1;
                late.unexpected += 1;
                Ok(())
            }
            Error::File { path, what, source } if self.inner.lenient => {
                let mut late = self.late();
                late.warnings.push(unreadable(&path, what, &source));
                late.withdrawn += 1;
                Ok(())
            }
            error => Err(error),
        }
    }

    /// Warns the user of something that is left out.
    pub(crate) fn note(&self, warning: Warning) {
        let mut late = self.late();
        late.skipped += 1;
        if late.warnings.len() < MAX_NOTES {
            late.warnings.push(warning);
        }
    }

    /// A warning about something that is sent all the same.
    pub(crate) fn warn(&self, warning: Warning) {
        let mut late = self.late();
        if late.warnings.len() < MAX_NOTES {
            late.warnings.push(warning);
        }
    }

    /// Warns that the manifest could not be written, whatever other warnings there are.
    pub(crate) fn warn_of_manifest(&self, warning: Warning) {
        self.late().warnings.push(warning);
    }

    /// A file was read to its end, which is reported when the receiver has it.
    pub(crate) fn was_read(&self, reading: &Reading) {
        self.late().readings.add(reading);
    }

    /// The results since the list was made.
    pub(crate) fn take_late(&self) -> Late {
        std::mem::take(&mut self.late())
    }

    fn late(&self) -> MutexGuard<'_, Late> {
        self.inner.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The skipped files and why, for the user.
    pub(crate) fn warnings(&self) -> &[Warning] {
        &self.inner.warnings
    }
}

impl Cursor {
    /// The next entry, if there is one.
    pub(crate) fn next(&mut self, list: &FileList) -> Result<Option<ListEntry>, Error> {
        if let Some(entry) = list.inner.entries.get(self.index) {
            self.index += 1;
            return Ok(Some(entry.clone()));
        }
        if self.walk.is_none() {
            self.walk = list.inner.rest.clone();
        }
        let Some(walk) = &mut self.walk else { return Ok(None) };
        let next = walk.next()?;
        if next.is_none() {
            let (mut late, mut counts) = (list.late(), walk.take_counts());
            late.warnings.extend(counts.take_warnings());
            late.files += counts.files;
            late.skipped += counts.skipped;
        }
        Ok(next)
    }
}

impl ListInner {
    pub(crate) fn take_stream(&self) -> Option<Box<dyn Read + Send>> {
        self.stream.take()
    }

    /// The permissions to send for an entry that has these.
    pub(crate) fn mode(&self, mode: u32, kind: Kind) -> u32 {
        let changed = |modes: &Modes| modes.of(mode, kind == Kind::Directory);
        self.modes.as_ref().map_or(mode, changed)
    }

    pub(crate) fn place<'a>(&'a self, entry: &'a ListEntry) -> EntryPlace<'a> {
        let given = self.arguments.get(entry.argument as usize);
        let argument = given.map_or(Path::new(""), |argument| &argument.path);
        if given.is_some_and(|argument| argument.contents) {
            return EntryPlace::Beneath { argument, name: &entry.name };
        }
        match entry.name.iter().position(|byte| *byte == b'/') {
            Some(at) => {
                EntryPlace::Beneath { argument, name: entry.name.get(at + 1..).unwrap_or_default() }
            }
            None => EntryPlace::Argument(argument),
        }
    }
}

impl EntryPlace<'_> {
    /// The path, for the user.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Argument(path) => path.to_path_buf(),
            Self::Beneath { argument, name } => argument.join(std::ffi::OsStr::from_bytes(name)),
        }
    }
}

fn bad_name(name: &[u8], why: &'static str) -> Error {
    Unsendable::Name { name: shown(name), why }.into()
}

/// Under which name an argument arrives.
fn base_name(path: &Path) -> Result<Vec<u8>, Error> {
    if let Some(name) = path.file_name() {
        return Ok(name.as_bytes().to_vec());
    }
    // `.`, `..` and the like have a name of their own elsewhere.
    let whole = path.canonicalize().map_err(|e| file_error(path, "cannot be sent", e))?;
    match whole.file_name() {
        Some(name) => Ok(name.as_bytes().to_vec()),
        None => Err(Unsendable::NoName(shown(whole.as_os_str().as_bytes())).into()),
    }
}

fn unreadable(path: &Path, what: &'static str, source: &io::Error) -> Warning {
    let path = shown(path.as_os_str().as_bytes());
    Warning::Unreadable { path, what, why: source.to_string() }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::error::RequestErrorKind;
    use crate::memory_budget::MemoryBudget;

    /// The list of a client's request, with so many bytes of memory for it, and the memory taken.
    fn listed(tree: &Path, memory: u64) -> (Result<FileList, Error>, MemoryBudget<u8>) {
        let root = Arc::new(OwnedFd::from(fs::File::open(tree).unwrap()));
        let items = vec![(tree.to_owned(), Some("tree".into()))];
        let selection = Selection { items, ..Selection::default() };
        let mut budget = MemoryBudget::new(2 * memory);
        let list = FileList::beneath(&selection, root, &Cancel::default(), &budget.share(1));
        (list, budget)
    }

    fn count(list: &FileList) -> Result<usize, Error> {
        let mut cursor = list.begin();
        let mut count = 0;
        while cursor.next(list)?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    #[test]
    fn names_that_a_client_asks_for_take_no_more_memory_than_it_may_have() {
        let tree = tempfile::tempdir().unwrap();
        for number in 0..1000 {
            fs::write(tree.path().join(format!("{}{number}", "n".repeat(200))), b"").unwrap();
        }
        let (list, budget) = listed(tree.path(), 10 << 20);
        let list = list.unwrap();
        assert_eq!(count(&list).unwrap(), 1001);
        // The names of the directory, and the entries found ahead.
        assert!((200_000..700_000).contains(&budget.taken()), "{}", budget.taken());
        drop(list);
        assert_eq!(budget.taken(), 0);
        for memory in [1000, 100_000, 300_000] {
            let (list, budget) = listed(tree.path(), memory);
            let denied = list.map(|_| ()).unwrap_err();
            assert!(
                matches!(denied, Error::Denied { what: RequestErrorKind::Busy, .. }),
                "{denied}"
            );
            assert_eq!(budget.taken(), 0);
        }
    }

    /// A directory of more names than are held of one.
    #[test]
    fn a_directory_is_read_again_for_more_names_than_are_held_of_it() {
        let tree = tempfile::tempdir().unwrap();
        for number in 0..300 {
            fs::write(tree.path().join(format!("{number:03}")), b"").unwrap();
        }
        let items = vec![(tree.path().to_owned(), Some("tree".into()))];
        let selection = Selection { items, ..Selection::default() };
        let mut walk = Walk::new(&Cancel::default(), &selection, true).unwrap();
        walk.hold_children(7);
        let mut names = Vec::new();
        while let Some(entry) = walk.next().unwrap() {
            names.push(entry.name);
        }
        let sent: Vec<Box<[u8]>> =
            (0..300).map(|n| format!("tree/{n:03}").into_bytes().into()).collect();
        assert_eq!(names.split_first().unwrap().1, sent);
    }
}
