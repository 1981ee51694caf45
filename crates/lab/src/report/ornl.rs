//! `netblt-lab report ornl`: ORNL's review of bulk protocols, run again.

use serde_json::{Value, json};

use netblt_ornl::friendly::{Friendliness, Neighbours, Shares, friendliness, neighbours};
use netblt_ornl::page;
use netblt_ornl::report::{Compared, Table, others, tables};
use netblt_ornl::rows::Row;

use super::{FiguresArgs, THREADS};
use crate::exit::Failure;

/// Run ORNL's review of bulk protocols (2003) again: SABUL, Tsunami, FOBS, QUANTA, TCP, and NETBLT
///
/// Simulates each protocol between models of ORNL's hosts on a model of its test network, and shows
/// the result beside the published figures. Nothing is sent, and the figures are the same on every
/// machine.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    figures: FiguresArgs,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    args.figures.check()?;
    let tables = tables(THREADS);
    let (beside, neighbours) = (friendliness(THREADS), neighbours(THREADS));
    let json = || {
        let all: Vec<Value> = tables.iter().map(table).collect();
        let others: Vec<Value> = others().iter().map(published).collect();
        let beside: Vec<Value> = beside.iter().map(beside_a_tcp).collect();
        let neighbours: Vec<Value> = neighbours.iter().map(with_each_queue).collect();
        json!({
            "settings": all,
            "beside_a_tcp": beside,
            "neighbours": neighbours,
            "not_modelled": others,
        })
    };
    let page = || page::html(&tables, &beside, &neighbours);
    args.figures.write(page, json, || page::text(&tables, &beside, &neighbours))
}

fn beside_a_tcp(row: &Friendliness) -> Value {
    let [reno, cubic] = [0, 1].map(|tcp: usize| {
        let mut value = shares(&row.shares[tcp]);
        value["tcp_left_percent"] = row.left[tcp].into();
        value
    });
    json!({ "program": row.entry.name(), "reno_delayed": reno, "cubic": cubic })
}

fn with_each_queue(row: &Neighbours) -> Value {
    let [quarter, one, four] = [0, 1, 2].map(|queue: usize| shares(&row.shares[queue]));
    json!({
        "program": row.entry.name(),
        "beside": row.beside.name(),
        "queue_quarter": quarter,
        "queue_one": one,
        "queue_four": four,
    })
}

fn shares(shares: &Shares) -> Value {
    json!({
        "own_bits_per_second": shares.own,
        "beside_bits_per_second": shares.beside,
        "own_percent": shares.part() as f64 / 10.0,
    })
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
