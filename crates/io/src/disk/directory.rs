//! Writes buffer images to files: the work of the receiver's disk thread.
//!
//! Buffers come in any order, from a peer that may be anyone with the ticket. Every image is
//! checked as a whole before a byte of it is written. A contradiction within it, or with the rest
//! of the transfer or the destination, ends the transfer with nothing left behind. Nothing has its
//! final name before everything is complete, hashed, compared and flushed.

mod atomic;
mod checksums;
mod commit;
mod file_table;
mod finished;
mod incoming;
mod left_out;
mod links;
mod output_name;
mod ranged;
mod reports;

use std::ffi::OsStr;
use std::path::Path;

use netblt_proto::buffer::Buffer;
use netblt_proto::content::{Attributes, Extent, FileRange, Kind, check_name, parse_image};
use netblt_proto::limits::MAX_FILES;
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::End;
use rustix::io::Errno;

use crate::checksums::algorithm::HashAlgorithms;
use crate::checksums::content_hashes::ContentHashes;
use crate::checksums::expectation::Expectation;
use crate::disk::commit_latch::CommitLatch;
use crate::disk::digest::Subtrees;
use crate::disk::extras;
use crate::disk::layout::{Layout, broken};
use crate::disk::manifest::Manifest;
use crate::disk::names::{Budget, NameId, NameRefusal};
use crate::disk::publish_all::{publish, settle};
use crate::disk::publish_journal::Placed;
use crate::disk::resume::{Form, ReadyFile};
use crate::disk::sites::{Beside, TOP, none_in};
use crate::disk::sparse;
use crate::disk::store::{Need, Store, without_promise};
use crate::disk::threads::{StoreOutcome, Writer};
use crate::error::{Error, shown};
use crate::memory_budget::MemoryShare;
use crate::name_log::NameLog;
use crate::options::{Expected, OnFile};
use crate::progress::FilePosition;
use crate::settings::{Extras, Overwrite};

use checksums::Checksums;
use commit::{CommitPolicy, SPOILED};
use file_table::{FILE_BYTES, FileTable, too_much};
use finished::Finished;
use incoming::Incoming;
use left_out::LeftOut;
use links::HardLinks;
use output_name::OutputName;
use ranged::check_range;
use reports::Reports;

/// Stores buffer images beneath a directory.
#[derive(Debug)]
pub(crate) struct DirectoryWriter {
    store: Store,
    /// Remarks about the leftovers of killed processes, for the user.
    notes: Vec<String>,
    layout: Layout,
    /// The files that are not finished.
    table: FileTable,
    finished: Finished,
    left_out: LeftOut,
    hard_links: HardLinks,
    expected: Option<Expected>,
    output_name: OutputName,
    reports: Reports,
    checksums: Checksums,
    /// All or nothing.
    atomic: bool,
    /// The file that began last.
    at: FilePosition,
    buffers: u64,
    bytes: u64,
    /// The resume state and the given names; none once the transfer has ended.
    policy: Option<Box<CommitPolicy>>,
}

/// Memory of a file while it is open: a tree of pieces, and each piece in it.
const LINK_BYTES: u64 = 32;
const UNWRITABLE: &str = "cannot be written to";
const UNREADABLE: &str = "cannot be read back for its digests";
const MISSING: &str = "the list of expected digests has it, and it did not come as a file";
const TWICE: &str = "a file begins or ends twice";
const OPEN_BYTES: u64 = 1024;
const PIECE_BYTES: u64 = 64;

impl DirectoryWriter {
    /// Opens the destination, a directory that must exist, and deals with what killed processes
    /// left there. Nothing of this transfer is written yet.
    pub(crate) fn new(
        directory: &Path,
        overwrite: Overwrite,
        layout: Layout,
    ) -> Result<Self, Error> {
        let mut store = Store::open(directory, overwrite, Need::Somewhere)?;
        Ok(Self {
            notes: settle(&mut store),
            store,
            layout,
            table: FileTable::new(),
            finished: Finished::default(),
            left_out: LeftOut::default(),
            hard_links: HardLinks::default(),
            expected: None,
            output_name: OutputName::default(),
            reports: Reports::default(),
            checksums: Checksums::default(),
            atomic: true,
            at: FilePosition::default(),
            buffers: 0,
            bytes: 0,
            policy: Some(Box::new(CommitPolicy::new())),
        })
    }

