//! `netblt fleet status --html`: a page of all attempts, with their times, machines and results.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use netblt_fleet::Run;
use netblt_fleet::pool::Ceiling;
use netblt_fleet::record::Verdict;
use netblt_fleet::run::publish;
use netblt_fleet::timeline::{Fate, Span, timeline};
use netblt_pages::plot::{Kind, Panel, Picture, Series, SpanBar};

use super::failed;
use crate::exit::Failure;
use crate::units;

/// The legend of the bars.
const LEGEND: &str = "Bars are attempts, more below each other where there were more at once. \
     Green: the chunk is done; blue: at work; orange: failed, to be tried again; violet: the task \
     was killed; black: failed for good; grey: stopped, or another task has taken the chunk. \
     Point at one to see which chunk it is. Rates are those of whole attempts, in the mean.";
const MBIT: f64 = 1e6 / 8.0;

/// Writes it; `progress` is the run's progress in words.
pub(super) fn write(run: &Run, progress: &str, out: &Path) -> Result<(), Failure> {
    let spans = timeline(run).map_err(failed)?;
    let limit = Ceiling::read(run).map_err(failed)?.and_then(|rate| rate.wan_bits_per_second);
    let picture = picture(run, &spans, limit, progress);
    let text = picture.page(&words(&spans));
    // A reader finds all of the old page or of the new one.
    publish(out, text.as_bytes()).map_err(failed)
}

fn picture(run: &Run, spans: &[Span], limit: Option<u64>, progress: &str) -> Picture {
    let began = spans.first().map_or(0.0, |span| span.began);
    let end = spans.iter().map(|span| span.ended - began).fold(0.0, f64::max);
    let since = if spans.is_empty() { String::new() } else { units::show_time(began as i64) };
    let mut rates = vec![Series::new("all together", Kind::Line, 0, sums(spans, began))];
    if let Some(bits) = limit {
        let limit = vec![(0.0, bits as f64 / 1e6)];
        rates.push(Series::new("--wan", Kind::Limit, 0, limit));
    }
    let panels = [
        Panel::new("sum of rates, Mbit/s", rates),
        Panel::new("attempts, by the machine they ran on", rows(spans, began, |span| &span.node)),
        Panel::new("the same, by the server they went to", rows(spans, began, |span| &span.host)),
    ];
    Picture {
        title: format!("{}: {progress}", run.place.display()),
        notes: vec![format!("From {since} on. {LEGEND}")],
        panels: panels.into_iter().filter(|panel| !panel.series.is_empty()).collect(),
        end,
        ..Picture::default()
    }
}

/// The sum of the attempts' rates, in Mbit/s, as steps.
fn sums(spans: &[Span], began: f64) -> Vec<(f64, f64)> {
    let ends = |span: &Span| {
        let rate = span.rate() / MBIT;
        [(span.began - began, rate), (span.ended - began, -rate)]
    };
    steps(spans.iter().flat_map(ends).collect())
}

/// The sums of all changes over time.
fn steps(mut changes: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    // An end comes before a start at the same time.
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let (mut points, mut sum) = (Vec::new(), 0.0_f64);
    for (at, change) in changes {
        points.push((at, sum.max(0.0)));
        sum += change;
        points.push((at, sum.max(0.0)));
    }
    points
}

/// A row for each name, and more below it where attempts were at once.
fn rows<'a>(spans: &'a [Span], began: f64, name: impl Fn(&'a Span) -> &'a str) -> Vec<Series> {
    let mut rows: BTreeMap<&str, Vec<Vec<SpanBar>>> = BTreeMap::new();
    for span in spans {
        let (from, to) = (span.began - began, span.ended - began);
        let lanes = rows.entry(name(span)).or_default();
        let is_free = |lane: &Vec<SpanBar>| lane.last().is_none_or(|last| last.to <= from);
        let at = lanes.iter().position(is_free).unwrap_or(lanes.len());
        if at == lanes.len() {
            lanes.push(Vec::new());
        }
        let (colour, _) = shown(span.fate);
        lanes[at].push(SpanBar { from, to, colour, says: tooltip(span, began) });
    }
    let mut series = Vec::new();
    for (name, lanes) in rows {
        for (at, bars) in lanes.into_iter().enumerate() {
            series.push(Series::of_bars(if at == 0 { name } else { "" }, bars));
        }
    }
    series
}

fn shown(fate: Fate) -> (&'static str, &'static str) {
    match fate {
        Fate::Ended(Verdict::Done) => ("#228855", "done"),
        Fate::AtWork => ("#2266aa", "at work"),
        Fate::Ended(Verdict::Failed) => ("#cc6600", "failed"),
        Fate::Gone => ("#884499", "its task was killed"),
        Fate::Ended(Verdict::Lost) => ("#111111", "failed for good"),
        Fate::Ended(_) => ("#888888", "stopped"),
    }
}

fn tooltip(span: &Span, began: f64) -> String {
    let (_, fate) = shown(span.fate);
    let Span { chunk, task, node, host, brought, message, .. } = span;
    let times = [span.began - began, span.ended - span.began];
    let [at, lasted] = times.map(|time| Duration::try_from_secs_f64(time).unwrap_or_default());
    let [at, lasted] = [at, lasted].map(units::show_duration);
    let (bytes, rate) = (units::show_bytes(*brought), units::show_rate(span.rate() * 8.0));
    let why = message.as_ref().map_or(String::new(), |why| format!(": {why}"));
    format!(
        "chunk {chunk}, task {task}, {node} to {host}, after {at} for {lasted}: {bytes} at \
         {rate}; {fate}{why}"
    )
}

/// A line for each pair of machine and server, and for each attempt that failed.
fn words(spans: &[Span]) -> String {
    let mut pairs: BTreeMap<(&str, &str), [u64; 3]> = BTreeMap::new();
    for span in spans {
        let counts = pairs.entry((&span.node, &span.host)).or_default();
        counts[0] += 1;
        counts[1] += u64::from(span.fate == Fate::Ended(Verdict::Done));
        counts[2] += span.brought;
    }
    let mut text = String::new();
    for ((node, host), [attempts, done, brought]) in pairs {
        let bytes = units::show_bytes(brought);
        let _ = writeln!(text, "{node} to {host}: {attempts} attempts, {done} done, {bytes}");
    }
    let began = spans.first().map_or(0.0, |span| span.began);
    for span in spans.iter().filter(|span| span.message.is_some()) {
        let _ = writeln!(text, "{}", tooltip(span, began));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_has_only_concurrent_attempts() {
        let rates = [(0.0, 10.0, 2.0), (5.0, 15.0, 3.0), (10.0, 20.0, 4.0)];
        let changes = rates.map(|(from, to, rate)| [(from, rate), (to, -rate)]).concat();
        let points = steps(changes);
        assert_eq!(points.iter().map(|point| point.1).fold(0.0, f64::max), 7.0);
        assert_eq!(points.last(), Some(&(20.0, 0.0)));
    }
}
