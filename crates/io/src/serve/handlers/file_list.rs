//! The files that a request names, as a list to be sent.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;

use rustix::fs::OFlags;

use super::context::HandlerContext;
use crate::disk::file_list::FileList;
use crate::disk::safe_open;
use crate::error::RequestErrorKind;
use crate::options::Selection;
use crate::request_error::RequestError;
use crate::serve::response::denied;

/// The file list of a path, and the directory of its paths.
pub(super) fn file_list(
    root: &OwnedFd,
    path: &[u8],
    trees: bool,
    name: &[u8],
    with: &HandlerContext<'_>,
) -> Result<(FileList, Arc<OwnedFd>), RequestError> {
    let handle = match path {
        b"" => root.try_clone()?,
        path => safe_open::open(root.as_fd(), path, OFlags::RDONLY | OFlags::NONBLOCK)?,
    };
    let stat = rustix::fs::fstat(&handle).map_err(io::Error::from)?;
    if safe_open::is_directory(&stat) && !trees {
        return Err(RequestError::new(RequestErrorKind::IsADirectory, "it is a directory"));
    }
    if !safe_open::is_directory(&stat) && !safe_open::is_file(&stat) {
        return Err(RequestError::new(
            RequestErrorKind::Forbidden,
            "it is neither a file nor a directory",
        ));
    }
    let handle = Arc::new(handle);
    let item = (safe_open::path_of(&handle), Some(OsString::from_vec(name.to_vec())));
    let selection = Selection { items: vec![item], ..Selection::default() };
    let memory = &with.options.memory_share;
    let list = FileList::beneath(&selection, Arc::clone(&handle), with.cancel, memory);
    let list = list.map_err(denied)?;
    Ok((list, handle))
}
