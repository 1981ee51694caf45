//! The congestion window, and the only place where it changes.
//!
//! Inputs: growth, reductions and settings, each with its [`Cause`]. Outputs: the window, its slow
//! start threshold, and the record of changes for the trace.

use std::time::Duration;

use super::cause::{Cause, Changes, WindowChange};
use crate::rate::Cubic;
use crate::time::Instant;

/// First window, in packets (RFC 9002 §7.2, RFC 6928).
pub(super) const INITIAL_WINDOW: f64 = 10.0;
/// Of larger packets it has fewer, two at least: no more bytes than of these (RFC 6928 §2 has 1,460
/// bytes of content).
const INITIAL_PACKET: f64 = 1500.0;
const LEAST_INITIAL: f64 = 2.0;
/// Least window, in packets. A window of less than a packet is a rate of less than one packet a
/// round trip: with a least window of one packet, more senders than the path and its queue hold
/// packets lose nearly half of all that they send (R. Morris, "TCP Behavior with Many Flows",
/// 1997).
const LEAST_WINDOW: f64 = 0.25;
/// Most packets in a window: 10 Tbit/s over 10 s in packets of 1,250 bytes. Arithmetic stays exact.
const MAX_WINDOW: f64 = 1e10;
/// Least slow start threshold, in packets (RFC 5681 §3.1).
const LEAST_THRESHOLD: f64 = 2.0;
/// Below this window, in packets, growth in congestion avoidance is bounded.
const SMALL_WINDOW: f64 = 4.0;
/// The most that a small window grows in a round trip, as a share of itself. RFC 9438 adds half a
/// packet a round trip, which for a window of one packet is half of it: many such senders lose a
/// third of what they send.
const SMALL_GROWTH: f64 = 1.0 / 8.0;
/// A window that is so many times as large as at the last loss was not limited by what lost there.
const BEYOND: f64 = 1.25;

/// The congestion window.
#[derive(Debug)]
pub(super) struct CongestionWindow {
    /// Bytes of the packets that it counts.
    packet_bytes: u32,
    packets: f64,
    /// The first one, of packets of an Ethernet's size at most.
    initial: f64,
    /// It was set by a saved rate or a probe, and the first one counts no more.
    jumped: bool,
    /// A congestion event has reduced it.
    reduced: bool,
    /// Slow start threshold, in packets.
    threshold: f64,
    curve: Cubic,
    /// Number of the present round trip, for the record.
    round: u64,
    changes: Changes,
}

impl CongestionWindow {
    pub(super) fn new(packet_bytes: u32) -> Self {
        let mut window = Self {
            packet_bytes: packet_bytes.max(1),
            packets: INITIAL_WINDOW,
            initial: INITIAL_WINDOW,
            jumped: false,
            reduced: false,
            threshold: f64::INFINITY,
            curve: Cubic::default(),
            round: 0,
            changes: Changes::default(),
        };
        window.begin_with(INITIAL_WINDOW);
        window
    }

    /// The first window is this, in packets of an Ethernet's size at most, unless it was set.
    pub(super) fn begin_with(&mut self, window: f64) {
        if !self.jumped {
            self.initial = window;
            let large = INITIAL_PACKET * window / f64::from(self.packet_bytes);
            self.packets = window.min(large).max(LEAST_INITIAL);
        }
    }

    /// It grows as fast as those of so many senders.
    pub(super) fn set_weight(&mut self, weight: f64) {
        self.curve = Cubic::weighted(weight);
    }

    /// What is left of it after a loss that leaves `beta` of one sender's.
    pub(super) fn after_loss(&self, beta: f64) -> f64 {
        self.curve.shared(beta)
    }

    /// Bytes of an IP packet.
    pub(super) fn packet_bytes(&self) -> u32 {
        self.packet_bytes
    }

    /// The window, in packets.
    pub(super) fn packets(&self) -> f64 {
        self.packets
    }

    /// The window, in bytes of IP packets; at least a packet may always be in flight.
    pub(super) fn bytes(&self) -> u64 {
        ((self.packets * f64::from(self.packet_bytes)) as u64).max(u64::from(self.packet_bytes))
    }

    /// Whether a congestion event ever reduced it.
    pub(super) fn was_reduced(&self) -> bool {
        self.reduced
    }

    /// Whether it doubles: it is below its threshold.
    pub(super) fn doubles(&self) -> bool {
        self.packets < self.threshold
    }

    /// Whether it has a slow start threshold.
    pub(super) fn has_threshold(&self) -> bool {
        self.threshold.is_finite()
    }

    /// Whether the window at which packets were lost last is nothing that limits it now.
    pub(super) fn is_beyond_last_loss(&self) -> bool {
        self.packets > BEYOND * self.curve.prior()
    }

    /// The number of the present round trip.
    pub(super) fn on_round(&mut self, round: u64) {
        self.round = round;
    }

