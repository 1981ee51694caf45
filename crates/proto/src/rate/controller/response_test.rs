//! The response test: does the loss share fall when this sender sends less?
//!
//! Blocks of two round trips alternate in random order between the whole rate and half of it. If
//! this sender's own traffic makes the loss, less of it is lost at half the rate. The test is one
//! of equivalence: doubt counts as congestion (`docs/design/rate-control.md §4`).

use std::collections::VecDeque;
use std::time::Duration;

use crate::rate::Sample;

/// Round trips in a block.
const BLOCK_ROUNDS: u64 = 2;
/// The part by which a low block sends less.
const REDUCTION: f64 = 0.5;
/// One-sided 1 % point of the normal distribution.
const Z_ERROR: f64 = 2.33;
/// The sum of that and of its 90 % point: the error and the power of the test.
const Z_SUM: f64 = 3.61;
/// A block's packets count only if there are this many of each kind.
const LEAST_PACKETS: f64 = 40.0;
/// A test takes no more round trips than this, or time if it is made against a large share.
/// Among many a long test would only find the one that may take most.
const MAX_ROUNDS: u64 = 64;
const MAX_TIME: Duration = Duration::from_secs(10);
const LARGE_SHARE: f64 = 0.25;
/// A test may begin with so many times fewer packets than its power asks for. It then passes less
/// often; its error is the same.
const LESS_POWER: f64 = 3.0;
/// No loss share below this is tested for.
const LEAST_LOSS: f64 = 0.002;
/// The loss may exceed the one that began the test by this much, and by what chance explains.
const MOST_EXCESS: f64 = 0.1;

/// The effect on the loss share `p` if a sender with `share` of the bottleneck sends half.
fn effect(p: f64, share: f64) -> f64 {
    ((1.0 - p) * share * REDUCTION / (1.0 - share * REDUCTION)).min(p)
}

/// Packets that each kind of block needs at a loss share of `p` and the given dispersion of losses
/// to show the effect of a sender that has `share` of the bottleneck.
fn packets_needed(p: f64, share: f64, dispersion: f64) -> f64 {
    let p = p.clamp(LEAST_LOSS, 0.95);
    let ratio = Z_SUM / effect(p, share);
    2.0 * p * (1.0 - p) * ratio * ratio * dispersion
}

/// The most round trips of a test against `share` where one takes `rtt`.
pub(super) fn most_rounds(share: f64, rtt: Duration) -> u64 {
    if share < LARGE_SHARE {
        return MAX_ROUNDS;
    }
    let rounds = MAX_TIME.as_nanos() / rtt.as_nanos().max(1);
    u64::try_from(rounds).unwrap_or(u64::MAX).max(MAX_ROUNDS)
}

/// Whether a test of so many round trips can be over in time for a sender of `packets_per_round`.
pub(super) fn fits(
    p: f64,
    share: f64,
    dispersion: f64,
    (rounds, packets_per_round): (u64, f64),
) -> bool {
    // Half of the blocks are low ones, and they send half.
    let packets = packets_per_round * 0.25 * rounds as f64;
    packets_needed(p, share, dispersion) <= packets * LESS_POWER
}

/// If no more than this loss share is left, it is over.
const LEAST_LEFT: f64 = 0.005;

/// How a test stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TestVerdict {
    Open,
    /// The loss share does not depend on this sender; it is this.
    Passed(f64),
    /// It depends on it, as far as the packets tell.
    Failed,
    /// There were too few packets to tell.
    Undecided,
    /// The loss is over.
    Over,
}

/// A test that is over, for a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TestRecord {
    /// How it ended: `passed` (the loss is excused), `failed`, `undecided`, `over` (little was lost
    /// any more), `marked`, `silence`.
    pub verdict: &'static str,
    /// The part of the bottleneck that it was made against, from 0 to 1.
    pub share: f64,
    /// Packets that were sent at the whole rate, and how many of these were lost.
    pub whole: (u64, u64),
    /// Packets that were sent at half the rate, and how many of these were lost.
    pub half: (u64, u64),
    /// The difference of the two loss shares that congestion would make, from 0 to 1.
    pub limit: f64,
    /// The standard error of that difference. The test passes if the difference and 2.33 times
    /// this are less than the limit.
    pub error: f64,
}

/// Packets and losses of one kind of block.
#[derive(Clone, Copy, Debug, Default)]
struct Arm {
    packets: f64,
    lost: f64,
}

impl Arm {
    fn loss(&self) -> f64 {
        self.lost / self.packets.max(1.0)
    }

    fn counts(&self) -> (u64, u64) {
        (self.packets as u64, self.lost as u64)
    }
}

/// The end of a block, in bytes sent, and its kind.
#[derive(Clone, Copy, Debug)]
struct Block {
    from: u64,
    low: bool,
}

