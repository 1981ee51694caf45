//! The whole job: send or receive, from the meeting to the verdict.

use std::net::SocketAddr;
use std::time::Duration;

use netblt_proto::config::{Config, NO_LIMIT, Policy, Role, Secret, Wire};
use netblt_proto::rate::{burst_for, burst_in_millis};
use netblt_proto::stats::Stats;
use netblt_proto::wire::data_overhead;
use netblt_proto::wire::packet::Burst;

use crate::course::Course;
use crate::disk::Reader;
use crate::driver::{self, Clock, Host};
use crate::error::Error;
use crate::layout::Layout;
use crate::meeting;
use crate::options::{Cancel, Destination, Family, Meeting, Options, Rfc998, Source};
use crate::plan::Plan;
use crate::race::Race;
use crate::raw_ip;
use crate::receiving::Receiving;
use crate::sending::Sending;
use crate::sink::SinkWriter;
use crate::socket::{Bind, Socket};
use crate::source::SourceReader;
use crate::summary::{Facts, summary};
use crate::ticket::Ticket;
use crate::trace_file::TraceFile;
use crate::wait::Poller;

/// Bytes of IP header, and of UDP header.
const IPV4_HEADER: u32 = 20;
const IPV6_HEADER: u32 = 40;
const UDP_HEADER: u32 = 8;

/// Hears what a transfer does. Called from the transfer's own thread; must not block.
pub trait Observer: Send {
    /// Listening: give this to the other side.
    fn listening(&mut self, ticket: &Ticket);
    /// Listening without a ticket ([`Meeting::Passive`]) at this address; on raw IP its port is
    /// the NETBLT port.
    fn listening_at(&mut self, address: SocketAddr) {
        let _ = address;
    }
    /// The connection is open.
    fn connected(&mut self, peer: &str);
    /// About ten times a second.
    fn progress(&mut self, progress: &Progress);
    /// Nothing heard for three seconds (true), or heard again (false).
    fn silent(&mut self, silent: bool);
    /// The peer was started again, and the transfer starts over.
    fn restarted(&mut self);
    /// Something the user should know that ends nothing (a file skipped, ...).
    fn warn(&mut self, message: &str);
}

/// How far a transfer is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// File bytes accepted (sender) or stored (receiver).
    pub bytes: u64,
    /// File bytes in all, if known.
    pub total: Option<u64>,
    /// Since the connection opened.
    pub elapsed: Duration,
    /// The machine's counts.
    pub stats: Stats,
}

/// What limited the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitedBy {
    /// The path.
    Path,
    /// The sender's disk or pipe.
    SenderDisk,
    /// The receiver's disk or pipe, or its number of buffers.
    ReceiverDisk,
    /// A processor at either end.
    Cpu,
    /// The rate that was asked for.
    RateCap,
    /// Nothing: over before it got going (round trips).
    RoundTrips,
}

/// How a transfer went.
#[derive(Clone, Debug)]
pub struct Summary {
    /// File bytes transferred.
    pub bytes: u64,
    /// Files transferred.
    pub files: u64,
    /// From the opening of the connection to its end.
    pub elapsed: Duration,
    /// RFC 1030's real throughput: bytes over all of the time, in bit/s.
    pub real_bps: f64,
    /// RFC 1030's steady-state throughput, in bit/s: without set-up and without the recovery
    /// after the last buffer's first pass.
    pub steady_bps: f64,
    /// Whether every byte is stored, flushed and its digest agreed.
    pub verified: bool,
    /// The transfer's digest.
    pub digest: [u8; 32],
    /// What limited it.
    pub limited_by: LimitedBy,
    /// The machine's counts.
    pub stats: Stats,
}

