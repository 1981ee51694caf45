//! What shows a receiver that the sender gets anywhere, and hears it (`docs/protocol.md §7.6`).

use std::time::Duration;

use super::Receiver;
use crate::negotiated::Underway;

/// The least that a control packet may have to be worth sending: room for every kind of message on
/// `rfc998`, a RESEND cut to its first packets.
const LEAST_CONTROL: usize = 36;

impl Receiver {
    /// How long a control packet may be now, where the peer has not shown that it hears.
    pub(super) fn allowed_bytes(&self) -> usize {
        if self.allowance < LEAST_CONTROL { 0 } else { self.allowance }
    }

    /// Whether anything that was said waits to be acknowledged.
    pub(crate) fn waits(&self) -> bool {
        !self.fifo.is_empty()
    }

    /// What must move on, if anything: buffers of which something came, for the sender has all of
    /// them, once more of them was asked for; and what was said and is not acknowledged. A sender
    /// of which nothing has come may wait for its client.
    pub(crate) fn underway(&self) -> [Option<Underway>; 2] {
        let asked = self.asked_packets > self.asked_before && !self.steered.peer_pauses;
        let begun = asked && self.assemblies.values().any(|assembly| assembly.has_begun());
        let missing =
            Underway { signs: self.stats.data_packets_received, tries: self.asked_packets };
        // Who sends something new gets on, whatever he has yet to hear.
        let signs = u64::from(self.fifo.acknowledged().0) + self.stats.data_packets_received;
        let said = Underway { signs, tries: self.stats.control_packets };
        [begun.then_some(missing), (!self.fifo.is_empty()).then_some(said)]
    }

    /// The round trip, and the time between two bursts.
    pub(crate) fn pace_of_progress(&self) -> (Duration, Duration) {
        (self.rtt.assumed(), self.sender_burst.interval)
    }
}
