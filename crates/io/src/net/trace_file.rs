//! A trace of a transfer: one JSON object a line, for plots and for finding faults.
//!
//! A disk error ends the trace, never the transfer. [`TraceFile::finish`] reports it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use netblt_proto::time::Instant;

use crate::error::{Error, Warning, shown_path, system_message};
use crate::net::connections::Connections;

/// The transfer begins or ends to wait for this side's disk (`docs/reference/trace.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskEvent {
    /// Which thread of the disk this is about.
    pub side: DiskSide,
    /// Whether the transfer waits for it.
    pub waiting: bool,
    /// Buffers that were read and are not requested yet, or that are to be written.
    pub buffers: usize,
}

/// The limit of the transfer, as both ends know it at the end (`docs/reference/trace.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitEvent {
    /// Its name in a summary.
    pub by: &'static str,
    /// The receiver's facts, if it sent any.
    pub receiver: Option<ReceiverEvent>,
}

/// The facts of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverEvent {
    /// For how much of the time its loop wanted a processor, in percent.
    pub cpu: u64,
    /// For how much of the time most of its buffers waited for the disk, in percent.
    pub disk: u64,
    /// For how much of the time what stores wanted a processor, in percent.
    pub storing: u64,
    /// How much its socket holds, in KiB, if that was too little; else 0.
    pub socket: u64,
    /// The socket dropped datagrams.
    pub overrun: bool,
}

/// A thread of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskSide {
    /// The sender's, which reads.
    Read,
    /// The receiver's, which writes.
    Write,
}

/// A trace file.
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

    /// Writes the trace events since the last call.
    pub fn record(&mut self, connections: &mut impl Connections) {
        self.line.clear();
        self.write_connections(connections);
        self.put();
    }

    /// Writes a change of the disk's state.
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

    /// Writes what limited the transfer.
    pub fn record_limit(&mut self, at: Instant, event: LimitEvent) {
        let of = |value: fn(&ReceiverEvent) -> String| {
            event.receiver.as_ref().map_or_else(|| "null".to_owned(), value)
        };
        self.line = format!(
            concat!(
                r#"{{"ns":{},"event":"limit","by":"{}","cpu_percent":{},"disk_percent":{},"#,
                r#""storing_percent":{},"socket_kib":{},"overrun":{}}}"#,
                "\n"
            ),
            at.as_nanos(),
            event.by,
            of(|receiver| receiver.cpu.to_string()),
            of(|receiver| receiver.disk.to_string()),
            of(|receiver| receiver.storing.to_string()),
            of(|receiver| receiver.socket.to_string()),
            of(|receiver| receiver.overrun.to_string()),
        );
        self.put();
    }

    fn write_connections(&mut self, connections: &mut impl Connections) {
        while let Some((at, event)) = connections.poll_trace() {
            event.write_json(at, &mut self.line);
        }
    }

    /// Finishes the trace. Returns a warning if it could not be written.
    pub fn finish(&mut self) -> Option<Warning> {
        if self.failed.is_none() {
            self.failed = self.out.flush().err();
        }
        self.failed.as_ref().map(|error| Warning::Unwritten {
            path: shown_path(&self.path),
            what: "trace",
            why: system_message(error),
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
    fn the_limit_is_one_line_of_json() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut trace = TraceFile::create(file.path()).expect("opened");
        let receiver = ReceiverEvent { cpu: 20, disk: 91, storing: 3, socket: 0, overrun: false };
        for receiver in [Some(receiver), None] {
            let event = LimitEvent { by: "receiver_disk", receiver };
            trace.record_limit(Instant::from_nanos(5), event);
        }
        assert!(trace.finish().is_none());
        let text = std::fs::read_to_string(file.path()).expect("text");
        let expected = concat!(
            r#"{"ns":5,"event":"limit","by":"receiver_disk","cpu_percent":20,"disk_percent":91,"#,
            r#""storing_percent":3,"socket_kib":0,"overrun":false}"#,
            "\n",
            r#"{"ns":5,"event":"limit","by":"receiver_disk","cpu_percent":null,"#,
            r#""disk_percent":null,"storing_percent":null,"socket_kib":null,"overrun":null}"#,
            "\n"
        );
        assert_eq!(text, expected);
    }

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
