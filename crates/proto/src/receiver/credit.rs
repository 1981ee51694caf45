//! Receive window: how many buffers a receiver grants at once. All offered ones, but on a short
//! path no more than its socket buffer holds (`docs/protocol §6.2`).
//!
//! Data in flight on a short path wait in the receiver's socket buffer, and are lost beyond its
//! size without any fault of the network. A host that is suspended for two milliseconds loses what
//! exceeds it. A rate law cannot help, since it gets no feedback from a suspended host. A grant
//! can, since a sender cannot send beyond it.

use std::time::Duration;

use super::Receiver;
use crate::units::Rate;

/// The fastest path that grants do not slow down: 40 Gbit/s, more than a core can handle.
const FASTEST_PATH: Rate = Rate::from_bytes_per_second(5_000_000_000);
/// Bytes granted at once before the round trip is known: 130 ms at 1 Gbit/s.
const UNKNOWN_BYTES: u64 = 16 << 20;
/// Buffers that are always granted: one that is arriving, one in flight, and one whose GO is in
/// flight.
const MIN_BUFFERS: u32 = 3;

impl Receiver {
    /// How many buffers may be granted and not full.
    pub(super) fn most_outstanding(&self) -> u32 {
        most_outstanding(
            self.negotiated.max_outstanding,
            self.negotiated.socket_bytes,
            self.control.rtt().smallest().filter(|_| !self.early_control),
            self.negotiated.geometry.buffer_bytes,
        )
    }

    /// Bytes that arrived, and the smallest round trip.
    pub(crate) fn moved(&self) -> (u64, Option<Duration>) {
        (self.stats.image_bytes, self.control.rtt().smallest())
    }
}

fn most_outstanding(
    agreed: u32,
    socket_bytes: Option<u32>,
    rtt: Option<Duration>,
    buffer_bytes: u32,
) -> u32 {
    let Some(socket) = socket_bytes else { return agreed };
    let bytes = match rtt {
        None => UNKNOWN_BYTES,
        Some(rtt) => u64::from(socket).saturating_add(FASTEST_PATH.bytes_in(rtt)),
    };
    let buffers = u32::try_from(bytes / u64::from(buffer_bytes.max(1))).unwrap_or(u32::MAX);
    buffers.max(MIN_BUFFERS).min(agreed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_limited_to_the_socket_buffer_on_a_short_path_only() {
        let most = |socket, rtt: Option<u64>, buffer| {
            most_outstanding(64, socket, rtt.map(Duration::from_micros), buffer)
        };
        assert_eq!(most(None, Some(50), 1 << 20), 64, "nothing is known of the socket");
        assert_eq!(most(Some(4 << 20), Some(50), 1 << 20), 4);
        assert_eq!(most(Some(4 << 20), Some(500), 1 << 20), 6);
        assert_eq!(most(Some(4 << 20), Some(20_000), 1 << 20), 64);
        assert_eq!(most(Some(212_992), Some(50), 1 << 20), 3, "never so few that it stands still");
        assert_eq!(most(Some(212_992), Some(50), 1 << 16), 7);
        assert_eq!(most(Some(4 << 20), None, 1 << 20), 16);
        assert_eq!(most_outstanding(2, Some(212_992), None, 1 << 20), 2, "what was agreed on");
        assert_eq!(most_outstanding(9, Some(u32::MAX), Some(Duration::MAX), 0), 9);
    }
}
