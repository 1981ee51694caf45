//! The end of a conversation: no more faults, clients that do all they can, and what that must
//! come to.

use std::time::Duration;

use netblt_proto::api::CloseReason;
use netblt_proto::config::Wire;
use netblt_proto::time::{Instant, earliest};

use super::{RECEIVER, SENDER, World, addresses};

/// One way through the path that has healed.
pub(super) const DELAY: Duration = Duration::from_millis(10);
/// Steps to the end at most: a death timer of five minutes, in timers of a few milliseconds.
const MAX_STEPS: usize = 60_000;
/// Steps where nothing is promised.
const FEW_STEPS: usize = 300;
/// OPENs before an active end may close for want of an answer.
const LEAST_OPENS: u32 = 8;

impl World {
    /// Lets both ends come to their end.
    pub(super) fn heal(&mut self) {
        for side in &mut self.sides {
            side.automatic = true;
        }
        for flying in &mut self.bag {
            flying.due = self.now + DELAY;
        }
        self.advance_to(self.now);
        let steps = if self.common.setup.hostile { FEW_STEPS } else { MAX_STEPS };
        for _ in 0..steps {
            if self.is_over() {
                return;
            }
            let arrival = self.bag.front().map(|flying| flying.due);
            let next = earliest([arrival, self.next_timeout()]);
            let Some(next) = next else { panic!("{}: no end waits for anything", self.state()) };
            if arrival == Some(next)
                && let Some(flying) = self.bag.pop_front()
            {
                self.now = self.now.max(next);
                self.deliver(&flying, addresses()[1 - flying.to], None);
            } else {
                self.advance_to(next);
            }
        }
        // Who can forge what says GO can keep two ends waiting for ever.
        assert!(self.common.setup.hostile, "{}: it does not come to an end", self.state());
    }

    fn is_over(&self) -> bool {
        let over = |at: usize| {
            let (side, other) = (&self.sides[at], &self.sides[1 - at]);
            // No end opens: a passive end waits for ever.
            let alone = !side.active && side.openings == 0 && other.closed.is_some();
            side.closed.is_some() || (alone && self.bag.is_empty())
        };
        over(SENDER) && over(RECEIVER)
    }

    /// Whether an end may say that it ended so.
    pub(super) fn check_reason(&self, at: usize) {
        let (side, other) = (&self.sides[at], &self.sides[1 - at]);
        let Some(reason) = &side.closed else { return };
        if self.common.setup.hostile {
            return;
        }
        let fair = match reason {
            CloseReason::Finished => side.done || self.excuses.restarts > 0,
            CloseReason::Quit => side.quit,
            CloseReason::PeerQuit(_) => other.quit || self.excuses.restarts > 0,
            CloseReason::DeathTimer => {
                self.now.since(side.last_received) >= self.death_timer(at)
                    || self.excuses.restarts > 0
            }
            CloseReason::NoAnswer { hint, unreachable } => {
                let hinted = hint.is_some() || (*unreachable && self.excuses.unreachable);
                let patience = self.now.since(Instant::EPOCH) >= self.death_timer(at);
                (hinted || patience || side.opens_sent >= LEAST_OPENS) && side.openings == 0
            }
            CloseReason::Unreachable => self.excuses.unreachable,
            // What its dead program said may still be under way.
            CloseReason::Refused(_) => self.excuses.restarts > 0,
            CloseReason::Stalled(_) => false,
            CloseReason::PeerAborted(_) | CloseReason::Violation(_) | CloseReason::Forgotten => {
                false
            }
        };
        assert!(fair, "{:?} ends with {reason:?}: {}", side.role, self.state());
    }

    /// What the ends came to.
    pub(super) fn judge(&self) {
        let [sender, receiver] = &self.sides;
        let excused = self.common.setup.hostile
            || self.excuses.quit
            || self.excuses.unreachable
            || self.sides.iter().any(|side| side.closed.as_ref().is_none_or(is_lonely));
        if excused {
            return;
        }
        assert!(self.common.ever_complete, "not all arrived: {}", self.state());
        assert!(sender.done, "the sender does not know: {}", self.state());
        assert!(receiver.done || self.excuses.restarts > 0, "not done: {}", self.state());
        let finished = |side: &super::side::Side| side.closed == Some(CloseReason::Finished);
        assert!(finished(sender) && finished(receiver), "{}", self.state());
        assert!(self.common.setup.wire == Wire::Sealed || self.excuses.restarts == 0);
        assert!(self.now < Instant::NEVER);
    }
}

/// Whether it is the end of one who was left alone: on the faulty path that may be.
fn is_lonely(reason: &CloseReason) -> bool {
    matches!(
        reason,
        CloseReason::NoAnswer { .. } | CloseReason::DeathTimer | CloseReason::Refused(_)
    )
}
