//! Addresses: those of this machine for a ticket, and the resolution of a ticket's.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;

use netblt_proto::config::{Config, Secret};

use crate::cancel::Cancel;
use crate::error::{Error, OptionsError, Warning};
use crate::net::connections::canonical;
use crate::net::dialer::{Candidate, MAX_CANDIDATES};
use crate::net::entropy::entropy;
use crate::options::Options;
use crate::settings::Family;
use crate::ticket::{self, MAX_ADDRESSES, Ticket};

/// Addresses that are routed and at which no host answers. A connected socket to them sends nothing
/// and shows the local address.
const SOMEWHERE: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)), 9),
];

/// How late a cancellation may be noticed while a name is looked up.
const LOOK_UP_STEP: Duration = Duration::from_millis(50);

/// The ticket of an end that listens at `local`.
pub(crate) fn ticket(
    local: SocketAddr,
    options: &Options,
    secret: Secret,
) -> Result<Ticket, Error> {
    let port = local.port();
    let addresses = if options.network.advertise.is_empty() {
        let own = own_addresses(local.ip(), options.settings.family);
        own.into_iter().map(|ip| SocketAddr::new(ip, port).to_string()).collect()
    } else {
        let parsed = options.network.advertise.iter().map(|text| ticket::address(text, Some(port)));
        let parsed: Result<Vec<String>, _> = parsed.collect();
        parsed.map_err(OptionsError::Advertised)?
    };
    Ok(Ticket { addresses: addresses.into_iter().take(MAX_ADDRESSES).collect(), secret })
}

/// This machine's addresses at which a socket bound to `bound` receives, best first. Loopback comes
/// last, and only if no running interface has another address.
pub fn own_addresses(bound: IpAddr, family: Family) -> Vec<IpAddr> {
    if !bound.is_unspecified() {
        return vec![bound];
    }
    let v4 = family != Family::V6;
    let v6 = family != Family::V4 && bound.is_ipv6();
    // The address of the default route is the one that others most likely reach.
    let mut all: Vec<(IpAddr, bool)> =
        SOMEWHERE.into_iter().filter_map(way_to).map(|ip| (ip, true)).collect();
    if let Ok(interfaces) = if_addrs::get_if_addrs() {
        all.extend(interfaces.iter().map(|i| (i.ip(), i.is_oper_up())));
    }
    all.retain(|(ip, _)| if ip.is_ipv4() { v4 } else { v6 });
    let loopback = if v4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    reachable(&all, loopback)
}

/// Those of `all` at which others may reach this machine. Each comes with whether its interface
/// runs.
fn reachable(all: &[(IpAddr, bool)], loopback: IpAddr) -> Vec<IpAddr> {
    let of = |running: bool| {
        let mut addresses: Vec<IpAddr> = Vec::new();
        for (ip, _) in all.iter().filter(|(ip, runs)| *runs == running && is_useful(*ip)) {
            if !addresses.contains(ip) {
                addresses.push(*ip);
            }
        }
        addresses
    };
    let mut addresses = of(true);
    if addresses.is_empty() {
        // Linux says for up to a second that an interface that just came up does not run. An
        // address that will work soon is worth more than none.
        addresses = of(false);
        addresses.push(loopback);
    }
    addresses
}

/// Link-local IPv6 addresses need the other side's name for the interface, so they are of no use
/// in a ticket.
fn is_useful(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_unspecified() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unspecified() && !ip.is_unicast_link_local(),
    }
}

/// The address of ours from which a datagram to `to` would leave.
fn way_to(to: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok().map(|local| local.ip())
}

/// The socket addresses of `addresses` (`host:port`), in their order, each once.
pub(crate) fn resolve(
    addresses: &[String],
    family: Family,
    cancel: &Cancel,
    mut warn: impl FnMut(&Warning),
) -> Result<Vec<SocketAddr>, Error> {
    let mut found: Vec<SocketAddr> = Vec::new();
    let mut failed = None;
    for address in addresses {
        match patiently(address.clone(), cancel, look_up)? {
            Ok(addresses) => {
                for address in addresses.into_iter().map(canonical) {
                    let fits = match family {
                        Family::Any => true,
                        Family::V4 => address.is_ipv4(),
                        Family::V6 => address.is_ipv6(),
                    };
                    if fits && !found.contains(&address) && found.len() < MAX_CANDIDATES {
                        found.push(address);
                    }
                }
            }
            Err(source) => failed = Some(Error::Unresolved { host: address.clone(), source }),
        }
    }
    match failed {
        Some(error) if found.is_empty() => return Err(error),
        Some(error) => warn(&Warning::Unresolved(error.to_string())),
        None => {}
    }
    if found.is_empty() {
        let version = match family {
            Family::Any => "",
            Family::V4 => " over IPv4",
            Family::V6 => " over IPv6",
        };
        let list = addresses.join(", ");
        return Err(Error::NoAddress { version, addresses: list });
    }
    Ok(found)
}

/// Looks a name up in a thread of its own. The system's resolver may take minutes and cannot be
/// stopped, but no caller has to wait for it. An address needs no resolver.
fn patiently(
    address: String,
    cancel: &Cancel,
    look_up: fn(&str) -> io::Result<Vec<SocketAddr>>,
) -> Result<io::Result<Vec<SocketAddr>>, Error> {
    if let Ok(address) = address.parse::<SocketAddr>() {
        return Ok(Ok(vec![address]));
    }
    let (found, answers) = channel();
    let search = move || {
        let _ = found.send(look_up(&address));
    };
    let thread = Builder::new().name("netblt-resolve".to_owned()).spawn(search);
    thread.map_err(|source| Error::Thread { purpose: "to look a name up", source })?;
    loop {
        if cancel.is_cancelled() {
            return Err(Error::Interrupted);
        }
        match answers.recv_timeout(LOOK_UP_STEP) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Ok(Err(io::Error::other("the resolver fell over")));
            }
        }
    }
}

