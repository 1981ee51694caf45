//! The resume state: the data that a transfer keeps beside the destination, so that the next one
//! resumes from there. This module alone decides which data count as stored.
//!
//! The order matters: data are on the disk before the journal has them, the journal is on the disk
//! before a file gets its name, and only data in the journal count. So everything that a power loss
//! or a kill takes is sent again, and nothing else.
//!
//! A journal is trusted as far as this user's own program wrote it in this directory, and for a
//! file as long as that is unchanged: the same inode, length and times. All else is read again, and
//! counts if its hashes are the same (`docs/protocol §8.7`).

pub(crate) mod record;
#[cfg(test)]
mod simulated;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::{io, iter};

use netblt_proto::limits::MAX_FILES;

use crate::disk::attributes::FileTimes;
use crate::disk::have_list::{FilePart, HaveList, Identity, Node, identity, part_identity};
use crate::disk::names::NameId;
use crate::disk::resume::record::{Chain, Part, Record, Stamp, TITLE, Whole};
use crate::disk::seal::Seal;
use crate::disk::sites::{count_of, slot_of};

/// The journal is rewritten, without void records, when so many bytes of parts were added.
const COMPACT_AFTER: u64 = 16 << 20;
/// A file gets its name within this many seconds after it was complete. The rename changes it, too.
const NAMED_WITHIN: i64 = 60;

/// The operations that the resume state needs of a disk, and no others. There is the real one and a
/// simulated one that loses what was not synced.
pub(crate) trait Disk {
    /// The journal as it is, if there is one.
    fn journal(&mut self) -> io::Result<Vec<u8>>;
    /// The key under which it is written here.
    fn seal(&mut self) -> io::Result<Seal>;
    /// Adds to the journal, and waits until that is on the disk.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Puts another journal in its place, at once or not at all, and waits likewise.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Waits until the data of these slots are on the disk.
    fn sync(&mut self, slots: &[u64]) -> io::Result<()>;
    /// The file in a slot.
    fn stored(&mut self, slot: u64) -> Option<Stamp>;
    /// The file of a name.
    fn named(&mut self, name: &[u8]) -> Option<Stamp>;
    /// Gives a file in a slot, of this inode if it is known, its name, or makes an empty one under
    /// its name, or answers why it cannot have it.
    fn place(&mut self, ready: &ReadyFile, inode: Option<u64>) -> io::Result<Option<Box<str>>>;
    /// Every slot in use.
    fn slots(&mut self) -> Vec<u64>;
    /// Removes the file in a slot, if there is one.
    fn remove(&mut self, slot: u64);
    /// Whether the bytes in a slot are those of the node, and no other name leads to them.
    fn verify_block(&mut self, slot: u64, node: &Node) -> bool;
    /// The digest of a file: that in the slot, or that of the name.
    fn digest(&mut self, slot: Option<u64>, name: &[u8]) -> Option<[u8; 32]>;
}

/// A file that is complete and has its name still to come.
#[derive(Clone, Debug)]
pub(crate) struct ReadyFile {
    /// Its number in the transfer.
    pub(crate) number: u64,
    pub(crate) slot: u64,
    pub(crate) id: NameId,
    pub(crate) name: Vec<u8>,
    pub(crate) times: FileTimes,
    pub(crate) digest: [u8; 32],
    pub(crate) form: Form,
}

/// The form in which a file waits for its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// It is in its slot, whole and verified.
    Stored,
    /// A link is in its slot. It can be made again, so the journal need not have it.
    Link,
    /// In nothing: it is empty, so it is whole as soon as it is made, under its own name.
    Empty {
        /// It gets attributes after it is made. A kill between the two leaves it without them, so
        /// the journal records it first, like directories.
        dressed: bool,
        /// A transfer before this one was about to make it.
        before: bool,
    },
}

/// The data of a file here, when the sender says that they need not be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// All of it, under its name.
    Named { length: u64, digest: [u8; 32] },
    /// All of it, in a slot.
    Stored { slot: u64, length: u64, digest: [u8; 32] },
    /// Parts of it.
    Parts { slot: u64, nodes: Vec<Node> },
}

