//! Gaps between packets that should follow one another: the time that a busy or sleeping sending
//! host adds to its burst intervals.

use std::time::Duration;

use crate::time::Instant;
use crate::units::Burst;

/// The longest gap is kept for one to two of these.
const MEMORY: Duration = Duration::from_secs(5);
/// Longest time for which a gap is kept without a newer one.
const FORGOTTEN: Duration = Duration::from_secs(20);

/// The longest recent gap beyond the burst intervals.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SenderGaps {
    newest: Duration,
    before: Duration,
    since: Instant,
}

impl SenderGaps {
    /// A packet arrived. If for long none shows a gap, as where all of them were requested, old
    /// gaps expire: a timer lengthened by one would stay long.
    pub(super) fn expire(&mut self, now: Instant) {
        if now.since(self.since) > FORGOTTEN {
            *self = Self { since: now, ..Self::default() };
        }
    }

    /// Two packets of one buffer's first pass arrived, one after the other.
    pub(super) fn on_arrival(
        &mut self,
        (then, from): (Instant, u32),
        (now, to): (Instant, u32),
        burst: Burst,
    ) {
        let Some(packets) = to.checked_sub(from).filter(|packets| *packets > 0) else { return };
        // Packets between them may be lost, but took their intervals all the same.
        let bursts = packets.div_ceil(burst.packets.max(1));
        let expected = burst.interval.saturating_mul(bursts);
        if now.since(self.since) > MEMORY {
            let stale = now.since(self.since) > MEMORY * 2;
            self.before = if stale { Duration::ZERO } else { self.newest };
            (self.newest, self.since) = (Duration::ZERO, now);
        }
        self.newest = self.newest.max(now.since(then).saturating_sub(expected));
    }

    pub(super) fn longest(&self) -> Duration {
        self.newest.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    #[test]
    fn only_gaps_beyond_the_burst_intervals_count_and_expire() {
        let burst = Burst { packets: 5, interval: Duration::from_millis(10) };
        let mut gaps = SenderGaps::default();
        gaps.on_arrival((ms(0), 0), (ms(10), 1), burst);
        gaps.on_arrival((ms(10), 1), (ms(30), 8), burst);
        assert_eq!(gaps.longest(), Duration::ZERO);
        gaps.on_arrival((ms(30), 8), (ms(70), 9), burst);
        assert_eq!(gaps.longest(), Duration::from_millis(30));
        gaps.on_arrival((ms(70), 9), (ms(1000), 3), burst);
        gaps.on_arrival((ms(5990), 1), (ms(6000), 2), burst);
        assert_eq!(gaps.longest(), Duration::from_millis(30));
        gaps.on_arrival((ms(11_990), 1), (ms(12_000), 2), burst);
        assert_eq!(gaps.longest(), Duration::ZERO);
        gaps.on_arrival((ms(12_000), 2), (ms(12_050), 3), burst);
        gaps.expire(ms(31_900));
        assert_eq!(gaps.longest(), Duration::from_millis(40));
        gaps.expire(ms(32_100));
        assert_eq!(gaps.longest(), Duration::ZERO, "although no newer one is known");
    }
}
