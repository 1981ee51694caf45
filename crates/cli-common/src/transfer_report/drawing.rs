//! The plot of one transfer: rate, losses, round trip, buffers and waits over time.

use netblt_pages::plot::{Band, Kind, Panel, Picture, Series};
use netblt_pages::rates;

use super::trace::Trace;

/// Number of bins of a run, of at least [`SHORTEST`] each.
const STEPS: f64 = 200.0;
/// Two bursts of a slow sender, in seconds.
const SHORTEST: f64 = 0.01;
/// Names of the causes of waiting, in the trace and in the plot.
const CAUSES: [(&str, &str); 5] = [
    ("source", "source's disk"),
    ("permission", "permission"),
    ("in_flight", "room in flight"),
    ("receiver_disk", "receiver's disk"),
    ("paused", "end of a pause"),
];

pub(super) fn picture(trace: &Trace, title: &str, notes: Vec<String>) -> Picture {
    let step = (trace.end / STEPS).max(SHORTEST);
    let mbps = |points: Vec<(f64, f64)>| scaled(&points, 8.0 / 1e6);
    let passed = if trace.role.as_deref() == Some("receiver") { "arrived" } else { "sent" };
    let line = |name, colour, points| Series::new(name, Kind::Line, colour, points);
    let rate = Panel::new(
        "data, Mbit/s",
        vec![
            line(passed, 0, mbps(passed_rate(trace, step))),
            line("delivered", 2, mbps(rates::of(&trace.delivered, step))),
            Series::new("allowed", Kind::Limit, 1, mbps(trace.pacing.clone())),
        ],
    );
    let strokes = |name, colour, points: &[(f64, f64)]| {
        let points = rate_of(points, step);
        let any = points.iter().any(|point| point.1 > 0.0);
        Series::new(name, Kind::Strokes, colour, if any { points } else { Vec::new() })
    };
    let losses = Panel::new(
        "lost and resent, packets/s",
        vec![strokes("lost", 1, &trace.lost), strokes("resent", 3, &trace.resent)],
    );
    let ms = |points: &[(f64, f64)]| scaled(points, 1e3);
    let trip = Panel::new(
        "round trip, ms",
        vec![
            line("round trip", 0, ms(&trace.rtt)),
            Series::new("smallest", Kind::Limit, 0, ms(&trace.min_rtt)),
            line("queue, estimated", 1, ms(&trace.queue)),
        ],
    );
    let holder =
        if trace.role.as_deref() == Some("receiver") { "with the disk" } else { "granted, empty" };
    let buffers = Panel::new(
        "buffers",
        vec![
            line("outstanding", 0, stairs(&trace.outstanding)),
            line(holder, 1, stairs(&trace.held)),
        ],
    );
    let lanes = CAUSES.iter().enumerate().filter_map(|(i, (cause, name))| {
        let spans = trace.waits.get(*cause).filter(|spans| !spans.is_empty())?;
        Some(Series::new(name, Kind::Lane, i, spans.clone()))
    });
    let waits = Panel::new("waiting for", lanes.collect());
    let panels = [rate, losses, trip, buffers, waits];
    let silence = |(from, to): &(f64, f64)| Band { from: *from, to: *to, name: "silence" };
    Picture {
        title: title.to_owned(),
        notes,
        panels: panels.into_iter().filter(|panel| !panel.series.is_empty()).collect(),
        bands: trace.silences.iter().map(silence).collect(),
        end: trace.end,
    }
}

fn scaled(points: &[(f64, f64)], factor: f64) -> Vec<(f64, f64)> {
    points.iter().map(|(at, value)| (*at, value * factor)).collect()
}

/// Bytes a second, bin by bin.
fn passed_rate(trace: &Trace, step: f64) -> Vec<(f64, f64)> {
    let mut total = 0.0;
    let totals = trace.data.iter().map(|(cell, bytes)| {
        total += *bytes as f64;
        (*cell as f64 / 1e3, total)
    });
    rate_of(&totals.collect::<Vec<_>>(), step)
}

/// The rate of a total, bin by bin. Each point is at the end of its bin.
fn rate_of(totals: &[(f64, f64)], step: f64) -> Vec<(f64, f64)> {
    let Some(last) = totals.last() else { return Vec::new() };
    let (mut points, mut before, mut next) = (Vec::new(), 0.0, totals.iter().peekable());
    let steps = (last.0 / step).ceil().max(1.0) as u32;
    for n in 1..=steps {
        let at = f64::from(n) * step;
        let mut total = before;
        while let Some(point) = next.next_if(|point| point.0 <= at) {
            total = point.1;
        }
        points.push((at, (total - before).max(0.0) / step));
        before = total;
    }
    points
}

/// Points of a step function: a count holds until it changes.
fn stairs(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut stairs: Vec<(f64, f64)> = Vec::with_capacity(points.len());
    for (at, value) in points {
        match stairs.last() {
            Some((_, before)) if before == value => {}
            Some((_, before)) => stairs.extend([(*at, *before), (*at, *value)]),
            None => stairs.push((*at, *value)),
        }
    }
    if let (Some((at, _)), Some((_, value))) = (points.last(), stairs.last().copied()) {
        stairs.push((*at, value));
    }
    stairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_become_rates_and_counts_stairs() {
        let totals = [(0.05, 10.0), (0.15, 30.0), (0.35, 50.0)];
        let rates = rate_of(&totals, 0.1).iter().map(|point| point.1.round()).collect::<Vec<_>>();
        assert_eq!(rates, [100.0, 200.0, 0.0, 200.0]);
        assert_eq!(rate_of(&[], 0.1), []);
        assert_eq!(rate_of(&[(0.0, 7.0)], 0.1), [(0.1, 70.0)]);
        let stairs = stairs(&[(0.0, 1.0), (1.0, 1.0), (2.0, 3.0), (4.0, 3.0)]);
        assert_eq!(stairs, [(0.0, 1.0), (2.0, 1.0), (2.0, 3.0), (4.0, 3.0)]);
    }
}
