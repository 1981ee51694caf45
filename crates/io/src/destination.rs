//! Where to put what arrives.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;

/// Where to put what arrives.
#[derive(Debug)]
#[non_exhaustive]
pub enum Destination {
    /// Beneath this directory, which must exist (`sealed`).
    Directory(PathBuf),
    /// In this file (`rfc998`, which carries no names).
    File(PathBuf),
    /// Written in order as it comes; only one file or stream can come this way:
    /// [`Destination::writer`], [`Destination::stdout`].
    Stream(Output),
}

/// A stream to receive into.
pub struct Output {
    /// What errors call it.
    pub(crate) label: &'static str,
    pub(crate) writer: Box<dyn Write + Send>,
}

impl Destination {
    /// Beneath this directory, which must exist.
    pub fn directory(path: impl Into<PathBuf>) -> Self {
        Self::Directory(path.into())
    }

    /// Into `writer`. What was written cannot be taken back: whether it was right, the end tells.
    pub fn writer(writer: impl Write + Send + 'static) -> Self {
        Self::Stream(Output { label: "the stream", writer: Box::new(writer) })
    }

    /// To standard output, without the standard library's buffer, which looks for the last newline
    /// in every write.
    pub fn stdout() -> Self {
        let stdout = io::stdout();
        let writer: Box<dyn Write + Send> = match stdout.as_fd().try_clone_to_owned() {
            Ok(owned) => Box::new(File::from(owned)),
            Err(_) => Box::new(stdout),
        };
        Self::Stream(Output { label: "standard output", writer })
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Output({})", self.label)
    }
}
