//! The program `netblt-lab`: bad networks to measure with, worlds of the simulator, and reports on
//! what was measured.
//!
//! Data go to standard output, words for people to standard error.

// Both panic where nothing can be written; `stdout` does not.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod emulate;
mod program;
mod report;
mod simulate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use netblt_cli_common::man::{self, CompletionsArgs, ManArgs};
use netblt_cli_common::{command_line, exit, json, outcome, signals, stdout, units};

use crate::program::program;

/// Measures netblt and other programs: emulated networks, simulated worlds, reports
///
/// The emulated networks and the simulator have one link model. What it draws follows from a seed,
/// so that a run can be repeated.
#[derive(Debug, Parser)]
#[command(
    name = "netblt-lab",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_long_help = exit::help()
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Emulate(emulate::Args),
    Simulate(simulate::Args),
    Report(report::Args),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

fn main() -> ExitCode {
    match command_line::read::<Cli>(&program(), None) {
        Ok(cli) => stdout::end(run(cli.command)),
        Err(code) => code,
    }
}

/// Runs one command to its end.
fn run(command: Command) -> ExitCode {
    match command {
        Command::Emulate(args) => emulate::run(&args),
        Command::Simulate(args) => simulate::run(&args).into(),
        Command::Report(args) => report::run(&args).into(),
        Command::Completions(args) => man::completions(&args, &program()).into(),
        Command::Man(args) => man::man(&args, &program()).into(),
    }
}
