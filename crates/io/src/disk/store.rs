//! The destination directory and its temporaries.
//!
//! Received data are written to files named by number in a staging directory of the destination.
//! They are renamed to their final names when, and only when, all of them are complete, verified
//! and flushed. In all other cases they are removed by [`Store::clear`], at the latest by `drop`.
//! The leftovers of a killed process are removed by the next one that receives there.

mod ranged;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use netblt_proto::content::{Attributes, Extent, ExtraAttributes, FileRange};

use crate::checksums::algorithm::{Digests, HashAlgorithms};
use crate::disk::attributes::{FileTimes, KeptAttributes, apply, apply_to_link};
use crate::disk::commit_latch::CommitLatch;
use crate::disk::fault_injection::{self, Call};
use crate::disk::metadata_writer::MetadataWriter;
use crate::disk::names::NameId;
use crate::disk::rename::id;
use crate::disk::seal::{Key, Seal};
use crate::disk::sites::{self, Sites, TOP, site_of, slot_of};
use crate::disk::sparse::Span;
use crate::disk::staging::{self, JOURNAL, KEPT, OWN_NAME, Open, Staging, has_ours};
use crate::disk::{flush, safe_open, sparse};
use crate::error::{Error, file_error, shown, shown_path};
use crate::settings::{Extras, Overwrite};

/// Most temporaries that are open at once.
const MAX_OPEN: usize = 64;
/// Longest path of the system, its final zero included.
const PATH_MAX: usize = if cfg!(target_os = "linux") { 4096 } else { 1024 };

/// The destination directory and the temporaries in it.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) path: PathBuf,
    pub(crate) root: OwnedFd,
    /// The directory in which the home of temporaries lies, and its path: the destination, or where
    /// that cannot be written to, one of the user's own.
    pub(crate) lodge: OwnedFd,
    pub(crate) lodge_path: PathBuf,
    pub(crate) overwrite: Overwrite,
    /// Permissions are the sender's, whatever the user's mask.
    pub(crate) preserve: bool,
    /// Times are the sender's.
    pub(crate) keep_times: bool,
    /// The requested attributes beyond modes and times, and those of directories that are to come.
    pub(crate) extras: Extras,
    pub(crate) directories: HashMap<NameId, Box<ExtraAttributes>>,
    metadata: RefCell<MetadataWriter>,
    /// Files are compared by reading the disk itself, if that is possible.
    pub(crate) reads_back: bool,
    /// One call brings everything to this disk.
    pub(crate) flushes_whole: bool,
    staging: Option<Staging>,
    /// The other sites of temporaries.
    pub(crate) sites: RefCell<Sites>,
    /// Data are kept where the next transfer finds them, if that is possible.
    pub(crate) commits_each: bool,
    /// The name of that directory.
    pub(crate) kept_name: String,
    /// The key under which journals are written, once it was needed.
    key: Option<Key>,
    /// Whole files have their names already, whatever happens to the rest.
    pub(crate) piecemeal: bool,
    /// The range of a file that others fill, too.
    pub(crate) range: Option<FileRange>,
    /// Open temporaries by number, the last one used last.
    open: Vec<(u64, File)>,
    /// The directory of the last look, if it exists: files come in directories.
    parent: Option<(Vec<u8>, Option<OwnedFd>)>,
    /// Files can be made at its top.
    pub(crate) is_writable: bool,
    /// The device of the destination.
    device: u64,
    longest: Longest,
    /// The file system cannot be waited for, and has no locks.
    unsynced: bool,
    lockless: bool,
}

/// The required rights in a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// To make files at its top.
    Top,
    /// To make files in it or in some directory beneath it.
    Somewhere,
    /// None: it is only looked at.
    Nothing,
}

/// At most so many directories are looked at, for one that can be written to.
const MAX_LOOKS: usize = 10_000;

/// The limits of the destination's platform for paths.
#[derive(Clone, Copy, Debug)]
struct Longest {
    name: usize,
    part: usize,
}

impl Store {
    /// Opens a destination, which must exist, for files at its top. Nothing is written yet.
    pub(crate) fn new(path: &Path, overwrite: Overwrite) -> Result<Self, Error> {
        Self::open(path, overwrite, Need::Top)
    }

