//! The names of a transfer: each once, and no file where a directory must be.
//!
//! They come from a peer, so they are held as a tree of parts, each stored once, and nothing is
//! added beyond the budget (`docs/protocol §8.5`). A name costs its new parts, and every
//! directory that it implies counts as if it had been sent.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use netblt_proto::limits::MAX_FILES;

use crate::memory_budget::MemoryLease;

/// The average memory of a file or directory (`docs/protocol §9`).
const BYTES_EACH: u64 = 256;
/// Memory of a part beyond its bytes: its node, and its share of an index that was just enlarged.
const NODE_BYTES: u64 = 64;

/// Why a name or file is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRefusal {
    /// It contradicts another name.
    Name(&'static str),
    /// It goes beyond the budget.
    TooMuch { what: &'static str, most: u64 },
}

/// The memory that a transfer may still take (`docs/protocol §8.5`).
#[derive(Debug)]
pub(crate) struct Budget {
    most_files: u64,
    most_bytes: u64,
    bytes: u64,
    /// The lease of a server's memory.
    memory: MemoryLease,
}

impl Budget {
    /// For a transfer of so many files and directories.
    pub(crate) fn new(files: u64) -> Self {
        let most_files = files.min(MAX_FILES);
        let most_bytes = most_files.saturating_mul(BYTES_EACH);
        Self { most_files, most_bytes, bytes: 0, memory: MemoryLease::default() }
    }

    /// Takes memory from this lease, too, from now on.
    pub(crate) fn take_from(&mut self, memory: MemoryLease) {
        self.memory = memory;
    }

    /// Takes bytes of memory, if there are as many left.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), NameRefusal> {
        let sum = self.bytes.saturating_add(bytes);
        if sum > self.most_bytes.max(MIN_BYTES) {
            return Err(NameRefusal::TooMuch { what: WHAT_BYTES, most: self.most_bytes });
        }
        if !self.memory.take(bytes) {
            return Err(NameRefusal::TooMuch { what: WHAT_HERE, most: self.bytes });
        }
        self.bytes = sum;
        Ok(())
    }

    /// Gives them back.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.memory.give_back(bytes);
    }

    /// Returns all taken memory.
    pub(crate) fn reset(&mut self) {
        self.memory.give_back(self.bytes);
        self.bytes = 0;
    }

    /// The error for a file or directory that is one too many, if it is.
    pub(crate) fn check_files(&self, files: u64) -> Result<(), NameRefusal> {
        if files > self.most_files {
            return Err(NameRefusal::TooMuch {
                what: "files and directories",
                most: self.most_files,
            });
        }
        Ok(())
    }
}

const WHAT_BYTES: &str = "bytes of names, attributes and pieces that must be remembered";
const WHAT_HERE: &str = "bytes of names, for which this server has memory now";
/// Enough for one large file, whatever the number of files.
const MIN_BYTES: u64 = 16 << 20;

/// Which name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NameId(u32);

impl NameId {
    /// The destination itself.
    pub(crate) const ROOT: Self = Self(0);
    /// No name at all.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// The use of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    File,
    /// A directory that the sender listed.
    Listed,
    /// A directory that must be, since there is a name beneath it.
    Implied,
}

#[derive(Clone, Copy, Debug)]
struct NameNode {
    parent: NameId,
    /// The offset and the length of its part.
    start: u32,
    len: u8,
    what: Use,
    /// Another one of the same hash.
    next: NameId,
}

/// All names so far. Each must have passed the check of `docs/protocol §8.4` for a single name.
#[derive(Debug)]
pub(crate) struct Names {
    /// Parents before their children; the root is the first.
    nodes: Vec<NameNode>,
    /// All parts, one after the other.
    parts: Vec<u8>,
    /// By a hash that no peer can compute.
    index: HashMap<u64, NameId>,
    hasher: RandomState,
}

