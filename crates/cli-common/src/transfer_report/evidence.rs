//! Measures each possible limit of a transfer from its trace, in figures
//! (`docs/reference/trace.md`). A function of the trace; it decides nothing.

use serde::Serialize;

use super::trace::{SenderState, Trace};
use crate::json::{fine, rounded};

/// Shortest time without arrivals that counts as an outage, in seconds and in round trips.
const DEAD: (f64, f64) = (0.4, 3.0);
/// Minimum bin width for rates, in seconds and in round trips.
const CELL: (f64, f64) = (0.25, 4.0);
/// Limit on the bins of a transfer.
const MOST_CELLS: f64 = 400.0;
/// A bin with less than this part of the median is low, and so many low ones in a row are a dip.
const LOW: f64 = 0.35;
const LOW_CELLS: usize = 3;
/// Round trips of a slow start; its losses say little about the path.
const START_ROUNDS: f64 = 20.0;
/// Smallest share of the bottleneck that is measured reliably.
const LEAST_SHARE: f64 = 0.01;
/// Queue delay below which a loss met no queue: in seconds, and as a part of the smallest round
/// trip.
const NO_QUEUE: (f64, f64) = (0.003, 0.15);

/// The measurements of one trace. Shares are of the time between the first and the last data,
/// unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Evidence {
    /// Time from the first data to the last.
    pub(super) seconds: f64,
    /// The same in minimum round trips.
    pub(super) round_trips: f64,
    /// Share of the time spent waiting, by cause.
    pub(super) source_share: f64,
    pub(super) permission_share: f64,
    pub(super) in_flight_share: f64,
    pub(super) paused_share: f64,
    pub(super) receiver_disk_share: f64,
    /// Share of the whole time in which all data was sent and storing was awaited.
    pub(super) storing_share: f64,
    /// Share of the allowed rate that was not used while the sender waited for nothing.
    pub(super) unused_share: f64,
    /// Whether the rate was fixed.
    pub(super) is_fixed: bool,
    /// Share of the time in which a circuit breaker kept the rate below the fixed one.
    pub(super) breaker_share: f64,
    /// Share of the time in which nothing arrived.
    pub(super) dead_share: f64,
    /// Share of the time in which the path carried far less than usual, and the data missing by
    /// that.
    pub(super) dip_share: f64,
    pub(super) dip_seconds: f64,
    /// Loss rate of the packets sent after the start.
    pub(super) loss_share: f64,
    /// Share of these losses that met no queue.
    pub(super) unqueued_loss_share: f64,
    pub(super) marked_share: f64,
    pub(super) tests_passed: u64,
    pub(super) tests_failed: u64,
    /// Share of the time in which losses were excused.
    pub(super) excused_share: f64,
    /// The sender's share of the bottleneck, and for how much of the time it was known.
    pub(super) path_share: Option<f64>,
    pub(super) path_known_share: f64,
    /// The bottleneck's rate according to that share, and the delivered part of it.
    pub(super) line_mbps: Option<f64>,
    pub(super) used_share: Option<f64>,
    pub(super) min_rtt_ms: f64,
    /// Queue delay: its first decile, median and last decile.
    pub(super) queue_low_ms: f64,
    pub(super) queue_ms: f64,
    pub(super) queue_high_ms: f64,
    /// Jitter: the difference from one round trip to the next.
    pub(super) varies_ms: f64,
    /// Delay added by the return path.
    pub(super) way_back_ms: f64,
    /// Delivery rate, and its coefficient of variation.
    pub(super) mbps: f64,
    pub(super) high_mbps: f64,
    pub(super) rate_varies: f64,
    /// Datagrams dropped because a socket's buffer was full.
    pub(super) overrun: u64,
}

/// Time-weighted values.
struct Weighted(Vec<(f64, f64)>);

impl Weighted {
    fn of(spans: &[(f64, &SenderState)], value: impl Fn(&SenderState) -> Option<f64>) -> Self {
        let values = spans.iter().filter_map(|(time, it)| Some((value(it)?, *time)));
        let mut values: Vec<_> = values.collect();
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self(values)
    }

    fn time(&self) -> f64 {
        self.0.iter().fold(0.0, |sum, (_, time)| sum + time)
    }

    /// The quantile for this share of the time.
    fn at(&self, part: f64) -> Option<f64> {
        let (whole, mut passed) = (self.time(), 0.0);
        for (value, time) in &self.0 {
            passed += time;
            if passed >= part * whole {
                return Some(*value);
            }
        }
        self.0.last().map(|(value, _)| *value)
    }
}

