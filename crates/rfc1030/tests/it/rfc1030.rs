//! The tables of RFC 1030, run again: every figure that the report prints is held to its tolerance.

use netblt_rfc1030::losses::{INTERVALS, SEEDS, points};
use netblt_rfc1030::report::{Compared, Table, run, tables};
use netblt_rfc1030::rows::{Network, Row};
use netblt_rfc1030::run::Sample;

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

/// A count over the runs of a row, in tenths of one a run.
fn tenths(compared: &Compared, sum: u64) -> u64 {
    sum * 10 / compared.runs
}

#[test]
fn the_ring() {
    let table = table(Network::Ring);
    holds(&table, |_| 300, 150);
    let lost = |t: &Table| t.rows.iter().map(|row| row.sum.lost + row.sum.timeouts).sum::<u64>();
    assert_eq!(lost(&table), 0);
    // Two buffers are faster than one: no packet is lost on an interface that does both at once.
    let (one, two) = (&table.rows[..8], &table.rows[8..14]);
    assert!(slowest(two) > fastest(one));
    let (one, two) = (&table.rows[14..24], &table.rows[24..]);
    assert!(slowest(two) > fastest(one));
}

fn slowest(rows: &[Compared]) -> u64 {
    rows.iter().map(Compared::bits_per_second).min().expect("rows")
}

fn fastest(rows: &[Compared]) -> u64 {
    rows.iter().map(Compared::bits_per_second).max().expect("rows")
}

#[test]
fn the_ethernet() {
    let table = table(Network::Ethernet);
    holds(&table, |row| if row.outstanding == 1 { 600 } else { 1500 }, 500);
    // With one buffer the ends take turns, and hardly anything but noise loses packets: as many as
    // the row says, each sent again once, hardly more than one of them to a timeout.
    for compared in table.rows.iter().filter(|compared| compared.row.outstanding == 1) {
        let sum = &compared.sum;
        let (ours, theirs) = (tenths(compared, sum.lost), u64::from(compared.row.lost) * 10);
        assert!(ours.abs_diff(theirs) <= theirs / 10 + 10, "{ours} {theirs}");
        assert!(sum.deafened * 100 <= sum.lost, "{sum:?}");
        assert_eq!(sum.resent, sum.lost, "{:?}", compared.row);
        assert!(sum.timeouts <= sum.lost && sum.timeouts * 4 >= sum.lost * 3, "{sum:?}");
    }
    // Two buffers are slower than one, and the deaf interface is why: while the interval leaves
    // hardly any dead time it loses three quarters of what is lost, else two fifths.
    assert!(fastest(&table.rows[9..17]) < slowest(&table.rows[..9]));
    assert!(fastest(&table.rows[26..]) < slowest(&table.rows[17..26]));
    for compared in table.rows.iter().filter(|compared| compared.row.outstanding == 2) {
        let dead = compared.row.interval_ms > 40 || compared.row.packet_bytes < 1000;
        let least = if dead { 40 } else { 75 };
        assert!(compared.sum.deafened * 100 > compared.sum.lost * least, "{:?}", compared.sum);
        assert!(compared.sum.lost > table.rows[0].sum.lost * 5, "{:?}", compared.sum);
    }
    // At 45 ms about a third is lost of what is lost at 30 (RFC 1030 §6).
    let lost = |at: usize| table.rows[at].sum.lost;
    assert!(lost(9) > lost(11) && lost(11) > lost(14), "{} {} {}", lost(9), lost(11), lost(14));
    assert!((20..=45).contains(&(lost(14) * 100 / lost(9))), "{} {}", lost(9), lost(14));
}

