//! Gives files their names one by one, as they become whole: a named file stays, whatever happens
//! to the others. (`publish_all` does all or nothing.)

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::disk::attributes::{FileTimes, KeptAttributes};
use crate::disk::fault_injection::{self, Call};
use crate::disk::names::{NameId, Names};
use crate::disk::rename::{id, move_new};
use crate::disk::resume::ReadyFile;
use crate::disk::safe_open::errno;
use crate::disk::sites::site_of;
use crate::disk::store::{FLUSHING, NOT_A_DIRECTORY, Store, os, write_failure};
use crate::disk::{flush, safe_open};
use crate::error::{Error, system_message};
use crate::settings::Overwrite;

/// Permissions of a directory whose own have not come yet.
const PRIVATE: u32 = 0o700;
/// And for good, before the user's mask.
const USUAL: u32 = 0o777;

/// The published files so far.
#[derive(Debug, Default)]
pub(crate) struct FilePublisher {
    /// Directories that the sender described.
    listed: HashMap<NameId, FileTimes>,
    /// Directories that are known to exist.
    present: HashSet<NameId>,
    /// Directories made here. Parents have lower numbers than their contents.
    made: BTreeSet<NameId>,
    /// Directories with changed content.
    touched: BTreeSet<NameId>,
    /// Inodes of the files placed, kept only if something may be replaced.
    ours: HashSet<(u64, u64)>,
    /// The device on which those of one site are.
    device: Option<(usize, u64)>,
    /// The directory that was used last.
    parent: Option<(NameId, Arc<OwnedFd>)>,
    /// Files were made under their own names since all was brought to the disk.
    direct: bool,
    /// The last error, in more words than the returned one.
    failure: Option<Error>,
}

/// The result for an empty file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// It has its name.
    There,
    /// It cannot have it: why.
    LeftOut(Box<str>),
    /// A file there is to be replaced.
    Stands,
}

impl FilePublisher {
    /// The sender describes a directory.
    pub(crate) fn list(&mut self, name: NameId, times: FileTimes) {
        self.listed.insert(name, times);
    }

    /// Whether a directory was made here.
    pub(crate) fn has_made(&self, name: NameId) -> bool {
        self.made.contains(&name)
    }

    /// The last error, if there are words for it.
    pub(crate) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// Directories that will be made for this name.
    pub(crate) fn missing(&self, store: &Store, names: &Names, name: NameId) -> Vec<NameId> {
        let mut missing = Vec::new();
        let mut at = name;
        while at != NameId::ROOT && !self.present.contains(&at) {
            let path = names.path(at);
            if safe_open::directory(store.root.as_fd(), &path).is_ok() {
                break;
            }
            missing.push(at);
            at = names.parent(at);
        }
        missing
    }

    /// Gives a file its name, or answers why it cannot have it.
    pub(crate) fn place(
        &mut self,
        store: &Store,
        names: &Names,
        ready: &ReadyFile,
        inode: Option<u64>,
    ) -> io::Result<Option<Box<str>>> {
        let why = self.ensure(store, names, names.parent(ready.id))?;
        if why.is_some() {
            return Ok(why);
        }
        let placed = self.rename(store, names, ready, inode);
        match placed {
            Ok(None) => _ = self.touched.insert(names.parent(ready.id)),
            Ok(Some(_)) => {}
            Err(ref error) => {
                let source = io::Error::from_raw_os_error(errno_of(error));
                self.failure = Some(store.error(&ready.name, RENAMING, source));
            }
        }
        placed
    }

    /// Makes an empty file under its name, for which it need not be a temporary: there is nothing
    /// in it that could be half there. `before`: a transfer before this one was about to make it.
    pub(crate) fn make(
        &mut self,
        store: &Store,
        names: &Names,
        ready: &ReadyFile,
        before: bool,
    ) -> io::Result<Made> {
        let parent = names.parent(ready.id);
        if let Some(why) = self.ensure(store, names, parent)? {
            return Ok(Made::LeftOut(why));
        }
        self.direct = true;
        let made = self.create(store, names, ready, before);
        match made {
            Ok(Made::There) => _ = self.touched.insert(parent),
            Ok(_) => {}
            Err(ref error) => {
                let source = io::Error::from_raw_os_error(errno_of(error));
                self.failure = Some(store.error(&ready.name, write_failure(error), source));
            }
        }
        made
    }

    fn create(
        &mut self,
        store: &Store,
        names: &Names,
        ready: &ReadyFile,
        before: bool,
    ) -> io::Result<Made> {
        let parent = self.enter(store, names, names.parent(ready.id))?;
        let leaf = os(names.leaf(ready.id));
        let mode = Mode::from_raw_mode((ready.times.mode & 0o777) as rustix::fs::RawMode);
        // The mask has taken its part of such permissions, as it is to.
        let kept = KeptAttributes { has_mode: !store.preserve, ..store.kept(ready.slot) };
        let dress =
            |file: &OwnedFd| store.apply(file.as_fd(), &ready.name, ready.times, kept, None);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let replace = store.overwrite == Overwrite::Always;
        match rustix::fs::openat(&parent, leaf, flags | OFlags::NOFOLLOW, mode) {
            Ok(file) => {
                if replace {
                    self.ours.insert(id(&rustix::fs::fstat(&file)?));
                }
                dress(&file)?;
                store.close_file(file.into())?;
                Ok(Made::There)
            }
            Err(Errno::EXIST) => {
                if before && let Some(file) = half_made(&parent, leaf) {
                    dress(&file)?;
                    return Ok(Made::There);
                }
                Ok(if replace { Made::Stands } else { Made::LeftOut(STANDS.into()) })
            }
            Err(error) => left_out(RENAMING, error).map(Made::LeftOut),
        }
    }

