//! The list of what a receiver has, for HAVE (`docs/protocol §8.7`).
//!
//! It comes from a peer: its length is bounded, and nothing of it is trusted before the sender has
//! found the same hashes in its own file.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use blake3::hazmat::HasherExt as _;
use netblt_proto::content::FileRange;
use netblt_proto::limits::MAX_HAVE_IN_ALL;

use crate::disk::attributes::FileTimes;

/// Most pieces of one file in HAVE.
pub(crate) const MAX_NODES: usize = 1 << 13;
/// Bytes of a number of things.
const COUNT_BYTES: usize = 4;
/// In place of the number of pieces: all of the file is there.
const WHOLE: u16 = u16::MAX;

/// A file's name and time of modification in 16 bytes.
pub(crate) type Identity = [u8; 16];

/// A piece of a file: a subtree of BLAKE3's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Bytes of the file before it, a multiple of `bytes`.
    pub(crate) offset: u64,
    /// Bytes in it, a power of two from 1,024 on.
    pub(crate) bytes: u64,
    /// Its chaining value.
    pub(crate) value: [u8; 32],
}

impl Node {
    /// The same, of a range of a file, where it is in the file.
    pub(crate) fn of_range(self, range: Option<FileRange>) -> Self {
        let before = range.map_or(0, |range| range.offset);
        Self { offset: self.offset.saturating_add(before), ..self }
    }

    /// All of a range, in its file.
    pub(crate) fn all_of(range: FileRange, value: [u8; 32]) -> Self {
        Self { offset: range.offset, bytes: range.length, value }
    }
}

/// How much of a file there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilePart {
    /// All of it, with this digest.
    Whole([u8; 32]),
    /// These pieces, in order, and not its last extent.
    Nodes(Vec<Node>),
}

impl FilePart {
    /// Bytes that it takes in HAVE, its identity included.
    fn encoded_len(&self) -> usize {
        let what = match self {
            Self::Whole(_) => 32,
            Self::Nodes(nodes) => NODE_BYTES * nodes.len().min(MAX_NODES),
        };
        size_of::<Identity>() + 2 + what
    }
}

/// The list of what a receiver has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HaveList {
    /// Files that are smaller than a buffer, all of each.
    proofs: HashSet<[u8; 16]>,
    /// Larger ones.
    parts: HashMap<Identity, FilePart>,
}

/// The identity of a file.
pub(crate) fn identity(name: &[u8], times: FileTimes) -> Identity {
    let mut hasher = blake3::Hasher::new_derive_key("netblt 9 file identity");
    hasher.update(&times.seconds.to_be_bytes()).update(&times.nanos.to_be_bytes()).update(name);
    short(&hasher)
}

/// The identity of a file with parts: its name alone. Parts are compared with the sender's file
/// before they are trusted, so a changed time is no reason to send them again.
pub(crate) fn part_identity(name: &[u8]) -> Identity {
    short(blake3::Hasher::new_derive_key("netblt 9 file part").update(name))
}

/// The identity of a small file, content included.
fn proof(identity: &Identity, digest: &[u8; 32]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_derive_key("netblt 9 file proof");
    hasher.update(identity).update(digest);
    short(&hasher)
}

/// The digest of a hard link: that of the number of the file that it names.
pub(crate) fn digest_of_link(to: u64) -> [u8; 32] {
    *blake3::hash(&to.to_be_bytes()).as_bytes()
}

fn short(hasher: &blake3::Hasher) -> [u8; 16] {
    let mut out = [0; 16];
    hasher.finalize_xof().fill(&mut out);
    out
}

impl HaveList {
    /// Adds a small file that is there as a whole.
    pub(crate) fn add_small(&mut self, identity: &Identity, digest: &[u8; 32]) {
        self.proofs.insert(proof(identity, digest));
    }

    /// Adds what there is of a large file.
    pub(crate) fn add(&mut self, identity: Identity, part: FilePart) {
        self.parts.insert(identity, part);
    }

    /// Whether a small file of this content is there.
    pub(crate) fn has_small(&self, identity: &Identity, digest: &[u8; 32]) -> bool {
        !self.proofs.is_empty() && self.proofs.contains(&proof(identity, digest))
    }

    /// The known part of a large file.
    pub(crate) fn part(&self, identity: &Identity) -> Option<&FilePart> {
        self.parts.get(identity)
    }

