//! FEC at the sender: how many repair packets, of which buffers, and when (`docs/protocol
//! §6.10`).
//!
//! They are sent in the sender's one order, behind the last packet of their buffer, and count as
//! data for pacing and caps.

use std::time::Duration;

use super::Sender;
use super::scheduler::{DataPacket, UNCONFIRMED_TRIPS};
use crate::fec::FecPolicy;
use crate::time::{Instant, nanos};
use crate::trace::TraceEvent;
use crate::units::BufferNumber;

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

/// Decides when to plan repair packets, and the loss to expect.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FecPlanner {
    /// A packet left or arrived since the last plan.
    changed: bool,
    /// Packets found missing, and packets that arrived.
    lost: u64,
    delivered: u64,
}

impl FecPlanner {
    /// The data to send changed.
    pub(super) fn on_change(&mut self) {
        self.changed = true;
    }

    /// A report came.
    pub(super) fn on_report(&mut self, lost: u64, delivered: u64) {
        (self.lost, self.delivered) = (lost, delivered);
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

impl Sender {
    /// A packet of data left.
    pub(super) fn note_repairable(
        &mut self,
        now: Instant,
        number: BufferNumber,
        piece: &DataPacket,
    ) {
        let relevant = piece.resend || piece.last_of_buffer || piece.index.0 == 0;
        if self.negotiated.repair == FecPolicy::Never || !relevant {
            return;
        }
        self.fec_planner.on_change();
        if !self.scheduler.note_left(now, number, piece) {
            return;
        }
        let packets = match self.negotiated.repair {
            FecPolicy::Share(share) => share.of(self.scheduler.packets_of(number)),
            _ => self.repairs_ahead(now, number),
        };
        if packets > 0 {
            self.make_repairs(now, number, packets);
        }
    }

    /// How many repair packets leave behind the first pass of `number`, because all other data will
    /// have left before a request can arrive. At the end they would be about as many, but coding
    /// and decoding would delay the end. On a path without loss so far, the end shows better
    /// whether any are needed.
    fn repairs_ahead(&mut self, now: Instant, number: BufferNumber) -> u32 {
        let left = self.scheduler.left().filter(|(buffers, _)| *buffers > 0);
        let (Some((buffers, rest)), Some(rtt)) = (left, self.rtt.smoothed()) else { return 0 };
        let packets = self.scheduler.packets_of(number);
        let loss = self.fec_planner.loss();
        let all = (buffers + 1).saturating_mul(enough(f64::from(packets) * loss));
        let lossy = self.fec_planner.lost > 0 && self.may_repair();
        let soon = lossy && self.time_for(rest) <= rtt * UNCONFIRMED_TRIPS.0 / UNCONFIRMED_TRIPS.1;
        let soon = soon && self.codes_in_passing(packets, f64::from(packets) * loss);
        if !soon || !self.is_worth(loss, rest + u64::from(packets), all) {
            return 0;
        }
        match self.scheduler.unconfirmed(now, number, Some(rtt), self.most_coded()) {
            0 => 0,
            fresh => enough(f64::from(fresh) * loss),
        }
    }

    fn make_repairs(&mut self, now: Instant, number: BufferNumber, count: u32) {
        let packets = u64::from(self.scheduler.repair(now, number, count));
        let number = number.0;
        self.records.trace.note(now, || TraceEvent::Repair { number, packets });
    }

    /// At the end of the data: decides whether repair packets are worth their time. Their number
    /// depends on the packets that may be lost without the sender knowing.
    pub(super) fn plan_repairs(&mut self, now: Instant) {
        if self.is_fully_paused() {
            return;
        }
        let changed = std::mem::take(&mut self.fec_planner.changed) && self.may_repair();
        if !changed || !self.scheduler.is_sent() || self.scheduler.due().is_some() {
            return;
        }
        let loss = self.fec_planner.loss();
        let rtt = self.rtt.smoothed();
        let most = self.most_coded();
        let mut unconfirmed = 0;
        let mut wanted = Vec::new();
        for (number, packets) in self.scheduler.all_unconfirmed(now, rtt, most) {
            unconfirmed += u64::from(packets);
            wanted.push((number, enough(f64::from(packets) * loss)));
        }
        let repairs: u32 = wanted.iter().map(|(_, count)| *count).sum();
        if self.is_worth(loss, unconfirmed, repairs) {
            for (number, count) in wanted {
                self.make_repairs(now, number, count);
            }
        }
    }

    fn may_repair(&self) -> bool {
        let auto = self.negotiated.repair == FecPolicy::Auto && self.end.is_sending();
        auto && !self.is_fully_paused()
    }

    /// Data bytes of a packet beyond which repair packets would be too long.
    fn most_coded(&self) -> u32 {
        self.datagram_bytes().saturating_sub(self.negotiated.profile.data_overhead)
    }

    /// Sending time of `packets`.
    fn time_for(&self, packets: u64) -> Duration {
        let packet = u64::from(self.datagram_bytes()) + self.sampler.overhead();
        self.pacing_rate().time_for(packet * packets)
    }

    /// Whether coding and decoding a buffer of `packets`, with `mean` of them lost, does not delay
    /// other packets.
    fn codes_in_passing(&self, packets: u32, mean: f64) -> bool {
        let bytes = f64::from(packets) * f64::from(self.datagram_bytes());
        let coding = bytes * (mean * PRODUCT_NS).min(TRANSFORM_NS);
        coding * CODING_PART <= nanos(self.time_for(packets.into())) as f64
    }

    /// Whether `repairs` packets take less time than they save on average. They save a round trip
    /// if any of the `unconfirmed` packets is lost.
    fn is_worth(&self, loss: f64, unconfirmed: u64, repairs: u32) -> bool {
        let rtt = self.rtt.assumed();
        let queued = self.rate.belief().queue > rtt / QUEUE_PART;
        if rtt < LEAST_RTT || queued || !(LEAST_LOSS..=MOST_LOSS).contains(&loss) {
            return false;
        }
        let any_lost = (unconfirmed as f64 * loss).min(1.0);
        self.time_for(repairs.into()).as_secs_f64() <= rtt.as_secs_f64() * any_lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_path_is_assumed_to_lose_one_in_a_hundred() {
        let mut repairing = FecPlanner::default();
        assert!((repairing.loss() - 0.01).abs() < 1e-9);
        repairing.on_report(0, 10_000);
        assert!(repairing.loss() < LEAST_LOSS, "it is sound");
        repairing.on_report(70, 6930);
        assert!((0.0123..0.0125).contains(&repairing.loss()), "1 % and its doubt");
    }

    #[test]
    fn repair_packets_cover_three_deviations() {
        let counts = [0.001, 0.03, 1.0, 7.4, 100.0].map(enough);
        assert_eq!(counts, [2, 2, 6, 18, 132]);
    }
}
