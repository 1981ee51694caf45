//! The last step of receiving: everything gets its final name, or nothing does.
//!
//! Each file is moved without replacing, or, where replacing was asked for, exchanged with what it
//! replaces; so every step can be taken back if a later one fails. Only a process that is killed
//! amid the renames leaves some done and some not, and what it leaves is whole and verified.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{AtFlags, Mode, RenameFlags};
use rustix::io::Errno;

use netblt_proto::content::Attributes;

use crate::disk::beneath;
use crate::disk::store::{FLUSH_EACH, FLUSHING, NOT_A_DIRECTORY, Store, apply, flush_all, os};
use crate::error::Error;
use crate::options::Overwrite;

/// Something to be given its final name.
pub(crate) struct Item<'a> {
    /// The number of its temporary.
    pub(crate) number: u64,
    /// The final name.
    pub(crate) name: &'a [u8],
    /// A directory, which has no temporary, with what is known of it.
    pub(crate) directory: Option<&'a Attributes>,
}

/// Gives the items their names and flushes the directories; takes all back if that fails. The
/// temporaries must be flushed before.
pub(crate) fn publish<'a>(store: &'a mut Store, items: &[Item<'a>]) -> Result<(), Error> {
    let listed = items.iter().filter_map(|item| Some((item.name, item.directory?)));
    let parts = store.parts().and_then(|parts| parts.try_clone());
    let parts = parts.map_err(|e| store.error(b"", RENAMING, e))?;
    let mut work = Work {
        store,
        parts,
        listed: listed.collect(),
        present: HashSet::new(),
        made: Vec::new(),
        moved: Vec::new(),
        ours: HashSet::new(),
        touched: BTreeSet::new(),
        parent: None,
    };
    let done = work.run(items);
    if done.is_err() {
        work.take_back();
    }
    done
}

