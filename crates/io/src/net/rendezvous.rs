//! How two ends meet: one listens and prints a ticket or waits at an address, the other calls.

use std::net::SocketAddr;

use netblt_proto::config::{Config, Identity, Repair, Secret, Wire};

use crate::cancel::Cancel;
use crate::config::for_peer;
use crate::error::{Error, OptionsError, Warning};
use crate::net::addresses;
use crate::net::dialer::Dialer;
use crate::net::entropy::entropy;
use crate::net::host::{Clock, Host};
use crate::net::raw_ip;
use crate::net::socket::{Bind, Socket};
use crate::net::trace_file::TraceFile;
use crate::net::wait::Poller;
use crate::observer::Observer;
use crate::options::{Family, Options, Rfc998};
use crate::ticket::Rendezvous;

/// Opens what is needed to talk, and begins to: prints a ticket or follows one, or waits at an
/// address or goes to one.
pub(crate) fn meet(
    rendezvous: &Rendezvous,
    options: &Options,
    config: &Config,
    observer: &mut dyn Observer,
    cancel: &Cancel,
) -> Result<(Host, Dialer), Error> {
    let trace = options.trace.as_deref().map(TraceFile::create).transpose()?;
    let clock = Clock::start();
    if let (Wire::Rfc998, Repair::Share(_)) = (options.wire, options.repair) {
        return Err(OptionsError::Repair.into());
    }
    let (socket, peer) = match (rendezvous, options.wire) {
        (Rendezvous::Listen, Wire::Sealed) => listen(None, (options, config), clock, observer)?,
        (Rendezvous::Await(secret), Wire::Sealed) => {
            listen(Some(secret), (options, config), clock, observer)?
        }
        (Rendezvous::Connect(ticket), Wire::Sealed) => {
            let secret = Some(ticket.secret.clone());
            let config = Config { secret, ..config.clone() };
            connect(&ticket.addresses, (options, &config), clock, observer, cancel)?
        }
        (
            Rendezvous::Call { addresses, identity: identity @ Identity::Client(_) },
            Wire::Sealed,
        ) => {
            let config = Config { identity: Some(identity.clone()), ..config.clone() };
            connect(addresses, (options, &config), clock, observer, cancel)?
        }
        (Rendezvous::Call { identity: Identity::Server(_), .. }, Wire::Sealed) => {
            return Err(OptionsError::NoClient.into());
        }
        (Rendezvous::Passive(address), Wire::Rfc998) => {
            wait_at(address, (options, config), clock, observer, cancel)?
        }
        (Rendezvous::Active(address), Wire::Rfc998) => {
            call(address, (options, config), clock, observer, cancel)?
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
    Ok((Host { socket, poller, clock, trace }, peer))
}

/// Waits for whoever has the ticket that is made here, or this secret.
fn listen(
    known: Option<&Secret>,
    (options, config): (&Options, &Config),
    clock: Clock,
    observer: &mut dyn Observer,
) -> Result<(Socket, Dialer), Error> {
    let socket = Socket::bind(&Bind {
        address: options.bind,
        port: options.port,
        family: options.family,
        answering: true,
        ..Bind::default()
    })?;
    let secret = match known {
        Some(secret) => secret.clone(),
        None => Secret(entropy()?),
    };
    // Who will come is not known: on a socket for both versions, the larger headers count until
    // then.
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

/// Calls whoever is at one of these addresses, with the secret or the identity of `config`.
fn connect(
    addresses: &[String],
    (options, config): (&Options, &Config),
    clock: Clock,
    observer: &mut dyn Observer,
    cancel: &Cancel,
) -> Result<(Socket, Dialer), Error> {
    let warn = |warning: &Warning| observer.warn(warning);
    let addresses = addresses::resolve(addresses, options.family, cancel, warn)?;
    let (address, port, family) = (options.bind, options.port, family(&addresses));
    let socket = Socket::bind(&Bind { address, port, family, ..Bind::default() })?;
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
    (options, config): (&Options, &Config),
    clock: Clock,
    observer: &mut dyn Observer,
    cancel: &Cancel,
) -> Result<(Socket, Dialer), Error> {
    let warn = |warning: &Warning| observer.warn(warning);
    let own = addresses::resolve(&[address.to_owned()], options.family, cancel, warn)?;
    let own = own
        .first()
        .ok_or_else(|| Error::NoAddress { version: "", addresses: address.to_owned() })?;
    let socket = Socket::bind(&Bind {
        address: Some(own.ip()),
        port: own.port(),
        family: options.family,
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
    (options, config): (&Options, &Config),
    clock: Clock,
    observer: &mut dyn Observer,
    cancel: &Cancel,
) -> Result<(Socket, Dialer), Error> {
    let Rfc998 { raw_ip, port: own_port, peer_port, .. } = options.rfc998;
    let warn = |warning: &Warning| observer.warn(warning);
    let mut addresses = addresses::resolve(&[address.to_owned()], options.family, cancel, warn)?;
    let mut port = options.port;
    if raw_ip {
        addresses = addresses::of_one_version(addresses);
        port = own_port.map_or_else(|| entropy().map(raw_ip::any_port), Ok)?;
    }
    let (address, family) = (options.bind, family(&addresses));
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
