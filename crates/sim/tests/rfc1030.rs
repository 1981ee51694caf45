//! The tables of RFC 1030, run again: every figure that the report prints is held to its tolerance.

use netblt_sim::networks::report::{Table, run, tables};
use netblt_sim::networks::rows::{Network, Row};

/// Two rings of a clock: more threads change nothing in the result.
const THREADS: usize = 2;

fn table(network: Network) -> Table {
    let table = tables(&[network], THREADS).pop().expect("one table");
    for row in &table.rows {
        assert_eq!(row.sum.problem, None, "{:?}", row.row);
    }
    table
}

/// Errors in hundredths of a per cent, by row and in the mean.
fn holds(table: &Table, limit: impl Fn(&Row) -> i64, mean: i64) {
    for compared in &table.rows {
        let error = compared.error();
        assert!(error.abs() <= limit(&compared.row), "{error}: {:?}", compared.row);
    }
    assert!(table.mean_error() <= mean, "{}", table.mean_error());
}

#[test]
fn the_ring() {
    let table = table(Network::Ring);
    holds(&table, |_| 300, 170);
    let lost = |t: &Table| t.rows.iter().map(|row| row.sum.lost + row.sum.timeouts).sum::<u64>();
    assert_eq!(lost(&table), 0);
    // Two buffers are faster than one: no packet is lost on an interface that does both at once.
    assert!(table.rows[8].bits_per_second() > table.rows[0].bits_per_second());
    assert!(table.rows[24].bits_per_second() > table.rows[14].bits_per_second());
}

#[test]
fn the_ethernet() {
    let table = table(Network::Ethernet);
    let limit = |row: &Row| match (row.outstanding, row.lost) {
        (1, 0..=30) => 700,
        (1, _) => 1200,
        _ => 1600,
    };
    holds(&table, limit, 700);
    // Two buffers are slower than one, and the deaf interface is why: it loses several times what
    // noise alone does.
    let (one, two) = (&table.rows[0], &table.rows[9]);
    assert!(two.bits_per_second() * 10 < one.bits_per_second() * 9);
    assert!(two.sum.lost > one.sum.lost * 5);
}

#[test]
fn the_wideband() {
    let table = table(Network::Wideband);
    holds(&table, |row| if row.lost > 30 { 1000 } else { 800 }, 300);
    for compared in table.rows.iter().filter(|compared| compared.row.resent > 20) {
        let (ours, theirs) = (compared.sum.resent, u64::from(compared.row.resent) * compared.runs);
        assert!(ours <= theirs * 2 && theirs <= ours * 2, "{ours} {theirs} {:?}", compared.row);
    }
    // Two bytes more than fit into one datagram, and a sixth of the speed is gone.
    let speed = |at: usize| table.rows[at].bits_per_second();
    assert!(speed(9) * 6 < speed(8) * 5 + speed(8) / 4, "{} {}", speed(8), speed(9));
    // Near 90 % of two full packets every 22 ms.
    let best = 2 * 1438 * 8 * 1_000_000 / 22_000;
    assert!((85..=93).contains(&(speed(27) * 1000 * 100 / (best * 1000))), "{}", speed(27));
}

#[test]
fn five_packets_every_50_ms_break_the_wideband_and_every_55_do_not() {
    let base = Network::Wideband.rows()[27];
    for seed in 1..=20 {
        let row =
            |interval_ms| Row { interval_ms, transfer_kilobytes: 2148, lost: 0, resent: 0, ..base };
        let crashed = run(&row(50), seed, false).crashed.map(|at| at.as_nanos());
        assert!(crashed.is_some_and(|at| at < 15_000_000_000), "{seed}: {crashed:?}");
        assert_eq!(run(&row(55), seed, false).problem, None, "{seed}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let row = Network::Ethernet.rows()[9];
    let (one, two) = (run(&row, 7, true), run(&row, 7, true));
    assert_eq!((one.bits_per_second, one.lost), (two.bits_per_second, two.lost));
    assert_eq!(one.departures, two.departures);
}
