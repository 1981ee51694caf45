//! What [`Adaptive`] does beside who does not yield. A BBR holds the best rate of ten round trips,
//! whatever is lost: to yield to its losses, as to a TCP's, is to leave it everything. So beside
//! one this law holds as it does, for as long as it is seen to be there
//! (docs/decisions/adaptive-rate.md, *Beside who does not yield*).

use std::time::Duration;

use super::{Adaptive, Phase, UNITY};
use crate::rate::path::MILLION;
use crate::rate::rhythm::{Away, Rhythm, Seen};
use crate::rate::{Pacing, Sample, burst_for};
use crate::time::Instant;
use crate::units::Rate;

/// So much more than at rest is lost beside such a one, in millionths: in a short queue, by a
/// rhythm and where somebody was seen twice; in a long one, where he was seen once and twice.
const LOST_SHORT: [u64; 2] = [14_000, 10_000];
const LOST_LONG: [u64; 2] = [3000, 375];
/// The round trips of which that is the mean.
const LOST_ROUNDS: u64 = 64;
/// Beside a BBR a tenth is lost, an eighth at most: where it is this much in the mean of so many
/// round trips, the path carries less.
const FLOODS: u64 = 200_000;
const FLOOD_ROUNDS: u64 = 16;
/// A queue is short if the round trip is longer by less than this part of the smallest as a rule.
const SHORT: (u32, u32) = (3, 8);
/// A rate that fell to less than this part at once yielded; for so many round trips that shows.
const YIELDS: (u64, u64) = (9, 10);
const YIELDED_TRIPS: u32 = 3;
/// Who is seen in a long queue was contended with a moment ago.
const CONTESTED: Duration = Duration::from_secs(3);
/// Who was seen takes himself out of the queue again ten seconds later; else nobody is there.
const SEEN_FOR: Duration = Duration::from_millis(12_500);
/// Who held on beside nobody does not again for so long, unless somebody is seen twice.
const DECEIVED_FOR: Duration = Duration::from_secs(60);

/// The round trips of which the best is held (BtlBwFilterLen, draft §4.1.1.3).
const ROUNDS: usize = 10;
/// Gains, each for a smallest round trip (draft §4.3.4.3), and where to begin.
const CYCLE: [u64; 8] = [1250, 750, 1000, 1000, 1000, 1000, 1000, 1000];
const FIRST: usize = 2;
/// In flight at most, in products (draft §4.2.3.2).
const PRODUCTS: u64 = 2;

/// What tells that somebody is there who does not yield.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signs {
    rhythm: Rhythm,
    away: Away,
    /// Lost of late, in millionths, and in the last few round trips.
    lost: u64,
    lost_now: u64,
    /// The round that is under way, and packets delivered and lost before it.
    round: (u64, u64, u64),
    /// The bandwidth at the last report, and when it last fell at once.
    bandwidth: u64,
    yielded: Instant,
    /// When it last took its part of a queue that stays.
    contested: Option<Instant>,
    deceived: Option<Instant>,
}

impl Signs {
    fn count(&mut self, sample: &Sample) {
        let (number, delivered, lost) = self.round;
        if sample.round <= number {
            return;
        }
        let lost = sample.lost_packets.saturating_sub(lost);
        let total = lost + sample.delivered_packets.saturating_sub(delivered);
        let share = lost.saturating_mul(MILLION) / total.max(1);
        self.lost = (self.lost * (LOST_ROUNDS - 1) + share) / LOST_ROUNDS;
        self.lost_now = (self.lost_now * (FLOOD_ROUNDS - 1) + share) / FLOOD_ROUNDS;
        self.round = (sample.round, sample.delivered_packets, sample.lost_packets);
    }

    fn watch(&mut self, now: Instant, bandwidth: u64) {
        if bandwidth < self.bandwidth / YIELDS.1 * YIELDS.0 {
            self.yielded = now;
        }
        self.bandwidth = bandwidth;
    }
}

/// Holds on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stand {
    /// The best of each of the last rounds, newest first, in bytes per second.
    best: [u64; ROUNDS],
    round: u64,
    /// Which of [`CYCLE`] it is at, and since when.
    step: usize,
    since: Instant,
    until: Instant,
    /// Who does not yield was seen since.
    seen: bool,
}

impl Stand {
    /// So much came through. Of a sender without data it shows nothing, but if it was more.
    pub(super) fn take(&mut self, rate: u64, app_limited: bool) {
        if !app_limited || rate >= self.rate() {
            self.best[0] = self.best[0].max(rate);
        }
    }

    fn rate(&self) -> u64 {
        self.best.into_iter().fold(1, u64::max)
    }

    fn gain(&self) -> u64 {
        CYCLE[self.step % CYCLE.len()]
    }

