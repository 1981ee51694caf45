//! Who watches a transfer, and what is told of it.

use std::net::SocketAddr;
use std::time::Duration;

use netblt_proto::stats::Stats;

use crate::ticket::Ticket;

/// Hears what a transfer does. Called from the transfer's own thread; must not block. What is of no
/// interest needs no method.
pub trait Observer: Send {
    /// Listening: give this to the other side.
    fn listening(&mut self, ticket: &Ticket) {
        let _ = ticket;
    }
    /// Listening without a ticket ([`Rendezvous::Passive`](crate::Rendezvous::Passive)) at this
    /// address; on raw IP its port is the NETBLT port.
    fn listening_at(&mut self, address: SocketAddr) {
        let _ = address;
    }
    /// The connection is open.
    fn connected(&mut self, peer: &str) {
        let _ = peer;
    }
    /// About ten times a second.
    fn progress(&mut self, progress: &Progress) {
        let _ = progress;
    }
    /// Nothing heard for three seconds (true), or heard again (false).
    fn silent(&mut self, silent: bool) {
        let _ = silent;
    }
    /// The peer was started again, and the transfer starts over.
    fn restarted(&mut self) {}
    /// Something the user should know that ends nothing (a file skipped, for instance).
    fn warn(&mut self, warning: &Warning) {
        let _ = warning;
    }
}

/// Something the user should know that ends nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// Something in a directory that is neither a file nor a directory is not sent.
    #[error("skipped {path}: it is a {what}")]
    Skipped {
        /// Its path, fit for a terminal.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// So many more are not sent, for the same reason.
    #[error("skipped {0} more of this kind")]
    SkippedMore(u64),
    /// One of several addresses cannot be looked up; the others are tried.
    #[error("{0}")]
    Unresolved(String),
    /// Somebody on the way says that packets are too large: if nothing moves, it is true.
    #[error(
        "the network says that packets of {bytes} bytes are too large on the way, and {limit} pass"
    )]
    PacketSize {
        /// Bytes in our IP packets.
        bytes: u32,
        /// Bytes that pass.
        limit: u32,
    },
}

/// How far a transfer is.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Progress {
    /// File bytes accepted (sender) or stored (receiver).
    pub bytes: u64,
    /// File bytes in all, if known.
    pub total: Option<u64>,
    /// Since the connection opened.
    pub elapsed: Duration,
    /// The machine's counts.
    pub stats: Stats,
}

/// What limited the transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitedBy {
    /// The path.
    Path,
    /// The sender's disk or pipe.
    SenderDisk,
    /// The receiver's disk or pipe, or its number of buffers.
    ReceiverDisk,
    /// A processor at either end.
    Cpu,
    /// The rate that was asked for.
    RateCap,
    /// Nothing: over before it got going (round trips).
    #[default]
    RoundTrips,
}

/// How a transfer went.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Summary {
    /// File bytes transferred.
    pub bytes: u64,
    /// Files transferred.
    pub files: u64,
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
    /// What limited it.
    pub limited_by: LimitedBy,
    /// The machine's counts.
    pub stats: Stats,
}