    /// Whether nothing is there of any large file.
    pub(crate) fn has_no_parts(&self) -> bool {
        self.parts.is_empty()
    }

    /// Its bytes; empty if it is. Beyond `most` bytes the rest is left out. Returns the number of
    /// omitted files, too.
    pub(crate) fn encode(&self, most: usize) -> (Vec<u8>, usize) {
        if self.proofs.is_empty() && self.parts.is_empty() {
            return (Vec::new(), 0);
        }
        // The same things make the same bytes.
        let mut proofs: Vec<_> = self.proofs.iter().collect();
        proofs.sort_unstable();
        let mut parts: Vec<_> = self.parts.iter().collect();
        parts.sort_unstable_by_key(|(identity, _)| *identity);
        let all = proofs.len() + parts.len();
        // Large files first: most is saved by those.
        let mut room = most.saturating_sub(2 * COUNT_BYTES);
        parts.retain(|(_, part)| {
            let left = room.checked_sub(part.encoded_len());
            room = left.unwrap_or(room);
            left.is_some()
        });
        proofs.truncate(room / size_of::<Identity>());
        let left_out = all - proofs.len() - parts.len();
        let mut out = Vec::new();
        out.extend_from_slice(&count(proofs.len()));
        proofs.into_iter().for_each(|proof| out.extend_from_slice(proof));
        out.extend_from_slice(&count(parts.len()));
        for (identity, part) in parts {
            out.extend_from_slice(identity);
            match part {
                FilePart::Whole(digest) => {
                    out.extend_from_slice(&WHOLE.to_be_bytes());
                    out.extend_from_slice(digest);
                }
                FilePart::Nodes(nodes) => {
                    let nodes = nodes.get(..MAX_NODES).unwrap_or(nodes);
                    out.extend_from_slice(&(nodes.len() as u16).to_be_bytes());
                    nodes.iter().for_each(|node| encode_node(node, &mut out));
                }
            }
        }
        (out, left_out)
    }

    /// A peer's HAVE, if it can be parsed.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut had = Self::default();
        if bytes.is_empty() {
            return Some(had);
        }
        let mut rest = bytes;
        for _ in 0..u32::from_be_bytes(take(&mut rest)?) {
            had.proofs.insert(take(&mut rest)?);
        }
        for _ in 0..u32::from_be_bytes(take(&mut rest)?) {
            let identity = take(&mut rest)?;
            let part = match u16::from_be_bytes(take(&mut rest)?) {
                WHOLE => FilePart::Whole(take(&mut rest)?),
                nodes if usize::from(nodes) > MAX_NODES => return None,
                nodes => {
                    let nodes: Option<Vec<_>> = (0..nodes).map(|_| parse_node(&mut rest)).collect();
                    FilePart::Nodes(nodes?)
                }
            };
            had.parts.insert(identity, part);
        }
        rest.is_empty().then_some(had)
    }
}

/// Puts together the pieces of a peer's HAVE, in any order.
#[derive(Debug, Default)]
pub(crate) struct HaveDecoder {
    pieces: HashMap<u32, Vec<u8>>,
    bytes: usize,
    last: Option<u32>,
}

impl HaveDecoder {
    /// Another piece. All of it when none is missing; an error if it is more than there can be.
    pub(crate) fn add(
        &mut self,
        place: u32,
        piece: Vec<u8>,
        last: bool,
    ) -> Result<Option<Vec<u8>>, ()> {
        self.bytes += piece.len();
        if self.bytes > MAX_HAVE_IN_ALL || self.last.is_some_and(|end| last || place > end) {
            return Err(());
        }
        self.last = self.last.or(last.then_some(place));
        self.pieces.insert(place, piece);
        if self.last != u32::try_from(self.pieces.len()).ok() {
            return Ok(None);
        }
        let mut all = Vec::with_capacity(self.bytes);
        for place in 1..=self.last.unwrap_or(0) {
            all.extend(self.pieces.remove(&place).unwrap_or_default());
        }
        Ok(Some(all))
    }
}

/// Bytes read at once to hash them.
const READ_BYTES: usize = 1 << 18;

