//! The end of a transfer: END until it is acknowledged, the verdict or the last OK, and the dally
//! (`docs/protocol §7.1, §7.3, §10.1`).
//!
//! Inputs: the client's END, and what the receiver says of it. Outputs: the phase of the sender,
//! END while it must leave, and when this end leaves.

use std::time::Duration;

use crate::time::Instant;
use crate::wire::packet::End;
use crate::wire_profile::{LONG_DALLY, WireProfile};

/// How often a verdict is acknowledged, at least and at most (`docs/protocol §7.3`).
const LEAVE_TIMES: (u8, u8) = (3, 16);
/// These repetitions are closer than others by this factor: the program ends when they have left.
const LEAVE_PART: u32 = 4;
/// Probability, in millionths, that all acknowledgements of the verdict are lost.
const ALL_LOST_PPM: u64 = 10;

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

/// The length of a dally.
#[derive(Clone, Copy, Debug)]
struct Dally {
    /// The receiver's last reported control timer.
    control_timer: Duration,
    /// In values of the control timer, if that is not too long.
    timers: u32,
    bounds: (Duration, Duration),
}

impl Dally {
    fn length(&self) -> Duration {
        let (least, most) = self.bounds;
        let long = (self.control_timer * self.timers).min(LONG_DALLY);
        long.max(self.control_timer * 2).clamp(least, most)
    }
}

/// END, repeated until it is acknowledged, and the phase of the sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndOfTransfer {
    phase: SenderPhase,
    dally: Dally,
    end: Option<End>,
    acknowledged: bool,
    end_due: Option<Instant>,
    /// When this end leaves: the verdict and all before it has arrived, and is acknowledged by
    /// then.
    leaves: Option<Instant>,
}

impl EndOfTransfer {
    pub(super) fn new(profile: &WireProfile) -> Self {
        let (timers, bounds) = (profile.dally_timers, profile.dally);
        Self {
            phase: SenderPhase::Sending,
            dally: Dally { control_timer: Duration::ZERO, timers, bounds },
            end: None,
            acknowledged: false,
            end_due: None,
            leaves: None,
        }
    }

    // ---- the phase

    /// Whether data flow.
    pub(super) fn is_sending(&self) -> bool {
        self.phase == SenderPhase::Sending
    }

    /// Whether everything is over.
    pub(super) fn is_finished(&self) -> bool {
        self.phase == SenderPhase::Finished
    }

    /// The receiver's control timer, which it reported in OK.
    pub(super) fn set_control_timer(&mut self, control_timer: Duration) {
        self.dally.control_timer = control_timer;
    }

    /// The verdict came, or the last OK: dallies from now on. False if the sender dallied before.
    pub(super) fn settle(&mut self, now: Instant) -> bool {
        let begins = self.is_sending();
        if begins {
            self.phase = SenderPhase::Dallying(now + self.dally.length());
        }
        begins
    }

    /// A control packet was answered: the dally, if it had begun, starts again.
    pub(super) fn prolong(&mut self, now: Instant) {
        self.prolong_until(now + self.dally.length());
    }

    fn prolong_until(&mut self, until: Instant) {
        if let SenderPhase::Dallying(at) = &mut self.phase {
            *at = until;
        }
    }

    /// A control packet was answered by a sender with the verdict. With control messages missing
    /// before the verdict (`gaps`) it dallies. Otherwise it acknowledges the verdict so often that
    /// hardly ever all of them are lost, and leaves then. `lost` of its `sent` packets were lost.
    /// Returns how often to acknowledge, once.
    pub(super) fn leave(
        &mut self,
        now: Instant,
        gaps: bool,
        lost: u64,
        sent: u64,
        report_interval: Duration,
    ) -> Option<u8> {
        if let Some(at) = self.leaves {
            self.prolong_until(at);
            return None;
        }
        if self.is_sending() || gaps {
            self.prolong(now);
            return None;
        }
        let sent = sent.max(1);
        let mut all_lost = 1_000_000;
        let mut times = 0;
        while times < LEAVE_TIMES.0 || (all_lost > ALL_LOST_PPM && times < LEAVE_TIMES.1) {
            all_lost = all_lost * lost.min(sent) / sent;
            times += 1;
        }
        // The last one leaves after the others, and this host may be a little late.
        let apart = report_interval / LEAVE_PART;
        let at = now + apart * u32::from(times - 1) + apart / 2;
        self.leaves = Some(at);
        self.prolong_until(at);
        Some(times)
    }