/// The resume state.
#[derive(Debug, Default)]
pub(crate) struct ResumeState {
    /// The hash chain of an existing journal.
    chain: Option<Chain>,
    /// There was something when it began.
    preexisting: bool,
    /// Bytes of records of parts since the journal was rewritten.
    added: u64,
    next_slot: u64,
    /// Parts of files that this transfer has not begun, by slot.
    parts: BTreeMap<u64, Part>,
    /// Whole files, from before this transfer.
    wholes: HashMap<Identity, KnownFile>,
    /// Directories and empty files that transfers before this one were about to make.
    made: HashSet<Identity>,
    /// Slots that were written to since they were synced.
    dirty: BTreeSet<u64>,
    ready: Vec<ReadyFile>,
    /// Slots of this transfer that the journal speaks of.
    journaled: BTreeSet<u64>,
    /// Whole files of this transfer that it speaks of, and empty ones.
    reported: u64,
    /// The journal has its title.
    header_written: bool,
    /// It could not be written to its end: what follows would not be read.
    truncated: bool,
    /// Written data may not be on the disk.
    unsynced: bool,
    /// The journal, or its end, was not written here by this user's program.
    doubted: bool,
    /// Files are read again before they are believed.
    reads_back: bool,
    /// Names are given to all files at once, and not from here.
    all_at_once: bool,
}

/// A whole file, in few bytes.
#[derive(Clone, Copy, Debug)]
struct KnownFile {
    slot: u64,
    length: u64,
    digest: [u8; 32],
    named: bool,
}

impl ResumeState {
    /// Reads what earlier transfers left that is still valid at `now`, in seconds since 1970. Parts
    /// older than `expiry` are removed, and so are those that the journal does not have. With
    /// `verify` every file is read again.
    pub(crate) fn open(
        disk: &mut impl Disk,
        now: u64,
        expiry: u64,
        verify: bool,
    ) -> io::Result<Self> {
        let mut this = Self { header_written: true, ..Self::default() };
        let (journal, seal) = (disk.journal()?, disk.seal()?);
        let (mut chain, mut fresh) = (Chain::new(seal), TITLE.to_vec());
        let good = |at: u64| now.saturating_sub(at) < expiry && at <= now.saturating_add(expiry);
        // Slots with a trusted record, and whole files that were read again.
        let (mut believed, mut read) = (HashSet::new(), HashSet::new());
        for (record, own) in records(&journal, seal) {
            this.doubted |= !own;
            if record.slot().is_some_and(|slot| count_of(slot).is_none()) {
                continue;
            }
            if !own && record.slot().is_some_and(|slot| believed.contains(&slot)) {
                continue;
            }
            match record {
                Record::Part(part) if good(part.at) => {
                    this.has_slot(count_of(part.slot).unwrap_or(0));
                    if own {
                        believed.insert(part.slot);
                    }
                    this.parts.insert(part.slot, part);
                }
                Record::Part(Part { slot, .. }) | Record::Gone(slot) => {
                    this.parts.remove(&slot);
                }
                Record::Whole(mut whole) => {
                    this.parts.remove(&whole.slot);
                    this.has_slot(count_of(whole.slot).unwrap_or(0));
                    let id = identity(&whole.name, whole.times);
                    // One that is not believed has each file read once.
                    let looks = good(whole.at) && (own || read.insert(id));
                    let known = match looks {
                        true => know(disk, &mut whole, own && !verify),
                        false => None,
                    };
                    match known {
                        Some(known) => {
                            this.wholes.insert(id, known);
                            chain.write(&Record::Whole(whole), &mut fresh);
                        }
                        None => _ = this.wholes.remove(&id),
                    }
                }
                Record::Made(name) if own => {
                    this.made.insert(name_of(&name));
                    chain.write(&Record::Made(name), &mut fresh);
                }
                // It does not say which transfer made a directory.
                Record::Made(_) => {}
            }
        }
        this.parts.retain(|slot, part| is_there(disk, part, believed.contains(slot) && !verify));
        let stored = this.wholes.values().filter(|known| !known.named).map(|known| known.slot);
        let used: HashSet<u64> = stored.chain(this.parts.keys().copied()).collect();
        let unused = disk.slots().into_iter().filter(|slot| !used.contains(slot));
        unused.collect::<Vec<_>>().into_iter().for_each(|slot| disk.remove(slot));
        for part in this.parts.values() {
            chain.write(&Record::Part(part.clone()), &mut fresh);
        }
        this.chain = Some(chain);
        this.preexisting = fresh != TITLE || !this.parts.is_empty();
        if fresh != journal {
            disk.replace(&fresh)?;
        }
        Ok(this)
    }

