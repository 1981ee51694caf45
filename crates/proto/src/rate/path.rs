//! What the adaptive policy knows of the path at rest: its round trip time and its loss.

use std::time::Duration;

use crate::rate::Stretch;
use crate::rate::train::is_long;
use crate::rate::wander::Wander;
use crate::rate::way_back::WayBack;
use crate::time::{Instant, nanos};
use crate::units::Rate;

/// Loss, and every other fraction here, in parts of this.
pub(super) const MILLION: u64 = 1_000_000;
/// A smallest round trip not seen again for this long is no longer believed.
const MIN_LASTS: Duration = Duration::from_secs(10);
/// It must not be seen for so many of it either: to look for it takes two.
const MIN_LASTS_TRIPS: u32 = 16;
/// Samples of which the smallest is "the round trip now": half a round trip of reports.
const RECENT: usize = 4;
/// Lateness that is no queue: timers and interrupts of the hosts.
const HOST_SLACK: Duration = Duration::from_micros(250);
/// Lateness of a packet by a long path's own doings, at most.
const MOST_LATENESS: Duration = Duration::from_millis(40);
/// The same where a round trip takes a second or more, and each report is of its own packets: no
/// wait is known better (`rate/train.rs`), and what is taken for no queue stays in it.
const LONG_LATENESS: Duration = Duration::from_millis(25);
/// Most loss that is taken for the path's own.
const MAX_REST_LOSS: u64 = 600_000;

/// Round trips: the smallest, the newest, and the queue between them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrips {
    min: Option<Duration>,
    confirmed: Instant,
    recent: [Duration; RECENT],
    next: usize,
    way_back: WayBack,
    /// What is measured are OKs of whole buffers, which come later by chance.
    by_buffers: bool,
    wander: Wander,
}

impl RoundTrips {
    /// With the round trip time of the handshake, if it was measured.
    pub(super) fn new(initial: Option<Duration>) -> Self {
        let min = initial.filter(|rtt| !rtt.is_zero());
        Self { min, ..Self::default() }
    }

    /// The same where only OKs of whole buffers are measured, or reports.
    pub(super) fn by_buffers(self, by_buffers: bool) -> Self {
        Self { by_buffers, ..self }
    }

    /// One measurement; `burst` is the time between bursts, by which any may be late, and `own` how
    /// long it waited behind what this host had made up for. Answers it without that, and without
    /// what only the way back, or this host, had to do with.
    ///
    /// A queue on the way there makes both the round trip and the way there longer; one on the way
    /// back, or a host that reads its reports late, the first alone; clocks that run apart, the
    /// second alone. So the smaller excess is the queue.
    pub(super) fn sample(
        &mut self,
        now: Instant,
        whole: Duration,
        way: Option<i64>,
        (burst, own): (Duration, Duration),
    ) -> Duration {
        let rtt = self.way_back.on_rtt(whole, self.min, way);
        // No less than the smallest, which such a guess is not.
        let rtt = rtt.saturating_sub(own).max(rtt.min(self.min.unwrap_or(rtt)));
        let first = self.recent[0].is_zero();
        if first {
            self.recent = [rtt; RECENT];
        }
        self.recent[self.next % RECENT] = rtt;
        self.next = (self.next + 1) % RECENT;
        match self.min {
            Some(min) if !first || rtt > min => {
                let near = min + self.lateness() + slack(burst);
                if first || rtt <= near {
                    self.confirmed = now;
                }
                self.min = Some(min.min(rtt));
            }
            _ => {
                self.min = Some(rtt);
                self.confirmed = now;
            }
        }
        rtt
    }

    /// The same with what lay between its packet and the one before, on a path that carries so
    /// much: whether what wanders is a queue.
    pub(super) fn compare(
        &mut self,
        now: Instant,
        rtt: Duration,
        stretch: &Stretch,
        carries: Rate,
    ) {
        let min = self.min.unwrap_or(rtt);
        self.wander.hear(now, stretch, carries, (min, rtt.saturating_sub(min)));
    }

    /// The same where it tells nothing of what wanders, but that there is no queue.
    pub(super) fn overlook(&mut self, rtt: Duration) {
        let min = self.min.unwrap_or(rtt);
        self.wander.overlook((min, rtt.saturating_sub(min)));
    }

    /// By how much round trips come to be longer than the smallest although there is no queue,
    /// where that is much.
    pub(super) fn wander(&self) -> Duration {
        self.wander.most(self.min.unwrap_or_default())
    }

