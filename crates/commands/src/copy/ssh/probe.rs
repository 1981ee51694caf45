//! Finds whether UDP passes between two machines, and in which direction, before the transfer
//! opens.
//!
//! Each end asks at all addresses where the other may be, from the port that the transfer will use,
//! so that a hole in a firewall serves both. Questions are as long as the longest packet of an
//! opening, so that a path on which only small ones pass does not count. An end without the
//! transfer's secret can neither ask nor answer. An answer is as long as its question.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use netblt::Family;
use socket2::{Domain, Protocol, Socket, Type};

use crate::exit::{Code, Failure};

/// Bytes of the padded OPEN (`docs/protocol §4.1`).
const LEN: usize = 1228;
const SIGN: [u8; 8] = *b"nbprobe1";
const ASK: u8 = 1;
const ANSWER: u8 = 2;
/// Sign, kind, side, nonce.
const HEAD: usize = 18;
const MAC: usize = 16;
/// The interval between two questions to one address.
const AGAIN: Duration = Duration::from_millis(100);
/// How long to wait for datagrams before looking at the clock again.
const STEP: Duration = Duration::from_millis(10);
/// Keeps this use of the secret apart from all others.
const CONTEXT: &str = "netblt 1 which way does UDP pass";

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client = 1,
    Agent = 2,
}

/// Most addresses that are asked: the other end's claims are not trusted.
const MOST: usize = 16;

/// The addresses of the other end to ask: those known here first, then those it reported, each
/// once, 16 at most, and only such as one machine can have. Loopback only if `loopback`.
pub(crate) fn plausible(
    known: impl IntoIterator<Item = IpAddr>,
    reported: impl IntoIterator<Item = IpAddr>,
    loopback: bool,
    fits: impl Fn(&IpAddr) -> bool,
) -> Vec<IpAddr> {
    let mut all = Vec::with_capacity(MOST);
    for ip in known.into_iter().chain(reported).map(|ip| ip.to_canonical()) {
        let wanted = is_unicast(&ip) && (loopback || !ip.is_loopback()) && fits(&ip);
        if wanted && !all.contains(&ip) {
            all.push(ip);
        }
        if all.len() == MOST {
            break;
        }
    }
    all
}

/// Whether a single machine can have this address, and the address needs no zone.
fn is_unicast(ip: &IpAddr) -> bool {
    let odd = match ip {
        // "This network", multicast, reserved, broadcast.
        IpAddr::V4(ip) => matches!(ip.octets()[0], 0 | 224..),
        IpAddr::V6(ip) => ip.is_multicast() || ip.is_unicast_link_local(),
    };
    !odd && !ip.is_unspecified()
}

/// A socket that asks and answers.
pub(crate) struct Prober {
    socket: UdpSocket,
    v6: bool,
    key: [u8; 32],
    side: Side,
    nonce: [u8; 8],
}

