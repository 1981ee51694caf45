//! `--files-from`: names in a file, relative to the one source, as rsync reads them.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use netblt::NameFilter;
use netblt_proto::api::printable_bytes;
use netblt_proto::limits::MAX_FILES;
use serde::{Deserialize, Serialize};

use crate::exit::{Code, Failure};

/// Longest list: as many names as may be sent, at their usual length.
const MAX_BYTES: u64 = 1 << 30;
/// Longest name (`docs/protocol §8.4`).
const MAX_NAME: usize = 4096;
/// Bytes of names in a piece: JSON makes up to eight times as many of them, and a message has at
/// most 1 MiB.
const PIECE_BYTES: usize = 100_000;

/// Names, without slashes before or behind, in the form in which they arrive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FilesFrom {
    names: BTreeSet<Vec<u8>>,
    /// Directories whose direct contents are listed as well: their names ended with a slash.
    opened: BTreeSet<Vec<u8>>,
    /// Listed directories include all their contents.
    recursive: bool,
}

impl FilesFrom {
    /// Reads a file of names, a line each or (`nul`) each with a zero byte behind it; `-` is
    /// standard input. Empty lines and such as begin with `#` or `;` say nothing.
    pub(crate) fn read(path: &Path, nul: bool, recursive: bool) -> Result<Self, Failure> {
        let mut text = Vec::new();
        let read = match path.as_os_str() == "-" {
            true => io::stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut text),
            false => {
                File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut text))
            }
        };
        let said = |why: &dyn std::fmt::Display| {
            Failure::new(Code::File, format!("--files-from {}: {why}", path.display()))
        };
        read.map_err(|error| said(&error))?;
        if text.len() as u64 > MAX_BYTES {
            return Err(said(&"it is longer than 1 GiB"));
        }
        Self::parse(&text, nul, recursive).map_err(|why| said(&why))
    }

    fn parse(text: &[u8], nul: bool, recursive: bool) -> Result<Self, String> {
        let ends = |byte: &u8| if nul { *byte == 0 } else { matches!(byte, b'\n' | b'\r') };
        let mut listed = Self { recursive, ..Self::default() };
        for line in text.split(ends) {
            if !line.is_empty() && !b"#;".contains(&line[0]) {
                listed.add(line)?;
            }
        }
        if listed.names.len() as u64 > MAX_FILES {
            return Err(format!("it names more than {MAX_FILES} files"));
        }
        Ok(listed)
    }

    fn add(&mut self, line: &[u8]) -> Result<(), String> {
        let parts = line.split(|byte| *byte == b'/');
        let parts: Vec<&[u8]> = parts.filter(|part| !part.is_empty() && part != b".").collect();
        if parts.iter().any(|part| part == b"..") {
            let shown = printable_bytes(line);
            return Err(format!("\"{shown}\" leads out of the source"));
        }
        let name = parts.join(&b'/');
        if name.len() > MAX_NAME {
            return Err(format!("a name of {} bytes is longer than names can be", name.len()));
        }
        if line.ends_with(b"/") || line.ends_with(b"/.") || line == b"." {
            self.opened.insert(name.clone());
        }
        self.names.insert(name);
        Ok(())
    }

    /// The first parts of all names; all there are in `source` if the source itself is listed.
    pub(crate) fn first_parts(&self, source: &Path) -> io::Result<BTreeSet<OsString>> {
        let first = |name: &Vec<u8>| {
            let part = name.split(|byte| *byte == b'/').next().unwrap_or_default();
            OsString::from_vec(part.to_vec())
        };
        let mut parts: BTreeSet<_> =
            self.names.iter().filter(|name| !name.is_empty()).map(first).collect();
        if self.names.contains(&Vec::new()) {
            for child in source.read_dir()? {
                parts.insert(child?.file_name());
            }
        }
        Ok(parts)
    }

    /// Keeps the names for which this holds, given as paths relative to the source.
    pub(crate) fn retain(&mut self, mut holds: impl FnMut(&Path) -> bool) {
        self.names.retain(|name| holds(Path::new(OsStr::from_bytes(name))));
    }

    /// The filter of files to look at, and to accept.
    pub(crate) fn only(&self) -> NameFilter {
        let listed = self.clone();
        NameFilter::new(move |name, directory| listed.takes(name, directory))
    }

    /// The listed names, the directories above them, and the contents of listed directories.
    fn takes(&self, name: &[u8], directory: bool) -> bool {
        if self.names.contains(name) {
            return true;
        }
        let above = name.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at);
        if self.opened.contains(&name[..above]) {
            return true;
        }
        let ends = name.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        if self.recursive && ends.chain([0]).any(|end| self.names.contains(&name[..end])) {
            return true;
        }
        let beneath = [name, b"/"].concat();
        directory
            && self
                .names
                .range(beneath.clone()..)
                .next()
                .is_some_and(|next| next.starts_with(&beneath))
    }

    /// In pieces, for messages of bounded length; one at least.
    pub(crate) fn pieces(&self) -> Vec<Self> {
        let empty = || Self { recursive: self.recursive, ..Self::default() };
        let mut pieces = vec![empty()];
        let mut bytes = 0;
        for name in &self.names {
            bytes += name.len() + 1;
            if bytes > PIECE_BYTES {
                pieces.push(empty());
                bytes = name.len();
            }
            let Some(piece) = pieces.last_mut() else { continue };
            piece.names.insert(name.clone());
            if self.opened.contains(name) {
                piece.opened.insert(name.clone());
            }
        }
        pieces
    }

    /// Puts a piece to the others.
    pub(crate) fn join(&mut self, piece: Self) {
        self.names.extend(piece.names);
        self.opened.extend(piece.opened);
        self.recursive |= piece.recursive;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str, recursive: bool) -> FilesFrom {
        FilesFrom::parse(text.as_bytes(), false, recursive).expect("a list")
    }

    #[test]
    fn lists_are_read_as_rsync_reads_them() {
        let list = listed("# a comment\n; another\n\n/a/./b//c\r\nd/\n./#e\n", false);
        let of = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect();
        assert_eq!(list.names, of(&["#e", "a/b/c", "d"]));
        let list = FilesFrom::parse(b"a\nb\0c\0", true, false).expect("a list");
        assert_eq!(list.names, of(&["a\nb", "c"]));
        let error = FilesFrom::parse(b"a/../../b", false, false).expect_err("out");
        assert!(error.contains("leads out"), "{error}");
    }

    #[test]
    fn listed_names_are_taken_with_the_directories_above_them() {
        let list = listed("a/b/c\nd\ne/\n", false);
        for (name, directory, taken) in [
            ("a", true, true),
            ("a", false, false),
            ("a/b", true, true),
            ("a/b/c", false, true),
            ("a/b/x", false, false),
            ("a/b/c/x", false, false),
            ("d", true, true),
            ("d/x", false, false),
            ("e/x", false, true),
            ("e/x/y", false, false),
            ("ab", true, false),
        ] {
            assert_eq!(list.takes(name.as_bytes(), directory), taken, "{name}");
        }
        let all = listed("a/b/c\nd\n", true);
        assert!(all.takes(b"d/x/y", false) && all.takes(b"a/b/c/z", true));
        assert!(!all.takes(b"a/x", false));
        assert!(listed(".", true).takes(b"any/thing", false));
        assert!(listed(".", false).takes(b"any", false));
        assert!(!listed(".", false).takes(b"any/thing", false));
    }

    #[test]
    fn pieces_make_the_whole() {
        let long = |n: usize| format!("{n}/{}/\n", "x".repeat(3000));
        let list = listed(&(0..100).map(long).collect::<String>(), true);
        let mut whole = FilesFrom::default();
        let pieces = list.pieces();
        assert!(pieces.len() > 2);
        for piece in &pieces {
            let text = serde_json::to_vec(piece).expect("JSON");
            assert!(text.len() < (1 << 20) - 100, "{}", text.len());
        }
        pieces.into_iter().for_each(|piece| whole.join(piece));
        assert_eq!(whole, list);
    }
}