    /// A saved rate or a probe sets it.
    pub(super) fn jump(&mut self, mode: &'static str, cause: Cause, window: f64) {
        self.jumped = true;
        self.set(mode, cause, window);
    }

    /// It becomes `window`, which is not on the way to any earlier one.
    pub(super) fn settle(&mut self, mode: &'static str, cause: Cause, window: f64) {
        self.curve.reset();
        self.set(mode, cause, window);
        self.threshold = self.packets.max(LEAST_THRESHOLD);
    }

    /// It may double without a bound.
    pub(super) fn forget_threshold(&mut self) {
        self.threshold = f64::INFINITY;
    }

    /// Growth of slow start: `share` of what was acknowledged, in packets.
    pub(super) fn grow_in_slow_start(&mut self, mode: &'static str, acked: f64, share: f64) {
        let window = (self.packets + acked * share).min(self.threshold);
        self.set(mode, Cause::SlowStart, window);
    }

    /// Growth of congestion avoidance over a round trip of `rtt` (RFC 9438 §4.2 to §4.5).
    pub(super) fn grow_in_avoidance(
        &mut self,
        now: Instant,
        mode: &'static str,
        acked: f64,
        rtt: Duration,
    ) {
        let before = self.packets;
        let window = self.curve.grow(now, before.max(1.0), acked, rtt);
        let most = match before < SMALL_WINDOW {
            true => before * (1.0 + SMALL_GROWTH * (acked / before).min(1.0)),
            false => f64::INFINITY,
        };
        if window > most {
            self.curve.restart();
        }
        self.set(mode, Cause::Avoidance, window.min(most).max(before));
    }

    /// Nothing grows while it is not used, and the time that passes is no time of growth (RFC 9438
    /// §5.8).
    pub(super) fn on_unused(&mut self, time: Duration) {
        self.curve.pause(time);
    }

    /// A congestion event leaves `beta` of it (RFC 9438 §4.6).
    pub(super) fn reduce(&mut self, mode: &'static str, cause: Cause, beta: f64) {
        self.reduced = true;
        let window = self.curve.reduce_to(self.packets, beta).max(LEAST_WINDOW);
        self.threshold = window.max(LEAST_THRESHOLD);
        self.set(mode, cause, window);
    }

    /// It may double again, from what it is, to find out whether the path carries more.
    pub(super) fn look(&mut self, mode: &'static str) {
        self.forget_threshold();
        self.note(mode, Cause::Look, self.packets);
    }

    /// Slow start ends at the present window.
    pub(super) fn end_slow_start(&mut self, mode: &'static str) {
        self.threshold = self.packets;
        self.note(mode, Cause::Delay, self.packets);
    }

    /// Begins again in slow start from `window`, up to `threshold`.
    pub(super) fn begin_again(
        &mut self,
        mode: &'static str,
        cause: Cause,
        window: f64,
        threshold: f64,
    ) {
        self.threshold = threshold.max(LEAST_THRESHOLD);
        self.curve.restart();
        self.set(mode, cause, window.min(self.packets));
    }

    /// Goes on from another policy's window.
    pub(super) fn take_over(&mut self, mode: &'static str, bytes: u64) {
        let window = (bytes as f64 / f64::from(self.packet_bytes)).max(LEAST_THRESHOLD);
        self.threshold = window;
        self.set(mode, Cause::Policy, window);
    }

    /// Packets have another size from now on, and it keeps its bytes; but the first one, of which
    /// nothing was `delivered`, is drawn up again. Returns how many times as large packets are, if
    /// windows changed by that.
    pub(super) fn set_packet_bytes(
        &mut self,
        mode: &'static str,
        packet_bytes: u32,
        delivered: bool,
    ) -> Option<f64> {
        let before = f64::from(std::mem::replace(&mut self.packet_bytes, packet_bytes.max(1)));
        let times = f64::from(self.packet_bytes) / before;
        if times == 1.0 {
            return None;
        }
        if !delivered && !self.jumped {
            self.begin_with(self.initial);
            return None;
        }
        self.threshold /= times;
        self.curve.resize(times);
        self.packets /= times;
        self.set(mode, Cause::PacketSize, self.packets);
        Some(times)
    }

    /// The oldest change that was not taken yet.
    pub(super) fn take_change(&mut self) -> Option<WindowChange> {
        self.changes.take()
    }

    fn set(&mut self, mode: &'static str, cause: Cause, window: f64) {
        let before = std::mem::replace(&mut self.packets, window.clamp(LEAST_WINDOW, MAX_WINDOW));
        self.note(mode, cause, before);
    }

    fn note(&mut self, mode: &'static str, cause: Cause, before: f64) {
        let bytes = |window: f64| (window * f64::from(self.packet_bytes)) as u64;
        let (from_bytes, to_bytes) = (bytes(before), bytes(self.packets));
        self.changes.add(self.round, WindowChange { from_bytes, to_bytes, cause, mode });
    }
}
