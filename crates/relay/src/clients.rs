//! The clients of a relay: each has a socket of its own towards the target, as behind a NAT.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use quinn_udp::RecvMeta;

use crate::socket::{Route, Socket};
use crate::wait::Waiter;
use crate::{IDLE_LIMIT, MAX_CLIENTS};

/// The client of a datagram inside, also after others have taken its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientId {
    slot: u32,
    number: u64,
}

#[cfg(test)]
impl ClientId {
    pub(crate) fn for_test(slot: u32) -> Self {
        Self { slot, number: slot.into() }
    }
}

#[derive(Debug)]
pub(crate) struct Client {
    number: u64,
    address: SocketAddr,
    /// The address of ours that it talks to, from which it must be answered.
    ours: Option<IpAddr>,
    socket: Socket,
    last_datagram: Instant,
}

impl Client {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn towards(&self, target: SocketAddr) -> Route<'_> {
        Route { socket: &self.socket, to: target, from: None }
    }

    pub(crate) fn back_from<'a>(&self, listener: &'a Socket) -> Route<'a> {
        Route { socket: listener, to: self.address, from: self.ours }
    }
}

#[derive(Debug)]
pub(crate) struct Clients {
    target: SocketAddr,
    /// Whether the listener has more addresses than one, so that it matters which one answers.
    wildcard: bool,
    slots: Vec<Option<Client>>,
    by_address: BTreeMap<SocketAddr, u32>,
    seen: u64,
    swept: Option<Instant>,
}

impl Clients {
    pub(crate) fn new(local: SocketAddr, target: SocketAddr) -> Self {
        Self {
            target,
            wildcard: local.ip().is_unspecified(),
            slots: Vec::new(),
            by_address: BTreeMap::new(),
            seen: 0,
            swept: None,
        }
    }

    pub(crate) fn target(&self) -> SocketAddr {
        self.target
    }

    /// Clients ever admitted.
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// The client that sent this, new or known, and the bytes of headers before its datagrams;
    /// `None` when there is no room for another.
    pub(crate) fn admit(
        &mut self,
        meta: &RecvMeta,
        now: Instant,
        waiter: &mut Waiter,
    ) -> Option<(ClientId, u32)> {
        let slot = match self.by_address.get(&meta.addr) {
            Some(&slot) => slot,
            None => self.add(meta, now, waiter)?,
        };
        self.of_socket(slot.into(), now)
    }

    fn add(&mut self, meta: &RecvMeta, now: Instant, waiter: &mut Waiter) -> Option<u32> {
        let slot = match self.slots.iter().position(Option::is_none) {
            Some(slot) => slot,
            None if self.slots.len() < MAX_CLIENTS => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => return None,
        };
        let any: IpAddr = match self.target {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        // Out of file descriptors is out of room: this client waits for another to go.
        let socket = Socket::bind(SocketAddr::new(any, 0)).ok()?;
        waiter.add(&socket, slot as u64).ok()?;
        self.seen += 1;
        self.slots[slot] = Some(Client {
            number: self.seen,
            address: meta.addr,
            ours: meta.dst_ip.filter(|_| self.wildcard),
            socket,
            last_datagram: now,
        });
        self.by_address.insert(meta.addr, slot as u32);
        Some(slot as u32)
    }

    /// The client whose socket is polled under `key`.
    pub(crate) fn of_socket(&mut self, key: u64, now: Instant) -> Option<(ClientId, u32)> {
        let slot = u32::try_from(key).ok()?;
        let client = self.slots.get_mut(slot as usize)?.as_mut()?;
        client.last_datagram = now;
        Some((ClientId { slot, number: client.number }, overhead_bytes(client.address)))
    }

    pub(crate) fn socket(&self, key: u64) -> Option<&Socket> {
        let slot = usize::try_from(key).ok()?;
        Some(&self.slots.get(slot)?.as_ref()?.socket)
    }

    /// The client for which a datagram has crossed the path, unless it is gone.
    pub(crate) fn find(&mut self, id: ClientId, now: Instant) -> Option<&Client> {
        let client = self.slots.get_mut(id.slot as usize)?.as_mut()?;
        if client.number != id.number {
            return None;
        }
        client.last_datagram = now;
        Some(client)
    }

    /// Once a second, closes clients that have been silent for too long.
    pub(crate) fn forget_idle(&mut self, now: Instant, waiter: &mut Waiter) {
        let since = |then: Instant| now.saturating_duration_since(then);
        if self.swept.is_some_and(|swept| since(swept) < Duration::from_secs(1)) {
            return;
        }
        self.swept = Some(now);
        for (key, slot) in self.slots.iter_mut().enumerate() {
            if let Some(client) = slot.take_if(|client| since(client.last_datagram) > IDLE_LIMIT) {
                self.by_address.remove(&client.address);
                waiter.remove(&client.socket, key as u64);
            }
        }
    }
}

/// IP and UDP headers before each datagram from or to this client (`docs/protocol §6.1`).
fn overhead_bytes(client: SocketAddr) -> u32 {
    if client.ip().to_canonical().is_ipv4() { 28 } else { 48 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(port: u16) -> RecvMeta {
        let mut meta = RecvMeta::default();
        meta.addr = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        meta
    }

    #[test]
    fn idle_clients_give_their_place_to_others() {
        let local = "127.0.0.1:1".parse().unwrap();
        let mut clients = Clients::new(local, local);
        let mut waiter = Waiter::new().unwrap();
        let start = Instant::now();
        let (first, overhead) = clients.admit(&meta(1), start, &mut waiter).unwrap();
        let later = start + IDLE_LIMIT / 2;
        let (second, _) = clients.admit(&meta(2), later, &mut waiter).unwrap();
        assert_eq!((overhead, first != second), (28, true));
        assert_eq!(clients.admit(&meta(1), start, &mut waiter).unwrap().0, first);
        let end = start + IDLE_LIMIT + Duration::from_secs(1);
        clients.forget_idle(end, &mut waiter);
        assert!(clients.find(first, end).is_none() && clients.find(second, end).is_some());
        let (third, _) = clients.admit(&meta(3), end, &mut waiter).unwrap();
        assert_eq!(third.slot, first.slot);
        assert!(clients.find(first, end).is_none() && clients.find(third, end).is_some());
        assert_eq!(clients.seen(), 3);
    }

    #[test]
    fn headers_depend_on_the_client() {
        for (address, bytes) in [("10.0.0.1:1", 28), ("[::1]:1", 48), ("[::ffff:1.2.3.4]:1", 28)] {
            assert_eq!(overhead_bytes(address.parse().unwrap()), bytes);
        }
    }
}
