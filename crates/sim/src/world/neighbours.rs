//! Other flows on the path of the transfer.

use super::World;
use crate::packet::Packet;

impl World {
    /// Their timers run out, and what they send joins the path.
    pub(super) fn serve_neighbours(&mut self) {
        if self.neighbours.next(self.now).is_none_or(|at| at > self.now) {
            return;
        }
        let sender = self.setup.sender();
        for leaving in self.neighbours.work(self.now) {
            let from = if leaving.back { sender.other() } else { sender };
            let (own, peer) = (self.address(from), self.address(from.other()));
            let packet = Packet::foreign(own, peer, leaving.packet);
            self.paths[from].push(self.now, 0, leaving.ecn, packet);
        }
    }
}
