//! The queueing delay of the reverse path, which NULL-ACK reports so that the receiver sends fewer
//! control packets (`docs/protocol §6.3`).
//!
//! Inputs: the times of REPORTs and round trips. Outputs: the delay, and when to announce it.

use std::time::Duration;

use crate::time::{Instant, micros_u32};

/// Number of reports over which the least delay counts: a single one may be delayed by the hosts.
const RECENT: usize = 4;
/// A smaller delay is no queue, nor is less than this part of the smallest round trip.
const MIN_QUEUE: Duration = Duration::from_millis(4);
const MIN_QUEUE_PART: u32 = 8;
/// A step of the path's delay, and no queue: reports take longer from one to the next, then as long
/// up to this part of the step, and the forward path became longer too. A queue grows packet by
/// packet.
const STEP_PART: u32 = 8;
/// A longer step cannot be distinguished from the queue of a burst of HAVE (`docs/protocol
/// §8.7`).
const LONGEST_STEP: Duration = Duration::from_secs(1);
/// Least time between two steps.
const STEPS_APART: Duration = Duration::from_secs(10);
/// Repeated after this many round trips, since it is not acknowledged, and not sooner than this.
const REPEAT_ROUND_TRIPS: u32 = 8;
const REPEAT_INTERVAL: Duration = Duration::from_millis(100);

/// A possible step of the path's delay.
#[derive(Clone, Copy, Debug)]
struct DelayStep {
    at: Instant,
    by: Duration,
    /// Reports since with a round trip longer by more than that.
    both: usize,
}

/// The reverse path's queue, from the times of reports.
#[derive(Debug, Default)]
pub(super) struct ReversePathQueue {
    /// The smallest round trip.
    least: Option<Duration>,
    /// Arrival by the local clock less creation by the receiver's clock, in wrapping microseconds,
    /// of the first report.
    first: Option<u32>,
    /// The least such difference since, relative to the first.
    shortest: i32,
    recent: [Duration; RECENT],
    next: usize,
    /// Excess of the newest report over the least.
    newest: Duration,
    /// A possible step of the delay, and when the last one was.
    step: Option<DelayStep>,
    stepped: Option<Instant>,
    /// The last announced queue, and when.
    announced: Duration,
    at: Instant,
    /// The queue that the receiver still spaces its packets for. It follows by a quarter with each
    /// NULL-ACK, so a single one without a queue is not enough.
    followed: Duration,
}

impl ReversePathQueue {
    /// A report made at `made_micros` came, for a packet whose round trip took `rtt`.
    ///
    /// A queue on the reverse path lengthens both this time and the round trip; clock drift only
    /// the first, a queue on the forward path only the second. So the smaller excess is the queue.
    pub(super) fn sample(&mut self, now: Instant, made_micros: u32, rtt: Duration) {
        let took = ((now.as_nanos() / 1000) as u32).wrapping_sub(made_micros);
        let took = took.wrapping_sub(*self.first.get_or_insert(took)) as i32;
        self.shortest = self.shortest.min(took);
        let least = self.least.map_or(rtt, |least| least.min(rtt));
        self.least = Some(least);
        let excess = Duration::from_micros(u64::from(took.abs_diff(self.shortest)));
        self.recent[self.next % RECENT] = excess.min(rtt - least);
        self.next += 1;
        let before = std::mem::replace(&mut self.newest, excess);
        if self.has_stepped(now, before, rtt - least) {
            (self.least, self.shortest) = (Some(rtt), took);
            (self.recent, self.newest) = ([Duration::ZERO; RECENT], Duration::ZERO);
            (self.step, self.stepped) = (None, Some(now));
        }
    }

    /// Whether the path has become longer. The newest report took longer than the least, the one
    /// `before` did, and so did its packet's round trip (`longer`).
    fn has_stepped(&mut self, now: Instant, before: Duration, longer: Duration) -> bool {
        let often = self.stepped.is_some_and(|at| now.since(at) < STEPS_APART);
        let excess = self.newest;
        match &mut self.step {
            None => {
                let steep = before <= excess / STEP_PART && excess >= self.matters();
                let may = steep && !often && excess <= LONGEST_STEP;
                self.step = may.then_some(DelayStep { at: now, by: excess, both: 0 });
                false
            }
            Some(step) => {
                let steady = excess.abs_diff(step.by) <= step.by / STEP_PART;
                step.both += usize::from(longer >= step.by * 3 / 2);
                let stepped = steady && step.both >= RECENT;
                // Until then a packet that is reported may have been sent before.
                let late = step.by * 2 + self.least.unwrap_or_default();
                let over = !steady || now.since(step.at) > late;
                self.step = self.step.take_if(|_| !over);
                stepped
            }
        }
    }

    fn matters(&self) -> Duration {
        MIN_QUEUE.max(self.least.unwrap_or_default() / MIN_QUEUE_PART)
    }

    /// The queueing delay; zero if negligible.
    fn queue(&self) -> Duration {
        let queue = self.recent.into_iter().min().unwrap_or_default();
        if queue < self.matters() || self.step.is_some() { Duration::ZERO } else { queue }
    }

