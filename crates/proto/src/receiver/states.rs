//! The states of a receiver and of its buffers, and their transitions (`docs/protocol §10.2`).

/// The phases of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiverPhase {
    /// Buffers are missing.
    Receiving,
    /// Every buffer up to the last was handed out.
    Complete,
    /// The client gave its verdict (`sealed`).
    Decided,
    /// Everything is acknowledged.
    Finished,
}

/// The events of a [`ReceiverPhase`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PhaseStep {
    /// Every buffer up to the last is complete.
    AllHere,
    /// The client's verdict.
    Verdict,
    /// The sender acknowledged every message.
    AllAcked,
}

impl ReceiverPhase {
    /// Takes `step`. False, without a change, where it has no meaning.
    pub(crate) fn take(&mut self, step: PhaseStep) -> bool {
        let next = match (*self, step) {
            (Self::Receiving, PhaseStep::AllHere) => Self::Complete,
            (Self::Complete, PhaseStep::Verdict) => Self::Decided,
            // Without a verdict (`rfc998`), the last OK is the last message.
            (Self::Complete | Self::Decided, PhaseStep::AllAcked) => Self::Finished,
            _ => return false,
        };
        *self = next;
        true
    }
}

/// RFC 998 §5.2.2's states of a receiving buffer, from its GO until it is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceivingState {
    /// A GO or RESEND for it is unacknowledged.
    AckWait,
    /// Acknowledged, no packet yet.
    Acked,
    /// Some packets have arrived.
    Receiving,
    /// All packets have arrived.
    Received,
}

/// The events of a [`ReceivingState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceivingStep {
    /// A RESEND was put into the FIFO.
    Asked,
    /// The newest message for it was acknowledged.
    Acknowledged,
    /// A missing packet came.
    Arrived,
    /// The last missing packet came.
    Filled,
}

impl ReceivingState {
    /// The state after `step`; `begun`: some packet has arrived.
    #[must_use]
    pub(crate) fn after(self, step: ReceivingStep, begun: bool) -> Self {
        match (self, step) {
            (Self::Received, _) | (_, ReceivingStep::Filled) => Self::Received,
            (_, ReceivingStep::Asked) => Self::AckWait,
            (Self::AckWait, ReceivingStep::Acknowledged) if begun => Self::Receiving,
            (Self::AckWait, ReceivingStep::Acknowledged) => Self::Acked,
            (Self::Acked, ReceivingStep::Arrived) => Self::Receiving,
            // The acknowledgement may have been lost: a packet carries it too, and came first.
            (state, ReceivingStep::Acknowledged | ReceivingStep::Arrived) => state,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_against_every_step() {
        use ReceiverPhase::{Complete, Decided, Finished, Receiving};
        let steps = [PhaseStep::AllHere, PhaseStep::Verdict, PhaseStep::AllAcked];
        for (phase, after) in [
            (Receiving, [Some(Complete), None, None]),
            (Complete, [None, Some(Decided), Some(Finished)]),
            (Decided, [None, None, Some(Finished)]),
            (Finished, [None, None, None]),
        ] {
            for (step, expected) in steps.into_iter().zip(after) {
                let mut next = phase;
                assert_eq!(next.take(step), expected.is_some(), "{phase:?} {step:?}");
                assert_eq!(next, expected.unwrap_or(phase), "{phase:?} {step:?}");
            }
        }
    }

    #[test]
    fn every_state_of_a_buffer_against_every_step() {
        use ReceivingState::{AckWait, Acked, Received, Receiving};
        use ReceivingStep::{Acknowledged, Arrived, Asked, Filled};
        let steps = [Asked, Acknowledged, Arrived, Filled];
        for (state, begun, after) in [
            (AckWait, false, [AckWait, Acked, AckWait, Received]),
            (AckWait, true, [AckWait, Receiving, AckWait, Received]),
            (Acked, false, [AckWait, Acked, Receiving, Received]),
            (Receiving, true, [AckWait, Receiving, Receiving, Received]),
            (Received, true, [Received; 4]),
        ] {
            let found = steps.map(|step| state.after(step, begun));
            assert_eq!(found, after, "{state:?} {begun}");
        }
    }
}
