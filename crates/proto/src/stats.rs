//! Counts and measurements of a connection.

use std::time::Duration;

use crate::time::Instant;
use crate::units::{Burst, Rate};

/// Counts and measurements of one connection, of either role; those that a role cannot know stay 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// DATA and LDATA packets sent, resends included.
    pub data_packets_sent: u64,
    /// Of the data packets sent, those that were sent before.
    pub data_packets_resent: u64,
    /// Sender: packets that the receiver asked for again, each as often as it did.
    pub data_packets_asked: u64,
    /// Sender: REPAIR packets sent; they are not among the data packets.
    pub repair_packets_sent: u64,
    /// Receiver: REPAIR packets that arrived.
    pub repair_packets_received: u64,
    /// Receiver: data packets that were restored from repair packets.
    pub packets_repaired: u64,
    /// DATA and LDATA packets that arrived and were new.
    pub data_packets_received: u64,
    /// DATA and LDATA packets that arrived again.
    pub data_packets_duplicate: u64,
    /// Packets found missing: by the receiver, or by the sender from REPORTs (`rfc998`: RESENDs).
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
    /// Datagrams that this host's socket had no room for, as far as the host reports it. A merged
    /// batch counts as one, and those of other connections on the same socket count as well.
    pub overrun: u32,
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
    /// The largest datagram of data, sent or granted, in bytes.
    pub datagram_bytes: u32,
    /// Sender: changes of that size.
    pub resizes: u64,
    /// Buffers outstanding now.
    pub outstanding: u32,
    /// Buffers complete (receiver) or accepted (sender).
    pub buffers_done: u64,
    /// Bytes of buffer images in them.
    pub image_bytes: u64,
    /// The sender's rate now, in bytes of IP packets per second.
    pub pacing_rate: Rate,
    /// The circuit breaker of the policy `fixed` has reduced that rate.
    pub rate_reduced: bool,
    /// The negotiated burst values, if they are a limit.
    pub agreed: Option<Burst>,
    /// Receiver: size of its socket buffer in bytes, if known.
    pub socket_bytes: Option<u32>,
    /// Receiver: it grants fewer buffers than negotiated, because its socket holds no more
    /// (`docs/protocol §6.2`).
    pub held_to_socket: bool,
    /// When the connection opened.
    pub opened_at: Option<Instant>,
    /// When the first DATA packet was sent or arrived.
    pub first_data_at: Option<Instant>,
    /// When the last burst of the first pass began to be sent or to arrive: the end of the steady
    /// state (RFC 1030 §3). The first one began at `first_data_at`, and n bursts take n - 1
    /// intervals.
    pub steady_until: Option<Instant>,
    /// Image bytes that had moved by then: of all bursts but the last.
    pub steady_bytes: u64,
    /// Sender: image bytes sent for the first time.
    pub first_pass_bytes: u64,
    /// What limits the transfer, as the sender's client set it last; the sender sends it, the
    /// receiver gets it (`docs/protocol §8.6`). 0: not set.
    pub limit: u8,
    /// Sender: the rate and round trip to save for the next transfer.
    pub learned: Learned,
    /// Sender: time spent unable to send, by cause.
    pub waited: BlockedTime,
}

/// Rate and round trip of an earlier connection to a peer (Careful Resume, RFC 9959). Neither is
/// secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// The rate that the path carried, in IP packets.
    pub rate: Rate,
    /// Its smallest round trip.
    pub min_rtt: Duration,
    /// Age of the measurement; it is ignored after a day.
    pub age: Duration,
}

/// The outcome of a transfer for the saved rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Learned {
    /// Too short to tell: the saved rate stays.
    #[default]
    Nothing,
    /// A new measurement.
    Path(Remembered),
    /// The saved rate was too high.
    Wrong,
}

/// Time for which a sender was blocked, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockedTime {
    /// The pacer: the path or the rate limit.
    pub pacing: Duration,
    /// The congestion window was full.
    pub in_flight: Duration,
    /// No GO: the receiver had no empty buffer (its disk, or too few buffers for the path).
    pub permission: Duration,
    /// The client had supplied no buffer.
    pub source: Duration,
    /// The client paused the transfer.
    pub paused: Duration,
}

/// The first pass in bursts, for [`Stats::steady_bytes`] (RFC 1030 §3).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SteadyState {
    /// Image bytes that moved so far.
    bytes: u64,
    /// When the burst under way began.
    began: Option<Instant>,
}

impl SteadyState {
    /// A packet of the first pass is sent or arrives at `now`; bursts are `interval` apart. Within
    /// half of that it belongs to the burst under way, which a path may spread out.
    pub(crate) fn advance(&mut self, now: Instant, interval: Duration, stats: &mut Stats) {
        if self.begins(now, interval) {
            self.began = Some(now);
            stats.steady_until = Some(now);
            stats.steady_bytes = self.bytes;
        }
    }

    /// Whether a packet at `now` would be the first of its burst.
    pub(crate) fn begins(&self, now: Instant, interval: Duration) -> bool {
        self.began.is_none_or(|began| now > began && now.since(began) >= interval / 2)
    }

    /// Counts the new bytes of a packet.
    pub(crate) fn moved(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(packets: &[u64], interval: u64) -> (u64, Option<Instant>) {
        let (mut stats, mut pass) = (Stats::default(), SteadyState::default());
        for ms in packets {
            let now = Instant::from_nanos(*ms * 1_000_000);
            pass.advance(now, Duration::from_millis(interval), &mut stats);
            pass.moved(1000);
        }
        (stats.steady_bytes, stats.steady_until)
    }

    #[test]
    fn bursts_are_counted_by_the_intervals_between_them() {
        let at = |ms: u64| Some(Instant::from_nanos(ms * 1_000_000));
        // Two bursts of three, one interval of 40 ms; the sending of one may take its time.
        assert_eq!(noted(&[7, 7, 7, 47, 47, 47], 40), (3000, at(47)));
        assert_eq!(noted(&[7, 13, 19, 47, 53, 59], 40), (3000, at(47)));
        // One burst has no interval.
        assert_eq!(noted(&[7, 7, 7], 40), (0, at(7)));
        // Where none is known, what moves at one moment is one.
        assert_eq!(noted(&[0, 0, 1, 2, 3, 3], 0), (4000, at(3)));
    }
}
