//! Prepares an upload (*put*).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;

use rustix::fs::FileType;

use super::answer::done;
use super::context::HandlerContext;
use crate::destination::Destination;
use crate::disk::free_space::FreeSpace;
use crate::disk::{safe_open, staging};
use crate::error::RequestErrorKind;
use crate::name_log::NameLog;
use crate::request_error::RequestError;
use crate::serve::requests::put::{PutOptions, PutRequest};
use crate::serve::response::{Done, PreparedUpload, denied, expected};
use crate::settings::{Overwrite, Resume};
use crate::transfer::receive::writer;

/// Prepares an upload, or confirms that an announced one is cancelled.
pub(super) fn perform(
    put: &PutRequest,
    path: &[u8],
    root: &OwnedFd,
    with: &HandlerContext<'_>,
) -> Result<Done, RequestError> {
    match put {
        PutRequest::Announce(options) => announce(*options, path, root, with),
        // The server's loop has cancelled it.
        PutRequest::Cancel(_) => done(1, with.layout),
    }
}

/// Prepares an upload. The destination is understood as by scp: an existing directory takes the
/// files, anything else is the name of a single file in an existing directory.
fn announce(
    put: PutOptions,
    path: &[u8],
    root: &OwnedFd,
    with: &HandlerContext<'_>,
) -> Result<Done, RequestError> {
    let HandlerContext { options, layout, cleanups, .. } = *with;
    let (parent, leaf) = safe_open::split(path);
    let (directory, name): (OwnedFd, Vec<u8>) = match safe_open::directory(root.as_fd(), path) {
        Ok(directory) => (directory, Vec::new()),
        Err(error) if put.several => return Err(error.into()),
        Err(error) => {
            let directory = safe_open::directory(root.as_fd(), parent)?;
            match safe_open::status(&directory, leaf)? {
                // A link to a directory, which is not followed.
                Some(stat) if FileType::from_raw_mode(stat.st_mode).is_symlink() => {
                    return Err(error.into());
                }
                Some(_) if put.tree => {
                    let why = "it is a file, and cannot become a directory";
                    return Err(RequestError::new(RequestErrorKind::NotADirectory, why));
                }
                Some(_) if !put.replace => {
                    return Err(RequestError::new(RequestErrorKind::Exists, "it exists"));
                }
                _ => (directory, leaf.to_vec()),
            }
        }
    };
    let held = Arc::new(directory);
    let place = safe_open::path_of(&held);
    let mut options = options.clone();
    options.settings.overwrite = if put.replace { Overwrite::Always } else { Overwrite::Never };
    (options.settings.atomic, options.settings.preserve) = (put.atomic, put.preserve);
    (options.settings.keep_times, options.settings.verify) = (put.times, put.verify);
    options.label = put.label.filter(|_| !put.atomic);
    // Parts of others reveal their content, so only a client that may read can resume them. A label
    // is known only to the client that chose it.
    let may_hear = with.may_read || options.label.is_some();
    options.settings.resume = if may_hear { Resume::Auto } else { Resume::Never };
    let kept_at = cleanups.wait_for(&held, options.label)?;
    // A client is not to send again what another upload still holds.
    let kept = options.label.map(|label| staging::kept_name(Some(&label)));
    if kept.is_some_and(|name| staging::is_taken(&held, &name)) {
        return Err(RequestError::new(
            RequestErrorKind::Busy,
            "another transfer of this label is not over",
        ));
    }
    options.expected = Some(expected(&name));
    let names = (!name.is_empty()).then(|| BTreeSet::from([OsString::from_vec(name.clone())]));
    let room = FreeSpace::new(place.clone(), names);
    let names = NameLog::new(options.memory_share.lease());
    options.name_log = Some(names.clone());
    let writer = writer(Destination::Directory(place), &options, layout, |_| {});
    let writer = writer.map_err(denied)?;
    Ok(Done::Put(Box::new(PreparedUpload { writer, room, name, names, held, kept_at })))
}
