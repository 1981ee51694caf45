//! `netblt bench`: measures a path from memory to memory.
//!
//! RFC 1030's test application with its five parameters, and iperf3's letters. Results go to
//! standard output, remarks to standard error.

mod aggregate;
mod client;
mod columns;
mod document;
mod server;

use std::ffi::OsString;
use std::net::IpAddr;
use std::time::Duration;

use netblt::bench::{Load, PORT};
use netblt::{Cancel, Options, RAW_IP_PORT};
use netblt_proto::config::Policy;
use netblt_proto::limits::{
    MAX_OUTSTANDING, MAX_SEALED_PACKET_BYTES, MIN_PACKET_BYTES, SEALED_BUFFER_BYTES,
};
use netblt_proto::units::Rate;
use netblt_proto::wire::packet::Burst;

use crate::args::{self, WireName};
use crate::commands::send::{self, PolicyName, ProtocolName};
use crate::exit::{self, Code, Failure};
use crate::outcome;
use crate::stdout::say;
use crate::{hardening, signals, units};

/// Limit on parallel connections.
const MAX_STREAMS: u8 = 32;
/// Longest test that a server accepts.
const LONGEST: Duration = Duration::from_secs(86_400);
/// Shortest interval between reports.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// Measure a path from memory to memory, with the options of iperf3 or RFC 1030
///
/// One side runs `netblt bench -s`, the other `netblt bench -c HOST`, which sends for ten seconds
/// by default. Without -s and -c both sides run here, over loopback. Received data are verified and
/// discarded.
#[derive(clap::Args, Debug)]
#[command(after_long_help = help())]
pub(crate) struct Args {
    /// Wait for tests, and print a ticket with the address
    #[arg(short, long, conflicts_with_all = ["client", "reverse", "parallel", "time", "bytes"])]
    server: bool,
    /// Test with the server on HOST[:PORT], or the one of this ticket [default: the ticket in
    /// NETBLT_TICKET]
    #[arg(short, long, value_name = "TARGET", num_args = 0..=1)]
    client: Option<Option<OsString>>,
    /// Serve one test, then exit
    #[arg(short = '1', long, requires = "server")]
    one_off: bool,
    /// Serve only clients with the ticket, not everyone who can reach the port
    #[arg(long, requires = "server")]
    private: bool,
    /// The server's UDP port [default: 9980]; with --raw-ip its NETBLT port [default: 1021]
    #[arg(short, long, value_name = "PORT", value_parser = units::number::<u16>(0, 65_535))]
    port: Option<u16>,
    #[command(flatten)]
    test: TestArgs,
    #[command(flatten)]
    connection: Connection,
    /// Interval between reports, in seconds; 0 for one report at the end
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = interval,
          help_heading = "Output")]
    interval: Duration,
    /// The results as one JSON document in the shape of iperf3's, with RFC 1030's figures added; a
    /// server writes one object a line
    #[arg(short = 'J', long, help_heading = "Output")]
    json: bool,
    /// Print only results
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,
}

/// The test.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "The test")]
struct TestArgs {
    /// How long to send, in seconds [default: 10]
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds, conflicts_with = "bytes")]
    time: Option<Duration>,
    /// Amount to send: RFC 1030's transfer size (as in iperf3, K, M and G are powers of 1024)
    #[arg(short = 'n', long, value_name = "BYTES", value_parser = bytes)]
    bytes: Option<u64>,
    /// The server sends
    #[arg(short = 'R', long)]
    reverse: bool,
    /// Number of parallel connections
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1,
          value_parser = units::number::<u8>(1, MAX_STREAMS.into()))]
    parallel: u8,
}

