//! Packs files into buffer images: the work of the sender's disk thread.
//!
//! Buffers are made strictly in order, by packing the list greedily (`docs/protocol §8`). A file
//! of a buffer or more is cut at multiples of the buffer size, and a smaller one is never cut.
//! Files that still fit go into the same buffer. A file is checked twice: its size is compared with
//! the list when it is opened and again, with its time, after its last byte.

mod open;
mod places;

use std::collections::{HashMap, HashSet};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use netblt_proto::buffer::Buffer;
use netblt_proto::content::{
    Attributes, Extent, FileRange, Kind, TransferDigest, encode_table, encoded_len,
};
use netblt_proto::limits::{DIGEST_BYTES, MAX_HOLES_BYTES, MAX_TABLE_BYTES};
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::End;

use crate::checksums::algorithm::Digests;
use crate::checksums::content_hashes::{ContentHashes, FileHash};
use crate::checksums::expectation::Expectation;
use crate::disk::attributes::FileTimes;
use crate::disk::digest::Subtrees;
use crate::disk::extras::Accounts;
use crate::disk::file_list::{Cursor, FileList, ListEntry};
use crate::disk::have_list::{
    FilePart, HaveList, Node, digest_of_link, identity, part_identity, value_of,
};
use crate::disk::layout::{Layout, broken, entry_bytes};
use crate::disk::manifest::Manifest;
use crate::disk::reading::Reading;
use crate::disk::sparse::{self, MAX_PIECES_BYTES};
use crate::disk::threads::{Fill, Reader};
use crate::error::{Error, Unsendable, Warning, file_error, shown, shown_path};
use crate::name_log::NameLog;
use crate::progress::FilePosition;
use crate::settings::Extras;

use open::{Content, FileChange, OpenFile, StreamReader, changed, read_pieces};

/// Makes buffer images of the entries of a list.
#[derive(Debug)]
pub(crate) struct SourceReader {
    list: FileList,
    layout: Layout,
    /// `rfc998`: bytes only.
    plain: bool,
    stream: Option<StreamReader>,
    manifest: Option<Manifest>,
    /// Computes digests beside BLAKE3.
    hashes: Option<ContentHashes>,
    /// The digests that the files are to have.
    expected: Option<Expectation>,
    /// Read files are reported at the end.
    reports_files: bool,
    /// Gets the name of everything that is sent.
    name_log: Option<NameLog>,
    /// The attributes to send beyond mode and time, and the names of accounts for them.
    extras: Extras,
    accounts: Accounts,
    /// The argument whose directory is open.
    tree: Option<(std::path::PathBuf, OwnedFd)>,
    /// The directory in it that was read in last.
    parent: Option<places::Parent>,
    /// The receiver's HAVE.
    had: Arc<HaveList>,
    progress: ReadProgress,
}

/// How far the reading is; a restart forgets it.
#[derive(Debug, Default)]
struct ReadProgress {
    buffers: u64,
    /// The file that was begun last.
    at: FilePosition,
    cursor: Cursor,
    /// The entry of the next extent, its index, and the offset in it.
    current: Option<Arc<ListEntry>>,
    entry: usize,
    offset: u64,
    open: Option<OpenFile>,
    hasher: blake3::Hasher,
    /// It is a range of a file.
    range: Option<FileRange>,
    /// How much of the entry the receiver has, once that was checked.
    kept: Option<KeptPart>,
    /// The entry's hash, if parts of it are passed over.
    subtrees: Option<Box<Subtrees>>,
    kept_bytes: u64,
    /// The attributes of the entry, when it was opened before there was room for it.
    described: Option<Result<Attributes, Error>>,
    /// The target of a symbolic link that was opened.
    target: Option<Vec<u8>>,
    /// Lengths and digests of files with several names, for the manifest.
    linked: HashMap<u64, (u64, Digests)>,
    /// The digests of the entry beside BLAKE3: those to come, and those that are known.
    hash: Option<FileHash>,
    digests: Option<Digests>,
    /// Bytes of holes in the present buffer.
    holes: u64,
    /// Entries that were taken back.
    withdrawn: HashSet<u64>,
    transfer: TransferDigest,
    bytes: u64,
    end: Option<End>,
}

