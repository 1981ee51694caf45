//! The share that each program leaves to a TCP, as text and as HTML.

use std::fmt::Write as _;

use netblt_pages::frame::mbps;
use netblt_pages::html;

use crate::friendly::{Friendliness, LASTS, Neighbours, SETTLED, Shared, Shares, TCPS};

/// Names of [`TCPS`] in the report.
const TCP_NAMES: [&str; 2] = ["Reno, Linux 2.4", "CUBIC"];
/// Names of the queues of [`Shared::NEIGHBOURS`].
const QUEUES: [&str; 3] = ["1/4 product", "1 product", "4 products"];

pub(super) fn text(beside: &[Friendliness], neighbours: &[Neighbours]) -> String {
    let mut out = format!("{}\n", title(Shared::REVIEW));
    let _ = writeln!(out, "{:<20}{:>26}{:>28}", "Mbit/s beside one", TCP_NAMES[0], TCP_NAMES[1]);
    let _ = writeln!(out, "{:<20}{}", "", "     own    TCP  TCP left   ".repeat(2).trim_end());
    for row in beside {
        let mut line = format!("{:<20}", row.entry.name());
        for (shares, left) in row.shares.iter().zip(row.left) {
            let Shares { own, beside, .. } = shares;
            let _ = write!(line, "{:>8.1}{:>7.1}{left:>8} %   ", mbps(*own), mbps(*beside));
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out += "\nneighbours over 50 Mbit/s, 40 ms, by the queue; Mbit/s, and the first one's part\n";
    let _ = write!(out, "{:<28}", "");
    for queue in QUEUES {
        let _ = write!(out, "{queue:>22}");
    }
    out += "\n";
    for row in neighbours {
        let _ = write!(out, "{:<28}", pair(row));
        for shares in &row.shares {
            let Shares { own, beside, .. } = shares;
            let both = format!("{:.1} : {:.1}", mbps(*own), mbps(*beside));
            let _ = write!(out, "{both:>14}{:>6} %", part(shares));
        }
        out += "\n";
    }
    out
}

pub(super) fn html(beside: &[Friendliness], neighbours: &[Neighbours]) -> String {
    let mut out = format!(
        "<h2>Beside one TCP</h2>\n<p>\u{201c}A protocol P is TCP friendly if the coexisting TCP \
         connections share approximately the same amount of bandwidth as if P is a TCP \
         connection\u{201d} (section 6). So each ran beside one TCP: both from hosts and cards of \
         their own, over one router with the review's link and round trip and a queue of one \
         product of both, which is an assumption; {} s, of which the first {} do not count; \
         nothing is lost at random. <i>TCP left</i> is what the TCP beside it has, of what it \
         has beside another like itself. QUANTA has a given rate, here as in its row.</p>\n",
        LASTS.as_secs(),
        SETTLED.as_secs()
    );
    let mut head = String::from("<tr><th rowspan=2>program");
    for name in TCP_NAMES {
        let _ = write!(head, "<th colspan=3>beside {name}, Mbit/s");
    }
    head += "<tr>";
    head += &"<th>own<th>TCP<th>TCP left".repeat(TCPS.len());
    let mut rows = String::from("\n");
    for row in beside {
        let _ = write!(rows, "<tr><td>{}", row.entry.name());
        for (shares, left) in row.shares.iter().zip(row.left) {
            let (own, tcp) = (mbps(shares.own), mbps(shares.beside));
            let _ = write!(rows, "<td>{own:.1}<td>{tcp:.1}<td class=\"model\">{left} %");
        }
        rows += "\n";
    }
    out += &html::table(&head, &rows);
    out += "<h2>Neighbours on a narrow path</h2>\n\
            <p>The same hosts, over a router of 50 Mbit/s and 40 ms, with three queues: Mbit/s of \
            either, and the first one's part of both.</p>\n";
    let mut head = String::from("<tr><th>program, beside another");
    for queue in QUEUES {
        let _ = write!(head, "<th colspan=2>queue of {queue}");
    }
    let mut rows = String::from("\n");
    for row in neighbours {
        let _ = write!(rows, "<tr><td>{}", pair(row));
        for shares in &row.shares {
            let (own, beside) = (mbps(shares.own), mbps(shares.beside));
            let both = format!("{own:.1} : {beside:.1}");
            let _ = write!(rows, "<td>{both}<td class=\"model\">{} %", part(shares));
        }
        rows += "\n";
    }
    out + &html::table(&head, &rows)
}

fn title(shared: Shared) -> String {
    format!(
        "beside one TCP, over {:.1} Mbit/s and {} ms with a queue of one product",
        mbps(shared.rate.bits_per_second()),
        shared.round_trip.as_micros() as f64 / 1000.0
    )
}

fn pair(row: &Neighbours) -> String {
    format!("{} beside {}", row.entry.name(), row.beside.name())
}

/// As whole per cent.
fn part(shares: &Shares) -> u64 {
    (shares.part() + 5) / 10
}
