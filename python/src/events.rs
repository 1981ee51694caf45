//! What a transfer tells, as Python's values.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use netblt::Event;
use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// How far a transfer is.
#[pyclass(frozen, get_all, module = "netblt")]
pub(crate) struct Progress {
    /// File bytes accepted (sender) or stored (receiver).
    bytes: u64,
    /// Those of them that the receiver had already, from a transfer that was broken off.
    kept: u64,
    /// File bytes in all, if known.
    total: Option<u64>,
    /// Which file it is at, from 1; 0 before the first.
    file: u64,
    /// Files in all, if known.
    files: Option<u64>,
    /// The name of that file; what is no text in it as `os.fsdecode` has it.
    name: OsString,
    /// Seconds since the connection opened.
    elapsed: f64,
    /// Whether it is paused at this end.
    paused: bool,
    /// Round trip in seconds, if known.
    rtt: Option<f64>,
}

#[pymethods]
impl Progress {
    fn __repr__(&self) -> String {
        let total = self.total.map_or_else(|| "None".to_owned(), |total| total.to_string());
        format!("Progress(bytes={}, total={total}, elapsed={:.3})", self.bytes, self.elapsed)
    }
}

/// How a transfer went.
#[pyclass(frozen, get_all, module = "netblt")]
pub(crate) struct Summary {
    /// File bytes transferred, those among them that the receiver had already.
    bytes: u64,
    /// File bytes that the receiver had already.
    kept: u64,
    /// Files transferred.
    files: u64,
    /// What was left out, each of them a warning.
    skipped: u64,
    /// Seconds from the opening of the connection to its end.
    elapsed: f64,
    /// Bits a second over all of the time.
    real_bps: f64,
    /// Bits a second without beginning and end.
    steady_bps: f64,
    /// Whether every byte is stored, flushed and its digest agreed.
    verified: bool,
    /// The transfer's digest.
    digest: Py<PyBytes>,
    /// What limited it.
    limited_by: &'static str,
    /// Over how many connections it went, those that were lost or closed again as well.
    streams: usize,
}

impl Summary {
    pub(crate) fn of(py: Python<'_>, summary: &netblt::Summary) -> Self {
        Self {
            bytes: summary.bytes,
            kept: summary.kept,
            files: summary.files,
            skipped: summary.skipped,
            elapsed: summary.elapsed.as_secs_f64(),
            real_bps: summary.real_bps,
            steady_bps: summary.steady_bps,
            verified: summary.verified,
            digest: PyBytes::new(py, &summary.digest).unbind(),
            limited_by: summary.limited_by.name(),
            streams: summary.streams.len().max(1),
        }
    }
}

#[pymethods]
impl Summary {
    fn __repr__(&self) -> String {
        let Self { bytes, files, skipped, elapsed, .. } = self;
        let verified = if self.verified { "True" } else { "False" };
        format!(
            "Summary(bytes={bytes}, files={files}, skipped={skipped}, verified={verified}, \
             elapsed={elapsed:.3})"
        )
    }
}

/// An event as its name and what belongs to it.
pub(crate) fn to_python(py: Python<'_>, event: Event) -> PyResult<(&'static str, Py<PyAny>)> {
    Ok(match event {
        Event::Listening(ticket) => ("ticket", ticket.to_string().into_py_any(py)?),
        Event::ListeningAt(address) => ("listening", address.to_string().into_py_any(py)?),
        Event::Connected(peer) => ("connected", peer.into_py_any(py)?),
        Event::Progress(progress) => {
            let progress = Progress {
                bytes: progress.bytes,
                kept: progress.kept,
                total: progress.total,
                file: progress.file,
                files: progress.files,
                elapsed: progress.elapsed.as_secs_f64(),
                paused: progress.paused,
                rtt: progress.stats.rtt.map(|rtt| rtt.as_secs_f64()),
                name: OsString::from_vec(progress.name),
            };
            ("progress", progress.into_py_any(py)?)
        }
        Event::Silent(true) => ("silent", py.None()),
        Event::Silent(false) => ("answering", py.None()),
        Event::Restarted => ("restarted", py.None()),
        Event::ListFetched => ("list_fetched", py.None()),
        Event::Refused(why) => ("refused", why.into_py_any(py)?),
        Event::Warning(warning) => ("warning", warning.to_string().into_py_any(py)?),
        Event::Missed(count) => ("missed", count.into_py_any(py)?),
        // The library knows more than this package: what that is, people can read.
        other => ("other", format!("{other:?}").into_py_any(py)?),
    })
}
