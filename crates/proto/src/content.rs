//! The content of a buffer on the `sealed` wire: data, and the table of their extents
//! (`docs/protocol §8`).
//!
//! Tables come from an authentic peer, which may still be malicious: reading them is bounded in
//! memory. [`check_name`] refuses names that no receiver should use; the code that opens files must
//! keep all others beneath the destination.

mod extended_attributes;
mod image_position;
mod range;

pub use self::extended_attributes::{ExtraAttributes, Owner};
pub use self::image_position::{ImagePosition, ImagePositions, POSITION_BYTES, PositionError};
pub use self::range::{FileRange, MIN_RANGE_BYTES, digest_of_ranges};

use thiserror::Error;

use crate::limits::{
    ATTRIBUTES_BYTES, DIGEST_BYTES, EXTENT_BYTES, MAX_DEPTH, MAX_HOLES_BYTES, MAX_NAME, MAX_PART,
    MAX_TABLE_BYTES, MAX_TARGET, TRAILER_BYTES,
};
use crate::wire::sealed::{ParseError, Reader};

/// Flag: first extent of its file, attributes follow.
const FIRST: u8 = 1;
/// Flag: last extent of its file, its digest follows.
const LAST: u8 = 2;
/// Flag: a list of its data runs follows; the rest is holes.
const HOLES: u8 = 4;
/// Flag: more attributes follow the others.
const MORE: u8 = 8;
/// Bytes of a data run in the list.
const PIECE_BYTES: usize = 8;

/// The kind of a numbered item of a transfer (`docs/protocol §8.2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File = 0,
    /// A directory, which has no content.
    Directory = 1,
    /// Bytes without a place in a file system, of a length not known before.
    Stream = 2,
    /// A file or directory that the sender cannot send after all: the part that arrived is not
    /// kept. Its one extent of this kind has no content and no digest, and attributes only if no
    /// other had.
    Withdrawn = 3,
    /// A regular file of which the receiver has parts, or all, and which the sender has verified to
    /// equal its own (`docs/protocol §8.7`): they are not sent again. Its one extent of this
    /// kind has no content, and attributes; and the digest, if no part of the file is sent.
    Kept = 4,
    /// A symbolic link, whose target is its content, in one extent.
    SymbolicLink = 5,
    /// Another name of an earlier file: its one extent has that file's number as its offset, and no
    /// content; its digest is BLAKE3 of the number's 8 bytes.
    HardLink = 6,
}

impl Kind {
    /// Whether it has content that a manifest lists.
    pub fn has_content(self) -> bool {
        matches!(self, Self::File | Self::Stream | Self::Kept)
    }
}

/// The attributes that a receiver needs to create a file (`docs/protocol §8.2`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Unix permission bits.
    pub mode: u32,
    /// Modification time: whole seconds since 1970, negative before.
    pub mtime_seconds: i64,
    /// Modification time: nanoseconds after `mtime_seconds`, below 10^9.
    pub mtime_nanos: u32,
    /// Path relative to the destination, `/` between its parts; not checked by
    /// [`parse_image`] but for its length (see [`check_name`]).
    pub name: Vec<u8>,
    /// Attributes that are sent only on request.
    pub more: ExtraAttributes,
}

/// Bytes of an extent that are not a hole (`docs/protocol §8.2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRun {
    /// Bytes of the extent before it.
    pub from: u32,
    /// Bytes in it, at least one.
    pub bytes: u32,
}

/// A part of a file, and its position (`docs/protocol §8.2`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// File number, from 0, in the order of the sender's plan.
    pub file: u64,
    /// Bytes of the file before it, a multiple of the buffer size; of a [`Kind::HardLink`] the
    /// number of the file that it is another name of, lower than its own.
    pub offset: u64,
    /// Bytes in it, at most the buffer size, holes included.
    pub length: u32,
    /// The kind of its file.
    pub kind: Kind,
    /// Its data runs, in order and without overlaps; the rest is zeros. `None`: all of it is data.
    /// A field of a [`Kind::File`] only.
    pub pieces: Option<Vec<DataRun>>,
    /// With the first extent of a file.
    pub attributes: Option<Attributes>,
    /// With the last extent of a file, which ends with it: BLAKE3 of the file's content.
    pub digest: Option<[u8; 32]>,
}

