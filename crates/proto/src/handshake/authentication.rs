//! Authentication of OPEN by its MAC, under a key that both ends derive from a ticket's secret or
//! from their static keys (`docs/protocol §4.2, §4.8`).
//!
//! A failed attempt costs a binary search and one keyed hash, whatever is wrong with it, so its
//! timing reveals nothing.

use std::sync::Arc;

use crate::config::identity::ClientIdentity;
use crate::config::{Config, Identity, PublicKey, Secret};
use crate::crypto::mac::MacKey;
use crate::crypto::noise::HandshakeAuth;
use crate::entropy::Entropy;
use crate::wire::sealed::OpenFrame;

/// The MAC keys of accepted clients, beside those of an identity.
#[derive(Debug)]
pub(super) struct OpenAuthenticator {
    /// The ticket's key, if there is a ticket.
    ticket: Option<MacKey>,
    /// The key for OPENs with an unknown key id.
    decoy: MacKey,
}

/// The sender of an authentic OPEN.
#[derive(Clone, Debug)]
pub(super) struct AuthenticatedPeer {
    /// The key that authenticates the answer.
    pub(super) mac_key: MacKey,
    /// Its static key, if it has one.
    pub(super) key: Option<PublicKey>,
}

impl OpenAuthenticator {
    pub(super) fn new(config: &Config, entropy: &mut Entropy) -> Self {
        let secret = config.secret.as_ref().filter(|_| config.identity.is_none());
        let ticket = secret.map(MacKey::from_secret);
        // An end with a ticket needs no decoy, and draws as many numbers as before.
        let decoy = config.identity.as_ref().map_or([0; 32], |_| entropy.draw());
        Self { ticket, decoy: MacKey::decoy(decoy) }
    }

    /// The authenticated sender of an OPEN, or the answer to a forged one.
    pub(super) fn admit(
        &self,
        config: &Config,
        frame: &OpenFrame<'_>,
    ) -> Result<AuthenticatedPeer, &'static str> {
        let covered = [frame.covered_before, frame.covered_after];
        let verified = |key: &MacKey| key.verify(&covered, &frame.mac);
        match (&config.identity, frame.key) {
            (Some(Identity::Server(authorized)), Some(id)) => {
                let bonds: Vec<_> = authorized.with_id(id).collect();
                if bonds.is_empty() {
                    // A known id with a wrong MAC takes as long.
                    verified(&self.decoy);
                }
                let bond = bonds.iter().find(|bond| verified(bond.mac_key()));
                let bond = bond.ok_or("the server does not know your key, or has another one")?;
                Ok(AuthenticatedPeer { mac_key: bond.mac_key().clone(), key: Some(bond.peer()) })
            }
            (Some(_), _) => Err("this end knows its peers by their keys, not by a ticket"),
            (None, Some(_)) => Err("this end knows its peer by a ticket, not by keys"),
            (None, None) => match &self.ticket {
                Some(key) if verified(key) => {
                    Ok(AuthenticatedPeer { mac_key: key.clone(), key: None })
                }
                _ => Err("the ticket's secret is not the one expected here"),
            },
        }
    }
}

impl AuthenticatedPeer {
    /// The authentication of the handshake with it.
    pub(super) fn means<'a>(&self, config: &'a Config) -> Option<HandshakeAuth<'a>> {
        match (&config.identity, self.key) {
            (Some(Identity::Server(authorized)), Some(peer)) => {
                Some(HandshakeAuth::Keys { own: authorized.own(), peer })
            }
            (None, None) => config.secret.as_ref().map(HandshakeAuth::Secret),
            _ => None,
        }
    }
}

/// The credentials of an active end, kept as long as it reads answers.
#[derive(Clone, Debug)]
pub(super) enum Credentials {
    Secret(Secret),
    Identity(Arc<ClientIdentity>),
}

impl Credentials {
    /// The credentials in `config`; a passive end's identity cannot open a connection.
    pub(super) fn of(config: &Config) -> Self {
        match &config.identity {
            Some(Identity::Client(calling)) => Self::Identity(calling.clone()),
            Some(Identity::Server(_)) => panic!("an end that calls knows whose key it expects"),
            None => Self::Secret(config.secret.clone().unwrap_or_default()),
        }
    }

    pub(super) fn means(&self) -> HandshakeAuth<'_> {
        match self {
            Self::Secret(secret) => HandshakeAuth::Secret(secret),
            Self::Identity(calling) => {
                HandshakeAuth::Keys { own: &calling.own, peer: calling.bond.peer() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AuthorizedKeys, Role, StaticKey, Wire};
    use crate::crypto::static_pairing::{KeyId, StaticPairing};
    use crate::wire::sealed;

    const SAME: KeyId = KeyId([5; 8]);

    fn key(byte: u8) -> StaticKey {
        StaticKey::from_bytes([byte; 32])
    }

    /// The MAC tells two clients with the same id apart, and refuses a third.
    #[test]
    fn clients_with_the_same_id_are_told_apart_by_the_mac() {
        let clients = [key(1).public(), key(2).public()];
        let authorized = AuthorizedKeys::new(key(9), &clients).0.with_one_id(SAME);
        let identity = Some(Identity::server(Arc::new(authorized)));
        let config = Config { identity, ..Config::new(Wire::Sealed, Role::Receiver) };
        let gate = OpenAuthenticator::new(&config, &mut Entropy::new([1; 32]));
        for (client, is_known) in [(1, true), (2, true), (3, false)] {
            let bond = StaticPairing::with_server(&key(client), key(9).public()).unwrap();
            let clear = sealed::key_open_clear(1, 2);
            let mac = |parts: &[&[u8]]| bond.mac_key().mac(parts);
            let open = sealed::build_open(&clear, Some(SAME), &[7; 96], mac);
            let caller = gate.admit(&config, &sealed::parse_open(&open).unwrap());
            let found = caller.ok().and_then(|caller| caller.key);
            assert_eq!(found, is_known.then(|| key(client).public()));
        }
    }
}
