//! `man` and `completions` of each program: manual pages and completions from the same source as
//! `--help`.

mod page;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use clap_complete::Shell;

use crate::completions;
use crate::exit::{Code, Failure};
use crate::help;
use crate::outcome;
use crate::program::Program;
use crate::stdout;

/// Write the manual pages into a directory
#[derive(clap::Args, Debug)]
pub struct ManArgs {
    /// The directory, created if missing
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    directory: PathBuf,
}

/// Print the completions for a shell
#[derive(clap::Args, Debug)]
pub struct CompletionsArgs {
    /// Which shell
    shell: Shell,
}

/// Writes the pages of the program.
pub fn man(args: &ManArgs, program: &Program) -> Code {
    let written = pages(&args.directory, program).map_err(|error| {
        let text = format!("{}: cannot write manual pages: {error}", args.directory.display());
        Failure::new(Code::File, text)
    });
    outcome::end(written, false)
}

fn pages(directory: &Path, program: &Program) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut command = help::named(program.command.clone()).disable_help_subcommand(true);
    command.build();
    page::write_all(&command, program, directory)
}

/// Prints the completions of the program.
pub fn completions(args: &CompletionsArgs, program: &Program) -> Code {
    let text = completions::script(args.shell, &program.command);
    outcome::end(stdout::print(&text), false)
}
