//! The names of a transfer: each once, and no file where a directory must be.

use std::collections::HashMap;

/// Most files and directories in a transfer: a bound for the memory of both ends.
pub(crate) const MAX_FILES: u64 = 1 << 24;
/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    File,
    /// A directory that the sender listed.
    Listed,
    /// A directory that must be, since there is a name beneath it.
    Implied,
}

/// All names so far. Names must have passed the check of `docs/protocol.md §8.4` that looks at one
/// name alone.
#[derive(Debug, Default)]
pub(crate) struct Names {
    uses: HashMap<Box<[u8]>, Use>,
}

impl Names {
    /// Adds a name, or says why it cannot be.
    pub(crate) fn add(&mut self, name: &[u8], directory: bool) -> Result<(), &'static str> {
        let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (at, _) in slashes {
            let parent = name.get(..at).unwrap_or_default();
            match self.uses.get(parent) {
                Some(Use::File) => return Err("a file of this transfer is in its way"),
                Some(Use::Listed | Use::Implied) => {}
                None => {
                    self.uses.insert(parent.into(), Use::Implied);
                }
            }
        }
        match (self.uses.get(name), directory) {
            (None, false) => self.uses.insert(name.into(), Use::File),
            (None | Some(Use::Implied), true) => self.uses.insert(name.into(), Use::Listed),
            (Some(Use::Listed | Use::Implied), false) => {
                return Err("a directory of this transfer has the same name");
            }
            (Some(_), _) => return Err("another file of this transfer has the same name"),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_thing_only_in_whichever_order() {
        let mut names = Names::default();
        assert_eq!(names.add(b"a/b/file", false), Ok(()));
        assert_eq!(names.add(b"a/b", true), Ok(()));
        assert_eq!(names.add(b"a", true), Ok(()));
        assert_eq!(names.add(b"a/file", false), Ok(()));
        assert!(names.add(b"a/b", true).is_err());
        assert!(names.add(b"a/b", false).is_err());
        assert!(names.add(b"a/file", false).is_err());
        assert!(names.add(b"a/file", true).is_err());
        assert!(names.add(b"a/file/under", false).is_err());
        assert!(names.add(b"a/b/file/under/it", true).is_err());
    }
}
