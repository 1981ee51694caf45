//! One file that comes, whichever of its extents are here.

use netblt_proto::content::{ExtraAttributes, Kind};

use crate::checksums::algorithm::Digests;
use crate::checksums::content_hashes::FileHash;
use crate::disk::attributes::FileTimes;
use crate::disk::digest::Subtrees;
use crate::disk::names::NameId;
use crate::disk::sites::{TOP, none_in};

/// The state of one file, whichever of its extents have come.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) kind: Kind,
    /// Parts of it were here, and are not sent again.
    pub(super) kept: bool,
    /// With its first extent: its name, and its other attributes.
    pub(super) attributes: Option<(NameId, FileTimes)>,
    /// Why it cannot have its name here, if it cannot.
    pub(super) refused: Option<Box<str>>,
    /// It is refused because it is not the file that was expected.
    pub(super) unexpected: bool,
    /// The requested extra attributes, until they are set.
    pub(super) more: Option<Box<ExtraAttributes>>,
    /// The sender's digest, with its last extent.
    pub(super) claimed: Option<[u8; 32]>,
    /// Its length and digest, once it is complete.
    pub(super) complete: Option<(u64, [u8; 32])>,
    /// Its digests beside BLAKE3, while it comes and once it is complete, if they are computed.
    pub(super) hash: Option<Box<FileHash>>,
    pub(super) digests: Option<Box<Digests>>,
    /// It has its name.
    pub(super) placed: bool,
    /// For a file in several extents, until it is complete.
    pub(super) subtrees: Option<Box<Subtrees>>,
    /// The file of this number among the temporaries.
    pub(super) slot: u64,
}

impl Incoming {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            kept: false,
            attributes: None,
            more: None,
            refused: None,
            unexpected: false,
            claimed: None,
            complete: None,
            hash: None,
            digests: None,
            placed: false,
            subtrees: None,
            slot: none_in(TOP),
        }
    }

    /// The name, length and digests of a file of a kind that a manifest lists.
    pub(super) fn listed(&self) -> Option<(NameId, u64, Digests)> {
        let (id, _) = self.attributes.filter(|_| self.kind.has_content())?;
        let (length, _) = self.complete?;
        Some((id, length, self.all_digests()?))
    }

    /// All digests of its content that are known, once it is complete.
    pub(super) fn all_digests(&self) -> Option<Digests> {
        let (_, digest) = self.complete?;
        let digests = self.digests.as_deref().cloned();
        Some(digests.unwrap_or_else(|| Digests::of_blake3(&digest)))
    }
}