/// "The longer burst interval allowed more dead time between bursts and less likelihood" of loss
/// (RFC 1030 §6): at every interval and not only at those of the table. What noise takes is there
/// whatever the interval, and is what is left in the end. The page that
/// `lab/tests/program/report.rs` compares has the same figures.
#[test]
#[ignore = "slow: .ci/nightly"]
fn the_two_buffer_ethernet_loses_less_the_longer_the_interval() {
    let points = points(THREADS);
    assert_eq!(points.len(), INTERVALS.count());
    let runs = SEEDS.count() as u64;
    for point in &points {
        assert!(!point.failed, "{point:?}");
        // "No packets were dropped once the burst interval rose above 40 milliseconds": in no run,
        // with two exceptions. At 41 ms a few are lost before the ends have found their phase; at
        // 44 the receiver speaks just when a burst is due, and in few runs loses some for it.
        match point.interval_ms {
            ..=40 => {}
            41 => assert!(point.alone < 10 * runs, "{point:?}"),
            44 => assert!(point.alone_runs * 4 <= runs && point.alone < runs * 2, "{point:?}"),
            _ => assert_eq!(point.alone, 0, "{point:?}"),
        }
    }
    let some = |from: u32, to: u32| {
        points.iter().filter(move |point| (from..=to).contains(&point.interval_ms))
    };
    // Nothing from 34 ms on rises above the least so far by more than chance.
    let mut least = u64::MAX;
    for point in some(34, 120) {
        assert!(point.noisy <= least.saturating_add(least / 8 + 6 * runs), "{least} {point:?}");
        least = least.min(point.noisy);
    }
    // And in the mean of neighbours it falls from the first to the last.
    let mean = |from: u32, to: u32| {
        some(from, to).map(|point| point.noisy).sum::<u64>() / u64::from(to - from + 1)
    };
    let means = [(25, 34), (35, 40), (41, 46), (47, 55), (56, 70), (71, 90), (91, 120)];
    let means = means.map(|(from, to)| mean(from, to));
    assert!(means.windows(2).all(|two| two[1] < two[0]), "{means:?}");
    assert!(means[0] > 3 * means[3] && points[0].alone > 100 * runs, "{means:?}");
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

/// The seeds of the two tests below: `NETBLT_WIDEBAND_SEEDS`, else a few.
fn many() -> std::ops::RangeInclusive<u64> {
    let seeds = std::env::var("NETBLT_WIDEBAND_SEEDS").map_or(Ok(100), |text| text.parse());
    1..=seeds.expect("a number")
}

/// The Wideband's best row, 5/55 in a transfer of 716 kB, with another interval and other losses.
fn best(interval_ms: u32, lost: u32) -> Row {
    Row { interval_ms, lost, resent: lost, ..Network::Wideband.rows()[27] }
}

/// "The Wideband network ground to a halt as four of the ten network BSATs immediately crashed"
/// (RFC 1030 §7): with every seed, before a transfer of the table's size is over.
#[test]
fn five_packets_every_50_ms_break_the_wideband() {
    let sooner = |sample: &Sample| sample.crashed.is_some_and(|at| at.as_nanos() < 10_000_000_000);
    for seed in many() {
        let broken = run(&best(50, 0), seed, false);
        assert!(sooner(&broken) && broken.stations_down == 4, "{seed}: {broken:?}");
    }
    // The SUN-3 dropped 0.5 % (§7), three of 500. A sender whose buffers are all outstanding
    // because one lacks a packet waits, which gives the channel time: that saves one in a hundred.
    let broken = many().map(|seed| run(&best(50, 3), seed, false));
    let broken = broken.filter(|sample| sooner(sample) && sample.stations_down == 4).count();
    assert!(broken * 100 >= many().count() * 98, "{broken}");
}

/// Neither where nothing is lost nor with what the row lost.
#[test]
fn five_packets_every_55_ms_never_break_it() {
    for (lost, seed) in [0, 13].into_iter().flat_map(|lost| many().map(move |seed| (lost, seed))) {
        let well = run(&best(55, lost), seed, false);
        assert_eq!((&well.problem, well.stations_down), (&None, 0), "{lost} {seed}: {well:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let row = Network::Ethernet.rows()[9];
    let (one, two) = (run(&row, 7, true), run(&row, 7, true));
    assert_eq!((one.bits_per_second, one.lost), (two.bits_per_second, two.lost));
    assert_eq!(one.departures, two.departures);
}
