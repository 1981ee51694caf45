//! From files to buffer images: what the sender's disk thread does.
//!
//! Buffers are made strictly in order, by packing the list greedily (`docs/protocol.md §8`): a
//! file of a buffer or more is cut at multiples of the buffer size, a smaller one is never cut,
//! and whatever still fits goes into the same buffer. Nothing of a file is believed twice: its
//! size is compared with the list when it is opened and again, with its time, after its last byte.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use netblt_proto::buffer::Buffer;
use netblt_proto::content::{Attributes, Extent, Kind, TransferDigest, encode_table};
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::End;

use crate::disk::attributes::FileTimes;
use crate::disk::beneath;
use crate::disk::digest::Subtrees;
use crate::disk::file_list::{Entry, FileList, Place};
use crate::disk::had::{Had, Part, identity, value_of};
use crate::disk::layout::{Layout, broken, entry_bytes};
use crate::disk::manifest::Manifest;
use crate::disk::threads::{Fill, Reader};
use crate::error::{Error, Unsendable, file_error, shown};
use crate::progress::At;

/// Permissions under which a stream arrives.
const STREAM_MODE: u32 = 0o644;

/// Makes buffer images of what a list names.
#[derive(Debug)]
pub(crate) struct SourceReader {
    list: FileList,
    layout: Layout,
    /// `rfc998`: bytes only.
    plain: bool,
    stream: Option<Stream>,
    manifest: Option<Manifest>,
    /// The argument whose directory is open.
    tree: Option<(std::path::PathBuf, OwnedFd)>,
    /// What the receiver has already.
    had: Arc<Had>,
    progress: Progress,
}

/// How far the reading is; a restart forgets it.
#[derive(Debug, Default)]
struct Progress {
    buffers: u64,
    /// Files among the entries that were counted.
    files: u64,
    counted: usize,
    /// Index of the entry from which the next extent comes, and where in it.
    entry: usize,
    offset: u64,
    open: Option<OpenFile>,
    hasher: blake3::Hasher,
    /// What the receiver has of the entry, once that was looked at.
    kept: Option<Kept>,
    /// The entry's hash, if parts of it are passed over.
    subtrees: Option<Box<Subtrees>>,
    kept_bytes: u64,
    transfer: TransferDigest,
    bytes: u64,
    end: Option<End>,
}

/// How much of an entry the receiver has.
#[derive(Debug)]
enum Kept {
    Nothing,
    /// Found to be the same as here, in a file with these attributes.
    Part(Attributes, Part),
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    metadata: Metadata,
}

