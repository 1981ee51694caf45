//! Aggregates the reports of several connections for the output.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::stdout::say;
use netblt::{Observer, Progress, Ticket, Warning};
use netblt_proto::api::printable;

/// Latest values of all connections.
#[derive(Debug, Default)]
pub(super) struct Aggregate {
    streams: Mutex<Vec<StreamState>>,
}

/// Latest values of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamState {
    /// The peer.
    pub(super) peer: Option<String>,
    pub(super) progress: Progress,
    /// Ended, with or without an error.
    pub(super) ended: bool,
}

impl Aggregate {
    pub(super) fn new(streams: usize) -> Self {
        Self { streams: Mutex::new(vec![StreamState::default(); streams]) }
    }

    /// The values of every connection.
    pub(super) fn streams(&self) -> Vec<StreamState> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn update(&self, at: usize, change: impl FnOnce(&mut StreamState)) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = streams.get_mut(at) {
            change(stream);
        }
    }
}

/// Records one connection's reports.
pub(super) struct StreamWriter<'a> {
    pub(super) board: &'a Aggregate,
    pub(super) at: usize,
}

impl Observer for StreamWriter<'_> {
    fn listening(&mut self, _: &Ticket) -> std::io::Result<()> {
        Ok(())
    }

    fn connected(&mut self, peer: &str) {
        self.board.update(self.at, |stream| stream.peer = Some(printable(peer)));
    }

    fn progress(&mut self, progress: &Progress) {
        self.board.update(self.at, |stream| stream.progress = progress.clone());
    }

    fn silent(&mut self, silent: bool) {
        let what = if silent { "no answer for 3 s" } else { "answers again" };
        say(&format!("netblt: connection {}: {what}", self.at + 1));
    }

    fn restarted(&mut self) {}

    fn warn(&mut self, warning: &Warning) {
        say(&format!("netblt: warning: {}", printable(&warning.to_string())));
    }
}

/// The difference of a connection between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Step {
    pub(super) seconds: f64,
    pub(super) bytes: u64,
    pub(super) lost: u64,
    pub(super) resent: u64,
    pub(super) rtt: Option<Duration>,
}

impl Step {
    pub(super) fn between(before: &Progress, after: &Progress) -> Self {
        let (old, new) = (&before.stats, &after.stats);
        Self {
            seconds: after.elapsed.saturating_sub(before.elapsed).as_secs_f64(),
            bytes: after.bytes.saturating_sub(before.bytes),
            lost: new.data_packets_lost.saturating_sub(old.data_packets_lost),
            resent: new.data_packets_resent.saturating_sub(old.data_packets_resent),
            rtt: new.rtt,
        }
    }

    /// All of them together, over the longest of their durations.
    pub(super) fn sum(steps: &[Self]) -> Self {
        let mut sum = Self::default();
        for step in steps {
            sum.seconds = sum.seconds.max(step.seconds);
            sum.bytes += step.bytes;
            sum.lost += step.lost;
            sum.resent += step.resent;
        }
        sum
    }

    pub(super) fn bits_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 * 8.0 / self.seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_add_up_over_the_time_that_all_took() {
        let at = |seconds: u64, bytes| {
            let mut progress = Progress::default();
            (progress.bytes, progress.elapsed) = (bytes, Duration::from_secs(seconds));
            progress
        };
        let one = Step::between(&at(1, 1000), &at(3, 5000));
        assert_eq!((one.seconds, one.bytes, one.bits_per_second()), (2.0, 4000, 16_000.0));
        let two = Step::between(&at(2, 0), &at(3, 4000));
        assert_eq!(Step::sum(&[one, two]).bits_per_second(), 32_000.0);
        assert_eq!(Step::default().bits_per_second(), 0.0);
    }
}
