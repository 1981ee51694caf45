//! The client of `netblt cp` by ssh: it agrees with the agent on the task, finds the path, and
//! copies.

use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use netblt::mirror::{MirrorDestination, MirrorOutcome, MirrorSettings, MirrorSource};
use netblt::net::addresses::own_addresses;
use netblt::{
    Carried, Destination, Error, Expected, LimitedBy, Observer, Options, Progress, Rendezvous,
    Selection, SkipFilter, Source, Summary, Ticket, Warning,
};
use netblt_proto::api::printable_bytes;
use netblt_proto::config::{Role, Secret};

use crate::args::ResumeName;
use crate::copy::existing::{self, ExistingFiles, ExistingPolicy};
use crate::copy::files_from::FilesFrom;
use crate::copy::job::CopyJob;
use crate::copy::operands::{self, Sources, Target, names, was_asked_for};
use crate::copy::options::Fallback;
use crate::copy::ssh::command::SshOptions;
use crate::copy::ssh::connect::connect;
use crate::copy::ssh::messages::{
    AgentMessage, AgentPlan, AgentTask, ClientMessage, DataPath, StartRequest, Udp,
};
use crate::copy::ssh::mirror::{ClientChannel, KEEPS_REMOVALS};
use crate::copy::ssh::probe::{Prober, Side, no_socket, plausible};
use crate::copy::ssh::session::{SessionEvent, SshSession, is_echo, unless_stopped};
use crate::copy::ssh::tunnel::Tunnel;
use crate::exit::{Code, Failure};
use crate::host::Host;
use crate::reporter::{self, Reporter};
use crate::{control, selection_args, signals, units};

/// How long UDP is tried.
pub(crate) const TRY: Duration = Duration::from_millis(2500);
/// How long the name of a host is looked up while other addresses are known.
const LOOK_UP: Duration = Duration::from_millis(200);

/// Most names in one message. Each has at most 255 bytes, of which JSON makes up to four times as
/// many.
const NAMES: usize = 500;

/// Copies from here to another machine. A dry run returns nothing.
pub(crate) fn upload(
    job: CopyJob<'_>,
    host: &Host,
    sources: &[OsString],
    target: OsString,
    report: &mut Reporter,
) -> Result<Option<Summary>, Failure> {
    let cannot = |text: String| Failure::new(Code::File, text);
    let mut listed = listed_names(job, sources)?;
    let found = match (&mut listed, sources.first()) {
        (Some(listed), Some(source)) => Sources::listed(source, listed),
        _ => Sources::look(sources, job.args.recursive, false),
    };
    let found = found.map_err(cannot)?;
    found.skipped.iter().for_each(|text| report.warn(&format!("skipped {text}")));
    if found.sources.is_empty() {
        return Err(Failure::new(Code::Partial, "there is nothing to copy"));
    }
    let skipped = found.skipped.len() as u64;
    let mut summary = copy(job, host, listed, LocalTask::Send { found, target }, report)?;
    summary.iter_mut().for_each(|summary| summary.skipped += skipped);
    Ok(summary)
}

/// Copies from another machine to here. A dry run returns nothing.
pub(crate) fn download(
    job: CopyJob<'_>,
    host: &Host,
    sources: Vec<OsString>,
    target: &OsStr,
    report: &mut Reporter,
) -> Result<Option<Summary>, Failure> {
    let listed = listed_names(job, &sources)?;
    let several = sources.len() > 1 || listed.is_some();
    let target_dir = Target::of(target, several, job.args.recursive, &sources);
    let target_dir = target_dir.map_err(|text| Failure::new(Code::File, text))?;
    copy(job, host, listed, LocalTask::Receive { sources, target_dir }, report)
}

