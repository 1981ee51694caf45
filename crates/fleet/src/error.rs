//! The errors of a run's directory.

use std::io;
use std::path::{Path, PathBuf};

/// The error of a plan, a run or an engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory here.
    #[error("{}: {what}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The action that failed.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A file of the run's directory is wrong.
    #[error("{}: {why}", path.display())]
    Record {
        /// Which file.
        path: PathBuf,
        /// Its error.
        why: String,
    },
    /// The request is invalid.
    #[error("{0}")]
    InvalidRequest(String),
    /// It was cancelled.
    #[error("interrupted")]
    Interrupted,
}

/// The error for a system's error at this path.
pub(crate) fn at(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, what, source }
}

pub(crate) fn damaged(path: &Path, why: impl ToString) -> Error {
    Error::Record { path: path.to_owned(), why: why.to_string() }
}
