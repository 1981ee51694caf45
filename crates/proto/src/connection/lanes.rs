//! Access of lanes to an open connection (`docs/protocol.md §4.11, §6.11`).

use super::{Connection, Machine};
use crate::api::Route;
use crate::codec::Codec;
use crate::crypto::exporter::ChainKeys;
use crate::sender::Sender;

impl Connection {
    /// The codec of a branch or lane with these keys, at its active or passive end. It must be made
    /// once for each.
    pub(crate) fn codec_of(&self, keys: &ChainKeys, active: bool) -> Option<Codec> {
        let (out, into) = keys.seen_from(active);
        Some(Codec::sealed(keys.id, keys.id, self.codec.cipher()?, out, into))
    }

    /// Whether the peer has asked for another lane since the last call.
    pub(crate) fn take_lane_wanted(&mut self) -> bool {
        std::mem::take(&mut self.lane_wanted)
    }

    /// The peer's validated address.
    pub(crate) fn home(&self) -> Option<Route> {
        self.addresses.validated()
    }

    /// Its sender, if it has one.
    pub(crate) fn sender(&self) -> Option<&Sender> {
        match &self.machine {
            Machine::Sender(sender) => Some(sender),
            Machine::Receiver(_) => None,
        }
    }

    /// The same, mutable.
    pub(crate) fn sender_mut(&mut self) -> Option<&mut Sender> {
        match &mut self.machine {
            Machine::Sender(sender) => Some(sender),
            Machine::Receiver(_) => None,
        }
    }
}