    /// How much later than a round trip without a queue on the way back reports come.
    pub(super) fn back(&self) -> Duration {
        self.way_back.most_added()
    }

    /// The same of those that came soonest after their packets.
    pub(super) fn least_back(&self) -> Duration {
        self.way_back.least_added()
    }

    /// The smallest; `None` before any was measured.
    pub(super) fn min(&self) -> Option<Duration> {
        self.min
    }

    /// The smallest of the last few, without their jitter.
    pub(super) fn now(&self) -> Duration {
        self.recent.iter().copied().min().unwrap_or_default()
    }

    /// By how much of the smallest the round trip is longer than can be explained without a
    /// queue, in millionths.
    pub(super) fn queue(&self, burst: Duration) -> u64 {
        self.beyond_min(self.now(), self.allowance(burst))
    }

    /// How much longer than the smallest a round trip may be although there is no queue.
    pub(super) fn allowance(&self, burst: Duration) -> Duration {
        self.lateness() + slack(burst)
    }

    /// The same by the last two alone: sooner, but more easily deceived.
    pub(super) fn newest_queue(&self, burst: Duration) -> u64 {
        let last = self.recent[(self.next + RECENT - 1) % RECENT];
        let last = last.min(self.recent[(self.next + RECENT - 2) % RECENT]);
        self.beyond_min(last, self.allowance(burst))
    }

    /// Whether the newest met no queue at all, as far as is known.
    pub(super) fn newest_is_least(&self, burst: Duration) -> bool {
        let min = self.min.unwrap_or_default();
        self.recent[(self.next + RECENT - 1) % RECENT] <= min + min / 64 + slack(burst)
    }

    fn beyond_min(&self, rtt: Duration, allowance: Duration) -> u64 {
        let min = self.min.unwrap_or_default();
        let over = rtt.saturating_sub(min + allowance);
        nanos(over).saturating_mul(1000) / (nanos(min) / 1000).max(1)
    }

    /// Of a round trip, what is no queue: what it was seen to wander, and a little in any case.
    fn lateness(&self) -> Duration {
        self.late_by_chance().max(self.wander())
    }

    /// A sixteenth, but not for ever.
    fn late_by_chance(&self) -> Duration {
        let min = self.min.unwrap_or_default();
        let most = if is_long(min) && !self.by_buffers { LONG_LATENESS } else { MOST_LATENESS };
        (min / 16).min(most)
    }

    /// Whether the smallest was not seen for so long that the path may have changed.
    pub(super) fn is_stale(&self, now: Instant) -> bool {
        self.min
            .is_some_and(|min| now.since(self.confirmed) >= MIN_LASTS.max(min * MIN_LASTS_TRIPS))
    }

    /// Takes `min` for the smallest, whatever it was before.
    pub(super) fn renew(&mut self, now: Instant, min: Duration) {
        self.min = Some(min);
        self.way_back.on_new_path();
        self.confirmed = now;
    }
}

fn slack(burst: Duration) -> Duration {
    HOST_SLACK.max(burst.min(Duration::from_millis(1)))
}

/// Loss that the path has at every rate, apart from loss that the rate causes.
///
/// A little is learned whenever there is no queue. Much at once is first taken for congestion; if
/// the share lost stays the same although the rate fell, it was not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RestLoss {
    share: u64,
    suspicion: Option<Suspicion>,
}

/// Excess loss without a queue, for which the rate was reduced.
#[derive(Clone, Copy, Debug)]
struct Suspicion {
    /// What was lost before that, in millionths, and the bandwidth then, in bytes per second.
    share: u64,
    bandwidth: u64,
    /// Packets reported since then, and those lost, in millionths.
    packets: u64,
    lost: u64,
}

/// What became of a suspicion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SuspicionOutcome {
    /// As much is lost as before: the reduction was for nothing.
    pub(super) unchanged: bool,
    /// The bandwidth before the reduction, in bytes per second.
    pub(super) bandwidth: u64,
}

/// Fewer packets tell less of what is lost at rest.
const FEW_PACKETS: u64 = 64;

impl RestLoss {
    /// The share of packets lost at rest, in millionths.
    pub(super) fn share(&self) -> u64 {
        self.share
    }

