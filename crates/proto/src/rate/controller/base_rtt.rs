//! The round trip without a queue, and how well it is known.
//!
//! The smallest round trip so far is *confirmed* when it was seen before and after a queue. A
//! sender that comes into a queue that others keep full never sees one below it, so its smallest
//! round trip stays unconfirmed.

use std::time::Duration;

use crate::time::Instant;

/// A confirmation lasts so long, and so many round trips, after the smallest round trip was seen.
const CONFIRMED_FOR: Duration = Duration::from_secs(10);
const CONFIRMED_ROUNDS: u32 = 16;
/// The range of round trips is that of one to two spans of this length, and of so many round trips.
const RANGE_SPAN: Duration = Duration::from_secs(15);
const RANGE_ROUNDS: u32 = 64;
/// Noise of the hosts: at least this, and at most this part of a round trip.
const LEAST_NOISE: Duration = Duration::from_micros(250);
const MOST_NOISE: u32 = 16;
/// A change by this part of the smallest round trip is noise in any case.
const GRAIN: u32 = 64;
/// Packets over which the mean excess is averaged.
const MEAN_PACKETS: f64 = 128.0;
/// Reports of a round trip and a half: a receiver sends eight in one (`docs/protocol §6.3`), and
/// finds a packet missing a quarter of one after it was due.
const REPORTS: usize = 12;
/// The mean excess of round trips that vary by chance is up to so many times their mean step: 1.5
/// times if each is any in a range, 1 / (1 - p) times if a share p of them comes late.
const CHANCE_TIMES: u32 = 2;
/// Reports over which the noise is averaged.
const NOISE_REPORTS: u32 = 32;
/// Rounds over which their differences are averaged.
const WANDER_ROUNDS: u32 = 32;

/// What is known of the round trip without a queue.
#[derive(Debug, Default)]
pub(super) struct BaseRtt {
    least: Option<Duration>,
    /// The last four round trips. One of four is hardly ever late by the host alone.
    last: [Duration; 4],
    /// The smallest of four at each of the last reports, of about a round trip.
    lows: [Duration; REPORTS],
    /// Mean difference of one round trip to the next, without what a packet waits for its own
    /// sender's.
    jitter: Duration,
    /// The newest round trip without that.
    others_before: Option<Duration>,
    /// Mean difference of the smallest round trip of one round to that of the next.
    wander: Duration,
    /// The smallest of the round before.
    round_before: Option<Duration>,
    /// Mean excess over the smallest one, in seconds.
    mean_excess: f64,
    /// A queue was seen since the smallest round trip was measured.
    rose: bool,
    confirmed_at: Option<Instant>,
    /// The largest of the smallest-of-four in this span and in the one before, and the span's end.
    range: [Duration; 2],
    span_ends: Option<Instant>,
    /// The largest smallest-of-four since the smallest round trip was replaced.
    highest: Duration,
}

impl BaseRtt {
    /// A path whose handshake measured `rtt`.
    pub(super) fn new(rtt: Option<Duration>) -> Self {
        Self { least: rtt, ..Self::default() }
    }

    /// Takes in a round trip, reported with `packets` newly arrived. Its packet waited for `own`
    /// behind those that left together with it.
    pub(super) fn on_rtt(&mut self, now: Instant, (rtt, own): (Duration, Duration), packets: f64) {
        let others = rtt.saturating_sub(own);
        let before = self.last[3];
        if let Some(others_before) = self.others_before.replace(others) {
            let step = others.abs_diff(others_before);
            self.jitter = (self.jitter * (NOISE_REPORTS - 1) + step) / NOISE_REPORTS;
        }
        self.last = [self.last[1], self.last[2], before, rtt];
        let least = self.least.map_or(rtt, |least| least.min(rtt));
        self.least = Some(least);
        let excess = rtt.saturating_sub(least).as_secs_f64();
        self.mean_excess += (excess - self.mean_excess) * (packets / MEAN_PACKETS).min(0.5);
        let low = self.low();
        self.lows.rotate_left(1);
        self.lows[REPORTS - 1] = low;
        if self.span_ends.is_none_or(|end| now >= end) {
            self.range = [low, self.range[0]];
            self.span_ends = Some(now + RANGE_SPAN.max(least * RANGE_ROUNDS));
        }
        self.range[0] = self.range[0].max(low);
        self.highest = self.highest.max(low);
        let above = low.saturating_sub(least);
        if above > self.noise() * 2 + least / GRAIN {
            self.rose = true;
        } else if self.rose && above <= self.noise() + least / GRAIN {
            self.confirmed_at = Some(now);
        }
    }

