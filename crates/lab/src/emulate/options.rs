//! The options of a link, from the command line and scenario files alike.
//!
//! Options of the command line replace values in the scenario's own text, which is then parsed like
//! any scenario. So an option means exactly what its key in a file means, and there is one parser.

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::{Arg, ArgMatches, Command, FromArgMatches};
use netblt_path::scenario::{self, Scenario, ScenarioError};
use toml::{Table, Value};

use crate::exit::{Code, Failure};
use crate::units;

/// The heading of these options in help texts.
const HEADING: &str = "Link";
const HEADING_ONE_WAY: &str = "Link, one direction only";

/// An option that is a key of `[path]` too.
struct Key {
    key: &'static str,
    value: &'static str,
    help: &'static str,
    /// Not `rtt`, which takes both directions.
    one_way: bool,
}

const fn key(key: &'static str, value: &'static str, help: &'static str) -> Key {
    Key { key, value, help, one_way: true }
}

const KEYS: &[Key] = &[
    key("rate", "RATE", "What the link carries, IP headers included: 100Mbit, 12.5MB"),
    key("delay", "TIME", "Time on the way, in one direction"),
    Key {
        one_way: false,
        ..key("rtt", "TIME", "Round trip time, half of it in each direction; instead of --delay")
    },
    key("jitter", "TIME", "Extra delay that wanders from nothing to this; never reorders"),
    key("loss", "SHARE", "Packets lost at random: 1%, 50ppm"),
    key("loss_burst", "MEAN", "Losses come in runs of this many packets; their share stays"),
    key("reorder", "SHARE", "Packets that others overtake"),
    key("reorder_by", "HOW", "How far: \"3 packets\" (the default) or a time"),
    key("duplicate", "SHARE", "Packets that arrive twice"),
    key("corrupt", "SHARE", "Packets with bits flipped behind the IP header"),
    key(
        "queue",
        "SIZE",
        "What may wait for the link: 500kB, 50ms, \"100 packets\", bdp, \
                         unlimited [default: bdp]",
    ),
    key("police", "RATE,SIZE", "Drop at once what is beyond a rate and its bucket: 20Mbit,512kB"),
    key("codel", "TIME", "Drop what waits longer than this for long: 5ms; \"5ms, mark\" marks"),
    key("ecn_mark", "SIZE", "Mark ECN-capable packets when more than this waits: 100kB, 5ms"),
    key("mtu", "BYTES", "Largest IP packet that passes; larger ones vanish"),
];

/// Which part of `[path]` an option is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathPart {
    Both,
    Up,
    Down,
}

const PARTS: [PathPart; 3] = [PathPart::Both, PathPart::Up, PathPart::Down];

impl PathPart {
    fn table(self) -> Option<&'static str> {
        match self {
            Self::Both => None,
            Self::Up => Some("up"),
            Self::Down => Some("down"),
        }
    }

    /// The name of an option, without its dashes.
    fn option(self, key: &str) -> String {
        let key = key.replace('_', "-");
        self.table().map_or(key.clone(), |part| format!("{part}-{key}"))
    }
}

/// A network, as the command line describes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkArgs {
    scenario: Option<String>,
    /// The other given options, in the order of [`KEYS`].
    said: Vec<(PathPart, &'static str, String)>,
    pub(crate) seed: u64,
}

