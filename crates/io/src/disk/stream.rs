//! Writes one file or stream, in order, to a stream such as standard output.
//!
//! Buffers that come too early wait here. They are the receiver's, so while they wait the sender is
//! granted less. Buffers are granted in order, so the next one always has its memory. Written data
//! cannot be taken back. The outcome at the end says whether they were right.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use netblt_proto::buffer::Buffer;
use netblt_proto::content::{Extent, Kind, TransferDigest, check_name, parse_image};
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::End;

use crate::checksums::algorithm::Digests;
use crate::destination::Output;
use crate::disk::commit_latch::CommitLatch;
use crate::disk::layout::{Layout, broken};
use crate::disk::sparse;
use crate::disk::threads::{StoreOutcome, Writer};
use crate::error::{Error, file_error, shown};
use crate::options::OnFile;

/// Writes the one file of a transfer to a stream.
pub(crate) struct StreamWriter {
    output: Output,
    layout: Layout,
    plain: bool,
    early: BTreeMap<u64, Buffer>,
    buffers: u64,
    bytes: u64,
    hasher: blake3::Hasher,
    kind: Kind,
    name: Option<Vec<u8>>,
    claimed: Option<[u8; 32]>,
    on_file: Option<OnFile>,
}

impl StreamWriter {
    /// To this stream; `plain` for `rfc998`.
    pub(crate) fn new(output: Output, layout: Layout, plain: bool) -> Self {
        Self {
            output,
            layout,
            plain,
            early: BTreeMap::new(),
            buffers: 0,
            bytes: 0,
            hasher: blake3::Hasher::new(),
            kind: Kind::File,
            name: None,
            claimed: None,
            on_file: None,
        }
    }

    /// Calls this with the written file, if that is verified.
    pub(crate) fn with_on_file(self, on_file: Option<OnFile>) -> Self {
        Self { on_file, ..self }
    }

    fn write(&mut self, image: &[u8]) -> Result<(), Error> {
        if self.plain {
            return self.put(image);
        }
        let parsed = parse_image(image, self.layout.buffer_bytes());
        let (mut data, extents) = parsed.map_err(broken)?;
        for extent in &extents {
            self.admit(extent)?;
            let own = data.split_at_checked(extent.data_bytes() as usize);
            let (own, rest) = own.unwrap_or((data, &[]));
            let (length, pieces) = (extent.length as usize, extent.pieces.as_deref());
            sparse::hash(&mut self.hasher, length, pieces, own);
            sparse::parts(length, pieces, own, |part| self.put(part))?;
            data = rest;
        }
        Ok(())
    }

    fn admit(&mut self, extent: &Extent) -> Result<(), Error> {
        if extent.file != 0 || extent.kind == Kind::Directory {
            return Err(Error::SeveralFiles);
        }
        if extent.kind == Kind::Kept {
            return Err(Error::Content("it says that something is here already which is not"));
        }
        if matches!(extent.kind, Kind::SymbolicLink | Kind::HardLink) {
            return Err(Error::Content("it sends a link, and a stream is no place for one"));
        }
        if extent.kind == Kind::Withdrawn {
            let why = "the sender cannot send the file to its end".to_owned();
            return Err(Error::NotVerified(why));
        }
        if extent.attributes.is_some() != self.name.is_none()
            || extent.offset != self.bytes
            || self.claimed.is_some()
        {
            return Err(Error::Content("a file does not go on where it ended"));
        }
        if let Some(attributes) = &extent.attributes {
            let name = &attributes.name;
            check_name(name).map_err(|why| Error::Name { name: shown(name), why })?;
            (self.name, self.kind) = (Some(name.clone()), extent.kind);
        }
        self.claimed = extent.digest;
        Ok(())
    }

    fn put(&mut self, data: &[u8]) -> Result<(), Error> {
        self.output.writer.write_all(data).map_err(|e| self.failed(e))?;
        self.bytes += data.len() as u64;
        Ok(())
    }

    fn failed(&self, error: std::io::Error) -> Error {
        file_error(Path::new(self.output.label), "cannot be written", error)
    }

    fn verify(&self, end: Option<&End>) -> Result<[u8; 32], String> {
        let end = end.ok_or("the sender did not say what it sent")?;
        let digest = *self.hasher.finalize().as_bytes();
        let (Some(name), Some(claimed)) = (&self.name, self.claimed) else {
            return Err("the end of the file did not come".to_owned());
        };
        let mut transfer = TransferDigest::default();
        transfer.add(0, self.kind, self.bytes, &digest, name);
        let all = transfer.finish();
        if claimed != digest
            || (self.buffers, self.bytes, all) != (end.buffers, end.bytes, end.digest)
        {
            return Err("what was written is not what the sender read".to_owned());
        }
        self.on_file
            .iter()
            .for_each(|on_file| on_file.notify(name, self.bytes, Digests::of_blake3(&digest)));
        Ok(all)
    }
}

