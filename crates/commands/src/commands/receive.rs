//! `netblt receive`: receives files into a directory, or a stream to standard output.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use netblt::ticket::{PREFIX, Ticket};
use netblt::{Cancel, Destination, Overwrite, Summary};
use netblt_proto::config::Role;
use netblt_proto::content::check_name;
use netblt_proto::limits::{DEFAULT_MAX_FILES, MAX_FILES};

use crate::args::{self, NetworkArgs, OutputArgs, PageArgs, ResumeName};
use crate::checksum_args::ChecksumArgs;
use crate::commands::html_report::HtmlReport;
use crate::exit::{self, Code, Failure};
use crate::reporter::{self, Reporter};
use crate::{control, hardening, rfc998, signals, units};

/// Receive files into a directory, or a stream to standard output
///
/// With a ticket this side connects to the machine that printed it and pulls. Without one it
/// listens and prints a ticket, with the command to run on the other machine; if standard output is
/// not a terminal, it gets the bare ticket. Each file gets its name when it is whole, verified and
/// on the disk, not before. If the transfer breaks, the received data are kept, and the same
/// transfer resumes from them (`netblt clean` removes them). With --wire rfc998 it receives one
/// file or stream from any program that speaks RFC 998, IN THE CLEAR; the one argument is then the
/// file to receive into, or -.
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct Args {
    /// The ticket, which begins with "netblt1:"; without one this side listens
    ticket: Option<OsString>,
    /// The directory to receive into, which must exist, or - for standard output [default: .]
    ///
    /// It may stand alone, without a ticket before it. One whose name begins with "netblt1:" is
    /// written ./netblt1:...
    #[arg(value_name = "DIR")]
    directory: Option<OsString>,
    /// Read the ticket from standard input
    #[arg(long)]
    ticket_stdin: bool,
    /// With --wire rfc998: call the sender that waits there and pull (READ)
    #[arg(long, value_name = "HOST:PORT")]
    from: Option<OsString>,
    /// Only list the sender's files; it goes on listening, and its ticket stays good
    #[arg(long, conflicts_with_all = ["rename", "client", "report"])]
    #[arg(conflicts_with_all = ["manifest", "hash", "expect", "store_hash"])]
    list: bool,
    /// Give the file this name; the sender must have one file only
    #[arg(long = "as", value_name = "NAME", value_parser = name)]
    rename: Option<OsString>,
    /// What to do about files that exist
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = When::Never)]
    overwrite: When,
    /// All or nothing: what cannot have its name ends the transfer instead of being left out
    #[arg(long)]
    atomic: bool,
    /// What to do with the parts of a broken transfer
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = ResumeName::Auto)]
    resume: ResumeName,
    /// How long parts of files are kept so that a transfer can be resumed
    #[arg(long, value_name = "TIME", default_value = args::KEEP_PARTIAL,
          value_parser = units::duration)]
    keep_partial: Duration,
    /// Read every file back from the disk before it gets its name
    ///
    /// Files that differ from the received data are named, left out and not kept (exit code 23).
    /// With --atomic nothing is kept (exit code 65). The page cache of the file is dropped first,
    /// so that the disk itself is read, unless the file system is in memory. Parts of a broken
    /// transfer are read again, too.
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    checksums: ChecksumArgs,
    /// Store the digests of received files in their attributes
    ///
    /// They are those of --hash, else SHA-256, in user.shatag.ALGORITHM, and in user.shatag.ts is
    /// the time of modification for which they hold: cshatag checks them. Where they cannot be
    /// stored a warning says so, and the exit code is 23.
    #[arg(long)]
    store_hash: bool,
    /// Keep the sender's permission bits, whatever the umask here
    #[arg(long)]
    preserve: bool,
    #[command(flatten)]
    extra: args::ExtraArgs,
    /// Take no more files and directories than this (to 16777216); 256 bytes of memory for each
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_FILES,
          value_parser = units::number::<u64>(1, MAX_FILES))]
    max_files: u64,
    /// Accept no more bytes than this, such as 20GB [default: as many as the sender announces]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    max_size: Option<u64>,
    #[command(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    show: OutputArgs,
    #[command(flatten)]
    page: PageArgs,
}

