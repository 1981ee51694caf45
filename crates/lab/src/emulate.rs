//! `netblt-lab emulate`: a bad network for any program, the link model of the simulator in real
//! time.

pub(super) mod options;
mod relay;
mod stats;
#[cfg(target_os = "linux")]
mod tun;

use std::process::ExitCode;

use netblt_path::scenario;

use crate::exit::{Code, Failure};
use crate::outcome;
use crate::stdout;

/// Be a bad network, for any program: rate, delay, loss and more, repeatable by seed
///
/// The path has two directions: "up" is from the connecting side towards its target, "down" the way
/// back. Options without --up- or --down- are for both. With the same seed the n-th packet of a
/// direction has the same fate, whenever it comes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Relay(relay::Args),
    #[cfg(target_os = "linux")]
    Tun(tun::Args),
    /// List the networks that have a name, for `netblt-lab emulate relay --scenario` and its like
    List,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let result = match &args.command {
        Command::Relay(args) => relay::run(args).map(|()| Code::Success.into()),
        #[cfg(target_os = "linux")]
        Command::Tun(args) => tun::run(args),
        Command::List => list().map(|()| Code::Success.into()),
    };
    result.unwrap_or_else(|failure| {
        outcome::complain(&failure, false);
        failure.code.into()
    })
}

fn list() -> Result<(), Failure> {
    let mut text = String::new();
    for name in scenario::names() {
        let about = scenario::named(name).map(|scenario| scenario.about).unwrap_or_default();
        text += &format!("{name:<18} {}\n", about.lines().next().unwrap_or_default());
    }
    stdout::print(&text)
}
