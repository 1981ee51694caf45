//! Two gates that drop packets before the queue is full: a policer, which keeps to a rate by drops
//! and lets nothing wait, and CoDel (RFC 8289), which drops packets that have waited too long for
//! too long.

use std::time::Duration;

use netblt_proto::time::{Instant, nanos};
use netblt_proto::units::Rate;

/// A token bucket before the queue: packets beyond it are dropped at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// The long-term rate, in IP bytes.
    pub rate: Rate,
    /// The burst that passes after a rest.
    pub bucket_bytes: u64,
}

/// CoDel, with an interval of twenty targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDel {
    /// Packets may wait for longer than this now and then, and not for a whole interval.
    pub target: Duration,
    /// ECN-capable packets are marked and not dropped.
    pub marks: bool,
}

/// With no more than this waiting there is no queue (RFC 8289 §5.4: one packet).
const ONE_PACKET: u64 = 1500;
/// One drop in each interval, which is so many targets (RFC 8289 §4.4: 5 of 100 ms).
const INTERVAL: u32 = 20;

/// How full a policer's bucket is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    /// When it will be full.
    full: Instant,
}

impl Bucket {
    /// Whether so many bytes pass. If so, they are taken out of the bucket.
    pub(super) fn passes(&mut self, now: Instant, policer: Policer, bytes: u64) -> bool {
        let taken = policer.rate.bytes_in(self.full.since(now));
        let passes = taken.saturating_add(bytes) <= policer.bucket_bytes;
        if passes {
            self.full = self.full.max(now) + policer.rate.time_for(bytes);
        }
        passes
    }
}

/// The state of a [`CoDel`], by the names of RFC 8289 §5.3.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Judge {
    first_above: Option<Instant>,
    next: Instant,
    count: u64,
    last_count: u64,
    dropping: bool,
}

impl Judge {
    /// Whether the packet that leaves the queue `at` is to be dropped or marked. It entered at
    /// `entered`, and `waiting` bytes stay.
    pub(super) fn condemns(
        &mut self,
        at: Instant,
        entered: Instant,
        waiting: u64,
        codel: CoDel,
    ) -> bool {
        let interval = codel.target.saturating_mul(INTERVAL);
        let late = at.since(entered) >= codel.target && waiting > ONE_PACKET;
        let too_long = late && *self.first_above.get_or_insert(at + interval) <= at;
        if !late {
            self.first_above = None;
        }
        if self.dropping {
            self.dropping = too_long;
            let condemns = too_long && at >= self.next;
            if condemns {
                self.count += 1;
                self.next += step(interval, self.count);
            }
            return condemns;
        }
        if too_long {
            self.dropping = true;
            let recent = at.since(self.next) < interval.saturating_mul(16);
            let more = self.count - self.last_count;
            self.count = if more > 1 && recent { more } else { 1 };
            self.last_count = self.count;
            self.next = at + step(interval, self.count);
        }
        too_long
    }
}

/// The interval, divided by the square root of `count`.
fn step(interval: Duration, count: u64) -> Duration {
    let root = count.saturating_mul(1 << 20).isqrt().max(1);
    Duration::from_nanos(nanos(interval).saturating_mul(1 << 10) / root)
}

#[cfg(test)]
mod tests {
    use netblt_proto::api::Ecn;

    use super::*;
    use crate::path::{LinkOptions, Path};

    const MS: Duration = Duration::from_millis(1);

    fn mbit(n: u64) -> Rate {
        Rate::from_bits_per_second(n * 1_000_000)
    }

    /// Sends `packets` of 1,500 bytes at `rate`; answers how many came, how many of them marked,
    /// and the longest wait of the second half of them.
    fn send(options: LinkOptions, rate: Rate, packets: u32) -> (u64, u64, Duration) {
        let mut path = Path::new(options, 1, "gates");
        let (mut now, mut came, mut longest) = (Instant::EPOCH, 0, Duration::ZERO);
        for n in 0..packets {
            path.push(now, 28, Some(Ecn::Ect0), vec![0; 1472]);
            now += rate.time_for(1500);
            while let Some(delivery) = path.pop(now) {
                came += 1;
                if n > packets / 2 {
                    longest = longest.max(delivery.at.since(delivery.entered));
                }
            }
        }
        assert!(path.counters().balance(), "{:?}", path.counters());
        (came + path.counters().inside.packets, path.counters().marked.packets, longest)
    }

    #[test]
    fn a_policer_passes_its_bucket_and_then_its_rate_and_delays_nothing() {
        let policer = Some(Policer { rate: mbit(12), bucket_bytes: 150_000 });
        let options = LinkOptions { policer, ..LinkOptions::default() };
        // A packet of 1,500 bytes each millisecond, and a hundred from the bucket.
        let (came, _, longest) = send(options.clone(), mbit(24), 10_000);
        assert!(came.abs_diff(5100) <= 1, "{came}");
        assert_eq!(longest, Duration::ZERO);
        assert_eq!(send(options, mbit(12), 10_000).0, 10_000);
    }

    #[test]
    fn codel_holds_a_queue_near_its_target_by_drops_or_by_marks() {
        let link = |marks| LinkOptions {
            rate: Some(mbit(12)),
            codel: Some(CoDel { target: MS * 5, marks }),
            ..LinkOptions::default()
        };
        // A twentieth too much for 20 s would be a queue of a second.
        let (came, marked, longest) = send(link(false), mbit(12).scaled(21, 20), 21_000);
        assert!((20_000..20_200).contains(&came) && marked == 0, "{came} {marked}");
        assert!(longest < MS * 150, "{longest:?}");
        let (came, marked, _) = send(link(true), mbit(12).scaled(21, 20), 21_000);
        assert!(came == 21_000 && marked > 500, "{came} {marked}");
        // Packets within the link's rate do not wait.
        assert_eq!(send(link(false), mbit(12), 21_000).0, 21_000);
    }
}
