//! RFC 1030's columns.

use std::time::Duration;

use netblt::bench::Outcome;
use netblt_proto::config::Role;

/// RFC 1030's column names, with a unit where it differs from that of `--help`'s options.
const COLUMNS: [&str; 11] = [
    "",
    "BS/BI",
    "PSZ",
    "BFSZ",
    "XFSZ",
    "NBUFS",
    "#LOSS",
    "#RXM",
    "DTMOS",
    "SPEED Mbit/s",
    "REAL Mbit/s",
];

/// The head of the table.
pub(super) fn head() -> String {
    line(COLUMNS)
}

fn line<T: AsRef<str>>(cells: [T; 11]) -> String {
    const WIDTHS: [usize; 11] = [4, 10, 5, 8, 9, 5, 6, 6, 5, 13, 12];
    let cells = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{:>width$}", cell.as_ref()));
    cells.collect::<Vec<_>>().join(" ")
}

/// One row of it. `fixed`: whether burst values determined the rate.
pub(super) fn row(name: &str, outcome: &Outcome, fixed: bool) -> String {
    let (parameters, stats) = (&outcome.parameters, &outcome.summary.stats);
    let bursts = match fixed {
        true => format!("{}/{}", parameters.burst.packets, in_ms(parameters.burst.interval)),
        false => "found".to_owned(),
    };
    let resent = match outcome.role {
        Role::Sender => stats.data_packets_resent.to_string(),
        Role::Receiver => "-".to_owned(),
    };
    line([
        name.to_owned(),
        bursts,
        outcome.packet_bytes.to_string(),
        parameters.buffer_bytes.to_string(),
        outcome.summary.bytes.div_ceil(1000).to_string(),
        parameters.max_outstanding.to_string(),
        stats.data_packets_lost.to_string(),
        resent,
        outcome.data_timeouts.map_or_else(|| "-".to_owned(), |count| count.to_string()),
        format!("{:.3}", outcome.summary.steady_bps / 1e6),
        format!("{:.3}", outcome.real_bps() / 1e6),
    ])
}

/// Milliseconds, with as many decimals as needed.
fn in_ms(time: Duration) -> String {
    let text = format!("{:.3}", time.as_secs_f64() * 1e3);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_their_names() {
        let (head, row) = (head(), line(["7"; 11]));
        assert!(head.ends_with(" SPEED Mbit/s  REAL Mbit/s"), "{head}");
        assert_eq!(head.len(), row.len());
        for name in COLUMNS {
            let at = head.find(name).map_or(0, |at| at + name.len());
            assert_eq!(row.get(at.max(4) - 1..at.max(4)), Some("7"), "{name} in\n{head}\n{row}");
        }
    }

    #[test]
    fn intervals_are_in_milliseconds() {
        assert_eq!(in_ms(Duration::from_millis(40)), "40");
        assert_eq!(in_ms(Duration::from_micros(1_250)), "1.25");
        assert_eq!(in_ms(Duration::ZERO), "0");
    }
}
