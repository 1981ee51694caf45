//! `netblt-lab report rfc1030`: the tables of RFC 1030, run again.

use std::time::Duration;

use serde_json::{Value, json};

use netblt_rfc1030::future::{self, BEST_BITS_PER_SECOND, SEEDS};
use netblt_rfc1030::losses::{self, Point};
use netblt_rfc1030::page;
use netblt_rfc1030::report::{Compared, Table, tables};
use netblt_rfc1030::rows::Network;

use super::{FiguresArgs, THREADS};
use crate::exit::Failure;

/// Run the tests of RFC 1030 (1987) again: every row as published, and the simulated one beside it
///
/// Models of the three networks and their hosts, in virtual time: nothing is sent, and the figures
/// are the same on every machine.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    figures: FiguresArgs,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    args.figures.check()?;
    let tables = tables(&Network::ALL, THREADS);
    let points = losses::points(THREADS);
    let results = future::results(THREADS);
    let page = || page::html(&tables, &points, &future::page::html(&results));
    let json = || {
        let tables: Vec<Value> = tables.iter().map(table).collect();
        let losses: Vec<Value> = points.iter().map(losses_at).collect();
        let section_8 = section_8(&results);
        json!({ "networks": tables, "ethernet_losses": losses, "section_8": section_8 })
    };
    let text = || page::text(&tables, &points) + &future::page::text(&results);
    args.figures.write(page, json, text)
}

fn losses_at(point: &Point) -> Value {
    let [noisy, alone] = point.means();
    json!({ "interval_ms": point.interval_ms, "noisy": noisy, "alone": alone })
}

fn section_8(results: &[future::Result]) -> Value {
    let experiments: Vec<Value> = results.iter().map(experiment).collect();
    json!({
        "seeds": SEEDS.count(),
        "best_bits_per_second": BEST_BITS_PER_SECOND,
        "experiments": experiments,
    })
}

fn experiment(result: &future::Result) -> Value {
    let mean = |of: fn(&future::Trial) -> u64| {
        let sum: u64 = result.trials.iter().map(of).sum();
        sum as f64 / result.trials.len().max(1) as f64
    };
    let crashes: Vec<f64> = result.crashes().iter().map(Duration::as_secs_f64).collect();
    json!({
        "experiment": result.experiment.name(),
        "bits_per_second": result.bits_per_second(),
        "percent_of_best": result.of_best().map(|part| part as f64 / 10.0),
        "jain": result.jain() as f64 / 1000.0,
        "most_waiting_bytes": result.most_waiting(),
        "lost": mean(|trial| trial.lost),
        "resent": mean(|trial| trial.resent),
        "broke_down_after_seconds": crashes,
    })
}

fn table(table: &Table) -> Value {
    let rows: Vec<Value> = table.rows.iter().map(row).collect();
    json!({
        "network": table.network.name(),
        "mean_error_percent": table.mean_error() as f64 / 100.0,
        "rows": rows,
    })
}

fn row(compared: &Compared) -> Value {
    let row = &compared.row;
    let mean = |sum: u64| sum as f64 / compared.runs.max(1) as f64;
    json!({
        "burst_packets": row.burst_packets,
        "burst_interval_ms": row.interval_ms,
        "packet_bytes": row.packet_bytes,
        "buffer_bytes": row.buffer_bytes,
        "transfer_bytes": row.bytes(),
        "outstanding": row.outstanding,
        "rfc1030": {
            "bits_per_second": row.bits_per_second,
            "lost": row.lost,
            "resent": row.resent,
            "timeouts": row.timeouts,
        },
        "ours": {
            "bits_per_second": compared.bits_per_second(),
            "lost": mean(compared.sum.lost),
            "resent": mean(compared.sum.resent),
            "timeouts": mean(compared.sum.timeouts),
        },
        "error_percent": compared.error() as f64 / 100.0,
    })
}