/// Makes a directory of another machine a mirror of one here. A dry run returns nothing.
pub(crate) fn mirror_up(
    job: CopyJob<'_>,
    host: &Host,
    (root, target): (&OsStr, OsString),
    settings: &MirrorSettings,
    report: &mut Reporter,
) -> Result<Option<Summary>, Failure> {
    let root = operands::home(root).map_err(|text| Failure::new(Code::File, text))?;
    let modes = job.args.choice.chmod.as_deref().map(selection_args::modes).transpose()?;
    let source = Box::new(MirrorSource::new(&root, settings, modes, job.cancel)?);
    let settings = settings.clone();
    copy(job, host, None, LocalTask::MirrorFrom { source, target, settings }, report)
}

/// Makes a directory here a mirror of one of another machine. A dry run returns nothing.
pub(crate) fn mirror_down(
    job: CopyJob<'_>,
    host: &Host,
    (source, root): (OsString, &OsStr),
    settings: &MirrorSettings,
    report: &mut Reporter,
) -> Result<Option<Summary>, Failure> {
    let root = operands::home(root).map_err(|text| Failure::new(Code::File, text))?;
    let settings = settings.clone();
    copy(job, host, None, LocalTask::MirrorTo { source, root, settings }, report)
}

/// The names in `--files-from`.
fn listed_names(job: CopyJob<'_>, sources: &[OsString]) -> Result<Option<FilesFrom>, Failure> {
    let listed = job.args.choice.listed(job.args.recursive)?;
    if listed.is_some() && sources.len() != 1 {
        return Err(Failure::usage("--files-from takes one source, the directory of the names"));
    }
    Ok(listed)
}

fn copy(
    job: CopyJob<'_>,
    host: &Host,
    listed: Option<FilesFrom>,
    task: LocalTask,
    report: &mut Reporter,
) -> Result<Option<Summary>, Failure> {
    let link = connect(job, host, report)?;
    let (call, passed) = (None, Arc::default());
    let mut client = CopyClient { job, link, listed, call, passed, kept: None };
    let copied = client.copy(task, report);
    client.finish(copied, report)
}

/// The client's task.
enum LocalTask {
    Send { found: Sources, target: OsString },
    Receive { sources: Vec<OsString>, target_dir: Target },
    MirrorFrom { source: Box<MirrorSource>, target: OsString, settings: MirrorSettings },
    MirrorTo { source: OsString, root: PathBuf, settings: MirrorSettings },
}

/// What both ends know of each other before they meet: the client's socket for probes with its
/// port, the agent's addresses and port, and the secret of the transfer.
struct ClientMeeting {
    prober: Option<Prober>,
    port: Option<u16>,
    addresses: Vec<IpAddr>,
    far_port: u16,
    secret: Secret,
}

/// The same when the agent's plan is known.
enum ResolvedTask {
    Send(Selection),
    Receive(PathBuf),
}

/// The client, with its ssh session to the agent.
struct CopyClient<'a> {
    job: CopyJob<'a>,
    link: SshSession<'a>,
    /// The names in `--files-from`.
    listed: Option<FilesFrom>,
    /// The address for the agent to connect to, when the client listens.
    call: Option<SocketAddr>,
    /// Number of files that were skipped because they exist at the destination.
    passed: Arc<AtomicU64>,
    /// The directory where the agent keeps the parts of a broken copy.
    kept: Option<String>,
}

