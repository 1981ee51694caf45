//! Ranges of one file that come with connections of their own, at the same time, and perhaps by
//! several servers of one directory; and the file that they become (`docs/protocol.md §8.9`).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, Timespec, Timestamps};

use super::found::{Done, Prepared, denied, expected};
use super::leaving::Leaving;
use super::moving::{self, Place};
use super::request::{Join, PutRange};
use crate::denial::Denied;
use crate::destination::Destination;
use crate::disk::attributes::tolerable;
use crate::disk::layout::Layout;
use crate::disk::ranges::{self, WHOLE};
use crate::disk::room::Room;
use crate::disk::staging;
use crate::disk::{beneath, flush};
use crate::error::Denial;
use crate::name_log::NameLog;
use crate::options::{Options, Overwrite, Resume};
use crate::transfer::receive::writer;

/// A place for a range: in the file of all of them, which lies in the directory `path`.
pub(super) fn put(
    root: &OwnedFd,
    path: &[u8],
    wish: PutRange,
    (options, layout, leaving): (&Options, Layout, &Leaving),
) -> Result<Done, Denied> {
    let range = wish.range;
    if options.max_bytes.is_some_and(|most| range.total > most) {
        let why = "a file of so many bytes is more than this server takes";
        return Err(Denied::new(Denial::NoRoom, why));
    }
    let parent = beneath::directory(root.as_fd(), path)?;
    let held = Arc::new(ranges::open(&parent, &wish.file, range.total)?);
    let kept_at = leaving.wait_for(&held, Some(wish.label))?;
    if staging::is_taken(&held, &staging::kept_name(Some(&wish.label))) {
        return Err(Denied::new(Denial::Busy, "another transfer of this range is not over"));
    }
    let (place, name) = (beneath::path_of(&held), ranges::leaf(range));
    let mut options = options.clone();
    // It is itself that would be in its way.
    options.overwrite = Overwrite::Always;
    (options.atomic, options.verify, options.resume) = (false, wish.verify, Resume::Auto);
    (options.label, options.range) = (Some(wish.label), Some(range));
    options.expected = Some(expected(name.as_bytes()));
    let room = Room::new(place.clone(), Some(BTreeSet::from([OsString::from(&name)])));
    let names = NameLog::new(options.memory_share.lease());
    options.name_log = Some(names.clone());
    let writer = writer(Destination::Directory(place), &options, layout, |_| {});
    let writer = writer.map_err(denied)?;
    let name = name.into_bytes();
    Ok(Done::Put(Box::new(Prepared { writer, room, name, names, held, kept_at })))
}

/// Gives a file its name of which all ranges are there. One that lacks some is not found.
pub(super) fn join(root: &OwnedFd, path: &[u8], wish: &Join) -> Result<u64, Denied> {
    let parent = beneath::directory(root.as_fd(), path)?;
    let whole = ranges::whole(&parent, &wish.file, (wish.total, wish.bytes))?;
    let (directory, file) = whole.map_err(|range| {
        let why = format!("the range of the file at {} is not there", range.offset);
        Denied::new(Denial::NotFound, why)
    })?;
    let target = Place::target(root, &wish.to, wish.replace)?;
    let mode = Mode::from_raw_mode((wish.mode & 0o777) as _);
    // As in a transfer of the whole file: where they cannot be set, the file is there.
    tolerable(rustix::fs::fchmod(&file, mode))?;
    let (seconds, nanos) = wish.modified;
    let time = Timespec { tv_sec: seconds as _, tv_nsec: nanos.min(999_999_999) as _ };
    let times = Timestamps { last_access: time, last_modification: time };
    tolerable(rustix::fs::futimens(&file, &times))?;
    flush::sync(&file)?;
    target.take((&directory, OsStr::new(WHOLE)), wish.replace)?;
    moving::flush(&target.parent);
    // The file is there; what only told that its ranges are may stay if it must.
    let name = staging::ranges_name(&wish.file);
    let _ = ranges::remove(&parent, name.as_bytes());
    moving::flush(&parent);
    Ok(1)
}
