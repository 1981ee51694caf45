//! How far a transfer is, and how it went.

use std::time::Duration;

use netblt_proto::stats::Stats;

/// How far a transfer is.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Progress {
    /// File bytes accepted (sender) or stored (receiver).
    pub bytes: u64,
    /// Those of them that the receiver had already, from a broken transfer. They took no time, and
    /// do not count for a rate.
    pub kept: u64,
    /// File bytes in all, if known.
    pub total: Option<u64>,
    /// Which file it is at, from 1; 0 before the first.
    pub file: u64,
    /// Files in all, if known: the sender knows.
    pub files: Option<u64>,
    /// The name of that file, which may be any bytes.
    pub name: Vec<u8>,
    /// Since the connection opened.
    pub elapsed: Duration,
    /// It is paused at this end ([`Control::pause`](crate::Control::pause)).
    pub paused: bool,
    /// The machine's counts; of several streams, the main connection's.
    pub stats: Stats,
}

/// The present file of a transfer, and its name as it arrives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilePosition {
    pub(crate) file: u64,
    pub(crate) name: Vec<u8>,
}

/// The limit of the transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitedBy {
    /// The path.
    Path,
    /// The sender's disk or pipe.
    SenderDisk,
    /// The receiver's disk or pipe.
    ReceiverDisk,
    /// The receiver's number of buffers, which is less than the path holds.
    ReceiverBuffers,
    /// The receiver's socket, which its system lets hold too little.
    ReceiverSocket,
    /// A processor of the sender's.
    SenderCpu,
    /// A processor of the receiver's.
    ReceiverCpu,
    /// The rate that was asked for, or the burst values that were agreed on.
    RateCap,
    /// Nothing: it ended before it reached its rate (round trips).
    #[default]
    RoundTrips,
}

impl LimitedBy {
    /// All there are.
    pub const ALL: &[Self] = &[
        Self::Path,
        Self::RateCap,
        Self::ReceiverBuffers,
        Self::ReceiverCpu,
        Self::ReceiverDisk,
        Self::ReceiverSocket,
        Self::RoundTrips,
        Self::SenderCpu,
        Self::SenderDisk,
    ];

    /// Its name where programs read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::SenderDisk => "sender_disk",
            Self::ReceiverDisk => "receiver_disk",
            Self::ReceiverBuffers => "receiver_buffers",
            Self::ReceiverSocket => "receiver_socket",
            Self::SenderCpu => "sender_cpu",
            Self::ReceiverCpu => "receiver_cpu",
            Self::RateCap => "rate_cap",
            Self::RoundTrips => "round_trips",
        }
    }
}

/// How a transfer went.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Summary {
    /// File bytes transferred, those among them that the receiver had already.
    pub bytes: u64,
    /// File bytes that the receiver had already, from a transfer that was broken off.
    pub kept: u64,
    /// Files transferred.
    pub files: u64,
    /// Files that could not be read, or could not be stored under their names. Each brings a
    /// warning at both ends, as far as they know of it.
    pub skipped: u64,
    /// Those among them that are not the ones that this end expected
    /// ([`ChecksumOptions::expected`](crate::ChecksumOptions::expected)).
    pub unexpected: u64,
    /// From the opening of the connection to its end.
    pub elapsed: Duration,
    /// RFC 1030's real throughput: bytes over all of the time, in bit/s.
    pub real_bps: f64,
    /// RFC 1030's steady-state throughput, in bit/s: without set-up and without the recovery
    /// after the last buffer's first pass.
    pub steady_bps: f64,
    /// Whether every byte is stored, flushed and its digest agreed.
    pub verified: bool,
    /// The transfer's digest.
    pub digest: [u8; 32],
    /// Its limit.
    pub limited_by: LimitedBy,
    /// The machine's counts, of all streams together.
    pub stats: Stats,
    /// Those of each subflow, the main connection's first, if there was more than one
    /// ([`TransferSettings::streams`](crate::TransferSettings::streams)). Lost and closed ones are
    /// included.
    pub streams: Vec<Stats>,
}
