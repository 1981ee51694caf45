//! HighSpeed TCP's window (RFC 3649): Reno below 38 packets; above, the larger it is the faster it
//! grows and the less of it a loss takes.

use std::time::Duration;

use super::window_growth::WindowGrowth;
use crate::rate::math::{ln, pow};
use crate::time::Instant;

/// "Low_Window [...] 38 MSS-sized segments"; "High_Window [...] 83000" (RFC 3649 §5).
pub(super) const LOW_WINDOW: f64 = 38.0;
const HIGH_WINDOW: f64 = 83_000.0;
/// "High_Decrease [...] 0.1" (RFC 3649 §5).
const HIGH_DECREASE: f64 = 0.1;

/// "b(w) = (High_Decrease - 0.5) (log(w)-log(W)) / (log(W_1)-log(W)) + 0.5" (RFC 3649 §5).
pub(super) fn decrease(window: f64) -> f64 {
    if window <= LOW_WINDOW {
        return 0.5;
    }
    let part = (ln(window) - ln(LOW_WINDOW)) / (ln(HIGH_WINDOW) - ln(LOW_WINDOW));
    ((HIGH_DECREASE - 0.5) * part + 0.5).max(HIGH_DECREASE)
}

/// "a(w) = w^2 * p(w) * 2 * b(w)/(2 - b(w))", with "p(w) = 0.078/w^1.2" (RFC 3649 §5).
pub(super) fn increase(window: f64) -> f64 {
    if window <= LOW_WINDOW {
        return 1.0;
    }
    let b = decrease(window);
    (0.078 * pow(window, 0.8) * 2.0 * b / (2.0 - b)).max(1.0)
}

/// No state beside the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct HighSpeed;

impl WindowGrowth for HighSpeed {
    fn name(&self) -> &'static str {
        "highspeed"
    }

    /// RFC 5681's.
    fn first(&self) -> f64 {
        3.0
    }

    /// "w <- w + a(w)/w" for each acknowledgement (RFC 3649 §3).
    fn grow(&mut self, _now: Instant, window: f64, acked: f64, _rtt: Duration) -> f64 {
        window + increase(window) * acked / window
    }

    /// "w <- (1 - b(w))w" (RFC 3649 §3).
    fn reduce(&mut self, window: f64) -> f64 {
        window * (1.0 - decrease(window))
    }
}
