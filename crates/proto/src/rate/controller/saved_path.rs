//! What an earlier connection found of the path, and what this one finds (Careful Resume,
//! RFC 9959).

use std::time::Duration;

use crate::pmtud::ETHERNET_BYTES;
use crate::stats::{Learned, Remembered};
use crate::units::Rate;

/// Half of a saved rate is tried for so long, and a quarter for so long.
const HALF_FOR: Duration = Duration::from_secs(3600);
const QUARTER_FOR: Duration = Duration::from_secs(24 * 3600);
/// A path is worth saving that carries more packets of an Ethernet's size in a round trip.
const LEAST_SAVED: f64 = 128.0;
/// What was measured in so many round trips with a full window is believed.
const LEAST_ROUNDS: u32 = 4;

/// The saved rate of a path, and the one to save.
#[derive(Debug, Default)]
pub(super) struct SavedPath {
    /// Not tried yet.
    known: Option<Remembered>,
    /// It was tried, and was too much.
    failed: bool,
    /// Round trips with a full window, outside a start.
    rounds: u32,
}

impl SavedPath {
    /// What an earlier connection found.
    pub(super) fn recall(&mut self, known: Remembered) {
        self.known = Some(known);
    }

    /// The rate to begin with on a path whose round trip is `rtt`: a part of the saved one, if that
    /// is of this path. It is asked for once.
    pub(super) fn take_rate(&mut self, rtt: Duration) -> Option<Rate> {
        let known = self.known.take()?;
        let part = match known.age {
            age if age <= HALF_FOR => 2,
            age if age <= QUARTER_FOR => 4,
            _ => return None,
        };
        let same = rtt * 5 >= known.min_rtt * 4 && rtt * 4 <= known.min_rtt * 5;
        same.then(|| known.rate.scaled(1, part))
    }

    /// The path may be another one.
    pub(super) fn on_interruption(&mut self) {
        self.known = None;
    }

    /// What was saved was too much.
    pub(super) fn on_retreat(&mut self) {
        self.failed = true;
    }

    /// A round trip ended in which the window was full, outside a start.
    pub(super) fn on_full_round(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
    }

    /// What is worth saving of a path that carried `rate` bytes a second in packets of so many
    /// bytes.
    pub(super) fn learned(&self, rate: f64, min_rtt: Option<Duration>, packet: u32) -> Learned {
        match min_rtt.filter(|_| self.rounds >= LEAST_ROUNDS) {
            Some(min_rtt) => {
                let rate = Rate::from_bytes_per_second(rate as u64);
                let packet = packet.min(ETHERNET_BYTES);
                let packets = rate.bytes_in(min_rtt) as f64 / f64::from(packet);
                if packets > LEAST_SAVED {
                    Learned::Path(Remembered { rate, min_rtt, age: Duration::ZERO })
                } else {
                    Learned::Wrong
                }
            }
            None if self.failed => Learned::Wrong,
            None => Learned::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn known(age: u64) -> Remembered {
        let rate = Rate::from_bytes_per_second(1_000_000);
        Remembered { rate, min_rtt: RTT, age: Duration::from_secs(age) }
    }

    #[test]
    fn a_part_is_tried_once_where_the_round_trip_is_the_same() {
        for (age, millis, part) in [
            (0, 100, Some(2)),
            (3600, 81, Some(2)),
            (3601, 124, Some(4)),
            (24 * 3600 + 1, 100, None),
            (0, 79, None),
            (0, 126, None),
        ] {
            let mut saved = SavedPath::default();
            saved.recall(known(age));
            let expected = part.map(|part| Rate::from_bytes_per_second(1_000_000 / part));
            let rtt = Duration::from_millis(millis);
            assert_eq!(saved.take_rate(rtt), expected, "{age} s, {millis} ms");
            assert_eq!(saved.take_rate(rtt), None);
        }
    }

    #[test]
    fn a_retreat_is_learned_until_a_rate_is() {
        let mut saved = SavedPath::default();
        assert_eq!(saved.learned(1e7, Some(RTT), 1260), Learned::Nothing);
        saved.on_retreat();
        assert_eq!(saved.learned(1e7, Some(RTT), 1260), Learned::Wrong);
        (0..LEAST_ROUNDS).for_each(|_| saved.on_full_round());
        let rate = Rate::from_bytes_per_second(10_000_000);
        let learned = Learned::Path(Remembered { rate, min_rtt: RTT, age: Duration::ZERO });
        assert_eq!(saved.learned(1e7, Some(RTT), 1260), learned);
        assert_eq!(saved.learned(1e6, Some(RTT), 1260), Learned::Wrong, "too little");
    }
}