    fn rename(
        &mut self,
        store: &Store,
        names: &Names,
        ready: &ReadyFile,
        inode: Option<u64>,
    ) -> io::Result<Option<Box<str>>> {
        let parent = self.enter(store, names, names.parent(ready.id))?;
        let staging = &*store.place_of(ready.slot)?;
        let (slot, leaf) = (ready.slot.to_string(), os(names.leaf(ready.id)));
        let replace = store.overwrite == Overwrite::Always;
        // Most names are new: no look at the old file is needed.
        let known = self.own_id(staging, ready.slot, inode, replace)?;
        match move_new(&store.path, (staging, os(slot.as_bytes())), (&parent, leaf)) {
            Err(Errno::EXIST) if replace => {}
            Err(Errno::EXIST) => return Ok(Some(STANDS.into())),
            // It would not be the name that there is not.
            Err(Errno::NOENT) if safe_open::status(staging, slot.as_bytes())?.is_none() => {
                return Err(Errno::NOENT.into());
            }
            Err(error) => return left_out(RENAMING, error).map(Some),
            Ok(()) => {
                self.ours.extend(known);
                return Ok(None);
            }
        }
        let own = safe_open::status(staging, slot.as_bytes())?;
        let stands = safe_open::status(&parent, names.leaf(ready.id))?;
        if let Some(stat) = &stands {
            // Where two names of the sender are one here, the second is not to win.
            let same = own.as_ref().is_some_and(|own| id(own) == id(stat));
            if same {
                // A rename of one name of a file to another does nothing.
                rustix::fs::unlinkat(staging, &slot, AtFlags::empty())?;
                return Ok(None);
            }
            if !safe_open::is_replaceable(stat) || self.ours.contains(&id(stat)) {
                return Ok(Some(STANDS.into()));
            }
            // A file that its owner made private stays private when it is replaced. A link's target
            // is not touched.
            if !store.preserve
                && safe_open::is_file(stat)
                && own.as_ref().is_some_and(safe_open::is_file)
            {
                let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
                // A file system without permissions loses none.
                let _ = rustix::fs::chmodat(staging, &slot, mode, AtFlags::empty());
            }
        }
        fault_injection::at(&store.path, Call::Rename)?;
        if let Err(error) = rustix::fs::renameat(staging, &slot, &parent, leaf) {
            return left_out(RENAMING, error).map(Some);
        }
        self.ours.extend(own.iter().map(id));
        Ok(None)
    }

    /// The identity of a temporary after its rename, if a file may be replaced.
    fn own_id(
        &mut self,
        staging: &OwnedFd,
        slot: u64,
        inode: Option<u64>,
        replace: bool,
    ) -> io::Result<Option<(u64, u64)>> {
        if !replace {
            return Ok(None);
        }
        let Some(inode) = inode else {
            return Ok(safe_open::status(staging, slot.to_string().as_bytes())?.as_ref().map(id));
        };
        let device = match self.device {
            Some((site, device)) if site == site_of(slot) => device,
            _ => id(&rustix::fs::fstat(staging)?).0,
        };
        self.device = Some((site_of(slot), device));
        Ok(Some((device, inode)))
    }