impl Extent {
    /// Bytes that it has in the data of its buffer.
    pub fn data_bytes(&self) -> u32 {
        match &self.pieces {
            Some(pieces) => pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.bytes)),
            None => self.length,
        }
    }
}

/// Why an image or a table is invalid (`docs/protocol §8.1, §8.2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ContentError {
    /// The table does not have its layout, or a value is beyond its bounds.
    #[error("extent table: {0}")]
    Table(#[from] ParseError),
    /// The lengths of the extents do not add up to that of the data.
    #[error("the extents do not add up to the data")]
    Lengths,
    /// Longer than any table may be.
    #[error("the extent table is too long")]
    TooLong,
}

/// Most data runs of an extent, and most bytes of its further attributes with their length, that
/// the table can hold.
const MAX_PIECES: usize = u16::MAX as usize;
const MAX_MORE: usize = 2 + u16::MAX as usize;

/// Bytes that `extent` takes in a table (`docs/protocol §8.2`).
pub fn encoded_len(extent: &Extent) -> usize {
    let attributes = extent
        .attributes
        .as_ref()
        .map_or(0, |a| ATTRIBUTES_BYTES + a.name.len() + a.more.encoded_len());
    let pieces = extent.pieces.as_ref().map_or(0, |pieces| 2 + PIECE_BYTES * pieces.len());
    EXTENT_BYTES + attributes + pieces + if extent.digest.is_some() { DIGEST_BYTES } else { 0 }
}

/// Bytes that the table of `extents` takes in an image, its trailing length included: what counts
/// against the table bytes negotiated (`docs/protocol §3.2, §8.1`).
pub fn table_len(extents: &[Extent]) -> usize {
    extents.iter().map(encoded_len).sum::<usize>() + TRAILER_BYTES
}

/// Appends the table of `extents` and its length to the data, which makes them an image
/// (`docs/protocol §8.1`). On an error nothing is appended: a name has more than [`MAX_NAME`]
/// bytes, an extent too many data runs or further attributes, or the table more than 1 MiB.
pub fn encode_table(extents: &[Extent], image: &mut Vec<u8>) -> Result<(), ContentError> {
    let names = extents.iter().filter_map(|extent| extent.attributes.as_ref());
    if names.into_iter().any(|attributes| attributes.name.len() > MAX_NAME) {
        return Err(ParseError::Field("name length").into());
    }
    let untold = |extent: &Extent| {
        let more = extent.attributes.as_ref().map_or(0, |attributes| attributes.more.encoded_len());
        more > MAX_MORE || extent.pieces.as_ref().is_some_and(|p| p.len() > MAX_PIECES)
    };
    if extents.iter().any(untold) {
        return Err(ContentError::TooLong);
    }
    let len = table_len(extents);
    if len > MAX_TABLE_BYTES as usize {
        return Err(ContentError::TooLong);
    }
    image.reserve(len);
    for extent in extents {
        encode_extent(extent, image);
    }
    image.extend_from_slice(&((len - TRAILER_BYTES) as u32).to_be_bytes());
    Ok(())
}

