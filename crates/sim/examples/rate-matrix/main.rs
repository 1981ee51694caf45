//! The acceptance matrix of the rate laws: many flows through one bottleneck, each cell beside a
//! reference from the same run.
//!
//! `cargo run --release -p netblt-sim --example rate-matrix -- [--policy fair,cubic]
//! [--rows 1,2,6] [--quick] [--seeds N] [--page FILE]`
//!
//! With `--features ablation` and `--ablation FILE` a page of `fair` without each of its parts.

#[cfg(feature = "ablation")]
mod ablation;
mod cell;
mod page;
mod place;
mod rows;

use std::process::ExitCode;
use std::time::Instant;

use netblt_proto::config::{EmulatedProtocol, Emulation, Policy};
use netblt_sim::parallel;

use cell::{Judged, Run, judge};
use rows::Row;

const USAGE: &str =
    "usage: rate-matrix [--policy P,P] [--rows N,N] [--quick] [--seeds N] [--page FILE]
  --policy  fair, background, aggressive, cubic, bbr, reno, udt; commas for several (fair)
  --rows    numbers of rows, with commas (all)
  --quick   a few paths of each row, and one seed
  --seeds   runs of each cell; the worst counts for losses, the mean for shares (3)
  --page    writes a page of Markdown there
  --ablation  the same, of `fair` without each of its parts (needs --features ablation)";

/// What is asked for.
#[derive(Debug)]
struct Options {
    policies: Vec<(String, Policy)>,
    rows: Option<Vec<u32>>,
    quick: bool,
    seeds: u64,
    page: Option<String>,
    ablation: Option<String>,
}

fn policy(name: &str) -> Result<Policy, String> {
    let recreated = |protocol| Policy::Emulated(Emulation::of(protocol));
    Ok(match name {
        "fair" => Policy::Fair { ceiling: None },
        "background" => Policy::Background { ceiling: None },
        "aggressive" => Policy::Aggressive { ceiling: None },
        "cubic" => Policy::Cubic { ceiling: None },
        "bbr" => recreated(EmulatedProtocol::Bbr),
        "reno" => recreated(EmulatedProtocol::Reno),
        "udt" => recreated(EmulatedProtocol::Udt),
        _ => return Err(format!("`{name}` is no policy of this program")),
    })
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let fair = ("fair".to_owned(), policy("fair")?);
    let mut options = Options {
        policies: vec![fair],
        rows: None,
        quick: false,
        seeds: 3,
        page: None,
        ablation: None,
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--quick" => (options.quick, options.seeds) = (true, 1),
            "--seeds" => {
                let text = value()?;
                options.seeds = text.parse().map_err(|_| format!("`{text}` is no number"))?;
            }
            "--page" => options.page = Some(value()?),
            "--ablation" if cfg!(feature = "ablation") => options.ablation = Some(value()?),
            "--ablation" => return Err("--ablation needs --features ablation".to_owned()),
            "--policy" => {
                let names = value()?;
                let named = names.split(',').map(|name| Ok((name.to_owned(), policy(name)?)));
                options.policies = named.collect::<Result<_, String>>()?;
            }
            "--rows" => {
                let numbers = value()?;
                let parse = |text: &str| text.parse().map_err(|_| format!("`{text}` is no row"));
                options.rows = Some(numbers.split(',').map(parse).collect::<Result<_, _>>()?);
            }
            _ => return Err(format!("`{arg}` is no option")),
        }
    }
    Ok(options)
}

/// What each cell came to, by policy, row and cell.
fn run(rows: &[Row], options: &Options) -> Vec<Vec<Vec<Judged>>> {
    let mut jobs = Vec::new();
    for (policy, _) in options.policies.iter().enumerate() {
        for (row, cells) in rows.iter().enumerate() {
            for cell in 0..cells.cells.len() {
                jobs.extend((1..=options.seeds).map(|seed| (policy, row, cell, seed)));
            }
        }
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let results = parallel::map(&jobs, threads, |&(policy, row, cell, seed)| {
        let run = Run { policy: options.policies[policy].1, seed };
        (rows[row].cells[cell].run)(run)
    });
    let mut results = results.into_iter();
    let mut next = || results.by_ref().take(options.seeds as usize).collect::<Vec<_>>();
    let cells = |row: &Row, next: &mut dyn FnMut() -> Vec<_>| {
        row.cells.iter().map(|_| judge(&next())).collect()
    };
    let policies = options.policies.iter();
    policies.map(|_| rows.iter().map(|row| cells(row, &mut next)).collect()).collect()
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) if options.seeds > 0 => options,
        Ok(_) => {
            eprintln!("no seeds, no runs\n{USAGE}");
            return ExitCode::from(2);
        }
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let wanted = |row: &Row| options.rows.as_ref().is_none_or(|rows| rows.contains(&row.number));
    let rows: Vec<Row> = rows::all(options.quick).into_iter().filter(wanted).collect();
    let began = Instant::now();
    #[cfg(feature = "ablation")]
    if let Some(file) = &options.ablation {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let text = ablation::page(&rows, || run(&rows, &options), &args.join(" "));
        return write(file, &text);
    }
    let results = run(&rows, &options);
    let names: Vec<&str> = options.policies.iter().map(|(name, _)| name.as_str()).collect();
    print!("{}", page::tables(&rows, &names, &results));
    eprintln!("{:.1} s", began.elapsed().as_secs_f64());
    if let Some(file) = &options.page {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let text = page::page(&rows, &names, &results, &args.join(" "));
        return write(file, &text);
    }
    ExitCode::SUCCESS
}

fn write(file: &str, text: &str) -> ExitCode {
    match std::fs::write(file, text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{file}: {problem}");
            ExitCode::FAILURE
        }
    }
}