    /// When the queue is to be announced.
    pub(super) fn due(&self) -> Option<Instant> {
        let (queue, announced) = (self.queue(), self.announced);
        let again = REPEAT_INTERVAL.max(self.least.unwrap_or_default() * REPEAT_ROUND_TRIPS);
        if queue.abs_diff(announced) > announced / 4 {
            // The effect of the last announcement shows a round trip later.
            return Some(self.at + self.least.unwrap_or_default() / 2 + announced / 2);
        }
        (self.followed >= MIN_QUEUE).then(|| self.at + again)
    }

    /// Announces the queue in NULL-ACK, in milliseconds.
    pub(super) fn announce(&mut self, now: Instant) -> u16 {
        (self.announced, self.at) = (self.queue(), now);
        self.followed = self.announced.max(self.followed * 3 / 4);
        u16::try_from(micros_u32(self.announced).div_ceil(1000)).unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    /// One report every 10 ms, each with its round trip and its own delay in ms. Returns the
    /// announced queue.
    fn announced(way_back: &mut ReversePathQueue, from: u64, samples: &[(u64, u64)]) -> u16 {
        for (n, (rtt, took)) in (0..).zip(samples) {
            let made = from + n * 10;
            let rtt = Duration::from_millis(*rtt);
            way_back.sample(ms(made + took), 7_000_000 + (made * 1000) as u32, rtt);
        }
        way_back.announce(ms(from + 100))
    }

    #[test]
    fn only_a_lasting_delay_of_the_reverse_path_counts_as_queue() {
        let mut way = ReversePathQueue::default();
        assert_eq!(announced(&mut way, 0, &[(40, 20); 4]), 0);
        assert_eq!(announced(&mut way, 100, &[(90, 20); 4]), 0, "a queue on the way there");
        assert_eq!(announced(&mut way, 200, &[(40, 90); 4]), 0, "clocks that run apart");
        assert_eq!(announced(&mut way, 300, &[(140, 120), (140, 20), (140, 120), (140, 120)]), 0);
        assert_eq!(announced(&mut way, 400, &[(140, 110), (120, 90), (150, 110), (140, 110)]), 70);
        assert_eq!(announced(&mut way, 500, &[(43, 23); 4]), 0, "too little to speak of");
    }

    /// 10 ms became 500, half of it on the reverse path. Packets that were sent before are reported
    /// first.
    #[test]
    fn a_step_of_the_delay_is_not_a_queue() {
        let mut way = ReversePathQueue::default();
        assert_eq!(announced(&mut way, 0, &[(10, 5); 4]), 0);
        assert_eq!(announced(&mut way, 100, &[(255, 250), (256, 250), (257, 251), (500, 250)]), 0);
        assert_eq!(announced(&mut way, 200, &[(500, 250); 4]), 0);
        let queue = [(600, 350), (660, 410), (690, 440), (700, 450), (700, 450)];
        assert_eq!(announced(&mut way, 1000, &queue), 160);
        // The shorter delay counts at once.
        assert_eq!(announced(&mut way, 20_000, &[(10, 5); 4]), 0);
        let growing = [(30, 25), (80, 75), (100, 95), (120, 115), (120, 115)];
        assert_eq!(announced(&mut way, 20_100, &growing), 70);
    }

    /// A burst of control packets lengthens the reverse path alone, however steep the step.
    #[test]
    fn a_sudden_queue_is_announced_a_little_later() {
        let mut way = ReversePathQueue::default();
        assert_eq!(announced(&mut way, 0, &[(40, 20); 4]), 0);
        assert_eq!(announced(&mut way, 100, &[(240, 220); 4]), 0, "it may be a step");
        assert_eq!(announced(&mut way, 600, &[(240, 220); 4]), 200, "it is none");
        let mut way = ReversePathQueue::default();
        assert_eq!(announced(&mut way, 0, &[(40, 20); 4]), 0);
        assert_eq!(announced(&mut way, 100, &[(24_040, 24_020); 4]), 24_000);
    }

    #[test]
    fn changes_are_announced_at_once_and_repeated_at_intervals() {
        let mut way = ReversePathQueue::default();
        assert_eq!(way.due(), None);
        announced(&mut way, 0, &[(40, 20); 4]);
        assert_eq!(way.due(), None);
        announced(&mut way, 100, &[(48, 28), (120, 100), (120, 100), (120, 100), (120, 100)]);
        assert_eq!(way.due(), Some(ms(200 + 320)));
        way.sample(ms(300), 7_000_000 + 280_000, Duration::from_millis(40));
        assert_eq!(way.due(), Some(ms(200 + 20 + 40)), "it has gone");
    }

    #[test]
    fn the_end_of_a_queue_is_announced_until_the_receiver_has_followed() {
        let mut way = ReversePathQueue::default();
        announced(&mut way, 0, &[(40, 20); 4]);
        assert_eq!(announced(&mut way, 100, &[(24_040, 24_020); 4]), 24_000);
        way.sample(ms(30_000), 7_000_000 + 29_980_000, Duration::from_millis(40));
        let (mut narrow, mut announcements) = (Duration::from_secs(6), 0);
        while let Some(at) = way.due() {
            assert_eq!(way.announce(at), 0);
            narrow = narrow * 3 / 4;
            announcements += 1;
            assert!(announcements < 40, "and no longer");
        }
        assert!(narrow < Duration::from_millis(1), "{narrow:?}");
    }
}
