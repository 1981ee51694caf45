//! One rate decision for all subflows of a transfer (`docs/protocol §6.11`).
//!
//! The law is the main connection's. Its samples are of all subflows together, and what it decides
//! is dealt out among them: as much to each, but no more than it can use. So a transfer is one flow
//! to the path and to others on it, however many subflows carry it.

use std::time::Duration;

use crate::rate::{Pacing, Sample};
use crate::time::{Instant, nanos};
use crate::units::Rate;

/// All of something, in parts.
const WHOLE: u64 = 1_000_000;
/// What was used is looked at again after this time at least, and so many packets of each subflow.
const WINDOW: Duration = Duration::from_millis(20);
const WINDOW_PACKETS: u64 = 32;
/// A subflow that used less than this of its share, in thousandths, cannot use more: it gets a
/// little above what it did.
const USES: u64 = 850;
const ROOM: u64 = 1150;
/// What it gets at least, as a part of an even share.
const LEAST_PART: u64 = 8;
/// While the law looks for the rate of the path with trains of packets, whose arrivals must not be
/// mixed up with other subflows', all of those together get this part.
const ASIDE: u64 = 8;

/// What the sender of a subflow has counted so far. Counts never decrease; those of a subflow that
/// is closed stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubflowTally {
    /// Whether it carries data.
    pub live: bool,
    /// Bytes of IP packets sent.
    pub sent_bytes: u64,
    /// Those known to have arrived.
    pub delivered_bytes: u64,
    /// Packets known to have arrived.
    pub delivered_packets: u64,
    /// Packets found missing.
    pub lost_packets: u64,
    /// Packets that arrived marked Congestion Experienced.
    pub marked_packets: u64,
    /// Bytes sent that are neither reported nor known to be missing.
    pub in_flight_bytes: u64,
    /// Rate at which data arrived lately; zero if none did.
    pub delivery_rate: Rate,
    /// Rate at which they were sent.
    pub send_rate: Rate,
}

/// What a subflow may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubflowShare {
    /// Bytes of IP packets a second.
    pub rate: Rate,
    /// Most bytes in flight; `None` for no limit but the outstanding buffers.
    pub cap_bytes: Option<u64>,
}

/// A subflow as it is dealt with.
#[derive(Clone, Copy, Debug, Default)]
struct SubflowAllocation {
    live: bool,
    /// Bytes sent when the window began.
    before: u64,
    /// Its part of the whole.
    part: u64,
    /// The most that it can use, of the whole; `None` if that is not known to be a limit.
    most: Option<u64>,
}

/// How a main connection's sender leads the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct SubflowAllocator {
    /// The others, summed up.
    others: SubflowTally,
    /// The main connection first.
    allocations: Vec<SubflowAllocation>,
    since: Instant,
}

impl SubflowAllocator {
    /// What all have counted so far, the main connection, `own`, among them; all together may send
    /// `pacing` of packets of `packet_bytes`, and if the law `tries` something the others step
    /// aside.
    pub(crate) fn on_counts(
        &mut self,
        now: Instant,
        (own, subflows): (SubflowTally, &[SubflowTally]),
        (pacing, packet_bytes): (&Pacing, u64),
        tries: bool,
    ) {
        self.others = subflows.iter().fold(SubflowTally::default(), sum);
        let all = || [own].into_iter().chain(subflows.iter().copied());
        let known = self.allocations.len();
        self.allocations.resize(subflows.len() + 1, SubflowAllocation::default());
        let changed =
            all().zip(&self.allocations).any(|(tally, allocation)| tally.live != allocation.live);
        let count = all().filter(|tally| tally.live).count().max(1) as u64;
        let whole = rate_of(pacing, packet_bytes);
        let lapsed = now.since(self.since);
        let window = WINDOW.max(whole.time_for(WINDOW_PACKETS * packet_bytes * count));
        if changed || known != self.allocations.len() {
            for (tally, allocation) in all().zip(&mut self.allocations) {
                (allocation.live, allocation.before, allocation.most) =
                    (tally.live, tally.sent_bytes, None);
            }
            self.since = now;
        } else if lapsed >= window {
            for (tally, allocation) in all().zip(&mut self.allocations) {
                let used = Rate::over(tally.sent_bytes.saturating_sub(allocation.before), lapsed);
                allocation.judge(used, whole, count);
                allocation.before = tally.sent_bytes;
            }
            self.since = now;
        }
        match tries && count > 1 {
            true => self.step_aside(count),
            false => self.deal(),
        }
    }