/// Sends `source`; blocks until the receiver's verdict is here.
pub fn send(
    source: &Source,
    meeting: &Meeting,
    options: &Options,
    observer: &mut dyn Observer,
    cancel: &Cancel,
) -> Result<Summary, Error> {
    let plan = Plan::new(source)?;
    plan.warnings().iter().for_each(|warning| observer.warn(warning));
    let transfer_bytes = plan.total_bytes();
    let config = config(options, Role::Sender, transfer_bytes);
    let reader = reader(&plan, &config)?;
    let (mut host, mut peer) = meet(meeting, options, &config, observer)?;
    let course = Course::new(observer, cancel, &config);
    let stock = (options.buffers, capacity(&config));
    let waker = host.poller.waker();
    let mut app = Sending::new(course, reader, stock, transfer_bytes, waker);
    let sent = driver::run(&mut peer, &mut app, &mut host)??;
    let stats = peer.view().map(|end| end.stats(sent.at)).unwrap_or_default();
    let elapsed = sent.at.since(stats.opened_at.unwrap_or_default());
    Ok(summary(Facts {
        config: &config,
        stats,
        at: sent.at,
        bytes: sent.end.map_or(0, |end| end.bytes),
        files: plan.files(),
        verified: sent.verdict.is_some_and(|verdict| verdict.verified),
        digest: sent.end.map_or([0; 32], |end| end.digest),
        cpu_share: app.course.cpu_share(elapsed),
        stalled: Duration::ZERO,
    }))
}

/// Receives into `destination`; blocks until everything is verified and has its final name.
pub fn receive(
    destination: &Destination,
    meeting: &Meeting,
    options: &Options,
    observer: &mut dyn Observer,
    cancel: &Cancel,
) -> Result<Summary, Error> {
    let config = config(options, Role::Receiver, None);
    let writer = SinkWriter::new(destination, options, layout(&config)?)?;
    let (mut host, mut peer) = meet(meeting, options, &config, observer)?;
    let course = Course::new(observer, cancel, &config);
    let stock = (options.buffers, capacity(&config));
    let mut app = Receiving::new(course, writer, stock, host.poller.waker());
    let received = driver::run(&mut peer, &mut app, &mut host)??;
    let stats = peer.view().map(|end| end.stats(received.at)).unwrap_or_default();
    let elapsed = received.at.since(stats.opened_at.unwrap_or_default());
    Ok(summary(Facts {
        config: &config,
        stats,
        at: received.at,
        bytes: received.outcome.bytes,
        files: received.outcome.files,
        verified: received.outcome.verified,
        digest: received.outcome.digest,
        cpu_share: app.course.cpu_share(elapsed),
        stalled: received.stalled,
    }))
}

fn reader(plan: &Plan, config: &Config) -> Result<impl Reader, Error> {
    let layout = layout(config)?;
    match config.wire {
        Wire::Sealed => SourceReader::sealed(plan.clone(), layout),
        Wire::Rfc998 => SourceReader::plain(plan.clone(), layout),
    }
}

fn layout(config: &Config) -> Result<Layout, Error> {
    match config.wire {
        Wire::Sealed => Layout::sealed(config.buffer_bytes, config.table_bytes),
        Wire::Rfc998 => Ok(Layout::plain(config.buffer_bytes)),
    }
}

/// Bytes that a buffer of this process can hold: as many as it would ever agree to.
fn capacity(config: &Config) -> usize {
    config.buffer_bytes as usize + config.table_bytes as usize
}

/// The configuration for any peer; [`for_peer`] adds what depends on who it is.
pub(crate) fn config(options: &Options, role: Role, transfer_bytes: Option<u64>) -> Config {
    let mut config = Config::new(options.wire, role);
    config.buffer_bytes = options.buffer_bytes;
    config.max_outstanding = options.buffers;
    config.death_timer = options.death_timer;
    config.policy = options.policy;
    let own_name = concat!("netblt ", env!("CARGO_PKG_VERSION"));
    config.client = options.client.clone().unwrap_or_else(|| own_name.to_owned());
    config.transfer_bytes = transfer_bytes;
    config.trace = options.trace.is_some();
    config.checksum = !options.rfc998.no_checksum;
    // Until the peer is known, the larger header.
    config.datagram_bytes = datagram_bytes(options, true).unwrap_or(config.datagram_bytes);
    if let Some(burst) = burst(options, role, config.datagram_bytes) {
        config.burst = burst;
    }
    config
}

