//! What the sender leaves for its client: events, statistics and the trace.
//!
//! Inputs: buffers, packets and the causes that block the sender. Outputs: their sums, among them
//! the time that each cause took, for "limited by".

use std::collections::VecDeque;
use std::time::Duration;

use super::scheduler::PacketBody;
use crate::api::Event;
use crate::buffer::Buffer;
use crate::stats::{BlockedTime, Stats, SteadyState};
use crate::time::Instant;
use crate::trace::{BlockedCause, Recorder, Stage, TraceEvent};
use crate::units::BufferNumber;

/// A shorter block has no effect.
const MIN_BLOCK: Duration = Duration::from_millis(1);

/// The cause that blocks the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    Pacing,
    InFlight,
    Permission,
    Source,
    Paused,
}

/// Events until they are polled, counts, trace events, and what blocks the sender now.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) events: VecDeque<Event>,
    pub(super) stats: Stats,
    pub(super) trace: Recorder,
    first_pass: SteadyState,
    blocked: Option<(Blocked, Instant)>,
}

impl Records {
    /// The first datagrams have `datagram_bytes`.
    pub(super) fn new(datagram_bytes: u32) -> Self {
        Self {
            events: VecDeque::new(),
            stats: Stats { datagram_bytes, ..Stats::default() },
            trace: Recorder::default(),
            first_pass: SteadyState::default(),
            blocked: None,
        }
    }

    // ---- buffers

    /// A buffer reached `stage`. So many buffers are `outstanding`, and `held` by the client.
    #[inline]
    pub(super) fn note_buffer(
        &mut self,
        now: Instant,
        number: BufferNumber,
        stage: Stage,
        outstanding: u32,
        held: u32,
    ) {
        let number = number.0;
        self.trace.note(now, || TraceEvent::Buffer { number, stage, outstanding, held });
    }

    /// A buffer of `image_bytes` was accepted.
    pub(super) fn on_accepted(&mut self, image_bytes: usize) {
        self.stats.buffers_done += 1;
        self.stats.image_bytes += image_bytes as u64;
    }

    /// A buffer goes back to the client.
    pub(super) fn release(&mut self, number: BufferNumber, buffer: Buffer) {
        self.events.push_back(Event::Released(number, buffer));
    }

    // ---- packets

    /// A packet left. Bursts are `interval` apart.
    pub(super) fn on_packet(
        &mut self,
        now: Instant,
        what: &PacketBody,
        interval: impl FnOnce() -> Duration,
    ) {
        let PacketBody::Data(piece) = what else {
            self.stats.repair_packets_sent += 1;
            return;
        };
        self.stats.data_packets_sent += 1;
        self.stats.first_data_at.get_or_insert(now);
        if piece.resend {
            self.stats.data_packets_resent += 1;
        } else {
            self.first_pass.advance(now, interval(), &mut self.stats);
            self.first_pass.moved(piece.range.len());
            self.stats.first_pass_bytes += piece.range.len() as u64;
        }
    }

    /// Datagrams have this size from now on.
    pub(super) fn on_resize(&mut self, now: Instant, bytes: u32) {
        self.stats.datagram_bytes = bytes;
        self.stats.resizes += 1;
        self.trace.note(now, || TraceEvent::PacketSize { bytes });
    }

    // ---- what blocks

    /// This cause blocks the sender now.
    pub(super) fn block(&mut self, now: Instant, why: Blocked) {
        match self.blocked {
            Some((known, _)) if known == why => {}
            _ => {
                self.block_over(now);
                self.blocked = Some((why, now));
            }
        }
    }

    /// Whether a cause other than pacing has blocked the sender until now.
    pub(super) fn was_held_back(&self, now: Instant) -> bool {
        let other = self.blocked.filter(|(why, _)| *why != Blocked::Pacing);
        other.is_some_and(|(_, since)| now.since(since) >= MIN_BLOCK)
    }

    /// Nothing blocks the sender.
    pub(super) fn block_over(&mut self, now: Instant) {
        if let Some((why, since)) = self.blocked.take() {
            let time = now.since(since);
            add_wait(&mut self.stats.waited, why, time);
            // The pacer blocks between any two bursts.
            let cause = match why {
                Blocked::Pacing => return,
                Blocked::InFlight => BlockedCause::InFlight,
                Blocked::Permission => BlockedCause::Permission,
                Blocked::Source => BlockedCause::Source,
                Blocked::Paused => BlockedCause::Paused,
            };
            self.trace.note(now, || TraceEvent::Waited { cause, time });
        }
    }

    /// The statistics, with the time that the present cause has blocked the sender.
    pub(super) fn stats(&self, now: Instant) -> Stats {
        let mut stats = self.stats.clone();
        if let Some((why, since)) = self.blocked {
            add_wait(&mut stats.waited, why, now.since(since));
        }
        stats
    }
}

fn add_wait(waited: &mut BlockedTime, why: Blocked, time: Duration) {
    let sum = match why {
        Blocked::Pacing => &mut waited.pacing,
        Blocked::InFlight => &mut waited.in_flight,
        Blocked::Permission => &mut waited.permission,
        Blocked::Source => &mut waited.source,
        Blocked::Paused => &mut waited.paused,
    };
    *sum += time;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    #[test]
    fn each_cause_gets_the_time_until_the_next() {
        let mut records = Records::new(1200);
        for (at, why) in [(0, Blocked::Source), (3, Blocked::Source), (5, Blocked::Pacing)] {
            records.block(ms(at), why);
        }
        assert_eq!(records.stats(ms(5)).waited.source, Duration::from_millis(5));
        assert_eq!(records.stats(ms(9)).waited.pacing, Duration::from_millis(4));
        assert!(!records.was_held_back(ms(9)), "the pacer does not count");
        records.block(ms(9), Blocked::Permission);
        assert!(!records.was_held_back(ms(9)) && records.was_held_back(ms(10)));
        records.block_over(ms(12));
        let waited = records.stats(ms(99)).waited;
        let all = [waited.source, waited.pacing, waited.permission];
        assert_eq!(all, [5, 4, 3].map(Duration::from_millis));
    }
}
