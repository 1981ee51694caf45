//! Moves a file to a name without replacing any other file.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

use crate::disk::fault_injection::{self, Call};

/// The identity of a file.
#[allow(clippy::unnecessary_cast, reason = "their widths differ between systems")]
pub(crate) fn id(stat: &rustix::fs::Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// A directory and a name in it.
pub(crate) type Entry<'a> = (&'a OwnedFd, &'a OsStr);

/// Moves to a name that must not exist.
pub(crate) fn move_new(
    destination: &Path,
    (from, old): Entry,
    (to, new): Entry,
) -> Result<(), Errno> {
    fault_injection::at(destination, Call::Rename)?;
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
