//! The addresses of the ends, which may move, and the changes of their clients.

use std::net::SocketAddr;

use netblt_proto::config::RuntimeSettings;

use super::World;
use crate::coverage::Mark;
use crate::side::Side;

impl World {
    /// An end speaks from another address from now on. The active one is no longer at the old one;
    /// the passive one is, for there it will be called if a program is started again.
    pub(super) fn relocate(&mut self, side: Side) {
        if self.hosts[side].endpoint.is_none() {
            return;
        }
        self.transcript.happening(self.now, side, "move");
        self.coverage.see(Mark::Moved, 1);
        self.moves[side] += 1;
    }

    /// The client of `side` changes its steering.
    pub(super) fn steer(&mut self, side: Side, steering: RuntimeSettings) {
        let Some(endpoint) = &mut self.hosts[side].endpoint else { return };
        self.transcript.happening(self.now, side, "steer");
        endpoint.steer(self.now, steering);
        self.put_out(side);
    }

    /// From where `side` speaks now.
    pub(super) fn address(&self, side: Side) -> SocketAddr {
        side.address_after(self.moves[side])
    }

    /// The present address of the end that was at `address` at the start, or of another host.
    pub(super) fn current_address(&self, address: SocketAddr) -> SocketAddr {
        let side = Side::BOTH.into_iter().find(|side| side.address() == address);
        side.map_or(address, |side| self.address(side))
    }

    pub(super) fn is_at(&self, side: Side, address: SocketAddr) -> bool {
        address == self.address(side) || (side == Side::Passive && side.may_be_at(address))
    }
}