struct Work<'a> {
    store: &'a mut Store,
    /// The directory of the temporaries.
    parts: OwnedFd,
    /// Directories that the sender described.
    listed: HashMap<&'a [u8], &'a Attributes>,
    /// Directories that are known to exist by now.
    present: HashSet<&'a [u8]>,
    /// Directories made here, parents first.
    made: Vec<&'a [u8]>,
    moved: Vec<(u64, &'a [u8], How)>,
    /// Inodes of the files moved, kept only if something may be replaced.
    ours: HashSet<(u64, u64)>,
    /// Directories whose content changed.
    touched: BTreeSet<&'a [u8]>,
    /// The directory that was used last.
    parent: Option<(&'a [u8], Rc<OwnedFd>)>,
}

/// How a file came to its name.
#[derive(Clone, Copy)]
enum How {
    Moved,
    /// What it replaced is now the temporary.
    Exchanged,
    /// What it replaced is gone: the file system cannot exchange.
    Replaced,
}

impl<'a> Work<'a> {
    fn run(&mut self, items: &[Item<'a>]) -> Result<(), Error> {
        for item in items {
            if item.directory.is_some() {
                self.ensure(item.name)?;
            } else {
                self.ensure(beneath::split(item.name).0)?;
                self.put(item.number, item.name)?;
            }
        }
        self.complete_directories()
    }

    /// Makes a directory, and those above it, unless they exist.
    fn ensure(&mut self, name: &'a [u8]) -> Result<(), Error> {
        if name.is_empty() || self.present.contains(name) {
            return Ok(());
        }
        let (parent, leaf) = beneath::split(name);
        self.ensure(parent)?;
        // Not wider than it will be, even for a moment, but such that files can go in.
        let mode = self.listed.get(name).map_or(0o777, |listed| listed.mode & 0o777 | 0o700);
        let mode = Mode::from_raw_mode(mode as rustix::fs::RawMode);
        let made = match self.enter(parent).map(|to| rustix::fs::mkdirat(to, os(leaf), mode)) {
            Ok(Ok(())) => true,
            Ok(Err(Errno::EXIST)) => false,
            Ok(Err(error)) => return Err(self.store.error(name, MAKING, error.into())),
            Err(error) => return Err(self.store.error(name, MAKING, error)),
        };
        if made {
            self.made.push(name);
            self.touched.insert(parent);
        }
        if let Err(error) = self.enter(name) {
            return Err(self.store.error(name, NOT_A_DIRECTORY, error));
        }
        self.present.insert(name);
        Ok(())
    }

    /// The handle of a directory; kept, since neighbours come together.
    fn enter(&mut self, name: &'a [u8]) -> io::Result<Rc<OwnedFd>> {
        if let Some((kept, handle)) = &self.parent
            && *kept == name
        {
            return Ok(Rc::clone(handle));
        }
        let handle = Rc::new(beneath::directory(self.store.root.as_fd(), name)?);
        self.parent = Some((name, Rc::clone(&handle)));
        Ok(handle)
    }

    fn put(&mut self, number: u64, name: &'a [u8]) -> Result<(), Error> {
        let replace = self.store.overwrite == Overwrite::Always;
        match self.rename(number, name, replace) {
            Ok(how) => {
                self.moved.push((number, name, how));
                self.touched.insert(beneath::split(name).0);
                Ok(())
            }
            Err(Errno::EXIST) if replace => Err(self.store.error(name, TWICE, Errno::EXIST.into())),
            Err(Errno::EXIST) => Err(self.store.exists(name)),
            Err(error) => Err(self.store.error(name, RENAMING, error.into())),
        }
    }

    fn rename(&mut self, number: u64, name: &'a [u8], replace: bool) -> Result<How, Errno> {
        let (parent, leaf) = beneath::split(name);
        let temporary = number.to_string();
        let parent = self.enter(parent).map_err(errno)?;
        if replace {
            let stat = beneath::status(&self.parts, temporary.as_bytes()).map_err(errno)?;
            self.ours.extend(stat.iter().map(inode));
        }
        let how = match move_new(&self.parts, os(temporary.as_bytes()), &parent, os(leaf)) {
            Err(Errno::EXIST) if replace => {
                match beneath::status(&parent, leaf).map_err(errno)? {
                    Some(stat) if beneath::is_directory(&stat) => return Err(Errno::ISDIR),
                    // Where names that differ for the sender are one, the second is not to win.
                    Some(stat) if self.ours.contains(&inode(&stat)) => return Err(Errno::EXIST),
                    _ => {}
                }
                exchange(&self.parts, os(temporary.as_bytes()), &parent, os(leaf))?
            }
            done => done.map(|()| How::Moved)?,
        };
        Ok(how)
    }

    /// Gives directories their attributes, the deepest first, and flushes all that changed.
    fn complete_directories(&mut self) -> Result<(), Error> {
        let each = self.made.len() + self.touched.len() <= FLUSH_EACH;
        for at in (0..self.made.len()).rev() {
            let Some(name) = self.made.get(at).copied() else { continue };
            let listed = self.listed.get(name).copied();
            let completed = self.enter(name).and_then(|handle| {
                listed.map_or(Ok(()), |attributes| apply(&handle, attributes))?;
                if each { flush(&handle) } else { Ok(()) }
            });
            completed.map_err(|e| self.store.error(name, FLUSHING, e))?;
            self.touched.remove(name);
        }
        if !each {
            return flush_all(&self.store.root).map_err(|e| self.store.error(b"", FLUSHING, e));
        }
        for name in std::mem::take(&mut self.touched) {
            let flushed = self.enter(name).and_then(|handle| flush(&handle));
            flushed.map_err(|e| self.store.error(name, FLUSHING, e))?;
        }
        Ok(())
    }

    /// Takes back all that was done, as far as that is possible.
    fn take_back(&mut self) {
        for (number, name, how) in std::mem::take(&mut self.moved).into_iter().rev() {
            let (parent, leaf) = beneath::split(name);
            let Ok(parent) = self.enter(parent) else { continue };
            let (temporary, leaf) = (number.to_string(), os(leaf));
            let _ = match how {
                How::Moved => rustix::fs::renameat(&parent, leaf, &self.parts, temporary),
                How::Exchanged => {
                    exchange(&self.parts, os(temporary.as_bytes()), &parent, leaf).map(|_| ())
                }
                How::Replaced => Ok(()),
            };
        }
        for name in std::mem::take(&mut self.made).into_iter().rev() {
            let (parent, leaf) = beneath::split(name);
            let Ok(parent) = self.enter(parent) else { continue };
            let _ = rustix::fs::unlinkat(parent, os(leaf), AtFlags::REMOVEDIR);
        }
    }
}

const MAKING: &str = "the directory cannot be created, nothing was kept";
const RENAMING: &str = "cannot be given its name, nothing was kept";
const TWICE: &str = "is one name here for two of the sender's files, nothing was kept";

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[allow(clippy::unnecessary_cast, reason = "their widths differ between systems")]
fn inode(stat: &rustix::fs::Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// Moves to a name that must not exist.
fn move_new(from: &OwnedFd, old: &OsStr, to: &OwnedFd, new: &OsStr) -> Result<(), Errno> {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    match rustix::fs::renameat_with(from, old, to, new, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
        done => return done,
    }
    // Some file systems know no such rename; most of those know hard links.
    match rustix::fs::linkat(from, old, to, new, AtFlags::empty()) {
        Ok(()) => rustix::fs::unlinkat(from, old, AtFlags::empty()),
        Err(Errno::EXIST) => Err(Errno::EXIST),
        Err(_) => match rustix::fs::statat(to, new, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => rustix::fs::renameat(from, old, to, new),
            Err(error) => Err(error),
            Ok(_) => Err(Errno::EXIST),
        },
    }
}

/// Moves to a name that exists; what bore it takes the old name, where that can be.
fn exchange(from: &OwnedFd, old: &OsStr, to: &OwnedFd, new: &OsStr) -> Result<How, Errno> {
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    match rustix::fs::renameat_with(from, old, to, new, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
        done => return done.map(|()| How::Exchanged),
    }
    rustix::fs::renameat(from, old, to, new).map(|()| How::Replaced)
}

/// Flushes a directory; some file systems know no such thing and need none.
fn flush(directory: &OwnedFd) -> io::Result<()> {
    match rustix::fs::fsync(directory) {
        Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
        done => Ok(done?),
    }
}
