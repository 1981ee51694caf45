//! *mkdir*: a directory is made.

use super::fields::{Fields, flags};

const PARENTS: u16 = 1;

/// A directory is to be made; with `parents` those above it too, and it may exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MakeDir {
    pub(crate) parents: bool,
}

impl MakeDir {
    pub(super) fn encode(&self) -> Fields<'_> {
        Fields { flags: flags([(self.parents, PARENTS)]), ..Fields::default() }
    }

    pub(super) fn decode(fields: &Fields<'_>) -> Self {
        Self { parents: fields.has(PARENTS) }
    }
}
