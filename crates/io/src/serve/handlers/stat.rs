//! The status of a path (*stat*).

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;

use crate::disk::safe_open;
use crate::request_error::RequestError;
use crate::serve::request::Entry;

pub(super) fn stat(root: &OwnedFd, path: &[u8]) -> Result<Entry, RequestError> {
    let (parent, leaf) = safe_open::split(path);
    let stat = match path {
        b"" => Some(rustix::fs::fstat(root).map_err(io::Error::from)?),
        _ => safe_open::status(safe_open::directory(root.as_fd(), parent)?, leaf)?,
    };
    let stat = stat.ok_or_else(|| io::Error::from(Errno::NOENT))?;
    Ok(Entry::of(leaf, &stat))
}
