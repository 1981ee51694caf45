//! How an adaptive sender starts where a round trip takes a second or more: it looks before it
//! leaps.
//!
//! Doubling finds a path full only a round trip after it was overrun: there, seconds of twice the
//! rate, and no queue is that long. So packets leave in trains, at the same mean rate. The end of
//! a train waits in the queue for as long as the path takes to send the train, which shows what the
//! path could carry while it carries less.

use std::time::Duration;

use crate::units::Burst;
use crate::units::Rate;

/// From this round trip on.
const LONG: Duration = Duration::from_secs(1);
/// A train is what the rate makes in this time: what it adds to a queue is at most as long.
const TRAIN_TIME: Duration = Duration::from_millis(75);
/// Packets in a train at least: fewer than ten, with which any path must live (RFC 6928).
const MIN_PACKETS: u64 = 6;
/// So many, up to the one that is reported, show something.
const TELLING: u64 = MIN_PACKETS / 2;
/// The most packets in a train.
const MAX_PACKETS: u64 = 4096;
/// No wait is known better than this: slots, frames and hosts.
const GRAIN: Duration = Duration::from_millis(25);
/// Of what the trains of a round trip showed at best, in hundredths, so much is believed.
const BELIEVED: u64 = 92;
/// Of so many trains two may have come through between the frames that the others met.
const MANY: u32 = 7;

/// What the trains of this round trip and of the one before have shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Train {
    /// The three best of this round trip, and of how many.
    shown: [u64; 3],
    count: u32,
    /// Of those of the last one, what is believed at best, and what is believed.
    best: Option<u64>,
    believed: Option<u64>,
    /// Round trips in a row with one of them each.
    alone: u32,
}

/// Whether a path with this round trip is one for trains.
pub(crate) fn is_long(min_rtt: Duration) -> bool {
    min_rtt >= LONG
}

impl Train {
    /// The newest packet reported ended a train of `bytes` and was `late` by so much.
    pub(super) fn sample(&mut self, bytes: u64, packet_bytes: u32, late: Duration) {
        if bytes >= TELLING * u64::from(packet_bytes) {
            let rate = Rate::over(bytes, late + GRAIN).bytes_per_second();
            let [best, second, third] = self.shown;
            self.shown = [best.max(rate), second.max(best.min(rate)), third.max(second.min(rate))];
            self.count += 1;
        }
    }

    /// A round trip is over; answers what the path carries at best, if trains have ended so far.
    /// The best of them may have come through between the frames, slots and losses that others met,
    /// so what is tried next goes by the one after it, or, of many, by the one after that.
    pub(super) fn end_round(&mut self) -> Option<u64> {
        let count = std::mem::take(&mut self.count);
        let shown = std::mem::take(&mut self.shown);
        let [best, second, third] = shown.map(|shown| shown / 100 * BELIEVED);
        if best > 0 {
            self.best = Some(best);
            self.alone = if count == 1 { self.alone.saturating_add(1) } else { 0 };
            self.believed = Some(match count {
                1 => best,
                2..MANY => second,
                _ => third,
            });
        }
        // A single one may be late for another reason, as an OK that was lost and said again.
        self.best.filter(|_| self.alone != 1)
    }

    /// The fastest that may be tried: nothing faster than `known` before a train has shown more.
    pub(super) fn most(&self, known: u64) -> u64 {
        self.believed.map_or(known, |believed| believed.max(known))
    }
}

/// The burst values of trains that make `rate`. Where only the end of a buffer, of `buffer_bytes`,
/// is reported, that is deep enough in a train to show something, if a packet or an eighth more
/// does it; and no buffer is a number of whole trains: each would end at the same place of one.
pub(super) fn train_for(rate: Rate, packet_bytes: u32, buffer_bytes: u64) -> Burst {
    let packet = u64::from(packet_bytes.max(1));
    let fewest = (rate.bytes_in(TRAIN_TIME) / packet).clamp(MIN_PACKETS, MAX_PACKETS);
    let buffer = buffer_bytes.div_ceil(packet);
    let shows = |packets: &u64| buffer % packets >= TELLING;
    let mut packets = (fewest..=fewest + (fewest / 8).max(1)).find(shows).unwrap_or(fewest);
    while buffer > 0 && buffer.is_multiple_of(packets) {
        packets += 1;
    }
    let interval = rate.time_for(packets * packet).max(Duration::from_nanos(1));
    Burst { packets: packets as u32, interval }
}
