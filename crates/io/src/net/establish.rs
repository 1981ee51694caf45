//! Establishes a connection: one end listens and prints a ticket or waits at an address, and the
//! other connects; or a new branch starts from an existing connection (`docs/protocol §4.10`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use netblt_proto::api::CloseReason;
use netblt_proto::config::{Config, FecPolicy, Identity, Secret, Wire};
use netblt_proto::endpoint::Endpoint;

use crate::cancel::Cancel;
use crate::config::for_peer;
use crate::error::{Error, OptionsError, Warning};
use crate::net::addresses;
use crate::net::dialer::Dialer;
use crate::net::entropy::entropy;
use crate::net::io_context::{Clock, IoContext};
use crate::net::mux_branch::MuxBranch;
use crate::net::poller::{Poller, Waker};
use crate::net::raw_ip;
use crate::net::socket::{Bind, Socket};
use crate::net::trace_file::TraceFile;
use crate::observer::Observer;
use crate::options::{Options, Rfc998};
use crate::settings::Family;
use crate::ticket::Rendezvous;

/// After this long without an answer to the opening, the user is warned, as with any other opening.
const UNANSWERED: Duration = Duration::from_secs(4);
/// How late a wish to stop may be noticed while a branch is waited for.
const PATIENCE: Duration = Duration::from_millis(50);

/// A request to the thread that reads the socket.
pub(crate) enum MuxRequest {
    /// A branch.
    Branch(BranchRequest),
    /// To go when the last branch has.
    Close,
}

/// A request for a branch.
pub(crate) struct BranchRequest {
    /// The proposals for a peer over IPv4, and for one over IPv6.
    pub(crate) configs: Box<[Config; 2]>,
    pub(crate) entropy: [u8; 32],
    pub(crate) answer: Sender<BranchResult>,
}

/// The answer to a request: the I/O context, the end, and the link to the reading thread.
pub(crate) type BranchResult = Result<Box<(IoContext, Endpoint, MuxBranch)>, Error>;

/// A handle to the thread that reads the shared socket. Cloning shares it.
#[derive(Clone, Debug)]
pub(crate) struct Mux {
    jobs: Sender<MuxRequest>,
    waker: Waker,
    state: Arc<AtomicU8>,
    /// The other end takes subflows of connections that are their own.
    subflows: Arc<AtomicBool>,
}

/// In order: the connection is not open yet; it is open; the peer has answered on a branch; no more
/// branches can open.
const NEW: u8 = 0;
const OPEN: u8 = 1;
const KNOWN: u8 = 2;
const OVER: u8 = 3;

impl Mux {
    pub(crate) fn new(jobs: Sender<MuxRequest>, waker: Waker) -> Self {
        Self { jobs, waker, state: Arc::default(), subflows: Arc::default() }
    }

    /// No more branches can open.
    pub(crate) fn end(&self) {
        self.state.fetch_max(OVER, Ordering::SeqCst);
    }

    /// The connection is open, to an end that takes subflows or not.
    pub(crate) fn open(&self, subflows: bool) {
        self.subflows.store(subflows, Ordering::SeqCst);
        self.state.fetch_max(OPEN, Ordering::SeqCst);
    }

    /// Whether the other end takes subflows.
    pub(crate) fn takes_subflows(&self) -> bool {
        self.subflows.load(Ordering::SeqCst)
    }

    /// The peer has answered on a branch.
    pub(crate) fn confirm(&self) {
        self.state.fetch_max(KNOWN, Ordering::SeqCst);
    }

    /// Whether something was, and more branches.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.state.load(Ordering::SeqCst) == KNOWN
    }

    /// Whether nothing more branches.
    pub(crate) fn is_over(&self) -> bool {
        self.state.load(Ordering::SeqCst) == OVER
    }

    /// The waker of the reading thread.
    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Closes the shared connection when its last branch has closed.
    pub(crate) fn close(&self) {
        self.ask(MuxRequest::Close);
    }

    /// A branch that proposes the one or the other of these.
    pub(crate) fn branch(
        &self,
        configs: [Config; 2],
        observer: &mut dyn Observer,
        cancel: &Cancel,
    ) -> Result<(IoContext, Dialer), Error> {
        let (began, mut warned) = (Instant::now(), false);
        let (answer, answered) = channel();
        let request = BranchRequest { configs: Box::new(configs), entropy: entropy()?, answer };
        self.ask(MuxRequest::Branch(request));
        loop {
            match answered.recv_timeout(PATIENCE) {
                Ok(made) => {
                    let (host, end, joined) = *made?;
                    return Ok((host, Dialer::joined(end, joined)));
                }
                Err(RecvTimeoutError::Timeout) if cancel.is_cancelled() => {
                    return Err(Error::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) => {
                    let new = self.state.load(Ordering::SeqCst) == NEW;
                    if new && !warned && began.elapsed() >= UNANSWERED {
                        warned = true;
                        observer.warn(&Warning::NoAnswerYet);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Ended(CloseReason::Forgotten));
                }
            }
        }
    }

    fn ask(&self, job: MuxRequest) {
        // If the thread has ended, the request is dropped, and its answer with it.
        if self.jobs.send(job).is_ok() {
            self.waker.wake();
        }
    }
}

