//! *list*: the entries of a directory.

use super::fields::Fields;

/// The entries of a directory, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct List {
    /// Those after this name.
    pub(crate) after: Vec<u8>,
    /// At most so many, or all if it is 0.
    pub(crate) most: u64,
}

impl List {
    pub(super) fn encode(&self) -> Fields<'_> {
        Fields { number: self.most, name: &self.after, ..Fields::default() }
    }

    pub(super) fn decode(fields: &Fields<'_>) -> Self {
        Self { after: fields.name.to_vec(), most: fields.number }
    }
}
