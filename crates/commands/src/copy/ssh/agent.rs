//! `netblt far-end`: the agent, which `netblt cp` starts on the other machine through ssh.
//!
//! It follows the messages on its standard input, and ends when that ends, at any point.

use std::ffi::{OsStr, OsString};
use std::io::{self, Stdin};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use netblt::mirror::{Channel, Message, MirrorDestination, MirrorSettings, MirrorSource};
use netblt::net::addresses::own_addresses;
use netblt::{
    Cancel, Destination, Error, Expected, Observer, Options, Progress, Rendezvous, Selection,
    Source, Summary, Ticket, Warning,
};
use netblt_proto::api::CloseReason;
use netblt_proto::config::Secret;

use crate::copy::existing::{self, ExistingFiles, ExistingPolicy};
use crate::copy::files_from::FilesFrom;
use crate::copy::operands::{self, Sources, Target, names};
use crate::copy::ssh::framing::{Frame, FrameReader, FrameWriter};
use crate::copy::ssh::messages::{
    AgentMessage, AgentPlan, AgentTask, BANNER, ClientMessage, DataPath, Done, PROTOCOL_VERSION,
    ProgressUpdate, StartRequest, ThirdPartyRole, TransferResult, Udp,
};
use crate::copy::ssh::mirror::KEEPS_REMOVALS;
use crate::copy::ssh::probe::{Prober, Side, no_socket, plausible};
use crate::copy::ssh::tunnel::Tunnel;
use crate::exit::{Code, Failure};
use crate::{hardening, selection_args, signals};

/// The other side of `netblt cp`, which starts it through ssh
///
/// It speaks with `netblt cp` over its standard input and output, and is of no use otherwise.
#[derive(clap::Args, Debug)]
#[command(hide = true)]
pub(crate) struct Args {}

/// The interval at which a wait looks whether it was cancelled.
const STEP: Duration = Duration::from_millis(50);
/// How long the client may take to choose a path. It takes seconds.
const WAY: Duration = Duration::from_secs(120);
/// After its input has ended: the time until it stops waiting for the other end, and until it
/// exits.
const HURRY: Duration = Duration::from_secs(2);
const GONE: Duration = Duration::from_secs(4);

pub(crate) fn run(_: &Args) -> Code {
    hardening::keep();
    let cancel = Cancel::default();
    let out = FrameWriter::new(io::stdout());
    let hello = AgentMessage::Hello {
        protocol: PROTOCOL_VERSION,
        wire: netblt_proto::wire::sealed::VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    if let Err(failure) = signals::watch(&cancel, false) {
        return failure.code;
    }
    if out.raw(BANNER).and_then(|()| out.send(&hello)).is_err() {
        return Code::Stream;
    }
    let (sender, orders) = channel();
    let tunnel = Arc::new(OnceLock::new());
    let over = Arc::new(AtomicBool::new(false));
    let (inner, stop, ended) = (Arc::clone(&tunnel), cancel.clone(), Arc::clone(&over));
    let listen = move || listen(io::stdin(), &sender, &inner, &stop, &ended);
    if thread::Builder::new().name("netblt-ssh".to_owned()).spawn(listen).is_err() {
        return Code::Start;
    }
    let passed = Arc::new(AtomicU64::new(0));
    let far = Agent { out: out.clone(), orders, tunnel, cancel, passed };
    let passed = Arc::clone(&far.passed);
    let done = match far.run() {
        Ok((code, skipped)) => Done { code: code.number(), skipped, ..Done::default() },
        Err(Failed { failure, echo }) => {
            let (code, message) = (failure.code.number(), Some(failure.message));
            Done { code, message, echo, ..Done::default() }
        }
    };
    let done = Done { passed: passed.load(Ordering::Relaxed), ..done };
    over.store(true, Ordering::SeqCst);
    let code = done.exit_code();
    match out.send(&AgentMessage::Done(done)) {
        Ok(()) => code,
        Err(_) => Code::Stream,
    }
}

/// A failure, and whether it only echoes the client's.
struct Failed {
    failure: Failure,
    echo: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let echo = matches!(error, Error::Interrupted);
        Self { failure: error.into(), echo }
    }
}

