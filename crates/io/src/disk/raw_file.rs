//! The one file of an `rfc998` transfer: bytes without a name, a length or a digest.
//!
//! The offset of a buffer follows from its number, so buffers may come in any order. Nothing proves
//! that the bytes are the sender's, and the outcome says so.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use netblt_proto::buffer::Buffer;
use netblt_proto::content::check_name;
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::End;

use crate::disk::commit_latch::CommitLatch;
use crate::disk::layout::Layout;
use crate::disk::names::{Budget, Names};
use crate::disk::publish_all::{publish, settle};
use crate::disk::publish_journal::{Placed, PublishItem};
use crate::disk::sparse::Span;
use crate::disk::store::Store;
use crate::disk::threads::{StoreOutcome, Writer};
use crate::error::{Error, OptionsError, file_error, shown};
use crate::settings::Overwrite;

/// Stores plain buffers in one file.
#[derive(Debug)]
pub(crate) struct RawFileWriter {
    store: Store,
    /// Remarks about the leftovers of killed processes, for the user.
    notes: Vec<String>,
    name: Vec<u8>,
    layout: Layout,
    extent: Extent,
}

/// How much of a file is there.
#[derive(Debug, Default)]
pub(crate) struct Extent {
    buffers: u64,
    bytes: u64,
    /// The end of the received data.
    end: u64,
    highest: u64,
}

impl RawFileWriter {
    /// A writer for the file `path`, whose directory must exist.
    pub(crate) fn new(path: &Path, overwrite: Overwrite, layout: Layout) -> Result<Self, Error> {
        let unnamed = || OptionsError::NoFile(shown(path.as_os_str().as_bytes()));
        // `file_name` would accept "file/." and "file/".
        let said = path.as_os_str().as_bytes();
        let name = path.file_name().map(|name| name.as_bytes()).filter(|name| said.ends_with(name));
        let name = name.ok_or_else(unnamed)?.to_vec();
        check_name(&name).map_err(|why| OptionsError::FileName { name: shown(&name), why })?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let mut store = Store::new(directory.unwrap_or(Path::new(".")), overwrite)?;
        // Replacing /dev/null would be obedient, and a catastrophe.
        if path.symlink_metadata().is_ok_and(|m| !m.is_file() && !m.is_dir() && !m.is_symlink()) {
            let text = "use - and redirect standard output to it";
            let source = io::Error::other(text);
            return Err(file_error(path, "is a device or a pipe and cannot be replaced", source));
        }
        let notes = settle(&mut store);
        store.probe(&name, false)?;
        Ok(Self { store, notes, name, layout, extent: Extent::default() })
    }
}

impl RawFileWriter {
    /// The remarks about leftovers of killed processes, once.
    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}

impl Writer for RawFileWriter {
    fn accept(
        &mut self,
        number: BufferNumber,
        buffer: Buffer,
        free: &mut Vec<Buffer>,
    ) -> Result<u64, Error> {
        let bytes = buffer.filled();
        let offset = self.extent.add(number, bytes.len(), self.layout)?;
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let span = Span { offset, length, pieces: None };
        self.store.write_at(0, span, bytes, Some(&self.name))?;
        let len = bytes.len() as u64;
        free.push(buffer);
        Ok(len)
    }

    fn finish(&mut self, _: Option<&End>, latch: &CommitLatch) -> Result<StoreOutcome, Error> {
        let bytes = self.extent.whole()?;
        self.store.flush(&[0], latch)?;
        let mut names = Names::default();
        let name = names.add(&self.name, false, &mut Budget::new(1));
        let name = name.map_err(|_| Error::Fault("a file name without a place"))?;
        let item = PublishItem { name, placed: Placed::File { number: 0, inode: 0 } };
        publish(&mut self.store, &names, vec![item], latch)?;
        self.store.clear();
        Ok(StoreOutcome::unproved(bytes))
    }

    fn restart(&mut self, layout: Layout, _: &mut Vec<Buffer>) -> Result<(), Error> {
        self.store.clear();
        (self.layout, self.extent) = (layout, Extent::default());
        Ok(())
    }
}

impl Extent {
    /// Counts a buffer and returns its place in the file.
    pub(crate) fn add(
        &mut self,
        number: BufferNumber,
        len: usize,
        layout: Layout,
    ) -> Result<u64, Error> {
        let before = number.0.checked_sub(1);
        let offset = before.and_then(|n| n.checked_mul(u64::from(layout.buffer_bytes())));
        let end = offset.and_then(|offset| offset.checked_add(len as u64));
        let (Some(offset), Some(end)) = (offset, end) else {
            return Err(Error::Content("a buffer has a number that none can have"));
        };
        self.buffers += 1;
        self.bytes += len as u64;
        self.end = self.end.max(end);
        self.highest = self.highest.max(number.0);
        Ok(offset)
    }

    /// The length of the file, if it has no holes.
    pub(crate) fn whole(&self) -> Result<u64, Error> {
        if self.buffers == self.highest && self.bytes == self.end && self.buffers > 0 {
            return Ok(self.bytes);
        }
        Err(Error::NotVerified("incomplete data (missing ranges); nothing was kept".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn buffer(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::new(bytes.len());
        buffer.space().copy_from_slice(bytes);
        buffer.set_len(bytes.len());
        buffer
    }

    #[test]
    fn buffers_find_their_place_and_holes_are_noticed() {
        let to = tempfile::tempdir().expect("a temporary directory");
        let new = |name: &str| {
            RawFileWriter::new(&to.path().join(name), Overwrite::Never, Layout::plain(3))
        };
        let mut free = Vec::new();
        let mut writer = new("file").expect("opened");
        for (number, bytes) in [(3, &b"g"[..]), (1, b"abc"), (2, b"def")] {
            writer.accept(BufferNumber(number), buffer(bytes), &mut free).expect("accepted");
        }
        let outcome = writer.finish(None, &CommitLatch::default()).expect("finished");
        assert_eq!((outcome.verified, outcome.bytes, outcome.files), (false, 7, 1));
        assert_eq!(fs::read(to.path().join("file")).expect("read"), b"abcdefg");
        assert!(matches!(new("file"), Err(Error::Exists(_))));
        for bad in ["", ".", "..", "missing/file", "file/", "file/.", "new/"] {
            assert!(new(bad).is_err(), "{bad:?}");
        }
        let null = RawFileWriter::new(Path::new("/dev/null"), Overwrite::Always, Layout::plain(3));
        assert!(null.is_err_and(|error| error.to_string().contains("redirect")));
        for holes in [&[(1, &b"ab"[..]), (2, b"c")][..], &[(2, b"c")], &[]] {
            let mut writer = new("other").expect("opened");
            for (number, bytes) in holes {
                writer.accept(BufferNumber(*number), buffer(bytes), &mut free).expect("accepted");
            }
            assert!(matches!(
                writer.finish(None, &CommitLatch::default()),
                Err(Error::NotVerified(_))
            ));
        }
        let mut writer = new("other").expect("opened");
        assert!(writer.accept(BufferNumber(0), buffer(b"a"), &mut free).is_err());
        assert!(writer.accept(BufferNumber(u64::MAX), buffer(b"a"), &mut free).is_err());
        drop(writer);
        assert_eq!(fs::read_dir(to.path()).expect("listed").count(), 1);
    }
}
