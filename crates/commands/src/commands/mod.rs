//! The subcommands, one file each.

mod bench;
mod clean;
mod config;
mod control;
mod cp;
mod demo;
mod fleet;
mod html_report;
mod keygen;
mod plan;
mod receive;
pub(crate) mod send;
mod serve;
mod server_files;
mod sync;

use std::process::ExitCode;

use netblt_cli_common::man;

use crate::program::program;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Cp(cp::CommandLine),
    Sync(sync::SyncCommandLine),
    Send(send::Args),
    Receive(receive::Args),
    Serve(serve::Args),
    Ls(server_files::ListArgs),
    Stat(server_files::StatArgs),
    Mv(server_files::MoveArgs),
    Rm(server_files::RemoveArgs),
    Mkdir(server_files::MakeArgs),
    Keygen(keygen::Args),
    Clean(clean::Args),
    Config(config::Args),
    Fleet(fleet::Args),
    Control(control::Args),
    Bench(bench::Args),
    Demo(demo::Args),
    Plan(plan::Args),
    Completions(man::CompletionsArgs),
    Man(man::ManArgs),
    FarEnd(crate::copy::ssh::agent::Args),
}

/// Runs one command to its end.
pub(crate) fn run(command: Command) -> ExitCode {
    match command {
        Command::Cp(args) => cp::run(&args).into(),
        Command::Sync(args) => sync::run(&args).into(),
        Command::Send(args) => send::run(&args).into(),
        Command::Receive(args) => receive::run(&args).into(),
        Command::Serve(args) => serve::run(&args).into(),
        Command::Ls(args) => server_files::list(&args).into(),
        Command::Stat(args) => server_files::stat(&args).into(),
        Command::Mv(args) => server_files::rename(&args).into(),
        Command::Rm(args) => server_files::remove(&args).into(),
        Command::Mkdir(args) => server_files::make(&args).into(),
        Command::Keygen(args) => keygen::run(&args).into(),
        Command::Clean(args) => clean::run(&args).into(),
        Command::Config(args) => config::run(&args).into(),
        Command::Fleet(args) => fleet::run(&args).into(),
        Command::Control(args) => control::run(&args).into(),
        Command::Bench(args) => bench::run(&args).into(),
        Command::Demo(args) => demo::run(&args).into(),
        Command::Plan(args) => plan::run(&args).into(),
        Command::Completions(args) => man::completions(&args, &program()).into(),
        Command::Man(args) => man::man(&args, &program()).into(),
        Command::FarEnd(args) => crate::copy::ssh::agent::run(&args).into(),
    }
}

/// The given options of a command line of `cp`.
#[cfg(test)]
pub(crate) fn options_of_copy(words: &[&str]) -> crate::copy::given::GivenOptions {
    use clap::Parser as _;
    match crate::Cli::try_parse_from(words).expect("a command line").command {
        Command::Cp(line) => line.given,
        other => panic!("{other:?} is not cp"),
    }
}
