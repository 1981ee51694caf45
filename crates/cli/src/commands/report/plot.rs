//! Lines over time as SVG: panels below each other over one time axis, two lines in each.

use std::fmt::Write as _;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
const PANEL: f64 = 200.0;
const GAP: f64 = 44.0;
/// Blue and orange: told apart by almost everybody, on screen and in print.
const COLOURS: [&str; 2] = ["#2266aa", "#dd7711"];
/// More points than this in a line are more than there are pixels; groups give way to their ends.
const MAX_POINTS: usize = 4000;

/// One line.
pub(super) struct Series {
    pub(super) name: &'static str,
    /// Seconds and value.
    pub(super) points: Vec<(f64, f64)>,
}

/// What shares a vertical axis.
pub(super) struct Panel {
    pub(super) label: &'static str,
    pub(super) series: [Series; 2],
}

/// The whole picture.
pub(super) fn svg(title: &str, panels: &[Panel]) -> String {
    let height = TOP + panels.len() as f64 * (PANEL + GAP);
    let points = panels.iter().flat_map(|panel| &panel.series).flat_map(|series| &series.points);
    let end = points.map(|point| point.0).fold(0.0, f64::max);
    let title = escape(title);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<title>{title}</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{title}</text>\n"
    );
    for (i, panel) in panels.iter().enumerate() {
        draw(&mut svg, panel, TOP + i as f64 * (PANEL + GAP), end);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw(svg: &mut String, panel: &Panel, top: f64, end: f64) {
    let values = panel.series.iter().flat_map(|series| &series.points).map(|point| point.1);
    let (step_x, limit_x) = axis(end);
    let (step_y, limit_y) = axis(values.fold(0.0, f64::max));
    let bottom = top + PANEL;
    let width = WIDTH - LEFT - RIGHT;
    let x = |seconds: f64| LEFT + width * seconds / limit_x;
    let y = |value: f64| bottom - PANEL * value / limit_y;
    let text = |svg: &mut String, x: f64, y: f64, anchor: &str, text: &str| {
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#444444\">\
             {text}</text>"
        );
    };
    let line = |svg: &mut String, [x1, y1, x2, y2]: [f64; 4]| {
        let _ = writeln!(
            svg,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#dddddd\"/>"
        );
    };
    for mark in marks(step_y, limit_y) {
        line(svg, [LEFT, y(mark), WIDTH - RIGHT, y(mark)]);
        text(svg, LEFT - 6.0, y(mark) + 4.0, "end", &number(mark, step_y));
    }
    for mark in marks(step_x, limit_x) {
        line(svg, [x(mark), top, x(mark), bottom]);
        text(svg, x(mark), bottom + 16.0, "middle", &format!("{} s", number(mark, step_x)));
    }
    text(svg, LEFT, top - 6.0, "start", panel.label);
    for (i, (series, colour)) in panel.series.iter().zip(COLOURS).enumerate() {
        let right = WIDTH - RIGHT - 60.0 * (1 - i) as f64;
        let _ = writeln!(
            svg,
            "<text x=\"{right:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"{colour}\">{}</text>",
            top - 6.0,
            series.name
        );
        if series.points.is_empty() {
            continue;
        }
        let mut path = String::new();
        for (seconds, value) in thinned(&series.points) {
            let _ = write!(path, "{:.1},{:.1} ", x(seconds), y(value));
        }
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"/>",
            path.trim_end()
        );
    }
}

/// A step of 1, 2 or 5 times a power of ten, and where the axis ends, for values up to `largest`.
fn axis(largest: f64) -> (f64, f64) {
    let largest = if largest > 0.0 && largest.is_finite() { largest } else { 1.0 };
    let power = 10_f64.powf((largest / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let step = step.into_iter().find(|step| largest / step <= 6.0).unwrap_or(10.0 * power);
    (step, step * (largest / step).ceil().max(1.0))
}

fn marks(step: f64, limit: f64) -> impl Iterator<Item = f64> {
    let count = (limit / step).round() as u32;
    (0..=count.min(20)).map(move |n| f64::from(n) * step)
}

/// As many decimals as the step has.
fn number(value: f64, step: f64) -> String {
    let decimals = if step >= 1.0 { 0 } else { (-step.log10()).ceil().clamp(1.0, 9.0) as usize };
    format!("{value:.decimals$}")
}

/// Groups of points by their lowest and highest: peaks must not vanish.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MAX_POINTS {
        return points.to_vec();
    }
    let group = points.len().div_ceil(MAX_POINTS / 2);
    let ends = |group: &[(f64, f64)]| {
        let low = group.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1));
        let high = group.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
        let mut ends: Vec<_> = low.into_iter().chain(high).collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        ends
    };
    points.chunks(group).flat_map(ends).collect()
}

fn escape(text: &str) -> String {
    let clean = text.chars().filter(|c| !c.is_control()).collect::<String>();
    clean.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_round() {
        assert_eq!(axis(0.0), axis(1.0), "nothing to show still has an axis");
        assert_eq!(axis(97.3), (20.0, 100.0));
        assert_eq!(axis(1000.0), (200.0, 1000.0));
        assert_eq!(axis(f64::NAN), axis(1.0));
        assert_eq!(number(0.25, 0.05), "0.25");
        assert_eq!(marks(20.0, 100.0).count(), 6);
    }

    #[test]
    fn peaks_survive_thinning() {
        let mut points: Vec<_> = (0..50_000).map(|n| (f64::from(n), 1.0)).collect();
        points[31_111].1 = 77.0;
        let thin = thinned(&points);
        assert!(thin.len() <= MAX_POINTS + 2);
        assert!(thin.iter().any(|point| point.1 == 77.0));
        assert!(thin.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }
}
