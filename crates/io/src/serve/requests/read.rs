//! *read*: pieces of files are sent in one answer.

use std::borrow::Cow;

use super::facts::RequestFacts;
use super::fields::{RequestFields, push_part, split_number, split_part};
use super::path::any_path;

/// The most pieces of a request.
pub(crate) const MAX_PIECES: usize = 4096;
/// Bytes of a piece beside its path.
pub(crate) const PIECE_HEAD: usize = 18;
/// Memory of a piece beside its path.
const PIECE_MEMORY: u64 = 64;

/// Pieces of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadRequest {
    pub(crate) pieces: Vec<Piece>,
}

/// Bytes of a file on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The path of the file.
    pub path: Vec<u8>,
    /// The position of the first byte.
    pub offset: u64,
    /// The number of bytes. Fewer are sent if the file ends before.
    pub bytes: u64,
}

impl ReadRequest {
    /// A piece without a path has that of the one before, the first that of the request.
    pub(super) fn encode(&self, path: &[u8]) -> RequestFields<'_> {
        let (mut text, mut before) = (Vec::new(), path);
        for piece in &self.pieces {
            push_part(&mut text, if piece.path == before { &[] } else { &piece.path });
            text.extend(piece.offset.to_be_bytes());
            text.extend(piece.bytes.to_be_bytes());
            before = &piece.path;
        }
        RequestFields { own: Cow::Owned(text), ..RequestFields::default() }
    }

    pub(super) fn decode(path: &[u8], fields: &RequestFields<'_>) -> Option<Self> {
        let (mut text, mut pieces) = (&fields.own[..], Vec::<Piece>::new());
        while !text.is_empty() && pieces.len() < MAX_PIECES {
            let (own, rest) = split_part(text)?;
            let (offset, rest) = split_number(rest)?;
            let (bytes, rest) = split_number(rest)?;
            let before = pieces.last().map_or(path, |piece| &piece.path[..]);
            let path = any_path(if own.is_empty() { before } else { own })?;
            pieces.push(Piece { path, offset, bytes });
            text = rest;
        }
        text.is_empty().then_some(Self { pieces })
    }

    pub(super) fn facts(&self) -> RequestFacts<'_> {
        let bytes = |piece: &Piece| piece.path.len() as u64 + PIECE_MEMORY;
        // They are copied once.
        let memory = 2 * self.pieces.iter().map(bytes).sum::<u64>();
        RequestFacts { memory, ..RequestFacts::default() }
    }
}
