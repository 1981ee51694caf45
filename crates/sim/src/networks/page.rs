//! The report for people: text, and one HTML page that needs nothing else. Floats are for showing.

use std::fmt::Write as _;

use super::report::{Compared, Departure, Table, run};
use super::rows::{Network, Row};

/// Width and height of a plot.
const SIZE: (f64, f64) = (640.0, 300.0);
/// Room for the labels.
const MARGIN: f64 = 50.0;

/// The tables as text, one row a line.
pub fn text(tables: &[Table]) -> String {
    let mut out = String::new();
    for table in tables {
        let _ = writeln!(out, "{}\n{}", table.network.name(), head());
        for row in &table.rows {
            let _ = writeln!(out, "{}", cells(row).join(" "));
        }
        let _ = writeln!(out, "{}\n", summary(table));
    }
    out
}

fn head() -> &'static str {
    "BS/BI   PSZ    BFSZ  XFSZ NBUFS  #LOSS  ours   #RXM  ours  DTMOS  ours   SPEED    ours   error"
}

fn cells(compared: &Compared) -> [String; 13] {
    let row = &compared.row;
    let mean = |sum: u64| format!("{:>5.1}", sum as f64 / compared.runs.max(1) as f64);
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

fn mbps(bits_per_second: u64) -> f64 {
    bits_per_second as f64 / 1e6
}

fn summary(table: &Table) -> String {
    let worst = table.rows.iter().map(|row| row.error().abs()).max().unwrap_or(0);
    format!(
        "{}: {} rows, mean error {:.2} %, largest {:.2} %",
        table.network.name(),
        table.rows.len(),
        table.mean_error() as f64 / 100.0,
        worst as f64 / 100.0
    )
}

/// The tables and their plots as one page.
pub fn html(tables: &[Table]) -> String {
    let mut out = String::from(concat!(
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n",
        "<title>RFC 1030, run again</title>\n<style>body{font:15px/1.5 sans-serif;margin:2em auto;",
        "max-width:60em;padding:0 1em}table{border-collapse:collapse;font-size:13px}td,th{padding:",
        "1px 8px;text-align:right;border-bottom:1px solid #ddd}svg{max-width:100%;height:auto}",
        "</style>\n<h1>RFC 1030, run again</h1>\n<p>Every row of the tables of RFC 1030 (November ",
        "1987), and the same transfer by this implementation over models of the three networks. ",
        "Ours are means over the same 20 seeds. Speeds are steady-state, in megabits per second. ",
        "<code>netblt report rfc1030</code> makes this page.</p>\n",
    ));
    for table in tables {
        let _ = writeln!(out, "<h2>{}</h2>\n<p>{}.</p>", table.network.name(), summary(table));
        out.push_str(&speeds(table));
        out.push_str(&html_table(table));
    }
    out.push_str(
        "<h2>Bursts and buffers</h2>\n<p>Data packets leaving the sender in the first half",
    );
    out.push_str(" second, by buffer: first passes blue, packets sent again red.</p>\n");
    for (network, at) in [(Network::Ring, 0), (Network::Ring, 8), (Network::Ethernet, 9)] {
        if let Some(row) = network.rows().get(at) {
            out.push_str(&timeline(row));
        }
    }
    out.push_str("</html>\n");
    out
}

fn html_table(table: &Table) -> String {
    let mut out = String::from("<table><tr>");
    for name in head().split_whitespace() {
        let _ = write!(out, "<th>{name}");
    }
    for row in &table.rows {
        out.push_str("\n<tr>");
        for cell in cells(row).join(" ").split_whitespace() {
            let _ = write!(out, "<td>{cell}");
        }
    }
    out.push_str("\n</table>\n");
    out
}

/// A frame with axes that begin at zero.
fn frame(title: &str, x: (&str, f64), y: (&str, f64)) -> String {
    let (width, height) = SIZE;
    let (right, bottom) = (width - 10.0, height - MARGIN);
    let mut out = format!(
        "<p>{title}<br>\n<svg viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" font-size=\"11\">\n\
         <path d=\"M{MARGIN} 10V{bottom}H{right}\" fill=\"none\" stroke=\"#888\"/>\n\
         <text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{}</text>\n\
         <text x=\"{}\" y=\"10\">{}</text>\n",
        bottom + 32.0,
        x.0,
        MARGIN + 4.0,
        y.0
    );
    for n in 0..=4 {
        let part = f64::from(n) / 4.0;
        let (px, py) = (MARGIN + part * (right - MARGIN), bottom - part * (bottom - 10.0));
        let _ = writeln!(
            out,
            "<text x=\"{px:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{:.1}</text>\
             <text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{:.1}</text>",
            bottom + 15.0,
            part * x.1,
            MARGIN - 5.0,
            py + 4.0,
            part * y.1
        );
    }
    out
}

/// Where a value lies in the frame.
fn place(x: f64, y: f64) -> (f64, f64) {
    let (width, height) = SIZE;
    let (right, bottom) = (width - 10.0, height - MARGIN);
    (MARGIN + x.min(1.0) * (right - MARGIN), bottom - y.min(1.0) * (bottom - 10.0))
}

/// Speed against burst interval: rings are RFC 1030's, dots ours.
fn speeds(table: &Table) -> String {
    let title = "Speed against burst interval. Rings: RFC 1030; dots: ours. Blue: one outstanding \
                 buffer; orange: several.";
    let mut out = frame(title, ("burst interval, ms", 100.0), ("Mbit/s", 2.0));
    for compared in &table.rows {
        let row = &compared.row;
        let colour = if row.outstanding == 1 { "#1565c0" } else { "#e65100" };
        let x = f64::from(row.interval_ms) / 100.0;
        let (cx, theirs) = place(x, mbps(row.bits_per_second) / 2.0);
        let (_, ours) = place(x, mbps(compared.bits_per_second()) / 2.0);
        let _ = writeln!(
            out,
            "<circle cx=\"{cx:.1}\" cy=\"{theirs:.1}\" r=\"5\" fill=\"none\" stroke=\"{colour}\"/>\
             <circle cx=\"{cx:.1}\" cy=\"{ours:.1}\" r=\"2.5\" fill=\"{colour}\"/>"
        );
    }
    out.push_str("</svg></p>\n");
    out
}

/// The first half second of one run of `row`.
fn timeline(row: &Row) -> String {
    let departures = run(row, 1, true).departures;
    let start = departures.first().map(|departure| departure.at).unwrap_or_default();
    let ms = |departure: &Departure| departure.at.since(start).as_secs_f64() * 1000.0;
    let shown: Vec<&Departure> = departures.iter().filter(|d| ms(d) <= 500.0).collect();
    let buffers = shown.iter().map(|departure| departure.buffer).max().unwrap_or(1) as f64 + 1.0;
    let title = format!(
        "{}, {} packets of {} bytes every {} ms, {} outstanding",
        row.network.name(),
        row.burst_packets,
        row.packet_bytes,
        row.interval_ms,
        row.outstanding
    );
    let mut out = frame(&title, ("ms", 500.0), ("buffer", buffers));
    let packets = f64::from(row.buffer_bytes.div_ceil(row.packet_bytes.max(1)));
    for departure in shown {
        let within = f64::from(departure.index) / packets * 0.8;
        let (x, y) = place(ms(departure) / 500.0, (departure.buffer as f64 + within) / buffers);
        let colour = if departure.again { "#c62828" } else { "#1565c0" };
        let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2\" fill=\"{colour}\"/>");
    }
    out.push_str("</svg></p>\n");
    out
}
