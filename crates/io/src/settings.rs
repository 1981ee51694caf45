//! The settings of a transfer that may hold at both ends: plain values, which can be sent to the
//! other end beside the transfer.

use std::time::Duration;

use netblt_proto::config::{FecPolicy, Policy};
use netblt_proto::limits::{DEFAULT_DEATH_TIMER, DEFAULT_MAX_FILES};

use crate::parallel_streams::ParallelStreams;

/// Which IP versions to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Family {
    /// Any.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// The rule for a file that exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Overwrite {
    /// Leave it as it is; with [`TransferSettings::atomic`] refuse the transfer. A file with the
    /// same content counts as received.
    #[default]
    Never,
    /// Replace it in one step, when the new file is complete.
    Always,
}

/// The rule for the parts of a broken transfer (`sealed`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Resume {
    /// Resume from the parts.
    #[default]
    Auto,
    /// Ignore them, and keep no parts of this transfer either.
    Never,
    /// Read the parts again, and resume from those whose content is right.
    Verify,
}

/// Attributes beyond permission bits and modification time. Each is sent and set only if both ends
/// have it on (`sealed`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Extras {
    /// Owner and group, by their names where both systems know them. An owner that
    /// this user may not set causes a warning.
    pub owner: bool,
    /// Extended attributes of the namespace `user`.
    pub xattrs: bool,
    /// POSIX access lists. A receiver then keeps permissions as with `preserve`.
    pub acls: bool,
}

/// How data and files are transferred. Each end uses those that its role needs.
///
/// With the feature `serde` they can be serialised, except [`Policy::Fixed`] and
/// [`Policy::Emulated`], which concern one end only.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct TransferSettings {
    /// Which IP versions to use.
    pub family: Family,
    /// How long to wait for a silent peer.
    pub death_timer: Duration,
    /// How to choose the rate. A receiver's ceiling is proposed as burst values.
    pub policy: Policy,
    /// A sender that chooses its own rate remembers the path for a day, in
    /// `$XDG_CACHE_HOME/netblt/paths` or `~/.cache/netblt/paths`, and begins the next transfer to
    /// the same peer with half of its rate (`sealed`). Only addresses, rates and times are kept.
    pub path_cache: bool,
    /// The share of repair packets that a sender adds (`docs/protocol §6.10`), by default
    /// [`FecPolicy::Auto`]. Only `sealed` has them; a share on `rfc998` is an error.
    pub fec: FecPolicy,
    /// The most connections of a transfer, each with a socket and a thread of its own. The smaller
    /// value of both ends counts (`sealed`, [`crate::send`] and [`crate::receive`]).
    pub streams: ParallelStreams,
    /// The rule for files that exist.
    pub overwrite: Overwrite,
    /// All or nothing: an unreadable file, one that changes while it is read, or one that cannot be
    /// stored at the receiver ends the transfer. Otherwise such a file is left out, with a warning,
    /// and counted in [`Summary::skipped`](crate::Summary::skipped) (`sealed`).
    pub atomic: bool,
    /// The rule for the parts of a broken transfer. A sender with [`Resume::Never`] sends
    /// everything.
    pub resume: Resume,
    /// Read every file back from the disk before it gets its name, and leave out files that differ
    /// from those received. Parts of a broken transfer are read again, too
    /// ([`crate::Destination::Directory`]).
    pub verify: bool,
    /// How long the parts of a broken transfer are kept.
    pub partial_expiry: Duration,
    /// Give files and directories the sender's permission bits, without this user's mask (umask).
    pub preserve: bool,
    /// Give files and directories the sender's times of modification, and not those of arrival.
    pub keep_times: bool,
    /// The extra attributes of files.
    pub extras: Extras,
    /// Most files and directories to receive, those that names imply among them.
    pub max_files: u64,
    /// Most file bytes to receive.
    pub max_bytes: Option<u64>,
}

/// How long parts of files are kept.
const PARTIAL_EXPIRY: Duration = Duration::from_secs(7 * 24 * 3600);

impl Default for TransferSettings {
    /// A fair rate, one minute for a silent peer, no file replaced.
    fn default() -> Self {
        Self {
            family: Family::Any,
            death_timer: DEFAULT_DEATH_TIMER,
            policy: Policy::Fair { ceiling: None },
            path_cache: false,
            fec: FecPolicy::Auto,
            streams: ParallelStreams::default(),
            overwrite: Overwrite::Never,
            atomic: false,
            resume: Resume::Auto,
            verify: false,
            partial_expiry: PARTIAL_EXPIRY,
            preserve: false,
            keep_times: true,
            extras: Extras::default(),
            max_files: DEFAULT_MAX_FILES,
            max_bytes: None,
        }
    }
}
