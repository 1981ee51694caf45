//! The buffers that a connection of a server has taken.

/// The buffers of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferShare {
    /// Bytes in a buffer.
    pub(super) image_bytes: usize,
    /// How many it has at most before its path has use of more.
    pub(super) at_first: u32,
    /// Bytes of them from the session's share, and beyond a share.
    pub(super) shared: u64,
    pub(super) beyond: u64,
}

impl BufferShare {
    /// More of them: bytes from the session's share, and beyond a share.
    pub(super) fn add(&mut self, shared: u64, beyond: u64) {
        self.shared += shared;
        self.beyond += beyond;
    }
}
