//! The report as text and as one self-contained HTML page. Floats are used for display only.

mod friendly;

use std::fmt::Write as _;

use netblt_pages::frame::{Axis, Frame, LEFT_OF_LANES, mbps};
use netblt_pages::html;

use crate::friendly::{Friendliness, Neighbours};
use crate::report::{Compared, SEEDS, TOLERANCE, Table, others};
use crate::rows::Row;

/// Pixels from one row of a plot to the next.
const LANE: f64 = 30.0;
/// Counts of a row, in the review's order.
const COUNTS: [&str; 5] = ["lost", "sent again", "sent", "received", "duplicates"];

/// The tables as text, one row a line.
pub fn text(tables: &[Table], beside: &[Friendliness], neighbours: &[Neighbours]) -> String {
    let mut out = String::new();
    for table in tables {
        let name = table.setting.name();
        let _ = writeln!(out, "{name:<33}Mbit/s            LOST           AGAIN      DUPLICATES");
        out += "                      ORNL   model  error    ORNL   model    ORNL   model   ORNL";
        out += "   model\n";
        for row in &table.rows {
            let _ = writeln!(out, "{}", line(row));
        }
        out += "\n";
    }
    let _ = writeln!(out, "{}\n", in_short(tables));
    out + &friendly::text(beside, neighbours)
}

fn line(compared: &Compared) -> String {
    let row = compared.row.as_ref();
    let sample = &compared.sample;
    let theirs = row.map_or("-".to_owned(), |row| format!("{:.1}", mbps(row.bits_per_second)));
    let error = compared.error().map_or(String::new(), |e| format!("{:+.1}%", e as f64 / 10.0));
    let count = |of: fn(&Row) -> Option<u64>| {
        row.and_then(of).map_or("-".to_owned(), |count| count.to_string())
    };
    format!(
        "{:<20}{theirs:>6} {:>7.1} {error:>6} {:>7} {:>7} {:>7} {:>7} {:>6} {:>7}",
        compared.trial.entry.name(),
        mbps(sample.bits_per_second),
        count(|row| row.lost),
        sample.lost,
        count(|row| row.resent),
        sample.resent,
        count(|row| row.duplicates),
        sample.duplicates,
    )
}

/// How close the rates are.
fn in_short(tables: &[Table]) -> String {
    let errors = tables.iter().flat_map(|table| &table.rows).filter_map(Compared::error);
    let errors: Vec<i64> = errors.map(i64::abs).collect();
    let sum: i64 = errors.iter().sum();
    format!(
        "{} rows of the review: rates {:.1} % off in the mean, {:.1} % at most",
        errors.len(),
        sum as f64 / 10.0 / errors.len().max(1) as f64,
        errors.iter().max().copied().unwrap_or_default() as f64 / 10.0
    )
}

/// The tables and their plots as one self-contained page: no script, no font, no external image.
pub fn html(tables: &[Table], beside: &[Friendliness], neighbours: &[Neighbours]) -> String {
    let mut out = format!(
        "<h1>ORNL's review of bulk protocols, run again</h1>\n\
         <p>In 2003 Oak Ridge National Laboratory compared the bulk protocols of the day, which \
         call NETBLT their ancestor: SABUL, Tsunami, FOBS and QUANTA's RBUDP, with TCP and plain \
         UDP beside them. Below is every row that it measured on its own test network, a host that \
         delayed packets by 35 ms each way and dropped 0.0107 % of them, beside the same transfer \
         by this program's re-creation of each one's rules, on its own packets, between models of \
         ORNL's hosts, in virtual time; and beside them ours, without a given rate, and those \
         that came after. No constant belongs to a row. Where packets are dropped a figure is the \
         mean of {} seeds.</p>\n<p class=\"soft\"><code>netblt-lab report ornl --html FILE</code> \
         makes this page. What the model is, which of its constants are fitted, and what it \
         leaves: <code>docs/decisions/ornl-models.md</code>. The re-creations are of algorithms, \
         and no judgement of the programs of that name.</p>\n<p>{}.</p>\n",
        SEEDS.count(),
        in_short(tables)
    );
    out += LEGEND;
    for table in tables {
        let _ = writeln!(out, "<h2>{}</h2>", table.setting.name());
        let _ = writeln!(out, "<figure><div class=\"wide\">{}</div></figure>", plot(table));
        out += &html_table(table);
    }
    out += &friendly::html(beside, neighbours);
    out += &elsewhere();
    html::page("ORNL's review, run again", &out)
}

