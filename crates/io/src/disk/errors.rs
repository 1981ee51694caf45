//! Names and paths as errors show them.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use netblt_proto::machine::printable;

use crate::error::Error;

/// A name made fit for a terminal.
pub(crate) fn shown(name: &[u8]) -> String {
    printable(&String::from_utf8_lossy(name))
}

/// An error of this side's disk; the path is made fit for a terminal.
pub(crate) fn file_error(path: &Path, what: &'static str, source: io::Error) -> Error {
    Error::File { path: PathBuf::from(shown(path.as_os_str().as_bytes())), what, source }
}
