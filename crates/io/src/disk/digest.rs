//! BLAKE3 of a file whose extents come in any order, and the set of those that have come.
//!
//! Extents are aligned to a power of two, so each is a subtree of BLAKE3's tree and is hashed
//! alone. Both are one structure here, because a known subtree is a received part of the file.
//! Neighbours merge as soon as both are there, so that the memory depends on the number of holes
//! and not on the size of the file. Contradictory extents are refused.

use std::collections::BTreeMap;

use crate::disk::have_list::Node;
use crate::disk::sparse;

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};
use netblt_proto::content::{DataRun, FileRange};

/// Smallest extent that can be a subtree: BLAKE3's chunk.
const MIN_EXTENT_BYTES: u64 = blake3::CHUNK_LEN as u64;

/// The known parts of one file: a forest that grows into its tree.
#[derive(Debug)]
pub(crate) struct Subtrees {
    extent_bytes: u64,
    /// For a range of a file: the bytes before it.
    before: Option<u64>,
    /// By level (0: single extents) and index. No node has an ancestor here.
    nodes: BTreeMap<(u32, u64), ChainingValue>,
    top_level: u32,
    /// The last extent, which may be shorter than the others and merges with none.
    tail: Option<(u64, ChainingValue)>,
    /// The first extent finalized as if it were all: it is, if an empty last extent follows.
    first_as_root: Option<[u8; 32]>,
    highest: u64,
    /// Bytes of the file, once its last extent is here.
    length: Option<u64>,
}

impl Subtrees {
    /// A file of which nothing is known, with extents of `extent_bytes`, a power of two from 1,024.
    pub(crate) fn new(extent_bytes: u32) -> Self {
        let extent_bytes = u64::from(extent_bytes).next_power_of_two().max(MIN_EXTENT_BYTES);
        Self {
            extent_bytes,
            before: None,
            nodes: BTreeMap::new(),
            top_level: 0,
            tail: None,
            first_as_root: None,
            highest: 0,
            length: None,
        }
    }

    /// The same of a range of a file: its hash is the chaining value of a subtree.
    pub(crate) fn of_range(mut self, range: Option<FileRange>) -> Self {
        self.before = range.map(|range| range.offset);
        self
    }

    /// The number of separate known parts, on which its memory depends.
    pub(crate) fn pieces(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes of the file, once its last extent has come.
    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Whether an extent of these measures fits to all earlier ones.
    pub(crate) fn check(&self, offset: u64, len: usize, last: bool) -> Result<(), &'static str> {
        let len = len as u64;
        let index = offset / self.extent_bytes;
        if !offset.is_multiple_of(self.extent_bytes) || offset.checked_add(len).is_none() {
            return Err("an extent begins where none can");
        }
        if len > self.extent_bytes || (!last && len < self.extent_bytes) {
            return Err("an extent has a length that none can have");
        }
        if last && (self.length.is_some() || self.highest > offset + len) {
            return Err("a file ends in two places");
        }
        if self.length.is_some_and(|length| offset + len > length) {
            return Err("a file goes on after its end");
        }
        if len > 0 && self.covers(index) {
            return Err("a part of a file came twice");
        }
        Ok(())
    }

