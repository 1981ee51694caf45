//! What a client does with static keys (`docs/protocol.md §4.8`).

use std::sync::Arc;

use super::{Endpoint, Opener};
use crate::config::{Authorized, Identity, PublicKey};

impl Endpoint {
    /// Passive end with an identity: from now on these may open a connection, and nobody else. One
    /// that is open stays.
    pub fn authorize(&mut self, authorized: Arc<Authorized>) {
        if let Opener::Passive(passive) = &mut self.opener {
            passive.on_authorized(&authorized);
        }
        self.config.identity = Some(Identity::server(authorized));
    }

    /// The static key that the peer of the connection proved to be its own, if there is one and it
    /// was opened by keys.
    pub fn peer_key(&self) -> Option<PublicKey> {
        self.peer_key
    }
}
