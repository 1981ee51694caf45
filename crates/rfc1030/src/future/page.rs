//! "Section 8" of the report, as text and as HTML. Floats are used for display only.

use std::fmt::Write as _;

use netblt_pages::html;

use super::{BEST_BITS_PER_SECOND, Experiment, Result, SEEDS, STATION_BYTES};

const HEAD: [&str; 6] = ["Mbit/s", "of best", "Jain", "waiting", "#RXM", "broke after"];

/// The section as text, one experiment a line.
pub fn text(results: &[Result]) -> String {
    let line = |name: &str, cells: [&str; 6]| {
        let [speed, best, jain, waiting, resent, broke] = cells;
        let line = format!("{name:<50} {speed:>6} {best:>7} {jain:>5} {waiting:>7} {resent:>5}  ");
        format!("{}\n", (line + broke).trim_end())
    };
    let mut out = String::from("Section 8\n") + &line("", HEAD);
    for result in results {
        out += &line(&result.experiment.name(), cells(result).each_ref().map(String::as_str));
    }
    let _ = writeln!(
        out,
        "Means over seeds {} to {} of {} million bytes with 0.5 % loss. Best: {:.3} Mbit/s, two \
         full\npackets every 22 ms. Waiting: most bytes ever in an earth station's buffer; \
         the smallest\nhas {STATION_BYTES}.",
        SEEDS.start(),
        SEEDS.end(),
        super::BYTES / 1_000_000,
        BEST_BITS_PER_SECOND as f64 / 1e6
    );
    out
}

/// The section as a part of the page.
pub fn html(results: &[Result]) -> String {
    let mut out = format!(
        "<h2>Section 8, done</h2>\n<p>What the RFC wanted to try next, over the same Wideband: {} \
         million bytes, several NETBLTs in parallel, the overload that broke it down, and senders \
         that find the channel's rate by what the other end says and nothing else. The best it \
         thinks possible are two full packets every 22 ms, {:.3} Mbit/s.</p>\n\
         <p>Four senders share the channel evenly, as long as their bursts begin apart. Where they \
         meet, twenty packets arrive at once, and the earth stations' buffers, the smallest of \
         which has {STATION_BYTES} bytes, do not take them, however long the interval. More \
         than the channel takes breaks it down in any case; the adaptive \
         senders, which are given no rate, stay below: on rfc998 with each of 1,000 seeds, sealed \
         with 226 of 227.</p>\n",
        super::BYTES / 1_000_000,
        BEST_BITS_PER_SECOND as f64 / 1e6
    );
    let head = "<tr><th style=\"text-align:left\">experiment\
         <th>Mbit/s<th>of best<th>Jain's<br>index<th>most bytes<br>waiting<th>sent<br>again\
         <th>broke down after";
    let mut rows = String::new();
    for result in results {
        let adaptive = matches!(result.experiment, Experiment::Adaptive(_));
        let class = if adaptive { " class=\"model\"" } else { "" };
        let name = result.experiment.name();
        let _ = write!(rows, "\n<tr{class}><td style=\"text-align:left\">{name}");
        for cell in cells(result) {
            let _ = write!(rows, "<td>{cell}");
        }
    }
    out += &html::table(head, &(rows + "\n"));
    let _ = writeln!(
        out,
        "<p class=\"soft\">Means over seeds {} to {}, with 0.5 % of the packets \
         lost; start included.</p>",
        SEEDS.start(),
        SEEDS.end()
    );
    out
}

fn cells(result: &Result) -> [String; 6] {
    let bits = |bits: u64| format!("{:.3}", bits as f64 / 1e6);
    let part = |part: u64| format!("{:.1} %", part as f64 / 10.0);
    let none = || "-".to_owned();
    let runs = result.trials.len().max(1) as f64;
    let resent: u64 = result.trials.iter().map(|trial| trial.resent).sum();
    let crashes = result.crashes();
    let range = crashes.iter().min().zip(crashes.iter().max());
    let broke = range
        .map(|(first, last)| format!("{:.0} to {:.0} s", first.as_secs_f64(), last.as_secs_f64()));
    [
        result.bits_per_second().map_or_else(none, bits),
        result.of_best().map_or_else(none, part),
        format!("{:.3}", result.jain() as f64 / 1000.0),
        result.most_waiting().to_string(),
        format!("{:.0}", resent as f64 / runs),
        broke.unwrap_or_else(none),
    ]
}