    /// Opens a destination, which must exist. Nothing is written in it yet.
    pub(crate) fn open(path: &Path, overwrite: Overwrite, need: Need) -> Result<Self, Error> {
        let unusable = |e| file_error(path, "cannot be used as the destination directory", e);
        let root = safe_open::open_directory(path).map_err(unusable)?;
        let about = rustix::fs::fstat(&root).map_err(|e| unusable(e.into()))?;
        let device = id(&about).0;
        let writable = can_write(&root);
        let is_writable = writable.is_ok();
        let (lodge, lodge_path) = match writable {
            Ok(()) => (root.try_clone().map_err(unusable)?, path.to_path_buf()),
            Err(error) => {
                let unwritable = |e: io::Error| file_error(path, "cannot be written to", e);
                if need == Need::Top || (need == Need::Somewhere && !has_writable(&root)) {
                    return Err(unwritable(error.into()));
                }
                match own_lodge(path, need == Need::Somewhere) {
                    Ok(lodge) => lodge,
                    Err(_) if need == Need::Nothing => {
                        (root.try_clone().map_err(unusable)?, path.to_path_buf())
                    }
                    Err(error) => return Err(unwritable(error)),
                }
            }
        };
        let (longest, flushes_whole) = (Longest::of(path, &root), flush::is_whole(&root));
        Ok(Self {
            path: path.to_path_buf(),
            root,
            lodge,
            lodge_path,
            overwrite,
            preserve: false,
            keep_times: true,
            reads_back: false,
            flushes_whole,
            extras: Extras::default(),
            directories: HashMap::new(),
            metadata: RefCell::default(),
            staging: None,
            sites: RefCell::default(),
            commits_each: false,
            kept_name: KEPT.to_owned(),
            key: None,
            piecemeal: false,
            range: None,
            open: Vec::new(),
            parent: None,
            is_writable,
            device,
            longest,
            unsynced: false,
            lockless: false,
        })
    }

    /// Takes over the leftovers of a dead process under this name, as if they were its own.
    pub(crate) fn adopt(&mut self, left: Staging) {
        *self.sites.get_mut() = Sites::load(&left.handle);
        self.lockless |= left.is_lockless();
        self.staging = Some(left);
    }

    /// The key of the journal of names that are being given, to be written.
    pub(crate) fn seal_of_publication(&mut self) -> io::Result<Seal> {
        let (root, staging) = (self.root.try_clone()?, self.staging_handle()?);
        self.key()?.of_publication(&root, &staging)
    }

    /// The key of the resume journal, for writing.
    pub(crate) fn seal_of_kept(&mut self) -> io::Result<Seal> {
        let (root, staging) = (self.root.try_clone()?, self.staging_handle()?);
        self.key()?.of_kept(&root, &staging)
    }

    fn key(&mut self) -> io::Result<&Key> {
        let key = match self.key.take() {
            Some(key) => key,
            None => Key::made()?,
        };
        Ok(self.key.insert(key))
    }

    /// Whether something of this name, one part, is where temporaries have their home.
    pub(crate) fn lodge_has(&self, name: &str) -> bool {
        safe_open::status(&self.lodge, name.as_bytes()).is_ok_and(|stat| stat.is_some())
    }

