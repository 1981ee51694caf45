//! Keep-alive: probes of a silent peer, and KEEPALIVEs that show it that this end lives
//! (`docs/protocol §7.4`).

use std::time::Duration;

use super::{Closing, Connection, KEEPALIVE, SILENT_AFTER};
use crate::api::{CloseReason, Event};
use crate::time::Instant;
use crate::trace::{Timer, TraceEvent};
use crate::wire::packet::Keepalive;

/// Time without a packet after which a silent peer is probed.
const PROBE_AFTER: Duration = Duration::from_millis(1500);
/// The same after UNKNOWN has come.
const PROBE_UNKNOWN_AFTER: Duration = Duration::from_millis(400);

impl Connection {
    pub(super) fn tick_liveness(&mut self, now: Instant) {
        if !matches!(self.closing, Closing::No | Closing::QuitPending { .. }) {
            return;
        }
        if self.last_received + self.death_timer <= now {
            self.note_timer(now, Timer::Death);
            self.close(
                now,
                if self.is_settled() { CloseReason::Finished } else { CloseReason::DeathTimer },
            );
            return;
        }
        if self.peer_gone.forgotten_at().is_some_and(|at| at <= now) {
            self.note_timer(now, Timer::Unreachable);
            self.close(
                now,
                if self.is_settled() { CloseReason::Finished } else { CloseReason::Forgotten },
            );
            return;
        }
        if self.peer_gone.unreachable_at(self.is_settled()).is_some_and(|at| at <= now) {
            self.note_timer(now, Timer::Unreachable);
            self.close(
                now,
                if self.is_settled() { CloseReason::Finished } else { CloseReason::Unreachable },
            );
            return;
        }
        if self.profile.probes {
            if self.probe_at() <= now {
                self.last_probe = now;
                self.note_timer(now, Timer::Keepalive);
                self.push_keepalive(Keepalive { answer_wanted: true, ..Keepalive::default() });
            }
            if !self.silent && self.last_received + SILENT_AFTER <= now {
                self.silent = true;
                self.events_mut().push_back(Event::Silent);
                self.trace().note(now, || TraceEvent::Silent);
            }
        }
        if self.last_sent + self.keepalive_interval() <= now {
            // Set here too, since the KEEPALIVE may not leave at once.
            self.last_sent = now;
            self.note_timer(now, Timer::Keepalive);
            self.push_keepalive(Keepalive::default());
        }
    }

    pub(super) fn probe_at(&self) -> Instant {
        let after = if self.peer_gone.is_doubtful() { PROBE_UNKNOWN_AFTER } else { PROBE_AFTER };
        self.last_received.max(self.last_probe) + after
    }

    pub(super) fn keepalive_interval(&self) -> Duration {
        (self.peer_death_timer / 4).clamp(Duration::from_millis(250), KEEPALIVE)
    }
}
