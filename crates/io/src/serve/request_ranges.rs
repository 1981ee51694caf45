//! Requests for ranges of files, as bytes (`docs/protocol §8.9`).

use netblt_proto::content::FileRange;

use super::{REPLACE, any_path};

/// Ranges of one file at most.
const MAX_RANGES: u64 = 1 << 16;
/// Flag: received files are read back. The same as of a put.
const VERIFY: u16 = 64;

/// A range of a file to upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PutRange {
    /// The label of the file, among those whose ranges are collected in the same directory.
    pub(crate) file: [u8; 32],
    /// The label of the range's parts.
    pub(crate) label: [u8; 32],
    pub(crate) range: FileRange,
    /// It is read again before it counts as being there.
    pub(crate) verify: bool,
}

/// The file to make of its ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Join {
    /// Its path, relative to the root.
    pub(crate) to: Vec<u8>,
    pub(crate) file: [u8; 32],
    /// Bytes of it, and of its ranges but the last.
    pub(crate) total: u64,
    pub(crate) bytes: u64,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Time of modification: seconds since 1970, and nanoseconds.
    pub(crate) modified: (i64, u32),
    /// A file that exists is replaced.
    pub(crate) replace: bool,
}

impl PutRange {
    pub(super) fn flags(&self) -> u16 {
        u16::from(self.verify) * VERIFY
    }

    pub(super) fn parse(flags: u16, label: &[u8], text: &[u8]) -> Option<Self> {
        let (file, text) = text.split_first_chunk()?;
        let ((offset, text), label) = (eight(text)?, label.try_into().ok()?);
        let (length, text) = eight(text)?;
        let (total, _) = eight(text)?;
        let range = FileRange { offset, length, total };
        let verify = flags & VERIFY != 0;
        range.is_good().then_some(Self { file: *file, label, range, verify })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let FileRange { offset, length, total } = self.range;
        let numbers = [offset, length, total].map(u64::to_be_bytes);
        [&self.file[..], &numbers.concat()].concat()
    }
}

impl Join {
    pub(super) fn flags(&self) -> u16 {
        u16::from(self.replace) * REPLACE
    }

    pub(super) fn parse(flags: u16, total: u64, to: &[u8], text: &[u8]) -> Option<Self> {
        let (file, text) = text.split_first_chunk()?;
        let (bytes, text) = eight(text)?;
        let (mode, text) = text.split_first_chunk()?;
        let (seconds, text) = eight(text)?;
        let (nanos, _) = text.split_first_chunk()?;
        let first = FileRange { offset: 0, length: bytes, total };
        let join = Self {
            to: any_path(to)?,
            file: *file,
            total,
            bytes,
            mode: u32::from_be_bytes(*mode),
            modified: (seconds.cast_signed(), u32::from_be_bytes(*nanos)),
            replace: flags & REPLACE != 0,
        };
        (first.is_good() && total.div_ceil(bytes) <= MAX_RANGES).then_some(join)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let ((seconds, nanos), mode) = (self.modified, self.mode);
        let mut text = [&self.file[..], &self.bytes.to_be_bytes()].concat();
        text.extend(mode.to_be_bytes());
        text.extend(seconds.to_be_bytes());
        text.extend(nanos.to_be_bytes());
        text
    }
}

fn eight(text: &[u8]) -> Option<(u64, &[u8])> {
    let (number, text) = text.split_first_chunk()?;
    Some((u64::from_be_bytes(*number), text))
}
