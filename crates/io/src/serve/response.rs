//! The result of a request on the server's disk: a response to send, or a place for an upload.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use netblt_proto::buffer::Buffer;
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::End;

use super::cleanup::KeptAt;
use crate::disk::free_space::FreeSpace;
use crate::disk::have_list::HaveList;
use crate::disk::layout::Layout;
use crate::disk::source::SourceReader;
use crate::disk::staging;
use crate::disk::threads::{Fill, Reader, Writer};
use crate::error::{Error, RequestErrorKind};
use crate::memory_budget::MemoryLease;
use crate::name_log::NameLog;
use crate::options::{Expected, NameFilter};
use crate::progress::FilePosition;
use crate::request_error::RequestError;

/// The response, or the prepared upload.
pub(super) enum Done {
    Send(Box<OutgoingData>),
    Put(Box<PreparedUpload>),
}

/// Files, or an answer.
pub(super) struct OutgoingData {
    pub(super) reader: HeldReader,
    /// Bytes and files in all, if they are known.
    pub(super) total: Option<u64>,
    pub(super) files: Option<u64>,
    /// Bytes of the answer, or at least of the files.
    pub(super) bytes: u64,
    /// The error of a transfer that the response is about.
    pub(super) fails: Option<Receiver<RequestError>>,
}

/// The destination of an announced upload.
pub(super) struct PreparedUpload {
    pub(super) writer: Box<dyn Writer>,
    pub(super) room: FreeSpace,
    /// The name of a single file there, if it is not to keep its own.
    pub(super) name: Vec<u8>,
    /// Gets the names of the received files.
    pub(super) names: NameLog,
    /// Keeps the path of `room` good.
    pub(super) held: Arc<OwnedFd>,
    /// The place of its parts.
    pub(super) kept_at: KeptAt,
}

/// A reader, and the directory of its paths.
#[derive(Debug)]
pub(super) struct HeldReader {
    reader: SourceReader,
    _handle: Option<Arc<OwnedFd>>,
    /// The memory of the response's text.
    memory: MemoryLease,
}

impl HeldReader {
    pub(super) fn new(reader: SourceReader, handle: Option<Arc<OwnedFd>>) -> Self {
        Self { reader, _handle: handle, memory: MemoryLease::default() }
    }

    /// Memory that is taken until it goes.
    pub(super) fn hold(&mut self, memory: MemoryLease) {
        self.memory = memory;
    }
}

impl Reader for HeldReader {
    fn at(&mut self) -> FilePosition {
        self.reader.at()
    }

    fn fill(&mut self, number: BufferNumber, buffer: &mut Buffer) -> Result<Fill, Error> {
        self.reader.fill(number, buffer)
    }

    fn end(&self) -> Option<End> {
        self.reader.end()
    }

    fn restart(&mut self, layout: Layout, had: &Arc<HaveList>) -> Result<(), Error> {
        self.reader.restart(layout, had)
    }
}

/// The refusal for an error of the disk, without the paths in it, which no client may learn.
pub(super) fn denied(error: Error) -> RequestError {
    match error {
        Error::File { source, .. } => source.into(),
        Error::Denied { what, why } => RequestError::new(what, why),
        Error::Exists(_) => RequestError::new(RequestErrorKind::Exists, "it exists"),
        error => RequestError::new(RequestErrorKind::Failed, error.to_string()),
    }
}

/// The files that may come: those that were requested, and no name of netblt's own.
pub(super) fn expected(name: &[u8]) -> Expected {
    let name = name.to_vec();
    let takes = move |came: &[u8], _| {
        let mut parts = came.split(|byte| *byte == b'/');
        let first = parts.clone().next().unwrap_or_default();
        (name.is_empty() || first == name) && !parts.any(staging::is_ours)
    };
    Expected { names: BTreeSet::new(), directories: true, only: Some(NameFilter::new(takes)) }
}
