//! Evidence that data arrive, and that the sender gets control messages, for the stall watchdog
//! (`docs/protocol §7.6`).

use super::Receiver;
use crate::negotiated::{ProgressCounter, ProgressTimescale};

/// Least bytes of a control packet worth sending: every kind of message of `rfc998` fits, a RESEND
/// cut to its first packets.
const MIN_CONTROL_BYTES: usize = 36;

impl Receiver {
    /// Most bytes of a control packet now, within the amplification limit.
    pub(super) fn allowed_bytes(&self) -> usize {
        if self.allowance < MIN_CONTROL_BYTES { 0 } else { self.allowance }
    }

    /// Whether a sent message is unacknowledged.
    pub(crate) fn waits_for_ack(&self) -> bool {
        !self.fifo.is_empty()
    }

    /// The progress that the watchdog expects, if any: of buffers with an arrival, once more of
    /// them was requested, since the sender has them; and of unacknowledged messages. A sender
    /// without any data so far may be waiting for its client.
    pub(crate) fn underway(&self) -> [Option<ProgressCounter>; 2] {
        let requested = self.requests.unanswered().filter(|_| self.assemblies.is_any_supplied());
        let signs = self.stats.data_packets_received;
        let missing = requested.map(|tries| ProgressCounter { signs, tries });
        // New data are progress too, whatever is not acknowledged.
        let signs = u64::from(self.fifo.acknowledged().0) + self.stats.data_packets_received;
        let control = ProgressCounter { signs, tries: self.stats.control_packets };
        [missing, (!self.fifo.is_empty()).then_some(control)]
    }

    /// The time scale of progress. Repeated messages measure no round trip (Karn's rule), so half a
    /// minute of queue on the forward path may never be measured; the acknowledgement delay shows
    /// it.
    pub(crate) fn pace_of_progress(&self) -> ProgressTimescale {
        let (round_trip, interval) = (self.rtt.assumed(), self.requests.announced_burst().interval);
        ProgressTimescale { round_trip, answer: self.fifo.ack_delay(), interval }
    }
}
