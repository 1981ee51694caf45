//! One-way mirrors: a destination becomes like a source, and only what differs is sent.
//!
//! [`MirrorSource`] and [`MirrorDestination`] are the two ends. Each lists its tree, at the same
//! time and in the same order. The destination sends a digest of each directory, and the entries
//! of those that differ. The source decides, and the destination makes way. The files are then
//! transferred by [`send`](crate::send) and [`receive`](crate::receive), and the destination makes
//! the changes that need no data: removals, renames, hard links, attributes. A [`Channel`] carries
//! the messages of the two ends; with the feature `serde` they can be serialised.
//!
//! A mirror that was interrupted at any point is right when it is run again: every file is replaced
//! in one step, and nothing is removed before everything has arrived, unless
//! [`DeleteTime::Before`] asks for it.

mod change;
mod destination;
mod digest_cache;
mod entry;
mod filter;
mod message;
mod names;
mod settings;
mod source;
#[cfg(test)]
mod tests;
#[cfg(feature = "serde")]
mod text;
mod tree;
mod tree_writer;

pub use self::change::{ChangeKind, Differences, MirrorChange};
pub use self::destination::{Decided, MirrorDestination};
pub use self::filter::{Filter, FilterRule};
pub use self::message::{Channel, Message, MirrorOutcome};
pub use self::settings::{DeleteTime, MaxDelete, MirrorSettings};
pub use self::source::{Difference, MirrorSource};
