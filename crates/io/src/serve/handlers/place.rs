//! A name in a directory on the server, which a request reads or gives: beneath one root, by
//! handles, without following a link.

use std::ffi::OsStr;
use std::io::{self};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::Stat;
use rustix::io::Errno;

use crate::disk::rename::move_new;
use crate::disk::{flush, safe_open};
use crate::error::RequestErrorKind;
use crate::request_error::RequestError;

/// Most levels of directories in a tree that is removed or copied.
pub(super) const MAX_DOWN: u32 = 256;

/// A directory, and a name in it that may exist.
pub(super) struct Place<'a> {
    pub(super) parent: OwnedFd,
    pub(super) leaf: &'a OsStr,
    /// The existing file there.
    pub(super) stat: Option<Stat>,
}

impl<'a> Place<'a> {
    fn find(root: &OwnedFd, path: &'a [u8]) -> Result<Self, RequestError> {
        if path.is_empty() {
            return Err(RequestError::new(
                RequestErrorKind::Forbidden,
                "the root itself stays where it is",
            ));
        }
        let (parent, leaf) = safe_open::split(path);
        let parent = safe_open::directory(root.as_fd(), parent)?;
        let stat = safe_open::status(&parent, leaf)?;
        Ok(Self { parent, leaf: OsStr::from_bytes(leaf), stat })
    }

    /// The place of an existing file, and its status.
    pub(super) fn source(root: &OwnedFd, path: &'a [u8]) -> Result<(Self, Stat), RequestError> {
        let place = Self::find(root, path)?;
        let stat = place.stat.ok_or_else(|| io::Error::from(Errno::NOENT))?;
        Ok((place, stat))
    }

    /// The place of a new name. Nothing may exist there, except a file that may be replaced.
    pub(super) fn target(
        root: &OwnedFd,
        path: &'a [u8],
        replace: bool,
    ) -> Result<Self, RequestError> {
        let there = |denied: RequestError| RequestError {
            why: format!("the new name: {}", denied.why),
            ..denied
        };
        let place = Self::find(root, path).map_err(there)?;
        match &place.stat {
            Some(stat) if !replace || !safe_open::is_replaceable(stat) => {
                Err(RequestError::new(RequestErrorKind::Exists, "the new name exists"))
            }
            _ => Ok(place),
        }
    }

    /// Moves the file `leaf` of `parent` to this place.
    pub(super) fn take(
        &self,
        parent: &OwnedFd,
        leaf: &OsStr,
        replace: bool,
    ) -> Result<(), RequestError> {
        let done = if replace {
            rustix::fs::renameat(parent, leaf, &self.parent, self.leaf)
        } else {
            move_new(&safe_open::path_of(&self.parent), (parent, leaf), (&self.parent, self.leaf))
        };
        match done {
            Ok(()) => Ok(()),
            // The system's words for these two errors do not help people.
            Err(Errno::INVAL) => Err(into_itself()),
            Err(Errno::XDEV) => {
                let why = "the two are on different file systems: copy it, and remove the other";
                Err(RequestError::new(RequestErrorKind::Failed, why))
            }
            Err(error) => Err(io::Error::from(error).into()),
        }
    }
}

pub(super) fn into_itself() -> RequestError {
    RequestError::new(RequestErrorKind::Failed, "cannot move or copy a directory into itself")
}

/// Whether `path` is `directory` or beneath it.
pub(super) fn is_beneath(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Flushes the directory to the disk. A failure is ignored, because some file systems cannot do it.
pub(super) fn flush(directory: &OwnedFd) {
    let _ = flush::directory(directory);
}
