//! The tables, and the page.

use std::fmt::Write;

use crate::cell::{Judged, Measure, Unit, is_within};
use crate::rows::Row;

pub(crate) fn figure(unit: Unit, value: f64) -> String {
    match unit {
        _ if value.is_infinite() => "never".to_owned(),
        _ if value.is_nan() => "none".to_owned(),
        Unit::Percent => format!("{:.0} %", value * 100.0),
        Unit::Loss if value < 0.0995 => format!("{:.2} %", value * 100.0),
        Unit::Loss => format!("{:.1} %", value * 100.0),
        Unit::Millis => format!("{value:.1} ms"),
        Unit::Seconds => format!("{value:.1} s"),
        Unit::Ratio => format!("{value:.2}"),
    }
}

/// The figure, what the reference had, and the bound.
fn measure(measure: &Measure) -> String {
    let of = |value| figure(measure.unit, value);
    let sign = if measure.is_most { '≤' } else { '≥' };
    let bound = format!("{sign} {}", of(measure.bound));
    let beside = measure.reference.map(|value| format!("{}; ", of(value))).unwrap_or_default();
    let text = format!("{} {} ({beside}{bound})", measure.name, of(measure.figure));
    if is_within(measure) { text } else { format!("**{text}**") }
}

fn passed(cells: &[Judged]) -> usize {
    cells.iter().filter(|cell| cell.passes()).count()
}

/// How many cells of each row are within their bounds, and then each cell.
pub(crate) fn tables(rows: &[Row], names: &[&str], results: &[Vec<Vec<Judged>>]) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "| row | | {} |", names.join(" | "));
    let _ = writeln!(text, "| ---: | --- | {} |", vec!["---:"; names.len()].join(" | "));
    for (n, row) in rows.iter().enumerate() {
        let cells = |result: &Vec<Vec<Judged>>| {
            let all = result[n].len();
            let good = passed(&result[n]);
            if good == all { format!("{good} of {all}") } else { format!("**{good} of {all}**") }
        };
        let cells: Vec<String> = results.iter().map(cells).collect();
        let _ = writeln!(text, "| {} | {} | {} |", row.number, row.title, cells.join(" | "));
    }
    for (n, row) in rows.iter().enumerate() {
        let _ = writeln!(text, "\n## Row {}: {}\n\n{}\n", row.number, row.title, row.about);
        let _ = writeln!(text, "| | {} |", names.join(" | "));
        let _ = writeln!(text, "| --- | {} |", vec!["---"; names.len()].join(" | "));
        for (c, cell) in row.cells.iter().enumerate() {
            let of = |result: &Vec<Vec<Judged>>| {
                let measures = result[n][c].measures.iter().map(measure);
                measures.collect::<Vec<_>>().join(", ")
            };
            let columns: Vec<String> = results.iter().map(of).collect();
            let _ = writeln!(text, "| {} | {} |", cell.name, columns.join(" | "));
        }
    }
    text
}

/// The whole page, made by this program with the arguments `args`.
pub(crate) fn page(
    rows: &[Row],
    names: &[&str],
    results: &[Vec<Vec<Judged>>],
    args: &str,
) -> String {
    let command = format!("cargo run --release -p netblt-sim --example rate-matrix -- {args}");
    let tables = tables(rows, names, results);
    format!(
        "{HEAD}\n{INTRODUCTION}\nMade by `{command}`. {SOURCE}\n{LEGEND}\n{tables}\n{ELSEWHERE}"
    )
}

const HEAD: &str = "# The rate laws in company";
const INTRODUCTION: &str = "
Many flows share one bottleneck, packet by packet (`netblt_sim::bottleneck`). Ours run under the
policies named here: their laws, the pacer, the sampler and the receiver's reports are those of the
program. The others are TCP, CUBIC by RFC 9438 or Reno, with an acknowledgement for every packet;
BBRv1 as the program re-creates it; and senders of a constant rate. All IP packets have 1,500 bytes
unless a row says otherwise, and each host takes up to 1 ms, at random, to see what arrives.
";
const SOURCE: &str = "With one seed and two
policies that takes a quarter of an hour on two processors; `--quick` takes a minute and a half.
The rows stand in `crates/sim/examples/rate-matrix/rows`; this page is not edited by hand.
Time is virtual: the figures are the same on every machine.
";
const LEGEND: &str = "\
A path is written as Mbit/s and milliseconds of round trip; the queue in bandwidth-delay products
(BDP). Unless a row says otherwise, what is sent from 20 s after the last start on counts, for a
minute. A cell holds the figure and in brackets the reference's figure from the same seed, and the
bound. Of losses the worst seed has to be within its bound, of all else the mean over the seeds.
**Bold** is out of bounds. The first table counts the cells that are within theirs.
";
const ELSEWHERE: &str = "## What is not here

Rows 21 (DualPI2, FQ-CoDel) and 22 (ECN that is bleached or wrong) are tested nowhere. Row 35, a law
without one of its parts, is [a page of its own](rate-ablation.md). Of the others:

| row | part | test |
| ---: | --- | --- |
| 26 | a way back of 32 kbit/s | `sim/tests/it/way_back.rs` |
| 29 | a saved rate | `proto/src/rate/tests/memory.rs` |
| 30 | parallel streams | `sim/tests/it/subflows.rs` |
| 31 | no data to send; a receiver that stands still | `sim/tests/it/startup.rs`, `starved.rs` |
| 33 | a receiver that lies | `proto/src/sender/lying_tests.rs` |
";
