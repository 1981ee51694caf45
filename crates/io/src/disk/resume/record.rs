//! The format of the resume journal.
//!
//! The journal is read from a disk, so it may be torn, or made by an attacker. Each record carries
//! a hash of itself and of all before it, under the user's key for its directory (`seal`), and
//! everything has a bound. From the first record with a wrong hash on, none is trusted: its claims
//! count only if the file, read again, confirms them. Names are checked like those of a peer.

use netblt_proto::content::check_name;
use netblt_proto::limits::MAX_NAME;

use crate::disk::attributes::FileTimes;
use crate::disk::have_list::{MAX_NODES, NODE_BYTES, Node, encode_node, parse_node, take};
use crate::disk::seal::Seal;
use crate::disk::staging::has_ours;

/// The title of a journal, for people too.
pub(crate) const TITLE: &[u8] = b"netblt partial 2\n";
/// Longest record.
const MAX_RECORD: usize = 128 + MAX_NAME + MAX_NODES * NODE_BYTES;
const CHECK_BYTES: usize = 16;

const PART: u8 = 1;
const WHOLE: u8 = 2;
const GONE: u8 = 3;
const MADE: u8 = 4;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// Parts of a file in a slot. The newest record of a slot replaces the older ones.
    Part(Part),
    /// All of a file is stored, verified, and about to get its name.
    Whole(Whole),
    /// The data of a slot are void.
    Gone(u64),
    /// A directory or an empty file of this name is about to be made.
    Made(Vec<u8>),
}

impl Record {
    /// The slot of the record.
    pub(crate) fn slot(&self) -> Option<u64> {
        match self {
            Self::Part(part) => Some(part.slot),
            Self::Whole(whole) => Some(whole.slot),
            Self::Gone(slot) => Some(*slot),
            Self::Made(_) => None,
        }
    }
}

/// Parts of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) slot: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) times: FileTimes,
    /// When that was, in seconds since 1970.
    pub(crate) at: u64,
    /// The stamp of the file here when that was on the disk.
    pub(crate) stamp: Stamp,
    pub(crate) nodes: Vec<Node>,
}

/// A whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Whole {
    pub(crate) slot: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) times: FileTimes,
    pub(crate) at: u64,
    pub(crate) digest: [u8; 32],
    /// The stamp of the file here.
    pub(crate) stamp: Stamp,
}

/// The stamp of a local file. A program that writes to the file changes it, unless it sets the
/// machine's clock back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) inode: u64,
    pub(crate) length: u64,
    /// When it was written: whole seconds, and nanoseconds.
    pub(crate) modified: (i64, u32),
    /// The time of its last change, which no program can set; zero where the system has none.
    pub(crate) changed: (i64, u32),
}

impl Stamp {
    /// Whether a file of this stamp now has not been written to since it had the other one.
    pub(crate) fn is_unchanged(&self, before: &Self) -> bool {
        self == before && self.changed != (0, 0)
    }

    /// The same for a file that has been renamed since, within so many seconds.
    pub(crate) fn is_unchanged_but_named(&self, before: &Self, seconds: i64) -> bool {
        let soon = self.changed.0.saturating_sub(before.changed.0) <= seconds;
        soon && Self { changed: before.changed, ..*self }.is_unchanged(before)
    }
}

/// The chain of hashes of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    seal: Seal,
    check: [u8; CHECK_BYTES],
}

impl Chain {
    /// The beginning of it.
    pub(crate) fn new(seal: Seal) -> Self {
        Self { seal, check: [0; CHECK_BYTES] }
    }

    fn next(self, body: &[u8]) -> Self {
        let mut hasher = self.seal.hasher();
        hasher.update(&self.check).update(body);
        let mut check = [0; CHECK_BYTES];
        hasher.finalize_xof().fill(&mut check);
        Self { check, ..self }
    }

    /// Appends a record to `out`. The next record must follow it.
    pub(crate) fn write(&mut self, record: &Record, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        encode(record, out);
        let len = out.len() - start - 4;
        if let Some(field) = out.get_mut(start..start + 4) {
            field.copy_from_slice(&(len as u32).to_be_bytes());
        }
        *self = self.next(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&self.check);
    }

    /// The next record of `rest`, and whether it is the next of this chain; `None` at the end, and
    /// where what follows is no record.
    pub(crate) fn read(&mut self, rest: &mut &[u8]) -> Option<(Record, bool)> {
        let mut after = *rest;
        let len = u32::from_be_bytes(take(&mut after)?) as usize;
        if len > MAX_RECORD {
            return None;
        }
        let (body, behind) = after.split_at_checked(len)?;
        after = behind;
        let next = self.next(rest.get(..4 + len)?);
        let own = take(&mut after)? == next.check;
        let record = parse(body)?;
        (*self, *rest) = (next, after);
        Some((record, own))
    }
}

fn encode(record: &Record, out: &mut Vec<u8>) {
    match record {
        Record::Part(Part { slot, name, times, at, stamp, nodes }) => {
            out.push(PART);
            head(*slot, *at, *times, out);
            encode_stamp(*stamp, out);
            let nodes = nodes.get(..MAX_NODES).unwrap_or(nodes);
            out.extend_from_slice(&(nodes.len() as u16).to_be_bytes());
            nodes.iter().for_each(|node| encode_node(node, out));
            out.extend_from_slice(name);
        }
        Record::Whole(Whole { slot, name, times, at, digest, stamp }) => {
            out.push(WHOLE);
            head(*slot, *at, *times, out);
            out.extend_from_slice(digest);
            encode_stamp(*stamp, out);
            out.extend_from_slice(name);
        }
        Record::Gone(slot) => {
            out.push(GONE);
            out.extend_from_slice(&slot.to_be_bytes());
        }
        Record::Made(name) => {
            out.push(MADE);
            out.extend_from_slice(name);
        }
    }
}

