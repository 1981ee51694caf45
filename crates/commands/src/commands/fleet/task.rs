//! `netblt fleet run-chunk`, the one command that an engine calls, and `netblt fleet submit`.

use std::ffi::OsString;

use clap::ValueEnum;
use netblt::Rate;
use netblt_fleet::chunk::{Outcome, run_chunk};
use netblt_fleet::pool::Ceiling;
use netblt_fleet::{Error, Run, dask, local, slurm, survey};
use serde_json::json;

use super::{Place, connect, failed, help, say, watched};
use crate::exit::{Code, Failure};
use crate::json::{self, Stream};
use crate::units;

/// Put one chunk on a server of the pool
///
/// Engines call only this, and a person can, too. A finished chunk is left alone, a broken one is
/// resumed, and an older task on the same chunk stops. It tries five times. Then, or if all servers
/// stay busy, the exit code is 75: start it again later. Any other code but 0 means that a retry is
/// pointless, and 20 that it was stopped.
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct ChunkArgs {
    #[command(flatten)]
    place: Place,
    /// Which chunk, from 0
    #[arg(value_name = "K", value_parser = units::number::<u64>(0, u64::MAX))]
    chunk: u64,
}

/// Run all unfinished chunks, by this machine, Slurm or Dask
///
/// With --engine local or dask it stays until all tasks have ended; with slurm it hands arrays of
/// at most a thousand tasks each to sbatch. Run again, it takes up the unfinished chunks.
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct SubmitArgs {
    #[command(flatten)]
    place: Place,
    /// The program that starts the tasks
    #[arg(long, value_name = "ENGINE", value_enum)]
    engine: Engine,
    /// Tasks at once
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = units::number::<u64>(1, 100_000))]
    pairs: u64,
    /// The rate of all tasks together: each keeps to its share
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    wan: Option<Rate>,
    /// How often a task is started again that could not be done now
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = units::number::<u32>(0, u32::MAX.into()))]
    requeues: u32,
    /// Behind --: options for sbatch; for Dask, -s ADDRESS of its scheduler or -f FILE with that
    #[arg(last = true, value_name = "ENGINE_OPTIONS")]
    options: Vec<OsString>,
}

/// The program that starts tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Engine {
    /// This machine, each as a process of its own
    Local,
    /// Slurm, by sbatch
    Slurm,
    /// Dask, by python3 with dask.distributed: the given scheduler, or this machine
    Dask,
}

pub(super) fn chunk(args: &ChunkArgs) -> Code {
    args.place.end(one(args))
}

fn one(args: &ChunkArgs) -> Result<Code, Failure> {
    let run = args.place.open()?;
    let cancel = watched()?;
    let connect = connect(&run, &cancel)?;
    let (number, json) = (args.chunk, args.place.json);
    let log = move |text: &str| match json {
        true => _ = json::emit(Stream::Stdout, "warning", json::WarningData { message: text }),
        false => say(&format!("netblt: chunk {number}: {text}")),
    };
    let outcome = run_chunk(&run, number, &connect, &cancel, &log).map_err(failed)?;
    let stopped = |why: &str| Failure::new(Code::Signal, format!("chunk {number}: {why}"));
    match outcome {
        Outcome::Already(done) => {
            emit(json, "summary", &done, || format!("netblt: chunk {number} is done already"));
            Ok(Code::Success)
        }
        Outcome::Done(done) => {
            emit(json, "summary", &done, || {
                let (bytes, kept) = (units::show_bytes(done.bytes), done.kept);
                let kept = match kept {
                    0 => String::new(),
                    kept => format!(", {} of it were there", units::show_bytes(kept)),
                };
                let host = &done.host;
                format!("netblt: chunk {number} is on {host}, verified: {bytes}{kept}")
            });
            Ok(Code::Success)
        }
        Outcome::Again(why) => {
            let message = format!("chunk {number}: {}", why.message);
            Err(Failure::new(Code::Again, message))
        }
        Outcome::Failed(why) => {
            let names = why.names.join("\n  ");
            let names = if names.is_empty() { names } else { format!(":\n  {names}") };
            let message = format!("chunk {number}: {}{names}", why.message);
            Err(Failure::new(Code::of(why.code).unwrap_or(Code::Protocol), message))
        }
        Outcome::Superseded => Err(stopped("another task has taken it")),
        _ => Err(stopped("stopped; partial files are kept")),
    }
}

fn emit(
    json: bool,
    event: &'static str,
    data: &impl serde::Serialize,
    words: impl FnOnce() -> String,
) {
    match json {
        true => _ = json::emit(Stream::Stdout, event, data),
        false => say(&words()),
    }
}

pub(super) fn submit(args: &SubmitArgs) -> Code {
    args.place.end(hand_in(args))
}

fn hand_in(args: &SubmitArgs) -> Result<Code, Failure> {
    if args.engine == Engine::Local && !args.options.is_empty() {
        return Err(Failure::usage("--engine local knows no options of an engine"));
    }
    let run = args.place.open()?;
    let wan = args.wan.map(Rate::bits_per_second);
    let ceiling = Ceiling { wan_bits_per_second: wan, pairs: args.pairs };
    ceiling.write(&run).map_err(failed)?;
    let program = std::env::current_exe();
    let program =
        program.map_err(|error| Failure::new(Code::Start, format!("this program: {error}")))?;
    let how = (args.pairs, args.requeues);
    match args.engine {
        Engine::Local | Engine::Dask => stay(args, &run, &program, how),
        Engine::Slurm => {
            let jobs = slurm::submit(&run, &program, how, &args.options).map_err(failed)?;
            emit(args.place.json, "summary", &json!({ "jobs": jobs }), || match jobs.is_empty() {
                true => "every chunk is done".to_owned(),
                false => format!("submitted as {}", jobs.join(", ")),
            });
            Ok(Code::Success)
        }
    }
}

/// For engines that are waited for.
fn stay(
    args: &SubmitArgs,
    run: &Run,
    program: &std::path::Path,
    how: (u64, u32),
) -> Result<Code, Failure> {
    let (cancel, json) = (watched()?, args.place.json);
    let mut log = |text: &str| match json {
        true => _ = json::emit(Stream::Stdout, "note", json::WarningData { message: text }),
        false => say(&format!("netblt: {text}")),
    };
    let ended = match args.engine {
        Engine::Dask => dask::run_all(run, program, how, &args.options, &cancel, &mut log),
        _ => local::run_all(run, program, how, &cancel, &mut log),
    };
    if let Err(Error::Interrupted) = ended {
        let why = "stopped; run again, it goes on with what is not done";
        return Err(Failure::new(Code::Signal, why));
    }
    ended.map_err(failed)?;
    let survey = survey::survey(run, |_, _| {}).map_err(failed)?;
    super::finish::print_survey(&survey, json)?;
    Ok(if survey.is_done() { Code::Success } else { Code::Partial })
}