/// A file's name: one part.
fn name(value: &str) -> Result<OsString, String> {
    check_name(value.as_bytes()).map_err(str::to_owned)?;
    match value.contains('/') {
        true => Err("it is one name, without a slash; DIR says where".to_owned()),
        false => Ok(value.into()),
    }
}

/// When files that exist are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    /// Leave them as they are, and name them; with --atomic refuse the transfer
    Never,
    /// Replace them, when everything is verified
    Always,
}

fn help() -> String {
    format!(
        "Examples:\n  \
         NETBLT_TICKET=netblt1:... netblt receive downloads\n{pad}pull from `netblt send`\n  \
         netblt receive --ticket-stdin          the same, by standard input\n  \
         NETBLT_TICKET=netblt1:... netblt receive --list\n{pad}look what is offered\n  \
         netblt receive downloads               listen, and print a ticket\n  \
         NETBLT_TICKET=netblt1:... netblt receive - | tar x\n{pad}receive a stream\n  \
         netblt receive OUTFILE --wire rfc998 --listen HOST:PORT\n{pad}in clear, from a sender\n  \
         netblt receive OUTFILE --wire rfc998 --from HOST:PORT\n{pad}one that waits\n\n{}\n{}\n{}",
        args::TICKET_HELP,
        rfc998::HELP,
        exit::help(),
        pad = " ".repeat(41),
    )
}

pub(crate) fn run(args: &Args) -> Code {
    let (first, second) = (args.ticket.as_deref(), args.directory.as_deref());
    let places = match args.network.is_verifiable() {
        true => Places::of(first, second),
        false => Places::of_one(first, second),
    };
    let to_stdout = places.as_ref().is_ok_and(Places::is_stdout);
    let mut report = Reporter::new(Role::Receiver, args.show, to_stdout);
    if args.list {
        return match places.and_then(|places| list(args, &places, &mut report)) {
            Ok(()) => Code::Success,
            Err(failure) => report.finish(Err(failure)),
        };
    }
    let result = places.and_then(|places| transfer(args, places, &mut report));
    report.finish(result)
}

/// Prints the sender's files, one a line.
fn list(args: &Args, places: &Places<'_>, report: &mut Reporter) -> Result<(), Failure> {
    let options = args.network.options()?;
    let none = ("--from", None);
    let rendezvous = args.network.rendezvous(places.ticket, args.ticket_stdin, none)?;
    if rendezvous.listens() || !args.network.is_verifiable() {
        return Err(Failure::usage("--list asks a sender that listens: give its ticket"));
    }
    args.network.check_wait(&rendezvous)?;
    let cancel = Cancel::default();
    hardening::keep();
    signals::watch(&cancel, report.is_talkative())?;
    reporter::announce(report, &rendezvous);
    let offered = netblt::list(&rendezvous, &options, report, &cancel)
        .map_err(|error| report.failure(&error))?;
    report.clear();
    for one in &offered {
        report.offered(&one.name, one.directory, one.length)?;
    }
    let files = offered.iter().filter(|one| !one.directory).count() as u64;
    report.offered_in_all(files, offered.iter().map(|one| one.length).sum());
    Ok(())
}