    /// Adds the names of all files that come to this log.
    pub(crate) fn naming(mut self, name_log: Option<NameLog>) -> Self {
        self.reports.set_name_log(name_log);
        self
    }

    /// Accepts at most so many files and directories.
    pub(crate) fn with_max_files(mut self, files: u64) -> Self {
        self.table.budget = Budget::new(files);
        self
    }

    /// Takes memory for names from this.
    pub(crate) fn within(mut self, memory: &MemoryShare) -> Self {
        self.table.budget.take_from(memory.lease());
        self
    }

    /// Takes nothing but this.
    pub(crate) fn expecting(mut self, expected: Option<Expected>) -> Self {
        self.expected = expected;
        self
    }

    /// Whether permissions are the sender's, whatever this user's mask, and whether times are.
    pub(crate) fn preserving(mut self, preserve: bool, times: bool) -> Self {
        (self.store.preserve, self.store.keep_times) = (preserve, times);
        self
    }

    /// Sets these extra attributes. Access lists include permissions.
    pub(crate) fn with_extras(mut self, extras: Extras) -> Self {
        self.store.extras = extras;
        self.store.preserve |= extras.acls;
        self
    }

    /// Whether files are read again before they get their names.
    pub(crate) fn reading_back(mut self, verify: bool) -> Self {
        self.store.reads_back = verify;
        self
    }

    /// Lists what gets its name.
    pub(crate) fn listing(mut self, manifest: Option<Manifest>, on_file: Option<OnFile>) -> Self {
        self.reports.set_listing(manifest, on_file);
        self
    }

    /// Computes these digests of files, too, and compares them.
    pub(crate) fn hashing(
        mut self,
        hashes: Option<ContentHashes>,
        expected: Option<Expectation>,
    ) -> Self {
        self.checksums = Checksums::new(hashes, expected);
        self
    }

    /// Stores these digests in attributes of files.
    pub(crate) fn storing(mut self, algorithms: HashAlgorithms) -> Self {
        self.checksums.store(algorithms);
        self
    }

    /// Takes one file, under this name.
    pub(crate) fn renaming(mut self, name: Option<&OsStr>) -> Self {
        self.output_name = OutputName::new(name);
        self
    }

    /// Sets the range of the file that lies in the destination.
    pub(crate) fn of_range(mut self, range: Option<FileRange>) -> Self {
        self.store.range = range;
        self
    }

    /// Does what being killed does: all is left as it is, and the lock goes.
    #[cfg(test)]
    pub(crate) fn die(mut self) {
        self.policy = None;
        self.store.leave();
    }

    /// The remarks about leftovers of killed processes, once.
    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Checks an extent before anything of its buffer is written.
    fn admit(&mut self, extent: &Extent) -> Result<(), Error> {
        let (first, last) = (extent.attributes.is_some(), extent.digest.is_some());
        if extent.file >= MAX_FILES {
            return Err(Error::Content("it has too many files"));
        }
        if extent.kind == Kind::Withdrawn {
            return self.admit_withdrawal(extent);
        }
        check_range(self.store.range, extent)?;
        let kept = self.table.files.get(&extent.file).is_some_and(|file| file.kept);
        if extent.file < self.finished.hashed() {
            // Later extents of a withdrawn file are ignored.
            let taken_back = self.table.withdrawn.contains_key(&extent.file);
            return if taken_back { Ok(()) } else { Err(Error::Content(TWICE)) };
        }
        let begins = extent.offset == 0 || extent.kind == Kind::HardLink;
        if (first || !kept) && first != begins {
            return Err(Error::Content("a file does not begin at its beginning"));
        }
        if extent.kind == Kind::Directory && !(first && last && extent.length == 0) {
            return Err(Error::Content("a directory has content"));
        }
        if !self.table.files.contains_key(&extent.file) {
            let files = self.finished.hashed().max(self.table.files.len() as u64);
            self.table.budget.check_files(files + 1).map_err(too_much)?;
            let link = if extent.kind == Kind::HardLink { LINK_BYTES } else { 0 };
            self.table.charge(FILE_BYTES + link)?;
        }
        let kind = if extent.kind == Kind::Kept { Kind::File } else { extent.kind };
        let incoming = self.table.files.entry(extent.file).or_insert_with(|| Incoming::new(kind));
        if incoming.kind != kind {
            return Err(Error::Content("a file is of two kinds"));
        }
        if (first && incoming.attributes.is_some()) || (last && incoming.claimed.is_some()) {
            return Err(Error::Content(TWICE));
        }
        if last {
            incoming.claimed = extent.digest;
        }
        if let Some(attributes) = &extent.attributes {
            let directory = extent.kind == Kind::Directory;
            let name = &attributes.name;
            let refused = |why| Error::Name { name: shown(name), why };
            check_name(name).map_err(refused)?;
            self.expected.iter().try_for_each(|all| all.check(name, directory)).map_err(refused)?;
            let added = self.table.names.add(name, directory, &mut self.table.budget);
            let id = added.map_err(|refused| match refused {
                NameRefusal::Name(why) => Error::Name { name: shown(name), why },
                refused => too_much(refused),
            })?;
            incoming.attributes = Some((id, attributes.into()));
            self.reports.begun(name);
            if let Some(more) = extras::asked_for(self.store.extras, &attributes.more) {
                self.table.budget.take(more.encoded_len() as u64).map_err(too_much)?;
                match directory {
                    true => _ = self.store.directories.insert(id, more),
                    false => incoming.more = Some(more),
                }
            }
            if !directory {
                self.at = FilePosition { file: self.at.file + 1, name: name.clone() };
            }
            self.look_there(extent, name)?;
            self.begin(extent)?;
        }
        Ok(())
    }

