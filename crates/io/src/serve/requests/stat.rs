//! *stat*: the status of a path.

use super::fields::{RequestFields, flags};

const TREES: u16 = 1;

/// The status of a path; with `trees` also the number of bytes of the files in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatRequest {
    pub(crate) trees: bool,
}

impl StatRequest {
    pub(super) fn encode(&self) -> RequestFields<'_> {
        RequestFields { flags: flags([(self.trees, TREES)]), ..RequestFields::default() }
    }

    pub(super) fn decode(fields: &RequestFields<'_>) -> Self {
        Self { trees: fields.has(TREES) }
    }
}
