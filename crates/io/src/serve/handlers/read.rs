//! Pieces of files as one answer (`docs/protocol §8.8`): read as it is sent, one file open at a
//! time, beneath one root and without following a link.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::vec::IntoIter;

use super::answer::streamed;
use super::context::HandlerContext;
use crate::disk::safe_open;
use crate::error::RequestErrorKind;
use crate::name_log::NameLog;
use crate::request_error::RequestError;
use crate::serve::requests::entry::Entry;
use crate::serve::requests::read::{self, Piece};
use crate::serve::requests::response_item::{END, ResponseItem, TITLE};
use crate::serve::response::Done;

/// Sends the pieces.
pub(super) fn perform(
    read: &read::ReadRequest,
    root: &Arc<OwnedFd>,
    with: &HandlerContext<'_>,
) -> Result<Done, RequestError> {
    let pieces = &read.pieces;
    log_pieces(pieces, with.options.name_log.as_ref());
    let all = pieces.iter().fold(0, |all: u64, piece| all.saturating_add(piece.bytes));
    let reader = RangeReader::new(Arc::clone(root), pieces.clone());
    let outgoing = streamed(Box::new(reader), all, with.layout)?;
    Ok(Done::Send(Box::new(outgoing)))
}

/// The pieces as a stream, which is the answer.
struct RangeReader {
    root: Arc<OwnedFd>,
    rest: IntoIter<Piece>,
    /// The file of the last piece.
    open: Option<(Vec<u8>, File, Entry)>,
    /// Response items, and how much of them was read.
    lines: io::Cursor<Vec<u8>>,
    /// Bytes that come behind them, and where from.
    left: u64,
    at: u64,
}

impl RangeReader {
    fn new(root: Arc<OwnedFd>, pieces: Vec<Piece>) -> Self {
        let title = [TITLE, &[END]].concat();
        let (rest, lines) = (pieces.into_iter(), io::Cursor::new(title));
        Self { root, rest, open: None, lines, left: 0, at: 0 }
    }

    /// Begins a piece: its lines, and where its bytes are.
    fn begin(&mut self, piece: Piece) {
        let lines = match self.find(&piece) {
            Ok(entry) => {
                self.at = piece.offset.min(entry.length);
                self.left = piece.bytes.min(entry.length - self.at);
                let entry = ResponseItem::Entry(entry).encode();
                [entry, ResponseItem::Data(self.left).encode()].concat()
            }
            Err(RequestError { what, why }) => {
                ResponseItem::Denied(what.word().to_owned(), why).encode()
            }
        };
        self.lines = io::Cursor::new(lines);
    }

    fn find(&mut self, piece: &Piece) -> Result<Entry, RequestError> {
        if let Some((path, _, entry)) = &self.open
            && *path == piece.path
        {
            return Ok(entry.clone());
        }
        self.open = None;
        let file = safe_open::file(self.root.as_fd(), &piece.path)?;
        let stat = rustix::fs::fstat(&file).map_err(io::Error::from)?;
        if safe_open::is_directory(&stat) {
            return Err(RequestError::new(RequestErrorKind::IsADirectory, "it is a directory"));
        }
        if !safe_open::is_file(&stat) {
            return Err(RequestError::new(RequestErrorKind::Forbidden, "it is no file"));
        }
        let found = Entry::of(safe_open::split(&piece.path).1, &stat);
        self.open = Some((piece.path.clone(), file, found.clone()));
        Ok(found)
    }
}

impl Read for RangeReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let said = self.lines.read(into)?;
            if said > 0 || into.is_empty() {
                return Ok(said);
            }
            if self.left > 0 {
                let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
                let into = into.get_mut(..most).unwrap_or_default();
                let Some((_, file, _)) = &self.open else { return Ok(0) };
                let read = file.read_at(into, self.at)?;
                if read == 0 {
                    let why = "it became shorter while it was read";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
                }
                self.at += read as u64;
                self.left -= read as u64;
                return Ok(read);
            }
            match self.rest.next() {
                Some(piece) => self.begin(piece),
                None => return Ok(0),
            }
        }
    }
}

/// The files whose pieces are read, each once.
fn log_pieces(pieces: &[Piece], log: Option<&NameLog>) {
    let mut last = None;
    for Piece { path, .. } in pieces {
        if last.replace(path) != Some(path) {
            log.iter().for_each(|log| log.add(path));
        }
    }
}
