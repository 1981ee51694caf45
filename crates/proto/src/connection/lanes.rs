//! What an open connection is to its lanes (`docs/protocol.md §4.11, §6.11`).

use super::{Connection, Machine};
use crate::api::Route;
use crate::codec::Link;
use crate::crypto::exporter::ChainKeys;
use crate::sender::Sender;

impl Connection {
    /// The link of a branch or lane with these keys, at its active end or the other one. To be made
    /// once with each.
    pub(crate) fn link_of(&self, keys: &ChainKeys, active: bool) -> Option<Link> {
        let (out, into) = keys.seen_from(active);
        Some(Link::sealed(keys.id, keys.id, self.link.cipher()?, out, into))
    }

    /// Whether the peer has said since this was asked last that it would have another lane.
    pub(crate) fn take_lane_wanted(&mut self) -> bool {
        std::mem::take(&mut self.lane_wanted)
    }

    /// Where the peer is known to hear this end.
    pub(crate) fn home(&self) -> Option<Route> {
        self.addresses.home()
    }

    /// Its machine, if that sends.
    pub(crate) fn sender(&self) -> Option<&Sender> {
        match &self.machine {
            Machine::Sender(sender) => Some(sender),
            Machine::Receiver(_) => None,
        }
    }

    /// The same, to be told something.
    pub(crate) fn sender_mut(&mut self) -> Option<&mut Sender> {
        match &mut self.machine {
            Machine::Sender(sender) => Some(sender),
            Machine::Receiver(_) => None,
        }
    }
}
