//! The entries of a directory (*list*).

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;

use super::answer::outgoing;
use super::context::HandlerContext;
use super::stat::entry;
use crate::disk::safe_open;
use crate::error::RequestErrorKind;
use crate::memory_budget::MemoryLease;
use crate::request_error::RequestError;
use crate::serve::requests::entry::Entry;
use crate::serve::requests::list::ListRequest;
use crate::serve::requests::response_item::ResponseItem;
use crate::serve::response::Done;

/// Most entries in one answer. A client sends another request for more.
const PAGE: u64 = 10_000;
/// Memory of an item of an answer beyond its name.
const LINE_BYTES: u64 = 100;

/// Sends the entries of the directory, or the entry of the file.
pub(super) fn perform(
    list: &ListRequest,
    path: &[u8],
    root: &OwnedFd,
    with: &HandlerContext<'_>,
) -> Result<Done, RequestError> {
    let (lines, memory) = page(root, path, &list.after, list.most, with)?;
    let mut outgoing = outgoing(lines, with.layout)?;
    outgoing.reader.hold(memory);
    Ok(Done::Send(Box::new(outgoing)))
}

/// A page of a directory, or the entry of a file, and the memory that it takes.
fn page(
    root: &OwnedFd,
    path: &[u8],
    after: &[u8],
    most: u64,
    with: &HandlerContext<'_>,
) -> Result<(Vec<ResponseItem>, MemoryLease), RequestError> {
    let mut memory = with.options.memory_share.lease();
    let directory = match safe_open::directory(root.as_fd(), path).map_err(safe_open::errno) {
        Ok(directory) => directory,
        // A link is not followed. Systems differ in which of the two errors they return.
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Ok((vec![ResponseItem::Entry(entry(root, path)?)], memory));
        }
        Err(error) => return Err(io::Error::from(error).into()),
    };
    let most = usize::try_from(if most == 0 { PAGE } else { most.min(PAGE) }).unwrap_or(1);
    let memory_share = &with.options.memory_share;
    let listings = with.listings;
    let page = listings.page(with.client, memory_share, &directory, after, most, with.cancel)?;
    let mut lines = Vec::new();
    for name in page.names {
        if with.cancel.is_cancelled() {
            return Err(RequestError::new(RequestErrorKind::Failed, "interrupted"));
        }
        // As it is held, and as it is sent.
        if !memory.take(2 * (LINE_BYTES + name.len() as u64)) {
            return Err(RequestError::new(
                RequestErrorKind::Busy,
                "there is no memory for a list; try again later",
            ));
        }
        // The entry may have been removed meanwhile.
        if let Some(stat) = safe_open::status(&directory, &name)? {
            lines.push(ResponseItem::Entry(Entry::of(&name, &stat)));
        }
    }
    lines.extend(page.more.then_some(ResponseItem::More));
    Ok((lines, memory))
}
