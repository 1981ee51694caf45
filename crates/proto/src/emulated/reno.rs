//! Reno's window (RFC 5681 §3.1), with acknowledged bytes counted (RFC 3465), or as Linux 2.4 had
//! it: acknowledgements counted, of which there is one for every other packet (RFC 1122 §4.2.3.2).

use std::time::Duration;

use super::window_growth::WindowGrowth;
use crate::time::Instant;

/// How a Reno counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reno {
    /// Packets to an acknowledgement that counts as one.
    packets_per_ack: f64,
    name: &'static str,
    first: f64,
}

impl Reno {
    /// A packet more for every window of bytes acknowledged, which RFC 5681 §3.1 recommends. The
    /// first window is RFC 5681's for segments of 1,096 to 2,190 bytes.
    pub(super) const fn counting_bytes() -> Self {
        Self { packets_per_ack: 1.0, name: "reno", first: 3.0 }
    }

    /// RFC 2581 with delayed acknowledgements, and its first window.
    pub(super) const fn delayed() -> Self {
        Self { packets_per_ack: 2.0, name: "reno_delayed", first: 2.0 }
    }
}

impl WindowGrowth for Reno {
    fn name(&self) -> &'static str {
        self.name
    }

    fn first(&self) -> f64 {
        self.first
    }

    /// "a TCP increments cwnd by at most SMSS bytes for each ACK received" (RFC 5681 §3.1, (2)).
    fn in_slow_start(&self, acked: f64) -> f64 {
        acked / self.packets_per_ack
    }

    /// "cwnd += SMSS*SMSS/cwnd" for each ACK (RFC 5681 §3.1, (3)).
    fn grow(&mut self, _now: Instant, window: f64, acked: f64, _rtt: Duration) -> f64 {
        window + acked / self.packets_per_ack / window
    }

    /// "ssthresh = max (FlightSize / 2, 2*SMSS)" (RFC 5681 §3.1, (4)).
    fn reduce(&mut self, window: f64) -> f64 {
        window / 2.0
    }
}
