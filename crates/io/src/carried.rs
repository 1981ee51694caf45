//! Datagrams without UDP: a pair of sockets within this machine. A transfer has one end, and the
//! program that carries the datagrams to the peer has the other.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

/// The pretended addresses of this end and its peer: nothing is ever sent there.
const OWN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 2);

/// One end of a pair of sockets, in the place of a UDP socket ([`crate::NetworkOptions::carried`]).
#[derive(Clone, Debug)]
pub struct Carried(Arc<UnixDatagram>);

impl Carried {
    /// A pair: the end for a transfer, and the one from which its datagrams are read and to which
    /// its peer's are written. A send waits where the other end does not read.
    pub fn pair() -> io::Result<(Self, UnixDatagram)> {
        let (own, other) = UnixDatagram::pair()?;
        own.set_nonblocking(true)?;
        Ok((Self(Arc::new(own)), other))
    }

    /// The address of the peer, for the ticket of an end that connects.
    pub fn peer() -> SocketAddr {
        PEER
    }

    pub(crate) fn local() -> SocketAddr {
        OWN
    }

    pub(crate) fn socket(&self) -> io::Result<socket2::Socket> {
        Ok(OwnedFd::from(self.0.try_clone()?).into())
    }
}