struct Stream {
    reader: Box<dyn Read + Send>,
    /// One byte read ahead, to know whether the buffer before it is the last.
    peeked: Option<u8>,
    started: bool,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream {{ started: {} }}", self.started)
    }
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
        let stream = stream.map(|reader| Stream { reader, peeked: None, started: false });
        let progress = Progress::default();
        Self {
            list,
            layout,
            plain,
            stream,
            manifest: None,
            tree: None,
            had: Arc::default(),
            progress,
        }
    }

    /// Lists what is read here.
    pub(crate) fn listing(mut self, manifest: Option<Manifest>) -> Self {
        self.manifest = manifest;
        self
    }

    /// Puts the next extent at the start of `space`, if it fits behind what the buffer has.
    fn next_extent(
        &mut self,
        data: usize,
        table: usize,
        space: &mut [u8],
    ) -> Result<Option<(Extent, usize)>, Error> {
        let list = self.list.clone();
        let Some(entry) = list.inner.entries.get(self.progress.entry) else { return Ok(None) };
        if let Some(kept) = self.keep(entry, data, table)? {
            return Ok(kept.map(|extent| (extent, entry_bytes(Some(entry.name.len()), true))));
        }
        let left = match entry.kind {
            Kind::Stream => u64::MAX,
            _ => entry.length.saturating_sub(self.progress.offset),
        };
        let wish = usize::try_from(left).unwrap_or(usize::MAX).min(self.layout.data_bytes());
        let begun = self.progress.offset > 0 || self.progress.subtrees.is_some();
        let first = (!begun).then_some(entry.name.len());
        let may_end = entry.kind == Kind::Stream || wish as u64 == left;
        let size = entry_bytes(first, may_end);
        if !self.plain && !self.layout.fits(data + wish, table + size) {
            return Ok(None);
        }
        let Some(space) = space.get_mut(..wish) else { return Ok(None) };
        let read = first.map(|_| self.open(entry)).transpose().and_then(|attributes| {
            let (length, last) = self.read(entry, space, may_end)?;
            Ok((attributes, length, last))
        });
        let (attributes, length, last) = match read {
            Ok(read) => read,
            Err(error) => {
                list.withdraw(error)?;
                let extent = self.progress.withdraw(entry, begun);
                let size = entry_bytes(first, false);
                return Ok(Some((extent, size)));
            }
        };
        let content = space.get(..length).unwrap_or_default();
        let offset = self.progress.offset;
        match &mut self.progress.subtrees {
            Some(subtrees) => subtrees.add(offset, content, last).map_err(Error::Fault)?,
            None => _ = self.progress.hasher.update(content),
        }
        let mut extent = Extent {
            file: self.progress.entry as u64,
            offset: self.progress.offset,
            length: u32::try_from(length).unwrap_or(u32::MAX),
            kind: entry.kind,
            attributes,
            digest: None,
        };
        self.progress.bytes += length as u64;
        self.progress.offset += length as u64;
        if last {
            let digest = self.progress.close(entry)?;
            if let Some(manifest) = self.manifest.as_mut().filter(|_| entry.kind != Kind::Directory)
            {
                manifest.add(&entry.name, &digest)?;
            }
            extent.digest = Some(digest);
            if first.is_some() && entry.kind == Kind::File && self.has_small(&extent) {
                self.progress.kept_bytes += length as u64;
                extent.kind = Kind::Kept;
                extent.length = 0;
            }
        } else if let Some(subtrees) = &self.progress.subtrees {
            self.progress.offset = subtrees.next_missing(self.progress.offset);
        }
        Ok(Some((extent, size)))
    }

    /// If the receiver has the entry at hand, or parts of it: the extent that says so, or nothing
    /// if that does not fit behind what the buffer has.
    fn keep(
        &mut self,
        entry: &Entry,
        data: usize,
        table: usize,
    ) -> Result<Option<Option<Extent>>, Error> {
        let begun = self.progress.offset > 0 || self.progress.subtrees.is_some();
        if begun || entry.kind != Kind::File || self.plain || self.had.has_no_parts() {
            return Ok(None);
        }
        let kept = match self.progress.kept.take() {
            Some(kept) => kept,
            // What cannot be read is dealt with when it is to be sent.
            None => self.look(entry).unwrap_or(Kept::Nothing),
        };
        let Kept::Part(attributes, part) = kept else {
            self.progress.kept = Some(Kept::Nothing);
            return Ok(None);
        };
        if !self.layout.fits(data, table + entry_bytes(Some(entry.name.len()), true)) {
            self.progress.kept = Some(Kept::Part(attributes, part));
            return Ok(Some(None));
        }
        let (file, kind) = (self.progress.entry as u64, Kind::Kept);
        let mut extent =
            Extent { file, offset: 0, length: 0, kind, attributes: Some(attributes), digest: None };
        match part {
            Part::Whole(digest) => {
                self.progress.bytes += entry.length;
                self.progress.kept_bytes += entry.length;
                self.progress.transfer.add(file, Kind::File, entry.length, &digest, &entry.name);
                self.progress.next();
                if let Some(manifest) = &mut self.manifest {
                    manifest.add(&entry.name, &digest)?;
                }
                extent.digest = Some(digest);
            }
            Part::Nodes(nodes) => {
                let mut subtrees = Box::new(Subtrees::new(self.layout.buffer_bytes()));
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

    /// Compares what the receiver says it has of an entry with the file here, which is read for it.
    fn look(&mut self, entry: &Entry) -> Result<Kept, Error> {
        let attributes = self.open(entry)?;
        let id = identity(&entry.name, FileTimes::from(&attributes));
        let had = Arc::clone(&self.had);
        let Some(part) = had.part(&id) else { return Ok(Kept::Nothing) };
        let Some(open) = &self.progress.open else { return Ok(Kept::Nothing) };
        let same = match part {
            Part::Whole(digest) => {
                let mut hasher = blake3::Hasher::new();
                hasher.update_reader(&open.file).is_ok()
                    && hasher.finalize().as_bytes() == digest
                    && hasher.count() == entry.length
                    && open.is_as_it_was()
            }
            Part::Nodes(nodes) => {
                let mut subtrees = Subtrees::new(self.layout.buffer_bytes());
                // The last extent is always sent, and with it the digest.
                nodes.iter().all(|node| {
                    node.offset + node.bytes < entry.length
                        && subtrees.adopt(node)
                        && value_of(&open.file, node).is_ok_and(|value| value == node.value)
                })
            }
        };
        Ok(if same { Kept::Part(attributes, part.clone()) } else { Kept::Nothing })
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

    /// Opens an entry, and says what the receiver is to know of it.
    fn open(&mut self, entry: &Entry) -> Result<Attributes, Error> {
        let list = self.list.clone();
        let place = list.inner.place(entry);
        let metadata = match entry.kind {
            Kind::Stream => return Ok(stream_attributes(entry)),
            Kind::Directory => {
                let handle = self.open_directory(&place);
                let metadata = handle.and_then(|handle| File::from(handle).metadata());
                metadata.map_err(|e| file_error(&place.path(), "cannot be read", e))?
            }
            Kind::File | Kind::Withdrawn | Kind::Kept => {
                let cannot = |e| file_error(&place.path(), "cannot be read", e);
                let file = self.open_file(&place).map_err(cannot)?;
                let metadata = file.metadata().map_err(cannot)?;
                if !metadata.is_file() || metadata.len() != entry.length {
                    return Err(changed(&place.path(), entry.length));
                }
                self.progress.open = Some(OpenFile { file, metadata: metadata.clone() });
                metadata
            }
        };
        Ok(Attributes {
            mode: list.inner.mode(metadata.mode() & 0o7777, entry.kind),
            mtime_seconds: metadata.mtime(),
            mtime_nanos: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
            name: entry.name.to_vec(),
        })
    }

    fn open_file(&mut self, place: &Place<'_>) -> io::Result<File> {
        match place {
            Place::Argument(path) => File::open(path),
            Place::Beneath { argument, name } => beneath::file(self.enter(argument)?.as_fd(), name),
        }
    }

    fn open_directory(&mut self, place: &Place<'_>) -> io::Result<OwnedFd> {
        match place {
            Place::Argument(path) => beneath::open_directory(path),
            Place::Beneath { argument, name } => {
                beneath::directory(self.enter(argument)?.as_fd(), name)
            }
        }
    }

    /// The handle of an argument that is a directory; kept, since its files come one by one.
    fn enter(&mut self, argument: &Path) -> io::Result<&OwnedFd> {
        let kept = self.tree.take().filter(|(path, _)| path == argument);
        let kept = match kept {
            Some(kept) => kept,
            None => (argument.to_path_buf(), beneath::open_directory(argument)?),
        };
        Ok(&self.tree.insert(kept).1)
    }

    /// Fills `space` from the open entry: how much, and whether that is its end.
    fn read(
        &mut self,
        entry: &Entry,
        space: &mut [u8],
        may_end: bool,
    ) -> Result<(usize, bool), Error> {
        let path = || self.list.inner.place(entry).path();
        if entry.kind == Kind::Stream {
            // It is missing if another reader of the same list took it.
            let Some(stream) = self.stream.as_mut() else { return Err(read_twice()) };
            return stream.read(space).map_err(|e| file_error(&path(), "cannot be read", e));
        }
        if let Some(open) = &self.progress.open {
            let read = read_whole(&open.file, space, self.progress.offset);
            let whole = read.map_err(|e| file_error(&path(), "cannot be read", e))?;
            if !whole || (may_end && !open.is_as_it_was()) {
                return Err(changed(&path(), entry.length));
            }
        }
        Ok((space.len(), may_end))
    }
}

impl Reader for SourceReader {
    fn at(&mut self) -> At {
        let entries = &self.list.inner.entries;
        let last = self.progress.entry.min(entries.len().saturating_sub(1));
        while self.progress.counted <= last {
            let entry = entries.get(self.progress.counted);
            let is_file = entry.is_some_and(|entry| entry.kind != Kind::Directory);
            self.progress.files += u64::from(is_file);
            self.progress.counted += 1;
        }
        let name = entries.get(last).map_or_else(Vec::new, |entry| entry.name.to_vec());
        At { file: self.progress.files, name }
    }

    fn fill(&mut self, number: BufferNumber, buffer: &mut Buffer) -> Result<Fill, Error> {
        if number.0 != self.progress.buffers + 1 || self.progress.end.is_some() {
            return Err(Error::Fault("a buffer was asked for out of order"));
        }
        if buffer.capacity() < self.layout.image_bytes() {
            return Err(Error::Fault("the buffers are smaller than their images"));
        }
        let before = (self.progress.bytes, self.progress.kept_bytes);
        let (mut data, mut table, mut extents) = (0, 0, Vec::new());
        while let Some(space) = buffer.space().get_mut(data..)
            && let Some((extent, size)) = self.next_extent(data, table, space)?
        {
            data += extent.length as usize;
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
        let last = self.progress.entry == self.list.inner.entries.len();
        if last {
            self.manifest.as_mut().map_or(Ok(()), Manifest::finish)?;
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

    fn restart(&mut self, layout: Layout, had: &Arc<Had>) -> Result<(), Error> {
        if self.stream.as_ref().is_some_and(|stream| stream.started) {
            return Err(read_twice());
        }
        if !self.plain {
            check_names(&self.list, layout)?;
        }
        (self.layout, self.had) = (layout, Arc::clone(had));
        self.progress = Progress::default();
        self.manifest.as_mut().map_or(Ok(()), Manifest::restart)?;
        Ok(())
    }
}

impl Progress {
    /// The entry cannot be sent: the receiver is to forget it.
    fn withdraw(&mut self, entry: &Entry, begun: bool) -> Extent {
        let attributes =
            (!begun).then(|| Attributes { name: entry.name.to_vec(), ..Attributes::default() });
        let file = self.entry as u64;
        self.transfer.add(file, Kind::Withdrawn, 0, &[0; 32], &entry.name);
        self.next();
        let kind = Kind::Withdrawn;
        Extent { file, offset: 0, length: 0, kind, attributes, digest: None }
    }

    /// The open entry is read to its end: its digest, and on to the next.
    fn close(&mut self, entry: &Entry) -> Result<[u8; 32], Error> {
        let digest = match &self.subtrees {
            Some(subtrees) => subtrees.root().ok_or(Error::Fault("a file was not read to its end")),
            None => Ok(*self.hasher.finalize().as_bytes()),
        }?;
        self.transfer.add(self.entry as u64, entry.kind, self.offset, &digest, &entry.name);
        self.next();
        Ok(digest)
    }

    fn next(&mut self) {
        self.hasher.reset();
        self.open = None;
        (self.kept, self.subtrees) = (None, None);
        self.offset = 0;
        self.entry += 1;
    }
}

impl OpenFile {
    /// Nothing was written to it since it was opened, as far as its length and time tell.
    fn is_as_it_was(&self) -> bool {
        // Where a length means nothing (/proc), there may be bytes after the end.
        let goes_on = self.file.read_at(&mut [0], self.metadata.len());
        let same = |now: Metadata| {
            now.len() == self.metadata.len()
                && (now.mtime(), now.mtime_nsec())
                    == (self.metadata.mtime(), self.metadata.mtime_nsec())
        };
        matches!(goes_on, Ok(0)) && self.file.metadata().is_ok_and(same)
    }
}

impl Stream {
    /// Fills `space` as far as the stream goes: how far, and whether that was its end.
    fn read(&mut self, space: &mut [u8]) -> io::Result<(usize, bool)> {
        self.started = true;
        let mut at = 0;
        if let (Some(byte), Some(first)) = (self.peeked.take(), space.first_mut()) {
            *first = byte;
            at = 1;
        }
        while let Some(rest) = space.get_mut(at..).filter(|rest| !rest.is_empty()) {
            match self.reader.read(rest) {
                Ok(0) => return Ok((at, true)),
                Ok(n) => at += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let mut one = [0];
        loop {
            match self.reader.read(&mut one) {
                Ok(0) => return Ok((at, true)),
                Ok(_) => {
                    self.peeked = Some(one[0]);
                    return Ok((at, false));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Fills `space` from `offset` on; false if the file ends before.
fn read_whole(file: &File, space: &mut [u8], offset: u64) -> io::Result<bool> {
    match file.read_exact_at(space, offset) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn changed(path: &Path, length: u64) -> Error {
    let why = format!(
        "it is no longer the file of {length} bytes that it was; \
         send it again when nothing writes to it"
    );
    file_error(path, "changed while it was being sent", io::Error::other(why))
}

fn read_twice() -> Error {
    Error::Restarted("the input is a stream and cannot be read twice")
}

fn stream_attributes(entry: &Entry) -> Attributes {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Attributes {
        mode: STREAM_MODE,
        mtime_seconds: i64::try_from(now.as_secs()).unwrap_or(0),
        mtime_nanos: now.subsec_nanos(),
        name: entry.name.to_vec(),
    }
}

/// Whether every name fits into a table beside a full data area, so that packing never sticks.
fn check_names(list: &FileList, layout: Layout) -> Result<(), Error> {
    let longest = list.inner.entries.iter().max_by_key(|entry| entry.name.len());
    match longest {
        Some(entry)
            if !layout.fits(layout.data_bytes(), entry_bytes(Some(entry.name.len()), true)) =>
        {
            Err(Unsendable::LongName { name: shown(&entry.name), room: layout.table_bytes() }
                .into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
