//! The audit record of a request, and the status of its transfer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::requests::request_kind::RequestKind;
use crate::error::RequestErrorKind;
use crate::observer::Observer;
use crate::progress::Progress;

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It was done; of files, every byte is verified.
    Done,
    /// It was refused, and the client has the reason.
    Denied(RequestErrorKind, String),
    /// It came to no end: why.
    Failed(String),
}

/// What an audit record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuditKind {
    /// A request of this kind.
    Request(RequestKind),
    /// The data of a *put* or *put-range*.
    Receive,
    /// A connection without a request.
    None,
}

impl AuditKind {
    /// How many there are.
    pub(super) const COUNT: usize = RequestKind::ALL.len() + 2;

    /// All of them, those of requests first.
    pub fn all() -> impl Iterator<Item = Self> {
        RequestKind::ALL.into_iter().map(Self::Request).chain([Self::Receive, Self::None])
    }

    /// Its name in audit logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Request(kind) => kind.name(),
            Self::Receive => "receive",
            Self::None => "none",
        }
    }
}

/// The audit record of a finished request: client, request, bytes and verdict.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AuditRecord {
    /// The client's address.
    pub peer: SocketAddr,
    /// The client, as far as it is known: the name of a key.
    pub name: String,
    /// What it is about.
    pub request: AuditKind,
    /// Relative to the root.
    pub path: Vec<u8>,
    /// The target: of `rename`, `copy` and `join` the new name, of `send` the address of the other
    /// server, of `put` and `receive` the name of a single file if it does not keep its own. Empty
    /// if there is none.
    pub target: Vec<u8>,
    /// The names of all files, directories and links that were sent (`get` and `send`), received
    /// (`receive`) or read (`read`), in that order, whatever the result. They are relative to the
    /// target, those of `read` to the root. They are bounded: [`AuditRecord::names_omitted`].
    pub names: Vec<Vec<u8>>,
    /// How many names were omitted. [`AuditRecord::names`] has room for 64 KiB, of which each name
    /// takes its bytes and 32, and needs memory.
    pub names_omitted: u64,
    /// File bytes sent or stored, or bytes of the answer.
    pub bytes: u64,
    /// Since the connection opened.
    pub elapsed: Duration,
    /// How it ended.
    pub verdict: Verdict,
}

/// The status of a transfer, for the server's loop.
#[derive(Debug, Default)]
pub(super) struct TransferStatus {
    pub(super) bytes: AtomicU64,
    /// Bytes of IP packets that a transfer to another server has sent.
    pub(super) sent: AtomicU64,
    pub(super) silent: AtomicBool,
}

/// Keeps the status of a transfer up to date.
pub(super) struct StatusObserver(pub(super) Arc<TransferStatus>);

impl Observer for StatusObserver {
    fn progress(&mut self, progress: &Progress) {
        self.0.bytes.store(progress.bytes, Ordering::Relaxed);
    }

    fn silent(&mut self, silent: bool) {
        self.0.silent.store(silent, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = include_str!("../../../../docs/reference/metrics.md");
    const GUIDE: &str = include_str!("../../../../docs/guide/servers.md");

    /// The words in code letters.
    fn code(text: &str) -> Vec<&str> {
        text.split('`').skip(1).step_by(2).collect()
    }

    #[test]
    fn the_page_of_metrics_and_the_guide_have_the_names_of_all_audit_records() {
        let names: Vec<&str> = AuditKind::all().map(AuditKind::name).collect();
        assert_eq!(names.len(), AuditKind::COUNT);
        let row = METRICS.lines().find_map(|line| line.strip_prefix("| `request` |"));
        assert_eq!(code(row.expect("the row of the label")), names);
        let head = "| request | what the client asked for |";
        let rows = GUIDE.split(head).nth(1).expect("the table of the audit log").lines().skip(2);
        let rows = rows.take_while(|line| line.starts_with('|'));
        let firsts = rows.flat_map(|row| row.split('|').nth(1).map(code).unwrap_or_default());
        let (mut written, mut names) = (firsts.collect::<Vec<_>>(), names);
        written.sort_unstable();
        names.sort_unstable();
        assert_eq!(written, names);
    }
}
