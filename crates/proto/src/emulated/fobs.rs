//! FOBS: a table of rates by the state of the network, looked at after every segment; chunks, of
//! which new data go first; and repetitions while it waits.
//!
//! Sources: the review; P. Dickens, "FOBS: A Lightweight Communication Protocol for Grid Computing"
//! (Euro-Par 2003). Its table was not published: ours has tenths of the first rate.

use std::time::Duration;

use super::bitmaps::Bitmaps;
use crate::rate::{Belief, Pacing, RateControl, Sample};
use crate::time::Instant;
use crate::units::{Burst, Rate};

/// "After a segment of data(about 10000 1466-byte packets) has been transferred, the sender
/// requests an update from the receiver" (review §3.2).
pub(super) const SEGMENT_PACKETS: u32 = 10_000;
/// "The receiver read all 71527 packets in the first chunk" (review §6): 100 MiB of 1,466 bytes.
const CHUNK_PACKETS: u64 = 71_527;
/// "FOBS checks the sending rate after a burst of packets(25)" (review §3.2).
const BURST_PACKETS: u32 = 25;
/// "The default tolerated loss rate is 1%" (review §3.2).
const TOLERATED: f64 = 0.01;
/// States of the network, and rates in the table.
const STATES: u64 = 10;
/// The table's highest rate, as a percentage of the slower card's speed: an assumption. "FOBS asks
/// for the local and remote network interface card speed which it uses to determine a maximum
/// beginning rate" (review §3.2). With cards of 100 Mbit/s and no loss it reached 80.8 with the
/// waits between its chunks (review §4.3.1).
const TOP_PERCENT: u64 = 85;
/// The default speed of the slower card.
const DEFAULT_CARD: Rate = Rate::from_bits_per_second(1_000_000_000);

/// Buffers in a chunk.
pub(super) fn chunk_buffers(packets_per_buffer: u32) -> u64 {
    let packets = u64::from(packets_per_buffer.max(1));
    ((CHUNK_PACKETS + packets / 2) / packets).max(1)
}

/// The rate law.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fobs {
    top: Rate,
    packet: u32,
    /// From 1 to [`STATES`].
    state: u64,
    /// When the segment began, and what was delivered and lost by then.
    segment: Option<(Instant, u64, u64)>,
}

impl Fobs {
    /// `card` is the speed of the slower network card.
    pub(super) fn new(card: Option<Rate>, packet: u32) -> Self {
        let top = card.unwrap_or(DEFAULT_CARD).scaled(TOP_PERCENT, 100);
        Self { top, packet, state: STATES, segment: None }
    }

    fn rate(&self, state: u64) -> Rate {
        self.top.scaled(state, STATES)
    }

    /// A segment is over: `arrived` of its packets arrived in `time`, and `lost` were lost.
    fn on_segment(&mut self, time: Duration, arrived: u64, lost: u64) {
        let all = (arrived + lost).max(1);
        if lost as f64 <= all as f64 * TOLERATED {
            self.state = (self.state + 1).min(STATES);
            return;
        }
        // "The reported packet loss from the receiver is used then to calculate the current
        // bandwidth. The current bandwidth is compared against the pre-calculated table values to
        // determine the current state of the network and pull a corresponding rate from the table"
        // (review §3.2).
        let bandwidth = Rate::over(arrived * u64::from(self.packet), time);
        let fits = (1..=self.state).rev().find(|state| self.rate(*state) <= bandwidth);
        self.state = fits.unwrap_or(1);
    }
}

impl RateControl for Fobs {
    fn on_sample(&mut self, now: Instant, sample: &Sample) {
        let (arrived, lost) = (sample.delivered_packets, sample.lost_packets);
        let (began, arrived_before, lost_before) =
            *self.segment.get_or_insert((now, arrived, lost));
        let (new, gone) = (arrived - arrived_before, lost - lost_before);
        if new + gone >= u64::from(SEGMENT_PACKETS) {
            self.segment = Some((now, arrived, lost));
            self.on_segment(now.since(began), new, gone);
        }
    }

    fn on_silence(&mut self, _now: Instant) {}

    fn on_offer(&mut self, _now: Instant, _offer: Burst) {}

    fn on_packet_bytes(&mut self, bytes: u32) {
        self.packet = bytes.max(1);
    }

    fn pacing(&self) -> Pacing {
        let bytes = u64::from(BURST_PACKETS) * u64::from(self.packet);
        let interval = self.rate(self.state).time_for(bytes);
        Pacing::of(Burst { packets: BURST_PACKETS, interval })
    }

    fn belief(&self) -> Belief {
        Belief { phase: "fobs", ..Belief::default() }
    }
}

/// Missing packets of a chunk are requested when all of it was sent (review §6).
pub(super) fn recovery(packets_per_buffer: u32) -> Bitmaps {
    Bitmaps::new(Some(chunk_buffers(packets_per_buffer)))
}
