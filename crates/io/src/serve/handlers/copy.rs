//! Copies files and directories on the server (*copy*). A file gets its name when it is whole and
//! on the disk.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use super::answer::done;
use super::context::HandlerContext;
use super::place::{MAX_DOWN, Place, flush, into_itself, is_beneath};
use crate::cancel::Cancel;
use crate::disk::attributes::tolerable;
use crate::disk::staging::Staging;
use crate::disk::{flush, safe_open, sparse, staging};
use crate::error::RequestErrorKind;
use crate::request_error::RequestError;
use crate::serve::requests::copy::{CopyRequest, Copying};
use crate::serve::response::Done;

/// Bytes that are copied between two checks whether the request was cancelled.
const STEP: u64 = 64 << 20;
/// The name of a copy until it is complete, in a directory that only this process uses.
const COPY: &str = "copy";

/// The most that one request may copy.
#[derive(Debug)]
struct Bounds {
    /// Files, directories and links.
    count: u64,
    bytes: u64,
}

/// Copies what is at the path.
pub(super) fn perform(
    copy: &CopyRequest,
    path: &[u8],
    root: &OwnedFd,
    with: &HandlerContext<'_>,
) -> Result<Done, RequestError> {
    let bytes = with.options.settings.max_bytes.unwrap_or(u64::MAX);
    let bounds = Bounds { count: with.options.settings.max_files, bytes };
    done(copy_to(root, path, &copy.to, copy.how, bounds, with.cancel)?, with.layout)
}

/// Copies a file, a link or a tree to another name. Returns how many entries were copied.
fn copy_to(
    root: &OwnedFd,
    from: &[u8],
    to: &[u8],
    how: Copying,
    bounds: Bounds,
    cancel: &Cancel,
) -> Result<u64, RequestError> {
    let (source, stat) = Place::source(root, from)?;
    let directory = safe_open::is_directory(&stat);
    if directory && !how.trees {
        return Err(RequestError::new(RequestErrorKind::IsADirectory, "it is a directory"));
    }
    if directory && is_beneath(to, from) {
        return Err(into_itself());
    }
    let target = Place::target(root, to, how.replace && !directory)?;
    let staging = Staging::create(&target.parent)?;
    let mut copier = Copier { staging: &staging, how, left: bounds, done: 0, cancel };
    let copied = copier.entry(&source.parent, source.leaf, &target, MAX_DOWN);
    let done = copier.done;
    staging.remove(&target.parent);
    flush(&target.parent);
    copied.map(|()| done)
}

struct Copier<'a> {
    staging: &'a Staging,
    how: Copying,
    left: Bounds,
    done: u64,
    cancel: &'a Cancel,
}

