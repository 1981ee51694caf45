//! Finished files: those that are in the digest and in their place are forgotten, so that a million
//! of them take no more memory than their names (`docs/protocol §8.5`).

use std::collections::BTreeMap;

use netblt_proto::content::{Kind, TransferDigest};

use super::{DirectoryWriter, FILE_BYTES, Incoming};
use crate::disk::left_out::MAX_NUMBERS;
use crate::disk::names::NameId;
use crate::error::shown;

/// Memory of a finished file.
const OVER_BYTES: u64 = 8;

/// The finished files.
#[derive(Debug, Default)]
pub(super) struct Finished {
    /// How many files, from the first on, are in the digest.
    pub(super) hashed: u64,
    transfer: TransferDigest,
    /// The first of them that differs from the sender's, and how.
    broken: Option<String>,
    /// The name of each of them that is a file here; none of a file that is left out or was taken
    /// back, and the root's of others.
    names: Vec<NameId>,
    /// Files that are in their place.
    pub(super) stored: u64,
    /// Their entries in the manifest, if there is one.
    listed: BTreeMap<u64, (NameId, [u8; 32])>,
}

impl Finished {
    /// The name under which a file of this number is here.
    pub(super) fn name(&self, number: u64) -> Option<NameId> {
        let name = usize::try_from(number).ok().and_then(|at| self.names.get(at).copied());
        name.filter(|name| ![NameId::ROOT, NameId::NONE].contains(name))
    }

    /// Whether it is the number of a file that is not here.
    pub(super) fn is_left_out(&self, number: u64) -> bool {
        let name = usize::try_from(number).ok().and_then(|at| self.names.get(at));
        name == Some(&NameId::NONE)
    }

    fn forget_name(&mut self, number: u64) {
        let name = usize::try_from(number).ok().and_then(|at| self.names.get_mut(at));
        let name = name.filter(|name| **name != NameId::ROOT);
        name.into_iter().for_each(|name| *name = NameId::NONE);
    }

    /// The digest of all of them.
    pub(super) fn digest(&self) -> Result<[u8; 32], String> {
        self.broken.clone().map_or_else(|| Ok(self.transfer.finish()), Err)
    }

    /// Lists a file of this number that is another name of `to`, if that one is listed.
    pub(super) fn list_link(&mut self, number: u64, to: u64, name: NameId) {
        if let Some((_, digest)) = self.listed.get(&to) {
            self.listed.insert(number, (name, *digest));
        }
    }

    /// Lists a file.
    pub(super) fn list(&mut self, number: u64, name: NameId, digest: [u8; 32]) {
        self.listed.insert(number, (name, digest));
    }

    /// The stored files, in the order in which they were sent.
    pub(super) fn listed(&self) -> impl Iterator<Item = (NameId, &[u8; 32])> {
        self.listed.values().map(|(name, digest)| (*name, digest))
    }
}

impl DirectoryWriter {
    /// Adds complete files to the digest, in order.
    pub(super) fn advance(&mut self) {
        while self.hash_next() {}
    }

    fn hash_next(&mut self) -> bool {
        let number = self.over.hashed;
        let known = self.files.get(&number).and_then(|file| file.attributes);
        if let Some(named) = self.withdrawn.get(&number) {
            let known = known.map(|(id, _)| self.names.path(id));
            let name = known.unwrap_or_else(|| named.clone());
            let theirs = self.their_name(&name).to_vec();
            if theirs.is_empty() {
                return false;
            }
            self.over.transfer.add(number, Kind::Withdrawn, 0, &[0; 32], &theirs);
            self.left_out.add(format!("{}: the sender cannot send it", shown(&name)), false);
            self.files.remove(&number);
            self.over.names.push(NameId::NONE);
            self.over.hashed += 1;
            return true;
        }
        let Some(file) = self.files.get(&number) else { return false };
        let (Some((id, _)), Some(claimed), Some((length, digest))) =
            (known, file.claimed, file.complete)
        else {
            return false;
        };
        let name = self.names.path(id);
        if claimed != digest {
            let why = format!("\"{}\" is not what the sender read", shown(&name));
            self.over.broken.get_or_insert(why);
        }
        let theirs = self.their_name(&name).to_vec();
        self.over.transfer.add(number, file.kind, length, &digest, &theirs);
        self.over.names.push(if file.kind == Kind::File { id } else { NameId::ROOT });
        self.over.hashed += 1;
        self.close_if_over(number);
        true
    }

