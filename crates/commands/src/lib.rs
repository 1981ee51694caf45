//! The commands of the program `netblt`: reads the command line, runs one command, answers with an
//! exit code.
//!
//! Data go to standard output, words for people to standard error. Nothing but the program depends
//! on this crate.

// Both panic where nothing can be written; `stdout` does not.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod args;
mod bar;
mod checksum_args;
mod chmod;
mod commands;
mod config;
mod control;
mod copy;
mod hardening;
mod host;
mod json;
mod program;
mod reporter;
mod rfc998;
mod selection_args;
mod server_client;
mod service_manager;

use std::process::ExitCode;

use clap::Parser;
use netblt_cli_common::{command_line, exit, hints, outcome, signals, stdout, units};

use crate::commands::Command;

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
    match command_line::read::<Cli>(&program::program(), Some(config::words::words)) {
        Ok(cli) => stdout::end(commands::run(cli.command)),
        Err(code) => code,
    }
}
