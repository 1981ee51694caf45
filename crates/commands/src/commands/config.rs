//! `netblt config show`: which options the configuration file has for a host.

use netblt_proto::api::printable;
use serde_json::json as object;

use crate::config::file::ConfigFile;
use crate::exit::{self, Code, Failure};
use crate::{json, outcome, stdout};

/// Show the configuration
///
/// `~/.config/netblt/config` has options for hosts, in the format of ssh's configuration. `Host`
/// and patterns (*, ?, a leading ! negates) begin a block. Each line in it is a key and its value:
/// rate, policy, fec, streams, udp-port, death-timer, resume, keep-partial, fallback,
/// remote-netblt, ticket-file, known-servers, key. Of two values for a key the first one holds, and
/// the command line beats both.
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// Print the values that hold for a host, and where each comes from
    Show(ShowArgs),
}

#[derive(clap::Args, Debug)]
struct ShowArgs {
    /// The host as commands name it, without user and port
    #[arg(value_name = "HOST")]
    host: String,
    /// Print JSON, one object a line, on standard output
    #[arg(long)]
    json: bool,
}

fn help() -> String {
    format!(
        "Examples:\n  \
         netblt config show archive.example.org    what holds for this host\n\n{}",
        exit::help(),
    )
}

pub(crate) fn run(args: &Args) -> Code {
    let Action::Show(show) = &args.action;
    outcome::end(show.run(), show.json)
}

impl ShowArgs {
    fn run(&self) -> Result<(), Failure> {
        let settings = ConfigFile::load()?.settings(&self.host);
        if settings.is_empty() && !self.json {
            let path = ConfigFile::path().unwrap_or_default();
            stdout::say(&format!(
                "netblt: {} has nothing for {}",
                printable(&path.display().to_string()),
                printable(&self.host)
            ));
        }
        for setting in settings {
            let (key, value) = (setting.key.name, printable(&setting.value));
            let origin = printable(&setting.origin);
            if self.json {
                let data = object!({ "key": key, "value": value, "origin": origin });
                json::event("setting", data)?;
            } else {
                stdout::line(format_args!("{key:<14} {value:<24} {origin}"))?;
            }
        }
        Ok(())
    }
}