/// The agent's channel to the client.
struct AgentChannel<'a>(&'a Agent);

impl Channel for AgentChannel<'_> {
    type Failure = Failed;

    fn send(&mut self, message: Message) -> Result<(), Failed> {
        self.0.send(&AgentMessage::Mirror(message))
    }

    fn receive(&mut self) -> Result<Message, Failed> {
        match self.0.order()? {
            ClientMessage::Mirror(message) => Ok(message),
            _ => Err(out_of_place()),
        }
    }
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { failure, echo: false }
    }
}

struct Agent {
    out: FrameWriter,
    orders: Receiver<ClientMessage>,
    tunnel: Arc<OnceLock<Tunnel>>,
    cancel: Cancel,
    /// Number of files that were skipped because they exist at the client.
    passed: Arc<AtomicU64>,
}

/// The agent's task.
enum AgentRole {
    Send(Selection),
    Receive(PathBuf),
    MirrorFrom(Box<MirrorFrom>),
    MirrorTo(Box<MirrorDestination>, PathBuf),
}

/// The source of a mirror.
struct MirrorFrom {
    source: MirrorSource,
    allow_changes: bool,
}

/// How the two ends come together: the socket of the probes, with its port, and the task.
struct AgentMeeting<'a> {
    prober: Option<Prober>,
    port: u16,
    start: &'a StartRequest,
}

impl Agent {
    fn run(&self) -> Result<(Code, u64), Failed> {
        let start = match self.order()? {
            ClientMessage::Start(start) => *start,
            _ => return Err(out_of_place()),
        };
        let mut options = Options::default();
        options.settings = start.settings.clone();
        if let AgentTask::Receive { .. } = start.job {
            // Its sender got the ceiling, too, and may get another one on the way. A ceiling that
            // both agree on at the opening could only be lowered.
            options.settings.policy = options.settings.policy.with_ceiling(None);
        }
        let (part, plan, skipped) = self.understand(&start, &mut options)?;
        let family = start.settings.family;
        let side =
            if start.third == Some(ThirdPartyRole::Client) { Side::Client } else { Side::Agent };
        let bind = |udp: &Udp| Prober::bind(udp.ports, family, (&start.secret, side));
        let prober = start.udp.as_ref().and_then(|udp| {
            let failed = |error| no_socket(udp.ports, &error).message;
            let warn = |error| drop(self.out.send(&AgentMessage::Warning(failed(error))));
            bind(udp).map_err(warn).ok()
        });
        let port = prober.as_ref().and_then(|prober| prober.port().ok()).unwrap_or(0);
        let addresses = addresses(&start);
        self.send(&AgentMessage::Ready { addresses, port, plan })?;
        let meeting = AgentMeeting { prober, port, start: &start };
        let skipped = match part {
            AgentRole::MirrorFrom(from) => self.mirror_from(*from, meeting, options)?,
            AgentRole::MirrorTo(to, root) => self.mirror_to(*to, root, meeting, options)?,
            mut part => {
                self.compare(&mut part, start.existing)?;
                if start.dry_run {
                    return self.list(part).map(|()| (Code::Success, skipped));
                }
                skipped + self.meet_and_transfer(part, meeting, options)?.skipped
            }
        };
        Ok((if skipped > 0 { Code::Partial } else { Code::Success }, skipped))
    }

