//! Options between operands, as in GNU getopt, scp and rsync: `cp a -r b c`.
//!
//! If another operand follows a list of operands, clap ends the list at the first option. So all
//! operands are moved behind the options before clap reads them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use clap::{Arg, Command};

/// The words of a command line, program and command first, with operands behind options. All words
/// after `--` are operands.
pub(crate) fn options_first(words: Vec<OsString>, program: &Command) -> Vec<OsString> {
    let command = words.get(1).and_then(|name| program.find_subcommand(name));
    let Some(command) = command.filter(|command| ends_in_one_more(command)) else { return words };
    let mut words = words.into_iter();
    let mut first: Vec<OsString> = words.by_ref().take(2).collect();
    let mut operands = vec![OsString::from("--")];
    while let Some(word) = words.next() {
        if word == "--" {
            operands.extend(words.by_ref());
        } else if !word.as_bytes().starts_with(b"-") || word == "-" {
            operands.push(word);
        } else {
            let value = wants_next(&word, command).then(|| words.next()).flatten();
            first.push(word);
            first.extend(value);
        }
    }
    first.extend(operands);
    first
}

/// Whether operands of any number are followed by another one.
fn ends_in_one_more(command: &Command) -> bool {
    let many = |arg: &Arg| arg.get_num_args().is_some_and(|range| range.max_values() > 1);
    let mut operands = command.get_positionals();
    operands.next().is_some_and(many) && operands.next().is_some()
}

/// Whether the next word is this option's value.
fn wants_next(word: &OsStr, command: &Command) -> bool {
    let takes = |arg: &Arg| arg.get_action().takes_values() && !arg.is_require_equals_set();
    let bytes = word.as_bytes();
    if let Some(name) = bytes.strip_prefix(b"--") {
        let named = |arg: &&Arg| arg.get_long().is_some_and(|long| long.as_bytes() == name);
        return command.get_arguments().find(named).is_some_and(takes);
    }
    // Letters behind one hyphen. One that takes a value is the last.
    for (at, letter) in bytes.iter().enumerate().skip(1) {
        let named = |arg: &&Arg| arg.get_short() == Some(char::from(*letter));
        if command.get_arguments().find(named).is_some_and(takes) {
            return at + 1 == bytes.len();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use clap::ArgAction;

    use super::*;

    /// Commands with operands as `netblt` has them.
    fn program() -> Command {
        let many = || Arg::new("SOURCE").num_args(1..).required(true);
        let flag = |name: &'static str, letter| {
            Arg::new(name).long(name).short(letter).action(ArgAction::SetTrue)
        };
        let cp = Command::new("cp").args([many(), Arg::new("TARGET").required(true)]).args([
            Arg::new("rate").long("rate"),
            flag("recursive", 'r'),
            flag("preserve", 'p'),
            Arg::new("P").short('P'),
            Arg::new("o").short('o').action(ArgAction::Append),
            Arg::new("progress").long("progress").num_args(0..=1).require_equals(true),
        ]);
        let mv = Command::new("mv").args([many(), Arg::new("TARGET"), flag("verbose", 'v')]);
        let send = Command::new("send").args([many(), Arg::new("to").long("to")]);
        let rm = Command::new("rm").args([many(), flag("verbose", 'v')]);
        Command::new("n").subcommands([cp, mv, send, rm])
    }

    #[test]
    fn operands_come_behind_options() {
        let permuted = |line: &str| {
            let words = line.split(' ').map(OsString::from).collect();
            let words = options_first(words, &program());
            words.join(OsStr::new(" ")).into_string().expect("text")
        };
        for (line, is) in [
            ("n cp a b --rate 1Mbit host:", "n cp --rate 1Mbit -- a b host:"),
            ("n cp a -rp b host:", "n cp -rp -- a b host:"),
            ("n cp a -rP 22 b host:", "n cp -rP 22 -- a b host:"),
            ("n cp a -P22 b host:", "n cp -P22 -- a b host:"),
            ("n cp a --rate=1Mbit b c", "n cp --rate=1Mbit -- a b c"),
            ("n cp a --progress b c", "n cp --progress -- a b c"),
            ("n cp a -o A=b -- -r c", "n cp -o A=b -- a -r c"),
            ("n cp a --unknown b c", "n cp --unknown -- a b c"),
            ("n cp a --rate", "n cp --rate -- a"),
            ("n mv a -v b c", "n mv -v -- a b c"),
            ("n send a --to b c", "n send a --to b c"),
            ("n rm a -v b", "n rm a -v b"),
            ("n", "n"),
        ] {
            assert_eq!(permuted(line), is);
        }
    }
}
