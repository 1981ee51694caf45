//! *join*: a file is made of its ranges (`docs/protocol §8.9`).

use std::borrow::Cow;

use netblt_proto::content::FileRange;

use super::facts::RequestFacts;
use super::fields::{RequestFields, flags, split_number};
use super::path::any_path;

/// Ranges of one file at most.
const MAX_RANGES: u64 = 1 << 16;
const REPLACE: u16 = 1;

/// A file to make of its ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JoinRequest {
    /// Its path, relative to the root.
    pub(crate) to: Vec<u8>,
    /// The label of the file, by which its ranges are found.
    pub(crate) file: [u8; 32],
    /// Bytes of the file.
    pub(crate) total: u64,
    /// Bytes of each range but the last.
    pub(crate) bytes: u64,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Time of modification: seconds since 1970, and nanoseconds.
    pub(crate) modified: (i64, u32),
    /// A file that exists is replaced.
    pub(crate) replace: bool,
}

impl JoinRequest {
    pub(super) fn encode(&self) -> RequestFields<'_> {
        let ((seconds, nanos), mode) = (self.modified, self.mode);
        let mut text = [&self.file[..], &self.bytes.to_be_bytes()].concat();
        text.extend(mode.to_be_bytes());
        text.extend(seconds.to_be_bytes());
        text.extend(nanos.to_be_bytes());
        let flags = flags([(self.replace, REPLACE)]);
        RequestFields { flags, number: self.total, name: &self.to, own: Cow::Owned(text) }
    }

    pub(super) fn decode(fields: &RequestFields<'_>) -> Option<Self> {
        let (file, text) = fields.own.split_first_chunk()?;
        let (bytes, text) = split_number(text)?;
        let (mode, text) = text.split_first_chunk()?;
        let (seconds, text) = split_number(text)?;
        let (nanos, _) = text.split_first_chunk()?;
        let total = fields.number;
        let first = FileRange { offset: 0, length: bytes, total };
        let join = Self {
            to: any_path(fields.name)?,
            file: *file,
            total,
            bytes,
            mode: u32::from_be_bytes(*mode),
            modified: (seconds.cast_signed(), u32::from_be_bytes(*nanos)),
            replace: fields.has(REPLACE),
        };
        (first.is_good() && total.div_ceil(bytes) <= MAX_RANGES).then_some(join)
    }

    pub(super) fn facts(&self) -> RequestFacts<'_> {
        RequestFacts { target: &self.to, ..RequestFacts::default() }
    }
}
