//! The end of the transfer: the last buffer, the END, the verdict (`docs/protocol §7`).
//!
//! Inputs: the sender's END, what is complete, the client's verdict, and acknowledgements. Outputs:
//! the event that everything is here, and whether the transfer is decided or finished.

use super::states::{PhaseStep, ReceiverPhase};
use crate::api::Event;
use crate::negotiated::Negotiated;
use crate::units::BufferNumber;
use crate::wire::packet::{End, Message, Verdict};

/// How far the transfer is, and where it ends.
#[derive(Debug)]
pub(super) struct ReceiverEnd {
    phase: ReceiverPhase,
    /// The transfer ends with a verdict; else with the last OK.
    has_verdict: bool,
    /// The number of the last buffer of the transfer, once known.
    last: Option<BufferNumber>,
    end: Option<End>,
}

impl ReceiverEnd {
    pub(super) fn new(negotiated: &Negotiated) -> Self {
        let has_verdict = negotiated.profile.verdict;
        Self { phase: ReceiverPhase::Receiving, has_verdict, last: None, end: None }
    }

    // ---- from the network

    /// Whether `end` is not the END that came before.
    pub(super) fn contradicts(&self, end: End) -> bool {
        self.end.is_some_and(|known| known != end)
    }

    /// The sender's END.
    pub(super) fn on_end(&mut self, end: End) {
        self.end = Some(end);
    }

    /// Whether the END came.
    pub(super) fn is_end_known(&self) -> bool {
        self.end.is_some()
    }

    /// No buffer after `last` will come. False if the last one was known.
    pub(super) fn learn_last(&mut self, last: BufferNumber) -> bool {
        let is_new = self.last.is_none();
        self.last.get_or_insert(last);
        is_new
    }

    /// Whether `number` is after the last buffer.
    pub(super) fn precedes(&self, number: BufferNumber) -> bool {
        self.last.is_some_and(|last| number > last)
    }

    /// All buffers before `next` were granted, and none is outstanding. The event, if that was the
    /// last missing one.
    pub(super) fn on_all_filled(&mut self, next: BufferNumber) -> Option<Event> {
        let all_here = self.precedes(next) && self.phase.take(PhaseStep::AllHere);
        all_here.then_some(Event::Complete(self.end))
    }

    /// The sender acknowledged messages: all of them (`none_left`), or the DONE message.
    pub(super) fn on_acknowledged(&mut self, done: bool, none_left: bool) {
        let all_acked = if self.has_verdict { done } else { none_left };
        if all_acked {
            self.phase.take(PhaseStep::AllAcked);
        }
    }

    // ---- the client's verdict

    /// The client's verdict. The DONE message, whose reason has room for `bytes`.
    pub(super) fn decide(&mut self, mut verdict: Verdict, bytes: usize) -> Option<Message> {
        if !self.has_verdict || !self.phase.take(PhaseStep::Verdict) {
            return None;
        }
        verdict.reason.truncate(verdict.reason.floor_char_boundary(bytes));
        Some(Message::Done(verdict))
    }

    /// Whether the transfer is decided and only acknowledgements are missing: the verdict was
    /// given, or, on a wire without one, everything has arrived.
    pub(super) fn is_settled(&self) -> bool {
        match self.phase {
            ReceiverPhase::Receiving => false,
            ReceiverPhase::Complete => !self.has_verdict,
            ReceiverPhase::Decided | ReceiverPhase::Finished => true,
        }
    }

    /// Whether the peer acknowledged every message.
    pub(super) fn is_finished(&self) -> bool {
        self.phase == ReceiverPhase::Finished
    }

    /// Its phase, for tables.
    #[cfg(test)]
    pub(super) fn phase(&self) -> ReceiverPhase {
        self.phase
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::tests::negotiated;
    use crate::wire::Wire;

    fn verdict() -> Verdict {
        Verdict { verified: false, bytes: 0, digest: [0; 32], reason: "größer".to_owned() }
    }

    #[test]
    fn a_transfer_ends_with_its_verdict_or_with_the_last_ok() {
        for (wire, has_verdict) in [(Wire::Sealed, true), (Wire::Rfc998, false)] {
            let mut end = ReceiverEnd::new(&negotiated(wire, 1));
            assert!(end.on_all_filled(BufferNumber(3)).is_none(), "the last is not known");
            assert!(end.learn_last(BufferNumber(2)) && !end.learn_last(BufferNumber(1)));
            assert!(end.on_all_filled(BufferNumber(2)).is_none(), "the last is not granted");
            assert!(end.decide(verdict(), 9).is_none(), "too early");
            assert!(matches!(end.on_all_filled(BufferNumber(3)), Some(Event::Complete(None))));
            assert!(end.on_all_filled(BufferNumber(3)).is_none(), "once");
            assert_eq!(end.is_settled(), !has_verdict);
            assert_eq!(end.decide(verdict(), 9).is_some(), has_verdict);
            end.on_acknowledged(!has_verdict, has_verdict);
            assert!(end.is_settled() && !end.is_finished());
            end.on_acknowledged(has_verdict, !has_verdict);
            assert!(end.is_finished());
        }
    }

    #[test]
    fn a_reason_is_cut_between_characters() {
        let mut end = ReceiverEnd::new(&negotiated(Wire::Sealed, 1));
        end.learn_last(BufferNumber(0));
        end.on_all_filled(BufferNumber(1));
        let Some(Message::Done(done)) = end.decide(verdict(), 3) else { panic!("no DONE") };
        assert_eq!(done.reason, "gr");
    }
}
