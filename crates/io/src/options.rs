//! What a transfer is told: the library's face of the command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use netblt_proto::config::{Policy, Wire};
use netblt_proto::units::Rate;

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

/// Who calls whom.
#[derive(Clone, Debug)]
pub enum Meeting {
    /// Print a ticket and wait.
    Listen,
    /// Use a ticket.
    Connect(Ticket),
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
    /// Beneath this directory, which must exist.
    Directory(PathBuf),
    /// Standard output, in order; only one file or stream can come this way.
    Stdout,
}

/// Everything else.
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
    /// How long to wait for a silent peer.
    pub death_timer: Duration,
    /// How to choose the rate.
    pub policy: Policy,
    /// A fixed rate for [`Policy::Fixed`].
    pub rate: Option<Rate>,
    /// What to do about files that exist.
    pub overwrite: Overwrite,
    /// Write trace events (JSON lines) here.
    pub trace: Option<PathBuf>,
    /// Bytes in a buffer, a power of two.
    pub buffer_bytes: u32,
    /// How many buffers exist in this process.
    pub buffers: u32,
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
