//! Lines over time as SVG: panels below each other over one time axis, every line labelled at its
//! end.

mod axis;

use std::fmt::Write as _;

use axis::{PanelAxis, thinned};

use crate::html::escape;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 64.0;
/// Width reserved for the lines' names.
const RIGHT: f64 = 150.0;
const MARGIN: f64 = 16.0;
const PANEL: f64 = 170.0;
const GAP: f64 = 46.0;
/// A lane of [`Kind::Lane`].
const LANE: f64 = 20.0;
const TITLE_LINE: f64 = 20.0;
const NOTE_LINE: f64 = 16.0;
/// Letters that fit into the width, in the title's size and in the notes'.
const TITLE_LETTERS: usize = 96;
const NOTE_LETTERS: usize = 130;
/// Labels of lines that end at the same height move apart by this.
const LABEL: f64 = 14.0;
/// Blue, orange, green and violet: almost everyone can distinguish them, on screen and in print.
const COLOURS: [&str; 4] = ["#2266aa", "#cc6600", "#228855", "#884499"];
/// If the largest stroke is this many times the median, the axis is logarithmic, because one burst
/// of losses would make all others invisible.
const BURST: f64 = 20.0;
/// A limit of this many times the largest value is not drawn: it would make everything else
/// invisible.
const FAR: f64 = 4.0;

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From point to point.
    Line,
    /// A value that holds until the next one, dashed: a bound, not a measurement.
    Limit,
    /// Upright strokes from the axis: single events.
    Strokes,
    /// Spans of time: from the first number of a point to the second.
    Lane,
}

/// One series.
#[derive(Clone, Debug)]
pub struct Series {
    name: String,
    /// How it is drawn.
    pub kind: Kind,
    /// The colour. A limit has that of the series that it limits.
    colour: usize,
    /// Seconds and value.
    pub points: Vec<(f64, f64)>,
    /// For a lane: spans with a text.
    bars: Vec<SpanBar>,
}

/// A span of a lane by itself.
#[derive(Clone, Debug)]
pub struct SpanBar {
    /// Where it begins, in seconds.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// Its colour in SVG.
    pub colour: &'static str,
    /// The tooltip.
    pub says: String,
}

impl Series {
    /// A series of points.
    pub fn new(name: &str, kind: Kind, colour: usize, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), kind, colour, points, bars: Vec::new() }
    }

    /// A lane with spans of different kinds.
    pub fn of_bars(name: &str, bars: Vec<SpanBar>) -> Self {
        Self { bars, ..Self::new(name, Kind::Lane, 0, Vec::new()) }
    }

    fn largest(&self) -> f64 {
        self.points.iter().map(|point| point.1).fold(0.0, f64::max)
    }
}

/// Series with a common vertical axis.
#[derive(Clone, Debug)]
pub struct Panel {
    label: String,
    /// Those with points.
    pub series: Vec<Series>,
}

impl Panel {
    /// Without the series that have no points.
    pub fn new(label: &str, series: Vec<Series>) -> Self {
        let is_there = |series: &Series| !series.points.is_empty() || !series.bars.is_empty();
        let series = series.into_iter().filter(is_there).collect();
        Self { label: label.to_owned(), series }
    }

    fn is_lanes(&self) -> bool {
        self.series.iter().all(|series| series.kind == Kind::Lane)
    }

    /// For strokes of very different heights: the smallest and the largest.
    fn strokes(&self) -> Option<(f64, f64)> {
        if self.series.iter().any(|series| series.kind != Kind::Strokes) {
            return None;
        }
        let heights = self.series.iter().flat_map(|series| &series.points).map(|point| point.1);
        let mut heights: Vec<f64> = heights.filter(|height| *height > 0.0).collect();
        heights.sort_by(f64::total_cmp);
        let (smallest, largest) = (*heights.first()?, *heights.last()?);
        (largest > BURST * heights[heights.len() / 2]).then_some((smallest, largest))
    }

    fn height(&self) -> f64 {
        if self.is_lanes() { LANE * self.series.len() as f64 } else { PANEL }
    }
}

/// A time of malfunction, across all panels.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// Where it begins, in seconds.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// What it was.
    pub name: &'static str,
}

/// A plot.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// The title, in the picture and of the page.
    pub title: String,
    /// Lines below the title.
    pub notes: Vec<String>,
    /// From top to bottom.
    pub panels: Vec<Panel>,
    /// Across all panels.
    pub bands: Vec<Band>,
    /// The end of the time axis, in seconds.
    pub end: f64,
}