    /// Meets the other end, and transfers the files.
    fn meet_and_transfer(
        &self,
        part: AgentRole,
        AgentMeeting { prober, port, start }: AgentMeeting<'_>,
        mut options: Options,
    ) -> Result<Summary, Failed> {
        let way = match (prober, &start.udp) {
            (Some(prober), Some(udp)) => {
                // The other end is where ssh comes from, unless that only introduces two agents.
                let client = ssh_connection().map(|(client, _)| client);
                let client = client.filter(|_| start.third.is_none());
                self.answer(&prober, udp, client, &mut options)?
            }
            _ => self.wait_way(None, &mut options)?,
        };
        let rendezvous = self.rendezvous(&way, port, Secret(start.secret), &mut options)?;
        let watched = start.third.is_some() && matches!(part, AgentRole::Receive(_));
        let summary = self.transfer(part, &rendezvous, &options, watched)?;
        if watched {
            self.send(&AgentMessage::Summary(TransferResult::of(&summary)))?;
        }
        Ok(summary)
    }

    /// Is the source of a mirror. Returns how many entries are left out.
    fn mirror_from(
        &self,
        MirrorFrom { mut source, allow_changes }: MirrorFrom,
        meeting: AgentMeeting<'_>,
        options: Options,
    ) -> Result<u64, Failed> {
        let channel = &mut AgentChannel(self);
        let found = source.compare(channel)?;
        for text in &found.problems {
            self.send(&AgentMessage::Warning(format!("left out {text}")))?;
        }
        if found.keeps_removals {
            self.send(&AgentMessage::Warning(KEEPS_REMOVALS.to_owned()))?;
        }
        let (mut skipped, mut complete) =
            (found.problems.len() as u64, found.problems_there.is_empty());
        if meeting.start.dry_run {
            return Ok(skipped);
        }
        if let Some(mut selection) = found.selection {
            selection.allow_changes = allow_changes;
            let sent = self.meet_and_transfer(AgentRole::Send(selection), meeting, options)?;
            skipped += sent.skipped;
            complete &= sent.skipped == 0;
        }
        source.wait_and_finish(channel, complete)?;
        Ok(skipped)
    }

    /// Is the destination of a mirror. Changes that cannot be made are the client's to report.
    fn mirror_to(
        &self,
        mut destination: MirrorDestination,
        root: PathBuf,
        meeting: AgentMeeting<'_>,
        options: Options,
    ) -> Result<u64, Failed> {
        let channel = &mut AgentChannel(self);
        let decided = destination.compare(channel)?;
        if meeting.start.dry_run {
            return Ok(0);
        }
        let mut skipped = 0;
        if decided.transfer {
            let part = AgentRole::Receive(root);
            skipped = self.meet_and_transfer(part, meeting, options)?.skipped;
        }
        destination.finish(channel)?;
        Ok(skipped)
    }

