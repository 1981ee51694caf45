//! How a server is asked: its ticket, and the options of a short connection.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use netblt::keys::tofu::{self, KnownSince};
use netblt::keys::{KnownServers, ask, file, fingerprint};
use netblt::serve::{PORT, Session, client};
use netblt::ticket::{self, Ticket};
use netblt::{Cancel, Error, Observer, Options, Rendezvous, Warning};
use netblt_proto::api::printable;
use zeroize::Zeroizing;

use crate::args::{self, TICKET_VARIABLE};
use crate::exit::Failure;
use crate::host::Host;
use crate::server_client::address::ServerPath;
use crate::stdout::say;
use crate::units;

/// The proof of a client's identity.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Credentials {
    /// The server's ticket is in this file [default: in the variable NETBLT_TICKET, if any]
    #[arg(long, value_name = "FILE")]
    pub(crate) ticket_file: Option<PathBuf>,
    /// The file of known servers' keys [default: ~/.config/netblt/known_servers]
    ///
    /// The key of a new server is fetched and saved, and its fingerprint is shown. If the key
    /// changes later, nothing is sent to the server.
    #[arg(long, value_name = "FILE")]
    pub(crate) known_servers: Option<PathBuf>,
}

/// How a server is met.
pub(crate) struct ServerConnection {
    pub(crate) rendezvous: Rendezvous,
    /// For commands with more than one request.
    session: Session,
    /// By keys: the address, and the known servers.
    known: Option<(String, KnownServers)>,
}

/// The connection of a command that asks.
#[derive(Args, Debug)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    pub(crate) proof: Credentials,
    /// Your key for the server, where there is no ticket [default: ~/.config/netblt/key]
    #[arg(short = 'i', value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// How long a silent server is waited for (1s to 49d)
    #[arg(long, value_name = "TIME", default_value = "1min", value_parser = units::death_timer)]
    pub(crate) death_timer: Duration,
    /// Use IPv4 only
    #[arg(short = '4', long = "ipv4", conflicts_with = "ipv6")]
    pub(crate) ipv4: bool,
    /// Use IPv6 only
    #[arg(short = '6', long = "ipv6")]
    pub(crate) ipv6: bool,
    /// The UDP port to call from; 0 lets the system choose.
    #[arg(skip)]
    pub(crate) port: u16,
}

impl ServerArgs {
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::default();
        options.network.port = self.port;
        options.settings.death_timer = self.death_timer;
        options.settings.family = args::family(self.ipv4, self.ipv6);
        options
    }

    pub(crate) fn meet(
        &self,
        served: &ServerPath,
        options: &Options,
        cancel: &Cancel,
    ) -> Result<ServerConnection, Failure> {
        self.proof.meet(served, self.identity.as_deref(), options, cancel)
    }
}

impl Credentials {
    /// How to meet the server of an address: with its ticket, or by one's own key.
    pub(crate) fn meet(
        &self,
        served: &ServerPath,
        identity: Option<&Path>,
        options: &Options,
        cancel: &Cancel,
    ) -> Result<ServerConnection, Failure> {
        let said = |error| Failure::usage(format!("{}: {error}", served.shown()));
        let address = |host: &Host| {
            ticket::address(&bracketed(&host.name), host.port.or(Some(PORT))).map_err(said)
        };
        let address = served.host.as_ref().map(address).transpose()?;
        // A given key is used, whatever else there is.
        let ticket = if identity.is_none() { self.ticket()? } else { None };
        if let Some(mut ticket) = ticket {
            if let Some(address) = address {
                ticket.addresses = vec![address];
            }
            return Ok(ServerConnection::new(Rendezvous::Connect(ticket), options, None));
        }
        let failed = |error| Failure::transfer(&error, false);
        let path = match identity {
            Some(path) => path.to_owned(),
            None => file::place("key").filter(|path| path.exists()).ok_or_else(no_proof)?,
        };
        let address = address.ok_or_else(|| {
            Failure::usage("without a ticket the address of the server is needed: netblt://HOST/")
        })?;
        let own = file::read(&path).map_err(failed)?;
        let known = match &self.known_servers {
            Some(path) => path.clone(),
            None => file::place("known_servers").ok_or_else(no_home)?,
        };
        let mut known = KnownServers::read(&known).map_err(failed)?;
        let ask = || ask(std::slice::from_ref(&address), options, cancel, warn);
        let (key, met) = tofu::server_key(&address, &mut known, ask).map_err(failed)?;
        if met == KnownSince::Now {
            let shown = fingerprint(&key);
            say(&format!("netblt: {address} is met for the first time. Its key is {shown}"));
        }
        let rendezvous = tofu::call(&address, own, key).map_err(failed)?;
        Ok(ServerConnection::new(rendezvous, options, Some((address, known))))
    }