    /// Whether a new file may have its name, or is left out.
    fn look_there(&mut self, extent: &Extent, name: &[u8]) -> Result<(), Error> {
        let probed = self.store.probe(name, extent.kind == Kind::Directory);
        let Err(error) = probed.and_then(|()| self.look_beside(extent)) else { return Ok(()) };
        if matches!(error, Error::Exists(_)) && self.may_be_half_made(extent) {
            return Ok(());
        }
        // All or nothing: the renames of a killed process were completed, and this may be one of
        // its files.
        let known = [Kind::Kept, Kind::SymbolicLink, Kind::HardLink].contains(&extent.kind)
            && matches!(error, Error::Exists(_));
        let atomic = self.atomic && !(known && self.store.commits_each);
        let why = self.left_out.because(error, atomic)?;
        if let Some(incoming) = self.table.files.get_mut(&extent.file) {
            incoming.refused = Some(why);
        }
        Ok(())
    }

    /// Chooses the site of a file's temporary; an error where nothing can be written.
    fn look_beside(&mut self, extent: &Extent) -> Result<(), Error> {
        let known = self.table.files.get(&extent.file).and_then(|file| file.attributes);
        let Some((name, _)) = known.filter(|_| extent.kind != Kind::Directory) else {
            return Ok(());
        };
        let directory = self.table.names.parent(name);
        let site = self.beside(directory)?.site.ok_or_else(|| {
            let directory = self.table.names.path(directory);
            self.store.error(&directory, UNWRITABLE, Errno::ACCESS.into())
        })?;
        if let Some(file) = self.table.files.get_mut(&extent.file) {
            file.slot = none_in(site);
        }
        Ok(())
    }

    /// The site of a directory: the last one on the way to it that was there before the transfer.
    fn beside(&mut self, directory: NameId) -> Result<Beside, Error> {
        let (mut at, mut below) = (directory, Vec::new());
        let mut beside = loop {
            if at == NameId::ROOT {
                break Beside { site: self.store.is_writable.then_some(TOP), exists: true };
            }
            if let Some(known) = self.store.sites.get_mut().beside(at) {
                break known;
            }
            below.push(at);
            at = self.table.names.parent(at);
        };
        while let Some(id) = below.pop() {
            beside = match beside.exists {
                true => self.look_at(id, beside)?,
                false => beside,
            };
            self.store.sites.get_mut().set_beside(id, beside);
        }
        Ok(beside)
    }

    /// The site of a directory, if it was there before the transfer. Else it is that of `above`,
    /// because a new directory gets its group and its access lists.
    fn look_at(&mut self, id: NameId, above: Beside) -> Result<Beside, Error> {
        let path = self.table.names.path(id);
        let made = self.policy.as_ref().is_some_and(|policy| policy.has_made(id, &path));
        let found = if made { None } else { self.store.writable(&path) };
        let site = match found {
            None => {
                return Ok(Beside { exists: false, ..above });
            }
            Some(false) => None,
            Some(true) => {
                let number = self.store.sites.get_mut().number(&path);
                Some(number.map_err(|e| self.store.error(&path, UNWRITABLE, e))?)
            }
        };
        Ok(Beside { site, exists: true })
    }

