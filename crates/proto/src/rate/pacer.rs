//! Pacing: from burst size and interval to "so many packets may leave now".
//!
//! Bursts start `interval` apart by the sender's clock, start to start (RFC 998 §4). A loop that
//! wakes late may send what it missed, within a bound, so that what leaves in any time can be
//! checked from outside: see [`allowance_bytes`]. Nothing is saved up beyond that bound.

use std::time::Duration;

use crate::rate::Pacing;
use crate::time::{Instant, nanos};

/// Bursts that may be made up for at once, however long they are.
const CATCH_UP_BURSTS: u64 = 2;
/// Time that may be made up for at once if that is more: how late a busy host's timers fire.
const CATCH_UP_TIME: Duration = Duration::from_millis(1);
/// From this interval on nothing is made up for: no loop wakes as late, so what was missed was
/// missed for another reason, and a network has a right to the time between such bursts.
const LONG_INTERVAL: Duration = Duration::from_millis(10);
/// What was made up for counts an eighth less as time goes on: a sender yields to a queue that
/// stays longer than that explains, its own or not.
const FORGIVEN_PART: u64 = 8;

/// Where the sender is in its sequence of bursts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    /// Scheduled start of the newest burst that something was sent of.
    begun: Option<Instant>,
    /// Scheduled start of the first one of which something was sent then.
    first: Instant,
    /// Packets sent of that burst.
    used: u32,
    /// When they were sent.
    touched: Instant,
    /// The interval that held then, in nanoseconds, and the packets of a burst.
    interval: u64,
    burst: u64,
    /// How much more had left by then than the pace alone would have let go, in nanoseconds of it.
    ahead: u64,
    ahead_at: Instant,
}

/// What became of a host's lateness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lateness {
    /// When the first packet was due.
    pub due_at: Instant,
    /// So long is the queue that this made at most, on a path that carries the pace.
    pub made_up: Duration,
}

impl Pacer {
    /// A pacer whose first burst may leave at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// Packets that may leave now.
    pub fn available(&self, now: Instant, pacing: &Pacing) -> u32 {
        let burst = u64::from(pacing.burst.packets.max(1));
        let interval = nanos(pacing.burst.interval);
        let Some(begun) = self.begun else { return clamp(burst) };
        if interval == 0 {
            return clamp(burst);
        }
        let due = now.since(begun).as_nanos() as u64 / interval;
        let limit = self.most_due(now, begun, pacing);
        let packets = due.min(limit).saturating_mul(burst) + self.rest(now, burst, pacing);
        clamp(packets.min(limit.saturating_mul(burst)))
    }

    /// Takes note that `packets`, at most what was available, left now.
    pub fn consumed(&mut self, now: Instant, packets: u32, pacing: &Pacing) {
        if packets == 0 {
            return;
        }
        let burst = u64::from(pacing.burst.packets.max(1));
        let interval = nanos(pacing.burst.interval);
        self.ahead =
            self.ahead_now(now).saturating_add(interval.saturating_mul(u64::from(packets)) / burst);
        self.ahead_at = now;
        let due = match self.begun {
            Some(begun) if interval > 0 => now.since(begun).as_nanos() as u64 / interval,
            _ => 0,
        };
        let rest = self.rest(now, burst, pacing);
        let Some(begun) = self.begun.filter(|_| interval > 0) else {
            self.first = now;
            self.begin(now, packets, now, (interval, burst));
            return;
        };
        self.first = begun;
        if due == 0 || u64::from(packets) <= rest {
            let held = if pacing.catch_up.is_zero() { burst.min(self.burst) } else { burst };
            self.begin(begun, self.used.saturating_add(packets), now, (interval, held));
            return;
        }
        // The bursts that may still be sent are the newest so many; older ones are lost.
        let lost = due.saturating_sub(self.most_due(now, begun, pacing));
        let fresh = u64::from(packets) - rest;
        let whole = (fresh - 1) / burst;
        let restarts = self.missed(now, begun, interval) == 0 || lost > 0 && is_long(interval);
        let steps = lost.saturating_add(1 + whole).min(due);
        let slot = begun + Duration::from_nanos(interval.saturating_mul(steps));
        let begun = if restarts { now } else { slot };
        self.first = begun.before(Duration::from_nanos(interval.saturating_mul(whole)));
        self.begin(begun, clamp(fresh - whole * burst), now, (interval, burst));
    }