    /// Whether a part of the journal was not believed.
    pub(crate) fn is_doubted(&self) -> bool {
        self.doubted
    }

    /// Whether nothing is kept, of this transfer or of others.
    pub(crate) fn is_empty(&self) -> bool {
        let before = self.parts.is_empty() && self.wholes.is_empty();
        before && self.journaled.is_empty() && self.reported == 0
    }

    /// File bytes that earlier transfers left.
    pub(crate) fn bytes(&self) -> u64 {
        let wholes: u64 = self.wholes.values().map(|known| known.length).sum();
        let nodes = self.parts.values().flat_map(|part| &part.nodes);
        nodes.map(|node| node.bytes).sum::<u64>().saturating_add(wholes)
    }

    /// The list for HAVE, with extents of `extent_bytes`.
    pub(crate) fn had(&self, extent_bytes: u32) -> HaveList {
        let mut had = HaveList::default();
        for (id, known) in &self.wholes {
            if known.length <= u64::from(extent_bytes) {
                had.add_small(id, &known.digest);
            } else {
                had.add(*id, FilePart::Whole(known.digest));
            }
        }
        for part in self.parts.values() {
            let large = |node: &&Node| node.bytes >= u64::from(extent_bytes);
            let nodes: Vec<Node> = part.nodes.iter().filter(large).copied().collect();
            if !nodes.is_empty() {
                had.add(part_identity(&part.name), FilePart::Nodes(nodes));
            }
        }
        had
    }

    /// The sender resumes a file from the data here. Parts count whatever time the file has by now,
    /// and belong to this transfer from now on. A `whole` file counts with this time.
    pub(crate) fn adopt(&mut self, name: &[u8], times: FileTimes, whole: bool) -> Option<Found> {
        if !whole {
            let slot = self.parts.iter().find(|(_, p)| p.name == name).map(|(slot, _)| *slot)?;
            let nodes = self.parts.remove(&slot)?.nodes;
            self.journaled.insert(slot);
            return Some(Found::Parts { slot, nodes });
        }
        let KnownFile { slot, length, digest, named } = *self.wholes.get(&identity(name, times))?;
        Some(match named {
            true => Found::Named { length, digest },
            false => Found::Stored { slot, length, digest },
        })
    }

    /// A file of this name starts over: discards parts of it. Returns whether there were any.
    pub(crate) fn discard_stale(&mut self, disk: &mut impl Disk, name: &[u8]) -> bool {
        let slots: Vec<u64> =
            self.parts.iter().filter(|(_, p)| p.name == name).map(|(slot, _)| *slot).collect();
        for slot in &slots {
            self.parts.remove(slot);
            self.journaled.insert(*slot);
            self.forget(disk, *slot);
        }
        !slots.is_empty()
    }

    /// Whether a transfer before this one was about to make this directory or empty file.
    pub(crate) fn made_before(&self, name: &[u8]) -> bool {
        !self.made.is_empty() && self.made.contains(&name_of(name))
    }

    /// Whether every file is read again before the journal speaks of it and it gets its name.
    pub(crate) fn read_back(&mut self, reads_back: bool) {
        self.reads_back = reads_back;
    }

    /// From now on files get their names all at once, when others see to it.
    pub(crate) fn atomic_mode(&mut self) {
        self.all_at_once = true;
    }

    /// A slot for a new file, in a site.
    pub(crate) fn new_slot(&mut self, site: usize) -> u64 {
        self.next_slot += 1;
        slot_of(site, self.next_slot - 1)
    }

    /// There is such a slot; a new one has another number.
    fn has_slot(&mut self, count: u64) {
        self.next_slot = self.next_slot.max(count.saturating_add(1));
    }

    /// Something was written to a slot.
    pub(crate) fn mark_dirty(&mut self, slot: u64) {
        self.dirty.insert(slot);
    }

    /// Drops the data of a slot.
    pub(crate) fn forget(&mut self, disk: &mut impl Disk, slot: u64) {
        self.dirty.remove(&slot);
        // The journal is not changed before it must be: without its file, a record says nothing.
        self.journaled.remove(&slot);
        disk.remove(slot);
    }

