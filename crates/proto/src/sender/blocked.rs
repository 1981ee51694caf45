//! What blocks a sender: the accounting behind "limited by".

use std::time::Duration;

use super::Sender;
use crate::stats::BlockedTime;
use crate::time::Instant;
use crate::trace::{BlockedCause, TraceEvent};

/// A shorter block has no effect.
const MIN_BLOCK: Duration = Duration::from_millis(1);

/// The cause that blocks the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    Pacing,
    InFlight,
    Permission,
    Source,
    Paused,
}

impl Sender {
    /// Delivered bytes, and the smallest round trip.
    pub(crate) fn moved(&self) -> (u64, Option<Duration>) {
        (self.sampler.delivered_bytes() + self.delivered_beside(), self.rtt.smallest())
    }

    pub(super) fn block(&mut self, now: Instant, why: Blocked) {
        match self.blocked {
            Some((known, _)) if known == why => {}
            _ => {
                self.block_over(now);
                self.blocked = Some((why, now));
            }
        }
    }

    /// Whether a cause other than pacing has blocked the sender until now.
    pub(super) fn was_held_back(&self, now: Instant) -> bool {
        let other = self.blocked.filter(|(why, _)| *why != Blocked::Pacing);
        other.is_some_and(|(_, since)| now.since(since) >= MIN_BLOCK)
    }

    pub(super) fn block_over(&mut self, now: Instant) {
        if let Some((why, since)) = self.blocked.take() {
            let time = now.since(since);
            add_wait(&mut self.stats.waited, why, time);
            // The pacer blocks between any two bursts.
            let cause = match why {
                Blocked::Pacing => return,
                Blocked::InFlight => BlockedCause::InFlight,
                Blocked::Permission => BlockedCause::Permission,
                Blocked::Source => BlockedCause::Source,
                Blocked::Paused => BlockedCause::Paused,
            };
            self.trace.note(now, || TraceEvent::Waited { cause, time });
        }
    }
}

pub(super) fn add_wait(waited: &mut BlockedTime, why: Blocked, time: Duration) {
    let sum = match why {
        Blocked::Pacing => &mut waited.pacing,
        Blocked::InFlight => &mut waited.in_flight,
        Blocked::Permission => &mut waited.permission,
        Blocked::Source => &mut waited.source,
        Blocked::Paused => &mut waited.paused,
    };
    *sum += time;
}
