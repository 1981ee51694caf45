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
/// Reports of which the latest counts.
const RECENT: usize = 4;

/// Both ways of a path.
#[derive(Debug, Default)]
pub(super) struct WayBack {
    /// The smallest round trip.
    least: Option<Duration>,
    /// The smallest one-way time, in microseconds.
    shortest: Option<i64>,
    /// The most that a one-way time exceeded its round trip by: the way back was at its shortest.
    apart: Option<i64>,
    /// What the way back added to each of the last round trips.
    added: [Duration; RECENT],
}

impl WayBack {
    /// Takes in a round trip and the one-way time of its packet, in microseconds, where that is
    /// known. Answers the round trip without what the way back added.
    pub(super) fn on_rtt(&mut self, rtt: Duration, way: Option<i64>) -> Duration {
        let least = self.least.map_or(rtt, |least| least.min(rtt));
        self.least = Some(least);
        let there = way.map_or(rtt, |way| self.there(rtt, least, way));
        self.added.rotate_left(1);
        self.added[RECENT - 1] = rtt.saturating_sub(there);
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

    /// How much later than without a queue on the way back reports come, of the last four at most.
    pub(super) fn added(&self) -> Duration {
        self.added.iter().max().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn only_what_the_way_back_adds_is_left_out() {
        let mut way_back = WayBack::default();
        assert_eq!(way_back.on_rtt(ms(40), Some(0)), ms(40));
        assert_eq!(way_back.on_rtt(ms(60), Some(20_000)), ms(60), "a queue on the way there");
        assert_eq!(way_back.on_rtt(ms(40), Some(900_000)), ms(40), "clocks that run apart");
        assert_eq!(way_back.added(), Duration::ZERO);
        assert_eq!(way_back.on_rtt(ms(60), Some(5000)), ms(45), "a queue on both ways");
        assert_eq!(way_back.added(), ms(15));
        assert_eq!(way_back.on_rtt(ms(41), Some(0)), ms(41), "too little to tell");
        assert_eq!(way_back.on_rtt(ms(70), None), ms(70), "nothing is known");
    }

    #[test]
    fn a_queue_that_was_there_from_the_beginning_is_on_the_way_there() {
        let mut way_back = WayBack::default();
        way_back.on_rtt(ms(40), None);
        assert_eq!(way_back.on_rtt(ms(50), Some(0)), ms(50));
        assert_eq!(way_back.on_rtt(ms(52), Some(2000)), ms(52));
        assert_eq!(way_back.on_rtt(ms(70), Some(0)), ms(50), "the rest is not");
    }
}
