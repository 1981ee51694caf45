//! The help as a whole: the commands by group, and `-h` on one screen.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};

use crate::Cli;

/// The commands by group, in the order of the help.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Transfer", &["cp", "send", "receive", "clean", "control", "keygen"]),
    ("Server", &["serve", "ls", "stat", "mv", "rm", "mkdir"]),
    ("Fleet", &["fleet"]),
    (
        "Tools",
        &["bench", "plan", "emulate", "report", "demo", "simulate", "completions", "man", "help"],
    ),
];
/// clap adds this command by itself, so it has no text of ours.
const HELP: (&str, &str) = ("help", "Print this message or the help of a command");
/// Where the text of a command begins, and the column in which it ends.
const INDENT: usize = 15;
const COLUMNS: usize = 100;

/// A command with more options than fit on a screen, and those that `-h` shows; `--help` shows all.
type Shown = (&'static [&'static str], &'static [&'static str]);

const SHOWN: [Shown; 6] = [
    (
        &["cp"],
        &[
            "recursive",
            "preserve",
            "dry-run",
            "exclude",
            "update",
            "policy",
            "rate",
            "udp-port",
            "streams",
            "fallback",
            "P",
            "i",
            "install",
            "ticket-file",
            "json",
            "quiet",
        ],
    ),
    (
        &["send"],
        &[
            "to",
            "exclude",
            "ticket-stdin",
            "rate",
            "policy",
            "port",
            "bind",
            "advertise",
            "wait",
            "streams",
            "wire",
            "json",
            "quiet",
            "report",
        ],
    ),
    (
        &["receive"],
        &[
            "ticket-stdin",
            "list",
            "as",
            "overwrite",
            "verify",
            "preserve",
            "max-size",
            "port",
            "bind",
            "advertise",
            "wait",
            "streams",
            "wire",
            "json",
            "quiet",
            "report",
        ],
    ),
    (
        &["bench"],
        &[
            "server", "client", "one-off", "private", "port", "time", "bytes", "reverse",
            "parallel", "bitrate", "policy", "wire", "bind", "ipv4", "ipv6", "interval", "json",
            "quiet",
        ],
    ),
    (
        &["emulate", "relay"],
        &[
            "listen",
            "to",
            "scenario",
            "seed",
            "rate",
            "delay",
            "rtt",
            "jitter",
            "loss",
            "reorder",
            "duplicate",
            "corrupt",
            "queue",
            "mtu",
            "stats",
            "json",
            "trace",
            "quiet",
        ],
    ),
    (
        &["emulate", "tun"],
        &[
            "host-a",
            "host-b",
            "scenario",
            "seed",
            "rate",
            "delay",
            "rtt",
            "jitter",
            "loss",
            "reorder",
            "duplicate",
            "queue",
            "mtu",
            "stats",
            "json",
            "quiet",
        ],
    ),
];

/// The command line with the help as users see it.
pub(crate) fn command() -> Command {
    let command = Cli::command();
    let template = template(&command);
    SHOWN.iter().fold(command.help_template(template), |command, (path, shown)| {
        shortened(command, path, shown)
    })
}

/// clap's own template, but for the groups.
fn template(command: &Command) -> String {
    let header = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let mut out = "{before-help}{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (group, names) in GROUPS {
        let _ = writeln!(out, "{header}{group}:{header:#}");
        for name in names {
            let about = match command.find_subcommand(name).and_then(Command::get_about) {
                Some(about) => about.to_string(),
                None => HELP.1.to_owned(),
            };
            let space = " ".repeat(INDENT - 2 - name.len());
            let lines = wrapped(&about, COLUMNS - INDENT).join(&format!("\n{:INDENT$}", ""));
            let _ = writeln!(out, "  {literal}{name}{literal:#}{space}{lines}");
        }
        out.push('\n');
    }
    let _ = write!(out, "{header}Options:{header:#}\n{{options}}{{after-help}}");
    out
}

/// The text in lines of at most `columns`.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        let used = lines[last].chars().count();
        if used > 0 && used + 1 + word.chars().count() > columns {
            lines.push(word.to_owned());
            continue;
        }
        if used > 0 {
            lines[last].push(' ');
        }
        lines[last].push_str(word);
    }
    lines
}

/// The command at `path` shows only these options in `-h`.
fn shortened(command: Command, path: &[&str], shown: &[&str]) -> Command {
    match path {
        [] => command.mut_args(|arg| match arg.is_positional() || is_one_of(&arg, shown) {
            true => arg,
            false => arg.hide_short_help(true),
        }),
        [name, rest @ ..] => {
            command.mut_subcommand(name, |command| shortened(command, rest, shown))
        }
    }
}

/// Whether the option has one of these names: a long one, or a letter.
fn is_one_of(arg: &Arg, names: &[&str]) -> bool {
    let is = |name: &&str| {
        let mut letters = name.chars();
        match (letters.next(), letters.next()) {
            (Some(letter), None) => arg.get_short() == Some(letter),
            _ => arg.get_long() == Some(name),
        }
    };
    names.iter().any(is)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_visible_command_is_in_one_group() {
        let command = Cli::command();
        let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
        let mut expected: Vec<&str> = visible.map(Command::get_name).chain([HELP.0]).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        expected.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, expected);
    }

    #[test]
    fn shown_options_exist() {
        for (path, shown) in SHOWN {
            let mut command = &Cli::command();
            for name in path {
                command = command.find_subcommand(name).expect("a command");
            }
            for name in shown {
                let mut arguments = command.get_arguments();
                assert!(arguments.any(|arg| is_one_of(arg, &[name])), "{path:?} {name}");
            }
        }
    }
}
