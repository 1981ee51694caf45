//! The common options of the commands: those of a connection, of the output, and of the ticket.
//! Those of `--wire rfc998` alone are in [`crate::rfc998`].

use std::env;
use std::ffi::OsStr;
use std::io::{self, BufRead as _, Read as _};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use netblt::ticket::{self, Ticket};
use netblt::{
    BufferOptions, Extras, Family, FecPercent, FecPolicy, Options, ParallelStreams, Policy, Rate,
    Rendezvous, Resume,
};
use netblt_proto::config::Wire;
use netblt_proto::limits::{DEFAULT_TABLE_BYTES, MAX_CLIENT, MAX_OUTSTANDING, MAX_SUBFLOWS};
use netblt_proto::wire::packet::Burst;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::exit::Failure;
use crate::rfc998::{Given, Rfc998Args};
use crate::units;

/// The variable that holds the ticket, out of sight of other users.
pub(crate) const TICKET_VARIABLE: &str = "NETBLT_TICKET";

/// How the ticket reaches send and receive alike; part of their help.
pub(crate) const TICKET_HELP: &str = "\
The ticket:
  Anyone with the ticket can take the listening side's place in the transfer, once. Put it into the
  variable NETBLT_TICKET, or give --ticket-stdin and write it to standard input as one line, which
  keeps it out of the shell's history too. It may also be an argument, but arguments are visible to
  everyone on this machine (ps). An argument beats the variable. If neither is given, this side
  listens.
";

/// The extra attributes of files.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ExtraArgs {
    /// Keep owner and group, by their names where both machines know them
    ///
    /// Only root may give files away. A user may give files to groups that the user is in.
    /// Attributes that cannot be set are named, and the exit code is 23. With tickets both sides
    /// need the option.
    #[arg(long)]
    owner: bool,
    /// Keep extended attributes of the namespace "user"
    ///
    /// No others: capabilities and security labels are never copied. Tickets: both sides have to be
    /// asked for it.
    #[arg(long)]
    xattrs: bool,
    /// Keep access lists (POSIX ACLs), and permissions with them
    ///
    /// Their users and groups are numbers, and stay the same. Tickets: both sides have to be asked
    /// for it.
    #[arg(long)]
    acls: bool,
}

impl From<ExtraArgs> for Extras {
    fn from(extra: ExtraArgs) -> Self {
        Self { owner: extra.owner, xattrs: extra.xattrs, acls: extra.acls }
    }
}

/// The connection.
#[derive(Args, Debug)]
#[command(next_help_heading = "Connection")]
pub(crate) struct NetworkArgs {
    /// Local UDP port; 0 lets the system choose
    #[arg(long, value_name = "PORT", default_value_t = 0,
          value_parser = units::number::<u16>(0, 65_535))]
    port: u16,
    /// Local address to use
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Put this address into the ticket instead of this machine's own; may be repeated
    ///
    /// For a machine behind a router that forwards a port to it. Without a port, --port is meant.
    #[arg(long, value_name = "HOST[:PORT]")]
    advertise: Vec<String>,
    /// Use IPv4 only
    #[arg(short = '4', long = "ipv4", conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6 only
    #[arg(short = '6', long = "ipv6")]
    ipv6: bool,
    /// Size of the IP packets to send, in bytes, at most [default: 16384; rfc998: 1260]
    ///
    /// The largest that the path takes are found, up to this size, and followed when it changes.
    /// With --wire rfc998 it is fixed from the start.
    #[arg(long, value_name = "BYTES", value_parser = units::number::<u16>(576, 65_535))]
    mtu: Option<u16>,
    /// How long a silent other side, or one that gets nowhere, is waited for (1s to 49d)
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = units::death_timer)]
    death_timer: Duration,
    /// While listening: how long to wait for the other side to come; none: until Ctrl-C
    /// [default: 1d]
    #[arg(long, value_name = "TIME", value_parser = units::patience)]
    wait: Option<units::Patience>,
    /// Bytes in a buffer, a power of two from 1KiB to 64MiB; the smaller of both sides counts
    /// [default: 1MiB; rfc998: 64KiB]
    ///
    /// With --wire rfc998 any size from 16B to 64MiB; there a loss is repaired, and the rate found,
    /// once a buffer, so that small ones are faster.
    #[arg(long, value_name = "SIZE", value_parser = units::buffer_bytes)]
    buffer_size: Option<u32>,
    /// Buffers to have, 1 to 4096: bounds the data in flight, and the memory [default: 48, and more
    /// where the path holds more, up to --memory; rfc998: up to 512, of 32MiB]
    ///
    /// RFC 998's maximum number of outstanding buffers; the smaller of both sides counts.
    #[arg(long, value_name = "N", conflicts_with = "memory",
          value_parser = units::number::<u32>(1, MAX_OUTSTANDING.into()))]
    buffers: Option<u32>,
    /// Memory for buffers, at most [default: 512MiB]
    ///
    /// There are 48 buffers at first. More are made where the path can use them: up to twice the
    /// data of a round trip, within the bounds of both sides.
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    memory: Option<u64>,
    /// Parallel streams, 1 to 32, or "auto" [default: auto]; the smaller of both sides counts
    ///
    /// Each stream is a connection with a processor of its own at either side, for rates above
    /// what one processor carries (5 to 15 Gbit/s). All streams share one rate, and are one flow
    /// to others on the path. "auto" begins with one, and adds more while a processor is the
    /// limit, others are idle, and the last ones brought a gain. With fewer than four processors
    /// it is 1.
    #[arg(long, value_name = "N", value_parser = streams)]
    streams: Option<ParallelStreams>,
    /// Packets in a burst; a receiver's is the most that it lets the sender send
    #[arg(long, value_name = "N", requires = "burst_interval",
          value_parser = units::number::<u16>(1, 65_535))]
    burst_size: Option<u16>,
    /// From the start of one burst to the start of the next (to 65s; rfc998: whole milliseconds)
    #[arg(long, value_name = "TIME", requires = "burst_size",
          value_parser = units::burst_interval)]
    burst_interval: Option<Duration>,
    /// A text for the other side's program [default: the name of this one]
    #[arg(long, value_name = "TEXT", value_parser = client)]
    client: Option<String>,
    /// How packets look: both sides must agree
    #[arg(long, value_name = "WIRE", value_enum, default_value_t = WireName::Sealed)]
    pub(crate) wire: WireName,
    /// Write trace events to FILE (JSON lines)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    plain: Rfc998Args,
}

