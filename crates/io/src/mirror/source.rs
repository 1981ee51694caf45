//! The source of a mirror: it compares both trees, and decides what changes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use netblt_proto::limits::MAX_FILES;

use crate::cancel::Cancel;
use crate::disk::safe_open;
use crate::error::{Error, shown_path};
use crate::mirror::change::{ChangeKind, Differences, MirrorChange};
use crate::mirror::digest_cache::DigestCache;
use crate::mirror::entry::{EntryKind, Short, TreeEntry};
use crate::mirror::filter::Filter;
use crate::mirror::message::{
    Action, Body, Channel, DirectorySummary, ListPiece, Message, MirrorOutcome, Removal,
    RemovedEntry, Version, receive_list, send_list, unexpected,
};
use crate::mirror::names::{joined, order};
use crate::mirror::settings::MirrorSettings;
use crate::mirror::tree::{DirectoryWalk, MirrorTree};
use crate::options::{Modes, NameFilter, Selection};

/// Directories in one request for their entries.
const DIFFER: usize = 100;
/// Files in one request for their digests.
const HASH: usize = 200;

/// The source of a mirror.
#[derive(Debug)]
pub struct MirrorSource {
    root: PathBuf,
    tree: MirrorTree,
    settings: MirrorSettings,
    modes: Option<Modes>,
    /// Entries that are left out, and why.
    problems: Vec<String>,
    /// Some of them could not be read.
    unreadable: bool,
}

/// What a mirror changes.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Difference {
    /// The files to transfer; `None` if there are none.
    pub selection: Option<Selection>,
    /// All changes in the order of their names, removals first, if they are to be listed.
    pub changes: Vec<MirrorChange>,
    /// Entries that are left out, and why.
    pub problems: Vec<String>,
    /// Changes that the destination could not make so far, and why.
    pub problems_there: Vec<String>,
    /// Entries that are the same at both ends.
    pub unchanged: u64,
    /// Whether entries of the destination stay only because not all of the source could be read.
    pub keeps_removals: bool,
}

/// The decisions so far.
#[derive(Debug, Default)]
struct Decisions {
    /// Files and links to send.
    files: BTreeSet<Vec<u8>>,
    /// Directories to send with all that is in them.
    trees: BTreeSet<Vec<u8>>,
    /// Names beneath those that are not sent: they are renamed, or linked.
    apart: HashSet<Vec<u8>>,
    removals: Vec<Removal>,
    actions: Vec<Action>,
    /// Directories whose time a change of their entries changes.
    touched: BTreeSet<Vec<u8>>,
    /// Names that become hard links, with the file's first name.
    links: Vec<(Vec<u8>, Vec<u8>)>,
    /// By name.
    changes: HashMap<Vec<u8>, MirrorChange>,
    unchanged: u64,
}

/// The comparison of directories.
struct Compared {
    /// Those that differ; `None` is the destination's root if it does not exist.
    differ: Vec<Option<Vec<u8>>>,
    /// Whether the source is empty.
    empty: bool,
}

/// The destination's directories as they arrive.
#[derive(Default)]
struct Theirs {
    /// In order, the next one last.
    piece: Vec<DirectorySummary>,
    over: bool,
}

impl MirrorSource {
    /// The source of this directory. `modes` maps permissions to those that are sent.
    ///
    /// # Errors
    ///
    /// The directory cannot be opened, or a pattern is invalid.
    pub fn new(
        root: &Path,
        settings: &MirrorSettings,
        modes: Option<Modes>,
        cancel: &Cancel,
    ) -> Result<Self, Error> {
        let filter = Filter::new(&settings.filter)?;
        let digests = settings.checksum.then(|| DigestCache::of(root, cancel));
        let tree = MirrorTree::open(root, filter, cancel)?
            .with_extras(settings.extras)
            .of_source(settings.follow, modes.clone())
            .with_digests(digests)
            .without(settings.backup_dir.clone());
        let (root, settings) = (root.to_owned(), settings.clone());
        Ok(Self { root, tree, settings, modes, problems: Vec::new(), unreadable: false })
    }

