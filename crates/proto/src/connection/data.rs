//! Packets of buffers: only a receiver takes them, and only before QUIT.

use super::{Closing, Connection, Machine};
use crate::api::Reception;
use crate::codec::Received;
use crate::negotiated::Taken;
use crate::time::Instant;

impl Connection {
    /// DATA, LDATA or REPAIR.
    pub(super) fn handle_of_buffer(
        &mut self,
        now: Instant,
        received: &Received<'_>,
        reception: Reception,
    ) -> Taken {
        let Machine::Receiver(receiver) = &mut self.machine else { return Taken::Dropped };
        if matches!(self.closing, Closing::Leaving { .. }) {
            return Taken::Dropped;
        }
        let link = &mut self.link;
        match received {
            Received::Data { header, raw } => {
                receiver.handle_data(now, header, raw, reception, link)
            }
            Received::Repair { header, raw } => {
                receiver.handle_repair(now, header, raw, reception, link)
            }
            Received::Other { .. } => Taken::Dropped,
        }
    }
}
