//! The options that `--wire rfc998` adds: where the other end is, and what RFC 998's OPEN carries.

use std::ffi::OsStr;

use clap::Args;
use netblt::ticket::{self, Ticket};
use netblt::{RAW_IP_PORT, Rendezvous, Rfc998};

use crate::exit::Failure;
use crate::units;

/// Part of the help of send and receive alike.
pub(crate) const HELP: &str = "\
RFC 998 in the clear:
  With --wire rfc998 the other side may be any program that speaks RFC 998. There is no ticket: one
  side waits (--listen), the other opens the connection. Nothing is encrypted, authenticated or
  verified: anyone who reaches the address may take part, and anyone on the path may read or change
  what passes. Use it on networks that are yours alone.
";

/// The addresses and options of this wire.
#[derive(Args, Debug)]
#[command(next_help_heading = "RFC 998 (--wire rfc998)")]
pub(crate) struct Rfc998Args {
    /// Listen at this address of this machine; with --raw-ip without a port
    ///
    /// Port 0 lets the system choose; 0.0.0.0 and [::] mean all addresses.
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Directly on IP (protocol 30), without UDP; takes the privilege CAP_NET_RAW
    #[arg(long)]
    raw_ip: bool,
    /// This side's NETBLT port, if it is not its UDP port
    ///
    /// With --listen, openings for other NETBLT ports are ignored. With --raw-ip the listening side
    /// has 1021 by default, and the other one any.
    #[arg(long, value_name = "PORT", value_parser = units::number::<u16>(1, 65_535))]
    netblt_port: Option<u16>,
    /// The other side's NETBLT port, if it is not its UDP port (with --raw-ip: if it is not 1021)
    #[arg(long, value_name = "PORT", value_parser = units::number::<u16>(1, 65_535))]
    netblt_peer_port: Option<u16>,
    /// Data bytes in a DATA packet, at most; by default what --mtu leaves room for
    #[arg(long, value_name = "BYTES", conflicts_with = "mtu",
          value_parser = units::number::<u16>(1, 65_483))]
    packet_size: Option<u16>,
    /// Do not ask for checksums of the data (flag C)
    #[arg(long)]
    no_checksum: bool,
}

/// The given options for connecting on the `sealed` wire.
pub(crate) struct Given<'a> {
    /// The option that names the address to call, and its value.
    pub(crate) call: (&'static str, Option<&'a OsStr>),
    pub(crate) ticket_stdin: bool,
    /// `--port`, `--bind` and `--advertise`.
    pub(crate) port: bool,
    pub(crate) bind: bool,
    pub(crate) advertise: bool,
}

impl Rfc998Args {
    /// An option of this wire that was given, to say that it has no meaning on the other.
    pub(crate) fn first_given(&self) -> Option<&'static str> {
        [
            (self.listen.is_some(), "--listen"),
            (self.raw_ip, "--raw-ip"),
            (self.netblt_port.is_some(), "--netblt-port"),
            (self.netblt_peer_port.is_some(), "--netblt-peer-port"),
            (self.packet_size.is_some(), "--packet-size"),
            (self.no_checksum, "--no-checksum"),
        ]
        .into_iter()
        .find_map(|(given, name)| given.then_some(name))
    }

    pub(crate) fn packet_bytes(&self) -> Option<u16> {
        self.packet_size
    }

    pub(crate) fn options(&self) -> Rfc998 {
        let mut options = Rfc998::default();
        options.raw_ip = self.raw_ip;
        options.port = self.netblt_port;
        options.peer_port = self.netblt_peer_port;
        options.no_checksum = self.no_checksum;
        options
    }

    /// Which side connects, and where.
    pub(crate) fn rendezvous(&self, given: &Given<'_>) -> Result<Rendezvous, Failure> {
        let (option, call) = given.call;
        if given.ticket_stdin || call.is_some_and(|to| Ticket::looks_like(&to.to_string_lossy())) {
            return Err(Failure::usage(format!(
                "tickets are for the sealed wire; --wire rfc998 takes {option} HOST:PORT or \
                 --listen HOST:PORT"
            )));
        }
        if given.advertise {
            return Err(Failure::usage("--advertise is for tickets; --wire rfc998 has none"));
        }
        if self.raw_ip && given.port {
            return Err(Failure::usage(
                "--port is a UDP port, and there is no UDP with --raw-ip; use --netblt-port",
            ));
        }
        match (call, &self.listen) {
            (Some(_), Some(_)) => Err(Failure::usage(format!(
                "{option} and --listen are both given: one side calls, the other one waits"
            ))),
            (None, None) => Err(Failure::usage(format!(
                "--wire rfc998 needs {option} HOST:PORT, or --listen HOST:PORT to wait there"
            ))),
            (Some(host), None) => {
                let port = self.netblt_peer_port.unwrap_or(RAW_IP_PORT);
                self.address(option, &host.to_string_lossy(), port).map(Rendezvous::Active)
            }
            (None, Some(_)) if given.port || given.bind => Err(Failure::usage(
                "--listen sets address and port; --bind and --port are for the side that calls",
            )),
            (None, Some(_)) if self.netblt_peer_port.is_some() => Err(Failure::usage(
                "--netblt-peer-port is for the side that calls; this one waits for any port",
            )),
            (None, Some(host)) => {
                let port = self.netblt_port.unwrap_or(RAW_IP_PORT);
                // Only here may the system choose.
                let any = host.strip_suffix(":0").filter(|_| !self.raw_ip);
                if let Some(host) = any {
                    // Any port will do to see whether the rest is an address.
                    self.address("--listen", &format!("{host}:1"), port)?;
                    return Ok(Rendezvous::Passive(host.to_owned() + ":0"));
                }
                self.address("--listen", host, port).map(Rendezvous::Passive)
            }
        }
    }

    /// `host:port`; on raw IP the NETBLT port takes its place.
    fn address(&self, option: &str, text: &str, netblt_port: u16) -> Result<String, Failure> {
        let whole = ticket::address(text, None);
        if self.raw_ip && whole.is_ok() {
            return Err(Failure::usage(format!(
                "{option}: with --raw-ip a HOST has no port; NETBLT ports are set by \
                 --netblt-port and --netblt-peer-port"
            )));
        }
        let address = if self.raw_ip { ticket::address(text, Some(netblt_port)) } else { whole };
        address.map_err(|error| Failure::usage(format!("{option}: {error}")))
    }
}