    /// Compares both trees. The destination does nothing yet.
    ///
    /// # Errors
    ///
    /// The channel failed, the source is gone, or the destination refuses to remove so much.
    pub fn compare<C: Channel>(&mut self, channel: &mut C) -> Result<Difference, C::Failure> {
        let mut decisions = Decisions::default();
        let Compared { differ, empty } = self.find_directories(channel, &mut decisions)?;
        self.tree.restart_digests();
        for directory in differ {
            let theirs = match &directory {
                // The destination does not exist yet.
                None => Vec::new(),
                Some(_) => receive_list(channel, MAX_FILES, |body| match body {
                    Body::Entries(piece) => Some(piece),
                    _ => None,
                })?,
            };
            let directory = directory.unwrap_or_default();
            let listing = self.tree.list(&directory)?;
            self.compare_directory(&directory, listing.entries, theirs, &mut decisions)?;
        }
        self.tree.finish();
        let keeps_removals =
            self.unreadable && decisions.removals.iter().any(|removal| !removal.obstacle);
        if keeps_removals {
            decisions.removals.retain(|removal| removal.obstacle);
        }
        let removed = self.announce_removals(channel, &decisions, empty)?;
        self.find_renames(channel, &removed, &mut decisions)?;
        self.link(&mut decisions);
        self.set_directory_attributes(&mut decisions)?;
        let changes = match self.settings.itemize || self.settings.dry_run {
            true => self.list_changes(&removed, &mut decisions)?,
            false => Vec::new(),
        };
        let (actions, unchanged) = (std::mem::take(&mut decisions.actions), decisions.unchanged);
        send_list(channel, actions, Action::cost, Body::Actions)?;
        send_list(channel, changes.iter().cloned(), MirrorChange::cost, Body::Changes)?;
        let selection = self.selection(decisions);
        channel.send(Message(Body::Begin { transfer: selection.is_some(), unchanged }))?;
        let problems = std::mem::take(&mut self.problems);
        let mut difference = Difference {
            selection,
            changes,
            problems,
            problems_there: Vec::new(),
            unchanged,
            keeps_removals,
        };
        match channel.receive()?.0 {
            Body::Ready(theirs) => difference.problems_there = theirs,
            _ => return Err(unexpected().into()),
        }
        Ok(difference)
    }

    /// The transfer is over: the destination makes the last changes. `complete`: everything was
    /// sent.
    ///
    /// # Errors
    ///
    /// The channel failed.
    pub fn finish<C: Channel>(
        &mut self,
        channel: &mut C,
        complete: bool,
    ) -> Result<MirrorOutcome, C::Failure> {
        channel.send(Message(Body::Finish { complete }))?;
        match channel.receive()?.0 {
            Body::Finished(outcome) => Ok(outcome),
            _ => Err(unexpected().into()),
        }
    }

    /// The same at an end that the user did not start: the destination says when it is over.
    ///
    /// # Errors
    ///
    /// The channel failed.
    pub fn wait_and_finish<C: Channel>(
        &mut self,
        channel: &mut C,
        complete: bool,
    ) -> Result<MirrorOutcome, C::Failure> {
        match channel.receive()?.0 {
            Body::Arrived => self.finish(channel, complete),
            _ => Err(unexpected().into()),
        }
    }

    /// Compares the digests of all directories. The destination then sends the entries of those
    /// that differ.
    fn find_directories<C: Channel>(
        &mut self,
        channel: &mut C,
        decisions: &mut Decisions,
    ) -> Result<Compared, C::Failure> {
        let (mut differ, mut asked, mut empty) = (Vec::new(), 0, false);
        let (mut walk, mut theirs) = (DirectoryWalk::new(), Theirs::default());
        while let Some((name, listing)) = walk.next(&mut self.tree)? {
            let is_root = name.is_empty();
            empty |= is_root && listing.entries.is_empty();
            self.unreadable |= !listing.problems.is_empty();
            self.problems.extend(listing.problems.iter().cloned());
            match theirs.find(&name, channel)? {
                Some(found) if found.digest == listing.digest() => {
                    decisions.unchanged += found.entries;
                }
                Some(_) => differ.push(Some(name)),
                None if is_root => differ.push(None),
                // The comparison of the directory above finds that it is missing.
                None => {}
            }
            if differ.len() - asked >= DIFFER {
                ask(channel, differ.get(asked..).unwrap_or_default())?;
                asked = differ.len();
            }
        }
        theirs.skip_rest(channel)?;
        ask(channel, differ.get(asked..).unwrap_or_default())?;
        Ok(Compared { differ, empty })
    }

