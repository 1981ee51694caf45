//! What tells [`super::Adaptive`] of a path that lets only so much through and makes nothing wait,
//! as a policer does: its loss looks like loss at rest, and what its bucket lets pass at first like
//! a faster path (docs/decisions/adaptive-rate.md, *Policers*).
//!
//! * Loss at rest is the same at any rate. What is lost at the lower rate after a probe up is
//!   compared with it: if that is far less, the rate made the loss. Where something waits that was
//!   no policer's but a queue's, which lost packets as this sender began beside others.
//! * A find that is lost again before the cruise after it is over was the bucket's. After two of
//!   them probes are rare.

use std::time::Duration;

use super::{DOWN_GAIN, UNITY};
use crate::rate::Sample;
use crate::rate::path::MILLION;
use crate::time::Instant;

/// Below this round trip a queue is no longer than a host is late.
const LEAST_RTT: Duration = Duration::from_millis(5);
/// Less loss at rest than this, in millionths, is not looked into.
const LEAST_SHARE: u64 = 5000;
/// Nor is a probe's where loss at rest is more than this.
const MOST_SHARE: u64 = 50_000;
/// So many standard deviations apart, squared, must be what is lost at random and what a policer
/// would take before it is judged, and so many stretches must have been seen.
const APART: u64 = 25;
const STRETCHES: u32 = 2;
/// A find is more than this part of what was there before.
const FIND: u64 = 32;
/// Finds that were lost again, from which on the path is policed; and how many times as many turns
/// there are between probes up then.
const TAKEN_BACK: u32 = 2;
const RARER: u32 = 8;
/// A queue longer than this part of the round trip, in millionths, is one.
const LEAST_QUEUE: u64 = MILLION / 8;
/// What came through when that was seen is believed but for this part: it was all there is.
const MARGIN: u64 = 64;

/// What was sent at the lower rate after a probe up, and what is known of it.
#[derive(Clone, Copy, Debug)]
struct ProbedStretch {
    from_bytes: u64,
    to_bytes: Option<u64>,
    /// When its beginning and its end were reported.
    reported_at: [Option<Instant>; 2],
    /// Packets that came and that were lost before it.
    before: Option<(u64, u64)>,
}

/// A loss that came and went with the bandwidth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// The bandwidth with it, and without it, in bytes per second.
    pub(super) before: u64,
    pub(super) passes: u64,
    /// There was a queue since the newest probe began.
    pub(super) queued: bool,
}

/// What the losses at the lower rate are compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison {
    /// The queue, in millionths of the smallest round trip.
    pub(super) queue: u64,
    /// The lower rate is being sent.
    pub(super) lowered: bool,
    /// How much later a loss is reported than an arrival.
    pub(super) late: Duration,
    pub(super) min_rtt: Duration,
    /// The share lost at rest, in millionths.
    pub(super) rest: u64,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policed {
    low: Option<ProbedStretch>,
    /// Of all such stretches since it was judged last: packets, those lost, and how many.
    packets: u64,
    lost: u64,
    stretches: u32,
    /// Bandwidth before the newest find, in bytes per second; 0: nothing was found.
    found_from: u64,
    taken_back: u32,
    /// The newest probe lost packets although nothing waited.
    harmed: bool,
}

impl Policed {
    /// How many times as long it is to the next probe up.
    pub(super) fn patience(&self) -> u32 {
        if self.taken_back >= TAKEN_BACK { RARER } else { 1 }
    }

    /// A probe up from the bandwidth `before` is over.
    pub(super) fn on_probed(&mut self, before: u64, bandwidth: u64) {
        if bandwidth > before + before / FIND && self.found_from == 0 {
            self.found_from = before;
        }
    }

    /// A whole cruise is over, and what was found is still there. Whether the next probe may be
    /// bolder than the one before: not where that lost at once what was too much.
    pub(super) fn on_cruised(&mut self) -> bool {
        if std::mem::take(&mut self.found_from) > 0 {
            self.taken_back = 0;
        }
        !std::mem::take(&mut self.harmed)
    }

