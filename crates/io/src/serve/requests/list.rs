//! *list*: the entries of a directory.

use super::fields::RequestFields;

/// The entries of a directory, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListRequest {
    /// Only entries after this name.
    pub(crate) after: Vec<u8>,
    /// Most entries in the answer; 0 for no limit.
    pub(crate) most: u64,
}

impl ListRequest {
    pub(super) fn encode(&self) -> RequestFields<'_> {
        RequestFields { number: self.most, name: &self.after, ..RequestFields::default() }
    }

    pub(super) fn decode(fields: &RequestFields<'_>) -> Self {
        Self { after: fields.name.to_vec(), most: fields.number }
    }
}
