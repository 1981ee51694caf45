//! When a sender that hears nothing of its data must think of it: silence, and the circuit breaker.

use std::time::Duration;

use super::{Phase, Sender};
use crate::rate::Sample;
use crate::time::Instant;

/// The breaker opens after this, or eight round trips (`docs/protocol.md §7.5`).
const BREAKER: Duration = Duration::from_secs(2);

/// An open breaker lets one packet through in this time.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// So many probes are so far apart whatever the receiver does.
const QUICK_PROBES: u32 = 8;

/// A receiver that speaks when nothing comes gets up to 32 s of that.
const MAX_DOUBLINGS: u32 = 5;

/// When the receiver was heard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hearing {
    heard: Instant,
    /// When the rate law was told of silence, since something was heard.
    pub(super) silence_told: Option<Instant>,
    /// When the newest report came, or what is in flight began to be.
    pub(super) reported: Instant,
    /// Packets that it told of: delivered, and lost.
    told: (u64, u64),
    pub(super) probe_due: Instant,
    /// Probes since data left otherwise.
    probes: u32,
    /// When data left last that are no probe.
    let_go: Instant,
}

impl Hearing {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            heard: now,
            silence_told: None,
            reported: now,
            told: (0, 0),
            probe_due: now,
            probes: 0,
            let_go: now,
        }
    }

    pub(super) fn on_heard(&mut self, now: Instant) {
        self.heard = now;
        self.silence_told = None;
    }

    /// A report came; one that tells of no packet is none.
    pub(super) fn on_reported(&mut self, now: Instant, sample: &Sample) {
        let told = (sample.delivered_packets, sample.lost_packets);
        if std::mem::replace(&mut self.told, told) != told {
            self.reported = now;
        }
    }

    /// Whether an open breaker lets a packet through now; the next one is due later then, and ever
    /// later for a receiver that `waits` for what comes and speaks when nothing does.
    pub(super) fn probe(&mut self, now: Instant, waits: bool) -> bool {
        let due = self.probe_due <= now;
        if due {
            self.probes = self.probes.saturating_add(1);
            let late = if waits { self.probes.saturating_sub(QUICK_PROBES) } else { 0 };
            self.probe_due = now + PROBE_INTERVAL * (1 << late.min(MAX_DOUBLINGS));
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
        self.hearing.probes = 0;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds between the probes of a breaker that stays open.
    fn pauses(waits: bool) -> Vec<u64> {
        let mut hearing = Hearing::new(Instant::EPOCH);
        let seconds = (0..200)
            .filter(|second| hearing.probe(Instant::EPOCH + Duration::from_secs(*second), waits));
        let at: Vec<u64> = seconds.collect();
        at.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn a_receiver_that_speaks_when_nothing_comes_gets_its_silence() {
        assert!(pauses(false).iter().all(|pause| *pause == 1));
        let (quick, slow) = ([1; 8], [2, 4, 8, 16, 32, 32, 32, 32]);
        assert_eq!(pauses(true)[..15], [&quick[..], &slow[..]].concat()[..15]);
    }
}