/// One that is being filled, one in flight, and one whose GO is in flight.
const LEAST_BUFFERS: u32 = 3;

/// `--streams`: `auto`, or how many.
pub(crate) fn streams(text: &str) -> Result<ParallelStreams, String> {
    match (text, text.parse()) {
        ("auto", _) => Ok(ParallelStreams::Auto),
        (_, Ok(count @ 1..=MAX_SUBFLOWS)) => Ok(ParallelStreams::Most(count)),
        _ => Err(format!("it is auto, or a number from 1 to {MAX_SUBFLOWS}")),
    }
}

/// The client string of OPEN and RESPONSE.
fn client(value: &str) -> Result<String, String> {
    if value.len() > MAX_CLIENT || value.contains('\0') {
        return Err(format!("at most {MAX_CLIENT} bytes, none of them zero"));
    }
    Ok(value.to_owned())
}

/// The two wires (`docs/protocol §2, §3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WireName {
    /// Encrypted, authenticated and verified
    Sealed,
    /// RFC 998 to the byte, for other implementations of it: one file or stream IN THE CLEAR, not
    /// encrypted, not authenticated, not verified
    Rfc998,
}

/// `--fec`: `auto`, `never`, or a share in percent.
pub(crate) fn repair(text: &str) -> Result<FecPolicy, String> {
    let percent = |digits: &str| digits.parse().ok().and_then(FecPercent::percent);
    match text {
        "auto" => Ok(FecPolicy::Auto),
        "never" => Ok(FecPolicy::Never),
        _ => text.strip_suffix('%').and_then(percent).map(FecPolicy::Share).ok_or_else(|| {
            format!("it is auto, never, or a share from 1% to {}%", FecPercent::MAX)
        }),
    }
}

/// A background sender sends nothing that is not necessary (`docs/protocol §6.10`).
pub(crate) fn check_repair(repair: Option<FecPolicy>, background: bool) -> Result<(), Failure> {
    match repair {
        Some(FecPolicy::Auto | FecPolicy::Share(_)) if background => Err(Failure::usage(
            "--fec sends more than must be, which --policy background never does",
        )),
        _ => Ok(()),
    }
}

impl WireName {
    pub(crate) fn wire(self) -> Wire {
        match self {
            Self::Sealed => Wire::Sealed,
            Self::Rfc998 => Wire::Rfc998,
        }
    }

