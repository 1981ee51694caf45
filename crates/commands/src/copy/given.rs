//! The options that a command line gives, as users write them.

use std::collections::BTreeSet;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches};

/// Options of a command line. An option with a value has two entries, such as `--resume` and
/// `--resume verify`. An option that is given more than once also has the entry `-i twice`.
#[derive(Clone, Debug, Default)]
pub(crate) struct GivenOptions(BTreeSet<String>);

impl GivenOptions {
    /// The options among `arguments` that were parsed from the command line.
    pub(crate) fn of<'a>(arguments: impl Iterator<Item = &'a Arg>, matches: &ArgMatches) -> Self {
        let mut given = BTreeSet::new();
        for argument in arguments {
            let id = argument.get_id().as_str();
            if matches.value_source(id) != Some(ValueSource::CommandLine) {
                continue;
            }
            let values: Vec<_> = matches.get_raw(id).into_iter().flatten().collect();
            for name in names(argument) {
                given.extend(values.iter().map(|value| format!("{name} {}", value.display())));
                if values.len() > 1 {
                    given.insert(format!("{name} twice"));
                }
                given.insert(name);
            }
        }
        Self(given)
    }

    /// Whether an option was given, such as `--update`, `--resume verify` or `-i twice`.
    pub(crate) fn has(&self, option: &str) -> bool {
        self.0.contains(option)
    }
}

/// The names of an option: `-i`, `--update`.
pub(crate) fn names(argument: &Arg) -> impl Iterator<Item = String> {
    let short = argument.get_short().map(|letter| format!("-{letter}"));
    let long = argument.get_long().map(|name| format!("--{name}"));
    [short, long].into_iter().flatten()
}
