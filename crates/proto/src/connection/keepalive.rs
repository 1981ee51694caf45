//! Keep-alive: probes of a silent peer, and KEEPALIVEs that show it that this end lives
//! (`docs/protocol §7.4`).

use std::time::Duration;

use super::{Connection, MAX_KEEPALIVE_INTERVAL};
use crate::api::{CloseReason, Event};
use crate::time::Instant;
use crate::trace::TraceEvent;
use crate::wire::packet::Keepalive;

/// Time without a packet after which a silent peer is probed: half of `SILENT_AFTER`, so that an
/// answer can arrive before the client is notified.
const PROBE_AFTER: Duration = Duration::from_millis(1500);
/// The same after UNKNOWN has come.
const PROBE_UNKNOWN_AFTER: Duration = Duration::from_millis(400);

impl Connection {
    /// The peer is gone, by this reason, unless the transfer is settled.
    pub(super) fn give_up(&mut self, now: Instant, reason: CloseReason) {
        self.close(now, if self.is_settled() { CloseReason::Finished } else { reason });
    }

    pub(super) fn probe_peer(&mut self, now: Instant) {
        self.last_probe = now;
        self.push_keepalive(Keepalive { answer_wanted: true, ..Keepalive::default() });
    }

    pub(super) fn on_silent(&mut self, now: Instant) {
        self.silent = true;
        self.events_mut().push_back(Event::Silent);
        self.trace().note(now, || TraceEvent::Silent);
    }

    pub(super) fn keep_alive(&mut self, now: Instant) {
        // Set here too, since the KEEPALIVE may not leave at once.
        self.last_sent = now;
        self.push_keepalive(Keepalive::default());
    }

    /// When a silent peer is probed.
    pub(super) fn probe_at(&self) -> Instant {
        let after = if self.peer_gone.is_doubtful() { PROBE_UNKNOWN_AFTER } else { PROBE_AFTER };
        self.last_received.max(self.last_probe) + after
    }

    /// The longest time in which this end sends nothing.
    pub(super) fn keepalive_interval(&self) -> Duration {
        (self.peer_death_timer / 4).clamp(Duration::from_millis(250), MAX_KEEPALIVE_INTERVAL)
    }
}
