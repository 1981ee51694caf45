//! Changes of a tree that need no data: removals, renames, links, attributes. Every name is found
//! beneath the tree's root, without following a link.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;

use crate::disk::safe_open::{self, errno_is};
use crate::disk::staging;
use crate::error::{shown_path, system_message};
use crate::mirror::tree::MirrorTree;

/// Changes a tree.
#[derive(Debug)]
pub(crate) struct TreeWriter<'a> {
    tree: &'a MirrorTree,
    /// Where removed and replaced files go.
    backups: Option<&'a [u8]>,
}

/// Permissions of a directory until the transfer gives it its own.
const NEW_DIRECTORY: Mode = Mode::RWXU;

impl<'a> TreeWriter<'a> {
    pub(crate) fn new(tree: &'a MirrorTree, backups: Option<&'a [u8]>) -> Self {
        Self { tree, backups }
    }

    /// Removes an entry; a file goes to the backups if there are any. Whether it was there.
    pub(crate) fn remove(&self, name: &[u8], directory: bool) -> Result<bool, String> {
        self.said(name, "cannot be removed", self.try_remove(name, directory))
    }

    fn try_remove(&self, name: &[u8], directory: bool) -> io::Result<bool> {
        let (parent, leaf) = safe_open::split(name);
        let parent = match safe_open::directory(self.root(), parent) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        if safe_open::status(&parent, leaf)?.is_none() {
            return Ok(false);
        }
        let done = match (directory, self.backups) {
            (false, Some(_)) => return self.move_to_backups(&parent, leaf, name).map(|()| true),
            (true, _) => rustix::fs::unlinkat(&parent, leaf, AtFlags::REMOVEDIR),
            (false, None) => rustix::fs::unlinkat(&parent, leaf, AtFlags::empty()),
        };
        match done {
            Err(Errno::NOENT) => Ok(false),
            // What the filter excludes is in it.
            Err(Errno::NOTEMPTY | Errno::EXIST) if directory => Ok(false),
            done => Ok(done.map(|()| true)?),
        }
    }

    fn move_to_backups(&self, parent: &OwnedFd, leaf: &[u8], name: &[u8]) -> io::Result<()> {
        let (backups, own) = self.backup_of(name)?;
        Ok(rustix::fs::renameat(parent, leaf, &backups, own)?)
    }

    /// Keeps a copy of a file that is about to be replaced: another name of it, or, where the file
    /// system has no hard links, the file itself, so that it is away until the new one comes.
    pub(crate) fn back_up(&self, name: &[u8]) -> Result<(), String> {
        self.said(name, "cannot be kept in the directory of backups", self.try_back_up(name))
    }

    fn try_back_up(&self, name: &[u8]) -> io::Result<()> {
        let (parent, leaf) = safe_open::split(name);
        let parent = safe_open::directory(self.root(), parent)?;
        let (backups, own) = self.backup_of(name)?;
        match rustix::fs::unlinkat(&backups, own, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        match rustix::fs::linkat(&parent, leaf, &backups, own, AtFlags::empty()) {
            Err(Errno::PERM | Errno::NOTSUP | Errno::NOSYS | Errno::MLINK) => {
                Ok(rustix::fs::renameat(&parent, leaf, &backups, own)?)
            }
            linked => Ok(linked?),
        }
    }

    /// The directory and the name of the backup of a file. The directories above it are made.
    fn backup_of<'n>(&self, name: &'n [u8]) -> io::Result<(OwnedFd, &'n [u8])> {
        let (parent, leaf) = safe_open::split(name);
        let backups = self.backups.unwrap_or_default();
        let directory = match parent {
            b"" => backups.to_vec(),
            parent => [backups, b"/", parent].concat(),
        };
        Ok((self.make_directories(&directory)?, leaf))
    }

