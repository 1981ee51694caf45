//! The real disk beneath the resume state: the directory of the temporaries, and the destination.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::disk::commit_latch::CommitLatch;
use crate::disk::have_list::{Node, value_of};
use crate::disk::names::Names;
use crate::disk::publish_each::{FilePublisher, Made};
use crate::disk::resume::record::Stamp;
use crate::disk::resume::{Disk, Form, ReadyFile};
use crate::disk::safe_open::create_new;
use crate::disk::seal::Seal;
use crate::disk::sites::{TOP, site_of, slot_of};
use crate::disk::store::Store;
use crate::disk::{flush, safe_open};
use crate::error::Error;

/// The journal, and its name until it is complete.
const JOURNAL: &str = "journal";
const UNFINISHED: &str = "journal.new";
/// More than this of a journal is not read: two million files of long names.
const MAX_JOURNAL: u64 = 1 << 30;

/// The disk of one destination.
pub(crate) struct FsBackend<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) names: &'a Names,
    pub(crate) publisher: &'a mut FilePublisher,
    /// The last error, with its words.
    pub(crate) failure: Option<Error>,
    pub(crate) latch: CommitLatch,
}

impl Disk for FsBackend<'_> {
    fn journal(&mut self) -> io::Result<Vec<u8>> {
        match self.store.staged() {
            Some(staged) => journal(staged),
            None => Ok(Vec::new()),
        }
    }

    fn seal(&mut self) -> io::Result<Seal> {
        self.store.seal_of_kept()
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let staging = self.store.staging_handle()?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut file = File::from(rustix::fs::openat(&staging, JOURNAL, flags, Mode::empty())?);
        file.write_all(bytes)?;
        flush::sync(&file)?;
        flush::close(file.into())
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        let staging = self.store.staging_handle()?;
        let mut file = create_new(&staging, UNFINISHED)?;
        file.write_all(bytes)?;
        flush::sync(&file)?;
        flush::close(file.into())?;
        rustix::fs::renameat(&staging, UNFINISHED, &staging, JOURNAL)?;
        flush::directory(&staging)
    }

    fn sync(&mut self, slots: &[u64]) -> io::Result<()> {
        if slots.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.store.flush(slots, &self.latch) {
            self.failure = Some(error);
            return Err(Errno::IO.into());
        }
        if self.latch.is_cancelled() {
            // Not all of them may have been waited for.
            return Err(io::ErrorKind::Interrupted.into());
        }
        // Their directory entries must last, too.
        flush::directory(&*self.store.staging_handle()?)?;
        self.store.sync_names(slots)
    }

    fn stored(&mut self, slot: u64) -> Option<Stamp> {
        let place = self.store.place_of(slot).ok()?;
        let stat = safe_open::status(&*place, slot.to_string().as_bytes());
        self.store.stamp_of(stamp(stat.ok()??)?)
    }

    fn named(&mut self, name: &[u8]) -> Option<Stamp> {
        let (parent, leaf) = safe_open::split(name);
        let parent = safe_open::directory(self.store.root.as_fd(), parent).ok()?;
        self.store.stamp_of(stamp(safe_open::status(&parent, leaf).ok()??)?)
    }

    fn place(&mut self, ready: &ReadyFile, inode: Option<u64>) -> io::Result<Option<Box<str>>> {
        if let Form::Empty { before, .. } = ready.form {
            match self.publisher.make(self.store, self.names, ready, before)? {
                Made::There => return Ok(None),
                Made::LeftOut(why) => return Ok(Some(why)),
                // It is replaced as others are.
                Made::Stands => self.store.empty(ready.slot, &ready.name, ready.times)?,
            }
        }
        self.publisher.place(self.store, self.names, ready, inode)
    }

    fn slots(&mut self) -> Vec<u64> {
        let Some(staged) = self.store.staged() else { return Vec::new() };
        let mut all = slots(staged);
        all.retain(|slot| site_of(*slot) == TOP);
        let sites = self.store.sites.borrow().numbers();
        for site in sites {
            let Ok(place) = self.store.place_of(slot_of(site, 0)) else { continue };
            all.extend(slots(&*place).into_iter().filter(|slot| site_of(*slot) == site));
        }
        all
    }

    fn remove(&mut self, slot: u64) {
        self.store.discard(slot);
    }

    fn verify_block(&mut self, slot: u64, node: &Node) -> bool {
        let file = self.store.open_slot(slot).ok().filter(|file| self.is_alone(file));
        let there = node.of_range(self.store.range);
        file.is_some_and(|file| value_of(&file, &there).is_ok_and(|value| value == node.value))
    }

    fn digest(&mut self, slot: Option<u64>, name: &[u8]) -> Option<[u8; 32]> {
        let file = match slot {
            Some(slot) => self.store.open_slot(slot).ok().filter(|file| self.is_alone(file)),
            None => safe_open::file(self.store.root.as_fd(), name).ok(),
        };
        self.store.digest(&file?)
    }
}

impl FsBackend<'_> {
    /// Whether a temporary has no other name: it is about to be written to, and an archive may have
    /// brought it as another name of a file that matters. A range has names by design.
    fn is_alone(&self, file: &File) -> bool {
        self.store.range.is_some() || file.metadata().is_ok_and(|about| about.nlink() == 1)
    }
}

/// The journal in a directory, up to its bound.
pub(crate) fn journal(directory: impl std::os::fd::AsFd) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    match rustix::fs::openat(directory, JOURNAL, flags, Mode::empty()) {
        Err(Errno::NOENT) => Ok(Vec::new()),
        file => {
            let mut bytes = Vec::new();
            File::from(file?).take(MAX_JOURNAL).read_to_end(&mut bytes)?;
            Ok(bytes)
        }
    }
}

/// The numbers of the files in a directory that are named by one.
pub(crate) fn slots(directory: impl std::os::fd::AsFd) -> Vec<u64> {
    let Ok(listing) = Dir::read_from(directory) else { return Vec::new() };
    let names = listing.flatten().map(|entry| entry.file_name().to_bytes().to_vec());
    names.filter_map(|name| String::from_utf8(name).ok()?.parse().ok()).collect()
}

fn stamp(stat: Stat) -> Option<Stamp> {
    if !safe_open::is_file(&stat) {
        return None;
    }
    let length = u64::try_from(stat.st_size).ok()?;
    let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    #[allow(clippy::unnecessary_cast, reason = "their widths differ between systems")]
    let (inode, modified, changed) =
        (stat.st_ino as u64, stat.st_mtime as i64, stat.st_ctime as i64);
    let changed = (changed, u32::try_from(stat.st_ctime_nsec).unwrap_or(0));
    Some(Stamp { inode, length, modified: (modified, nanos), changed })
}

/// The bytes that a file of a directory takes on the disk; nothing if it is none.
pub(crate) fn bytes_of(directory: impl std::os::fd::AsFd, name: &[u8]) -> u64 {
    let stat = rustix::fs::statat(directory, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW);
    stat.ok().and_then(|stat| u64::try_from(stat.st_blocks).ok()).unwrap_or(0) * 512
}
