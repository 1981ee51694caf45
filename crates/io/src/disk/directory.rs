//! Writes buffer images to files: the work of the receiver's disk thread.
//!
//! Buffers come in any order, from a peer that may be anyone with the ticket. Every image is
//! checked as a whole before a byte of it is written. A contradiction within it, or with the rest
//! of the transfer or the destination, ends the transfer with nothing left behind. Nothing has its
//! final name before everything is complete, hashed, compared and flushed.

mod atomic;
mod commit;
mod finished;
mod links;
mod output_name;
mod ranged;

use std::collections::BTreeMap;
use std::path::Path;

use netblt_proto::buffer::Buffer;
use netblt_proto::content::{Attributes, Extent, ExtraAttributes, Kind, check_name, parse_image};
use netblt_proto::limits::{DEFAULT_MAX_FILES, MAX_FILES};
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::End;
use rustix::io::Errno;

use crate::disk::attributes::FileTimes;
use crate::disk::commit_latch::CommitLatch;
use crate::disk::digest::Subtrees;
use crate::disk::extras;
use crate::disk::layout::{Layout, broken};
use crate::disk::left_out::MAX_NUMBERS;
use crate::disk::manifest::Manifest;
use crate::disk::names::{Budget, NameId, NameRefusal, Names};
use crate::disk::publish_all::settle;
use crate::disk::resume::Form;
use crate::disk::sites::{Beside, TOP, none_in};
use crate::disk::sparse;
use crate::disk::store::{Need, Store, without_promise};
use crate::disk::threads::{StoreOutcome, Writer};
use crate::error::{Error, shown, system_message};
use crate::memory_budget::MemoryShare;
use crate::name_log::NameLog;
use crate::options::{Expected, Extras, OnFile, Overwrite};
use crate::progress::FilePosition;

use commit::CommitPolicy;

/// Stores buffer images beneath a directory.
#[derive(Debug)]
pub(crate) struct DirectoryWriter {
    store: Store,
    /// Remarks about the leftovers of killed processes, for the user.
    notes: Vec<String>,
    layout: Layout,
    names: Names,
    budget: Budget,
    expected: Option<Expected>,
    /// All or nothing.
    atomic: bool,
    files: BTreeMap<u64, Incoming>,
    /// Files that the sender cannot send after all, with their names, unless they came before.
    withdrawn: BTreeMap<u64, Vec<u8>>,
    left_out: LeftOut,
    over: finished::Finished,
    hard_links: links::HardLinks,
    manifest: Option<Manifest>,
    on_file: Option<OnFile>,
    /// Gets the names of all files that come.
    name_log: Option<NameLog>,
    renamed: Option<output_name::OutputName>,
    /// The file that began last.
    at: FilePosition,
    buffers: u64,
    bytes: u64,
    /// The resume state and the given names; none once the transfer has ended.
    policy: Option<Box<CommitPolicy>>,
}

/// Memory of a file beyond its name, and more while it is open: a tree of pieces, and each piece in
/// it.
const FILE_BYTES: u64 = 160;
const LINK_BYTES: u64 = 32;
const UNWRITABLE: &str = "cannot be written to";
const TWICE: &str = "a file begins or ends twice";
const OPEN_BYTES: u64 = 1024;
const PIECE_BYTES: u64 = 64;