    /// Packets are smaller from now on, and what left of the newest burst was as many of these.
    pub fn shrink(&mut self, from_bytes: u32, to_bytes: u32) {
        let scaled = u64::from(self.used) * u64::from(from_bytes.max(to_bytes));
        self.used = clamp(scaled.div_ceil(u64::from(to_bytes.max(1))));
    }

    /// Until now it was not pacing that held packets back: what was missed meanwhile is lost, but
    /// for the least that is always made up for.
    pub fn forget(&mut self, now: Instant, pacing: &Pacing) {
        let interval = nanos(pacing.burst.interval);
        let least = interval.saturating_mul(catch_up(interval, Duration::ZERO));
        self.begun = self.begun.map(|begun| begun.max(now.before(Duration::from_nanos(least))));
    }

    /// Of what left just now: when it would have left first had this host not been late, and how
    /// far ahead of its pace it is because that was made up for, in time at this pace. `None`
    /// where no more is made up for than always is.
    pub fn lateness(&self, now: Instant, pacing: &Pacing) -> Option<Lateness> {
        if pacing.catch_up <= CATCH_UP_TIME {
            return None;
        }
        let interval = nanos(pacing.burst.interval);
        let always = catch_up(interval, Duration::ZERO) + 1;
        let ahead = self.ahead_now(now);
        let more = ahead > interval.saturating_mul(always);
        let made_up = Duration::from_nanos(if more { ahead - interval } else { 0 });
        Some(Lateness { due_at: self.first.min(now), made_up })
    }

    fn ahead_now(&self, now: Instant) -> u64 {
        let passed = nanos(now.since(self.ahead_at));
        self.ahead.saturating_sub(passed.saturating_add(passed / FORGIVEN_PART))
    }

    /// When packets may leave next; `now` if some may leave now.
    pub fn next(&self, now: Instant, pacing: &Pacing) -> Instant {
        match self.begun {
            Some(begun) if self.available(now, pacing) == 0 => begun + pacing.burst.interval,
            _ => now,
        }
    }

    fn begin(&mut self, begun: Instant, used: u32, touched: Instant, values: (u64, u64)) {
        let (interval, burst) = values;
        *self = Self { begun: Some(begun), used, touched, interval, burst, ..*self };
    }

    /// Most bursts that may leave at once: what was missed is made up for, but a shorter interval
    /// holds from now on, and makes nothing due that was not when the longer one held.
    fn most_due(&self, now: Instant, begun: Instant, pacing: &Pacing) -> u64 {
        let interval = nanos(pacing.burst.interval);
        catch_up(interval, pacing.catch_up).min(self.missed(now, begun, interval).max(1))
    }

    /// How many bursts were due by the longer of the intervals.
    fn missed(&self, now: Instant, begun: Instant, interval: u64) -> u64 {
        let held = self.interval.max(interval).max(1);
        now.since(begun).as_nanos() as u64 / held
    }

    /// What is left of the burst last sent of. It stays so for one interval only: packets for
    /// which there were no data are lost, not saved. Where nothing is made up for, a larger burst
    /// holds from the next one on.
    fn rest(&self, now: Instant, burst: u64, pacing: &Pacing) -> u64 {
        if now.since(self.touched) >= pacing.burst.interval {
            return 0;
        }
        let held = if pacing.catch_up.is_zero() { burst.min(self.burst) } else { burst };
        held.saturating_sub(u64::from(self.used))
    }
}

/// The most bytes that may leave within any `window` while `pacing` holds, in packets of
/// `packet_bytes`.
pub fn allowance_bytes(pacing: &Pacing, packet_bytes: u32, window: Duration) -> u64 {
    let interval = nanos(pacing.burst.interval).max(1);
    // The bursts that begin in the window, what was caught up, and the rest of one begun before.
    let bursts = nanos(window) / interval + 1 + catch_up(interval, pacing.catch_up) + 1;
    let burst_bytes = u64::from(pacing.burst.packets.max(1)) * u64::from(packet_bytes);
    bursts.saturating_mul(burst_bytes)
}

/// Most bursts that may be due at once.
fn catch_up(interval: u64, most: Duration) -> u64 {
    if is_long(interval) {
        return 1;
    }
    (nanos(most.max(CATCH_UP_TIME)) / interval.max(1)).max(CATCH_UP_BURSTS)
}

