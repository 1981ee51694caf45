//! What a client that makes more buffers looks at in every turn (`docs/protocol.md §6.2`).

use std::time::Duration;

use super::Endpoint;
use crate::connection::Machine;

impl Endpoint {
    /// How many bytes have arrived, as far as this end knows, and the smallest round trip, once it
    /// is known. A sender goes by reports: what is accepted comes by fits and starts.
    pub fn moved(&self) -> (u64, Option<Duration>) {
        match self.connection.as_ref().map(|connection| &connection.machine) {
            Some(Machine::Sender(sender)) => sender.moved(),
            Some(Machine::Receiver(receiver)) => receiver.moved(),
            None => (0, None),
        }
    }
}