    fn compare_directory(
        &mut self,
        directory: &[u8],
        own: Vec<TreeEntry>,
        theirs: Vec<TreeEntry>,
        decisions: &mut Decisions,
    ) -> Result<(), Error> {
        let mut theirs: BTreeMap<Vec<u8>, TreeEntry> =
            theirs.into_iter().map(|entry| (entry.name.clone(), entry)).collect();
        for entry in own {
            let name = joined(directory, &entry.name);
            match theirs.remove(&entry.name) {
                None => self.add(name, &entry, decisions),
                Some(there) => self.compare_entries(name, &entry, &there, decisions),
            }
        }
        if self.settings.delete.is_some() {
            let names = theirs.into_keys().map(|leaf| joined(directory, &leaf));
            let removals = names.map(|name| Removal { name, obstacle: false });
            decisions.removals.extend(removals);
        }
        Ok(())
    }

    /// The destination does not have it.
    fn add(&mut self, name: Vec<u8>, entry: &TreeEntry, decisions: &mut Decisions) {
        match &entry.kind {
            EntryKind::Special => self.leave_out(&name, SPECIAL),
            EntryKind::Directory => drop(decisions.trees.insert(name)),
            EntryKind::File { link: Some(first), .. } => self.join(name, *first, decisions),
            EntryKind::File { .. } | EntryKind::SymbolicLink { .. } => {
                decisions.files.insert(name.clone());
                let new = match entry.kind {
                    EntryKind::SymbolicLink { .. } => ChangeKind::SymbolicLink,
                    _ => ChangeKind::New,
                };
                decisions.note(MirrorChange::of(new, &name, entry));
            }
        }
    }

    /// It becomes a hard link.
    fn join(&mut self, name: Vec<u8>, first: Short, decisions: &mut Decisions) {
        match self.tree.first_name_of(first) {
            Some(first) => decisions.links.push((name, first.to_vec())),
            // The file has lost its other name meanwhile.
            None => drop(decisions.files.insert(name)),
        }
    }

    fn compare_entries(
        &mut self,
        name: Vec<u8>,
        own: &TreeEntry,
        theirs: &TreeEntry,
        decisions: &mut Decisions,
    ) {
        let differ = self.differences(own, theirs);
        match (&own.kind, &theirs.kind) {
            // It cannot be sent, and what is in its place stays.
            (EntryKind::Special, EntryKind::Special) => {}
            (EntryKind::Special, _) => self.leave_out(&name, SPECIAL),
            (EntryKind::File { link: Some(first), .. }, EntryKind::File { link, .. }) => {
                match link == &Some(*first) {
                    true => decisions.unchanged += 1,
                    false => self.join(name, *first, decisions),
                }
            }
            (EntryKind::File { link: None, .. }, EntryKind::File { link, .. }) => {
                let split = link.is_some();
                let sent = differ.length
                    || differ.extras
                    || split
                    || match self.settings.checksum {
                        true => differ.content,
                        false => differ.time,
                    };
                if sent {
                    self.back_up(&name, decisions);
                    let kind = ChangeKind::Content(differ);
                    decisions.note(MirrorChange::of(kind, &name, own));
                    decisions.files.insert(name);
                } else {
                    set_attributes(name, own, differ, decisions);
                }
            }
            (EntryKind::Directory, EntryKind::Directory) => {
                set_attributes(name, own, differ, decisions);
            }
            (
                EntryKind::SymbolicLink { target },
                EntryKind::SymbolicLink { target: their_target },
            ) if target == their_target => set_attributes(name, own, differ, decisions),
            (
                EntryKind::File { .. } | EntryKind::SymbolicLink { .. },
                EntryKind::File { .. } | EntryKind::SymbolicLink { .. },
            ) => {
                self.back_up(&name, decisions);
                self.add(name.clone(), own, decisions);
                // It takes the place of something, and no other file is renamed to it.
                if let Some(change) = decisions.changes.get_mut(&name)
                    && change.kind == ChangeKind::New
                {
                    change.kind = ChangeKind::Content(differ);
                }
            }
            (_, EntryKind::Directory) if self.settings.delete.is_none() => {
                self.leave_out(&name, "a directory is in its place");
            }
            _ => {
                decisions.removals.push(Removal { name: name.clone(), obstacle: true });
                self.add(name, own, decisions);
            }
        }
    }

