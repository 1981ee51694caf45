//! The resume state on a disk that loses writes which were not synced, each alone, in any order.
//!
//! A world is a transfer of a few files that power losses break at any call. It is tried again
//! until it succeeds. Whatever was lost, the state may claim no data that are not there.

mod inode;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::record::Stamp;
use super::*;
use crate::disk::digest::Subtrees;

use inode::{Dice, Inode};

/// Bytes in an extent, and the least of a subtree.
const EXTENT: usize = 1024;

/// The place of a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    Slot(u64),
    Name(Vec<u8>),
    Journal,
    /// The publication of all or nothing: it exists from before the first rename until all are on
    /// the disk.
    Publication,
}

/// A change of names: each happens at once or not at all, and until it is synced perhaps not.
#[derive(Clone, Debug)]
enum Change {
    Link(At, u64),
    Unlink(At),
    Rename(At, At),
}

/// The disk. Its calls end when the power does.
#[derive(Default)]
struct Fake {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<At, u64>,
    safe_names: BTreeMap<At, u64>,
    changes: Vec<Change>,
    next: u64,
    /// The content of the publication, if it exists.
    publication: Vec<(u64, Vec<u8>)>,
    /// Calls until the power goes.
    left: u64,
}

fn gone() -> io::Error {
    io::Error::other("the power is gone")
}

