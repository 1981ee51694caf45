//! `netblt-lab report compare`: netblt beside TCP and other tools on real kernels.

use std::env;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use netblt_compare::contest::{self, Figures, Options, Row, Table};
use netblt_compare::{page, rival};
use netblt_emu::netns;
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::FiguresArgs;
use crate::emulate::options::LinkArgs;
use crate::exit::{Code, Failure};
use crate::units;

/// Compare netblt, other protocols, TCP and other tools on this machine over emulated networks
///
/// Needs root on Linux. For every run it creates two hosts (network namespaces), joins them by an
/// emulated path, sends the same file by each program in turn, and removes everything again.
/// iperf3, scp, rsync, qcp, srt-file-transmit and uftp take part if they are on PATH; missing ones
/// are named. netblt is the program beside this one, or else the first on PATH. Results are
/// medians: the rate from the start of the connecting program to the verified end, bytes on the
/// wire, losses, the queue, and processor time of both sides. Without link options it runs on three
/// paths. The figures hold for this machine, and only if it is idle otherwise.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    netblt-lab report compare --html compare.html\n  \
    netblt-lab report compare --rate 20Mbit --rtt 40ms --only netblt,tcp-bbr\n  \
    netblt-lab report compare --scenario geo-satellite --size 20MB")]
pub(super) struct Args {
    /// Number of runs of each
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = units::number::<u32>(1, 100))]
    runs: u32,
    /// Length of the file [default: four seconds at the link's rate]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    size: Option<u64>,
    /// Abort a run that takes longer, and report it
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = units::duration)]
    longest: Duration,
    /// Only these programs, by name, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = rival_name)]
    only: Vec<String>,
    #[command(flatten)]
    figures: FiguresArgs,
    #[command(flatten)]
    link: LinkArgs,
}

fn rival_name(name: &str) -> Result<String, String> {
    let names: Vec<String> = rival::all().into_iter().map(|rival| rival.name).collect();
    match names.iter().any(|known| known == name) {
        true => Ok(name.to_owned()),
        false => Err(format!("there are {}", names.join(", "))),
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let paths = match args.link.is_said() {
        true => vec![args.link.scenario()?],
        false => contest::usual_paths(),
    };
    let missing = netns::missing();
    if !missing.is_empty() {
        return Err(Failure::new(
            Code::Start,
            format!(
                "`netblt-lab report compare` cannot run here; missing: {}. `netblt-lab report \
                 ornl` compares models, and needs none of that",
                missing.join("; ")
            ),
        ));
    }
    let failed = |error: io::Error| Failure::new(Code::Start, format!("cannot begin: {error}"));
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(failed)?;
    }
    let options = Options {
        netblt: netblt()?,
        bytes: args.size,
        runs: args.runs,
        longest: args.longest,
        seed: args.link.seed,
    };
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let mut print = |line: &str| {
        let _ = writeln!(io::stderr(), "{line}");
    };
    let machine = contest::machine();
    let tables =
        contest::run(paths, &wanted, &options, &mut print, &stop).map_err(
            |failure| match failure {
                contest::Failure::Stopped => Failure::new(Code::Signal, "stopped"),
                contest::Failure::Start(why) => Failure::new(Code::Start, why),
            },
        )?;
    let json = || {
        let tables: Vec<Value> = tables.iter().map(table).collect();
        json!({ "machine": machine, "paths": tables })
    };
    let page = || page::html(&tables, &machine);
    args.figures.write(page, json, || page::text(&tables, &machine))
}

/// The `netblt` that takes part.
fn netblt() -> Result<PathBuf, Failure> {
    let beside = env::current_exe().map(|this| this.with_file_name("netblt"));
    let found = beside.ok().filter(|file| file.is_file()).or_else(|| rival::program("netblt"));
    let missing =
        || Failure::new(Code::Start, "there is no `netblt` beside this program or on PATH");
    found.ok_or_else(missing)
}

fn table(table: &Table) -> Value {
    let rows: Vec<Value> = table.rows.iter().map(row).collect();
    let missing: Vec<Value> =
        table.missing.iter().map(|(name, why)| json!({ "name": name, "why": why })).collect();
    json!({ "path": table.path.name, "bytes": table.bytes, "rows": rows, "left_out": missing })
}

fn row(row: &Row) -> Value {
    json!({
        "name": row.rival.name,
        "about": row.rival.about(),
        "runs": row.counted.1,
        "counted": row.counted.0,
        "problem": row.problem,
        "medians": row.figures.as_ref().map(figures),
    })
}

fn figures(figures: &Figures) -> Value {
    let [near, far] = figures.cpu.map(|time| time.map(|time| time.as_secs_f64()));
    json!({
        "bits_per_second": figures.goodput.bits_per_second(),
        "least_bits_per_second": figures.least.bits_per_second(),
        "most_bits_per_second": figures.most.bits_per_second(),
        "bytes": figures.bytes,
        "wire_bytes": figures.wire_bytes,
        "packets": figures.packets,
        "lost_to_queue": figures.lost_to_queue,
        "lost_at_random": figures.lost_at_random,
        "sender_cpu_seconds": near,
        "receiver_cpu_seconds": far,
        "queue_mean_seconds": figures.queue_mean.as_secs_f64(),
        "queue_most_seconds": figures.queue_most.as_secs_f64(),
        "late_percent": figures.late_ppm as f64 / 1e4,
    })
}
