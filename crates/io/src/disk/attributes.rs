//! Permissions and times, as a sender sends them and as they are set here.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use netblt_proto::content::Attributes;
use rustix::fs::{AtFlags, Mode, Timespec, Timestamps};
use rustix::io::Errno;

use crate::disk::fault_injection::Call;

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

/// Which of the sender's attributes are set here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptAttributes {
    /// Permission bits that it may have.
    pub(crate) permitted: u32,
    /// Bits that it has of the directory it was made in, and keeps: a directory its set-group-id.
    pub(crate) inherited: u32,
    /// It has them already: it was made with them.
    pub(crate) has_mode: bool,
    /// The time of modification; otherwise it is that of its arrival.
    pub(crate) times: bool,
}

/// The attributes that could not be set, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) mode: Option<Errno>,
    pub(crate) times: Option<Errno>,
}

/// Sets permissions (never more than read, write and execute) and the time of modification. Returns
/// those that the file system does not have, or this user may not set. `may` is asked before each
/// call.
pub(crate) fn apply(
    file: impl AsFd,
    times: FileTimes,
    kept: KeptAttributes,
    may: impl Fn(Call) -> Result<(), Errno>,
) -> io::Result<Refused> {
    let mode = times.mode & 0o777 & kept.permitted | kept.inherited;
    let mode = Mode::from_raw_mode(mode as rustix::fs::RawMode);
    let time = Timespec { tv_sec: times.seconds, tv_nsec: times.nanos.min(999_999_999).into() };
    let times = Timestamps { last_access: time, last_modification: time };
    let mut refused = Refused::default();
    // A user outside the group that a directory hands on would take the group's bit away.
    let is_set =
        |bits| rustix::fs::fstat(&file).is_ok_and(|stat| Mode::from_raw_mode(stat.st_mode) == bits);
    let has_all = kept.has_mode || (kept.inherited != 0 && is_set(mode));
    if !has_all {
        let set = may(Call::Modes).and_then(|()| rustix::fs::fchmod(&file, mode));
        refused.mode = tolerable(set)?;
    }
    if kept.times {
        let set = may(Call::Times).and_then(|()| rustix::fs::futimens(&file, &times));
        refused.times = tolerable(set)?;
    }
    Ok(refused)
}

/// Why something is not set, if that is no reason to give up.
pub(crate) fn tolerable(outcome: Result<(), Errno>) -> io::Result<Option<Errno>> {
    match outcome {
        Ok(()) => Ok(None),
        Err(why @ (Errno::PERM | Errno::NOTSUP | Errno::NOSYS | Errno::INVAL)) => Ok(Some(why)),
        Err(error) => Err(error.into()),
    }
}

/// Sets the time of modification of a symbolic link itself; why not, if the file system knows such
/// times.
pub(crate) fn apply_to_link(
    directory: &OwnedFd,
    name: &str,
    times: FileTimes,
    kept: KeptAttributes,
) -> Option<Errno> {
    if !kept.times {
        return None;
    }
    let time = Timespec { tv_sec: times.seconds, tv_nsec: times.nanos.min(999_999_999).into() };
    let times = Timestamps { last_access: time, last_modification: time };
    let set = rustix::fs::utimensat(directory, name, &times, AtFlags::SYMLINK_NOFOLLOW);
    set.err().filter(|why| !matches!(*why, Errno::NOTSUP | Errno::NOSYS | Errno::INVAL))
}