    fn differences(&self, own: &TreeEntry, theirs: &TreeEntry) -> Differences {
        let nanos =
            |entry: &TreeEntry| i128::from(entry.seconds) * 1_000_000_000 + i128::from(entry.nanos);
        let apart = (nanos(own) - nanos(theirs)).unsigned_abs();
        let mut differ = Differences {
            time: apart > self.settings.modify_window.as_nanos(),
            mode: own.mode != theirs.mode,
            extras: own.extras != theirs.extras,
            ..Differences::default()
        };
        if let (
            EntryKind::File { length, digest, .. },
            EntryKind::File { length: their_length, digest: their_digest, .. },
        ) = (&own.kind, &theirs.kind)
        {
            differ.length = length != their_length;
            differ.content = digest != their_digest;
        }
        differ
    }

    fn back_up(&self, name: &[u8], decisions: &mut Decisions) {
        if self.settings.backup_dir.is_some() {
            decisions.actions.push(Action::BackUp(name.to_vec()));
        }
    }

    fn leave_out(&mut self, name: &[u8], why: &str) {
        let path = shown_path(&self.tree.path_of(name));
        self.problems.push(format!("{path}: {why}"));
    }

    /// Tells the destination what it is to remove. It returns all entries, or refuses.
    fn announce_removals<C: Channel>(
        &self,
        channel: &mut C,
        decisions: &Decisions,
        empty: bool,
    ) -> Result<Vec<RemovedEntry>, C::Failure> {
        if decisions.removals.is_empty() {
            return Ok(Vec::new());
        }
        let removals = decisions.removals.iter().cloned();
        let cost = |removal: &Removal| 100 + 2 * removal.name.len();
        send_list(channel, removals, cost, |piece| Body::Remove { piece, empty })?;
        receive_list(channel, MAX_FILES, |body| match body {
            Body::Removed(piece) => Some(piece),
            _ => None,
        })
    }

    /// Files that are removed there and new here under another name, with the same length, time
    /// and content.
    fn find_renames<C: Channel>(
        &mut self,
        channel: &mut C,
        removed: &[RemovedEntry],
        decisions: &mut Decisions,
    ) -> Result<(), C::Failure> {
        let mut there: HashMap<Version, Vec<&[u8]>> = HashMap::new();
        for entry in removed {
            if let Some(version) = entry.version {
                there.entry(version).or_default().push(&entry.name);
            }
        }
        if there.is_empty() {
            return Ok(());
        }
        let mut new = Vec::new();
        let mut note = |name: &[u8], entry: &TreeEntry| {
            if let Some(version) = version_of(entry).filter(|version| there.contains_key(version)) {
                new.push((name.to_vec(), version));
            }
        };
        for change in decisions.changes.values().filter(|change| change.kind == ChangeKind::New) {
            if let Ok(Some(entry)) = self.tree.entry(&change.name) {
                note(&change.name, &entry);
            }
        }
        for name in &decisions.trees {
            self.tree.all_beneath(name, &mut note)?;
        }
        let mut pairs = Vec::new();
        let obstacles = decisions.removals.iter().filter(|removal| removal.obstacle);
        let obstacles: BTreeSet<Vec<u8>> = obstacles.map(|own| own.name.clone()).collect();
        // Its place is not free yet.
        new.retain(|(to, _)| !is_beneath(&obstacles, to));
        for (to, version) in new {
            let Some(froms) = there.get_mut(&version) else { continue };
            let (_, leaf) = safe_open::split(&to);
            let same = froms.iter().position(|from| safe_open::split(from).1 == leaf);
            let place = same.or_else(|| froms.len().checked_sub(1));
            if let Some(place) = place {
                pairs.push((froms.swap_remove(place).to_vec(), to));
            }
        }
        for pairs in pairs.chunks(HASH) {
            let names = pairs.iter().map(|(from, _)| from.clone()).collect();
            channel.send(Message(Body::Hash(names)))?;
            let own: Vec<_> =
                pairs.iter().map(|(_, to)| self.tree.digest_of_file(to).ok()).collect();
            let Body::Hashes(theirs) = channel.receive()?.0 else {
                return Err(unexpected().into());
            };
            for (((from, to), own), theirs) in pairs.iter().zip(own).zip(theirs) {
                if own.is_some() && own == theirs {
                    self.rename(from, to, decisions);
                }
            }
        }
        Ok(())
    }

