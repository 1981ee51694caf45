//! RFC 1030's columns.

use std::time::Duration;

use netblt::bench::Outcome;
use netblt_proto::config::Role;

/// The head of the table, for this many streams.
pub(super) fn head() -> String {
    format!(
        "{:>4} {:>10} {:>5} {:>8} {:>9} {:>5} {:>6} {:>6} {:>5} {:>9} {:>9}",
        "", "BS/BI", "PSZ", "BFSZ", "XFSZ", "NBUFS", "#LOSS", "#RXM", "DTMOS", "SPEED", "REAL"
    )
}

/// One row of it. `fixed` if burst values ruled.
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
    format!(
        "{:>4} {:>10} {:>5} {:>8} {:>9} {:>5} {:>6} {:>6} {:>5} {:>9.3} {:>9.3}",
        name,
        bursts,
        parameters.packet_bytes,
        parameters.buffer_bytes,
        outcome.summary.bytes.div_ceil(1000),
        parameters.max_outstanding,
        stats.data_packets_lost,
        resent,
        outcome.data_timeouts.map_or_else(|| "-".to_owned(), |count| count.to_string()),
        outcome.summary.steady_bps / 1e6,
        outcome.summary.real_bps / 1e6,
    )
}

/// Milliseconds, with as many decimals as it takes.
fn in_ms(time: Duration) -> String {
    let text = format!("{:.3}", time.as_secs_f64() * 1e3);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_in_milliseconds() {
        assert_eq!(in_ms(Duration::from_millis(40)), "40");
        assert_eq!(in_ms(Duration::from_micros(1_250)), "1.25");
        assert_eq!(in_ms(Duration::ZERO), "0");
    }
}
