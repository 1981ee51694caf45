//! A trace of a transfer: one JSON object a line, for plots and for finding faults.
//!
//! A disk that fails ends the trace, never the transfer.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::error::Error;
use crate::net::connections::Connections;

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
        while let Some((at, event)) = connections.poll_trace() {
            event.write_json(at, &mut self.line);
        }
        if let Some(out) = &mut self.out
            && out.write_all(self.line.as_bytes()).is_err()
        {
            self.out = None;
        }
    }
}
