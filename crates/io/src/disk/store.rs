//! The destination directory: temporaries, and the step that gives everything its final name.
//!
//! What arrives is written to files named by number in a directory `.netblt-<16 hex digits>.part`
//! of the destination, which only this user can enter. They are renamed to their final names when,
//! and only when, all of them are complete, verified and flushed, so a process that is killed
//! leaves nothing under a final name; the `.part` directory that it leaves can be deleted. In all
//! other cases it is removed by [`Store::clear`], at the latest by `drop`.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, Dir, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use netblt_proto::content::Attributes;

use crate::disk::beneath;
use crate::error::{Error, file_error, shown};
use crate::options::Overwrite;

/// Most temporaries that are open at once.
const MAX_OPEN: usize = 64;
/// Up to so many files or directories are flushed one by one; for more, the whole file system is
/// flushed in one call (ext4, 1,000 files of 3 kB: 40 ms instead of 3.8 s).
pub(crate) const FLUSH_EACH: usize = 64;
/// A name that exists by chance is tried again this often.
const NAME_TRIES: u32 = 8;

/// The destination directory and the temporaries in it.
#[derive(Debug)]
pub(crate) struct Store {
    path: PathBuf,
    pub(crate) root: OwnedFd,
    pub(crate) overwrite: Overwrite,
    parts: Option<Parts>,
    /// Open temporaries by number, the last one used last.
    open: Vec<(u64, File)>,
    /// The directory that was looked into last, if it exists: files come in directories.
    parent: Option<(Vec<u8>, Option<OwnedFd>)>,
}

#[derive(Debug)]
struct Parts {
    name: String,
    handle: OwnedFd,
}

impl Store {
    /// Opens a destination, which must exist. Nothing is written yet.
    pub(crate) fn new(path: &Path, overwrite: Overwrite) -> Result<Self, Error> {
        let root = beneath::open_directory(path)
            .map_err(|e| file_error(path, "cannot be used as the destination directory", e))?;
        let access = Access::WRITE_OK | Access::EXEC_OK;
        rustix::fs::accessat(&root, ".", access, AtFlags::EACCESS)
            .map_err(|e| file_error(path, "cannot be written to", e.into()))?;
        let path = path.to_path_buf();
        Ok(Self { path, root, overwrite, parts: None, open: Vec::new(), parent: None })
    }

    /// Whether `name` may come into being: nothing stands in its way that must not be replaced.
    pub(crate) fn probe(&mut self, name: &[u8], directory: bool) -> Result<(), Error> {
        let (parent, leaf) = beneath::split(name);
        let Some(parent) = self.parent(parent)? else { return Ok(()) };
        let stands =
            beneath::status(parent, leaf).map_err(|e| self.error(name, "cannot be examined", e))?;
        match stands {
            None => Ok(()),
            Some(stat) if directory == beneath::is_directory(&stat) && directory => Ok(()),
            Some(_) if self.overwrite == Overwrite::Never => Err(self.exists(name)),
            Some(stat) if directory || beneath::is_directory(&stat) => {
                let text = "a file and a directory cannot replace each other; nothing was written";
                Err(self.error(name, "is in the way", io::Error::other(text)))
            }
            Some(_) => Ok(()),
        }
    }

