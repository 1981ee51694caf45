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

/// A tree is removed or copied so far down.
pub(super) const MAX_DOWN: u32 = 256;

/// A place for something: a directory and a name in it.
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

    /// Something that is there.
    pub(super) fn source(root: &OwnedFd, path: &'a [u8]) -> Result<(Self, Stat), RequestError> {
        let place = Self::find(root, path)?;
        let stat = place.stat.ok_or_else(|| io::Error::from(Errno::NOENT))?;
        Ok((place, stat))
    }

    /// The target of a request: nothing may be in the way, or a file that may be replaced.
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

    /// Gives something its name here.
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

/// Whether `path` is beneath `directory`, or it itself.
pub(super) fn is_beneath(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Waits for the disk; a file system that cannot is not to blame for more than that.
pub(super) fn flush(directory: &OwnedFd) {
    let _ = flush::directory(directory);
}