impl Default for Names {
    fn default() -> Self {
        let root = NameNode {
            parent: NameId::ROOT,
            start: 0,
            len: 0,
            what: Use::Implied,
            next: NameId::NONE,
        };
        Self {
            nodes: vec![root],
            parts: Vec::new(),
            index: HashMap::new(),
            hasher: RandomState::new(),
        }
    }
}

impl Names {
    /// Adds a name, or returns why it cannot be added.
    pub(crate) fn add(
        &mut self,
        name: &[u8],
        directory: bool,
        budget: &mut Budget,
    ) -> Result<NameId, NameRefusal> {
        let refuse = |why| Err(NameRefusal::Name(why));
        let mut at = NameId::ROOT;
        let mut parts = name.split(|byte| *byte == b'/').peekable();
        while let Some(part) = parts.next() {
            let last = parts.peek().is_none();
            let found = self.find(at, part);
            at = match (found.map(|id| (id, self.what(id))), last, directory) {
                (None, false, _) => self.push(at, part, Use::Implied, budget)?,
                (None, true, false) => self.push(at, part, Use::File, budget)?,
                (None, true, true) => self.push(at, part, Use::Listed, budget)?,
                (Some((_, Use::File)), false, _) => {
                    return refuse("a file of this transfer is in its way");
                }
                (Some((id, _)), false, _) => id,
                (Some((id, Use::Implied)), true, true) => {
                    if let Some(node) = self.nodes.get_mut(id.0 as usize) {
                        node.what = Use::Listed;
                    }
                    id
                }
                (Some((_, Use::Listed | Use::Implied)), true, false) => {
                    return refuse("a directory of this transfer has the same name");
                }
                (Some(_), true, _) => {
                    return refuse("another file of this transfer has the same name");
                }
            };
        }
        Ok(at)
    }

    /// Adds one part beneath a name, as it was written down by [`Self::iter`]'s reader.
    pub(crate) fn push(
        &mut self,
        parent: NameId,
        part: &[u8],
        what: Use,
        budget: &mut Budget,
    ) -> Result<NameId, NameRefusal> {
        budget.check_files(self.nodes.len() as u64)?;
        budget.take(NODE_BYTES + part.len() as u64)?;
        let (Ok(start), Ok(len), Ok(id)) = (
            u32::try_from(self.parts.len()),
            u8::try_from(part.len()),
            u32::try_from(self.nodes.len()),
        ) else {
            return Err(NameRefusal::TooMuch { what: WHAT_BYTES, most: self.parts.len() as u64 });
        };
        let id = NameId(id);
        let hash = self.hash(parent, part);
        let next = self.index.insert(hash, id).unwrap_or(NameId::NONE);
        self.parts.extend_from_slice(part);
        self.nodes.push(NameNode { parent, start, len, what, next });
        Ok(id)
    }

    /// Whether it is one of them.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        let mut parts = name.split(|byte| *byte == b'/');
        parts.try_fold(NameId::ROOT, |at, part| self.find(at, part)).is_some()
    }

    /// How many there are, the root among them.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The names in the order in which they were added, without the root.
    pub(crate) fn iter(&self) -> impl Iterator<Item = NameId> {
        (1..self.nodes.len()).filter_map(|at| u32::try_from(at).ok()).map(NameId)
    }

    /// The one at this place of [`Self::iter`], which counts from 1; the root at 0.
    pub(crate) fn at(&self, index: u64) -> Option<NameId> {
        let id = u32::try_from(index).ok().filter(|id| (*id as usize) < self.nodes.len());
        id.map(NameId)
    }

    /// Its place in [`Self::iter`].
    pub(crate) fn index(&self, id: NameId) -> usize {
        id.0 as usize
    }

    /// The use of a name.
    pub(crate) fn what(&self, id: NameId) -> Use {
        self.nodes.get(id.0 as usize).map_or(Use::Implied, |node| node.what)
    }

    /// The directory it is in.
    pub(crate) fn parent(&self, id: NameId) -> NameId {
        self.nodes.get(id.0 as usize).map_or(NameId::ROOT, |node| node.parent)
    }

    /// Its last part; of the root none.
    pub(crate) fn leaf(&self, id: NameId) -> &[u8] {
        let Some(node) = self.nodes.get(id.0 as usize) else { return &[] };
        let start = node.start as usize;
        self.parts.get(start..start + usize::from(node.len)).unwrap_or_default()
    }

    /// All of it; of the root nothing.
    pub(crate) fn path(&self, id: NameId) -> Vec<u8> {
        let mut parts = Vec::new();
        let mut at = id;
        while at != NameId::ROOT {
            parts.push(self.leaf(at));
            at = self.parent(at);
        }
        parts.reverse();
        parts.join(&b'/')
    }

    fn find(&self, parent: NameId, part: &[u8]) -> Option<NameId> {
        let mut at = *self.index.get(&self.hash(parent, part))?;
        while at != NameId::NONE {
            if self.parent(at) == parent && self.leaf(at) == part {
                return Some(at);
            }
            at = self.nodes.get(at.0 as usize)?.next;
        }
        None
    }

    fn hash(&self, parent: NameId, part: &[u8]) -> u64 {
        self.hasher.hash_one((parent, part))
    }
}

