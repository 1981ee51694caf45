//! What shares a path with the policies that are tested.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Bottleneck, Fate};
use crate::time::Instant;

/// A TCP of the loss-driven kind: slow start, then CUBIC's growth, a cut to 0.7 at each loss.
#[derive(Debug)]
pub(in crate::rate::tests) struct Cubic {
    window: f64,
    threshold: f64,
    last_max: f64,
    epoch: Instant,
    flight: VecDeque<(u64, Option<Instant>)>,
    next_number: u64,
    recover: u64,
    pub(in crate::rate::tests) delivered: u64,
    start: Instant,
    end: Instant,
}

impl Cubic {
    pub(in crate::rate::tests) fn new(start: Duration) -> Self {
        Self {
            window: 10.0,
            threshold: f64::MAX,
            last_max: 0.0,
            epoch: Instant::EPOCH,
            flight: VecDeque::new(),
            next_number: 0,
            recover: 0,
            delivered: 0,
            start: Instant::EPOCH + start,
            end: Instant::NEVER,
        }
    }

    /// It sends no more from then on.
    pub(in crate::rate::tests) fn until(self, end: Duration) -> Self {
        Self { end: Instant::EPOCH + end, ..self }
    }

    pub(super) fn due(&self, now: Instant) -> Instant {
        if now >= self.end {
            return Instant::NEVER;
        }
        if (self.flight.len() as f64) < self.window.max(2.0) {
            return now.max(self.start);
        }
        let ack = self.flight.iter().find_map(|(_, at)| *at);
        // A whole window lost: the retransmission timer.
        ack.unwrap_or(self.epoch.max(now) + Duration::from_secs(1))
    }

    pub(super) fn work(&mut self, now: Instant, link: &mut Bottleneck) {
        if now < self.start || now >= self.end {
            return;
        }
        if self.flight.iter().all(|(_, at)| at.is_none()) {
            self.flight.clear();
        }
        while let Some(acked) =
            self.flight.iter().find_map(|(n, at)| at.filter(|at| *at <= now).map(|_| *n))
        {
            while let Some((number, at)) = self.flight.pop_front_if(|(n, _)| *n <= acked) {
                match at {
                    None => self.on_loss(now, number),
                    Some(_) => self.on_ack(now, link.path.rtt),
                }
            }
        }
        while (self.flight.len() as f64) < self.window.max(2.0) {
            let at = match link.send(now) {
                Fate::Lost => None,
                Fate::Arrives { at, .. } => Some(at + link.path.rtt / 2),
            };
            self.flight.push_back((self.next_number, at));
            self.next_number += 1;
        }
    }

    fn on_ack(&mut self, now: Instant, rtt: Duration) {
        self.delivered += 1;
        if self.window < self.threshold {
            self.window += 1.0;
            return;
        }
        let t = now.since(self.epoch).as_secs_f64() + rtt.as_secs_f64();
        let k = (self.last_max * 0.3 / 0.4).cbrt();
        let target = 0.4 * (t - k).powi(3) + self.last_max;
        let reno = self.last_max * 0.7 + 0.53 * t / rtt.as_secs_f64();
        let target = target.max(reno).min(self.window * 1.5);
        self.window += ((target - self.window) / self.window).max(0.0);
    }

    fn on_loss(&mut self, now: Instant, number: u64) {
        if number < self.recover {
            return;
        }
        self.recover = self.next_number;
        self.last_max = self.window;
        self.window *= 0.7;
        self.threshold = self.window;
        self.epoch = now;
    }
}
