//! Sends files to another server (*send*).

use std::os::fd::OwnedFd;

use super::answer::streamed;
use super::context::HandlerContext;
use super::file_list::file_list;
use crate::error::RequestErrorKind;
use crate::request_error::RequestError;
use crate::serve::push::PushContext;
use crate::serve::requests::send::SendRequest;
use crate::serve::response::{Done, OutgoingData};

/// Starts the transfer. Its progress is the answer.
pub(super) fn perform(
    send: &SendRequest,
    path: &[u8],
    root: &OwnedFd,
    with: &HandlerContext<'_>,
    push: Option<PushContext>,
) -> Result<Done, RequestError> {
    let none = || RequestError::new(RequestErrorKind::Failed, "internal server error");
    let push = push.ok_or_else(none)?;
    let found = file_list(root, path, send.trees, &send.name, with)?;
    let (progress, fails) = push.send(found, &send.push, with.cancel)?;
    let outgoing = streamed(Box::new(progress), u64::MAX, with.layout)?;
    Ok(Done::Send(Box::new(OutgoingData { fails: Some(fails), ..outgoing })))
}