    /// The sender withdraws a file. Its data so far and later are not kept.
    fn admit_withdrawal(&mut self, extent: &Extent) -> Result<(), Error> {
        if self.table.withdrawn.contains_key(&extent.file) {
            return Err(Error::Content("a file is withdrawn twice"));
        }
        let hashed = extent.file < self.finished.hashed();
        if hashed || self.table.files.get(&extent.file).is_some_and(|file| file.complete.is_some())
        {
            return Err(Error::Content("a file is withdrawn after its end"));
        }
        let name = extent.attributes.as_ref().map_or(&[][..], |attributes| &attributes.name);
        if extent.attributes.is_some() {
            check_name(name).map_err(|why| Error::Name { name: shown(name), why })?;
        }
        self.table.charge(FILE_BYTES + name.len() as u64)?;
        self.table.withdrawn.insert(extent.file, name.to_vec());
        Ok(())
    }

    /// Hashes and writes an extent that was admitted.
    fn take(&mut self, extent: &Extent, data: &[u8]) -> Result<(), Error> {
        if self.table.withdrawn.contains_key(&extent.file) {
            self.discard(extent.file);
            return Ok(());
        }
        match extent.kind {
            Kind::Kept => return self.take_kept(extent),
            Kind::SymbolicLink => return self.take_link(extent, data),
            Kind::HardLink => {
                self.hard_links.add(extent.file, extent.offset, &mut self.table);
                return Ok(());
            }
            Kind::File | Kind::Directory | Kind::Stream | Kind::Withdrawn => {}
        }
        let Some(incoming) = self.table.files.get_mut(&extent.file) else { return Ok(()) };
        let slot = incoming.slot;
        if let (Some(attributes), Some(_)) = (&extent.attributes, &extent.digest) {
            return self.take_alone(extent, data, attributes);
        }
        let mut subtrees = match incoming.subtrees.take() {
            Some(subtrees) => subtrees,
            None => {
                self.table.charge(OPEN_BYTES + self.checksums.open_bytes())?;
                let subtrees = Subtrees::new(self.layout.buffer_bytes());
                Box::new(subtrees.of_range(self.store.range))
            }
        };
        self.table.budget.give_back(PIECE_BYTES * subtrees.pieces() as u64);
        let (length, pieces) = (extent.length as usize, extent.pieces.as_deref());
        let last = extent.digest.is_some();
        let added = subtrees.add_pieces(extent.offset, length, pieces, data, last);
        added.map_err(Error::Content)?;
        self.table.charge(PIECE_BYTES * subtrees.pieces() as u64)?;
        let refused = self.write_part(extent, data)?;
        if !refused {
            self.hash_part(extent, data, &subtrees)?;
        }
        let Some(incoming) = self.table.files.get_mut(&extent.file) else { return Ok(()) };
        if let Some(policy) = &mut self.policy
            && !refused
        {
            policy.mark_dirty(slot, data.len());
        }
        if let (Some(length), Some(digest)) = (subtrees.length(), subtrees.root())
            && let Some((name, times)) = incoming.attributes
        {
            incoming.complete = Some((length, digest));
            let open_bytes = OPEN_BYTES + self.checksums.open_bytes();
            self.table.budget.give_back(open_bytes + PIECE_BYTES * subtrees.pieces() as u64);
            if refused || !self.is_expected(extent.file)? {
                return Ok(());
            }
            let Some(incoming) = self.table.files.get_mut(&extent.file) else { return Ok(()) };
            let more = incoming.more.take();
            self.table.budget.give_back(more.as_ref().map_or(0, |more| more.encoded_len() as u64));
            self.store.close(slot, times, &self.table.names.path(name), more.as_deref())?;
            self.completed(extent.file, 0, Form::Stored);
            return Ok(());
        }
        incoming.subtrees = Some(subtrees);
        // A stream cannot be passed over.
        if let Some(policy) = &mut self.policy
            && extent.kind == Kind::File
        {
            policy.opened(extent.file);
        }
        Ok(())
    }

