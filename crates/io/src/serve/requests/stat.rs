//! *stat*: the status of a path.

use super::fields::{Fields, flags};

const TREES: u16 = 1;

/// What stands there; with `trees` how many bytes the files in a directory have, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) trees: bool,
}

impl Stat {
    pub(super) fn encode(&self) -> Fields<'_> {
        Fields { flags: flags([(self.trees, TREES)]), ..Fields::default() }
    }

    pub(super) fn decode(fields: &Fields<'_>) -> Self {
        Self { trees: fields.has(TREES) }
    }
}