    /// Gives a file another name. What has that name already stays.
    pub(crate) fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), String> {
        let what = "cannot be renamed";
        self.said(from, what, self.try_rename(from, to))
    }

    fn try_rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        let (old_parent, old) = safe_open::split(from);
        let (new_parent, new) = safe_open::split(to);
        let old_parent = safe_open::directory(self.root(), old_parent)?;
        let new_parent = self.make_directories(new_parent)?;
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(&old_parent, old, &new_parent, new, flags) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                if safe_open::status(&new_parent, new)?.is_some() {
                    return Err(Errno::EXIST.into());
                }
                Ok(rustix::fs::renameat(&old_parent, old, &new_parent, new)?)
            }
            renamed => Ok(renamed?),
        }
    }

    /// Makes a name another one of a file, in one step.
    pub(crate) fn link(&self, file: &[u8], name: &[u8]) -> Result<(), String> {
        self.said(name, "cannot be linked", self.try_link(file, name))
    }

    fn try_link(&self, file: &[u8], name: &[u8]) -> io::Result<()> {
        let (file_parent, file) = safe_open::split(file);
        let (parent, leaf) = safe_open::split(name);
        let file_parent = safe_open::directory(self.root(), file_parent)?;
        let parent = self.make_directories(parent)?;
        let temporary = staging::random_name()?;
        let temporary = temporary.as_bytes();
        rustix::fs::linkat(&file_parent, file, &parent, temporary, AtFlags::empty())?;
        let renamed = rustix::fs::renameat(&parent, temporary, &parent, leaf);
        // Two names of one file: rename does nothing then, and leaves the first.
        let _ = rustix::fs::unlinkat(&parent, temporary, AtFlags::empty());
        Ok(renamed?)
    }

    /// Sets permissions and the time of modification (seconds and nanoseconds) of a directory, or
    /// of a file or link.
    pub(crate) fn set_attributes(
        &self,
        name: &[u8],
        directory: bool,
        mode: u32,
        time: (i64, u32),
    ) -> Result<(), String> {
        match self.try_set_attributes(name, directory, mode, time) {
            // It was removed, or never came, which was reported.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => self.said(name, "its permissions and its time cannot be set", done),
        }
    }

    fn try_set_attributes(
        &self,
        name: &[u8],
        directory: bool,
        mode: u32,
        (seconds, nanos): (i64, u32),
    ) -> io::Result<()> {
        let time = Timespec { tv_sec: seconds, tv_nsec: nanos.min(999_999_999).into() };
        let times = Timestamps { last_access: time, last_modification: time };
        if name.is_empty() {
            self.set_mode(self.tree.root(), mode)?;
            return Ok(rustix::fs::futimens(self.tree.root(), &times)?);
        }
        let (parent, leaf) = safe_open::split(name);
        let parent = safe_open::directory(self.root(), parent)?;
        let stat = safe_open::status(&parent, leaf)?.ok_or(io::ErrorKind::NotFound)?;
        // Something else is still in its place, which was reported.
        if safe_open::is_directory(&stat) != directory {
            return Ok(());
        }
        if safe_open::is_file(&stat) || safe_open::is_directory(&stat) {
            self.set_mode(&safe_open::open(parent.as_fd(), leaf, OFlags::PATH)?, mode)?;
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(rustix::fs::utimensat(&parent, OsStr::from_bytes(leaf), &times, flags)?)
    }

    /// Lets the owner change the entries of a directory. Where that fails, so will the changes.
    pub(crate) fn open_up(&self, name: &[u8]) {
        let open = || {
            let directory = match name {
                b"" => self.root().try_clone_to_owned()?,
                name => safe_open::open(self.root(), name, OFlags::PATH | OFlags::DIRECTORY)?,
            };
            let mode = rustix::fs::fstat(&directory)?.st_mode & 0o777;
            if mode & 0o700 == 0o700 { Ok(()) } else { self.set_mode(&directory, mode | 0o700) }
        };
        let _: io::Result<()> = open();
    }

    /// Sets permissions, and keeps the bits beyond those.
    fn set_mode(&self, file: &OwnedFd, mode: u32) -> io::Result<()> {
        let stat = rustix::fs::fstat(file)?;
        let new = mode & 0o777 | stat.st_mode & 0o2000;
        if stat.st_mode & 0o7777 == new {
            return Ok(());
        }
        // A handle that is no more than a place takes no fchmod.
        Ok(rustix::fs::chmod(safe_open::path_of(file), Mode::from_raw_mode(new))?)
    }

    /// Opens a directory, and makes those on the way that are missing.
    fn make_directories(&self, name: &[u8]) -> io::Result<OwnedFd> {
        match safe_open::directory(self.root(), name) {
            Err(error) if errno_is(&error, Errno::NOENT) => {}
            opened => return opened,
        }
        let (parent, leaf) = safe_open::split(name);
        let parent = self.make_directories(parent)?;
        match rustix::fs::mkdirat(&parent, OsStr::from_bytes(leaf), NEW_DIRECTORY) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        safe_open::directory(parent.as_fd(), leaf)
    }

    fn root(&self) -> std::os::fd::BorrowedFd<'_> {
        self.tree.root().as_fd()
    }

    fn said<T>(&self, name: &[u8], what: &str, done: io::Result<T>) -> Result<T, String> {
        done.map_err(|error| {
            let path = shown_path(&self.tree.path_of(name));
            format!("{path}: {what}: {}", system_message(&error))
        })
    }
}