    fn rename(&mut self, from: &[u8], to: &[u8], decisions: &mut Decisions) {
        decisions.touched.insert(safe_open::split(from).0.to_vec());
        // Directories that are made on the way get their attributes as well.
        let slashes = to.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        decisions.touched.extend(slashes.map(|(at, _)| to.get(..at).unwrap_or_default().to_vec()));
        decisions.files.remove(to);
        decisions.apart.insert(to.to_vec());
        let kind = ChangeKind::Renamed(from.to_vec());
        decisions.note(MirrorChange { kind, name: to.to_vec(), directory: false, bytes: 0 });
        decisions.actions.push(Action::Rename { from: from.to_vec(), to: to.to_vec() });
        // Its permissions may differ.
        if let Ok(Some(entry)) = self.tree.entry(to) {
            decisions.actions.push(attributes(to.to_vec(), &entry));
        }
    }

    /// Hard links: those that are missing, and all names of a file that is sent, since it becomes
    /// another one.
    fn link(&self, decisions: &mut Decisions) {
        let mut linked: HashSet<Vec<u8>> =
            decisions.links.iter().map(|(name, _)| name.clone()).collect();
        for (name, first) in self.tree.other_names() {
            let sent = decisions.files.contains(first)
                || decisions.apart.contains(first)
                || is_beneath(&decisions.trees, first);
            let own = is_beneath(&decisions.trees, name);
            if (sent || own) && linked.insert(name.to_vec()) {
                decisions.links.push((name.to_vec(), first.to_vec()));
            }
        }
        for (name, file) in std::mem::take(&mut decisions.links) {
            decisions.touched.insert(safe_open::split(&name).0.to_vec());
            decisions.files.remove(&name);
            decisions.apart.insert(name.clone());
            let kind = ChangeKind::HardLink;
            decisions.note(MirrorChange { kind, name: name.clone(), directory: false, bytes: 0 });
            decisions.actions.push(Action::Link { file, name });
        }
    }

    /// Directories whose entries change get their times again, the root always.
    fn set_directory_attributes(&mut self, decisions: &mut Decisions) -> Result<(), Error> {
        let removals = decisions.removals.iter().map(|removal| &removal.name);
        let changed = removals.chain(&decisions.files).chain(&decisions.trees);
        decisions.touched.extend(changed.map(|name| safe_open::split(name).0.to_vec()));
        decisions.touched.insert(Vec::new());
        for name in std::mem::take(&mut decisions.touched) {
            if let Ok(Some(entry)) = self.tree.entry(&name) {
                decisions.actions.push(attributes(name, &entry));
            }
        }
        Ok(())
    }

    /// All changes, with what is in new directories and what is removed, in order.
    fn list_changes(
        &mut self,
        removed: &[RemovedEntry],
        decisions: &mut Decisions,
    ) -> Result<Vec<MirrorChange>, Error> {
        for name in std::mem::take(&mut decisions.trees) {
            let (kind, directory) = (ChangeKind::New, true);
            decisions.note(MirrorChange { kind, name: name.clone(), directory, bytes: 0 });
            self.tree.all_beneath(&name, |name, entry| {
                let kind = match entry.kind {
                    EntryKind::Special => return,
                    EntryKind::SymbolicLink { .. } => ChangeKind::SymbolicLink,
                    _ => ChangeKind::New,
                };
                if !decisions.apart.contains(name) {
                    decisions.note(MirrorChange::of(kind, name, entry));
                }
            })?;
            decisions.trees.insert(name);
        }
        let changes = std::mem::take(&mut decisions.changes);
        let mut changes: Vec<MirrorChange> = changes.into_values().collect();
        changes.sort_unstable_by(|one, other| order(&one.name, &other.name));
        let renamed = changes.iter().filter_map(|change| match &change.kind {
            ChangeKind::Renamed(from) => Some(from.clone()),
            _ => None,
        });
        let renamed: HashSet<Vec<u8>> = renamed.collect();
        // What is in a directory is removed before it.
        let removed = removed.iter().rev().filter(|entry| !renamed.contains(&entry.name));
        let removed = removed.map(|entry| MirrorChange {
            kind: ChangeKind::Removed,
            name: entry.name.clone(),
            directory: entry.directory,
            bytes: 0,
        });
        Ok(removed.chain(changes).collect())
    }

