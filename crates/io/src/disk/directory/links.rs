//! Symbolic and hard links of a tree: they are made beside the temporaries, and named like files
//! (`docs/protocol §8.2`). Nothing is ever written through a link.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;

use netblt_proto::content::Extent;
use rustix::io::Errno;

use super::DirectoryWriter;
use crate::disk::commit_latch::CommitLatch;
use crate::disk::fs_backend::FsBackend;
use crate::disk::have_list::digest_of_link;
use crate::disk::resume::{Disk as _, Form, ReadyFile};
use crate::disk::safe_open::{self, errno};
use crate::error::{Error, shown};

/// Which file each hard link is another name of, by their numbers.
pub(super) type HardLinks = BTreeMap<u64, u64>;

impl DirectoryWriter {
    /// A symbolic link has come.
    pub(super) fn take_link(&mut self, extent: &Extent, target: &[u8]) -> Result<(), Error> {
        if target.contains(&0) {
            return Err(Error::Content("a symbolic link leads to a name with a zero byte"));
        }
        let Some(file) = self.files.get_mut(&extent.file) else { return Ok(()) };
        file.complete = Some((target.len() as u64, *blake3::hash(target).as_bytes()));
        let digest = file.complete.map(|(_, digest)| digest);
        if let (true, Some((id, _)), Some(_), Some(digest)) =
            (self.atomic, file.attributes, &file.refused, digest)
        {
            // Unless it is there since all were.
            let name = self.names.path(id);
            file.placed = self.store.holds_link(&name, digest);
            return if file.placed { Ok(()) } else { Err(self.store.exists(&name)) };
        }
        let (Some((id, times)), None) = (file.attributes, &file.refused) else { return Ok(()) };
        let (slot, name, more) = (file.slot, self.names.path(id), file.more.take());
        let named = (&name[..], more.as_deref());
        if let Err(error) = self.store.link(slot, target, times, named) {
            file.refused = Some(self.left_out.because(error, self.atomic)?);
            return Ok(());
        }
        if let (Some(policy), Some((_, digest))) = (&mut self.policy, file.complete)
            && file.claimed == Some(digest)
            && !self.atomic
        {
            let number = extent.file;
            let form = Form::Link;
            let ready = ReadyFile { number, slot, id, name, times, digest, form };
            policy.complete(ready);
        }
        Ok(())
    }

    /// Another name of a file has come; it is given when that file has its own.
    pub(super) fn take_hard_link(&mut self, extent: &Extent) {
        if let Some(file) = self.files.get_mut(&extent.file) {
            file.complete = Some((0, digest_of_link(extent.offset)));
            self.hard_links.insert(extent.file, extent.offset);
        }
    }

    /// Whether every hard link is another name of a file of this transfer.
    pub(super) fn hard_links_lead_to_files(&self) -> bool {
        self.hard_links.iter().all(|(number, to)| {
            let left_out = self.over.is_left_out(*to);
            to < number && (left_out || self.over.name(*to).is_some())
        })
    }

    /// All or nothing: makes the hard links beside the temporaries.
    pub(super) fn link_temporaries(&mut self) -> Result<(), Error> {
        let mut there = Vec::new();
        for (number, to) in std::mem::take(&mut self.hard_links) {
            let Some(file) = self.files.get(&number) else { continue };
            let Some((id, times)) = file.attributes else { continue };
            let name = self.names.path(id);
            match self.files.get(&to) {
                Some(first) => {
                    let place = first.attributes.map(|(id, _)| self.names.path(id));
                    let same = |place: &Vec<u8>| self.store.are_one(place, &name);
                    if first.placed && place.as_ref().is_some_and(same) {
                        // It is there since all were.
                        there.push(number);
                    } else if file.refused.is_some() {
                        return Err(self.store.exists(&name));
                    } else if let (true, Some(place)) = (first.placed, place) {
                        let linked = self.store.link_named(&place, file.slot);
                        linked.map_err(|e| self.store.error(&name, CANNOT_BE_LINKED, e))?;
                    } else {
                        self.store.link_temporary(first.slot, file.slot, &name, times)?;
                    }
                    if let (Some(_), Some((_, digest))) = (&self.manifest, first.complete) {
                        self.over.list(number, id, digest);
                    }
                }
                None => {
                    self.left_out.add(format!("{}: {NOT_HERE}", shown(&name)), true);
                    self.files.remove(&number);
                }
            }
        }
        for number in there {
            self.files.get_mut(&number).into_iter().for_each(|file| file.placed = true);
        }
        Ok(())
    }

    /// Each file has its name, if it can have it: the others get theirs.
    pub(super) fn place_hard_links(&mut self) -> Result<(), Error> {
        for (number, to) in std::mem::take(&mut self.hard_links) {
            let why = self.place_hard_link(number, to)?;
            let Some(file) = self.files.remove(&number) else { continue };
            let Some((id, _)) = file.attributes else { continue };
            if let Some(why) = why {
                self.left_out.add(format!("{}: {why}", shown(&self.names.path(id))), true);
            } else {
                self.over.stored += 1;
                self.over.list_link(number, to, id);
            }
        }
        Ok(())
    }

    /// Why it cannot have its name, if it cannot.
    fn place_hard_link(&mut self, number: u64, to: u64) -> Result<Option<Box<str>>, Error> {
        let not_here = Ok(Some(NOT_HERE.into()));
        let Some(own) = self.files.get(&number) else { return not_here };
        let (Some((id, times)), slot) = (own.attributes, own.slot) else { return not_here };
        let Some(first) = self.over.name(to) else { return not_here };
        let (first, name) = (self.names.path(first), self.names.path(id));
        if let Some(why) = &own.refused {
            return Ok((!self.store.are_one(&first, &name)).then(|| why.clone()));
        }
        match self.store.link_named(&first, slot).map_err(errno) {
            Ok(()) => {}
            // A file system without such links (FAT) has a file for every name. So does a
            // destination on several file systems.
            Err(Errno::PERM | Errno::NOTSUP | Errno::NOSYS | Errno::MLINK | Errno::XDEV) => {
                let from = safe_open::file(self.store.root.as_fd(), &first);
                let copied = from.and_then(|from| self.store.copy_to(from, slot, &name, times));
                copied.map_err(|e| self.store.error(&name, CANNOT_BE_LINKED, e))?;
            }
            Err(_) => return not_here,
        }
        let Some(policy) = self.policy.as_deref_mut() else { return not_here };
        let digest = digest_of_link(to);
        let ready = ReadyFile { number, slot, id, name, times, digest, form: Form::Link };
        let (store, names, publisher) = (&mut self.store, &self.names, &mut policy.publisher);
        let mut backend =
            FsBackend { store, names, publisher, failure: None, latch: CommitLatch::default() };
        let placed = backend.place(&ready, None);
        if !matches!(placed, Ok(None)) {
            backend.remove(slot);
        }
        placed.map_err(|error| {
            let failure = policy.publisher.take_failure();
            failure.unwrap_or_else(|| self.store.error(&ready.name, CANNOT_BE_LINKED, error))
        })
    }
}

const CANNOT_BE_LINKED: &str = "cannot be linked";
const NOT_HERE: &str = "the file that it is another name of is not here";
