//! `netblt man` and `netblt completions`: manual pages and completions from the same source as
//! `--help`.

mod hints;
mod page;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{CommandFactory as _, ValueHint};
use clap_complete::Shell;

use crate::Cli;
use crate::exit::{Code, Failure};
use crate::reporter;
use crate::stdout;

/// Write the manual pages into a directory
///
/// To read one: man -l DIR/netblt-send.1
#[derive(clap::Args, Debug)]
pub(crate) struct ManArgs {
    /// The directory, created if missing
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    directory: PathBuf,
}

/// Print the completions for a shell
///
/// For bash: netblt completions bash > ~/.local/share/bash-completion/completions/netblt
#[derive(clap::Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    shell: Shell,
}

pub(crate) fn man(args: &ManArgs) -> Code {
    let written = pages(&args.directory).map_err(|error| {
        let text = format!("{}: cannot write manual pages: {error}", args.directory.display());
        Failure::new(Code::File, text)
    });
    reporter::end(written, false)
}

fn pages(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    page::write_all(&command, directory)
}

pub(crate) fn completions(args: &CompletionsArgs) -> Code {
    // Into memory first: the generator panics when its output cannot be written.
    let mut text = Vec::new();
    let mut command = hints::without_hidden(&hints::hinted(Cli::command()));
    clap_complete::generate(args.shell, &mut command, "netblt", &mut text);
    let text = hints::with_files(args.shell, &String::from_utf8_lossy(&text));
    reporter::end(stdout::print(&text), false)
}