/// Parameters of the connections, for both sides; the more restrictive value counts.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "The connection")]
struct Connection {
    /// Maximum rate of each connection, in bits per second, headers included (K, M and G are powers
    /// of 1000)
    #[arg(short, long, value_name = "RATE", value_parser = rate)]
    bitrate: Option<Rate>,
    /// How the side that sends chooses its rate; fixed if burst values are given
    #[arg(long, value_name = "POLICY", value_enum)]
    policy: Option<PolicyName>,
    /// The sender follows another protocol's rules (see `netblt send --help`)
    #[arg(long, value_name = "NAME", value_enum, conflicts_with_all = ["policy", "burst_size"])]
    protocol: Option<ProtocolName>,
    /// Packets in a burst, 1 to 65535
    #[arg(long, value_name = "N", requires = "burst_interval", conflicts_with = "bitrate",
          value_parser = units::number::<u16>(1, 65_535))]
    burst_size: Option<u16>,
    /// Time from the start of one burst to that of the next (to 65s; rfc998: whole milliseconds)
    #[arg(long, value_name = "TIME", requires = "burst_size",
          value_parser = units::burst_interval)]
    burst_interval: Option<Duration>,
    /// Buffer size in bytes; on the sealed wire a power of two [default: 1MiB; rfc998: 64KiB]
    #[arg(long, value_name = "SIZE", value_parser = buffer_bytes)]
    buffer_size: Option<u32>,
    /// Maximum size of IP packets to send, in bytes [default: 16384; rfc998: 1260]
    #[arg(long, value_name = "BYTES", conflicts_with = "packet_size",
          value_parser = units::number::<u16>(576, 65_535))]
    mtu: Option<u16>,
    /// Maximum data bytes in a DATA packet [default: what --mtu leaves room for]
    #[arg(long, value_name = "BYTES", value_parser = units::number::<u16>(
        MIN_PACKET_BYTES.into(), MAX_SEALED_PACKET_BYTES.into()
    ))]
    packet_size: Option<u16>,
    /// Number of outstanding buffers [default: 48, and more where the path holds more, up to
    /// --memory; rfc998: up to 512, of 32MiB]
    #[arg(long, value_name = "N", conflicts_with = "memory",
          value_parser = units::number::<u32>(1, MAX_OUTSTANDING.into()))]
    buffers: Option<u32>,
    /// Maximum memory for the buffers of a connection [default: 512MiB]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    memory: Option<u64>,
    /// Packet format: both sides must agree
    #[arg(long, value_name = "WIRE", value_enum, default_value_t = WireName::Sealed)]
    wire: WireName,
    /// Directly on IP (protocol 30), without UDP; requires the privilege CAP_NET_RAW (rfc998)
    #[arg(long)]
    raw_ip: bool,
    /// Local address to use
    #[arg(short = 'B', long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Use IPv4 only
    #[arg(short = '4', long = "ipv4", conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6 only
    #[arg(short = '6', long = "ipv6")]
    ipv6: bool,
    /// Timeout for a silent peer (1s to 49d)
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = units::death_timer)]
    death_timer: Duration,
}

fn help() -> String {
    format!(
        "Examples:\n  \
         netblt bench -s                       on one machine\n  \
         netblt bench -c HOST                  on the other: ten seconds to it\n  \
         netblt bench -c HOST -R -P 4 -t 30    from it, four connections, 30 s\n  \
         netblt bench -n 1.438MB --wire rfc998 --buffer-size 14380 \\\n      \
         --packet-size 1438 --burst-size 5 --burst-interval 40ms \\\n      \
         --buffers 1                       a row of RFC 1030's tables\n\n\
         Columns:\n  \
         The last table is RFC 1030's. BS/BI: packets in a burst, and from one burst to the\n  \
         next in ms. PSZ and BFSZ: data bytes in a packet, as the path had it in the end,\n  \
         and in a buffer. XFSZ: thousands of bytes sent. NBUFS: outstanding buffers.\n  \
         #LOSS and #RXM: packets lost and sent again. DTMOS: data timeouts. SPEED and\n  \
         REAL: Mbit/s, in the steady state (from the first burst to the last one of the\n  \
         first pass, without set-up and without the recovery after it) and from the\n  \
         program's start to its finish (a server: from the call on).\n\n{}",
        exit::help()
    )
}

pub(crate) fn run(args: &Args) -> Code {
    let result = start(args);
    if args.json
        && let Err(failure) = &result
        && !failure.silent
    {
        let _ = document::print(&serde_json::json!({ "error": failure.message }));
    }
    outcome::end(result, false)
}

fn start(args: &Args) -> Result<(), Failure> {
    let cancel = Cancel::default();
    hardening::keep();
    signals::watch(&cancel, !args.quiet)?;
    if args.connection.wire == WireName::Rfc998 && !args.quiet {
        say("netblt: warning: --wire rfc998 is plaintext, and cannot prove what arrives");
    }
    match &args.client {
        _ if args.server => server::run(args, &cancel),
        Some(target) => client::run(args, target.as_deref(), &cancel),
        None => client::run_here(args, &cancel),
    }
}

impl Args {
    fn load(&self) -> Load {
        match (self.test.bytes, self.test.time) {
            (Some(bytes), _) => Load::Bytes(bytes),
            (None, time) => Load::Time(time.unwrap_or(Duration::from_secs(10))),
        }
    }
}

impl Args {
    /// The server's port: of UDP, or on IP itself of NETBLT.
    fn port(&self) -> u16 {
        self.port.unwrap_or(if self.connection.raw_ip { RAW_IP_PORT } else { PORT })
    }

    /// The options of the connections.
    fn options(&self) -> Result<Options, Failure> {
        let mut options = self.connection.options()?;
        if self.connection.raw_ip && self.port == Some(0) {
            return Err(Failure::usage("-p: the system chooses UDP ports, not NETBLT's"));
        }
        options.rfc998.raw_ip = self.connection.raw_ip;
        Ok(options)
    }
}

impl Connection {
    fn burst(&self) -> Option<Burst> {
        let (packets, interval) = (u32::from(self.burst_size?), self.burst_interval?);
        Some(Burst { packets, interval })
    }

