//! A TCP's window (RFC 5681); only its growth and its reduction at a loss differ from law to law.
//! Reported arrivals count as acknowledged, reported missing packets as lost. A window is reduced
//! once per flight (RFC 6675 §5).
//!
//! The packets of a window are spread over the round trip, for a report acknowledges what a dozen
//! acknowledgements would have. What arrived and is not reported yet counts as in flight, so that
//! a little more than the window may be.

use std::time::Duration;

use super::highspeed::HighSpeed;
use super::reno::Reno;
use super::scalable::Scalable;
use super::window_growth::WindowGrowth;
use crate::config::EmulatedProtocol;
use crate::rate::{Belief, Cubic, Pacing, RateControl, Sample, burst_for};
use crate::time::Instant;
use crate::units::{Burst, Rate};

/// The round trip assumed before one was measured (RFC 6298 §2.1 assumes as much for its timer).
const ASSUMED_RTT: Duration = Duration::from_secs(1);
/// Bytes in flight as a multiple of the window: reports are an eighth of a round trip apart.
const IN_FLIGHT: f64 = 1.25;

/// A window under one of the laws.
#[derive(Debug)]
pub(super) struct TcpWindow {
    law: Box<dyn WindowGrowth>,
    packet: u32,
    pub(super) packets: f64,
    threshold: f64,
    most: f64,
    most_bytes: Option<u64>,
    rtt: Option<Duration>,
    delivered: u64,
    lost: u64,
    marked: u64,
    /// Bytes sent when the window was reduced: a loss before that is the same congestion event.
    recover: u64,
    /// In flight after the newest report.
    in_flight: u64,
}

impl TcpWindow {
    /// The window of `protocol`, in packets of `packet` bytes, at most `most_bytes`.
    pub(super) fn new(
        protocol: EmulatedProtocol,
        packet: u32,
        most_bytes: Option<u64>,
        rtt: Option<Duration>,
    ) -> Self {
        let law: Box<dyn WindowGrowth> = match protocol {
            EmulatedProtocol::RenoDelayed => Box::new(Reno::delayed()),
            EmulatedProtocol::Cubic => Box::new(Cubic::default()),
            EmulatedProtocol::HighSpeed => Box::new(HighSpeed),
            EmulatedProtocol::Scalable => Box::new(Scalable),
            _ => Box::new(Reno::counting_bytes()),
        };
        let mut window = Self {
            packets: law.first(),
            law,
            packet,
            threshold: f64::INFINITY,
            most: f64::INFINITY,
            most_bytes,
            rtt,
            delivered: 0,
            lost: 0,
            marked: 0,
            recover: 0,
            in_flight: 0,
        };
        window.on_packet_bytes(packet);
        window
    }

    fn is_slow_start(&self) -> bool {
        self.packets < self.threshold
    }

    fn bytes(&self) -> u64 {
        (self.packets * f64::from(self.packet)) as u64
    }

    /// A window that was not used does not grow (RFC 7661): in slow start it may be twice what is
    /// in flight, later it was all but full.
    fn was_used(&self, flight: u64) -> bool {
        match self.is_slow_start() {
            true => flight * 2 >= self.bytes(),
            false => flight * 8 >= self.bytes() * 7,
        }
    }

    fn on_acked(&mut self, now: Instant, acked: f64) {
        let rtt = self.rtt.unwrap_or(ASSUMED_RTT);
        self.packets = match self.is_slow_start() {
            true => (self.packets + self.law.in_slow_start(acked)).min(self.threshold),
            false => self.law.grow(now, self.packets, acked, rtt),
        }
        .min(self.most);
    }

    fn on_lost(&mut self) {
        self.packets = self.law.reduce(self.packets).max(2.0);
        self.threshold = self.packets;
    }
}

impl RateControl for TcpWindow {
    fn answers_marks(&self) -> bool {
        true
    }

    fn on_sample(&mut self, now: Instant, sample: &Sample) {
        if let Some(rtt) = sample.rtt {
            self.rtt = Some(self.rtt.map_or(rtt, |old| (old * 7 + rtt) / 8));
        }
        let acked = sample.delivered_packets.saturating_sub(self.delivered);
        self.delivered = sample.delivered_packets;
        let flight = std::mem::replace(&mut self.in_flight, sample.in_flight_bytes)
            .max(sample.in_flight_bytes + acked * u64::from(self.packet));
        let known = sample.sent_bytes.saturating_sub(sample.in_flight_bytes);
        self.recover = self.recover.min(sample.sent_bytes);
        // A mark is as good as a loss (RFC 3168 §6.1.2).
        if sample.lost_packets > self.lost || sample.marked_packets > self.marked {
            (self.lost, self.marked) = (sample.lost_packets, sample.marked_packets);
            if known > self.recover {
                self.recover = sample.sent_bytes;
                self.on_lost();
                return;
            }
        }
        if acked > 0 && known > self.recover && self.was_used(flight) {
            self.on_acked(now, acked as f64);
        }
    }

    /// As after the retransmission timer (RFC 5681 §3.1).
    fn on_silence(&mut self, _now: Instant) {
        self.threshold = (self.packets / 2.0).max(2.0);
        self.packets = 1.0;
    }

    fn on_offer(&mut self, _now: Instant, _offer: Burst) {}

    /// As Linux does, which finds larger packets by RFC 4821 and keeps the window's bytes.
    fn on_packet_bytes(&mut self, bytes: u32) {
        let before = f64::from(std::mem::replace(&mut self.packet, bytes.max(1)));
        let packet = f64::from(self.packet);
        if self.delivered > 0 && packet != before {
            self.packets = (self.packets * before / packet).max(1.0);
            self.threshold *= before / packet;
            self.law.resize(packet / before);
            self.recover = u64::MAX;
        }
        self.most = self.most_bytes.map_or(f64::INFINITY, |most| (most as f64 / packet).max(1.0));
        self.packets = self.packets.min(self.most);
    }

    fn pacing(&self) -> Pacing {
        let rtt = self.rtt.unwrap_or(ASSUMED_RTT).max(Duration::from_micros(1));
        let burst = burst_for(Rate::over(self.bytes(), rtt), self.packet);
        let cap = (self.bytes() as f64 * IN_FLIGHT) as u64;
        Pacing { cap_bytes: Some(cap.max(1)), ..Pacing::of(burst) }
    }

    fn belief(&self) -> Belief {
        Belief { phase: self.law.name(), ..Belief::default() }
    }

    fn charges_bytes(&self) -> bool {
        true
    }
}
