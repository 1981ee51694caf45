//! `netblt far-end`: what `netblt cp` starts on the other machine through ssh.
//!
//! It does what its standard input says, and ends when that ends, whatever it is doing.

use std::ffi::OsString;
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

use netblt::net::addresses::own_addresses;
use netblt::{
    Cancel, Destination, Error, Expected, Observer, Options, Progress, Rendezvous, Selection,
    Source, Summary, Ticket, Warning,
};
use netblt_proto::api::Reason;
use netblt_proto::config::Secret;

use crate::cp::channel::{Frame, FrameReader, FrameWriter};
use crate::cp::gather::{Found, Landing, names};
use crate::cp::listed::Listed;
use crate::cp::probe::{Prober, Side, no_socket, plausible};
use crate::cp::standing::{self, Existing, Told};
use crate::cp::tunnel::Tunnel;
use crate::cp::words::{
    Came, Done, Job, MARK, Moved, Order, Plan, Start, Third, Udp, WORDS, Way, Word,
};
use crate::exit::{Code, Failure};
use crate::{args, choice, secrecy, signals};

/// The other side of `netblt cp`, which starts it through ssh
///
/// It speaks with `netblt cp` over its standard input and output, and is of no use otherwise.
#[derive(clap::Args, Debug)]
#[command(hide = true)]
pub(crate) struct Args {}

/// How often a wait looks whether it is to be given up.
const STEP: Duration = Duration::from_millis(50);
/// How long the near end may take to find a way; it takes seconds.
const WAY: Duration = Duration::from_secs(120);
/// After its input has ended: until it no longer waits for the other end, and until it is gone.
const HURRY: Duration = Duration::from_secs(2);
const GONE: Duration = Duration::from_secs(4);

