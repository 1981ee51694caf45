//! `netblt report ornl`: ORNL's review of bulk protocols, run again.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use serde_json::{Value, json};

use netblt_ornl::page;
use netblt_ornl::report::{Compared, Table, others, tables};
use netblt_ornl::rows::Row;

use crate::exit::{Code, Failure};

/// On which the report takes seconds; more threads change nothing in it.
const THREADS: usize = 2;

/// Run ORNL's review of bulk protocols (2003) again: SABUL, Tsunami, FOBS, QUANTA, TCP, and ours
///
/// Re-creations of each one's rules between models of ORNL's hosts on a model of its test network,
/// in virtual time, beside what it published: nothing is sent anywhere, and the figures are the
/// same on every machine.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The figures as JSON on standard output, rates in bits per second
    #[arg(long)]
    json: bool,
    /// Also write a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let tables = tables(THREADS);
    if let Some(file) = &args.html {
        fs::write(file, page::html(&tables)).map_err(|error| {
            Failure::new(Code::File, format!("{}: cannot write: {error}", file.display()))
        })?;
    }
    let text = if args.json {
        let all: Vec<Value> = tables.iter().map(table).collect();
        let others: Vec<Value> = others().iter().map(published).collect();
        format!("{}\n", json!({ "settings": all, "not_modelled": others }))
    } else {
        page::text(&tables)
    };
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::new(Code::File, format!("standard output: {error}")))
}

fn table(table: &Table) -> Value {
    let rows: Vec<Value> = table.rows.iter().map(row).collect();
    json!({ "setting": table.setting.name(), "rows": rows })
}

fn row(compared: &Compared) -> Value {
    let sample = &compared.sample;
    json!({
        "program": compared.trial.entry.name(),
        "ornl": compared.row.as_ref().map(published),
        "model": {
            "bits_per_second": sample.bits_per_second,
            "lost": sample.lost,
            "really_lost": sample.really_lost,
            "resent": sample.resent,
            "sent": sample.sent,
            "received": sample.received,
            "duplicates": sample.duplicates,
            "restarts": sample.restarts,
            "seconds": sample.time.as_secs_f64(),
        },
        "error_percent": compared.error().map(|error| error as f64 / 10.0),
    })
}

fn published(row: &Row) -> Value {
    json!({
        "path": row.path,
        "file": row.file,
        "case": row.case,
        "application": row.application,
        "bits_per_second": row.bits_per_second,
        "lost": row.lost,
        "resent": row.resent,
        "sent": row.sent,
        "received": row.received,
        "duplicates": row.duplicates,
        "note": row.note,
    })
}
