//! The destination of received data.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;

/// The destination of received data.
#[derive(Debug)]
#[non_exhaustive]
pub enum Destination {
    /// Beneath this directory, which must exist (`sealed`).
    Directory(PathBuf),
    /// In this file (`rfc998`, which carries no names).
    File(PathBuf),
    /// Written in order. Only one file or stream can be received this way: [`Destination::writer`],
    /// [`Destination::stdout`].
    /// [`Destination::writer`], [`Destination::stdout`].
    Stream(Output),
}

/// A stream to receive into.
pub struct Output {
    /// Its name in errors.
    pub(crate) label: &'static str,
    pub(crate) writer: Box<dyn Write + Send>,
}

impl Destination {
    /// Beneath this directory, which must exist.
    pub fn directory(path: impl Into<PathBuf>) -> Self {
        Self::Directory(path.into())
    }

    /// Into `writer`. Written data cannot be taken back. The result says whether they were right.
    pub fn writer(writer: impl Write + Send + 'static) -> Self {
        Self::Stream(Output { label: "the stream", writer: Box::new(writer) })
    }

    /// To standard output, without the standard library's buffer, which searches every write for a
    /// newline.
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
