//! *remove*: a file, a link or a directory is removed.

use super::fields::{RequestFields, flags};

const EMPTY_DIRECTORY: u16 = 1;
const TREE: u16 = 2;

/// What may be removed: a file or a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoveRequest {
    /// An empty directory, too.
    pub(crate) directory: bool,
    /// A directory with all in it, too.
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
