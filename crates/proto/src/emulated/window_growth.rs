//! How the window of a TCP grows and shrinks; the rest is the same for all of them.

use std::fmt::Debug;
use std::time::Duration;

use crate::time::Instant;

/// How a window grows and shrinks. Windows are in packets.
pub(super) trait WindowGrowth: Debug + Send {
    /// Its name.
    fn name(&self) -> &'static str;
    /// The first window.
    fn first(&self) -> f64;
    /// Growth in slow start when `acked` packets are acknowledged.
    fn in_slow_start(&self, acked: f64) -> f64 {
        acked
    }
    /// The window after `acked` packets are acknowledged in congestion avoidance.
    fn grow(&mut self, now: Instant, window: f64, acked: f64, rtt: Duration) -> f64;
    /// The window after a loss.
    fn reduce(&mut self, window: f64) -> f64;
    /// Packets are now `times` as large.
    fn resize(&mut self, _times: f64) {}
}
