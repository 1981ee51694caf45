//! `netblt cp`: copies files between machines that ssh reaches, and to and from servers of files.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, Args as _};
use netblt::{Cancel, Options, Summary};
use netblt_proto::config::Role;

use crate::args::{OutputArgs, PageArgs, Sharing, check_repair};
use crate::commands::html_report::HtmlReport;
use crate::commands::send::AGGRESSIVE;
use crate::copy::given::GivenOptions;
use crate::copy::job::CopyJob;
use crate::copy::options::{CopyArgs, ExistingArgs};
use crate::copy::plan::CopyPlan;
use crate::copy::routes;
use crate::copy::server::within::CopyWithin;
use crate::copy::server::{between, download, upload};
use crate::copy::ssh::command::SshOptions;
use crate::copy::ssh::probe::free_port;
use crate::copy::ssh::{client, third_party};
use crate::exit::{self, Code, Failure};
use crate::reporter::Reporter;
use crate::server_client::address::ServerPath;
use crate::server_client::client::{Credentials, ServerArgs};
use crate::server_client::command::CommonArgs;
use crate::{control, hardening, signals};

/// Copy files to or from another machine that ssh reaches
///
/// As scp: one side is HOST:PATH, netblt is started there through your own ssh, and existing files
/// are replaced. The data go beside ssh, over UDP, at the rate that the path carries; where UDP
/// does not pass, they go through ssh. No file gets its name unless every byte is verified. If both
/// sides are HOST:PATH, or both are on servers, the data go straight from the one to the other.
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct Args {
    /// What to copy: PATH here, or [USER@]HOST:PATH there
    ///
    /// Also scp://[USER@]HOST[:PORT]/PATH, and netblt://[HOST[:PORT]]/PATH on a server (netblt
    /// serve), without ssh. The other side expands patterns (*, ?, [...]) and ~. DIR/. means the
    /// contents of DIR. A name with a colon is written ./a:b.
    #[arg(required = true, value_name = "SRC")]
    sources: Vec<OsString>,
    /// Where to, on the other one of the two machines, or on the same or another server: a
    /// directory, or a name for a single source
    #[arg(required = true, value_name = "DST")]
    target: OsString,
    #[command(flatten)]
    copy: CopyArgs,
    #[command(flatten)]
    existing: ExistingArgs,
    #[command(flatten)]
    ssh: SshOptions,
    #[command(flatten, next_help_heading = "Servers")]
    credentials: Credentials,
    /// Print what is tried, and all of the summary
    #[arg(short, long, conflicts_with = "quiet", help_heading = "Output")]
    verbose: bool,
    /// Print all of the summary
    #[arg(long, help_heading = "Output")]
    stats: bool,
    #[command(flatten)]
    show: OutputArgs,
    #[command(flatten)]
    page: PageArgs,
}

impl Args {
    /// The plan, if its route has all options that are given.
    fn plan(&self, given: &GivenOptions) -> Result<CopyPlan, Failure> {
        let plan = CopyPlan::of(&self.sources, &self.target)?;
        routes::check(plan.route(), given)?;
        self.ssh.check()?;
        check_repair(self.copy.repair, self.copy.policy == Sharing::Background)?;
        Ok(plan)
    }

    fn reporter(&self, plan: Option<&CopyPlan>) -> Reporter {
        let role = match plan {
            // Between two hosts, the one that receives reports.
            Some(
                CopyPlan::SshDown { .. } | CopyPlan::Hosts { .. } | CopyPlan::ServerDown { .. },
            ) => Role::Receiver,
            _ => Role::Sender,
        };
        let report = Reporter::new(role, self.show, false).terse(self.verbose, self.stats);
        match plan {
            Some(CopyPlan::Hosts { .. } | CopyPlan::Servers { .. }) => report.between_others(),
            _ => report,
        }
    }

    /// Which transfer it is, for a page.
    fn title(&self) -> String {
        let sources = control::few(self.sources.iter().map(|source| source.to_string_lossy()));
        format!("netblt cp {sources} {}", self.target.to_string_lossy())
    }
}

