//! Permissions and times, as a sender tells them and as a file here gets them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use netblt_proto::content::Attributes;
use rustix::fs::{AtFlags, Mode, Timespec, Timestamps};
use rustix::io::Errno;

/// Permissions and times: attributes without the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileTimes {
    pub(crate) mode: u32,
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
}

impl From<&Attributes> for FileTimes {
    fn from(attributes: &Attributes) -> Self {
        let Attributes { mode, mtime_seconds: seconds, mtime_nanos: nanos, .. } = *attributes;
        Self { mode, seconds, nanos }
    }
}

/// How much of what a sender tells a file here gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Permission bits that it may have.
    pub(crate) permitted: u32,
    /// It has them already: it was made with them.
    pub(crate) has_mode: bool,
    /// The time of modification; otherwise it is that of its arrival.
    pub(crate) times: bool,
}

/// Sets permissions (never more than read, write and execute) and the time of modification, where
/// the file system knows such.
pub(crate) fn apply(file: impl AsFd, times: FileTimes, kept: Kept) -> io::Result<()> {
    let mode = Mode::from_raw_mode((times.mode & 0o777 & kept.permitted) as rustix::fs::RawMode);
    let time = Timespec { tv_sec: times.seconds, tv_nsec: times.nanos.min(999_999_999).into() };
    let times = Timestamps { last_access: time, last_modification: time };
    let tolerate = |outcome| match outcome {
        Err(Errno::PERM | Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) => Ok(()),
        other => other,
    };
    if !kept.has_mode {
        tolerate(rustix::fs::fchmod(&file, mode))?;
    }
    if !kept.times {
        return Ok(());
    }
    Ok(tolerate(rustix::fs::futimens(&file, &times))?)
}

/// Sets the time of modification of a symbolic link itself, where the file system knows such.
pub(crate) fn apply_to_link(directory: &OwnedFd, name: &str, times: FileTimes, kept: Kept) {
    if kept.times {
        let time = Timespec { tv_sec: times.seconds, tv_nsec: times.nanos.min(999_999_999).into() };
        let times = Timestamps { last_access: time, last_modification: time };
        // Nobody misses it where it cannot be set.
        let _ = rustix::fs::utimensat(directory, name, &times, AtFlags::SYMLINK_NOFOLLOW);
    }
}
