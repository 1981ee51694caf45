//! The digests of received files beside BLAKE3: of the data as they come, and where those come out
//! of order or were here before, of the file.

use std::fs::File;
use std::io;

use netblt_proto::content::Extent;

use super::incoming::Incoming;
use crate::checksums::algorithm::{Digests, HashAlgorithms};
use crate::checksums::content_hashes::{ContentHashes, FILE_HASH_BYTES};
use crate::checksums::expectation::Expectation;
use crate::disk::digest::Subtrees;
use crate::disk::resume::Found;
use crate::disk::sparse;
use crate::error::{Error, UNEXPECTED};

/// The digests of a transfer's files, if some are asked for.
#[derive(Debug, Default)]
pub(super) struct Checksums {
    hashes: Option<ContentHashes>,
    expected: Option<Expectation>,
    /// Those that files get as attributes.
    stored: HashAlgorithms,
    /// Files that are not the ones that are expected.
    unexpected: u64,
}

impl Checksums {
    pub(super) fn new(hashes: Option<ContentHashes>, expected: Option<Expectation>) -> Self {
        Self { hashes, expected, stored: HashAlgorithms::default(), unexpected: 0 }
    }

    /// Files get these as attributes.
    pub(super) fn store(&mut self, algorithms: HashAlgorithms) {
        self.stored = algorithms;
    }

    /// The digests that files get as attributes.
    pub(super) fn stored(&self) -> HashAlgorithms {
        self.stored
    }

    /// Whether certain files are expected.
    pub(super) fn expects(&self) -> bool {
        self.expected.is_some()
    }

    /// Whether a file of this name with these digests may be here; if not, why.
    pub(super) fn judge(&mut self, name: &[u8], digests: &Digests) -> Option<String> {
        let why = self.expected.as_mut()?.judge(name, digests)?;
        self.unexpected += 1;
        Some(format!("{UNEXPECTED}: {why}"))
    }

    /// A file of this name is left out for another reason.
    pub(super) fn came(&mut self, name: &[u8]) {
        self.expected.iter_mut().for_each(|expected| expected.came(name));
    }

    /// The digests of a file that was there before.
    pub(super) fn of_file(
        &mut self,
        stored: &File,
        (length, blake3): (u64, [u8; 32]),
    ) -> Result<Option<Digests>, Error> {
        let Some(hashes) = &mut self.hashes else {
            return Ok(Some(Digests::of_blake3(&blake3)));
        };
        let mut hash = hashes.begin(true);
        let read = hashes.add_from(&mut hash, stored, length)?;
        let digests = hashes.finish(hash, &blake3)?;
        Ok(digests.filter(|_| read.is_ok()))
    }

    /// Number of files that are not the ones that are expected.
    pub(super) fn unexpected(&self) -> u64 {
        self.unexpected
    }

    /// The names that are expected and did not come.
    pub(super) fn missing(&self) -> Vec<&[u8]> {
        self.expected.as_ref().map(Expectation::missing).unwrap_or_default()
    }

    /// The remark for the user about files that are not in the list.
    pub(super) fn note(&self) -> Option<String> {
        self.expected.as_ref().and_then(Expectation::note)
    }

    /// The transfer starts over.
    pub(super) fn restart(&mut self) {
        self.unexpected = 0;
        self.expected.iter_mut().for_each(Expectation::restart);
    }

    /// Memory of a file whose extents come.
    pub(super) fn open_bytes(&self) -> u64 {
        if self.hashes.is_some() { FILE_HASH_BYTES } else { 0 }
    }

    /// A file has come as a whole, in one extent.
    pub(super) fn whole(
        &mut self,
        file: &mut Incoming,
        extent: &Extent,
        data: &[u8],
    ) -> Result<(), Error> {
        let (Some(hashes), Some((_, blake3))) = (&mut self.hashes, file.complete) else {
            return Ok(());
        };
        let (length, pieces) = (extent.length as usize, extent.pieces.as_deref());
        let digests =
            hashes.whole(length, &blake3, |take| sparse::parts(length, pieces, data, take))?;
        file.digests = Some(Box::new(digests));
        Ok(())
    }

    /// An extent of a file has come and is written: it, and what follows it and came before, is
    /// added. `stored` opens the file.
    pub(super) fn part(
        &mut self,
        file: &mut Incoming,
        extent: &Extent,
        data: &[u8],
        subtrees: &Subtrees,
        stored: impl FnOnce() -> io::Result<File>,
    ) -> Result<io::Result<()>, Error> {
        let Some(hashes) = &mut self.hashes else { return Ok(Ok(())) };
        let hash = file.hash.get_or_insert_with(|| Box::new(hashes.begin(false)));
        if hash.at() == extent.offset {
            let (length, pieces) = (extent.length as usize, extent.pieces.as_deref());
            sparse::parts(length, pieces, data, |part| hashes.add(hash, part))?;
        }
        let root = subtrees.root();
        let whole = subtrees.length().filter(|_| root.is_some());
        let here = whole.unwrap_or_else(|| subtrees.next_missing(hash.at()));
        if here > hash.at() {
            match stored() {
                Ok(stored) => match hashes.add_from(hash, &stored, here)? {
                    Ok(()) => {}
                    error => return Ok(error),
                },
                Err(error) => return Ok(Err(error)),
            }
        }
        if let (Some(blake3), Some(hash)) = (root, file.hash.take_if(|_| root.is_some())) {
            file.digests = hashes.finish(*hash, &blake3)?.map(Box::new);
        }
        Ok(Ok(()))
    }

    /// If the file of an extent was here before this transfer, as a whole: reads it. `open` opens
    /// it, in this slot or under its name. Returns its length and BLAKE3 if it is not the one that
    /// was here.
    pub(super) fn hash_kept(
        &mut self,
        file: &mut Incoming,
        extent: &Extent,
        found: Option<&Found>,
        open: impl FnOnce(Option<u64>) -> io::Result<File>,
    ) -> Result<Option<(u64, [u8; 32])>, Error> {
        if self.hashes.is_none() {
            return Ok(None);
        }
        let (slot, length, digest) = match found {
            Some(Found::Named { length, digest }) => (None, *length, *digest),
            Some(Found::Stored { slot, length, digest }) => (Some(*slot), *length, *digest),
            Some(Found::Parts { .. }) | None => return Ok(None),
        };
        if extent.digest != Some(digest) {
            return Ok(None);
        }
        let digests = match open(slot) {
            Ok(stored) => self.of_file(&stored, (length, digest))?,
            Err(_) => None,
        };
        file.digests = digests.map(Box::new);
        file.complete = Some((length, digest));
        Ok(file.complete.filter(|_| file.digests.is_none()))
    }

    /// A file does not come to its end.
    pub(super) fn forget(&self, file: &mut Incoming) -> Result<(), Error> {
        let hash = file.hash.take();
        self.hashes.iter().zip(&hash).try_for_each(|(hashes, hash)| hashes.forget(hash))
    }
}
