//! The progress bar, and how fast it is going just now.

use std::collections::VecDeque;
use std::env;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use netblt::Progress;
use netblt_proto::api::printable_bytes;

use crate::units;

/// The shown rates are means over this time.
const WINDOW: Duration = Duration::from_secs(3);
/// Most samples kept, at ten a second with room to spare.
const MAX_SAMPLES: usize = 64;
const REDRAWS_PER_SECOND: u8 = 10;

/// Columns where the terminal does not say how many it has.
const COLUMNS: usize = 80;
/// Columns of the bar itself, and the fewest that it shrinks to.
const BAR: usize = 20;
const SHORTEST_BAR: usize = 5;
/// A name is cut to no less than this.
const SHORTEST_NAME: usize = 8;
/// Between two lines on a terminal that can only print.
const ON_PAPER: Duration = Duration::from_secs(10);

/// How far it is, on standard error: a line that is drawn again and again where that is a terminal;
/// one from time to time where the terminal can only print (`TERM=dumb`), and where there is none,
/// if that is wanted.
pub(crate) struct Bar {
    allowed: bool,
    bar: Option<ProgressBar>,
    /// The layout of its style: the columns of the bar, the total, and all columns.
    look: Option<(usize, Option<u64>, usize)>,
    /// Between two lines where there is no terminal.
    every: Option<Duration>,
    next: Duration,
}

impl Bar {
    /// The first [`Bar::update`] draws it. `every`: the interval of lines without a terminal.
    pub(crate) fn new(wanted: bool, every: Option<Duration>) -> Self {
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        let terminal = io::stderr().is_terminal();
        let drawn = terminal && !dumb;
        let every = interval(every, terminal, dumb).filter(|_| wanted);
        Self {
            allowed: wanted && drawn,
            bar: None,
            look: None,
            every,
            next: every.unwrap_or_default(),
        }
    }

    /// Draws the progress; `silent` if nothing has arrived for a worrying time.
    pub(crate) fn update(&mut self, progress: &Progress, bits_per_second: f64, silent: bool) {
        if let Some(every) = self.every
            && progress.elapsed >= self.next
        {
            self.next = progress.elapsed + every;
            self.line(&ProgressLine::new(progress, bits_per_second, silent).whole());
        }
        if !self.allowed {
            return;
        }
        let columns = columns();
        let (width, text) = ProgressLine::new(progress, bits_per_second, silent).fitted(columns);
        let look = (width, progress.total, columns);
        let bar = self.bar.get_or_insert_with(|| {
            let hidden = ProgressDrawTarget::hidden();
            ProgressBar::with_draw_target(None, hidden)
        });
        if self.look.replace(look) != Some(look) {
            match progress.total {
                Some(total) => bar.set_length(total),
                None => bar.unset_length(),
            }
            bar.set_style(style(progress.total.is_some(), width, columns));
        }
        bar.set_message(text);
        bar.set_position(progress.bytes);
        if bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND));
        }
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
        self.look = None;
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// Between two lines that are printed, where none is drawn.
fn interval(asked: Option<Duration>, terminal: bool, dumb: bool) -> Option<Duration> {
    match (terminal, dumb) {
        (true, false) => None,
        (true, true) => Some(asked.unwrap_or(ON_PAPER)),
        (false, _) => asked,
    }
}

/// Columns of the terminal on standard error.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { COLUMNS } else { columns }
}

/// `known`: the total is known; `width`: the columns of the bar, 0 if there is no room.
fn style(known: bool, width: usize, columns: usize) -> ProgressStyle {
    let plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let template = match (width, known, plain) {
        // A terminal of a few columns has the one word that counts.
        (0, ..) if columns < 10 => "{msg}".to_owned(),
        (0, ..) => "{wide_msg}".to_owned(),
        (width, true, true) => format!("{{bar:{width}}} {{wide_msg}}"),
        (width, true, false) => format!("{{bar:{width}.cyan}} {{wide_msg}}"),
        (_, false, _) => "{spinner} {wide_msg}".to_owned(),
    };
    let style =
        ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(env::var_os);
    match has_utf8(locale.iter().flatten().filter_map(|value| value.to_str())) {
        true => style.progress_chars("━╸ "),
        false => style.progress_chars("=> ").tick_chars("|/-\\ "),
    }
}

