//! The end that the user started: agrees with the far end on what, finds the way, and copies.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use netblt::net::addresses::own_addresses;
use netblt::{
    Carried, Destination, Error, Expected, Extras, LimitedBy, Observer, Options, Pass, Progress,
    Rendezvous, Selection, Source, Summary, Ticket, Warning,
};
use netblt_proto::api::printable_bytes;
use netblt_proto::config::{Role, Secret};

use crate::args::ResumeName;
use crate::cp::gather::{Found, Landing, names, was_asked_for};
use crate::cp::link::{Came, Link, is_echo, unless_stopped};
use crate::cp::listed::Listed;
use crate::cp::options::{Fallback, Wish};
use crate::cp::place::Host;
use crate::cp::probe::{Prober, Side, no_socket, plausible};
use crate::cp::ssh::SshOptions;
use crate::cp::standing::{self, Existing, Told};
use crate::cp::tunnel::Tunnel;
use crate::cp::words::{Job, Order, Plan, Start, Udp, Way, Word, lane_count, repair_percent};
use crate::exit::{Code, Failure};
use crate::output::{self, Report};
use crate::{args, choice, control, signals};

/// How long UDP is tried.
pub(crate) const TRY: Duration = Duration::from_millis(2500);
/// How long the name of a host is looked up while other addresses are known.
const LOOK_UP: Duration = Duration::from_millis(200);

/// Names in one word: each is at most 255 bytes, of which JSON makes up to four times as many.
const NAMES: usize = 500;

/// What this end does.
pub(crate) enum Part {
    Send { found: Found, target: OsString },
    Receive { sources: Vec<OsString>, landing: Landing },
}

/// The same when the other end's part is known.
enum Agreed {
    Send(Selection),
    Receive(PathBuf),
}

/// The near end, with the far end behind its ssh.
pub(crate) struct Near<'a> {
    pub(crate) link: Link<'a>,
    pub(crate) wish: &'a Wish,
    pub(crate) ssh: &'a SshOptions,
    /// What `--files-from` lists.
    pub(crate) listed: Option<Listed>,
    /// Where the far end is to call, when this one listens.
    pub(crate) call: Option<SocketAddr>,
    /// Files passed over, since they stand at the destination.
    pub(crate) passed: Arc<AtomicU64>,
    /// Where trace events go.
    pub(crate) trace: Option<PathBuf>,
    /// Where the far end keeps what has arrived there.
    pub(crate) kept: Option<String>,
}

