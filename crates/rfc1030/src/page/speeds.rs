//! Speeds of RFC 1030 and of the model, and the difference.

use std::fmt::Write as _;

use netblt_pages::frame::{Axis, Frame, LEFT, mbps};
use netblt_pages::html::legend_entry;

use crate::report::{Compared, Table};
use crate::rows::{Network, Row};

/// Room on the left for the names of networks and buffers, in pixels.
const NAMES: f64 = 190.0;

/// A packet with more data does not cross the Wideband unfragmented (RFC 1030 §7).
const WHOLE_PACKET: u32 = 1432;

/// Rows that share a plot.
struct Panel<'a> {
    name: String,
    x_name: &'static str,
    x: fn(&Row) -> u32,
    rows: Vec<&'a Compared>,
}

/// The legend.
pub(super) fn legend(networks: &[Network]) -> String {
    let many = if networks.contains(&Network::Wideband) { "22 or 30" } else { "two" };
    let mut out = String::from("<div class=\"legend\">\n");
    if networks.iter().any(|network| *network != Network::Wideband) {
        out += &legend_entry(&(ring(8.0, 6.0, 1) + &dot(8.0, 6.0, 1)), "one outstanding buffer");
    }
    out += &legend_entry(
        &(ring(8.0, 6.0, 2) + &dot(8.0, 6.0, 2)),
        &format!("{many} outstanding buffers"),
    );
    let hollow = "<circle class=\"axis\" cx=\"8\" cy=\"6\" r=\"4.5\"/>";
    out += &legend_entry(hollow, "hollow: RFC 1030, a row each");
    let filled = "<circle cx=\"8\" cy=\"6\" r=\"2.6\" fill=\"currentColor\"/>";
    out += &legend_entry(filled, "filled: the model, the mean of 20 runs; the line joins them");
    let dashes = "<path class=\"limit\" d=\"M0 6H16\"/>";
    out += &legend_entry(dashes, "what the burst values allow");
    out + "</div>\n"
}

/// The two plots of a network.
pub(super) fn figures(table: &Table) -> String {
    let mut out = String::from("<div class=\"pair\">\n");
    for panel in panels(table) {
        let _ = writeln!(out, "<figure>{}</figure>", draw(&panel));
    }
    out + "</div>\n"
}

fn panels(table: &Table) -> Vec<Panel<'_>> {
    let interval = |name: String, rows| Panel {
        name,
        x_name: "burst interval, ms",
        x: |row| row.interval_ms,
        rows,
    };
    let rows = |of: &dyn Fn(&Row) -> bool| {
        table.rows.iter().filter(|compared| of(&compared.row)).collect::<Vec<_>>()
    };
    if table.network == Network::Wideband {
        let slow = table.rows.iter().map(|compared| compared.row.interval_ms).max().unwrap_or(0);
        return vec![
            interval(
                format!("Packets of at most {WHOLE_PACKET} bytes"),
                rows(&|row| row.packet_bytes <= WHOLE_PACKET),
            ),
            Panel {
                name: format!("Five packets every {slow} ms, by size"),
                x_name: "bytes of data in a packet",
                x: |row| row.packet_bytes,
                rows: rows(&|row| row.interval_ms == slow),
            },
        ];
    }
    let mut sizes: Vec<u32> = table.rows.iter().map(|compared| compared.row.packet_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
        .into_iter()
        .map(|size| {
            interval(format!("Packets of {size} bytes"), rows(&|row| row.packet_bytes == size))
        })
        .collect()
}

fn draw(panel: &Panel<'_>) -> String {
    let xs: Vec<f64> = panel.rows.iter().map(|c| f64::from((panel.x)(&c.row))).collect();
    let ys = panel.rows.iter().flat_map(|c| [c.row.bits_per_second, c.bits_per_second()]);
    let ys: Vec<f64> = ys.map(mbps).collect();
    let least = |of: &[f64]| of.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
    let edge = (most(&xs) - least(&xs)) * 0.06;
    let frame = Frame {
        size: (480.0, 320.0),
        left: LEFT,
        x: Axis::around(least(&xs) - edge, most(&xs) + edge, 9),
        y: Axis::around(least(&ys) * 0.98, most(&ys) * 1.02, 9),
    };
    let mut out = frame.open(&panel.name, (panel.x_name, "Mbit/s"));
    out += &limit(panel, &frame);
    for several in [false, true] {
        out += &line(panel, &frame, several);
    }
    for compared in &panel.rows {
        let row = &compared.row;
        let (theirs, ours) = (mbps(row.bits_per_second), mbps(compared.bits_per_second()));
        let (x, class) = (frame.x(f64::from((panel.x)(row))), class(row));
        let _ = writeln!(
            out,
            "<g><title>{}/{}, {} bytes, {} outstanding: RFC 1030 {theirs:.3}, model {ours:.3} \
             Mbit/s</title>{}{}</g>",
            row.burst_packets,
            row.interval_ms,
            row.packet_bytes,
            row.outstanding,
            ring(x, frame.y(theirs), class),
            dot(x, frame.y(ours), class)
        );
    }
    out + "</svg>"
}