/// How much of an entry the receiver has.
#[derive(Debug)]
enum KeptPart {
    Nothing,
    /// Found to be the same as here, in a file with these attributes.
    FilePart(Attributes, FilePart),
}

impl SourceReader {
    /// For `sealed`: images with extent tables.
    pub(crate) fn sealed(list: FileList, layout: Layout) -> Result<Self, Error> {
        check_names(&list, layout)?;
        Ok(Self::new(list, layout, false))
    }

    /// For `rfc998`: the bytes of one file or stream, and nothing else.
    pub(crate) fn plain(list: FileList, layout: Layout) -> Result<Self, Error> {
        match list.inner.entries.as_slice() {
            [entry] if entry.kind != Kind::Directory => Ok(Self::new(list, layout, true)),
            _ => Err(Unsendable::Plain.into()),
        }
    }

    fn new(list: FileList, layout: Layout, plain: bool) -> Self {
        let stream = list.inner.take_stream();
        let stream = stream.map(|reader| StreamReader { reader, peeked: None, started: false });
        let progress = ReadProgress::new(Cursor::default(), list.inner.range);
        Self {
            list,
            layout,
            plain,
            stream,
            manifest: None,
            hashes: None,
            expected: None,
            reports_files: false,
            name_log: None,
            extras: Extras::default(),
            accounts: Accounts::default(),
            tree: None,
            parent: None,
            had: Arc::default(),
            progress,
        }
    }

    /// Lists the read files in a manifest, and keeps them to be reported.
    pub(crate) fn listing(mut self, manifest: Option<Manifest>, reports_files: bool) -> Self {
        (self.manifest, self.reports_files) = (manifest, reports_files);
        self
    }

    /// Computes these digests of what is read, too, and compares them.
    pub(crate) fn hashing(
        self,
        hashes: Option<ContentHashes>,
        expected: Option<Expectation>,
    ) -> Self {
        Self { hashes, expected, ..self }
    }

    /// Adds the name of everything that is sent to this log.
    pub(crate) fn naming(self, name_log: Option<NameLog>) -> Self {
        Self { name_log, ..self }
    }

    /// Sends these extra attributes, too.
    pub(crate) fn with_extras(mut self, extras: Extras) -> Self {
        self.extras = extras;
        self
    }

    /// The entry of the next extent.
    fn entry(&mut self) -> Result<Option<Arc<ListEntry>>, Error> {
        if self.progress.current.is_none() {
            let entry = self.progress.cursor.next(&self.list)?;
            entry.iter().try_for_each(|entry| check_name(entry, self.layout, self.plain))?;
            let is_file = |kind| !matches!(kind, Kind::Directory | Kind::Withdrawn);
            if let Some(entry) = entry.as_ref().filter(|entry| is_file(entry.kind)) {
                self.progress.at =
                    FilePosition { file: self.progress.at.file + 1, name: entry.name.to_vec() };
            }
            if let (Some(log), Some(entry)) = (&self.name_log, &entry)
                && entry.kind != Kind::Withdrawn
            {
                log.add(&entry.name);
            }
            self.progress.current = entry.map(Arc::new);
        }
        Ok(self.progress.current.clone())
    }