impl Prober {
    /// Takes one of these ports, both ends included; 0 lets the system choose.
    pub(crate) fn bind(
        (first, last): (u16, u16),
        family: Family,
        (secret, side): (&[u8; 32], Side),
    ) -> io::Result<Self> {
        let key = blake3::derive_key(CONTEXT, secret);
        // Two ends of one machine start at different places of the range.
        let span = u32::from(last.saturating_sub(first)) + 1;
        let start = u32::from_be_bytes([key[0], key[1], key[2], side as u8]) % span;
        let mut failed = io::Error::from(io::ErrorKind::AddrInUse);
        for step in 0..span {
            let port = u32::from(first) + (start + step) % span;
            match socket(u16::try_from(port).unwrap_or(0), family) {
                Ok((socket, v6)) => {
                    let mut nonce = [0; 8];
                    getrandom::fill(&mut nonce).map_err(|e| io::Error::other(e.to_string()))?;
                    return Ok(Self { socket, v6, key, side, nonce });
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// The port that the transfer will use.
    pub(crate) fn port(&self) -> io::Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }

    /// Asks `peers` and answers questions, until `until` or until `turn` ends it. `turn` is called
    /// often, with an address of the other end whenever that has answered there.
    pub(crate) fn run<T>(
        &self,
        peers: &[SocketAddr],
        until: Instant,
        mut turn: impl FnMut(Option<SocketAddr>) -> ControlFlow<T>,
    ) -> Option<T> {
        let mut next = Instant::now();
        let mut packet = [0; LEN + 1];
        loop {
            let now = Instant::now();
            if now >= until {
                return None;
            }
            if now >= next {
                next = now + AGAIN;
                let question = self.packet(ASK, self.nonce);
                for peer in peers {
                    // Some will be out of reach, which is what the probe finds.
                    let _ = self.socket.send_to(&question, self.spelled(*peer));
                }
            }
            let answered = match self.socket.recv_from(&mut packet) {
                Ok((len, from)) => self.receive(packet.get(..len).unwrap_or_default(), from),
                // No datagram came, or an ICMP message about some address did.
                Err(_) => None,
            };
            if let ControlFlow::Break(value) = turn(answered) {
                return Some(value);
            }
        }
    }

    fn receive(&self, packet: &[u8], from: SocketAddr) -> Option<SocketAddr> {
        let (head, rest) = packet.split_first_chunk::<HEAD>()?;
        let whole = packet.len() == LEN && head.starts_with(&SIGN) && head[9] != self.side as u8;
        if !whole || blake3::Hash::from(self.mac(head)) != padded(rest.get(..MAC)?) {
            return None;
        }
        let nonce: [u8; 8] = head[10..].try_into().ok()?;
        match head[8] {
            ASK => {
                let _ = self.socket.send_to(&self.packet(ANSWER, nonce), from);
                None
            }
            ANSWER if nonce == self.nonce => Some(canonical(from)),
            _ => None,
        }
    }

    fn packet(&self, kind: u8, nonce: [u8; 8]) -> [u8; LEN] {
        let mut packet = [0; LEN];
        packet[..8].copy_from_slice(&SIGN);
        (packet[8], packet[9]) = (kind, self.side as u8);
        packet[10..HEAD].copy_from_slice(&nonce);
        let mac = self.mac(&packet[..HEAD]);
        packet[HEAD..HEAD + MAC].copy_from_slice(&mac[..MAC]);
        packet
    }

    /// Its second half is zero.
    fn mac(&self, head: &[u8]) -> [u8; 32] {
        let mut mac = *blake3::keyed_hash(&self.key, head).as_bytes();
        mac[MAC..].fill(0);
        mac
    }

    /// An address as this socket takes it.
    fn spelled(&self, address: SocketAddr) -> SocketAddr {
        match address.ip() {
            IpAddr::V4(ip) if self.v6 => (ip.to_ipv6_mapped(), address.port()).into(),
            _ => address,
        }
    }
}

/// A port of these, both ends included, that no other socket has at this moment; 0 lets the system
/// choose.
pub(crate) fn free_port((first, last): (u16, u16), family: Family) -> Result<u16, Failure> {
    let mut failed = io::Error::from(io::ErrorKind::AddrInUse);
    for port in first..=last {
        match socket(port, family) {
            Ok(_) => return Ok(port),
            Err(error) => failed = error,
        }
    }
    Err(no_socket((first, last), &failed))
}

/// Why there is no socket at any of these ports.
pub(crate) fn no_socket((first, last): (u16, u16), error: &io::Error) -> Failure {
    let at = match (first, last) {
        (0, _) => String::new(),
        (first, last) if first == last => format!(" at --udp-port {first}"),
        (first, last) => format!(" at any of --udp-port {first}-{last}"),
    };
    Failure::new(Code::Socket, format!("cannot open a UDP socket{at}: {error}"))
}

/// A MAC as a hash, because hashes are compared in constant time.
fn padded(mac: &[u8]) -> blake3::Hash {
    let mut whole = [0; 32];
    whole[..mac.len()].copy_from_slice(mac);
    blake3::Hash::from(whole)
}

/// An IPv4 address in its own form, also if it came through an IPv6 socket.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// A socket for both IP versions, where the system has them.
fn socket(port: u16, family: Family) -> io::Result<(UdpSocket, bool)> {
    let open = |domain, only_v6, ip: IpAddr| {
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if domain == Domain::IPV6 {
            socket.set_only_v6(only_v6)?;
        }
        socket.bind(&SocketAddr::new(ip, port).into())?;
        socket.set_read_timeout(Some(STEP))?;
        io::Result::Ok(UdpSocket::from(socket))
    };
    let only_v6 = family == Family::V6;
    if family != Family::V4
        && let Ok(socket) = open(Domain::IPV6, only_v6, Ipv6Addr::UNSPECIFIED.into())
    {
        return Ok((socket, true));
    }
    Ok((open(Domain::IPV4, false, Ipv4Addr::UNSPECIFIED.into())?, false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const SOON: Duration = Duration::from_secs(5);

    fn end(side: Side, secret: u8) -> (Prober, SocketAddr) {
        let prober = Prober::bind((0, 0), Family::V4, (&[secret; 32], side)).expect("bound");
        let port = prober.port().expect("known");
        (prober, (Ipv4Addr::LOCALHOST, port).into())
    }

    fn listen(prober: Prober, time: Duration) -> thread::JoinHandle<Option<SocketAddr>> {
        thread::spawn(move || {
            let found = |answered: Option<SocketAddr>| match answered {
                Some(address) => ControlFlow::Break(address),
                None => ControlFlow::Continue(()),
            };
            prober.run(&[], Instant::now() + time, found)
        })
    }

    fn ask(prober: &Prober, at: SocketAddr, time: Duration) -> Option<SocketAddr> {
        prober.run(&[at], Instant::now() + time, |answered| match answered {
            Some(address) => ControlFlow::Break(address),
            None => ControlFlow::Continue(()),
        })
    }

    #[test]
    fn only_a_peer_with_the_secret_is_answered() {
        let (near, _) = end(Side::Client, 1);
        let (far, at) = end(Side::Agent, 1);
        let far = listen(far, Duration::from_millis(1500));
        assert_eq!(ask(&near, at, SOON), Some(at));
        for (side, secret) in [(Side::Client, 2), (Side::Agent, 1)] {
            let (other, _) = end(side, secret);
            assert_eq!(ask(&other, at, Duration::from_millis(300)), None, "{side:?} {secret}");
        }
        assert_eq!(far.join().expect("it ran"), None, "it asked no peer");
    }

    #[test]
    fn a_short_or_changed_question_is_not_answered() {
        let (far, at) = end(Side::Agent, 1);
        let (near, _) = end(Side::Client, 1);
        let far = listen(far, Duration::from_millis(700));
        let question = near.packet(ASK, near.nonce);
        let mut changed = question;
        changed[12] ^= 1;
        near.socket.send_to(&question[..LEN - 1], at).expect("sent");
        near.socket.send_to(&changed, at).expect("sent");
        let mut answer = [0; LEN];
        near.socket.set_read_timeout(Some(Duration::from_millis(200))).expect("set");
        assert!(near.socket.recv_from(&mut answer).is_err());
        near.socket.send_to(&question, at).expect("sent");
        near.socket.set_read_timeout(Some(SOON)).expect("set");
        assert!(near.socket.recv_from(&mut answer).is_ok());
        far.join().expect("it ran");
    }

    #[test]
    fn few_addresses_are_asked_and_only_such_as_a_machine_can_have() {
        let ip = |text: &str| text.parse::<IpAddr>().expect(text);
        let odd = [
            "224.0.0.1",
            "239.1.2.3",
            "255.255.255.255",
            "240.0.0.1",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "ff02::1",
            "fe80::1",
            "::ffff:224.0.0.1",
            "::ffff:255.255.255.255",
        ];
        let own = ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"];
        let reported = || odd.iter().chain(&own).map(|text| ip(text));
        let all = |_: &IpAddr| true;
        assert_eq!(plausible([], reported(), false, all), Vec::<IpAddr>::new());
        let loops: Vec<IpAddr> = own[..3].iter().map(|text| ip(text)).collect();
        assert_eq!(plausible([], reported(), true, all), loops);
        let many = (0..50_000u32).map(|n| IpAddr::from((0x0a00_0000 + n).to_be_bytes()));
        let known = ip("192.0.2.1");
        let asked = plausible([known, known], many, false, all);
        assert_eq!((asked.len(), asked[0], asked[1]), (16, known, ip("10.0.0.0")));
        let v6 = plausible([known], [ip("2001:db8::1")], false, IpAddr::is_ipv6);
        assert_eq!(v6, [ip("2001:db8::1")]);
    }

    #[test]
    fn ports_come_from_the_range_and_an_error_names_it_when_it_is_full() {
        let taken = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("bound");
        let port = taken.local_addr().expect("known").port();
        let full = Prober::bind((port, port), Family::V4, (&[1; 32], Side::Client));
        assert_eq!(full.err().map(|e| e.kind()), Some(io::ErrorKind::AddrInUse));
    }
}