    /// Interprets the operands on this machine. Returns also how many sources are left out.
    fn understand(
        &self,
        start: &StartRequest,
        options: &mut Options,
    ) -> Result<(AgentRole, AgentPlan, u64), Failed> {
        let file_failure = |text: String| Failure::new(Code::File, text);
        match &start.job {
            AgentTask::Receive { target, several, directory, names } => {
                let target_dir = Target::of(target, *several, *directory, names);
                let target_dir = target_dir.map_err(file_failure)?;
                if !start.dry_run {
                    options.label = target_dir.label();
                }
                let names = target_dir.name.as_ref().map_or(&names[..], std::slice::from_ref);
                options.incoming_names =
                    (!names.is_empty()).then(|| names.iter().cloned().collect());
                let plan = AgentPlan::Receive { rename: target_dir.name };
                Ok((AgentRole::Receive(target_dir.directory), plan, 0))
            }
            AgentTask::Send {
                sources,
                rename,
                directories,
                exclude,
                listed,
                follow,
                allow_changes,
                chmod,
            } => {
                let mut listed = listed.then(|| self.receive_list()).transpose()?;
                let found = match (&mut listed, sources.first()) {
                    (Some(listed), Some(source)) => Sources::listed(source, listed),
                    _ => Sources::look(sources, *directories, true),
                };
                let found = found.map_err(file_failure)?;
                for text in &found.skipped {
                    self.send(&AgentMessage::Warning(format!("skipped {text}")))?;
                }
                if found.sources.is_empty() {
                    let nothing = Failure::new(Code::Partial, "there is nothing to copy");
                    return Err(nothing.into());
                }
                let items = found.items(rename.clone()).map_err(file_failure)?;
                // The client knows the names that it listed.
                let names = if listed.is_some() { Vec::new() } else { names(&items) };
                let plan = AgentPlan::Send { names };
                let (only, exclude) = (listed.as_ref().map(FilesFrom::only), exclude.clone());
                let modes = chmod.as_deref().map(selection_args::modes).transpose()?;
                let (follow, skip) = (*follow, None);
                let (items, contents) = (items.named, items.contents);
                let (range, allow_changes) = (None, *allow_changes);
                let selection = Selection {
                    items,
                    contents,
                    exclude,
                    only,
                    follow,
                    allow_changes,
                    skip,
                    modes,
                    range,
                };
                Ok((AgentRole::Send(selection), plan, found.skipped.len() as u64))
            }
            AgentTask::MirrorFrom { source, settings, allow_changes, chmod } => {
                let source = self.mirror_source(source, settings, chmod.as_deref())?;
                let from = Box::new(MirrorFrom { source, allow_changes: *allow_changes });
                Ok((AgentRole::MirrorFrom(from), AgentPlan::Send { names: Vec::new() }, 0))
            }
            AgentTask::MirrorTo { target, settings } => {
                let root = operands::home(target).map_err(file_failure)?;
                let destination = MirrorDestination::new(&root, settings, &self.cancel)?;
                let plan = AgentPlan::Receive { rename: None };
                Ok((AgentRole::MirrorTo(Box::new(destination), root), plan, 0))
            }
        }
    }

    fn mirror_source(
        &self,
        source: &OsStr,
        settings: &MirrorSettings,
        chmod: Option<&str>,
    ) -> Result<MirrorSource, Failed> {
        let root = operands::home(source).map_err(|text| Failure::new(Code::File, text))?;
        let modes = chmod.map(selection_args::modes).transpose()?;
        Ok(MirrorSource::new(&root, settings, modes, &self.cancel)?)
    }

    fn receive_list(&self) -> Result<FilesFrom, Failed> {
        let mut listed = FilesFrom::default();
        loop {
            let ClientMessage::Listed { names, last } = self.order()? else {
                return Err(out_of_place());
            };
            listed.join(names);
            if last {
                return Ok(listed);
            }
        }
    }

    /// Exchanges the files that exist at the destination. The sender skips those that are not to be
    /// replaced, whichever end it is.
    fn compare(&self, part: &mut AgentRole, existing: ExistingPolicy) -> Result<(), Failed> {
        if existing == ExistingPolicy::Replace {
            return Ok(());
        }
        match part {
            AgentRole::MirrorFrom(_) | AgentRole::MirrorTo(..) => Ok(()),
            AgentRole::Receive(directory) => {
                let (mut all, mut whole) = (Vec::new(), false);
                while !whole {
                    let ClientMessage::ListExisting { names, last } = self.order()? else {
                        return Err(out_of_place());
                    };
                    all.extend(names);
                    whole = last;
                }
                let pieces = existing::existing_pieces(directory, &all, existing);
                pieces
                    .into_iter()
                    .try_for_each(|piece| self.send(&AgentMessage::ExistingFiles(piece)))
            }
            AgentRole::Send(selection) => {
                let mut existing_files = ExistingFiles::default();
                let mut whole = false;
                while !whole {
                    let ClientMessage::ExistingFiles(piece) = self.order()? else {
                        return Err(out_of_place());
                    };
                    whole = existing_files.add(piece).map_err(|()| out_of_place())?;
                }
                selection.skip = Some(existing_files.skip_filter(existing, &self.passed));
                Ok(())
            }
        }
    }

