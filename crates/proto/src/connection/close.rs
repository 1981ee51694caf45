//! Closing by QUIT (RFC 998 §5.3.2; `docs/protocol §7.3`): when QUIT leaves, and how often.

use std::time::Duration;

use super::outbox::OutboxPacket;
use super::{Closing, Connection, Machine};
use crate::api::CloseReason;
use crate::time::Instant;
use crate::timers::ConnectionTimer;

/// Most QUITs (`sealed`).
const MAX_QUITS: u8 = 5;
/// Longest time between two QUITs, which are repeated until the death timer (`rfc998`).
const LONGEST_QUIT_INTERVAL: Duration = Duration::from_secs(5);
/// A peer that is silent for this long is in the middle of no buffer.
const QUIT_PENDING_MAX: Duration = Duration::from_secs(1);
/// Bounds of the time between two QUITs, and of the dally after one came.
const QUIT_INTERVAL: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_millis(500));

impl Connection {
    pub(crate) fn set_limit_cause(&mut self, limit: u8) {
        if let Machine::Sender(sender) = &mut self.machine {
            sender.set_limit_cause(limit);
        }
    }

    pub(crate) fn quit(&mut self, now: Instant, reason: &str) {
        if self.closing != Closing::No {
            return;
        }
        let (reason, outcome) = (reason.to_owned(), CloseReason::Quit);
        self.closing = Closing::QuitPending { reason, since: now, outcome };
        let ends_buffer = self.profile.quits_between_buffers;
        if let (Machine::Sender(sender), true) = (&mut self.machine, ends_buffer) {
            sender.stop_new_buffers();
        }
        self.quit_between_buffers(now);
    }

    /// The client drops the connection: QUIT leaves once, without waiting for QUITACK.
    pub(crate) fn forget(&mut self, now: Instant, reason: &str) {
        if !matches!(self.closing, Closing::Closed(_)) {
            self.outbox.push(OutboxPacket::Quit(reason.to_owned()));
            self.close(now, CloseReason::Quit);
        }
    }

    /// This end gives up with this outcome: QUIT with the reason leaves at once.
    pub(super) fn quit_with(&mut self, now: Instant, reason: &str, outcome: CloseReason) {
        self.begin_quitting(now, reason.to_owned(), outcome);
    }

    /// The QUIT exchange is over. An end that has everything by now has finished, whichever end
    /// gave up, unless its own client stopped it (`docs/protocol §7.3`).
    pub(super) fn leave(&mut self, now: Instant, reason: CloseReason) {
        let finished = reason != CloseReason::Quit && self.is_settled();
        self.close(now, if finished { CloseReason::Finished } else { reason });
    }

    /// The outcome, if this end has given up.
    pub(super) fn outcome_of_quit(&self) -> Option<CloseReason> {
        match &self.closing {
            Closing::QuitPending { outcome, .. } | Closing::QuitSent { outcome, .. } => {
                Some(outcome.clone())
            }
            Closing::No | Closing::Draining { .. } | Closing::Closed(_) => None,
        }
    }

    /// When a pending QUIT leaves although a buffer is under way, if the peer is silent.
    pub(super) fn quit_pending_deadline(&self) -> Option<Instant> {
        match &self.closing {
            Closing::QuitPending { since, .. } => {
                Some(self.last_received.max(*since) + QUIT_PENDING_MAX)
            }
            _ => None,
        }
    }

    /// Sends a pending QUIT as soon as no buffer is under way.
    pub(super) fn quit_between_buffers(&mut self, now: Instant) {
        let between = !self.profile.quits_between_buffers
            || match &self.machine {
                Machine::Sender(sender) => sender.is_between_buffers(),
                Machine::Receiver(receiver) => receiver.is_between_buffers(),
            };
        if between {
            self.send_pending_quit(now);
        }
    }

    pub(super) fn send_pending_quit(&mut self, now: Instant) {
        if let Closing::QuitPending { reason, outcome, .. } = &self.closing {
            let (reason, outcome) = (reason.clone(), outcome.clone());
            self.begin_quitting(now, reason, outcome);
        }
    }

    fn begin_quitting(&mut self, now: Instant, reason: String, outcome: CloseReason) {
        let (left, wait) = (MAX_QUITS, self.quit_interval());
        let until = now + self.death_timer;
        self.closing = Closing::QuitSent { reason, left, wait, next: now, until, outcome };
        self.repeat_quit(now);
    }

    /// QUIT leaves, or was repeated often enough.
    pub(super) fn repeat_quit(&mut self, now: Instant) {
        let (interval, until_acked) = (self.quit_interval(), self.profile.quits_until_acked);
        let Closing::QuitSent { reason, left, wait, next, until, outcome } = &mut self.closing
        else {
            return;
        };
        // "Until a QUITACK has been received or its death timer expires" (RFC 998 §5.3.2).
        let enough = if until_acked { *until <= now } else { *left == 0 };
        if enough {
            let outcome = outcome.clone();
            self.leave(now, outcome);
            return;
        }
        if until_acked {
            *next = (now + *wait).min(*until);
            *wait = (*wait * 3 / 2).min(LONGEST_QUIT_INTERVAL);
        } else {
            *left -= 1;
            *next = now + interval;
        }
        let reason = reason.clone();
        self.note_timer(now, ConnectionTimer::Quit);
        self.outbox.push(OutboxPacket::Quit(reason));
    }

    pub(super) fn quit_interval(&self) -> Duration {
        let timer = match &self.machine {
            Machine::Sender(sender) => sender.retry_timer(),
            Machine::Receiver(receiver) => receiver.control_timer(),
        };
        timer.clamp(QUIT_INTERVAL.0, QUIT_INTERVAL.1)
    }
}
