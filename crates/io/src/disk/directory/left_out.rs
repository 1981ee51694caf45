//! The files that are left out of a transfer that is not all or nothing.

use crate::disk::left_out::MAX_NUMBERS;
use crate::error::{Error, system_message};

/// The files that are left out.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    count: u64,
    /// Number of files that were left out here.
    unstored: u64,
    /// Number of files that exist here already, with the same content.
    there: u64,
    /// The numbers of files with content that were left out here, at most one more than a verdict
    /// can name.
    numbers: Vec<u64>,
    /// The first of them, with reasons.
    first: Vec<String>,
}

/// Most that are named.
const NAMED: usize = 100;

impl LeftOut {
    /// Why one file is left out, if an error is about it alone.
    pub(super) fn because(&self, error: Error, atomic: bool) -> Result<Box<str>, Error> {
        match error {
            Error::Exists(_) if !atomic => Ok("exists there already".into()),
            Error::File { what, source, .. } if !atomic => {
                Ok(format!("{what}: {}", system_message(&source)).into_boxed_str())
            }
            Error::Name { why, .. } if !atomic => Ok(why.into()),
            error => Err(error),
        }
    }

    /// One more; `here`: this end leaves it out.
    pub(super) fn add(&mut self, text: String, here: bool) {
        self.count += 1;
        self.unstored += u64::from(here);
        if self.first.len() < NAMED {
            self.first.push(text);
        }
    }

    /// The number of a file with content that this end leaves out.
    pub(super) fn add_number(&mut self, number: u64) {
        if self.numbers.len() <= MAX_NUMBERS {
            self.numbers.push(number);
        }
    }

    /// One cannot have its name because it is there already.
    pub(super) fn add_there(&mut self) {
        self.there += 1;
    }

    /// How many are left out, and how many of them by this end.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.count, self.unstored)
    }

    /// How many are there already.
    pub(super) fn there(&self) -> u64 {
        self.there
    }

    /// The numbers of those that this end leaves out, if there are some and a verdict can name all.
    pub(super) fn absent(&self) -> Option<Vec<u64>> {
        let known = self.unstored > 0 && self.numbers.len() <= MAX_NUMBERS;
        known.then(|| self.numbers.clone())
    }

    /// The first of them, with reasons.
    pub(super) fn first(&self) -> &[String] {
        &self.first
    }
}
