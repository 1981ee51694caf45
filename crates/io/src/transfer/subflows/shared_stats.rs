//! The numbers that a subflow's thread and the main one exchange in every step. Each may be a
//! little older or newer than the next. There is no lock, and a cache line of its own for either
//! direction.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use netblt_proto::endpoint::subflows::{SubflowShare, SubflowTally};
use netblt_proto::units::Rate;

/// No limit.
const NONE: u64 = u64::MAX;

/// Between the main thread and one subflow's.
#[derive(Debug, Default)]
pub(super) struct SharedStats {
    tally: SentCounts,
    came: ReceivedCounts,
    share: RateShare,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct SentCounts([AtomicU64; 8]);

#[derive(Debug, Default)]
#[repr(align(128))]
struct ReceivedCounts(AtomicU64);

#[derive(Debug, Default)]
#[repr(align(128))]
struct RateShare {
    rate: AtomicU64,
    cap: AtomicU64,
    /// The main connection is silent itself.
    silent: AtomicBool,
}

impl SharedStats {
    /// The subflow's thread: what its sender has counted.
    pub(super) fn publish(&self, tally: &SubflowTally) {
        let numbers = [
            tally.sent_bytes,
            tally.delivered_bytes,
            tally.delivered_packets,
            tally.lost_packets,
            tally.marked_packets,
            tally.in_flight_bytes,
            tally.delivery_rate.bytes_per_second(),
            tally.send_rate.bytes_per_second(),
        ];
        for (place, number) in self.tally.0.iter().zip(numbers) {
            place.store(number, Ordering::Relaxed);
        }
    }

    /// The main thread: what that was last.
    pub(super) fn tally(&self, live: bool) -> SubflowTally {
        let [sent, arrived, packets, lost, marked, in_flight, delivery, send] =
            std::array::from_fn(|at| self.tally.0[at].load(Ordering::Relaxed));
        SubflowTally {
            live,
            sent_bytes: sent,
            delivered_bytes: arrived,
            delivered_packets: packets,
            lost_packets: lost,
            marked_packets: marked,
            in_flight_bytes: in_flight,
            delivery_rate: Rate::from_bytes_per_second(delivery),
            send_rate: Rate::from_bytes_per_second(send),
        }
    }

    /// The subflow's thread: how many bytes a receiver has of it.
    pub(super) fn publish_arrived(&self, bytes: u64) {
        self.came.0.store(bytes, Ordering::Relaxed);
    }

    /// The main thread: the same.
    pub(super) fn came(&self) -> u64 {
        self.came.0.load(Ordering::Relaxed)
    }

    /// The main thread sets the subflow's share.
    pub(super) fn allow(&self, share: SubflowShare) {
        self.share.rate.store(share.rate.bytes_per_second(), Ordering::Relaxed);
        self.share.cap.store(share.cap_bytes.unwrap_or(NONE), Ordering::Relaxed);
    }

    /// The subflow's share, for its thread. `None` before it was set.
    pub(super) fn share(&self) -> Option<SubflowShare> {
        let rate = Rate::from_bytes_per_second(self.share.rate.load(Ordering::Relaxed));
        let cap = self.share.cap.load(Ordering::Relaxed);
        let is_set = rate > Rate::ZERO;
        is_set.then_some(SubflowShare { rate, cap_bytes: (cap < NONE).then_some(cap) })
    }

    /// The main thread: whether its connection is silent.
    pub(super) fn be_silent(&self, silent: bool) {
        self.share.silent.store(silent, Ordering::Relaxed);
    }

    /// The subflow's thread: the same.
    pub(super) fn is_silent(&self) -> bool {
        self.share.silent.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_is_read_as_it_was_stored() {
        let shared_stats = SharedStats::default();
        assert_eq!((shared_stats.share(), shared_stats.is_silent()), (None, false));
        let rate = Rate::from_bytes_per_second;
        let tally = SubflowTally {
            live: true,
            sent_bytes: 1,
            delivered_bytes: 2,
            delivered_packets: 3,
            lost_packets: 4,
            marked_packets: 5,
            in_flight_bytes: 6,
            delivery_rate: rate(7),
            send_rate: rate(8),
        };
        shared_stats.publish(&tally);
        assert_eq!(shared_stats.tally(true), tally);
        for cap_bytes in [Some(0), Some(9), None] {
            let share = SubflowShare { rate: rate(10), cap_bytes };
            shared_stats.allow(share);
            assert_eq!(shared_stats.share(), Some(share));
        }
        shared_stats.publish_arrived(11);
        assert_eq!(shared_stats.came(), 11);
        shared_stats.be_silent(true);
        assert!(shared_stats.is_silent());
    }
}
