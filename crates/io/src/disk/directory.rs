//! From buffer images to files: what the receiver's disk thread does.
//!
//! Buffers come in any order, from a peer that may be anybody who has the ticket: every image is
//! examined as a whole before a byte of it is written, and whatever contradicts itself, the rest
//! of the transfer or the destination ends the transfer with nothing left behind. Nothing has its
//! final name before everything is complete, hashed, compared and flushed.

use std::collections::BTreeMap;
use std::path::Path;

use netblt_proto::buffer::Buffer;
use netblt_proto::content::{Attributes, Extent, Kind, TransferDigest, check_name, parse_image};
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::End;

use crate::disk::digest::Subtrees;
use crate::disk::layout::{Layout, broken};
use crate::disk::names::{MAX_FILES, Names};
use crate::disk::publish::{Item, publish};
use crate::disk::store::Store;
use crate::disk::threads::{Outcome, Writer};
use crate::error::{Error, shown};
use crate::options::Overwrite;

/// Stores buffer images beneath a directory.
#[derive(Debug)]
pub(crate) struct DirectoryWriter {
    store: Store,
    layout: Layout,
    names: Names,
    files: BTreeMap<u64, Incoming>,
    buffers: u64,
    bytes: u64,
}

/// What is known of one file, whichever of its extents have come.
#[derive(Debug)]
struct Incoming {
    kind: Kind,
    /// With its first extent.
    attributes: Option<Attributes>,
    /// What the sender says it is, with its last extent.
    claimed: Option<[u8; 32]>,
    /// What it is, once it is complete: length and digest.
    complete: Option<(u64, [u8; 32])>,
    /// Of a file that comes in several extents, until it is complete.
    subtrees: Option<Box<Subtrees>>,
}

impl DirectoryWriter {
    /// Opens the destination, a directory that must exist. Nothing is written yet.
    pub(crate) fn new(
        directory: &Path,
        overwrite: Overwrite,
        layout: Layout,
    ) -> Result<Self, Error> {
        Ok(Self {
            store: Store::new(directory, overwrite)?,
            layout,
            names: Names::default(),
            files: BTreeMap::new(),
            buffers: 0,
            bytes: 0,
        })
    }

    /// Looks at an extent before anything of its buffer is written.
    fn admit(&mut self, extent: &Extent) -> Result<(), Error> {
        let (first, last) = (extent.attributes.is_some(), extent.digest.is_some());
        if extent.file >= MAX_FILES {
            return Err(Error::Content("it has too many files"));
        }
        if first != (extent.offset == 0) {
            return Err(Error::Content("a file does not begin at its beginning"));
        }
        if extent.kind == Kind::Directory && !(first && last && extent.length == 0) {
            return Err(Error::Content("a directory has content"));
        }
        let incoming = self.files.entry(extent.file).or_insert_with(|| Incoming::new(extent.kind));
        if incoming.kind != extent.kind {
            return Err(Error::Content("a file is of two kinds"));
        }
        if (first && incoming.attributes.is_some()) || (last && incoming.claimed.is_some()) {
            return Err(Error::Content("a file begins or ends twice"));
        }
        if last {
            incoming.claimed = extent.digest;
        }
        if let Some(attributes) = &extent.attributes {
            let directory = extent.kind == Kind::Directory;
            let name = &attributes.name;
            check_name(name)
                .and_then(|()| self.names.add(name, directory))
                .map_err(|why| Error::Name { name: shown(name), why })?;
            incoming.attributes = Some(attributes.clone());
            self.store.probe(name, directory)?;
        }
        Ok(())
    }

    /// Hashes and writes an extent that was admitted.
    fn take(&mut self, extent: &Extent, data: &[u8]) -> Result<(), Error> {
        let Some(incoming) = self.files.get_mut(&extent.file) else { return Ok(()) };
        if let (Some(attributes), Some(_)) = (&extent.attributes, &extent.digest) {
            let digest = *blake3::hash(data).as_bytes();
            incoming.complete = Some((data.len() as u64, digest));
            if extent.kind != Kind::Directory {
                self.store.whole(extent.file, data, attributes)?;
            }
            return Ok(());
        }
        let buffer_bytes = self.layout.buffer_bytes();
        let subtrees =
            incoming.subtrees.get_or_insert_with(|| Box::new(Subtrees::new(buffer_bytes)));
        subtrees.add(extent.offset, data, extent.digest.is_some()).map_err(Error::Content)?;
        let name = incoming.attributes.as_ref().map(|attributes| attributes.name.as_slice());
        self.store.write_at(extent.file, extent.offset, data, name)?;
        if let (Some(length), Some(digest)) = (subtrees.length(), subtrees.root())
            && let Some(attributes) = &incoming.attributes
        {
            incoming.complete = Some((length, digest));
            incoming.subtrees = None;
            self.store.close(extent.file, attributes)?;
        }
        Ok(())
    }

