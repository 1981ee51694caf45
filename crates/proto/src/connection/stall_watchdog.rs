//! Closes a connection whose peer answers while the transfer makes no progress (`docs/protocol.md
//! §7.6`). Otherwise a path that carries only small packets, or a peer that answers and stores
//! nothing, would hold a client for ever.

use std::time::Duration;

use super::{Closing, Connection, KEEPALIVE, Machine, SILENT_AFTER};
use crate::api::{Reason, Stalled, Standstill};
use crate::negotiated::Underway;
use crate::time::Instant;
use crate::trace::Timer;

/// Shortest stall, however short the death timer: after an outage, repetitions and probes of the
/// packet size are some seconds apart.
const SHORTEST: Duration = Duration::from_secs(10);
/// Up to this many attempts may all have been lost on a working path; then a stall is at least this
/// long.
const FEW: (u64, Duration) = (8, Duration::from_secs(60));
/// A stall is at least this many round trips,
const ROUND_TRIPS: u32 = 16;
/// this many times the delay of the last acknowledgement,
const ANSWERS: u32 = 2;
/// and this many burst intervals: a rate may be one packet a minute.
const INTERVALS: u32 = 32;

/// Watches one kind of progress.
#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    /// Time and counters of the last progress.
    since: Option<(Instant, Underway)>,
    /// Time since then in which the peer was active; longer pauses between its packets are left
    /// out.
    heard_for: Duration,
    /// Packets of the peer since.
    heard: u64,
}

impl Watch {
    /// A packet came, `gap` after the one before. Returns the stall if it has lasted for
    /// `patience`: its length, packets and attempts.
    fn on_heard(
        &mut self,
        now: Instant,
        gap: Duration,
        patience: Duration,
        underway: Option<Underway>,
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
        self.heard += 1;
        self.heard_for += gap;
        let (since, before) = self.since?;
        let tried = underway.tries - before.tries.min(underway.tries);
        let patience = if tried < FEW.0 { patience.max(FEW.1) } else { patience };
        (self.heard_for >= patience).then_some((now.since(since), self.heard, tried))
    }
}

/// Watches all progress: at a sender its data; at a receiver missing packets, and control messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress([Watch; 2]);

impl Progress {
    /// A new packet came, which is progress of every kind.
    pub(super) fn on_moved(&mut self, now: Instant, underway: [Option<Underway>; 2]) {
        self.0 = underway.map(|underway| Watch {
            since: underway.map(|underway| (now, underway)),
            ..Watch::default()
        });
    }
}

impl Connection {
    /// A packet of the peer came, the one before at `before`. If the transfer has stalled for too
    /// long, closes the connection with QUIT.
    pub(super) fn watch_progress(&mut self, now: Instant, before: Instant) {
        if self.closing != Closing::No {
            return;
        }
        if self.addresses.home().is_none() {
            // Nothing but CHALLENGEs may leave (`docs/protocol.md §4.3`).
            self.progress = Progress::default();
            return;
        }
        let (underway, standstill, pace) = match &self.machine {
            Machine::Sender(sender) => {
                ([sender.underway(), None], [Standstill::Sent; 2], sender.pace_of_progress())
            }
            Machine::Receiver(receiver) => {
                let standstill = [Standstill::Missing, Standstill::Said];
                (receiver.underway(), standstill, receiver.pace_of_progress())
            }
        };
        let patience = self.death_timer.max(SHORTEST);
        let trips = pace.round_trip.saturating_mul(ROUND_TRIPS);
        // A receiver that grants nothing makes the interval endless.
        let trips = trips.max(pace.answer.saturating_mul(ANSWERS));
        let patience = patience.max(trips).max(pace.interval.saturating_mul(INTERVALS));
        // Without probes a living peer may be silent from one KEEPALIVE to the next.
        let asks = self.rules.asks;
        let silence = if asks { SILENT_AFTER } else { (self.death_timer / 4).min(KEEPALIVE) };
        let gap = now.since(before).min(silence.max(SILENT_AFTER));
        let watches = self.progress.0.iter_mut().zip(underway).zip(standstill);
        let stalled = watches.filter_map(|((watch, underway), what)| {
            let (lasted, heard, tried) = watch.on_heard(now, gap, patience, underway)?;
            Some(Stalled { what, lasted, heard, tried })
        });
        let Some(stalled) = stalled.min_by_key(|stalled| stalled.lasted) else { return };
        self.note_timer(now, Timer::Stalled);
        if self.is_settled() {
            self.close(now, Reason::Finished);
            return;
        }
        let told = format!("nothing new was stored for {} s", stalled.lasted.as_secs());
        self.quit_with(now, &told, Reason::Stalled(stalled));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn secs(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000_000)
    }

    fn underway(signs: u64) -> Option<Underway> {
        Some(Underway { signs, tries: signs * 3 + 5 })
    }

    #[test]
    fn what_moves_or_is_not_under_way_never_stands_still() {
        let mut watch = Watch::default();
        let gap = Duration::from_secs(1);
        for n in 1..100 {
            assert_eq!(watch.on_heard(secs(n), gap, PATIENCE, underway(n / 9)), None);
        }
        for n in 100..200 {
            let now_and_then = underway(1000).filter(|_| n % 10 > 0);
            assert_eq!(watch.on_heard(secs(n), gap, PATIENCE, now_and_then), None);
        }
    }

    #[test]
    fn silence_is_no_standstill() {
        let mut watch = Watch::default();
        watch.on_heard(secs(0), Duration::ZERO, PATIENCE, underway(1));
        let gap = Duration::from_secs(3);
        let tried = |tries| Some(Underway { signs: 1, tries });
        for n in [60, 120, 180] {
            assert_eq!(watch.on_heard(secs(n), gap, PATIENCE, tried(n)), None);
        }
        let stalled = watch.on_heard(secs(240), gap, PATIENCE, tried(240));
        assert_eq!(stalled, Some((Duration::from_secs(240), 4, 232)));
    }

    #[test]
    fn a_few_tries_are_given_more_time() {
        let mut watch = Watch::default();
        let second = Duration::from_secs(1);
        let mut hear = |n| watch.on_heard(secs(n), second, PATIENCE, underway(1));
        assert!((0..60).all(|n| hear(n).is_none()));
        assert_eq!(hear(60), Some((Duration::from_secs(60), 60, 0)));
    }
}