impl Picture {
    /// As an SVG file.
    pub fn svg(&self) -> String {
        let titles = wrapped(&self.title, TITLE_LETTERS);
        let notes: Vec<String> =
            self.notes.iter().flat_map(|note| wrapped(note, NOTE_LETTERS)).collect();
        let head = MARGIN + titles.len() as f64 * TITLE_LINE + notes.len() as f64 * NOTE_LINE;
        let panels: f64 = self.panels.iter().map(|panel| panel.height() + GAP).sum();
        let height = head + MARGIN + panels + NOTE_LINE;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n<title>{}</title>\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
            escape(&self.title)
        );
        let mut y = MARGIN;
        for line in &titles {
            y += TITLE_LINE;
            let _ = writeln!(
                svg,
                "<text x=\"{MARGIN}\" y=\"{:.1}\" font-size=\"15\">{}</text>",
                y - 6.0,
                escape(line)
            );
        }
        for line in &notes {
            y += NOTE_LINE;
            text(&mut svg, [MARGIN, y - 4.0], "start", GREY, line);
        }
        y += MARGIN;
        let time = Time::new(self.end);
        for (i, panel) in self.panels.iter().enumerate() {
            y += NOTE_LINE;
            draw(&mut svg, panel, y, &time, &self.bands);
            if i == 0 {
                name_bands(&mut svg, &self.bands, y, &time);
            }
            y += panel.height() + GAP - NOTE_LINE;
        }
        let centre = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
        text(&mut svg, [centre, y + 4.0], "middle", GREY, &format!("time, {}", time.unit));
        svg.push_str("</svg>\n");
        svg
    }

    /// As a page, with this text below the plot.
    pub fn page(&self, text: &str) -> String {
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{}</title>\n\
             <style>body {{ max-width: 72em; margin: 1em auto; font-family: sans-serif }}\
             </style>\n{}<pre>{}</pre>\n</html>\n",
            escape(&self.title),
            self.svg(),
            text.lines().map(escape).collect::<Vec<_>>().join("\n")
        )
    }
}

const GREY: &str = "#444444";

/// The time axis: it ends with the run.
struct Time {
    axis: PanelAxis,
    end: f64,
    unit: &'static str,
    /// Decimals of a second.
    factor: f64,
}

impl Time {
    fn new(end: f64) -> Self {
        let end = if end.is_finite() && end > 0.0 { end } else { 1.0 };
        let (unit, factor) = match end {
            ..1.0 => ("ms", 1e3),
            ..1800.0 => ("s", 1.0),
            ..36_000.0 => ("min", 1.0 / 60.0),
            _ => ("h", 1.0 / 3600.0),
        };
        Self { axis: PanelAxis::new(end * factor), end, unit, factor }
    }

    fn x(&self, seconds: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (seconds / self.end).clamp(0.0, 1.0)
    }
}

fn draw(svg: &mut String, panel: &Panel, top: f64, time: &Time, bands: &[Band]) {
    let bottom = top + panel.height();
    for band in bands {
        let (from, to) = (time.x(band.from), time.x(band.to));
        rectangle(svg, [from, top, (to - from).max(1.0), bottom - top], "#000000", 0.12);
    }
    for mark in time.axis.marks() {
        let x = time.x(mark / time.factor);
        line(svg, [x, top, x, bottom]);
        text(svg, [x, bottom + 16.0], "middle", GREY, &time.axis.number(mark));
    }
    let unit = if panel.strokes().is_some() { ", logarithmic" } else { "" };
    text(svg, [LEFT, top - 6.0], "start", "#000000", &format!("{}{unit}", panel.label));
    if panel.is_lanes() {
        lanes(svg, panel, top, time);
    } else {
        lines(svg, panel, top, time);
    }
}

/// Labels above the first panel; of bands that are close, only the first.
fn name_bands(svg: &mut String, bands: &[Band], top: f64, time: &Time) {
    // To the right of the panel's own label.
    let mut free = LEFT + 190.0;
    for band in bands {
        let centre = (time.x(band.from) + time.x(band.to)) / 2.0;
        if centre > free {
            text(svg, [centre, top - 6.0], "middle", GREY, band.name);
            free = centre + 60.0;
        }
    }
}

/// One row of spans for each series.
fn lanes(svg: &mut String, panel: &Panel, top: f64, time: &Time) {
    for (i, series) in panel.series.iter().enumerate() {
        let y = top + i as f64 * LANE;
        line(svg, [LEFT, y + LANE, WIDTH - RIGHT, y + LANE]);
        let colour = COLOURS[series.colour % COLOURS.len()];
        for (from, to) in joined(&series.points, time.end / (WIDTH - LEFT - RIGHT) / 2.0) {
            let (from, to) = (time.x(from), time.x(to));
            rectangle(svg, [from, y + 4.0, (to - from).max(0.5), LANE - 7.0], colour, 0.9);
        }
        for bar in &series.bars {
            let (from, to) = (time.x(bar.from), time.x(bar.to));
            let _ = write!(svg, "<g><title>{}</title>", escape(&bar.says));
            let span = [from, y + 3.0, (to - from - 0.5).max(0.5), LANE - 5.0];
            rectangle(svg, span, bar.colour, 0.9);
            svg.push_str("</g>\n");
        }
        text(svg, [WIDTH - RIGHT + 8.0, y + LANE - 6.0], "start", colour, &series.name);
    }
}

