//! The commands of the program `netblt`: reads the command line, runs one command, answers with an
//! exit code.
//!
//! Data go to standard output, words for people to standard error. Nothing but the program depends
//! on this crate.

// Both panic where nothing can be written; `stdout` does not.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod allocator;
mod args;
mod bar;
mod chmod;
mod commands;
mod control;
mod copy;
mod exit;
mod hardening;
mod help;
mod hints;
mod host;
mod json;
mod permute;
mod reporter;
mod rfc998;
mod selection_args;
mod server_client;
mod signals;
mod stdout;
mod suggest;
mod units;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{FromArgMatches as _, Parser};

use crate::commands::Command;
use crate::exit::{Code, Failure};

/// Moves large data between machines over long, fat or lossy paths: encrypted, verified
///
/// NETBLT (RFC 998, 1987) for today's networks. One side listens and prints a ticket, the other
/// side is given the ticket and connects; data can go either way. The rate is found by itself and
/// shared with other traffic. Nothing appears under its final name unless every byte is verified.
#[derive(Debug, Parser)]
#[command(
    name = "netblt",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_long_help = exit::help()
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The whole program: to be called once, before there is a second thread.
pub fn main() -> ExitCode {
    allocator::give_back();
    signals::survive_large_files();
    let words = permute::options_first(env::args_os().collect(), &help::command());
    match parse(words) {
        Ok(cli) => stdout::end(commands::run(cli.command)),
        Err(mut error) => {
            let args: Vec<_> = env::args_os().collect();
            suggest::nearest(&mut error, &mut help::command(), &args);
            if error.use_stderr() && asks_for_json(&args) {
                let message = without_usage(&error.render().to_string());
                json::mistake(&message, data_on_stdout(&args));
                return Code::Usage.into();
            }
            // clap's own exit code for usage errors would be 2, which means something else here.
            let code = match (error.print(), error.use_stderr()) {
                (_, true) => Code::Usage,
                (Ok(()), false) => Code::Success,
                (Err(error), false) => {
                    stdout::note("standard output", &error);
                    Failure::stdout(&error).code
                }
            };
            stdout::end(code.into())
        }
    }
}

/// The command line.
fn parse(words: Vec<OsString>) -> Result<Cli, clap::Error> {
    let matches = help::command().try_get_matches_from(words)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut help::command()))
}

/// Whether a command line that makes no sense asks for JSON all the same.
fn asks_for_json(args: &[OsString]) -> bool {
    let options = args.iter().skip(1).take_while(|arg| *arg != "--");
    options.into_iter().any(|arg| arg == "--json")
}

/// Whether standard output was meant for data.
fn data_on_stdout(args: &[OsString]) -> bool {
    args.get(1).is_some_and(|command| command == "receive") && args.iter().any(|arg| arg == "-")
}

/// The error in one line, without the usage.
fn without_usage(text: &str) -> String {
    let lines = text.lines().take_while(|line| !line.starts_with("Usage:"));
    let lines = lines.filter(|line| !line.starts_with("For more information"));
    let lines: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines.join("; ").replace(":; ", ": ");
    text.strip_prefix("error: ").unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Every command, and the words that lead to it.
    fn all(command: &clap::Command, path: &[&str], found: &mut Vec<(Vec<String>, clap::Command)>) {
        let words: Vec<String> = path.iter().map(|word| (*word).to_owned()).collect();
        found.push((words, command.clone()));
        for inner in command.get_subcommands() {
            let path: Vec<&str> = path.iter().copied().chain([inner.get_name()]).collect();
            all(inner, &path, found);
        }
    }

    #[test]
    fn no_option_shows_a_number_parsers_error() {
        let mut command = Cli::command();
        command.build();
        let (mut found, mut options) = (Vec::new(), 0);
        all(&command, &["netblt"], &mut found);
        for (path, command) in found {
            for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
                let Some(long) = arg.get_long() else { continue };
                for wrong in ["abc", "", "-1", "1x", "99999999999999999999999"] {
                    let given = format!("--{long}={wrong}");
                    let line = path.iter().cloned().chain([given.clone()]);
                    let Err(error) = Cli::command().try_get_matches_from(line) else { continue };
                    let text = error.to_string();
                    let parser = ["digit", "number too", "parse integer", "float literal"];
                    let leaked = parser.into_iter().find(|words| text.contains(words));
                    assert_eq!(leaked, None, "{path:?} {given}: {text}");
                    options += 1;
                }
            }
        }
        assert!(options > 100, "{options}");
    }
}