    /// Whether received data are kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.staging.as_ref().is_some_and(|staging| staging.kept)
    }

    /// The home of the temporaries, if there is one.
    pub(crate) fn staged(&self) -> Option<&Arc<OwnedFd>> {
        self.staging.as_ref().map(|staging| &staging.handle)
    }

    /// The directory in which a temporary lies; an error if there is none.
    pub(crate) fn place_of(&self, slot: u64) -> io::Result<Arc<OwnedFd>> {
        match site_of(slot) {
            TOP => Ok(Arc::clone(self.staged().ok_or(io::ErrorKind::NotFound)?)),
            site => self.sites.borrow_mut().open(&self.root, site, false),
        }
    }

    /// The directory in which a temporary is to lie.
    fn place_for(&mut self, slot: u64) -> io::Result<Arc<OwnedFd>> {
        let home = Arc::clone(&self.staging()?.handle);
        match site_of(slot) {
            TOP => Ok(home),
            site => self.sites.get_mut().open(&self.root, site, true),
        }
    }

    /// Writes down in the home which sites there are, before anything is made in them.
    pub(crate) fn record_sites(&mut self) -> Result<(), Error> {
        if !self.sites.get_mut().has_unrecorded() {
            return Ok(());
        }
        let home = self.staging_handle();
        let site = home.and_then(|home| self.sites.get_mut().record(&home, &self.lodge));
        site.map_err(|e| self.error(b"", write_failure(&e), e))
    }

    /// Makes a temporary; again, if the directory it was to lie in was removed meanwhile.
    fn make_at<T>(
        &mut self,
        slot: u64,
        make: impl Fn(&OwnedFd, &str) -> Result<T, Errno>,
    ) -> io::Result<T> {
        let name = slot.to_string();
        let place = self.place_for(slot)?;
        match make(&place, &name) {
            Err(Errno::NOENT) if site_of(slot) != TOP => {
                self.sites.get_mut().is_gone();
                Ok(make(&*self.place_for(slot)?, &name)?)
            }
            made => Ok(made?),
        }
    }

    /// The name of the publication journal.
    pub(crate) fn publication(&self) -> &'static str {
        self.staging.as_ref().map_or(JOURNAL, Staging::publication)
    }

    /// Whether kept files are being published, by this process or a dead one.
    pub(crate) fn publishes(&self) -> bool {
        self.staging.as_ref().is_some_and(Staging::publishes)
    }

    /// The publication in the partial directory has ended.
    pub(crate) fn end_publication(&self) {
        self.staging.iter().for_each(Staging::end_publication);
        if self.is_kept() {
            self.sites.borrow_mut().remove_replaced(&self.root);
        }
    }

    /// Leaves the temporaries as they are.
    pub(crate) fn leave(&mut self) {
        self.open.clear();
        self.parent = None;
        self.staging.take().into_iter().for_each(Staging::leave);
        self.sites.take();
    }

    /// Whether `name` can be made: no file is in its way that must not be replaced.
    pub(crate) fn probe(&mut self, name: &[u8], directory: bool) -> Result<(), Error> {
        let refused = |why| Error::Name { name: shown(name), why };
        self.longest.check(name).map_err(refused)?;
        if has_ours(name) {
            return Err(refused(OWN_NAME));
        }
        let (parent, leaf) = safe_open::split(name);
        let Some(parent) = self.parent(parent)? else { return Ok(()) };
        let stands = safe_open::status(parent, leaf)
            .map_err(|e| self.error(name, "cannot be examined", e))?;
        match stands {
            None => Ok(()),
            Some(stat) if directory == safe_open::is_directory(&stat) && directory => Ok(()),
            Some(_) if self.overwrite == Overwrite::Never => Err(self.exists(name)),
            Some(stat) if directory || safe_open::is_directory(&stat) => {
                let text = "a file and a directory cannot replace each other; nothing was written";
                Err(self.error(name, "is in the way", io::Error::other(text)))
            }
            // Renaming a file over it would take it away from everybody.
            Some(stat) if !safe_open::is_replaceable(&stat) => {
                let text = "only files and links are replaced; nothing was written";
                Err(self.error(name, "is a device or a pipe", io::Error::other(text)))
            }
            Some(_) => Ok(()),
        }
    }

    /// Whether files can be made in a directory; `None` if it is not there.
    pub(crate) fn writable(&self, path: &[u8]) -> Option<bool> {
        let directory = safe_open::directory(self.root.as_fd(), path).ok()?;
        Some(can_write(&directory).is_ok())
    }

    fn parent(&mut self, name: &[u8]) -> Result<Option<&OwnedFd>, Error> {
        if self.parent.as_ref().is_none_or(|(kept, _)| kept != name) {
            let handle = match safe_open::directory(self.root.as_fd(), name) {
                Ok(handle) => Some(handle),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(self.error(name, NOT_A_DIRECTORY, error)),
            };
            self.parent = Some((name.to_vec(), handle));
        }
        Ok(self.parent.as_ref().and_then(|(_, handle)| handle.as_ref()))
    }

    /// Stores a file that has arrived as a whole.
    pub(crate) fn whole(
        &mut self,
        number: u64,
        extent: &Extent,
        bytes: &[u8],
        attributes: &Attributes,
        more: Option<&ExtraAttributes>,
    ) -> Result<(), Error> {
        let times = FileTimes::from(attributes);
        let created = match more {
            _ if self.range.is_some() => self.create(number).map(|file| (file, false)),
            None => self.create_with(number, times.mode),
            // A file that may not be written gets no attributes.
            Some(_) => self.create(number).map(|file| (file, false)),
        };
        let written = created.and_then(|(file, has_mode)| {
            sparse::write(&file, self.in_file(extent.into()), bytes)?;
            let kept = KeptAttributes { has_mode, ..self.kept(number) };
            self.apply(file.as_fd(), &attributes.name, times, kept, more)?;
            self.close_file(file)
        });
        written.map_err(|e| self.error(&attributes.name, write_failure(&e), e))
    }

    /// Makes an empty file among the temporaries.
    pub(crate) fn empty(&mut self, number: u64, name: &[u8], times: FileTimes) -> io::Result<()> {
        let (file, has_mode) = self.create_with(number, times.mode)?;
        let kept = KeptAttributes { has_mode, ..self.kept(number) };
        self.apply(file.as_fd(), name, times, kept, None)?;
        self.close_file(file)
    }

    /// Stores a part of a file; `name` is for errors and may not be known yet.
    pub(crate) fn write_at(
        &mut self,
        number: u64,
        span: Span<'_>,
        bytes: &[u8],
        name: Option<&[u8]>,
    ) -> Result<(), Error> {
        let span = self.in_file(span);
        let written = self.temporary(number).and_then(|file| sparse::write(file, span, bytes));
        written.map_err(|e| self.error(name.unwrap_or_default(), write_failure(&e), e))
    }

    /// Makes a symbolic link among the temporaries, where no other user can follow it.
    pub(crate) fn link(
        &mut self,
        number: u64,
        target: &[u8],
        times: FileTimes,
        (name, more): (&[u8], Option<&ExtraAttributes>),
    ) -> Result<(), Error> {
        let made =
            self.make_at(number, |place, slot| rustix::fs::symlinkat(os(target), place, slot));
        let made = made.and_then(|()| {
            let (place, slot) = (self.place_of(number)?, number.to_string());
            let unset = apply_to_link(&place, &slot, times, self.kept(number));
            let metadata = &mut *self.metadata.borrow_mut();
            unset.into_iter().for_each(|why| metadata.lacks_time(name, why));
            more.iter().for_each(|more| metadata.apply_to_link(&*place, &slot, more, name));
            Ok(())
        });
        made.map_err(|e| self.error(name, "the symbolic link cannot be made", e))
    }

    /// Gives a temporary a second number; where that is on another file system, it is a copy.
    pub(crate) fn link_temporary(
        &mut self,
        from: u64,
        to: u64,
        name: &[u8],
        times: FileTimes,
    ) -> Result<(), Error> {
        let linked = self.place_of(from).and_then(|place| {
            let slot = from.to_string();
            self.make_at(to, |beside, to| {
                rustix::fs::linkat(&*place, &slot, beside, to, AtFlags::empty())
            })
        });
        let linked = match linked.map_err(safe_open::errno) {
            Err(Errno::XDEV) => {
                self.open_slot(from).and_then(|from| self.copy_to(from, to, name, times))
            }
            linked => linked.map_err(io::Error::from),
        };
        linked.map_err(|e| self.error(name, "the hard link cannot be made, nothing was kept", e))
    }

    /// Copies a file into a temporary, all the way to the disk.
    pub(crate) fn copy_to(
        &mut self,
        mut from: File,
        slot: u64,
        name: &[u8],
        times: FileTimes,
    ) -> io::Result<()> {
        let (mut copy, has_mode) = self.create_with(slot, times.mode)?;
        io::copy(&mut from, &mut copy)?;
        let kept = KeptAttributes { has_mode, ..self.kept(slot) };
        self.apply(copy.as_fd(), name, times, kept, None)?;
        flush::sync(&copy)?;
        self.close_file(copy)
    }

    /// Gives a file of the destination a number among the temporaries.
    pub(crate) fn link_named(&mut self, name: &[u8], to: u64) -> io::Result<()> {
        let (parent, leaf) = safe_open::split(name);
        let parent = safe_open::directory(self.root.as_fd(), parent)?;
        // A link that was put in its place meanwhile is itself linked and not followed.
        self.make_at(to, |place, to| {
            rustix::fs::linkat(&parent, os(leaf), place, to, AtFlags::empty())
        })?;
        let (place, to) = (self.place_of(to)?, to.to_string());
        if safe_open::status(&*place, to.as_bytes())?.as_ref().is_some_and(safe_open::is_file) {
            return Ok(());
        }
        rustix::fs::unlinkat(&*place, &to, AtFlags::empty())?;
        Err(io::ErrorKind::InvalidData.into())
    }

    /// Whether two names are those of one file.
    pub(crate) fn are_one(&self, first: &[u8], second: &[u8]) -> bool {
        let stat = |name: &[u8]| {
            let (parent, leaf) = safe_open::split(name);
            let parent = safe_open::directory(self.root.as_fd(), parent).ok()?;
            safe_open::status(&parent, leaf).ok()?.filter(safe_open::is_file)
        };
        match (stat(first), stat(second)) {
            (Some(first), Some(second)) => {
                (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)
            }
            _ => false,
        }
    }

    /// Whether a symbolic link of this name leads where this is the digest of.
    pub(crate) fn holds_link(&self, name: &[u8], digest: [u8; 32]) -> bool {
        let link = safe_open::link(self.root.as_fd(), name);
        link.is_ok_and(|(_, target)| *blake3::hash(&target).as_bytes() == digest)
    }

    /// Drops the data of a file.
    pub(crate) fn discard(&mut self, number: u64) {
        self.open.retain(|(open, _)| *open != number);
        if let Ok(place) = self.place_of(number) {
            // A missing file need not be removed, and all are removed in the end.
            let _ = rustix::fs::unlinkat(&*place, number.to_string(), AtFlags::empty());
        }
    }

    /// Whether a file of this name, length and digest is there already.
    pub(crate) fn holds(&self, name: &[u8], (length, digest): (u64, [u8; 32])) -> bool {
        let Ok(file) = safe_open::file(self.root.as_fd(), name) else { return false };
        let is_alike = file.metadata().is_ok_and(|m| m.is_file() && m.len() == length);
        is_alike && self.digest(&file) == Some(digest)
    }

    /// The digest of a file, read again.
    pub(crate) fn digest(&self, file: &File) -> Option<[u8; 32]> {
        if self.reads_back {
            flush::drop_cache(file);
        }
        sparse::digest_of(file, self.range).ok()
    }

    /// Stores digests in the attributes of a file: that of the slot, or that of the name.
    pub(crate) fn set_digests(
        &self,
        name: &[u8],
        slot: Option<u64>,
        digests: &Digests,
        algorithms: HashAlgorithms,
    ) {
        if algorithms.is_empty() {
            return;
        }
        let file = slot.map_or_else(|| self.open_named(name), |slot| self.open_slot(slot));
        let metadata = &mut *self.metadata.borrow_mut();
        match file {
            Ok(file) => metadata.set_digests(file.as_fd(), digests, algorithms, name),
            Err(error) => metadata.lacks_digests(name, safe_open::errno(error)),
        }
    }

    /// A file of the destination, to be read.
    pub(crate) fn open_named(&self, name: &[u8]) -> io::Result<File> {
        safe_open::file(self.root.as_fd(), name)
    }

    /// A file among the temporaries, to be read.
    pub(crate) fn open_slot(&self, slot: u64) -> io::Result<File> {
        let place = self.place_of(slot)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        Ok(rustix::fs::openat(&*place, slot.to_string(), flags, Mode::empty())?.into())
    }

    /// All parts of a file are stored.
    pub(crate) fn close(
        &mut self,
        number: u64,
        times: FileTimes,
        name: &[u8],
        more: Option<&ExtraAttributes>,
    ) -> Result<(), Error> {
        let file = self.temporary(number).and_then(|file| file.try_clone());
        let kept = self.kept(number);
        let applied = file.and_then(|file| self.apply(file.as_fd(), name, times, kept, more));
        let closed = applied.and_then(|()| self.close_number(number));
        closed.map_err(|e| self.error(name, "cannot be completed, nothing was kept", e))
    }

    /// Waits until these temporaries are on the disk; gives up when the gate is shut.
    pub(crate) fn flush(&mut self, numbers: &[u64], latch: &CommitLatch) -> Result<(), Error> {
        let closed = std::mem::take(&mut self.open)
            .into_iter()
            .try_for_each(|(_, file)| self.close_file(file));
        let flushed = closed.and_then(|()| self.flush_places(numbers, latch));
        let synced = flushed.map_err(|e| self.error(b"", FLUSHING, e))?;
        self.unsynced |= !synced;
        Ok(())
    }

    /// The warnings for the user about this file system; once.
    pub(crate) fn take_lacks(&mut self) -> Vec<String> {
        let place = shown_path(&self.path);
        let unsynced = std::mem::take(&mut self.unsynced).then(|| {
            format!(
                "the file system of {place} cannot say when files are on the disk (fsync): what \
                 arrived may be lost if that machine loses power soon"
            )
        });
        let lockless = std::mem::take(&mut self.lockless).then(|| {
            format!(
                "the file system of {place} has no locks: of what other hosts leave of broken \
                 transfers there, it cannot be known whether it is in use, and it is left alone"
            )
        });
        unsynced.into_iter().chain(lockless).collect()
    }

    /// Each file system is flushed in one call, or file by file; false if one of them cannot be.
    fn flush_places(&self, numbers: &[u64], latch: &CommitLatch) -> io::Result<bool> {
        let mut places: BTreeMap<u64, BTreeMap<usize, Vec<u64>>> = BTreeMap::new();
        for number in numbers {
            let site = site_of(*number);
            let device = match site {
                TOP => self.device,
                _ => {
                    self.place_of(*number)?;
                    self.sites.borrow().device(site).unwrap_or(self.device)
                }
            };
            places.entry(device).or_default().entry(site).or_default().push(*number);
        }
        let (path, mut synced) = (&self.path, true);
        for sites in places.into_values() {
            let count = sites.values().map(Vec::len).sum();
            for numbers in sites.into_values() {
                let Some(first) = numbers.first() else { continue };
                let place = self.place_of(*first)?;
                if flush::at_once(&place, count) {
                    fault_injection::at(path, Call::Sync)?;
                    flush::all(&place)?;
                    break;
                }
                synced &= flush::files(&place, &numbers, || {
                    fault_injection::at(path, Call::Sync)?;
                    Ok(!latch.is_cancelled())
                })?;
            }
        }
        Ok(synced)
    }

    /// Waits until the list of sites, and the names of these temporaries, are on the disk.
    pub(crate) fn sync_names(&self, slots: &[u64]) -> io::Result<()> {
        self.sites.borrow_mut().sync(&self.root, slots)
    }

    /// Whether so many files or directories are better flushed in one call for each file system.
    pub(crate) fn at_once(&self, count: usize) -> bool {
        flush::at_once(&self.root, count) && self.sites.borrow().all_whole()
    }

    /// Waits until all is on the disk of every file system that is flushed in one call.
    pub(crate) fn flush_all(&self) -> io::Result<()> {
        flush::all(&self.root)?;
        let others = self.sites.borrow().others(self.device);
        for site in others {
            flush::all(&*self.place_of(slot_of(site, 0))?)?;
        }
        Ok(())
    }

    /// Removes the temporaries. Those that cannot be removed stay, under their descriptive names.
    pub(crate) fn clear(&mut self) {
        self.open.clear();
        self.parent = None;
        if let Some(staging) = self.staging.take_if(|staging| !staging.kept) {
            sites::remove_home(staging, &self.lodge, &self.root);
            self.sites.take();
        }
        self.sites.get_mut().remove_empty(&self.root);
    }

    /// Removes them even if they were to be kept: there is nothing in them.
    pub(crate) fn clear_kept(&mut self) {
        self.open.clear();
        self.parent = None;
        if let Some(staging) = self.staging.take() {
            sites::remove_home(staging, &self.lodge, &self.root);
            self.sites.take();
        }
    }

    /// Leaves the temporaries in place, because not all renames could be undone. The error says so.
    pub(crate) fn strand(&mut self, error: Error) -> Error {
        let Some(staging) = self.staging.take() else { return error };
        let place = self.lodge_path.join(staging.strand(&self.lodge));
        Error::Stranded { place, error: Box::new(without_promise(error)) }
    }

    /// A handle of the directory of the temporaries, which is made if there is none.
    pub(crate) fn staging_handle(&mut self) -> io::Result<Arc<OwnedFd>> {
        Ok(Arc::clone(&self.staging()?.handle))
    }

    /// The attributes of the sender that a temporary gets here.
    pub(crate) fn kept(&self, slot: u64) -> KeptAttributes {
        self.kept_in(site_of(slot))
    }

    fn kept_in(&self, site: usize) -> KeptAttributes {
        let permitted = match (&self.staging, self.sites.borrow().permitted(site)) {
            _ if self.preserve => 0o777,
            (_, Some(permitted)) => permitted,
            (Some(staging), None) => staging.permitted,
            (None, None) => 0o777,
        };
        KeptAttributes { permitted, inherited: 0, has_mode: false, times: self.keep_times }
    }

    /// The same of a directory that was made here: what new files in it may have, and the group
    /// that it hands on.
    pub(crate) fn kept_by(&self, name: NameId, directory: &OwnedFd) -> io::Result<KeptAttributes> {
        let beside = self.sites.borrow().beside(name).and_then(|beside| beside.site);
        let known = beside.filter(|site| match site {
            &TOP => self.staging.is_some(),
            site => self.sites.borrow().permitted(*site).is_some(),
        });
        let kept = match known {
            Some(site) => self.kept_in(site),
            None if self.preserve => self.kept_in(TOP),
            None => {
                KeptAttributes { permitted: staging::permitted(directory)?, ..self.kept_in(TOP) }
            }
        };
        let inherited = rustix::fs::fstat(directory)?.st_mode & Mode::SGID.bits();
        #[allow(clippy::unnecessary_cast, reason = "its width differs between systems")]
        let inherited = inherited as u32;
        Ok(KeptAttributes { inherited, ..kept })
    }

    fn staging(&mut self) -> io::Result<&Staging> {
        let staging = match self.staging.take() {
            Some(staging) => staging,
            None if self.commits_each => {
                match Staging::keep(&self.lodge, &self.kept_name, Open::Made)? {
                    // Data of another transfer there were not read, and its numbers are not free.
                    Some(staging) if staging.is_bare() => staging,
                    _ => Staging::create(&self.lodge)?,
                }
            }
            None => Staging::create(&self.lodge)?,
        };
        self.lockless |= staging.is_lockless();
        Ok(self.staging.insert(staging))
    }

    /// Gives a file or directory its permissions and its time, and what else is asked for.
    pub(crate) fn apply(
        &self,
        file: BorrowedFd<'_>,
        name: &[u8],
        times: FileTimes,
        kept: KeptAttributes,
        more: Option<&ExtraAttributes>,
    ) -> io::Result<()> {
        // The join of the ranges sets the file's attributes.
        if self.range.is_some() {
            return Ok(());
        }
        let metadata = &mut *self.metadata.borrow_mut();
        more.iter().for_each(|more| metadata.before_mode(file, more, name));
        let refused = apply(file, times, kept, |call| fault_injection::at(&self.path, call))?;
        // Where the user's mask decides, no permissions are promised.
        let mode = refused.mode.filter(|_| self.preserve);
        mode.into_iter().for_each(|why| metadata.lacks_mode(name, why));
        refused.times.into_iter().for_each(|why| metadata.lacks_time(name, why));
        more.iter().for_each(|more| metadata.after_mode(file, more, name));
        Ok(())
    }

    /// The attributes that could not be set, in words; once.
    pub(crate) fn take_unset(&mut self) -> Vec<String> {
        self.metadata.get_mut().take_unset(shown)
    }

    /// The error that `name` exists.
    pub(crate) fn exists(&self, name: &[u8]) -> Error {
        Error::Exists(self.path.join(shown(name)))
    }

    /// An error about `name`, the destination itself if that is empty.
    pub(crate) fn error(&self, name: &[u8], what: &'static str, source: io::Error) -> Error {
        let what = if what == FULL && !self.has_inodes() { NO_INODES } else { what };
        let what = if self.piecemeal { without_words(what) } else { what };
        let path = if name.is_empty() { self.path.clone() } else { self.path.join(shown(name)) };
        file_error(&path, what, source)
    }

    /// Whether more files can be made here, as far as the file system reports.
    fn has_inodes(&self) -> bool {
        rustix::fs::fstatvfs(&self.root).map_or(true, |stat| stat.f_files == 0 || stat.f_favail > 0)
    }

    fn create(&mut self, number: u64) -> io::Result<File> {
        if self.range.is_some() {
            return self.open_shared(number);
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // The directory keeps other users out. The file's own permissions follow the user's umask.
        let mode = Mode::from_raw_mode(0o666);
        Ok(self.make_at(number, |place, slot| rustix::fs::openat(place, slot, flags, mode))?.into())
    }

    /// Makes a file that is whole at once; and whether it has the permissions that it is to have.
    pub(crate) fn create_with(&mut self, number: u64, mode: u32) -> io::Result<(File, bool)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let preserve = self.preserve;
        let wanted = Mode::from_raw_mode((mode & 0o777) as rustix::fs::RawMode);
        let made =
            self.make_at(number, |place, slot| rustix::fs::openat(place, slot, flags, wanted));
        match made {
            // The mask has taken its part, as it is to.
            Ok(file) => Ok((file.into(), !preserve)),
            Err(error) if safe_open::errno_is(&error, Errno::EXIST) => {
                Ok((self.create(number)?, false))
            }
            Err(error) => Err(error),
        }
    }

    fn temporary(&mut self, number: u64) -> io::Result<&File> {
        let entry = match self.open.iter().position(|(open, _)| *open == number) {
            Some(at) => self.open.remove(at),
            None => (number, self.open_temporary(number)?),
        };
        if self.open.len() >= MAX_OPEN {
            let (_, oldest) = self.open.remove(0);
            self.close_file(oldest)?;
        }
        self.open.push(entry);
        self.open.last().map(|(_, file)| file).ok_or_else(|| Errno::BADF.into())
    }

    /// Where few files may be open, open ones wait longer.
    fn open_temporary(&mut self, number: u64) -> io::Result<File> {
        loop {
            match self.create(number) {
                Err(error) if flush::is_scarce(&error) && !self.open.is_empty() => {
                    let (_, oldest) = self.open.remove(0);
                    self.close_file(oldest)?;
                }
                done => return done,
            }
        }
    }

    fn close_number(&mut self, number: u64) -> io::Result<()> {
        match self.open.iter().position(|(open, _)| *open == number) {
            Some(at) => {
                let (_, file) = self.open.remove(at);
                self.close_file(file)
            }
            None => Ok(()),
        }
    }

    /// Closes a file that was written.
    pub(crate) fn close_file(&self, file: File) -> io::Result<()> {
        fault_injection::at(&self.path, Call::Close)?;
        flush::close(file.into())
    }
}