fn look_up(address: &str) -> io::Result<Vec<SocketAddr>> {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse::<u16>().map_err(io::Error::other)?;
    // The resolver also knows the zones of link-local addresses by name.
    Ok((host, port).to_socket_addrs()?.collect())
}

/// The addresses that a raw socket can use: those of one IP version, that of the first one.
pub(crate) fn of_one_version(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    addresses.into_iter().filter(|address| address.is_ipv6() == v6).collect()
}

/// Openings to every address that a socket at `local` reaches; `config` makes the configuration for
/// one.
pub(crate) fn candidates(
    local: SocketAddr,
    addresses: &[SocketAddr],
    reaches: impl Fn(IpAddr) -> bool,
    config: impl Fn(SocketAddr) -> Config,
) -> Result<Vec<Candidate>, Error> {
    let usable = addresses.iter().filter(|address| reaches(address.ip()));
    let candidates: Result<Vec<Candidate>, Error> = usable
        .map(|&address| Ok(Candidate { address, config: config(address), entropy: entropy()? }))
        .collect();
    let candidates = candidates?;
    if candidates.is_empty() {
        let list: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        return Err(Error::OutOfReach { local, addresses: list.join(", ") });
    }
    Ok(candidates)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(addresses: &[&str]) -> Ticket {
        let addresses = addresses.iter().map(|&address| address.to_owned()).collect();
        Ticket { addresses, secret: Secret([0; 32]) }
    }

    fn no_warning(warning: &Warning) {
        panic!("{warning}");
    }

    #[test]
    fn a_name_that_does_not_resolve_is_warned_of_and_the_other_addresses_are_used() {
        let ticket = ticket(&["127.0.0.1:port", "127.0.0.1:9"]);
        let mut warnings = String::new();
        let found = resolve(&ticket.addresses, Family::Any, &Cancel::default(), |warning| {
            warnings.push_str(&warning.to_string())
        })
        .unwrap();
        assert_eq!(found, ["127.0.0.1:9".parse().unwrap()]);
        assert!(warnings.contains("127.0.0.1:port"), "{warnings}");
    }

    #[test]
    fn a_ticket_always_holds_an_address_that_works() {
        for family in [Family::Any, Family::V4] {
            let own = own_addresses(Ipv4Addr::UNSPECIFIED.into(), family);
            assert!(!own.is_empty());
            assert!(own.iter().all(IpAddr::is_ipv4), "{own:?}");
            assert!(!own[..own.len() - 1].iter().any(IpAddr::is_loopback), "{own:?}");
        }
        let own = own_addresses(Ipv6Addr::UNSPECIFIED.into(), Family::V6);
        assert!(!own.is_empty() && own.iter().all(IpAddr::is_ipv6), "{own:?}");
        let bound = "127.0.0.9".parse().unwrap();
        assert_eq!(own_addresses(bound, Family::Any), [bound]);
    }

    #[test]
    fn an_interface_that_does_not_run_yet_is_better_than_none() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let lo = ip("127.0.0.1");
        let (wire, cable, local) = (ip("192.0.2.7"), ip("198.51.100.7"), ip("169.254.1.7"));
        assert_eq!(reachable(&[(lo, true), (wire, false), (wire, false)], lo), [wire, lo]);
        assert_eq!(reachable(&[(lo, true), (wire, false), (cable, true)], lo), [cable]);
        assert_eq!(reachable(&[(lo, true), (local, false)], lo), [lo]);
    }

    #[test]
    fn addresses_are_resolved_in_order_and_once() {
        let ticket = ticket(&["127.0.0.1:9", "[::1]:9", "127.0.0.1:9", "[::ffff:127.0.0.1]:9"]);
        let all = ["127.0.0.1:9".parse().unwrap(), "[::1]:9".parse().unwrap()];
        assert_eq!(
            resolve(&ticket.addresses, Family::Any, &Cancel::default(), no_warning).unwrap(),
            all
        );
        assert_eq!(
            resolve(&ticket.addresses, Family::V4, &Cancel::default(), no_warning).unwrap(),
            all[..1]
        );
        assert_eq!(
            resolve(&ticket.addresses, Family::V6, &Cancel::default(), no_warning).unwrap(),
            all[1..]
        );
    }

    #[test]
    fn an_unusable_address_is_a_clear_error() {
        let error =
            resolve(&["127.0.0.1:9".to_owned()], Family::V6, &Cancel::default(), no_warning)
                .unwrap_err();
        let error = error.to_string();
        assert!(error.contains("127.0.0.1:9") && error.contains("IPv6"), "{error}");
    }

    #[test]
    fn a_look_up_that_hangs_is_left_when_cancelled() {
        fn hang(_: &str) -> io::Result<Vec<SocketAddr>> {
            std::thread::sleep(Duration::from_secs(600));
            Ok(Vec::new())
        }
        let cancel = Cancel::default();
        let stop = cancel.clone();
        let (done, ended) = channel();
        std::thread::spawn(move || {
            done.send(patiently("host.invalid:9".to_owned(), &cancel, hang))
        });
        assert!(ended.recv_timeout(LOOK_UP_STEP * 4).is_err(), "it waits");
        stop.cancel();
        let outcome = ended.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
    }
}