fn help() -> String {
    format!(
        "Examples:\n  \
         netblt cp big.iso host:                 into your home there\n  \
         netblt cp -r photos me@host:/srv/       a directory\n  \
         netblt cp 'host:logs/*.gz' .            what matches there\n  \
         netblt cp -P 2222 -J gate host:x y      ssh's port, over another host\n  \
         netblt cp one:big.iso other:            from there to there, straight\n\n{}",
        exit::help(),
    )
}

/// The options, and which of them were given.
#[derive(Debug)]
pub(crate) struct CommandLine {
    args: Args,
    pub(super) given: GivenOptions,
}

impl clap::FromArgMatches for CommandLine {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let command = Args::augment_args(clap::Command::new("cp"));
        let given = GivenOptions::of(command.get_arguments(), matches);
        Ok(Self { args: Args::from_arg_matches(matches)?, given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for CommandLine {
    fn augment_args(command: clap::Command) -> clap::Command {
        Args::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Args::augment_args_for_update(command)
    }
}

pub(crate) fn run(CommandLine { args, given }: &CommandLine) -> Code {
    let plan = args.plan(given);
    let mut report = args.reporter(plan.as_ref().ok());
    match plan.and_then(|plan| copy(args, plan, &mut report)).transpose() {
        // A dry run has printed its list.
        None => Code::Success,
        Some(copied) => report.finish(copied),
    }
}

/// Copies; nothing is returned by a dry run.
fn copy(args: &Args, plan: CopyPlan, report: &mut Reporter) -> Result<Option<Summary>, Failure> {
    if args.copy.policy == Sharing::Aggressive {
        report.warn(AGGRESSIVE);
    }
    let cancel = Cancel::default();
    hardening::keep();
    let sends = !args.copy.dry_run && !matches!(plan, CopyPlan::Within { .. });
    signals::watch(&cancel, report.is_talkative() && sends)?;
    let mut options = Options::default();
    options.settings = args.copy.settings(args.existing.policy());
    options.trace.clone_from(&args.copy.trace);
    args.copy.checksums.apply(&mut options, args.show.json, args.copy.store_hash)?;
    let wanted = args.page.report.as_deref().filter(|_| !args.copy.dry_run);
    let page = HtmlReport::wanted(wanted, args.title(), &mut options)?;
    let job = CopyJob {
        args: &args.copy,
        existing: args.existing.policy(),
        ssh: &args.ssh,
        credentials: &args.credentials,
        quiet: args.show.quiet,
        options: &options,
        cancel: &cancel,
    };
    let copied = match plan {
        CopyPlan::SshUp { host, sources, target } => {
            client::upload(job, &host, &sources, target, report)
        }
        CopyPlan::SshDown { host, sources, target } => {
            client::download(job, &host, sources, &target, report)
        }
        CopyPlan::Hosts { from, to, sources, target } => {
            third_party::copy(job, [&from, &to], sources, target, report).map(Some)
        }
        CopyPlan::ServerUp { sources, target } => upload::copy(job, &sources, &target, report),
        CopyPlan::ServerDown { sources, target } => download::copy(job, &sources, &target, report),
        CopyPlan::Servers { sources, target } => {
            between::copy(job, &sources, &target, report).map(Some)
        }
        CopyPlan::Within { sources, target } => within(args, &sources, &target, &cancel),
    };
    page.into_iter().for_each(|page| page.write(report));
    copied
}

/// A copy within a server. It has neither a transfer nor a summary, and names its failures itself.
fn within(
    args: &Args,
    sources: &[ServerPath],
    target: &ServerPath,
    cancel: &Cancel,
) -> Result<Option<Summary>, Failure> {
    let port = free_port(args.copy.ports(), args.copy.family())?;
    let identity = args.ssh.identity.first().map(PathBuf::from);
    let (proof, death_timer) = (args.credentials.clone(), args.copy.death_timer);
    let (ipv4, ipv6) = (args.copy.ipv4, args.copy.ipv6);
    let line = ServerArgs { proof, identity, death_timer, ipv4, ipv6, port };
    let copied = CopyWithin {
        common: CommonArgs { line, json: args.show.json },
        trees: args.copy.recursive,
        preserve: args.copy.preserve,
        verbose: args.verbose,
    }
    .run(sources, target, cancel);
    match copied {
        Code::Success => Ok(None),
        code => Err(Failure { silent: true, ..Failure::new(code, "the server did not copy all") }),
    }
}