/// A test under way.
#[derive(Clone, Debug)]
pub(super) struct ResponseTest {
    /// The share of the bottleneck that is tested against.
    share: f64,
    /// The loss share that began the test.
    expected: f64,
    /// The round trip after which it is over in any case.
    until: u64,
    block_began: u64,
    dice: u64,
    /// The blocks that are sent or reported.
    blocks: VecDeque<Block>,
    /// Whether the second block of the present pair is a low one.
    second_low: bool,
    sent_blocks: u64,
    reported_blocks: u64,
    /// Highest byte reported, and packets delivered, at this report and the two before it. What is
    /// lost is known two reports after what arrived.
    reached: [(u64, u64); 3],
    counted: (u64, u64),
    high: Arm,
    low: Arm,
}

impl ResponseTest {
    /// A test that begins at `sample`, against `share` of the bottleneck at a loss share of `p`. It
    /// takes `rounds` round trips at most.
    pub(super) fn new(sample: &Sample, share: f64, p: f64, rounds: u64) -> Self {
        let mut test = Self {
            share,
            expected: p,
            until: sample.round.saturating_add(rounds),
            block_began: sample.round,
            dice: sample.sent_bytes ^ 0x9e37_79b9_7f4a_7c15,
            blocks: VecDeque::new(),
            second_low: false,
            sent_blocks: 0,
            reported_blocks: 0,
            reached: [(0, sample.delivered_packets); 3],
            counted: (sample.delivered_packets, sample.lost_packets),
            high: Arm::default(),
            low: Arm::default(),
        };
        test.begin_block(sample.sent_bytes);
        test
    }

    /// Whether half of the rate is to be sent now.
    pub(super) fn is_low(&self) -> bool {
        self.blocks.back().is_some_and(|block| block.low)
    }

    /// What is traced of it when it ended so; `dispersion` is that of the losses.
    pub(super) fn record(&self, verdict: &'static str, dispersion: f64) -> TestRecord {
        TestRecord {
            verdict,
            share: self.share,
            whole: self.high.counts(),
            half: self.low.counts(),
            limit: self.limit(),
            error: self.error(dispersion),
        }
    }

    /// Loss share of all its packets.
    fn loss(&self) -> f64 {
        (self.high.lost + self.low.lost) / (self.high.packets + self.low.packets).max(1.0)
    }

    /// The difference of the loss shares from which on it is congestion.
    fn limit(&self) -> f64 {
        effect(self.high.loss().max(LEAST_LOSS), self.share)
    }

    /// Standard error of the difference.
    fn error(&self, dispersion: f64) -> f64 {
        let p = self.loss();
        let variance = (p * (1.0 - p)).max(1e-4) * dispersion;
        let packets = |arm: Arm| arm.packets.max(1.0);
        (variance * (1.0 / packets(self.high) + 1.0 / packets(self.low))).sqrt()
    }

    fn begin_block(&mut self, from: u64) {
        let low = match self.sent_blocks.is_multiple_of(2) {
            true => {
                // xorshift64: the order of each pair is by chance, so that nothing that comes and
                // goes with the same period is taken for an answer.
                self.dice ^= self.dice << 13;
                self.dice ^= self.dice >> 7;
                self.dice ^= self.dice << 17;
                self.second_low = self.dice >> 63 == 0;
                !self.second_low
            }
            false => self.second_low,
        };
        self.sent_blocks += 1;
        self.blocks.push_back(Block { from, low });
    }

    /// Takes in a report; `dispersion` is that of the losses.
    pub(super) fn on_sample(&mut self, sample: &Sample, dispersion: f64) -> TestVerdict {
        if sample.round >= self.block_began + BLOCK_ROUNDS {
            self.block_began = sample.round;
            self.begin_block(sample.sent_bytes);
        }
        let reached = sample.sent_bytes.saturating_sub(sample.in_flight_bytes);
        let from = self.reached[0].0;
        self.reached = [self.reached[1], self.reached[2], (reached, sample.delivered_packets)];
        let (position, delivered) = self.reached[0];
        let pair_ended = self.count(from, position, (delivered, sample.lost_packets));
        let late = sample.round > self.until;
        self.judge(pair_ended, late, dispersion)
    }

    /// Adds what was counted between two positions to the block in which both are. Answers whether
    /// a pair of blocks is complete.
    fn count(&mut self, from: u64, to: u64, counts: (u64, u64)) -> bool {
        let arrived = counts.0.saturating_sub(self.counted.0);
        let lost = counts.1.saturating_sub(self.counted.1);
        self.counted = (counts.0.max(self.counted.0), counts.1.max(self.counted.1));
        let mut pair_ended = false;
        while self.blocks.get(1).is_some_and(|next| next.from <= to) {
            self.blocks.pop_front();
            self.reported_blocks += 1;
            pair_ended |= self.reported_blocks.is_multiple_of(2);
        }
        if let Some(block) = self.blocks.front()
            && block.from <= from
        {
            let arm = if block.low { &mut self.low } else { &mut self.high };
            arm.packets += (arrived + lost) as f64;
            arm.lost += lost as f64;
        }
        pair_ended
    }

