//! FEC at the sender: how many repair packets, of which buffers, and when (`docs/protocol
//! §6.10`).
//!
//! Inputs: packets that leave, the counts of lost and delivered packets, and the state of the path.
//! Outputs: numbers of repair packets for the scheduler's queue. They are sent in the sender's one
//! order, behind the last packet of their buffer, and count as data for pacing and caps.

use std::time::Duration;

use super::scheduler::{DataPacket, Scheduler, UNCONFIRMED_TRIPS};
use crate::fec::FecPolicy;
use crate::time::{Instant, nanos};
use crate::units::{BufferNumber, Rate};

/// Assumed loss before reports: one packet in this many, negligible once many more are reported.
const ASSUMED_PACKETS: u64 = 100;
/// Below this share of loss nothing is spent: one in 2,000.
const LEAST_LOSS: f64 = 0.0005;
/// Above this loss share more packets would make things worse.
const MOST_LOSS: f64 = 0.25;
/// Nanoseconds of coding per byte of a buffer on a slow machine: for each repair packet, and at
/// most for transforms (`docs/decisions/repair.md`).
const PRODUCT_NS: f64 = 0.25;
const TRANSFORM_NS: f64 = 1.5;
/// Coding a buffer may take one part in this many of its sending time.
const CODING_PART: f64 = 4.0;
/// A round trip that is shorter is not worth it.
const LEAST_RTT: Duration = Duration::from_millis(5);
/// A queue of more than this part of the round trip is not made longer.
const QUEUE_PART: u32 = 4;

/// The path, as far as repair packets depend on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathState {
    /// The round trip, if one was measured, and the assumed one.
    pub(super) rtt: Option<Duration>,
    pub(super) assumed_rtt: Duration,
    /// The queue on the path, in time.
    pub(super) queue: Duration,
    /// The sending rate.
    pub(super) rate: Rate,
    /// Bytes of a full packet: of IP, of its datagram, and of its data.
    pub(super) packet_bytes: u64,
    pub(super) datagram_bytes: u32,
    pub(super) data_bytes: u32,
    /// Data flow, and the client does not pause.
    pub(super) may_repair: bool,
}

impl PathState {
    /// Sending time of `packets`.
    fn time_for(&self, packets: u64) -> Duration {
        self.rate.time_for(self.packet_bytes * packets)
    }

    /// Whether coding and decoding a buffer of `packets`, with `mean` of them lost, does not delay
    /// other packets.
    fn codes_in_passing(&self, packets: u32, mean: f64) -> bool {
        let bytes = f64::from(packets) * f64::from(self.datagram_bytes);
        let coding = bytes * (mean * PRODUCT_NS).min(TRANSFORM_NS);
        coding * CODING_PART <= nanos(self.time_for(packets.into())) as f64
    }

    /// Whether `repairs` packets take less time than they save on average. They save a round trip
    /// if any of the `unconfirmed` packets is lost.
    fn is_worth(&self, loss: f64, unconfirmed: u64, repairs: u32) -> bool {
        let rtt = self.assumed_rtt;
        let queued = self.queue > rtt / QUEUE_PART;
        if rtt < LEAST_RTT || queued || !(LEAST_LOSS..=MOST_LOSS).contains(&loss) {
            return false;
        }
        let any_lost = (unconfirmed as f64 * loss).min(1.0);
        self.time_for(repairs.into()).as_secs_f64() <= rtt.as_secs_f64() * any_lost
    }
}

/// Decides when to plan repair packets, and the loss to expect.
#[derive(Clone, Copy, Debug)]
pub(super) struct FecPlanner {
    policy: FecPolicy,
    /// A packet left or arrived since the last plan.
    changed: bool,
    /// Packets found missing, and packets that arrived.
    lost: u64,
    delivered: u64,
}

impl FecPlanner {
    pub(super) fn new(policy: FecPolicy) -> Self {
        Self { policy, changed: false, lost: 0, delivered: 0 }
    }

    /// The data to send changed.
    pub(super) fn on_change(&mut self) {
        self.changed = true;
    }

    /// A sample came.
    pub(super) fn on_sample(&mut self, lost: u64, delivered: u64) {
        (self.lost, self.delivered) = (lost, delivered);
    }

    /// The packet leaves. Returns whether it matters for repair packets.
    pub(super) fn on_left(&mut self, piece: &DataPacket) -> bool {
        let relevant = piece.resend || piece.last_of_buffer || piece.index.0 == 0;
        let relevant = relevant && self.policy != FecPolicy::Never;
        self.changed |= relevant;
        relevant
    }

    /// How many repair packets leave behind the first pass of `number`, which is over now.
    pub(super) fn behind(
        &self,
        now: Instant,
        number: BufferNumber,
        scheduler: &mut Scheduler,
        path: &PathState,
    ) -> u32 {
        match self.policy {
            FecPolicy::Share(share) => share.of(scheduler.packets_of(number)),
            FecPolicy::Auto if path.may_repair => self.ahead(now, number, scheduler, path),
            FecPolicy::Auto | FecPolicy::Never => 0,
        }
    }

