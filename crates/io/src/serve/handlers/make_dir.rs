//! Makes directories (*mkdir*).

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::Mode;
use rustix::io::Errno;

use super::answer::done;
use super::context::HandlerContext;
use crate::disk::safe_open;
use crate::request_error::RequestError;
use crate::serve::requests::make_dir::MakeDirRequest;
use crate::serve::response::Done;

/// Makes the directory.
pub(super) fn perform(
    make: &MakeDirRequest,
    path: &[u8],
    root: &OwnedFd,
    with: &HandlerContext<'_>,
) -> Result<Done, RequestError> {
    done(make_directory(root, path, make.parents)?, with.layout)
}

/// Makes the directory. Returns how many were made, with those above it.
fn make_directory(root: &OwnedFd, path: &[u8], parents: bool) -> Result<u64, RequestError> {
    let all = Mode::RWXU | Mode::RWXG | Mode::RWXO;
    if path.is_empty() {
        return if parents { Ok(0) } else { Err(io::Error::from(Errno::EXIST).into()) };
    }
    let ends = (0..=path.len()).filter(|end| path.get(*end).is_none_or(|byte| *byte == b'/'));
    let mut made = 0;
    for end in ends.filter(|end| parents || *end == path.len()) {
        let name = path.get(..end).unwrap_or_default();
        let (parent, leaf) = safe_open::split(name);
        let parent = safe_open::directory(root.as_fd(), parent)?;
        match rustix::fs::mkdirat(&parent, OsStr::from_bytes(leaf), all) {
            Ok(()) => made += 1,
            Err(Errno::EXIST) if parents => {
                safe_open::directory(root.as_fd(), name)?;
            }
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
    Ok(made)
}