impl CopyClient<'_> {
    /// Copies. Returns nothing for a dry run.
    fn copy(&mut self, part: LocalTask, report: &mut Reporter) -> Result<Option<Summary>, Failure> {
        let args = self.job.args;
        let mut secret = Secret([0; 32]);
        getrandom::fill(&mut secret.0)
            .map_err(|error| Failure::new(Code::Start, format!("no random numbers: {error}")))?;
        let cannot = |error| socket_failure("cannot open a UDP socket", &error);
        let prober = match args.fallback {
            Fallback::Always => None,
            _ if args.dry_run => None,
            _ => {
                let side = (&secret.0, Side::Client);
                let bound = Prober::bind(args.ports(), args.family(), side);
                Some(bound.map_err(|error| no_socket(args.ports(), &error))?)
            }
        };
        let port = prober.as_ref().map(Prober::port).transpose().map_err(cannot)?;
        let start = self.start_order(&part, &secret, port);
        let mut options = self.job.options.clone();
        self.link.send(&ClientMessage::Start(Box::new(start)))?;
        if let (LocalTask::Receive { .. }, Some(listed)) = (&part, &self.listed) {
            self.send_list(listed)?;
        }
        let (addresses, far_port, plan) = self.wait_ready(report)?;
        let meeting = ClientMeeting { prober, port, addresses, far_port, secret };
        match part {
            LocalTask::MirrorFrom { source, .. } => {
                self.mirror_from(*source, meeting, options, report)
            }
            LocalTask::MirrorTo { root, settings, .. } => {
                self.mirror_to(root, &settings, meeting, options, report)
            }
            part => {
                let agreed = self.agree(part, plan, &mut options)?;
                if args.dry_run {
                    return self.list(&agreed).map(|()| None);
                }
                self.meet_and_transfer(agreed, meeting, options, report).map(Some)
            }
        }
    }

    /// Finds the path, meets the agent on it, and transfers the files.
    fn meet_and_transfer(
        &mut self,
        agreed: ResolvedTask,
        meeting: ClientMeeting,
        mut options: Options,
        report: &mut Reporter,
    ) -> Result<Summary, Failure> {
        let args = self.job.args;
        let ClientMeeting { prober, port, mut addresses, far_port, secret } = meeting;
        let way = match prober {
            Some(prober) if far_port != 0 => {
                let named = resolved(self.job.ssh, &self.link.host);
                let loopback = named.iter().any(IpAddr::is_loopback);
                addresses = plausible(named, addresses, loopback, |ip| self.job.args.fits(ip));
                self.find_way(&prober, &addresses, far_port, report)
            }
            _ => None,
        };
        if way.is_none() && args.fallback == Fallback::Never {
            let why = format!(
                "UDP does not pass between here and {}, and --fallback never forbids to go through \
                 ssh",
                self.link.host.name
            );
            return Err(Failure::new(Code::Connect, why));
        }
        if way.is_none() && args.fallback == Fallback::Auto {
            self.report_blocked(&addresses, far_port, port, report);
        }
        let (rendezvous, address) = self.meet(way, port, secret, &mut options, report)?;
        report.way(address.map(|address| address.to_string()).as_deref());
        self.transfer(agreed, &rendezvous, &options, report)
    }

    /// Is the source of a mirror.
    fn mirror_from(
        &mut self,
        mut source: MirrorSource,
        meeting: ClientMeeting,
        options: Options,
        report: &mut Reporter,
    ) -> Result<Option<Summary>, Failure> {
        let args = self.job.args;
        let link = &mut self.link;
        let mut found = source.compare(&mut ClientChannel { link, report })?;
        found.problems.iter().for_each(|text| report.warn(&format!("left out {text}")));
        if found.keeps_removals {
            report.warn(KEEPS_REMOVALS);
        }
        let there = std::mem::take(&mut found.problems_there);
        let failed_there = self.warn_of_changes(&there, report);
        let mut skipped = found.problems.len() as u64 + failed_there;
        report.changes(&found.changes, true, args.dry_run)?;
        if args.dry_run {
            return end_of_list(skipped);
        }
        let mut summary = match found.selection {
            Some(mut selection) => {
                selection.allow_changes = args.choice.allow_changes;
                let agreed = ResolvedTask::Send(selection);
                self.meet_and_transfer(agreed, meeting, options, report)?
            }
            None => nothing_to_transfer(),
        };
        let complete = summary.skipped == 0 && failed_there == 0;
        let link = &mut self.link;
        let outcome = source.finish(&mut ClientChannel { link, report }, complete)?;
        skipped += self.warn_of_changes(&outcome.problems, report);
        warn_of_kept(&outcome, report);
        summary.skipped += skipped;
        report.mirrored(&outcome, found.unchanged);
        Ok(Some(summary))
    }

    /// Is the destination of a mirror.
    fn mirror_to(
        &mut self,
        root: PathBuf,
        settings: &MirrorSettings,
        meeting: ClientMeeting,
        mut options: Options,
        report: &mut Reporter,
    ) -> Result<Option<Summary>, Failure> {
        let args = self.job.args;
        let mut destination = MirrorDestination::new(&root, settings, self.job.cancel)?;
        options.expected = Some(destination.expected());
        let link = &mut self.link;
        let decided = destination.compare(&mut ClientChannel { link, report })?;
        report.changes(&decided.changes, false, args.dry_run)?;
        let mut problems = decided.problems;
        if args.dry_run {
            return end_of_list(problems.len() as u64);
        }
        let mut summary = match decided.transfer {
            true => {
                let agreed = ResolvedTask::Receive(root);
                self.meet_and_transfer(agreed, meeting, options, report)?
            }
            false => nothing_to_transfer(),
        };
        let link = &mut self.link;
        let outcome = destination.report_and_finish(&mut ClientChannel { link, report })?;
        problems.extend(outcome.problems.iter().cloned());
        problems.iter().for_each(|text| report.warn(text));
        warn_of_kept(&outcome, report);
        summary.skipped += problems.len() as u64;
        report.mirrored(&outcome, decided.unchanged);
        Ok(Some(summary))
    }

    /// Warns of changes that the agent could not make. Returns their number.
    fn warn_of_changes(&self, problems: &[String], report: &mut Reporter) -> u64 {
        for text in problems {
            report.warn(&self.link.with_host(text));
        }
        problems.len() as u64
    }

    fn start_order(&self, part: &LocalTask, secret: &Secret, port: Option<u16>) -> StartRequest {
        let args = self.job.args;
        let job = match part {
            LocalTask::Send { found, target } => AgentTask::Receive {
                target: target.clone(),
                several: found.asked > 1,
                directory: found.sources.iter().any(|source| source.directory),
                names: found.items(None).map(|items| names(&items)).unwrap_or_default(),
            },
            LocalTask::Receive { sources, target_dir } => AgentTask::Send {
                sources: sources.clone(),
                rename: target_dir.name.clone(),
                directories: args.recursive,
                exclude: args.choice.exclude.clone(),
                listed: self.listed.is_some(),
                follow: args.choice.copy_links,
                allow_changes: args.choice.allow_changes,
                chmod: args.choice.chmod.clone(),
            },
            LocalTask::MirrorFrom { target, settings, .. } => {
                AgentTask::MirrorTo { target: target.clone(), settings: settings.clone() }
            }
            LocalTask::MirrorTo { source, settings, .. } => AgentTask::MirrorFrom {
                source: source.clone(),
                settings: settings.clone(),
                allow_changes: args.choice.allow_changes,
                chmod: args.choice.chmod.clone(),
            },
        };
        let family = self.job.options.settings.family;
        let own = || own_addresses(Ipv6Addr::UNSPECIFIED.into(), family);
        let udp = port.map(|port| Udp { ports: args.ports(), addresses: own(), port });
        start(self.job, job, secret, udp)
    }

    fn wait_ready(
        &mut self,
        report: &mut Reporter,
    ) -> Result<(Vec<IpAddr>, u16, AgentPlan), Failure> {
        loop {
            match self.link.receive()? {
                AgentMessage::Ready { addresses, port, plan } => {
                    return Ok((addresses, port, plan));
                }
                AgentMessage::Warning(text) => report.warn(&self.link.with_host(&text)),
                AgentMessage::Done(done) => return Err(self.link.failed_there(done)),
                _ => return Err(self.link.unexpected_message()),
            }
        }
    }

    /// The client's task, now that the agent's plan is known. Files that were not requested are
    /// refused.
    fn agree(
        &mut self,
        part: LocalTask,
        plan: AgentPlan,
        options: &mut Options,
    ) -> Result<ResolvedTask, Failure> {
        let args = self.job.args;
        match (part, plan) {
            (LocalTask::Send { found, .. }, AgentPlan::Receive { rename }) => {
                let items = found.items(rename).map_err(|text| Failure::new(Code::File, text))?;
                let exclude = args.choice.exclude.clone();
                let skip = self.request_existing(&names(&items))?;
                let only = self.listed.as_ref().map(FilesFrom::only);
                let modes = args.choice.chmod.as_deref().map(selection_args::modes).transpose()?;
                let follow = args.choice.copy_links;
                Ok(ResolvedTask::Send(Selection {
                    items: items.named,
                    contents: items.contents,
                    exclude,
                    only,
                    follow,
                    allow_changes: args.choice.allow_changes,
                    skip,
                    modes,
                    range: None,
                }))
            }
            (LocalTask::Receive { sources, target_dir }, AgentPlan::Send { names }) => {
                let asked = |name: &&OsString| match &target_dir.name {
                    Some(renamed) => *name == renamed,
                    None => was_asked_for(name, &sources),
                };
                let listed = self.listed.as_ref();
                if let Some(name) = names.iter().find(|name| listed.is_none() && !asked(name)) {
                    let why = format!(
                        "{} wants to send \"{}\", which was not requested; nothing was written",
                        self.link.host.name,
                        printable_bytes(name.as_bytes())
                    );
                    return Err(Failure::new(Code::Protocol, why));
                }
                let at = &target_dir.directory;
                let names = match listed {
                    Some(listed) => {
                        let said = |error| Failure::new(Code::File, format!("{error}"));
                        listed.first_parts(at).map_err(said)?.into_iter().collect()
                    }
                    None => names,
                };
                self.send_existing(at, &names)?;
                let directories = args.recursive || listed.is_some();
                let (names, only) = (names.into_iter().collect(), listed.map(FilesFrom::only));
                options.expected = Some(Expected { names, directories, only });
                if !args.dry_run {
                    options.label = target_dir.label();
                }
                Ok(ResolvedTask::Receive(target_dir.directory))
            }
            _ => Err(self.link.unexpected_message()),
        }
    }

    /// Sends the names in `--files-from` to the agent.
    fn send_list(&self, listed: &FilesFrom) -> Result<(), Failure> {
        let pieces = listed.pieces();
        let count = pieces.len();
        for (place, names) in (1..).zip(pieces) {
            self.link.send(&ClientMessage::Listed { names, last: place == count })?;
        }
        Ok(())
    }

    /// The filter of files that exist at the agent beneath these names, and are skipped.
    fn request_existing(&mut self, names: &[OsString]) -> Result<Option<SkipFilter>, Failure> {
        let existing = self.job.existing;
        if existing == ExistingPolicy::Replace {
            return Ok(None);
        }
        let count = names.len().div_ceil(NAMES).max(1);
        for place in 0..count {
            let names = names.iter().skip(place * NAMES).take(NAMES).cloned().collect();
            self.link.send(&ClientMessage::ListExisting { names, last: place + 1 == count })?;
        }
        let mut existing_files = ExistingFiles::default();
        loop {
            match self.link.receive()? {
                AgentMessage::ExistingFiles(piece) => match existing_files.add(piece) {
                    Ok(false) => {}
                    Ok(true) => break,
                    Err(()) => return Err(self.link.unexpected_message()),
                },
                AgentMessage::Done(done) => return Err(self.link.failed_there(done)),
                _ => return Err(self.link.unexpected_message()),
            }
        }
        Ok(Some(existing_files.skip_filter(existing, &self.passed)))
    }

    /// Sends the agent the files that exist here, so that it skips those.
    fn send_existing(&self, directory: &Path, names: &[OsString]) -> Result<(), Failure> {
        if self.job.existing == ExistingPolicy::Replace {
            return Ok(());
        }
        let pieces = existing::existing_pieces(directory, names, self.job.existing);
        pieces
            .into_iter()
            .try_for_each(|piece| self.link.send(&ClientMessage::ExistingFiles(piece)))
    }

    /// A dry run: a line for each file that would be copied.
    fn list(&mut self, agreed: &ResolvedTask) -> Result<(), Failure> {
        if let ResolvedTask::Send(selection) = agreed {
            let preview = netblt::preview(selection.clone(), self.link.cancel)
                .map_err(|error| Failure::transfer(&error, false))?;
            let mut offered = preview.offered.iter();
            return offered.try_for_each(|one| list_one(&one.name, one.directory, one.length));
        }
        loop {
            match self.link.receive()? {
                AgentMessage::Listed { name, directory, length } => {
                    list_one(&name, directory, length)?
                }
                AgentMessage::Done(done) if done.message.is_none() => return Ok(()),
                AgentMessage::Done(done) => return Err(self.link.failed_there(done)),
                _ => return Err(self.link.unexpected_message()),
            }
        }
    }

    /// Tries both directions at once, to find which end connects, and where.
    fn find_way(
        &mut self,
        prober: &Prober,
        addresses: &[IpAddr],
        far_port: u16,
        report: &mut Reporter,
    ) -> Option<(DataPath, SocketAddr)> {
        let peers = spelled(addresses, far_port);
        report.detail(&format!("Trying UDP to {}, and from there to here ...", listed(&peers)));
        let link = &mut self.link;
        let turn = |answered: Option<SocketAddr>| {
            if let Some(address) = answered {
                return ControlFlow::Break(Some((DataPath::Listen, address)));
            }
            if link.cancel.is_cancelled() {
                return ControlFlow::Break(None);
            }
            match link.came.try_recv() {
                Ok(SessionEvent::AgentMessage(AgentMessage::ReachedAt(at))) => {
                    ControlFlow::Break(Some((DataPath::Call(at), at)))
                }
                Ok(came) => {
                    link.note(came).iter().for_each(|text| report.warn(text));
                    match link.done.is_some() || link.ended {
                        true => ControlFlow::Break(None),
                        false => ControlFlow::Continue(()),
                    }
                }
                Err(TryRecvError::Empty) => ControlFlow::Continue(()),
                Err(TryRecvError::Disconnected) => ControlFlow::Break(None),
            }
        };
        prober.run(&peers, Instant::now() + TRY, turn).flatten()
    }

    fn report_blocked(
        &self,
        addresses: &[IpAddr],
        far_port: u16,
        port: Option<u16>,
        report: &mut Reporter,
    ) {
        let host = &self.link.host.name;
        let why = match port.filter(|_| far_port != 0) {
            Some(port) => {
                let tried = listed(&spelled(addresses, far_port));
                format!("UDP does not pass, neither to {tried} nor from {host} to port {port} here")
            }
            None => format!("{host} cannot use UDP"),
        };
        report.warn(&format!("{why}: the data go through ssh"));
    }

    /// Agrees with the agent on the path of the data. Returns how to meet, and the address, if not
    /// inside ssh.
    fn meet(
        &mut self,
        way: Option<(DataPath, SocketAddr)>,
        port: Option<u16>,
        secret: Secret,
        options: &mut Options,
        report: &mut Reporter,
    ) -> Result<(Rendezvous, Option<SocketAddr>), Failure> {
        let connect = |address: SocketAddr, secret| {
            Rendezvous::Connect(Ticket { addresses: vec![address.to_string()], secret })
        };
        if let Some((way, address)) = way {
            options.network.port = port.unwrap_or(0);
            if let DataPath::Call(at) = way {
                // The agent learns that when this end listens.
                self.call = Some(at);
                return Ok((Rendezvous::Await(secret), Some(address)));
            }
            self.link.send(&ClientMessage::Go(DataPath::Listen))?;
            self.wait_listening(report)?;
            return Ok((connect(address, secret), Some(address)));
        }
        let cannot = |error| socket_failure("cannot go through ssh", &error);
        let tunnel = Tunnel::open(options).map_err(cannot)?;
        tunnel.carry(self.link.out.clone()).map_err(cannot)?;
        let _ = self.link.tunnel.set(tunnel);
        self.link.send(&ClientMessage::Go(DataPath::Inside))?;
        self.wait_listening(report)?;
        Ok((connect(Carried::peer(), secret), None))
    }

    fn wait_listening(&mut self, report: &mut Reporter) -> Result<(), Failure> {
        loop {
            match self.link.receive()? {
                AgentMessage::Listening => return Ok(()),
                // It was in flight when this end decided.
                AgentMessage::ReachedAt(_) => {}
                // The agent has looked at its sources.
                AgentMessage::Warning(text) => report.warn(&self.link.with_host(&text)),
                AgentMessage::Done(done) => return Err(self.link.failed_there(done)),
                _ => return Err(self.link.unexpected_message()),
            }
        }
    }

    fn transfer(
        &mut self,
        agreed: ResolvedTask,
        rendezvous: &Rendezvous,
        options: &Options,
        report: &mut Reporter,
    ) -> Result<Summary, Failure> {
        let cancel = self.link.cancel;
        let (role, what) = match &agreed {
            ResolvedTask::Send(_) => (Role::Sender, format!("to {}", self.link.host.name)),
            ResolvedTask::Receive(_) => (Role::Receiver, format!("from {}", self.link.host.name)),
        };
        let options = &mut options.clone();
        control::offer(report, options, role, what);
        report.hear_files(options);
        let mut watch = CopyObserver { client: self, report };
        let sends = matches!(agreed, ResolvedTask::Send(_));
        let result = match agreed {
            ResolvedTask::Send(selection) => {
                let source = Source::Selection(selection);
                netblt::send(source, rendezvous, options, &mut watch, cancel)
            }
            ResolvedTask::Receive(directory) => {
                let destination = Destination::Directory(directory);
                netblt::receive(destination, rendezvous, options, &mut watch, cancel)
            }
        };
        if sends && report.was_open() && self.job.args.resume != ResumeName::Never {
            self.kept = Some(kept_at(&self.link.host.name));
        }
        let inside = options.network.carried.is_some();
        let limited = |mut summary: Summary| {
            // The path is what ssh takes, whatever bounds the waiting data.
            if inside && summary.limited_by == LimitedBy::ReceiverBuffers {
                summary.limited_by = LimitedBy::Path;
            }
            summary
        };
        result.map(limited).map_err(|error| match error {
            Error::Interrupted | Error::Unconfirmed | Error::Unfinished
                if self.link.is_lost() && !signals::asked_as_well() =>
            {
                let why = match error {
                    Error::Interrupted => String::new(),
                    error => format!(": {error}"),
                };
                Failure::new(Code::Stream, format!("the ssh connection has ended{why}"))
            }
            error => report.failure(&error),
        })
    }

    /// The agent's last message, and the result of both ends: of two failures the one that is not
    /// only an echo of the other.
    fn finish(
        self,
        copied: Result<Option<Summary>, Failure>,
        report: &mut Reporter,
    ) -> Result<Option<Summary>, Failure> {
        let host = self.link.host.name.clone();
        let passed = self.passed.load(Ordering::Relaxed);
        let wanted = matches!(copied, Ok(Some(_)));
        let ended = self.link.ended || self.link.is_lost();
        let done = self.link.finish(wanted, |text| report.warn(text));
        // Else the agent has named the place itself.
        let kept = self.kept.filter(|_| done.is_none());
        let done = done.unwrap_or_default();
        report.passed_over(passed + done.passed);
        let theirs = done.message.as_ref().filter(|_| !done.echo);
        let theirs = theirs.map(|text| Failure::new(done.exit_code(), format!("{host}: {text}")));
        match (copied, theirs) {
            (Err(own), Some(theirs)) if is_echo(&own) => Err(theirs),
            (Ok(Some(_)), Some(theirs)) => Err(theirs),
            (Ok(Some(mut summary)), None) => {
                summary.skipped = summary.skipped.max(done.skipped);
                Ok(Some(summary))
            }
            (copied, _) => {
                copied.map_err(|failure| unless_stopped(failure, ended, kept.as_deref()))
            }
        }
    }
}