/// The state of one file, whichever of its extents have come.
#[derive(Debug)]
struct Incoming {
    kind: Kind,
    /// Parts of it were here, and are not sent again.
    kept: bool,
    /// With its first extent: its name, and its other attributes.
    attributes: Option<(NameId, FileTimes)>,
    /// Why it cannot have its name here, if it cannot.
    refused: Option<Box<str>>,
    /// The requested extra attributes, until they are set.
    more: Option<Box<ExtraAttributes>>,
    /// The sender's digest, with its last extent.
    claimed: Option<[u8; 32]>,
    /// Its length and digest, once it is complete.
    complete: Option<(u64, [u8; 32])>,
    /// It has its name.
    placed: bool,
    /// For a file in several extents, until it is complete.
    subtrees: Option<Box<Subtrees>>,
    /// The file of this number among the temporaries.
    slot: u64,
}

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
            names: Names::default(),
            budget: Budget::new(DEFAULT_MAX_FILES),
            expected: None,
            atomic: true,
            files: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
            left_out: LeftOut::default(),
            over: finished::Finished::default(),
            hard_links: links::HardLinks::new(),
            manifest: None,
            on_file: None,
            name_log: None,
            renamed: None,
            at: FilePosition::default(),
            buffers: 0,
            bytes: 0,
            policy: Some(Box::new(CommitPolicy::new())),
        })
    }

    /// Adds the names of all files that come to this log.
    pub(crate) fn naming(mut self, name_log: Option<NameLog>) -> Self {
        self.name_log = name_log;
        self
    }

    /// Accepts at most so many files and directories.
    pub(crate) fn with_max_files(mut self, files: u64) -> Self {
        self.budget = Budget::new(files);
        self
    }

    /// Takes memory for names from this.
    pub(crate) fn within(mut self, memory: &MemoryShare) -> Self {
        self.budget.take_from(memory.lease());
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
        (self.manifest, self.on_file) = (manifest, on_file);
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
        self.check_range(extent)?;
        let kept = self.files.get(&extent.file).is_some_and(|file| file.kept);
        if extent.file < self.over.hashed {
            // Later extents of a withdrawn file are ignored.
            let taken_back = self.withdrawn.contains_key(&extent.file);
            return if taken_back { Ok(()) } else { Err(Error::Content(TWICE)) };
        }
        let begins = extent.offset == 0 || extent.kind == Kind::HardLink;
        if (first || !kept) && first != begins {
            return Err(Error::Content("a file does not begin at its beginning"));
        }
        if extent.kind == Kind::Directory && !(first && last && extent.length == 0) {
            return Err(Error::Content("a directory has content"));
        }
        if !self.files.contains_key(&extent.file) {
            let files = self.over.hashed.max(self.files.len() as u64);
            self.budget.check_files(files + 1).map_err(too_much)?;
            let link = if extent.kind == Kind::HardLink { LINK_BYTES } else { 0 };
            self.budget.take(FILE_BYTES + link).map_err(too_much)?;
        }
        let kind = if extent.kind == Kind::Kept { Kind::File } else { extent.kind };
        let incoming = self.files.entry(extent.file).or_insert_with(|| Incoming::new(kind));
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
            let added = self.names.add(name, directory, &mut self.budget);
            let id = added.map_err(|refused| match refused {
                NameRefusal::Name(why) => Error::Name { name: shown(name), why },
                refused => too_much(refused),
            })?;
            incoming.attributes = Some((id, attributes.into()));
            self.name_log.iter().for_each(|log| log.add(name));
            if let Some(more) = extras::asked_for(self.store.extras, &attributes.more) {
                self.budget.take(more.encoded_len() as u64).map_err(too_much)?;
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
        let Err(error) = probed.and_then(|()| self.look_beside(extent)) else {
            return Ok(());
        };
        if matches!(error, Error::Exists(_)) && self.may_be_half_made(extent) {
            return Ok(());
        }
        // All or nothing: the renames of a killed process were completed, and this may be one of
        // its files.
        let known = [Kind::Kept, Kind::SymbolicLink, Kind::HardLink].contains(&extent.kind)
            && matches!(error, Error::Exists(_));
        let atomic = self.atomic && !(known && self.store.commits_each);
        let why = self.left_out.because(error, atomic)?;
        if let Some(incoming) = self.files.get_mut(&extent.file) {
            incoming.refused = Some(why);
        }
        Ok(())
    }

    /// Chooses the site of a file's temporary; an error where nothing can be written.
    fn look_beside(&mut self, extent: &Extent) -> Result<(), Error> {
        let known = self.files.get(&extent.file).and_then(|file| file.attributes);
        let Some((name, _)) = known.filter(|_| extent.kind != Kind::Directory) else {
            return Ok(());
        };
        let directory = self.names.parent(name);
        let site = self.beside(directory)?.site.ok_or_else(|| {
            let directory = self.names.path(directory);
            self.store.error(&directory, UNWRITABLE, Errno::ACCESS.into())
        })?;
        if let Some(file) = self.files.get_mut(&extent.file) {
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
            at = self.names.parent(at);
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
        let path = self.names.path(id);
        let made = self.policy.as_ref().is_some_and(|policy| policy.has_made(id, &path));
        let found = if made { None } else { self.store.writable(&path) };
        let site = match found {
            None => return Ok(Beside { exists: false, ..above }),
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
        if self.withdrawn.contains_key(&extent.file) {
            return Err(Error::Content("a file is withdrawn twice"));
        }
        let hashed = extent.file < self.over.hashed;
        if hashed || self.files.get(&extent.file).is_some_and(|file| file.complete.is_some()) {
            return Err(Error::Content("a file is withdrawn after its end"));
        }
        let name = extent.attributes.as_ref().map_or(&[][..], |attributes| &attributes.name);
        if extent.attributes.is_some() {
            check_name(name).map_err(|why| Error::Name { name: shown(name), why })?;
        }
        self.budget.take(FILE_BYTES + name.len() as u64).map_err(too_much)?;
        self.withdrawn.insert(extent.file, name.to_vec());
        Ok(())
    }

    /// Hashes and writes an extent that was admitted.
    fn take(&mut self, extent: &Extent, data: &[u8]) -> Result<(), Error> {
        if self.withdrawn.contains_key(&extent.file) {
            self.discard(extent.file);
            return Ok(());
        }
        match extent.kind {
            Kind::Kept => return self.take_kept(extent),
            Kind::SymbolicLink => return self.take_link(extent, data),
            Kind::HardLink => {
                self.take_hard_link(extent);
                return Ok(());
            }
            Kind::File | Kind::Directory | Kind::Stream | Kind::Withdrawn => {}
        }
        let Some(incoming) = self.files.get_mut(&extent.file) else { return Ok(()) };
        let (refused, slot) = (incoming.refused.is_some(), incoming.slot);
        if let (Some(attributes), Some(_)) = (&extent.attributes, &extent.digest) {
            let digest = sparse::digest(extent, data, self.store.range);
            incoming.complete = Some((extent.length.into(), digest));
            if extent.kind != Kind::Directory && !refused {
                self.take_whole(extent, data, attributes)?;
            }
            return Ok(());
        }
        let mut subtrees = match incoming.subtrees.take() {
            Some(subtrees) => subtrees,
            None => {
                self.budget.take(OPEN_BYTES).map_err(too_much)?;
                let subtrees = Subtrees::new(self.layout.buffer_bytes());
                Box::new(subtrees.of_range(self.store.range))
            }
        };
        self.budget.give_back(PIECE_BYTES * subtrees.pieces() as u64);
        let (length, pieces) = (extent.length as usize, extent.pieces.as_deref());
        let last = extent.digest.is_some();
        let added = subtrees.add_pieces(extent.offset, length, pieces, data, last);
        added.map_err(Error::Content)?;
        self.budget.take(PIECE_BYTES * subtrees.pieces() as u64).map_err(too_much)?;
        let refused = self.write_part(extent, data)?;
        let Some(incoming) = self.files.get_mut(&extent.file) else { return Ok(()) };
        if let Some(policy) = &mut self.policy
            && !refused
        {
            policy.mark_dirty(slot, data.len());
        }
        if let (Some(length), Some(digest)) = (subtrees.length(), subtrees.root())
            && let Some((name, times)) = incoming.attributes
        {
            incoming.complete = Some((length, digest));
            self.budget.give_back(OPEN_BYTES + PIECE_BYTES * subtrees.pieces() as u64);
            if refused {
                return Ok(());
            }
            let more = incoming.more.take();
            self.budget.give_back(more.as_ref().map_or(0, |more| more.encoded_len() as u64));
            self.store.close(slot, times, &self.names.path(name), more.as_deref())?;
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

    /// Writes a part of a file; whether that is refused.
    fn write_part(&mut self, extent: &Extent, data: &[u8]) -> Result<bool, Error> {
        let Some(incoming) = self.files.get(&extent.file) else { return Ok(true) };
        let slot = incoming.slot;
        let name = incoming.attributes.map(|(name, _)| self.names.path(name));
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
        if let Some(incoming) = self.files.get_mut(&number) {
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
        let Some(incoming) = self.files.get_mut(&extent.file) else { return Ok(()) };
        let (slot, more) = (incoming.slot, incoming.more.take());
        self.budget.give_back(more.as_ref().map_or(0, |more| more.encoded_len() as u64));
        let form = self.form(extent, more.is_some());
        if form == Form::Stored
            && let Err(error) = self.store.whole(slot, extent, data, attributes, more.as_deref())
        {
            return self.refuse_too_large(extent.file, error);
        }
        self.completed(extent.file, data.len(), form);
        Ok(())
    }

    /// The transfer's digest, or the difference to the sender's.
    fn verify(&mut self, end: Option<&End>) -> Result<[u8; 32], String> {
        let end = end.ok_or("the sender did not say what it sent")?;
        if self.buffers != end.buffers {
            return Err(format!("{} buffers came of {}", self.buffers, end.buffers));
        }
        self.advance();
        if let Some(missing) = self.missing() {
            return Err(missing);
        }
        let digest = self.over.digest()?;
        if !self.hard_links_lead_to_files() {
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
                let LeftOut { count: skipped, unstored, ref first, .. } = self.left_out;
                let numbers = &self.left_out.numbers;
                let known = unstored > 0 && numbers.len() <= MAX_NUMBERS;
                let absent = known.then(|| numbers.clone());
                let (bytes, left_out) = (self.bytes, first.clone());
                let (kept, mut notes) = self.take_restarted();
                notes.extend(self.store.take_lacks());
                notes.extend(self.manifest.as_ref().and_then(Manifest::note));
                let unwritten = self.manifest.as_mut().and_then(Manifest::finish);
                let reason = String::new();
                StoreOutcome {
                    verified: true,
                    bytes,
                    digest,
                    files,
                    reason,
                    skipped,
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
        self.names = Names::default();
        self.budget.reset();
        self.files.clear();
        self.withdrawn.clear();
        self.hard_links.clear();
        self.store.directories.clear();
        self.store.sites.get_mut().forget_names();
        self.over = finished::Finished::default();
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
        self.rename(&mut extents)?;
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

/// The files that are left out of a transfer that is not all or nothing.
#[derive(Debug, Default)]
struct LeftOut {
    count: u64,
    /// Number of files that were left out here.
    unstored: u64,
    /// Number of files that exist here already, with the same content.
    there: u64,
    /// The numbers of files with content that were left out here, at most one more than a verdict
    /// can name.
    numbers: Vec<u64>,
    /// The first of them, with reasons.
    first: Vec<String>,
}

/// Most that are named.
const NAMED: usize = 100;

impl LeftOut {
    /// Why one file is left out, if an error is about it alone.
    fn because(&self, error: Error, atomic: bool) -> Result<Box<str>, Error> {
        match error {
            Error::Exists(_) if !atomic => Ok("exists there already".into()),
            Error::File { what, source, .. } if !atomic => {
                Ok(format!("{what}: {}", system_message(&source)).into_boxed_str())
            }
            Error::Name { why, .. } if !atomic => Ok(why.into()),
            error => Err(error),
        }
    }

    fn add(&mut self, text: String, here: bool) {
        self.count += 1;
        self.unstored += u64::from(here);
        if self.first.len() < NAMED {
            self.first.push(text);
        }
    }
}

fn too_much(refused: NameRefusal) -> Error {
    match refused {
        NameRefusal::TooMuch { what, most } => Error::TooMuch { what, most },
        NameRefusal::Name(why) => Error::Content(why),
    }
}

impl Incoming {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            kept: false,
            attributes: None,
            more: None,
            refused: None,
            claimed: None,
            complete: None,
            placed: false,
            subtrees: None,
            slot: none_in(TOP),
        }
    }
}

#[cfg(test)]
#[path = "directory_tests.rs"]
pub(crate) mod tests;
