//! The progress bar, and how fast it is going just now.

use std::collections::VecDeque;
use std::env;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use netblt::Progress;

use crate::units;

/// Rates shown are over this long.
const WINDOW: Duration = Duration::from_secs(3);
/// Most samples kept, at ten a second with room to spare.
const MAX_SAMPLES: usize = 64;
const REDRAWS_PER_SECOND: u8 = 10;

/// A bar on standard error, if that is a terminal.
pub(crate) struct Bar {
    allowed: bool,
    bar: Option<ProgressBar>,
}

impl Bar {
    /// Nothing is drawn before the first [`Bar::update`].
    pub(crate) fn new(wanted: bool) -> Self {
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { allowed: wanted && !dumb && io::stderr().is_terminal(), bar: None }
    }

    /// Draws how far it is; `silent` if nothing has been heard for a worrying time.
    pub(crate) fn update(&mut self, progress: &Progress, bits_per_second: f64, silent: bool) {
        if !self.allowed {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND);
            ProgressBar::with_draw_target(None, target)
        });
        if bar.length() != progress.total || bar.position() == 0 {
            bar.set_style(style(progress.total.is_some()));
            match progress.total {
                Some(total) => bar.set_length(total),
                None => bar.unset_length(),
            }
        }
        bar.set_message(message(progress, bits_per_second, silent));
        bar.set_position(progress.bytes);
    }

    /// Writes a line to standard error, above the bar if there is one.
    pub(crate) fn line(&self, text: &str) {
        let write = || {
            let _ = writeln!(io::stderr(), "{text}");
        };
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Takes the bar away.
    pub(crate) fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn style(known: bool) -> ProgressStyle {
    let plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let template = match (known, plain) {
        (true, true) => "{bar:20} {percent:>3} % {wide_msg}",
        (true, false) => "{bar:20.cyan} {percent:>3} % {wide_msg}",
        (false, _) => "{spinner} {wide_msg}",
    };
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━╸ ")
}

fn message(progress: &Progress, bits_per_second: f64, silent: bool) -> String {
    let mut parts = vec![match progress.total {
        Some(total) => {
            format!("{} of {}", units::show_bytes(progress.bytes), units::show_bytes(total))
        }
        None => units::show_bytes(progress.bytes),
    }];
    if silent {
        parts.push("nothing heard; waiting".to_owned());
        return parts.join("  ");
    }
    parts.push(units::show_rate(bits_per_second));
    if let Some(left) = time_left(progress, bits_per_second) {
        parts.push(match left.as_secs() {
            // Tenths would only flicker.
            seconds @ 0..60 => format!("{seconds} s left"),
            _ => format!("{} left", units::show_duration(left)),
        });
    }
    let stats = &progress.stats;
    let packets = stats.data_packets_sent.max(stats.data_packets_received);
    parts.push(format!("lost {}", units::show_share(stats.data_packets_lost, packets)));
    if let Some(rtt) = stats.rtt {
        parts.push(format!("RTT {}", units::show_duration(rtt)));
    }
    parts.join("  ")
}

fn time_left(progress: &Progress, bits_per_second: f64) -> Option<Duration> {
    let left = progress.total?.saturating_sub(progress.bytes);
    if left == 0 || bits_per_second < 1.0 {
        return None;
    }
    let seconds = (left as f64 * 8.0 / bits_per_second).ceil();
    (seconds < 1e9).then(|| Duration::from_secs(seconds as u64))
}

/// How fast it has been going over the last few seconds.
#[derive(Debug, Default)]
pub(crate) struct Speed {
    samples: VecDeque<(Duration, u64)>,
}

impl Speed {
    /// Takes a sample and answers bits per second.
    pub(crate) fn update(&mut self, elapsed: Duration, bytes: u64) -> f64 {
        // A transfer that starts over goes back to the beginning.
        if self.samples.back().is_some_and(|(time, then)| elapsed < *time || bytes < *then) {
            self.samples.clear();
        }
        self.samples.push_back((elapsed, bytes));
        while self.samples.len() > MAX_SAMPLES
            || (self.samples.len() > 2
                && self.samples.front().is_some_and(|(time, _)| elapsed - *time > WINDOW))
        {
            self.samples.pop_front();
        }
        let Some((first, start)) = self.samples.front() else {
            return 0.0;
        };
        let seconds = elapsed.saturating_sub(*first).as_secs_f64();
        if seconds > 0.0 { bytes.saturating_sub(*start) as f64 * 8.0 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_that_of_the_last_seconds() {
        let mut speed = Speed::default();
        assert_eq!(speed.update(Duration::ZERO, 0), 0.0);
        let mut last = 0.0;
        for tenth in 1..200 {
            let bytes = if tenth < 100 { tenth * 1000 } else { 100_000 + (tenth - 100) * 125_000 };
            last = speed.update(Duration::from_millis(tenth * 100), bytes);
        }
        assert!((last - 10e6).abs() < 1e3, "{last}");
        assert_eq!(speed.update(Duration::from_secs(21), 5), 0.0, "started over");
    }

    #[test]
    fn the_message_never_divides_by_zero() {
        let mut progress = Progress::default();
        progress.total = Some(10);
        assert_eq!(message(&progress, 0.0, false), "0 bytes of 10 bytes  0 bit/s  lost 0.0 %");
        progress.total = None;
        assert!(message(&progress, 8e6, true).contains("waiting"));
        progress.total = Some(u64::MAX);
        assert_eq!(time_left(&progress, 1.0), None);
    }
}
