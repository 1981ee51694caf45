//! *remove*: a file, a link or a directory is removed.

use super::fields::{RequestFields, flags};

const EMPTY_DIRECTORY: u16 = 1;
const TREE: u16 = 2;

/// A file or link is to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoveRequest {
    /// Or an empty directory.
    pub(crate) directory: bool,
    /// Or a directory with all in it.
    pub(crate) tree: bool,
}

impl RemoveRequest {
    pub(super) fn encode(&self) -> RequestFields<'_> {
        let flags = flags([(self.directory, EMPTY_DIRECTORY), (self.tree, TREE)]);
        RequestFields { flags, ..RequestFields::default() }
    }

    pub(super) fn decode(fields: &RequestFields<'_>) -> Self {
        Self { directory: fields.has(EMPTY_DIRECTORY), tree: fields.has(TREE) }
    }
}
