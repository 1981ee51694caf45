//! `netblt keygen`: a static key of one's own, and the line that others need of it.

use std::path::PathBuf;

use netblt::Error;
use netblt::keys::{file, fingerprint};
use netblt_proto::api::printable;
use serde_json::json;

use crate::exit::{Code, Failure};
use crate::json;
use crate::outcome;
use crate::stdout::{self, say};

/// Make a key for a user or a server
///
/// FILE is for you alone; FILE.pub, which is printed with its fingerprint, is for others: as a line
/// of a server's list of authorised keys, or for clients to compare. Nothing is overwritten.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:\n  \
         netblt keygen\n  \
         netblt keygen /etc/netblt/server.key --comment data.example.org")]
pub(crate) struct Args {
    /// The file for the key [default: ~/.config/netblt/key]
    #[arg(value_name = "FILE")]
    path: Option<PathBuf>,
    /// The key's name for others [default: user@host]
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    /// Print JSON, one object on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Code {
    outcome::end(make(args), args.json)
}

fn make(args: &Args) -> Result<(), Failure> {
    let failed = |error| match error {
        // There is no option to replace a key: the users of the old one would be locked out.
        Error::Exists(_) => Failure::new(Code::File, error.to_string()),
        error => Failure::transfer(&error, false),
    };
    let path = match &args.path {
        Some(path) => path.clone(),
        None => file::place("key").ok_or_else(|| {
            Failure::usage("there is no home directory to keep a key in: name a FILE")
        })?,
    };
    let comment = args.comment.clone().unwrap_or_else(own_name);
    let key = file::generate().map_err(failed)?;
    let public = file::write(&path, &key, &comment).map_err(failed)?;
    let beside = file::public_path(&path);
    let fingerprint = fingerprint(&public.key);
    match args.json {
        true => {
            let data = json!({
                "path": printable(&path.display().to_string()),
                "public_path": printable(&beside.display().to_string()),
                "public": public.to_string(),
                "comment": public.comment,
                "fingerprint": fingerprint,
            });
            json::event("key", data)
        }
        false => {
            let place = printable(&path.display().to_string());
            say(&format!("The key is in {place}, and for you alone. For others, in {place}.pub:"));
            stdout::line(format_args!("{public}\n{fingerprint}"))
        }
    }
}

/// `user@host`, as far as the system knows it.
fn own_name() -> String {
    let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    match user {
        Some(user) => format!("{user}@{host}"),
        None => host,
    }
}
