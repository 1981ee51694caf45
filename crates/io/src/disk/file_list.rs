//! What will be sent: the walk through files and directories, before anything is.
//!
//! The walk is plain and sorted, so that the same tree makes the same list. Links that the user
//! names are followed; links found inside trees are sent as links, several names of one file as
//! such, and special files are skipped and said so. What cannot be read stops the transfer here,
//! before the other side has seen anything, unless it was found in a directory and is to be left
//! out.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use netblt_proto::content::{Kind, check_name};
use netblt_proto::limits::MAX_FILES;
use rustix::fs::OFlags;

use crate::disk::exclude::Exclude;
use crate::disk::staging;
use crate::error::{Error, Unsendable, Warning, file_error, shown};
use crate::options::{Cancel, Input, Modes, Selection, Source};

/// Most warnings that are worded; the rest is counted.
const MAX_WARNINGS: usize = 100;

/// What will be sent, in order. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct FileList {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) entries: Vec<Entry>,
    arguments: Vec<PathBuf>,
    stream: Stream,
    total_bytes: Option<u64>,
    warnings: Vec<Warning>,
    skipped: u64,
    /// What cannot be read is left out.
    lenient: bool,
    modes: Option<Modes>,
    /// What could not be read when its turn came.
    withdrawn: Mutex<Vec<Warning>>,
}

/// A file, directory or stream of the list.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// Which argument it came with.
    argument: u32,
    /// Under which name it goes to the receiver; its first part stands for the argument.
    pub(crate) name: Box<[u8]>,
    /// Bytes in it when the list was made; unknown (0) for a stream; for a hard link which entry
    /// it is another name of.
    pub(crate) length: u64,
}

impl Entry {
    /// Bytes that it brings: another name of a file brings none.
    pub(crate) fn bytes(&self) -> u64 {
        if self.kind == Kind::HardLink { 0 } else { self.length }
    }
}

/// Where an entry is found.
pub(crate) enum Place<'a> {
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
pub(crate) struct Stream(Mutex<Option<Box<dyn Read + Send>>>);

impl Stream {
    /// The stream, once.
    pub(crate) fn take(&self) -> Option<Box<dyn Read + Send>> {
        self.0.lock().ok()?.take()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream(..)")
    }
}

impl FileList {
    /// Walks what is to be sent, unless it is cancelled meanwhile; `lenient`: what cannot be read
    /// is left out.
    pub(crate) fn new(source: Source, lenient: bool, cancel: &Cancel) -> Result<Self, Error> {
        match source {
            Source::Paths(paths) => Walk::new(cancel, &paths.into(), lenient)?.run(),
            Source::Selection(selection) => Walk::new(cancel, &selection, lenient)?.run(),
            Source::Stream(input) => Self::stream(input),
        }
    }

