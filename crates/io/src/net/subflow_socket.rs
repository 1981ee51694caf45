//! Sockets of subflows (`docs/protocol §4.11`), one for each thread.
//!
//! Those of the active end have ports of their own. The passive end has one port, which a firewall
//! lets in. Its subflows' sockets are bound to that port and each is connected to its peer, so the
//! kernel delivers every packet to the socket that is connected to its source. While such a socket
//! is bound and not yet connected, it may receive a few packets of other peers, which are lost.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, SockAddr, Type};

use crate::net::socket::Socket;

/// Makes sockets like that of a main connection.
#[derive(Debug)]
pub(crate) struct SubflowSockets {
    /// The main connection's.
    main: socket2::Socket,
    local: SocketAddr,
}

impl SubflowSockets {
    /// The sockets for subflows beside this one.
    pub(crate) fn beside(main: &Socket) -> io::Result<Self> {
        Ok(Self { main: main.shared()?, local: main.local() })
    }

    /// One of the active end, with any port.
    pub(crate) fn call(&self) -> io::Result<Socket> {
        let socket = self.like_main()?;
        socket.bind(&SockAddr::from(SocketAddr::new(self.local.ip(), 0)))?;
        Socket::of_subflow(socket)
    }

    /// A socket of the passive end, which receives from `peer` at the local address that it used.
    pub(crate) fn answer(&self, peer: SocketAddr, own: Option<IpAddr>) -> io::Result<Socket> {
        let socket = self.like_main()?;
        let own = own.map_or(self.local.ip(), |own| self.mapped(own));
        // Both sockets must set it, and only for this moment: no other program is to share the
        // port.
        socket.set_reuse_port(true)?;
        self.main.set_reuse_port(true)?;
        let peer = SocketAddr::new(self.mapped(peer.ip()), peer.port());
        let bound = socket.bind(&SockAddr::from(SocketAddr::new(own, self.local.port())));
        let bound = bound.and_then(|()| socket.connect(&SockAddr::from(peer)));
        bound.and(self.main.set_reuse_port(false))?;
        Socket::of_subflow(socket)
    }

    fn like_main(&self) -> io::Result<socket2::Socket> {
        let domain = Domain::for_address(self.local);
        let socket = socket2::Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if self.local.is_ipv6() {
            socket.set_only_v6(self.main.only_v6()?)?;
        }
        Ok(socket)
    }

    /// An address as this kind of socket spells it.
    fn mapped(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(v4) if self.local.is_ipv6() => v4.to_ipv6_mapped().into(),
            address => address,
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
    use std::time::Duration;

    use super::*;
    use crate::net::socket::Bind;
    use crate::settings::Family;

    /// Drains a socket: the sender's port and the bytes of each datagram.
    fn drain(socket: &mut Socket) -> Vec<(u16, Vec<u8>)> {
        let mut datagrams = Vec::new();
        for _ in 0..50 {
            let each = |(), datagram: netblt_proto::api::Datagram<'_>| {
                datagrams.push((datagram.from.port(), datagram.bytes.to_vec()));
            };
            let received = socket.recv(|| (), each).expect("it can be read");
            if received.datagrams == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        datagrams.sort();
        datagrams
    }

    #[test]
    fn each_socket_of_one_port_receives_from_its_own_peer() {
        for (family, address) in [
            (Family::V4, IpAddr::from(Ipv4Addr::LOCALHOST)),
            (Family::Any, IpAddr::from(Ipv4Addr::LOCALHOST)),
            (Family::V6, IpAddr::from(Ipv6Addr::LOCALHOST)),
        ] {
            let bind = Bind { family, answering: true, ..Bind::default() };
            let mut main = Socket::bind(&bind).expect("a port");
            let to = SocketAddr::new(address, main.local().port());
            let peers: Vec<UdpSocket> =
                (0..4).map(|_| UdpSocket::bind((address, 0)).expect("a port")).collect();
            let port = |peer: &UdpSocket| peer.local_addr().expect("it is bound").port();
            let subflows = SubflowSockets::beside(&main).expect("a handle");
            let mut sockets: Vec<Socket> = peers[1..]
                .iter()
                .map(|peer| {
                    let from = peer.local_addr().expect("it is bound");
                    subflows.answer(from, Some(address)).expect("a socket")
                })
                .collect();
            for _ in 0..20 {
                for peer in &peers {
                    peer.send_to(&port(peer).to_be_bytes(), to).expect("it leaves");
                }
            }
            for (peer, socket) in peers.iter().zip(std::iter::once(&mut main).chain(&mut sockets)) {
                let one = (port(peer), port(peer).to_be_bytes().to_vec());
                assert_eq!(drain(socket), vec![one; 20], "{family:?}");
            }
            // No other socket can have the port.
            let other = Socket::bind(&Bind { port: to.port(), ..bind });
            assert!(other.is_err(), "{family:?}");
        }
    }
}
