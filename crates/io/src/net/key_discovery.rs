//! Asks a server for its public key (`docs/protocol §4.9`). Nothing proves the answer: the
//! caller has to compare the fingerprint, or to trust it once.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use netblt_proto::api::CloseReason;
use netblt_proto::config::{PublicKey, Wire};
use netblt_proto::wire::sealed::{self, KEY_PACKET_BYTES, Nonce};

use crate::cancel::Cancel;
use crate::error::{Error, Warning};
use crate::net::addresses;
use crate::options::Options;

/// How often a question leaves, and how long each is waited for at first and at most.
const TRIES: u32 = 10;
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// How soon a cancel is seen.
const SLICE: Duration = Duration::from_millis(50);

/// The public key that a server at one of these addresses (`host:port`) claims to have. Blocks for
/// 22 s at most, or the death timer if that is less.
pub fn ask(
    addresses: &[String],
    options: &Options,
    cancel: &Cancel,
    mut warn: impl FnMut(&Warning),
) -> Result<PublicKey, Error> {
    let resolved =
        addresses::resolve(addresses, options.settings.family, cancel, |warning| warn(warning))?;
    let sockets = sockets(&resolved, options)?;
    let mut nonce: Nonce = [0; 12];
    getrandom::fill(&mut nonce)
        .map_err(|error| failed("the system gives no random numbers", io::Error::other(error)))?;
    let request = sealed::build_who(nonce);
    let (mut wait, start) = (FIRST_WAIT, Instant::now());
    for _ in 0..TRIES {
        let left = options.settings.death_timer.saturating_sub(start.elapsed());
        if left.is_zero() {
            break;
        }
        for (socket, to) in &sockets {
            // A failed send is a lost packet.
            let _ = socket.send_to(&request, to);
        }
        let until = Instant::now() + wait.min(left);
        while Instant::now() < until {
            if cancel.is_cancelled() {
                return Err(Error::Interrupted);
            }
            if let Some(key) = sockets.iter().find_map(|(socket, _)| receive_key(socket, nonce)) {
                return Ok(key);
            }
        }
        wait = (wait * 3 / 2).min(LONGEST_WAIT);
    }
    let reason = CloseReason::NoAnswer { hint: None, unreachable: false };
    Err(Error::Connect { peer: addresses.join(", "), wire: Wire::Sealed, reason })
}

/// A socket for each address.
fn sockets(
    addresses: &[SocketAddr],
    options: &Options,
) -> Result<Vec<(UdpSocket, SocketAddr)>, Error> {
    let mut sockets = Vec::new();
    for to in addresses {
        let any = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let own = options.network.bind.filter(|own| own.is_ipv4() == to.is_ipv4());
        if own.is_none() && options.network.bind.is_some() {
            continue;
        }
        let bound = UdpSocket::bind(SocketAddr::new(own.unwrap_or(any), 0));
        let slice = SLICE / addresses.len().max(1) as u32;
        let ready = bound.and_then(|socket| {
            socket.set_read_timeout(Some(slice.max(Duration::from_millis(1))))?;
            Ok(socket)
        });
        match ready {
            Ok(socket) => sockets.push((socket, *to)),
            // A host without one of the two versions has the other.
            Err(source) if sockets.is_empty() && addresses.len() == 1 => {
                return Err(failed("cannot open a socket", source));
            }
            Err(_) => {}
        }
    }
    if sockets.is_empty() {
        let shown: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        return Err(Error::NoAddress { version: "", addresses: shown.join(", ") });
    }
    Ok(sockets)
}

/// The answer to the question with that number, if it has arrived or arrives soon.
fn receive_key(socket: &UdpSocket, nonce: Nonce) -> Option<PublicKey> {
    let mut bytes = [0; KEY_PACKET_BYTES + 1];
    let (len, _) = socket.recv_from(&mut bytes).ok()?;
    let (of, key) = sealed::parse_key(&bytes[..len]).ok()?;
    (of == nonce).then_some(key)
}

fn failed(what: &str, source: io::Error) -> Error {
    Error::Socket { what: what.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use netblt_proto::config::StaticKey;

    use super::*;

    fn key() -> PublicKey {
        StaticKey::from_bytes([7; 32]).public()
    }

    /// A server that answers the second question only, and others before it that mean nothing.
    #[test]
    fn the_answer_to_the_own_question_counts() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = server.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            let mut bytes = [0; 100];
            let (len, from) = server.recv_from(&mut bytes).unwrap();
            let nonce = sealed::parse_who(&bytes[..len]).unwrap();
            let mut other = nonce;
            other[0] ^= 1;
            let false_key = StaticKey::from_bytes([8; 32]).public();
            server.send_to(&sealed::build_key(other, &false_key), from).unwrap();
            server.send_to(b"nonsense", from).unwrap();
            let (len, from) = server.recv_from(&mut bytes).unwrap();
            assert_eq!(sealed::parse_who(&bytes[..len]), Ok(nonce));
            server.send_to(&sealed::build_key(nonce, &key()), from).unwrap();
        });
        let (options, cancel) = (Options::default(), Cancel::default());
        let answer = ask(&[at.to_string()], &options, &cancel, |_| {});
        assert_eq!(answer.unwrap(), key());
        answering.join().unwrap();
    }

    #[test]
    fn a_question_for_the_key_can_be_cancelled() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let cancel = Cancel::default();
        cancel.cancel();
        let at = silent.local_addr().unwrap().to_string();
        let answer = ask(&[at], &Options::default(), &cancel, |_| {});
        assert!(matches!(answer, Err(Error::Interrupted)), "{answer:?}");
    }
}
