//! `netblt cp`: copies files between this machine and another one that ssh reaches.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use netblt::{Cancel, Options, Summary};
use netblt_proto::config::Role;

use crate::args::{OutputArgs, PageArgs, Sharing, check_repair};
use crate::commands::html_report::HtmlReport;
use crate::commands::send::AGGRESSIVE;
use crate::commands::server_files::{CommonArgs, CopyThere};
use crate::copy::location::Location;
use crate::copy::operands::{Sources, Target};
use crate::copy::options::CopyArgs;
use crate::copy::routes::{self, CpOptions, Route};
use crate::copy::server::copy::{self, ServerRoute};
use crate::copy::ssh::client::{CopyClient, LocalTask};
use crate::copy::ssh::command::SshOptions;
use crate::copy::ssh::install::{self, Machine};
use crate::copy::ssh::probe::free_port;
use crate::copy::ssh::session::{SshSession, unless_stopped};
use crate::copy::ssh::third_party::ThirdPartyCopy;
use crate::exit::{self, Code, Failure};
use crate::host::Host;
use crate::reporter::Reporter;
use crate::server_client::address::ServerPath;
use crate::server_client::client::{Credentials, ServerArgs};
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
    wish: CopyArgs,
    #[command(flatten)]
    ssh: SshOptions,
    #[command(flatten, next_help_heading = "Servers")]
    proof: Credentials,
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
    pub(super) fn given(&self) -> CpOptions<'_> {
        let Self { wish, ssh, proof, show, stats, page, .. } = self;
        let report = page.report.is_some();
        CpOptions { wish, ssh, proof, show: *show, stats: *stats, report }
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

pub(crate) fn run(args: &Args) -> Code {
    let all = || args.sources.iter().chain([&args.target]);
    if all().all(|text| ServerPath::looks_like(text)) {
        let hosts = all().map(|text| ServerPath::parse(text).ok().and_then(|served| served.host));
        let hosts: Vec<_> = hosts.collect();
        if hosts.windows(2).all(|two| two[0] == two[1]) {
            return copy_there(args);
        }
    }
    if let Some(way) = served(args) {
        return copy_served(args, way);
    }
    if let Some(across) = AgentToAgent::of(args) {
        let mut report = Reporter::new(Role::Receiver, args.show, false).between_others();
        report = report.terse(args.verbose, args.stats);
        let copied = across.and_then(|across| across.copy(args, &mut report));
        return report.finish(copied);
    }
    let task = Task::of(args);
    let role = match &task {
        Ok(Task { direction: Direction::Down { .. }, .. }) => Role::Receiver,
        _ => Role::Sender,
    };
    let mut report = Reporter::new(role, args.show, false).terse(args.verbose, args.stats);
    let copied = task.and_then(|task| copy(args, task, &mut report));
    end(copied, &mut report)
}

/// A copy within a server.
fn copy_there(args: &Args) -> Code {
    let wish = &args.wish;
    let (ipv4, ipv6) = wish.family();
    let port = routes::check(Route::Within, args.given())
        .and_then(|()| free_port(wish.ports(), (ipv4, ipv6)));
    let port = match port {
        Ok(port) => port,
        Err(failure) => return Reporter::new(Role::Sender, args.show, false).finish(Err(failure)),
    };
    let identity = args.ssh.identity.first().map(PathBuf::from);
    let (proof, death_timer) = (args.proof.clone(), wish.death_timer);
    let line = ServerArgs { proof, identity, death_timer, ipv4, ipv6, port };
    let common = CommonArgs { line, json: args.show.json };
    let (trees, preserve, verbose) = (wish.recursive, wish.preserve, args.verbose);
    CopyThere { common, trees, preserve, verbose }.run(&args.sources, &args.target)
}

/// The route of a copy to or from a server, if it is one.
fn served(args: &Args) -> Option<Result<ServerRoute, Failure>> {
    let all = || args.sources.iter().chain([&args.target]);
    if !all().any(|text| ServerPath::looks_like(text)) {
        return None;
    }
    Some((|| {
        if ServerPath::looks_like(&args.target) {
            let target = ServerPath::parse(&args.target)?;
            if args.sources.iter().all(|text| ServerPath::looks_like(text)) {
                let sources = args.sources.iter().map(|text| ServerPath::parse(text));
                let sources = sources.collect::<Result<Vec<_>, _>>()?;
                if sources.iter().any(|source| source.host == target.host) {
                    return Err(Failure::usage(
                        "one source is on the target's own server and others are not: copy them \
                         one after the other",
                    ));
                }
                return Ok(ServerRoute::ServerToServer { sources, target });
            }
            if args
                .sources
                .iter()
                .any(|text| !matches!(Location::parse(text), Ok(Location::Local(_))))
            {
                return Err(Failure::usage(
                    "what goes to a server must be here: copy it here first, or run this there",
                ));
            }
            return Ok(ServerRoute::Up { sources: args.sources.clone(), target });
        }
        let Location::Local(target) = Location::parse(&args.target)? else {
            return Err(Failure::usage("what a server has is copied to this machine"));
        };
        let sources = args.sources.iter().map(|text| ServerPath::parse(text));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        Ok(ServerRoute::Download { sources, target: target.into_os_string() })
    })())
}

