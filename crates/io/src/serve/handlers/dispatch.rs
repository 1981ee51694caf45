//! Performs a request on the server's disk, on a thread of its own: beneath one root, by handles,
//! without following a link (`disk/safe_open.rs`).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::context::HandlerContext;
use super::{copy, get, join, list, make_dir, put, put_range, read, remove, rename, send, stat};
use crate::disk::staging;
use crate::error::RequestErrorKind;
use crate::request_error::RequestError;
use crate::serve::push::PushContext;
use crate::serve::requests::request::{Operation, Request};
use crate::serve::response::Done;

/// Performs a request.
pub(in crate::serve) fn perform(
    request: &Request,
    root: &Arc<OwnedFd>,
    with: &HandlerContext<'_>,
    push: Option<PushContext>,
) -> Result<Done, RequestError> {
    let path = &request.path[..];
    if request.paths().into_iter().any(staging::has_ours) && !is_left(request) {
        return Err(RequestError::new(
            RequestErrorKind::Forbidden,
            "reserved name: netblt keeps parts of transfers there",
        ));
    }
    match &request.operation {
        Operation::Get(get) => get::perform(get, path, root, with),
        Operation::Put(put) => put::perform(put, path, root, with),
        Operation::Stat(stat) => stat::perform(stat, path, root, with),
        Operation::List(list) => list::perform(list, path, root, with),
        Operation::MakeDir(make) => make_dir::perform(make, path, root, with),
        Operation::Remove(remove) => remove::perform(remove, path, root, with),
        Operation::Rename(rename) => rename::perform(rename, path, root, with),
        Operation::Copy(copy) => copy::perform(copy, path, root, with),
        Operation::Read(read) => read::perform(read, root, with),
        Operation::Send(send) => send::perform(send, path, root, with, push),
        Operation::PutRange(put) => put_range::perform(put, path, root, with),
        Operation::Join(join) => join::perform(join, path, root, with),
    }
}

/// Whether the request removes the parts of a transfer with a label. No other request may name
/// files of netblt itself.
fn is_left(request: &Request) -> bool {
    match &request.operation {
        Operation::Remove(remove) => remove::is_left(remove, &request.path),
        Operation::Get(_) | Operation::Put(_) | Operation::Stat(_) | Operation::List(_) => false,
        Operation::MakeDir(_) | Operation::Rename(_) | Operation::Copy(_) => false,
        Operation::Read(_) | Operation::Send(_) => false,
        Operation::PutRange(_) | Operation::Join(_) => false,
    }
}
