//! The client's verbs for static keys (`docs/protocol.md §4.8`).

use std::sync::Arc;

use super::{Endpoint, HandshakeSide};
use crate::config::{AuthorizedKeys, Identity, PublicKey};

impl Endpoint {
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
