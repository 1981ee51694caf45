//! What tells [`Adaptive`] of a path that lets only so much through and makes nothing wait, as a
//! policer does: its loss looks like loss at rest, and what its bucket lets pass at first like a
//! faster path (docs/decisions/adaptive-rate.md, *Policers*).
//!
//! * Loss at rest is the same at any rate. What is lost at the lower rate after a probe up is
//!   compared with it: if that is far less, the rate made the loss. Where something waits that was
//!   no policer's but a queue's, which lost packets as this sender began beside others.
//! * A find that is lost again before the cruise after it is over was the bucket's. After two of
//!   them probes are rare.

use std::time::Duration;

use super::phases::ProbeGain;
use super::{Adaptive, AdaptivePhase, DOWN_GAIN, UNITY};
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

    /// A probe up is over.
    pub(super) fn on_probed(&mut self, probe: &ProbeGain, bandwidth: u64) {
        if bandwidth > probe.before + probe.before / FIND && self.found_from == 0 {
            self.found_from = probe.before;
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
}

impl Adaptive {
    /// Whether it is known that nothing waited: below a round trip of a few milliseconds a queue
    /// is no longer than a host is late.
    fn sees_queues(&self) -> bool {
        self.min_rtt() >= LEAST_RTT
    }

    /// A probe up lost more than at rest. Where much is, that may be chance.
    pub(super) fn note_harm(&mut self) {
        self.policed.harmed |=
            self.sees_queues() && !self.probe.queued && self.rest.share() < MOST_SHARE;
    }

    /// Loss without a queue, which began at a bandwidth of `before`, went when that was lowered, to
    /// `passes` and a little less.
    pub(super) fn take_back(&mut self, before: u64, passes: u64) {
        let found_from = std::mem::take(&mut self.policed.found_from);
        // It must be what was found, or most of it.
        let found = before.saturating_sub(found_from);
        let most = before.saturating_sub(passes) * 3 >= found * 2;
        if found_from > 0 && most && !self.probe.queued && self.sees_queues() {
            self.on_policed(passes);
        }
    }

    fn on_policed(&mut self, passes: u64) {
        self.policed.taken_back = (self.policed.taken_back + 1).min(TAKEN_BACK);
        self.policed.found_from = 0;
        self.bandwidth = passes - passes / MARGIN;
    }

    /// Takes note of what a report tells of what was sent at the lower rate.
    pub(super) fn compare_losses(&mut self, now: Instant, sample: &Sample) {
        // What makes others wait is no policer.
        if self.queue() > LEAST_QUEUE {
            self.policed.taken_back = 0;
        }
        let lowered = matches!(self.phase, AdaptivePhase::Down(_)) && self.gain() == DOWN_GAIN;
        let known = sample.sent_bytes.saturating_sub(sample.in_flight_bytes);
        let Some(mut low) = self.policed.low else {
            let from_bytes = sample.sent_bytes;
            let begun =
                ProbedStretch { from_bytes, to_bytes: None, reported_at: [None; 2], before: None };
            self.policed.low = lowered.then_some(begun);
            return;
        };
        if !lowered {
            low.to_bytes.get_or_insert(sample.sent_bytes);
        }
        let counts = (sample.delivered_packets, sample.lost_packets);
        // A loss is reported a quarter of a round trip later than what came.
        let late = self.min_rtt() / 4 + self.hearing.gap;
        let is_reported = |reported_at: &mut Option<Instant>, bytes| {
            known >= bytes && now.since(*reported_at.get_or_insert(now)) >= late
        };
        if is_reported(&mut low.reported_at[0], low.from_bytes) {
            low.before.get_or_insert(counts);
        }
        let over = low.to_bytes.is_some_and(|to| is_reported(&mut low.reported_at[1], to));
        self.policed.low = Some(low);
        if let Some(before) = low.before.filter(|_| over) {
            self.policed.low = None;
            self.judge_stretch(
                counts.0.saturating_sub(before.0),
                counts.1.saturating_sub(before.1),
            );
        }
    }

    fn judge_stretch(&mut self, came: u64, lost: u64) {
        let rest = self.rest.share();
        if rest < LEAST_SHARE || !self.sees_queues() {
            (self.policed.packets, self.policed.lost, self.policed.stretches) = (0, 0, 0);
            return;
        }
        let policed = &mut self.policed;
        policed.packets += came + lost;
        policed.lost += lost;
        policed.stretches += 1;
        let enough = if policed.patience() > 1 { 1 } else { STRETCHES };
        // If only so much passes, the lower rate loses what it has beyond that.
        let passes = (MILLION - rest) * UNITY / DOWN_GAIN;
        let policed_share = MILLION.saturating_sub(passes);
        let apart = (rest - policed_share) * (rest - policed_share) / 1000;
        if policed.stretches < enough
            || policed.packets * apart < APART * rest * (MILLION - rest) / 1000
        {
            return;
        }
        let share = policed.lost * MILLION / policed.packets.max(1);
        (policed.packets, policed.lost, policed.stretches) = (0, 0, 0);
        if share * 2 < rest + policed_share {
            self.rest.set(share);
            let passes = self.rest.scale_up(part(self.bandwidth, MILLION - rest));
            if self.probe.queued {
                self.bandwidth = passes;
            } else {
                self.on_policed(passes);
            }
        }
    }
}

/// So many millionths of `whole`.
fn part(whole: u64, millionths: u64) -> u64 {
    (u128::from(whole) * u128::from(millionths) / u128::from(MILLION)) as u64
}