/// The size of datagrams, if any was asked for.
fn datagram_bytes(options: &Options, v6: bool) -> Option<u32> {
    let packet = options.packet_bytes;
    let packet = packet.map(|bytes| u32::from(bytes) + data_overhead(options.wire));
    let mtu = options.mtu.map(|mtu| u32::from(mtu).saturating_sub(overhead_bytes(options, v6)));
    packet.or(mtu)
}

/// The burst values to propose, if they are not the default.
fn burst(options: &Options, role: Role, datagram_bytes: u32) -> Option<Burst> {
    let packet_bytes = datagram_bytes + overhead_bytes(options, false);
    let rate = match (role, options.wire, options.policy) {
        // A ceiling is that of whoever sends. The sender's own is its own business, but on `rfc998`
        // receivers make their data timers of it.
        (Role::Receiver, _, Policy::Fair { ceiling })
        | (Role::Sender, Wire::Rfc998, Policy::Fair { ceiling }) => options.rate.or(ceiling),
        _ => options.rate,
    };
    let made = rate.map(|rate| match options.wire {
        Wire::Sealed => burst_for(rate, packet_bytes),
        Wire::Rfc998 => burst_in_millis(rate, packet_bytes),
    });
    // The least that this wire can say: to some an interval of nothing makes no sense.
    let no_limit = Burst { interval: Duration::from_millis(1), ..NO_LIMIT };
    let no_limit = (options.wire == Wire::Rfc998 && role == Role::Receiver).then_some(no_limit);
    options.burst.or(made).or(no_limit)
}

/// Bytes of IP and UDP header on each datagram.
fn overhead_bytes(options: &Options, v6: bool) -> u32 {
    let ip = if v6 { IPV6_HEADER } else { IPV4_HEADER };
    ip + if options.rfc998.raw_ip { 0 } else { UDP_HEADER }
}

/// What depends on the peer's IP version.
pub(crate) fn for_peer(
    config: &Config,
    options: &Options,
    secret: Option<Secret>,
    v6: bool,
) -> Config {
    let datagram_bytes = datagram_bytes(options, v6).unwrap_or(config.datagram_bytes);
    let overhead_bytes = overhead_bytes(options, v6);
    Config { secret, overhead_bytes, datagram_bytes, ..config.clone() }
}

/// Opens what is needed to talk, and begins to: prints a ticket or follows one, or waits at an
/// address or goes to one.
pub(crate) fn meet(
    meeting: &Meeting,
    options: &Options,
    config: &Config,
    observer: &mut dyn Observer,
) -> Result<(Host, Race), Error> {
    let trace = options.trace.as_deref().map(TraceFile::create).transpose()?;
    let clock = Clock::start();
    let (socket, peer) = match (meeting, options.wire) {
        (Meeting::Listen, Wire::Sealed) => listen(options, config, clock, observer)?,
        (Meeting::Connect(ticket), Wire::Sealed) => {
            connect(ticket, options, config, clock, observer)?
        }
        (Meeting::Passive(address), Wire::Rfc998) => {
            wait_at(address, options, config, clock, observer)?
        }
        (Meeting::Active(address), Wire::Rfc998) => {
            call(address, options, config, clock, observer)?
        }
        (Meeting::Listen | Meeting::Connect(_), Wire::Rfc998) => {
            return Err(Error::Usage("tickets are for the sealed wire".to_owned()));
        }
        (Meeting::Passive(_) | Meeting::Active(_), Wire::Sealed) => {
            return Err(Error::Usage("the sealed wire meets by ticket".to_owned()));
        }
    };
    let poller = Poller::new()
        .map_err(|source| Error::Socket { what: "cannot make a waker".to_owned(), source })?;
    Ok((Host { socket, poller, clock, trace }, peer))
}

