//! *put-range*: a range of a file will come with another connection (`docs/protocol §8.9`).

use std::borrow::Cow;

use netblt_proto::content::FileRange;

use super::facts::{RequestFacts, UploadFacts};
use super::fields::{RequestFields, flags, split_number};

/// The same flag as that of *put*.
const VERIFY: u16 = 64;

/// A range of a file to upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PutRangeRequest {
    /// The label of the file, among those whose ranges are collected in the same directory.
    pub(crate) file: [u8; 32],
    /// The label of the range's parts.
    pub(crate) label: [u8; 32],
    pub(crate) range: FileRange,
    /// The range is read again before it counts as stored.
    pub(crate) verify: bool,
}

impl PutRangeRequest {
    pub(super) fn encode(&self) -> RequestFields<'_> {
        let FileRange { offset, length, total } = self.range;
        let numbers = [offset, length, total].map(u64::to_be_bytes);
        let own = Cow::Owned([&self.file[..], &numbers.concat()].concat());
        RequestFields { flags: flags([(self.verify, VERIFY)]), number: 0, name: &self.label, own }
    }

    pub(super) fn decode(fields: &RequestFields<'_>) -> Option<Self> {
        let (file, text) = fields.own.split_first_chunk()?;
        let (offset, text) = split_number(text)?;
        let label = fields.name.try_into().ok()?;
        let (length, text) = split_number(text)?;
        let (total, _) = split_number(text)?;
        let range = FileRange { offset, length, total };
        let verify = fields.has(VERIFY);
        range.is_good().then_some(Self { file: *file, label, range, verify })
    }

    pub(super) fn facts(&self) -> RequestFacts<'_> {
        let upload = UploadFacts::Announced { label: Some(self.label), via_server: false };
        RequestFacts { upload: Some(upload), ..RequestFacts::default() }
    }
}
