//! Which writer a destination and a wire need.

use std::time::Duration;

use netblt_proto::buffer::Buffer;
use netblt_proto::config::Wire;
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::End;

use crate::disk::directory::DirectoryWriter;
use crate::disk::layout::Layout;
use crate::disk::plain::PlainWriter;
use crate::disk::stream::StreamWriter;
use crate::disk::threads::{Outcome, Writer};
use crate::error::{Error, OptionsError};
use crate::options::{Destination, Options};

/// Stores what arrives where the user wants it.
pub struct SinkWriter(Box<dyn Writer>);

impl SinkWriter {
    /// The writer for a destination, of which nothing is written yet.
    pub fn new(destination: Destination, options: &Options, layout: Layout) -> Result<Self, Error> {
        let overwrite = options.overwrite;
        Ok(Self(match (destination, options.wire) {
            (Destination::Directory(path), Wire::Sealed) => {
                Box::new(DirectoryWriter::new(&path, overwrite, layout)?)
            }
            (Destination::File(path), Wire::Rfc998) => {
                Box::new(PlainWriter::new(&path, overwrite, layout)?)
            }
            (Destination::Directory(_), Wire::Rfc998) => {
                return Err(OptionsError::Directory.into());
            }
            (Destination::File(_), Wire::Sealed) => {
                return Err(OptionsError::File.into());
            }
            (Destination::Stream(output), wire) => {
                Box::new(StreamWriter::new(output, layout, wire == Wire::Rfc998))
            }
        }))
    }
}

impl std::fmt::Debug for SinkWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SinkWriter(..)")
    }
}

impl Writer for SinkWriter {
    fn accept(
        &mut self,
        number: BufferNumber,
        buffer: Buffer,
        free: &mut Vec<Buffer>,
    ) -> Result<u64, Error> {
        self.0.accept(number, buffer, free)
    }

    fn finish(&mut self, end: Option<&End>) -> Result<Outcome, Error> {
        self.0.finish(end)
    }

    fn restart(&mut self, layout: Layout, free: &mut Vec<Buffer>) -> Result<(), Error> {
        self.0.restart(layout, free)
    }

    fn patience(&self) -> Duration {
        self.0.patience()
    }
}
