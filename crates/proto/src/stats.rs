//! Counts and measurements: what a run must always tell.

use std::time::Duration;

use crate::time::Instant;
use crate::units::Rate;

/// Counts and measurements of one connection, from both roles; what a role cannot know stays 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// DATA and LDATA packets sent, resends included.
    pub data_packets_sent: u64,
    /// Of the data packets sent, those that were sent before.
    pub data_packets_resent: u64,
    /// DATA and LDATA packets that arrived and were new.
    pub data_packets_received: u64,
    /// DATA and LDATA packets that arrived again.
    pub data_packets_duplicate: u64,
    /// Packets found missing: by the receiver, or as its reports (`rfc998`: its RESENDs) told the
    /// sender.
    pub data_packets_lost: u64,
    /// Datagrams sent, of every kind.
    pub datagrams_sent: u64,
    /// Bytes in them.
    pub bytes_sent: u64,
    /// Datagrams that arrived and were authentic (`rfc998`: well-formed).
    pub datagrams_received: u64,
    /// Bytes in them.
    pub bytes_received: u64,
    /// Datagrams dropped because they were forged, replayed, malformed or strange.
    pub datagrams_dropped: u64,
    /// Control packets sent or received.
    pub control_packets: u64,
    /// Times a data timer expired at the receiver.
    pub data_timeouts: u64,
    /// Times the control timer expired at the receiver.
    pub control_timeouts: u64,
    /// Smoothed round trip time.
    pub rtt: Option<Duration>,
    /// Smallest round trip time seen.
    pub min_rtt: Option<Duration>,
    /// Buffers outstanding now.
    pub outstanding: u32,
    /// Buffers complete (receiver) or accepted (sender).
    pub buffers_done: u64,
    /// Bytes of buffer images in them.
    pub image_bytes: u64,
    /// The sender's rate now, in bytes of IP packets per second.
    pub pacing_rate: Rate,
    /// When the connection opened.
    pub opened_at: Option<Instant>,
    /// When the first DATA packet was sent or arrived.
    pub first_data_at: Option<Instant>,
    /// When the last packet of the last buffer's first pass was sent or arrived: the end of the
    /// steady state (RFC 1030 §3).
    pub steady_until: Option<Instant>,
    /// Image bytes that had moved by then.
    pub steady_bytes: u64,
    /// Sender: time spent unable to send, by what was missing.
    pub waited: Waited,
}

/// Why a sender with nothing in its hands was not sending, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// The pacer held it back: the path or the rate cap.
    pub pacing: Duration,
    /// Too much in flight.
    pub in_flight: Duration,
    /// The receiver had no empty buffer (its disk, or too few buffers for the path).
    pub permission: Duration,
    /// Its own source had not supplied.
    pub source: Duration,
}
