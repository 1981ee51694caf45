//! What a transfer is told: the library's face of the command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netblt_proto::config::{Policy, Wire};
use netblt_proto::wire::packet::Burst;

use crate::ticket::Ticket;

/// Which IP versions to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// Whatever works.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// What to do about a destination that exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// Refuse the transfer.
    #[default]
    Never,
    /// Replace it, at the end and at once.
    Always,
}

/// How the two ends meet: who calls whom, and where.
#[derive(Clone, Debug)]
pub enum Rendezvous {
    /// Print a ticket and wait (`sealed`).
    Listen,
    /// Use a ticket (`sealed`).
    Connect(Ticket),
    /// Be the passive end: wait at this address of ours for whoever comes (`rfc998`).
    /// `host:port`, where port 0 lets the system choose, or `host` on raw IP.
    Passive(String),
    /// Be the active end: open a connection to this address (`rfc998`). `host:port`, or `host` on
    /// raw IP.
    Active(String),
}

/// What to send.
#[derive(Clone, Debug)]
pub enum Source {
    /// Files and directories; directories are walked.
    Paths(Vec<PathBuf>),
    /// Standard input, of unknown length, offered under this name.
    Stdin {
        /// The name the receiver may store it under.
        name: String,
    },
}

/// Where to put what arrives.
#[derive(Clone, Debug)]
pub enum Destination {
    /// Beneath this directory, which must exist (`sealed`).
    Directory(PathBuf),
    /// In this file (`rfc998`, which carries no names).
    File(PathBuf),
    /// Standard output, in order; only one file or stream can come this way.
    Stdout,
}

/// Everything about a transfer but what moves, and where the other end is.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which wire.
    pub wire: Wire,
    /// Local address to bind.
    pub bind: Option<IpAddr>,
    /// Local UDP port; 0 lets the system choose.
    pub port: u16,
    /// Addresses to put into the ticket instead of this machine's own.
    pub advertise: Vec<String>,
    /// Which IP versions to use.
    pub family: Family,
    /// Size of the IP packets to send, in bytes; `None` for the default that fits everywhere.
    pub mtu: Option<u16>,
    /// Data bytes in a DATA packet; `None`: what [`Options::mtu`] leaves room for.
    pub packet_bytes: Option<u16>,
    /// How long to wait for a silent peer.
    pub death_timer: Duration,
    /// How to choose the rate. A receiver's ceiling is proposed as burst values.
    pub policy: Policy,
    /// Burst values to propose where the policy is not [`Policy::Fixed`]: a receiver's are the most
    /// that it lets the sender send, whatever that one's policy.
    pub burst: Option<Burst>,
    /// What to tell the other end's client; `None` for the name of this program.
    pub client: Option<String>,
    /// What only the `rfc998` wire knows.
    pub rfc998: Rfc998,
    /// What to do about files that exist.
    pub overwrite: Overwrite,
    /// Write trace events (JSON lines) here.
    pub trace: Option<PathBuf>,
    /// Bytes in a buffer, a power of two.
    pub buffer_bytes: u32,
    /// How many buffers exist in this process.
    pub buffers: u32,
}

/// What only the `rfc998` wire knows (`docs/protocol.md §2`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rfc998 {
    /// Directly on IP (protocol 30), without UDP; takes the privilege CAP_NET_RAW.
    pub raw_ip: bool,
    /// This end's NETBLT port. `None`: the active end's is its UDP port, or any on raw IP; the
    /// passive end's is whatever it is called by, or [`crate::net::raw_ip::PORT`] on raw IP.
    pub port: Option<u16>,
    /// The other end's NETBLT port, told by the active end. `None`: its UDP port, or
    /// [`crate::net::raw_ip::PORT`].
    pub peer_port: Option<u16>,
    /// Do not ask for checksums of the data (flag C).
    pub no_checksum: bool,
}

/// A flag that stops a transfer from any thread or signal handler.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the transfer to stop; it tells the other end and returns `Error::Interrupted`.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
    /// Whether it was asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
