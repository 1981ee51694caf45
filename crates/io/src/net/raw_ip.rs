//! NETBLT directly on IP, as RFC 998 §6 has it: IP protocol 30, no UDP (`docs/protocol §2.2`).
//!
//! A raw socket receives every NETBLT packet of this machine, for any program, and on loopback also
//! those that it sent itself. So the NETBLT ports replace those of UDP: the kernel gets a filter
//! for ours, the rest is checked again, and a peer's address is its IP address with its NETBLT
//! port.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, SockAddr, Type};

/// The IP protocol number of NETBLT (RFC 998 §2).
pub const PROTOCOL: u8 = 30;
/// The NETBLT port at which a passive end waits if no other is given. RFC 998 assigns none; the
/// drafts of a version 5 (draft-white-tsvwg-netblt) keep this one for experiments.
pub const PORT: u16 = 1021;
/// The first port for an active end without a given one: RFC 6335 leaves these to programs.
const FIRST_DYNAMIC_PORT: u16 = 49_152;
/// Bytes of the smallest NETBLT packet (RFC 998 §8), and of the smallest IPv4 header.
const HEADER_BYTES: usize = 12;
const IPV4_HEADER_BYTES: usize = 20;
/// The offsets of the sender's and the addressee's port in a NETBLT packet.
const LOCAL_PORT_AT: usize = 6;
const FOREIGN_PORT_AT: usize = 8;

/// A port for an active end, drawn from `entropy`.
pub(crate) fn any_port(entropy: [u8; 32]) -> u16 {
    u16::from_be_bytes([entropy[0], entropy[1]]) | FIRST_DYNAMIC_PORT
}

/// Opens and binds a raw socket that receives packets for NETBLT port `port` of `address`.
pub(crate) fn open(address: IpAddr, port: u16) -> io::Result<socket2::Socket> {
    let local = SocketAddr::new(address, 0);
    let protocol = Protocol::from(i32::from(PROTOCOL));
    let socket = socket2::Socket::new(Domain::for_address(local), Type::RAW, Some(protocol))?;
    #[cfg(target_os = "linux")]
    socket.attach_filter(&filter(address.is_ipv6(), port))?;
    socket.bind(&SockAddr::from(local))?;
    Ok(socket)
}

/// Lets packets for NETBLT port `port` pass: programs of the classic packet filter. With IPv4 they
/// see the IP header, with IPv6 they do not.
#[cfg(target_os = "linux")]
fn filter(v6: bool, port: u16) -> Vec<socket2::SockFilter> {
    use socket2::SockFilter as Op;
    // <linux/bpf_common.h>: X = length of the IPv4 header; A = 16 bits at k, at X + k; jump if A
    // is k; answer k, the bytes to keep.
    const X_FROM_IPV4_HEADER: u16 = 0xb1;
    const LOAD_SHORT: u16 = 0x28;
    const LOAD_SHORT_FROM_X: u16 = 0x48;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const ANSWER: u16 = 0x06;
    let at = FOREIGN_PORT_AT as u32;
    let mut program = match v6 {
        true => vec![Op::new(LOAD_SHORT, 0, 0, at)],
        false => vec![Op::new(X_FROM_IPV4_HEADER, 0, 0, 0), Op::new(LOAD_SHORT_FROM_X, 0, 0, at)],
    };
    program.extend([
        Op::new(JUMP_IF_EQUAL, 0, 1, u32::from(port)),
        Op::new(ANSWER, 0, 0, u32::MAX),
        Op::new(ANSWER, 0, 0, 0),
    ]);
    program
}

/// Whether a NETBLT packet is addressed to `port`.
pub(crate) fn is_for(packet: &[u8], port: u16) -> bool {
    packet.len() >= HEADER_BYTES && port_at(packet, FOREIGN_PORT_AT) == Some(port)
}

/// The payload that a raw socket received, without its IP header, and its sender. `None` if it is
/// no NETBLT packet for `port`.
pub(crate) fn unwrap(from: IpAddr, bytes: &mut [u8], port: u16) -> Option<(SocketAddr, &mut [u8])> {
    let packet = if from.is_ipv4() {
        let words = usize::from(bytes.first().filter(|first| **first >> 4 == 4)? & 0xf);
        bytes.get_mut((words * 4).max(IPV4_HEADER_BYTES)..)?
    } else {
        bytes
    };
    let peer = port_at(packet, LOCAL_PORT_AT)?;
    is_for(packet, port).then_some((SocketAddr::new(from, peer), packet))
}

fn port_at(packet: &[u8], at: usize) -> Option<u16> {
    let bytes = packet.get(at..at + 2)?;
    Some(u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A KEEPALIVE from port 1025 to port 9, with a checksum that is not checked here.
    const KEEPALIVE: [u8; 12] = [0, 0, 2, 2, 0, 12, 4, 1, 0, 9, 0, 0];

    #[test]
    fn the_ip_header_of_any_length_is_removed() {
        let v4 = "192.0.2.1".parse().unwrap();
        for words in 5..=15_u8 {
            let mut bytes = vec![0; usize::from(words) * 4];
            bytes[0] = 0x40 | words;
            bytes.extend(KEEPALIVE);
            let (from, packet) = unwrap(v4, &mut bytes, 9).expect("a packet for us");
            assert_eq!((from.to_string().as_str(), &*packet), ("192.0.2.1:1025", &KEEPALIVE[..]));
        }
        let mut bytes = KEEPALIVE;
        let (from, packet) = unwrap("2001:db8::1".parse().unwrap(), &mut bytes, 9).unwrap();
        assert_eq!((from.port(), packet.len()), (1025, 12));
    }

    #[test]
    fn packets_for_other_ports_or_invalid_ones_are_ignored() {
        let v4 = "192.0.2.1".parse().unwrap();
        let whole = [&[0x45][..], &[0; 19], &KEEPALIVE].concat();
        assert!(unwrap(v4, &mut whole.clone(), 9).is_some());
        // Our own packet, come back over loopback.
        assert!(unwrap(v4, &mut whole.clone(), 1025).is_none());
        for len in 0..whole.len() {
            assert!(unwrap(v4, &mut whole[..len].to_vec(), 9).is_none(), "{len}");
        }
        assert!(unwrap(v4, &mut [0xff; 40], 0xffff).is_none());
    }

    #[test]
    fn drawn_ports_are_dynamic_ones() {
        for draw in [[0; 32], [0xff; 32], [0x5a; 32]] {
            assert!(any_port(draw) >= FIRST_DYNAMIC_PORT);
        }
    }
}
