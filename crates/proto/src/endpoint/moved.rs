//! The input of buffer auto-tuning, which the client reads in every turn (`docs/protocol.md §6.2`).

use std::time::Duration;

use super::Endpoint;
use crate::connection::Machine;

impl Endpoint {
    /// Delivered bytes, as far as this end knows, and the smallest round trip, once known. A sender
    /// counts by REPORTs: OKs come in irregular bursts.
    pub fn moved(&self) -> (u64, Option<Duration>) {
        match self.connection.as_ref().map(|connection| &connection.machine) {
            Some(Machine::Sender(sender)) => sender.moved(),
            Some(Machine::Receiver(receiver)) => receiver.moved(),
            None => (0, None),
        }
    }
}
