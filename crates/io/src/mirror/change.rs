//! A change that a mirror makes, as it is listed.

use crate::mirror::entry::{EntryKind, TreeEntry};

/// A change of the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MirrorChange {
    /// What is done.
    pub kind: ChangeKind,
    /// The name of the entry in the tree.
    #[cfg_attr(feature = "serde", serde(with = "super::text"))]
    pub name: Vec<u8>,
    /// Whether it is a directory.
    pub directory: bool,
    /// Bytes of a file.
    pub bytes: u64,
}

/// The kind of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ChangeKind {
    /// A new file or directory.
    New,
    /// A new symbolic link, or one with another target.
    SymbolicLink,
    /// A file is sent, since these differ.
    Content(Differences),
    /// Only attributes are set.
    Attributes(Differences),
    /// A file of the destination gets this name; it had the other one.
    Renamed(#[cfg_attr(feature = "serde", serde(with = "super::text"))] Vec<u8>),
    /// It becomes another name of a file of the destination.
    HardLink,
    /// It is removed.
    Removed,
}

/// The attributes in which two entries differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Differences {
    /// The content, where that was compared.
    pub content: bool,
    /// The length.
    pub length: bool,
    /// The time of modification.
    pub time: bool,
    /// The permissions.
    pub mode: bool,
    /// Owner, extended attributes or access lists.
    pub extras: bool,
}

impl Differences {
    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// The five letters of `rsync --itemize-changes`: checksum, size, time, permissions, extras.
    fn letters(self) -> String {
        let letter = |differs: bool, letter: char| if differs { letter } else { '.' };
        [
            letter(self.content, 'c'),
            letter(self.length, 's'),
            letter(self.time, 't'),
            letter(self.mode, 'p'),
            letter(self.extras, 'x'),
        ]
        .iter()
        .collect()
    }
}

impl MirrorChange {
    pub(crate) fn of(kind: ChangeKind, name: &[u8], entry: &TreeEntry) -> Self {
        let bytes = match entry.kind {
            EntryKind::File { length, .. } => length,
            _ => 0,
        };
        Self { kind, name: name.to_vec(), directory: entry.is_directory(), bytes }
    }

    /// The first eleven columns of a line, as `rsync --itemize-changes` has them. `up`: this end
    /// sends.
    pub fn code(&self, up: bool) -> String {
        let (arrow, what) = (if up { '<' } else { '>' }, if self.directory { 'd' } else { 'f' });
        let arrow = if self.directory { 'c' } else { arrow };
        match &self.kind {
            ChangeKind::New => format!("{arrow}{what}+++++++++"),
            ChangeKind::SymbolicLink => "cL+++++++++".to_owned(),
            ChangeKind::Content(differ) => format!("{arrow}{what}{}....", differ.letters()),
            ChangeKind::Attributes(differ) => format!(".{what}{}....", differ.letters()),
            ChangeKind::HardLink => "hf+++++++++".to_owned(),
            ChangeKind::Renamed(_) => "*renaming  ".to_owned(),
            ChangeKind::Removed => "*deleting  ".to_owned(),
        }
    }

    /// The name of the kind, for programs.
    pub fn action(&self) -> &'static str {
        match &self.kind {
            ChangeKind::New => "new",
            ChangeKind::SymbolicLink => "symlink",
            ChangeKind::Content(_) => "content",
            ChangeKind::Attributes(_) => "attributes",
            ChangeKind::HardLink => "hardlink",
            ChangeKind::Renamed(_) => "rename",
            ChangeKind::Removed => "delete",
        }
    }

    pub(crate) fn cost(&self) -> usize {
        let from = match &self.kind {
            ChangeKind::Renamed(from) => from.len(),
            _ => 0,
        };
        200 + 2 * (self.name.len() + from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_rsync() {
        let change =
            |kind, directory| MirrorChange { kind, name: b"x".to_vec(), directory, bytes: 0 };
        let differ = Differences { length: true, time: true, ..Differences::default() };
        let mode = Differences { mode: true, ..Differences::default() };
        for (kind, directory, up, code) in [
            (ChangeKind::New, false, true, "<f+++++++++"),
            (ChangeKind::New, false, false, ">f+++++++++"),
            (ChangeKind::New, true, true, "cd+++++++++"),
            (ChangeKind::Content(differ), false, false, ">f.st......"),
            (ChangeKind::Attributes(mode), true, true, ".d...p....."),
            (ChangeKind::Removed, false, true, "*deleting  "),
            (ChangeKind::SymbolicLink, false, true, "cL+++++++++"),
        ] {
            assert_eq!(change(kind, directory).code(up), code);
        }
    }
}