    /// A file is complete, and is to get its name.
    pub(crate) fn complete(&mut self, ready: ReadyFile) {
        self.ready.push(ready);
    }

    /// Whether data since the last commit may not be on the disk, and never will be.
    pub(crate) fn is_lost(&self) -> bool {
        self.unsynced
    }

    /// From now on it is so.
    pub(crate) fn lose(&mut self) {
        self.unsynced = true;
    }

    /// Gives up the file that came last of those that wait, so that there is room for the others;
    /// false if there is none.
    pub(crate) fn give_up_last(&mut self, disk: &mut impl Disk) -> bool {
        let last = self.ready.iter().rposition(|ready| ready.form == Form::Stored);
        let Some(last) = last.map(|at| self.ready.remove(at)) else { return false };
        self.forget(disk, last.slot);
        true
    }

    /// Which files wait for their names.
    pub(crate) fn ready(&self) -> impl Iterator<Item = &ReadyFile> {
        self.ready.iter()
    }

    /// How many files wait for their names.
    pub(crate) fn waiting(&self) -> usize {
        self.ready.len()
    }

    /// Flushes all written data, then updates the journal, then gives files their names if
    /// `may_place` allows it. `parts`: the stored parts of open files; `made`: directories that
    /// will be made. Returns which files could not have their names, and whether names could be
    /// given.
    pub(crate) fn commit<D: Disk>(
        &mut self,
        disk: &mut D,
        now: u64,
        journals: bool,
        parts: impl Iterator<Item = Part>,
        made: &[Vec<u8>],
        may_place: impl FnOnce() -> bool,
    ) -> io::Result<Committed> {
        let dirty: Vec<u64> = self.dirty.iter().copied().collect();
        if let Err(error) = disk.sync(&dirty) {
            // A disk reports a failed write once: nothing after that is trusted.
            if error.kind() != io::ErrorKind::Interrupted {
                self.unsynced = true;
            }
            return Err(error);
        }
        self.dirty.clear();
        let spoiled = if self.reads_back { self.take_spoiled(disk) } else { Vec::new() };
        let mut inodes = vec![None; self.ready.len()];
        if journals && !self.truncated {
            self.write_down(disk, now, &dirty, parts, made, &mut inodes)?;
        }
        if self.all_at_once {
            self.ready.clear();
            return Ok(Committed { placed: true, left_out: HashMap::new(), spoiled });
        }
        if !may_place() {
            return Ok(Committed { placed: false, left_out: HashMap::new(), spoiled });
        }
        let left_out = self.place_all(disk, inodes)?;
        Ok(Committed { placed: true, left_out, spoiled })
    }

    /// Brings the journal up to date; learns the inodes of files that are about to get their names.
    fn write_down(
        &mut self,
        disk: &mut impl Disk,
        now: u64,
        dirty: &[u64],
        parts: impl Iterator<Item = Part>,
        made: &[Vec<u8>],
        inodes: &mut [Option<u64>],
    ) -> io::Result<()> {
        if !self.header_written {
            disk.replace(TITLE)?;
            self.header_written = true;
        }
        let mut chain = match self.chain {
            Some(chain) => chain,
            None => Chain::new(disk.seal()?),
        };
        let mut bytes = Vec::new();
        made.iter().for_each(|name| chain.write(&Record::Made(name.clone()), &mut bytes));
        for (ready, inode) in self.ready.iter().zip(inodes) {
            match ready.form {
                Form::Stored => {}
                Form::Empty { dressed: true, .. } => {
                    chain.write(&Record::Made(ready.name.clone()), &mut bytes);
                    self.reported += 1;
                    continue;
                }
                Form::Link | Form::Empty { .. } => continue,
            }
            let stamp = disk.stored(ready.slot).ok_or(io::ErrorKind::NotFound)?;
            let ReadyFile { slot, times, digest, ref name, .. } = *ready;
            *inode = Some(stamp.inode);
            let whole = Whole { slot, name: name.clone(), times, at: now, digest, stamp };
            chain.write(&Record::Whole(whole), &mut bytes);
            self.journaled.remove(&slot);
            self.reported += 1;
        }
        let written: HashSet<u64> = dirty.iter().copied().collect();
        let mut parts: Vec<Part> = parts.filter(|part| !part.nodes.is_empty()).collect();
        for part in &mut parts {
            part.stamp = disk.stored(part.slot).ok_or(io::ErrorKind::NotFound)?;
        }
        let start = bytes.len();
        for part in parts.iter().filter(|part| written.contains(&part.slot)) {
            chain.write(&Record::Part(part.clone()), &mut bytes);
            self.journaled.insert(part.slot);
        }
        self.added += (bytes.len() - start) as u64;
        if !bytes.is_empty()
            && let Err(error) = disk.append(&bytes)
        {
            self.truncated = true;
            return Err(error);
        }
        self.chain = Some(chain);
        if self.added > COMPACT_AFTER {
            let current = parts.into_iter().filter(|part| self.journaled.contains(&part.slot));
            let current = current.map(Record::Part).collect();
            self.rewrite(disk, current, |_| true)?;
        }
        Ok(())
    }

