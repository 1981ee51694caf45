//! `netblt send`: files, directories or standard input to the other side.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use netblt::{Cancel, FecPolicy, Options, Selection, Source, Summary};
use netblt_proto::config::{EmulatedProtocol, Emulation, FixedRate, Policy, Role};
use netblt_proto::units::Rate;
use netblt_proto::wire::packet::Burst;
use serde::{Deserialize, Serialize};

use crate::args::{self, NetworkArgs, OutputArgs, PageArgs, ResumeName, WireName};
use crate::checksum_args::ChecksumArgs;
use crate::commands::html_report::HtmlReport;
use crate::copy::operands::Sources;
use crate::exit::{self, Code, Failure};
use crate::reporter::{self, Reporter};
use crate::selection_args::{self, SelectionArgs};
use crate::{control, hardening, rfc998, signals, units};

/// Send files, directories or standard input
///
/// Without a ticket this side listens and prints one, with the command to run on the other
/// machine; if standard output is not a terminal, it gets the bare ticket. With a ticket this side
/// connects to the machine that printed it and pushes. With --wire rfc998 it sends one file or
/// stream to any program that speaks RFC 998, IN THE CLEAR.
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct Args {
    /// What to send: files, directories with their contents, or - for standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Connect to the side that printed this ticket and push; with --wire rfc998 to this HOST:PORT
    #[arg(long, value_name = "TICKET")]
    to: Option<OsString>,
    #[command(flatten)]
    choice: SelectionArgs,
    /// Read the ticket from standard input
    #[arg(long)]
    ticket_stdin: bool,
    /// All or nothing: what cannot be read or stored ends the transfer instead of being left out
    #[arg(long)]
    atomic: bool,
    /// Never: send everything, whatever the other side has of a transfer that was broken off
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = ResumeName::Auto)]
    resume: ResumeName,
    #[command(flatten)]
    extra: args::ExtraArgs,
    #[command(flatten)]
    checksums: ChecksumArgs,
    /// With -: the name under which the other side may store it
    #[arg(long, value_name = "NAME", default_value = "stdin")]
    stdin_name: String,
    /// Never send faster than this, a second: in bits (200Mbit) or bytes (25MB), headers included
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    rate: Option<Rate>,
    /// Neither use nor save the rate of the path: every transfer starts from scratch
    ///
    /// Addresses, rate and round trip of the path are kept for a day in ~/.cache/netblt/paths
    /// ($XDG_CACHE_HOME), and the next transfer to the same address begins with half of that rate.
    #[arg(long)]
    no_path_cache: bool,
    /// Forward error correction by coded packets: auto, never, or a share of the data as in 5%
    ///
    /// A loss at the end of a transfer costs a round trip. By default (auto) the sender adds coded
    /// packets after the last data, as many as recent losses call for, if that takes less time than
    /// it saves. With a share, it adds so many (1% to 25%) after all data, whatever is lost. They
    /// count as data for every limit.
    #[arg(long = "fec", value_name = "WHEN", value_parser = args::repair)]
    #[arg(conflicts_with = "protocol")]
    repair: Option<FecPolicy>,
    /// How the rate is chosen
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = PolicyName::Fair)]
    policy: PolicyName,
    /// Follow another protocol's rules, on netblt's packets: an experiment, not for shared networks
    ///
    /// Re-creations of the algorithms of 2002 to 2021 as their papers and sources have them: rate,
    /// order of sending, and detection of losses. The other side needs no option for it. With
    /// --rate rbudp keeps that rate whatever happens, tsunami aims at it, and fobs takes it for the
    /// speed of the network card; to the others it is a ceiling. Most do not yield to other
    /// traffic.
    #[arg(long, value_name = "NAME", value_enum, conflicts_with = "policy")]
    protocol: Option<ProtocolName>,
    #[command(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    show: OutputArgs,
    #[command(flatten)]
    page: PageArgs,
}

/// How the rate is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum PolicyName {
    /// Find what the path carries and share it with others
    Fair,
    /// Yield to all other traffic, and use only the capacity that is left
    Background,
    /// Take more than its share: others on the path are left a small part, and their queue is full
    Aggressive,
    /// CUBIC (RFC 9438): answer every loss as congestion, as TCP does
    Cubic,
    /// Send at the given rate or burst values, whatever happens, and do not yield to other traffic:
    /// for a path that is yours alone
    Fixed,
}

impl PolicyName {
    /// The policy below this ceiling; `None` for the one that needs a pace.
    pub(crate) fn policy(self, ceiling: Option<Rate>) -> Option<Policy> {
        match self {
            Self::Fair => Some(Policy::Fair { ceiling }),
            Self::Background => Some(Policy::Background { ceiling }),
            Self::Aggressive => Some(Policy::Aggressive { ceiling }),
            Self::Cubic => Some(Policy::Cubic { ceiling }),
            Self::Fixed => None,
        }
    }
}

