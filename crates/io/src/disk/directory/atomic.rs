//! All or nothing: everything gets its name at the end and at once, or nothing does
//! (`crate::disk::publish_all`). Until then nothing shows but the place where temporaries are.

use super::{DirectoryWriter, Incoming};
use crate::disk::commit_latch::CommitLatch;
use crate::disk::publish_all::publish;
use crate::disk::publish_journal::{Placed, PublishItem};
use crate::error::{Error, shown};
use crate::options::Overwrite;
use netblt_proto::content::Kind;

use super::commit::SPOILED;

impl DirectoryWriter {
    /// Everything has come and is the sender's: gives all of it its names. Answers how many files
    /// are in place.
    pub(super) fn store_for_good(&mut self, latch: &CommitLatch) -> Result<u64, Error> {
        self.link_temporaries()?;
        let is_file = |file: &Incoming| file.kind != Kind::Directory;
        let files = self.files.values().filter(|file| is_file(file)).count() as u64;
        let coming = self.files.iter().filter(|(_, file)| is_file(file) && !file.placed);
        let content = coming.filter(|(_, file)| file.kind.has_content());
        let content: Vec<(u64, u64)> = content.map(|(at, file)| (*at, file.slot)).collect();
        if self.store.is_kept() {
            // The data before the last commit are on the disk.
            if !self.commit(Some(latch))? {
                return Err(Error::Interrupted);
            }
        } else {
            let slots: Vec<u64> = content.iter().map(|(_, slot)| *slot).collect();
            self.store.flush(&slots, latch)?;
        }
        self.read_back(&content)?;
        let items = self.files.values().filter(|file| !file.placed).filter_map(|file| {
            let (name, times) = file.attributes?;
            let placed = match is_file(file) {
                true => Placed::File { number: file.slot, inode: 0 },
                false => Placed::Directory(times),
            };
            Some(PublishItem { name, placed })
        });
        let items: Vec<PublishItem> = items.collect();
        let numbers = items.iter().filter_map(|item| match item.placed {
            Placed::File { number, .. } => Some(number),
            Placed::Directory(_) => None,
        });
        let numbers: Vec<u64> = numbers.collect();
        publish(&mut self.store, &self.names, items, latch)?;
        self.list_all();
        if self.keep_nothing() && self.store.overwrite == Overwrite::Always {
            // The replaced files have the slots of those that replaced them.
            numbers.into_iter().for_each(|number| self.store.discard(number));
        }
        Ok(files + self.left_out.there)
    }

    /// Reads files again, if that is asked for: numbers, and those of their temporaries.
    fn read_back(&mut self, content: &[(u64, u64)]) -> Result<(), Error> {
        for (number, slot) in content.iter().filter(|_| self.store.reads_back) {
            let known = self.files.get(number).and_then(|f| Some((f.attributes?.0, f.complete?.1)));
            let Some((name, digest)) = known else { continue };
            let read = self.store.open_slot(*slot).ok().and_then(|f| self.store.digest(&f));
            if read != Some(digest) {
                let name = shown(&self.names.path(name));
                // No transfer is to resume from what such a disk holds.
                if self.keep_nothing() {
                    content.iter().for_each(|(_, slot)| self.store.discard(*slot));
                }
                return Err(Error::NotVerified(format!("{name}: {SPOILED}; nothing was kept")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "atomic_tests.rs"]
mod tests;