    /// Makes a directory, and those above it, unless they exist, or answers why there is none.
    fn ensure(
        &mut self,
        store: &Store,
        names: &Names,
        name: NameId,
    ) -> io::Result<Option<Box<str>>> {
        if name == NameId::ROOT || self.present.contains(&name) {
            return Ok(None);
        }
        let parent = names.parent(name);
        let why = self.ensure(store, names, parent)?;
        if why.is_some() {
            return Ok(why);
        }
        // Not wider than it will be, even for a moment, but such that files can go in.
        let mode = self.listed.get(&name).map_or(PRIVATE, |listed| listed.mode & 0o777 | 0o700);
        let mode = Mode::from_raw_mode(mode as rustix::fs::RawMode);
        let to = self.enter(store, names, parent)?;
        let made = match rustix::fs::mkdirat(&to, os(names.leaf(name)), mode) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => {
                self.failure = Some(store.error(&names.path(name), MAKING, error.into()));
                return left_out(MAKING, error).map(Some);
            }
        };
        match self.enter(store, names, name) {
            Ok(_) => {}
            Err(error) => {
                let error = errno(error);
                if matches!(error, Errno::NOTDIR | Errno::LOOP) {
                    return Ok(Some(IN_ITS_WAY.into()));
                }
                self.failure = Some(store.error(&names.path(name), NOT_A_DIRECTORY, error.into()));
                return left_out(NOT_A_DIRECTORY, error).map(Some);
            }
        }
        if made {
            self.made.insert(name);
            self.touched.insert(parent);
        }
        self.present.insert(name);
        Ok(None)
    }

    /// The handle of a directory; kept, since neighbours come together.
    fn enter(&mut self, store: &Store, names: &Names, name: NameId) -> io::Result<Arc<OwnedFd>> {
        if let Some((kept, handle)) = &self.parent
            && *kept == name
        {
            return Ok(Arc::clone(handle));
        }
        let handle = Arc::new(safe_open::directory(store.root.as_fd(), &names.path(name))?);
        self.parent = Some((name, Arc::clone(&handle)));
        Ok(handle)
    }

    /// Makes the empty directories, sets the attributes of those that were made here or by a
    /// transfer before this one (`before` knows which), the deepest first, and flushes all changed
    /// ones. Returns those that could not be made, and why.
    pub(crate) fn conclude(
        &mut self,
        store: &Store,
        names: &Names,
        before: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<(NameId, Box<str>)>, Error> {
        let mut listed: Vec<NameId> = self.listed.keys().copied().collect();
        listed.sort_unstable();
        let mut left_out = Vec::new();
        for name in &listed {
            match self.ensure(store, names, *name) {
                Ok(None) => {}
                Ok(Some(why)) => left_out.push((*name, why)),
                Err(error) => {
                    let error = store.error(&names.path(*name), MAKING, error);
                    return Err(self.take_failure().unwrap_or(error));
                }
            }
        }
        let before = listed.into_iter().filter(|name| before(&names.path(*name)));
        let none: HashSet<NameId> = left_out.iter().map(|(name, _)| *name).collect();
        self.made.extend(before.filter(|name| !none.contains(name)));
        let direct = std::mem::take(&mut self.direct);
        let changed = self.made.len() + self.touched.len();
        let at_once = store.at_once(changed);
        let flushing = |name, error| store.error(&names.path(name), FLUSHING, error);
        for name in std::mem::take(&mut self.made).into_iter().rev() {
            let completed = self.enter(store, names, name).and_then(|handle| {
                self.complete(store, names, name, &handle)?;
                if at_once { Ok(()) } else { flush::directory(&handle) }
            });
            completed.map_err(|error| flushing(name, error))?;
            self.touched.remove(&name);
        }
        if at_once || direct {
            store.flush_all().map_err(|error| flushing(NameId::ROOT, error))?;
        }
        if at_once {
            return Ok(left_out);
        }
        for name in std::mem::take(&mut self.touched) {
            let flushed = self.enter(store, names, name).and_then(|h| flush::directory(&h));
            flushed.map_err(|error| flushing(name, error))?;
        }
        Ok(left_out)
    }

    fn complete(
        &self,
        store: &Store,
        names: &Names,
        name: NameId,
        handle: &OwnedFd,
    ) -> io::Result<()> {
        let kept = store.kept_by(name, handle)?;
        if let Some(times) = self.listed.get(&name) {
            let (path, more) = (names.path(name), store.directories.get(&name));
            let more = more.map(|more| &**more);
            return store.apply(handle.as_fd(), &path, *times, kept, more);
        }
        let mode = USUAL & kept.permitted | kept.inherited;
        match rustix::fs::fchmod(handle, Mode::from_raw_mode(mode as rustix::fs::RawMode)) {
            Err(Errno::PERM | Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// An empty file of this user's, such as one is that has just been made.
fn half_made(directory: &OwnedFd, leaf: &OsStr) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(directory, leaf, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    let own = stat.st_uid == rustix::process::geteuid().as_raw();
    (safe_open::is_file(&stat) && stat.st_size == 0 && stat.st_nlink == 1 && own).then_some(file)
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())
}

/// Why one name cannot be given, if that concerns no other: its file system does not take it, or
/// this user has no right to it. A disk that fails or is full is no such reason.
fn left_out(what: &str, error: Errno) -> io::Result<Box<str>> {
    match error {
        // Linux's exFAT by FUSE returns it for a colon.
        Errno::INVAL | Errno::ILSEQ | Errno::NOENT => {
            Ok(format!("{what}: the file system there takes no such name").into_boxed_str())
        }
        Errno::NAMETOOLONG
        | Errno::ACCESS
        | Errno::PERM
        | Errno::NOTSUP
        | Errno::NOTDIR
        | Errno::LOOP
        | Errno::ISDIR
        | Errno::NOTEMPTY
        | Errno::BUSY
        | Errno::TXTBSY
        | Errno::XDEV => Ok(format!("{what}: {}", system_message(&error.into())).into_boxed_str()),
        error => Err(error.into()),
    }
}

const MAKING: &str = "the directory cannot be created";
const RENAMING: &str = "cannot be given its name";
const STANDS: &str = "exists there already";
const IN_ITS_WAY: &str = "a file is in its way";
