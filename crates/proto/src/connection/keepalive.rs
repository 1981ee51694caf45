//! Keep-alive: probes of a silent peer, and KEEPALIVEs that show it that this end lives
//! (`docs/protocol.md §7.4`).

use std::time::Duration;

use super::{Closing, Connection, KEEPALIVE, SILENT_AFTER};
use crate::api::{Event, Reason};
use crate::time::Instant;
use crate::trace::{Timer, TraceEvent};
use crate::wire::packet::Keepalive;

/// Time without a packet after which a silent peer is probed.
const ASK_AFTER: Duration = Duration::from_millis(1500);
/// The same after UNKNOWN has come.
const DOUBT_AFTER: Duration = Duration::from_millis(400);

impl Connection {
    pub(super) fn tick_liveness(&mut self, now: Instant) {
        if !matches!(self.closing, Closing::No | Closing::Wanting { .. }) {
            return;
        }
        if self.heard + self.death_timer <= now {
            self.note_timer(now, Timer::Death);
            self.close(now, if self.is_settled() { Reason::Finished } else { Reason::DeathTimer });
            return;
        }
        if self.refusals.forgotten_at().is_some_and(|at| at <= now) {
            self.note_timer(now, Timer::Unreachable);
            self.close(now, if self.is_settled() { Reason::Finished } else { Reason::Forgotten });
            return;
        }
        if self.refusals.unreachable_at(self.is_settled()).is_some_and(|at| at <= now) {
            self.note_timer(now, Timer::Unreachable);
            self.close(now, if self.is_settled() { Reason::Finished } else { Reason::Unreachable });
            return;
        }
        if self.rules.asks {
            if self.ask_at() <= now {
                self.asked = now;
                self.note_timer(now, Timer::Keepalive);
                self.push_keepalive(Keepalive { answer_wanted: true, ..Keepalive::default() });
            }
            if !self.silent && self.heard + SILENT_AFTER <= now {
                self.silent = true;
                self.events_mut().push_back(Event::Silent);
                self.trace().note(now, || TraceEvent::Silent);
            }
        }
        if self.sent + self.keepalive_interval() <= now {
            // Set here too, since the KEEPALIVE may not leave at once.
            self.sent = now;
            self.note_timer(now, Timer::Keepalive);
            self.push_keepalive(Keepalive::default());
        }
    }

    pub(super) fn ask_at(&self) -> Instant {
        let after = if self.refusals.is_doubtful() { DOUBT_AFTER } else { ASK_AFTER };
        self.heard.max(self.asked) + after
    }

    pub(super) fn keepalive_interval(&self) -> Duration {
        (self.peer_death_timer / 4).clamp(Duration::from_millis(250), KEEPALIVE)
    }
}