pub(crate) fn run(_: &Args) -> Code {
    secrecy::keep();
    let cancel = Cancel::default();
    let out = FrameWriter::new(io::stdout());
    let hello = Word::Hello {
        words: WORDS,
        wire: netblt_proto::wire::sealed::VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    if let Err(failure) = signals::watch(&cancel, false) {
        return failure.code;
    }
    if out.raw(MARK).and_then(|()| out.word(&hello)).is_err() {
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
    let far = Far { out: out.clone(), orders, tunnel, cancel, passed };
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
    let code = Code::of(done.code);
    match out.word(&Word::Done(done)) {
        Ok(()) => code,
        Err(_) => Code::Stream,
    }
}

/// A failure, and whether it only repeats the near end's.
struct Failed {
    failure: Failure,
    echo: bool,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { failure, echo: false }
    }
}

struct Far {
    out: FrameWriter,
    orders: Receiver<Order>,
    tunnel: Arc<OnceLock<Tunnel>>,
    cancel: Cancel,
    /// Files passed over, since they stand at the near end.
    passed: Arc<AtomicU64>,
}

/// What this end does.
enum Part {
    Send(Selection),
    Receive(PathBuf),
}

impl Far {
    fn run(&self) -> Result<(Code, u64), Failed> {
        let start = match self.order()? {
            Order::Start(start) => start,
            _ => return Err(out_of_place()),
        };
        let mut options = start.options();
        if let Job::Receive { .. } = start.job {
            // Its sender was told the ceiling, too, and may be told another one on the way: what
            // both agree on at the opening could only be lowered.
            options.policy = options.policy.with_ceiling(None);
        }
        let (mut part, plan, skipped) = self.understand(&start, &mut options)?;
        let family = (start.ipv4, start.ipv6);
        let side = if start.third == Some(Third::Near) { Side::Near } else { Side::Far };
        let bind = |udp: &Udp| Prober::bind(udp.ports, family, (&start.secret, side));
        let prober = start.udp.as_ref().and_then(|udp| {
            let failed = |error| no_socket(udp.ports, &error).message;
            let warn = |error| drop(self.out.word(&Word::Warning(failed(error))));
            bind(udp).map_err(warn).ok()
        });
        let port = prober.as_ref().and_then(|prober| prober.port().ok()).unwrap_or(0);
        let addresses = addresses(&start);
        self.say(&Word::Ready { addresses, port, plan })?;
        self.compare(&mut part, start.existing)?;
        if start.dry_run {
            return self.list(part).map(|()| (Code::Success, skipped));
        }
        let way = match (prober, &start.udp) {
            (Some(prober), Some(udp)) => {
                // The other end is where ssh comes from, unless that only introduces the two.
                let client = ssh_connection().map(|(client, _)| client);
                let client = client.filter(|_| start.third.is_none());
                self.answer(&prober, udp, client, &mut options)?
            }
            _ => self.wait_way(None, &mut options)?,
        };
        let rendezvous = self.rendezvous(&way, port, Secret(start.secret), &mut options)?;
        let watched = start.third.is_some() && matches!(part, Part::Receive(_));
        let summary = self.transfer(part, &rendezvous, &options, watched)?;
        if watched {
            self.say(&Word::Summary(Came::of(&summary)))?;
        }
        let skipped = skipped + summary.skipped;
        Ok((if skipped > 0 { Code::Partial } else { Code::Success }, skipped))
    }

    /// What the operands mean here, and how many sources are left out.
    fn understand(
        &self,
        start: &Start,
        options: &mut Options,
    ) -> Result<(Part, Plan, u64), Failed> {
        let file_failure = |text: String| Failure::new(Code::File, text);
        match &start.job {
            Job::Receive { target, several, directory, names, preserve, max_files } => {
                let landing = Landing::of(target, *several, *directory).map_err(file_failure)?;
                options.overwrite = start.existing.overwrite();
                (options.preserve, options.keep_times) = (*preserve, *preserve);
                options.max_files = *max_files;
                let names = landing.name.as_ref().map_or(&names[..], std::slice::from_ref);
                options.coming = (!names.is_empty()).then(|| names.iter().cloned().collect());
                let plan = Plan::Receive { rename: landing.name };
                Ok((Part::Receive(landing.directory), plan, 0))
            }
            Job::Send {
                sources,
                rename,
                directories,
                exclude,
                listed,
                follow,
                allow_changes,
                chmod,
            } => {
                let mut listed = listed.then(|| self.hear_list()).transpose()?;
                let found = match (&mut listed, sources.first()) {
                    (Some(listed), Some(source)) => Found::listed(source, listed),
                    _ => Found::look(sources, *directories, true),
                };
                let found = found.map_err(file_failure)?;
                for text in &found.skipped {
                    self.say(&Word::Warning(format!("skipped {text}")))?;
                }
                if found.sources.is_empty() {
                    let nothing = Failure::new(Code::Partial, "there is nothing to copy");
                    return Err(nothing.into());
                }
                let items = found.items(rename.clone()).map_err(file_failure)?;
                // The near end knows what it has listed.
                let names = if listed.is_some() { Vec::new() } else { names(&items) };
                let plan = Plan::Send { names };
                let (only, exclude) = (listed.as_ref().map(Listed::only), exclude.clone());
                let modes = chmod.as_deref().map(choice::modes).transpose()?;
                let (follow, pass) = (*follow, None);
                let (items, contents) = (items.named, items.contents);
                let (range, allow_changes) = (None, *allow_changes);
                let selection = Selection {
                    items,
                    contents,
                    exclude,
                    only,
                    follow,
                    allow_changes,
                    pass,
                    modes,
                    range,
                };
                Ok((Part::Send(selection), plan, found.skipped.len() as u64))
            }
        }
    }

    fn hear_list(&self) -> Result<Listed, Failed> {
        let mut listed = Listed::default();
        loop {
            let Order::Listed { names, last } = self.order()? else { return Err(out_of_place()) };
            listed.join(names);
            if last {
                return Ok(listed);
            }
        }
    }

    /// What stands at the destination and is not to be replaced is passed over by the sender,
    /// whichever end that is.
    fn compare(&self, part: &mut Part, existing: Existing) -> Result<(), Failed> {
        if existing == Existing::Replace {
            return Ok(());
        }
        match part {
            Part::Receive(directory) => {
                let (mut all, mut whole) = (Vec::new(), false);
                while !whole {
                    let Order::Look { names, last } = self.order()? else {
                        return Err(out_of_place());
                    };
                    all.extend(names);
                    whole = last;
                }
                let pieces = standing::told(directory, &all, existing);
                pieces.into_iter().try_for_each(|piece| self.say(&Word::Standing(piece)))
            }
            Part::Send(selection) => {
                let mut told = Told::default();
                let mut whole = false;
                while !whole {
                    let Order::Standing(piece) = self.order()? else { return Err(out_of_place()) };
                    whole = told.add(piece).map_err(|()| out_of_place())?;
                }
                selection.pass = Some(told.pass(existing, &self.passed));
                Ok(())
            }
        }
    }

    fn list(&self, part: Part) -> Result<(), Failed> {
        if let Part::Send(selection) = part {
            let preview = netblt::preview(selection, &self.cancel)
                .map_err(|error| Failure::transfer(&error, false))?;
            for offered in preview.offered {
                let (directory, length) = (offered.directory, offered.length);
                self.say(&Word::Listed { name: offered.name, directory, length })?;
            }
        }
        Ok(())
    }

    /// Asks and answers until the near end has decided.
    fn answer(
        &self,
        prober: &Prober,
        udp: &Udp,
        client: Option<IpAddr>,
        options: &mut Options,
    ) -> Result<Way, Failed> {
        let (mut udp, mut told) = (udp.clone(), false);
        loop {
            // Of a third machine the caller has looked at them.
            let loopback = client.is_none_or(|client| client.is_loopback());
            let theirs = plausible(client, udp.addresses.iter().copied(), loopback, |_| true);
            let peers = theirs.into_iter().map(|ip| SocketAddr::new(ip, udp.port));
            let peers: Vec<_> = peers.collect();
            let turn = |heard: Option<SocketAddr>| {
                if let Some(address) = heard.filter(|_| !std::mem::replace(&mut told, true)) {
                    let _ = self.out.word(&Word::Heard(address));
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
                // It is known now where the other end is.
                Some(Order::Other { udp: theirs, names, directories }) => {
                    expect(options, names, directories);
                    udp = theirs;
                }
                order => return self.wait_way(order, options),
            }
        }
    }

    fn wait_way(&self, order: Option<Order>, options: &mut Options) -> Result<Way, Failed> {
        match order.map_or_else(|| self.order(), Ok)? {
            Order::Go(way) => Ok(way),
            Order::Other { names, directories, .. } => {
                expect(options, names, directories);
                self.wait_way(None, options)
            }
            _ => Err(out_of_place()),
        }
    }

    fn rendezvous(
        &self,
        way: &Way,
        port: u16,
        secret: Secret,
        options: &mut Options,
    ) -> Result<Rendezvous, Failed> {
        options.port = port;
        Ok(match way {
            Way::Listen => Rendezvous::Await(secret),
            Way::Call(address) => {
                Rendezvous::Connect(Ticket { addresses: vec![address.to_string()], secret })
            }
            Way::Inside => {
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
        part: Part,
        rendezvous: &Rendezvous,
        options: &Options,
        watched: bool,
    ) -> Result<Summary, Failed> {
        let mut watch = Watch { out: self.out.clone(), watched };
        let sending = matches!(part, Part::Send(..));
        let result = match part {
            Part::Send(selection) => {
                let source = Source::Selection(selection);
                netblt::send(source, rendezvous, options, &mut watch, &self.cancel)
            }
            Part::Receive(directory) => {
                let destination = Destination::Directory(directory);
                netblt::receive(destination, rendezvous, options, &mut watch, &self.cancel)
            }
        };
        result.map_err(|error| {
            let echo = matches!(
                error,
                Error::Interrupted | Error::Ended(Reason::PeerQuit(_)) | Error::Connect { .. }
            );
            Failed { failure: Failure::transfer(&error, sending), echo }
        })
    }

    fn say(&self, word: &Word) -> Result<(), Failed> {
        self.out.word(word).map_err(|error| Failed {
            failure: Failure::new(Code::Stream, error.to_string()),
            echo: false,
        })
    }

    fn order(&self) -> Result<Order, Failed> {
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

/// Nothing comes from another far end that was not asked for.
fn expect(options: &mut Options, names: Vec<OsString>, directories: bool) {
    let names = names.into_iter().collect();
    options.expected = Some(Expected { names, directories, only: None });
}

fn out_of_place() -> Failed {
    Failure::usage("an order out of place").into()
}

/// Where the near end may find this one: the address at which it reached sshd, and all others.
fn addresses(start: &Start) -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = ssh_connection().map(|(_, server)| server).into_iter().collect();
    let family = args::family(start.ipv4, start.ipv6);
    for ip in own_addresses(Ipv6Addr::UNSPECIFIED.into(), family) {
        if !all.contains(&ip) {
            all.push(ip);
        }
    }
    all
}

/// The client's and the server's address of the ssh connection, as sshd tells them.
fn ssh_connection() -> Option<(IpAddr, IpAddr)> {
    let text = std::env::var("SSH_CONNECTION").ok()?;
    let mut words = text.split_whitespace();
    let (client, server) = (words.next()?, words.nth(1)?);
    let ip = |text: &str| text.split('%').next()?.parse::<IpAddr>().ok();
    Some((ip(client)?.to_canonical(), ip(server)?.to_canonical()))
}

/// Takes what ssh brings. When that ends, so does everything here.
fn listen(
    stdin: Stdin,
    orders: &Sender<Order>,
    tunnel: &OnceLock<Tunnel>,
    cancel: &Cancel,
    over: &AtomicBool,
) {
    let mut reader = FrameReader::new(stdin.lock());
    while let Ok(Some(frame)) = reader.next() {
        match frame {
            Frame::Word(order) => drop(orders.send(order)),
            Frame::Datagram => {
                tunnel.get().iter().for_each(|tunnel| tunnel.deliver(reader.datagram()));
            }
        }
    }
    cancel.cancel();
    thread::sleep(HURRY);
    cancel.hurry();
    thread::sleep(GONE - HURRY);
    if !over.load(Ordering::SeqCst) {
        process::exit(Code::Signal.number().into());
    }
}

/// Tells the near end what it has to know of the transfer here.
struct Watch {
    out: FrameWriter,
    /// The near end only watches: it is told how far this is.
    watched: bool,
}

impl Observer for Watch {
    fn listening_at(&mut self, _: SocketAddr) {
        let _ = self.out.word(&Word::Listening);
    }

    fn progress(&mut self, progress: &Progress) {
        if self.watched {
            let _ = self.out.word(&Word::Progress(Moved::of(progress)));
        }
    }

    fn warn(&mut self, warning: &Warning) {
        let _ = self.out.word(&Word::Warning(warning.to_string()));
    }
}
