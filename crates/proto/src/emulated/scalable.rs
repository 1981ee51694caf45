//! Scalable TCP's window (T. Kelly, "Scalable TCP: Improving Performance in Highspeed Wide Area
//! Networks", 2003): what is added and what is taken away are both shares of it, so that it comes
//! back in the same number of round trips whatever its size.

use std::time::Duration;

use super::window_growth::WindowGrowth;
use crate::time::Instant;

/// 0.01 of a packet more for each acknowledgement, an eighth less for a loss (Kelly).
pub(super) const A: f64 = 0.01;
pub(super) const B: f64 = 0.125;
/// Below the legacy window of 16 packets the window is Reno's (Kelly).
pub(super) const LEGACY_WINDOW: f64 = 16.0;

/// No state beside the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scalable;

impl WindowGrowth for Scalable {
    fn name(&self) -> &'static str {
        "scalable"
    }

    /// RFC 5681's.
    fn first(&self) -> f64 {
        3.0
    }

    fn grow(&mut self, _now: Instant, window: f64, acked: f64, _rtt: Duration) -> f64 {
        match window <= LEGACY_WINDOW {
            true => window + acked / window,
            false => window + A * acked,
        }
    }

    fn reduce(&mut self, window: f64) -> f64 {
        if window <= LEGACY_WINDOW { window / 2.0 } else { window * (1.0 - B) }
    }
}