impl Near<'_> {
    /// Copies; nothing is returned by a dry run.
    pub(crate) fn copy(
        &mut self,
        part: Part,
        report: &mut Report,
    ) -> Result<Option<Summary>, Failure> {
        let wish = self.wish;
        let mut secret = Secret([0; 32]);
        getrandom::fill(&mut secret.0)
            .map_err(|error| Failure::new(Code::Start, format!("no random numbers: {error}")))?;
        let cannot = |error| socket_failure("cannot open a UDP socket", &error);
        let prober = match wish.fallback {
            Fallback::Always => None,
            _ if wish.dry_run => None,
            _ => {
                let who = (&secret.0, Side::Near);
                let bound = Prober::bind(wish.ports(), wish.family(), who);
                Some(bound.map_err(|error| no_socket(wish.ports(), &error))?)
            }
        };
        let port = prober.as_ref().map(Prober::port).transpose().map_err(cannot)?;
        let start = self.start_order(&part, &secret, port);
        let mut options = start.options();
        options.trace.clone_from(&self.trace);
        options.manifest.clone_from(&wish.manifest);
        self.link.say(&Order::Start(start))?;
        if let (Part::Receive { .. }, Some(listed)) = (&part, &self.listed) {
            self.tell_list(listed)?;
        }
        let (mut addresses, far_port, plan) = self.wait_ready(report)?;
        let agreed = self.agree(part, plan, &mut options)?;
        if wish.dry_run {
            return self.list(&agreed).map(|()| None);
        }
        let way = match prober {
            Some(prober) if far_port != 0 => {
                let named = resolved(self.ssh, &self.link.host);
                let loopback = named.iter().any(IpAddr::is_loopback);
                addresses = plausible(named, addresses, loopback, |ip| self.wish.fits(ip));
                self.find_way(&prober, &addresses, far_port, report)
            }
            _ => None,
        };
        if way.is_none() && wish.fallback == Fallback::Never {
            let why = format!(
                "UDP does not pass between here and {}, and --fallback never forbids to go through \
                 ssh",
                self.link.host.name
            );
            return Err(Failure::new(Code::Connect, why));
        }
        if way.is_none() && wish.fallback == Fallback::Auto {
            self.say_blocked(&addresses, far_port, port, report);
        }
        let (rendezvous, address) = self.meet(way, (port, secret), &mut options, report)?;
        report.way(address.map(|address| address.to_string()).as_deref());
        self.transfer(agreed, &rendezvous, &options, report)
    }

    fn start_order(&self, part: &Part, secret: &Secret, port: Option<u16>) -> Start {
        let wish = self.wish;
        let job = match part {
            Part::Send { found, target } => Job::Receive {
                target: target.clone(),
                several: found.asked > 1,
                directory: found.sources.iter().any(|source| source.directory),
                names: found.items(None).map(|items| names(&items)).unwrap_or_default(),
                preserve: wish.preserve,
                max_files: wish.max_files(),
            },
            Part::Receive { sources, landing } => Job::Send {
                sources: sources.clone(),
                rename: landing.name.clone(),
                directories: wish.recursive,
                exclude: wish.choice.exclude.clone(),
                listed: self.listed.is_some(),
                follow: wish.choice.copy_links,
                allow_changes: wish.choice.allow_changes,
                chmod: wish.choice.chmod.clone(),
            },
        };
        let (ipv4, ipv6) = wish.family();
        let own = || own_addresses(Ipv6Addr::UNSPECIFIED.into(), args::family(ipv4, ipv6));
        let udp = port.map(|port| Udp { ports: wish.ports(), addresses: own(), port });
        start(wish, job, secret, udp)
    }

    fn wait_ready(&mut self, report: &mut Report) -> Result<(Vec<IpAddr>, u16, Plan), Failure> {
        loop {
            match self.link.hear()? {
                Word::Ready { addresses, port, plan } => return Ok((addresses, port, plan)),
                Word::Warning(text) => report.warn(&self.link.said(&text)),
                Word::Done(done) => return Err(self.link.failed_there(done)),
                _ => return Err(self.link.odd_word()),
            }
        }
    }

    /// What this end does, now that the other's part is known: nothing comes that was not asked
    /// for.
    fn agree(&mut self, part: Part, plan: Plan, options: &mut Options) -> Result<Agreed, Failure> {
        let wish = self.wish;
        match (part, plan) {
            (Part::Send { found, .. }, Plan::Receive { rename }) => {
                let items = found.items(rename).map_err(|text| Failure::new(Code::File, text))?;
                let exclude = wish.choice.exclude.clone();
                let pass = self.ask_standing(&names(&items))?;
                let only = self.listed.as_ref().map(Listed::only);
                let modes = wish.choice.chmod.as_deref().map(choice::modes).transpose()?;
                let follow = wish.choice.copy_links;
                Ok(Agreed::Send(Selection {
                    items: items.named,
                    contents: items.contents,
                    exclude,
                    only,
                    follow,
                    allow_changes: wish.choice.allow_changes,
                    pass,
                    modes,
                    range: None,
                }))
            }
            (Part::Receive { sources, landing }, Plan::Send { names }) => {
                let asked = |name: &&OsString| match &landing.name {
                    Some(renamed) => *name == renamed,
                    None => was_asked_for(name, &sources),
                };
                let listed = self.listed.as_ref();
                if let Some(name) = names.iter().find(|name| listed.is_none() && !asked(name)) {
                    let why = format!(
                        "{} wants to send \"{}\", which nobody asked for; nothing was written",
                        self.link.host.name,
                        printable_bytes(name.as_bytes())
                    );
                    return Err(Failure::new(Code::Protocol, why));
                }
                let at = &landing.directory;
                let names = match listed {
                    Some(listed) => {
                        let said = |error| Failure::new(Code::File, format!("{error}"));
                        listed.first_parts(at).map_err(said)?.into_iter().collect()
                    }
                    None => names,
                };
                self.tell_standing(at, &names)?;
                let directories = wish.recursive || listed.is_some();
                let (names, only) = (names.into_iter().collect(), listed.map(Listed::only));
                options.expected = Some(Expected { names, directories, only });
                options.overwrite = wish.existing().overwrite();
                options.preserve = wish.preserve;
                options.keep_times = wish.preserve;
                options.max_files = wish.max_files();
                Ok(Agreed::Receive(landing.directory))
            }
            _ => Err(self.link.odd_word()),
        }
    }

    /// The far end looks for what is listed.
    fn tell_list(&self, listed: &Listed) -> Result<(), Failure> {
        let pieces = listed.pieces();
        let count = pieces.len();
        for (place, names) in (1..).zip(pieces) {
            self.link.say(&Order::Listed { names, last: place == count })?;
        }
        Ok(())
    }

    /// What is passed over, since it stands at the far end beneath these names.
    fn ask_standing(&mut self, names: &[OsString]) -> Result<Option<Pass>, Failure> {
        let existing = self.wish.existing();
        if existing == Existing::Replace {
            return Ok(None);
        }
        let count = names.len().div_ceil(NAMES).max(1);
        for place in 0..count {
            let names = names.iter().skip(place * NAMES).take(NAMES).cloned().collect();
            self.link.say(&Order::Look { names, last: place + 1 == count })?;
        }
        let mut told = Told::default();
        loop {
            match self.link.hear()? {
                Word::Standing(piece) => match told.add(piece) {
                    Ok(false) => {}
                    Ok(true) => break,
                    Err(()) => return Err(self.link.odd_word()),
                },
                Word::Done(done) => return Err(self.link.failed_there(done)),
                _ => return Err(self.link.odd_word()),
            }
        }
        Ok(Some(told.pass(existing, &self.passed)))
    }

    /// The far end passes over what stands here and is not to be replaced.
    fn tell_standing(&self, directory: &Path, names: &[OsString]) -> Result<(), Failure> {
        if self.wish.existing() == Existing::Replace {
            return Ok(());
        }
        let pieces = standing::told(directory, names, self.wish.existing());
        pieces.into_iter().try_for_each(|piece| self.link.say(&Order::Standing(piece)))
    }

    /// A dry run: what would be copied, a line each.
    fn list(&mut self, agreed: &Agreed) -> Result<(), Failure> {
        if let Agreed::Send(selection) = agreed {
            let preview = netblt::preview(selection.clone(), self.link.cancel)
                .map_err(|error| Failure::transfer(&error, false))?;
            let mut offered = preview.offered.iter();
            return offered.try_for_each(|one| list_one(&one.name, one.directory, one.length));
        }
        loop {
            match self.link.hear()? {
                Word::Listed { name, directory, length } => list_one(&name, directory, length)?,
                Word::Done(done) if done.message.is_none() => return Ok(()),
                Word::Done(done) => return Err(self.link.failed_there(done)),
                _ => return Err(self.link.odd_word()),
            }
        }
    }

    /// Tries both directions at once: who calls whom, and where.
    fn find_way(
        &mut self,
        prober: &Prober,
        addresses: &[IpAddr],
        far_port: u16,
        report: &mut Report,
    ) -> Option<(Way, SocketAddr)> {
        let peers = spelled(addresses, far_port);
        report.detail(&format!("Trying UDP to {}, and from there to here ...", listed(&peers)));
        let link = &mut self.link;
        let turn = |heard: Option<SocketAddr>| {
            if let Some(address) = heard {
                return ControlFlow::Break(Some((Way::Listen, address)));
            }
            if link.cancel.is_cancelled() {
                return ControlFlow::Break(None);
            }
            match link.came.try_recv() {
                Ok(Came::Word(Word::Heard(at))) => ControlFlow::Break(Some((Way::Call(at), at))),
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

    fn say_blocked(
        &self,
        addresses: &[IpAddr],
        far_port: u16,
        port: Option<u16>,
        report: &mut Report,
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

    /// How to meet for the transfer, with the far end told; and where, if not inside ssh.
    fn meet(
        &mut self,
        way: Option<(Way, SocketAddr)>,
        (port, secret): (Option<u16>, Secret),
        options: &mut Options,
        report: &mut Report,
    ) -> Result<(Rendezvous, Option<SocketAddr>), Failure> {
        let connect = |address: SocketAddr, secret| {
            Rendezvous::Connect(Ticket { addresses: vec![address.to_string()], secret })
        };
        if let Some((way, address)) = way {
            options.port = port.unwrap_or(0);
            if let Way::Call(at) = way {
                // It is told to when this end listens.
                self.call = Some(at);
                return Ok((Rendezvous::Await(secret), Some(address)));
            }
            self.link.say(&Order::Go(Way::Listen))?;
            self.wait_listening(report)?;
            return Ok((connect(address, secret), Some(address)));
        }
        let cannot = |error| socket_failure("cannot go through ssh", &error);
        let tunnel = Tunnel::open(options).map_err(cannot)?;
        tunnel.carry(self.link.out.clone()).map_err(cannot)?;
        let _ = self.link.tunnel.set(tunnel);
        self.link.say(&Order::Go(Way::Inside))?;
        self.wait_listening(report)?;
        Ok((connect(Carried::peer(), secret), None))
    }

    fn wait_listening(&mut self, report: &mut Report) -> Result<(), Failure> {
        loop {
            match self.link.hear()? {
                Word::Listening => return Ok(()),
                // What was under way when this end decided.
                Word::Heard(_) => {}
                // It has looked at what it is to send.
                Word::Warning(text) => report.warn(&self.link.said(&text)),
                Word::Done(done) => return Err(self.link.failed_there(done)),
                _ => return Err(self.link.odd_word()),
            }
        }
    }

    fn transfer(
        &mut self,
        agreed: Agreed,
        rendezvous: &Rendezvous,
        options: &Options,
        report: &mut Report,
    ) -> Result<Option<Summary>, Failure> {
        let cancel = self.link.cancel;
        let (role, what) = match &agreed {
            Agreed::Send(_) => (Role::Sender, format!("to {}", self.link.host.name)),
            Agreed::Receive(_) => (Role::Receiver, format!("from {}", self.link.host.name)),
        };
        let options = &mut options.clone();
        control::offer(report, options, role, what);
        report.hear_files(options);
        let mut watch = Watch { near: self, report };
        let sends = matches!(agreed, Agreed::Send(_));
        let result = match agreed {
            Agreed::Send(selection) => {
                let source = Source::Selection(selection);
                netblt::send(source, rendezvous, options, &mut watch, cancel)
            }
            Agreed::Receive(directory) => {
                let destination = Destination::Directory(directory);
                netblt::receive(destination, rendezvous, options, &mut watch, cancel)
            }
        };
        if sends && report.was_open() && self.wish.resume != ResumeName::Never {
            self.kept = Some(kept_at(&self.link.host.name));
        }
        let inside = options.carried.is_some();
        let limited = |mut summary: Summary| {
            // What ssh takes is the path, whatever bounds how much of it waits.
            if inside && summary.limited_by == LimitedBy::ReceiverBuffers {
                summary.limited_by = LimitedBy::Path;
            }
            summary
        };
        result.map(limited).map(Some).map_err(|error| match error {
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

    /// The far end's last word, and what both ends together come to: of two failures the one that
    /// is not only what was heard of the other.
    pub(crate) fn finish(
        self,
        copied: Result<Option<Summary>, Failure>,
        report: &mut Report,
    ) -> Result<Option<Summary>, Failure> {
        let host = self.link.host.name.clone();
        let passed = self.passed.load(Ordering::Relaxed);
        let wanted = matches!(copied, Ok(Some(_)));
        let ended = self.link.ended || self.link.is_lost();
        let done = self.link.finish(wanted, |text| report.warn(text));
        // Else it has said itself where that is.
        let kept = self.kept.filter(|_| done.is_none());
        let done = done.unwrap_or_default();
        report.passed_over(passed + done.passed);
        let theirs = done.message.filter(|_| !done.echo);
        let theirs =
            theirs.map(|text| Failure::new(Code::of(done.code), format!("{host}: {text}")));
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

/// Where a far end keeps the parts of what it receives.
pub(crate) fn kept_at(host: &str) -> String {
    format!("partial files are on {host} in .netblt-partial; run the same command to resume")
}

/// What a far end is told of its part.
pub(crate) fn start(wish: &Wish, job: Job, secret: &Secret, udp: Option<Udp>) -> Start {
    let extras = Extras::from(wish.extra);
    let (ipv4, ipv6) = wish.family();
    Start {
        job,
        dry_run: wish.dry_run,
        existing: wish.existing(),
        secret: secret.0,
        udp,
        third: None,
        ipv4,
        ipv6,
        atomic: wish.atomic,
        resume: wish.resume,
        no_memory: wish.no_memory,
        policy: wish.policy,
        repair: wish.repair.and_then(repair_percent),
        lanes: wish.lanes.map(lane_count),
        verify: wish.verify,
        extras: (extras.owner, extras.xattrs, extras.acls),
        keep_partial: wish.keep_partial().as_secs(),
        rate: wish.ceiling().map(|rate| rate.bits_per_second()),
        death_timer: wish.death_timer.as_secs(),
    }
}

/// The addresses that a host's name stands for here; loopback only if ssh goes there straight.
pub(crate) fn resolved(ssh: &SshOptions, host: &Host) -> Vec<IpAddr> {
    let (name, straight) = ssh.host_name(host);
    let (found, answers) = channel();
    let look = move || {
        let addresses = (name.as_str(), 0).to_socket_addrs();
        let _ = found.send(addresses.map_or_else(|_| Vec::new(), Iterator::collect));
    };
    // A resolver that hangs is not worth waiting for: the far end told its own addresses.
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
    output::list_one(name, directory, length)
}

fn socket_failure(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(Code::Socket, format!("{what}: {error}"))
}

/// Hears what the transfer does, and meanwhile what the far end says.
struct Watch<'a, 'b> {
    near: &'a mut Near<'b>,
    report: &'a mut Report,
}

impl Observer for Watch<'_, '_> {
    fn listening_at(&mut self, _: SocketAddr) {
        if let Some(at) = self.near.call {
            // A pipe that is broken is found by its reader.
            let _ = self.near.link.say(&Order::Go(Way::Call(at)));
        }
    }

    fn connected(&mut self, peer: &str) {
        self.report.connected(peer);
    }

    fn progress(&mut self, progress: &Progress) {
        while let Ok(came) = self.near.link.came.try_recv() {
            self.near.link.note(came).iter().for_each(|text| self.report.warn(text));
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
        // The far end names it in whole.
        let theirs = matches!(warning, Warning::TheyLeftOut(_));
        if !theirs {
            Observer::warn(self.report, warning);
        }
    }
}