    /// One stream.
    pub(crate) fn stream(input: Input) -> Result<Self, Error> {
        let Input { name, label, reader } = input;
        check_name(name.as_bytes()).map_err(|why| bad_name(name.as_bytes(), why))?;
        let entry =
            Entry { kind: Kind::Stream, argument: 0, name: name.as_bytes().into(), length: 0 };
        let inner = Inner {
            entries: vec![entry],
            arguments: vec![PathBuf::from(label)],
            stream: Stream(Mutex::new(Some(reader))),
            total_bytes: None,
            warnings: Vec::new(),
            skipped: 0,
            lenient: false,
            modes: None,
            withdrawn: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// File bytes in all, unless it is a stream.
    pub(crate) fn total_bytes(&self) -> Option<u64> {
        self.inner.total_bytes
    }

    /// Files, the stream among them; directories are not counted.
    pub(crate) fn files(&self) -> u64 {
        let is_file = |entry: &&Entry| entry.kind != Kind::Directory;
        self.inner.entries.iter().filter(is_file).count() as u64
    }

    /// What was to be sent and could not be read when the list was made.
    pub(crate) fn skipped(&self) -> u64 {
        self.inner.skipped
    }

    /// Something cannot be read now that its turn has come: it is left out, or ends all.
    pub(crate) fn withdraw(&self, error: Error) -> Result<(), Error> {
        match error {
            Error::File { path, what, source } if self.inner.lenient => {
                let warning = unreadable(&path, what, &source);
                self.withdrawn().push(warning);
                Ok(())
            }
            error => Err(error),
        }
    }

    /// What was left out since the list was made.
    pub(crate) fn take_withdrawn(&self) -> Vec<Warning> {
        std::mem::take(&mut self.withdrawn())
    }

    fn withdrawn(&self) -> MutexGuard<'_, Vec<Warning>> {
        self.inner.withdrawn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was skipped and why, for the user.
    pub(crate) fn warnings(&self) -> &[Warning] {
        &self.inner.warnings
    }
}

impl Inner {
    pub(crate) fn take_stream(&self) -> Option<Box<dyn Read + Send>> {
        self.stream.take()
    }

    /// The permissions that the receiver is told of an entry that has these.
    pub(crate) fn mode(&self, mode: u32, kind: Kind) -> u32 {
        let told = |modes: &Modes| modes.of(mode, kind == Kind::Directory);
        self.modes.as_ref().map_or(mode, told)
    }

    pub(crate) fn place<'a>(&'a self, entry: &'a Entry) -> Place<'a> {
        let argument = self.arguments.get(entry.argument as usize).map_or(Path::new(""), |p| p);
        match entry.name.iter().position(|byte| *byte == b'/') {
            Some(at) => {
                Place::Beneath { argument, name: entry.name.get(at + 1..).unwrap_or_default() }
            }
            None => Place::Argument(argument),
        }
    }
}

impl Place<'_> {
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

/// A walk underway.
struct Walk<'a> {
    cancel: &'a Cancel,
    selection: &'a Selection,
    exclude: Exclude,
    lenient: bool,
    entries: Vec<Entry>,
    arguments: Vec<PathBuf>,
    total_bytes: u64,
    warnings: Vec<Warning>,
    unworded: u64,
    skipped: u64,
    /// Files of several names, by device and inode: which entry came first.
    links: HashMap<(u64, u64), u64>,
}

/// A path that cannot be sent: what cannot be done, and why.
type Unread = (&'static str, io::Error);

impl<'a> Walk<'a> {
    fn new(cancel: &'a Cancel, selection: &'a Selection, lenient: bool) -> Result<Self, Error> {
        Ok(Self {
            cancel,
            selection,
            exclude: Exclude::new(&selection.exclude)?,
            lenient,
            entries: Vec::new(),
            arguments: Vec::new(),
            total_bytes: 0,
            warnings: Vec::new(),
            unworded: 0,
            skipped: 0,
            links: HashMap::new(),
        })
    }

    fn run(mut self) -> Result<FileList, Error> {
        let mut names: HashMap<Vec<u8>, &PathBuf> = HashMap::new();
        for (path, name) in &self.selection.items {
            let name = match name {
                Some(name) => name.as_bytes().to_vec(),
                None => base_name(path)?,
            };
            if name.contains(&b'/') {
                return Err(bad_name(&name, "it has several parts"));
            }
            if let Some(other) = names.insert(name.clone(), path) {
                return Err(Unsendable::SameName {
                    first: shown(other.as_os_str().as_bytes()),
                    second: shown(path.as_os_str().as_bytes()),
                    name: shown(&name),
                }
                .into());
            }
            self.argument(path, name)?;
        }
        // Where some are to be passed over, it may be all.
        if self.entries.is_empty() && self.selection.pass.is_none() {
            return Err(Unsendable::Nothing.into());
        }
        if self.unworded > 0 {
            self.warnings.push(Warning::SkippedMore(self.unworded));
        }
        let inner = Inner {
            entries: self.entries,
            arguments: self.arguments,
            stream: Stream::default(),
            total_bytes: Some(self.total_bytes),
            warnings: self.warnings,
            skipped: self.skipped,
            lenient: self.lenient,
            modes: self.selection.modes.clone(),
            withdrawn: Mutex::default(),
        };
        Ok(FileList { inner: Arc::new(inner) })
    }

    fn argument(&mut self, path: &Path, name: Vec<u8>) -> Result<(), Error> {
        self.arguments.push(path.to_path_buf());
        match argument(path) {
            Ok(metadata) if !self.is_meant(&name, metadata.is_dir()) => Ok(()),
            Ok(metadata) if metadata.is_dir() => self.tree(path, name),
            Ok(metadata) if self.is_passed_over(&name, &metadata) => Ok(()),
            Ok(metadata) => self.push(Kind::File, name, metadata.len()),
            // Who names a thing that is not there has mistyped it.
            Err((what, source)) => Err(file_error(path, what, source)),
        }
    }

    fn tree(&mut self, path: &Path, name: Vec<u8>) -> Result<(), Error> {
        // Directories still to be walked, the next one last.
        let mut todo = vec![(path.to_path_buf(), name)];
        while let Some((path, name)) = todo.pop() {
            let children = match self.children(&path) {
                Ok(children) => children,
                Err(error) => {
                    self.unread(&path, ("cannot be listed", error))?;
                    continue;
                }
            };
            self.push(Kind::Directory, name.clone(), 0)?;
            let mut directories = Vec::new();
            for child in children {
                let path = child.path();
                let kind = match child.file_type() {
                    Ok(kind) => kind,
                    Err(error) => {
                        self.unread(&path, ("cannot be examined", error))?;
                        continue;
                    }
                };
                let name = [&name, &b"/"[..], child.file_name().as_bytes()].concat();
                if self.exclude.matches(&name, kind.is_dir())
                    || !self.is_meant(&name, kind.is_dir())
                {
                    continue;
                }
                if kind.is_dir() && staging::is_ours(child.file_name().as_bytes()) {
                    self.skip(&path, "directory of an unfinished transfer");
                } else if kind.is_dir() {
                    directories.push((path, name));
                } else if kind.is_file() {
                    match readable(&path) {
                        Ok(metadata) => self.file(name, &metadata)?,
                        Err(error) => self.unread(&path, ("cannot be read", error))?,
                    }
                } else if kind.is_symlink() {
                    match fs::read_link(&path) {
                        Ok(to) => {
                            self.push(Kind::SymbolicLink, name, to.as_os_str().len() as u64)?
                        }
                        Err(error) => self.unread(&path, ("cannot be read", error))?,
                    }
                } else {
                    self.skip(&path, "special file");
                }
            }
            todo.extend(directories.into_iter().rev());
        }
        Ok(())
    }

    /// What is in a directory, sorted; not all of it once it is cancelled.
    fn children(&self, path: &Path) -> io::Result<Vec<fs::DirEntry>> {
        // A directory of millions takes a while to list.
        let listing = fs::read_dir(path)?.take_while(|_| !self.cancel.is_cancelled());
        let mut children = listing.collect::<io::Result<Vec<_>>>()?;
        children.sort_by_cached_key(fs::DirEntry::file_name);
        Ok(children)
    }

    fn is_meant(&self, name: &[u8], directory: bool) -> bool {
        self.selection.only.as_ref().is_none_or(|only| only.takes(name, directory))
    }

    fn is_passed_over(&self, name: &[u8], metadata: &Metadata) -> bool {
        let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
        let pass = self.selection.pass.as_ref();
        pass.is_some_and(|pass| pass.passes(name, metadata.len(), modified))
    }

    /// A file found in a tree, which may be another name of one that was found before.
    fn file(&mut self, name: Vec<u8>, metadata: &Metadata) -> Result<(), Error> {
        if self.is_passed_over(&name, metadata) {
            return Ok(());
        }
        let id = (metadata.dev(), metadata.ino());
        if let Some(first) = self.links.get(&id) {
            return self.push(Kind::HardLink, name, *first);
        }
        let number = self.entries.len();
        self.push(Kind::File, name, metadata.len())?;
        if metadata.nlink() > 1 && self.entries.len() > number {
            self.links.insert(id, number as u64);
        }
        Ok(())
    }

    fn push(&mut self, kind: Kind, name: Vec<u8>, length: u64) -> Result<(), Error> {
        if self.cancel.is_cancelled() {
            return Err(Error::Interrupted);
        }
        if let Err(why) = check_name(&name) {
            if !self.lenient {
                return Err(bad_name(&name, why));
            }
            self.skipped += 1;
            let (path, why) = (shown(&name), why.to_owned());
            self.warn(Warning::Unreadable { path, what: "cannot be sent", why });
            return Ok(());
        }
        if self.entries.len() as u64 >= MAX_FILES {
            return Err(Unsendable::TooMany(MAX_FILES).into());
        }
        let argument = u32::try_from(self.arguments.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let entry = Entry { kind, argument, name: name.into(), length };
        self.total_bytes = self.total_bytes.saturating_add(entry.bytes());
        self.entries.push(entry);
        Ok(())
    }

    /// Something in a directory that cannot be read: it is left out, or ends all.
    fn unread(&mut self, path: &Path, (what, source): Unread) -> Result<(), Error> {
        if !self.lenient {
            return Err(file_error(path, what, source));
        }
        self.skipped += 1;
        self.warn(unreadable(path, what, &source));
        Ok(())
    }

    fn skip(&mut self, path: &Path, what: &'static str) {
        let path = shown(path.as_os_str().as_bytes());
        self.warn(Warning::Skipped { path, what });
    }

    fn warn(&mut self, warning: Warning) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(warning);
        } else {
            self.unworded += 1;
        }
    }
}

fn unreadable(path: &Path, what: &'static str, source: &io::Error) -> Warning {
    let path = shown(path.as_os_str().as_bytes());
    Warning::Unreadable { path, what, why: source.to_string() }
}

/// What an argument is: a directory, or a file that can be read.
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

/// A file found in a tree, once it has proved to be readable.
fn readable(path: &Path) -> io::Result<Metadata> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut options = File::options();
    // The bits fit: they are what the system call takes.
    options.read(true).custom_flags(flags.bits().cast_signed());
    let metadata = options.open(path)?.metadata()?;
    if metadata.is_file() {
        return Ok(metadata);
    }
    Err(io::Error::other("it is no longer a file"))
}
