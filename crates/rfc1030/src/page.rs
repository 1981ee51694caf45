//! The report as text and as one self-contained HTML page. Floats are used for display only.

mod losses;
mod speeds;
mod timeline;

use std::fmt::Write as _;

use netblt_pages::frame::mbps;
use netblt_pages::html;

use crate::losses::Point;
use crate::report::{Compared, Table};
use crate::rows::{Network, Row};

/// The tables as text, one row a line, and the Ethernet's loss by the interval.
pub fn text(tables: &[Table], points: &[Point]) -> String {
    let mut out = String::new();
    for table in tables {
        let _ = writeln!(out, "{}", head(table.network.name()));
        for row in &table.rows {
            let _ = writeln!(out, "{}", cells(row).join(" "));
        }
        let _ = writeln!(out, "{}\n", summary(table));
    }
    out + &losses::text(points)
}

/// RFC 1030's own columns below the table's name; where a figure has two, the model's is second.
fn head(name: &str) -> String {
    format!(
        "{name:<34}#LOSS         #RXM         DTMOS          SPEED\n\
         BS/BI   PSZ    BFSZ  XFSZ NBUFS    RFC model    RFC model    RFC model     RFC   model   \
         error"
    )
}

fn cells(compared: &Compared) -> [String; 13] {
    let row = &compared.row;
    let mean = |sum: u64| format!("{:>5.1}", mean(compared, sum));
    let timeouts = row.timeouts.map_or("-".to_owned(), |timeouts| timeouts.to_string());
    [
        format!("{:<5}", format!("{}/{}", row.burst_packets, row.interval_ms)),
        format!("{:>5}", row.packet_bytes),
        format!("{:>7}", row.buffer_bytes),
        format!("{:>5}", row.transfer_kilobytes),
        format!("{:>5}", row.outstanding),
        format!("{:>6}", row.lost),
        mean(compared.sum.lost),
        format!("{:>6}", row.resent),
        mean(compared.sum.resent),
        format!("{timeouts:>6}"),
        mean(compared.sum.timeouts),
        format!("{:>7.3} {:>7.3}", mbps(row.bits_per_second), mbps(compared.bits_per_second())),
        format!("{:>+6.2}%", compared.error() as f64 / 100.0),
    ]
}

/// Range over all runs of a row.
fn mean(compared: &Compared, sum: u64) -> f64 {
    sum as f64 / compared.runs.max(1) as f64
}

fn summary(table: &Table) -> String {
    format!(
        "{}: {} rows, mean error {:.2} %, largest {:.2} %",
        table.network.name(),
        table.rows.len(),
        table.mean_error() as f64 / 100.0,
        worst(table) as f64 / 100.0
    )
}

fn worst(table: &Table) -> i64 {
    table.rows.iter().map(|row| row.error().abs()).max().unwrap_or(0)
}

/// The tables and their plots as one page, with the Ethernet's loss by the interval, and with
/// `more` at its end: no script, no font, no picture from elsewhere.
pub fn html(tables: &[Table], points: &[Point], more: &str) -> String {
    let mut out = INTRODUCTION.to_owned();
    out += &overview(tables);
    for table in tables {
        out += &network(table);
        if table.network == Network::Ethernet {
            out += &losses::figure(points, tables);
        }
    }
    out += &timelines();
    html::page("RFC 1030, run again", &(out + more))
}

/// What the page is about.
const INTRODUCTION: &str = concat!(
    "<h1>RFC 1030, run again</h1>\n<p>In November 1987 Mark Lambert reported how NETBLT ",
    "did on a token ring, on a noisy Ethernet and over a satellite. Below is every row of ",
    "his tables beside the same transfer by this implementation, between models of his ",
    "machines on models of his networks, in virtual time. Speeds are steady-state ",
    "throughputs; the model's are means over the same 20 seeds for every row. No constant ",
    "belongs to a row: where a row's loss is noise, its own count sets the noise, and on ",
    "the Ethernet with two buffers one noise serves all rows.</p>\n",
    "<p class=\"soft\"><code>netblt-lab report rfc1030 --html FILE</code> makes this page. ",
    "What the models are and where each figure in them is from: ",
    "<code>docs/decisions/rfc1030-models.md</code>.</p>\n",
);

