//! How a server is asked: its ticket, and the options of a short connection.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use netblt::serve::{PORT, remote};
use netblt::ticket::{self, Ticket};
use netblt::{Cancel, Error, Observer, Options, Rendezvous, Warning};
use netblt_proto::machine::printable;
use zeroize::Zeroizing;

use crate::args::{self, TICKET_VARIABLE};
use crate::exit::Failure;
use crate::served::address::Served;
use crate::units;

/// What proves to a server who asks.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Proof {
    /// The server's ticket is in this file [default: in the variable NETBLT_TICKET]
    #[arg(long, value_name = "FILE")]
    pub(crate) ticket_file: Option<PathBuf>,
}

/// The connection of a command that asks.
#[derive(Args, Debug)]
pub(crate) struct Line {
    #[command(flatten)]
    proof: Proof,
    /// How long a silent server is waited for (1s to 49d)
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = units::death_timer)]
    death_timer: Duration,
    /// Use IPv4 only
    #[arg(short = '4', long = "ipv4", conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6 only
    #[arg(short = '6', long = "ipv6")]
    ipv6: bool,
}

impl Line {
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::default();
        options.death_timer = self.death_timer;
        options.family = args::family(self.ipv4, self.ipv6);
        options
    }

    pub(crate) fn rendezvous(&self, served: &Served) -> Result<Rendezvous, Failure> {
        self.proof.rendezvous(served)
    }
}

impl Proof {
    /// How to meet the server of an address: where it says, or else the ticket.
    pub(crate) fn rendezvous(&self, served: &Served) -> Result<Rendezvous, Failure> {
        let mut ticket = self.ticket()?;
        if let Some(host) = &served.host {
            let address = ticket::address(&bracketed(&host.name), host.port.or(Some(PORT)));
            let said = |error| Failure::usage(format!("{}: {error}", served.shown()));
            ticket.addresses = vec![address.map_err(said)?];
        }
        Ok(Rendezvous::Connect(ticket))
    }

    fn ticket(&self) -> Result<Ticket, Failure> {
        let text = match &self.ticket_file {
            Some(path) => read(path)?,
            None => Zeroizing::new(std::env::var(TICKET_VARIABLE).unwrap_or_default()),
        };
        if text.trim().is_empty() {
            return Err(Failure::usage(format!(
                "a server wants its ticket: put it into the variable {TICKET_VARIABLE}, or into a \
                 file and give --ticket-file"
            )));
        }
        text.parse().map_err(|error| Failure::transfer(&Error::from(error), false))
    }
}

/// The text of a ticket's file, of which others can know nothing.
pub(crate) fn read(path: &Path) -> Result<Zeroizing<String>, Failure> {
    use std::os::unix::fs::PermissionsExt as _;
    let said = |error| Failure::usage(format!("{}: {error}", path.display()));
    let file = fs::File::open(path).map_err(said)?;
    if file.metadata().map_err(said)?.permissions().mode() & 0o077 != 0 {
        let why = "others may read it, and whoever knows a ticket may use it: chmod 600 it";
        return Err(Failure::usage(format!("{}: {why}", path.display())));
    }
    let mut text = Zeroizing::new(String::with_capacity(ticket::MAX_BYTES + 2));
    file.take(ticket::MAX_BYTES as u64 + 2).read_to_string(&mut text).map_err(said)?;
    Ok(text)
}

/// An IPv6 address as it stands before a port.
fn bracketed(name: &str) -> String {
    if name.contains(':') { format!("[{name}]") } else { name.to_owned() }
}

/// Nothing but warnings is of interest.
pub(crate) struct Plain;

impl Observer for Plain {
    fn warn(&mut self, warning: &Warning) {
        eprintln!("netblt: warning: {}", printable(&warning.to_string()));
    }
}

/// A server to be asked.
pub(crate) fn server<'a>(
    rendezvous: &'a Rendezvous,
    options: &'a Options,
    cancel: &'a Cancel,
) -> remote::Server<'a> {
    remote::Server { rendezvous, options, cancel }
}
