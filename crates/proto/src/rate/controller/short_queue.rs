//! The window of a sender that has the path for itself, or whose losses are excused: it keeps a
//! short queue (FAST TCP's law), and finds out whether a queue that stands is its own.

use std::time::Duration;

use super::rounds::Round;
use crate::time::Instant;

/// Once the round trip exceeds what this sender asks for, no more than this part of the window is
/// given before it is known whose queue that is.
const YIELD: f64 = 0.5;
/// Round trips after which that is known, and of which the largest excess is compared.
const VERDICT_ROUNDS: u32 = 5;
const LARGEST_ROUNDS: u32 = 3;
/// If so much of the excess is left then, it is not this sender's.
const LEFT: f64 = 0.5;

/// Growth in a round trip, as a share of the window, while nothing waits.
const MOST_GROWTH: f64 = 1.0 / 64.0;

/// A window that is being given up to a queue.
#[derive(Clone, Copy, Debug)]
struct Yielding {
    window: f64,
    largest: Duration,
    rounds: u32,
    /// Bytes a second that arrived at its beginning.
    rate: f64,
}

/// The state of the law.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ShortQueue {
    yielding: Option<Yielding>,
    /// Round trips in a row in which nothing waited.
    empty_rounds: u32,
}

/// If less than this part of the rate arrives although packets wait, others wait, or none does.
const BUSY: f64 = 0.9;
/// The rates of two round trips that lose a share p of n packets differ by chance by so many times
/// sqrt(p / n): 2.33 standard deviations of their difference.
const BY_CHANCE: f64 = 3.3;
/// For so long no short queue is kept after that, twice as long after each further time.
const PAUSE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(160));

/// For how long no short queue is kept, because round trips did not show whether one stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Suspension {
    pause: Duration,
    until: Option<Instant>,
}

impl Suspension {
    /// The window was given up, and nothing waited.
    pub(super) fn begin(&mut self, now: Instant) {
        self.pause = (self.pause * 2).clamp(PAUSE.0, PAUSE.1);
        self.until = Some(now + self.pause);
    }

    /// Whether it lasts.
    pub(super) fn lasts(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

/// What a round trip asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum QueueStep {
    /// This window, in packets.
    Window(f64),
    /// Half of the window was given and the queue did not fall: the path has another length, or the
    /// queue is others'. The window from before is this.
    NotMine(f64),
    /// What arrives falls with the window, so that nothing waits although the round trip is longer.
    /// The window from before is this.
    NoQueue(f64),
}

/// What the law needs of the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// Packets of this sender that may wait in the queue.
    pub(super) target: f64,
    /// The smallest round trip.
    pub(super) base: Duration,
    /// What the round trip exceeds the smallest one by where nothing waits.
    pub(super) chance: Duration,
    /// An excess of the round trip below which nothing waits, in all probability.
    pub(super) noise: Duration,
    /// An excess of the round trip from which on more waits than that.
    pub(super) much: Duration,
}

impl ShortQueue {
    /// Packets are so many times as large.
    pub(super) fn on_packets_resized(&mut self, times: f64) {
        if let Some(yielding) = &mut self.yielding {
            yielding.window /= times;
        }
    }

