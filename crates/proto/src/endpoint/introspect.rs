//! Getters of an endpoint, and the keys that it accepts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{Endpoint, HandshakeSide};
use crate::config::{AuthorizedKeys, Identity, PublicKey};
use crate::connection::Machine;
use crate::stats::Stats;
use crate::time::Instant;

impl Endpoint {
    /// The peer's validated address, or the one that the handshake uses.
    pub fn peer(&self) -> Option<SocketAddr> {
        match (&self.connection, &self.opener) {
            (Some(connection), _) => {
                connection.addresses.validated().map(|validated| validated.peer)
            }
            (None, HandshakeSide::Active(active)) => Some(active.peer()),
            (None, HandshakeSide::Passive(_) | HandshakeSide::Done) => None,
        }
    }

    /// The connection id of packets to this end: `None` where the wire has none (`rfc998`), and at
    /// a passive end before an OPEN was answered.
    ///
    /// A passive end with several unconfirmed handshakes has several: see
    /// [`Endpoint::connection_ids`].
    pub fn connection_id(&self) -> Option<u32> {
        self.connection_ids().next()
    }

    /// Every connection id that a packet for this end may carry: that of the open connection first,
    /// then those of unconfirmed handshakes, newest first. A bounded number; it changes only when a
    /// datagram was handled.
    pub fn connection_ids(&self) -> impl Iterator<Item = u32> {
        let (active, passive) = match &self.opener {
            HandshakeSide::Active(active) => (active.own_id(), None),
            HandshakeSide::Passive(passive) => (None, Some(passive.unconfirmed_ids())),
            HandshakeSide::Done => (None, None),
        };
        let open = match &self.connection {
            Some(connection) => connection.own_id(),
            None => active,
        };
        let unconfirmed: Vec<u32> = passive.into_iter().flatten().collect();
        open.into_iter().chain(unconfirmed.into_iter().rev())
    }

    /// Authentic datagrams so far: [`Stats::datagrams_received`] alone, to see cheaply whether a
    /// packet of the peer has arrived.
    pub fn datagrams_received(&self) -> u64 {
        self.counts.received
    }

    /// Bytes of IP packets that left, and that arrived and were authentic.
    pub fn carried_bytes(&self) -> (u64, u64) {
        let (overhead, counts) = (u64::from(self.config.overhead_bytes), &self.counts);
        let of = |packets: u64, bytes: u64| bytes + packets * overhead;
        (of(counts.sent, counts.sent_bytes), of(counts.received, counts.received_bytes))
    }

    /// Packets of data that left or arrived so far: [`Stats::data_packets_sent`] of a sender,
    /// [`Stats::data_packets_received`] of a receiver.
    pub fn data_packets(&self) -> u64 {
        match self.connection.as_ref().map(|connection| &connection.machine) {
            Some(Machine::Sender(sender)) => sender.data_packets_sent(),
            Some(Machine::Receiver(receiver)) => receiver.data_packets(),
            None => 0,
        }
    }

    /// Counts and measurements so far.
    pub fn stats(&self, now: Instant) -> Stats {
        let mut stats = match self.connection.as_ref().map(|c| &c.machine) {
            Some(Machine::Sender(sender)) => sender.stats(now),
            Some(Machine::Receiver(receiver)) => receiver.stats(),
            None => Stats::default(),
        };
        stats.datagrams_sent = self.counts.sent;
        stats.bytes_sent = self.counts.sent_bytes;
        stats.datagrams_received = self.counts.received;
        stats.bytes_received = self.counts.received_bytes;
        stats.datagrams_dropped = self.counts.dropped;
        stats.overrun = self.counts.overrun.map_or(0, |(first, last)| last.wrapping_sub(first));
        stats.opened_at = self.counts.opened_at;
        stats
    }

    /// Delivered bytes, as far as this end knows, and the smallest round trip, once known. A sender
    /// counts by REPORTs: OKs come in irregular bursts.
    pub fn moved(&self) -> (u64, Option<Duration>) {
        match self.connection.as_ref().map(|connection| &connection.machine) {
            Some(Machine::Sender(sender)) => sender.moved(),
            Some(Machine::Receiver(receiver)) => receiver.moved(),
            None => (0, None),
        }
    }

    /// Passive end with an identity: sets the keys that may open a connection, in place of those
    /// before. An open connection stays.
    pub fn authorize(&mut self, authorized: Arc<AuthorizedKeys>) {
        if let HandshakeSide::Passive(passive) = &mut self.opener {
            passive.on_authorized(&authorized);
        }
        self.config.identity = Some(Identity::server(authorized));
    }

    /// The peer's static key, if a connection is open and was opened by keys.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.peer_key
    }
}