/// How two ends come to have a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Establish<'a> {
    /// One calls, and one waits.
    Meet(&'a Rendezvous),
    /// It branches from one that they have.
    Branch(&'a Mux),
}

impl Establish<'_> {
    /// If they meet for this alone: whether this side waits for the other one to come.
    pub(crate) fn meets(self) -> Option<bool> {
        matches!(self, Self::Meet(_)).then(|| self.listens())
    }

    /// Whether this side waits for the other one to come.
    pub(crate) fn listens(self) -> bool {
        matches!(self, Self::Meet(rendezvous) if rendezvous.listens())
    }
}

/// Opens what a connection needs, and starts it: prints a ticket or connects by one, listens at an
/// address or connects to one, or branches from an open connection.
pub(crate) fn meet(
    way: Establish<'_>,
    options: &Options,
    config: &Config,
    observer: &mut dyn Observer,
    cancel: &Cancel,
) -> Result<(IoContext, Dialer), Error> {
    let rendezvous = match way {
        Establish::Meet(rendezvous) => rendezvous,
        Establish::Branch(mux) => {
            let configs = [false, true].map(|v6| for_peer(config, options, None, v6));
            return mux.branch(configs, observer, cancel);
        }
    };
    let trace = options.trace.as_deref().map(TraceFile::create).transpose()?;
    let clock = Clock::start();
    if let (Wire::Rfc998, FecPolicy::Share(_)) = (options.wire, options.settings.fec) {
        return Err(OptionsError::Repair.into());
    }
    let (socket, peer) = match (rendezvous, options.wire) {
        (Rendezvous::Listen, Wire::Sealed) => listen(None, options, config, clock, observer)?,
        (Rendezvous::Await(secret), Wire::Sealed) => {
            listen(Some(secret), options, config, clock, observer)?
        }
        (Rendezvous::Connect(ticket), Wire::Sealed) => {
            let secret = Some(ticket.secret.clone());
            let config = Config { secret, ..config.clone() };
            connect(&ticket.addresses, options, &config, clock, observer, cancel)?
        }
        (
            Rendezvous::Call { addresses, identity: identity @ Identity::Client(_) },
            Wire::Sealed,
        ) => {
            let config = Config { identity: Some(identity.clone()), ..config.clone() };
            connect(addresses, options, &config, clock, observer, cancel)?
        }
        (Rendezvous::Call { identity: Identity::Server(_), .. }, Wire::Sealed) => {
            return Err(OptionsError::NoClient.into());
        }
        (Rendezvous::Passive(address), Wire::Rfc998) => {
            wait_at(address, options, config, clock, observer, cancel)?
        }
        (Rendezvous::Active(address), Wire::Rfc998) => {
            call(address, options, config, clock, observer, cancel)?
        }
        (Rendezvous::Listen | Rendezvous::Await(_) | Rendezvous::Connect(_), Wire::Rfc998) => {
            return Err(OptionsError::Ticket.into());
        }
        (Rendezvous::Call { .. }, Wire::Rfc998) => return Err(OptionsError::Keys.into()),
        (Rendezvous::Passive(_) | Rendezvous::Active(_), Wire::Sealed) => {
            return Err(OptionsError::NoTicket.into());
        }
    };
    let poller = Poller::new()
        .map_err(|source| Error::Socket { what: "cannot make a waker".to_owned(), source })?;
    Ok((IoContext { socket, poller, clock, trace }, peer))
}

/// A UDP socket, or the end of a pair that is given.
fn open(bind: &Bind, options: &Options) -> Result<Socket, Error> {
    options.network.carried.as_ref().map_or_else(|| Socket::bind(bind), Socket::of_pair)
}

