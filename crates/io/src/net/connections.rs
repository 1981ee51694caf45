//! The connections that the event loop drives: one or many, each found by its key.

use std::net::SocketAddr;
use std::sync::Arc;

use netblt_proto::api::{Datagram, Event, Transmit};
use netblt_proto::config::AuthorizedKeys;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_proto::trace::TraceEvent;

/// Datagrams that this machine does not send: its interface takes only smaller ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oversize {
    /// Their destination.
    pub to: SocketAddr,
    /// Bytes of UDP payload (or of a packet of raw IP) of the smallest that was refused.
    pub bytes: u32,
    /// The largest IP packets that it sends there, in bytes, if known.
    pub limit: Option<u32>,
}

/// The connections that talk through one socket. The contract is that of
/// [`netblt_proto::api`], for each of them.
pub trait Connections {
    /// The key of a connection.
    type Key: Copy;

    /// A datagram arrived.
    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>);

    /// An ICMP message says that nothing listens at `to`, where we sent something. Its port is 0 if
    /// that is not known. `quote` is the beginning of the sent packet, as far as the message has
    /// it.
    fn handle_refused(&mut self, now: Instant, to: SocketAddr, quote: &[u8]);

    /// A router, or this machine, knows no way to `to`; `quote` as above.
    fn handle_no_route(&mut self, now: Instant, to: SocketAddr, quote: &[u8]);

    /// A router reports that IP packets of at most `bytes` pass on the path to `to`. It may be
    /// forged.
    fn handle_path_limit(&mut self, now: Instant, to: SocketAddr, bytes: u32);

    /// This machine refused to send one of a connection's datagrams for its size. Whether smaller
    /// ones are sent from now on.
    fn handle_oversize(&mut self, now: Instant, key: Self::Key, refused: &Oversize) -> bool;

    /// Time passed.
    fn handle_timeout(&mut self, now: Instant);

    /// Appends the next datagrams to send to `batch`, if any are due.
    fn poll_transmit(&mut self, now: Instant, batch: &mut Vec<u8>)
    -> Option<(Self::Key, Transmit)>;

    /// The next event, if any.
    fn poll_event(&mut self) -> Option<(Self::Key, Event)>;

    /// The next trace event, if any.
    fn poll_trace(&mut self) -> Option<(Instant, TraceEvent)>;

    /// When `handle_timeout` is due or `poll_transmit` has something to say.
    fn next_timeout(&self, now: Instant) -> Option<Instant>;

    /// The next connection with which something has happened since its client was last asked.
    fn poll_ready(&mut self) -> Option<Self::Key>;

    /// Makes every connection ready, whatever has happened.
    fn wake_all(&mut self);

    /// The client of this connection is.
    fn wake(&mut self, key: Self::Key);

    /// From now on these keys may open connections. Open connections stay.
    fn authorize(&mut self, authorized: Arc<AuthorizedKeys>) {
        let _ = authorized;
    }

    /// The end of a connection, for its client to act on.
    fn end(&mut self, key: Self::Key) -> Option<&mut Endpoint>;

    /// The client has been notified that this connection is closed.
    fn forget(&mut self, key: Self::Key);
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

/// Whether an ICMP message about `named` concerns `peer`.
pub(crate) fn is_meant(peer: SocketAddr, named: SocketAddr) -> bool {
    peer.ip() == named.ip() && (named.port() == 0 || named.port() == peer.port())
}
