//! The messages between the two ends of a mirror, beside the transfer of the files.

use crate::error::Error;
use crate::mirror::change::MirrorChange;
use crate::mirror::entry::{Short, TreeEntry};

/// A message of one end to the other. Its content is opaque: a [`Channel`] carries it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Message(pub(crate) Body);

/// Carries messages between the two ends, in order. It holds those that were not received yet:
/// neither end waits for the other to receive.
pub trait Channel {
    /// Why the channel, or the mirror, failed.
    type Failure: From<Error>;

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// The channel failed.
    fn send(&mut self, message: Message) -> Result<(), Self::Failure>;

    /// Waits for the next message.
    ///
    /// # Errors
    ///
    /// The channel or the other end failed.
    fn receive(&mut self) -> Result<Message, Self::Failure>;
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) enum Body {
    /// From the destination: its directories in the order of a walk.
    Directories(ListPiece<DirectorySummary>),
    /// From the source: directories that differ, in the same order.
    Differ(#[cfg_attr(feature = "serde", serde(with = "super::text::list"))] Vec<Vec<u8>>),
    /// The entries of the next one of these.
    Entries(ListPiece<TreeEntry>),
    /// From the source: what the destination is to remove, and whether the source is empty.
    Remove {
        piece: ListPiece<Removal>,
        empty: bool,
    },
    /// All entries that are removed so. Before any is, the number is checked.
    Removed(ListPiece<RemovedEntry>),
    /// From the source: the names of files whose BLAKE3 is needed.
    Hash(#[cfg_attr(feature = "serde", serde(with = "super::text::list"))] Vec<Vec<u8>>),
    Hashes(Vec<Option<[u8; 32]>>),
    /// From the source: the other changes.
    Actions(ListPiece<Action>),
    /// From the source: all changes, for the user at the destination.
    Changes(ListPiece<MirrorChange>),
    /// From the source: begin. Whether files are transferred, and how many entries are the same.
    Begin {
        transfer: bool,
        unchanged: u64,
    },
    /// From the destination: it is ready for the files.
    Ready(Vec<String>),
    /// From a destination that the user started: the transfer is over.
    Arrived,
    /// From the source: make the last changes. `complete`: every file of the source was read.
    Finish {
        complete: bool,
    },
    /// From the destination: all changes are made.
    Finished(MirrorOutcome),
}

/// A piece of a list.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct ListPiece<T> {
    pub(crate) list: Vec<T>,
    pub(crate) last: bool,
}

/// A directory, with a digest of its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct DirectorySummary {
    #[cfg_attr(feature = "serde", serde(with = "super::text"))]
    pub(crate) name: Vec<u8>,
    pub(crate) digest: Short,
    pub(crate) entries: u64,
}

/// Something to remove, with all beneath it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Removal {
    #[cfg_attr(feature = "serde", serde(with = "super::text"))]
    pub(crate) name: Vec<u8>,
    /// Something of another type takes its place.
    pub(crate) obstacle: bool,
}

/// An entry that is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct RemovedEntry {
    #[cfg_attr(feature = "serde", serde(with = "super::text"))]
    pub(crate) name: Vec<u8>,
    pub(crate) directory: bool,
    /// The version of a file that is not empty, and may be one of the source's under another name.
    pub(crate) version: Option<Version>,
}

/// The length and the time of modification of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Version {
    pub(crate) length: u64,
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
}

/// A change at the destination that needs no data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) enum Action {
    /// The file is about to be replaced: it is kept in the directory of backups.
    BackUp(#[cfg_attr(feature = "serde", serde(with = "super::text"))] Vec<u8>),
    /// A file that is to be removed gets another name.
    Rename {
        #[cfg_attr(feature = "serde", serde(with = "super::text"))]
        from: Vec<u8>,
        #[cfg_attr(feature = "serde", serde(with = "super::text"))]
        to: Vec<u8>,
    },
    /// The name becomes another one of a file.
    Link {
        #[cfg_attr(feature = "serde", serde(with = "super::text"))]
        file: Vec<u8>,
        #[cfg_attr(feature = "serde", serde(with = "super::text"))]
        name: Vec<u8>,
    },
    /// Permissions and time of modification.
    Attributes {
        #[cfg_attr(feature = "serde", serde(with = "super::text"))]
        name: Vec<u8>,
        directory: bool,
        mode: u32,
        seconds: i64,
        nanos: u32,
    },
}

impl Action {
    pub(crate) fn cost(&self) -> usize {
        let names = match self {
            Self::BackUp(name) | Self::Attributes { name, .. } => name.len(),
            Self::Rename { from, to } => from.len() + to.len(),
            Self::Link { file, name } => file.len() + name.len(),
        };
        200 + 2 * names
    }
}

/// The result of a mirror at its destination, beside the files that were transferred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct MirrorOutcome {
    /// Entries that were removed.
    pub removed: u64,
    /// Files that got another name.
    pub renamed: u64,
    /// Names that became hard links.
    pub linked: u64,
    /// Entries that were to be removed and stay, since not everything arrived.
    pub kept: u64,
    /// Changes that could not be made, and why.
    pub problems: Vec<String>,
}

/// Bytes in a piece of a list, at most: JSON makes more of them, and a message has 1 MiB.
const PIECE_BYTES: usize = 400_000;

/// Sends a list in pieces; one at least.
pub(crate) fn send_list<C: Channel, T>(
    channel: &mut C,
    list: impl IntoIterator<Item = T>,
    cost: impl Fn(&T) -> usize,
    body: impl Fn(ListPiece<T>) -> Body,
) -> Result<(), C::Failure> {
    let (mut piece, mut bytes) = (Vec::new(), 0);
    for item in list {
        bytes += cost(&item);
        if bytes > PIECE_BYTES && !piece.is_empty() {
            let list = std::mem::take(&mut piece);
            channel.send(Message(body(ListPiece { list, last: false })))?;
            bytes = cost(&item);
        }
        piece.push(item);
    }
    channel.send(Message(body(ListPiece { list: piece, last: true })))
}

/// Receives a list. `take` returns the piece of a message of the expected kind, and the list has at
/// most `most` items.
pub(crate) fn receive_list<C: Channel, T>(
    channel: &mut C,
    most: u64,
    take: impl Fn(Body) -> Option<ListPiece<T>>,
) -> Result<Vec<T>, C::Failure> {
    let mut list = Vec::new();
    loop {
        let ListPiece { list: piece, last } = take(channel.receive()?.0).ok_or_else(unexpected)?;
        list.extend(piece);
        if list.len() as u64 > most {
            return Err(unexpected().into());
        }
        if last {
            return Ok(list);
        }
    }
}

/// The other end sent something else.
pub(crate) fn unexpected() -> Error {
    Error::Content("unexpected message of a mirror")
}