/// Whether a terminal shows more than ASCII, by the first variable of the locale that is set.
fn has_utf8<'a>(mut locale: impl Iterator<Item = &'a str>) -> bool {
    let set = locale.find(|value| !value.is_empty()).unwrap_or_default();
    let set = set.to_ascii_lowercase();
    set.contains("utf-8") || set.contains("utf8")
}

/// The parts of a line, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BarPart {
    Percent,
    Files,
    Name,
    Bytes,
    Rate,
    Left,
    Lost,
    RoundTrip,
}

/// The parts that are left out first where there is no room for all. The bar shrinks after the
/// second and goes after the fourth. The last part stays.
const GIVE_WAY: [BarPart; 8] = [
    BarPart::RoundTrip,
    BarPart::Lost,
    BarPart::Name,
    BarPart::Bytes,
    BarPart::Files,
    BarPart::Percent,
    BarPart::Rate,
    BarPart::Left,
];

/// How far it is, in parts.
struct ProgressLine {
    parts: Vec<(BarPart, String)>,
    /// There is a bar before them, and not only a sign that something moves.
    known: bool,
}

impl ProgressLine {
    fn new(progress: &Progress, bits_per_second: f64, silent: bool) -> Self {
        let mut parts = Vec::new();
        if let Some(total) = progress.total.filter(|total| *total > 0) {
            let percent = progress.bytes as f64 * 100.0 / total as f64;
            parts.push((BarPart::Percent, format!("{:.0} %", percent.min(100.0).floor())));
        }
        let file = units::show_count(progress.file);
        match progress.files {
            // A single file needs no name.
            Some(0 | 1) => {}
            Some(files) => {
                parts.push((BarPart::Files, format!("{file} of {}", units::show_count(files))));
            }
            None if progress.file > 0 => parts.push((BarPart::Files, format!("file {file}"))),
            None => {}
        }
        if !progress.name.is_empty() {
            parts.push((BarPart::Name, printable_bytes(&progress.name)));
        }
        parts.push((BarPart::Bytes, bytes_of(progress.bytes, progress.total)));
        if progress.paused {
            parts.push((BarPart::Left, "paused".to_owned()));
        } else if silent {
            parts.push((BarPart::Left, "no answer; waiting".to_owned()));
        } else {
            parts.extend(speed(progress, bits_per_second));
        }
        Self { parts, known: progress.total.is_some() }
    }

    /// All of it.
    fn whole(&self) -> String {
        let texts: Vec<&str> = self.parts.iter().map(|(_, text)| text.as_str()).collect();
        texts.join("  ")
    }

    /// The columns of the bar before it, and as much of it as there is room for.
    fn fitted(mut self, columns: usize) -> (usize, String) {
        let (whole, least) = if self.known { (BAR, SHORTEST_BAR) } else { (1, 1) };
        let mut bar = whole;
        for (at, part) in GIVE_WAY.iter().enumerate() {
            bar = match at {
                0 | 1 => whole,
                // The columns that the rest leaves, if they are enough.
                2..4 => columns.saturating_sub(self.columns(0) + 1).clamp(least, whole),
                _ => 0,
            };
            if self.columns(bar) <= columns {
                break;
            }
            if self.parts.len() > 1 {
                self.parts.retain(|(other, _)| other != part);
            }
        }
        let room = columns.saturating_sub(self.columns(bar));
        for (part, text) in &mut self.parts {
            if *part == BarPart::Name {
                *text = shortened(text, SHORTEST_NAME.min(wide(text)) + room);
            }
        }
        (bar, self.whole())
    }