    fn ticket(&self) -> Result<Option<Ticket>, Failure> {
        let text = match &self.ticket_file {
            Some(path) => read(path)?,
            None => Zeroizing::new(std::env::var(TICKET_VARIABLE).unwrap_or_default()),
        };
        if text.trim().is_empty() {
            return Ok(None);
        }
        let ticket = text.parse().map(Some);
        ticket.map_err(|error| Failure::transfer(&Error::from(error), false))
    }
}

impl ServerConnection {
    fn new(
        rendezvous: Rendezvous,
        options: &Options,
        known: Option<(String, KnownServers)>,
    ) -> Self {
        let session = Session::new(rendezvous.clone(), options);
        Self { rendezvous, session, known }
    }

    /// Explains an error: the server may have another key than the known one.
    pub(crate) fn explain(&self, error: Error, options: &Options, cancel: &Cancel) -> Error {
        let Some((address, known)) = &self.known else { return error };
        let ask = || ask(std::slice::from_ref(address), options, cancel, warn);
        tofu::explain(error, address, known, ask)
    }
}

/// No more requests: the server is notified, if there is a session.
impl Drop for ServerConnection {
    fn drop(&mut self) {
        self.session.close();
    }
}

fn no_home() -> Failure {
    Failure::usage(
        "there is no home directory to keep the keys of servers in: --known-servers FILE",
    )
}

fn no_proof() -> Failure {
    Failure::usage(format!(
        "a server wants to know you: put its ticket into the variable {TICKET_VARIABLE} or give \
         --ticket-file, or make a key (netblt keygen) and have it let in there"
    ))
}

fn warn(warning: &Warning) {
    say(&format!("netblt: warning: {}", printable(&warning.to_string())));
}

/// The text of a ticket's file, which no other user may read.
pub(crate) fn read(path: &Path) -> Result<Zeroizing<String>, Failure> {
    use std::os::unix::fs::PermissionsExt as _;
    let said = |error| Failure::usage(format!("{}: {error}", path.display()));
    let file = fs::File::open(path).map_err(said)?;
    if file.metadata().map_err(said)?.permissions().mode() & 0o077 != 0 {
        let why = "other users may read it, and anyone with the ticket may use it: chmod 600 it";
        return Err(Failure::usage(format!("{}: {why}", path.display())));
    }
    let mut text = Zeroizing::new(String::with_capacity(ticket::MAX_BYTES + 2));
    file.take(ticket::MAX_BYTES as u64 + 2).read_to_string(&mut text).map_err(said)?;
    Ok(text)
}

/// An IPv6 address in brackets, for a port to follow.
fn bracketed(name: &str) -> String {
    if name.contains(':') { format!("[{name}]") } else { name.to_owned() }
}

/// An observer that shows only warnings.
pub(crate) struct WarningsOnly;

impl Observer for WarningsOnly {
    fn warn(&mut self, warning: &Warning) {
        warn(warning);
    }
}

/// A server to be asked, once or more often.
pub(crate) fn server<'a>(
    meeting: &'a ServerConnection,
    options: &'a Options,
    cancel: &'a Cancel,
    often: bool,
) -> client::Client<'a> {
    let session = often.then_some(&meeting.session);
    client::Client { rendezvous: &meeting.rendezvous, options, cancel, session }
}