    /// An extent that is all of its file was admitted.
    fn take_alone(
        &mut self,
        extent: &Extent,
        data: &[u8],
        attributes: &Attributes,
    ) -> Result<(), Error> {
        let Some(incoming) = self.table.files.get_mut(&extent.file) else { return Ok(()) };
        let digest = sparse::digest(extent, data, self.store.range);
        incoming.complete = Some((extent.length.into(), digest));
        if extent.kind == Kind::Directory || incoming.refused.is_some() {
            return Ok(());
        }
        self.checksums.whole(incoming, extent, data)?;
        match self.is_expected(extent.file)? {
            true => self.take_whole(extent, data, attributes),
            false => Ok(()),
        }
    }

    /// Adds a part of a file, which is written, to its digests beside BLAKE3.
    fn hash_part(
        &mut self,
        extent: &Extent,
        data: &[u8],
        subtrees: &Subtrees,
    ) -> Result<(), Error> {
        let Some(incoming) = self.table.files.get_mut(&extent.file) else { return Ok(()) };
        let (slot, store) = (incoming.slot, &self.store);
        let name = incoming.attributes.map(|(name, _)| self.table.names.path(name));
        let stored = || store.open_slot(slot);
        let read = self.checksums.part(incoming, extent, data, subtrees, stored)?;
        read.map_err(|e| self.store.error(&name.unwrap_or_default(), UNREADABLE, e))
    }

    /// Whether a complete file is one that may be stored. Otherwise its data are dropped.
    fn is_expected(&mut self, number: u64) -> Result<bool, Error> {
        let Some(file) = self.table.files.get(&number).filter(|_| self.checksums.expects()) else {
            return Ok(true);
        };
        let (Some((id, _)), Some(digests)) = (file.attributes, file.all_digests()) else {
            return Ok(true);
        };
        let name = self.table.names.path(id);
        let Some(why) = self.checksums.judge(&name, &digests) else { return Ok(true) };
        self.discard(number);
        if self.atomic {
            return Err(Error::Unexpected { name, why });
        }
        if let Some(file) = self.table.files.get_mut(&number) {
            (file.refused, file.unexpected) = (Some(why.into()), true);
        }
        Ok(false)
    }

    /// Everything has its name: the files that were expected and did not come.
    fn name_missing(&mut self) {
        for name in self.checksums.missing() {
            self.left_out.add(format!("{}: {MISSING}", shown(name)), false);
        }
    }

    /// Writes a part of a file; whether that is refused.
    fn write_part(&mut self, extent: &Extent, data: &[u8]) -> Result<bool, Error> {
        let Some(incoming) = self.table.files.get(&extent.file) else { return Ok(true) };
        let slot = incoming.slot;
        let name = incoming.attributes.map(|(name, _)| self.table.names.path(name));
        // It is not known yet whether a file that begins later is refused.
        if incoming.refused.is_some() {
            self.store.discard(slot);
            return Ok(true);
        }
        match self.store.write_at(slot, extent.into(), data, name.as_deref()) {
            Ok(()) => Ok(false),
            Err(error) => self.refuse_too_large(extent.file, error).map(|()| true),
        }
    }

    /// Leaves out a file that is larger than the file system can store. Other errors end the
    /// transfer.
    fn refuse_too_large(&mut self, number: u64, error: Error) -> Result<(), Error> {
        let is_large = matches!(&error, Error::File { source, .. }
            if Errno::from_io_error(source) == Some(Errno::FBIG));
        if !is_large {
            return Err(error);
        }
        let why = self.left_out.because(without_promise(error), self.atomic)?;
        self.discard(number);
        if let Some(incoming) = self.table.files.get_mut(&number) {
            incoming.refused = Some(why);
        }
        Ok(())
    }

    /// A file has come as a whole.
    fn take_whole(
        &mut self,
        extent: &Extent,
        data: &[u8],
        attributes: &Attributes,
    ) -> Result<(), Error> {
        let Some(incoming) = self.table.files.get_mut(&extent.file) else { return Ok(()) };
        let (slot, more) = (incoming.slot, incoming.more.take());
        self.table.budget.give_back(more.as_ref().map_or(0, |more| more.encoded_len() as u64));
        let form = self.form(extent, more.is_some());
        if form == Form::Stored
            && let Err(error) = self.store.whole(slot, extent, data, attributes, more.as_deref())
        {
            return self.refuse_too_large(extent.file, error);
        }
        self.completed(extent.file, data.len(), form);
        Ok(())
    }