    /// The window after a round trip.
    pub(super) fn on_round(&mut self, window: f64, round: &Round, path: &Path) -> QueueStep {
        let (rtt, rate) = (round.min_rtt, round.rate);
        let excess = rtt.saturating_sub(path.base);
        if excess <= path.much {
            self.yielding = None;
        } else {
            let begun = Yielding { window, largest: excess, rounds: 0, rate };
            self.yielding.get_or_insert(begun).rounds += 1;
        }
        self.empty_rounds = if excess <= path.noise { self.empty_rounds + 1 } else { 0 };
        // An excess that is as likely chance is no queue.
        let empty = path.base + path.chance;
        let kept = empty.as_secs_f64() / rtt.max(empty).as_secs_f64().max(1e-9);
        // The longer nothing waits, the further the window is from where something would.
        let doubled =
            path.target * 0.5 * f64::from(1_u32 << self.empty_rounds.saturating_sub(1).min(16));
        let most = (window * MOST_GROWTH).max(path.target * 0.5);
        let growth = doubled.min(most);
        let next = 0.5 * window + 0.5 * window * kept + growth;
        let Some(yielding) = &mut self.yielding else { return QueueStep::Window(next) };
        if yielding.rounds <= LARGEST_ROUNDS {
            yielding.largest = yielding.largest.max(excess);
        }
        // A bottleneck before which packets of this sender wait carries as many as before.
        let chance = BY_CHANCE * (round.loss() / (round.packets as f64).max(1.0)).sqrt();
        if yielding.rounds > 1 && rate < (BUSY - chance) * yielding.rate {
            return QueueStep::NoQueue(yielding.window);
        }
        if yielding.rounds >= VERDICT_ROUNDS && excess > yielding.largest.mul_f64(LEFT) {
            return QueueStep::NotMine(yielding.window);
        }
        QueueStep::Window(next.max(YIELD * yielding.window))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(40);
    const PATH: Path = Path {
        target: 16.0,
        base: BASE,
        chance: Duration::ZERO,
        noise: Duration::from_micros(500),
        much: Duration::from_millis(9),
    };

    /// A round trip of this length, at the rate that the bottleneck carries.
    fn round(min_rtt: Duration) -> Round {
        Round { packets: 160, lost: 0, rate: 4000.0, min_rtt }
    }

    /// The round trip where a bottleneck carries 160 packets in 40 ms.
    fn rtt(window: f64) -> Duration {
        BASE.mul_f64((window / 160.0).max(1.0))
    }

    #[test]
    fn alone_it_settles_where_its_target_waits() {
        let (mut law, mut window) = (ShortQueue::default(), 40.0);
        for _ in 0..60 {
            match law.on_round(window, &round(rtt(window)), &PATH) {
                QueueStep::Window(next) => window = next,
                _ => panic!("the queue is its own"),
            }
        }
        assert!((window - 176.0).abs() < 1.0, "{window}");
    }

    #[test]
    fn its_own_overshoot_is_its_own() {
        let (mut law, mut window) = (ShortQueue::default(), 300.0);
        for _ in 0..60 {
            match law.on_round(window, &round(rtt(window)), &PATH) {
                QueueStep::Window(next) => window = next,
                _ => panic!("the queue is its own"),
            }
        }
        assert!((window - 176.0).abs() < 2.0, "{window}");
    }

    #[test]
    fn what_arrives_falls_with_the_window_where_nothing_waits() {
        let mut law = ShortQueue::default();
        let at = |rate| Round { rate, ..round(BASE * 2) };
        assert!(matches!(law.on_round(170.0, &at(4000.0), &PATH), QueueStep::Window(_)));
        assert!(matches!(law.on_round(150.0, &at(3800.0), &PATH), QueueStep::Window(_)));
        assert_eq!(law.on_round(130.0, &at(3400.0), &PATH), QueueStep::NoQueue(170.0));
    }

    #[test]
    fn each_suspension_is_twice_as_long_as_the_one_before() {
        let (mut suspension, now) = (Suspension::default(), Instant::EPOCH);
        suspension.begin(now);
        assert!(suspension.lasts(now) && !suspension.lasts(now + PAUSE.0));
        (0..9).for_each(|_| suspension.begin(now));
        assert!(!suspension.lasts(now + PAUSE.1));
        assert!(suspension.lasts(now + PAUSE.1.mul_f64(0.99)));
    }

    #[test]
    fn a_longer_path_takes_half_of_the_window_at_most_and_is_found_out() {
        let (mut law, mut window) = (ShortQueue::default(), 170.0);
        for _ in 0..VERDICT_ROUNDS - 1 {
            match law.on_round(window, &round(BASE * 5), &PATH) {
                QueueStep::Window(next) => window = next,
                _ => panic!("too soon"),
            }
            assert!(window >= 85.0, "{window}");
        }
        assert_eq!(law.on_round(window, &round(BASE * 5), &PATH), QueueStep::NotMine(170.0));
    }
}
