//! Performance over rate, round trip, loss and policy; the table is the snapshot.

use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_proto::units::Rate;
use netblt_sim::grid::{Cell, Choice, Row};

const CHOICES: [Choice; 2] = [Choice::Fixed, Choice::Adaptive];

fn cell(mbit: u64, rtt_ms: u64, loss_ppm: u32, choice: Choice, bytes: u64) -> Cell {
    let rate = Rate::from_bits_per_second(mbit * 1_000_000);
    let rtt = Duration::from_millis(rtt_ms);
    Cell { rate, rtt, loss: Probability::from_ppm(loss_ppm), choice, bytes }
}

/// Runs the cells on two threads; rows in the order of cells.
fn rows(cells: &[Cell]) -> Vec<Row> {
    let run = |odd: usize| {
        let mine = cells.iter().skip(odd).step_by(2);
        mine.map(Cell::run).collect::<Vec<_>>().into_iter()
    };
    let (mut even, mut odd) = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        (run(0), other.join().expect("the other half of the grid"))
    });
    (0..cells.len()).filter_map(|n| if n % 2 == 0 { even.next() } else { odd.next() }).collect()
}

fn table(rows: &[Row]) -> String {
    let lines = rows.iter().map(Row::to_string);
    std::iter::once(Row::heading()).chain(lines).collect::<Vec<_>>().join("\n")
}

#[test]
#[ignore = "slow: .ci/nightly"]
fn a_gigabyte_over_a_long_and_lossy_path() {
    let one = |loss, choice| cell(200, 100, loss, choice, 1_000_000_000);
    let cells: Vec<Cell> =
        [100, 10_000].iter().flat_map(|loss| CHOICES.map(|choice| one(*loss, choice))).collect();
    let rows = rows(&cells);
    let table = table(&rows);
    println!("{table}");
    for row in &rows {
        assert!(row.outcome.is_success(), "\n{}", row.outcome);
        let least = match (row.cell.choice, row.cell.loss.ppb() > 1_000_000) {
            (Choice::Fixed, true) => 9200,
            (Choice::Fixed, false) => 9500,
            (Choice::Adaptive, true) => 8500,
            (Choice::Adaptive, false) => 9200,
        };
        assert!(row.efficiency() >= least, "\n{table}\n{}", row.outcome);
        assert!(row.resent() * 100 <= row.lost() * 105, "\n{table}\n{}", row.outcome);
        assert!(row.duplicate_ppm() <= 1000, "\n{table}\n{}", row.outcome);
    }
    insta::assert_snapshot!("gigabyte", table);
}

#[test]
fn every_combination() {
    let mut cells = Vec::new();
    for mbit in [2, 20, 200, 1000] {
        for rtt_ms in [1, 20, 100, 600] {
            for loss in [0, 1000, 10_000, 50_000] {
                // Four seconds' worth, and two round trips more.
                let bytes = mbit * 125_000 * (4 + rtt_ms / 500);
                cells.extend(
                    CHOICES.map(|choice| cell(mbit, rtt_ms, loss, choice, bytes.min(50_000_000))),
                );
            }
        }
    }
    let rows = rows(&cells);
    let table = table(&rows);
    println!("{table}");
    for row in &rows {
        assert!(row.outcome.is_success(), "\n{}", row.outcome);
    }
    insta::assert_snapshot!("grid", table);
}
