//! The number of connections of a transfer.

use netblt_proto::limits::MAX_SUBFLOWS;

/// Over how many connections a transfer goes (`docs/protocol §4.11`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ParallelStreams {
    /// One, and more while a processor of either end is the limit, others are idle there, and the
    /// last streams brought a gain: at most half as many as there are processors, and one where
    /// there are fewer than four.
    #[default]
    Auto,
    /// So many, 32 at most, once the transfer has shown not to be short.
    Most(u8),
}

impl ParallelStreams {
    /// The most that a transfer goes over at a time.
    pub const MAX: u8 = MAX_SUBFLOWS;
}