/// How far off each network is, and each row.
fn overview(tables: &[Table]) -> String {
    let head = "<tr><th rowspan=2>network<th rowspan=2>rows<th colspan=2>error of the speed\
         <th colspan=2>packets sent again, all rows<tr><th>mean<th>largest<th>RFC 1030<th>model";
    let mut rows = String::from("\n");
    for table in tables {
        let theirs: u64 = table.rows.iter().map(|c| u64::from(c.row.resent)).sum();
        let model: f64 = table.rows.iter().map(|c| mean(c, c.sum.resent)).sum();
        let _ = writeln!(
            rows,
            "<tr><td>{}<td>{}<td>{:.2} %<td>{:.2} %<td>{theirs}<td class=\"model\">{model:.0}",
            table.network.name(),
            table.rows.len(),
            table.mean_error() as f64 / 100.0,
            worst(table) as f64 / 100.0
        );
    }
    let mut out = format!("<h2>In short</h2>\n{}", html::table(head, &rows));
    let _ = write!(out, "<figure><div class=\"wide\">{}</div>", speeds::errors(tables));
    out + "<figcaption>A dot is a row: left of zero the model is slower than the machines of 1987 \
         were.</figcaption></figure>\n"
}

fn network(table: &Table) -> String {
    let words = match table.network {
        Network::Ring => {
            "The interfaces send and receive at once and nothing is lost: two buffers are faster \
             than one, because no round trip lies between them."
        }
        Network::Ethernet => {
            "The 3C500 has one buffer for both directions. With one outstanding buffer the ends \
             take turns, and only noise loses packets; with two, the receiver is deaf while it \
             says OK, GO and RESEND, and two buffers are slower than one."
        }
        Network::Wideband => {
            "A round trip of 1.8 s and frames of 24,054 bits every 21.22 ms. A packet of more \
             than 1,432 bytes travels in two pieces, of which the second is often late."
        }
    };
    let mut out = format!("<h2>{}</h2>\n<p>{words}</p>\n", table.network.name());
    out += &speeds::legend(&[table.network]);
    out += &speeds::figures(table);
    out += &html_table(table);
    out
}

fn html_table(table: &Table) -> String {
    let mut head = String::from(
        "<tr><th rowspan=2>packets /<br>ms<th rowspan=2>\
         packet,<br>bytes<th rowspan=2>buffer,<br>bytes<th rowspan=2>transfer,<br>kB\
         <th rowspan=2>buffers<br>out<th colspan=2>packets lost<th colspan=2>packets sent again\
         <th colspan=2>data timeouts<th colspan=3>speed, Mbit/s\n<tr>",
    );
    head += &"<th>RFC 1030<th>model".repeat(4);
    head += "<th>error";
    let mut rows = String::new();
    let mut before: Option<Row> = None;
    for compared in &table.rows {
        let row = compared.row;
        let group = |row: &Row| (row.packet_bytes, row.outstanding, row.interval_ms);
        let gap = before.is_some_and(|before| group(&before) != group(&row));
        rows += if gap { "\n<tr class=\"gap\">" } else { "\n<tr>" };
        before = Some(row);
        for (at, cell) in cells(compared).join(" ").split_whitespace().enumerate() {
            let model = matches!(at, 6 | 8 | 10 | 12);
            let _ = write!(rows, "<td{}>{cell}", if model { " class=\"model\"" } else { "" });
        }
    }
    html::table(&head, &(rows + "\n"))
}

/// The rows whose beginnings are drawn, and what there is to see.
const TIMELINES: [(Network, usize, &str); 4] = [
    (
        Network::Ring,
        0,
        "Lock-step: the receiver's GO for the next buffer leaves when the last packet of this one \
         is there, and the sender waits for it.",
    ),
    (
        Network::Ring,
        8,
        "With two buffers the sender never waits: the GO for a buffer is there before the one in \
         front of it has left.",
    ),
    (Network::Ethernet, 0, "Lock-step again, on an interface that needs no more than that."),
    (
        Network::Ethernet,
        9,
        "What leaves while the receiver speaks finds it deaf. Each loss costs a data timeout and \
         another control packet, which makes the receiver deaf again.",
    ),
];

fn timelines() -> String {
    let mut out = String::from(
        "<h2>Bursts and buffers</h2>\n<p>The first half second of four transfers, seed 1. A lane \
         is a buffer, and within it the first packet is at the bottom and the last at the \
         top.</p>\n",
    );
    out += &timeline::legend();
    for (network, at, words) in TIMELINES {
        if let Some(row) = network.rows().get(at) {
            out += &timeline::figure(row, words);
        }
    }
    out
}