    /// A train of this sender waited so long: a queue, though one that no four reports show.
    pub(super) fn on_own_queue(&mut self, waited: Duration) {
        self.rose = true;
        self.highest = self.highest.max(self.least.unwrap_or_default() + waited);
    }

    /// Takes in the smallest round trip of one round.
    pub(super) fn on_round(&mut self, min_rtt: Duration) {
        if let Some(before) = self.round_before.replace(min_rtt) {
            let step = min_rtt.abs_diff(before);
            self.wander = (self.wander * (WANDER_ROUNDS - 1) + step) / WANDER_ROUNDS;
        }
    }

    /// The queue of a start is gone: what is found missing from now on did not meet it.
    pub(super) fn on_drained(&mut self) {
        self.lows = [self.low(); REPORTS];
    }

    /// The path has another length: this is its smallest round trip, not confirmed yet.
    pub(super) fn replace(&mut self, rtt: Duration) {
        self.least = Some(rtt);
        (self.rose, self.confirmed_at, self.mean_excess) = (false, None, 0.0);
        self.lows = [rtt; REPORTS];
        self.range = [rtt; 2];
        self.highest = rtt;
    }

    /// The smallest round trip, if one was measured.
    pub(super) fn least(&self) -> Option<Duration> {
        self.least
    }

    /// The smallest of the last four round trips; zero before there were any.
    pub(super) fn low(&self) -> Duration {
        self.last.iter().copied().filter(|rtt| !rtt.is_zero()).min().unwrap_or_default()
    }

    /// Whether a round trip of data was measured.
    pub(super) fn is_measured(&self) -> bool {
        !self.last[3].is_zero()
    }

    /// By how much the smallest of the last four exceeds the smallest of all.
    pub(super) fn excess(&self) -> Duration {
        self.low().saturating_sub(self.least.unwrap_or_default())
    }

    /// The largest of that in the last round trip and a half: what the packets met that are found
    /// missing now.
    pub(super) fn highest_excess(&self) -> Duration {
        let highest = self.lows.iter().max().copied().unwrap_or_default();
        highest.saturating_sub(self.least.unwrap_or_default())
    }

    /// Mean of that over about 128 packets, of every round trip.
    pub(super) fn mean_excess(&self) -> Duration {
        Duration::try_from_secs_f64(self.mean_excess).unwrap_or_default()
    }

    /// By how much the largest round trip of the last 15 to 30 s exceeded the smallest.
    pub(super) fn range(&self) -> Duration {
        self.range[0].max(self.range[1]).saturating_sub(self.least.unwrap_or_default())
    }

    /// The longest queue that was ever seen on this path. A sender that keeps queues short, or that
    /// losses keep slow, does not see it again.
    pub(super) fn longest_queue(&self) -> Duration {
        self.highest.saturating_sub(self.least.unwrap_or_default())
    }

    /// What the hosts alone make round trips differ by: 0.25 ms at least, a sixteenth of the
    /// smallest round trip at most.
    pub(super) fn noise(&self) -> Duration {
        let most = self.least.unwrap_or_default() / MOST_NOISE;
        self.jitter.clamp(LEAST_NOISE, most.max(LEAST_NOISE))
    }

    /// Mean difference of one report's round trip to the next one's, however large.
    pub(super) fn jitter(&self) -> Duration {
        self.jitter
    }

    /// Mean difference of one report's round trip to the next one's, or of one round's to the next
    /// one's, however large. A queue grows and falls by less.
    pub(super) fn varies_by(&self) -> Duration {
        self.jitter.max(self.wander)
    }

