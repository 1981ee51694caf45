//! `netblt report rfc1030`: the tables of RFC 1030, run again.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use netblt_rfc1030::future::{self, BEST_BITS_PER_SECOND, SEEDS};
use netblt_rfc1030::losses::{self, Point};
use netblt_rfc1030::page;
use netblt_rfc1030::report::{Compared, Table, tables};
use netblt_rfc1030::rows::Network;

use crate::exit::{Code, Failure};

/// On which the report takes seconds; more threads change nothing in it.
const THREADS: usize = 2;

/// Run the tests of RFC 1030 (1987) again: every row as published, and ours beside it
///
/// Models of the three networks and their hosts, in virtual time: nothing is sent anywhere, and the
/// figures are the same on every machine.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The figures as JSON on standard output, speeds in bits per second
    #[arg(long)]
    json: bool,
    /// Also write a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let tables = tables(&Network::ALL, THREADS);
    let points = losses::points(THREADS);
    let results = future::results(THREADS);
    if let Some(file) = &args.html {
        let page = page::html(&tables, &points, &future::page::html(&results));
        fs::write(file, page).map_err(|error| {
            Failure::new(Code::File, format!("{}: cannot write: {error}", file.display()))
        })?;
    }
    let text = if args.json {
        let tables: Vec<Value> = tables.iter().map(table).collect();
        let losses: Vec<Value> = points.iter().map(losses_at).collect();
        let section_8 = section_8(&results);
        let all = json!({ "networks": tables, "ethernet_losses": losses, "section_8": section_8 });
        format!("{all}\n")
    } else {
        page::text(&tables, &points) + &future::page::text(&results)
    };
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::new(Code::File, format!("standard output: {error}")))
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