    /// A symbolic link has come.
    fn take_link(&mut self, extent: &Extent, target: &[u8]) -> Result<(), Error> {
        if target.contains(&0) {
            return Err(Error::Content("a symbolic link leads to a name with a zero byte"));
        }
        let Some(file) = self.table.files.get_mut(&extent.file) else { return Ok(()) };
        file.complete = Some((target.len() as u64, *blake3::hash(target).as_bytes()));
        let digest = file.complete.map(|(_, digest)| digest);
        if let (true, Some((id, _)), Some(_), Some(digest)) =
            (self.atomic, file.attributes, &file.refused, digest)
        {
            // Unless it is there since all were.
            let name = self.table.names.path(id);
            file.placed = self.store.holds_link(&name, digest);
            return if file.placed { Ok(()) } else { Err(self.store.exists(&name)) };
        }
        let (Some((id, times)), None) = (file.attributes, &file.refused) else { return Ok(()) };
        let (slot, name, more) = (file.slot, self.table.names.path(id), file.more.take());
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

    /// Adds complete files to the digest, in order.
    fn advance(&mut self) {
        let (table, left_out, reports) = (&mut self.table, &mut self.left_out, &self.reports);
        let (names, store) = (&self.output_name, &self.store);
        let checksums = &mut self.checksums;
        self.finished.advance(table, names, (left_out, checksums), reports, store, self.atomic);
    }

    /// Forgets a file that is in the digest, and in its place or left out for good.
    fn close_if_over(&mut self, number: u64) {
        let (table, left_out, reports) = (&mut self.table, &mut self.left_out, &self.reports);
        let (left_out, store) = ((left_out, &mut self.checksums), &self.store);
        self.finished.close_if_over(number, table, left_out, reports, store, self.atomic);
    }

    /// A file is in its place.
    fn placed(&mut self, number: u64) {
        if let Some(file) = self.table.files.get_mut(&number) {
            file.placed = true;
            self.finished.add_stored();
        }
        self.close_if_over(number);
    }

    /// Everything has come and is the sender's: gives all of it its names at once. Answers how many
    /// files are in place.
    fn store_for_good(&mut self, latch: &CommitLatch) -> Result<u64, Error> {
        let (finished, left_out) = (&mut self.finished, &mut self.left_out);
        let (table, reports, store) = (&mut self.table, &self.reports, &mut self.store);
        let checksums = &mut self.checksums;
        let left_out = (left_out, checksums);
        self.hard_links.link_temporaries(table, finished, left_out, reports, store)?;
        let files = atomic::count_files(&self.table);
        let content = atomic::content_to_place(&self.table);
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
        let items = atomic::items_to_place(&self.table);
        let numbers = items.iter().filter_map(|item| match item.placed {
            Placed::File { number, .. } => Some(number),
            Placed::Directory(_) => None,
        });
        let numbers: Vec<u64> = numbers.collect();
        publish(&mut self.store, &self.table.names, items, latch)?;
        self.finished.list_all(&self.table, &mut self.reports);
        if self.keep_nothing() && self.store.overwrite == Overwrite::Always {
            // The replaced files have the slots of those that replaced them.
            numbers.into_iter().for_each(|number| self.store.discard(number));
        }
        Ok(files + self.left_out.there())
    }

    /// Reads files again, if that is asked for: numbers, and those of their temporaries.
    fn read_back(&mut self, content: &[(u64, u64)]) -> Result<(), Error> {
        if !self.store.reads_back {
            return Ok(());
        }
        let Some(name) = atomic::first_spoiled(content, &self.table, &self.store) else {
            return Ok(());
        };
        // No transfer is to resume from what such a disk holds.
        if self.keep_nothing() {
            content.iter().for_each(|(_, slot)| self.store.discard(*slot));
        }
        Err(Error::NotVerified(format!("{}: {SPOILED}; nothing was kept", shown(&name))))
    }

    /// The transfer's digest, or the difference to the sender's.
    fn verify(&mut self, end: Option<&End>) -> Result<[u8; 32], String> {
        let end = end.ok_or("the sender did not say what it sent")?;
        if self.buffers != end.buffers {
            return Err(format!("{} buffers came of {}", self.buffers, end.buffers));
        }
        self.advance();
        if let Some(missing) = self.finished.missing(&self.table) {
            return Err(missing);
        }
        let digest = self.finished.digest()?;
        if !self.hard_links.lead_to_files(&self.finished) {
            return Err("a hard link is another name of something that is no file".to_owned());
        }
        if self.bytes != end.bytes || digest != end.digest {
            return Err("what came is not all that the sender sent".to_owned());
        }
        Ok(digest)
    }
}

impl Writer for DirectoryWriter {
    fn at(&self) -> FilePosition {
        self.at.clone()
    }