    /// Why not everything is in the digest, if there is more than that.
    pub(super) fn missing(&self) -> Option<String> {
        let number = self.over.hashed;
        let beyond = self.files.range(number..).next().is_some();
        if !beyond && self.withdrawn.range(number..).next().is_none() {
            return None;
        }
        if self.withdrawn.contains_key(&number) {
            return Some(format!("file {number} was withdrawn without a name"));
        }
        Some(match self.files.get(&number).map(|file| file.attributes) {
            None => format!("file {number} did not come"),
            Some(None) => format!("file {number} came without a name"),
            Some(Some((id, _))) => format!("\"{}\" is incomplete", shown(&self.names.path(id))),
        })
    }

    /// A file is in its place.
    pub(super) fn placed(&mut self, number: u64) {
        if let Some(file) = self.files.get_mut(&number) {
            file.placed = true;
            self.over.stored += 1;
        }
        self.close_if_over(number);
    }

    /// Forgets a file that is in the digest, and in its place or left out for good. With all or
    /// nothing no file is before all are.
    pub(super) fn close_if_over(&mut self, number: u64) {
        if self.atomic || number >= self.over.hashed {
            return;
        }
        let Some(file) = self.files.get(&number) else { return };
        let (Some((id, _)), Some(content)) = (file.attributes, file.complete) else { return };
        let (kind, refused) = (file.kind, file.refused.is_some());
        // Whether a hard link can be is known when all else is in its place.
        if kind == Kind::HardLink || !(refused || file.placed || kind == Kind::Directory) {
            return;
        }
        if refused {
            self.close_refused(number, kind, id, content);
        } else if kind.has_content() {
            self.notify(id, content);
            if self.manifest.is_some() {
                self.over.listed.insert(number, (id, content.1));
            }
        }
        self.files.remove(&number);
        self.budget.give_back(FILE_BYTES - OVER_BYTES);
    }

    /// Leaves out a file that cannot have its name, unless it is there already.
    fn close_refused(&mut self, number: u64, kind: Kind, id: NameId, content: (u64, [u8; 32])) {
        let name = self.names.path(id);
        let there = match kind {
            Kind::Directory | Kind::HardLink => false,
            Kind::SymbolicLink => self.store.holds_link(&name, content.1),
            _ => self.store.holds(&name, content),
        };
        if there {
            self.left_out.there += 1;
            return;
        }
        self.over.forget_name(number);
        if kind.has_content() && self.left_out.numbers.len() <= MAX_NUMBERS {
            self.left_out.numbers.push(number);
        }
        let why = self.files.get_mut(&number).and_then(|file| file.refused.take());
        self.left_out.add(format!("{}: {}", shown(&name), why.unwrap_or_default()), true);
    }

    /// Reports that a file is finished.
    fn notify(&self, name: NameId, (bytes, digest): (u64, [u8; 32])) {
        self.on_file
            .iter()
            .for_each(|on_file| on_file.notify(&self.names.path(name), bytes, digest));
    }

    /// Writes the stored files to the manifest.
    pub(super) fn list_all(&mut self) {
        self.files
            .values()
            .filter_map(listed)
            .for_each(|(name, content)| self.notify(name, content));
        let Some(manifest) = &mut self.manifest else { return };
        for (name, digest) in self.over.listed() {
            manifest.add(&self.names.path(name), digest);
        }
        for (name, (_, digest)) in self.files.values().filter_map(listed) {
            manifest.add(&self.names.path(name), &digest);
        }
    }
}

/// The name of a file, if it is of a kind that a manifest lists.
fn listed(file: &Incoming) -> Option<(NameId, (u64, [u8; 32]))> {
    let (id, _) = file.attributes.filter(|_| file.kind.has_content())?;
    Some((id, file.complete?))
}
