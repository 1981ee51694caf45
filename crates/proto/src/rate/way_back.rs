//! What only the way back adds to a round trip.
//!
//! A queue on the way there makes both the round trip and the one-way time longer; one on the way
//! back, or a host that reads its reports late, the round trip alone; clocks that run apart, the
//! one-way time alone. So the smaller excess is the queue on the way there.

use std::time::Duration;

/// What the way back adds is left out from here on, and from this part of the smallest round trip
/// on: less may be one channel for both ways.
const LEAST: Duration = Duration::from_millis(2);
const LEAST_PART: u32 = 16;
/// Reports that count as the newest ones: half a round trip of them.
const RECENT: usize = 4;

/// Both ways of a path.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::rate) struct WayBack {
    /// The smallest one-way time, in microseconds, and the newest ones.
    shortest: Option<i64>,
    ways: [Option<i64>; RECENT],
    /// The most that a one-way time exceeded its round trip by: the way back was at its shortest.
    apart: Option<i64>,
    /// What the way back added to each of the newest round trips.
    added: [Duration; RECENT],
}

impl WayBack {
    /// Takes in a round trip and the one-way time of its packet, in microseconds, where that is
    /// known; `least` is the smallest round trip before. Answers the round trip without what the
    /// way back added.
    pub(in crate::rate) fn on_rtt(
        &mut self,
        rtt: Duration,
        least: Option<Duration>,
        way: Option<i64>,
    ) -> Duration {
        let there = match (least, way) {
            (Some(least), Some(way)) => self.there(rtt, least, way),
            _ => rtt,
        };
        self.ways.rotate_left(1);
        self.added.rotate_left(1);
        (self.ways[RECENT - 1], self.added[RECENT - 1]) = (way, rtt.saturating_sub(there));
        there
    }

    fn there(&mut self, rtt: Duration, least: Duration, way: i64) -> Duration {
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let shortest = self.shortest.map_or(way, |shortest| shortest.min(way));
        self.shortest = Some(shortest);
        let apart = way.saturating_sub(micros(rtt));
        let apart = self.apart.map_or(apart, |most| most.max(apart));
        self.apart = Some(apart);
        // A sender that came into a queue that stays has seen no one-way time without it, but round
        // trips that were too long by the queue alone.
        let shortest = shortest.min(apart.saturating_add(micros(least)));
        let there = least + Duration::from_micros(way.abs_diff(shortest));
        if rtt > there + LEAST.max(least / LEAST_PART) { there } else { rtt }
    }

    /// How much later than without a queue on the way back reports come, of the newest at most.
    pub(in crate::rate) fn most_added(&self) -> Duration {
        self.added.into_iter().max().unwrap_or_default()
    }

    /// The same of the newest at least.
    pub(in crate::rate) fn least_added(&self) -> Duration {
        self.added.into_iter().min().unwrap_or_default()
    }

    /// The smallest round trip is replaced: only the newest one-way times are of this path. A queue
    /// that is taken for the path shows again by the first round trip without it.
    pub(in crate::rate) fn on_new_path(&mut self) {
        self.shortest = self.ways.into_iter().flatten().min();
        self.apart = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    const LEAST_RTT: Option<Duration> = Some(Duration::from_millis(40));

    #[test]
    fn only_what_the_way_back_adds_is_left_out() {
        let mut way_back = WayBack::default();
        let mut of = |rtt, way| way_back.on_rtt(ms(rtt), LEAST_RTT, way);
        assert_eq!(of(40, Some(0)), ms(40));
        assert_eq!(of(60, Some(20_000)), ms(60), "a queue on the way there");
        assert_eq!(of(40, Some(900_000)), ms(40), "clocks that run apart");
        assert_eq!(of(60, Some(5000)), ms(45), "a queue on both ways");
        assert_eq!(of(41, Some(0)), ms(41), "too little to tell");
        assert_eq!(of(70, None), ms(70), "nothing is known");
        assert_eq!((way_back.most_added(), way_back.least_added()), (ms(15), ms(0)));
    }

    #[test]
    fn a_queue_that_was_there_from_the_beginning_is_on_the_way_there() {
        let mut way_back = WayBack::default();
        assert_eq!(way_back.on_rtt(ms(50), LEAST_RTT, Some(0)), ms(50));
        assert_eq!(way_back.on_rtt(ms(52), LEAST_RTT, Some(2000)), ms(52));
        assert_eq!(way_back.on_rtt(ms(70), LEAST_RTT, Some(0)), ms(50), "the rest is not");
    }

    #[test]
    fn a_path_that_is_longer_both_ways_adds_nothing_once_it_is_known() {
        let mut way_back = WayBack::default();
        way_back.on_rtt(ms(40), LEAST_RTT, Some(0));
        for _ in 0..RECENT {
            assert_eq!(way_back.on_rtt(ms(50), LEAST_RTT, Some(5000)), ms(45));
        }
        way_back.on_new_path();
        assert_eq!(way_back.on_rtt(ms(50), Some(ms(50)), Some(5000)), ms(50));
    }
}