fn encode_stamp(stamp: Stamp, out: &mut Vec<u8>) {
    out.extend_from_slice(&stamp.inode.to_be_bytes());
    out.extend_from_slice(&stamp.length.to_be_bytes());
    for (seconds, nanos) in [stamp.modified, stamp.changed] {
        out.extend_from_slice(&seconds.to_be_bytes());
        out.extend_from_slice(&nanos.to_be_bytes());
    }
}

fn parse_stamp(rest: &mut &[u8]) -> Option<Stamp> {
    let inode = u64::from_be_bytes(take(rest)?);
    let length = u64::from_be_bytes(take(rest)?);
    let mut time = || Some((i64::from_be_bytes(take(rest)?), u32::from_be_bytes(take(rest)?)));
    Some(Stamp { inode, length, modified: time()?, changed: time()? })
}

fn head(slot: u64, at: u64, times: FileTimes, out: &mut Vec<u8>) {
    out.extend_from_slice(&slot.to_be_bytes());
    out.extend_from_slice(&at.to_be_bytes());
    out.extend_from_slice(&times.mode.to_be_bytes());
    out.extend_from_slice(&times.seconds.to_be_bytes());
    out.extend_from_slice(&times.nanos.to_be_bytes());
}

fn parse(body: &[u8]) -> Option<Record> {
    let mut rest = body;
    let [kind] = take(&mut rest)?;
    match kind {
        PART => {
            let (slot, at, times) = parse_head(&mut rest)?;
            let stamp = parse_stamp(&mut rest)?;
            let count = usize::from(u16::from_be_bytes(take(&mut rest)?));
            if count > MAX_NODES {
                return None;
            }
            let nodes: Option<Vec<_>> = (0..count).map(|_| parse_node(&mut rest)).collect();
            let (name, nodes) = (parse_name(rest)?, nodes?);
            Some(Record::Part(Part { slot, name, times, at, stamp, nodes }))
        }
        WHOLE => {
            let (slot, at, times) = parse_head(&mut rest)?;
            let digest = take(&mut rest)?;
            let stamp = parse_stamp(&mut rest)?;
            Some(Record::Whole(Whole { slot, name: parse_name(rest)?, times, at, digest, stamp }))
        }
        GONE => {
            let slot = u64::from_be_bytes(take(&mut rest)?);
            rest.is_empty().then_some(Record::Gone(slot))
        }
        MADE => Some(Record::Made(parse_name(rest)?)),
        _ => None,
    }
}

fn parse_head(rest: &mut &[u8]) -> Option<(u64, u64, FileTimes)> {
    let slot = u64::from_be_bytes(take(rest)?);
    let at = u64::from_be_bytes(take(rest)?);
    let mode = u32::from_be_bytes(take(rest)?);
    let seconds = i64::from_be_bytes(take(rest)?);
    let nanos = u32::from_be_bytes(take(rest)?);
    Some((slot, at, FileTimes { mode, seconds, nanos }))
}

fn parse_name(name: &[u8]) -> Option<Vec<u8>> {
    check_name(name).ok().filter(|()| !has_ours(name)).map(|()| name.to_vec())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn records() -> Vec<Record> {
        let times = FileTimes { mode: 0o640, seconds: -7, nanos: 5 };
        let nodes = vec![Node { offset: 4096, bytes: 1024, value: [3; 32] }];
        let stamp = Stamp { inode: 9, length: 7, modified: (-1, 2), changed: (3, 4) };
        let (name, digest) = (b"a/b \xff".to_vec(), [4; 32]);
        vec![
            Record::Part(Part { slot: 1, name: name.clone(), times, at: 77, stamp, nodes }),
            Record::Whole(Whole { slot: 2, name: name.clone(), times, at: 78, digest, stamp }),
            Record::Gone(1),
            Record::Made(name),
        ]
    }

    fn begin() -> Chain {
        Chain::new(Seal::of_test())
    }

    /// The trusted records.
    fn read_all(mut bytes: &[u8]) -> Vec<Record> {
        let mut chain = begin();
        let read = std::iter::from_fn(|| chain.read(&mut bytes));
        read.take_while(|(_, own)| *own).map(|(record, _)| record).collect()
    }

    #[test]
    fn records_are_read_up_to_the_first_invalid_one() {
        let (mut chain, mut bytes, mut ends) = (begin(), Vec::new(), vec![0]);
        for record in records() {
            chain.write(&record, &mut bytes);
            ends.push(bytes.len());
        }
        assert_eq!(read_all(&bytes), records());
        for cut in 0..bytes.len() {
            let whole = ends.iter().filter(|end| **end > 0 && **end <= cut).count();
            assert_eq!(read_all(&bytes[..cut]), records()[..whole], "{cut}");
            let mut edited = bytes.clone();
            edited[cut] ^= 0x40;
            let before = ends.iter().filter(|end| **end > 0 && **end <= cut).count();
            assert_eq!(read_all(&edited), records()[..before], "{cut}");
        }
        // A record that was taken out, or put elsewhere, ends it too.
        let moved = [&bytes[ends[1]..ends[2]], &bytes[..ends[1]]].concat();
        assert_eq!(read_all(&moved), []);
    }

    #[test]
    fn no_record_leads_out_or_is_without_bound() {
        for name in [&b"../up"[..], b"a/.netblt-partial/0"] {
            let (mut chain, mut bytes) = (begin(), Vec::new());
            chain.write(&Record::Made(name.to_vec()), &mut bytes);
            assert_eq!(chain.read(&mut &bytes[..]), None);
        }
        assert_eq!(read_all(&[0xff; 100]), []);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
            let _ = read_all(&bytes);
        }
    }
}
