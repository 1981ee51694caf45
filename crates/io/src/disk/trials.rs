//! The common part of tests of the disk.

use std::path::Path;
use std::sync::Arc;

use netblt_proto::buffer::Buffer;
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::End;
use tempfile::TempDir;

use crate::cancel::Cancel;
use crate::disk::directory::DirectoryWriter;
use crate::disk::file_list::FileList;
use crate::disk::have_list::HaveList;
use crate::disk::layout::Layout;
use crate::disk::source::SourceReader;
use crate::disk::threads::{Reader as _, Writer as _};
use crate::options::Source;

/// The directory of the parts of a transfer without a label.
pub(super) const KEPT: &str = ".netblt-partial";

/// Small buffers, with room for names.
pub(super) fn layout() -> Layout {
    Layout::sealed(1024, 8192).expect("possible")
}

pub(super) fn temporary() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// All images of a file or tree for a writer, after its HAVE.
pub(super) fn sent(source: &Path, writer: &mut DirectoryWriter) -> (Vec<Buffer>, End) {
    let list = FileList::new(Source::path(source), false, &Cancel::default());
    let mut reader = SourceReader::sealed(list.expect("a list"), layout()).expect("names fit");
    let had = Arc::new(HaveList::parse(&writer.had()).expect("well said"));
    reader.restart(layout(), &had).expect("restarted");
    let mut images = Vec::new();
    loop {
        let mut buffer = Buffer::new(layout().image_bytes());
        reader.fill(BufferNumber(images.len() as u64 + 1), &mut buffer).expect("filled");
        images.push(buffer);
        if let Some(end) = reader.end() {
            return (images, end);
        }
    }
}