/// The legend.
const LEGEND: &str = concat!(
    "<div class=\"legend\">\n<span><svg viewBox=\"0 0 16 12\">",
    "<circle class=\"axis\" cx=\"8\" cy=\"6\" r=\"4.5\"/></svg>hollow: ORNL's row</span>\n",
    "<span><svg viewBox=\"0 0 16 12\"><circle class=\"o1\" cx=\"8\" cy=\"6\" r=\"3\"/></svg>",
    "filled: the model</span>\n<span><svg viewBox=\"0 0 16 12\">",
    "<circle class=\"o2\" cx=\"8\" cy=\"6\" r=\"3\"/></svg>",
    "filled: this program's own</span>\n</div>\n",
);

/// The rates of one table.
fn plot(table: &Table) -> String {
    let lanes: Vec<&Compared> = table.rows.iter().rev().collect();
    let frame = Frame {
        size: (980.0, 68.0 + LANE * lanes.len() as f64),
        left: LEFT_OF_LANES,
        x: Axis::until(100.0, 10.0),
        y: Axis::until(lanes.len() as f64, 1.0),
    };
    let names: Vec<String> =
        lanes.iter().map(|compared| compared.trial.entry.name().to_owned()).collect();
    let mut out = frame.open_lanes(table.setting.name(), "Mbit/s of data", &names);
    for (at, compared) in lanes.iter().enumerate() {
        let y = frame.y(at as f64 + 0.5);
        let own = compared.trial.entry == crate::contest::Entry::Ours;
        let x = frame.x(mbps(compared.sample.bits_per_second));
        if let Some(row) = &compared.row {
            let theirs = frame.x(mbps(row.bits_per_second));
            let _ = writeln!(
                out,
                "<path class=\"l1\" d=\"M{theirs:.1} {y:.1}H{x:.1}\"/>\
                 <circle class=\"axis\" cx=\"{theirs:.1}\" cy=\"{y:.1}\" r=\"6\"/>"
            );
        }
        let class = if own { 2 } else { 1 };
        let _ = writeln!(out, "<circle class=\"o{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>");
    }
    out + "</svg>\n"
}

fn html_table(table: &Table) -> String {
    let mut head = String::from("<tr><th rowspan=2>program<th colspan=3>rate, Mbit/s");
    for count in COUNTS {
        let _ = write!(head, "<th colspan=2>{count}");
    }
    head += "<tr><th>ORNL<th>model<th>error";
    head += &"<th>ORNL<th>model".repeat(COUNTS.len());
    let mut rows = String::from("\n");
    let mut before = true;
    for compared in &table.rows {
        let gap = before && compared.row.is_none();
        before = compared.row.is_some();
        let row = compared.row.as_ref();
        let theirs = row.map_or(String::new(), |row| format!("{:.1}", mbps(row.bits_per_second)));
        let error =
            compared.error().map_or(String::new(), |e| format!("{:+.1} %", e as f64 / 10.0));
        let _ = write!(
            rows,
            "<tr{}><td>{}<td>{theirs}<td class=\"model\">{:.1}<td>{error}",
            if gap { " class=\"gap\"" } else { "" },
            compared.trial.entry.name(),
            mbps(compared.sample.bits_per_second)
        );
        let sample = &compared.sample;
        let ours = [sample.lost, sample.resent, sample.sent, sample.received, sample.duplicates];
        for (theirs, ours) in published(row).into_iter().zip(ours) {
            let theirs = theirs.map_or(String::new(), |count| count.to_string());
            let _ = write!(rows, "<td>{theirs}<td class=\"model\">{ours}");
        }
        rows += "\n";
    }
    html::table(&head, &rows)
}

fn published(row: Option<&Row>) -> [Option<u64>; 5] {
    let Some(row) = row else { return [None; 5] };
    [row.lost, row.resent, row.sent, row.received, row.duplicates]
}

/// The rows that were measured over the Internet, as published: that path is not modelled.
fn elsewhere() -> String {
    let mut out = String::from(
        "<h2>Over the Internet</h2>\n<p>From Oak Ridge to Berkeley and to CERN, as published: what \
         else was on those paths is not known, and nothing is run beside.</p>\n",
    );
    let mut head = String::from("<tr><th>path<th>case<th>program<th>rate, Mbit/s");
    for count in COUNTS {
        let _ = write!(head, "<th>{count}");
    }
    let mut rows = String::from("\n");
    for row in others() {
        let kind = if row.file { "file" } else { "memory" };
        let _ = write!(
            rows,
            "<tr><td>{}, {kind}<td>{}<td>{}<td>{:.2}",
            row.path,
            row.case,
            row.application,
            mbps(row.bits_per_second)
        );
        for count in published(Some(&row)) {
            let _ = write!(rows, "<td>{}", count.map_or(String::new(), |count| count.to_string()));
        }
        rows += "\n";
    }
    out += &html::table(&head, &rows);
    let _ = writeln!(
        out,
        "<p class=\"soft\">Held by a test: every rate within {} % of its row.</p>",
        TOLERANCE / 10
    );
    out
}
