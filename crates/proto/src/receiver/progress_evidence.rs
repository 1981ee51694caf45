//! Evidence that data arrive, and that the sender gets control messages, for the stall watchdog
//! (`docs/protocol §7.6`).

use super::Receiver;
use super::assembly::Assembly;
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
        let supplied = || self.assemblies.values().any(Assembly::is_supplied);
        let requested = self.requests.unanswered().filter(|_| supplied());
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::negotiated::PacketOutcome;
    use crate::receiver::test_fixture::{bench, now};
    use crate::units::{ControlSeq, PacketNumber};
    use crate::wire::packet::NullAck;

    /// A sender that acknowledges everything, and resends in its first generation only.
    #[test]
    fn data_of_an_old_generation_for_ever_are_a_stall() {
        let mut bench = bench(1);
        let mut ack = bench.turn(now());
        assert_eq!(bench.data_at(now(), ack, 0), PacketOutcome::Authentic);
        let smaller = NullAck {
            number: PacketNumber(9),
            ack,
            burst: bench.receiver.requests.announced_burst(),
            sent_through: None,
            end: None,
            packet_bytes: 150,
            limit: 0,
            back_millis: 0,
            paused: false,
        };
        bench.receiver.on_size(now(), &smaller);
        let mut seen = Vec::new();
        for n in 1..100 {
            let now = now() + Duration::from_millis(500) * n;
            assert_eq!(bench.data_at(now, ack, n), PacketOutcome::Authentic);
            ack = bench.turn(now);
            seen.extend(bench.receiver.underway()[0]);
        }
        assert_eq!(bench.receiver.stats.data_packets_duplicate, 99, "all of it is void");
        let (Some(first), Some(last)) = (seen.first(), seen.last()) else {
            panic!("nothing is watched")
        };
        assert!(seen.len() > 90 && first.signs == last.signs && first.tries < last.tries);
    }

    #[test]
    fn a_sender_without_data_so_far_may_wait() {
        let mut bench = bench(1);
        for n in 0..100 {
            let now = now() + Duration::from_millis(500) * n;
            bench.turn(now);
            bench.receiver.on_ack(now, ControlSeq(1));
            assert_eq!(bench.receiver.underway()[0], None);
        }
        assert!(bench.receiver.requests.unanswered().is_some());
    }
}
