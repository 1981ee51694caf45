//! CUBIC's window (RFC 9438): a cubic of the time since the last loss, flat where that happened.

use std::time::Duration;

use super::math::cube_root;
use crate::time::Instant;

/// RFC 9438 §5.1.
pub(crate) const C: f64 = 0.4;
/// RFC 9438 §4.6.
pub(crate) const BETA: f64 = 0.7;
/// "alpha_cubic = 3 * (1 - beta_cubic) / (1 + beta_cubic)" (RFC 9438 §4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// Where the curve is.
#[derive(Clone, Copy, Debug)]
pub struct Cubic {
    /// It grows as fast as so many of them.
    weight: f64,
    /// "Window size just before cwnd was reduced in the last congestion event" (RFC 9438 §4.1.2).
    w_max: f64,
    prior: f64,
    /// When the epoch began, K, and the window of a Reno since.
    epoch: Option<(Instant, f64, f64)>,
}

impl Default for Cubic {
    fn default() -> Self {
        Self { weight: 1.0, w_max: 0.0, prior: 0.0, epoch: None }
    }
}

impl Cubic {
    /// The same curve, as if there were `weight` of them.
    pub(crate) fn weighted(weight: f64) -> Self {
        Self { weight, ..Self::default() }
    }

    /// Forgets all losses.
    pub(crate) fn reset(&mut self) {
        *self = Self::weighted(self.weight);
    }

    /// What is left of the window where one of them answers, which keeps `beta` of its own.
    pub(crate) fn shared(&self, beta: f64) -> f64 {
        1.0 - (1.0 - beta) / self.weight
    }

    /// "W_cubic(t) = C * (t - K)^3 + W_max" (RFC 9438 §4.2, figure 1).
    fn at(&self, t: f64, k: f64) -> f64 {
        let from = t - k;
        self.weight * C * from * from * from + self.w_max
    }

    /// The window before the last loss; zero before there was one.
    pub(crate) fn prior(&self) -> f64 {
        self.prior
    }

    /// Packets are so many times as large as they were: of all that was, as many fewer are as much.
    pub(crate) fn resize(&mut self, times: f64) {
        (self.w_max, self.prior) = (self.w_max / times, self.prior / times);
        self.epoch = None;
    }

    /// The curve begins again at the present window, on its way to the one of the last loss.
    pub fn restart(&mut self) {
        self.epoch = None;
    }

    /// The curve stood still for this time: the window was not used (RFC 9438 §5.8).
    pub(crate) fn pause(&mut self, time: Duration) {
        if let Some((began, ..)) = &mut self.epoch {
            *began += time;
        }
    }

    /// The window after congestion avoidance has seen so many packets acknowledged.
    pub fn grow(&mut self, now: Instant, window: f64, acked: f64, rtt: Duration) -> f64 {
        let (began, k, estimate) = *self.epoch.get_or_insert_with(|| {
            // Without a loss before, the curve begins at its flat place.
            self.w_max = self.w_max.max(window);
            // "K = cubic_root((W_max - cwnd_epoch) / C)" (RFC 9438 §4.2, figure 2).
            (now, cube_root((self.w_max - window) / (self.weight * C)), window)
        });
        let seconds = |time: Duration| time.as_nanos() as f64 / 1e9;
        let t = seconds(now.since(began));
        // "W_est = W_est + alpha_cubic * segments_acked / cwnd"; "once W_est has grown to reach
        // cwnd_prior [...] set alpha_cubic to 1" (RFC 9438 §4.3).
        let alpha = if estimate < self.prior { ALPHA } else { 1.0 };
        let estimate = estimate + self.weight * alpha * acked / window;
        self.epoch = Some((began, k, estimate));
        if self.at(t, k) < estimate {
            return estimate.max(window);
        }
        // "target = clamp(W_cubic(t + RTT), cwnd, 1.5 * cwnd)"; "cwnd MUST be incremented by
        // (target - cwnd)/cwnd for each received new ACK" (RFC 9438 §4.2, §4.4).
        let target = self.at(t + seconds(rtt), k).clamp(window, window * 1.5);
        window + (target - window) / window * acked
    }

    /// The window after a loss.
    pub fn reduce(&mut self, window: f64) -> f64 {
        self.reduce_to(window, BETA)
    }

    /// The same, where a loss leaves `beta` of it.
    pub(crate) fn reduce_to(&mut self, window: f64, beta: f64) -> f64 {
        // "W_max = cwnd * (1 + beta_cubic) / 2" where the window is less than the last one that
        // was lost at: fast convergence (RFC 9438 §4.7).
        self.w_max = if window < self.w_max { window * (1.0 + beta) / 2.0 } else { window };
        (self.prior, self.epoch) = (window, None);
        window * beta
    }
}
