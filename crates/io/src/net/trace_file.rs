//! A trace of a transfer: one JSON object a line, for plots and for finding faults.
//!
//! A disk that fails ends the trace, never the transfer; [`TraceFile::finish`] tells of it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use netblt_proto::time::Instant;

use crate::error::{Error, Warning, said, shown_path};
use crate::net::connections::Connections;

/// The transfer begins or ends to wait for this side's disk (`docs/trace.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskEvent {
    /// Which thread of the disk this is about.
    pub side: DiskSide,
    /// Whether it is what the transfer waits for.
    pub waiting: bool,
    /// Buffers that were read and are not wanted yet, or that are to be written.
    pub buffers: usize,
}

/// A thread of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskSide {
    /// The sender's, which reads.
    Read,
    /// The receiver's, which writes.
    Write,
}

/// Where trace events go.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    out: BufWriter<File>,
    line: String,
    /// The first write that failed; nothing is written after it.
    failed: Option<io::Error>,
}

impl TraceFile {
    /// Creates `path`, or empties it.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let file = File::create(path).map_err(|source| Error::File {
            path: path.to_owned(),
            what: "cannot create the trace",
            source,
        })?;
        let out = BufWriter::with_capacity(1 << 16, file);
        Ok(Self { path: path.to_owned(), out, line: String::new(), failed: None })
    }

    /// Writes what has happened since the last call.
    pub fn record(&mut self, connections: &mut impl Connections) {
        self.line.clear();
        self.write_connections(connections);
        self.put();
    }

    /// Writes what the disk does.
    pub fn record_disk(&mut self, at: Instant, event: DiskEvent) {
        let DiskEvent { side, waiting, buffers } = event;
        let side = match side {
            DiskSide::Read => "read",
            DiskSide::Write => "write",
        };
        self.line = format!(
            concat!(
                r#"{{"ns":{},"event":"disk","side":"{}","#,
                r#""waiting":{},"buffers":{}}}"#,
                "\n"
            ),
            at.as_nanos(),
            side,
            waiting,
            buffers,
        );
        self.put();
    }

    fn write_connections(&mut self, connections: &mut impl Connections) {
        while let Some((at, event)) = connections.poll_trace() {
            event.write_json(at, &mut self.line);
        }
    }

    /// Nothing more comes; a warning if it could not be written.
    pub fn finish(&mut self) -> Option<Warning> {
        if self.failed.is_none() {
            self.failed = self.out.flush().err();
        }
        self.failed.as_ref().map(|error| Warning::Unwritten {
            path: shown_path(&self.path),
            what: "trace",
            why: said(error),
        })
    }

    fn put(&mut self) {
        if self.failed.is_none() {
            self.failed = self.out.write_all(self.line.as_bytes()).err();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_named_at_the_end() {
        let event = DiskEvent { side: DiskSide::Read, waiting: true, buffers: 1 };
        // Fewer events than a buffer holds, and more.
        for events in [1, 10_000] {
            let mut trace = TraceFile::create(Path::new("/dev/full")).expect("opened");
            (0..events).for_each(|_| trace.record_disk(Instant::EPOCH, event));
            let warning = trace.finish().expect("a warning").to_string();
            assert!(
                warning.starts_with("/dev/full: cannot write the trace: No space"),
                "{warning}"
            );
        }
    }
}
