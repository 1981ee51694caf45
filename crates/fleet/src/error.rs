//! What can go wrong with a run's directory.

use std::io;
use std::path::{Path, PathBuf};

/// Why a plan, a run or an engine cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory here.
    #[error("{}: {what}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What could not be done.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Something in the run's directory is not what it should be.
    #[error("{}: {why}", path.display())]
    Record {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// What is asked for makes no sense.
    #[error("{0}")]
    Wish(String),
    /// It was cancelled.
    #[error("interrupted")]
    Interrupted,
}

/// What an error of the system's is here.
pub(crate) fn at(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path, what, source }
}

pub(crate) fn damaged(path: &Path, why: impl ToString) -> Error {
    Error::Record { path: path.to_owned(), why: why.to_string() }
}