    /// The columns of the rest beside a bar of so many, with names as short as possible.
    fn columns(&self, bar: usize) -> usize {
        let text = |(part, text): &(BarPart, String)| match part {
            BarPart::Name => wide(text).min(SHORTEST_NAME) + 2,
            _ => wide(text) + 2,
        };
        let texts: usize = self.parts.iter().map(text).sum();
        // The last column stays free: some terminals wrap there.
        texts.saturating_sub(2) + 1 + if bar > 0 { bar + 1 } else { 0 }
    }
}

/// The most columns of a text: a character beyond ASCII may take two.
fn wide(text: &str) -> usize {
    text.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum()
}

/// The beginning and the end of a text, in so many columns.
fn shortened(text: &str, columns: usize) -> String {
    if wide(text) <= columns {
        return text.to_owned();
    }
    let half = columns.saturating_sub(3) / 2;
    let upto = |chars: &mut dyn Iterator<Item = char>| {
        let mut taken = 0;
        let width = |c: char| if c.is_ascii() { 1 } else { 2 };
        chars
            .take_while(|c| {
                taken += width(*c);
                taken <= half
            })
            .collect::<Vec<char>>()
    };
    let start: String = upto(&mut text.chars()).into_iter().collect();
    let end: String = upto(&mut text.chars().rev()).into_iter().rev().collect();
    format!("{start}...{end}")
}

/// `1.00 of 3.00 GiB`, or each with its own unit.
fn bytes_of(bytes: u64, total: Option<u64>) -> String {
    let bytes = units::show_bytes(bytes);
    let Some(total) = total.map(units::show_bytes) else { return bytes };
    match (bytes.split_once(' '), total.split_once(' ')) {
        (Some((number, unit)), Some((_, of))) if unit == of => format!("{number} of {total}"),
        _ => format!("{bytes} of {total}"),
    }
}

