//! Finished files: those that are in the digest and in their place are forgotten, so that a million
//! of them take no more memory than their names (`docs/protocol §8.5`).

use std::collections::BTreeMap;

use netblt_proto::content::{Kind, TransferDigest};

use super::checksums::Checksums;
use super::file_table::{FILE_BYTES, FileTable};
use super::incoming::Incoming;
use super::left_out::LeftOut;
use super::output_name::OutputName;
use super::reports::Reports;
use crate::checksums::algorithm::Digests;
use crate::disk::names::NameId;
use crate::disk::store::Store;
use crate::error::shown;

/// Memory of a finished file.
const OVER_BYTES: u64 = 8;

/// The finished files.
#[derive(Debug, Default)]
pub(super) struct Finished {
    /// How many files, from the first on, are in the digest.
    hashed: u64,
    transfer: TransferDigest,
    /// The first of them that differs from the sender's, and how.
    broken: Option<String>,
    /// The name of each of them that is a file here; none of a file that is left out or was taken
    /// back, and the root's of others.
    names: Vec<NameId>,
    /// Files that are in their place.
    stored: u64,
    /// Their entries in the manifest, if there is one.
    listed: BTreeMap<u64, (NameId, u64, Digests)>,
    /// The digests of files that were there already, if certain files are expected.
    there: BTreeMap<u64, Digests>,
}

impl Finished {
    /// How many files, from the first on, are in the digest.
    pub(super) fn hashed(&self) -> u64 {
        self.hashed
    }

    /// How many files are in their place.
    pub(super) fn stored(&self) -> u64 {
        self.stored
    }

    /// One more file is in its place.
    pub(super) fn add_stored(&mut self) {
        self.stored += 1;
    }

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

    /// The digests of a file of this number, if they are kept.
    pub(super) fn digests(&self, number: u64) -> Option<&Digests> {
        let listed = self.listed.get(&number).map(|(_, _, digests)| digests);
        listed.or_else(|| self.there.get(&number))
    }

    /// Lists a file of this number that is another name of `to`, if that one is listed.
    pub(super) fn list_link(&mut self, number: u64, to: u64, name: NameId) {
        if let Some((_, bytes, digests)) = self.listed.get(&to) {
            self.listed.insert(number, (name, *bytes, digests.clone()));
        }
    }

    /// Lists a file.
    pub(super) fn list(&mut self, number: u64, name: NameId, (bytes, digests): (u64, Digests)) {
        self.listed.insert(number, (name, bytes, digests));
    }

    /// Adds complete files to the digest, in order.
    pub(super) fn advance(
        &mut self,
        table: &mut FileTable,
        output_name: &OutputName,
        (left_out, checksums): (&mut LeftOut, &mut Checksums),
        reports: &Reports,
        store: &Store,
        atomic: bool,
    ) {
        while let Some(number) = self.hash_next(table, output_name, (left_out, checksums)) {
            self.close_if_over(number, table, (left_out, checksums), reports, store, atomic);
        }
    }

    /// Adds the next file to the digest. Returns its number, if it is complete.
    fn hash_next(
        &mut self,
        table: &mut FileTable,
        output_name: &OutputName,
        (left_out, checksums): (&mut LeftOut, &mut Checksums),
    ) -> Option<u64> {
        let number = self.hashed;
        let known = table.files.get(&number).and_then(|file| file.attributes);
        if let Some(named) = table.withdrawn.get(&number) {
            let known = known.map(|(id, _)| table.names.path(id));
            let name = known.unwrap_or_else(|| named.clone());
            let theirs = output_name.theirs(&name);
            if theirs.is_empty() {
                return None;
            }
            self.transfer.add(number, Kind::Withdrawn, 0, &[0; 32], theirs);
            left_out.add(format!("{}: the sender cannot send it", shown(&name)), false);
            checksums.came(&name);
            table.files.remove(&number);
            self.names.push(NameId::NONE);
            self.hashed += 1;
            return Some(number);
        }
        let file = table.files.get(&number)?;
        let ((id, _), claimed, (length, digest)) = (known?, file.claimed?, file.complete?);
        let name = table.names.path(id);
        if claimed != digest {
            let why = format!("\"{}\" is not what the sender read", shown(&name));
            self.broken.get_or_insert(why);
        }
        self.transfer.add(number, file.kind, length, &digest, output_name.theirs(&name));
        self.names.push(if file.kind == Kind::File { id } else { NameId::ROOT });
        self.hashed += 1;
        Some(number)
    }

