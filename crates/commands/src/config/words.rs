//! The words that the configuration adds to a command line.

use std::env;
use std::ffi::{OsStr, OsString};

use clap::{ArgMatches, Command};

use crate::config::file::{ConfigFile, Setting};
use crate::copy::given::{GivenOptions, names};
use crate::copy::location::Location;
use crate::copy::plan::CopyPlan;
use crate::copy::routes::{self, Route};
use crate::exit::Failure;

/// The commands whose operands name hosts.
const COMMANDS: [&str; 7] = ["cp", "sync", "ls", "stat", "mv", "rm", "mkdir"];

/// The words to put between the name of the command and the user's words. They are the options that
/// the file has for the hosts among the operands, except those that the user gave and those that
/// mean nothing on the route.
pub(crate) fn words(command: &Command, matches: &ArgMatches) -> Result<Vec<OsString>, Failure> {
    let Some((name, given)) = matches.subcommand().filter(|(name, _)| COMMANDS.contains(name))
    else {
        return Ok(Vec::new());
    };
    let Some(own) = command.find_subcommand(name) else { return Ok(Vec::new()) };
    let hosts = OperandHosts::of(own, given);
    if hosts.names.is_empty() {
        return Ok(Vec::new());
    }
    let file = ConfigFile::load()?;
    let options = GivenOptions::of(own.get_arguments(), given);
    let mut words = Vec::new();
    for setting in hosts.settings(&file) {
        let key = setting.key;
        let has_it =
            own.get_arguments().any(|argument| names(argument).any(|own| own == key.option));
        let replaced = [key.option].iter().chain(key.unless).any(|other| match other {
            option if option.starts_with('-') => options.has(option),
            variable => env::var_os(variable).is_some_and(|value| !value.is_empty()),
        });
        let is_refused = hosts.route.is_some_and(|route| {
            let valued = format!("{} {}", key.option, setting.value);
            [key.option, &valued].iter().any(|option| routes::refusal(route, option).is_some())
        });
        if !has_it || replaced || is_refused || key.servers_only && !hosts.servers {
            continue;
        }
        check(command, own, &setting)?;
        words.extend([key.option.into(), setting.value.into()]);
    }
    Ok(words)
}

/// The hosts among the operands of a command.
struct OperandHosts {
    names: Vec<String>,
    /// Whether all of them are servers of files.
    servers: bool,
    route: Option<Route>,
}

impl OperandHosts {
    fn of(command: &Command, given: &ArgMatches) -> Self {
        let mut hosts = Self { names: Vec::new(), servers: true, route: None };
        let mut operands: Vec<OsString> = Vec::new();
        for argument in command.get_positionals() {
            let values = given.get_raw(argument.get_id().as_str());
            operands.extend(values.into_iter().flatten().map(OsStr::to_owned));
        }
        for operand in &operands {
            match Location::parse(operand) {
                Ok(Location::Remote(host, _)) => {
                    hosts.names.push(host.name);
                    hosts.servers = false;
                }
                Ok(Location::ServerPath(path)) => {
                    hosts.names.extend(path.host.map(|host| host.name))
                }
                // Operands that make no sense are reported later.
                Ok(Location::Local(_)) | Err(_) => {}
            }
        }
        if ["cp", "sync"].contains(&command.get_name())
            && let Some((target, sources)) = operands.split_last()
        {
            hosts.route = CopyPlan::of(sources, target).ok().map(|plan| plan.route());
        }
        hosts
    }

    /// The settings for all these hosts. If several have a value for a key, that of the first is
    /// used.
    fn settings(&self, file: &ConfigFile) -> Vec<Setting> {
        let mut all: Vec<Setting> = Vec::new();
        for setting in self.names.iter().flat_map(|host| file.settings(host)) {
            if !all.iter().any(|other| other.key == setting.key) {
                all.push(setting);
            }
        }
        all
    }
}

/// Fails if the command does not take the value.
fn check(program: &Command, command: &Command, setting: &Setting) -> Result<(), Failure> {
    let words =
        [program.get_name(), command.get_name(), setting.key.option, &setting.value, "a:", "b"];
    match program.clone().try_get_matches_from(words) {
        Ok(_) => Ok(()),
        Err(error) => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            let why = first.strip_prefix("error: ").unwrap_or(first);
            Err(Failure::usage(format!("{}: {why}", setting.origin)))
        }
    }
}
