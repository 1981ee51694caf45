//! The `netblt` program: reads the command line, runs one command, answers with an exit code.
//!
//! Data go to standard output, words for people to standard error. Nothing depends on this crate.

mod advice;
mod args;
mod bar;
mod chmod;
mod choice;
mod commands;
mod cp;
mod exit;
mod json;
mod output;
mod rfc998;
mod secrecy;
mod signals;
mod suggest;
mod units;

use std::env;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};

use crate::commands::Command;
use crate::exit::Code;

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

fn main() -> ExitCode {
    signals::survive_large_files();
    match Cli::try_parse() {
        Ok(cli) => commands::run(cli.command),
        Err(mut error) => {
            let args: Vec<_> = env::args_os().collect();
            suggest::nearest(&mut error, &mut Cli::command(), &args);
            // clap's own exit code for usage errors would be 2, which means something else here.
            let _ = error.print();
            if error.use_stderr() { Code::Usage.into() } else { Code::Success.into() }
        }
    }
}