/// Merges spans less than `gap` apart: there may be more of them than pixels.
fn joined(spans: &[(f64, f64)], gap: f64) -> Vec<(f64, f64)> {
    let mut joined: Vec<(f64, f64)> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.0 <= last.1 + gap => last.1 = last.1.max(span.1),
            _ => joined.push(*span),
        }
    }
    joined
}

fn lines(svg: &mut String, panel: &Panel, top: f64, time: &Time) {
    let bottom = top + PANEL;
    let reached = panel.series.iter().filter(|series| series.kind != Kind::Limit);
    let reached = reached.map(Series::largest).fold(0.0, f64::max);
    let is_near =
        |series: &&Series| series.kind != Kind::Limit || series.largest() <= FAR * reached;
    let (near, far): (Vec<&Series>, Vec<&Series>) = panel.series.iter().partition(is_near);
    let axis = match panel.strokes() {
        Some((smallest, largest)) => PanelAxis::logarithmic(smallest, largest * 1.2),
        None => {
            PanelAxis::new(near.iter().map(|series| series.largest()).fold(0.0, f64::max) * 1.05)
        }
    };
    let y = |value: f64| bottom - PANEL * axis.share(value);
    for mark in axis.marks() {
        line(svg, [LEFT, y(mark), WIDTH - RIGHT, y(mark)]);
        text(svg, [LEFT - 6.0, y(mark) + 4.0], "end", GREY, &axis.number(mark));
    }
    let mut labels: Vec<(f64, &str, String)> = Vec::new();
    for series in near {
        let colour = COLOURS[series.colour % COLOURS.len()];
        let points = match series.kind {
            Kind::Limit => steps(&series.points, time.end),
            Kind::Strokes => series.points.iter().filter(|point| point.1 > 0.0).copied().collect(),
            _ => thinned(&series.points),
        };
        let path = points.iter().map(|(at, n)| (time.x(*at), y(*n)));
        curve(svg, series.kind, colour, bottom, &path.collect::<Vec<_>>());
        let end = match series.kind {
            Kind::Strokes => bottom,
            _ => points.last().map_or(bottom, |point| y(point.1)),
        };
        labels.push((end, colour, series.name.clone()));
    }
    for series in far {
        let last = series.points.last().map_or(0.0, |point| point.1);
        let name = format!("{}: {}, above", series.name, PanelAxis::new(last).number(last));
        labels.push((top, COLOURS[series.colour % COLOURS.len()], name));
    }
    apart(&mut labels, top, bottom);
    for (y, colour, name) in labels {
        text(svg, [WIDTH - RIGHT + 8.0, y + 4.0], "start", colour, &name);
    }
}

fn curve(svg: &mut String, kind: Kind, colour: &str, bottom: f64, points: &[(f64, f64)]) {
    let point = |(x, y): &(f64, f64)| match kind {
        Kind::Strokes => format!("M{x:.1},{bottom:.1}V{y:.1}"),
        _ => format!("{x:.1},{y:.1}"),
    };
    let points: Vec<String> = points.iter().map(point).collect();
    let points = points.join(" ");
    let _ = match kind {
        Kind::Limit => writeln!(
            svg,
            "<path fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"5 4\" d=\"M{points}\"/>"
        ),
        Kind::Strokes => writeln!(
            svg,
            "<path fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.4\" d=\"{points}\"/>"
        ),
        Kind::Line | Kind::Lane => writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.4\" \
             points=\"{points}\"/>"
        ),
    };
}

/// Moves overlapping labels apart, as little as possible.
fn apart(labels: &mut [(f64, &str, String)], top: f64, bottom: f64) {
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut least = top;
    for label in labels.iter_mut() {
        label.0 = label.0.max(least);
        least = label.0 + LABEL;
    }
    let mut most = bottom;
    for label in labels.iter_mut().rev() {
        label.0 = label.0.min(most);
        most = label.0 - LABEL;
    }
}

/// A step function: a value holds until the next.
fn steps(points: &[(f64, f64)], end: f64) -> Vec<(f64, f64)> {
    let mut path = Vec::new();
    let points = points.iter().filter(|point| point.0 <= end);
    for (at, value) in points {
        if let Some((_, before)) = path.last() {
            path.push((*at, *before));
        }
        path.push((*at, *value));
    }
    if let Some((_, last)) = path.last() {
        path.push((end, *last));
    }
    path
}

fn text(svg: &mut String, [x, y]: [f64; 2], anchor: &str, colour: &str, text: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{}</text>",
        escape(text)
    );
}

