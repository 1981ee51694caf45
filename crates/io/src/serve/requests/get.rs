//! *get*: a file or a tree is sent.

use super::facts::RequestFacts;
use super::fields::{Fields, flags};
use super::path::one_part;

const TREES: u16 = 1;

/// The file; with `trees` a directory and all in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Get {
    pub(crate) trees: bool,
    /// The name under which it comes.
    pub(crate) name: Vec<u8>,
    /// The most subflows over which it comes.
    pub(crate) subflows: u64,
}

impl Get {
    pub(super) fn encode(&self) -> Fields<'_> {
        let flags = flags([(self.trees, TREES)]);
        Fields { flags, number: self.subflows, name: &self.name, ..Fields::default() }
    }

    pub(super) fn decode(fields: &Fields<'_>) -> Option<Self> {
        let name = one_part(fields.name)?;
        Some(Self { trees: fields.has(TREES), name, subflows: fields.number })
    }

    pub(super) fn facts(&self) -> RequestFacts<'_> {
        RequestFacts { subflows: self.subflows, ..RequestFacts::default() }
    }
}
