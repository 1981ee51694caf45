//! What a client of a server may.

use std::path::PathBuf;
use std::time::SystemTime;

use netblt_proto::units::Rate;

/// What a client may, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// Whose it is, for logs: the comment of the line, or the key's fingerprint; empty for whoever
    /// has the ticket.
    pub name: String,
    /// The directory; nothing outside of it is seen or touched.
    pub root: PathBuf,
    /// What is there may be seen, and files fetched.
    pub read: bool,
    /// Files may be put there, directories made, both removed.
    pub write: bool,
    /// What is there may be sent to other servers: this one calls whatever address he names.
    pub third_party: bool,
    /// The most for all of his sessions together, in IP packets.
    pub max_rate: Option<Rate>,
    /// So many sessions at once.
    pub max_sessions: Option<u32>,
    /// Nothing any more from then on: what has begun goes on.
    pub expires: Option<SystemTime>,
}

impl Grant {
    /// Everything in `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            name: String::new(),
            root: root.into(),
            read: true,
            write: true,
            third_party: false,
            max_rate: None,
            max_sessions: None,
            expires: None,
        }
    }

    /// Whether it holds at that time.
    pub(crate) fn holds(&self, now: SystemTime) -> bool {
        self.expires.is_none_or(|end| now < end)
    }
}