fn speed(progress: &Progress, bits_per_second: f64) -> Vec<(BarPart, String)> {
    let mut parts = vec![(BarPart::Rate, units::show_rate(bits_per_second))];
    if let Some(left) = time_left(progress, bits_per_second) {
        let text = match left.as_secs() {
            // Tenths would only flicker.
            seconds @ 0..60 => format!("{seconds} s left"),
            _ => format!("{} left", units::show_duration(left)),
        };
        parts.push((BarPart::Left, text));
    }
    let stats = &progress.stats;
    let packets = stats.data_packets_sent.max(stats.data_packets_received);
    // This program does not see the packets between two others.
    if packets > 0 {
        let lost = units::show_share(stats.data_packets_lost, packets);
        parts.push((BarPart::Lost, format!("lost {lost}")));
    }
    if let Some(rtt) = stats.rtt {
        parts.push((BarPart::RoundTrip, format!("RTT {}", units::show_duration(rtt))));
    }
    parts
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

    fn progress() -> Progress {
        let mut progress = Progress::default();
        progress.total = Some(3 << 30);
        progress.bytes = 1 << 30;
        (progress.file, progress.files) = (1234, Some(20_000));
        progress.name = b"photos/2026/summer/the one with the long name.jpg".to_vec();
        progress.elapsed = Duration::from_secs(20);
        progress.stats.data_packets_sent = 100_000;
        progress.stats.data_packets_lost = 1_100;
        progress.stats.rtt = Some(Duration::from_millis(100));
        progress
    }

    #[test]
    fn without_room_parts_are_dropped_in_order_and_the_time_left_is_last() {
        let at = |columns: usize| {
            let (bar, text) = ProgressLine::new(&progress(), 100e6, false).fitted(columns);
            let all = text.chars().count() + if bar > 0 { bar + 1 } else { 0 };
            assert!(all < columns || columns < 17, "{columns}: {text}");
            assert!(bar == 0 || (SHORTEST_BAR..=BAR).contains(&bar), "{bar}");
            (bar, text)
        };
        let (bar, text) = at(220);
        assert!(bar == BAR && text.contains("the one with the long name.jpg"), "{text}");
        let has = |columns: usize, what: &str| at(columns).1.contains(what);
        assert!(has(140, "RTT 100 ms") && has(140, "lost 1.1 %") && at(140).0 == BAR);
        // The usual terminal has the bar, and a name beside it.
        let mut few = progress();
        (few.file, few.files, few.name) = (2, Some(3), b"IMG.jpg".to_vec());
        let (bar, text) = ProgressLine::new(&few, 100e6, false).fitted(80);
        assert!(bar >= SHORTEST_BAR && text.contains("IMG.jpg"), "{bar} {text}");
        // Each that is not there was given up by the time that the next one is.
        let order =
            ["RTT", "lost", "...", "1.00 of 3.00 GiB", "of 20,000", "33 %", "Mbit/s", "left"];
        let mut gone: Vec<&str> = Vec::new();
        for columns in (1..=140).rev() {
            let (bar, text) = at(columns);
            let now: Vec<&str> = order.into_iter().filter(|what| !text.contains(what)).collect();
            assert_eq!(now[..], order[..now.len()], "{columns}: {text}");
            assert!(now.len() >= gone.len(), "{columns}: nothing comes back: {text}");
            // The bar goes after the bytes, and before the count of files.
            assert!(bar > 0 || now.len() >= 4, "{columns}: {text}");
            assert!(bar == 0 || now.len() <= 4, "{columns}: {text}");
            gone = now;
        }
        assert!(at(12).1.ends_with(" left"), "{}", at(12).1);
        let silent = ProgressLine::new(&progress(), 0.0, true).fitted(60).1;
        assert!(silent.contains("no answer; waiting"), "{silent}");
    }

    #[test]
    fn names_are_cut_in_the_middle_and_wide_ones_count_twice() {
        assert_eq!(shortened("short", 10), "short");
        assert_eq!(shortened("0123456789abcdef", 11), "0123...cdef");
        assert_eq!(shortened("日本語日本語日本語", 11), "日本...本語");
        let mut progress = progress();
        progress.name = "日".repeat(200).into();
        for columns in 40..200 {
            let (bar, text) = ProgressLine::new(&progress, 1e6, false).fitted(columns);
            assert!(wide(&text) + bar < columns, "{columns}: {text}");
        }
    }

    #[test]
    fn a_terminal_that_can_only_print_gets_lines() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(interval(None, true, true), Some(ON_PAPER));
        assert_eq!(interval(second, true, true), second);
        assert_eq!((interval(second, true, false), interval(None, false, true)), (None, None));
        assert_eq!(interval(second, false, true), second);
    }

    #[test]
    fn only_a_locale_of_utf8_has_more_than_ascii() {
        let shown = |values: &[&str]| has_utf8(values.iter().copied());
        assert!(shown(&["en_US.UTF-8"]) && shown(&["", "C.utf8"]));
        assert!(!shown(&["C", "en_US.UTF-8"]) && !shown(&["POSIX"]) && !shown(&[]));
    }

    #[test]
    fn the_line_never_divides_by_zero() {
        let mut progress = Progress::default();
        progress.total = Some(10);
        let line = |progress: &Progress| ProgressLine::new(progress, 0.0, false).whole();
        assert_eq!(line(&progress), "0 %  0 of 10 bytes  0 bit/s");
        progress.total = Some(0);
        assert_eq!(line(&progress), "0 of 0 bytes  0 bit/s");
        progress.total = None;
        progress.file = 7;
        assert_eq!(line(&progress), "file 7  0 bytes  0 bit/s");
        assert!(ProgressLine::new(&progress, 8e6, true).whole().contains("waiting"));
        progress.paused = true;
        assert_eq!(ProgressLine::new(&progress, 8e6, true).whole(), "file 7  0 bytes  paused");
        progress.total = Some(u64::MAX);
        assert_eq!(time_left(&progress, 1.0), None);
    }
}