impl Longest {
    fn of(path: &Path, root: &OwnedFd) -> Self {
        let whole = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let before = whole.as_os_str().len() + 1;
        let part = rustix::fs::fstatvfs(root).map_or(255, |stat| stat.f_namemax);
        let part = usize::try_from(part).ok().filter(|part| *part > 0).unwrap_or(255);
        Self { name: (PATH_MAX - 1).saturating_sub(before), part }
    }

    fn check(self, name: &[u8]) -> Result<(), &'static str> {
        if name.len() > self.name {
            return Err("with the destination it is a longer path than this system can open");
        }
        if name.split(|byte| *byte == b'/').any(|part| part.len() > self.part) {
            return Err("it has a part that is longer than the file system here takes");
        }
        Ok(())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.clear();
    }
}

pub(crate) const NOT_A_DIRECTORY: &str = "cannot be entered, it must be a directory and no link";
pub(crate) const FLUSHING: &str = "cannot be flushed to the disk, nothing was kept";
const FULL: &str = "the disk is full, nothing was kept; make room and start again";
const NO_INODES: &str = "there are no inodes left (df -i): no more files can be made on this file \
                         system, nothing was kept";
const WRITING: &str = "cannot be written, nothing was kept";
const TOO_LARGE: &str = "is larger than the limit for files (ulimit -f) or this file system \
                         allows, nothing was kept";