fn copy_served(args: &Args, way: Result<ServerRoute, Failure>) -> Code {
    let role = match &way {
        Ok(ServerRoute::Download { .. }) => Role::Receiver,
        _ => Role::Sender,
    };
    let mut report = Reporter::new(role, args.show, false).terse(args.verbose, args.stats);
    if matches!(way, Ok(ServerRoute::ServerToServer { .. })) {
        report = report.between_others();
    }
    let copied = way.and_then(|way| {
        let route = match way {
            ServerRoute::Up { .. } => Route::ServerUp,
            ServerRoute::Download { .. } => Route::ServerDown,
            ServerRoute::ServerToServer { .. } => Route::Servers,
        };
        routes::check(route, args.given())?;
        check_repair(args.wish.repair, args.wish.policy == Sharing::Background)?;
        let mut options = Options::default();
        options.trace.clone_from(&args.wish.trace);
        let wanted = args.page.report.as_deref().filter(|_| !args.wish.dry_run);
        let page = HtmlReport::wanted(wanted, args.title(), &mut options)?;
        let copied = {
            let identity = args.ssh.identity.first().map(Path::new);
            copy::copy(way, &args.wish, &args.proof, identity, options, &mut report)
        };
        page.into_iter().for_each(|page| page.write(&mut report));
        copied
    });
    end(copied, &mut report)
}

/// A dry run has printed its list.
fn end(copied: Result<Option<Summary>, Failure>, report: &mut Reporter) -> Code {
    match copied.transpose() {
        None => Code::Success,
        Some(copied) => report.finish(copied),
    }
}

impl Args {
    /// Which transfer it is, for a page.
    fn title(&self) -> String {
        let sources = control::few(self.sources.iter().map(|source| source.to_string_lossy()));
        format!("netblt cp {sources} {}", self.target.to_string_lossy())
    }
}

/// From one other machine to another.
struct AgentToAgent {
    from: Host,
    to: Host,
    sources: Vec<OsString>,
    target: OsString,
}

impl AgentToAgent {
    /// If both sides are other machines.
    fn of(args: &Args) -> Option<Result<Self, Failure>> {
        let Ok(Location::Remote(to, target)) = Location::parse(&args.target) else { return None };
        let (mut from, mut sources) = (None, Vec::new());
        for source in &args.sources {
            match Location::parse(source) {
                Ok(Location::Remote(host, path)) => {
                    if from.get_or_insert_with(|| host.clone()) != &host {
                        return None;
                    }
                    sources.push(path);
                }
                _ => return None,
            }
        }
        let across = from.map(|from| Self { from, to, sources, target });
        Some(
            routes::check(Route::Hosts, args.given())
                .and_then(|()| args.ssh.check())
                .and_then(|()| across.ok_or_else(|| Failure::usage("there is nothing to copy"))),
        )
    }

    fn copy(self, args: &Args, report: &mut Reporter) -> Result<Summary, Failure> {
        let cancel = Cancel::default();
        hardening::keep();
        signals::watch(&cancel, report.is_talkative())?;
        check_repair(args.wish.repair, args.wish.policy == Sharing::Background)?;
        if args.wish.policy == Sharing::Aggressive {
            report.warn(AGGRESSIVE);
        }
        let start = |host: &Host, report: &mut Reporter| {
            report.detail(&format!("Starting ssh to {} ...", host.name));
            connect(args, host, &cancel, report)
        };
        let to = start(&self.to, report)?;
        let from = match start(&self.from, report) {
            Ok(from) => from,
            Err(failure) => {
                to.finish(false, |text| report.warn(text));
                return Err(failure);
            }
        };
        let (wish, ssh) = (&args.wish, &args.ssh);
        let Self { sources, target, .. } = self;
        let cancel = &cancel;
        ThirdPartyCopy { from, to, sources, target, wish, ssh, cancel, failed: None }.copy(report)
    }
}

/// The task of a copy.
struct Task {
    host: Host,
    direction: Direction,
}

enum Direction {
    Up { sources: Vec<OsString>, target: OsString },
    Down { sources: Vec<OsString>, target: OsString },
}