fn encode_extent(extent: &Extent, out: &mut Vec<u8>) {
    let first = if extent.attributes.is_some() { FIRST } else { 0 };
    let last = if extent.digest.is_some() { LAST } else { 0 };
    let holes = if extent.pieces.is_some() { HOLES } else { 0 };
    let more = extent.attributes.as_ref().is_some_and(|attributes| !attributes.more.is_empty());
    let more = if more { MORE } else { 0 };
    out.extend_from_slice(&extent.file.to_be_bytes());
    out.extend_from_slice(&extent.offset.to_be_bytes());
    out.extend_from_slice(&extent.length.to_be_bytes());
    out.extend_from_slice(&[first | last | holes | more, extent.kind as u8, 0, 0]);
    if let Some(Attributes { mode, mtime_seconds, mtime_nanos, name, more }) = &extent.attributes {
        out.extend_from_slice(&mode.to_be_bytes());
        out.extend_from_slice(&mtime_seconds.to_be_bytes());
        out.extend_from_slice(&mtime_nanos.to_be_bytes());
        out.extend_from_slice(&(name.len() as u16).to_be_bytes());
        out.extend_from_slice(name);
        more.encode(out);
    }
    if let Some(pieces) = &extent.pieces {
        out.extend_from_slice(&(pieces.len() as u16).to_be_bytes());
        for piece in pieces {
            out.extend_from_slice(&piece.from.to_be_bytes());
            out.extend_from_slice(&piece.bytes.to_be_bytes());
        }
    }
    if let Some(digest) = &extent.digest {
        out.extend_from_slice(digest);
    }
}

/// The data of an assembled buffer and the extents they are made of, in their order
/// (`docs/protocol §8.1, §8.2`). `buffer_bytes` is the negotiated data area.
///
/// Each extent is within its bounds and all of them together are the data. Extents of different
/// buffers are not compared here.
pub fn parse_image(image: &[u8], buffer_bytes: u32) -> Result<(&[u8], Vec<Extent>), ContentError> {
    let (rest, len) = image.split_last_chunk().ok_or(ParseError::Truncated)?;
    let table_bytes = u32::from_be_bytes(*len) as usize;
    if table_bytes > MAX_TABLE_BYTES as usize - TRAILER_BYTES {
        return Err(ContentError::TooLong);
    }
    let data_bytes = rest.len().checked_sub(table_bytes).ok_or(ParseError::Truncated)?;
    let (data, table) = rest.split_at(data_bytes);
    let mut reader = Reader::new(table);
    let (mut extents, mut described, mut holes) = (Vec::new(), 0u64, 0u64);
    while !reader.is_empty() {
        let extent = parse_extent(&mut reader, buffer_bytes)?;
        described += u64::from(extent.data_bytes());
        holes += u64::from(extent.length - extent.data_bytes());
        extents.push(extent);
    }
    // Holes cost nothing to send, and as much to hash as data.
    if holes > MAX_HOLES_BYTES {
        return Err(ParseError::Field("holes").into());
    }
    if data.len() > buffer_bytes as usize || described != data.len() as u64 {
        return Err(ContentError::Lengths);
    }
    Ok((data, extents))
}

fn parse_extent(reader: &mut Reader<'_>, buffer_bytes: u32) -> Result<Extent, ParseError> {
    let (file, offset, length) = (reader.u64()?, reader.u64()?, reader.u32()?);
    let [flags, kind, _, _] = reader.array()?;
    let is_offset = kind != Kind::HardLink as u8;
    let fits = offset.is_multiple_of(buffer_bytes.into()) || !is_offset;
    if !fits || offset.checked_add(length.into()).is_none() {
        return Err(ParseError::Field("extent offset"));
    }
    if length > buffer_bytes {
        return Err(ParseError::Field("extent length"));
    }
    let unknown = flags & !(FIRST | LAST | HOLES | MORE) != 0;
    let (of_first, of_files) = (flags & (FIRST | MORE) == MORE, flags & HOLES != 0 && kind != 0);
    if unknown || of_first || of_files {
        return Err(ParseError::Field("extent flags"));
    }
    let is_whole = flags & (FIRST | LAST) == FIRST | LAST;
    let kind = match kind {
        0 => Kind::File,
        1 if (offset, length) == (0, 0) => Kind::Directory,
        1 => return Err(ParseError::Field("directory length")),
        2 => Kind::Stream,
        3 if (offset, length) == (0, 0) && flags & LAST == 0 => Kind::Withdrawn,
        3 => return Err(ParseError::Field("withdrawn file")),
        4 if (offset, length) == (0, 0) && flags & FIRST != 0 => Kind::Kept,
        4 => return Err(ParseError::Field("kept file")),
        5 if is_whole && offset == 0 && (1..=MAX_TARGET).contains(&(length as usize)) => {
            Kind::SymbolicLink
        }
        5 => return Err(ParseError::Field("symbolic link")),
        6 if is_whole && length == 0 && offset < file => Kind::HardLink,
        6 => return Err(ParseError::Field("hard link")),
        _ => return Err(ParseError::Field("extent kind")),
    };
    let attributes = match flags & FIRST {
        0 => None,
        _ => Some(parse_attributes(reader, flags & MORE != 0)?),
    };
    let pieces = if flags & HOLES == 0 { None } else { Some(parse_pieces(reader, length)?) };
    let digest = if flags & LAST == 0 { None } else { Some(reader.array()?) };
    Ok(Extent { file, offset, length, kind, pieces, attributes, digest })
}