fn listen(
    options: &Options,
    config: &Config,
    clock: Clock,
    observer: &mut dyn Observer,
) -> Result<(Socket, Race), Error> {
    let socket = Socket::bind(&Bind {
        address: options.bind,
        port: options.port,
        family: options.family,
        answering: true,
        ..Bind::default()
    })?;
    let secret = Secret(meeting::entropy()?);
    // Who will come is not known: on a socket for both versions, the larger headers count.
    let config = for_peer(config, options, Some(secret), socket.local().is_ipv6());
    let peer = Race::listen(config, clock.now(), meeting::entropy()?);
    observer.listening(&meeting::ticket(&socket, options, secret)?);
    Ok((socket, peer))
}

fn connect(
    ticket: &Ticket,
    options: &Options,
    config: &Config,
    clock: Clock,
    observer: &mut dyn Observer,
) -> Result<(Socket, Race), Error> {
    let warn = |text: &str| observer.warn(text);
    let addresses = meeting::resolve(&ticket.addresses, options.family, warn)?;
    let (address, port, family) = (options.bind, options.port, family(&addresses));
    let socket = Socket::bind(&Bind { address, port, family, ..Bind::default() })?;
    let candidates = meeting::candidates(&socket, &addresses, |address| {
        for_peer(config, options, Some(ticket.secret), address.is_ipv6())
    })?;
    Ok((socket, Race::connect(candidates, clock.now())))
}

/// The passive end of `rfc998`.
fn wait_at(
    address: &str,
    options: &Options,
    config: &Config,
    clock: Clock,
    observer: &mut dyn Observer,
) -> Result<(Socket, Race), Error> {
    let warn = |text: &str| observer.warn(text);
    let own = meeting::resolve(&[address.to_owned()], options.family, warn)?;
    let own = own.first().ok_or_else(|| Error::Usage(format!("{address} is no address")))?;
    let socket = Socket::bind(&Bind {
        address: Some(own.ip()),
        port: own.port(),
        family: options.family,
        answering: true,
        raw_ip: options.rfc998.raw_ip,
        only: options.rfc998.port,
    })?;
    let config = for_peer(config, options, None, socket.local().is_ipv6());
    let peer = Race::listen(config, clock.now(), meeting::entropy()?);
    observer.listening_at(socket.local());
    Ok((socket, peer))
}

/// The active end of `rfc998`.
fn call(
    address: &str,
    options: &Options,
    config: &Config,
    clock: Clock,
    observer: &mut dyn Observer,
) -> Result<(Socket, Race), Error> {
    let Rfc998 { raw_ip, port: own_port, peer_port, .. } = options.rfc998;
    let warn = |text: &str| observer.warn(text);
    let mut addresses = meeting::resolve(&[address.to_owned()], options.family, warn)?;
    let mut port = options.port;
    if raw_ip {
        addresses = meeting::of_one_version(addresses);
        port = own_port.map_or_else(|| meeting::entropy().map(raw_ip::any_port), Ok)?;
    }
    let (address, family) = (options.bind, family(&addresses));
    let socket = Socket::bind(&Bind { address, port, family, raw_ip, ..Bind::default() })?;
    let own_port = own_port.unwrap_or(socket.local().port());
    let candidates = meeting::candidates(&socket, &addresses, |address| {
        let config = for_peer(config, options, None, address.is_ipv6());
        let theirs = peer_port.filter(|_| !raw_ip).unwrap_or(address.port());
        Config { ports: (own_port, theirs), ..config }
    })?;
    Ok((socket, Race::connect(candidates, clock.now())))
}

/// The IP versions that a socket needs for `addresses`.
fn family(addresses: &[SocketAddr]) -> Family {
    if addresses.iter().all(SocketAddr::is_ipv4) {
        Family::V4
    } else if addresses.iter().all(SocketAddr::is_ipv6) {
        Family::V6
    } else {
        Family::Any
    }
}
