//! The destination of a mirror: it lists its tree for the source, and makes the changes that need
//! no data.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use netblt_proto::limits::MAX_FILES;

use crate::cancel::Cancel;
use crate::disk::staging;
use crate::error::{Error, file_error};
use crate::mirror::change::MirrorChange;
use crate::mirror::digest_cache::DigestCache;
use crate::mirror::filter::Filter;
use crate::mirror::message::{
    Action, Body, Channel, DirectorySummary, ListPiece, Message, MirrorOutcome, Removal,
    RemovedEntry, send_list, unexpected,
};
use crate::mirror::settings::{DeleteTime, MaxDelete, MirrorSettings};
use crate::mirror::source::version_of;
use crate::mirror::tree::{DirectoryListing, DirectoryWalk, MirrorTree};
use crate::mirror::tree_writer::TreeWriter;
use crate::options::{Expected, NameFilter};

/// The destination of a mirror.
#[derive(Debug)]
pub struct MirrorDestination {
    /// `None`: the directory does not exist, and is not to be made.
    tree: Option<MirrorTree>,
    settings: MirrorSettings,
    filter: Filter,
    /// Entries in the tree.
    entries: u64,
    empty_source: bool,
    removals: Vec<Removal>,
    /// The entries of those in the place of something else, and of the others.
    obstacles: Vec<RemovedEntry>,
    removed: Vec<RemovedEntry>,
    actions: Vec<Action>,
    outcome: MirrorOutcome,
}

/// What the source has decided.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Decided {
    /// All changes, if they are to be listed.
    pub changes: Vec<MirrorChange>,
    /// Whether files are transferred.
    pub transfer: bool,
    /// Changes that could not be made, and why.
    pub problems: Vec<String>,
    /// Entries that are the same at both ends.
    pub unchanged: u64,
}

impl MirrorDestination {
    /// The destination in this directory. The directory is made if the one above it exists, except
    /// for a dry run.
    ///
    /// # Errors
    ///
    /// The directory cannot be opened or made, or a pattern is invalid.
    pub fn new(root: &Path, settings: &MirrorSettings, cancel: &Cancel) -> Result<Self, Error> {
        let missing = std::fs::symlink_metadata(root)
            .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        if missing && !settings.dry_run {
            let made = std::fs::create_dir(root);
            made.map_err(|error| file_error(root, "cannot be made", error))?;
        }
        let filter = Filter::new(&settings.filter)?;
        let compared = if settings.delete_excluded { Filter::default() } else { filter.clone() };
        let open = || {
            let digests = settings.checksum.then(|| DigestCache::of(root, cancel));
            let tree = MirrorTree::open(root, compared, cancel)?.with_extras(settings.extras);
            Ok::<_, Error>(tree.with_digests(digests).without(settings.backup_dir.clone()))
        };
        let tree = if missing && settings.dry_run { None } else { Some(open()?) };
        Ok(Self {
            tree,
            settings: settings.clone(),
            filter,
            entries: 0,
            empty_source: false,
            removals: Vec::new(),
            obstacles: Vec::new(),
            removed: Vec::new(),
            actions: Vec::new(),
            outcome: MirrorOutcome::default(),
        })
    }

    /// The files that the source may send.
    pub fn expected(&self) -> Expected {
        let (filter, backups) = (self.filter.clone(), self.settings.backup_dir.clone());
        let only = NameFilter::new(move |name, directory| {
            backups.as_deref() != Some(name) && filter.includes_path(name, directory)
        });
        Expected { directories: true, only: Some(only), ..Expected::default() }
    }

    /// Lists the tree for the source, until that has decided, and prepares for the files.
    ///
    /// # Errors
    ///
    /// The channel failed, or more would be removed than the settings allow.
    pub fn compare<C: Channel>(&mut self, channel: &mut C) -> Result<Decided, C::Failure> {
        self.send_directories(channel)?;
        let mut decided = Decided::default();
        loop {
            match channel.receive()?.0 {
                Body::Differ(names) => self.send_entries(channel, &names)?,
                Body::Remove { piece, empty } => self.take_removals(channel, piece, empty)?,
                Body::Hash(names) => {
                    let hash = |name: &Vec<u8>| self.tree.as_ref()?.digest_of_file(name).ok();
                    let hashes = names.iter().map(hash).collect();
                    channel.send(Message(Body::Hashes(hashes)))?;
                }
                Body::Actions(piece) => {
                    self.actions.extend(piece.list);
                    bounded(self.actions.len())?;
                }
                Body::Changes(piece) => {
                    decided.changes.extend(piece.list);
                    bounded(decided.changes.len())?;
                }
                Body::Begin { transfer, unchanged } => {
                    (decided.transfer, decided.unchanged) = (transfer, unchanged);
                    break;
                }
                _ => return Err(unexpected().into()),
            }
        }
        self.tree.iter_mut().for_each(MirrorTree::finish);
        self.check_limit()?;
        if !self.settings.dry_run {
            self.prepare(&mut decided)?;
        }
        channel.send(Message(Body::Ready(decided.problems.clone())))?;
        Ok(decided)
    }