    fn list(&self, part: AgentRole) -> Result<(), Failed> {
        if let AgentRole::Send(selection) = part {
            let preview = netblt::preview(selection, &self.cancel)
                .map_err(|error| Failure::transfer(&error, false))?;
            for offered in preview.offered {
                let (directory, length) = (offered.directory, offered.length);
                self.send(&AgentMessage::Listed { name: offered.name, directory, length })?;
            }
        }
        Ok(())
    }

    /// Probes and answers probes until the client has decided.
    fn answer(
        &self,
        prober: &Prober,
        udp: &Udp,
        client: Option<IpAddr>,
        options: &mut Options,
    ) -> Result<DataPath, Failed> {
        let (mut udp, mut reported) = (udp.clone(), false);
        loop {
            // The client has checked the addresses of a third machine.
            let loopback = client.is_none_or(|client| client.is_loopback());
            let theirs = plausible(client, udp.addresses.iter().copied(), loopback, |_| true);
            let peers = theirs.into_iter().map(|ip| SocketAddr::new(ip, udp.port));
            let peers: Vec<_> = peers.collect();
            let turn = |answered: Option<SocketAddr>| {
                if let Some(address) = answered.filter(|_| !std::mem::replace(&mut reported, true))
                {
                    let _ = self.out.send(&AgentMessage::ReachedAt(address));
                }
                match self.orders.try_recv() {
                    Ok(order) => ControlFlow::Break(Some(order)),
                    Err(TryRecvError::Empty) if !self.cancel.is_cancelled() => {
                        ControlFlow::Continue(())
                    }
                    Err(_) => ControlFlow::Break(None),
                }
            };
            match prober.run(&peers, Instant::now() + WAY, turn).flatten() {
                // The address of the other end is known now.
                Some(ClientMessage::Peer { udp: theirs, names, directories }) => {
                    expect(options, names, directories);
                    udp = theirs;
                }
                order => return self.wait_way(order, options),
            }
        }
    }

    fn wait_way(
        &self,
        order: Option<ClientMessage>,
        options: &mut Options,
    ) -> Result<DataPath, Failed> {
        match order.map_or_else(|| self.order(), Ok)? {
            ClientMessage::Go(way) => Ok(way),
            ClientMessage::Peer { names, directories, .. } => {
                expect(options, names, directories);
                self.wait_way(None, options)
            }
            _ => Err(out_of_place()),
        }
    }

    fn rendezvous(
        &self,
        way: &DataPath,
        port: u16,
        secret: Secret,
        options: &mut Options,
    ) -> Result<Rendezvous, Failed> {
        options.network.port = port;
        Ok(match way {
            DataPath::Listen => Rendezvous::Await(secret),
            DataPath::Call(address) => {
                Rendezvous::Connect(Ticket { addresses: vec![address.to_string()], secret })
            }
            DataPath::Inside => {
                let opened = Tunnel::open(options).and_then(|tunnel| {
                    tunnel.carry(self.out.clone())?;
                    let _ = self.tunnel.set(tunnel);
                    Ok(())
                });
                opened.map_err(|error| {
                    Failure::new(Code::Socket, format!("cannot go through ssh: {error}"))
                })?;
                Rendezvous::Await(secret)
            }
        })
    }

    fn transfer(
        &self,
        part: AgentRole,
        rendezvous: &Rendezvous,
        options: &Options,
        watched: bool,
    ) -> Result<Summary, Failed> {
        let mut watch = AgentObserver { out: self.out.clone(), watched };
        let sending = matches!(part, AgentRole::Send(..));
        let result = match part {
            AgentRole::Send(selection) => {
                let source = Source::Selection(selection);
                netblt::send(source, rendezvous, options, &mut watch, &self.cancel)
            }
            AgentRole::MirrorFrom(_) | AgentRole::MirrorTo(..) => return Err(out_of_place()),
            AgentRole::Receive(directory) => {
                let destination = Destination::Directory(directory);
                netblt::receive(destination, rendezvous, options, &mut watch, &self.cancel)
            }
        };
        result.map_err(|error| {
            let echo = matches!(
                error,
                Error::Interrupted | Error::Ended(CloseReason::PeerQuit(_)) | Error::Connect { .. }
            );
            Failed { failure: Failure::transfer(&error, sending), echo }
        })
    }

