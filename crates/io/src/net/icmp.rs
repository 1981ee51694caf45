//! ICMP errors about sent packets: the socket's error queue.
//!
//! quinn-udp reads it too, but reports only the sender of an ICMP message. That may be any router
//! on the way. The destination of the quoted packet shows whether the message concerns the peer.

use std::net::SocketAddr;
use std::os::fd::AsFd;

/// Bytes of a packet that are read if they are given back.
const QUOTE_BYTES: usize = 64;

/// The beginning of a packet of ours, given back to show that it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quote {
    bytes: [u8; QUOTE_BYTES],
    len: usize,
}

impl Quote {
    /// The beginning of `packet`.
    pub fn of(packet: &[u8]) -> Self {
        let len = packet.len().min(QUOTE_BYTES);
        let mut bytes = [0; QUOTE_BYTES];
        bytes[..len].copy_from_slice(&packet[..len]);
        Self { bytes, len }
    }

    /// It.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// An ICMP error about a packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// An ICMP message says that nothing listens there. The address is the destination of our
    /// packet. Its port is 0 on raw IP.
    Refused(SocketAddr, Quote),
    /// A router or this machine has no route to the destination.
    NoRoute(SocketAddr, Quote),
    /// A router reports that IP packets over this many bytes do not pass to the destination.
    TooBig(SocketAddr, u32),
    /// This machine itself sends no IP packets over this many bytes there.
    Oversize(u32),
}

/// Asks for the errors of a raw IPv6 socket, which quinn-udp cannot do: it asks for IPv4's first,
/// and such a socket knows none. Whether there is no more to do.
pub(crate) fn enable(socket: &impl AsFd, raw_v6: bool) -> bool {
    #[cfg(target_os = "linux")]
    {
        use nix::sys::socket::{setsockopt, sockopt};
        raw_v6 && setsockopt(socket, sockopt::Ipv6RecvErr, &true).is_ok()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = socket;
        raw_v6
    }
}

/// One entry of a socket's error queue, its address written in the `canonical` way; what means
/// nothing to us is `Some(None)`.
#[cfg(target_os = "linux")]
pub(crate) fn read(
    socket: impl AsFd,
    canonical: fn(SocketAddr) -> SocketAddr,
) -> Option<Option<IcmpError>> {
    use std::io::IoSliceMut;
    use std::os::fd::AsRawFd;

    use nix::libc::{sock_extended_err, sockaddr_in6};
    use nix::sys::socket::{
        ControlMessageOwned, MsgFlags, SockaddrStorage, cmsg_space, recvmsg as receive,
    };

    // Room for one error message, and for the kernel's other control messages of a packet.
    let mut control = [0; cmsg_space::<(sock_extended_err, sockaddr_in6)>() + 128];
    // The beginning of the packet itself, as far as it was given back.
    let mut bytes = [0; QUOTE_BYTES];
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let message = receive::<SockaddrStorage>(
        socket.as_fd().as_raw_fd(),
        &mut slices,
        Some(&mut control),
        flags,
    );
    let message = message.ok()?;
    let to = message.address.as_ref().and_then(socket_address).map(canonical);
    let error = message.cmsgs().ok()?.find_map(|control| match control {
        ControlMessageOwned::Ipv4RecvErr(error, _) => Some(error),
        ControlMessageOwned::Ipv6RecvErr(error, _) => Some(error),
        _ => None,
    });
    let len = message.bytes;
    let quote = Quote::of(bytes.get(..len).unwrap_or(&bytes));
    Some(error.and_then(|error| meaning(&error, to?, quote)))
}

#[cfg(target_os = "linux")]
fn socket_address(storage: &nix::sys::socket::SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    let v6 = || storage.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into()));
    v4.or_else(v6)
}

#[cfg(target_os = "linux")]
fn meaning(
    error: &nix::libc::sock_extended_err,
    to: SocketAddr,
    quote: Quote,
) -> Option<IcmpError> {
    use nix::libc::{SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6, SO_EE_ORIGIN_LOCAL};
    use rustix::io::Errno;

    // No UDP port, no such protocol (raw IP).
    let refusals = [Errno::CONNREFUSED, Errno::NOPROTOOPT].map(Errno::raw_os_error);
    let refused = i32::try_from(error.ee_errno).is_ok_and(|errno| refusals.contains(&errno));
    match (error.ee_origin, error.ee_type, error.ee_code) {
        (SO_EE_ORIGIN_LOCAL, _, _) if error.ee_errno == Errno::MSGSIZE.raw_os_error() as u32 => {
            Some(IcmpError::Oversize(error.ee_info))
        }
        // RFC 792, "fragmentation needed"; RFC 4443, "packet too big".
        (SO_EE_ORIGIN_ICMP, 3, 4) | (SO_EE_ORIGIN_ICMP6, 2, _) => {
            Some(IcmpError::TooBig(to, error.ee_info))
        }
        (SO_EE_ORIGIN_ICMP, 3, _) | (SO_EE_ORIGIN_ICMP6, 1, _) if refused => {
            Some(IcmpError::Refused(to, quote))
        }
        // RFC 4443, "unrecognized next header".
        (SO_EE_ORIGIN_ICMP6, 4, 1) => Some(IcmpError::Refused(to, quote)),
        (SO_EE_ORIGIN_ICMP, 3, _) | (SO_EE_ORIGIN_ICMP6, 1, _) => {
            Some(IcmpError::NoRoute(to, quote))
        }
        _ => None,
    }
}

/// Other systems have no such queue.
#[cfg(not(target_os = "linux"))]
pub(crate) fn read(_: impl AsFd, _: fn(SocketAddr) -> SocketAddr) -> Option<Option<IcmpError>> {
    None
}
