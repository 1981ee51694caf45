//! How much later packets come at times without a queue: by a radio that repeats what it lost, or
//! by a way that is shared with what this sender never sees.
//!
//! Both a queue and a way that wanders make a round trip longer. But a queue runs off no faster
//! than the path carries more than is sent into it: what has fallen sooner was none. And a queue of
//! others that stays, as a TCP's does, does not fall to next to nothing again and again.
//! It must never take one fall, or a small one, for more than chance: others do probe and yield.

use std::time::Duration;

use super::Stretch;
use super::train::is_long;
use crate::time::{Instant, nanos};
use crate::units::Rate;

/// Where a round trip is shorter than this, a host's lateness is as much.
const LEAST_RTT: Duration = Duration::from_millis(5);
/// It fell when no more is left of what was longest than one part in so many.
const FALLEN: u64 = 4;
/// So much more than was seen may come: what falls while little is sent may be a queue in part, and
/// is not counted, and the longest is rarely seen as a whole.
const BEYOND: u32 = 2;
/// Less than this part of the smallest round trip is what others make who probe and yield.
const MATTERS: u32 = 2;
/// Never more than this, of one fall.
const MOST: Duration = Duration::from_millis(200);
/// It is forgotten in this time, and so many smallest round trips; it takes so many times as long
/// while the round trip is not short, for then it may be at work, and does not show.
const LASTS: Duration = Duration::from_secs(4);
const LASTS_TRIPS: u32 = 16;
const AT_WORK: u64 = 4;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wander {
    /// What there may still be of the longest queue, if it was one, in nanoseconds.
    left: u64,
    /// The most that fell too soon, in nanoseconds: once, and twice.
    once: u64,
    twice: u64,
    updated: Instant,
}

impl Wander {
    /// What lay between the packet of the report before and that of this one, whose round trip is
    /// `late` longer than the smallest, on a path that carries so much.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        stretch: &Stretch,
        carries: Rate,
        (min, late): (Duration, Duration),
    ) {
        self.forget(now, min);
        let run_off = stretch.sending.saturating_sub(carries.time_for(stretch.sent_bytes));
        self.left = self.left.saturating_sub(nanos(run_off)).max(nanos(late));
        let little = nanos(min) / 16;
        if nanos(late) > little.max(self.left / FALLEN) {
            return;
        }
        let fell = (self.left - nanos(late)).min(nanos(MOST));
        if fell > little {
            self.twice = self.twice.max(fell.min(self.once));
            self.once = self.once.max(fell);
        }
        self.left = nanos(late);
    }

    /// The same where it tells nothing but that a long queue is gone, however it went. Of a short
    /// one that comes and goes others make what they like.
    pub(super) fn overlook(&mut self, (min, late): (Duration, Duration)) {
        if late <= min / 16 && self.left > nanos(min / MATTERS) {
            self.left = 0;
        }
    }

    fn forget(&mut self, now: Instant, min: Duration) {
        let at_work = if self.left > self.twice / 2 { AT_WORK } else { 1 };
        let lasts = nanos(LASTS.max(min * LASTS_TRIPS)).saturating_mul(at_work);
        let passed = nanos(now.since(self.updated)).min(lasts);
        self.updated = now;
        for time in [&mut self.once, &mut self.twice] {
            *time -= (u128::from(*time) * u128::from(passed) / u128::from(lasts.max(1))) as u64;
        }
    }

    /// By how much a round trip may be longer than `min`, the smallest, without a queue; zero where
    /// that is too little to tell.
    pub(super) fn most(&self, min: Duration) -> Duration {
        let most = Duration::from_nanos(self.twice) * BEYOND;
        let known = min >= LEAST_RTT && !is_long(min) && most > min / MATTERS;
        if known { most } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_millis(40);

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// A megabyte a second, and what is sent of it, in hundredths.
    struct Line {
        wander: Wander,
        now: Instant,
        sends: u64,
    }

    impl Line {
        fn new(sends: u64) -> Self {
            Self { wander: Wander::default(), now: Instant::EPOCH, sends }
        }

        /// A report each 10 ms, of round trips that are so much longer, in milliseconds.
        fn hear(&mut self, late: impl IntoIterator<Item = u64>) -> Duration {
            let carries = Rate::from_bytes_per_second(1_000_000);
            for late in late {
                self.now += ms(10);
                let sent_bytes = 100 * self.sends;
                let stretch = Stretch { sent_bytes, sending: ms(10), ..Stretch::default() };
                self.wander.hear(self.now, &stretch, carries, (MIN, ms(late)));
            }
            self.wander.most(MIN)
        }
    }

    #[test]
    fn what_falls_sooner_than_a_queue_can_twice_was_none() {
        let mut line = Line::new(100);
        assert_eq!(line.hear([0, 10, 20, 30, 20, 10, 0]), ms(0), "once is chance");
        let most = line.hear([10, 20, 30, 20, 10, 0]);
        assert!((ms(58)..=ms(60)).contains(&most), "{most:?}");
        // It does not show while the round trip stays long, and is forgotten when nothing wanders.
        let at_work = line.hear([40; 200]);
        assert!((ms(50)..most).contains(&at_work), "{at_work:?}");
        let mut calm = Line::new(100);
        calm.hear([0, 30, 0, 30, 0]);
        assert_eq!(calm.hear([0; 600]), ms(0));
    }

    #[test]
    fn what_runs_off_because_less_is_sent_was_a_queue() {
        let fall = || (0..=4).chain((0..4).rev()).map(|n| n * 10);
        let most = |sends| {
            let mut line = Line::new(sends);
            (0..4).map(|_| line.hear(fall())).last().expect("four")
        };
        assert_eq!(most(0), ms(0));
        assert!(most(90) > ms(60), "{:?}", most(90));
    }

    #[test]
    fn what_was_gone_when_nobody_looked_was_a_queue() {
        let most = |longest: u64, unseen| {
            let mut line = Line::new(100);
            for _ in 0..3 {
                line.hear((0..=longest).map(|n| n * 10));
                line.wander.overlook((MIN, ms(unseen)));
                line.hear([0]);
            }
            line.wander.most(MIN)
        };
        assert_eq!(most(8, 0), ms(0));
        assert!(most(8, 40) > ms(100), "{:?}", most(8, 40));
        assert!(most(2, 0) > ms(20), "{:?}", most(2, 0));
    }

    #[test]
    fn what_stays_or_is_little_is_nothing_that_wanders() {
        let mut line = Line::new(100);
        // A TCP's queue goes to and fro, and never ends.
        assert_eq!(line.hear([20, 40, 60, 40, 20].into_iter().cycle().take(200)), ms(0));
        // Others who probe add a quarter of a round trip at most.
        let mut line = Line::new(100);
        assert_eq!(line.hear([0, 5, 10, 5, 0].into_iter().cycle().take(200)), ms(0));
        assert!(line.hear([0, 6, 12, 6, 0].into_iter().cycle().take(200)) > ms(20));
    }
}