    fn judge(&self, pair_ended: bool, late: bool, dispersion: f64) -> TestVerdict {
        let (high, low, p) = (self.high, self.low, self.loss());
        let least = high.packets.min(low.packets);
        if least < LEAST_PACKETS || !pair_ended {
            return if late { TestVerdict::Undecided } else { TestVerdict::Open };
        }
        if p > self.expected + MOST_EXCESS + Z_ERROR * self.error(dispersion) {
            return TestVerdict::Failed;
        }
        if p < LEAST_LEFT {
            return TestVerdict::Over;
        }
        let few = least < packets_needed(p, self.share, dispersion);
        if few && !late {
            return TestVerdict::Open;
        }
        let (difference, limit) = (high.loss() - low.loss(), self.limit());
        let passes = difference + Z_ERROR * self.error(dispersion) < limit;
        match (passes, late) {
            (true, _) => TestVerdict::Passed(p),
            // Nearer to what congestion makes than to nothing.
            (false, _) if !few && difference > limit / 2.0 => TestVerdict::Failed,
            (false, true) => TestVerdict::Undecided,
            (false, false) => TestVerdict::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_needed_are_those_of_the_design() {
        let needed = |p, share| packets_needed(p, share, 1.0).round();
        assert_eq!([needed(0.01, 1.0), needed(0.01, 1.0 / 32.0)], [2580.0, 2580.0]);
        assert_eq!([needed(0.05, 0.5), needed(0.1, 0.125)], [495.0, 652.0]);
        assert_eq!(needed(0.3, 1.0), 61.0);
    }

    /// A path that loses `loss(low)` of what is sent; eight reports a round trip.
    fn verdict(packets: u64, share: f64, loss: impl Fn(bool) -> f64) -> TestVerdict {
        let mut sample = Sample { sent_bytes: 1 << 20, ..Sample::default() };
        let mut test = ResponseTest::new(&sample, share, loss(false), MAX_ROUNDS);
        // What is sent in a report's time arrives a round trip later.
        let mut flight: VecDeque<(u64, bool)> = VecDeque::new();
        let mut dice = 1_u64;
        for report in 0..(MAX_ROUNDS + 10) * 8 {
            let count = if test.is_low() { packets / 2 } else { packets };
            sample.sent_bytes += count * 1000;
            flight.push_back((count, test.is_low()));
            sample.in_flight_bytes += count * 1000;
            if flight.len() > 8
                && let Some((count, low)) = flight.pop_front()
            {
                let mut lost = 0;
                for _ in 0..count {
                    dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    lost += u64::from((dice >> 33) as f64 / 2_147_483_648.0 < loss(low));
                }
                sample.in_flight_bytes -= count * 1000;
                sample.delivered_packets += count - lost;
                sample.lost_packets += lost;
            }
            sample.round = report / 8;
            match test.on_sample(&sample, 1.0) {
                TestVerdict::Open => {}
                verdict => return verdict,
            }
        }
        TestVerdict::Open
    }

    #[test]
    fn loss_that_does_not_respond_passes_and_loss_that_does_fails() {
        let passed = verdict(50, 0.5, |_| 0.05);
        assert!(
            matches!(passed, TestVerdict::Passed(p) if (0.03..0.07).contains(&p)),
            "{passed:?}"
        );
        let fails = verdict(50, 0.5, |low| if low { 0.0 } else { 0.05 });
        assert_eq!(fails, TestVerdict::Failed);
        assert_eq!(verdict(1, 0.5, |_| 0.05), TestVerdict::Undecided, "too few packets in time");
    }

    #[test]
    fn a_test_fits_only_where_packets_are_enough() {
        assert!(fits(0.05, 1.0, 1.0, (MAX_ROUNDS, 100.0)));
        assert!(!fits(0.05, 1.0 / 32.0, 1.0, (MAX_ROUNDS, 100.0)));
        assert!(!fits(0.05, 1.0, 40.0, (MAX_ROUNDS, 100.0)));
        let rounds = most_rounds(0.5, Duration::from_millis(10));
        assert_eq!((rounds, most_rounds(0.5, Duration::from_secs(1))), (1000, MAX_ROUNDS));
        assert_eq!(most_rounds(0.1, Duration::from_millis(10)), MAX_ROUNDS);
        assert!(fits(0.05, 1.0, 40.0, (rounds, 100.0)));
    }
}
