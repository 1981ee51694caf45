//! An entry of a directory on a server.

/// The type of a file on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum EntryType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, pipe or socket.
    Other,
}

/// A file, a directory or a link on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Its name, one part; that of the root is empty.
    pub name: Vec<u8>,
    /// Its type.
    pub sort: EntryType,
    /// Bytes in it.
    pub length: u64,
    /// The bytes that are no holes, if the server has reported their number.
    pub data: u64,
    /// Time of modification: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// Permission bits.
    pub mode: u32,
}
