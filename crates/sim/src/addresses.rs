//! The addresses of the two ends, which may move.

use std::net::SocketAddr;

use crate::side::{Pair, Side};

/// How often each end got another address.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    moves: Pair<u16>,
}

impl Addresses {
    /// An end speaks from another address from now on. The active one is no longer at the old one;
    /// the passive one is, for there it will be called if a program is started again.
    pub(crate) fn relocate(&mut self, side: Side) {
        self.moves[side] += 1;
    }

    /// Whether it ever moved.
    pub(crate) fn has_moved(&self, side: Side) -> bool {
        self.moves[side] > 0
    }

    /// The address from which `side` speaks now.
    pub(crate) fn of(&self, side: Side) -> SocketAddr {
        side.address_after(self.moves[side])
    }

    /// The present address of the end that was at `address` at the start, or of another host.
    pub(crate) fn current(&self, address: SocketAddr) -> SocketAddr {
        let side = Side::BOTH.into_iter().find(|side| side.address() == address);
        side.map_or(address, |side| self.of(side))
    }

    /// Whether what is sent to `address` reaches `side`.
    pub(crate) fn reaches(&self, side: Side, address: SocketAddr) -> bool {
        address == self.of(side) || (side == Side::Passive && side.may_be_at(address))
    }
}