/// The end of a dry run that has printed its list.
fn end_of_list(skipped: u64) -> Result<Option<Summary>, Failure> {
    match skipped {
        0 => Ok(None),
        _ => {
            Err(Failure { silent: true, ..Failure::new(Code::Partial, "not all can be mirrored") })
        }
    }
}

fn warn_of_kept(outcome: &MirrorOutcome, report: &mut Reporter) {
    if outcome.kept > 0 {
        let kept = units::show_count(outcome.kept);
        report.warn(&format!("{kept} entries stay, since not everything arrived"));
    }
}

/// The summary where no file differs.
fn nothing_to_transfer() -> Summary {
    let mut summary = Summary::default();
    summary.verified = true;
    summary
}

/// The directory where an agent keeps the parts of files that it receives.
pub(crate) fn kept_at(host: &str) -> String {
    format!("partial files are on {host} in .netblt-partial; run the same command to resume")
}

/// The request for the agent.
pub(crate) fn start(
    copy: CopyJob<'_>,
    job: AgentTask,
    secret: &Secret,
    udp: Option<Udp>,
) -> StartRequest {
    StartRequest {
        job,
        dry_run: copy.args.dry_run,
        existing: copy.existing,
        secret: secret.0,
        udp,
        third: None,
        settings: copy.options.settings.clone(),
    }
}

