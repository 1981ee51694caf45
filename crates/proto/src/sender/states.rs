//! The states of a sender, and their transitions (`docs/protocol §10.1`).

#[cfg(test)]
use super::scheduler::{OutgoingBuffer, SendingState};
use crate::time::Instant;
#[cfg(test)]
use crate::units::BufferNumber;

/// The phases of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SenderPhase {
    /// Data flow.
    Sending,
    /// The transfer is decided; repeated control packets are answered until then.
    Dallying(Instant),
    /// Over.
    Finished,
}

impl SenderPhase {
    /// The verdict came, or the last OK: dally until then. False if the sender dallied before.
    pub(super) fn settle(&mut self, until: Instant) -> bool {
        let begins = *self == Self::Sending;
        if begins {
            *self = Self::Dallying(until);
        }
        begins
    }

    /// A control packet was answered: restarts the dally, if it had begun.
    pub(super) fn prolong(&mut self, until: Instant) {
        if let Self::Dallying(at) = self {
            *at = until;
        }
    }

    /// The receiver closed. False if it is too soon for that.
    pub(super) fn close(&mut self) -> bool {
        let settled = *self != Self::Sending;
        if settled {
            *self = Self::Finished;
        }
        settled
    }
}

/// For tables.
#[cfg(test)]
impl super::Sender {
    /// The state of `buffer`, for tables.
    pub(crate) fn buffer_state(&self, buffer: BufferNumber) -> &'static str {
        match self.scheduler.buffer(buffer).map(OutgoingBuffer::state) {
            None if buffer < self.scheduler.next_supply() => "ACCEPTED",
            None => "None",
            Some(SendingState::Granted) => "GRANTED",
            Some(SendingState::Sending) => "SENDING",
            Some(SendingState::Sent) => "SENT",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    #[test]
    fn every_phase_against_every_step() {
        use SenderPhase::{Dallying, Finished, Sending};
        for (phase, settled, prolonged, closed) in [
            (Sending, Dallying(ms(9)), Sending, Sending),
            (Dallying(ms(5)), Dallying(ms(5)), Dallying(ms(9)), Finished),
            (Finished, Finished, Finished, Finished),
        ] {
            let after = |step: &dyn Fn(&mut SenderPhase)| {
                let mut next = phase;
                step(&mut next);
                next
            };
            assert_eq!(after(&|p| assert_eq!(p.settle(ms(9)), phase == Sending)), settled);
            assert_eq!(after(&|p| p.prolong(ms(9))), prolonged);
            assert_eq!(after(&|p| assert_eq!(p.close(), phase != Sending)), closed);
        }
    }
}
