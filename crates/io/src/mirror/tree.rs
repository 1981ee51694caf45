//! A tree of files at one end of a mirror, listed directory by directory.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use netblt_proto::content::check_name;
use rustix::fs::{AtFlags, Dir, FileType, Stat};

use crate::cancel::Cancel;
use crate::disk::extras::{self, Accounts};
use crate::disk::{safe_open, staging};
use crate::error::{Error, file_error, system_message};
use crate::mirror::digest_cache::{DigestCache, hash_file};
use crate::mirror::entry::{EntryKind, Short, TreeEntry, digest_of, hash_of, shortened};
use crate::mirror::filter::Filter;
use crate::mirror::names::joined;
use crate::options::Modes;
use crate::settings::Extras;

/// Bytes of attributes that are compared: more than a file can have (xattr(7)).
const ALL_ATTRIBUTES: usize = 1 << 20;

/// A tree of files.
#[derive(Debug)]
pub(crate) struct MirrorTree {
    root: OwnedFd,
    path: PathBuf,
    filter: Filter,
    /// Symbolic links are followed.
    follow: bool,
    /// Maps permissions to those that are compared.
    modes: Option<Modes>,
    extras: Extras,
    accounts: Accounts,
    /// A directory that is no part of the tree.
    apart: Option<Vec<u8>>,
    links: LinkedFiles,
    digests: Option<DigestCache>,
    cancel: Cancel,
}

/// The files of a tree that have several names.
#[derive(Debug, Default)]
struct LinkedFiles {
    /// The first name of each, by device and inode.
    first: HashMap<(u64, u64), Vec<u8>>,
    /// The same by its hash.
    by_hash: HashMap<Short, Vec<u8>>,
    /// The other names, each with the first one.
    others: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The entries of a directory, by name, and those that could not be examined.
#[derive(Debug, Default)]
pub(crate) struct DirectoryListing {
    pub(crate) entries: Vec<TreeEntry>,
    pub(crate) problems: Vec<String>,
    /// Whether something in it is no part of the tree.
    pub(crate) has_others: bool,
}

/// What a walk beneath a directory has found besides entries.
#[derive(Debug, Default)]
pub(crate) struct Beneath {
    /// Directories that hold something that is no part of the tree.
    pub(crate) with_others: Vec<Vec<u8>>,
    pub(crate) problems: Vec<String>,
}

impl MirrorTree {
    /// Opens the tree of a directory.
    pub(crate) fn open(path: &Path, filter: Filter, cancel: &Cancel) -> Result<Self, Error> {
        let root = safe_open::open_directory(path)
            .map_err(|error| file_error(path, "cannot be listed", error))?;
        Ok(Self {
            root,
            path: path.to_owned(),
            filter,
            follow: false,
            modes: None,
            extras: Extras::default(),
            accounts: Accounts::default(),
            apart: None,
            links: LinkedFiles::default(),
            digests: None,
            cancel: cancel.clone(),
        })
    }

    /// Compares these attributes as well.
    pub(crate) fn with_extras(self, extras: Extras) -> Self {
        Self { extras, ..self }
    }

    /// Follows symbolic links, and compares permissions as changed by `modes`.
    pub(crate) fn of_source(self, follow: bool, modes: Option<Modes>) -> Self {
        Self { follow, modes, ..self }
    }

    /// Compares contents.
    pub(crate) fn with_digests(self, digests: Option<DigestCache>) -> Self {
        Self { digests, ..self }
    }

    /// This directory is no part of the tree.
    pub(crate) fn without(self, apart: Option<Vec<u8>>) -> Self {
        Self { apart, ..self }
    }

    pub(crate) fn root(&self) -> &OwnedFd {
        &self.root
    }

    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// The path of an entry, for people.
    pub(crate) fn path_of(&self, name: &[u8]) -> PathBuf {
        if name.is_empty() { self.path.clone() } else { self.path.join(OsStr::from_bytes(name)) }
    }

    /// Whether an entry is part of the tree.
    pub(crate) fn has(&self, name: &[u8], directory: bool) -> bool {
        let (_, leaf) = safe_open::split(name);
        !staging::is_ours(leaf)
            && self.apart.as_deref() != Some(name)
            && self.filter.includes(name, directory)
    }

    /// Whether an entry and all directories above it are part of the tree.
    pub(crate) fn has_path(&self, name: &[u8], directory: bool) -> bool {
        let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut above = slashes.map(|(at, _)| name.get(..at).unwrap_or_default());
        name.is_empty() || (above.all(|above| self.has(above, true)) && self.has(name, directory))
    }

