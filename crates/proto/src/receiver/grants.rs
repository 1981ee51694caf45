//! What may be granted: the client's empty buffers, and its list of stored data.
//!
//! Inputs: the client's buffers and HAVE list, its pause, and the round trip. Outputs: HAVE
//! messages, which precede the first GO, and the buffers to grant now.
//!
//! All offered buffers are granted, but on a short path no more than the socket buffer holds
//! (`docs/protocol §6.2`). Data in flight on a short path wait in the receiver's socket buffer, and
//! are lost beyond its size without any fault of the network. A host that is suspended for two
//! milliseconds loses what exceeds it. A rate law cannot help, since it gets no feedback from a
//! suspended host. A grant can, since a sender cannot send beyond it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::buffer::Buffer;
use crate::limits::{MAX_HAVE, MAX_HAVE_IN_ALL, MAX_HAVE_UNHEARD};
use crate::negotiated::Negotiated;
use crate::units::Rate;
use crate::wire::packet::Have;

/// The fastest path that grants do not slow down: 40 Gbit/s, more than a core can handle.
const FASTEST_PATH: Rate = Rate::from_bytes_per_second(5_000_000_000);
/// Bytes granted at once before the round trip is known: 130 ms at 1 Gbit/s.
const UNKNOWN_BYTES: u64 = 16 << 20;
/// Buffers that are always granted: one that is arriving, one in flight, and one whose GO is in
/// flight.
const MIN_BUFFERS: u32 = 3;

/// Buffers that are not granted, and what limits grants.
#[derive(Debug)]
pub(super) struct Grants {
    /// Offered buffers, not granted: more than may be outstanding, or the FIFO was full.
    free: Vec<Buffer>,
    /// Full buffers that the client has not returned: its disk.
    held: u32,
    /// HAVE messages that are not in the FIFO yet.
    pending_have: VecDeque<Have>,
    /// The wire has HAVE.
    sends_have: bool,
    buffer_bytes: u32,
    /// Most outstanding buffers, as agreed.
    agreed: u32,
    /// Bytes of this end's socket buffer, if grants depend on it.
    socket_bytes: Option<u32>,
    /// The client pauses: nothing is granted.
    paused: bool,
    /// The grants under way were granted with RESPONSE, before the round trip was known.
    early_control: bool,
}

impl Grants {
    pub(super) fn new(negotiated: &Negotiated) -> Self {
        Self {
            free: Vec::new(),
            held: 0,
            pending_have: VecDeque::new(),
            sends_have: negotiated.profile.verdict,
            buffer_bytes: negotiated.geometry.buffer_bytes,
            agreed: negotiated.max_outstanding,
            socket_bytes: negotiated.socket_bytes,
            paused: false,
            early_control: false,
        }
    }

    /// An empty buffer of the client. Returned if it is too small.
    pub(super) fn offer(&mut self, buffer: Buffer) -> Option<Buffer> {
        if buffer.capacity() < self.buffer_bytes as usize {
            return Some(buffer);
        }
        self.free.push(buffer);
        self.held = self.held.saturating_sub(1);
        None
    }

    /// A full buffer goes to the client.
    pub(super) fn on_filled(&mut self) {
        self.held += 1;
    }

    /// Full buffers that the client has not returned.
    pub(super) fn held(&self) -> u32 {
        self.held
    }

    /// The list of the client's stored data, cut into messages of at most `part` bytes. It is too
    /// late once control messages `have_begun`.
    pub(super) fn announce_have(&mut self, have: &[u8], part: usize, have_begun: bool) {
        if !self.sends_have || have_begun || !self.pending_have.is_empty() {
            return;
        }
        let have = if have.len() > MAX_HAVE_IN_ALL { &[] } else { have };
        let parts = have.chunks(part.clamp(1, MAX_HAVE));
        let parts = parts.map(|part| Have { bytes: part.to_vec(), last: false });
        self.pending_have.extend(parts);
        match self.pending_have.back_mut() {
            Some(part) => part.last = true,
            None => self.pending_have.push_back(Have { bytes: Vec::new(), last: true }),
        }
    }

    /// The next HAVE for the FIFO, which has `unacked` messages.
    pub(super) fn next_have(&mut self, unacked: usize) -> Option<Have> {
        if unacked < MAX_HAVE_UNHEARD { self.pending_have.pop_front() } else { None }
    }

    /// Whether HAVE messages wait for the FIFO, and all grants for them.
    pub(super) fn waits_for_have(&self) -> bool {
        !self.pending_have.is_empty()
    }

    /// Whether grants until [`Self::on_early_sent`] are early control.
    pub(super) fn set_early(&mut self, early_control: bool) {
        self.early_control = early_control;
    }

    /// The client pauses or resumes.
    pub(super) fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// How many buffers may be granted and not full, where `rtt` is the smallest round trip.
    pub(super) fn most_outstanding(&self, rtt: Option<Duration>) -> u32 {
        let rtt = rtt.filter(|_| !self.early_control);
        most_outstanding(self.agreed, self.socket_bytes, rtt, self.buffer_bytes)
    }

    /// Whether the socket buffer limits them.
    pub(super) fn is_held_to_socket(&self, rtt: Option<Duration>) -> bool {
        self.most_outstanding(rtt) < self.agreed
    }

    /// Whether the client has a buffer to grant, and does not pause.
    pub(super) fn is_ready(&self) -> bool {
        !self.paused && !self.free.is_empty()
    }

    /// The newest of them.
    pub(super) fn take(&mut self) -> Option<Buffer> {
        self.free.pop()
    }

    /// All buffers that are not granted.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Buffer> {
        self.free.drain(..)
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
    use crate::receiver::tests::negotiated;
    use crate::wire::Wire;

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

    #[test]
    fn the_list_of_stored_data_precedes_grants_and_is_cut() {
        let mut grants = Grants::new(&negotiated(Wire::Sealed, 4));
        assert!(grants.offer(Buffer::new(10)).is_some(), "it is too small");
        grants.announce_have(&[7; 25], 10, false);
        grants.announce_have(&[8; 25], 10, false);
        assert!(grants.waits_for_have());
        assert_eq!(grants.next_have(MAX_HAVE_UNHEARD), None, "the FIFO is full");
        let parts: Vec<_> = std::iter::from_fn(|| grants.next_have(0)).collect();
        let parts: Vec<_> = parts.iter().map(|part| (part.bytes.len(), part.last)).collect();
        assert_eq!(parts, [(10, false), (10, false), (5, true)]);
        grants.announce_have(&[7; 25], 10, true);
        assert!(!grants.waits_for_have(), "it is too late");
    }
}