    /// `amount` of what arrived, scaled to what had to be sent for it to arrive.
    pub(super) fn scale_up(&self, amount: u64) -> u64 {
        let scaled = u128::from(amount) * u128::from(MILLION) / u128::from(MILLION - self.share);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// Whether `share` of `packets` lost is more than the path at rest explains: by a hundredth,
    /// and by four standard deviations.
    pub(super) fn is_excess(&self, share: u64, packets: u64) -> bool {
        let p = self.share.max(MILLION / 100);
        let deviation = (p * (MILLION - p) / packets.max(1)).isqrt();
        share > self.share + (MILLION / 100).max(4 * deviation)
    }

    /// A share of so many packets lost while nothing pointed to congestion. Where many are lost at
    /// rest, of few all may be, or none.
    pub(super) fn learn(&mut self, share: u64, packets: u64) {
        let share = share.min(MAX_REST_LOSS);
        let few = self.share > MILLION / 10 && packets < FEW_PACKETS;
        let part = if few { 8 * FEW_PACKETS / packets.max(1) } else { 8 };
        self.share = if share > self.share {
            self.share + (share - self.share) / part
        } else {
            self.share - (self.share - share) / part
        };
    }

    /// A share lost while the rate, and what arrived, still grew: the rate did not cause it.
    pub(super) fn set(&mut self, share: u64) {
        self.share = share.min(MAX_REST_LOSS);
        self.suspicion = None;
    }

    /// Excess loss without a queue, at such a bandwidth: remembered until the rate is reduced.
    pub(super) fn suspect(&mut self, share: u64, bandwidth: u64) {
        self.suspicion = Some(Suspicion { share, bandwidth, packets: 0, lost: 0 });
    }

    /// Whether a reduced rate is being tried.
    pub(super) fn is_suspected(&self) -> bool {
        self.suspicion.is_some()
    }

    /// The share of so many packets lost after the rate was reduced. Of few that is chance: `None`
    /// until there are enough of them.
    pub(super) fn judge(&mut self, share: u64, packets: u64) -> Option<SuspicionOutcome> {
        let suspicion = self.suspicion.as_mut()?;
        suspicion.packets += packets;
        suspicion.lost += packets * share;
        if suspicion.packets < FEW_PACKETS {
            return None;
        }
        let Suspicion { share: before, bandwidth, packets, lost } = *suspicion;
        self.suspicion = None;
        let share = lost / packets;
        let (after, before_excess) =
            (share.saturating_sub(self.share), before.saturating_sub(self.share));
        let unchanged = after.saturating_mul(3) >= before_excess.saturating_mul(2);
        if unchanged {
            self.set((before + share) / 2);
        }
        Some(SuspicionOutcome { unchanged, bandwidth })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    #[test]
    fn a_queue_is_what_lateness_cannot_explain() {
        let burst = Duration::from_millis(1);
        let mut trips = RoundTrips::new(Some(Duration::from_millis(100)));
        trips.sample(ms(0), Duration::from_millis(105), None, (burst, NONE));
        assert_eq!((trips.min(), trips.queue(burst)), (Some(Duration::from_millis(100)), 0));
        for n in 0..4 {
            trips.sample(ms(n), Duration::from_millis(157), None, (burst, NONE));
        }
        assert_eq!(trips.queue(burst), 497_500);
        trips.sample(ms(9), Duration::from_millis(100), None, (burst, NONE));
        assert_eq!(trips.queue(burst), 0);
    }

    #[test]
    fn lateness_of_a_long_path_is_bounded_the_more_so_where_each_packet_is_reported() {
        let burst = Duration::from_millis(1);
        let over = |mut trips: RoundTrips, min, late| {
            trips.sample(ms(0), Duration::from_millis(min), None, (burst, NONE));
            for n in 0..4 {
                trips.sample(ms(n), Duration::from_millis(min + late), None, (burst, NONE));
            }
            trips.queue(burst) > 0
        };
        let (reported, by_buffers) =
            (RoundTrips::default(), RoundTrips::default().by_buffers(true));
        assert!(over(reported, 1800, 27) && !over(reported, 1800, 26));
        assert!(over(by_buffers, 1800, 42) && !over(by_buffers, 1800, 41));
        assert!(over(reported, 900, 42) && !over(reported, 900, 41));
    }

    #[test]
    fn what_only_the_way_back_adds_is_no_queue() {
        let burst = Duration::from_millis(1);
        let of = |millis| Duration::from_millis(millis);
        let mut trips = RoundTrips::new(Some(of(40)));
        // The queue is there, and the receiver's clock runs away: the round trip says so.
        assert_eq!(trips.sample(ms(0), of(40), Some(0), (burst, NONE)), of(40));
        assert_eq!(trips.sample(ms(10), of(60), Some(20_000), (burst, NONE)), of(60));
        assert_eq!(trips.sample(ms(20), of(40), Some(900_000), (burst, NONE)), of(40));
        assert_eq!(trips.back(), Duration::ZERO);
        // It is on the way back, partly or as a whole.
        assert_eq!(trips.sample(ms(30), of(60), Some(5000), (burst, NONE)), of(45));
        assert_eq!(trips.back(), of(15));
        assert_eq!(trips.sample(ms(40), of(900), Some(-3000), (burst, NONE)), of(40));
        assert_eq!(
            trips.sample(ms(50), of(44), Some(0), (burst, NONE)),
            of(44),
            "too little to tell"
        );
        // A longer way there is a new one when that is settled.
        trips.renew(ms(60), of(43));
        assert_eq!(trips.sample(ms(65), of(43), Some(-3000), (burst, NONE)), of(43));
        assert_eq!(trips.sample(ms(70), of(60), Some(0), (burst, NONE)), of(46));
    }

    #[test]
    fn who_came_into_a_queue_does_not_take_it_for_one_on_the_way_back() {
        let burst = Duration::from_millis(1);
        let of = |millis| Duration::from_millis(millis);
        let mut trips = RoundTrips::new(Some(of(40)));
        assert_eq!(trips.sample(ms(0), of(50), Some(0), (burst, NONE)), of(50));
        assert_eq!(trips.sample(ms(10), of(52), Some(2000), (burst, NONE)), of(52));
        // What exceeds that is taken apart as before.
        assert_eq!(trips.sample(ms(20), of(70), Some(0), (burst, NONE)), of(50));
        assert_eq!(trips.back(), of(20));
        assert_eq!(trips.sample(ms(30), of(40), Some(-10_000), (burst, NONE)), of(40));
        assert_eq!(trips.sample(ms(40), of(60), Some(-10_000), (burst, NONE)), of(40));
    }

    #[test]
    fn what_this_host_made_up_for_is_no_queue() {
        let of = |millis| Duration::from_millis(millis);
        let mut trips = RoundTrips::new(Some(of(40)));
        assert_eq!(trips.sample(ms(0), of(60), None, (of(1), of(18))), of(42));
        assert_eq!(
            trips.sample(ms(10), of(60), None, (of(1), of(30))),
            of(40),
            "no less than that"
        );
        assert_eq!(trips.sample(ms(20), of(39), None, (of(1), of(30))), of(39));
        assert_eq!(trips.min(), Some(of(39)));
        for n in 0..4 {
            trips.sample(ms(30 + n), of(90), None, (of(1), of(20)));
        }
        assert!(trips.queue(of(1)) > 700_000, "the rest is one");
    }

    #[test]
    fn the_smallest_is_believed_while_it_is_seen() {
        let burst = Duration::from_millis(1);
        let mut trips = RoundTrips::new(None);
        trips.sample(ms(0), Duration::from_millis(100), None, (burst, NONE));
        trips.sample(ms(5000), Duration::from_millis(104), None, (burst, NONE));
        assert!(!trips.is_stale(ms(14_999)));
        trips.sample(ms(6000), Duration::from_millis(120), None, (burst, NONE));
        assert!(trips.is_stale(ms(15_000)));
        trips.renew(ms(15_000), Duration::from_millis(120));
        assert_eq!(
            (trips.min(), trips.is_stale(ms(15_001))),
            (Some(Duration::from_millis(120)), false)
        );
    }

    #[test]
    fn excess_is_more_than_chance() {
        let mut rest = RestLoss::default();
        rest.set(10_000);
        assert!(!rest.is_excess(19_000, 100_000) && rest.is_excess(21_000, 100_000));
        assert!(!rest.is_excess(50_000, 20), "one of twenty");
        assert_eq!(rest.scale_up(99), 100);
    }

    #[test]
    fn loss_that_stays_when_the_rate_falls_is_the_paths_own() {
        let mut rest = RestLoss::default();
        rest.suspect(50_000, 7);
        assert_eq!(rest.judge(48_000, 63), None, "of few packets that is chance");
        assert_eq!(rest.judge(48_000, 1), Some(SuspicionOutcome { unchanged: true, bandwidth: 7 }));
        assert_eq!((rest.share(), rest.is_suspected()), (49_000, false));
        rest.suspect(300_000, 8);
        assert_eq!(
            rest.judge(60_000, 1000),
            Some(SuspicionOutcome { unchanged: false, bandwidth: 8 })
        );
        assert_eq!((rest.share(), rest.is_suspected()), (49_000, false));
    }
}
