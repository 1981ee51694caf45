//! What differs between programs, as a table.

use clap::Command;

/// A heading of the help, and the commands below it.
pub type Group = (&'static str, &'static [&'static str]);

/// A command with more options than fit on a screen, and those that `-h` shows; `--help` shows all.
pub type Shown = (&'static [&'static str], &'static [&'static str]);

/// An environment variable (or several) that the program reads or sets, the manual pages that have
/// it, and its meaning.
pub type Variable = (&'static str, &'static [&'static str], &'static str);

/// What differs between programs.
#[derive(Debug)]
pub struct Program {
    /// Its name, with which messages begin.
    pub name: &'static str,
    /// The command line, as it is declared.
    pub command: Command,
    /// The commands by group, in the order of the help.
    pub groups: &'static [Group],
    /// The commands with a short help of their own.
    pub shown: &'static [Shown],
    /// The environment, for the manual pages.
    pub environment: &'static [Variable],
    /// The command that writes data to standard output if `-` is among its words.
    pub data_command: Option<&'static str>,
}
