//! `netblt clean`: what broken transfers have left in a directory, listed and removed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use netblt::{Leftover, Leftovers};
use netblt_proto::api::{printable, printable_bytes};

use crate::exit::{Code, Failure};
use crate::json::{self, CleanData, LeftoverData, Name};
use crate::outcome;
use crate::stdout;
use crate::units;

/// List and remove the leftovers of broken transfers in a directory
///
/// A broken transfer leaves parts of files in DIR/.netblt-partial, and the same transfer resumes
/// from them (those of a fleet in .netblt-partial- and a name). When it has finished they are gone;
/// this removes them at once.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The directory that was received into [default: .]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Only list
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// List as JSON, one object a line, on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Code {
    let directory = args.directory.as_deref().unwrap_or(Path::new("."));
    outcome::end(clean(args, directory), args.json)
}

fn clean(args: &Args, directory: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::transfer(&error, false);
    if !args.dry_run {
        for note in Leftovers::settle(directory).map_err(failed)? {
            say_note(args, &note)?;
        }
    }
    let left = Leftovers::find(directory).map_err(failed)?;
    let labelled = Leftovers::find_labelled(directory).map_err(failed)?;
    let all: Vec<Leftovers> = left.into_iter().chain(labelled).collect();
    if all.is_empty() {
        let none = CleanData { place: None, parts: 0, disk_bytes: 0, removed: false };
        let words = format!("{}: nothing is left of broken transfers", directory.display());
        return say(args, &words, "summary", none);
    }
    all.into_iter().try_for_each(|left| clean_one(args, left))
}

fn clean_one(args: &Args, left: Leftovers) -> Result<(), Failure> {
    // Without this option they were printed above, with the result.
    for note in left.notes.iter().filter(|_| args.dry_run) {
        say_note(args, note)?;
    }
    for part in &left.parts {
        let data = LeftoverData {
            name: Name::new(&part.name),
            bytes: part.bytes,
            age_seconds: part.age.as_secs(),
        };
        say(args, &line(part), "part", data)?;
    }
    let place = printable(&left.place.display().to_string());
    let (parts, disk_bytes) = (left.parts.len(), left.bytes);
    if !args.dry_run {
        left.remove().map_err(|error| Failure::transfer(&error, false))?;
    }
    let data = CleanData { place: Some(&place), parts, disk_bytes, removed: !args.dry_run };
    let done = if args.dry_run { "not removed" } else { "removed" };
    let words = format!("{place}: {} on the disk, {done}", units::show_bytes(disk_bytes));
    say(args, &words, "summary", data)
}

fn say_note(args: &Args, note: &str) -> Result<(), Failure> {
    say(args, note, "note", json::WarningData { message: note })
}

fn line(part: &Leftover) -> String {
    let age = units::show_duration(Duration::from_secs(part.age.as_secs()));
    format!("{}: {} of it, {age} old", printable_bytes(&part.name), units::show_bytes(part.bytes))
}

fn say(
    args: &Args,
    words: &str,
    event: &'static str,
    data: impl serde::Serialize,
) -> Result<(), Failure> {
    match args.json {
        true => json::event(event, data),
        false => stdout::line(printable(words)),
    }
}