/// The class of one outstanding buffer or of several.
fn class(row: &Row) -> u32 {
    if row.outstanding == 1 { 1 } else { 2 }
}

fn ring(x: f64, y: f64, class: u32) -> String {
    if class == 1 {
        return format!("<circle class=\"r1\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"/>");
    }
    let (x, y) = (x - 4.5, y - 4.5);
    format!("<rect class=\"r2\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"9\" height=\"9\"/>")
}

fn dot(x: f64, y: f64, class: u32) -> String {
    if class == 1 {
        return format!("<circle class=\"o1\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.4\"/>");
    }
    let (x, y) = (x - 2.2, y - 2.2);
    format!("<rect class=\"o2\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"4.4\" height=\"4.4\"/>")
}

/// A line through the means of the model.
fn line(panel: &Panel<'_>, frame: &Frame, several: bool) -> String {
    let of = |row: &Row| (row.outstanding > 1) == several;
    let mut xs: Vec<u32> =
        panel.rows.iter().filter(|c| of(&c.row)).map(|c| (panel.x)(&c.row)).collect();
    xs.sort_unstable();
    xs.dedup();
    let mut path = String::new();
    for x in &xs {
        let here = panel.rows.iter().filter(|c| of(&c.row) && (panel.x)(&c.row) == *x);
        let speeds: Vec<f64> = here.map(|c| mbps(c.bits_per_second())).collect();
        let mean = speeds.iter().sum::<f64>() / speeds.len() as f64;
        let sign = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{sign}{:.1} {:.1}", frame.x(f64::from(*x)), frame.y(mean));
    }
    if xs.len() < 2 {
        return String::new();
    }
    format!("<path class=\"l{}\" d=\"{path}\"/>\n", if several { 2 } else { 1 })
}

/// Bound given by the burst values, where it lies in the frame.
fn limit(panel: &Panel<'_>, frame: &Frame) -> String {
    let Some(row) = panel.rows.first().map(|compared| compared.row) else { return String::new() };
    let by_size = panel.x_name.starts_with("bytes");
    let allowed = |x: f64| {
        let (bytes, ms) = match by_size {
            true => (x, f64::from(row.interval_ms)),
            false => (f64::from(row.packet_bytes), x),
        };
        f64::from(row.burst_packets) * bytes * 8.0 / ms / 1000.0
    };
    let mut path = String::new();
    for n in 0..=60 {
        let x = frame.x.from + (frame.x.to - frame.x.from) * f64::from(n) / 60.0;
        let y = allowed(x);
        if x > 0.0 && y >= frame.y.from && y <= frame.y.to {
            let sign = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{sign}{:.1} {:.1}", frame.x(x), frame.y(y));
        }
    }
    if path.is_empty() { path } else { format!("<path class=\"limit\" d=\"{path}\"/>\n") }
}

/// The error of every row of every network.
pub(super) fn errors(tables: &[Table]) -> String {
    let mut lanes: Vec<(String, Vec<&Compared>)> = Vec::new();
    for table in tables {
        for several in [false, true] {
            let rows = table.rows.iter().filter(|c| (c.row.outstanding > 1) == several);
            let rows: Vec<&Compared> = rows.collect();
            let buffers = if several { "several buffers" } else { "one buffer" };
            if !rows.is_empty() {
                lanes.push((format!("{}, {buffers}", table.network.name()), rows));
            }
        }
    }
    lanes.reverse();
    let frame = Frame {
        size: (980.0, 68.0 + 30.0 * lanes.len() as f64),
        left: NAMES,
        x: Axis::around(-20.0, 15.0, 9),
        y: Axis::until(lanes.len() as f64, 1.0),
    };
    let names: Vec<String> = lanes.iter().map(|(name, _)| name.clone()).collect();
    let x_name = "error of the model's speed, % of RFC 1030's";
    let mut out = frame.open_lanes("Every row", x_name, &names);
    let zero = frame.x(0.0);
    let _ = writeln!(out, "<path class=\"axis\" d=\"M{zero:.1} 26V{:.1}\"/>", frame.y(0.0));
    for (at, (_, rows)) in lanes.iter().enumerate() {
        let y = frame.y(at as f64 + 0.5);
        for compared in rows {
            let x = frame.x(compared.error() as f64 / 100.0);
            let class = class(&compared.row);
            let _ =
                writeln!(out, "<circle class=\"e{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"/>");
        }
    }
    out + "</svg>\n"
}
