//! *get*: a file or a tree is sent.

use super::facts::RequestFacts;
use super::fields::{RequestFields, flags};
use super::path::one_part;

const TREES: u16 = 1;

/// The file to send; with `trees` also a directory and all in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GetRequest {
    pub(crate) trees: bool,
    /// The name under which it comes.
    pub(crate) name: Vec<u8>,
    /// The most subflows over which it comes.
    pub(crate) subflows: u64,
}

impl GetRequest {
    pub(super) fn encode(&self) -> RequestFields<'_> {
        let flags = flags([(self.trees, TREES)]);
        RequestFields { flags, number: self.subflows, name: &self.name, ..RequestFields::default() }
    }

    pub(super) fn decode(fields: &RequestFields<'_>) -> Option<Self> {
        let name = one_part(fields.name)?;
        Some(Self { trees: fields.has(TREES), name, subflows: fields.number })
    }

    pub(super) fn facts(&self) -> RequestFacts<'_> {
        RequestFacts { subflows: self.subflows, ..RequestFacts::default() }
    }
}
