//! `netblt fleet status`, `verify`, `manifest` and `clean`.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use netblt_fleet::finish;
use netblt_fleet::survey::{self, State, Survey};
use netblt_proto::api::{printable, printable_bytes};
use serde_json::{Value, json};

use super::{Place, connect, failed, help, say, timeline, trouble, watched};
use crate::exit::{Code, Failure};
use crate::json;
use crate::stdout;
use crate::units;

/// The interval of `--watch`.
const EVERY: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(100);

/// Show the progress of a run
///
/// The exit code is 0 if every chunk is done, else 23. With --json a line for each chunk, and one
/// for all.
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    place: Place,
    /// Repeat it until no chunk waits and none is at work
    #[arg(long)]
    watch: bool,
    /// Also write a page: when was which chunk tried, on which machine, to which server, how fast,
    /// and how it ended
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Compare the servers with the plan: names, kinds, lengths, times
///
/// Only finished chunks are compared. Their bytes were verified when they arrived. To have them
/// read again, check the list of `netblt fleet manifest` on the machines that have the files.
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    place: Place,
}

/// Write a list of all files for b3sum to check, and one of unfinished chunks
///
/// RUN/manifest.b3 and RUN/failed.jsonl. If every chunk is done, directories get their permissions
/// and times, which files that came later have changed, and the exit code is 0.
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct ManifestArgs {
    #[command(flatten)]
    place: Place,
}

/// Remove what unfinished chunks have left on the servers
///
/// Also removes, from the run's directory, the files that only its tasks need. Finished chunks
/// stay, and unfinished ones can be run again from their beginning.
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct CleanArgs {
    #[command(flatten)]
    place: Place,
}

pub(super) fn status(args: &StatusArgs) -> Code {
    args.place.end(look(args))
}

fn look(args: &StatusArgs) -> Result<Code, Failure> {
    let run = args.place.open()?;
    let cancel = watched()?;
    let json = args.place.json;
    loop {
        let mut shown = Ok(());
        let survey = survey::survey(&run, |chunk, state| {
            if shown.is_ok() {
                shown = match (json, state) {
                    (true, state) => emit("chunk", describe(chunk.number, state)),
                    (false, State::Failed(failed)) => line(&format!(
                        "chunk {} {}: {}",
                        chunk.number,
                        if failed.permanent { "failed for good" } else { "failed" },
                        failed.message
                    )),
                    _ => Ok(()),
                };
            }
        });
        let survey = survey.map_err(failed)?;
        shown?;
        print_survey(&survey, json)?;
        if let Some(html) = &args.html {
            timeline::write(&run, &in_words(&survey), html)?;
        }
        let over = survey.waiting + survey.running == 0;
        if !args.watch || over {
            return Ok(if survey.is_done() { Code::Success } else { Code::Partial });
        }
        for _ in 0..EVERY.as_millis() / STEP.as_millis() {
            if cancel.is_cancelled() {
                return Ok(Code::Signal);
            }
            thread::sleep(STEP);
        }
    }
}

fn describe(number: u64, state: &State) -> Value {
    let (word, more) = match state {
        State::Done(done) => ("done", serde_json::to_value(done)),
        State::Running(running) => ("running", serde_json::to_value(running)),
        State::Failed(failed) if failed.permanent => ("lost", serde_json::to_value(failed)),
        State::Failed(failed) => ("failed", serde_json::to_value(failed)),
        State::Waiting => ("waiting", Ok(json!({ "chunk": number }))),
    };
    let mut data = more.unwrap_or_default();
    data["state"] = json!(word);
    data
}

/// How far a run is, in a line.
pub(super) fn print_survey(survey: &Survey, json: bool) -> Result<(), Failure> {
    let Survey { chunks, done, running, failed, lost, waiting, .. } = survey;
    if json {
        let data = json!({
            "chunks": chunks, "bytes": survey.bytes, "done": done,
            "done_bytes": survey.done_bytes, "running": running,
            "running_bytes": survey.running_bytes, "failed": failed, "lost": lost,
            "waiting": waiting, "nodes": survey.nodes,
        });
        return emit("summary", data);
    }
    line(&in_words(survey))
}

fn in_words(survey: &Survey) -> String {
    let Survey { chunks, done, running, failed, lost, waiting, .. } = survey;
    let bytes = units::show_bytes(survey.done_bytes);
    let of = units::show_bytes(survey.bytes);
    let nodes = match survey.nodes.len() {
        0 => String::new(),
        nodes => format!(" on {nodes} machines"),
    };
    format!(
        "{done} of {chunks} chunks done ({bytes} of {of}), {running} at work{nodes}, \
         {waiting} waiting, {failed} failed, {lost} failed for good"
    )
}

pub(super) fn verify(args: &VerifyArgs) -> Code {
    args.place.end(compare(args))
}

fn compare(args: &VerifyArgs) -> Result<Code, Failure> {
    let run = args.place.open()?;
    let cancel = watched()?;
    let (connect, json) = (connect(&run, &cancel)?, args.place.json);
    let mut written = Ok(());
    let mut on_difference = |name: &[u8], why: &'static str| {
        if written.is_ok() {
            written = match json {
                true => {
                    let mut data = json!({ "message": why });
                    json::put_path(&mut data, "name", name);
                    emit("difference", data)
                }
                false => line(&format!("{}: {why}", printable_bytes(name))),
            };
        }
    };
    let (looked, wrong) =
        finish::verify(&run, &connect, &cancel, &mut on_difference).map_err(trouble)?;
    written?;
    match json {
        true => emit("summary", json!({ "checked": looked, "different": wrong }))?,
        false => line(&format!("{looked} looked at, {wrong} of them not as planned"))?,
    }
    let survey = survey::survey(&run, |_, _| {}).map_err(failed)?;
    let right = wrong == 0 && survey.is_done();
    Ok(if right { Code::Success } else { Code::Partial })
}

pub(super) fn manifest(args: &ManifestArgs) -> Code {
    args.place.end(list(args))
}

fn list(args: &ManifestArgs) -> Result<Code, Failure> {
    let run = args.place.open()?;
    let cancel = watched()?;
    let manifest = finish::manifest(&run).map_err(failed)?;
    let is_done = manifest.survey.is_done();
    let directories = match is_done {
        true => {
            let connect = connect(&run, &cancel)?;
            finish::directories(&run, &connect, &cancel, &say).map_err(trouble)?
        }
        false => 0,
    };
    let (sums, failed) = (manifest.sums.display(), manifest.failed.display());
    if args.place.json {
        let data = json!({
            "manifest": sums.to_string(), "failed": failed.to_string(), "done": is_done,
            "directories": directories,
        });
        emit("summary", data)?;
    } else {
        line(&format!("{sums}"))?;
        if !is_done {
            line(&format!("{failed}"))?;
        }
    }
    Ok(if is_done { Code::Success } else { Code::Partial })
}

pub(super) fn clean(args: &CleanArgs) -> Code {
    args.place.end(sweep(args))
}

fn sweep(args: &CleanArgs) -> Result<Code, Failure> {
    let run = args.place.open()?;
    let cancel = watched()?;
    let connect = connect(&run, &cancel)?;
    let removed = finish::clean(&run, &connect, &cancel).map_err(trouble)?;
    match args.place.json {
        true => emit("summary", json!({ "removed": removed }))?,
        false => line(&format!("removed what {removed} chunks had left"))?,
    }
    Ok(Code::Success)
}

fn emit(event: &'static str, data: Value) -> Result<(), Failure> {
    json::event(event, data)
}

fn line(text: &str) -> Result<(), Failure> {
    stdout::line(printable(text))
}