    fn send(&self, message: &AgentMessage) -> Result<(), Failed> {
        self.out.send(message).map_err(|error| Failed {
            failure: Failure::new(Code::Stream, error.to_string()),
            echo: false,
        })
    }

    fn order(&self) -> Result<ClientMessage, Failed> {
        loop {
            match self.orders.recv_timeout(STEP) {
                Ok(order) => return Ok(order),
                Err(RecvTimeoutError::Timeout) if !self.cancel.is_cancelled() => {}
                Err(_) => {
                    let failure = Failure::transfer(&Error::Interrupted, false);
                    return Err(Failed { failure, echo: true });
                }
            }
        }
    }
}

/// Refuses files of another agent that were not requested.
fn expect(options: &mut Options, names: Vec<OsString>, directories: bool) {
    let names = names.into_iter().collect();
    options.expected = Some(Expected { names, directories, only: None });
}

fn out_of_place() -> Failed {
    Failure::usage("protocol error: unexpected message from netblt cp").into()
}

/// The addresses for the client's probes: that at which it reached sshd, and all others.
fn addresses(start: &StartRequest) -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = ssh_connection().map(|(_, server)| server).into_iter().collect();
    let family = start.settings.family;
    for ip in own_addresses(Ipv6Addr::UNSPECIFIED.into(), family) {
        if !all.contains(&ip) {
            all.push(ip);
        }
    }
    all
}

/// The client's and the server's address of the ssh connection, from sshd.
fn ssh_connection() -> Option<(IpAddr, IpAddr)> {
    let text = std::env::var("SSH_CONNECTION").ok()?;
    let mut words = text.split_whitespace();
    let (client, server) = (words.next()?, words.nth(1)?);
    let ip = |text: &str| text.split('%').next()?.parse::<IpAddr>().ok();
    Some((ip(client)?.to_canonical(), ip(server)?.to_canonical()))
}

/// Reads the client's messages. When they end, so does everything here.
fn listen(
    stdin: Stdin,
    orders: &Sender<ClientMessage>,
    tunnel: &OnceLock<Tunnel>,
    cancel: &Cancel,
    over: &AtomicBool,
) {
    let mut reader = FrameReader::new(stdin.lock());
    while let Ok(Some(frame)) = reader.next() {
        match frame {
            Frame::Message(order) => drop(orders.send(order)),
            Frame::Datagram => {
                tunnel.get().iter().for_each(|tunnel| tunnel.deliver(reader.datagram()));
            }
        }
    }
    cancel.cancel();
    thread::sleep(HURRY);
    cancel.abort();
    thread::sleep(GONE - HURRY);
    if !over.load(Ordering::SeqCst) {
        process::exit(Code::Signal.number().into());
    }
}

/// The observer of the transfer, which sends its progress to the client.
struct AgentObserver {
    out: FrameWriter,
    /// The client only watches: it gets the progress.
    watched: bool,
}

impl Observer for AgentObserver {
    fn listening_at(&mut self, _: SocketAddr) {
        let _ = self.out.send(&AgentMessage::Listening);
    }

    fn progress(&mut self, progress: &Progress) {
        if self.watched {
            let _ = self.out.send(&AgentMessage::Progress(ProgressUpdate::of(progress)));
        }
    }

    fn warn(&mut self, warning: &Warning) {
        let _ = self.out.send(&AgentMessage::Warning(warning.to_string()));
    }
}