/// The remark about a sender that takes more than its share.
pub(crate) const AGGRESSIVE: &str =
    "--policy aggressive takes more than its share: other traffic on the path is left a small part";

/// The protocols of `docs/protocol §6.8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ProtocolName {
    /// SABUL (2002)
    Sabul,
    /// Tsunami (2002)
    Tsunami,
    /// FOBS (2002)
    Fobs,
    /// Reliable Blast UDP, of QUANTA (2002); needs --rate
    Rbudp,
    /// UDT (2004)
    Udt,
    /// TCP Reno (RFC 5681)
    Reno,
    /// TCP Reno with delayed acknowledgements, as in Linux 2.4
    RenoDelayed,
    /// TCP CUBIC (RFC 9438)
    Cubic,
    /// HighSpeed TCP (RFC 3649)
    Highspeed,
    /// Scalable TCP (2003)
    Scalable,
    /// BBR, version 1, as in Linux (2016)
    Bbr,
}

impl ProtocolName {
    /// The policy, where `rate` was given, or not.
    pub(super) fn policy(self, rate: Option<Rate>, wire: WireName) -> Result<Policy, Failure> {
        if wire == WireName::Rfc998 {
            return Err(Failure::usage("--protocol is for --wire sealed"));
        }
        let protocol = match self {
            Self::Sabul => EmulatedProtocol::Sabul,
            Self::Tsunami => EmulatedProtocol::Tsunami,
            Self::Fobs => EmulatedProtocol::Fobs,
            Self::Rbudp => EmulatedProtocol::Rbudp,
            Self::Udt => EmulatedProtocol::Udt,
            Self::Reno => EmulatedProtocol::Reno,
            Self::RenoDelayed => EmulatedProtocol::RenoDelayed,
            Self::Cubic => EmulatedProtocol::Cubic,
            Self::Highspeed => EmulatedProtocol::HighSpeed,
            Self::Scalable => EmulatedProtocol::Scalable,
            Self::Bbr => EmulatedProtocol::Bbr,
        };
        if protocol == EmulatedProtocol::Rbudp && rate.is_none() {
            return Err(Failure::usage("--protocol rbudp needs a rate, which it keeps"));
        }
        Ok(Policy::Emulated(Emulation { rate, ..Emulation::of(protocol) }))
    }
}

fn help() -> String {
    format!(
        "Examples:\n  \
         netblt send photos/ notes.txt          listen, and print a ticket\n  \
         NETBLT_TICKET=netblt1:... netblt send big.iso\n{pad}push to `netblt receive`\n  \
         tar c . | netblt send -                send a stream\n  \
         netblt send FILE --wire rfc998 --to HOST:PORT\n{pad}in the clear, to a receiver\n  \
         netblt send FILE --wire rfc998 --listen HOST:PORT\n{pad}to one that calls\n\n{}\n{}\n{}",
        args::TICKET_HELP,
        rfc998::HELP,
        exit::help(),
        pad = " ".repeat(41),
    )
}

pub(crate) fn run(args: &Args) -> Code {
    let mut report = Reporter::new(Role::Sender, args.show, false);
    let result = transfer(args, &mut report);
    report.finish(result)
}

fn transfer(args: &Args, report: &mut Reporter) -> Result<Summary, Failure> {
    let source = source(args)?;
    // Before the library's own words about it, which know no options.
    let fixed = fixed_speed(args)?;
    let mut options = options(args)?;
    let names = || control::few(args.paths.iter().map(|path| path.to_string_lossy()));
    let title = format!("netblt send {}", names());
    let page = HtmlReport::wanted(args.page.report.as_deref(), title, &mut options)?;
    let to = args.to.as_deref();
    let rendezvous = args.network.rendezvous(to, args.ticket_stdin, ("--to", to))?;
    args.network.check_wait(&rendezvous)?;
    report.waits(options.network.wait);
    if let Some(speed) = fixed {
        report.warn(&format!("--policy fixed sends {speed} and does not yield to other traffic"));
    }
    if args.policy == PolicyName::Aggressive {
        report.warn(AGGRESSIVE);
    }
    if !args.network.is_verifiable() {
        report.expect_no_proof();
    }
    control::offer(report, &mut options, Role::Sender, names());
    report.hear_files(&mut options);
    let cancel = Cancel::default();
    hardening::keep();
    signals::watch(&cancel, report.is_talkative())?;
    reporter::announce(report, &rendezvous);
    let sent = netblt::send(source, &rendezvous, &options, report, &cancel);
    page.into_iter().for_each(|page| page.write(report));
    sent.map_err(|error| report.failure(&error))
}

