//! The help of a program: the commands by group, and a `-h` that fits on one screen.

use std::fmt::Write as _;

use clap::{Arg, Command};

use crate::program::Program;

/// The command that clap adds by itself, and its text.
const HELP: (&str, &str) = ("help", "Print this message or the help of a command");
/// Where the text of a command begins, and the column in which it ends.
const INDENT: usize = 15;
const COLUMNS: usize = 100;

/// The command line with the help as users see it.
pub(crate) fn command(program: &Program) -> Command {
    let command = named(program.command.clone());
    let template = template(program);
    program.shown.iter().fold(command.help_template(template), |command, (path, shown)| {
        shortened(command, path, shown)
    })
}

/// The command line with examples for this program in the help of `man` and `completions`.
pub(crate) fn named(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let first = command.get_subcommands().next().map(|first| format!("-{}", first.get_name()));
    let man = format!("To read one: man -l DIR/{name}{}.1", first.unwrap_or_default());
    let file = format!("~/.local/share/bash-completion/completions/{name}");
    let bash = format!("For bash: {name} completions bash > {file}");
    command
        .mut_subcommand("man", |command| explained(command, &man))
        .mut_subcommand("completions", |command| explained(command, &bash))
}

/// The command with this text below its first line.
fn explained(command: Command, text: &str) -> Command {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    command.long_about(format!("{about}\n\n{text}"))
}

/// clap's own template, but for the groups.
fn template(program: &Program) -> String {
    let command = &program.command;
    let header = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let mut out = "{before-help}{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (group, names) in program.groups {
        let _ = writeln!(out, "{header}{group}:{header:#}");
        for name in *names {
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

/// Commands in no group or in several, and options of the tables that do not exist.
pub(crate) fn problems(program: &Program) -> Vec<String> {
    let commands = program.command.get_subcommands().filter(|command| !command.is_hide_set());
    let visible: Vec<&str> = commands.map(Command::get_name).chain([HELP.0]).collect();
    let grouped: Vec<&str> = program.groups.iter().flat_map(|(_, names)| *names).copied().collect();
    let times = |name: &str| grouped.iter().filter(|grouped| **grouped == name).count();
    let unknown = grouped.iter().filter(|name| !visible.contains(name));
    let ungrouped = visible.iter().filter(|name| times(name) != 1);
    let mut problems: Vec<String> =
        unknown.chain(ungrouped).map(|name| format!("{name} is in no one group")).collect();
    for (path, shown) in program.shown {
        let find = |command: &'_ Command, name: &&str| command.find_subcommand(name).cloned();
        let start = Some(program.command.clone());
        let command = path.iter().fold(start, |command, name| find(&command?, name));
        let exists = |name: &str| {
            let found = command.as_ref();
            found.is_some_and(|command| command.get_arguments().any(|arg| is_one_of(arg, &[name])))
        };
        let missing = shown.iter().filter(|name| !exists(name));
        problems.extend(missing.map(|name| format!("{path:?} has no {name}")));
    }
    problems
}
