//! The files of a transfer that are not finished, by number, with their names and the memory for
//! both.

use std::collections::BTreeMap;

use netblt_proto::limits::DEFAULT_MAX_FILES;

use super::incoming::Incoming;
use crate::disk::names::{Budget, NameRefusal, Names};
use crate::error::Error;

/// Memory of a file beyond its name.
pub(super) const FILE_BYTES: u64 = 160;

/// The files of a transfer.
#[derive(Debug)]
pub(super) struct FileTable {
    pub(super) names: Names,
    pub(super) budget: Budget,
    pub(super) files: BTreeMap<u64, Incoming>,
    /// Files that the sender cannot send after all, with their names, unless they came before.
    pub(super) withdrawn: BTreeMap<u64, Vec<u8>>,
}

impl FileTable {
    pub(super) fn new() -> Self {
        Self {
            names: Names::default(),
            budget: Budget::new(DEFAULT_MAX_FILES),
            files: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
        }
    }

    /// Takes memory of the budget.
    pub(super) fn charge(&mut self, bytes: u64) -> Result<(), Error> {
        self.budget.take(bytes).map_err(too_much)
    }

    /// A transfer starts over.
    pub(super) fn clear(&mut self) {
        self.names = Names::default();
        self.budget.reset();
        self.files.clear();
        self.withdrawn.clear();
    }
}

/// The error for names that are too many.
pub(super) fn too_much(refused: NameRefusal) -> Error {
    match refused {
        NameRefusal::TooMuch { what, most } => Error::TooMuch { what, most },
        NameRefusal::Name(why) => Error::Content(why),
    }
}
