//! When packets of data left the sender, buffer by buffer, and when the receiver sent control
//! packets.

use std::fmt::Write as _;

use netblt_pages::frame::{Axis, Frame, LEFT};
use netblt_pages::html::legend_entry;

use crate::report::run;
use crate::rows::Row;
use crate::run::Departure;

/// Part of a run that is shown.
const SHOWN_MS: f64 = 500.0;
/// Pixels from one buffer to the next.
const LANE: f64 = 30.0;

/// The beginning of one run of `row`.
pub(super) fn figure(row: &Row, words: &str) -> String {
    let sample = run(row, 1, true);
    let start = sample.departures.first().map(|departure| departure.at).unwrap_or_default();
    let ms = |at: netblt_proto::time::Instant| at.since(start).as_secs_f64() * 1000.0;
    let shown: Vec<&Departure> =
        sample.departures.iter().filter(|departure| ms(departure.at) <= SHOWN_MS).collect();
    let buffers = shown.iter().map(|departure| departure.buffer).max().unwrap_or(1);
    let frame = Frame {
        size: (980.0, 68.0 + LANE * (buffers as f64 + 1.0)),
        left: LEFT,
        x: Axis::until(SHOWN_MS, 50.0),
        y: Axis::until(buffers as f64 + 1.0, 1.0),
    };
    let name = format!(
        "{}: {} packets of {} bytes every {} ms, {}",
        row.network.name(),
        row.burst_packets,
        row.packet_bytes,
        row.interval_ms,
        if row.outstanding == 1 { "one buffer" } else { "two buffers" },
    );
    let lane = |n: u64| if n == 0 { "control".to_owned() } else { format!("buf. {n}") };
    let lanes: Vec<String> = (0..=buffers).map(lane).collect();
    let mut out = String::from("<figure><div class=\"wide\">");
    out += &frame.open_lanes(&name, "ms after the first packet of data left", &lanes);
    let packets = f64::from(row.buffer_bytes.div_ceil(row.packet_bytes.max(1)));
    for (at, departure) in shown.iter().enumerate() {
        let place = (departure.buffer, departure.index);
        let again = |later: &Departure| later.again && (later.buffer, later.index) == place;
        let lost = sample.departures.iter().skip(at + 1).any(again);
        let x = frame.x(ms(departure.at));
        let within = 0.1 + 0.8 * (f64::from(departure.index) + 0.5) / packets;
        let y = frame.y(departure.buffer as f64 + within);
        out += &mark(x, y, departure.again, lost);
    }
    for at in sample.controls.iter().filter(|at| **at >= start && ms(**at) <= SHOWN_MS) {
        let (x, y) = (frame.x(ms(*at)), frame.y(0.85));
        let _ = write!(out, "<path class=\"control\" d=\"M{x:.1} {y:.1}v{:.1}\"/>", LANE * 0.7);
    }
    let _ = writeln!(out, "</svg></div><figcaption>{words}</figcaption></figure>");
    out
}

fn mark(x: f64, y: f64, again: bool, lost: bool) -> String {
    if lost {
        let (x, y) = (x - 3.0, y - 3.0);
        return format!("<path class=\"lost\" d=\"M{x:.1} {y:.1}l6 6m0-6l-6 6\"/>\n");
    }
    if again {
        let (x, y) = (x - 3.0, y - 3.0);
        return format!(
            "<rect class=\"o2\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"6\" height=\"6\"/>\n"
        );
    }
    format!("<circle class=\"o1\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2\"/>\n")
}

/// The legend.
pub(super) fn legend() -> String {
    let mut out = String::from("<div class=\"legend\">\n");
    out += &legend_entry(&mark(8.0, 6.0, false, false), "a packet of data leaves the sender");
    out += &legend_entry(
        &mark(8.0, 6.0, false, true),
        "...but does not arrive, and is sent again later",
    );
    out += &legend_entry(&mark(8.0, 6.0, true, false), "sent again");
    out += &legend_entry(
        "<path class=\"control\" d=\"M8 1v10\"/>",
        "a control packet (GO, OK, RESEND) leaves the receiver",
    );
    out + "</div>\n"
}
