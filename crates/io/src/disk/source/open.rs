//! The open file of an entry, and how it is read.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use netblt_proto::content::{Attributes, DataRun};

use crate::disk::file_list::ListEntry;
use crate::error::{Error, file_error};

/// Permissions under which a stream arrives.
const STREAM_MODE: u32 = 0o644;

/// After so many bytes the thread yields the processor: the sending thread has next to nothing to
/// do, and much depends on when it does it (`docs/decisions/data-path.md`).
const PART: usize = 128 << 10;

/// The content of an extent.
pub(super) struct Content {
    /// Bytes, holes included.
    pub(super) length: usize,
    /// The pieces with data, if there are holes.
    pub(super) pieces: Option<Vec<DataRun>>,
    /// The entry ends with them.
    pub(super) last: bool,
}

#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) file: File,
    pub(super) metadata: Metadata,
}

pub(super) struct StreamReader {
    pub(super) reader: Box<dyn Read + Send>,
    /// One byte read ahead, to know whether the buffer before it is the last.
    pub(super) peeked: Option<u8>,
    pub(super) started: bool,
}

impl std::fmt::Debug for StreamReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream {{ started: {} }}", self.started)
    }
}

impl OpenFile {
    /// Whether it takes less space than its length.
    pub(super) fn is_sparse(&self) -> bool {
        self.metadata.blocks().saturating_mul(512) < self.metadata.len()
    }

    /// Its change since it was opened, as far as its length and time show it.
    pub(super) fn change(&self) -> io::Result<Option<FileChange>> {
        let (now, was) = (self.file.metadata()?, &self.metadata);
        if now.len() != was.len() {
            return Ok(Some(FileChange::Length { was: was.len(), now: now.len() }));
        }
        if (now.mtime(), now.mtime_nsec()) != (was.mtime(), was.mtime_nsec()) {
            return Ok(Some(FileChange::Time));
        }
        // Where a length means nothing (/proc), there are bytes after the end.
        let goes_on = self.file.read_at(&mut [0], was.len())? > 0;
        Ok(goes_on.then_some(FileChange::Endless))
    }
}

/// The difference of a file from the one that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileChange {
    Length {
        was: u64,
        now: u64,
    },
    /// Its time of modification alone.
    Time,
    /// Its length says nothing about its content.
    Endless,
    /// It is no file any more.
    Kind,
}

impl std::fmt::Display for FileChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Length { was, now } => {
                write!(f, "it had {was} bytes when it was found, and has {now} now")
            }
            Self::Time => write!(f, "its time of modification has changed, and not its length"),
            Self::Endless => write!(
                f,
                "the system makes its content when it is read, and its length says nothing of \
                 that; send it as a stream, through a pipe"
            ),
            Self::Kind => write!(f, "something else has its name now"),
        }
    }
}

impl StreamReader {
    /// Fills `space` as far as the stream goes: how far, and whether that was its end.
    pub(super) fn read(&mut self, space: &mut [u8]) -> io::Result<(usize, bool)> {
        self.started = true;
        let mut at = 0;
        if let (Some(byte), Some(first)) = (self.peeked.take(), space.first_mut()) {
            *first = byte;
            at = 1;
        }
        while let Some(rest) = space.get_mut(at..).filter(|rest| !rest.is_empty()) {
            match self.reader.read(rest) {
                Ok(0) => return Ok((at, true)),
                Ok(n) => at += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let mut one = [0];
        loop {
            match self.reader.read(&mut one) {
                Ok(0) => return Ok((at, true)),
                Ok(_) => {
                    self.peeked = Some(one[0]);
                    return Ok((at, false));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Fills `space` from `offset` on, with the pieces alone if there are such; false if the file ends
/// before.
pub(super) fn read_pieces(
    file: &File,
    space: &mut [u8],
    offset: u64,
    pieces: Option<&[DataRun]>,
) -> io::Result<bool> {
    let Some(pieces) = pieces else { return read_whole(file, space, offset) };
    let mut rest = space;
    for piece in pieces {
        let Some((own, after)) = rest.split_at_mut_checked(piece.bytes as usize) else {
            return Ok(false);
        };
        if !read_whole(file, own, offset + u64::from(piece.from))? {
            return Ok(false);
        }
        rest = after;
    }
    Ok(true)
}

/// Fills `space` from `offset` on; false if the file ends before.
fn read_whole(file: &File, space: &mut [u8], offset: u64) -> io::Result<bool> {
    for (part, at) in space.chunks_mut(PART).zip((offset..).step_by(PART)) {
        match file.read_exact_at(part, at) {
            Ok(()) => thread::yield_now(),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

pub(super) fn changed(path: &Path, change: FileChange) -> Error {
    let (what, advice) = match change {
        FileChange::Endless => ("cannot be sent as a file", ""),
        _ => ("changed while it was being sent", "; send it again when nothing writes to it"),
    };
    file_error(path, what, io::Error::other(format!("{change}{advice}")))
}

pub(super) fn stream_attributes(entry: &ListEntry) -> Attributes {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Attributes {
        mode: STREAM_MODE,
        mtime_seconds: i64::try_from(now.as_secs()).unwrap_or(0),
        mtime_nanos: now.subsec_nanos(),
        name: entry.name.to_vec(),
        ..Attributes::default()
    }
}