    /// At the end that the user started: the transfer is over. This tells the source, and
    /// makes the last changes.
    ///
    /// # Errors
    ///
    /// The channel failed.
    pub fn report_and_finish<C: Channel>(
        self,
        channel: &mut C,
    ) -> Result<MirrorOutcome, C::Failure> {
        channel.send(Message(Body::Arrived))?;
        self.finish(channel)
    }

    /// At the other end: waits until the source says that the transfer is over, and makes the last
    /// changes.
    ///
    /// # Errors
    ///
    /// The channel failed.
    pub fn finish<C: Channel>(mut self, channel: &mut C) -> Result<MirrorOutcome, C::Failure> {
        let Body::Finish { complete } = channel.receive()?.0 else {
            return Err(unexpected().into());
        };
        if let Some(tree) = &self.tree {
            let writer = TreeWriter::new(tree, self.settings.backup_dir.as_deref());
            let outcome = &mut self.outcome;
            for action in &self.actions {
                if let Action::Link { file, name } = action {
                    let linked = writer.link(file, name);
                    outcome.linked += u64::from(linked.is_ok());
                    outcome.problems.extend(linked.err());
                }
            }
            match self.settings.delete {
                Some(DeleteTime::After) if complete => remove(&writer, &self.removed, outcome),
                Some(DeleteTime::After) => outcome.kept = self.removed.len() as u64,
                Some(DeleteTime::Before) | None => {}
            }
            for action in self.actions.iter().rev() {
                if let Action::Attributes { name, directory, mode, seconds, nanos } = action {
                    let set = writer.set_attributes(name, *directory, *mode, (*seconds, *nanos));
                    outcome.problems.extend(set.err());
                }
            }
        }
        channel.send(Message(Body::Finished(self.outcome.clone())))?;
        Ok(self.outcome)
    }

    fn send_directories<C: Channel>(&mut self, channel: &mut C) -> Result<(), C::Failure> {
        let (mut walk, mut list, mut bytes) = (DirectoryWalk::new(), Vec::new(), 0);
        if let Some(tree) = &mut self.tree {
            while let Some((name, listing)) = walk.next(tree)? {
                let entries = listing.entries.len() as u64;
                self.entries += entries;
                bytes += 100 + 2 * name.len();
                list.push(DirectorySummary { name, digest: listing.digest(), entries });
                if bytes > SUMMARY_BYTES {
                    bytes = 0;
                    let piece = ListPiece { list: std::mem::take(&mut list), last: false };
                    channel.send(Message(Body::Directories(piece)))?;
                }
            }
            tree.restart_digests();
        }
        channel.send(Message(Body::Directories(ListPiece { list, last: true })))
    }

    fn send_entries<C: Channel>(
        &mut self,
        channel: &mut C,
        names: &[Vec<u8>],
    ) -> Result<(), C::Failure> {
        for name in names {
            check(name)?;
            let listing = match &mut self.tree {
                Some(tree) => tree.list(name)?,
                None => DirectoryListing::default(),
            };
            send_list(channel, listing.entries, |entry| entry.cost(), Body::Entries)?;
        }
        Ok(())
    }

    /// Takes a piece of what is to be removed. After the last one it sends all entries, unless they
    /// are more than the settings allow.
    fn take_removals<C: Channel>(
        &mut self,
        channel: &mut C,
        piece: ListPiece<Removal>,
        empty: bool,
    ) -> Result<(), C::Failure> {
        for removal in &piece.list {
            check(&removal.name)?;
            if removal.name.is_empty() || (!removal.obstacle && self.settings.delete.is_none()) {
                return Err(unexpected().into());
            }
        }
        self.removals.extend(piece.list);
        bounded(self.removals.len())?;
        if !piece.last {
            return Ok(());
        }
        self.empty_source = empty;
        let Some(tree) = &mut self.tree else { return Err(unexpected().into()) };
        for removal in &self.removals {
            let Ok(Some(entry)) = tree.entry(&removal.name) else { continue };
            let directory = entry.is_directory();
            if !tree.has_path(&removal.name, directory)
                || removal.obstacle && directory && self.settings.delete.is_none()
            {
                return Err(unexpected().into());
            }
            let mut found = vec![(removal.name.clone(), directory, version_of(&entry))];
            if directory {
                let beneath = tree.all_beneath(&removal.name, |name, entry| {
                    found.push((name.to_vec(), entry.is_directory(), version_of(entry)));
                })?;
                // A directory stays with what is no part of the mirror.
                let stays = |name: &[u8]| {
                    let mut others = beneath.with_others.iter();
                    others.any(|other| other == name || is_above(name, other))
                };
                found.retain(|(name, directory, _)| !directory || !stays(name));
                self.outcome.problems.extend(beneath.problems);
            }
            let list = if removal.obstacle { &mut self.obstacles } else { &mut self.removed };
            list.extend(found.into_iter().map(|(name, directory, version)| RemovedEntry {
                name,
                directory,
                version,
            }));
        }
        let all = self.obstacles.iter().chain(&self.removed);
        let cost = |entry: &RemovedEntry| 150 + 2 * entry.name.len();
        send_list(channel, all.cloned(), cost, Body::Removed)
    }

