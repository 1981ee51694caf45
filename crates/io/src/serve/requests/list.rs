//! *list*: the entries of a directory.

use super::fields::RequestFields;

/// The entries of a directory, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListRequest {
    /// Those after this name.
    pub(crate) after: Vec<u8>,
    /// At most so many, or all if it is 0.
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
