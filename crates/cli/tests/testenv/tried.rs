//! What the tests have really given the program, noted where `NETBLT_TRIED` names a directory: so
//! options that no run has taken are found out afterwards (`options.rs`).

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use super::programs;

/// The exit code of those whose command line makes no sense: such a run has tried nothing.
const REFUSED: i32 = 1;

/// Where notes are kept, if they are: for each process of tests a file of runs.
pub(crate) fn place() -> Option<PathBuf> {
    std::env::var_os("NETBLT_TRIED").map(PathBuf::from)
}

/// The program's name and what follows it in this command, also behind another command
/// (`ip netns exec`, say).
pub(crate) fn args(command: &Command) -> Vec<String> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.map(|word| word.to_string_lossy().into_owned());
    let mut words = words.skip_while(|word| programs::name_of(word).is_none());
    let name = words.next().and_then(|word| programs::name_of(&word)).map(str::to_owned);
    name.into_iter().chain(words).collect()
}

/// A run with these arguments ended with this code, as its test expected.
pub(crate) fn note(args: &[String], code: i32) {
    if code != REFUSED && args.len() > 1 {
        append(&serde_json::to_string(args).expect("text"));
    }
}

fn append(line: &str) {
    let Some(place) = place() else { return };
    let path = place.join(std::process::id().to_string());
    let mut file = OpenOptions::new().append(true).create(true).open(path).expect("notes");
    // One call, for tests write at the same time.
    file.write_all(format!("{line}\n").as_bytes()).expect("noted");
}
