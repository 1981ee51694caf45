//! *mkdir*: a directory is made.

use super::fields::{RequestFields, flags};

const PARENTS: u16 = 1;

/// A directory to make; with `parents` also those above it, and the directory may exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MakeDirRequest {
    pub(crate) parents: bool,
}

impl MakeDirRequest {
    pub(super) fn encode(&self) -> RequestFields<'_> {
        RequestFields { flags: flags([(self.parents, PARENTS)]), ..RequestFields::default() }
    }

    pub(super) fn decode(fields: &RequestFields<'_>) -> Self {
        Self { parents: fields.has(PARENTS) }
    }
}