/// Waits for a peer that has the ticket made here, or this secret.
fn listen(
    known: Option<&Secret>,
    options: &Options,
    config: &Config,
    clock: Clock,
    observer: &mut dyn Observer,
) -> Result<(Socket, Dialer), Error> {
    let bind = Bind {
        address: options.network.bind,
        port: options.network.port,
        family: options.settings.family,
        answering: true,
        ..Bind::default()
    };
    let socket = open(&bind, options)?;
    let secret = match known {
        Some(secret) => secret.clone(),
        None => Secret(entropy()?),
    };
    // The peer's address is not known yet. On a socket for both versions, the larger headers count
    // until then.
    let v6 = socket.local().is_ipv6();
    let config = for_peer(config, options, Some(secret.clone()), v6);
    let config = Config { either_version: v6, socket_bytes: socket.room(), ..config };
    let peer = Dialer::listen(config, clock.now(), entropy()?);
    if known.is_some() {
        observer.listening_at(socket.local());
    } else {
        let ticket = addresses::ticket(socket.local(), options, secret)?;
        observer.listening(&ticket).map_err(Error::Unseen)?;
    }
    Ok((socket, peer))
}

/// Connects to the peer at one of these addresses, with the secret or the identity of `config`.
fn connect(
    addresses: &[String],
    options: &Options,
    config: &Config,
    clock: Clock,
    observer: &mut dyn Observer,
    cancel: &Cancel,
) -> Result<(Socket, Dialer), Error> {
    let warn = |warning: &Warning| observer.warn(warning);
    let addresses = addresses::resolve(addresses, options.settings.family, cancel, warn)?;
    let (address, port, family) = (options.network.bind, options.network.port, family(&addresses));
    let socket = open(&Bind { address, port, family, ..Bind::default() }, options)?;
    let candidates = addresses::candidates(
        socket.local(),
        &addresses,
        |ip| socket.reaches(ip),
        |address| {
            let secret = config.secret.clone();
            let config = for_peer(config, options, secret, address.is_ipv6());
            Config { socket_bytes: socket.room(), ..config }
        },
    )?;
    Ok((socket, Dialer::connect(candidates, clock.now())))
}

/// The passive end of `rfc998`.
fn wait_at(
    address: &str,
    options: &Options,
    config: &Config,
    clock: Clock,
    observer: &mut dyn Observer,
    cancel: &Cancel,
) -> Result<(Socket, Dialer), Error> {
    let warn = |warning: &Warning| observer.warn(warning);
    let own = addresses::resolve(&[address.to_owned()], options.settings.family, cancel, warn)?;
    let own = own
        .first()
        .ok_or_else(|| Error::NoAddress { version: "", addresses: address.to_owned() })?;
    let socket = Socket::bind(&Bind {
        address: Some(own.ip()),
        port: own.port(),
        family: options.settings.family,
        answering: true,
        raw_ip: options.rfc998.raw_ip,
        only: options.rfc998.port,
    })?;
    let config = for_peer(config, options, None, socket.local().is_ipv6());
    let peer = Dialer::listen(config, clock.now(), entropy()?);
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
    cancel: &Cancel,
) -> Result<(Socket, Dialer), Error> {
    let Rfc998 { raw_ip, port: own_port, peer_port, .. } = options.rfc998;
    let warn = |warning: &Warning| observer.warn(warning);
    let mut addresses =
        addresses::resolve(&[address.to_owned()], options.settings.family, cancel, warn)?;
    let mut port = options.network.port;
    if raw_ip {
        addresses = addresses::of_one_version(addresses);
        port = own_port.map_or_else(|| entropy().map(raw_ip::any_port), Ok)?;
    }
    let (address, family) = (options.network.bind, family(&addresses));
    let socket = Socket::bind(&Bind { address, port, family, raw_ip, ..Bind::default() })?;
    let own_port = own_port.unwrap_or(socket.local().port());
    let candidates = addresses::candidates(
        socket.local(),
        &addresses,
        |ip| socket.reaches(ip),
        |address| {
            let config = for_peer(config, options, None, address.is_ipv6());
            let theirs = peer_port.filter(|_| !raw_ip).unwrap_or(address.port());
            Config { ports: (own_port, theirs), ..config }
        },
    )?;
    Ok((socket, Dialer::connect(candidates, clock.now())))
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