fn line(svg: &mut String, [x1, y1, x2, y2]: [f64; 4]) {
    let _ = writeln!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#dddddd\"/>"
    );
}

fn rectangle(svg: &mut String, [x, y, width, height]: [f64; 4], colour: &str, opacity: f64) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         fill=\"{colour}\" fill-opacity=\"{opacity}\"/>"
    );
}

/// Wraps to lines of at most so many letters. Longer words are broken.
fn wrapped(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        let used = line.chars().count();
        if used > 0 && used + 1 + word.len() > letters {
            lines.push(std::mem::take(&mut line));
        } else if used > 0 {
            line.push(' ');
        }
        while word.len() > letters {
            lines.push(word.drain(..letters).collect());
        }
        line.extend(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_titles_are_wrapped_and_lose_nothing() {
        let long = "word ".repeat(60) + &"x".repeat(200);
        let lines = wrapped(&long, 90);
        assert!(lines.iter().all(|line| line.chars().count() <= 90), "{lines:?}");
        assert_eq!(lines.concat().replace(' ', ""), long.replace(' ', ""));
    }

    #[test]
    fn labels_keep_apart_and_within_their_panel() {
        let mut labels: Vec<(f64, &str, String)> =
            [100.0, 99.0, 98.0, 5.0].map(|y| (y, "", String::new())).to_vec();
        apart(&mut labels, 0.0, 100.0);
        assert!(labels.windows(2).all(|pair| pair[1].0 - pair[0].0 >= LABEL - 1e-9), "{labels:?}");
        assert!(labels.iter().all(|label| (0.0..=100.0).contains(&label.0)), "{labels:?}");
    }

    #[test]
    fn limits_hold_until_the_next_and_spans_are_joined() {
        let path = steps(&[(0.0, 5.0), (2.0, 1.0), (9.0, 3.0)], 4.0);
        assert_eq!(path, [(0.0, 5.0), (2.0, 5.0), (2.0, 1.0), (4.0, 1.0)]);
        assert_eq!(joined(&[(0.0, 1.0), (1.05, 2.0), (3.0, 4.0)], 0.1), [(0.0, 2.0), (3.0, 4.0)]);
    }

    #[test]
    fn one_burst_of_strokes_leaves_the_others_to_be_seen() {
        let heights = |burst: f64| {
            let points = (1..20).map(|n| (f64::from(n), if n == 9 { burst } else { 5.0 }));
            let series = Series::new("lost", Kind::Strokes, 1, points.collect());
            let panels = vec![Panel::new("lost, packets/s", vec![series])];
            Picture { panels, end: 20.0, ..Picture::default() }.svg()
        };
        // From the ground (V) up: pixels of the smallest stroke.
        let smallest = |svg: &str| {
            let (_, strokes) = svg.split_once("d=\"M").expect("strokes");
            let (_, stroke) = strokes.split_once(',').expect("a place");
            let (from, to) = stroke.split_once('V').expect("a stroke");
            let to = to.split(' ').next().expect("its end");
            from.parse::<f64>().expect("a number") - to.parse::<f64>().expect("a number")
        };
        let (even, burst) = (heights(9.0), heights(5000.0));
        assert!(even.contains(">lost, packets/s<") && smallest(&even) > 60.0);
        assert!(burst.contains(">lost, packets/s, logarithmic<"), "{burst}");
        assert!(smallest(&burst) > 20.0, "{}", smallest(&burst));
        assert!(burst.contains(">1000<"), "{burst}");
    }

    #[test]
    fn every_line_is_labelled_and_the_axis_ends_with_the_run() {
        let points = vec![(0.0, 1.0), (5.2, 9.0)];
        let limit = |value| vec![(0.0, value)];
        let picture = Picture {
            title: "a < b & c".to_owned(),
            panels: vec![Panel::new(
                "throughput, Mbit/s",
                vec![
                    Series::new("up", Kind::Line, 0, points),
                    Series::new("up's link", Kind::Limit, 0, limit(12.0)),
                    Series::new("down's link", Kind::Limit, 1, limit(1000.0)),
                ],
            )],
            bands: vec![Band { from: 1.0, to: 2.0, name: "outage" }],
            end: 5.2,
            ..Picture::default()
        };
        let svg = picture.svg();
        assert!(svg.contains("a &lt; b &amp; c") && svg.matches("<title>").count() == 1);
        for label in [">up<", ">up's link<", ">down's link: 1000, above<", ">time, s<", ">outage<"]
        {
            assert!(svg.contains(label), "{label} is not in {svg}");
        }
        // The last point is at the right end of the panel.
        assert!(svg.contains(&format!(" {:.1},", WIDTH - RIGHT)), "{svg}");
        assert!(svg.contains("stroke-dasharray"));
        assert_eq!(svg.matches("<polyline").count(), 1);
    }
}