impl Evidence {
    pub(super) fn new(trace: &Trace) -> Self {
        let (from, until) = trace.data_times.unwrap_or((0.0, trace.end));
        let seconds = (until - from).max(1e-9);
        let waited = |cause: &str| {
            let spans = trace.waits.get(cause).map(Vec::as_slice).unwrap_or_default();
            rounded((overlap(spans, from, until) / seconds).min(1.0))
        };
        let mut evidence = Self {
            seconds: rounded(seconds),
            source_share: waited("source"),
            permission_share: waited("permission"),
            in_flight_share: waited("in_flight"),
            paused_share: waited("paused"),
            receiver_disk_share: waited(super::trace::RECEIVER_DISK),
            storing_share: rounded((trace.end - until).max(0.0) / trace.end.max(1e-9)),
            tests_passed: trace.tests.iter().filter(|test| test.verdict == "passed").count() as u64,
            tests_failed: trace.tests.iter().filter(|test| test.verdict == "failed").count() as u64,
            overrun: trace.overrun,
            ..Self::default()
        };
        let spans = spans(trace, from, until);
        evidence.is_fixed = !spans.is_empty() && spans.iter().all(|(_, it)| it.phase == "fixed");
        let reduced = Weighted::of(&spans, |it| (it.phase == "breaker").then_some(0.0));
        evidence.breaker_share = rounded((reduced.time() / seconds).min(1.0));
        evidence.measure_trips(&spans);
        evidence.measure_losses(trace, &spans);
        evidence.measure_rates(trace, from, until);
        if spans.is_empty() {
            evidence.mbps = rounded(trace.data_bytes as f64 / seconds * 8e-6);
        }
        evidence.unused_share = rounded(unused(trace, &spans));
        evidence
    }

    fn measure_trips(&mut self, spans: &[(f64, &SenderState)]) {
        let ms = |value: Option<f64>| rounded(value.unwrap_or_default() * 1e3);
        let least = spans.iter().map(|(_, it)| it.min_rtt).filter(|rtt| *rtt > 0.0);
        self.min_rtt_ms = ms(least.reduce(f64::min));
        if self.min_rtt_ms > 0.0 {
            self.round_trips = rounded(self.seconds / (self.min_rtt_ms / 1e3));
        }
        let queue = Weighted::of(spans, |it| Some(it.queue));
        self.queue_low_ms = ms(queue.at(0.1));
        self.queue_ms = ms(queue.at(0.5));
        self.queue_high_ms = ms(queue.at(0.9));
        self.varies_ms = ms(Weighted::of(spans, |it| Some(it.varies)).at(0.5));
        self.way_back_ms = ms(Weighted::of(spans, |it| Some(it.way_back)).at(0.5));
        let share = Weighted::of(spans, |it| it.share);
        self.path_share = share.at(0.5).map(rounded);
        let line = |it: &SenderState| {
            let share = it.share.filter(|share| *share > LEAST_SHARE && it.bandwidth > 0.0)?;
            Some(it.bandwidth / share)
        };
        self.line_mbps = Weighted::of(spans, line).at(0.5).map(|line| rounded(line * 8e-6));
        let whole = queue.time().max(1e-9);
        self.path_known_share = rounded(share.time() / whole);
        let excused = Weighted::of(spans, |it| (it.phase == "excused").then_some(0.0));
        self.excused_share = rounded(excused.time() / whole);
    }

    fn measure_losses(&mut self, trace: &Trace, spans: &[(f64, &SenderState)]) {
        let Some((_, last)) = spans.last() else {
            let (lost, came) = (trace.lost.last().map_or(0.0, |p| p.1), trace.received as f64);
            self.loss_share = fine(lost / (lost + came).max(1.0));
            return;
        };
        let start = spans.first().map_or(0.0, |(_, it)| it.at);
        let start = (start + START_ROUNDS * self.min_rtt_ms / 1e3).min(start + self.seconds / 4.0);
        let begun = spans.iter().find(|(_, it)| it.at >= start).map_or(*last, |(_, it)| *it);
        let sent = last.sent.saturating_sub(begun.sent).max(1) as f64;
        let lost = last.lost.saturating_sub(begun.lost) as f64;
        self.loss_share = fine(lost / sent);
        self.marked_share = fine(last.marked as f64 / last.sent.max(1) as f64);
        let no_queue = NO_QUEUE.0.max(NO_QUEUE.1 * self.min_rtt_ms / 1e3);
        let (mut unqueued, mut before) = (0, None::<&SenderState>);
        for (_, it) in spans.iter().filter(|(_, it)| it.at >= start) {
            let newly = before.map_or(0, |before| it.lost.saturating_sub(before.lost));
            // A loss is detected when later packets have arrived: the queue may be gone by then.
            let queue = before.map_or(it.queue, |before| before.queue.max(it.queue));
            unqueued += if queue < no_queue { newly } else { 0 };
            before = Some(it);
        }
        self.unqueued_loss_share = rounded(unqueued as f64 / lost.max(1.0));
    }

