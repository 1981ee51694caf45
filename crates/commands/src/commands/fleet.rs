//! `netblt fleet`: a tree cut into chunks, each a task for whatever engine there is. The work is
//! `netblt_fleet`'s; here are its command line, its words and its exit codes.

mod finish;
mod plan;
mod task;
mod timeline;

use std::path::PathBuf;

use netblt::{Cancel, Options, Rendezvous};
use netblt_fleet::chunk::ConnectError;
use netblt_fleet::finish::ServerError;
use netblt_fleet::pool::Pool;
use netblt_fleet::{Error, Run};
use netblt_proto::api::printable;

use crate::exit::{self, Code, Failure};
use crate::outcome;
use crate::server_client::address::ServerPath;
use crate::server_client::client::Credentials;
use crate::{hardening, signals};

/// Move a tree too large for one pair of machines, in chunks
///
/// `plan` cuts the tree, `submit` has tasks started by this machine, Slurm or Dask, each of which
/// runs `run-chunk` and puts its chunk on one of a pool of servers (netblt serve); `status`,
/// `verify` and `manifest` show the results. Broken chunks resume when they are run again.
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Plan(plan::Args),
    RunChunk(task::ChunkArgs),
    Submit(task::SubmitArgs),
    Status(finish::StatusArgs),
    Verify(finish::VerifyArgs),
    Manifest(finish::ManifestArgs),
    Clean(finish::CleanArgs),
}

pub(super) fn help() -> String {
    format!(
        "Examples:\n  \
         netblt fleet plan /data/set netblt://dtn1,dtn2:9981/archive/set -o run\n  \
         netblt fleet submit run --engine local --pairs 4 --wan 10Gbit\n  \
         netblt fleet submit run --engine slurm --pairs 16 --wan 40Gbit -- -p dtn\n  \
         netblt fleet submit run --engine dask --pairs 16 -- -s tcp://head:8786\n  \
         netblt fleet status run --watch --html run.html\n  \
         netblt fleet manifest run\n\n{}  \
         75  fleet run-chunk: it may go well if it is tried again later (EX_TEMPFAIL)\n",
        exit::help(),
    )
}

pub(crate) fn run(args: &Args) -> Code {
    match &args.command {
        Command::Plan(args) => plan::run(args),
        Command::RunChunk(args) => task::chunk(args),
        Command::Submit(args) => task::submit(args),
        Command::Status(args) => finish::status(args),
        Command::Verify(args) => finish::verify(args),
        Command::Manifest(args) => finish::manifest(args),
        Command::Clean(args) => finish::clean(args),
    }
}

/// The directory of a run, as every command but `plan` is given it.
#[derive(clap::Args, Debug)]
struct Place {
    /// The run's directory
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Print JSON, one object a line, on standard output
    #[arg(long)]
    json: bool,
}

impl Place {
    fn open(&self) -> Result<Run, Failure> {
        Run::open(&self.run).map_err(failed)
    }

    /// Ends a command.
    fn end(&self, done: Result<Code, Failure>) -> Code {
        match done {
            Ok(code) => code,
            Err(failure) => {
                outcome::complain(&failure, self.json);
                failure.code
            }
        }
    }
}

fn failed(error: Error) -> Failure {
    let code = match &error {
        Error::InvalidRequest(_) => Code::Usage,
        Error::Interrupted => Code::Signal,
        _ => Code::File,
    };
    Failure::new(code, error.to_string())
}

fn trouble(trouble: ServerError) -> Failure {
    match trouble {
        ServerError::Here(error) => failed(error),
        ServerError::ConnectError(ConnectError { code, message, .. }) => {
            Failure::new(code, message)
        }
        ServerError::There(error) => Failure::transfer(&error, false),
        _ => Failure::new(Code::Protocol, "no server of the pool could be asked"),
    }
}

/// A handle that signals cancel from now on.
fn watched() -> Result<Cancel, Failure> {
    hardening::keep();
    let cancel = Cancel::default();
    signals::watch(&cancel, false)?;
    Ok(cancel)
}

/// Calls hosts of a pool as `cp` calls a server.
fn connect(
    run: &Run,
    cancel: &Cancel,
) -> Result<impl Fn(&str, &Options) -> Result<Rendezvous, ConnectError> + Sync, Failure> {
    let pool = Pool::read(run).map_err(failed)?;
    let proof = Credentials {
        ticket_file: pool.ticket_file.clone(),
        known_servers: pool.known_servers.clone(),
    };
    let cancel = cancel.clone();
    Ok(move |host: &str, options: &Options| {
        let served = ServerPath::parse(format!("netblt://{host}/").as_ref());
        let met = served
            .and_then(|served| proof.meet(&served, pool.identity.as_deref(), options, &cancel));
        met.map(|meeting| meeting.rendezvous.clone()).map_err(|failure| {
            let passing = matches!(failure.code, Code::Connect | Code::Timeout | Code::Stream);
            ConnectError { code: failure.code, message: failure.message, passing }
        })
    })
}

/// A place that is good wherever it is used from.
fn absolute(path: Option<&PathBuf>) -> Result<Option<PathBuf>, Failure> {
    let absolute = path.map(std::path::absolute).transpose();
    absolute.map_err(|error| Failure::usage(error.to_string()))
}

/// A line for people.
fn say(text: &str) {
    crate::stdout::say(&printable(text));
}
