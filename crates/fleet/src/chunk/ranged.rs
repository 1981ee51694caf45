//! A range of a file: one task of several that transfer one file, and the join of the ranges.
//!
//! A range that is on the other side has a record, `ranges/K.json`. The task that finds records of
//! all of them has the server make the file, and writes the line of its digest, which follows from
//! the records, as the sums of the last range. A file that changes meanwhile has no digest: the
//! task ends for good.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use netblt::serve::EntryType as There;
use netblt::serve::client::{Client, Joined, RangeLabels};
use netblt::{Error as TransferError, ExitCode, FileRange, OnFile, Options, RequestErrorKind};
use netblt_proto::api::printable_bytes;

use super::{Task, TaskObserver, TryResult};
use crate::error::{Error, damaged};
use crate::list::{EntryType, Items};
use crate::names::arriving;
use crate::range_record::{brought, values};
use crate::record::Brought;
use crate::run::{self, Chunk, Part, RANGES, Run};

/// The exit code of a file that is not the one that was planned any more.
const CHANGED: ExitCode = ExitCode::Vanished;
const NOT_THE_SAME: &str = "is not as it was when it was planned, and its ranges are of one state \
                            only: plan it again when nothing writes to it";

/// A range as its list has it.
struct RangeEntry {
    /// Relative to the source.
    name: Vec<u8>,
    range: FileRange,
    modified: (i64, u32),
}

impl RangeEntry {
    fn read(run: &Run, chunk: &Chunk) -> Result<Self, Error> {
        let path = run.list(chunk.number);
        let odd = || damaged(&path, "it is not the list of a range");
        let item = Items::open(&path)?.next().ok_or_else(odd)??;
        let EntryType::Range { offset, total } = item.sort else { return Err(odd()) };
        let range = FileRange { offset, length: item.bytes, total };
        let (name, modified) = (item.name, item.modified);
        if range.is_good() { Ok(Self { name, range, modified }) } else { Err(odd()) }
    }

    fn path(&self, run: &Run) -> PathBuf {
        let source = run.source();
        match &self.name[..] {
            b"" => source,
            name => source.join(std::ffi::OsStr::from_bytes(name)),
        }
    }

    /// The permissions of the file, if it is as it was when it was planned.
    fn look(&self, run: &Run) -> Option<u32> {
        let about = fs::metadata(self.path(run)).ok()?;
        let nanos = u32::try_from(about.mtime_nsec()).unwrap_or(0);
        let same = about.is_file()
            && about.len() == self.range.total
            && (about.mtime(), nanos) == self.modified;
        same.then_some(about.mode() & 0o777)
    }
}

