//! The list of a chunk: its entries, with lengths and times, each ended by a zero byte, which no
//! name contains.
//!
//! An entry is a letter (`f` file, `l` symbolic link, `d` directory), bytes, seconds since 1970 and
//! nanoseconds of the time of modification, and the name's bytes, relative to the source, with one
//! space between; the source itself has an empty name. A range of a file is `r`, with the bytes of
//! the range first, and before the name those of the file before it and those of the file.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

use crate::error::{Error, at, damaged};

/// The first entry of every list.
pub const TITLE: &[u8] = b"netblt fleet list 1";
/// The title of a list with ranges, so that a program that does not know ranges does not start.
pub const TITLE_OF_RANGE: &[u8] = b"netblt fleet list 2";
/// Longest entry: a name of the longest kind, and numbers.
const LONGEST: u64 = 5000;

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryType {
    /// A regular file.
    File,
    /// A symbolic link, which is sent as a link.
    Link,
    /// A directory, whose contents are entries of their own.
    Directory,
    /// A range of a regular file; its item's bytes are those of the range.
    Range {
        /// Bytes of the file before it.
        offset: u64,
        /// Bytes of the file.
        total: u64,
    },
}

/// Something to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its type.
    pub sort: EntryType,
    /// Bytes in it when it was listed; of a directory none.
    pub bytes: u64,
    /// Its time of modification then: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// Relative to the source.
    pub name: Vec<u8>,
}

impl Item {
    /// Its entry, with its end.
    pub fn encode(&self) -> Vec<u8> {
        let sort = match self.sort {
            EntryType::File => 'f',
            EntryType::Link => 'l',
            EntryType::Directory => 'd',
            EntryType::Range { .. } => 'r',
        };
        let mut head = format!("{sort} {} {} {} ", self.bytes, self.modified.0, self.modified.1);
        if let EntryType::Range { offset, total } = self.sort {
            head.push_str(&format!("{offset} {total} "));
        }
        [head.as_bytes(), &self.name, &[0]].concat()
    }

    /// An entry without its end.
    pub fn parse(entry: &[u8]) -> Option<Self> {
        fn number<T: std::str::FromStr>(text: Option<&[u8]>) -> Option<T> {
            str::from_utf8(text?).ok()?.parse().ok()
        }
        let is_range = entry.starts_with(b"r ");
        let mut words = entry.splitn(if is_range { 7 } else { 5 }, |byte| *byte == b' ');
        let mut sort = match words.next()? {
            b"r" => EntryType::Range { offset: 0, total: 0 },
            b"f" => EntryType::File,
            b"l" => EntryType::Link,
            b"d" => EntryType::Directory,
            _ => return None,
        };
        let bytes = number(words.next())?;
        let modified = (number(words.next())?, number(words.next())?);
        if let EntryType::Range { offset, total } = &mut sort {
            (*offset, *total) = (number(words.next())?, number(words.next())?);
        }
        Some(Self { sort, bytes, modified, name: words.next()?.to_vec() })
    }
}

/// The entries of a list, in order; one at a time is in memory.
pub struct Items {
    path: std::path::PathBuf,
    from: BufReader<File>,
}

impl Items {
    /// Opens a list.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(at(path, "cannot be opened"))?;
        let mut items = Self { path: path.to_owned(), from: BufReader::new(file) };
        match items.entry()? {
            Some(title) if title == TITLE || title == TITLE_OF_RANGE => Ok(items),
            _ => Err(damaged(path, "it is not the list of a chunk")),
        }
    }

    fn entry(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let mut entry = Vec::new();
        let read = (&mut self.from).take(LONGEST).read_until(0, &mut entry);
        read.map_err(at(&self.path, "cannot be read"))?;
        match entry.pop() {
            None => Ok(None),
            Some(0) => Ok(Some(entry)),
            Some(_) => Err(damaged(&self.path, "an entry has no end")),
        }
    }
}

impl Iterator for Items {
    type Item = Result<Item, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.entry().transpose()?;
        let wrong = || damaged(&self.path, "an entry makes no sense");
        Some(entry.and_then(|entry| Item::parse(&entry).ok_or_else(wrong)))
    }
}

/// The BLAKE3 of a file.
///
/// # Errors
/// If it cannot be read.
pub fn digest(path: &Path) -> io::Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_they_were_written() {
        for item in [
            Item {
                sort: EntryType::File,
                bytes: 7,
                modified: (-3, 999_999_999),
                name: b"a b/\xff".into(),
            },
            Item { sort: EntryType::Link, bytes: 0, modified: (0, 0), name: b"x\n".into() },
            Item { sort: EntryType::Directory, bytes: 0, modified: (1, 1), name: vec![] },
            Item {
                sort: EntryType::Range { offset: 1 << 36, total: u64::MAX },
                bytes: 1 << 36,
                modified: (1, 1),
                name: b"a b".into(),
            },
        ] {
            let entry = item.encode();
            let (end, entry) = entry.split_last().expect("not empty");
            assert_eq!((*end, Item::parse(entry)), (0, Some(item)));
        }
        for odd in
            [&b""[..], b"f", b"x 1 1 1 a", b"f a 1 1 a", b"f 1 1 1", b"r 1 1 1 a", b"r 1 1 1 1 1"]
        {
            assert_eq!(Item::parse(odd), None);
        }
    }

    #[test]
    fn an_invalid_list_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let wrong = |bytes: &[u8]| {
            std::fs::write(file.path(), bytes).expect("written");
            Items::open(file.path()).and_then(|items| items.collect::<Result<Vec<_>, _>>()).is_err()
        };
        assert!(wrong(b""));
        assert!(wrong(b"f 1 1 1 a\0"));
        assert!(wrong(&[TITLE, b"\0f 1 1 1 a"].concat()));
        assert!(wrong(&[TITLE, b"\0q 1 1 1 a\0"].concat()));
        assert!(!wrong(&[TITLE, b"\0f 1 1 1 a\0"].concat()));
    }
}
