//! What a server must know of a request before it performs it.

/// The facts about a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestFacts<'a> {
    /// The second path of the request, or the other server's address, for logs.
    pub(crate) target: &'a [u8],
    /// Bytes of memory for the request and for performing it.
    pub(crate) memory: u64,
    /// The most subflows over which requested files may come (`docs/protocol §4.11`).
    pub(crate) subflows: u64,
    /// The upload that the request announces or cancels.
    pub(crate) upload: Option<UploadFacts>,
    /// The server is to connect to another one.
    pub(crate) connects: bool,
}

/// The upload that a request announces or cancels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UploadFacts {
    /// An upload is announced, with its label; `via_server`: another server brings the files.
    Announced { label: Option<[u8; 32]>, via_server: bool },
    /// The announced upload with this number is cancelled.
    Cancelled(u64),
}

/// The key that two uploads of the same files have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UploadKey {
    /// The path of the request.
    pub(crate) path: Vec<u8>,
    pub(crate) label: Option<[u8; 32]>,
}
