//! The permissions of a server's client.

use std::path::PathBuf;
use std::time::SystemTime;

use netblt_proto::units::Rate;

/// The permissions of a client, with their bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Permissions {
    /// The owner's name, for logs: the comment of the line, or the key's fingerprint. Empty for a
    /// client with the ticket.
    pub name: String,
    /// The directory; nothing outside of it is seen or touched.
    pub root: PathBuf,
    /// It may list and fetch files.
    pub read: bool,
    /// Files may be put there, directories made, both removed.
    pub write: bool,
    /// It may have files sent to other servers: the server connects to any address that the client
    /// names.
    pub third_party: bool,
    /// The most for all of his sessions together, in IP packets.
    pub max_rate: Option<Rate>,
    /// The most sessions at once.
    pub max_sessions: Option<u32>,
    /// The end of the permissions. Running requests continue.
    pub expires: Option<SystemTime>,
}

impl Permissions {
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
