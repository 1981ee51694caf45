//! RBUDP, of QUANTA: a blast at a stated rate, then a bitmap of what is missing, then that, until
//! nothing is.
//!
//! Source: E. He, J. Leigh, O. Yu, T. DeFanti, "Reliable Blast UDP: Predictable High Performance
//! Bulk Data Transfer" (IEEE Cluster 2002); the review.

use super::bitmaps::Bitmaps;
use crate::rate::{Belief, Pacing, RateControl, Sample, burst_for};
use crate::time::Instant;
use crate::units::{Burst, Rate};

/// The default rate: the network of its time.
const DEFAULT_RATE: Rate = Rate::from_bits_per_second(1_000_000_000);

/// The rate law: none. "QUANTA, as shipped, does not adjust the rate even if there are losses!"
/// (review §4.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Rbudp {
    rate: Rate,
    packet: u32,
}

impl Rbudp {
    /// Everything is sent at the rate that the user states (paper).
    pub(super) fn new(rate: Option<Rate>, packet: u32) -> Self {
        Self { rate: rate.unwrap_or(DEFAULT_RATE), packet }
    }
}

impl RateControl for Rbudp {
    fn on_sample(&mut self, _now: Instant, _sample: &Sample) {}

    fn on_silence(&mut self, _now: Instant) {}

    fn on_offer(&mut self, _now: Instant, _offer: Burst) {}

    fn on_packet_bytes(&mut self, bytes: u32) {
        self.packet = bytes.max(1);
    }

    fn pacing(&self) -> Pacing {
        Pacing::of(burst_for(self.rate, self.packet))
    }

    fn belief(&self) -> Belief {
        Belief { phase: "rbudp", ..Belief::default() }
    }
}

/// When all was sent the sender sends DONE, and the receiver answers with a bitmap of its packets
/// (paper). Here a NULL-ACK without anything left to send takes the place of DONE.
pub(super) fn recovery() -> Bitmaps {
    Bitmaps::new(None)
}
