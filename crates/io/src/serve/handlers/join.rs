//! Makes a file of its ranges (*join*, `docs/protocol §8.9`).

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{Mode, Timespec, Timestamps};

use super::answer::done;
use super::context::HandlerContext;
use super::place::{Place, flush};
use crate::disk::attributes::tolerable;
use crate::disk::ranges::{self, WHOLE};
use crate::disk::staging;
use crate::disk::{flush, safe_open};
use crate::error::RequestErrorKind;
use crate::request_error::RequestError;
use crate::serve::requests::join::JoinRequest;
use crate::serve::response::Done;

/// Gives a file its name if all its ranges are there. Otherwise the request fails as `not-found`.
pub(super) fn perform(
    join: &JoinRequest,
    path: &[u8],
    root: &OwnedFd,
    with: &HandlerContext<'_>,
) -> Result<Done, RequestError> {
    let parent = safe_open::directory(root.as_fd(), path)?;
    let whole = ranges::whole(&parent, &join.file, join.total, join.bytes)?;
    let (directory, file) = whole.map_err(|range| {
        let why = format!("the range of the file at {} is not there", range.offset);
        RequestError::new(RequestErrorKind::NotFound, why)
    })?;
    let target = Place::target(root, &join.to, join.replace)?;
    let mode = Mode::from_raw_mode((join.mode & 0o777) as _);
    // As in a transfer of the whole file: attributes that cannot be set are no failure.
    tolerable(rustix::fs::fchmod(&file, mode))?;
    let (seconds, nanos) = join.modified;
    let time = Timespec { tv_sec: seconds as _, tv_nsec: nanos.min(999_999_999) as _ };
    let times = Timestamps { last_access: time, last_modification: time };
    tolerable(rustix::fs::futimens(&file, &times))?;
    flush::sync(&file)?;
    target.take(&directory, OsStr::new(WHOLE), join.replace)?;
    flush(&target.parent);
    // The file has its name. The record of its ranges may stay if it cannot be removed.
    let name = staging::ranges_name(&join.file);
    let _ = ranges::remove(&parent, name.as_bytes());
    flush(&parent);
    done(1, with.layout)
}