    /// The transfer's digest, or what is not as the sender says.
    fn verify(&self, end: Option<&End>) -> Result<[u8; 32], String> {
        let end = end.ok_or("the sender did not say what it sent")?;
        if self.buffers != end.buffers {
            return Err(format!("{} buffers came of {}", self.buffers, end.buffers));
        }
        let mut transfer = TransferDigest::default();
        for (expected, (number, file)) in (0..).zip(&self.files) {
            if *number != expected {
                return Err(format!("file {expected} did not come"));
            }
            let Some(attributes) = &file.attributes else {
                return Err(format!("file {number} came without a name"));
            };
            let name = &attributes.name;
            let (Some(claimed), Some((length, digest))) = (file.claimed, file.complete) else {
                return Err(format!("\"{}\" is incomplete", shown(name)));
            };
            if claimed != digest {
                return Err(format!("\"{}\" is not what the sender read", shown(name)));
            }
            transfer.add(*number, file.kind, length, &digest, name);
        }
        let digest = transfer.finish();
        if self.bytes != end.bytes || digest != end.digest {
            return Err("what came is not all that the sender sent".to_owned());
        }
        Ok(digest)
    }

    fn store_for_good(&mut self) -> Result<u64, Error> {
        let is_file = |file: &Incoming| file.kind != Kind::Directory;
        let numbers: Vec<u64> =
            self.files.iter().filter(|(_, file)| is_file(file)).map(|(n, _)| *n).collect();
        self.store.flush(&numbers)?;
        let items: Vec<Item<'_>> = self
            .files
            .iter()
            .filter_map(|(number, file)| {
                let attributes = file.attributes.as_ref()?;
                let directory = (!is_file(file)).then_some(attributes);
                Some(Item { number: *number, name: &attributes.name, directory })
            })
            .collect();
        publish(&mut self.store, &items)?;
        Ok(numbers.len() as u64)
    }
}

impl Writer for DirectoryWriter {
    fn accept(
        &mut self,
        _: BufferNumber,
        buffer: Buffer,
        free: &mut Vec<Buffer>,
    ) -> Result<u64, Error> {
        let before = self.bytes;
        let image = parse_image(buffer.filled(), self.layout.buffer_bytes());
        let (mut data, extents) = image.map_err(broken)?;
        for extent in &extents {
            self.admit(extent)?;
        }
        for extent in &extents {
            let Some((own, rest)) = data.split_at_checked(extent.length as usize) else {
                return Err(Error::Content("a buffer has less data than its table says"));
            };
            self.take(extent, own)?;
            self.bytes += own.len() as u64;
            data = rest;
        }
        self.buffers += 1;
        free.push(buffer);
        Ok(self.bytes - before)
    }

    fn finish(&mut self, end: Option<&End>) -> Result<Outcome, Error> {
        let outcome = match self.verify(end) {
            Ok(digest) => {
                let files = self.store_for_good()?;
                Outcome { verified: true, bytes: self.bytes, digest, files, reason: String::new() }
            }
            Err(reason) => Outcome { reason, ..Outcome::default() },
        };
        self.store.clear();
        Ok(outcome)
    }

    fn restart(&mut self, layout: Layout, _: &mut Vec<Buffer>) -> Result<(), Error> {
        self.store.clear();
        self.layout = layout;
        self.names = Names::default();
        self.files.clear();
        (self.buffers, self.bytes) = (0, 0);
        Ok(())
    }
}

impl Incoming {
    fn new(kind: Kind) -> Self {
        Self { kind, attributes: None, claimed: None, complete: None, subtrees: None }
    }
}

#[cfg(test)]
#[path = "directory_tests.rs"]
pub(crate) mod tests;
