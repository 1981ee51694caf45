//! The contest for people: text, and one HTML page that needs nothing else. Floats are for showing.

use std::fmt::Write as _;
use std::time::Duration;

use netblt_pages::frame::{Axis, Frame, LEFT_OF_LANES};
use netblt_pages::html::{self, escape};

use crate::contest::{Figures, Row, Table};

/// Pixels from one row of a plot to the next.
const LANE: f64 = 26.0;

/// The tables as text, one row a line.
pub fn text(tables: &[Table], machine: &str) -> String {
    let mut out = String::new();
    for table in tables {
        let _ = writeln!(out, "{}", title(table));
        let _ = writeln!(
            out,
            "{:<18}{:>8}{:>14}{:>7}{:>8}{:>7}{:>14}{:>13}",
            "", "Mbit/s", "least-most", "wire", "lost", "queue", "queue, ms", "cpu s"
        );
        let _ = writeln!(
            out,
            "{:<18}{:>8}{:>14}{:>7}{:>8}{:>7}{:>14}{:>13}",
            "", "", "", "/data", "", "lost", "mean   most", "out     in"
        );
        for row in &table.rows {
            let _ = writeln!(out, "{}", line(row));
        }
        for problem in problems(table) {
            let _ = writeln!(out, "{problem}");
        }
        out += "\n";
    }
    let _ = writeln!(out, "{machine}; {}", late(tables));
    out
}

fn line(row: &Row) -> String {
    let name = &row.rival.name;
    let Some(figures) = &row.figures else { return format!("{name:<18}{:>8}", "-") };
    let Figures { lost_to_queue, lost_at_random, .. } = figures;
    let [out, into] = figures.cpu.map(seconds);
    format!(
        "{name:<18}{:>8.2}{:>14}{:>7.3}{:>8}{lost_to_queue:>7}{:>7.1}{:>7.1}{out:>6}{into:>7}",
        figures.goodput.mbps(),
        range(figures),
        wire(figures),
        lost_to_queue + lost_at_random,
        millis(figures.queue_mean),
        millis(figures.queue_most),
    )
}

fn title(table: &Table) -> String {
    let runs = table.rows.iter().map(|row| row.counted.1).max().unwrap_or(0);
    let name = &table.path.name;
    format!("{name}: a file of {:.1} MB, medians of {runs}", table.bytes as f64 / 1e6)
}

/// The problems: runs that do not count, and missing programs.
fn problems(table: &Table) -> Vec<String> {
    let failed = table.rows.iter().filter_map(|row| {
        let problem = row.problem.as_ref()?;
        let (good, all) = row.counted;
        Some(format!("{}: {} of {all} runs do not count: {problem}", row.rival.name, all - good))
    });
    let missing = table.missing.iter().map(|(name, why)| format!("{name} is left out: {why}"));
    let mut all: Vec<String> = failed.chain(missing).collect();
    if !table.missing.is_empty() {
        all.push(format!("{} left out in all", table.missing.len()));
    }
    all
}

/// Whether the machine kept up.
fn late(tables: &[Table]) -> String {
    let figures = tables.iter().flat_map(|table| &table.rows).filter_map(|row| row.figures);
    let worst = figures.map(|figures| figures.late_ppm).max().unwrap_or_default();
    let percent = worst as f64 / 1e4;
    format!("in the worst run {percent:.2} % of the packets were over 1 ms late")
}

fn range(figures: &Figures) -> String {
    format!("{:.1}-{:.1}", figures.least.mbps(), figures.most.mbps())
}