impl Copier<'_> {
    /// Copies one entry of any type.
    fn entry(
        &mut self,
        parent: &OwnedFd,
        leaf: &OsStr,
        target: &Place<'_>,
        down: u32,
    ) -> Result<(), RequestError> {
        if self.cancel.is_cancelled() {
            return Err(RequestError::new(RequestErrorKind::Failed, "interrupted"));
        }
        let more = || {
            RequestError::new(
                RequestErrorKind::Failed,
                "too many files for one copy on this server",
            )
        };
        self.left.count = self.left.count.checked_sub(1).ok_or_else(more)?;
        let gone = || io::Error::from(Errno::NOENT);
        let stat = safe_open::status(parent, leaf.as_bytes())?.ok_or_else(gone)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.file(parent, leaf, target)?,
            FileType::Directory if self.how.trees => self.directory(parent, leaf, target, down)?,
            FileType::Symlink => {
                let to =
                    rustix::fs::readlinkat(parent, leaf, Vec::new()).map_err(io::Error::from)?;
                rustix::fs::symlinkat(&to, &self.staging.handle, COPY).map_err(io::Error::from)?;
                self.name(target)?;
            }
            _ => {
                let why = "it is neither a file nor a directory";
                return Err(RequestError::new(RequestErrorKind::Forbidden, why));
            }
        }
        self.done += 1;
        Ok(())
    }

    fn file(&mut self, parent: &OwnedFd, leaf: &OsStr, to: &Place<'_>) -> Result<(), RequestError> {
        let mut source = safe_open::file(parent.as_fd(), leaf.as_bytes())?;
        let stat = rustix::fs::fstat(&source).map_err(io::Error::from)?;
        if !safe_open::is_file(&stat) {
            return Err(RequestError::new(RequestErrorKind::Failed, "it has changed meanwhile"));
        }
        let length = u64::try_from(stat.st_size).unwrap_or(0);
        let more = || {
            RequestError::new(
                RequestErrorKind::Failed,
                "this copy has more bytes than the server accepts",
            )
        };
        self.left.bytes = self.left.bytes.checked_sub(length).ok_or_else(more)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let copy = rustix::fs::openat(&self.staging.handle, COPY, flags, mode);
        let mut copy = File::from(copy.map_err(io::Error::from)?);
        self.content(&mut source, &mut copy, length)?;
        self.set_attributes(&copy, &stat)?;
        flush::sync(&copy)?;
        self.name(to)
    }

    /// Copies the bytes but no holes. The file system itself copies where it can.
    fn content(&self, source: &mut File, copy: &mut File, length: u64) -> Result<(), RequestError> {
        copy.set_len(length)?;
        let mut at = 0;
        while let Some((from, end)) = sparse::next_part(source, at, length) {
            source.seek(SeekFrom::Start(from))?;
            copy.seek(SeekFrom::Start(from))?;
            let mut left = end - from;
            while left > 0 {
                if self.cancel.is_cancelled() {
                    return Err(RequestError::new(RequestErrorKind::Failed, "interrupted"));
                }
                let step = left.min(STEP);
                if io::copy(&mut (&mut *source).take(step), copy)? < step {
                    let why = "it became shorter while it was copied";
                    return Err(RequestError::new(RequestErrorKind::Failed, why));
                }
                left -= step;
            }
            at = end;
        }
        // The cut-off part looks like a hole.
        if source.metadata()?.len() < length {
            return Err(RequestError::new(
                RequestErrorKind::Failed,
                "it became shorter while it was copied",
            ));
        }
        Ok(())
    }

    fn directory(
        &mut self,
        parent: &OwnedFd,
        leaf: &OsStr,
        target: &Place<'_>,
        down: u32,
    ) -> Result<(), RequestError> {
        let deep = || {
            RequestError::new(
                RequestErrorKind::Failed,
                "the directories in it are too many levels deep",
            )
        };
        let below = down.checked_sub(1).ok_or_else(deep)?;
        let source = safe_open::directory(parent.as_fd(), leaf.as_bytes())?;
        let stat = rustix::fs::fstat(&source).map_err(io::Error::from)?;
        rustix::fs::mkdirat(&target.parent, target.leaf, Mode::RWXU).map_err(io::Error::from)?;
        let made = safe_open::directory(target.parent.as_fd(), target.leaf.as_bytes())?;
        let names = Dir::read_from(&source).map_err(io::Error::from)?;
        for name in names {
            let name = name.map_err(io::Error::from)?;
            let name = name.file_name().to_bytes();
            if matches!(name, b"." | b"..") || staging::is_ours(name) {
                continue;
            }
            let parent = made.try_clone()?;
            let leaf = OsStr::from_bytes(name);
            let place = Place { parent, leaf, stat: None };
            self.entry(&source, leaf, &place, below)?;
        }
        let made = File::from(made);
        self.set_attributes(&made, &stat)?;
        Ok(flush::directory(&made.into())?)
    }

    /// Sets permissions, and times if they are to be kept.
    fn set_attributes(&self, copy: &File, stat: &Stat) -> Result<(), RequestError> {
        #[allow(clippy::unnecessary_cast, reason = "its width differs between systems")]
        let mode = stat.st_mode as u32 & 0o777;
        let mode = if self.how.keep { mode } else { mode & self.staging.permitted };
        let set = rustix::fs::fchmod(copy, Mode::from_raw_mode(mode as _));
        // Permissions that are not to be kept may stay those of the file system's default.
        match self.how.keep {
            true => set.map_err(io::Error::from)?,
            false => _ = tolerable(set)?,
        }
        if self.how.keep {
            #[allow(clippy::unnecessary_cast, reason = "their widths differ between systems")]
            let time = Timespec { tv_sec: stat.st_mtime as _, tv_nsec: stat.st_mtime_nsec as _ };
            let times = Timestamps { last_access: time, last_modification: time };
            rustix::fs::futimens(copy, &times).map_err(io::Error::from)?;
        }
        Ok(())
    }

    /// Gives a complete copy its name.
    fn name(&self, to: &Place<'_>) -> Result<(), RequestError> {
        let replace = self.how.replace && to.stat.is_some();
        to.take(&self.staging.handle, OsStr::new(COPY), replace)
    }
}
