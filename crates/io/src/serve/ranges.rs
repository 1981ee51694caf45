//! Ranges of one file that come with connections of their own, at the same time, and perhaps by
//! several servers of one directory; and the file that they become (`docs/protocol §8.9`).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, Timespec, Timestamps};

use super::cleanup::Cleanups;
use super::rename_copy::{self, Place};
use super::request::{Join, PutRange};
use super::response::{Done, PreparedUpload, denied, expected};
use crate::destination::Destination;
use crate::disk::attributes::tolerable;
use crate::disk::free_space::FreeSpace;
use crate::disk::layout::Layout;
use crate::disk::ranges::{self, WHOLE};
use crate::disk::staging;
use crate::disk::{flush, safe_open};
use crate::error::RequestErrorKind;
use crate::name_log::NameLog;
use crate::options::{Options, Overwrite, Resume};
use crate::request_error::RequestError;
use crate::transfer::receive::writer;

/// A place for a range: in the file of all of them, which lies in the directory `path`.
pub(super) fn put(
    root: &OwnedFd,
    path: &[u8],
    wish: PutRange,
    options: &Options,
    layout: Layout,
    cleanups: &Cleanups,
) -> Result<Done, RequestError> {
    let range = wish.range;
    if options.max_bytes.is_some_and(|most| range.total > most) {
        let why = "a file of so many bytes is more than this server takes";
        return Err(RequestError::new(RequestErrorKind::NoRoom, why));
    }
    let parent = safe_open::directory(root.as_fd(), path)?;
    let held = Arc::new(ranges::open(&parent, &wish.file, range.total)?);
    let kept_at = cleanups.wait_for(&held, Some(wish.label))?;
    if staging::is_taken(&held, &staging::kept_name(Some(&wish.label))) {
        return Err(RequestError::new(
            RequestErrorKind::Busy,
            "another transfer of this range is not over",
        ));
    }
    let (place, name) = (safe_open::path_of(&held), ranges::leaf(range));
    let mut options = options.clone();
    // It is itself that would be in its way.
    options.overwrite = Overwrite::Always;
    (options.atomic, options.verify, options.resume) = (false, wish.verify, Resume::Auto);
    (options.label, options.range) = (Some(wish.label), Some(range));
    options.expected = Some(expected(name.as_bytes()));
    let room = FreeSpace::new(place.clone(), Some(BTreeSet::from([OsString::from(&name)])));
    let names = NameLog::new(options.memory_share.lease());
    options.name_log = Some(names.clone());
    let writer = writer(Destination::Directory(place), &options, layout, |_| {});
    let writer = writer.map_err(denied)?;
    let name = name.into_bytes();
    Ok(Done::Put(Box::new(PreparedUpload { writer, room, name, names, held, kept_at })))
}

/// Gives a file its name if all its ranges are there. Otherwise it is not found.
pub(super) fn join(root: &OwnedFd, path: &[u8], wish: &Join) -> Result<u64, RequestError> {
    let parent = safe_open::directory(root.as_fd(), path)?;
    let whole = ranges::whole(&parent, &wish.file, wish.total, wish.bytes)?;
    let (directory, file) = whole.map_err(|range| {
        let why = format!("the range of the file at {} is not there", range.offset);
        RequestError::new(RequestErrorKind::NotFound, why)
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
    target.take(&directory, OsStr::new(WHOLE), wish.replace)?;
    rename_copy::flush(&target.parent);
    // The file has its name. The record of its ranges may stay if it cannot be removed.
    let name = staging::ranges_name(&wish.file);
    let _ = ranges::remove(&parent, name.as_bytes());
    rename_copy::flush(&parent);
    Ok(1)
}
