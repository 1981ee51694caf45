//! Gives something another name (*rename*).

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::AtFlags;

use super::answer::done;
use super::context::HandlerContext;
use super::place::{Place, flush, into_itself, is_beneath};
use crate::disk::rename::id;
use crate::disk::safe_open;
use crate::request_error::RequestError;
use crate::serve::requests::rename::RenameRequest;
use crate::serve::response::Done;

/// Renames what is at the path.
pub(super) fn perform(
    rename: &RenameRequest,
    path: &[u8],
    root: &OwnedFd,
    with: &HandlerContext<'_>,
) -> Result<Done, RequestError> {
    done(rename_to(root, path, &rename.to, rename.replace)?, with.layout)
}

/// Gives a file, a link or a directory another name.
fn rename_to(root: &OwnedFd, from: &[u8], to: &[u8], replace: bool) -> Result<u64, RequestError> {
    let (source, stat) = Place::source(root, from)?;
    if safe_open::is_directory(&stat) && is_beneath(to, from) && to != from {
        return Err(into_itself());
    }
    // Only a file or link takes the place of a file.
    let replace = replace && !safe_open::is_directory(&stat);
    let target = Place::target(root, to, replace)?;
    // Two names of one file: the system would do nothing, and both would stay. If it has one name
    // only, the two differ in a way that this file system ignores, such as case.
    let same = target.stat.is_some_and(|there| id(&there) == id(&stat) && there.st_nlink > 1);
    if from != to && same {
        rustix::fs::unlinkat(&source.parent, source.leaf, AtFlags::empty())
            .map_err(io::Error::from)?;
        return Ok(1);
    }
    target.take(&source.parent, source.leaf, replace)?;
    flush(&target.parent);
    flush(&source.parent);
    Ok(1)
}