/// The chaining value of a piece of a file.
pub(crate) fn value_of(file: &File, node: &Node) -> io::Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(node.offset);
    let mut bytes = vec![0; READ_BYTES];
    let (mut at, end) = (node.offset, node.offset.saturating_add(node.bytes));
    while at < end {
        let wish = usize::try_from(end - at).unwrap_or(READ_BYTES).min(READ_BYTES);
        let Some(space) = bytes.get_mut(..wish) else { break };
        file.read_exact_at(space, at)?;
        hasher.update(space);
        at += wish as u64;
    }
    Ok(hasher.finalize_non_root())
}

/// Bytes of a node.
pub(crate) const NODE_BYTES: usize = 41;

pub(crate) fn encode_node(node: &Node, out: &mut Vec<u8>) {
    out.extend_from_slice(&node.offset.to_be_bytes());
    out.push(node.bytes.max(1).ilog2() as u8);
    out.extend_from_slice(&node.value);
}

pub(crate) fn parse_node(rest: &mut &[u8]) -> Option<Node> {
    let offset = u64::from_be_bytes(take(rest)?);
    let [level] = take(rest)?;
    let bytes = 1u64.checked_shl(level.into()).filter(|bytes| *bytes >= 1024)?;
    let fits = offset.is_multiple_of(bytes) && offset.checked_add(bytes).is_some();
    fits.then_some(Node { offset, bytes, value: take(rest)? })
}

/// The next bytes of `rest`.
pub(crate) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*bytes)
}

fn count(len: usize) -> [u8; 4] {
    u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn had() -> HaveList {
        let mut had = HaveList::default();
        had.add_small(&[1; 16], &[2; 32]);
        had.add([3; 16], FilePart::Whole([4; 32]));
        let nodes = [(0, 4096), (8192, 1024)];
        let nodes = nodes.map(|(offset, bytes)| Node { offset, bytes, value: [5; 32] });
        had.add([6; 16], FilePart::Nodes(nodes.to_vec()));
        had
    }

    #[test]
    fn have_is_decoded_as_it_was_encoded_and_every_cut_is_noticed() {
        let (bytes, 0) = had().encode(MAX_HAVE_IN_ALL) else { panic!("all of it") };
        assert_eq!(HaveList::parse(&bytes), Some(had()));
        for cut in 1..bytes.len() {
            assert_eq!(HaveList::parse(&bytes[..cut]), None, "{cut}");
        }
        assert_eq!(HaveList::parse(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(
            (HaveList::default().encode(9), HaveList::parse(&[])),
            ((vec![], 0), Some(HaveList::default()))
        );
        // Entries without room are left out, and counted.
        for (most, left_out) in [(8, 3), (57, 2), (58, 2), (74, 1), (bytes.len(), 0)] {
            let (some, left) = had().encode(most);
            assert!(HaveList::parse(&some).is_some() && some.len() <= most.max(8), "{most}");
            assert_eq!(left, left_out, "{most}");
        }
        // More than there are bytes for takes no memory.
        assert_eq!(HaveList::parse(&[0xff; 64]), None);
        assert!(had().has_small(&[1; 16], &[2; 32]) && !had().has_small(&[1; 16], &[3; 32]));
    }

    #[test]
    fn pieces_come_in_any_order_and_not_without_end() {
        let mut hearing = HaveDecoder::default();
        assert_eq!(hearing.add(3, vec![3], true), Ok(None));
        assert_eq!(hearing.add(1, vec![1], false), Ok(None));
        assert_eq!(hearing.add(4, vec![1], false), Err(()));
        let mut hearing = HaveDecoder::default();
        for (place, last, all) in
            [(2, false, None), (3, true, None), (1, false, Some(vec![1, 2, 3]))]
        {
            assert_eq!(hearing.add(place, vec![place as u8], last), Ok(all));
        }
        let mut hearing = HaveDecoder::default();
        let piece = || vec![0; MAX_HAVE_IN_ALL / 2 + 1];
        assert_eq!(hearing.add(1, piece(), false), Ok(None));
        assert_eq!(hearing.add(2, piece(), false), Err(()));
    }

    #[test]
    fn a_file_is_another_one_when_its_name_or_time_is() {
        let times = FileTimes { mode: 0o644, seconds: 7, nanos: 8 };
        let this = identity(b"a", times);
        assert_eq!(identity(b"a", FileTimes { mode: 0, ..times }), this);
        assert_ne!(identity(b"b", times), this);
        assert_ne!(identity(b"a", FileTimes { nanos: 9, ..times }), this);
        assert_ne!(identity(b"a", FileTimes { seconds: 8, ..times }), this);
    }
}
