//! "Section 8" of the report for people, as text and as HTML. Floats are for showing.

use std::fmt::Write as _;

use super::{BEST_BITS_PER_SECOND, Result, SEEDS};

const HEAD: [&str; 6] = ["Mbit/s", "of best", "Jain", "waiting", "#RXM", "broke down after"];

/// The section as text, one experiment a line.
pub fn text(results: &[Result]) -> String {
    let [speed, best, jain, waiting, resent, broke] = HEAD;
    let mut out = format!(
        "Section 8\n{:<58} {speed:>6} {best:>7} {jain:>5} {waiting:>7} {resent:>6}  {broke}\n",
        ""
    );
    for result in results {
        let [speed, best, jain, waiting, resent, broke] = cells(result);
        let _ = writeln!(
            out,
            "{:<58} {speed:>6} {best:>7} {jain:>5} {waiting:>7} {resent:>6}  {broke}",
            result.experiment.name()
        );
    }
    let _ = writeln!(out, "{}", legend());
    out
}

/// The section as a part of the page.
pub fn html(results: &[Result]) -> String {
    let mut out = format!("<h2>Section 8</h2>\n<p>{}</p>\n<table><tr><th>", legend());
    for name in HEAD {
        let _ = write!(out, "<th>{name}");
    }
    for result in results {
        let _ = write!(out, "\n<tr><td style=\"text-align:left\">{}", result.experiment.name());
        for cell in cells(result) {
            let _ = write!(out, "<td>{cell}");
        }
    }
    out.push_str("\n</table>\n");
    out
}

fn cells(result: &Result) -> [String; 6] {
    let bits = |bits: u64| format!("{:.3}", bits as f64 / 1e6);
    let part = |part: u64| format!("{:.1} %", part as f64 / 10.0);
    let none = || "-".to_owned();
    let runs = result.trials.len().max(1) as f64;
    let resent: u64 = result.trials.iter().map(|trial| trial.resent).sum();
    let crashes = result.crashes();
    let crashes: Vec<String> =
        crashes.iter().map(|at| format!("{:.1}", at.as_secs_f64())).collect();
    [
        result.bits_per_second().map_or_else(none, bits),
        result.of_best().map_or_else(none, part),
        format!("{:.3}", result.jain() as f64 / 1000.0),
        result.most_waiting().to_string(),
        format!("{:.0}", resent as f64 / runs),
        if crashes.is_empty() { none() } else { format!("{} s", crashes.join(", ")) },
    ]
}

fn legend() -> String {
    format!(
        "RFC 1030's future directions: 50 million bytes over the Wideband with seeds {} to {}. The \
         best that it thinks possible is {:.3} Mbit/s, two packets of 1438 bytes every 22 ms. \
         Waiting is the most that ever was in the earth station's buffer, which breaks down above \
         30000 bytes.",
        SEEDS.start(),
        SEEDS.end(),
        BEST_BITS_PER_SECOND as f64 / 1e6
    )
}
