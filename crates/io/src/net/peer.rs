//! What the loop drives, and whose addresses are the same.

use std::net::SocketAddr;

use netblt_proto::machine::{Datagram, Transmit};
use netblt_proto::time::Instant;
use netblt_proto::trace::TraceEvent;

/// What talks through the socket: one connection, or several. The contract is that of
/// [`netblt_proto::machine`].
pub trait Peer {
    /// What happens to it.
    type Event;

    /// A datagram arrived.
    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>);

    /// Somebody said that nothing listens at `to`, where we sent something. Its port is 0 if that
    /// is not known.
    fn handle_refused(&mut self, now: Instant, to: SocketAddr);

    /// A router, or this machine, knows no way to `to`.
    fn handle_no_route(&mut self, now: Instant, to: SocketAddr);

    /// Time passed.
    fn handle_timeout(&mut self, now: Instant);

    /// Appends the next datagrams to send to `batch`, if any are due.
    fn poll_transmit(&mut self, now: Instant, batch: &mut Vec<u8>) -> Option<Transmit>;

    /// The next event, if any.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// The next trace event, if any.
    fn poll_trace(&mut self) -> Option<(Instant, TraceEvent)>;

    /// When `handle_timeout` is due or `poll_transmit` has something to say.
    fn next_timeout(&self, now: Instant) -> Option<Instant>;
}

/// IPv4 in its own clothes, whatever socket it came through.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(v4.into(), v6.port()),
            None => address,
        },
        SocketAddr::V4(_) => address,
    }
}

/// Whether what is said of `named` is said of `peer`.
pub(crate) fn is_meant(peer: SocketAddr, named: SocketAddr) -> bool {
    peer.ip() == named.ip() && (named.port() == 0 || named.port() == peer.port())
}
