//! The comparison of one transfer's files with a list of digests.

use std::path::Path;
use std::sync::Arc;

use super::algorithm::Digests;
use super::bag::BagPlace;
use super::expected_digests::ExpectedDigests;

/// A list, and the names in it that have come.
#[derive(Debug)]
pub(crate) struct Expectation {
    list: Arc<ExpectedDigests>,
    place: Option<BagPlace>,
    /// By number in the list.
    met: Vec<bool>,
    /// Files that are not in it.
    unlisted: u64,
}

impl Expectation {
    /// Nothing has come. `destination`: the directory where the files arrive, if that is at this
    /// end.
    pub(crate) fn new(list: Arc<ExpectedDigests>, destination: Option<&Path>) -> Self {
        let (place, met) = (list.place(destination), vec![false; list.len()]);
        Self { list, place, met, unlisted: 0 }
    }

    /// Why the file of this name is not the one in the list, if it is another.
    pub(crate) fn judge(&mut self, name: &[u8], digests: &Digests) -> Option<String> {
        match self.meet(name) {
            Some(number) => self.list.difference(number, digests),
            None => {
                self.unlisted += 1;
                None
            }
        }
    }

    /// A file of this name has come, and is left out for another reason.
    pub(crate) fn came(&mut self, name: &[u8]) {
        self.meet(name);
    }

    fn meet(&mut self, name: &[u8]) -> Option<usize> {
        let number = match &self.place {
            Some(place) => self.list.number(&place.path(name)),
            None => self.list.number(name),
        }?;
        self.met.get_mut(number).into_iter().for_each(|met| *met = true);
        Some(number)
    }

    /// The names in the list that did not come, sorted.
    pub(crate) fn missing(&self) -> Vec<&[u8]> {
        let met = |number: &usize| self.met.get(*number) == Some(&true);
        let missing = self.list.names().filter(|(_, number)| !met(number));
        let mut names: Vec<&[u8]> = missing.map(|(name, _)| name).collect();
        names.sort_unstable();
        names
    }

    /// The remark about files that are not in the list, if there are some.
    pub(crate) fn note(&self) -> Option<String> {
        let files = match self.unlisted {
            0 => return None,
            1 => "1 file is".to_owned(),
            count => format!("{count} files are"),
        };
        Some(format!("{files} not in the list of expected digests, and not compared"))
    }

    /// The transfer starts over.
    pub(crate) fn restart(&mut self) {
        self.met.fill(false);
        self.unlisted = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::algorithm::HashAlgorithms;
    use super::*;

    #[test]
    fn what_did_not_come_is_known_and_what_is_not_listed_is_counted() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("list");
        let digest = [7; 32];
        let hex = "07".repeat(32);
        let lines = ["a", "b", "c", "d"].map(|name| format!("{hex}  {name}\n"));
        fs::write(&path, lines.concat()).expect("written");
        let list = ExpectedDigests::read(&path, HashAlgorithms::default()).expect("a list");
        let mut expectation = Expectation::new(Arc::new(list), None);
        assert_eq!(expectation.judge(b"a", &Digests::of_blake3(&digest)), None);
        let why = expectation.judge(b"b", &Digests::of_blake3(&[8; 32])).expect("another");
        assert!(why.ends_with(&format!("{hex} is expected")), "{why}");
        assert_eq!(expectation.note(), None);
        assert_eq!(expectation.judge(b"x", &Digests::of_blake3(&digest)), None);
        expectation.came(b"d");
        assert_eq!(expectation.missing(), [b"c"]);
        assert!(expectation.note().is_some_and(|note| note.starts_with("1 file is not")));
        expectation.restart();
        assert_eq!((expectation.missing().len(), expectation.note()), (4, None));
    }
}
