//! When a sender that hears nothing of its data must think of it: silence, and the circuit breaker.

use std::time::Duration;

use super::{Phase, Sender};
use crate::time::Instant;

/// The breaker opens after this, or eight round trips (`docs/protocol.md §7.5`).
const BREAKER: Duration = Duration::from_secs(2);

/// An open breaker lets one packet through in this time.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// When the receiver was heard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hearing {
    heard: Instant,
    /// When the rate law was told of silence, since something was heard.
    pub(super) silence_told: Option<Instant>,
    /// When the newest report came, or what is in flight began to be.
    pub(super) reported: Instant,
    pub(super) probe_due: Instant,
    /// When data left last that are no probe.
    let_go: Instant,
}

impl Hearing {
    pub(super) fn new(now: Instant) -> Self {
        Self { heard: now, silence_told: None, reported: now, probe_due: now, let_go: now }
    }

    pub(super) fn on_heard(&mut self, now: Instant) {
        self.heard = now;
        self.silence_told = None;
    }

    /// Whether an open breaker lets a packet through now; the next one is due later then.
    pub(super) fn probe(&mut self, now: Instant) -> bool {
        let due = self.probe_due <= now;
        if due {
            self.probe_due = now + PROBE_INTERVAL;
        }
        due
    }
}

impl Sender {
    pub(super) fn silence_due(&self) -> Option<Instant> {
        if !self.is_told() || self.stands_still() || self.sampler.in_flight_bytes() == 0 {
            return None;
        }
        let rtt = self.rtt.assumed();
        let patience = (rtt * 3).max(self.rtt.timeout()).max(Duration::from_millis(200));
        let since = self.hearing.silence_told.unwrap_or(self.hearing.heard).max(self.hearing.heard);
        Some(since.max(self.sampler.last_sent().unwrap_or(since)) + patience)
    }

    /// When a protocol that has such a rule takes all that is outstanding for lost.
    pub(super) fn all_lost_at(&self) -> Option<Instant> {
        let after = self.schedule.ways().all_lost_after?;
        let waits = self.schedule.has_supplied() && !self.schedule.may_be_due();
        let since = self.hearing.reported.max(self.sampler.last_sent()?);
        (waits && self.phase == Phase::Sending && !self.stands_still())
            .then(|| since + after.max(self.rtt.assumed() * 2))
    }

    /// Whether anybody tells what becomes of what is sent.
    pub(super) fn is_told(&self) -> bool {
        self.negotiated.rules.reports || self.ledger.is_some()
    }

    /// Data leave, and not as a probe.
    pub(super) fn let_go(&mut self, now: Instant) {
        self.block_over(now);
        self.hearing.let_go = now;
    }

    pub(super) fn breaker_open(&self, now: Instant) -> bool {
        let rtt = self.rtt.assumed();
        let since = match &self.ledger {
            // Before a buffer was sent nobody can have anything to say about it; but what the cap
            // holds back is never sent.
            Some(ledger) => {
                let held = || (self.room(&self.pacing()) == 0).then_some(self.hearing.let_go);
                ledger.waits_since().or_else(held).map(|at| at.max(self.hearing.reported))
            }
            None => Some(self.hearing.reported),
        };
        self.is_told()
            && self.sampler.in_flight_bytes() > 0
            && since.is_some_and(|since| now.since(since) > BREAKER.max(rtt * 8))
    }
}