impl clap::Args for LinkArgs {
    fn augment_args(command: Command) -> Command {
        let scenario = Arg::new("scenario")
            .long("scenario")
            .value_name("NAME|FILE")
            .help("A network by name (see `netblt-lab emulate list`), or a file of the same format")
            .long_help(
                "A network by name (see `netblt-lab emulate list`), or a file of the same \
                 format\n\n\
                 What other options say replaces what it says. Changes over time (outages, rate \
                 steps, handovers) are [[path.schedule]] entries of such a file.",
            );
        let seed = Arg::new("seed")
            .long("seed")
            .value_name("N")
            .default_value("1")
            .value_parser(units::number::<u64>(0, u64::MAX))
            .help("Which packets are lost, reordered and so on follows from this number");
        let mut command = command.next_help_heading(HEADING).arg(scenario).arg(seed);
        for part in PARTS {
            for key in KEYS.iter().filter(|key| part == PathPart::Both || key.one_way) {
                command = command.arg(argument(part, key));
            }
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn argument(part: PathPart, key: &'static Key) -> Arg {
    let name = part.option(key.key);
    let check = move |text: &str| {
        value(key.key, text).and_then(|value| check(key.key, value)).map(|()| text.to_owned())
    };
    let arg = Arg::new(name.clone()).long(name).value_name(key.value).value_parser(check);
    let way = match part {
        PathPart::Both => return arg.help(key.help),
        PathPart::Up => "the way from the side that connects",
        PathPart::Down => "the way back",
    };
    // A long help too, or manual pages leave out what the short help hides.
    let help = format!("--{} of {way}", PathPart::Both.option(key.key));
    arg.help(help.clone()).long_help(help).help_heading(HEADING_ONE_WAY).hide_short_help(true)
}

impl FromArgMatches for LinkArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut link = Self::default();
        link.update_from_arg_matches(matches)?;
        Ok(link)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.scenario = matches.get_one::<String>("scenario").cloned();
        self.seed = matches.get_one::<u64>("seed").copied().unwrap_or(1);
        self.said.clear();
        for part in PARTS {
            for key in KEYS.iter().filter(|key| part == PathPart::Both || key.one_way) {
                let text = matches.get_one::<String>(&part.option(key.key));
                self.said.extend(text.map(|text| (part, key.key, text.clone())));
            }
        }
        Ok(())
    }
}

impl LinkArgs {
    /// Whether any of its options was given.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_said(&self) -> bool {
        self.scenario.is_some() || !self.said.is_empty()
    }

    /// The network.
    pub(crate) fn scenario(&self) -> Result<Scenario, Failure> {
        let (name, text) = match &self.scenario {
            None => (String::new(), String::new()),
            Some(name) => (name.clone(), text(name)?),
        };
        let failed = |error: &ScenarioError| {
            let whose = if name.is_empty() { "the link" } else { &name };
            Failure::usage(format!("{whose}: {}", plain(error)))
        };
        let says =
            |key: &str| self.said.iter().any(|(part, k, _)| (*part, *k) == (PathPart::Both, key));
        if says("rtt") && says("delay") {
            return Err(Failure::usage("say either --rtt or --delay (one way), not both"));
        }
        // Once by itself, so that an error in a file is reported with its line.
        scenario::load(&text).map_err(|error| failed(&error))?;
        let mut root: Table = toml::from_str(&text).map_err(|error| failed(&error.into()))?;
        for (part, key, text) in &self.said {
            let value = value(key, text).map_err(Failure::usage)?;
            set(&mut root, *part, key, value);
        }
        let merged = scenario::load(&root.to_string()).map_err(|error| failed(&error))?;
        Ok(Scenario { name, ..merged })
    }
}

/// Replaces the file's value by an option's.
fn set(root: &mut Table, part: PathPart, key: &str, value: Value) {
    let Some(path) = table(root, "path") else { return };
    // The two say the same thing; the newer word counts.
    let other = match key {
        "rtt" => Some("delay"),
        "delay" if part == PathPart::Both => Some("rtt"),
        _ => None,
    };
    for key in [Some(key), other].into_iter().flatten() {
        if part == PathPart::Both {
            path.remove(key);
            for direction in ["up", "down"] {
                if let Some(Value::Table(own)) = path.get_mut(direction) {
                    own.remove(key);
                }
            }
        }
    }
    let place = match part.table() {
        None => Some(path),
        Some(direction) => table(path, direction),
    };
    if let Some(place) = place {
        place.insert(key.to_owned(), value);
    }
}

/// A table within a table. `None` where something else has its name, which no scenario that can
/// be read has.
fn table<'a>(parent: &'a mut Table, key: &str) -> Option<&'a mut Table> {
    parent.entry(key).or_insert_with(|| Value::Table(Table::new())).as_table_mut()
}

/// The value of a key as a file has it.
fn value(key: &str, text: &str) -> Result<Value, String> {
    match key {
        "mtu" | "loss_burst" => {
            let number = text.parse::<u32>();
            let what = if key == "mtu" { "bytes" } else { "packets" };
            number.map(|n| Value::Integer(n.into())).map_err(|_| format!("not a number of {what}"))
        }
        _ => Ok(Value::String(text.to_owned())),
    }
}