    fn accept(
        &mut self,
        number: BufferNumber,
        buffer: Buffer,
        free: &mut Vec<Buffer>,
    ) -> Result<u64, Error> {
        let before = self.bytes;
        let stored = self.accept_or_hold(number.0, buffer, free);
        let stored = stored.and_then(|()| self.accept_held(free));
        if let Err(error) = stored.and_then(|()| self.commit_if_due()) {
            self.note_failure(&error);
            return Err(error);
        }
        Ok(self.bytes - before)
    }

    fn finish(&mut self, end: Option<&End>, latch: &CommitLatch) -> Result<StoreOutcome, Error> {
        let outcome = match self.verify(end) {
            Ok(digest) => {
                let files = match self.atomic {
                    false => self.conclude(latch)?,
                    true => self.store_for_good(latch)?,
                };
                let unset = self.store.take_unset();
                unset.into_iter().for_each(|text| self.left_out.add(text, false));
                self.name_missing();
                let (skipped, unstored) = self.left_out.counts();
                let absent = self.left_out.absent();
                let (bytes, left_out) = (self.bytes, self.left_out.first().to_vec());
                let (kept, mut notes) = self.take_restarted();
                notes.extend(self.store.take_lacks());
                notes.extend(self.reports.note());
                notes.extend(self.checksums.note());
                let unwritten = self.reports.finish();
                let reason = String::new();
                StoreOutcome {
                    verified: true,
                    bytes,
                    digest,
                    files,
                    reason,
                    skipped,
                    unexpected: self.checksums.unexpected(),
                    unstored,
                    absent,
                    left_out,
                    kept,
                    notes,
                    unwritten,
                }
            }
            Err(reason) => StoreOutcome { reason, ..StoreOutcome::default() },
        };
        self.store.clear();
        Ok(outcome)
    }

    fn restart(&mut self, layout: Layout, free: &mut Vec<Buffer>) -> Result<(), Error> {
        self.keep_and_reopen(free)?;
        self.store.clear();
        self.layout = layout;
        let mut files = self.table.files.values_mut();
        files.try_for_each(|file| self.checksums.forget(file))?;
        self.checksums.restart();
        self.table.clear();
        self.hard_links.clear();
        self.store.directories.clear();
        self.store.sites.get_mut().forget_names();
        self.finished = Finished::default();
        self.left_out = LeftOut::default();
        self.at = FilePosition::default();
        (self.buffers, self.bytes) = (0, 0);
        Ok(())
    }

    fn had(&mut self) -> Vec<u8> {
        self.kept_so_far()
    }

    fn kept_bytes(&self) -> u64 {
        self.policy.as_ref().map_or(0, |policy| policy.kept_bytes())
    }

    fn resumed_bytes(&self) -> u64 {
        self.policy.as_ref().map_or(0, |policy| policy.kept)
    }
}

impl DirectoryWriter {
    /// Stores an image whose files have all begun.
    fn accept_now(&mut self, buffer: Buffer, free: &mut Vec<Buffer>) -> Result<(), Error> {
        let image = parse_image(buffer.filled(), self.layout.buffer_bytes());
        let (mut data, mut extents) = image.map_err(broken)?;
        self.output_name.rename(&mut extents)?;
        for extent in &extents {
            self.admit(extent)?;
        }
        self.store.record_sites()?;
        for extent in &extents {
            let Some((own, rest)) = data.split_at_checked(extent.data_bytes() as usize) else {
                return Err(Error::Content("a buffer has less data than its table says"));
            };
            self.take(extent, own)?;
            self.bytes += u64::from(extent.length);
            data = rest;
        }
        self.buffers += 1;
        self.advance();
        free.push(buffer);
        Ok(())
    }
}

#[cfg(test)]
#[path = "directory_tests.rs"]
pub(crate) mod tests;