    /// A probe up lost more than at rest, which is a `rest` part of what is sent, in millionths.
    /// Where much is, that may be chance.
    pub(super) fn on_harm(&mut self, min_rtt: Duration, queued: bool, rest: u64) {
        self.harmed |= sees_queues(min_rtt) && !queued && rest < MOST_SHARE;
    }

    /// Loss without a queue went when the bandwidth was lowered. Returns the bandwidth of a path
    /// that is policed, if it is.
    pub(super) fn take_back(&mut self, min_rtt: Duration, found: Found) -> Option<u64> {
        let found_from = std::mem::take(&mut self.found_from);
        // It must be what was found, or most of it.
        let most = found.before.saturating_sub(found.passes) * 3
            >= found.before.saturating_sub(found_from) * 2;
        let policed = found_from > 0 && most && !found.queued && sees_queues(min_rtt);
        policed.then(|| self.on_policed(found.passes))
    }

    /// The path is policed, and lets `passes` through. Returns the bandwidth to believe.
    pub(super) fn on_policed(&mut self, passes: u64) -> u64 {
        self.taken_back = (self.taken_back + 1).min(TAKEN_BACK);
        self.found_from = 0;
        passes - passes / MARGIN
    }

    /// Takes note of what a report tells of what was sent at the lower rate. Returns the share lost
    /// there, in millionths, if the rate and not the path at rest makes the loss.
    pub(super) fn compare(
        &mut self,
        now: Instant,
        sample: &Sample,
        with: &Comparison,
    ) -> Option<u64> {
        // What makes others wait is no policer.
        if with.queue > LEAST_QUEUE {
            self.taken_back = 0;
        }
        let known = sample.sent_bytes.saturating_sub(sample.in_flight_bytes);
        let Some(mut low) = self.low else {
            let from_bytes = sample.sent_bytes;
            let begun =
                ProbedStretch { from_bytes, to_bytes: None, reported_at: [None; 2], before: None };
            self.low = with.lowered.then_some(begun);
            return None;
        };
        if !with.lowered {
            low.to_bytes.get_or_insert(sample.sent_bytes);
        }
        let counts = (sample.delivered_packets, sample.lost_packets);
        let is_reported = |reported_at: &mut Option<Instant>, bytes| {
            known >= bytes && now.since(*reported_at.get_or_insert(now)) >= with.late
        };
        if is_reported(&mut low.reported_at[0], low.from_bytes) {
            low.before.get_or_insert(counts);
        }
        let over = low.to_bytes.is_some_and(|to| is_reported(&mut low.reported_at[1], to));
        self.low = Some(low);
        let before = low.before.filter(|_| over)?;
        self.low = None;
        let (came, lost) = (counts.0.saturating_sub(before.0), counts.1.saturating_sub(before.1));
        self.judge_stretch(came, lost, with)
    }

    fn judge_stretch(&mut self, came: u64, lost: u64, with: &Comparison) -> Option<u64> {
        let rest = with.rest;
        if rest < LEAST_SHARE || !sees_queues(with.min_rtt) {
            (self.packets, self.lost, self.stretches) = (0, 0, 0);
            return None;
        }
        self.packets += came + lost;
        self.lost += lost;
        self.stretches += 1;
        let enough = if self.patience() > 1 { 1 } else { STRETCHES };
        // If only so much passes, the lower rate loses what it has beyond that.
        let passes = (MILLION - rest) * UNITY / DOWN_GAIN;
        let policed_share = MILLION.saturating_sub(passes);
        let apart = (rest - policed_share) * (rest - policed_share) / 1000;
        if self.stretches < enough || self.packets * apart < APART * rest * (MILLION - rest) / 1000
        {
            return None;
        }
        let share = self.lost * MILLION / self.packets.max(1);
        (self.packets, self.lost, self.stretches) = (0, 0, 0);
        (share * 2 < rest + policed_share).then_some(share)
    }
}

/// Whether it is known that nothing waited: below a round trip of a few milliseconds a queue is no
/// longer than a host is late.
fn sees_queues(min_rtt: Duration) -> bool {
    min_rtt >= LEAST_RTT
}