    /// Why not everything is in the digest, if there is more than that.
    pub(super) fn missing(&self, table: &FileTable) -> Option<String> {
        let number = self.hashed;
        let beyond = table.files.range(number..).next().is_some();
        if !beyond && table.withdrawn.range(number..).next().is_none() {
            return None;
        }
        if table.withdrawn.contains_key(&number) {
            return Some(format!("file {number} was withdrawn without a name"));
        }
        Some(match table.files.get(&number).map(|file| file.attributes) {
            None => format!("file {number} did not come"),
            Some(None) => format!("file {number} came without a name"),
            Some(Some((id, _))) => format!("\"{}\" is incomplete", shown(&table.names.path(id))),
        })
    }

    /// Forgets a file that is in the digest, and in its place or left out for good. With all or
    /// nothing no file is before all are.
    pub(super) fn close_if_over(
        &mut self,
        number: u64,
        table: &mut FileTable,
        (left_out, checksums): (&mut LeftOut, &mut Checksums),
        reports: &Reports,
        store: &Store,
        atomic: bool,
    ) {
        if atomic || number >= self.hashed {
            return;
        }
        let Some(file) = table.files.get(&number) else { return };
        if file.attributes.is_none() || file.complete.is_none() {
            return;
        }
        let (kind, refused) = (file.kind, file.refused.is_some());
        // Whether a hard link can be is known when all else is in its place.
        if kind == Kind::HardLink || !(refused || file.placed || kind == Kind::Directory) {
            return;
        }
        if refused {
            self.close_refused(number, table, (left_out, checksums), store);
        } else if let Some((id, bytes, digests)) = file.listed() {
            reports.stored(&table.names.path(id), bytes, &digests);
            if reports.lists() || checksums.expects() {
                self.listed.insert(number, (id, bytes, digests));
            }
        }
        table.files.remove(&number);
        table.budget.give_back(FILE_BYTES - OVER_BYTES);
    }

    /// Leaves out a file that cannot have its name, unless it is there already.
    fn close_refused(
        &mut self,
        number: u64,
        table: &mut FileTable,
        (left_out, checksums): (&mut LeftOut, &mut Checksums),
        store: &Store,
    ) {
        let Some(file) = table.files.get_mut(&number) else { return };
        let (Some((id, _)), Some(content)) = (file.attributes, file.complete) else { return };
        let name = table.names.path(id);
        let there = match file.kind {
            _ if file.unexpected => false,
            Kind::Directory | Kind::HardLink => false,
            Kind::SymbolicLink => store.holds_link(&name, content.1),
            _ => store.holds(&name, content),
        };
        let mut why = file.refused.take();
        if checksums.expects() && file.kind.has_content() && !file.unexpected {
            let stored = store.open_named(&name).ok().filter(|_| there);
            let digests = stored.and_then(|stored| checksums.of_file(&stored, content).ok()?);
            match digests {
                None => checksums.came(&name),
                Some(digests) => {
                    let differs = checksums.judge(&name, &digests);
                    file.unexpected = differs.is_some();
                    why = differs.map(String::into_boxed_str).or(why);
                    self.there.insert(number, digests);
                }
            }
        }
        if there && !file.unexpected {
            left_out.add_there();
            return;
        }
        self.forget_name(number);
        if file.kind.has_content() {
            left_out.add_number(number);
        }
        left_out.add(format!("{}: {}", shown(&name), why.unwrap_or_default()), true);
    }

    /// Reports the files that were stored at once, and writes all stored files to the manifest, in
    /// the order in which they were sent.
    pub(super) fn list_all(&self, table: &FileTable, reports: &mut Reports) {
        let FileTable { names, files, .. } = table;
        let last = || files.values().filter_map(Incoming::listed);
        last().for_each(|(id, bytes, digests)| reports.stored(&names.path(id), bytes, &digests));
        if !reports.lists() {
            return;
        }
        for (name, bytes, digests) in self.listed.values().cloned().chain(last()) {
            reports.list(&names.path(name), bytes, &digests);
        }
    }
}
