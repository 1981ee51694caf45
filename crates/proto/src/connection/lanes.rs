//! What an open connection is to its lanes (`docs/protocol.md §4.11, §6.11`).

use super::{Connection, Machine};
use crate::crypto::lane::LaneKeys;
use crate::link::Link;
use crate::machine::Route;
use crate::sender::Sender;

impl Connection {
    /// The link of a lane with these keys. To be made once with each.
    pub(crate) fn lane(&self, keys: &LaneKeys) -> Option<Link> {
        Some(Link::sealed(keys.id, keys.id, self.link.cipher()?, keys.out, keys.into))
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