    /// The entries of a directory and their digest, which both ends compute alike.
    pub(crate) fn list(&mut self, name: &[u8]) -> Result<DirectoryListing, Error> {
        if self.cancel.is_cancelled() {
            return Err(Error::Interrupted);
        }
        let mut listing = DirectoryListing::default();
        let read = self.open_directory(name).and_then(|handle| {
            let leaves = leaves(&handle)?;
            Ok((handle, leaves))
        });
        let (handle, leaves) = match read {
            Ok(read) => read,
            Err(error) => {
                listing.problems.push(self.problem(name, "cannot be listed", &error));
                return Ok(listing);
            }
        };
        let mut known = self.digests.as_mut().map(|digests| digests.directory(name));
        for leaf in leaves {
            let full = joined(name, &leaf);
            match self.examine(&handle, &leaf, &full) {
                Ok(None) => listing.has_others = true,
                Ok(Some((entry, stat))) => {
                    let entry = match &mut known {
                        Some(known) => known.complete(&handle, entry, &stat),
                        None => Ok(entry),
                    };
                    match entry {
                        Ok(entry) => listing.entries.push(entry),
                        Err(error) => {
                            listing.problems.push(self.problem(&full, "cannot be read", &error));
                        }
                    }
                }
                Err(error) => listing.problems.push(self.problem(&full, "cannot be read", &error)),
            }
            if self.cancel.is_cancelled() {
                return Err(Error::Interrupted);
            }
        }
        if let (Some(digests), Some(known)) = (&mut self.digests, known) {
            digests.note(name, known);
        }
        Ok(listing)
    }

    /// All entries beneath a directory, from the top down. Entries that are no part of the tree are
    /// left out with what is beneath them.
    pub(crate) fn all_beneath(
        &mut self,
        name: &[u8],
        mut found: impl FnMut(&[u8], &TreeEntry),
    ) -> Result<Beneath, Error> {
        // They are not asked for in the order of a walk.
        let digests = self.digests.take();
        let walked = self.walk_beneath(name, &mut found);
        self.digests = digests;
        walked
    }

    fn walk_beneath(
        &mut self,
        name: &[u8],
        found: &mut impl FnMut(&[u8], &TreeEntry),
    ) -> Result<Beneath, Error> {
        let (mut beneath, mut directories) = (Beneath::default(), vec![name.to_vec()]);
        while let Some(directory) = directories.pop() {
            let listing = self.list(&directory)?;
            for entry in listing.entries.iter().rev().filter(|entry| entry.is_directory()) {
                directories.push(joined(&directory, &entry.name));
            }
            for entry in &listing.entries {
                found(&joined(&directory, &entry.name), entry);
            }
            beneath.problems.extend(listing.problems);
            if listing.has_others {
                beneath.with_others.push(directory);
            }
        }
        Ok(beneath)
    }

    fn open_directory(&self, name: &[u8]) -> io::Result<OwnedFd> {
        match self.follow {
            true => safe_open::open_directory(&self.path_of(name)),
            false => safe_open::directory(self.root.as_fd(), name),
        }
    }

    /// An entry; nothing if it is no part of the tree.
    fn examine(
        &mut self,
        handle: &OwnedFd,
        leaf: &[u8],
        full: &[u8],
    ) -> io::Result<Option<(TreeEntry, Stat)>> {
        let Some(mut stat) = safe_open::status(handle, leaf)? else { return Ok(None) };
        if self.follow && FileType::from_raw_mode(stat.st_mode).is_symlink() {
            stat = rustix::fs::statat(handle, OsStr::from_bytes(leaf), AtFlags::empty())?;
            if safe_open::is_directory(&stat) && self.leads_up(full, &stat) {
                return Err(io::Error::other("it is a link to a directory that it is in"));
            }
        }
        let file_type = FileType::from_raw_mode(stat.st_mode);
        if !self.has(full, file_type.is_dir()) {
            return Ok(None);
        }
        if let Err(why) = check_name(full) {
            return Err(io::Error::other(why));
        }
        let kind = match file_type {
            FileType::Directory => EntryKind::Directory,
            FileType::RegularFile => EntryKind::File {
                length: u64::try_from(stat.st_size).unwrap_or(0),
                link: if self.follow { None } else { self.links.first_of(full, &stat) },
                digest: None,
            },
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(handle, OsStr::from_bytes(leaf), Vec::new())?;
                EntryKind::SymbolicLink { target: target.into_bytes() }
            }
            _ => EntryKind::Special,
        };
        let extras = self.extras_of(handle, leaf, &kind, &stat);
        let mode = stat.st_mode & 0o777;
        let directory = file_type.is_dir();
        let mode = match &kind {
            // Its permissions mean nothing.
            EntryKind::SymbolicLink { .. } => 0,
            _ => self.modes.as_ref().map_or(mode, |modes| modes.of(mode, directory) & 0o777),
        };
        let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
        let (name, seconds) = (leaf.to_vec(), stat.st_mtime);
        Ok(Some((TreeEntry { name, kind, mode, seconds, nanos, extras }, stat)))
    }

    /// Whether a link leads to one of the directories above it.
    fn leads_up(&self, full: &[u8], to: &Stat) -> bool {
        let slashes = full.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let ends = slashes.map(|(at, _)| at).chain([0]);
        ends.map(|end| self.path_of(full.get(..end).unwrap_or_default())).any(|above| {
            let stat = rustix::fs::stat(&above);
            stat.is_ok_and(|at| (at.st_dev, at.st_ino) == (to.st_dev, to.st_ino))
        })
    }

