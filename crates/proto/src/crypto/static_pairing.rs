//! The pairing of two static keys, computed once from their static-static shared secret: the key id
//! by which an OPEN is assigned to a client, and the key of its MAC (`docs/protocol §4.8`).
//!
//! Only the two owners can compute both. So an attacker can neither choose a key with the id of
//! another pair, nor find the owner of an id.

use std::fmt;

use zeroize::Zeroizing;

use super::mac::MacKey;
use super::static_keys::{InvalidPublicKey, KEY_BYTES, PublicKey, StaticKey};

/// Bytes of a key id (`docs/protocol §4.8`).
pub const KEY_ID_BYTES: usize = 8;

/// The id by which a passive end finds the active end's key (`docs/protocol §4.8`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(pub [u8; KEY_ID_BYTES]);

/// The pairing of an end's key with another end's public key.
#[derive(Clone)]
pub struct StaticPairing {
    peer: PublicKey,
    id: KeyId,
    mac_key: MacKey,
}

impl StaticPairing {
    /// The pairing of an active end with the passive end whose key is `server`.
    pub fn with_server(own: &StaticKey, server: PublicKey) -> Result<Self, InvalidPublicKey> {
        Self::between(own, server, [own.public(), server])
    }

    /// The pairing of a passive end with the active end whose key is `client`.
    pub fn with_client(own: &StaticKey, client: PublicKey) -> Result<Self, InvalidPublicKey> {
        Self::between(own, client, [client, own.public()])
    }

    fn between(
        own: &StaticKey,
        peer: PublicKey,
        ends: [PublicKey; 2],
    ) -> Result<Self, InvalidPublicKey> {
        let mut both = Zeroizing::new([0; 3 * KEY_BYTES]);
        let [client, server] = ends;
        for (place, part) in
            both.chunks_exact_mut(KEY_BYTES).zip([&*own.shared_with(&peer)?, &client.0, &server.0])
        {
            place.copy_from_slice(part);
        }
        let hash = blake3::derive_key("netblt 9 key id", &*both);
        let mut id = [0; KEY_ID_BYTES];
        id.copy_from_slice(&hash[..KEY_ID_BYTES]);
        Ok(Self { peer, id: KeyId(id), mac_key: MacKey::of_keys(&*both) })
    }

    /// The other end's key.
    pub fn peer(&self) -> PublicKey {
        self.peer
    }

    /// The id by which the passive end finds this pairing.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The MAC key of OPENs between the two.
    pub fn mac_key(&self) -> &MacKey {
        &self.mac_key
    }

    /// The same pairing under another id, as with probability 2^-64.
    #[cfg(test)]
    pub(crate) fn with_id(self, id: KeyId) -> Self {
        Self { id, ..self }
    }
}

impl fmt::Debug for StaticPairing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StaticPairing({:?})", self.peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> StaticKey {
        StaticKey::from_bytes([byte; 32])
    }

    #[test]
    fn only_both_ends_compute_the_same_pairing() {
        let (client, server) = (key(1), key(2));
        let here = StaticPairing::with_server(&client, server.public()).unwrap();
        let there = StaticPairing::with_client(&server, client.public()).unwrap();
        assert_eq!(here.id(), there.id());
        assert!(there.mac_key().verify(&[b"x"], &here.mac_key().mac(&[b"x"])));
        assert_eq!((here.peer(), there.peer()), (server.public(), client.public()));

        // Another server, another client, and the two the other way round.
        let others = [
            StaticPairing::with_server(&client, key(3).public()),
            StaticPairing::with_client(&server, key(3).public()),
            StaticPairing::with_server(&server, client.public()),
        ];
        for other in others.map(Result::unwrap) {
            assert_ne!(other.id(), here.id());
            assert!(!other.mac_key().verify(&[b"x"], &here.mac_key().mac(&[b"x"])));
        }
    }

    #[test]
    fn an_invalid_key_has_no_pairing() {
        assert!(StaticPairing::with_client(&key(1), PublicKey([0; 32])).is_err());
        assert!(StaticPairing::with_server(&key(1), PublicKey([0; 32])).is_err());
    }
}
