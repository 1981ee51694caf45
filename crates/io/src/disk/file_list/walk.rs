//! The walk through files and directories, entry by entry. It never holds more than one directory's
//! names, and a copy of it continues from the same entry.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use netblt_proto::content::{Kind, check_name};
use netblt_proto::limits::MAX_FILES;
use rustix::fs::{Mode, OFlags};

use super::{Argument, ListEntry, base_name};
use crate::cancel::Cancel;
use crate::disk::exclude::Exclude;
use crate::disk::safe_open;
use crate::disk::staging;
use crate::disk::stat::{FileStat, reports_lengths};
use crate::error::{Error, RequestErrorKind, Unsendable, Warning, file_error, shown, shown_path};
use crate::memory_budget::MemoryLease;
use crate::options::{NameFilter, Selection, SkipFilter};

/// Most warnings that are worded; the rest is counted.
const MAX_WARNINGS: usize = 100;

/// A walk underway.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    cancel: Cancel,
    items: Arc<[(PathBuf, Operand)]>,
    exclude: Arc<Exclude>,
    only: Option<NameFilter>,
    skip: Option<SkipFilter>,
    /// Links are followed.
    follow: bool,
    /// The one item is this directory, and is not left whatever becomes of it meanwhile.
    root: Option<Arc<OwnedFd>>,
    lenient: bool,
    /// The next item.
    item: usize,
    here: Option<Here>,
    /// Directories still to be walked, the next one last.
    todo: Vec<(PathBuf, Vec<u8>)>,
    /// Files of several names, by device and inode: which entry came first.
    links: HashMap<(u64, u64), u64>,
    entries: u64,
    counts: WalkCounts,
    /// Memory for names, and how many names of one directory are held at once.
    memory: MemoryLease,
    most_children: usize,
}

/// How something is sent that was given.
#[derive(Debug)]
enum Operand {
    /// Under this name.
    Named(Vec<u8>),
    /// Its contents, with these names.
    Contents(Vec<OsString>),
}

/// The counts of a walk.
#[derive(Clone, Debug, Default)]
pub(super) struct WalkCounts {
    /// Files, the stream among them; directories are not counted.
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Those of them that take space on a disk.
    pub(super) data_bytes: u64,
    /// How many files cannot be read.
    pub(super) skipped: u64,
    warnings: Vec<Warning>,
    unworded: u64,
}

/// A directory whose names are known.
#[derive(Clone, Debug)]
struct Here {
    /// Keeps `path` valid, if that is a handle's. The directory's files are found from it.
    handle: Arc<OwnedFd>,
    /// One stat of an empty file in it is enough.
    reports_lengths: bool,
    path: PathBuf,
    /// Under which it goes; of one that is not sent itself nothing.
    name: Vec<u8>,
    children: Arc<Children>,
    next: usize,
    directories: Vec<(PathBuf, Vec<u8>)>,
}

/// Names in a directory, sorted.
#[derive(Debug)]
struct Children {
    list: Vec<Child>,
    /// There may be others behind the last one.
    more: bool,
    _memory: MemoryLease,
}

impl Children {
    /// All there are.
    fn of(list: Vec<Child>) -> Self {
        Self { list, more: false, _memory: MemoryLease::default() }
    }
}

#[derive(Debug)]
struct Child {
    name: Box<[u8]>,
    /// `None` if that cannot be found.
    kind: Option<fs::FileType>,
}

impl Child {
    /// Bytes of memory that it takes.
    fn cost(&self) -> u64 {
        self.name.len() as u64 + NAME_BYTES
    }
}

/// Memory of a name beyond its bytes.
const NAME_BYTES: u64 = 64;
/// The most names of a client's directory that are held at once. After them it is read again.
const MOST_CHILDREN: usize = 1 << 16;
const NO_MEMORY: &str = "there is no memory for the list of these files; ask for fewer at a time, \
                         or try again later";

/// There is no memory for more names.
pub(super) fn full() -> Error {
    Error::Denied { what: RequestErrorKind::Busy, why: NO_MEMORY.to_owned() }
}

