//! Authentication by static keys (`docs/protocol §4.8`): of a client to the one server whose key
//! it holds, of a server to all clients whose keys it was given.

use std::sync::Arc;

pub use crate::crypto::static_keys::{InvalidPublicKey, PublicKey, StaticKey};
pub use crate::crypto::static_pairing::{KeyId, StaticPairing};

/// The keys of an end, in place of a ticket's secret. Cloning shares them.
#[derive(Clone, Debug)]
pub enum Identity {
    /// An active end's.
    Client(Arc<ClientIdentity>),
    /// A passive end's.
    Server(Arc<AuthorizedKeys>),
}

impl Identity {
    /// The identity of an active end with the key `own`, which connects to the server with the key
    /// `server` and to no other.
    pub fn client(own: StaticKey, server: PublicKey) -> Result<Self, InvalidPublicKey> {
        let bond = StaticPairing::with_server(&own, server)?;
        Ok(Self::Client(Arc::new(ClientIdentity { own, bond })))
    }

    /// The identity of a passive end that accepts these clients.
    pub fn server(authorized: Arc<AuthorizedKeys>) -> Self {
        Self::Server(authorized)
    }
}

/// The keys of a client.
#[derive(Debug)]
pub struct ClientIdentity {
    pub(crate) own: StaticKey,
    pub(crate) bond: StaticPairing,
}

impl ClientIdentity {
    /// The key of the server.
    pub fn server(&self) -> PublicKey {
        self.bond.peer()
    }
}

/// The key of a server and those of the clients that it accepts, found by their ids in logarithmic
/// time.
///
/// Each client costs one multiplication on the curve (some 0.05 ms) when it is added, and none per
/// OPEN.
#[derive(Clone, Debug)]
pub struct AuthorizedKeys {
    own: StaticKey,
    /// Clients accepted until the list changes; may be many.
    clients: Arc<Pairings>,
    /// Clients accepted for a while; few.
    temporary: Pairings,
    introduces: bool,
}

/// The pairings of a server's key with those of clients.
#[derive(Clone, Debug, Default)]
struct Pairings {
    /// The pairings, sorted by id.
    bonds: Vec<StaticPairing>,
    /// The clients' keys, sorted.
    peers: Vec<PublicKey>,
}

impl Pairings {
    fn of(mut bonds: Vec<StaticPairing>) -> Self {
        bonds.sort_by_key(|bond| (bond.id(), bond.peer()));
        bonds.dedup_by_key(|bond| (bond.id(), bond.peer()));
        let mut peers: Vec<PublicKey> = bonds.iter().map(StaticPairing::peer).collect();
        peers.sort();
        Self { bonds, peers }
    }

    /// The same server's pairings with these clients; known ones are not computed again. Returns
    /// invalid keys.
    fn changed(&self, own: &StaticKey, clients: &[PublicKey]) -> (Self, Vec<PublicKey>) {
        let mut known: Vec<&StaticPairing> = self.bonds.iter().collect();
        known.sort_by_key(|bond| bond.peer());
        let (mut bonds, mut none) = (Vec::with_capacity(clients.len()), Vec::new());
        for client in clients {
            match known.binary_search_by_key(client, |bond| bond.peer()) {
                Ok(at) => bonds.push(known[at].clone()),
                Err(_) => match StaticPairing::with_client(own, *client) {
                    Ok(bond) => bonds.push(bond),
                    Err(InvalidPublicKey) => none.push(*client),
                },
            }
        }
        (Self::of(bonds), none)
    }

    fn knows(&self, client: &PublicKey) -> bool {
        self.peers.binary_search(client).is_ok()
    }

    fn with_id(&self, id: KeyId) -> &[StaticPairing] {
        let begin = self.bonds.partition_point(|bond| bond.id() < id);
        let len = self.bonds[begin..].partition_point(|bond| bond.id() == id);
        &self.bonds[begin..begin + len]
    }
}

impl AuthorizedKeys {
    /// A server with the key `own` that accepts the owners of these keys. It sends its public key
    /// to every client that asks.
    ///
    /// Invalid keys are left out and returned.
    pub fn new(own: StaticKey, clients: &[PublicKey]) -> (Self, Vec<PublicKey>) {
        let empty =
            Self { own, clients: Arc::default(), temporary: Pairings::default(), introduces: true };
        empty.changed(clients)
    }

    /// The same server with these clients in place of those before; known pairings are not computed
    /// again. Invalid keys are left out and returned.
    pub fn changed(&self, clients: &[PublicKey]) -> (Self, Vec<PublicKey>) {
        let (clients, none) = self.clients.changed(&self.own, clients);
        (Self { clients: Arc::new(clients), ..self.clone() }, none)
    }

