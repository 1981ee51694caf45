//! `netblt-lab simulate`: one world of the simulator once more, from its seed.

use std::fs;
use std::path::{Path, PathBuf};

use netblt_path::scenario::{self, Scenario};
use netblt_sim::swarm;

use crate::exit::{Code, Failure};
use crate::outcome;
use crate::stdout;
use crate::units;

/// Replay one world of the simulator and print what happens in it
///
/// The same seed is the same world for ever: the same path, the same losses, the same disks. A
/// failing random test prints the seed to give here.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The world's number
    #[arg(long, value_name = "N", value_parser = units::number::<u64>(0, u64::MAX))]
    seed: u64,
    /// Take the network from this file, or the named scenario, instead of making it up from the
    /// seed
    #[arg(long, value_name = "FILE|NAME")]
    scenario: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Code {
    outcome::end(replay(args), false)
}

/// Prints what happened. An `Err` may mean that a rule of the protocol did not hold in this world.
fn replay(args: &Args) -> Result<(), Failure> {
    let scenario = args.scenario.as_deref().map(read).transpose()?;
    let outcome = swarm::replay(args.seed, scenario.as_ref());
    stdout::print(&outcome.to_string())?;
    match outcome.problem() {
        None => Ok(()),
        Some(problem) => Err(Failure::new(Code::Internal, format!("broken promise: {problem}"))),
    }
}

/// A file if there is one of that name, else one of the scenarios that come with the program.
fn read(path: &Path) -> Result<Scenario, Failure> {
    let named =
        path.to_str().filter(|_| !path.exists()).and_then(|name| scenario::named(name).ok());
    if let Some(scenario) = named {
        return Ok(scenario);
    }
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::new(Code::File, format!("{}: cannot read: {error}", path.display()))
    })?;
    scenario::load(&text)
        .map_err(|error| Failure::new(Code::Usage, format!("{}: {error}", path.display())))
}