    /// Puts the next extent at the start of `space`, if it fits behind the data of the buffer.
    fn next_extent(
        &mut self,
        data: usize,
        table: usize,
        space: &mut [u8],
    ) -> Result<Option<(Extent, usize)>, Error> {
        let Some(entry) = self.entry()? else { return Ok(None) };
        let entry = &*entry;
        match entry.kind {
            Kind::HardLink => return self.hard_link(entry, data, table),
            Kind::Withdrawn => return Ok(self.found_unreadable(entry, data, table)),
            _ => {}
        }
        if let Some(kept) = self.keep(entry, data, table)? {
            return Ok(kept.map(|extent| {
                let size = encoded_len(&extent);
                (extent, size)
            }));
        }
        let left = match entry.kind {
            Kind::Stream => u64::MAX,
            _ => entry.length.saturating_sub(self.progress.offset),
        };
        let wish = usize::try_from(left).unwrap_or(usize::MAX).min(self.layout.data_bytes());
        let begun = self.progress.offset > 0 || self.progress.subtrees.is_some();
        let first = (!begun).then_some(entry.name.len());
        let may_end = entry.kind == Kind::Stream || wish as u64 == left;
        let described = first.map_or(0, |_| self.describe(entry));
        let size = entry_bytes(first, may_end) + described;
        if !self.plain && !self.has_room(data + wish, table, size, wish as u64) {
            return Ok(None);
        }
        let Some(space) = space.get_mut(..wish) else { return Ok(None) };
        let (mut extent, last) = match self.read_extent(entry, space, first.is_some(), may_end) {
            Ok(read) => read,
            Err(error) => {
                self.list.withdraw(error)?;
                self.forget_hash()?;
                self.expected.iter_mut().for_each(|expected| expected.came(&entry.name));
                let extent = self.progress.withdraw(entry, begun);
                let size = entry_bytes(first, false);
                return Ok(Some((extent, size)));
            }
        };
        let size = encoded_len(&extent) + if last { DIGEST_BYTES } else { 0 };
        let length = u64::from(extent.length);
        self.progress.bytes += length;
        self.progress.offset += length;
        if last {
            let (bytes, number) = (self.progress.offset, self.progress.entry as u64);
            let digests = self.close(entry)?;
            extent.digest = Some(digests.blake3());
            if entry.kind.has_content() {
                self.list_file(number, &entry.name, bytes, digests);
            }
            if first.is_some() && entry.kind == Kind::File && self.has_small(&extent) {
                self.progress.kept_bytes += length;
                (extent.kind, extent.length, extent.pieces) = (Kind::Kept, 0, None);
            }
        } else if let Some(subtrees) = &self.progress.subtrees {
            self.progress.offset = subtrees.next_missing(self.progress.offset);
        }
        Ok(Some((extent, size)))
    }

    /// Reads the next extent, and whether the entry ends with it, and adds it to the digests.
    fn read_extent(
        &mut self,
        entry: &ListEntry,
        space: &mut [u8],
        first: bool,
        may_end: bool,
    ) -> Result<(Extent, bool), Error> {
        let attributes = first.then(|| self.open(entry)).transpose()?;
        let Content { length, pieces, last } = self.read(entry, space, may_end)?;
        let extent = Extent {
            file: self.progress.entry as u64,
            offset: self.progress.offset,
            length: u32::try_from(length).unwrap_or(u32::MAX),
            kind: entry.kind,
            pieces,
            attributes,
            digest: None,
        };
        let content = space.get(..extent.data_bytes() as usize).unwrap_or_default();
        self.progress.take_in(&extent, content, last)?;
        if entry.kind.has_content() {
            self.hash(entry, &extent, content, last)?;
            if last && self.expected.is_some() {
                let digests = self.progress.digests.take();
                let digests = digests.map_or_else(
                    || self.progress.digest().map(|digest| Digests::of_blake3(&digest)),
                    Ok,
                )?;
                self.judge_digests(&entry.name, &digests)?;
                self.progress.digests = Some(digests);
            }
        }
        Ok((extent, last))
    }

    /// An error if these are not the digests of the file that is expected.
    fn judge_digests(&mut self, name: &[u8], digests: &Digests) -> Result<(), Error> {
        let why = self.expected.as_mut().and_then(|expected| expected.judge(name, digests));
        why.map_or(Ok(()), |why| Err(Error::Unexpected { name: name.to_vec(), why }))
    }