/// Whether a value makes sense by itself.
fn check(key: &str, value: Value) -> Result<(), String> {
    let mut root = Table::new();
    set(&mut root, PathPart::Both, key, value);
    scenario::load(&root.to_string()).map(drop).map_err(|error| plain(&error))
}

/// An error without an excerpt of a text that no user wrote.
fn plain(error: &ScenarioError) -> String {
    match error {
        ScenarioError::Syntax(error) => error.message().to_owned(),
        other => other.to_string(),
    }
}

/// The text of a scenario: a name that is shipped, else a file.
fn text(name: &str) -> Result<String, Failure> {
    let unknown = match scenario::text_of(name) {
        Ok(text) => return Ok(text.to_owned()),
        Err(error) => error,
    };
    read(Path::new(name)).map_err(|error| {
        // A word without any dot or slash is rather a name mistyped than a file.
        if error.kind() == io::ErrorKind::NotFound && !name.contains(['.', '/']) {
            Failure::usage(unknown.to_string())
        } else {
            Failure::new(Code::File, format!("{name}: cannot read: {error}"))
        }
    })
}

fn read(path: &Path) -> io::Result<String> {
    fs::read_to_string(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use netblt_path::QueueLimit;
    use netblt_proto::units::Rate;

    use super::*;

    fn link(args: &[&str]) -> Result<LinkArgs, clap::Error> {
        let command = <LinkArgs as clap::Args>::augment_args(Command::new("x"));
        let matches = command.try_get_matches_from([&["x"], args].concat())?;
        LinkArgs::from_arg_matches(&matches)
    }

    fn scenario(args: &[&str]) -> Scenario {
        link(args).expect("good options").scenario().expect("a scenario")
    }

    const MBIT: u64 = 1_000_000;

    #[test]
    fn options_replace_values_of_the_scenario() {
        let lte = scenario(&["--scenario", "lte"]);
        assert_eq!((lte.name.as_str(), lte.down.schedule.is_empty()), ("lte", false));
        let both = scenario(&["--scenario", "lte", "--rate", "1Mbit", "--delay", "7ms"]);
        for way in [&both.up, &both.down] {
            assert_eq!(way.rate, Some(Rate::from_bits_per_second(MBIT)));
            assert_eq!((way.delay, way.mtu), (Duration::from_millis(7), Some(1428)));
        }
        let up = scenario(&["--scenario", "lte", "--up-rate", "1Mbit", "--down-delay", "1s"]);
        assert_eq!(up.up.rate, Some(Rate::from_bits_per_second(MBIT)));
        assert_eq!((up.down.rate, up.down.delay), (lte.down.rate, Duration::from_secs(1)));
        assert_eq!(up.up.delay, lte.up.delay);
    }

    #[test]
    fn queues_know_the_other_options() {
        let link = scenario(&["--rate", "80Mbit", "--rtt", "100ms", "--up-queue", "bdp"]);
        assert_eq!(link.up.queue, QueueLimit::Bytes(1_000_000));
        assert_eq!(link.down.queue, QueueLimit::Bytes(1_000_000));
        let link = scenario(&["--rate", "80Mbit", "--queue", "3000B", "--mtu", "9000"]);
        assert_eq!((link.up.queue, link.down.mtu), (QueueLimit::Bytes(3000), Some(9000)));
    }

    #[test]
    fn an_error_names_its_option() {
        for (args, says) in [
            (["--rate", "100"], "has no unit"),
            (["--up-loss", "200%"], "too large"),
            (["--queue", "much"], "is no queue"),
            (["--mtu", "99999"], "mtu"),
            (["--police", "20Mbit"], "no policer"),
            (["--codel", "fast"], "no target"),
            (["--loss-burst", "0"], "at least 1 packet"),
        ] {
            let error = link(&args).expect_err("a mistake").to_string();
            assert!(error.contains(says), "{error}");
        }
        let both = link(&["--rtt", "1s", "--delay", "1s"]).expect("each is good").scenario();
        let unknown = link(&["--scenario", "moon"]).expect("a name").scenario();
        assert!(
            both.is_err() && unknown.is_err_and(|e| e.message.contains("there are bufferbloat"))
        );
    }
}
