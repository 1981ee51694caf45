//! The receive window of control messages: each is handled once, in whatever order they arrive.
//!
//! Inputs: sequence numbers. Outputs: whether a message is new, and the high consecutive number to
//! acknowledge.

use std::collections::BTreeSet;

use crate::units::ControlSeq;

/// How far ahead of the gap-free run a message may be: as many as may be unacknowledged.
const WINDOW: u32 = 8192;

/// The gap-free run of messages received, and those beyond it.
#[derive(Debug, Default)]
pub(crate) struct ControlWindow {
    high: ControlSeq,
    /// Raw sequence numbers, compared by membership only.
    beyond: BTreeSet<u32>,
    /// The highest sequence number of an OK so far.
    newest_ok: Option<ControlSeq>,
}

impl ControlWindow {
    /// The message `seq` is an OK.
    pub(crate) fn note_ok(&mut self, seq: ControlSeq) {
        if self.newest_ok.is_none_or(|newest| seq.reaches(newest)) {
            self.newest_ok = Some(seq);
        }
    }

    /// Whether `seq` is newer than every OK so far.
    pub(crate) fn is_after_oks(&self, seq: ControlSeq) -> bool {
        self.newest_ok.is_none_or(|newest| !newest.reaches(seq))
    }

    /// High consecutive sequence number received (RFC 998 §5.2.1).
    pub(crate) fn high(&self) -> ControlSeq {
        self.high
    }

    /// Whether a message is missing before one that has come.
    pub(crate) fn has_gaps(&self) -> bool {
        !self.beyond.is_empty()
    }

    /// Marks the message `seq` as received. Returns whether it is new.
    pub(crate) fn take(&mut self, seq: ControlSeq) -> bool {
        let ahead = seq.0.wrapping_sub(self.high.0);
        if ahead == 0 || ahead > WINDOW || !self.beyond.insert(seq.0) {
            return false;
        }
        while self.beyond.remove(&self.high.next().0) {
            self.high = self.high.next();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_counts_once_and_the_run_closes_over_gaps() {
        let mut received = ControlWindow::default();
        assert!(received.take(ControlSeq(1)) && !received.take(ControlSeq(1)));
        assert!(received.take(ControlSeq(3)) && received.high() == ControlSeq(1));
        assert!(!received.take(ControlSeq(3)) && received.take(ControlSeq(2)));
        assert_eq!(received.high(), ControlSeq(3));
        assert!(!received.take(ControlSeq(3 + WINDOW + 1)));
    }

    #[test]
    fn a_message_is_compared_with_the_newest_ok() {
        let mut received = ControlWindow::default();
        assert!(received.is_after_oks(ControlSeq(1)));
        for seq in [5, 3] {
            received.note_ok(ControlSeq(seq));
        }
        assert!(!received.is_after_oks(ControlSeq(4)) && received.is_after_oks(ControlSeq(6)));
    }

    #[test]
    fn numbers_wrap() {
        let high = ControlSeq(u32::MAX);
        let mut received = ControlWindow { high, ..ControlWindow::default() };
        assert!(received.take(ControlSeq(0)) && received.take(ControlSeq(1)));
        assert_eq!(received.high(), ControlSeq(1));
    }
}