    /// As much to each as it can use, beginning with those who can use least.
    fn deal(&mut self) {
        let mut order: Vec<usize> = (0..self.allocations.len()).collect();
        order.retain(|at| self.allocations.get(*at).is_some_and(|allocation| allocation.live));
        order.sort_by_key(|at| self.allocations.get(*at).and_then(|h| h.most).unwrap_or(u64::MAX));
        self.allocations.iter_mut().for_each(|allocation| allocation.part = 0);
        let (mut left, mut subflows) = (WHOLE, order.len() as u64);
        for at in order {
            let even = left / subflows.max(1);
            if let Some(allocation) = self.allocations.get_mut(at) {
                // The last one gets what is left: one subflow must try for more.
                let last = subflows <= 1;
                allocation.part = allocation.most.filter(|_| !last).unwrap_or(even).min(even);
                left -= allocation.part;
            }
            subflows = subflows.saturating_sub(1);
        }
    }

    fn step_aside(&mut self, count: u64) {
        let part = WHOLE / ASIDE / (count - 1).max(1);
        for (at, allocation) in self.allocations.iter_mut().enumerate() {
            allocation.part = match (at, allocation.live) {
                (0, _) => WHOLE - part * (count - 1),
                (_, true) => part,
                (_, false) => 0,
            };
        }
    }

    /// Of all subflows, what `own` is of the main connection.
    pub(crate) fn whole(&self, own: Sample) -> Sample {
        let others = &self.others;
        let add = |rate: Option<Rate>, more: Rate| {
            rate.map(|rate| {
                let all = rate.bytes_per_second().saturating_add(more.bytes_per_second());
                Rate::from_bytes_per_second(all)
            })
        };
        Sample {
            delivery_rate: add(own.delivery_rate, others.delivery_rate),
            send_rate: add(own.send_rate, others.send_rate),
            sent_bytes: own.sent_bytes + others.sent_bytes,
            delivered_bytes: own.delivered_bytes + others.delivered_bytes,
            delivered_packets: own.delivered_packets + others.delivered_packets,
            lost_packets: own.lost_packets + others.lost_packets,
            marked_packets: own.marked_packets + others.marked_packets,
            in_flight_bytes: own.in_flight_bytes + others.in_flight_bytes,
            ..own
        }
    }

    /// Bytes known to have arrived over the others.
    pub(crate) fn delivered_beside(&self) -> u64 {
        self.others.delivered_bytes
    }

    /// The main connection's part of what the law asks for all.
    pub(crate) fn own(&self, pacing: Pacing) -> Pacing {
        let Some(allocation) =
            self.allocations.first().filter(|allocation| allocation.part < WHOLE)
        else {
            return pacing;
        };
        let part = allocation.part.max(1);
        let interval = u128::from(nanos(pacing.burst.interval)) * u128::from(WHOLE);
        let interval = u64::try_from(interval / u128::from(part)).unwrap_or(u64::MAX);
        let mut own = pacing;
        own.burst.interval = Duration::from_nanos(interval);
        own.cap_bytes = pacing.cap_bytes.map(|cap| cut(cap, part));
        own
    }

    /// What the subflow at `at` of those that reported may send.
    pub(crate) fn share(&self, at: usize, pacing: &Pacing, packet_bytes: u64) -> SubflowShare {
        let part = self.allocations.get(at + 1).map_or(0, |allocation| allocation.part);
        let rate = rate_of(pacing, packet_bytes);
        let rate = Rate::from_bytes_per_second(cut(rate.bytes_per_second(), part));
        SubflowShare { rate, cap_bytes: pacing.cap_bytes.map(|cap| cut(cap, part)) }
    }
}

impl SubflowAllocation {
    /// It sent at `used` of `whole` in the window that is over.
    fn judge(&mut self, used: Rate, whole: Rate, count: u64) {
        if !self.live {
            return;
        }
        let whole = u128::from(whole.bytes_per_second().max(1));
        let used = u128::from(used.bytes_per_second()) * u128::from(WHOLE) / whole;
        let used = u64::try_from(used).unwrap_or(u64::MAX).min(WHOLE);
        self.most = (used < self.part * USES / 1000)
            .then(|| (used * ROOM / 1000).max(WHOLE / count.max(1) / LEAST_PART));
    }
}