/// The addresses of a host's name here; loopback only if ssh goes there straight.
pub(crate) fn resolved(ssh: &SshOptions, host: &Host) -> Vec<IpAddr> {
    let (name, straight) = ssh.host_name(host);
    let (found, answers) = channel();
    let look = move || {
        let addresses = (name.as_str(), 0).to_socket_addrs();
        let _ = found.send(addresses.map_or_else(|_| Vec::new(), Iterator::collect));
    };
    // A resolver that hangs is not worth waiting for: the agent has sent its own addresses.
    let _ = thread::Builder::new().name("netblt-resolve".to_owned()).spawn(look);
    let found: Vec<SocketAddr> = answers.recv_timeout(LOOK_UP).unwrap_or_default();
    let found = found.iter().map(SocketAddr::ip);
    found.filter(|ip| straight || !ip.is_loopback()).collect()
}

fn spelled(addresses: &[IpAddr], port: u16) -> Vec<SocketAddr> {
    let mut peers: Vec<SocketAddr> = Vec::new();
    for ip in addresses {
        let peer = SocketAddr::new(*ip, port);
        if !peers.contains(&peer) {
            peers.push(peer);
        }
    }
    peers
}

fn listed(peers: &[SocketAddr]) -> String {
    peers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn list_one(name: &[u8], directory: bool, length: u64) -> Result<(), Failure> {
    reporter::list_one(name, directory, length)
}

fn socket_failure(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(Code::Socket, format!("{what}: {error}"))
}

/// The observer of the transfer, which also handles the agent's messages meanwhile.
struct CopyObserver<'a, 'b> {
    client: &'a mut CopyClient<'b>,
    report: &'a mut Reporter,
}

impl Observer for CopyObserver<'_, '_> {
    fn listening_at(&mut self, _: SocketAddr) {
        if let Some(at) = self.client.call {
            // The reader of a broken pipe finds that out.
            let _ = self.client.link.send(&ClientMessage::Go(DataPath::Call(at)));
        }
    }

    fn connected(&mut self, peer: &str) {
        self.report.connected(peer);
    }

    fn progress(&mut self, progress: &Progress) {
        while let Ok(came) = self.client.link.came.try_recv() {
            self.client.link.note(came).iter().for_each(|text| self.report.warn(text));
        }
        self.report.progress(progress);
    }

    fn silent(&mut self, silent: bool) {
        self.report.silent(silent);
    }

    fn restarted(&mut self) {
        self.report.restarted();
    }

    fn warn(&mut self, warning: &Warning) {
        // The agent reports the full path.
        let theirs = matches!(warning, Warning::TheyLeftOut(_));
        if !theirs {
            Observer::warn(self.report, warning);
        }
    }
}