    /// How many repair packets leave behind the first pass of `number`, because all other data will
    /// have left before a request can arrive. At the end they would be about as many, but coding
    /// and decoding would delay the end. On a path without loss so far, the end shows better
    /// whether any are needed.
    fn ahead(
        &self,
        now: Instant,
        number: BufferNumber,
        scheduler: &mut Scheduler,
        path: &PathState,
    ) -> u32 {
        let left = scheduler.left().filter(|(buffers, _)| *buffers > 0);
        let (Some((buffers, rest)), Some(rtt)) = (left, path.rtt) else { return 0 };
        let packets = scheduler.packets_of(number);
        let loss = self.loss();
        let all = (buffers + 1).saturating_mul(enough(f64::from(packets) * loss));
        let soon =
            self.lost > 0 && path.time_for(rest) <= rtt * UNCONFIRMED_TRIPS.0 / UNCONFIRMED_TRIPS.1;
        let soon = soon && path.codes_in_passing(packets, f64::from(packets) * loss);
        if !soon || !path.is_worth(loss, rest + u64::from(packets), all) {
            return 0;
        }
        match scheduler.unconfirmed(now, number, Some(rtt), path.data_bytes) {
            0 => 0,
            fresh => enough(f64::from(fresh) * loss),
        }
    }

    /// Whether to plan: the data to send changed since the last plan.
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.changed) && self.policy == FecPolicy::Auto
    }

    /// At the end of the data: how many repair packets of which buffers leave, if they are worth
    /// their time. Their number depends on the packets that may be lost without the sender knowing.
    pub(super) fn at_the_end(
        &self,
        now: Instant,
        scheduler: &mut Scheduler,
        path: &PathState,
    ) -> Vec<(BufferNumber, u32)> {
        let loss = self.loss();
        let mut unconfirmed = 0;
        let mut wanted = Vec::new();
        for (number, packets) in scheduler.all_unconfirmed(now, path.rtt, path.data_bytes) {
            unconfirmed += u64::from(packets);
            wanted.push((number, enough(f64::from(packets) * loss)));
        }
        let repairs: u32 = wanted.iter().map(|(_, count)| *count).sum();
        if !path.is_worth(loss, unconfirmed, repairs) {
            wanted.clear();
        }
        wanted
    }

    /// The share of packets that may well be lost: what was seen and twice its deviation.
    fn loss(&self) -> f64 {
        let lost = self.lost as f64;
        let counted = (self.lost + self.delivered + ASSUMED_PACKETS) as f64;
        (lost + 2.0 * lost.sqrt() + 1.0) / counted
    }
}

/// Repair packets for a buffer that loses `mean` packets on average: three standard deviations
/// more, and a margin for small numbers.
fn enough(mean: f64) -> u32 {
    let spare = if mean < 0.1 { 1.0 } else { 2.0 };
    ((mean + 3.0 * mean.sqrt()).ceil() + spare) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_path_is_assumed_to_lose_one_in_a_hundred() {
        let mut repairing = FecPlanner::new(FecPolicy::Auto);
        assert!((repairing.loss() - 0.01).abs() < 1e-9);
        repairing.on_sample(0, 10_000);
        assert!(repairing.loss() < LEAST_LOSS, "it is sound");
        repairing.on_sample(70, 6930);
        assert!((0.0123..0.0125).contains(&repairing.loss()), "1 % and its doubt");
    }

    #[test]
    fn repair_packets_cover_three_deviations() {
        let counts = [0.001, 0.03, 1.0, 7.4, 100.0].map(enough);
        assert_eq!(counts, [2, 2, 6, 18, 132]);
    }

    #[test]
    fn repair_packets_must_take_less_time_than_a_round_trip_that_they_save() {
        let path = PathState {
            rtt: Some(Duration::from_millis(100)),
            assumed_rtt: Duration::from_millis(100),
            queue: Duration::ZERO,
            rate: Rate::from_bytes_per_second(1_000_000),
            packet_bytes: 1000,
            datagram_bytes: 972,
            data_bytes: 940,
            may_repair: true,
        };
        // A millisecond each; one of 100 packets is lost on average.
        assert!(path.is_worth(0.01, 100, 100) && !path.is_worth(0.01, 100, 101));
        assert!(!path.is_worth(0.01, 10, 100), "hardly any is lost");
        let queued = PathState { queue: Duration::from_millis(26), ..path };
        assert!(!queued.is_worth(0.01, 100, 1), "a queue is not made longer");
        assert!(!path.is_worth(0.3, 100, 1) && !path.is_worth(0.0001, 100, 1));
    }

    #[test]
    fn only_packets_that_matter_make_a_plan() {
        let piece = |index, resend| DataPacket {
            index: crate::units::PacketIndex(index),
            range: 0..10,
            last_of_buffer: index == 9,
            last_buffer: false,
            resend,
        };
        for (policy, plans) in [(FecPolicy::Auto, true), (FecPolicy::Never, false)] {
            let mut planner = FecPlanner::new(policy);
            assert!(!planner.on_left(&piece(3, false)) && !planner.take_change());
            for piece in [piece(0, false), piece(9, false), piece(3, true)] {
                assert_eq!((planner.on_left(&piece), planner.take_change()), (plans, plans));
            }
            assert!(!planner.take_change(), "once");
        }
    }
}