    /// What a round trip may exceed the smallest one by, and be as small.
    pub(super) fn tolerance(&self) -> Duration {
        self.noise() + self.least.unwrap_or_default() / GRAIN
    }

    /// What round trips exceed the smallest one by although nothing waits.
    pub(super) fn by_chance(&self) -> Duration {
        self.tolerance().max(self.varies_by() * CHANCE_TIMES)
    }

    /// How long a confirmation holds.
    fn holds_for(&self) -> Duration {
        CONFIRMED_FOR + self.least.unwrap_or_default() * CONFIRMED_ROUNDS
    }

    /// Whether the smallest round trip was seen before and after a queue, and lately.
    pub(super) fn is_confirmed(&self, now: Instant) -> bool {
        self.confirmed_at.is_some_and(|at| now.since(at) <= self.holds_for())
    }

    /// Whether it is not, or will not be soon.
    pub(super) fn should_be_confirmed(&self, now: Instant) -> bool {
        self.confirmed_at.is_none_or(|at| now.since(at) > self.holds_for() * 3 / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports 5 ms apart.
    fn after(rtts: impl IntoIterator<Item = u64>) -> (BaseRtt, Instant) {
        let (mut base, mut now) = (BaseRtt::new(None), Instant::EPOCH);
        for rtt in rtts {
            now += Duration::from_millis(5);
            base.on_rtt(now, (Duration::from_millis(rtt), Duration::ZERO), 10.0);
        }
        (base, now)
    }

    #[test]
    fn it_is_confirmed_by_a_low_a_queue_and_a_low() {
        let low = || std::iter::repeat_n(40, 20);
        let queue = || std::iter::repeat_n(60, 20);
        let (base, now) = after(low().chain(queue()));
        assert!(!base.is_confirmed(now), "a queue is still there");
        let (base, now) = after(low().chain(queue()).chain(low()));
        assert!(base.is_confirmed(now));
        assert!(!base.is_confirmed(now + Duration::from_secs(11)), "it expires");
        let (base, now) = after(queue().chain(queue()));
        assert!(!base.is_confirmed(now), "a queue that never falls is no low");
    }

    #[test]
    fn another_path_begins_again() {
        let low = std::iter::repeat_n(40, 20);
        let (mut base, now) = after(low.clone().chain(std::iter::repeat_n(60, 20)).chain(low));
        base.replace(Duration::from_millis(90));
        assert!(!base.is_confirmed(now));
        assert_eq!((base.least(), base.range()), (Some(Duration::from_millis(90)), Duration::ZERO));
    }

    #[test]
    fn what_wanders_from_round_to_round_is_chance_and_own_packets_are_none() {
        let (mut base, now) = after(std::iter::repeat_n(40, 50));
        for n in 0..200 {
            base.on_round(Duration::from_millis(40 + n % 2 * 10));
        }
        assert!(base.by_chance() > Duration::from_millis(18), "{:?}", base.by_chance());
        assert_eq!(base.jitter(), Duration::ZERO);
        for n in 0..50 {
            let own = Duration::from_millis(n % 5);
            base.on_rtt(now, (Duration::from_millis(40) + own, own), 1.0);
        }
        assert_eq!(base.jitter(), Duration::ZERO);
    }

    #[test]
    fn the_longest_queue_is_remembered_and_the_range_is_not() {
        let (mut base, mut now) = after([40, 40, 40, 40, 60, 60, 60, 60]);
        for _ in 0..100 {
            now += Duration::from_secs(1);
            base.on_rtt(now, (Duration::from_millis(40), Duration::ZERO), 10.0);
        }
        let longest = Duration::from_millis(20);
        assert_eq!((base.longest_queue(), base.range()), (longest, Duration::ZERO));
    }

    #[test]
    fn noise_has_bounds() {
        let (base, _) = after((0..200).map(|n| 40 + n % 2 * 30));
        assert_eq!(base.noise(), Duration::from_micros(2500));
        assert_eq!(after(std::iter::repeat_n(40, 50)).0.noise(), LEAST_NOISE);
    }
}