    /// Gives names to what waits for them; answers which files could not have theirs, and why.
    fn place_all(
        &mut self,
        disk: &mut impl Disk,
        inodes: Vec<Option<u64>>,
    ) -> io::Result<HashMap<u64, Box<str>>> {
        let mut left_out = HashMap::new();
        let mut waiting = std::mem::take(&mut self.ready).into_iter().zip(inodes);
        while let Some((ready, inode)) = waiting.next() {
            let placed = disk.place(&ready, inode);
            if placed.is_err() {
                // They wait on.
                self.ready = iter::once(ready).chain(waiting.map(|(ready, _)| ready)).collect();
                return placed.map(|_| left_out);
            }
            if let Some(why) = placed? {
                if !matches!(ready.form, Form::Empty { .. }) {
                    disk.remove(ready.slot);
                }
                left_out.insert(ready.number, why);
            }
        }
        Ok(left_out)
    }

    /// Removes files whose bytes, read back, differ from those received.
    fn take_spoiled(&mut self, disk: &mut impl Disk) -> Vec<u64> {
        let good = |ready: &ReadyFile| {
            ready.form != Form::Stored
                || disk.digest(Some(ready.slot), &ready.name) == Some(ready.digest)
        };
        let (good, spoiled) = std::mem::take(&mut self.ready).into_iter().partition(good);
        self.ready = good;
        let spoiled: Vec<ReadyFile> = spoiled;
        for ready in &spoiled {
            self.forget(disk, ready.slot);
        }
        spoiled.into_iter().map(|ready| ready.number).collect()
    }

    /// The transfer has ended with all files in place: removes its records from the journal. `ours`
    /// matches its names. Returns whether anything is left.
    pub(crate) fn conclude(
        &mut self,
        disk: &mut impl Disk,
        ours: impl Fn(&[u8]) -> bool,
    ) -> io::Result<bool> {
        let slots: Vec<u64> =
            self.parts.iter().filter(|(_, p)| ours(&p.name)).map(|(slot, _)| *slot).collect();
        slots.into_iter().for_each(|slot| {
            self.parts.remove(&slot);
            disk.remove(slot);
        });
        // All records are of this transfer, and need not be read: there may be a million.
        if !self.preexisting {
            return Ok(false);
        }
        self.rewrite(disk, Vec::new(), |name| !ours(name))
    }

    /// Rewrites the journal: its records of whole files and directories whose names are to stay,
    /// the parts that no transfer has adopted, and `current` ones. Returns whether files are left
    /// in it.
    fn rewrite(
        &mut self,
        disk: &mut impl Disk,
        current: Vec<Record>,
        stays: impl Fn(&[u8]) -> bool,
    ) -> io::Result<bool> {
        let (journal, seal) = (disk.journal()?, disk.seal()?);
        let (mut chain, mut bytes, mut left) = (Chain::new(seal), TITLE.to_vec(), false);
        for (record, _) in records(&journal, seal).take_while(|(_, own)| *own) {
            match &record {
                Record::Whole(whole) if stays(&whole.name) => left = true,
                Record::Made(name) if stays(name) => {}
                _ => continue,
            }
            chain.write(&record, &mut bytes);
        }
        let parts = self.parts.values().cloned().map(Record::Part);
        for record in parts.chain(current) {
            left = true;
            chain.write(&record, &mut bytes);
        }
        disk.replace(&bytes)?;
        (self.chain, self.added) = (Some(chain), 0);
        Ok(left)
    }

