//! What sender and receiver have in common: what was negotiated, and what becomes of a packet.

use std::time::Duration;

use crate::buffer::Geometry;
use crate::rules::Rules;
use crate::time::Instant;
use crate::wire::packet::Burst;

/// What both ends agreed on when the connection opened, as the machines need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Negotiated {
    pub(crate) rules: Rules,
    pub(crate) geometry: Geometry,
    pub(crate) max_outstanding: u32,
    pub(crate) burst: Burst,
    /// Largest datagram to build, in bytes.
    pub(crate) datagram_bytes: usize,
    /// When the connection opened.
    pub(crate) opened: Instant,
    /// Round trip of the handshake, if it was measured.
    pub(crate) rtt: Option<Duration>,
    /// The same; or the longest that it may have been, if nothing is known but that it may have
    /// been long.
    pub(crate) longest_rtt: Option<Duration>,
}

/// What became of a DATA packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Authentic (new or not).
    Authentic,
    /// Forged, corrupt or replayed: nothing was believed.
    Dropped,
    /// Authentic, and impossible.
    Violation(&'static str),
}