    /// Takes the extent at `offset`; `last` if the file ends with it. Refuses it as
    /// [`Self::check`] does.
    #[cfg(test)]
    pub(crate) fn add(&mut self, offset: u64, data: &[u8], last: bool) -> Result<(), &'static str> {
        self.add_pieces(offset, data.len(), None, data, last)
    }

    /// Adds the extent at `offset`, which consists of these pieces and zeros between them.
    pub(crate) fn add_pieces(
        &mut self,
        offset: u64,
        len: usize,
        pieces: Option<&[DataRun]>,
        data: &[u8],
        last: bool,
    ) -> Result<(), &'static str> {
        self.check(offset, len, last)?;
        let end = offset + len as u64;
        self.highest = self.highest.max(end);
        if last {
            self.length = Some(end);
        }
        if len == 0 {
            return Ok(());
        }
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset(self.before.unwrap_or(0) + offset);
        sparse::hash(&mut hasher, len, pieces, data);
        if offset == 0 && self.before.is_none() {
            self.first_as_root = Some(*hasher.finalize().as_bytes());
        }
        let (index, value) = (offset / self.extent_bytes, hasher.finalize_non_root());
        if last {
            self.tail = Some((index, value));
        } else {
            self.insert(0, index, value);
        }
        Ok(())
    }

    /// The hash of the file, once every byte of it has come.
    pub(crate) fn root(&self) -> Option<[u8; 32]> {
        let length = self.length?;
        let extents = length.div_ceil(self.extent_bytes);
        if self.before.is_some() {
            return self.cover(0, extents);
        }
        if extents == 0 {
            return Some(*blake3::hash(&[]).as_bytes());
        }
        if extents == 1 {
            return self.first_as_root;
        }
        let left = left_extents(extents);
        let (left, right) = (self.cover(0, left)?, self.cover(left, extents - left)?);
        Some(*merge_subtrees_root(&left, &right, Mode::Hash).as_bytes())
    }

    /// The known subtrees without the last extent, each as large as possible.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = Node> {
        self.nodes.iter().map(|((level, index), value)| Node {
            offset: (index << level) * self.extent_bytes,
            bytes: self.extent_bytes << level,
            value: *value,
        })
    }

    /// Adds a subtree that was known before; false if it does not fit to these extents or to the
    /// known parts.
    pub(crate) fn adopt(&mut self, node: &Node) -> bool {
        let Node { offset, bytes, value } = *node;
        let fits = bytes >= self.extent_bytes
            && bytes.is_power_of_two()
            && offset.is_multiple_of(bytes)
            && offset.checked_add(bytes).is_some_and(|end| self.length.is_none_or(|l| end < l));
        if !fits || self.next_missing(offset) != offset || self.holds_within(offset, bytes) {
            return false;
        }
        self.highest = self.highest.max(offset + bytes);
        let level = (bytes / self.extent_bytes).ilog2();
        self.insert(level, offset / bytes, value);
        true
    }

    /// The offset of the first unknown extent from `offset` on.
    pub(crate) fn next_missing(&self, offset: u64) -> u64 {
        let mut at = offset;
        while let Some(level) = self.level_of(at / self.extent_bytes) {
            let bytes = self.extent_bytes << level;
            at = (at / bytes + 1).saturating_mul(bytes);
        }
        at
    }

    fn holds_within(&self, offset: u64, bytes: u64) -> bool {
        self.nodes().any(|node| node.offset < offset + bytes && node.offset >= offset)
    }

    fn insert(&mut self, mut level: u32, mut index: u64, mut value: ChainingValue) {
        // A parent at index 0 may be the root, which is made differently: leave its children.
        while index > 1 {
            let Some(sibling) = self.nodes.remove(&(level, index ^ 1)) else { break };
            value = if index.is_multiple_of(2) {
                merge_subtrees_non_root(&value, &sibling, Mode::Hash)
            } else {
                merge_subtrees_non_root(&sibling, &value, Mode::Hash)
            };
            index /= 2;
            level += 1;
        }
        self.top_level = self.top_level.max(level);
        self.nodes.insert((level, index), value);
    }

    fn covers(&self, index: u64) -> bool {
        self.tail.is_some_and(|(tail, _)| tail == index) || self.level_of(index).is_some()
    }

    /// The level of the node that an extent is part of.
    fn level_of(&self, index: u64) -> Option<u32> {
        (0..=self.top_level).find(|level| self.nodes.contains_key(&(*level, index >> level)))
    }

    /// The chaining value over `count` extents from `first`, if all are here.
    fn cover(&self, first: u64, count: u64) -> Option<ChainingValue> {
        let level = count.trailing_zeros();
        if count.is_power_of_two()
            && let Some(value) = self.nodes.get(&(level, first >> level))
        {
            return Some(*value);
        }
        if count < 2 {
            return self.tail.filter(|(tail, _)| *tail == first).map(|(_, value)| value);
        }
        let left = left_extents(count);
        let right = self.cover(first + left, count - left)?;
        Some(merge_subtrees_non_root(&self.cover(first, left)?, &right, Mode::Hash))
    }
}