    /// The files to transfer.
    fn selection(&self, decisions: Decisions) -> Option<Selection> {
        let Decisions { files, trees, apart, .. } = decisions;
        if files.is_empty() && trees.is_empty() {
            return None;
        }
        let tops: BTreeSet<&[u8]> = files.iter().chain(&trees).map(|name| top(name)).collect();
        let names = tops.into_iter().map(|name| OsString::from_vec(name.to_vec())).collect();
        let filter = self.tree.filter().clone();
        let (files, trees, apart) = (Arc::new(files), Arc::new(trees), Arc::new(apart));
        let only = NameFilter::new(move |name, directory| {
            if is_beneath(&trees, name) {
                return filter.includes(name, directory) && !apart.contains(name);
            }
            match directory {
                true => has_beneath(&files, name) || has_beneath(&trees, name),
                false => files.contains(name),
            }
        });
        Some(Selection {
            contents: vec![(self.root.clone(), names)],
            only: Some(only),
            follow: self.settings.follow,
            modes: self.modes.clone(),
            ..Selection::default()
        })
    }
}

const SPECIAL: &str = "it is a pipe, a socket or a device";

impl Decisions {
    fn note(&mut self, change: MirrorChange) {
        self.changes.insert(change.name.clone(), change);
    }
}

impl Theirs {
    /// The directory of this name, if the destination has it. Names are asked for in the order of a
    /// walk.
    fn find<C: Channel>(
        &mut self,
        name: &[u8],
        channel: &mut C,
    ) -> Result<Option<DirectorySummary>, C::Failure> {
        loop {
            match self.piece.last() {
                None if self.over => return Ok(None),
                None => self.receive(channel)?,
                Some(next) if next.name == name => return Ok(self.piece.pop()),
                Some(next) if order(&next.name, name).is_gt() => return Ok(None),
                // The source does not have it.
                Some(_) => drop(self.piece.pop()),
            }
        }
    }

    fn skip_rest<C: Channel>(&mut self, channel: &mut C) -> Result<(), C::Failure> {
        while !self.over {
            self.receive(channel)?;
        }
        Ok(())
    }

    fn receive<C: Channel>(&mut self, channel: &mut C) -> Result<(), C::Failure> {
        let Body::Directories(ListPiece { mut list, last }) = channel.receive()?.0 else {
            return Err(unexpected().into());
        };
        list.reverse();
        (self.piece, self.over) = (list, last);
        Ok(())
    }
}

/// Asks for the entries of directories.
fn ask<C: Channel>(channel: &mut C, differ: &[Option<Vec<u8>>]) -> Result<(), C::Failure> {
    let names: Vec<_> = differ.iter().flatten().cloned().collect();
    if names.is_empty() { Ok(()) } else { channel.send(Message(Body::Differ(names))) }
}

fn set_attributes(name: Vec<u8>, own: &TreeEntry, differ: Differences, decisions: &mut Decisions) {
    let plain = Differences { content: false, extras: false, ..differ };
    if plain.is_empty() {
        decisions.unchanged += 1;
        return;
    }
    decisions.note(MirrorChange::of(ChangeKind::Attributes(differ), &name, own));
    decisions.actions.push(attributes(name, own));
}

fn attributes(name: Vec<u8>, entry: &TreeEntry) -> Action {
    let (directory, mode) = (entry.is_directory(), entry.mode);
    let (seconds, nanos) = (entry.seconds, entry.nanos);
    Action::Attributes { name, directory, mode, seconds, nanos }
}

/// The version of a file that may be renamed: one that is empty is sent as fast.
pub(crate) fn version_of(entry: &TreeEntry) -> Option<Version> {
    match entry.kind {
        EntryKind::File { length, link: None, .. } if length > 0 => {
            Some(Version { length, seconds: entry.seconds, nanos: entry.nanos })
        }
        _ => None,
    }
}

/// The first part of a name.
fn top(name: &[u8]) -> &[u8] {
    name.split(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Whether a name is that of a directory in the set, or beneath one.
fn is_beneath(trees: &BTreeSet<Vec<u8>>, name: &[u8]) -> bool {
    let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let mut above = slashes.map(|(at, _)| name.get(..at).unwrap_or_default());
    !trees.is_empty() && (trees.contains(name) || above.any(|above| trees.contains(above)))
}

/// Whether something in the set is beneath a directory.
fn has_beneath(names: &BTreeSet<Vec<u8>>, directory: &[u8]) -> bool {
    let beneath = [directory, b"/"].concat();
    names.range(beneath.clone()..).next().is_some_and(|next| next.starts_with(&beneath))
}