    /// Warns of the names that were expected and are not there, and counts files that were not
    /// expected.
    fn end_of_expected(&self) {
        let Some(expected) = &self.expected else { return };
        for name in expected.missing() {
            let text = format!("{}: {MISSING}", shown(name));
            self.list.note(Warning::LeftOut(text));
        }
        expected.note().into_iter().for_each(|note| self.list.warn(Warning::Note(note)));
    }

    /// Adds an extent to the digests beside BLAKE3. Parts that were passed over because the
    /// receiver has them are read back from the file for that.
    fn hash(
        &mut self,
        entry: &ListEntry,
        extent: &Extent,
        content: &[u8],
        last: bool,
    ) -> Result<(), Error> {
        let Some(hashes) = &mut self.hashes else { return Ok(()) };
        let (length, pieces) = (extent.length as usize, extent.pieces.as_deref());
        if last && extent.offset == 0 {
            let blake3 = self.progress.digest()?;
            let each = |take: &mut dyn FnMut(&[u8]) -> Result<(), Error>| {
                sparse::parts(length, pieces, content, take)
            };
            self.progress.digests = Some(hashes.whole(length, &blake3, each)?);
            return Ok(());
        }
        let checked = self.progress.subtrees.is_some();
        let hash = self.progress.hash.get_or_insert_with(|| hashes.begin(checked));
        let path = || self.list.inner.place(entry).path();
        if let Some(open) = self.progress.open.as_ref().filter(|_| hash.at() < extent.offset) {
            let read = hashes.add_from(hash, &open.file, extent.offset)?;
            read.map_err(|error| file_error(&path(), "cannot be read", error))?;
        }
        sparse::parts(length, pieces, content, |part| hashes.add(hash, part))?;
        if last && let Some(hash) = self.progress.hash.take() {
            let digests = hashes.finish(hash, &self.progress.digest()?)?;
            let digests = digests.ok_or_else(|| changed(&path(), FileChange::Time))?;
            self.progress.digests = Some(digests);
        }
        Ok(())
    }

    /// The entry is withdrawn.
    fn forget_hash(&mut self) -> Result<(), Error> {
        let hash = self.progress.hash.take();
        self.hashes.iter().zip(&hash).try_for_each(|(hashes, hash)| hashes.forget(hash))
    }

    /// The extent for an entry that could not be read when it was found, if it fits into the
    /// buffer.
    fn found_unreadable(
        &mut self,
        entry: &ListEntry,
        data: usize,
        table: usize,
    ) -> Option<(Extent, usize)> {
        let size = entry_bytes(Some(entry.name.len()), false);
        let fits = self.layout.fits(data, table + size);
        fits.then(|| {
            self.expected.iter_mut().for_each(|expected| expected.came(&entry.name));
            (self.progress.withdraw(entry, false), size)
        })
    }

    /// A file was read, or need not be.
    fn list_file(&mut self, number: u64, name: &[u8], bytes: u64, digests: Digests) {
        self.manifest.iter_mut().for_each(|manifest| manifest.add(name, bytes, &digests));
        if self.reports_files {
            self.list.was_read(&Reading { number, name: name.to_vec(), bytes, digests });
        }
    }

    /// Whether an extent of `wish` bytes fits, whatever holes there are in it.
    fn has_room(&self, data: usize, table: usize, size: usize, wish: u64) -> bool {
        let holes = self.progress.holes.saturating_add(wish) <= MAX_HOLES_BYTES;
        let pieces = table + size + MAX_PIECES_BYTES <= MAX_TABLE_BYTES as usize;
        self.layout.fits(data, table + size) && (table == 0 || (holes && pieces))
    }