fn transfer(args: &Args, places: Places<'_>, report: &mut Reporter) -> Result<Summary, Failure> {
    if places.is_stdout() && io::stdout().is_terminal() {
        return Err(Failure::usage("standard output is a terminal; redirect it or name a DIR"));
    }
    let overwrite = match args.overwrite {
        When::Never => Overwrite::Never,
        When::Always => Overwrite::Always,
    };
    let mut options = args.network.options()?;
    let title = format!("netblt receive, into {}", places.shown());
    let page = HtmlReport::wanted(args.page.report.as_deref(), title, &mut options)?;
    options.settings.overwrite = overwrite;
    options.settings.preserve = args.preserve;
    options.settings.atomic = args.atomic;
    options.settings.resume = args.resume.into();
    options.settings.partial_expiry = args.keep_partial;
    options.settings.verify = args.verify;
    options.settings.extras = args.extra.into();
    args.checksums.apply(&mut options, args.show.json, args.store_hash)?;
    options.settings.max_files = args.max_files;
    options.settings.max_bytes = args.max_size;
    options.rename.clone_from(&args.rename);
    let into_directory = matches!(places.destination, Destination::Directory(_));
    if args.rename.is_some() && !into_directory {
        return Err(Failure::usage("--as names a file in a directory; here is none"));
    }
    if args.verify && !into_directory {
        return Err(Failure::usage("--verify reads files in a directory again; here is none"));
    }
    let stores = args.store_hash.then_some("--store-hash");
    if let (Some(option), false) = (args.checksums.given().or(stores), into_directory) {
        return Err(Failure::usage(format!(
            "{option} is about files in a directory; here is none"
        )));
    }
    if args.from.is_some() && args.network.is_verifiable() {
        return Err(Failure::usage("--from is for --wire rfc998; the sealed wire has tickets"));
    }
    let call = ("--from", args.from.as_deref());
    let rendezvous = args.network.rendezvous(places.ticket, args.ticket_stdin, call)?;
    args.network.check_wait(&rendezvous)?;
    report.waits(options.network.wait);
    if !args.network.is_verifiable() {
        report.expect_no_proof();
    }
    control::offer(report, &mut options, Role::Receiver, places.shown());
    report.hear_files(&mut options);
    let cancel = Cancel::default();
    hardening::keep();
    signals::watch(&cancel, report.is_talkative())?;
    reporter::announce(report, &rendezvous);
    let received = netblt::receive(places.destination, &rendezvous, &options, report, &cancel);
    page.into_iter().for_each(|page| page.write(report));
    received.map_err(|error| report.failure(&error))
}

/// The arguments, by their kinds.
struct Places<'a> {
    ticket: Option<&'a OsStr>,
    destination: Destination,
}

impl<'a> Places<'a> {
    fn is_stdout(&self) -> bool {
        matches!(self.destination, Destination::Stream(_))
    }

    /// The destination, in words.
    fn shown(&self) -> String {
        match &self.destination {
            Destination::Directory(path) | Destination::File(path) => path.display().to_string(),
            _ => "standard output".to_owned(),
        }
    }

    /// Without tickets and names there is one argument, the file.
    fn of_one(first: Option<&'a OsStr>, second: Option<&'a OsStr>) -> Result<Self, Failure> {
        let file = match (first, second) {
            (Some(file), None) if !Ticket::looks_like(&file.to_string_lossy()) => file,
            (Some(_), None) => {
                return Err(Failure::usage(
                    "tickets are for the sealed wire; --wire rfc998 takes --from HOST:PORT or \
                     --listen HOST:PORT (a file of such a name is written ./netblt1:...)",
                ));
            }
            _ => {
                return Err(Failure::usage(
                    "--wire rfc998 carries no names: give one file to receive into, or - for \
                     standard output",
                ));
            }
        };
        let destination = match file {
            file if file == "-" => Destination::stdout(),
            file => Destination::File(PathBuf::from(file)),
        };
        Ok(Self { ticket: None, destination })
    }

    /// A lone directory is the first argument.
    fn of(first: Option<&'a OsStr>, second: Option<&'a OsStr>) -> Result<Self, Failure> {
        let is_ticket = |place: &OsStr| Ticket::looks_like(&place.to_string_lossy());
        let (ticket, directory) = match (first, second) {
            (Some(one), Some(two)) if !is_ticket(one) && !is_ticket(two) => {
                return Err(Failure::usage(format!(
                    "neither argument is a ticket, which begins with \"{PREFIX}\""
                )));
            }
            (Some(one), Some(two)) if is_ticket(one) && is_ticket(two) => {
                return Err(Failure::usage("two tickets are given; a transfer has one"));
            }
            (Some(one), two) if is_ticket(one) => (Some(one), two),
            // The order in the usage line is the order meant, but there is no doubt here.
            (one, two) => (two, one),
        };
        let destination = match directory {
            Some(directory) if directory == "-" => Destination::stdout(),
            Some(directory) => Destination::Directory(PathBuf::from(directory)),
            None => Destination::Directory(PathBuf::from(".")),
        };
        Ok(Self { ticket, destination })
    }
}