/// A path that cannot be sent: what cannot be done, and why.
type Unread = (&'static str, io::Error);

impl Walk {
    pub(super) fn new(
        cancel: &Cancel,
        selection: &Selection,
        lenient: bool,
    ) -> Result<Self, Error> {
        let (mut items, mut names) = (Vec::new(), HashMap::new());
        let mut add = |name: &[u8], path: &Path| {
            if name.contains(&b'/') {
                return Err(super::bad_name(name, "it has several parts"));
            }
            let Some(other) = names.insert(name.to_vec(), path.to_path_buf()) else {
                return Ok(());
            };
            let (first, second, name) = (shown_path(&other), shown_path(path), shown(name));
            Err(Unsendable::SameName { first, second, name }.into())
        };
        for (path, name) in &selection.items {
            let name = match name {
                Some(name) => name.as_bytes().to_vec(),
                None => base_name(path)?,
            };
            add(&name, path)?;
            // A named file that does not exist was mistyped.
            argument(path).map_err(|(what, source)| file_error(path, what, source))?;
            items.push((path.clone(), Operand::Named(name)));
        }
        for (path, children) in &selection.contents {
            let mut children = children.clone();
            children.sort_unstable();
            children.dedup();
            children.iter().try_for_each(|name| add(name.as_bytes(), &path.join(name)))?;
            items.push((path.clone(), Operand::Contents(children)));
        }
        Ok(Self {
            cancel: cancel.clone(),
            items: items.into(),
            exclude: Arc::new(Exclude::new(&selection.exclude)?),
            only: selection.only.clone(),
            skip: selection.skip.clone(),
            follow: selection.follow,
            root: None,
            lenient,
            item: 0,
            here: None,
            todo: Vec::new(),
            links: HashMap::new(),
            entries: 0,
            counts: WalkCounts::default(),
            memory: MemoryLease::default(),
            most_children: usize::MAX,
        })
    }

    /// Everything is found from this handle of the one item, for a client that has this memory.
    pub(super) fn beneath(self, root: Arc<OwnedFd>, memory: MemoryLease) -> Self {
        Self { root: Some(root), memory, most_children: MOST_CHILDREN, ..self }
    }

    /// Holds so many names of one directory at once.
    #[cfg(test)]
    pub(super) fn hold_children(&mut self, most: usize) {
        self.most_children = most;
    }

    /// Takes memory for names.
    fn hold(&mut self, bytes: u64) -> Result<(), Error> {
        if self.memory.take(bytes) { Ok(()) } else { Err(full()) }
    }

    /// A directory is walked later.
    fn hold_directory(
        &mut self,
        here: &mut Here,
        path: PathBuf,
        name: Vec<u8>,
    ) -> Result<(), Error> {
        self.hold(directory_cost(&path, &name))?;
        here.directories.push((path, name));
        Ok(())
    }

    /// The counts since the last call.
    pub(super) fn take_counts(&mut self) -> WalkCounts {
        std::mem::take(&mut self.counts)
    }

    /// The paths of the items.
    pub(super) fn arguments(&self) -> Vec<Argument> {
        let argument = |(path, item): &(PathBuf, Operand)| {
            let contents = matches!(item, Operand::Contents(_));
            Argument { path: path.clone(), contents }
        };
        self.items.iter().map(argument).collect()
    }

    /// The next entry, if there is one.
    pub(super) fn next(&mut self) -> Result<Option<ListEntry>, Error> {
        loop {
            if self.cancel.is_cancelled() {
                return Err(Error::Interrupted);
            }
            let found = if let Some(mut here) = self.here.take() {
                let child = here.children.list.get(here.next);
                match child.map(|child| (child.name.clone(), child.kind)) {
                    Some((leaf, kind)) => {
                        here.next += 1;
                        let found = self.child(&mut here, &leaf, kind);
                        self.here = Some(here);
                        found?
                    }
                    None if here.children.more => {
                        self.read_on(&mut here)?;
                        self.here = Some(here);
                        None
                    }
                    None => {
                        self.todo.extend(here.directories.into_iter().rev());
                        None
                    }
                }
            } else if let Some((path, name)) = self.todo.pop() {
                self.memory.give_back(directory_cost(&path, &name));
                self.enter(path, name)?
            } else if let Some((path, item)) = Arc::clone(&self.items).get(self.item) {
                self.item += 1;
                match item {
                    Operand::Named(name) => self.argument(path.clone(), name.clone())?,
                    Operand::Contents(children) => self.enter_contents(path, children)?,
                }
            } else {
                return Ok(None);
            };
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    fn argument(&mut self, path: PathBuf, name: Vec<u8>) -> Result<Option<ListEntry>, Error> {
        match argument(&path) {
            Ok(metadata) if !self.is_meant(&name, metadata.is_dir()) => Ok(None),
            Ok(metadata) if metadata.is_dir() => {
                self.hold(directory_cost(&path, &name))?;
                self.todo.push((path, name));
                Ok(None)
            }
            Ok(metadata) if self.is_passed_over(&name, &FileStat::from(&metadata)) => Ok(None),
            Ok(metadata) => self.content(name, &FileStat::from(&metadata)),
            // It was there a moment ago.
            Err(unread) => self.unread(&path, name, unread),
        }
    }

    /// Enters a directory that is not sent itself.
    fn enter_contents(
        &mut self,
        path: &Path,
        children: &[OsString],
    ) -> Result<Option<ListEntry>, Error> {
        let handle = match safe_open::open_directory(path) {
            Ok(handle) => Arc::new(handle),
            Err(error) => return self.unread(path, Vec::new(), ("cannot be listed", error)),
        };
        let child = |name: &OsString| {
            let kind = fs::symlink_metadata(path.join(name)).ok().map(|found| found.file_type());
            Child { name: name.as_bytes().into(), kind }
        };
        self.here = Some(Here {
            reports_lengths: self.lenient && reports_lengths(&handle),
            handle,
            path: path.to_path_buf(),
            name: Vec::new(),
            children: Arc::new(Children::of(children.iter().map(child).collect())),
            next: 0,
            directories: Vec::new(),
        });
        Ok(None)
    }

    fn enter(&mut self, path: PathBuf, name: Vec<u8>) -> Result<Option<ListEntry>, Error> {
        let opened = self.handle(&name).and_then(|handle| {
            let (handle, path) = match handle {
                Some(handle) => (Arc::clone(&handle), safe_open::path_of(&handle)),
                None => (Arc::new(safe_open::open_directory(&path)?), path.clone()),
            };
            Ok((self.children(&path, &[])?, path, handle))
        });
        match opened {
            Ok((children, path, handle)) => {
                let here = Here {
                    reports_lengths: self.lenient && reports_lengths(&handle),
                    handle,
                    path,
                    name: name.clone(),
                    children: Arc::new(children),
                    next: 0,
                    directories: Vec::new(),
                };
                self.here = Some(here);
                self.entry(Kind::Directory, name, 0)
            }
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Err(full()),
            Err(error) => self.unread(&path, name, ("cannot be listed", error)),
        }
    }

    /// The next names of a directory that has more than are held at once.
    fn read_on(&self, here: &mut Here) -> Result<(), Error> {
        let last = here.children.list.last().map(|child| child.name.clone()).unwrap_or_default();
        let children = self.children(&here.path, &last).map_err(|error| match error.kind() {
            io::ErrorKind::OutOfMemory => full(),
            _ => file_error(&here.path, "cannot be listed", error),
        })?;
        (here.children, here.next) = (Arc::new(children), 0);
        Ok(())
    }

    /// The directory that goes under this name, if it is not found by its path.
    fn handle(&self, name: &[u8]) -> io::Result<Option<Arc<OwnedFd>>> {
        let Some(root) = &self.root else { return Ok(None) };
        let below = name.iter().position(|byte| *byte == b'/').map_or(name.len(), |at| at + 1);
        let below = name.get(below..).unwrap_or_default();
        Ok(Some(Arc::new(safe_open::directory(root.as_fd(), below)?)))
    }

    /// The contents of a directory after a name, sorted; only the first of them if they are many,
    /// and not all once it is cancelled.
    fn children(&self, path: &Path, after: &[u8]) -> io::Result<Children> {
        let (mut list, mut memory, mut more) = (Vec::new(), self.memory.another(), false);
        let mut cut = |list: &mut Vec<Child>, memory: &mut MemoryLease| {
            list.sort_unstable_by(|a: &Child, b| a.name.cmp(&b.name));
            if list.len() > self.most_children {
                let beyond = list.drain(self.most_children..);
                memory.give_back(beyond.map(|child| child.cost()).sum());
                more = true;
            }
        };
        // A directory of millions takes a while to list.
        for entry in fs::read_dir(path)?.take_while(|_| !self.cancel.is_cancelled()) {
            let entry = entry?;
            let name = entry.file_name();
            if name.as_bytes() <= after {
                continue;
            }
            let child = Child { name: name.as_bytes().into(), kind: Some(entry.file_type()?) };
            if !memory.take(child.cost()) {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            list.push(child);
            if list.len() / 2 >= self.most_children {
                cut(&mut list, &mut memory);
            }
        }
        cut(&mut list, &mut memory);
        Ok(Children { list, more, _memory: memory })
    }

    fn child(
        &mut self,
        here: &mut Here,
        leaf: &[u8],
        kind: Option<fs::FileType>,
    ) -> Result<Option<ListEntry>, Error> {
        let slash = if here.name.is_empty() { &b""[..] } else { b"/" };
        let name = [&here.name, slash, leaf].concat();
        let Some(kind) = kind else {
            let path = here.path.join(OsStr::from_bytes(leaf));
            return self.unread(&path, name, ("cannot be read", io::ErrorKind::NotFound.into()));
        };
        if self.exclude.matches(&name, kind.is_dir()) || !self.is_meant(&name, kind.is_dir()) {
            return Ok(None);
        }
        let path = here.path.join(OsStr::from_bytes(leaf));
        if kind.is_dir() && staging::is_ours(leaf) {
            self.skip(&path, "directory of an unfinished transfer");
        } else if kind.is_dir() {
            self.hold_directory(here, path, name)?;
        } else if kind.is_file() {
            match self.examine(here, leaf) {
                Ok(found) => return self.file(name, &found, here.reports_lengths),
                Err(error) => return self.unread(&path, name, ("cannot be read", error)),
            }
        } else if kind.is_symlink() && self.follow {
            return self.followed(here, path, name);
        } else if kind.is_symlink() {
            match fs::read_link(&path) {
                Ok(to) => {
                    let length = to.as_os_str().len() as u64;
                    return self.entry(Kind::SymbolicLink, name, length);
                }
                Err(error) => return self.unread(&path, name, ("cannot be read", error)),
            }
        } else {
            return self.unsendable(&path, name, special(kind));
        }
        Ok(None)
    }

    /// The target of a link, in its place.
    fn followed(
        &mut self,
        here: &mut Here,
        path: PathBuf,
        name: Vec<u8>,
    ) -> Result<Option<ListEntry>, Error> {
        let found = fs::metadata(&path).and_then(|metadata| {
            // Where an unreadable file ends the transfer, it must be opened as a test.
            if metadata.is_file() && !self.lenient {
                File::open(&path)?;
            }
            Ok(metadata)
        });
        match found {
            Err(error) => return self.unread(&path, name, ("cannot be read", error)),
            Ok(metadata) if metadata.is_dir() => {
                // The directory of contents has no name here.
                let item = self.items.get(self.item.saturating_sub(1));
                let unnamed = matches!(item, Some((_, Operand::Contents(_))));
                let parts = name.split(|byte| *byte == b'/').count() + usize::from(unnamed);
                if leads_up(&path, &metadata, parts) {
                    let why = "it is a link to a directory that it is in";
                    return self.unsendable(&path, name, why);
                } else if !self.exclude.matches(&name, true) && self.is_meant(&name, true) {
                    self.hold_directory(here, path, name)?;
                }
            }
            Ok(metadata) if !metadata.is_file() => {
                let why = "it is a link to a pipe, a socket or a device";
                return self.unsendable(&path, name, why);
            }
            Ok(metadata) if self.is_passed_over(&name, &FileStat::from(&metadata)) => {}
            Ok(metadata) => return self.content(name, &FileStat::from(&metadata)),
        }
        Ok(None)
    }

    fn is_meant(&self, name: &[u8], directory: bool) -> bool {
        self.only.as_ref().is_none_or(|only| only.accepts(name, directory))
    }

    fn is_passed_over(&self, name: &[u8], found: &FileStat) -> bool {
        let skips = |skip: &SkipFilter| skip.skips(name, found.length, found.modified());
        self.skip.as_ref().is_some_and(skips)
    }

    /// The stat of a file in a tree. Where an unreadable file ends the transfer, it is opened as a
    /// test before anything is sent.
    fn examine(&self, here: &Here, leaf: &[u8]) -> io::Result<FileStat> {
        let stat = match self.lenient {
            true => safe_open::status(&here.handle, leaf)?.ok_or(io::ErrorKind::NotFound)?,
            false => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let leaf = OsStr::from_bytes(leaf);
                let file = rustix::fs::openat(&here.handle, leaf, flags, Mode::empty())?;
                rustix::fs::fstat(file)?
            }
        };
        FileStat::try_from(&stat).map_err(|()| io::Error::other("it is no longer a file"))
    }

    /// A file found in a tree, which may be another name of one that was found before.
    fn file(
        &mut self,
        name: Vec<u8>,
        found: &FileStat,
        reports_lengths: bool,
    ) -> Result<Option<ListEntry>, Error> {
        if self.is_passed_over(&name, found) {
            return Ok(None);
        }
        if let Some(first) = self.links.get(&found.id) {
            return self.entry(Kind::HardLink, name, *first);
        }
        let number = self.entries;
        let entry = self.content(name, found)?;
        if entry.is_some() && found.names > 1 {
            self.hold(NAME_BYTES)?;
            self.links.insert(found.id, number);
        }
        let empty = if reports_lengths { found.of_empty() } else { None };
        Ok(entry.map(|entry| ListEntry { empty, ..entry }))
    }

    fn content(&mut self, name: Vec<u8>, found: &FileStat) -> Result<Option<ListEntry>, Error> {
        let entry = self.entry(Kind::File, name, found.length)?;
        let on_disk = found.on_disk.min(found.length);
        self.counts.data_bytes += if entry.is_some() { on_disk } else { 0 };
        Ok(entry)
    }

    fn entry(
        &mut self,
        kind: Kind,
        name: Vec<u8>,
        length: u64,
    ) -> Result<Option<ListEntry>, Error> {
        if let Err(why) = check_name(&name) {
            if !self.lenient {
                return Err(super::bad_name(&name, why));
            }
            self.counts.skipped += 1;
            let (path, why) = (shown(&name), why.to_owned());
            self.warn(Warning::Unreadable { path, what: "cannot be sent", why });
            return Ok(None);
        }
        if self.entries >= MAX_FILES {
            return Err(Unsendable::TooMany(MAX_FILES).into());
        }
        self.entries += 1;
        let argument = u32::try_from(self.item.saturating_sub(1)).unwrap_or(u32::MAX);
        let entry = ListEntry { argument, name: name.into(), ..ListEntry::new(kind, length) };
        self.counts.bytes = self.counts.bytes.saturating_add(entry.bytes());
        self.counts.files += u64::from(!matches!(kind, Kind::Directory | Kind::Withdrawn));
        Ok(Some(entry))
    }

    /// An entry of a directory that cannot be read. It ends the transfer, or is left out. Then the
    /// receiver is notified if its name can be sent.
    fn unread(
        &mut self,
        path: &Path,
        name: Vec<u8>,
        (what, source): Unread,
    ) -> Result<Option<ListEntry>, Error> {
        if !self.lenient {
            return Err(file_error(path, what, source));
        }
        self.counts.skipped += 1;
        self.warn(super::unreadable(path, what, &source));
        match check_name(&name) {
            Ok(()) => self.entry(Kind::Withdrawn, name, 0),
            Err(_) => Ok(None),
        }
    }

    /// Something in a directory that is there, and is nothing that can be sent: the same.
    fn unsendable(
        &mut self,
        path: &Path,
        name: Vec<u8>,
        why: &'static str,
    ) -> Result<Option<ListEntry>, Error> {
        self.unread(path, name, ("cannot be sent", io::Error::other(why)))
    }

    fn skip(&mut self, path: &Path, what: &'static str) {
        let path = shown(path.as_os_str().as_bytes());
        self.warn(Warning::Skipped { path, what });
    }

    fn warn(&mut self, warning: Warning) {
        if self.counts.warnings.len() < MAX_WARNINGS {
            self.counts.warnings.push(warning);
        } else {
            self.counts.unworded += 1;
        }
    }
}

impl WalkCounts {
    /// The skipped files and why, for the user; once.
    pub(super) fn take_warnings(&mut self) -> Vec<Warning> {
        let mut warnings = std::mem::take(&mut self.warnings);
        let more = std::mem::take(&mut self.unworded);
        warnings.extend((more > 0).then_some(Warning::SkippedMore(more)));
        warnings
    }
}

/// Memory of a directory until it is walked.
fn directory_cost(path: &Path, name: &[u8]) -> u64 {
    path.as_os_str().len() as u64 + name.len() as u64 + NAME_BYTES
}

/// Which of the things it is that have no content of their own.
fn special(kind: fs::FileType) -> &'static str {
    match () {
        () if kind.is_fifo() => "it is a pipe",
        () if kind.is_socket() => "it is a socket",
        () => "it is a device",
    }
}

/// Whether a link leads to one of the directories above it, of which there are fewer than `parts`.
fn leads_up(link: &Path, to: &Metadata, parts: usize) -> bool {
    let above = link.ancestors().skip(1).take(parts.saturating_sub(1));
    let is_it = |path: &Path| {
        fs::metadata(path).is_ok_and(|at| (at.dev(), at.ino()) == (to.dev(), to.ino()))
    };
    above.into_iter().any(is_it)
}

/// The type of an argument: a directory, or a file that can be read.
fn argument(path: &Path) -> Result<Metadata, Unread> {
    let cannot = |source| ("cannot be sent", source);
    let metadata = fs::metadata(path).map_err(cannot)?;
    if metadata.is_dir() {
        return Ok(metadata);
    }
    if !metadata.is_file() {
        let text = "it is neither a file nor a directory (send a stream through a pipe)";
        return Err(cannot(io::Error::new(io::ErrorKind::InvalidInput, text)));
    }
    File::open(path).and_then(|file| file.metadata()).map_err(cannot)
}
