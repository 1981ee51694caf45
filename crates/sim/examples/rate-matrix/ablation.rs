//! `fair` without each of its parts in turn, in the same cells.

use std::fmt::Write;

use netblt_proto::rate::controller::ablation::{Part, leave_out};

use crate::cell::{Judged, Unit};
use crate::rows::Row;

/// What the cells of a row came to: how many are within their bounds, and the mean of each measure.
struct Sum {
    good: usize,
    means: Vec<(&'static str, Unit, f64)>,
}

fn sum(cells: &[Judged]) -> Sum {
    let mut means: Vec<(&'static str, Unit, f64, f64)> = Vec::new();
    for measure in cells.iter().flat_map(|cell| &cell.measures) {
        if !measure.figure.is_finite() {
            continue;
        }
        match means.iter_mut().find(|mean| mean.0 == measure.name) {
            Some(mean) => (mean.2, mean.3) = (mean.2 + measure.figure, mean.3 + 1.0),
            None => means.push((measure.name, measure.unit, measure.figure, 1.0)),
        }
    }
    let means = means.into_iter().map(|(name, unit, sum, count)| (name, unit, sum / count));
    Sum { good: cells.iter().filter(|cell| cell.passes()).count(), means: means.collect() }
}

/// The page, made by `run` for each part and by this program with the arguments `args`.
pub(crate) fn page(rows: &[Row], run: impl Fn() -> Vec<Vec<Vec<Judged>>>, args: &str) -> String {
    let parts = std::iter::once(None).chain(Part::ALL.map(Some));
    let sums: Vec<(&str, Vec<Sum>)> = parts
        .map(|part| {
            leave_out(part);
            let results = run();
            eprintln!("{}", part.map_or("whole", Part::name));
            let name = part.map_or("none: the whole law", Part::name);
            (name, results[0].iter().map(|cells| sum(cells)).collect())
        })
        .collect();
    leave_out(None);
    let command = format!(
        "cargo run --release -p netblt-sim --features ablation --example rate-matrix -- {args}"
    );
    let mut text = format!("# The rate law without each of its parts\n\nMade by `{command}`.\n");
    text.push_str(ABOUT);
    for (n, row) in rows.iter().enumerate() {
        let names: Vec<&str> = sums[0].1[n].means.iter().map(|mean| mean.0).collect();
        let of = row.cells.len();
        let _ = writeln!(text, "\n## Row {}: {}\n\n{}\n", row.number, row.title, row.about);
        let _ = writeln!(text, "| left out | within bounds, of {of} | {} |", names.join(" | "));
        let _ = writeln!(text, "| --- | ---: | {} |", vec!["---:"; names.len()].join(" | "));
        for (name, rows) in &sums {
            let Sum { good, means } = &rows[n];
            let mean = |wanted: &&str| {
                let found = means.iter().find(|mean| mean.0 == *wanted);
                found.map_or_else(String::new, |(_, unit, mean)| crate::page::figure(*unit, *mean))
            };
            let means: Vec<String> = names.iter().map(mean).collect();
            let _ = writeln!(text, "| {name} | {good} | {} |", means.join(" | "));
        }
    }
    text
}

const ABOUT: &str = "
The rows, their cells and bounds are those of [the rate laws in company](rate-matrix.md). A line
leaves one part out of every sender of ours. It holds how many cells are within their bounds, and
the mean of each measure over the cells of the row. The parts are those of
[rate control](../design/rate-control.md). Time is virtual: the figures are the same on every
machine.
";
