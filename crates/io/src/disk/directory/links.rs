//! Hard links of a tree: they are made beside the temporaries, and named like files
//! (`docs/protocol §8.2`). Nothing is ever written through a link.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;

use rustix::io::Errno;

use super::checksums::Checksums;
use super::file_table::FileTable;
use super::finished::Finished;
use super::left_out::LeftOut;
use super::reports::Reports;
use crate::disk::commit_latch::CommitLatch;
use crate::disk::fs_backend::FsBackend;
use crate::disk::have_list::digest_of_link;
use crate::disk::publish_each::FilePublisher;
use crate::disk::resume::{Disk as _, Form, ReadyFile};
use crate::disk::safe_open::{self, errno};
use crate::disk::store::Store;
use crate::error::{Error, shown};

/// Which file each hard link is another name of, by their numbers.
#[derive(Debug, Default)]
pub(super) struct HardLinks(BTreeMap<u64, u64>);

impl HardLinks {
    /// Another name of a file has come; it is given when that file has its own.
    pub(super) fn add(&mut self, number: u64, to: u64, table: &mut FileTable) {
        if let Some(file) = table.files.get_mut(&number) {
            file.complete = Some((0, digest_of_link(to)));
            self.0.insert(number, to);
        }
    }

    /// A transfer starts over.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether every hard link is another name of a file of this transfer.
    pub(super) fn lead_to_files(&self, finished: &Finished) -> bool {
        self.0.iter().all(|(number, to)| {
            let left_out = finished.is_left_out(*to);
            to < number && (left_out || finished.name(*to).is_some())
        })
    }

    /// All or nothing: makes the hard links beside the temporaries.
    pub(super) fn link_temporaries(
        &mut self,
        table: &mut FileTable,
        finished: &mut Finished,
        (left_out, checksums): (&mut LeftOut, &mut Checksums),
        reports: &Reports,
        store: &mut Store,
    ) -> Result<(), Error> {
        let mut there = Vec::new();
        for (number, to) in std::mem::take(&mut self.0) {
            let Some(file) = table.files.get(&number) else { continue };
            let Some((id, times)) = file.attributes else { continue };
            let name = table.names.path(id);
            match table.files.get(&to) {
                Some(first) => {
                    let digests = first.all_digests();
                    if let Some(why) = digests.and_then(|all| checksums.judge(&name, &all)) {
                        return Err(Error::Unexpected { name, why });
                    }
                    let place = first.attributes.map(|(id, _)| table.names.path(id));
                    let same = |place: &Vec<u8>| store.are_one(place, &name);
                    if first.placed && place.as_ref().is_some_and(same) {
                        // It is there since all were.
                        there.push(number);
                    } else if file.refused.is_some() {
                        return Err(store.exists(&name));
                    } else if let (true, Some(place)) = (first.placed, place) {
                        let linked = store.link_named(&place, file.slot);
                        linked.map_err(|e| store.error(&name, CANNOT_BE_LINKED, e))?;
                    } else {
                        store.link_temporary(first.slot, file.slot, &name, times)?;
                    }
                    if let (true, Some((_, bytes, digests))) = (reports.lists(), first.listed()) {
                        finished.list(number, id, (bytes, digests));
                    }
                }
                None => {
                    left_out.add(format!("{}: {NOT_HERE}", shown(&name)), true);
                    table.files.remove(&number);
                }
            }
        }
        for number in there {
            table.files.get_mut(&number).into_iter().for_each(|file| file.placed = true);
        }
        Ok(())
    }

    /// Each file has its name, if it can have it: the others get theirs.
    pub(super) fn place(
        &mut self,
        table: &mut FileTable,
        finished: &mut Finished,
        (left_out, checksums): (&mut LeftOut, &mut Checksums),
        store: &mut Store,
        publisher: &mut FilePublisher,
    ) -> Result<(), Error> {
        for (number, to) in std::mem::take(&mut self.0) {
            let why = match judge(number, to, table, finished, checksums) {
                Some(why) => Some(why.into()),
                None => place_one(number, to, table, finished, store, publisher)?,
            };
            let Some(file) = table.files.remove(&number) else { continue };
            let Some((id, _)) = file.attributes else { continue };
            if let Some(why) = why {
                left_out.add(format!("{}: {why}", shown(&table.names.path(id))), true);
            } else {
                finished.add_stored();
                finished.list_link(number, to, id);
            }
        }
        Ok(())
    }
}

/// Why another name of a file is not the file that was expected, if it is not.
fn judge(
    number: u64,
    to: u64,
    table: &FileTable,
    finished: &Finished,
    checksums: &mut Checksums,
) -> Option<String> {
    let (id, _) = table.files.get(&number)?.attributes?;
    let name = table.names.path(id);
    match finished.digests(to) {
        Some(digests) => checksums.judge(&name, digests),
        None => {
            checksums.came(&name);
            None
        }
    }
}

/// Why it cannot have its name, if it cannot.
fn place_one(
    number: u64,
    to: u64,
    table: &FileTable,
    finished: &Finished,
    store: &mut Store,
    publisher: &mut FilePublisher,
) -> Result<Option<Box<str>>, Error> {
    let not_here = Ok(Some(NOT_HERE.into()));
    let Some(own) = table.files.get(&number) else { return not_here };
    let (Some((id, times)), slot) = (own.attributes, own.slot) else { return not_here };
    let Some(first) = finished.name(to) else { return not_here };
    let (first, name) = (table.names.path(first), table.names.path(id));
    if let Some(why) = &own.refused {
        return Ok((!store.are_one(&first, &name)).then(|| why.clone()));
    }
    match store.link_named(&first, slot).map_err(errno) {
        Ok(()) => {}
        // A file system without such links (FAT) has a file for every name. So does a
        // destination on several file systems.
        Err(Errno::PERM | Errno::NOTSUP | Errno::NOSYS | Errno::MLINK | Errno::XDEV) => {
            let from = safe_open::file(store.root.as_fd(), &first);
            let copied = from.and_then(|from| store.copy_to(from, slot, &name, times));
            copied.map_err(|e| store.error(&name, CANNOT_BE_LINKED, e))?;
        }
        Err(_) => return not_here,
    }
    let digest = digest_of_link(to);
    let ready = ReadyFile { number, slot, id, name, times, digest, form: Form::Link };
    let names = &table.names;
    let mut backend = FsBackend {
        store: &mut *store,
        names,
        publisher: &mut *publisher,
        failure: None,
        latch: CommitLatch::default(),
    };
    let placed = backend.place(&ready, None);
    if !matches!(placed, Ok(None)) {
        backend.remove(slot);
    }
    placed.map_err(|error| {
        let failure = publisher.take_failure();
        failure.unwrap_or_else(|| store.error(&ready.name, CANNOT_BE_LINKED, error))
    })
}

const CANNOT_BE_LINKED: &str = "cannot be linked";
const NOT_HERE: &str = "the file that it is another name of is not here";