    fn measure_rates(&mut self, trace: &Trace, from: f64, until: f64) {
        let least = CELL.0.max(CELL.1 * self.min_rtt_ms / 1e3);
        let step = least.max(self.seconds / MOST_CELLS);
        let mut dead = 0.0;
        let mut cells = vec![0.0; ((until - from) / step).ceil().max(1.0) as usize];
        let mut before = (from, 0.0);
        for it in trace.states.iter().filter(|it| it.at > from && it.at <= until) {
            let delivered = it.delivered as f64;
            if delivered <= before.1 {
                continue;
            }
            let long = DEAD.0.max(DEAD.1 * it.rtt.min(1.0));
            if it.at - before.0 > long && before.1 > 0.0 && !waits(trace, before.0, it.at) {
                dead += it.at - before.0;
            }
            spread(&mut cells, step, before.0 - from, it.at - from, delivered - before.1);
            before = (it.at, delivered);
        }
        self.dead_share = rounded(dead / self.seconds);
        // The last bin is incomplete.
        if cells.len() > 1 {
            cells.pop();
        }
        let mean = cells.iter().sum::<f64>() / cells.len() as f64;
        let variance = cells.iter().map(|cell| (cell - mean).powi(2)).sum::<f64>();
        let mut sorted = cells.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| sorted[((sorted.len() - 1) as f64 * part) as usize];
        let mbps = |bytes: f64| rounded(bytes / step * 8.0 / 1e6);
        (self.mbps, self.high_mbps) = (mbps(mean), mbps(at(0.9)));
        self.used_share = self.line_mbps.map(|line| rounded(self.mbps / line.max(1e-9)));
        self.rate_varies = rounded((variance / cells.len() as f64).sqrt() / mean.max(1.0));
        let (median, mut run, mut low) = (at(0.5), 0, 0);
        // A low rate until the end, or from the beginning, is not a dip.
        let mut begun = false;
        for cell in &cells {
            if *cell < LOW * median {
                run += usize::from(begun);
                continue;
            }
            (begun, low) = (true, low + if run >= LOW_CELLS { run } else { 0 });
            run = 0;
        }
        self.dip_seconds = rounded(low as f64 * step);
        self.dip_share = rounded(low as f64 / cells.len() as f64);
    }
}

/// The states between two times, each with the time until the next one.
fn spans(trace: &Trace, from: f64, until: f64) -> Vec<(f64, &SenderState)> {
    let inside = |it: &&SenderState| it.at >= from && it.at <= until && it.rtt > 0.0;
    let lines: Vec<_> = trace.states.iter().filter(inside).collect();
    let ends = lines.iter().skip(1).map(|it| it.at).chain([until]);
    lines.iter().zip(ends).map(|(it, end)| ((end - it.at).max(0.0), *it)).collect()
}

/// Time covered by these spans between two times.
fn overlap(spans: &[(f64, f64)], from: f64, until: f64) -> f64 {
    spans
        .iter()
        .map(|(begin, end)| (end.min(until) - begin.max(from)).max(0.0))
        .fold(0.0, |a, b| a + b)
}

/// Whether the sender spent most of this time waiting for something other than the path.
fn waits(trace: &Trace, from: f64, until: f64) -> bool {
    let causes = ["source", "permission", "paused"];
    let spans = causes.iter().filter_map(|cause| trace.waits.get(*cause));
    spans.map(|spans| overlap(spans, from, until)).sum::<f64>() > 0.5 * (until - from)
}

/// Adds bytes, spread evenly from one time to another.
fn spread(cells: &mut [f64], step: f64, from: f64, until: f64, bytes: f64) {
    let (first, last) = ((from / step) as usize, (until / step) as usize);
    for cell in first..=last.min(cells.len().saturating_sub(1)) {
        let (begin, end) = (cell as f64 * step, (cell + 1) as f64 * step);
        let inside = (end.min(until) - begin.max(from)).max(0.0);
        let share = if until > from { inside / (until - from) } else { 1.0 };
        if let Some(cell) = cells.get_mut(cell) {
            *cell += bytes * share;
        }
    }
}

/// The unused part of the rate that the congestion control allowed while nothing else was waited
/// for.
fn unused(trace: &Trace, spans: &[(f64, &SenderState)]) -> f64 {
    let causes = ["source", "permission", "paused", "in_flight"];
    let mut waited: Vec<(f64, f64)> =
        causes.iter().filter_map(|cause| trace.waits.get(*cause)).flatten().copied().collect();
    waited.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut allowed, mut next) = (0.0, 0);
    for (time, it) in spans {
        let end = it.at + time;
        while waited.get(next).is_some_and(|(_, until)| *until <= it.at) {
            next += 1;
        }
        let inside = waited.iter().skip(next).take_while(|(from, _)| *from < end);
        let waited: f64 =
            inside.map(|(from, until)| (until.min(end) - from.max(it.at)).max(0.0)).sum();
        allowed += it.allowed * (time - waited).max(0.0);
    }
    (1.0 - trace.data_bytes as f64 / allowed.max(1.0)).max(0.0)
}