fn sum(all: SubflowTally, one: &SubflowTally) -> SubflowTally {
    let add = |a: Rate, b: Rate| {
        Rate::from_bytes_per_second(a.bytes_per_second().saturating_add(b.bytes_per_second()))
    };
    let rates = match one.live {
        true => (one.delivery_rate, one.send_rate, one.in_flight_bytes),
        false => (Rate::ZERO, Rate::ZERO, 0),
    };
    SubflowTally {
        live: all.live || one.live,
        sent_bytes: all.sent_bytes + one.sent_bytes,
        delivered_bytes: all.delivered_bytes + one.delivered_bytes,
        delivered_packets: all.delivered_packets + one.delivered_packets,
        lost_packets: all.lost_packets + one.lost_packets,
        marked_packets: all.marked_packets + one.marked_packets,
        in_flight_bytes: all.in_flight_bytes + rates.2,
        delivery_rate: add(all.delivery_rate, rates.0),
        send_rate: add(all.send_rate, rates.1),
    }
}

fn rate_of(pacing: &Pacing, packet_bytes: u64) -> Rate {
    Rate::over(u64::from(pacing.burst.packets) * packet_bytes, pacing.burst.interval)
}

fn cut(amount: u64, part: u64) -> u64 {
    let cut = u128::from(amount) * u128::from(part) / u128::from(WHOLE);
    u64::try_from(cut).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Burst;

    const PACKET: u64 = 1000;

    /// A megabyte a second.
    fn pacing() -> Pacing {
        let burst = Burst { packets: 1, interval: Duration::from_millis(1) };
        Pacing { cap_bytes: Some(100_000), ..Pacing::of(burst) }
    }

    /// Subflows that can send so many kilobytes a second, led for `ms` milliseconds: what each may
    /// send in the end, in kilobytes a second, the main connection's first.
    fn led(can: &[u64], ms: u64, tries: bool) -> Vec<u64> {
        let (mut lead, pacing) = (SubflowAllocator::default(), pacing());
        let live = SubflowTally { live: true, ..SubflowTally::default() };
        let (mut own, mut subflows) = (live, vec![live; can.len() - 1]);
        let mut may = vec![0; can.len()];
        for ms in 0..=ms {
            let now = Instant::EPOCH + Duration::from_millis(ms);
            lead.on_counts(now, (own, &subflows), (&pacing, PACKET), tries);
            let mine = lead.own(pacing).burst.interval;
            may[0] = 1_000_000 / (nanos(mine) / 1000).max(1);
            for at in 0..subflows.len() {
                may[at + 1] = lead.share(at, &pacing, PACKET).rate.bytes_per_second() / 1000;
                subflows[at].sent_bytes += may[at + 1].min(can[at + 1]);
            }
            own.sent_bytes += may[0].min(can[0]);
        }
        may
    }

    #[test]
    fn each_gets_as_much_as_the_others() {
        assert_eq!(led(&[9999], 500, false), [1000]);
        assert_eq!(led(&[9999; 4], 500, false), [250; 4]);
    }

    #[test]
    fn what_one_cannot_use_the_others_get() {
        let may = led(&[9999, 50, 9999, 9999], 2000, false);
        assert!((50..=60).contains(&may[1]), "{may:?}");
        assert!(may[0] > 310 && may.iter().sum::<u64>() >= 995, "{may:?}");
        // No subflow can use more than a part: one is given what is left all the same.
        let may = led(&[100, 100, 100], 2000, false);
        assert!(may.iter().all(|rate| *rate >= 100), "{may:?}");
        assert!(may.iter().sum::<u64>() >= 995, "{may:?}");
    }

    #[test]
    fn others_step_aside_while_the_law_tries() {
        assert_eq!(led(&[9999; 3], 100, true), [875, 62, 62]);
    }

    #[test]
    fn a_subflow_that_is_gone_leaves_its_counts_and_takes_no_part() {
        let (mut lead, pacing) = (SubflowAllocator::default(), pacing());
        let own = SubflowTally { live: true, ..SubflowTally::default() };
        let rate = Rate::from_bytes_per_second(7);
        let gone = SubflowTally {
            live: false,
            sent_bytes: 500,
            delivered_bytes: 400,
            in_flight_bytes: 100,
            delivery_rate: rate,
            ..own
        };
        lead.on_counts(Instant::EPOCH, (own, &[gone]), (&pacing, PACKET), false);
        assert_eq!(lead.own(pacing), pacing);
        assert_eq!(
            lead.share(0, &pacing, PACKET),
            SubflowShare { rate: Rate::ZERO, cap_bytes: Some(0) }
        );
        let seen = Sample { sent_bytes: 10, delivery_rate: Some(rate), ..Sample::default() };
        let whole = lead.whole(seen);
        assert_eq!((whole.sent_bytes, whole.delivered_bytes), (510, 400));
        assert_eq!((whole.in_flight_bytes, whole.delivery_rate), (0, Some(rate)));
    }
}