fn change(names: &mut BTreeMap<At, u64>, change: &Change) {
    match change {
        Change::Link(at, inode) => _ = names.insert(at.clone(), *inode),
        Change::Unlink(at) => _ = names.remove(at),
        Change::Rename(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
    }
}

impl Fake {
    fn call(&mut self) -> io::Result<()> {
        self.left = self.left.checked_sub(1).ok_or_else(gone)?;
        Ok(())
    }

    fn apply(&mut self, new: Change) {
        change(&mut self.names, &new);
        self.changes.push(new);
    }

    fn sync_names(&mut self) {
        self.safe_names = self.names.clone();
        self.changes.clear();
    }

    fn open(&mut self, at: At) -> &mut Inode {
        let inode = match self.names.get(&at) {
            Some(inode) => *inode,
            None => {
                self.next += 1;
                self.apply(Change::Link(at, self.next));
                self.next
            }
        };
        self.inodes.entry(inode).or_default()
    }

    fn write(&mut self, slot: u64, at: usize, bytes: &[u8]) -> io::Result<()> {
        self.call()?;
        self.open(At::Slot(slot)).write(at, bytes);
        Ok(())
    }

    fn read(&self, at: &At) -> Option<&[u8]> {
        Some(&self.inodes.get(self.names.get(at)?)?.seen)
    }

    fn lose_power(&mut self, dice: &mut Dice) {
        let mut names = self.safe_names.clone();
        for new in std::mem::take(&mut self.changes) {
            if dice.below(2) == 0 {
                change(&mut names, &new);
            }
        }
        self.inodes.values_mut().for_each(|inode| inode.lose(dice));
        (self.names, self.safe_names) = (names.clone(), names);
    }
}

impl Disk for Fake {
    fn journal(&mut self) -> io::Result<Vec<u8>> {
        self.call()?;
        Ok(self.read(&At::Journal).map(<[u8]>::to_vec).unwrap_or_default())
    }

    fn seal(&mut self) -> io::Result<Seal> {
        Ok(Seal::of_test())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let journal = self.open(At::Journal);
        let end = journal.seen.len();
        journal.write(end, bytes);
        self.call()?;
        self.open(At::Journal).sync();
        Ok(())
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.next += 1;
        let mut inode = Inode::default();
        inode.write(0, bytes);
        inode.sync();
        let number = self.next;
        self.inodes.insert(number, inode);
        self.call()?;
        self.apply(Change::Link(At::Journal, number));
        self.call()?;
        self.sync_names();
        Ok(())
    }

    fn sync(&mut self, slots: &[u64]) -> io::Result<()> {
        for slot in slots {
            self.call()?;
            self.open(At::Slot(*slot)).sync();
        }
        self.call()?;
        self.sync_names();
        Ok(())
    }

    fn stored(&mut self, slot: u64) -> Option<Stamp> {
        self.stamp(&At::Slot(slot))
    }

    fn named(&mut self, name: &[u8]) -> Option<Stamp> {
        self.stamp(&At::Name(name.to_vec()))
    }

    fn place(&mut self, ready: &ReadyFile, _: Option<u64>) -> io::Result<Option<Box<str>>> {
        self.call()?;
        if let Form::Empty { dressed, before } = ready.form {
            self.make(&ready.name, dressed, before)?;
        } else {
            self.apply(Change::Rename(At::Slot(ready.slot), At::Name(ready.name.clone())));
        }
        Ok(None)
    }

    fn slots(&mut self) -> Vec<u64> {
        let slot = |at: &At| if let At::Slot(slot) = at { Some(*slot) } else { None };
        self.names.keys().filter_map(slot).collect()
    }

    fn remove(&mut self, slot: u64) {
        if self.call().is_ok() {
            self.apply(Change::Unlink(At::Slot(slot)));
        }
    }

    fn verify_block(&mut self, slot: u64, node: &Node) -> bool {
        let (from, to) = (node.offset as usize, (node.offset + node.bytes) as usize);
        let bytes = self.read(&At::Slot(slot)).and_then(|seen| seen.get(from..to));
        bytes.is_some_and(|bytes| value(bytes, node.offset) == node.value)
    }

    fn digest(&mut self, slot: Option<u64>, name: &[u8]) -> Option<[u8; 32]> {
        let at = slot.map_or_else(|| At::Name(name.to_vec()), At::Slot);
        self.read(&at).map(|seen| *blake3::hash(seen).as_bytes())
    }
}

impl Fake {
    /// An empty file under its own name, and then its attributes.
    fn make(&mut self, name: &[u8], dressed: bool, before: bool) -> io::Result<()> {
        let at = At::Name(name.to_vec());
        let there = self.names.get(&at).copied();
        let empty = |inode: &u64| self.inodes[inode].seen.is_empty();
        let half_made = there.filter(empty).filter(|_| before);
        let number = half_made.unwrap_or(self.next + 1);
        if half_made.is_none() {
            self.next = number;
            // A file is replaced by one that has its attributes.
            let ready = !dressed || there.is_some();
            let inode = Inode { dressed: Some((ready, !dressed)), ..Inode::default() };
            self.inodes.insert(number, inode);
            self.apply(Change::Link(at, number));
            self.call()?;
        }
        if let Some(inode) = self.inodes.get_mut(&number) {
            let safe = inode.dressed.is_none_or(|(_, safe)| safe);
            inode.dressed = Some((true, safe));
        }
        Ok(())
    }

    /// All changes are on the disk.
    fn sync_all(&mut self) -> io::Result<()> {
        self.call()?;
        self.sync_names();
        self.inodes.values_mut().filter_map(|inode| inode.dressed.as_mut()).for_each(|dressed| {
            dressed.1 = dressed.0;
        });
        Ok(())
    }

    /// Gives names to all files of the publication that have none yet.
    fn place_all(&mut self) -> io::Result<()> {
        for (slot, name) in self.publication.clone() {
            self.call()?;
            if self.names.contains_key(&At::Slot(slot)) {
                self.apply(Change::Rename(At::Slot(slot), At::Name(name)));
            }
        }
        self.call()?;
        self.sync_names();
        Ok(())
    }

    fn end_publication(&mut self) -> io::Result<()> {
        self.call()?;
        self.apply(Change::Unlink(At::Publication));
        self.call()?;
        self.sync_names();
        Ok(())
    }

    /// The first step of the next process.
    fn settle(&mut self) -> io::Result<()> {
        if self.names.contains_key(&At::Publication) {
            self.place_all()?;
            self.end_publication()?;
        }
        Ok(())
    }

    fn named_files(&self) -> usize {
        self.names.keys().filter(|at| matches!(at, At::Name(_))).count()
    }

    fn stamp(&self, at: &At) -> Option<Stamp> {
        let inode = *self.names.get(at)?;
        let file = self.inodes.get(&inode)?;
        let length = file.seen.len() as u64;
        Some(Stamp { inode, length, modified: (0, 0), changed: (1, file.writes) })
    }
}

/// A source: its files by name, and when they changed last.
type Source = BTreeMap<Vec<u8>, (i64, Vec<u8>)>;

fn times(seconds: i64) -> FileTimes {
    FileTimes { mode: 0o644, seconds, nanos: 0 }
}

fn draw_source(dice: &mut Dice) -> Source {
    let file = |i: u64, dice: &mut Dice| {
        let len = [0, 700, EXTENT as u64, dice.below(9000)][dice.below(4) as usize];
        let content = (0..len).map(|_| dice.below(256) as u8).collect();
        (format!("file {i}").into_bytes(), (dice.below(3) as i64, content))
    };
    (0..1 + dice.below(5)).map(|i| file(i, dice)).collect()
}

/// A file changes, with another time.
fn change_source(source: &mut Source, dice: &mut Dice) {
    let at = dice.below(source.len() as u64) as usize;
    if let Some((seconds, content)) = source.values_mut().nth(at) {
        *seconds += 1 + dice.below(5) as i64;
        content.push(dice.below(256) as u8);
        if let Some(first) = content.first_mut() {
            *first ^= 1;
        }
    }
}

/// Checks that every claim holds: names stand for whole files, and what HAVE lists is on the disk.
fn check(fake: &mut Fake, resume: &ResumeState, every: &BTreeSet<Vec<u8>>) {
    for (at, inode) in &fake.names {
        if let At::Name(name) = at {
            let inode = &fake.inodes[inode];
            assert!(every.contains(&inode.seen), "{at:?} is not whole");
            assert!(!inode.is_half_made() || resume.made_before(name), "{at:?} is half made");
        }
    }
    for part in resume.parts.values() {
        let content = fake.read(&At::Slot(part.slot)).expect("a part that is there");
        for node in &part.nodes {
            let mut subtrees = Subtrees::new(EXTENT as u32);
            let (from, to) = (node.offset as usize, (node.offset + node.bytes) as usize);
            for at in (from..to).step_by(EXTENT) {
                subtrees.add(at as u64, &content[at..at + EXTENT], false).expect("in order");
            }
            assert!(subtrees.nodes().any(|own| own == *node), "{}", part.slot);
        }
    }
    for known in resume.wholes.values() {
        let of = |inode: &u64| *blake3::hash(&fake.inodes[inode].seen).as_bytes();
        assert!(fake.names.values().any(|inode| of(inode) == known.digest));
    }
}

/// The last step of a transfer of all or nothing, like `publish_all`: `whole` are its slots and
/// names.
fn publish(fake: &mut Fake, whole: &[(u64, Vec<u8>)]) -> io::Result<()> {
    // The text is taken as read: the slots are in it, and never reach the disk without it.
    fake.publication = whole.to_vec();
    fake.call()?;
    fake.next += 1;
    fake.inodes.insert(fake.next, Inode::default());
    fake.apply(Change::Link(At::Publication, fake.next));
    fake.call()?;
    fake.sync_names();
    fake.place_all()?;
    fake.end_publication()
}

/// Open files, by name: number, slot, and the parts that have come.
type Open = BTreeMap<Vec<u8>, (u64, u64, Subtrees)>;

/// A plan.
struct Plan {
    /// The extents of each file, and whether each is the last.
    todo: Vec<(Vec<u8>, usize, bool)>,
    open: Open,
    /// Slots and names of whole files.
    whole: Vec<(u64, Vec<u8>)>,
}

fn plan(fake: &mut Fake, resume: &mut ResumeState, source: &Source) -> Plan {
    let (mut open, mut whole) = (BTreeMap::new(), Vec::new());
    // The missing extents of each file, in any order.
    let mut todo = Vec::new();
    for (number, (name, (seconds, content))) in source.iter().enumerate() {
        let digest = *blake3::hash(content).as_bytes();
        let same = |node: &Node| {
            let (from, to) = (node.offset as usize, (node.offset + node.bytes) as usize);
            to < content.len() && value(&content[from..to], node.offset) == node.value
        };
        let had = resume.had(EXTENT as u32);
        let id = identity(name, times(*seconds));
        let as_whole = had.has_small(&id, &digest)
            || matches!(had.part(&id), Some(FilePart::Whole(claimed)) if *claimed == digest);
        let in_parts = matches!(had.part(&part_identity(name)),
            Some(FilePart::Nodes(nodes)) if nodes.iter().all(same));
        let may = as_whole || in_parts;
        let found = if may { resume.adopt(name, times(*seconds), as_whole) } else { None };
        let number = number as u64;
        let mut subtrees = Subtrees::new(EXTENT as u32);
        let slot = match found {
            Some(Found::Named { .. }) => continue,
            Some(Found::Stored { slot, .. }) => {
                let (id, times) = (NameId::ROOT, times(*seconds));
                let name = name.clone();
                whole.push((slot, name.clone()));
                let form = Form::Stored;
                resume.complete(ReadyFile { number, slot, id, name, times, digest, form });
                continue;
            }
            Some(Found::Parts { slot, nodes }) => {
                nodes.iter().for_each(|node| assert!(subtrees.adopt(node)));
                slot
            }
            None => {
                resume.discard_stale(fake, name);
                resume.new_slot(0)
            }
        };
        let extents = content.len().div_ceil(EXTENT).max(1);
        todo.extend((0..extents).map(|i| (name.clone(), i, i + 1 == extents)));
        open.insert(name.clone(), (number, slot, subtrees));
    }
    Plan { todo, open, whole }
}

/// One run of the transfer; an error when the power goes. Answers bytes that were written.
fn run(
    fake: &mut Fake,
    (source, atomic): (&Source, bool),
    dice: &mut Dice,
    every: &BTreeSet<Vec<u8>>,
) -> io::Result<u64> {
    if atomic {
        fake.settle()?;
    }
    let mut resume = ResumeState::open(fake, 1000, 100, false)?;
    if atomic {
        resume.atomic_mode();
    }
    check(fake, &resume, every);
    let Plan { mut todo, mut open, mut whole } = plan(fake, &mut resume, source);
    let mut written = 0;
    while !todo.is_empty() {
        let (name, i, last) = todo.swap_remove(dice.below(todo.len() as u64) as usize);
        let (seconds, content) = &source[&name];
        // Data that were here before may have completed it.
        let Some((number, slot, subtrees)) = open.get_mut(&name) else { continue };
        let from = i * EXTENT;
        let form = match content.is_empty() && !atomic {
            true => Form::Empty { dressed: *seconds > 0, before: resume.made_before(&name) },
            false => Form::Stored,
        };
        if form != Form::Stored {
            subtrees.add(0, &[], true).expect("it fits");
        } else if last || subtrees.next_missing(from as u64) == from as u64 {
            let bytes = &content[from..content.len().min(from + EXTENT)];
            fake.write(*slot, from, bytes)?;
            resume.mark_dirty(*slot);
            subtrees.add(from as u64, bytes, last).expect("it fits");
            written += bytes.len() as u64;
        }
        if let Some(digest) = subtrees.root() {
            let (number, slot, id) = (*number, *slot, NameId::ROOT);
            open.remove(&name);
            let times = times(*seconds);
            whole.push((slot, name.clone()));
            resume.complete(ReadyFile { number, slot, id, name, times, digest, form });
        }
        if dice.below(3) == 0 {
            commit(fake, &mut resume, source, &open)?;
        }
    }
    commit(fake, &mut resume, source, &open)?;
    if atomic {
        publish(fake, &whole)?;
    }
    fake.sync_all()?;
    resume.conclude(fake, |name| source.contains_key(name))?;
    Ok(written)
}

fn commit(
    fake: &mut Fake,
    resume: &mut ResumeState,
    source: &Source,
    open: &Open,
) -> io::Result<()> {
    let parts = open.iter().map(|(name, (_, slot, subtrees))| Part {
        slot: *slot,
        name: name.clone(),
        times: times(source[name].0),
        at: 1000,
        stamp: Stamp::default(),
        nodes: subtrees.nodes().collect(),
    });
    resume.commit(fake, 1000, true, parts, &[], || true).map(|_| ())
}

fn value(bytes: &[u8], offset: u64) -> [u8; 32] {
    use blake3::hazmat::HasherExt as _;
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(offset);
    hasher.update(bytes).finalize_non_root()
}

/// Counts over all worlds, so that the test cannot pass without cases.
#[derive(Debug, Default)]
struct Seen {
    losses: u64,
    spared: u64,
    changed: u64,
    /// Empty files that a loss left without their attributes.
    half_made: u64,
    /// Losses after which all names were there and nothing was left to be done.
    all: u64,
}

fn world(seed: u64, atomic: bool, seen: &mut Seen) {
    let mut dice = Dice(seed);
    let mut source = draw_source(&mut dice);
    let mut every: BTreeSet<Vec<u8>> = source.values().map(|(_, c)| c.clone()).collect();
    let mut fake = Fake::default();
    for attempt in 0.. {
        assert!(attempt < 100, "seed {seed} comes to no end");
        // In the end the power stays.
        fake.left = if attempt < 12 { dice.below(40) } else { u64::MAX };
        let total: u64 = source.values().map(|(_, content)| content.len() as u64).sum();
        if let Ok(written) = run(&mut fake, (&source, atomic), &mut dice, &every) {
            seen.spared += u64::from(written < total);
            break;
        }
        seen.losses += 1;
        fake.lose_power(&mut dice);
        let named = |(at, inode): (&At, &u64)| {
            matches!(at, At::Name(_)) && fake.inodes[inode].is_half_made()
        };
        seen.half_made += fake.names.iter().filter(|pair| named(*pair)).count() as u64;
        let named = fake.named_files();
        if atomic && !fake.names.contains_key(&At::Publication) {
            // All or nothing, and no later run has to complete it.
            assert!(named == 0 || named == source.len(), "seed {seed}: {named}");
            seen.all += u64::from(named > 0);
        }
        // A source with all its names is done, and another one follows.
        if dice.below(8) == 0 && !(atomic && named > 0) {
            change_source(&mut source, &mut dice);
            every.extend(source.values().map(|(_, content)| content.clone()));
            seen.changed += 1;
        }
    }
    // All of it is done, and stays whatever is lost now.
    fake.lose_power(&mut dice);
    for (name, (_, content)) in &source {
        let at = At::Name(name.clone());
        assert_eq!(fake.read(&at), Some(&content[..]), "seed {seed}");
        assert!(!fake.inodes[&fake.names[&at]].is_half_made(), "seed {seed}");
    }
}

fn worlds(atomic: bool) -> Seen {
    let seeds = std::env::var("NETBLT_POWER_LOSSES").ok().and_then(|n| n.parse().ok());
    let mut seen = Seen::default();
    for seed in 0..seeds.unwrap_or(3000) {
        world(seed, atomic, &mut seen);
    }
    assert!(seen.losses > 300 && seen.spared > 30 && seen.changed > 10, "{seen:?}");
    seen
}

#[test]
fn a_power_loss_leaves_no_false_claim() {
    let seen = worlds(false);
    assert!(seen.half_made > 10, "{seen:?}");
}

#[test]
fn all_or_nothing_survives_any_power_loss() {
    let seen = worlds(true);
    assert!(seen.all > 10, "{seen:?}");
}