    /// No more is removed than the settings allow. What is renamed is not removed.
    fn check_limit(&self) -> Result<(), Error> {
        let all = self.obstacles.iter().chain(&self.removed);
        let names: HashSet<&[u8]> = all.map(|entry| &entry.name[..]).collect();
        let renamed = self.actions.iter().filter(|action| match action {
            Action::Rename { from, .. } => names.contains(&from[..]),
            _ => false,
        });
        let removed = (names.len() as u64).saturating_sub(renamed.count() as u64);
        let (entries, limit) = (self.entries, self.settings.max_delete);
        if self.settings.delete.is_none() || limit.allows(removed, entries, self.empty_source) {
            return Ok(());
        }
        let empty = self.empty_source && limit == MaxDelete::Tenth;
        Err(Error::TooManyRemovals { removed, entries, limit: limit.to_string(), empty })
    }

    fn admit_action(&self, action: &Action) -> Result<(), Error> {
        match action {
            Action::Attributes { name, directory, .. } => self.admit(name, *directory),
            Action::BackUp(name) => self.admit(name, false),
            Action::Rename { from: one, to: other } | Action::Link { file: one, name: other } => {
                [one, other].iter().try_for_each(|name| self.admit(name, false))
            }
        }
    }

    /// A name that the source wants to be changed: it is part of the mirror.
    fn admit(&self, name: &[u8], directory: bool) -> Result<(), Error> {
        check(name)?;
        let is_part = self.tree.as_ref().is_some_and(|tree| tree.has_path(name, directory));
        if is_part { Ok(()) } else { Err(unexpected()) }
    }

    /// Makes way for the files: removes what is in their place, keeps copies of what they replace,
    /// and renames.
    fn prepare(&mut self, decided: &mut Decided) -> Result<(), Error> {
        let Some(tree) = &self.tree else { return Ok(()) };
        let writer = TreeWriter::new(tree, self.settings.backup_dir.as_deref());
        decided.problems.append(&mut self.outcome.problems);
        let all = self.obstacles.iter().chain(&self.removed);
        let removed: HashMap<&[u8], bool> =
            all.map(|entry| (&entry.name[..], entry.directory)).collect();
        self.actions.iter().try_for_each(|action| self.admit_action(action))?;
        // Entries can be changed in a directory that its owner may not write to. It gets its
        // permissions at the end.
        for action in &self.actions {
            if let Action::Attributes { name, directory: true, .. } = action {
                writer.open_up(name);
            }
        }
        for action in &self.actions {
            match action {
                // Only what was to be removed is renamed.
                Action::Rename { from, .. } if removed.get(&from[..]) != Some(&false) => {
                    return Err(unexpected());
                }
                Action::Rename { from, to } => {
                    let renamed = writer.rename(from, to);
                    self.outcome.renamed += u64::from(renamed.is_ok());
                    decided.problems.extend(renamed.err());
                }
                Action::BackUp(name) => decided.problems.extend(writer.back_up(name).err()),
                Action::Link { .. } | Action::Attributes { .. } => {}
            }
        }
        remove(&writer, &self.obstacles, &mut self.outcome);
        if self.settings.delete == Some(DeleteTime::Before) {
            remove(&writer, &self.removed, &mut self.outcome);
        }
        decided.problems.append(&mut self.outcome.problems);
        Ok(())
    }
}

/// Bytes of directories in one message: few, so that the source compares while this end lists.
const SUMMARY_BYTES: usize = 4_000;

/// Removes entries, what is in a directory before it. A directory that is not empty stays: the
/// filter excludes what is in it.
fn remove(writer: &TreeWriter<'_>, list: &[RemovedEntry], outcome: &mut MirrorOutcome) {
    for entry in list.iter().rev() {
        match writer.remove(&entry.name, entry.directory) {
            Ok(removed) => outcome.removed += u64::from(removed),
            Err(problem) => outcome.problems.push(problem),
        }
    }
}

/// A name that the other end sent.
fn check(name: &[u8]) -> Result<(), Error> {
    let good = name.is_empty()
        || (netblt_proto::content::check_name(name).is_ok() && !staging::has_ours(name));
    if good { Ok(()) } else { Err(unexpected()) }
}

/// Whether a name is that of a directory above another one.
fn is_above(directory: &[u8], name: &[u8]) -> bool {
    name.strip_prefix(directory).is_some_and(|rest| rest.starts_with(b"/"))
}

/// No more than a transfer may have.
fn bounded(count: usize) -> Result<(), Error> {
    if count as u64 > MAX_FILES { Err(unexpected()) } else { Ok(()) }
}
