//! SABUL: an inter-packet delay that a timer of 200 ms adjusts, and losses reported at once and
//! again.
//!
//! Sources: the review, and SABUL's own (University of Illinois, sender.cpp of March 2003 and
//! recver.cpp of January 2003), where the law that the review describes stands beside the one that
//! was about to follow it.

use std::time::Duration;

use super::micros;
use super::nak_reports::NakReports;
use crate::rate::{Belief, Pacing, RateControl, Sample};
use crate::time::Instant;
use crate::units::Burst;

/// "The receiver generates a SYN packet based on a timed interval(200ms)" (review §3.2). Here the
/// sender keeps that clock: it decides nothing but when the law runs.
pub(super) const SYN: Duration = Duration::from_millis(200);
/// "a preset IPD (inter-packet delay) of 10 usec" (review §3.2).
pub(super) const FIRST_DELAY_US: f64 = 10.0;
/// "keep the delay between blocks/packets between an upper and lower limit" (review §3.2):
/// sender.cpp, `m_dUpperLimit` 10 and `m_dLowerLimit` 1000, of the rate.
pub(super) const DELAY_BOUNDS_US: (f64, f64) = (10.0, 1000.0);
/// "a preset limit(.001)" (review §3.2).
const LIMIT: f64 = 0.001;
/// "a weighted moving average formula to give a history-rate" (review §3.2): `m_dWeight` 0.1, the
/// weight of what was.
const WEIGHT: f64 = 0.1;
/// "a tabulation of lost packets is also sent every 20ms" (review §6).
const TABULATION: Duration = Duration::from_millis(20);

/// How often a loss is reported: at once, and in the next tabulation. Over SABUL's TCP both reached
/// the sender together, which sent the packet once and counted it twice; here it is reported once,
/// and counted twice.
const REPORTS_PER_LOSS: u64 = 2;

/// The rate law.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sabul {
    packet: u32,
    delay_us: f64,
    history: f64,
    /// Since the last SYN: packets sent, resends too, and losses reported.
    sent: u64,
    lost: u64,
    /// When the next SYN is due; none before anything was sent.
    syn: Option<Instant>,
}

impl Sabul {
    pub(super) fn new(packet: u32) -> Self {
        Self {
            packet: packet.max(1),
            delay_us: FIRST_DELAY_US,
            history: 0.0,
            sent: 0,
            lost: 0,
            syn: None,
        }
    }

    /// The SYN: "uses both the number of lost packets and the number of packets--including
    /// retransmits--sent since the last SYN time" (review §3.2).
    fn on_syn(&mut self) {
        let (sent, lost) = (std::mem::take(&mut self.sent), std::mem::take(&mut self.lost));
        if sent == 0 && lost == 0 {
            return;
        }
        // "If the tabulation of losses for the last period is greater than the number of packets
        // sent during the same period, the sender solves the problem by assuming 100% loss"
        // (review §6).
        let rate = lost as f64 / sent.max(lost) as f64;
        self.history = self.history * WEIGHT + rate * (1.0 - WEIGHT);
        let over = self.history - LIMIT;
        // "If the history-rate is greater then a preset limit(.001), the IPD is increased; if less
        // than the limit, the IPD is decreased; if equal, .1 is added" (review §3.2). By how much:
        // rateControl() in sender.cpp.
        self.delay_us = if over > 0.0 {
            self.delay_us * (1.0 + 0.1 * over) + 0.5
        } else if over < 0.0 {
            self.delay_us * (1.0 + 10.0 * over)
        } else {
            self.delay_us + 0.1
        };
        self.delay_us = self.delay_us.clamp(DELAY_BOUNDS_US.0, DELAY_BOUNDS_US.1);
    }
}

impl RateControl for Sabul {
    fn on_sample(&mut self, _now: Instant, _sample: &Sample) {}

    fn on_silence(&mut self, _now: Instant) {}

    fn on_offer(&mut self, _now: Instant, _offer: Burst) {}

    /// SABUL's never change: the delay stays as many bytes a second.
    fn on_packet_bytes(&mut self, bytes: u32) {
        let before = std::mem::replace(&mut self.packet, bytes.max(1));
        if self.syn.is_some() {
            let delay = self.delay_us * f64::from(self.packet) / f64::from(before);
            self.delay_us = delay.clamp(DELAY_BOUNDS_US.0, DELAY_BOUNDS_US.1);
        }
    }

    /// "SABUL is the only one of the three to implement the IPD(inter-packet delay) between
    /// individual packets" (review §3.2).
    fn pacing(&self) -> Pacing {
        Pacing::of(Burst { packets: 1, interval: micros(self.delay_us) })
    }

    fn belief(&self) -> Belief {
        Belief { phase: "sabul", ..Belief::default() }
    }

    fn on_data_sent(&mut self, now: Instant, packets: u32) {
        self.sent += u64::from(packets);
        self.syn.get_or_insert(now + SYN);
    }

    /// "The same loss may be reported more than once and the sender will count it again"
    /// (review §6).
    fn on_resend(&mut self, _now: Instant, packets: u64) {
        self.lost += packets * REPORTS_PER_LOSS;
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.syn
    }

    fn on_timeout(&mut self, now: Instant) {
        self.on_syn();
        self.syn = Some(now + SYN);
    }
}

/// "The SABUL client reports any missing packets immediately as well as periodically every 20ms"
/// (review §6): a loss reported less than a round trip ago is left out of a tabulation
/// (`getLossArray` with `m_iRTT` in recver.cpp, which was measured with TCP's handshake in it).
pub(super) fn recovery() -> NakReports {
    NakReports::every(TABULATION).patient()
}
