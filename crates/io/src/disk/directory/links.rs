//! Symbolic and hard links of a tree: made beside the temporaries, and named like files
//! (`docs/protocol.md §8.2`). Nothing is ever written through one.

use std::collections::BTreeMap;

use netblt_proto::content::{Extent, Kind};

use super::DirectoryWriter;
use crate::disk::gate::Gate;
use crate::disk::had::digest_of_link;
use crate::disk::keep::{Disk as _, Ready};
use crate::disk::names::NameId;
use crate::disk::vault::Vault;
use crate::error::Error;

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
        let (Some((id, times)), None) = (file.attributes, &file.refused) else { return Ok(()) };
        let (slot, name) = (file.slot, self.names.path(id));
        if let Err(error) = self.store.link(slot, target, times, &name) {
            file.refused = Some(self.left_out.because(error, self.atomic)?);
            return Ok(());
        }
        if let (Some(keeping), Some((_, digest))) = (&mut self.keeping, file.complete)
            && file.claimed == Some(digest)
        {
            let number = extent.file;
            let ready = Ready { number, slot, id, name, times, digest, is_link: true };
            keeping.complete(ready);
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
        self.hard_links.values().all(|to| {
            let is_file = self.files.get(to).is_some_and(|file| file.kind == Kind::File);
            is_file || self.withdrawn.contains_key(to)
        })
    }

    /// All or nothing: makes the hard links beside the temporaries.
    pub(super) fn link_temporaries(&mut self) -> Result<(), Error> {
        for (number, to) in &self.hard_links {
            let (Some(file), Some(first)) = (self.files.get(number), self.files.get(to)) else {
                continue;
            };
            let Some((id, _)) = file.attributes else { continue };
            self.store.link_temporary(first.slot, file.slot, &self.names.path(id))?;
        }
        Ok(())
    }

    /// Each file has its name, if it can have it: the others get theirs.
    pub(super) fn place_hard_links(&mut self) -> Result<(), Error> {
        for (number, to) in std::mem::take(&mut self.hard_links) {
            let refused = match self.place_hard_link(number, to)? {
                true => continue,
                false => "the file that it is another name of is not here, or there is none such",
            };
            if let Some(file) = self.files.get_mut(&number) {
                file.refused.get_or_insert_with(|| refused.into());
            }
        }
        Ok(())
    }

    fn place_hard_link(&mut self, number: u64, to: u64) -> Result<bool, Error> {
        let known = |file: &super::Incoming| {
            let (id, times) = file.attributes?;
            Some((id, times, file.slot, file.complete?))
        };
        let first = self.files.get(&to).filter(|file| file.kind == Kind::File);
        let Some((first_id, _, _, content)) = first.and_then(known) else { return Ok(false) };
        let Some(own) = self.files.get(&number) else { return Ok(false) };
        let Some((id, times, slot, (_, digest))) = known(own) else { return Ok(false) };
        let (first, name) = (self.names.path(first_id), self.names.path(id));
        if own.refused.is_some() {
            return Ok(self.is_the_same(number, &first, &name));
        }
        // What stands there may be another file: then it is not what was sent.
        let refused = self.files.get(&to).is_some_and(|file| file.refused.is_some());
        if refused && !self.store.holds(&first, content) {
            return Ok(false);
        }
        if self.store.link_named(&first, content.0, slot).is_err() {
            return Ok(false);
        }
        let Some(keeping) = self.keeping.as_deref_mut() else { return Ok(false) };
        let ready = Ready { number, slot, id, name, times, digest, is_link: true };
        let (store, names, placer) = (&mut self.store, &self.names, &mut keeping.placer);
        let mut vault = Vault { store, names, placer, failure: None, gate: Gate::default() };
        let placed = vault.place(&ready);
        if !matches!(placed, Ok(true)) {
            vault.remove(slot);
        }
        placed.map_err(|error| {
            let failure = keeping.placer.take_failure();
            failure.unwrap_or_else(|| self.store.error(&ready.name, "cannot be linked", error))
        })
    }

    /// What was stored, in the order in which it was sent.
    pub(super) fn list_all(&mut self) -> Result<(), Error> {
        let Some(manifest) = &mut self.manifest else { return Ok(()) };
        for (name, digest) in self.files.values().filter_map(listed) {
            manifest.add(&self.names.path(name), &digest)?;
        }
        manifest.finish()
    }

    /// Whether a name that exists is another one of that file already.
    fn is_the_same(&mut self, number: u64, first: &[u8], name: &[u8]) -> bool {
        let same = self.store.are_one(first, name);
        if same && let Some(file) = self.files.get_mut(&number) {
            file.refused = None;
        }
        same
    }
}

/// The name of a file, if it is one whose content a list of names tells.
pub(super) fn listed(file: &super::Incoming) -> Option<(NameId, [u8; 32])> {
    let (id, _) = file.attributes.filter(|_| file.kind.has_content())?;
    Some((id, file.complete?.1))
}