    /// If the receiver has the entry, or parts of it: the extent that says so, or `None` if that
    /// does not fit into the buffer.
    fn keep(
        &mut self,
        entry: &ListEntry,
        data: usize,
        table: usize,
    ) -> Result<Option<Option<Extent>>, Error> {
        let begun = self.progress.offset > 0 || self.progress.subtrees.is_some();
        if begun || entry.kind != Kind::File || self.plain || self.had.has_no_parts() {
            return Ok(None);
        }
        let kept = match self.progress.kept.take() {
            Some(kept) => kept,
            // An unreadable file is handled when it is to be sent.
            None => self.look(entry).unwrap_or(KeptPart::Nothing),
        };
        let KeptPart::FilePart(attributes, part) = kept else {
            self.progress.kept = Some(KeptPart::Nothing);
            return Ok(None);
        };
        let size = entry_bytes(Some(entry.name.len()), true) + attributes.more.encoded_len();
        if !self.layout.fits(data, table + size) {
            self.progress.kept = Some(KeptPart::FilePart(attributes, part));
            return Ok(Some(None));
        }
        let file = self.progress.entry as u64;
        let mut extent = Extent { attributes: Some(attributes), ..bare(file, Kind::Kept) };
        match part {
            FilePart::Whole(digest) => {
                let digests = self.progress.digests.take();
                let digests = digests.unwrap_or_else(|| Digests::of_blake3(&digest));
                if let Err(error) = self.judge_digests(&entry.name, &digests) {
                    self.list.withdraw(error)?;
                    return Ok(Some(Some(self.progress.withdraw(entry, false))));
                }
                if self.has_other_names() {
                    self.progress.linked.insert(file, (entry.length, digests.clone()));
                }
                self.progress.bytes += entry.length;
                self.progress.kept_bytes += entry.length;
                self.progress.transfer.add(file, Kind::File, entry.length, &digest, &entry.name);
                self.progress.next();
                self.list_file(file, &entry.name, entry.length, digests);
                extent.digest = Some(digest);
            }
            FilePart::Nodes(nodes) => {
                let subtrees = Subtrees::new(self.layout.buffer_bytes());
                let mut subtrees = Box::new(subtrees.of_range(self.progress.range));
                nodes.iter().for_each(|node| _ = subtrees.adopt(node));
                let bytes: u64 = nodes.iter().map(|node| node.bytes).sum();
                self.progress.bytes += bytes;
                self.progress.kept_bytes += bytes;
                self.progress.offset = subtrees.next_missing(0);
                self.progress.subtrees = Some(subtrees);
            }
        }
        Ok(Some(Some(extent)))
    }

    /// Compares the receiver's claim of an entry with the file here, which is read for it.
    fn look(&mut self, entry: &ListEntry) -> Result<KeptPart, Error> {
        let attributes = self.open(entry)?;
        let id = identity(&entry.name, FileTimes::from(&attributes));
        let had = Arc::clone(&self.had);
        let part = had.part(&id).or_else(|| had.part(&part_identity(&entry.name)));
        let Some(part) = part else { return Ok(KeptPart::Nothing) };
        let Some(open) = &self.progress.open else { return Ok(KeptPart::Nothing) };
        let (range, list_allows) = (self.progress.range, self.list.inner.allows_changes);
        let same = match part {
            FilePart::Whole(digest) if let Some(range) = range => {
                value_of(&open.file, &Node::all_of(range, *digest)).is_ok_and(|v| v == *digest)
                    && matches!(open.change(), Ok(None))
            }
            FilePart::Whole(digest) if let Some(hashes) = &mut self.hashes => {
                let mut hash = hashes.begin(true);
                let read = hashes.add_from(&mut hash, &open.file, entry.length)?;
                let digests = hashes.finish(hash, digest)?;
                let same = read.is_ok() && (list_allows || matches!(open.change(), Ok(None)));
                self.progress.digests = digests.filter(|_| same);
                self.progress.digests.is_some()
            }
            FilePart::Whole(digest) => {
                let mut hasher = blake3::Hasher::new();
                hasher.update_reader((&open.file).take(entry.length)).is_ok()
                    && hasher.finalize().as_bytes() == digest
                    && hasher.count() == entry.length
                    && (list_allows || matches!(open.change(), Ok(None)))
            }
            FilePart::Nodes(nodes) => {
                let mut subtrees = Subtrees::new(self.layout.buffer_bytes());
                // The last extent is always sent, and with it the digest.
                nodes.iter().all(|node| {
                    node.offset + node.bytes < entry.length
                        && subtrees.adopt(node)
                        && value_of(&open.file, &node.of_range(range))
                            .is_ok_and(|value| value == node.value)
                })
            }
        };
        Ok(if same { KeptPart::FilePart(attributes, part.clone()) } else { KeptPart::Nothing })
    }

