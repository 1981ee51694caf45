//! Evidence that the peer's program is gone: its host's refusals (ICMP), and UNKNOWN from its
//! address. An attacker on the path can forge both. So they count only if they quote a packet sent
//! since the last authentic one arrived, only if several come, and only while nothing authentic
//! arrives (`docs/protocol §7.4`).

use std::time::Duration;

use crate::time::Instant;
use crate::units::PacketNumber;

/// Refusals that must come, the least time between two of them, and the least age of the first.
const REFUSALS: u8 = 5;
const REFUSAL_STEP: Duration = Duration::from_secs(1);
const UNREACHABLE_AFTER: Duration = Duration::from_secs(10);
/// Least age of the first refusal during a handshake: no data are lost then, and the true answer
/// gets the time that it has after a hint.
const CLOSED_AFTER: Duration = Duration::from_secs(5);
/// Least age after the transfer is decided: one refusal is enough.
const GONE_AFTER: Duration = Duration::from_secs(2);
/// Number, interval and age for UNKNOWN, and the least time without an authentic packet.
const UNKNOWNS: u8 = 3;
const UNKNOWN_STEP: Duration = Duration::from_millis(300);
const FORGOTTEN_AFTER: Duration = Duration::from_secs(1);
const FORGOTTEN_SILENCE: Duration = Duration::from_millis(2500);

/// One kind of evidence.
#[derive(Clone, Copy, Debug, Default)]
struct EvidenceCount {
    first: Option<Instant>,
    last: Option<Instant>,
    times: u8,
}

impl EvidenceCount {
    /// Counts one more, unless it comes too soon after the last.
    fn count(&mut self, now: Instant, step: Duration) {
        if self.last.is_none_or(|last| last + step <= now) {
            self.first.get_or_insert(now);
            self.last = Some(now);
            self.times = self.times.saturating_add(1);
        }
    }
}

/// The evidence since the last authentic packet.
#[derive(Debug)]
pub(crate) struct PeerGoneEvidence {
    /// Refusals needed.
    needed: u8,
    last_authentic_at: Instant,
    /// Lowest packet number that left after that.
    since: PacketNumber,
    refused: EvidenceCount,
    unknown: EvidenceCount,
}

impl PeerGoneEvidence {
    /// No evidence yet. Several refusals are needed where a silent peer is probed (`probes`): only
    /// then packets leave often enough to be refused.
    pub(crate) fn new(now: Instant, probes: bool) -> Self {
        Self {
            needed: if probes { REFUSALS } else { 1 },
            last_authentic_at: now,
            since: PacketNumber(0),
            refused: EvidenceCount::default(),
            unknown: EvidenceCount::default(),
        }
    }

    /// An authentic packet arrived: that outweighs all evidence so far. `next` is the number of the
    /// packet that leaves next.
    pub(crate) fn on_authentic(&mut self, now: Instant, next: PacketNumber) {
        (self.last_authentic_at, self.since) = (now, next);
        (self.refused, self.unknown) = (EvidenceCount::default(), EvidenceCount::default());
    }

    /// The peer's host refused packet `number`.
    pub(crate) fn on_refused(&mut self, now: Instant, number: PacketNumber) {
        if number >= self.since {
            self.refused.count(now, REFUSAL_STEP);
        }
    }

    /// UNKNOWN came, in answer to packet `number`.
    pub(crate) fn on_unknown(&mut self, now: Instant, number: PacketNumber) {
        if number >= self.since {
            self.unknown.count(now, UNKNOWN_STEP);
        }
    }

    /// Whether the peer should be probed often: UNKNOWN says that another program may have its
    /// address.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.unknown.times > 0
    }

    /// Whether there were refusals.
    pub(crate) fn were_any(&self) -> bool {
        self.refused.times > 0
    }

    /// When refusals close the connection if nothing authentic arrives; sooner if the transfer is
    /// `settled`.
    pub(crate) fn unreachable_at(&self, settled: bool) -> Option<Instant> {
        if settled {
            return self.refused.first.map(|first| first + GONE_AFTER);
        }
        self.enough_after(UNREACHABLE_AFTER)
    }

    /// The same for a handshake.
    pub(crate) fn closed_at(&self) -> Option<Instant> {
        self.enough_after(CLOSED_AFTER)
    }

    fn enough_after(&self, patience: Duration) -> Option<Instant> {
        let EvidenceCount { first, last, times } = self.refused;
        let enough = first.zip(last).filter(|_| times >= self.needed);
        enough.map(|(first, last)| (first + patience).max(last))
    }

    /// When UNKNOWNs close the connection if nothing authentic arrives.
    pub(crate) fn forgotten_at(&self) -> Option<Instant> {
        let first = self.unknown.first.filter(|_| self.unknown.times >= UNKNOWNS)?;
        Some((first + FORGOTTEN_AFTER).max(self.last_authentic_at + FORGOTTEN_SILENCE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn refusals() -> PeerGoneEvidence {
        let mut refusals = PeerGoneEvidence::new(at(0), true);
        refusals.on_authentic(at(0), PacketNumber(10));
        refusals
    }

    #[test]
    fn five_refusals_a_second_apart_are_needed_and_a_burst_of_them_counts_once() {
        let mut refusals = refusals();
        for n in 0..100 {
            refusals.on_refused(at(n), PacketNumber(10 + n));
        }
        assert_eq!(refusals.unreachable_at(false), None);
        assert_eq!(refusals.unreachable_at(true), Some(at(2000)));
        for n in 1..5 {
            refusals.on_refused(at(n * 1500), PacketNumber(10));
        }
        assert_eq!(refusals.unreachable_at(false), Some(at(10_000)));
        assert_eq!(refusals.closed_at(), Some(at(6000)), "the fifth came then");
        refusals.on_authentic(at(7000), PacketNumber(20));
        assert_eq!(refusals.unreachable_at(true), None, "it lives");
    }

    #[test]
    fn refusals_of_packets_from_before_the_last_authentic_one_do_not_count() {
        let mut refusals = refusals();
        for n in 0..20 {
            refusals.on_refused(at(n * 1000), PacketNumber(9));
            refusals.on_unknown(at(n * 1000), PacketNumber(9));
        }
        assert_eq!((refusals.unreachable_at(true), refusals.forgotten_at()), (None, None));
    }

    #[test]
    fn three_unknowns_close_the_connection_within_three_seconds() {
        let mut refusals = refusals();
        for n in 0..3 {
            assert_eq!(refusals.forgotten_at(), None);
            refusals.on_unknown(at(n * 300), PacketNumber(11));
            refusals.on_unknown(at(n * 300 + 1), PacketNumber(11));
        }
        assert_eq!(refusals.forgotten_at(), Some(at(2500)));
    }
}