    /// Whether the sender is fixed to burst values, whatever the path.
    fn is_fixed(&self) -> bool {
        self.policy.map_or(self.burst().is_some(), |policy| policy == PolicyName::Fixed)
    }

    fn options(&self) -> Result<Options, Failure> {
        if self.raw_ip && self.wire == WireName::Sealed {
            return Err(Failure::usage("--raw-ip is for --wire rfc998"));
        }
        let mut options = self.wire.stock(self.buffer_size, self.buffers, self.memory)?;
        if self.is_fixed() && self.burst().is_none() && self.bitrate.is_none() {
            return Err(Failure::usage(
                "--policy fixed needs a rate: -b, or --burst-size and --burst-interval",
            ));
        }
        let policy = match (self.protocol, self.is_fixed()) {
            (Some(protocol), _) => protocol.policy(self.bitrate, self.wire)?,
            (None, true) => Policy::Fixed(send::pace(self.bitrate, self.burst())?),
            (None, false) => {
                let policy = self.policy.unwrap_or(PolicyName::Fair);
                if policy != PolicyName::Fair && self.wire == WireName::Rfc998 {
                    let text = send::SEALED_ONLY;
                    return Err(Failure::usage(text));
                }
                policy.policy(self.bitrate).unwrap_or(Policy::Fair { ceiling: self.bitrate })
            }
        };
        options.network.bind = self.bind;
        (options.network.mtu, options.network.packet_bytes) = (self.mtu, self.packet_size);
        options.network.burst = self.burst().filter(|_| !self.is_fixed());
        options.settings.family = args::family(self.ipv4, self.ipv6);
        options.settings.policy = policy;
        options.settings.death_timer = self.death_timer;
        Ok(options)
    }
}

/// A number of seconds in iperf3's syntax, or with a unit.
fn seconds(value: &str) -> Result<Duration, String> {
    match value.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => Some(units::duration(value)?),
    }
    .filter(|time| *time <= LONGEST)
    .ok_or_else(|| "give seconds, from 0 to 86400".to_owned())
}

/// The report interval: not shorter than that of the connections' progress.
fn interval(value: &str) -> Result<Duration, String> {
    match seconds(value)? {
        time if time.is_zero() || time >= SHORTEST_INTERVAL => Ok(time),
        _ => Err("give 0, or from 0.1 seconds".to_owned()),
    }
}

/// The multiplier of a letter after a number.
fn letter(value: &str, base: u64) -> Option<f64> {
    let (number, power) = match value.char_indices().next_back()? {
        (at, 'k' | 'K') => (&value[..at], 1),
        (at, 'm' | 'M') => (&value[..at], 2),
        (at, 'g' | 'G') => (&value[..at], 3),
        (at, 't' | 'T') => (&value[..at], 4),
        _ => (value, 0),
    };
    let number = number.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0)?;
    Some(number * base.pow(power) as f64)
}

/// `64K` and `1G` as in iperf3, or with a unit: `1.5MB`, `1GiB`.
fn bytes(value: &str) -> Result<u64, String> {
    letter(value, 1024).map_or_else(|| units::bytes(value), |bytes| Ok(bytes as u64))
}

/// `100M` as in iperf3, or with a unit: `100Mbit`, `12MB`.
fn rate(value: &str) -> Result<Rate, String> {
    match letter(value, 1000) {
        Some(bits) if bits >= 1.0 => Ok(Rate::from_bits_per_second(bits as u64)),
        Some(_) => Err("a rate is greater than zero".to_owned()),
        None => units::rate(value),
    }
}

fn buffer_bytes(value: &str) -> Result<u32, String> {
    u32::try_from(bytes(value)?)
        .ok()
        .filter(|bytes| SEALED_BUFFER_BYTES.contains(bytes))
        .ok_or_else(|| "a buffer has from 1KiB to 64MiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_iperf3_reads_them_and_with_units() {
        assert_eq!(bytes("64K"), Ok(65_536));
        assert_eq!(bytes("1G"), Ok(1 << 30));
        assert_eq!(bytes("1.438MB"), Ok(1_438_000));
        assert_eq!(bytes("700"), Ok(700));
        assert!(bytes("-1").is_err() && bytes("K").is_err() && bytes("nanM").is_err());
        assert_eq!(rate("100M"), Ok(Rate::from_bits_per_second(100_000_000)));
        assert_eq!(rate("12MB"), Ok(Rate::from_bits_per_second(96_000_000)));
        assert!(rate("0").is_err());
        assert_eq!(seconds("2.5"), Ok(Duration::from_millis(2500)));
        assert_eq!(seconds("300ms"), Ok(Duration::from_millis(300)));
        assert!(seconds("-1").is_err() && seconds("1e30").is_err() && seconds("2d").is_err());
        assert_eq!(interval("0"), Ok(Duration::ZERO));
        assert!(interval("0.1").is_ok() && interval("0.05").is_err() && interval("1us").is_err());
    }
}