    /// Whether the receiver has a file that came to be one extent.
    fn has_small(&self, extent: &Extent) -> bool {
        match (&extent.attributes, &extent.digest) {
            (Some(attributes), Some(digest)) => {
                self.had.has_small(&identity(&attributes.name, attributes.into()), digest)
            }
            _ => false,
        }
    }

    /// The open entry is read to its end: its digests.
    fn close(&mut self, entry: &ListEntry) -> Result<Digests, Error> {
        let (number, linked) = (self.progress.entry as u64, self.has_other_names());
        let (bytes, digests) = (self.progress.offset, self.progress.digests.take());
        let digest = self.progress.close(entry)?;
        let digests = digests.unwrap_or_else(|| Digests::of_blake3(&digest));
        if linked {
            self.progress.linked.insert(number, (bytes, digests.clone()));
        }
        Ok(digests)
    }

    /// Whether the open file has other names, and a list is to name them.
    fn has_other_names(&self) -> bool {
        let lists = self.manifest.is_some() || self.expected.is_some();
        let open = self.progress.open.as_ref().filter(|_| lists);
        open.is_some_and(|open| open.metadata.nlink() > 1)
    }

    /// The extent for another name of an earlier entry, if that fits into the buffer.
    fn hard_link(
        &mut self,
        entry: &ListEntry,
        data: usize,
        table: usize,
    ) -> Result<Option<(Extent, usize)>, Error> {
        let size = entry_bytes(Some(entry.name.len()), true);
        if !self.layout.fits(data, table + size) {
            return Ok(None);
        }
        if self.progress.withdrawn.contains(&entry.length) {
            let path = self.list.inner.place(entry).path();
            let why = io::Error::other("it is another name of a file that cannot be sent");
            self.list.withdraw(file_error(&path, "cannot be sent", why))?;
            return Ok(Some((self.progress.withdraw(entry, false), size)));
        }
        if let Some((bytes, digests)) = self.progress.linked.get(&entry.length).cloned() {
            if let Err(error) = self.judge_digests(&entry.name, &digests) {
                self.list.withdraw(error)?;
                return Ok(Some((self.progress.withdraw(entry, false), size)));
            }
            self.manifest.iter_mut().for_each(|all| all.add(&entry.name, bytes, &digests));
        }
        let (file, digest) = (self.progress.entry as u64, digest_of_link(entry.length));
        self.progress.transfer.add(file, Kind::HardLink, 0, &digest, &entry.name);
        self.progress.next();
        let attributes = Some(Attributes { name: entry.name.to_vec(), ..Attributes::default() });
        let (offset, digest) = (entry.length, Some(digest));
        Ok(Some((Extent { offset, attributes, digest, ..bare(file, Kind::HardLink) }, size)))
    }