    fn parent(&mut self, name: &[u8]) -> Result<Option<&OwnedFd>, Error> {
        if self.parent.as_ref().is_none_or(|(kept, _)| kept != name) {
            let handle = match beneath::directory(self.root.as_fd(), name) {
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
        bytes: &[u8],
        attributes: &Attributes,
    ) -> Result<(), Error> {
        let written = self.create(number).and_then(|file| {
            file.write_all_at(bytes, 0)?;
            apply(&file, attributes)
        });
        written.map_err(|e| self.error(&attributes.name, what_failed(&e), e))
    }

    /// Stores a part of a file; `name` is for errors and may not be known yet.
    pub(crate) fn write_at(
        &mut self,
        number: u64,
        offset: u64,
        bytes: &[u8],
        name: Option<&[u8]>,
    ) -> Result<(), Error> {
        let written = self.temporary(number).and_then(|file| file.write_all_at(bytes, offset));
        written.map_err(|e| self.error(name.unwrap_or_default(), what_failed(&e), e))
    }

    /// All parts of a file are stored.
    pub(crate) fn close(&mut self, number: u64, attributes: &Attributes) -> Result<(), Error> {
        let applied = self.temporary(number).and_then(|file| apply(file, attributes));
        self.open.retain(|(open, _)| *open != number);
        applied.map_err(|e| self.error(&attributes.name, "cannot be completed", e))
    }

    /// Waits until these temporaries are on the disk.
    pub(crate) fn flush(&mut self, numbers: &[u64]) -> Result<(), Error> {
        let flushed = match &self.parts {
            Some(parts) if numbers.len() <= FLUSH_EACH => {
                let one = |number: &u64| {
                    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                    let name = number.to_string();
                    match rustix::fs::openat(&parts.handle, name, flags, Mode::empty()) {
                        // Its owner may not read it: so its mode says.
                        Err(Errno::ACCESS) => flush_all(&self.root),
                        file => Ok(rustix::fs::fsync(file?)?),
                    }
                };
                numbers.iter().try_for_each(one)
            }
            Some(_) => flush_all(&self.root),
            None => Ok(()),
        };
        self.open.clear();
        flushed.map_err(|e| self.error(b"", FLUSHING, e))
    }

    /// Removes the temporaries. What cannot be removed stays behind, under its telling name.
    pub(crate) fn clear(&mut self) {
        self.open.clear();
        self.parent = None;
        let Some(parts) = self.parts.take() else { return };
        if let Ok(listing) = Dir::read_from(&parts.handle) {
            for name in listing.flatten().map(|entry| entry.file_name().to_owned()) {
                let _ = rustix::fs::unlinkat(&parts.handle, name, AtFlags::empty());
            }
        }
        let _ = rustix::fs::unlinkat(&self.root, parts.name, AtFlags::REMOVEDIR);
    }

    /// The directory of the temporaries, created if there is none.
    pub(crate) fn parts(&mut self) -> io::Result<&OwnedFd> {
        let parts = match self.parts.take() {
            Some(parts) => parts,
            None => create_parts(&self.root)?,
        };
        Ok(&self.parts.insert(parts).handle)
    }

    /// The error that `name` exists.
    pub(crate) fn exists(&self, name: &[u8]) -> Error {
        Error::Exists(self.path.join(shown(name)))
    }

    /// An error about `name`, the destination itself if that is empty.
    pub(crate) fn error(&self, name: &[u8], what: &'static str, source: io::Error) -> Error {
        let path = if name.is_empty() { self.path.clone() } else { self.path.join(shown(name)) };
        file_error(&path, what, source)
    }

    fn create(&mut self, number: u64) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // The directory keeps others out; what the file itself permits is the user's umask.
        let mode = Mode::from_raw_mode(0o666);
        Ok(rustix::fs::openat(self.parts()?, number.to_string(), flags, mode)?.into())
    }

    fn temporary(&mut self, number: u64) -> io::Result<&File> {
        let entry = match self.open.iter().position(|(open, _)| *open == number) {
            Some(at) => self.open.remove(at),
            None => (number, self.create(number)?),
        };
        if self.open.len() >= MAX_OPEN {
            self.open.remove(0);
        }
        self.open.push(entry);
        self.open.last().map(|(_, file)| file).ok_or_else(|| Errno::BADF.into())
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
const WRITING: &str = "cannot be written, nothing was kept";

fn what_failed(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::DQUOT) => FULL,
        _ => WRITING,
    }
}

fn create_parts(root: &OwnedFd) -> io::Result<Parts> {
    let mut tries = 0;
    loop {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let name = format!(".netblt-{:016x}.part", u64::from_be_bytes(random));
        match rustix::fs::mkdirat(root, &name, Mode::RWXU) {
            Err(Errno::EXIST) if tries < NAME_TRIES => tries += 1,
            Err(error) => return Err(error.into()),
            Ok(()) => {
                let handle = beneath::directory(root.as_fd(), name.as_bytes())?;
                return Ok(Parts { name, handle });
            }
        }
    }
}

/// Sets permissions (never more than read, write and execute) and the time of modification, where
/// the file system knows such.
pub(crate) fn apply(file: impl AsFd, attributes: &Attributes) -> io::Result<()> {
    let mode = Mode::from_raw_mode((attributes.mode & 0o777) as rustix::fs::RawMode);
    let time = Timespec {
        tv_sec: attributes.mtime_seconds,
        tv_nsec: attributes.mtime_nanos.min(999_999_999).into(),
    };
    let times = Timestamps { last_access: time, last_modification: time };
    let tolerate = |outcome| match outcome {
        Err(Errno::PERM | Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) => Ok(()),
        other => other,
    };
    tolerate(rustix::fs::fchmod(&file, mode))?;
    Ok(tolerate(rustix::fs::futimens(&file, &times))?)
}

/// Flushes the file system of `root`.
pub(crate) fn flush_all(root: &OwnedFd) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::fs::syncfs(root)?;
    #[cfg(not(target_os = "linux"))]
    {
        let _ = root;
        rustix::fs::sync();
    }
    Ok(())
}

/// A name as one of this system's.
pub(crate) fn os(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}
