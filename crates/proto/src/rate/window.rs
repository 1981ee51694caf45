//! Pacing to the letter of RFC 998 §4: in no time as long as the burst interval, wherever it
//! begins, do more packets leave than a burst has.
//!
//! A burst that leaves late delays those after it, and nothing is ever made up for: two bursts are
//! never closer than the interval. [`Pacer`] keeps the mean rate instead, and bursts may be closer
//! after a late one.

use std::collections::VecDeque;
use std::time::Duration;

use crate::rate::Pacing;
use crate::rate::pacer::{Lateness, Pacer};
use crate::time::Instant;

/// Who says when packets may leave.
#[derive(Debug)]
pub(crate) enum Gate {
    /// Bursts on a beat.
    Beat(Pacer),
    /// Bursts that keep their distance.
    Window(Window),
}

impl Gate {
    /// Bursts that `keep` their distance, or that come on a beat.
    pub(crate) fn new(keep: bool) -> Self {
        if keep { Self::Window(Window::default()) } else { Self::Beat(Pacer::new()) }
    }

    pub(crate) fn available(&self, now: Instant, pacing: &Pacing) -> u32 {
        match self {
            Self::Beat(pacer) => pacer.available(now, pacing),
            Self::Window(window) => window.available(now, pacing),
        }
    }

    pub(crate) fn consumed(&mut self, now: Instant, packets: u32, pacing: &Pacing) {
        match self {
            Self::Beat(pacer) => pacer.consumed(now, packets, pacing),
            Self::Window(window) => window.consumed(now, packets, pacing),
        }
    }

    pub(crate) fn forget(&mut self, now: Instant, pacing: &Pacing) {
        if let Self::Beat(pacer) = self {
            pacer.forget(now, pacing);
        }
    }

    /// Packets are smaller from now on, where bytes count.
    pub(crate) fn shrink(&mut self, from_bytes: u32, to_bytes: u32) {
        if let Self::Beat(pacer) = self {
            pacer.shrink(from_bytes, to_bytes);
        }
    }

    pub(crate) fn lateness(&self, now: Instant, pacing: &Pacing) -> Option<Lateness> {
        match self {
            Self::Beat(pacer) => pacer.lateness(now, pacing),
            Self::Window(_) => None,
        }
    }

    pub(crate) fn next(&self, now: Instant, pacing: &Pacing) -> Instant {
        match self {
            Self::Beat(pacer) => pacer.next(now, pacing),
            Self::Window(window) => window.next(now, pacing),
        }
    }
}

/// What left within the newest interval.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// When, and how many packets; oldest first. Never more than a burst has packets.
    sent: VecDeque<(Instant, u32)>,
}

impl Window {
    /// Packets that may leave now.
    pub fn available(&self, now: Instant, pacing: &Pacing) -> u32 {
        pacing.burst.packets.max(1).saturating_sub(self.within(now, pacing.burst.interval))
    }

    /// Takes note that `packets`, at most what was available, left now.
    pub fn consumed(&mut self, now: Instant, packets: u32, pacing: &Pacing) {
        let interval = pacing.burst.interval;
        while self.sent.pop_front_if(|(at, _)| *at + interval <= now).is_some() {}
        if packets > 0 && !interval.is_zero() {
            self.sent.push_back((now, packets));
        }
    }

    /// When packets may leave next; `now` if some may leave now.
    pub fn next(&self, now: Instant, pacing: &Pacing) -> Instant {
        let (burst, interval) = (pacing.burst.packets.max(1), pacing.burst.interval);
        let mut left = self.within(now, interval);
        for (at, packets) in &self.sent {
            if left < burst {
                break;
            }
            let expires = *at + interval;
            if expires > now {
                left = left.saturating_sub(*packets);
                if left < burst {
                    return expires;
                }
            }
        }
        now
    }

    /// Packets that left less than an interval ago.
    fn within(&self, now: Instant, interval: Duration) -> u32 {
        let recent = self.sent.iter().rev().take_while(|(at, _)| *at + interval > now);
        recent.fold(0, |sum, (_, packets)| sum.saturating_add(*packets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Burst;

    fn us(n: u64) -> Instant {
        Instant::from_nanos(n * 1000)
    }

    fn pacing(packets: u32, micros: u64) -> Pacing {
        let burst = Burst { packets, interval: Duration::from_micros(micros) };
        Pacing::of(burst)
    }

    #[test]
    fn a_late_burst_delays_the_next_one() {
        let (mut window, p) = (Window::default(), pacing(8, 1000));
        assert_eq!((window.available(us(5), &p), window.next(us(5), &p)), (8, us(5)));
        window.consumed(us(5), 8, &p);
        assert_eq!((window.available(us(900), &p), window.next(us(900), &p)), (0, us(1005)));
        assert_eq!(window.available(us(1700), &p), 8);
        window.consumed(us(1700), 8, &p);
        assert_eq!(window.next(us(2005), &p), us(2700));
        assert_eq!(window.available(us(90_000), &p), 8, "nothing is made up for");
    }

    #[test]
    fn half_a_burst_leaves_room_for_the_other_half_only() {
        let (mut window, p) = (Window::default(), pacing(8, 1000));
        window.consumed(us(0), 3, &p);
        assert_eq!(window.available(us(600), &p), 5);
        window.consumed(us(600), 5, &p);
        assert_eq!(window.available(us(1000), &p), 3);
        window.consumed(us(1000), 3, &p);
        assert_eq!((window.available(us(1599), &p), window.next(us(1599), &p)), (0, us(1600)));
    }

    #[test]
    fn stricter_values_hold_at_once_and_no_interval_is_no_limit() {
        let mut window = Window::default();
        window.consumed(us(0), 4, &pacing(8, 1000));
        window.consumed(us(100), 4, &pacing(8, 1000));
        assert_eq!(window.next(us(200), &pacing(2, 1000)), us(1100));
        assert_eq!(window.available(us(200), &pacing(0, 0)), 1);
        window.consumed(us(200), u32::MAX, &pacing(u32::MAX, 1));
        assert_eq!(window.available(Instant::NEVER, &pacing(u32::MAX, 1)), u32::MAX);
    }

    #[test]
    fn no_window_holds_more_than_a_burst() {
        for (packets, micros) in [(8, 1000), (5, 55_000), (30, 1000), (1, 5000)] {
            let p = pacing(packets, micros);
            let (mut window, mut sent, mut dice) =
                (Window::default(), Vec::new(), 88_172_645_463_325_252_u64);
            let mut now = us(0);
            while now < us(400_000) {
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                let n = window.available(now, &p).min(1 + (dice % 16) as u32);
                window.consumed(now, n, &p);
                sent.extend(vec![now; n as usize]);
                let late = if dice % 50 == 0 { dice % 3000 } else { dice % 100 };
                now = window.next(now, &p) + Duration::from_micros(late);
            }
            let span = packets as usize;
            let close = sent.windows(span + 1).find(|w| w[span].since(w[0]) < p.burst.interval);
            assert!(close.is_none(), "{p:?}: {close:?}");
            let ideal = 400_000 / micros as usize * span;
            assert!(sent.len() >= ideal * 80 / 100, "{p:?} {} {ideal}", sent.len());
        }
    }
}