    /// Fills `space` from the open entry.
    fn read(
        &mut self,
        entry: &ListEntry,
        space: &mut [u8],
        may_end: bool,
    ) -> Result<Content, Error> {
        let path = || self.list.inner.place(entry).path();
        let length = space.len();
        if let Some(target) = self.progress.target.take() {
            let whole = target.len() == length;
            return match whole {
                true => {
                    space.copy_from_slice(&target);
                    Ok(Content { length, pieces: None, last: true })
                }
                false => {
                    let (was, now) = (length as u64, target.len() as u64);
                    Err(changed(&path(), FileChange::Length { was, now }))
                }
            };
        }
        if entry.kind == Kind::Stream {
            // It is missing if another reader of the same list took it.
            let Some(stream) = self.stream.as_mut() else { return Err(read_twice()) };
            let read = stream.read(space).map_err(|e| file_error(&path(), "cannot be read", e));
            return read.map(|(length, last)| Content { length, pieces: None, last });
        }
        let mut pieces = None;
        if let Some(open) = &self.progress.open {
            let before = self.progress.range.map_or(0, |range| range.offset);
            let offset = before + self.progress.offset;
            pieces = (open.is_sparse() && !self.plain)
                .then(|| sparse::pieces(&open.file, offset, length))
                .flatten();
            let read = read_pieces(&open.file, space, offset, pieces.as_deref());
            let cannot = |e| file_error(&path(), "cannot be read", e);
            let whole = read.map_err(cannot)?;
            if !whole || may_end {
                let was = self.progress.range.map_or(entry.length, |range| range.total);
                let now = open.metadata.len();
                let longer = (now != was).then_some(FileChange::Length { was, now });
                let found = open.change().map_err(cannot)?.or(longer);
                // It was cut off and has its length again.
                let change = found.or((!whole).then_some(FileChange::Time));
                self.judge(whole, change, &path())?;
            }
        }
        Ok(Content { length, pieces, last: may_end })
    }
}

impl SourceReader {
    /// Whether a changed file is sent all the same: that must be allowed, and it must have as many
    /// bytes as were announced.
    fn judge(&self, whole: bool, change: Option<FileChange>, path: &Path) -> Result<(), Error> {
        let Some(change) = change else { return Ok(()) };
        if !whole || change == FileChange::Endless || !self.list.inner.allows_changes {
            return Err(changed(path, change));
        }
        let path = shown_path(path);
        self.list.warn(Warning::Changing { path, how: change.to_string() });
        Ok(())
    }
}

impl Reader for SourceReader {
    fn at(&mut self) -> FilePosition {
        self.progress.at.clone()
    }

    fn fill(&mut self, number: BufferNumber, buffer: &mut Buffer) -> Result<Fill, Error> {
        if number.0 != self.progress.buffers + 1 || self.progress.end.is_some() {
            return Err(Error::Fault("a buffer was asked for out of order"));
        }
        if buffer.capacity() < self.layout.image_bytes() {
            return Err(Error::Fault("the buffers are smaller than their images"));
        }
        let before = (self.progress.bytes, self.progress.kept_bytes);
        self.progress.holes = 0;
        let (mut data, mut table, mut extents) = (0, 0, Vec::new());
        while let Some(space) = buffer.space().get_mut(data..)
            && let Some((extent, size)) = self.next_extent(data, table, space)?
        {
            data += extent.data_bytes() as usize;
            table += size;
            extents.push(extent);
            if self.plain {
                break;
            }
        }
        let mut len = data;
        if !self.plain {
            let mut tail = Vec::with_capacity(table + 4);
            encode_table(&extents, &mut tail).map_err(broken)?;
            len += tail.len();
            match buffer.space().get_mut(data..len) {
                Some(space) => space.copy_from_slice(&tail),
                None => return Err(Error::Content("a table does not fit into its buffer")),
            }
        }
        buffer.set_len(len);
        self.progress.buffers += 1;
        let last = self.entry()?.is_none();
        if last {
            self.end_of_expected();
            let note = self.manifest.as_ref().and_then(Manifest::note);
            note.into_iter().for_each(|note| self.list.warn(Warning::Note(note)));
            if let Some(warning) = self.manifest.as_mut().and_then(Manifest::finish) {
                self.list.warn_of_manifest(warning);
            }
            self.progress.end = Some(End {
                buffers: self.progress.buffers,
                bytes: self.progress.bytes,
                digest: self.progress.transfer.finish(),
            });
        }
        let (bytes, kept) = (self.progress.bytes - before.0, self.progress.kept_bytes - before.1);
        Ok(Fill { last, bytes, kept })
    }

    fn end(&self) -> Option<End> {
        self.progress.end
    }