    /// The same server, which also accepts these keys for a while, in place of those before. The
    /// cost does not depend on the number of clients. Invalid keys are left out.
    #[must_use]
    pub fn lending(&self, keys: &[PublicKey]) -> Self {
        let (temporary, _) = self.temporary.changed(&self.own, keys);
        Self { temporary, ..self.clone() }
    }

    /// The same, but it does not send its key: clients have it from elsewhere.
    #[must_use]
    pub fn hidden(self) -> Self {
        Self { introduces: false, ..self }
    }

    /// The server's own key.
    pub fn own(&self) -> &StaticKey {
        &self.own
    }

    /// Whether it sends its public key to any client that asks.
    pub fn introduces(&self) -> bool {
        self.introduces
    }

    /// The number of keys that it accepts.
    pub fn count(&self) -> usize {
        self.clients.bonds.len() + self.temporary.bonds.len()
    }

    /// Whether it accepts the owner of `client`.
    pub fn knows(&self, client: &PublicKey) -> bool {
        self.clients.knows(client) || self.temporary.knows(client)
    }

    /// The pairings with this id: none or one, and more only with probability 2^-64.
    pub(crate) fn with_id(&self, id: KeyId) -> impl Iterator<Item = &StaticPairing> {
        self.clients.with_id(id).iter().chain(self.temporary.with_id(id))
    }

    #[cfg(test)]
    pub(crate) fn with_one_id(self, id: KeyId) -> Self {
        let bonds = self.clients.bonds.iter().map(|bond| bond.clone().with_id(id)).collect();
        Self { clients: Arc::new(Pairings::of(bonds)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> StaticKey {
        StaticKey::from_bytes([byte; 32])
    }

    #[test]
    fn accepted_clients_are_found_by_their_ids() {
        let clients: Vec<PublicKey> = (1..50).map(|n| key(n).public()).collect();
        let (authorized, none) = AuthorizedKeys::new(key(99), &clients);
        assert_eq!((authorized.count(), none.len()), (49, 0));
        for n in 1..50 {
            let bond = StaticPairing::with_server(&key(n), key(99).public()).unwrap();
            let found = authorized.with_id(bond.id());
            assert_eq!(found.map(StaticPairing::peer).collect::<Vec<_>>(), [key(n).public()]);
            assert!(authorized.knows(&key(n).public()));
        }
        let stranger = StaticPairing::with_server(&key(60), key(99).public()).unwrap();
        assert_eq!(authorized.with_id(stranger.id()).count(), 0);
        assert!(!authorized.knows(&key(60).public()));
    }

    #[test]
    fn a_changed_list_keeps_common_clients_and_drops_the_others() {
        let (one, two, three) = (key(1).public(), key(2).public(), key(3).public());
        let (before, _) = AuthorizedKeys::new(key(99), &[one, two, two]);
        assert_eq!(before.count(), 2, "twice is once");
        let (after, none) = before.changed(&[two, three, PublicKey([0; 32])]);
        assert_eq!(none, [PublicKey([0; 32])]);
        assert_eq!([one, two, three].map(|key| after.knows(&key)), [false, true, true]);
        assert!(before.hidden().changed(&[one]).0.knows(&one));
    }

    #[test]
    fn lent_keys_are_accepted_beside_the_clients_without_copying_them() {
        let clients: Vec<PublicKey> = (1..50).map(|n| key(n).public()).collect();
        let (before, _) = AuthorizedKeys::new(key(99), &clients);
        let lending = before.lending(&[key(60).public(), PublicKey([0; 32])]);
        assert_eq!((lending.count(), before.count()), (50, 49));
        let bond = StaticPairing::with_server(&key(60), key(99).public()).unwrap();
        assert_eq!(lending.with_id(bond.id()).count(), 1);
        assert!(lending.knows(&key(60).public()) && lending.knows(&key(1).public()));
        assert!(Arc::ptr_eq(&lending.clients, &before.clients), "they are not copied");
        let (changed, _) = lending.changed(&clients[1..]);
        assert!(changed.knows(&key(60).public()) && !changed.knows(&key(1).public()));
        assert!(!changed.lending(&[]).knows(&key(60).public()));
    }

    #[test]
    fn ids_that_collide_are_both_found() {
        let (one, two) = (key(1).public(), key(2).public());
        let same = AuthorizedKeys::new(key(99), &[one, two]).0.with_one_id(KeyId([5; 8]));
        let mut found: Vec<PublicKey> =
            same.with_id(KeyId([5; 8])).map(StaticPairing::peer).collect();
        found.sort();
        let mut both = [one, two];
        both.sort();
        assert_eq!(found, both);
        assert!(same.with_id(KeyId([4; 8])).next().is_none());
        assert!(same.with_id(KeyId([6; 8])).next().is_none());
    }
}