fn source(args: &Args) -> Result<Source, Failure> {
    let is_stdin = |path: &PathBuf| path == Path::new("-");
    if !args.paths.iter().any(is_stdin) {
        return selection(args).map(Source::Selection);
    }
    if !args.choice.is_empty() {
        return Err(Failure::usage(
            "--exclude, -L, --allow-changes, --files-from and --chmod are for files, not for - \
             (standard input)",
        ));
    }
    if args.paths.len() > 1 {
        return Err(Failure::usage(
            "- (standard input) is sent alone; a file of that name is written ./-",
        ));
    }
    if args.ticket_stdin {
        return Err(Failure::usage(
            "standard input cannot hold both the data and the ticket; use NETBLT_TICKET",
        ));
    }
    Ok(Source::stdin(args.stdin_name.clone()))
}

/// Which files, and with which permissions.
fn selection(args: &Args) -> Result<Selection, Failure> {
    let choice = &args.choice;
    let mut selection = Selection::from(args.paths.clone());
    selection.exclude.clone_from(&choice.exclude);
    (selection.follow, selection.allow_changes) = (choice.copy_links, choice.allow_changes);
    selection.modes = choice.chmod.as_deref().map(selection_args::modes).transpose()?;
    let Some(mut listed) = choice.listed(true)? else { return Ok(selection) };
    let [source] = args.paths.as_slice() else {
        return Err(Failure::usage("--files-from takes one PATH, the directory of the names"));
    };
    let cannot = |text: String| Failure::new(Code::File, text);
    let found = Sources::listed(source.as_os_str(), &mut listed).map_err(cannot)?;
    if let Some(text) = found.skipped.first() {
        return Err(cannot(format!("--files-from: {text}")));
    }
    let items = found.items(None).map_err(cannot)?;
    (selection.items, selection.contents) = (items.named, items.contents);
    selection.only = Some(listed.only());
    Ok(selection)
}

/// The error of a fixed sender without a rate.
const PACELESS: &str = "--policy fixed needs --rate <RATE>, or --burst-size and --burst-interval";

/// On `rfc998` there are two policies.
pub(crate) const SEALED_ONLY: &str =
    "on --wire rfc998 there are --policy fair and fixed; all others are for --wire sealed";

/// The rate of `--policy fixed`, in words.
fn fixed_speed(args: &Args) -> Result<Option<String>, Failure> {
    match (args.policy, args.rate, args.network.burst()) {
        (PolicyName::Background | PolicyName::Aggressive | PolicyName::Cubic, ..)
            if args.network.wire == WireName::Rfc998 =>
        {
            Err(Failure::usage(SEALED_ONLY))
        }
        (policy, _, None) if policy != PolicyName::Fixed => Ok(None),
        (policy, _, Some(_)) if policy != PolicyName::Fixed => Err(Failure::usage(
            "--burst-size and --burst-interval fix the rate: they need --policy fixed",
        )),
        (_, Some(rate), None) => Ok(Some(format!("at {rate}"))),
        (_, None, Some(burst)) => {
            Ok(Some(format!("{} packets every {:?}", burst.packets, burst.interval)))
        }
        (_, None, None) => Err(Failure::usage(PACELESS)),
        (_, Some(_), Some(_)) => Err(Failure::usage(
            "--rate and --burst-size with --burst-interval say the same thing twice; choose one",
        )),
    }
}

/// The pace of a fixed sender: burst values if they were given, else the rate.
pub(super) fn pace(rate: Option<Rate>, burst: Option<Burst>) -> Result<FixedRate, Failure> {
    let pace = burst.map_or_else(|| FixedRate::rate(rate?), FixedRate::bursts);
    pace.ok_or_else(|| Failure::usage(PACELESS))
}

fn options(args: &Args) -> Result<Options, Failure> {
    let policy = match (args.protocol, args.policy) {
        (Some(protocol), _) => protocol.policy(args.rate, args.network.wire)?,
        (None, policy) => match policy.policy(args.rate) {
            Some(policy) => policy,
            None => Policy::Fixed(pace(args.rate, args.network.burst())?),
        },
    };
    let mut options = args.network.options()?;
    args.checksums.apply(&mut options, args.show.json, false)?;
    if args.checksums.expect.is_some() && args.network.wire == WireName::Rfc998 {
        return Err(Failure::usage(
            "--expect is for --wire sealed: RFC 998 cannot take back what was sent of a file",
        ));
    }
    (options.settings.policy, options.network.burst, options.settings.atomic) =
        (policy, None, args.atomic);
    options.settings.path_cache = !args.no_path_cache;
    if args.repair.is_some() && args.network.wire == WireName::Rfc998 {
        return Err(Failure::usage("--fec is for --wire sealed: RFC 998 has no such packets"));
    }
    args::check_repair(args.repair, args.policy == PolicyName::Background)?;
    options.settings.fec = args.repair.unwrap_or(options.settings.fec);
    options.settings.resume = args.resume.into();
    options.settings.extras = args.extra.into();
    Ok(options)
}