impl Task {
    fn of(args: &Args) -> Result<Self, Failure> {
        args.ssh.check()?;
        let sources = args.sources.iter().map(|text| Location::parse(text));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let mut host = None;
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for source in sources {
            match source {
                Location::Local(path) => here.push(path.into_os_string()),
                Location::Remote(of, path) if host.as_ref().is_none_or(|host| *host == of) => {
                    host = Some(of);
                    there.push(path);
                }
                Location::Remote(..) | Location::ServerPath(_) => {
                    return Err(Failure::usage(
                        "the sources are on several machines: copy them one after the other",
                    ));
                }
            }
        }
        match (Location::parse(&args.target)?, host) {
            (Location::Remote(host, target), None) => {
                Ok(Self { host, direction: Direction::Up { sources: here, target } })
            }
            (Location::Local(target), Some(host)) if here.is_empty() => {
                let target = target.into_os_string();
                Ok(Self { host, direction: Direction::Down { sources: there, target } })
            }
            (Location::Local(_), None) => Err(Failure::usage(
                "both sides are on this machine, where cp copies; one must be HOST:PATH, with the \
                 colon (HOST: alone is your home there)",
            )),
            (Location::ServerPath(_), _) | (Location::Remote(..), Some(_)) => {
                Err(Failure::usage("a server's files and another machine's: run netblt cp there"))
            }
            (Location::Local(_), Some(_)) => Err(Failure::usage(
                "sources here and on another machine: copy them one after the other",
            )),
        }
    }
}

/// Copies; nothing is returned by a dry run.
fn copy(args: &Args, task: Task, report: &mut Reporter) -> Result<Option<Summary>, Failure> {
    let cannot = |text: String| Failure::new(Code::File, text);
    let wish = &args.wish;
    let route = match task.direction {
        Direction::Up { .. } => Route::SshUp,
        Direction::Down { .. } => Route::SshDown,
    };
    routes::check(route, args.given())?;
    check_repair(wish.repair, wish.policy == Sharing::Background)?;
    let mut listed = wish.choice.listed(wish.recursive)?;
    let (Direction::Up { sources, .. } | Direction::Down { sources, .. }) = &task.direction;
    if listed.is_some() && sources.len() != 1 {
        return Err(Failure::usage("--files-from takes one source, the directory of the names"));
    }
    let (part, skipped) = match task.direction {
        Direction::Up { sources, target } => {
            let found = match (&mut listed, sources.first()) {
                (Some(listed), Some(source)) => Sources::listed(source, listed),
                _ => Sources::look(&sources, wish.recursive, false),
            };
            let found = found.map_err(cannot)?;
            found.skipped.iter().for_each(|text| report.warn(&format!("skipped {text}")));
            if found.sources.is_empty() {
                return Err(Failure::new(Code::Partial, "there is nothing to copy"));
            }
            let skipped = found.skipped.len() as u64;
            (LocalTask::Send { found, target }, skipped)
        }
        Direction::Down { sources, target } => {
            let several = sources.len() > 1 || listed.is_some();
            let target_dir = Target::of(&target, several, wish.recursive, &sources);
            (LocalTask::Receive { sources, target_dir: target_dir.map_err(cannot)? }, 0)
        }
    };
    let cancel = Cancel::default();
    hardening::keep();
    signals::watch(&cancel, report.is_talkative())?;
    if wish.policy == Sharing::Aggressive {
        report.warn(AGGRESSIVE);
    }
    report.detail(&format!("Starting ssh to {} ...", task.host.name));
    let link = connect(args, &task.host, &cancel, report)?;
    let ssh = &args.ssh;
    let mut own = Options::default();
    own.trace.clone_from(&wish.trace);
    let wanted = args.page.report.as_deref().filter(|_| !wish.dry_run);
    let page = HtmlReport::wanted(wanted, args.title(), &mut own)?;
    let (call, passed) = (None, Arc::default());
    let mut client =
        CopyClient { link, wish, ssh, listed, call, passed, trace: own.trace, kept: None };
    let copied = client.copy(part, report);
    page.into_iter().for_each(|page| page.write(report));
    let mut summary = client.finish(copied, report)?;
    summary.iter_mut().for_each(|summary| summary.skipped += skipped);
    Ok(summary)
}

/// Starts the agent, which may have to be installed first.
fn connect<'a>(
    args: &Args,
    host: &Host,
    cancel: &'a Cancel,
    report: &mut Reporter,
) -> Result<SshSession<'a>, Failure> {
    let family = args.wish.family();
    let start = || SshSession::start(&args.ssh, host, family, args.show.quiet, cancel);
    let mut link = start()?;
    let Err(failure) = link.greet(report) else { return Ok(link) };
    let (without, foreign, ended) = (link.without.take(), link.foreign, link.ended);
    link.finish(false, |text| report.warn(text));
    let stopped = |failure| unless_stopped(failure, ended, None);
    let install = |machine: Machine| {
        install::install(&args.ssh, host, family, &machine, args.ssh.yes, report)
    };
    let installed = match without {
        Some(machine) if args.ssh.install => install(machine),
        None if foreign && args.ssh.install => {
            report.detail(&failure.message);
            args.ssh.machine(host, family).and_then(install)
        }
        _ => Err(failure),
    };
    installed.map_err(stopped)?;
    let mut link = start()?;
    match link.greet(report) {
        Ok(()) => Ok(link),
        Err(failure) => {
            link.finish(false, |text| report.warn(text));
            Err(stopped(failure))
        }
    }
}
