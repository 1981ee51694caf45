//! Closes a connection whose peer answers while the transfer makes no progress (`docs/protocol
//! §7.6`). Otherwise a path that carries only small packets, or a peer that answers and stores
//! nothing, would hold a client for ever.

use std::time::Duration;

use crate::api::{Stall, StallKind};
use crate::negotiated::{ProgressCounter, ProgressTimescale};
use crate::time::Instant;

/// Shortest stall, however short the death timer: after an outage, repetitions and probes of the
/// packet size are some seconds apart.
const MIN_STALL: Duration = Duration::from_secs(10);
/// Up to this many attempts may all have been lost on a working path; then a stall is at least this
/// long.
const FEW_ATTEMPTS: (u64, Duration) = (8, Duration::from_secs(60));
/// A stall is at least this many round trips,
const ROUND_TRIPS: u32 = 16;
/// this many times the delay of the last acknowledgement,
const ANSWERS: u32 = 2;
/// and this many burst intervals: a rate may be one packet a minute.
const INTERVALS: u32 = 32;

/// Watches one kind of progress.
#[derive(Clone, Copy, Debug, Default)]
struct StallWatch {
    /// Time and counters of the last progress.
    since: Option<(Instant, ProgressCounter)>,
    /// Time since then in which the peer was active; longer pauses between its packets are left
    /// out.
    active_for: Duration,
    /// Packets of the peer since.
    received: u64,
}

impl StallWatch {
    /// A packet came, `gap` after the one before. Returns the stall if it has lasted for
    /// `patience`: its length, packets and attempts.
    fn on_packet(
        &mut self,
        now: Instant,
        gap: Duration,
        patience: Duration,
        underway: Option<ProgressCounter>,
    ) -> Option<(Duration, u64, u64)> {
        let Some(underway) = underway else {
            *self = Self::default();
            return None;
        };
        let moves = self.since.is_none_or(|(_, before)| before.signs != underway.signs);
        if moves {
            *self = Self { since: Some((now, underway)), ..Self::default() };
            return None;
        }
        self.received += 1;
        self.active_for += gap;
        let (since, before) = self.since?;
        let attempts = underway.tries - before.tries.min(underway.tries);
        let patience =
            if attempts < FEW_ATTEMPTS.0 { patience.max(FEW_ATTEMPTS.1) } else { patience };
        (self.active_for >= patience).then_some((now.since(since), self.received, attempts))
    }
}

/// Watches all progress: at a sender its data; at a receiver missing packets, and control messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StallWatchdog([StallWatch; 2]);

/// The progress that a machine expects.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedProgress {
    pub(super) underway: [Option<ProgressCounter>; 2],
    /// What stalls if that progress does not come.
    pub(super) kinds: [StallKind; 2],
    pub(super) timescale: ProgressTimescale,
}

impl ExpectedProgress {
    /// How long a stall lasts before the connection closes.
    fn patience(&self, death_timer: Duration) -> Duration {
        let ProgressTimescale { round_trip, answer, interval } = self.timescale;
        let patience = death_timer.max(MIN_STALL);
        let trips = round_trip.saturating_mul(ROUND_TRIPS);
        // A receiver that grants nothing makes the interval endless.
        let trips = trips.max(answer.saturating_mul(ANSWERS));
        patience.max(trips).max(interval.saturating_mul(INTERVALS))
    }
}

impl StallWatchdog {
    /// A new packet came, which is progress of every kind.
    pub(super) fn on_moved(&mut self, now: Instant, underway: [Option<ProgressCounter>; 2]) {
        self.0 = underway.map(|underway| StallWatch {
            since: underway.map(|underway| (now, underway)),
            ..StallWatch::default()
        });
    }

    /// No progress can be expected.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// A packet of the peer came, `gap` after the one before. Returns the stall if the transfer has
    /// stalled for too long.
    pub(super) fn on_packet(
        &mut self,
        now: Instant,
        gap: Duration,
        death_timer: Duration,
        expected: &ExpectedProgress,
    ) -> Option<Stall> {
        let patience = expected.patience(death_timer);
        let watches = self.0.iter_mut().zip(expected.underway).zip(expected.kinds);
        let stalled = watches.filter_map(|((watch, underway), what)| {
            let (lasted, received, attempts) = watch.on_packet(now, gap, patience, underway)?;
            Some(Stall { what, lasted, received, attempts })
        });
        stalled.min_by_key(|stalled| stalled.lasted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn secs(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000_000)
    }

    fn underway(signs: u64) -> Option<ProgressCounter> {
        Some(ProgressCounter { signs, tries: signs * 3 + 5 })
    }

    #[test]
    fn progress_or_nothing_to_do_is_no_stall() {
        let mut watch = StallWatch::default();
        let gap = Duration::from_secs(1);
        for n in 1..100 {
            assert_eq!(watch.on_packet(secs(n), gap, PATIENCE, underway(n / 9)), None);
        }
        for n in 100..200 {
            let now_and_then = underway(1000).filter(|_| n % 10 > 0);
            assert_eq!(watch.on_packet(secs(n), gap, PATIENCE, now_and_then), None);
        }
    }

    #[test]
    fn silence_of_the_peer_is_no_stall() {
        let mut watch = StallWatch::default();
        watch.on_packet(secs(0), Duration::ZERO, PATIENCE, underway(1));
        let gap = Duration::from_secs(3);
        let attempts = |tries| Some(ProgressCounter { signs: 1, tries });
        for n in [60, 120, 180] {
            assert_eq!(watch.on_packet(secs(n), gap, PATIENCE, attempts(n)), None);
        }
        let stalled = watch.on_packet(secs(240), gap, PATIENCE, attempts(240));
        assert_eq!(stalled, Some((Duration::from_secs(240), 4, 232)));
    }

    #[test]
    fn few_attempts_get_more_time() {
        let mut watch = StallWatch::default();
        let second = Duration::from_secs(1);
        let mut packet_at = |n| watch.on_packet(secs(n), second, PATIENCE, underway(1));
        assert!((0..60).all(|n| packet_at(n).is_none()));
        assert_eq!(packet_at(60), Some((Duration::from_secs(60), 60, 0)));
    }
}