    /// The kept files of these slots, for people: names, stored bytes, and since when.
    pub(crate) fn list(journal: &[u8], slots: &BTreeSet<u64>) -> Vec<(Vec<u8>, u64, u64)> {
        let mut kept = BTreeMap::new();
        // For a list it makes no difference which of them are believed.
        for (record, _) in records(journal, Seal::default()) {
            match record {
                Record::Part(Part { slot, name, at, nodes, .. }) => {
                    let bytes = nodes.iter().map(|node| node.bytes).sum();
                    kept.insert(slot, (name, bytes, at));
                }
                Record::Whole(Whole { slot, name, at, stamp, .. }) => {
                    kept.insert(slot, (name, stamp.length, at));
                }
                Record::Gone(slot) => _ = kept.remove(&slot),
                Record::Made(_) => {}
            }
        }
        kept.retain(|slot, _| slots.contains(slot));
        kept.into_values().collect()
    }
}

/// The result of a commit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Committed {
    /// Names were given.
    pub(crate) placed: bool,
    /// Numbers of files that could not have theirs, and why.
    pub(crate) left_out: HashMap<u64, Box<str>>,
    /// Numbers of files that differed from those received, and were removed.
    pub(crate) spoiled: Vec<u64>,
}

/// The facts of a whole file, if it exists under its name or in its slot: by the journal, if that
/// is `believed`, or read again, and then with its present stamp.
fn know(disk: &mut impl Disk, whole: &mut Whole, believed: bool) -> Option<KnownFile> {
    let Whole { slot, digest, stamp, .. } = *whole;
    let known = |named| KnownFile { slot, length: stamp.length, digest, named };
    let (named, stored) = (disk.named(&whole.name), disk.stored(slot));
    if believed && named.is_some_and(|now| now.is_unchanged_but_named(&stamp, NAMED_WITHIN)) {
        return Some(known(true));
    }
    if believed && stored.is_some_and(|now| now.is_unchanged(&stamp)) {
        return Some(known(false));
    }
    for (now, is_named) in [(named, true), (stored, false)] {
        let Some(now) = now.filter(|now| now.length == stamp.length) else { continue };
        let place = (!is_named).then_some(slot);
        let read = disk.digest(place, &whole.name) == Some(digest);
        let after = if is_named { disk.named(&whole.name) } else { disk.stored(slot) };
        if read && after == Some(now) {
            whole.stamp = now;
            return Some(known(is_named));
        }
    }
    None
}

/// Whether parts of a file are there, and which: as the journal left them, if that is `believed`,
/// or read again, and then with the stamp that the file has now.
fn is_there(disk: &mut impl Disk, part: &mut Part, believed: bool) -> bool {
    let slot = part.slot;
    let Some(now) = disk.stored(slot) else { return false };
    // No byte is read twice.
    part.nodes.sort_unstable_by_key(|node| node.offset);
    let mut end = 0;
    part.nodes.retain(|node| {
        let after = node.offset.checked_add(node.bytes).filter(|after| *after <= now.length);
        let fits = node.offset >= end && after.is_some();
        end = after.filter(|_| fits).unwrap_or(end);
        fits
    });
    if !(believed && now.is_unchanged(&part.stamp)) {
        part.nodes.retain(|node| disk.verify_block(slot, node));
        if disk.stored(slot) != Some(now) {
            return false;
        }
        part.stamp = now;
    }
    !part.nodes.is_empty()
}

fn name_of(name: &[u8]) -> Identity {
    identity(name, FileTimes { mode: 0, seconds: 0, nanos: 0 })
}

/// The records of a journal, each with whether it and all before it were written under the key, up
/// to the first that is none; never more than a transfer may have.
fn records(journal: &[u8], seal: Seal) -> impl Iterator<Item = (Record, bool)> {
    let mut rest = journal.strip_prefix(TITLE).unwrap_or_default();
    let (mut chain, mut all) = (Chain::new(seal), true);
    let read = iter::from_fn(move || {
        let (record, own) = chain.read(&mut rest)?;
        all &= own;
        Some((record, all))
    });
    read.take(MAX_FILES as usize)
}