    fn restart(&mut self, layout: Layout, had: &Arc<HaveList>) -> Result<(), Error> {
        if self.stream.as_ref().is_some_and(|stream| stream.started) {
            return Err(read_twice());
        }
        if !self.plain {
            check_names(&self.list, layout)?;
        }
        self.forget_hash()?;
        self.expected.iter_mut().for_each(Expectation::restart);
        (self.layout, self.had) = (layout, Arc::clone(had));
        self.progress = ReadProgress::new(self.list.begin(), self.list.inner.range);
        self.manifest.iter_mut().for_each(Manifest::restart);
        self.name_log.iter().for_each(NameLog::restart);
        Ok(())
    }
}

impl ReadProgress {
    fn new(cursor: Cursor, range: Option<FileRange>) -> Self {
        Self { cursor, range, hasher: sparse::hasher(range), ..Self::default() }
    }

    /// The entry cannot be sent: the receiver is to forget it.
    fn withdraw(&mut self, entry: &ListEntry, begun: bool) -> Extent {
        let attributes =
            (!begun).then(|| Attributes { name: entry.name.to_vec(), ..Attributes::default() });
        let file = self.entry as u64;
        self.transfer.add(file, Kind::Withdrawn, 0, &[0; 32], &entry.name);
        self.withdrawn.insert(file);
        self.next();
        Extent { attributes, ..bare(file, Kind::Withdrawn) }
    }

    /// An extent of the open entry was read.
    fn take_in(&mut self, extent: &Extent, content: &[u8], last: bool) -> Result<(), Error> {
        let (length, pieces) = (extent.length as usize, extent.pieces.as_deref());
        match &mut self.subtrees {
            Some(subtrees) => {
                let added = subtrees.add_pieces(extent.offset, length, pieces, content, last);
                added.map_err(Error::Fault)?;
            }
            None => sparse::hash(&mut self.hasher, length, pieces, content),
        }
        self.holes += u64::from(extent.length - extent.data_bytes());
        Ok(())
    }

    /// The open entry is read to its end: its digest, and on to the next.
    fn close(&mut self, entry: &ListEntry) -> Result<[u8; 32], Error> {
        let digest = self.digest()?;
        self.transfer.add(self.entry as u64, entry.kind, self.offset, &digest, &entry.name);
        self.next();
        Ok(digest)
    }

    /// The digest of the open entry, which is read to its end.
    fn digest(&self) -> Result<[u8; 32], Error> {
        match &self.subtrees {
            Some(subtrees) => subtrees.root().ok_or(Error::Fault("a file was not read to its end")),
            None => Ok(sparse::finish(&self.hasher, self.range)),
        }
    }

    fn next(&mut self) {
        self.hasher.reset();
        (self.hash, self.digests) = (None, None);
        self.open = None;
        (self.kept, self.subtrees, self.target) = (None, None, None);
        self.described = None;
        self.offset = 0;
        self.current = None;
        self.entry += 1;
    }
}

/// An extent that has nothing yet.
fn bare(file: u64, kind: Kind) -> Extent {
    Extent { file, offset: 0, length: 0, kind, pieces: None, attributes: None, digest: None }
}

const MISSING: &str = "the list of expected digests has it, and it is not among the files to send";

fn read_twice() -> Error {
    Error::Restarted("the input is a stream and cannot be read twice")
}

/// Whether every name that is known fits into a table.
fn check_names(list: &FileList, layout: Layout) -> Result<(), Error> {
    let longest = list.inner.entries.iter().max_by_key(|entry| entry.name.len());
    longest.map_or(Ok(()), |entry| check_name(entry, layout, false))
}

/// Checks that the name fits into a table beside a full data area, so that packing never stops.
fn check_name(entry: &ListEntry, layout: Layout, plain: bool) -> Result<(), Error> {
    let size = entry_bytes(Some(entry.name.len()), true);
    if plain || layout.fits(layout.data_bytes(), size) {
        return Ok(());
    }
    let (name, room) = (shown(&entry.name), layout.table_bytes());
    Err(Unsendable::LongName { name, room }.into())
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
