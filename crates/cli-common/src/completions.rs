//! Hints for shells about values: which are files, and which are network interfaces.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, ValueHint};
use clap_complete::Shell;
use netblt_path::scenario;

/// The option whose value is a known network, or a file.
const SCENARIO: &str = "scenario";

/// The command line with a hint at every value that has neither a list nor a path's type. Only for
/// generating: a network may be a file as well, which this one would refuse.
fn hinted(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        if arg.get_id() == SCENARIO {
            return arg.value_parser(PossibleValuesParser::new(scenario::names()));
        }
        match hint(&arg) {
            Some(hint) => arg.value_hint(hint),
            None => arg,
        }
    });
    command.mut_subcommands(hinted)
}

/// The same without the commands that no help shows: they are for other programs.
fn without_hidden(command: &Command) -> Command {
    let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
    Command::new(command.get_name().to_owned())
        .version(env!("CARGO_PKG_VERSION"))
        .args(command.get_arguments())
        .subcommands(visible)
}

fn hint(arg: &Arg) -> Option<ValueHint> {
    if !arg.get_action().takes_values() || arg.get_value_hint() != ValueHint::Unknown {
        return None;
    }
    let name = arg.get_value_names().and_then(|names| names.first()).map(|name| name.as_str());
    match name.unwrap_or_default() {
        "FILE" => Some(ValueHint::FilePath),
        "CMD" | "COMMAND" => Some(ValueHint::CommandName),
        // The directory may be the first argument of `receive`, where a ticket may be.
        "TICKET" | "DIR" | "OUTFILE" | "PATH" => None,
        name if name.starts_with("HOST") || name == "TARGET" => Some(ValueHint::Hostname),
        _ => Some(ValueHint::Other),
    }
}

/// The completions for a shell. `command` is what it completes.
pub(crate) fn script(shell: Shell, command: &Command) -> String {
    let name = command.get_name();
    // For bash, clap writes two different names for a subcommand of a program with a hyphen.
    let word = if shell == Shell::Bash { name.replace('-', "_") } else { name.to_owned() };
    let mut command = without_hidden(&hinted(command.clone()));
    // Into memory first: the generator panics when its output cannot be written.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, &word, &mut text);
    let text = String::from_utf8_lossy(&text);
    let registered =
        text.replace(&format!(" -o default {word}\n"), &format!(" -o default {name}\n"));
    with_files(shell, &registered)
}

/// Adds files to where only names of networks are offered; bash falls back to files by itself.
fn with_files(shell: Shell, text: &str) -> String {
    let names = scenario::names().collect::<Vec<_>>().join(" ");
    match shell {
        Shell::Zsh => text.replace(
            &format!(":({names})'"),
            &format!(":{{_alternative \"networks:network:({names})\" \"files:file:_files\"}}'"),
        ),
        Shell::Fish => {
            let line = |line: &str| match line.contains(&format!(" -l {SCENARIO} ")) {
                true => line.replace(" -r -f -a ", " -r -F -a ") + "\n",
                false => format!("{line}\n"),
            };
            text.lines().map(line).collect()
        }
        _ => text.to_owned(),
    }
}