/// How many of `extents`, at least 2, are under the left child: the largest power of two below.
fn left_extents(extents: u64) -> u64 {
    1 << (extents - 1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
    }

    proptest! {
        #[test]
        fn any_order_gives_the_hash_of_the_whole(
            len in 0usize..40_000,
            order in proptest::collection::vec(any::<u32>(), 40),
        ) {
            let content = bytes(len);
            let mut extents: Vec<(usize, &[u8])> = content.chunks(1024).enumerate().collect();
            if extents.is_empty() {
                extents.push((0, &[]));
            }
            let last = extents.len() - 1;
            extents.sort_by_key(|(i, _)| order[i % order.len()]);
            let mut subtrees = Subtrees::new(1024);
            for (i, data) in extents {
                prop_assert_eq!(subtrees.root(), None);
                prop_assert_eq!(subtrees.add(i as u64 * 1024, data, i == last), Ok(()));
                prop_assert!(subtrees.add(i as u64 * 1024, data, i == last).is_err());
            }
            prop_assert_eq!(subtrees.length(), Some(len as u64));
            prop_assert_eq!(subtrees.root(), Some(*blake3::hash(&content).as_bytes()));
        }
    }

    #[test]
    fn an_empty_last_extent_ends_a_stream() {
        for extents in [1usize, 2, 5] {
            let content = bytes(extents * 2048);
            let mut subtrees = Subtrees::new(2048);
            assert_eq!(subtrees.add(content.len() as u64, &[], true), Ok(()));
            for (i, data) in content.chunks(2048).enumerate() {
                assert_eq!(subtrees.add(i as u64 * 2048, data, false), Ok(()));
            }
            assert_eq!(subtrees.root(), Some(*blake3::hash(&content).as_bytes()));
        }
    }

    #[test]
    fn known_subtrees_are_adopted_in_larger_or_equal_pieces() {
        let content = bytes(13 * 1024 + 5);
        let mut before = Subtrees::new(1024);
        for i in [0usize, 1, 2, 3, 5, 6, 7, 8, 9] {
            assert_eq!(before.add(i as u64 * 1024, &content[i * 1024..][..1024], false), Ok(()));
        }
        assert_eq!(before.add(13 * 1024, &content[13 * 1024..], true), Ok(()));
        for extent in [1024u32, 2048] {
            let mut subtrees = Subtrees::new(extent);
            for node in before.nodes() {
                assert_eq!(subtrees.adopt(&node), node.bytes >= u64::from(extent));
                assert!(!subtrees.adopt(&node));
            }
            let mut at = subtrees.next_missing(0);
            assert!(at > 0 || extent > 1024);
            while at < content.len() as u64 {
                let end = content.len().min(at as usize + extent as usize);
                let last = end == content.len();
                assert_eq!(subtrees.add(at, &content[at as usize..end], last), Ok(()));
                at = if last { end as u64 } else { subtrees.next_missing(at) };
            }
            assert_eq!(subtrees.root(), Some(*blake3::hash(&content).as_bytes()));
        }
        let mut subtrees = Subtrees::new(1024);
        for (offset, bytes) in [(0, 512), (0, 3072), (1024, 2048), (u64::MAX - 1023, 1024)] {
            assert!(!subtrees.adopt(&Node { offset, bytes, value: [0; 32] }), "{offset} {bytes}");
        }
    }

    #[test]
    fn memory_follows_the_holes_and_not_the_size() {
        let mut subtrees = Subtrees::new(1024);
        for i in 0..10_000u64 {
            assert_eq!(subtrees.add(i * 1024, &[0; 1024], false), Ok(()));
            assert!(subtrees.nodes.len() <= 30);
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let full = [0; 1024];
        let mut subtrees = Subtrees::new(1024);
        assert!(subtrees.add(7, &full, false).is_err());
        assert!(subtrees.add(0, &full[1..], false).is_err());
        assert!(subtrees.add(0, &[0; 1025], true).is_err());
        assert!(subtrees.add(u64::MAX - 1023, &full, true).is_err());
        assert_eq!(subtrees.add(2048, &full, false), Ok(()));
        assert!(subtrees.add(1024, &full[..3], true).is_err());
        assert_eq!(subtrees.add(3072, &full[..3], true), Ok(()));
        assert!(subtrees.add(4096, &[], true).is_err());
        assert!(subtrees.add(3072, &full, false).is_err());
        assert!(subtrees.add(1 << 60, &full, false).is_err());
        assert_eq!(subtrees.root(), None);
    }
}