    /// The interval of repeated NULL-ACKs.
    pub(super) fn repeat_interval(&self, report_interval: Duration) -> Duration {
        report_interval / if self.leaves.is_some() { LEAVE_PART } else { 1 }
    }

    /// The receiver closed: no need to dally. False if it is too soon for that.
    pub(super) fn close(&mut self) -> bool {
        let settled = !self.is_sending();
        if settled {
            self.phase = SenderPhase::Finished;
        }
        settled
    }

    /// When the dally is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            SenderPhase::Dallying(until) => Some(until),
            SenderPhase::Sending | SenderPhase::Finished => None,
        }
    }

    /// The dally is over.
    pub(super) fn expire(&mut self) {
        self.phase = SenderPhase::Finished;
    }

    // ---- END

    /// Sets the client's END. False if it was set before.
    pub(super) fn announce(&mut self, now: Instant, end: End) -> bool {
        let new = self.end.is_none();
        if new {
            self.end = Some(end);
            self.end_due = Some(now).filter(|_| !self.acknowledged);
        }
        new
    }

    /// When END leaves next.
    pub(super) fn end_due(&self) -> Option<Instant> {
        self.end_due
    }

    /// END, until it is acknowledged.
    pub(super) fn end(&self) -> Option<End> {
        self.end.filter(|_| !self.acknowledged)
    }

    /// END left; again at `next`.
    pub(super) fn on_end_sent(&mut self, next: Instant) {
        self.end_due = Some(next);
    }

    /// The receiver acknowledged END. An END that was not sent yet cannot be acknowledged.
    pub(super) fn confirm(&mut self) {
        if self.end.is_some() {
            self.on_acknowledged();
        }
    }

    /// END is acknowledged: it leaves no more.
    pub(super) fn on_acknowledged(&mut self) {
        self.acknowledged = true;
        self.end_due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Wire;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    fn in_phase(phase: SenderPhase) -> EndOfTransfer {
        EndOfTransfer { phase, ..EndOfTransfer::new(&WireProfile::of(Wire::Sealed)) }
    }

    #[test]
    fn every_phase_against_every_step() {
        use SenderPhase::{Dallying, Finished, Sending};
        // The least dally is 100 ms.
        for (phase, settled, prolonged, closed) in [
            (Sending, Dallying(ms(109)), Sending, Sending),
            (Dallying(ms(5)), Dallying(ms(5)), Dallying(ms(109)), Finished),
            (Finished, Finished, Finished, Finished),
        ] {
            let after = |step: &dyn Fn(&mut EndOfTransfer)| {
                let mut next = in_phase(phase);
                step(&mut next);
                next.phase
            };
            assert_eq!(after(&|end| assert_eq!(end.settle(ms(9)), phase == Sending)), settled);
            assert_eq!(after(&|end| end.prolong(ms(9))), prolonged);
            assert_eq!(after(&|end| assert_eq!(end.close(), phase != Sending)), closed);
        }
    }

    #[test]
    fn a_verdict_is_acknowledged_more_often_on_a_lossy_path() {
        let interval = Duration::from_millis(8);
        for (lost, times, until) in [(0, 3, 14), (100, 5, 18), (1000, 16, 40)] {
            let mut end = in_phase(SenderPhase::Dallying(ms(500)));
            assert_eq!(end.leave(ms(9), true, lost, 1000, interval), None, "messages are missing");
            assert_eq!(end.leave(ms(9), false, lost, 1000, interval), Some(times));
            assert_eq!(end.deadline(), Some(ms(until)));
            assert_eq!(end.leave(ms(11), false, lost, 1000, interval), None, "once");
            assert_eq!(end.deadline(), Some(ms(until)));
        }
    }
}