/// A name, or a part of one, on a line of its own.
pub(crate) fn escaped(part: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(part.len());
    for byte in part {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            byte => out.push(*byte),
        }
    }
    out
}

/// The bytes of an escaped name.
pub(crate) fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.iter());
    while let Some(byte) = rest.next() {
        out.push(match byte {
            b'\\' => match rest.next()? {
                b'n' => b'\n',
                b'\\' => b'\\',
                _ => return None,
            },
            byte => *byte,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_thing_only_in_whichever_order() {
        let (mut names, mut budget) = (Names::default(), Budget::new(100));
        let mut add = |name: &[u8], directory| names.add(name, directory, &mut budget).map(|_| ());
        for (name, directory) in
            [(&b"a/b/file"[..], false), (b"a/b", true), (b"a", true), (b"a/file", false)]
        {
            add(name, directory).expect("a new name");
        }
        for (name, directory) in [
            (&b"a/b"[..], true),
            (b"a/b", false),
            (b"a/file", false),
            (b"a/file", true),
            (b"a/file/under", false),
            (b"a/b/file/under/it", true),
        ] {
            assert!(matches!(add(name, directory), Err(NameRefusal::Name(_))), "{name:?}");
        }
        let all: Vec<Vec<u8>> = names.iter().map(|id| names.path(id)).collect();
        assert_eq!(all, [&b"a"[..], b"a/b", b"a/b/file", b"a/file"]);
        assert_eq!(names.path(NameId::ROOT), b"");
    }

    #[test]
    fn a_million_normal_files_fit_and_deep_names_do_not() {
        let (mut names, mut budget) = (Names::default(), Budget::new(1 << 21));
        for i in 0..1_000_000u32 {
            let name = format!("photos/year-{}/picture-{i:08}.jpeg", i % 50);
            names.add(name.as_bytes(), false, &mut budget).expect("fits");
        }
        // Parts are stored once: little beyond the last ones.
        assert_eq!(names.len(), 1_000_052);
        assert!(names.parts.len() < 22_000_000, "{}", names.parts.len());
        let (mut names, mut budget) = (Names::default(), Budget::new(100_000));
        let deep = "x/".repeat(127);
        let all = (0..1_000).map(|i| format!("{i}/{deep}"));
        let refused = all
            .map(|name| names.add(format!("{name}x").as_bytes(), false, &mut budget))
            .find_map(Result::err);
        assert!(matches!(refused, Some(NameRefusal::TooMuch { most: 100_000, .. })), "{refused:?}");
        assert!(names.len() <= 100_001);
        let mut budget = Budget::new(100_000);
        let wide = "w".repeat(255);
        let refused = (0..100_000)
            .map(|i| format!("{wide}/{i:0>255}"))
            .find_map(|name| Names::default().add(name.as_bytes(), false, &mut budget).err());
        assert!(matches!(refused, Some(NameRefusal::TooMuch { .. })), "{refused:?}");
    }
}