fn parse_pieces(reader: &mut Reader<'_>, length: u32) -> Result<Vec<DataRun>, ParseError> {
    let (mut pieces, mut end) = (Vec::new(), 0);
    for _ in 0..reader.u16()? {
        let piece = DataRun { from: reader.u32()?, bytes: reader.u32()? };
        let after = piece.from.checked_add(piece.bytes).filter(|after| *after <= length);
        let after = after.filter(|_| piece.from >= end && piece.bytes > 0);
        end = after.ok_or(ParseError::Field("pieces"))?;
        pieces.push(piece);
    }
    Ok(pieces)
}

fn parse_attributes(reader: &mut Reader<'_>, more: bool) -> Result<Attributes, ParseError> {
    let mode = reader.u32()?;
    let mtime_seconds = reader.array().map(i64::from_be_bytes)?;
    let mtime_nanos = reader.u32()?;
    if mtime_nanos >= 1_000_000_000 {
        return Err(ParseError::Field("modification time"));
    }
    let len = usize::from(reader.u16()?);
    if len > MAX_NAME {
        return Err(ParseError::Field("name length"));
    }
    let name = reader.bytes(len)?.to_vec();
    let more = if more { ExtraAttributes::parse(reader)? } else { ExtraAttributes::default() };
    Ok(Attributes { mode, mtime_seconds, mtime_nanos, name, more })
}

/// Whether a receiver may use this name; `Err` has the reason against it (`docs/protocol §8.4`).
/// Other names and the disk are not checked here.
pub fn check_name(name: &[u8]) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("the name is empty");
    }
    if name.len() > MAX_NAME {
        return Err("the name is longer than 4,096 bytes");
    }
    if name.contains(&0) {
        return Err("the name has a zero byte");
    }
    if name[0] == b'/' {
        return Err("the name is an absolute path");
    }
    for (depth, part) in name.split(|&byte| byte == b'/').enumerate() {
        if depth >= MAX_DEPTH {
            return Err("the name has more than 128 parts");
        }
        match part {
            b"" => return Err("the name has an empty part"),
            b"." => return Err("the name has a part '.'"),
            b".." => return Err("the name has a part '..'"),
            _ if part.len() > MAX_PART => return Err("the name has a part over 255 bytes"),
            _ => {}
        }
    }
    Ok(())
}

/// Computes the digest of a transfer from those of its files (`docs/protocol §8.3`).
#[derive(Clone, Debug, Default)]
pub struct TransferDigest(blake3::Hasher);

impl TransferDigest {
    /// The digest of no files yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file: its number, kind, length in bytes, BLAKE3 of its content, and name. Files must
    /// be added in the order of their numbers, or the digest differs.
    pub fn add(&mut self, file: u64, kind: Kind, length: u64, digest: &[u8; 32], name: &[u8]) {
        // Longer names are never sent; if one comes, its bytes count all the same.
        let name_len = u16::try_from(name.len()).unwrap_or(u16::MAX);
        self.0
            .update(&file.to_be_bytes())
            .update(&[kind as u8])
            .update(&length.to_be_bytes())
            .update(digest)
            .update(&name_len.to_be_bytes())
            .update(name);
    }

    /// The digest of the files taken in so far, for END and DONE.
    pub fn finish(&self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests;