impl Writer for StreamWriter {
    fn accept(
        &mut self,
        number: BufferNumber,
        buffer: Buffer,
        free: &mut Vec<Buffer>,
    ) -> Result<u64, Error> {
        let before = self.bytes;
        self.early.insert(number.0, buffer);
        while let Some(buffer) = self.early.remove(&(self.buffers + 1)) {
            self.write(buffer.filled())?;
            self.buffers += 1;
            free.push(buffer);
        }
        Ok(self.bytes - before)
    }

    fn finish(&mut self, end: Option<&End>, _: &CommitLatch) -> Result<StoreOutcome, Error> {
        self.output.writer.flush().map_err(|e| self.failed(e))?;
        if !self.early.is_empty() || self.buffers == 0 {
            return Err(Error::NotVerified("incomplete data (missing ranges)".to_owned()));
        }
        if self.plain {
            return Ok(StoreOutcome::unproved(self.bytes));
        }
        let bytes = self.bytes;
        Ok(match self.verify(end) {
            Ok(digest) => {
                StoreOutcome { verified: true, bytes, digest, files: 1, ..StoreOutcome::default() }
            }
            Err(reason) => StoreOutcome { bytes, reason, ..StoreOutcome::default() },
        })
    }

    fn restart(&mut self, layout: Layout, free: &mut Vec<Buffer>) -> Result<(), Error> {
        if self.bytes > 0 {
            return Err(Error::Restarted(
                "a part of the first attempt is already written to the stream",
            ));
        }
        free.extend(std::mem::take(&mut self.early).into_values());
        (self.layout, self.buffers) = (layout, 0);
        (self.name, self.claimed, self.kind) = (None, None, Kind::File);
        self.hasher.reset();
        Ok(())
    }

    /// There is nothing to clean up, and a pipe may never move again.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }
}

impl fmt::Debug for StreamWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamWriter {{ buffers: {}, bytes: {} }}", self.buffers, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Cursor, Write};
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::cancel::Cancel;
    use crate::destination::Destination;
    use crate::disk::directory::tests::images;
    use crate::disk::file_list::FileList;
    use crate::options::Source;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().map_or(Ok(0), |mut all| all.write(bytes))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn layout() -> Layout {
        Layout::sealed(1024, 8192).expect("possible")
    }

    fn writer(shared: Shared) -> StreamWriter {
        let Destination::Stream(output) = Destination::writer(shared) else { panic!("a stream") };
        StreamWriter::new(output, layout(), false)
    }

    #[test]
    fn a_stream_comes_out_in_order_and_memory_comes_back() {
        for len in [0usize, 1, 1024, 5000, 8192] {
            let content: Vec<u8> = (0..len).map(|i| (i * 3) as u8).collect();
            let source = Source::reader("s", Cursor::new(content.clone()));
            let list = FileList::new(source, false, &Cancel::default()).expect("a list");
            let (images, end) = images(list, layout());
            let (output, count) = (Shared::default(), images.len());
            let mut writer = writer(output.clone());
            let mut free = Vec::new();
            // The last comes first, so that all must wait for the first.
            for (i, image) in images.into_iter().enumerate().rev() {
                assert!(free.is_empty());
                writer.accept(BufferNumber(i as u64 + 1), image, &mut free).expect("accepted");
            }
            assert_eq!(free.len(), count);
            let outcome = writer.finish(Some(&end), &CommitLatch::default()).expect("finished");
            assert!(outcome.verified, "{outcome:?}");
            assert_eq!((outcome.bytes, outcome.digest), (len as u64, end.digest));
            assert_eq!(*output.0.lock().expect("whole"), content);
            let other = End { bytes: 1 << 40, ..end };
            assert!(
                !writer.finish(Some(&other), &CommitLatch::default()).expect("judged").verified
            );
            assert_eq!(writer.restart(layout(), &mut free).is_err(), len > 0);
        }
    }

    #[test]
    fn several_files_are_refused() {
        let from = tempfile::tempdir().expect("a temporary directory");
        let source = Source::Paths(vec![from.path().to_path_buf()]);
        let list = FileList::new(source, false, &Cancel::default()).expect("a list");
        let (images, _) = images(list, layout());
        let mut writer = writer(Shared::default());
        for image in images {
            let refused = writer.accept(BufferNumber(1), image, &mut Vec::new());
            assert!(refused.is_err_and(|e| e.to_string().contains("one file only")));
        }
    }
}