    fn extras_of(
        &mut self,
        handle: &OwnedFd,
        leaf: &[u8],
        kind: &EntryKind,
        stat: &Stat,
    ) -> Option<Short> {
        if self.extras == Extras::default() || *kind == EntryKind::Special {
            return None;
        }
        let mut hasher = blake3::Hasher::new_derive_key("netblt mirror 1 attributes");
        if self.extras.owner {
            let owner = self.accounts.owner(stat.st_uid, stat.st_gid);
            for (name, number) in [(owner.user, owner.uid), (owner.group, owner.gid)] {
                let named = if name.is_empty() { number.to_string().into_bytes() } else { name };
                hasher.update(&(named.len() as u64).to_be_bytes()).update(&named);
            }
        }
        if !matches!(kind, EntryKind::SymbolicLink { .. }) {
            // One that cannot be opened cannot be sent either, which the transfer reports.
            if let Ok(file) = safe_open::file(handle.as_fd(), leaf) {
                let mut all = extras::read(self.extras, file.as_fd(), ALL_ATTRIBUTES).0;
                all.sort_unstable();
                for bytes in all.iter().flat_map(|(name, value)| [name, value]) {
                    hasher.update(&(bytes.len() as u64).to_be_bytes()).update(bytes);
                }
            }
        }
        Some(shortened(&hasher))
    }

    /// An entry by its name; the empty name is the root.
    pub(crate) fn entry(&mut self, name: &[u8]) -> io::Result<Option<TreeEntry>> {
        if name.is_empty() {
            let stat = rustix::fs::fstat(&self.root)?;
            let mode = stat.st_mode & 0o777;
            let mode = self.modes.as_ref().map_or(mode, |modes| modes.of(mode, true) & 0o777);
            return Ok(Some(TreeEntry {
                name: Vec::new(),
                kind: EntryKind::Directory,
                mode,
                seconds: stat.st_mtime,
                nanos: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
                extras: None,
            }));
        }
        let (parent, leaf) = safe_open::split(name);
        let handle = self.open_directory(parent)?;
        Ok(self.examine(&handle, leaf, name)?.map(|(entry, _)| entry))
    }

    /// The first name of a file, by its hash.
    pub(crate) fn first_name_of(&self, hash: Short) -> Option<&[u8]> {
        self.links.by_hash.get(&hash).map(|name| &name[..])
    }

    /// All other names of files, each with the first one.
    pub(crate) fn other_names(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.links.others.iter().map(|(name, first)| (&name[..], &first[..]))
    }

    /// The walk is over, and directories will be listed again in its order.
    pub(crate) fn restart_digests(&mut self) {
        self.digests.iter_mut().for_each(DigestCache::restart);
    }

    /// BLAKE3 of a file of the tree.
    pub(crate) fn digest_of_file(&self, name: &[u8]) -> io::Result<[u8; 32]> {
        let file = match self.follow {
            true => File::open(self.path_of(name))?,
            false => safe_open::file(self.root.as_fd(), name)?,
        };
        hash_file(&file, &self.cancel)
    }

    /// All digests are known: the cache is written.
    pub(crate) fn finish(&mut self) {
        if let Some(digests) = self.digests.take() {
            digests.finish();
        }
    }

    fn problem(&self, name: &[u8], what: &str, error: &io::Error) -> String {
        let path = crate::error::shown_path(&self.path_of(name));
        format!("{path}: {what}: {}", system_message(error))
    }
}

impl DirectoryListing {
    pub(crate) fn digest(&self) -> Short {
        digest_of(&self.entries)
    }
}

impl LinkedFiles {
    /// The hash of a file's first name, if this is another one.
    fn first_of(&mut self, name: &[u8], stat: &Stat) -> Option<Short> {
        if stat.st_nlink < 2 {
            return None;
        }
        let first = self.first.entry((stat.st_dev, stat.st_ino)).or_insert_with(|| name.to_vec());
        let hash = hash_of(first);
        if first == name {
            self.by_hash.insert(hash, name.to_vec());
            return None;
        }
        self.others.insert(name.to_vec(), first.clone());
        Some(hash)
    }
}

/// A walk through the directories of a tree, each before those in it, by name.
#[derive(Debug)]
pub(crate) struct DirectoryWalk {
    todo: Vec<Vec<u8>>,
}

impl DirectoryWalk {
    pub(crate) fn new() -> Self {
        Self { todo: vec![Vec::new()] }
    }

    /// The next directory with its listing.
    pub(crate) fn next(
        &mut self,
        tree: &mut MirrorTree,
    ) -> Result<Option<(Vec<u8>, DirectoryListing)>, Error> {
        let Some(name) = self.todo.pop() else { return Ok(None) };
        let listing = tree.list(&name)?;
        for entry in listing.entries.iter().rev().filter(|entry| entry.is_directory()) {
            self.todo.push(joined(&name, &entry.name));
        }
        Ok(Some((name, listing)))
    }
}

/// The names in a directory, sorted.
fn leaves(handle: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let mut leaves = Vec::new();
    for entry in Dir::read_from(handle)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            leaves.push(name);
        }
    }
    leaves.sort_unstable();
    Ok(leaves)
}