/// Does what needs a directory on the server, which is made if it turns out that it is not there:
/// most often another task was here before.
fn beneath<T>(
    server: &Client<'_>,
    directory: &[u8],
    watch: &mut TaskObserver<'_>,
    mut act: impl FnMut(&mut TaskObserver<'_>) -> Result<T, TransferError>,
) -> Result<T, TransferError> {
    match act(watch) {
        Err(TransferError::Denied { what: RequestErrorKind::NotFound, .. })
            if !directory.is_empty() =>
        {
            server.make_directory(directory, true, watch)?;
            act(watch)
        }
        done => done,
    }
}

impl Task<'_> {
    /// Puts the range on one server, unless that was done, and joins the file if it was the last.
    pub(super) fn range(
        &self,
        host: &str,
        began: f64,
        server: &Client<'_>,
    ) -> Result<TryResult, Error> {
        let own = RangeEntry::read(self.run, &self.chunk)?;
        let kept = match brought(self.run, &self.chunk)? {
            Some((record, _)) => record.kept,
            None => match self.bring(host, &own, server)? {
                Ok(kept) => kept,
                Err(other) => return Ok(other),
            },
        };
        if let Some(values) = values(self.run, &self.chunk)?
            && let Some(other) = self.join(host, &own, &values, server)?
        {
            return Ok(other);
        }
        let sums = self.run.sums(self.chunk.number);
        let is_last = self.chunk.part.is_some_and(Part::is_last);
        if !is_last {
            run::publish(&sums, b"")?;
        }
        // The file counts once, with the range that has its sums.
        self.done(host, began, [own.range.length, kept, is_last.into(), 0])
    }

    fn changed(&self, host: &str, own: &RangeEntry) -> TryResult {
        let path = own.path(self.run);
        let why = format!("{} {NOT_THE_SAME}", path.display());
        TryResult::Never(self.failed(host, CHANGED, why, true, vec![printable_bytes(&own.name)]))
    }

    /// Bytes that were there before.
    fn bring(
        &self,
        host: &str,
        own: &RangeEntry,
        server: &Client<'_>,
    ) -> Result<Result<u64, TryResult>, Error> {
        if own.look(self.run).is_none() {
            return Ok(Err(self.changed(host, own)));
        }
        let digest = Arc::new(Mutex::new(None));
        let found = Arc::clone(&digest);
        let mut options: Options = server.options.clone();
        options.manifest = None;
        options.on_file = Some(OnFile::new(move |sum| {
            *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(sum.blake3);
        }));
        let server = Client { options: &options, ..*server };
        let parent = self.run.target().0;
        let (file, range) = (self.run.file_label(&self.chunk), self.run.label(&self.chunk));
        let labels = RangeLabels { file, range };
        let mut watch = TaskObserver(self);
        let put = beneath(&server, &parent, &mut watch, |watch| {
            server.put_range(own.path(self.run), own.range, labels, &parent, watch)
        });
        let summary = match put {
            Ok(summary) => summary,
            Err(TransferError::Unsendable(_)) => return Ok(Err(self.changed(host, own))),
            Err(error) => return Ok(Err(self.trouble(host, &error))),
        };
        if own.look(self.run).is_none() {
            return Ok(Err(self.changed(host, own)));
        }
        let value = digest.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(value) = value.filter(|_| summary.verified && summary.skipped == 0) else {
            let why = "the range could not be sent or stored".to_owned();
            return Ok(Err(TryResult::Again(self.failed(
                host,
                ExitCode::Partial,
                why,
                false,
                vec![printable_bytes(&own.name)],
            ))));
        };
        let record = Brought {
            chunk: self.chunk.number,
            id: blake3::Hash::from_bytes(self.chunk.id).to_hex().to_string(),
            value: blake3::Hash::from_bytes(value).to_hex().to_string(),
            kept: summary.kept,
        };
        run::write(&self.run.record(RANGES, self.chunk.number), &record)?;
        Ok(Ok(summary.kept))
    }

    /// All ranges are there. Returns why the server could not make the file of them, if so.
    fn join(
        &self,
        host: &str,
        own: &RangeEntry,
        values: &[[u8; 32]],
        server: &Client<'_>,
    ) -> Result<Option<TryResult>, Error> {
        let Some(mode) = own.look(self.run) else { return Ok(Some(self.changed(host, own))) };
        let last = self.chunk.siblings().end.saturating_sub(1);
        let sums = self.run.sums(last);
        if sums.exists() {
            return Ok(None);
        }
        let (parent, leaf) = self.run.target();
        let name = arriving(leaf.as_bytes(), &own.name);
        let between: &[u8] = if parent.is_empty() { b"" } else { b"/" };
        let to = [&parent[..], between, &name].concat();
        let total = own.range.total;
        // All but the last have the bytes of the first.
        let first = self.run.chunk(self.chunk.siblings().start)?.bytes;
        let (label, modified) = (self.run.file_label(&self.chunk), own.modified);
        let joined = Joined { to: &to, label, total, bytes: first, mode, modified };
        let mut watch = TaskObserver(self);
        let above = to.iter().rposition(|byte| *byte == b'/').and_then(|at| to.get(..at));
        let above = above.unwrap_or_default();
        let made = beneath(server, above, &mut watch, |watch| server.join(&parent, &joined, watch));
        match made {
            Ok(()) => {}
            // Another task may have done it.
            Err(TransferError::Denied { what: RequestErrorKind::NotFound, why }) => {
                match server.stat(&to, &mut watch) {
                    Ok(entry)
                        if entry.sort == There::File
                            && entry.length == total
                            && entry.modified == modified => {}
                    _ => {
                        let why = format!(
                            "{why}; all hosts of the pool must serve the same directory, and after \
                         \"netblt fleet clean\" the ranges of the file are sent again"
                        );
                        let names = vec![printable_bytes(&own.name)];
                        return Ok(Some(TryResult::Never(self.failed(
                            host,
                            ExitCode::Partial,
                            why,
                            true,
                            names,
                        ))));
                    }
                }
            }
            Err(error) => return Ok(Some(self.trouble(host, &error))),
        }
        let Some(digest) = netblt::digest_of_ranges(values) else {
            return Err(damaged(&self.run.list(last), "a file has fewer ranges than two"));
        };
        run::publish(&sums, &netblt::manifest_line(&name, &digest))?;
        Ok(None)
    }
}
