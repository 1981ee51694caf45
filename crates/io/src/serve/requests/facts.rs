//! What a server must know of a request before it performs it.

/// The facts about a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestFacts<'a> {
    /// Its other path, or the other server's address, for logs.
    pub(crate) target: &'a [u8],
    /// Bytes of memory for it, and for performing it.
    pub(crate) memory: u64,
    /// Over how many subflows the files that it asks for may come (`docs/protocol §4.11`).
    pub(crate) subflows: u64,
    /// What it says about an upload.
    pub(crate) upload: Option<UploadFacts>,
    /// The server is to connect to another one.
    pub(crate) connects: bool,
}

/// What a request says about an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UploadFacts {
    /// One is announced, with its label; `via_server`: another server brings it.
    Announced { label: Option<[u8; 32]>, via_server: bool },
    /// The announced one with this number is cancelled.
    Cancelled(u64),
}

/// The key that two uploads of the same files have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UploadKey {
    /// The path of the request.
    pub(crate) path: Vec<u8>,
    pub(crate) label: Option<[u8; 32]>,
}
