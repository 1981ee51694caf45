//! Sends files (*get*).

use std::os::fd::OwnedFd;

use super::context::HandlerContext;
use super::file_list::file_list;
use crate::disk::source::SourceReader;
use crate::request_error::RequestError;
use crate::serve::requests::get::GetRequest;
use crate::serve::response::{Done, HeldReader, OutgoingData, denied};

/// Sends the files.
pub(super) fn perform(
    get: &GetRequest,
    path: &[u8],
    root: &OwnedFd,
    with: &HandlerContext<'_>,
) -> Result<Done, RequestError> {
    let (list, handle) = file_list(root, path, get.trees, &get.name, with)?;
    let (total, files) = (list.total_bytes(), list.files_in_all());
    let reader = SourceReader::sealed(list, with.layout).map_err(denied)?;
    let reader = reader.naming(with.options.name_log.clone());
    let reader = HeldReader::new(reader, Some(handle));
    // A file has a table beside its bytes, and a tree many: then it is not worth counting.
    let bytes = total.filter(|_| files == Some(1)).unwrap_or(u64::MAX);
    Ok(Done::Send(Box::new(OutgoingData { reader, total, files, bytes, fails: None })))
}