fn is_long(interval: u64) -> bool {
    interval >= nanos(LONG_INTERVAL)
}

fn clamp(packets: u64) -> u32 {
    u32::try_from(packets).unwrap_or(u32::MAX)
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
    fn bursts_start_an_interval_apart_however_late_they_leave() {
        let (mut pacer, p) = (Pacer::new(), pacing(8, 1000));
        assert_eq!((pacer.available(us(5), &p), pacer.next(us(5), &p)), (8, us(5)));
        pacer.consumed(us(5), 8, &p);
        assert_eq!((pacer.available(us(900), &p), pacer.next(us(900), &p)), (0, us(1005)));
        assert_eq!(pacer.available(us(1100), &p), 8);
        pacer.consumed(us(1100), 8, &p);
        assert_eq!(pacer.next(us(1100), &p), us(2005), "late once is not late for ever");
    }

    #[test]
    fn smaller_packets_make_no_room_in_a_burst_that_is_over() {
        let mut pacer = Pacer::new();
        pacer.consumed(us(0), 13, &pacing(13, 78_000));
        pacer.shrink(568, 224);
        let smaller = pacing(33, 78_000);
        assert_eq!(pacer.available(us(77_000), &smaller), 0);
        assert_eq!(pacer.available(us(78_000), &smaller), 33);
    }

    #[test]
    fn what_was_missed_is_made_up_for_but_not_without_bound() {
        let (mut pacer, p) = (Pacer::new(), pacing(8, 1000));
        pacer.consumed(us(0), 8, &p);
        assert_eq!(pacer.available(us(2100), &p), 16);
        assert_eq!(pacer.available(us(900_100), &p), 16);
        pacer.consumed(us(900_100), 10, &p);
        assert_eq!(pacer.available(us(900_100), &p), 6);
        pacer.consumed(us(900_100), 6, &p);
        assert_eq!(pacer.next(us(900_100), &p), us(901_000));
        let fast = pacing(64, 100);
        assert_eq!(pacer.available(us(950_000), &fast), 640, "a millisecond's worth");
    }

    #[test]
    fn a_host_that_stood_still_makes_up_for_as_much_as_it_may() {
        let mut p = pacing(8, 1000);
        p.catch_up = Duration::from_millis(20);
        let mut pacer = Pacer::new();
        pacer.consumed(us(0), 8, &p);
        assert_eq!(pacer.available(us(15_500), &p), 120);
        assert_eq!(pacer.available(us(90_000), &p), 160);
        pacer.forget(us(90_000), &p);
        assert_eq!(pacer.available(us(90_000), &p), 16, "it was not the host that held back");
    }

    #[test]
    fn what_was_made_up_for_is_known_and_forgiven_in_time() {
        let mut p = pacing(8, 1000);
        p.catch_up = Duration::from_millis(20);
        let mut pacer = Pacer::new();
        let late = |pacer: &Pacer, at, p: &Pacing| {
            pacer.lateness(us(at), p).map(|l| (l.due_at, l.made_up.as_micros() as u64))
        };
        pacer.consumed(us(0), 8, &p);
        assert_eq!(late(&pacer, 0, &p), Some((us(0), 0)));
        pacer.consumed(us(1000), 8, &p);
        pacer.consumed(us(3100), 16, &p);
        assert_eq!(late(&pacer, 3100, &p), Some((us(2000), 0)), "no later than timers always are");
        // It stood still from 3 ms on.
        pacer.consumed(us(18_000), 64, &p);
        assert_eq!(late(&pacer, 18_000, &p), Some((us(4000), 7000)));
        pacer.consumed(us(18_000), 56, &p);
        assert_eq!(late(&pacer, 18_000, &p), Some((us(12_000), 14_000)));
        // Within the next hundred it keeps to its pace.
        for millis in 19..=74 {
            pacer.consumed(us(millis * 1000), 8, &p);
        }
        assert_eq!(late(&pacer, 74_000, &p), Some((us(74_000), 7000)));
        p.catch_up = Duration::ZERO;
        assert_eq!(late(&pacer, 74_000, &p), None);
    }

    #[test]
    fn packets_without_data_are_lost() {
        let (mut pacer, p) = (Pacer::new(), pacing(8, 1000));
        pacer.consumed(us(0), 3, &p);
        assert_eq!(pacer.available(us(10), &p), 5, "data may come within the interval");
        assert_eq!(pacer.available(us(1000), &p), 8, "but not later");
    }

    #[test]
    fn a_higher_rate_holds_at_once() {
        let mut pacer = Pacer::new();
        pacer.consumed(us(0), 1, &pacing(1, 100_000));
        assert_eq!(pacer.next(us(10), &pacing(1, 100)), us(100));
    }

    #[test]
    fn a_shorter_interval_makes_no_two_bursts_due_at_once() {
        let (mut pacer, slow, fast) = (Pacer::new(), pacing(6, 3340), pacing(6, 1130));
        pacer.consumed(us(0), 6, &slow);
        assert_eq!(pacer.available(us(3000), &fast), 6);
        pacer.consumed(us(3000), 6, &fast);
        assert_eq!(pacer.next(us(3000), &fast), us(4130));
        assert_eq!(pacer.available(us(5300), &fast), 12, "missed while it held");
    }

    #[test]
    fn nothing_is_made_up_for_where_intervals_are_long() {
        let (mut pacer, p) = (Pacer::new(), pacing(6, 100_000));
        pacer.consumed(us(0), 6, &p);
        assert_eq!(pacer.available(us(199_000), &p), 6);
        pacer.consumed(us(199_000), 6, &p);
        assert_eq!(pacer.next(us(199_000), &p), us(200_000), "late, and none was missed");
        assert_eq!(pacer.available(us(490_000), &p), 6, "two were");
        pacer.consumed(us(490_000), 6, &p);
        assert_eq!(pacer.next(us(490_000), &p), us(590_000));
    }

    #[test]
    fn a_longer_train_is_the_next_one() {
        let (mut pacer, short, long) = (Pacer::new(), pacing(16, 50_000), pacing(96, 20_000));
        pacer.consumed(us(0), 16, &short);
        assert_eq!((pacer.available(us(10), &long), pacer.next(us(10), &long)), (0, us(20_000)));
        pacer.consumed(us(20_000), 40, &long);
        assert_eq!(pacer.available(us(20_100), &long), 56, "in as many sends as it takes");
    }

    #[test]
    fn a_burst_of_nothing_or_without_interval_does_no_harm() {
        let mut pacer = Pacer::new();
        let p = pacing(0, 0);
        for _ in 0..3 {
            assert_eq!(pacer.available(us(7), &p), 1);
            pacer.consumed(us(7), 1, &p);
        }
        assert_eq!(pacer.next(us(7), &p), us(7));
        let huge = pacing(u32::MAX, 1);
        pacer.consumed(us(8), u32::MAX, &huge);
        assert_eq!(pacer.available(Instant::NEVER, &huge), u32::MAX);
    }

    #[test]
    fn no_window_holds_more_than_the_allowance_and_the_rate_is_kept() {
        for (packets, micros) in [(8, 1000), (44, 443), (64, 65), (1, 5000)] {
            let p = pacing(packets, micros);
            let (mut pacer, mut sent, mut dice) =
                (Pacer::new(), Vec::new(), 88_172_645_463_325_252_u64);
            let mut now = us(0);
            while now < us(400_000) {
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                while pacer.available(now, &p) > 0 {
                    let n = pacer.available(now, &p).min(1 + (dice % 64) as u32);
                    pacer.consumed(now, n, &p);
                    sent.push((now, u64::from(n)));
                }
                let late = if dice % 50 == 0 { dice % 3000 } else { dice % 100 };
                now = pacer.next(now, &p) + Duration::from_micros(late);
            }
            for window in [0, 300, 1000, 20_000].map(Duration::from_micros) {
                let most = allowance_bytes(&p, 1, window);
                for (i, (start, _)) in sent.iter().enumerate() {
                    let within = sent[i..].iter().take_while(|(at, _)| at.since(*start) <= window);
                    assert!(within.map(|(_, n)| n).sum::<u64>() <= most, "{p:?} {window:?}");
                }
            }
            let total: u64 = sent.iter().map(|(_, n)| n).sum();
            let ideal = 400_000 / micros * u64::from(packets);
            assert!(total <= ideal + u64::from(packets), "{p:?} {total} {ideal}");
            assert!(total >= ideal * 88 / 100, "{p:?} {total} {ideal}");
        }
    }
}