    /// The options of this wire for buffers: the bytes in each, how many there are, and how much
    /// memory they may take.
    pub(crate) fn stock(
        self,
        bytes: Option<u32>,
        count: Option<u32>,
        memory: Option<u64>,
    ) -> Result<Options, Failure> {
        let mut options = Options::new(self.wire());
        options.buffers.bytes = bytes.unwrap_or(options.buffers.bytes);
        let bytes = options.buffers.bytes;
        options.buffers.count =
            count.unwrap_or_else(|| BufferOptions::default_count(self.wire(), bytes));
        match self {
            Self::Sealed => units::sealed_buffer_bytes(bytes)?,
            Self::Rfc998 if memory.is_some() => {
                return Err(Failure::usage("--memory is for --wire sealed; --buffers is for both"));
            }
            Self::Rfc998 => {}
        }
        if count.is_some() {
            options.buffers.memory = 0;
        }
        if let Some(memory) = memory {
            let held = memory / (u64::from(bytes) + u64::from(DEFAULT_TABLE_BYTES));
            let held = u32::try_from(held).unwrap_or(u32::MAX);
            if held < LEAST_BUFFERS {
                return Err(Failure::usage(format!(
                    "--memory: {} does not hold {LEAST_BUFFERS} buffers of {}; a smaller \
                     --buffer-size would fit",
                    units::show_bytes(memory),
                    units::size_option(bytes)
                )));
            }
            (options.buffers.count, options.buffers.memory) =
                (options.buffers.count.min(held), memory);
        }
        Ok(options)
    }
}

impl NetworkArgs {
    /// Whether the wire proves that the received data are those that were sent.
    pub(crate) fn is_verifiable(&self) -> bool {
        self.wire == WireName::Sealed
    }

    /// The burst values given, if any.
    pub(crate) fn burst(&self) -> Option<Burst> {
        let (packets, interval) = (u32::from(self.burst_size?), self.burst_interval?);
        Some(Burst { packets, interval })
    }

    /// These options, and everything else at its default.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        for text in &self.advertise {
            ticket::address(text, Some(self.port.max(1)))
                .map_err(|error| Failure::usage(format!("--advertise: {error}")))?;
        }
        match self.wire {
            WireName::Sealed => self.check_sealed()?,
            WireName::Rfc998 => self.check_rfc998()?,
        }
        let mut options = self.wire.stock(self.buffer_size, self.buffers, self.memory)?;
        options.network.port = self.port;
        options.network.bind = self.bind;
        options.network.advertise.clone_from(&self.advertise);
        options.settings.family = family(self.ipv4, self.ipv6);
        options.network.mtu = self.mtu;
        options.network.packet_bytes = self.plain.packet_bytes();
        options.settings.death_timer = self.death_timer;
        options.network.wait = self.wait.unwrap_or_default().0;
        options.trace.clone_from(&self.trace);
        options.network.burst = self.burst();
        options.settings.streams = self.streams.unwrap_or_default();
        options.network.client.clone_from(&self.client);
        options.rfc998 = self.plain.options();
        Ok(options)
    }

    fn check_sealed(&self) -> Result<(), Failure> {
        match self.plain.first_given() {
            Some(option) => Err(Failure::usage(format!("{option} is for --wire rfc998"))),
            None => Ok(()),
        }
    }

    /// Refuses options that RFC 998 has no field for.
    fn check_rfc998(&self) -> Result<(), Failure> {
        if self.streams.is_some() {
            return Err(Failure::usage("--streams: RFC 998 knows one connection for a transfer"));
        }
        if self.death_timer > Duration::from_secs(u16::MAX.into()) {
            return Err(Failure::usage(
                "--death-timer: RFC 998 can say no more than 65535 seconds (18h12m)",
            ));
        }
        if self.burst_interval.is_some_and(|time| time.subsec_nanos() % 1_000_000 != 0) {
            return Err(Failure::usage(
                "--burst-interval: RFC 998 can say whole milliseconds only",
            ));
        }
        Ok(())
    }

    /// Only the side that listens can wait for the other one.
    pub(crate) fn check_wait(&self, rendezvous: &Rendezvous) -> Result<(), Failure> {
        match self.wait {
            Some(_) if !rendezvous.listens() => Err(Failure::usage(
                "--wait bounds listening, and this side calls the one that listens; --death-timer \
                 bounds how long a silent one is waited for",
            )),
            _ => Ok(()),
        }
    }

    /// Listen, or use the ticket from `argument`, standard input or the environment. Without
    /// tickets (`rfc998`) listen at an address, or connect to the one in `call`, an option's name
    /// and its value.
    pub(crate) fn rendezvous(
        &self,
        argument: Option<&OsStr>,
        ticket_stdin: bool,
        call: (&'static str, Option<&OsStr>),
    ) -> Result<Rendezvous, Failure> {
        if self.wire == WireName::Sealed {
            return rendezvous(argument, ticket_stdin);
        }
        self.plain.rendezvous(&Given {
            call,
            ticket_stdin,
            port: self.port != 0,
            bind: self.bind.is_some(),
            advertise: !self.advertise.is_empty(),
        })
    }
}

