//! *remove*: a file, a link or a directory is removed.

use super::fields::{Fields, flags};

const EMPTY_DIRECTORY: u16 = 1;
const TREE: u16 = 2;

/// A file or link is to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remove {
    /// Or an empty directory.
    pub(crate) directory: bool,
    /// Or a directory with all in it.
    pub(crate) tree: bool,
}

impl Remove {
    pub(super) fn encode(&self) -> Fields<'_> {
        let flags = flags([(self.directory, EMPTY_DIRECTORY), (self.tree, TREE)]);
        Fields { flags, ..Fields::default() }
    }

    pub(super) fn decode(fields: &Fields<'_>) -> Self {
        Self { directory: fields.has(EMPTY_DIRECTORY), tree: fields.has(TREE) }
    }
}