fn wire(figures: &Figures) -> f64 {
    figures.wire_bytes as f64 / figures.bytes.max(1) as f64
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn seconds(time: Option<Duration>) -> String {
    time.map_or("-".to_owned(), |time| format!("{:.2}", time.as_secs_f64()))
}

/// The same as one page: no script, no font, no picture from elsewhere.
pub fn html(tables: &[Table], machine: &str) -> String {
    let mut out = format!(
        "<h1>netblt beside the others, on real kernels</h1>\n\
         <p>The same file between two network namespaces with an emulated path between them, by \
         each in turn; medians. Rate: from the start of the program that calls to its end, when \
         all is there, handshakes included. Wire: bytes of IP packets in both directions for a \
         byte of the file. Lost: packets on the way there, whatever for, and those of them to the \
         full queue. Queue: what waited for the link on the way there, in the mean and at most. \
         Processor: user and system time of the sending and the receiving side, the emulator's \
         not counted; the system counts in steps of 10 ms. netblt encrypts, and verifies and \
         stores a file; scp, rsync and qcp encrypt and store it; iperf3 does nothing of that, and \
         has its rate of what came until its sender had nothing left to hand over.</p>\n\
         <p class=\"soft\"><code>netblt-lab report compare --html FILE</code> makes this page; its \
         figures are of one machine: {}; {}. Re-creations are of algorithms, and no judgement of \
         the programs of that name.</p>\n",
        escape(machine),
        late(tables)
    );
    for table in tables {
        let _ = writeln!(out, "<h2>{}</h2>", escape(&title(table)));
        let _ = writeln!(out, "<figure><div class=\"wide\">{}</div></figure>", plot(table));
        out += &html_table(table);
    }
    html::page("netblt beside the others", &out)
}

/// The rates of one table, from the slowest run to the fastest, and the median.
fn plot(table: &Table) -> String {
    let lanes: Vec<(&Row, &Figures)> =
        table.rows.iter().rev().filter_map(|row| Some((row, row.figures.as_ref()?))).collect();
    let most = lanes.iter().map(|(_, figures)| figures.most.mbps()).fold(1.0, f64::max);
    let frame = Frame {
        size: (980.0, 68.0 + LANE * lanes.len() as f64),
        left: LEFT_OF_LANES,
        x: Axis::around(0.0, most, 12),
        y: Axis::until(lanes.len() as f64, 1.0),
    };
    let names: Vec<String> = lanes.iter().map(|(row, _)| row.rival.name.clone()).collect();
    let mut out = frame.open_lanes(&escape(&title(table)), "Mbit/s of the file", &names);
    for (at, (row, figures)) in lanes.iter().enumerate() {
        let y = frame.y(at as f64 + 0.5);
        let [least, middle, most] =
            [figures.least, figures.goodput, figures.most].map(|rate| frame.x(rate.mbps()));
        let class = if row.rival.is_ours() { 2 } else { 1 };
        let _ = writeln!(
            out,
            "<path class=\"l1\" d=\"M{least:.1} {y:.1}H{most:.1}\"/>\
             <circle class=\"o{class}\" cx=\"{middle:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>",
        );
    }
    out + "</svg>\n"
}

fn html_table(table: &Table) -> String {
    let head = "<tr><th rowspan=2>program<th rowspan=2>Mbit/s\
         <th rowspan=2>least to most<th rowspan=2>wire<th colspan=2>packets lost\
         <th colspan=2>queue, ms<th colspan=2>processor, s<th rowspan=2 class=\"words\">what it is\
         <tr><th>all<th>to the queue<th>mean<th>most<th>out<th>in";
    let mut rows = String::from("\n");
    for row in &table.rows {
        let (name, about) = (&row.rival.name, escape(&row.rival.about()));
        let Some(figures) = &row.figures else {
            let _ = writeln!(
                rows,
                "<tr><td>{name}<td>-<td><td><td><td><td><td><td><td><td class=\"words\">{about}"
            );
            continue;
        };
        let [near, far] = figures.cpu.map(seconds);
        let _ = writeln!(
            rows,
            "<tr><td>{name}<td class=\"model\">{:.2}<td>{}<td>{:.3}<td>{}<td>{}<td>{:.1}<td>{:.1}\
             <td>{near}<td>{far}<td class=\"words\">{about}",
            figures.goodput.mbps(),
            range(figures),
            wire(figures),
            figures.lost_to_queue + figures.lost_at_random,
            figures.lost_to_queue,
            millis(figures.queue_mean),
            millis(figures.queue_most),
        );
    }
    let mut out = html::table(head, &rows);
    for problem in problems(table) {
        let _ = writeln!(out, "<p class=\"soft\">{}.</p>", escape(&problem));
    }
    out
}

#[cfg(test)]
mod tests {
    use netblt_proto::units::Rate;

    use super::*;
    use crate::contest::usual_paths;
    use crate::rival::all;

    fn table() -> Table {
        let rate = |mbps: u64| Rate::from_bits_per_second(mbps * 1_000_000);
        let figures = Figures {
            goodput: rate(90),
            least: rate(88),
            most: rate(91),
            bytes: 1_000_000,
            wire_bytes: 1_050_000,
            packets: 700,
            lost_to_queue: 3,
            lost_at_random: 4,
            cpu: [Some(Duration::from_millis(120)), None],
            queue_mean: Duration::from_micros(1500),
            queue_most: Duration::from_millis(70),
            late_ppm: 25_000,
        };
        let row = |at: usize, figures: Option<Figures>| Row {
            rival: all().remove(at),
            counted: (usize::from(figures.is_some()), 1),
            problem: figures.is_none().then(|| "it said <b>no</b>".to_owned()),
            figures,
        };
        let missing = vec![("qcp".to_owned(), "no `qcp` on PATH".to_owned())];
        let tcp = all().iter().position(|rival| rival.name == "tcp-cubic").expect("one of them");
        let rows = vec![row(0, Some(figures)), row(tcp, None)];
        Table { path: usual_paths().remove(0), bytes: 1_000_000, rows, missing }
    }

    #[test]
    fn the_page_shows_the_measured_figures() {
        let text = text(&[table()], "a machine");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        for words in [
            "100 Mbit/s, 70 ms: a file of 1.0 MB, medians of 1",
            "netblt               90.00     88.0-91.0  1.050       7      3    1.5   70.0",
            "70.0  0.12      -\n",
            "tcp-cubic: 1 of 1 runs do not count: it said <b>no</b>",
            "qcp is left out: no `qcp` on PATH",
            "1 left out in all",
            "a machine; in the worst run 2.50 % of the packets",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        let page = html(&[table()], "a machine");
        let figures = "<td>1.050<td>7<td>3<td>1.5<td>70.0<td>0.12<td>-<td class=\"words\">ours";
        assert!(page.contains(figures), "{page}");
        assert!(page.contains("&lt;b&gt;no") && !page.contains("<b>no"), "{page}");
        for word in ["src=", "href=", "url(", "@import", "<script"] {
            assert!(!page.contains(word), "{word}");
        }
    }
}
