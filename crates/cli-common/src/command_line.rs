//! Reads the command line of a program, and reports mistakes in it.

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::Error;
use clap::{ArgMatches, Command, FromArgMatches};

use crate::exit::{Code, Failure};
use crate::program::Program;
use crate::{allocator, help, json, outcome, permute, signals, stdout, suggest};

/// Returns words to add to a command line, between the name of its command and the user's words.
pub type MoreWords = fn(&Command, &ArgMatches) -> Result<Vec<OsString>, Failure>;

/// The command line of this process as `C`. After a mistake or a request for help, the message or
/// the help is printed, and the exit code returned. The words that `more` returns are put before
/// those of the user, and all are parsed again. To be called once, before there is a second thread.
pub fn read<C: FromArgMatches>(program: &Program, more: Option<MoreWords>) -> Result<C, ExitCode> {
    stdout::name_program(program.name);
    allocator::give_back();
    signals::survive_large_files();
    let command = help::command(program);
    let mut words = permute::options_first(env::args_os().collect(), &command);
    let mut matches = command.clone().try_get_matches_from(words.clone());
    if let (Some(more), Ok(parsed)) = (more, &matches) {
        let added = more(&command, parsed).map_err(|failure| {
            let args: Vec<_> = env::args_os().collect();
            ExitCode::from(outcome::end(Err(failure), asks_for_json(&args)))
        })?;
        if !added.is_empty() {
            // The name of the command is the first word behind that of the program.
            words.splice(2..2, added);
            matches = command.clone().try_get_matches_from(words);
        }
    }
    let read = matches.and_then(|matches| {
        C::from_arg_matches(&matches).map_err(|error| error.format(&mut command.clone()))
    });
    read.map_err(|error| answer(error, program, command))
}

/// Prints the message or the help text of clap.
fn answer(mut error: Error, program: &Program, mut command: Command) -> ExitCode {
    let args: Vec<_> = env::args_os().collect();
    suggest::nearest(&mut error, &mut command, &args);
    if error.use_stderr() && asks_for_json(&args) {
        let message = without_usage(&error.render().to_string());
        json::mistake(&message, data_on_stdout(program, &args));
        return Code::Usage.into();
    }
    // clap's own exit code for usage errors would be 2, which means something else here.
    let code = match (error.print(), error.use_stderr()) {
        (_, true) => Code::Usage,
        (Ok(()), false) => Code::Success,
        (Err(error), false) => {
            stdout::note("standard output", &error);
            Failure::stdout(&error).code
        }
    };
    stdout::end(code.into())
}

/// Whether standard output was meant for data.
fn data_on_stdout(program: &Program, args: &[OsString]) -> bool {
    let is_it = |command: &OsString| program.data_command.is_some_and(|name| command == name);
    args.get(1).is_some_and(is_it) && args.iter().any(|arg| arg == "-")
}

/// Mistakes in the tables of a program, and options whose parser shows the error text of Rust's own
/// number parser. For a test of each program.
pub fn problems(program: &Program) -> Vec<String> {
    let mut problems = help::problems(program);
    let mut command = program.command.clone();
    command.build();
    leaks(&command, &[program.name], &command, &mut problems);
    problems
}

/// Tries wrong values for all options of `command`, the command of the words in `path`.
fn leaks(command: &Command, path: &[&str], program: &Command, problems: &mut Vec<String>) {
    const PARSERS: [&str; 4] = ["digit", "number too", "parse integer", "float literal"];
    for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
        let Some(long) = arg.get_long() else { continue };
        for wrong in ["abc", "", "-1", "1x", "99999999999999999999999"] {
            let given = format!("--{long}={wrong}");
            let line = path.iter().map(|word| (*word).to_owned()).chain([given.clone()]);
            let Err(error) = program.clone().try_get_matches_from(line) else { continue };
            let text = error.to_string();
            if PARSERS.into_iter().any(|words| text.contains(words)) {
                problems.push(format!("{path:?} {given}: {text}"));
            }
        }
    }
    for inner in command.get_subcommands() {
        leaks(inner, &[path, &[inner.get_name()]].concat(), program, problems);
    }
}

/// Whether a command line asks for JSON, also if it cannot be parsed.
fn asks_for_json(args: &[OsString]) -> bool {
    let options = args.iter().skip(1).take_while(|arg| *arg != "--");
    options.into_iter().any(|arg| arg == "--json")
}

/// The error in one line, without the usage.
fn without_usage(text: &str) -> String {
    let lines = text.lines().take_while(|line| !line.starts_with("Usage:"));
    let lines = lines.filter(|line| !line.starts_with("For more information"));
    let lines: Vec<&str> = lines.map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines.join("; ").replace(":; ", ": ");
    text.strip_prefix("error: ").unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use clap::{Arg, value_parser};

    use super::*;

    #[test]
    fn a_number_parsers_own_error_is_a_problem() {
        let program = |arg: Arg| Program {
            name: "n",
            command: Command::new("n").subcommand(Command::new("a").arg(arg.long("number"))),
            groups: &[("All", &["a", "help"])],
            shown: &[(&["a"], &["number"])],
            environment: &[],
            data_command: None,
        };
        let bare = Arg::new("number")
            .value_parser(|text: &str| text.parse::<u32>().map_err(|error| error.to_string()));
        let found = problems(&program(bare));
        assert!(found.len() >= 4 && found[0].contains("--number=abc"), "{found:?}");
        let own = Arg::new("number").value_parser(crate::units::number::<u32>(0, 9));
        assert_eq!(problems(&program(own)), Vec::<String>::new());
        let none = Arg::new("other").value_parser(value_parser!(String));
        let mut wrong = program(none);
        wrong.shown = &[(&["a"], &["missing"])];
        wrong.groups = &[("All", &["b", "help"])];
        assert_eq!(problems(&wrong).len(), 3, "{:?}", problems(&wrong));
    }
}
