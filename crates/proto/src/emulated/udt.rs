//! UDT: every 10 ms without loss the rate grows by what the decade of spare bandwidth says; a loss
//! makes the delay an eighth longer; and a window of what arrives in a round trip.
//!
//! Source: Y. Gu, draft-gg-udt-03 (2010), its native control algorithm; the law is the paper's (Y.
//! Gu, X. Hong, R. Grossman, "Experiences in Design and Implementation of a High Performance
//! Transport Protocol", SC 2004). The wire lacks two things. Instead of packet pairs the configured
//! rate counts, or the greatest at which a flight arrived. Instead of the packet in a NAK a round
//! trip separates one congestion event from the next.

use std::time::Duration;

use super::micros;
use super::nak_reports::NakReports;
use crate::rate::{Belief, Pacing, RateControl, Sample};
use crate::time::Instant;
use crate::units::{Burst, Rate};

/// The interval of its clock, 10 ms (draft).
pub(super) const SYN: Duration = Duration::from_millis(10);
const SYN_US: f64 = 10_000.0;
/// The first window is of 16 packets (draft).
const FIRST_WINDOW: f64 = 16.0;
/// beta (draft).
const BETA: f64 = 0.000_001_5;
/// STP = STP * 1.125 after a loss (draft).
const DECREASE: f64 = 1.125;
/// Below the rate of before the last loss no more of the link counts as spare: about what that loss
/// took (paper, *B = min(L/9, L - C)*).
const SPARE_AGAIN: f64 = 9.0;
/// Most further decreases within one congestion event (draft, DecCount).
const MAX_DECREASES: u32 = 5;
/// Weight of the old value in an average.
const AVERAGE: f64 = 0.875;

/// How many packets more a SYN: inc = max(10^(ceil(log10((B-C)*SS*8))) * Beta/SS, 1/SS) (draft),
/// with B and C in packets a second; at least that where nothing is spare.
pub(super) fn increase(capacity: f64, rate: f64, packet_bytes: f64) -> f64 {
    let least = 1.0 / packet_bytes;
    if capacity <= rate {
        return least;
    }
    let spare = (capacity - rate) * packet_bytes * 8.0;
    let mut decade = 1.0;
    while decade < spare {
        decade *= 10.0;
    }
    (decade * BETA / packet_bytes).max(least)
}

/// The rate law.
#[derive(Clone, Copy, Debug)]
pub(super) struct Udt {
    packet: u32,
    slow_start: bool,
    /// Packets that may be in flight.
    window: f64,
    /// Microseconds a packet, 0 in slow start; and what it was before a congestion began.
    delay_us: f64,
    delay_before_us: f64,
    rtt: Duration,
    /// Packets a second: those that arrive, and the most that ever did.
    arriving: f64,
    capacity: f64,
    delivered: u64,
    round: u64,
    /// The round in which the delay was made longer last; what else was since.
    decreased: Option<u64>,
    naks: u32,
    average_naks: f64,
    decreases: u32,
    /// When SYN is over, and whether a NAK came in it.
    syn: Option<Instant>,
    nak_in_syn: bool,
}

impl Udt {
    /// `link`: the capacity of the path, if configured.
    pub(super) fn new(packet: u32, rtt: Option<Duration>, link: Option<Rate>) -> Self {
        let link = link.map_or(0.0, |rate| rate.bytes_per_second() as f64);
        Self {
            packet,
            slow_start: true,
            window: FIRST_WINDOW,
            delay_us: 0.0,
            delay_before_us: 0.0,
            rtt: rtt.unwrap_or(SYN * 10),
            arriving: 0.0,
            capacity: link / f64::from(packet.max(1)),
            delivered: 0,
            round: 0,
            decreased: None,
            naks: 0,
            average_naks: 1.0,
            decreases: 0,
            syn: None,
            nak_in_syn: false,
        }
    }

    fn rtt_and_syn(&self) -> f64 {
        (self.rtt + SYN).as_nanos() as f64 / 1e9
    }

    /// The first NAK ends slow start, at the rate at which packets arrive, and changes no more; if
    /// that is not known yet, at the window's, and it counts as any other (libudt).
    fn end_slow_start(&mut self) -> bool {
        self.slow_start = false;
        let known = self.arriving > 0.0;
        self.delay_us = match known {
            true => 1e6 / self.arriving,
            false => self.rtt_and_syn() * 1e6 / self.window,
        };
        known
    }

