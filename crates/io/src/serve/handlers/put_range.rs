//! Prepares the upload of a range of a file (*put-range*). Ranges come with connections of their
//! own, at the same time, and perhaps by several servers of one directory (`docs/protocol §8.9`).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use super::context::HandlerContext;
use crate::destination::Destination;
use crate::disk::free_space::FreeSpace;
use crate::disk::ranges::{self};
use crate::disk::safe_open;
use crate::disk::staging;
use crate::error::RequestErrorKind;
use crate::name_log::NameLog;
use crate::request_error::RequestError;
use crate::serve::requests::put_range::PutRangeRequest;
use crate::serve::response::{Done, PreparedUpload, denied, expected};
use crate::settings::{Overwrite, Resume};
use crate::transfer::receive::writer;

/// Prepares the upload of a range into the file of all ranges, in the directory `path`.
pub(super) fn perform(
    put: &PutRangeRequest,
    path: &[u8],
    root: &OwnedFd,
    with: &HandlerContext<'_>,
) -> Result<Done, RequestError> {
    let HandlerContext { options, layout, cleanups, .. } = *with;
    let range = put.range;
    if options.settings.max_bytes.is_some_and(|most| range.total > most) {
        let why = "a file of so many bytes is more than this server takes";
        return Err(RequestError::new(RequestErrorKind::NoRoom, why));
    }
    let parent = safe_open::directory(root.as_fd(), path)?;
    let held = Arc::new(ranges::open(&parent, &put.file, range.total)?);
    let kept_at = cleanups.wait_for(&held, Some(put.label))?;
    if staging::is_taken(&held, &staging::kept_name(Some(&put.label))) {
        return Err(RequestError::new(
            RequestErrorKind::Busy,
            "another transfer of this range is not over",
        ));
    }
    let (place, name) = (safe_open::path_of(&held), ranges::leaf(range));
    let mut options = options.clone();
    // The name of a range is its own: only an earlier copy of this range can have it.
    options.settings.overwrite = Overwrite::Always;
    (options.settings.atomic, options.settings.verify, options.settings.resume) =
        (false, put.verify, Resume::Auto);
    (options.label, options.range) = (Some(put.label), Some(range));
    options.expected = Some(expected(name.as_bytes()));
    let room = FreeSpace::new(place.clone(), Some(BTreeSet::from([OsString::from(&name)])));
    let names = NameLog::new(options.memory_share.lease());
    options.name_log = Some(names.clone());
    let writer = writer(Destination::Directory(place), &options, layout, |_| {});
    let writer = writer.map_err(denied)?;
    let name = name.into_bytes();
    Ok(Done::Put(Box::new(PreparedUpload { writer, room, name, names, held, kept_at })))
}
