//! The names in a chunk's list, as they arrive.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::Error;
use crate::list::{EntryType, Items};
use crate::run::{Chunk, Run};

/// Which names a chunk has, as they arrive.
pub(crate) struct Names {
    pub(crate) files: HashSet<Box<[u8]>>,
    pub(crate) directories: HashSet<Box<[u8]>>,
    /// Bytes and times of those that are files, in the order of a hash of their names: only to
    /// be counted when they differ.
    pub(crate) planned: HashSet<[u8; 16]>,
}

impl Names {
    pub(crate) fn read(run: &Run, chunk: &Chunk) -> Result<Self, Error> {
        let leaf = run.target().1;
        let mut names =
            Self { files: HashSet::new(), directories: HashSet::new(), planned: HashSet::new() };
        for item in Items::open(&run.list(chunk.number))? {
            let item = item?;
            let name = arriving(leaf.as_bytes(), &item.name);
            for (at, _) in name.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
                let above = name.get(..at).unwrap_or_default();
                if !names.directories.contains(above) {
                    names.directories.insert(above.into());
                }
            }
            match item.sort {
                EntryType::Directory => _ = names.directories.insert(name.into()),
                EntryType::Link => _ = names.files.insert(name.into()),
                // It goes by itself.
                EntryType::Range { .. } => {}
                EntryType::File => {
                    let (seconds, nanos) = item.modified;
                    names.planned.insert(stamp(&name, item.bytes, seconds, nanos));
                    names.files.insert(name.into());
                }
            }
        }
        Ok(names)
    }
}

/// A name of a list under which it arrives.
pub(crate) fn arriving(leaf: &[u8], name: &[u8]) -> Vec<u8> {
    match name {
        b"" => leaf.to_vec(),
        name => [leaf, b"/", name].concat(),
    }
}

/// A file as it was planned.
pub(crate) fn stamp(name: &[u8], bytes: u64, seconds: i64, nanos: u32) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(name).update(&[0]).update(&bytes.to_be_bytes());
    hasher.update(&seconds.to_be_bytes()).update(&nanos.to_be_bytes());
    hasher.finalize().as_bytes().first_chunk().copied().unwrap_or_default()
}

/// Seconds since 1970 and nanoseconds, rounded down, as the system has them.
pub(crate) fn since(time: SystemTime) -> (i64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after.as_secs().cast_signed(), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let part = u32::from(before.subsec_nanos() > 0);
            let nanos = (1_000_000_000 - before.subsec_nanos()) % 1_000_000_000;
            (-(before.as_secs().cast_signed()) - i64::from(part), nanos)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_before_1970_are_those_of_the_system() {
        let before = |nanos| UNIX_EPOCH - Duration::from_nanos(nanos);
        assert_eq!(since(before(1)), (-1, 999_999_999));
        assert_eq!(since(before(1_000_000_000)), (-1, 0));
        assert_eq!(since(before(0)), (0, 0));
        assert_eq!(since(UNIX_EPOCH + Duration::from_nanos(1_000_000_001)), (1, 1));
    }
}