    fn decrease(&mut self) {
        self.delay_us *= DECREASE;
        self.decreases += 1;
    }
}

impl RateControl for Udt {
    fn on_sample(&mut self, _now: Instant, sample: &Sample) {
        if let Some(rtt) = sample.rtt {
            self.rtt = (self.rtt * 7 + rtt) / 8;
        }
        self.round = sample.round;
        let acked = sample.delivered_packets - self.delivered;
        self.delivered = sample.delivered_packets;
        if let Some(rate) = sample.delivery_rate {
            let rate = rate.bytes_per_second() as f64 / f64::from(self.packet);
            self.arriving = match self.arriving > 0.0 {
                true => self.arriving * AVERAGE + rate * (1.0 - AVERAGE),
                false => rate,
            };
            self.capacity = self.capacity.max(rate);
        }
        // In slow start the window grows with what is acknowledged, then it is A * (RTT + SYN) + 16
        // (draft).
        self.window = match self.slow_start {
            true => self.window + acked as f64,
            false => self.arriving * self.rtt_and_syn() + FIRST_WINDOW,
        };
    }

    /// EXP makes what is out lost, and changes no rate.
    fn on_silence(&mut self, _now: Instant) {}

    fn on_offer(&mut self, _now: Instant, _offer: Burst) {}

    /// UDT's never change: what is counted in packets stays as many bytes.
    fn on_packet_bytes(&mut self, bytes: u32) {
        let before = std::mem::replace(&mut self.packet, bytes.max(1));
        if self.delivered > 0 {
            let times = f64::from(self.packet) / f64::from(before);
            self.delay_us *= times;
            self.delay_before_us *= times;
            self.window /= times;
            self.arriving /= times;
            self.capacity /= times;
        }
    }

    fn pacing(&self) -> Pacing {
        let cap_bytes = Some((self.window * f64::from(self.packet)) as u64);
        let burst = Burst { packets: 1, interval: micros(self.delay_us.max(1.0)) };
        Pacing { cap_bytes, ..Pacing::of(burst) }
    }

    fn belief(&self) -> Belief {
        let bandwidth =
            Rate::from_bytes_per_second((self.capacity * f64::from(self.packet)) as u64);
        let phase = if self.slow_start { "udt_slow_start" } else { "udt" };
        let bandwidth = (bandwidth > Rate::ZERO).then_some(bandwidth);
        Belief { phase, bandwidth, ..Belief::default() }
    }

    fn on_data_sent(&mut self, now: Instant, _packets: u32) {
        self.syn.get_or_insert(now + SYN);
    }

    fn on_resend(&mut self, _now: Instant, _packets: u64) {
        self.nak_in_syn = true;
        if self.slow_start && self.end_slow_start() {
            return;
        }
        // A NAK that begins another congestion makes the delay longer; within one, again after so
        // many as there were in the mean (draft).
        if self.decreased.is_none_or(|round| self.round > round + 1) {
            self.average_naks =
                self.average_naks * AVERAGE + f64::from(self.naks.max(1)) * (1.0 - AVERAGE);
            (self.naks, self.decreases, self.decreased) = (1, 0, Some(self.round));
            self.delay_before_us = self.delay_us;
            self.decrease();
            return;
        }
        self.naks += 1;
        let next = self.average_naks.max(1.0) * f64::from(self.decreases);
        if self.decreases <= MAX_DECREASES && f64::from(self.naks) >= next.max(2.0) {
            self.decrease();
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.syn
    }

    /// STP = (STP * SYN) / (STP * inc + SYN) (draft), unless there was a NAK in it.
    fn on_timeout(&mut self, now: Instant) {
        self.syn = Some(now + SYN);
        if std::mem::take(&mut self.nak_in_syn) || self.slow_start {
            return;
        }
        let rate = 1e6 / self.delay_us;
        let capacity = match self.delay_us > self.delay_before_us {
            true => self.capacity.min(rate + self.capacity / SPARE_AGAIN),
            false => self.capacity,
        };
        let inc = increase(capacity, rate, f64::from(self.packet));
        self.delay_us = self.delay_us * SYN_US / (self.delay_us * inc + SYN_US);
    }
}

/// A loss is reported at once, and again after k round trips, each time one more, by a NAK timer of
/// 4 * RTT + RTTVar + SYN (draft; its variance is left out).
pub(super) fn recovery() -> NakReports {
    NakReports::every(SYN).and_trips(4).growing(1)
}
