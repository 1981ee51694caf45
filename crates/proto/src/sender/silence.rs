//! When a sender that hears nothing of its data must think of it: silence, and the circuit breaker.

use std::time::Duration;

use super::Sender;
use crate::time::Instant;

/// The breaker opens after this, or eight round trips (`docs/protocol.md §7.5`).
const BREAKER: Duration = Duration::from_secs(2);

impl Sender {
    pub(super) fn silence_due(&self) -> Option<Instant> {
        if !self.is_told() || self.sampler.in_flight_bytes() == 0 {
            return None;
        }
        let rtt = self.rtt.assumed();
        let patience = (rtt * 3).max(self.rtt.timeout()).max(Duration::from_millis(200));
        let since = self.silence_told.unwrap_or(self.heard).max(self.heard);
        Some(since.max(self.sampler.last_sent().unwrap_or(since)) + patience)
    }

    /// Whether anybody tells what becomes of what is sent.
    pub(super) fn is_told(&self) -> bool {
        self.negotiated.rules.reports || self.ledger.is_some()
    }

    pub(super) fn breaker_open(&self, now: Instant) -> bool {
        let rtt = self.rtt.assumed();
        let since = match &self.ledger {
            // Before a buffer was sent nobody can have anything to say about it.
            Some(ledger) => ledger.waits_since().map(|at| at.max(self.reported)),
            None => Some(self.reported),
        };
        self.is_told()
            && self.sampler.in_flight_bytes() > 0
            && since.is_some_and(|since| now.since(since) > BREAKER.max(rtt * 8))
    }
}
