//! The burst values that the receiver knows, and when to announce others (`docs/protocol §6.7`).
//!
//! Inputs: the values that the rate law asks for and the times of announcements. Output: when
//! NULL-ACK is to announce them.

use std::time::Duration;

use crate::time::Instant;
use crate::units::Burst;

/// How often an adaptive sender on `rfc998` announces its first burst values before any data: with
/// the negotiated ones, the data timers of every buffer would expire at once.
const ANNOUNCEMENTS: u8 = 3;
/// Packets for which new burst values must last to be worth a NULL-ACK.
const WORTH_PACKETS: u64 = 8;
/// Changes up to this part of the value are not announced.
const SLIGHT_CHANGE_PART: u64 = 32;

/// The announced burst values; on `rfc998` they are those in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnnouncedBurst {
    burst: Burst,
    at: Instant,
    /// Remaining announcements of the first values.
    left: u8,
    /// A control packet has come: before the first GO no change is announced.
    open: bool,
}

impl AnnouncedBurst {
    /// The receiver knows `burst`. If `repeat`, the sender's own first values are announced
    /// [`ANNOUNCEMENTS`] times.
    pub(super) fn new(now: Instant, burst: Burst, repeat: bool) -> Self {
        Self { burst, at: now, left: if repeat { ANNOUNCEMENTS } else { 0 }, open: false }
    }

    pub(super) fn burst(&self) -> Burst {
        self.burst
    }

    /// A control packet came.
    pub(super) fn open(&mut self) {
        self.open = true;
    }

    /// Whether a control packet has come.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// NULL-ACK with `burst` left.
    pub(super) fn on_announced(&mut self, now: Instant, burst: Burst) {
        *self = Self { burst, at: now, left: self.left.saturating_sub(1), ..*self };
    }

    /// When to announce `burst`, if it differs from the announced values: by a tenth, and a round
    /// trip after the last announcement.
    pub(super) fn announce_at(&self, burst: Burst, rtt: Duration) -> Option<Instant> {
        let (old, new) = (per_packet(self.burst), per_packet(burst));
        if self.left > 0 {
            return Some(self.at);
        }
        (old.abs_diff(new) > old / 10).then_some(self.at + rtt)
    }

    /// The same where the announced values are in force: sooner, so that the rate law need not
    /// wait, but once per number of packets, since on some networks every packet costs the same.
    /// Values slower by a tenth, and those in the receiver's `offers`, are announced at once.
    pub(super) fn announce_in_force_at(
        &self,
        burst: Burst,
        offers: Burst,
        rtt: Duration,
    ) -> Option<Instant> {
        let same = burst == self.burst;
        if !self.open || same && matches!(self.left, 0 | ANNOUNCEMENTS) {
            return None;
        }
        let (old, new) = (per_packet(self.burst), per_packet(burst));
        let looser = self.burst != self.burst.stricter(offers);
        if self.left > 0 || looser || new > old + old / 10 {
            return Some(self.at);
        }
        if old.abs_diff(new) <= old / SLIGHT_CHANGE_PART {
            return None;
        }
        let worth = Duration::from_nanos(new.saturating_mul(WORTH_PACKETS));
        Some(self.at + if new > old { worth } else { worth.max(rtt / 4) })
    }
}

/// Nanoseconds per packet.
fn per_packet(burst: Burst) -> u64 {
    burst.interval.as_nanos() as u64 / u64::from(burst.packets.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    /// One packet in so many milliseconds.
    fn every(millis: u64) -> Burst {
        Burst { packets: 1, interval: Duration::from_millis(millis) }
    }

    #[test]
    fn a_change_by_a_tenth_is_announced_a_round_trip_after_the_last() {
        let (mut announced, rtt) =
            (AnnouncedBurst::new(ms(0), every(100), false), Duration::from_millis(40));
        assert_eq!(announced.announce_at(every(109), rtt), None);
        assert_eq!(announced.announce_at(every(111), rtt), Some(ms(40)));
        announced.on_announced(ms(50), every(111));
        assert_eq!(announced.announce_at(every(111), rtt), None);
    }

    #[test]
    fn values_in_force_wait_for_the_first_control_packet_and_slower_ones_for_nothing() {
        let (mut announced, rtt) =
            (AnnouncedBurst::new(ms(0), every(100), false), Duration::from_millis(4000));
        let due = |announced: &AnnouncedBurst, millis| {
            announced.announce_in_force_at(every(millis), every(10), rtt)
        };
        assert_eq!(due(&announced, 200), None);
        announced.open();
        assert_eq!(due(&announced, 200), Some(ms(0)), "slower");
        assert_eq!(due(&announced, 102), None, "a slight change");
        assert_eq!(due(&announced, 104), Some(ms(832)), "a little slower: eight packets");
        assert_eq!(due(&announced, 50), Some(ms(1000)), "faster: a quarter of a round trip");
    }
}