    fn advance(&mut self, now: Instant, sample: &Sample, (min, rested): (Duration, bool)) {
        let rounds = sample.round.saturating_sub(self.round).min(ROUNDS as u64);
        for _ in 0..if sample.app_limited { 0 } else { rounds } {
            self.best.rotate_right(1);
            self.best[0] = 0;
        }
        self.round = sample.round;
        if now.since(self.since) > min || self.gain() < UNITY && rested {
            (self.step, self.since) = ((self.step + 1) % CYCLE.len(), now);
        }
    }
}

impl Adaptive {
    /// A report came: whether it shows somebody who does not yield.
    pub(super) fn look_for_signs(&mut self, now: Instant, sample: &Sample) {
        let known = self.phase != Phase::Startup && !self.turns.is_known();
        if !known || !self.may_contend(now) {
            self.signs.rhythm = Rhythm::default();
            self.signs.away.forget();
            return;
        }
        let Some(rtt) = sample.rtt else { return };
        let min = self.min_rtt();
        self.signs.count(sample);
        self.signs.watch(now, self.bandwidth);
        let rhythm = self.signs.rhythm.hear(now, min, rtt.saturating_sub(min));
        // What it yields while it holds on is its cycle's, and little.
        let yielded = now.since(self.signs.yielded) <= rtt * YIELDED_TRIPS && self.stand.is_none();
        let own = (yielded, self.phase == Phase::MinRtt);
        // Without what a host that is late adds to some.
        let excess = self.round_trip().saturating_sub(min);
        let seen = self.signs.away.hear(now, (min, excess), own);
        if let Some(stand) = &mut self.stand {
            // Its own cycle may look like somebody now and then, but not every ten seconds.
            if seen == Some(Seen::Twice) || seen.is_some() && !stand.seen {
                (stand.seen, stand.until) = (true, now + SEEN_FOR);
            }
            return;
        }
        if self.contest.is_some() {
            self.signs.contested = Some(now);
        }
        let short = self.signs.away.usual() <= min * SHORT.0 / SHORT.1;
        let contested = self.signs.contested.is_some_and(|at| now.since(at) < CONTESTED);
        let deceived = self.signs.deceived.is_some_and(|until| now < until);
        let least = match seen {
            Some(Seen::Twice) if short => LOST_SHORT[1],
            Some(Seen::Twice) if contested => LOST_LONG[1],
            _ if deceived => return,
            Some(Seen::Once) if !short && contested => LOST_LONG[0],
            _ if short && rhythm => LOST_SHORT[0],
            _ => return,
        };
        if self.signs.lost > self.rest.share() + least && !self.floods() {
            self.stand_by(now, sample.round);
        }
    }

    fn floods(&self) -> bool {
        self.signs.lost_now >= self.rest.share() + FLOODS
    }

    fn stand_by(&mut self, now: Instant, round: u64) {
        self.enter(Phase::Cruise, now);
        self.contest = None;
        let mut best = [0; ROUNDS];
        best[0] = self.bandwidth;
        let until = now + SEEN_FOR;
        self.stand = Some(Stand { best, round, step: FIRST, since: now, until, seen: false });
    }

    /// A report came. Whether it holds on, and there is no more to be judged by it.
    pub(super) fn holds(&mut self, now: Instant, sample: &Sample) -> bool {
        if self.stand.is_none() {
            return false;
        }
        self.hold(now, sample);
        self.set_pacing();
        true
    }

    fn hold(&mut self, now: Instant, sample: &Sample) {
        if self.hear_losses(now, sample).missing {
            self.hearing.overflowed = Some(now);
        }
        let min = self.min_rtt();
        let rested = sample.in_flight_bytes <= self.resting_bytes();
        let floods = self.floods();
        let Some(stand) = &mut self.stand else { return };
        stand.advance(now, sample, (min, rested));
        self.bandwidth = stand.rate();
        self.round.number = sample.round;
        if now < stand.until && !floods {
            return;
        }
        if !stand.seen || floods {
            self.signs.deceived = Some(now + DECEIVED_FOR);
        }
        self.stand = None;
        self.signs.rhythm = Rhythm::default();
        // What was held on to says nothing of the path, and others are there: small probes.
        self.trips.keep(now);
        self.hearing.deaf = 2;
        self.probe.caution = UNITY / 4;
        self.enter(Phase::Cruise, now);
    }

    /// How fast it goes while it holds on; `None` if it does not.
    pub(super) fn stand_pacing(&self, most: Rate) -> Option<Pacing> {
        let stand = self.stand.as_ref()?;
        let rate = Rate::from_bytes_per_second(stand.rate());
        let unreported = rate.bytes_in(self.hearing.gap + self.hearing.gap / 2);
        let product = rate.bytes_in(self.min_rtt());
        let cap = product * PRODUCTS + unreported + u64::from(self.packet_bytes) * 4;
        let rate = rate.scaled(stand.gain(), UNITY).min(most);
        Some(Pacing { cap_bytes: Some(cap), ..Pacing::of(burst_for(rate, self.packet_bytes)) })
    }
}
