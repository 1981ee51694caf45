//! The status of a path (*stat*).

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;

use super::answer::answer;
use super::context::HandlerContext;
use super::file_list::file_list;
use crate::disk::safe_open;
use crate::request_error::RequestError;
use crate::serve::requests::entry::{Entry, EntryType};
use crate::serve::requests::response_item::{NAME, ResponseItem};
use crate::serve::requests::stat::StatRequest;
use crate::serve::response::Done;

/// The status of the path.
pub(super) fn perform(
    stat: &StatRequest,
    path: &[u8],
    root: &OwnedFd,
    with: &HandlerContext<'_>,
) -> Result<Done, RequestError> {
    let entry = entry(root, path)?;
    let data = match (entry.sort, stat.trees) {
        // It takes as much as it needs to send the tree, and as much memory.
        (EntryType::Directory, true) => {
            file_list(root, path, true, NAME.as_bytes(), with)?.0.data_bytes()
        }
        _ => Some(entry.data).filter(|data| *data < entry.length),
    };
    let lines = [ResponseItem::Entry(entry)].into_iter().chain(data.map(ResponseItem::Room));
    answer(lines, with.layout)
}

/// The entry of a path.
pub(super) fn entry(root: &OwnedFd, path: &[u8]) -> Result<Entry, RequestError> {
    let (parent, leaf) = safe_open::split(path);
    let stat = match path {
        b"" => Some(rustix::fs::fstat(root).map_err(io::Error::from)?),
        _ => safe_open::status(safe_open::directory(root.as_fd(), parent)?, leaf)?,
    };
    let stat = stat.ok_or_else(|| io::Error::from(Errno::NOENT))?;
    Ok(Entry::of(leaf, &stat))
}
