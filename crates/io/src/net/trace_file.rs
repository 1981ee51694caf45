//! A trace of a transfer: one JSON object a line, for plots and for finding faults.
//!
//! A disk that fails ends the trace, never the transfer.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use netblt_proto::time::Instant;

use crate::error::Error;
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
    out: Option<BufWriter<File>>,
    line: String,
}

impl TraceFile {
    /// Creates `path`, or empties it.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let file = File::create(path).map_err(|source| Error::File {
            path: path.to_owned(),
            what: "cannot create the trace",
            source,
        })?;
        Ok(Self { out: Some(BufWriter::with_capacity(1 << 16, file)), line: String::new() })
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

    fn put(&mut self) {
        if let Some(out) = &mut self.out
            && out.write_all(self.line.as_bytes()).is_err()
        {
            self.out = None;
        }
    }
}
