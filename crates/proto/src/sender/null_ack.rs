//! Acknowledgements of control messages, and when a NULL-ACK must carry them because no data do
//! (`docs/protocol §6.4, §7.1`).
//!
//! Inputs: control messages and packets that leave. Outputs: the acknowledgement, and when a
//! NULL-ACK acknowledges, or repeats that nothing is left to send.

use std::time::Duration;

use super::control_window::ControlWindow;
use crate::time::{Instant, earliest};
use crate::units::ControlSeq;

/// A control message is answered with a NULL-ACK if no data would carry the answer this soon.
const ACK_DELAY: Duration = Duration::from_millis(2);

/// Pending acknowledgements.
#[derive(Debug, Default)]
pub(super) struct AckState {
    received: ControlWindow,
    /// When the first control message came that is not acknowledged yet.
    owed: Option<Instant>,
    /// When to repeat that nothing is left to send, and how often.
    repeats: Option<(Instant, u8)>,
}

impl AckState {
    // ---- control messages

    /// The message `seq` came. Returns whether it is new. Even an old one is answered: its
    /// acknowledgement may have been lost.
    pub(super) fn take(&mut self, now: Instant, seq: ControlSeq) -> bool {
        self.owed.get_or_insert(now);
        self.received.take(seq)
    }

    /// The message `seq` is an OK.
    pub(super) fn note_ok(&mut self, seq: ControlSeq) {
        self.received.note_ok(seq);
    }

    /// Whether `seq` is newer than every OK so far.
    pub(super) fn is_after_oks(&self, seq: ControlSeq) -> bool {
        self.received.is_after_oks(seq)
    }

    /// High consecutive sequence number received (RFC 998 §5.2.1).
    pub(super) fn high(&self) -> ControlSeq {
        self.received.high()
    }

    /// Whether a message is missing before one that has come.
    pub(super) fn has_gaps(&self) -> bool {
        self.received.has_gaps()
    }

    // ---- what leaves

    /// Whether an acknowledgement must leave.
    pub(super) fn is_owed(&self) -> bool {
        self.owed.is_some()
    }

    /// Data left that carry the acknowledgement.
    pub(super) fn on_acknowledged(&mut self) {
        self.owed = None;
    }

    /// There is something to send, or everything is accepted.
    pub(super) fn stop_repeats(&mut self) {
        self.repeats = None;
    }

    /// A NULL-ACK leaves so many `times` from now on.
    pub(super) fn repeat(&mut self, now: Instant, times: u8) {
        self.repeats = Some((now, times));
    }

    /// Whether NULL-ACK repeats already that nothing is left to send.
    pub(super) fn is_repeating(&self) -> bool {
        self.repeats.is_some()
    }

    /// When a NULL-ACK is due. If data leave soon they carry the acknowledgement, unless they are
    /// further apart: a burst has this `interval`. `waits`: the acknowledgement waits for data in
    /// any case.
    pub(super) fn deadline(&self, data_soon: Option<Duration>, waits: bool) -> Option<Instant> {
        let wait =
            data_soon.map_or(Duration::ZERO, |interval| ACK_DELAY.max(interval.min(ACK_DELAY * 8)));
        let owed = self.owed.filter(|_| !waits).map(|at| at + wait);
        earliest([owed, self.repeats.filter(|(_, left)| *left > 0).map(|(at, _)| at)])
    }

    /// A NULL-ACK left; repetitions are `interval` apart.
    pub(super) fn on_null_ack(&mut self, now: Instant, interval: Duration) {
        self.owed = None;
        if let Some((at, left)) = self.repeats {
            self.repeats = Some((at.max(now) + interval, left.saturating_sub(1)));
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
    fn an_acknowledgement_waits_for_data_that_leave_soon() {
        let mut acks = AckState::default();
        assert_eq!(acks.deadline(None, false), None);
        assert!(acks.take(ms(5), ControlSeq(1)) && !acks.take(ms(6), ControlSeq(1)));
        let due = [None, Some(0), Some(5), Some(50)].map(|interval| {
            acks.deadline(interval.map(Duration::from_millis), false).expect("it is owed")
        });
        assert_eq!(due, [ms(5), ms(7), ms(10), ms(21)]);
        assert_eq!(acks.deadline(None, true), None, "it waits for data");
        acks.on_acknowledged();
        assert_eq!(acks.deadline(None, false), None);
    }

    #[test]
    fn repetitions_end_by_themselves() {
        let mut acks = AckState::default();
        acks.repeat(ms(0), 2);
        let times = [(); 3].map(|()| {
            let at = acks.deadline(None, false);
            acks.on_null_ack(at.unwrap_or_default(), Duration::from_millis(10));
            at
        });
        assert_eq!(times, [Some(ms(0)), Some(ms(10)), None]);
        assert!(acks.is_repeating(), "they do not begin again");
    }
}