const SCARCE: &str = "cannot be opened, too few files may be open at once (ulimit -n), nothing was \
                      kept";

/// How a message ends that is true only if everything could be taken back.
const NOTHING_KEPT: &str = ", nothing was kept";

pub(crate) fn without_promise(error: Error) -> Error {
    match error {
        Error::File { path, what, source } => {
            let what = what.strip_suffix(NOTHING_KEPT).unwrap_or(what);
            Error::File { path, what, source }
        }
        error => error,
    }
}

fn without_words(what: &'static str) -> &'static str {
    match what {
        FULL => "the disk is full; make room and start again",
        what => what.strip_suffix(NOTHING_KEPT).unwrap_or(what),
    }
}

/// Whether some directory beneath one can be written to; where there are very many, it may be.
fn has_writable(root: &OwnedFd) -> bool {
    let (mut todo, mut looks) = (VecDeque::from([Vec::new()]), 0);
    while let Some(path) = todo.pop_front() {
        let Ok(directory) = safe_open::directory(root.as_fd(), &path) else { continue };
        looks += 1;
        if looks > MAX_LOOKS || can_write(&directory).is_ok() {
            return true;
        }
        let Ok(listing) = Dir::read_from(&directory) else { continue };
        for entry in listing.flatten().take(MAX_LOOKS) {
            let name = entry.file_name().to_bytes();
            let may_be = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
            if may_be && !matches!(name, b"." | b"..") {
                let path = [&path[..], name].join(&b'/');
                todo.push_back(path.strip_prefix(b"/").unwrap_or(&path).to_vec());
            }
        }
    }
    false
}

#[cfg(not(test))]
use crate::home::state;
#[cfg(test)]
use elsewhere::state;
#[cfg(test)]
pub(crate) use elsewhere::with_state;

/// A directory of the user's own, for the home of what goes beneath a destination that cannot be
/// written to itself. Only a journal is in it, no file's content.
fn own_lodge(path: &Path, make: bool) -> io::Result<(OwnedFd, PathBuf)> {
    let none = || io::Error::other("the user has no directory for the list of what has arrived");
    let hash = blake3::hash(path.canonicalize()?.as_os_str().as_bytes()).to_hex();
    let place = state(hash.get(..32).unwrap_or_default()).ok_or_else(none)?;
    if make {
        DirBuilder::new().recursive(true).mode(0o700).create(&place)?;
    }
    let lodge = safe_open::open_directory(&place)?;
    if rustix::fs::fstat(&lodge)?.st_uid != rustix::process::geteuid().as_raw() {
        return Err(none());
    }
    Ok((lodge, place))
}

fn can_write(directory: &OwnedFd) -> Result<(), Errno> {
    let access = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::accessat(directory, ".", access, AtFlags::EACCESS)
}

/// The words for a file that cannot be written.
pub(crate) fn write_failure(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::DQUOT) => FULL,
        Some(Errno::FBIG) => TOO_LARGE,
        Some(Errno::MFILE | Errno::NFILE) => SCARCE,
        _ => WRITING,
    }
}

/// A name as one of this system's.
pub(crate) fn os(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

/// In tests the user's own directory is one of the test.
#[cfg(test)]
mod elsewhere {
    use super::*;

    thread_local! {
        static STATE: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
    }

    pub(super) fn state(name: &str) -> Option<PathBuf> {
        STATE.with(|state| Some(state.borrow().as_ref()?.join(name)))
    }

    pub(crate) fn with_state<T>(place: &Path, run: impl FnOnce() -> T) -> T {
        STATE.with(|state| *state.borrow_mut() = Some(place.to_path_buf()));
        let done = run();
        STATE.with(|state| *state.borrow_mut() = None);
        done
    }
}
