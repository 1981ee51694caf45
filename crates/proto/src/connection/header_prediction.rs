//! Header prediction (Jacobson): the fast path for the packet that a receiver expects next
//! (`receiver/header_prediction.rs`).

use super::{Closing, Connection, Machine};
use crate::api::{RecvMeta, Route};
use crate::time::Instant;

impl Connection {
    /// Handles a datagram if it is the predicted one. False: nothing has changed, and it takes the
    /// slow path.
    pub(crate) fn take_predicted(
        &mut self,
        now: Instant,
        route: Route,
        bytes: &[u8],
        reception: RecvMeta,
    ) -> bool {
        let Machine::Receiver(receiver) = &mut self.machine else { return false };
        let fast =
            self.closing == Closing::No && self.amplification_limit.is_none() && !self.silent;
        if !fast || receiver.is_finished() {
            return false;
        }
        let Some(number) = receiver.take_predicted(now, bytes, reception, &mut self.codec) else {
            return false;
        };
        let underway = receiver.underway();
        self.addresses.on_authentic(now, route, number, bytes.len());
        (self.last_received, self.last_probe) = (now, now);
        self.peer_gone.on_authentic(now, self.codec.upcoming());
        self.watchdog.on_moved(now, underway);
        true
    }

    /// Whether this packet is the predicted one.
    #[cfg(test)]
    pub(crate) fn is_predicted(&self, now: Instant, raw: &[u8]) -> bool {
        let Machine::Receiver(receiver) = &self.machine else { return false };
        receiver.is_predicted(now, raw, &self.codec)
    }
}