/// The IP versions that `-4` and `-6` leave.
pub(crate) fn family(ipv4: bool, ipv6: bool) -> Family {
    match (ipv4, ipv6) {
        (true, _) => Family::V4,
        (_, true) => Family::V6,
        _ => Family::Any,
    }
}

/// What to do with what is left of a transfer that was broken off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum ResumeName {
    /// Resume from them
    #[default]
    Auto,
    /// Send everything again, and keep no parts of files
    Never,
    /// Read them again first, and resume from those that are right
    Verify,
}

impl From<ResumeName> for Resume {
    fn from(name: ResumeName) -> Self {
        match name {
            ResumeName::Auto => Self::Auto,
            ResumeName::Never => Self::Never,
            ResumeName::Verify => Self::Verify,
        }
    }
}

/// How a copy shares its path with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Sharing {
    /// Find what the path carries and share it with others
    #[default]
    Fair,
    /// Yield to all other traffic, and use only the capacity that is left
    Background,
    /// Take more than its share: others on the path are left a small part, and their queue is full
    Aggressive,
    /// CUBIC (RFC 9438): answer every loss as congestion, as TCP does
    Cubic,
}

impl Sharing {
    pub(crate) fn policy(self, ceiling: Option<Rate>) -> Policy {
        match self {
            Self::Fair => Policy::Fair { ceiling },
            Self::Background => Policy::Background { ceiling },
            Self::Aggressive => Policy::Aggressive { ceiling },
            Self::Cubic => Policy::Cubic { ceiling },
        }
    }
}

/// The default time for which parts of files are kept.
pub(crate) const KEEP_PARTIAL: &str = "7d";

/// The options of the output.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print events as JSON, one object a line, on standard output
    ///
    /// Each line is {"event":...,"data":{...}}; the last one of a successful run is the event
    /// "summary", of a failed one "error". Fields are only ever added. If standard output carries
    /// data, the events are on standard error.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress and no summary, only the ticket, warnings and errors
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Without a terminal: print a line of progress at this interval [default: 1min]
    ///
    /// With --json it is the time between two events "progress" [default: 1s].
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true,
          default_missing_value = "1min", value_parser = units::duration,
          conflicts_with = "quiet")]
    pub(crate) progress: Option<Duration>,
}

/// `--report`, where there is one transfer to report on.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct PageArgs {
    /// Draw the transfer at its end: a page of rate, losses, round trip, buffers and waits
    ///
    /// The same as `netblt-lab report transfer` makes of a trace. Unless --trace keeps the trace,
    /// it is in the directory for temporary files (TMPDIR) meanwhile.
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
}

/// Listen, or use the ticket from the argument, standard input or the environment.
fn rendezvous(argument: Option<&OsStr>, from_stdin: bool) -> Result<Rendezvous, Failure> {
    if from_stdin {
        if argument.is_some() {
            return Err(Failure::usage("a ticket is given and --ticket-stdin as well; choose one"));
        }
        return parse(&read_line()?);
    }
    if let Some(argument) = argument {
        return parse(&argument.to_string_lossy());
    }
    match env::var_os(TICKET_VARIABLE).filter(|ticket| !ticket.is_empty()) {
        Some(ticket) => parse(&ticket.to_string_lossy()),
        None => Ok(Rendezvous::Listen),
    }
}

/// Not left to clap, whose messages repeat the value, and with it the secret.
fn parse(text: &str) -> Result<Rendezvous, Failure> {
    let ticket = text.parse::<Ticket>().map_err(netblt::Error::from);
    ticket.map(Rendezvous::Connect).map_err(|error| {
        let failure = Failure::transfer(&error, false);
        // An address belongs to the wire that has one.
        let is_address = ticket::address(text, None).is_ok() && !Ticket::looks_like(text);
        let hint = if is_address { "; an address is for --wire rfc998" } else { "" };
        Failure { message: failure.message + hint, ..failure }
    })
}

fn read_line() -> Result<Zeroizing<String>, Failure> {
    let mut line = Zeroizing::new(String::with_capacity(ticket::MAX_BYTES + 2));
    let limit = ticket::MAX_BYTES as u64 + 2;
    io::stdin()
        .lock()
        .take(limit)
        .read_line(&mut line)
        .map_err(|error| Failure::usage(format!("no ticket on standard input: {error}")))?;
    Ok(line)
}
