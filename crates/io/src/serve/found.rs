//! What a request has found on the server's disk: something to send, or a place to store it.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use netblt_proto::buffer::Buffer;
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::End;

use super::leaving::KeptAt;
use crate::denial::Denied;
use crate::disk::had::Had;
use crate::disk::layout::Layout;
use crate::disk::room::Room;
use crate::disk::source::SourceReader;
use crate::disk::staging;
use crate::disk::threads::{Fill, Reader, Writer};
use crate::error::{Denial, Error};
use crate::memory_budget::MemoryLease;
use crate::name_log::NameLog;
use crate::options::{Expected, Only};
use crate::progress::At;

/// What is to be sent in answer, or stored.
pub(super) enum Done {
    Send(Box<Outgoing>),
    Put(Box<Prepared>),
}

/// Files, or an answer.
pub(super) struct Outgoing {
    pub(super) reader: Held,
    /// Bytes and files in all, if they are known.
    pub(super) total: Option<u64>,
    pub(super) files: Option<u64>,
    /// Bytes of the answer, or at least of the files.
    pub(super) bytes: u64,
    /// Tells that what the answer is about has failed.
    pub(super) fails: Option<Receiver<Denied>>,
}

/// Where files may go that will be sent.
pub(super) struct Prepared {
    pub(super) writer: Box<dyn Writer>,
    pub(super) room: Room,
    /// What the one source is called there, if it is not to keep its name.
    pub(super) name: Vec<u8>,
    /// Gets the names of what comes.
    pub(super) names: NameLog,
    /// Keeps the path of `room` good.
    pub(super) held: Arc<OwnedFd>,
    /// Where what comes is kept.
    pub(super) kept_at: KeptAt,
}

/// A reader, and what its paths stand on.
#[derive(Debug)]
pub(super) struct Held {
    reader: SourceReader,
    _handle: Option<Arc<OwnedFd>>,
    /// What its text takes.
    memory: MemoryLease,
}

impl Held {
    pub(super) fn new(reader: SourceReader, handle: Option<Arc<OwnedFd>>) -> Self {
        Self { reader, _handle: handle, memory: MemoryLease::default() }
    }

    /// Memory that is taken until it goes.
    pub(super) fn hold(&mut self, memory: MemoryLease) {
        self.memory = memory;
    }
}

impl Reader for Held {
    fn at(&mut self) -> At {
        self.reader.at()
    }

    fn fill(&mut self, number: BufferNumber, buffer: &mut Buffer) -> Result<Fill, Error> {
        self.reader.fill(number, buffer)
    }

    fn end(&self) -> Option<End> {
        self.reader.end()
    }

    fn restart(&mut self, layout: Layout, had: &Arc<Had>) -> Result<(), Error> {
        self.reader.restart(layout, had)
    }
}

/// The words for an error of the disk's; the paths in it are nobody's business.
pub(super) fn denied(error: Error) -> Denied {
    match error {
        Error::File { source, .. } => source.into(),
        Error::Denied { what, why } => Denied::new(what, why),
        Error::Exists(_) => Denied::new(Denial::Exists, "it exists"),
        error => Denied::new(Denial::Failed, error.to_string()),
    }
}

/// What may come: what was asked for, and nothing that would pass for what a transfer keeps.
pub(super) fn expected(name: &[u8]) -> Expected {
    let name = name.to_vec();
    let takes = move |came: &[u8], _| {
        let mut parts = came.split(|byte| *byte == b'/');
        let first = parts.clone().next().unwrap_or_default();
        (name.is_empty() || first == name) && !parts.any(staging::is_ours)
    };
    Expected { names: BTreeSet::new(), directories: true, only: Some(Only::new(takes)) }
}
