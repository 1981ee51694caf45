//! CUBIC (RFC 9438), whose curve the adaptive law follows, too (`rate/cubic.rs`).

use std::time::Duration;

use super::window_growth::WindowGrowth;
use crate::rate::Cubic;
use crate::time::Instant;

impl WindowGrowth for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    /// RFC 6928.
    fn first(&self) -> f64 {
        10.0
    }

    fn grow(&mut self, now: Instant, window: f64, acked: f64, rtt: Duration) -> f64 {
        self.grow(now, window, acked, rtt)
    }

    fn reduce(&mut self, window: f64) -> f64 {
        self.reduce(window)
    }

    fn resize(&mut self, times: f64) {
        self.resize(times);
    }
}
