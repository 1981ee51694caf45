//! fsync on every file system: some (FUSE, networks) have no such call, and no other one instead.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;

/// Waits until a file is on the disk; false where its file system cannot be waited for.
pub(crate) fn sync(file: impl AsFd) -> io::Result<bool> {
    known(rustix::fs::fsync(file))
}

/// Whether a file system knows the call; an error if the call failed.
pub(crate) fn known(synced: Result<(), Errno>) -> io::Result<bool> {
    match synced {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::NOTSUP | Errno::NOSYS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
