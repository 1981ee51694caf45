//! Loss on the two-buffer Ethernet at every interval, beside the rows of RFC 1030.

use std::fmt::Write as _;

use netblt_pages::frame::{Axis, Frame, LEFT};

use crate::losses::{INTERVALS, Point, SEEDS};
use crate::report::Table;
use crate::rows::Network;

/// In text, every so many milliseconds.
const TEXT_STEP: u32 = 5;

/// A few of the intervals, one a line.
pub(super) fn text(points: &[Point]) -> String {
    let mut out =
        String::from("Ethernet, two buffers, 1438 bytes: lost of 1000\nms     noisy   alone\n");
    for point in points.iter().filter(|point| point.interval_ms % TEXT_STEP == 0) {
        let [noisy, alone] = point.means();
        let _ = writeln!(out, "{:<5}{noisy:>7.1}{alone:>8.1}", point.interval_ms);
    }
    out + "\n"
}

/// All of them as a figure.
pub(super) fn figure(points: &[Point], tables: &[Table]) -> String {
    let ethernet = tables.iter().filter(|table| table.network == Network::Ethernet);
    let rows = ethernet.flat_map(|table| &table.rows).map(|compared| compared.row);
    let full = rows.clone().map(|row| row.packet_bytes).max().unwrap_or_default();
    let rows: Vec<_> = rows.filter(|r| r.outstanding == 2 && r.packet_bytes == full).collect();
    let most = points.iter().map(|point| point.means()[0]).fold(1.0, f64::max);
    let frame = Frame {
        size: (980.0, 320.0),
        left: LEFT,
        x: Axis::around((*INTERVALS.start()).into(), (*INTERVALS.end()).into(), 12),
        y: Axis::around(0.0, most, 9),
    };
    let mut out = String::from("<figure><div class=\"wide\">");
    let name = "Two buffers of 1438-byte packets: what is lost at every interval";
    out += &frame.open(name, ("burst interval, ms", "lost of 1000"));
    for (class, which) in [(2, 0), (1, 1)] {
        let mut path = String::new();
        for point in points {
            let sign = if path.is_empty() { 'M' } else { 'L' };
            let (x, y) = (frame.x(point.interval_ms.into()), frame.y(point.means()[which]));
            let _ = write!(path, "{sign}{x:.1} {y:.1}");
        }
        let _ = writeln!(out, "<path class=\"l{class}\" d=\"{path}\"/>");
    }
    for row in rows {
        let (x, y) = (frame.x(row.interval_ms.into()) - 4.5, frame.y(row.lost.into()) - 4.5);
        let _ = writeln!(
            out,
            "<rect class=\"r2\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"9\" height=\"9\"/>"
        );
    }
    let (x, y) = (frame.x(64.0), frame.y(0.0));
    let _ =
        writeln!(out, "<text x=\"{x:.1}\" y=\"{:.1}\">only the two hosts attached</text>", y - 6.0);
    let last = points.iter().find(|p| p.interval_ms == 64).map_or(0.0, |p| p.means()[0]);
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{:.1}\">the noisy network</text>",
        frame.y(last) - 14.0
    );
    let _ = writeln!(
        out,
        "</svg></div><figcaption>Lines: the model, means of {} runs. Squares: RFC 1030's rows. \
         With only the two hosts attached nothing is lost from 42 ms on, but at 44 in a few \
         runs; §6 has nothing above 40.</figcaption>\
         </figure>",
        SEEDS.count()
    );
    out
}
