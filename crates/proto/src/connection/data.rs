//! Packets of buffers: only a receiver takes them, and only before QUIT.

use super::{Closing, Connection, Machine};
use crate::api::RecvMeta;
use crate::codec::DecodedPacket;
use crate::negotiated::PacketOutcome;
use crate::time::Instant;

impl Connection {
    /// DATA, LDATA or REPAIR.
    pub(super) fn handle_of_buffer(
        &mut self,
        now: Instant,
        received: &DecodedPacket<'_>,
        reception: RecvMeta,
    ) -> PacketOutcome {
        let Machine::Receiver(receiver) = &mut self.machine else { return PacketOutcome::Dropped };
        if matches!(self.closing, Closing::Draining { .. }) {
            return PacketOutcome::Dropped;
        }
        let codec = &mut self.codec;
        match received {
            DecodedPacket::Data { header, raw } => {
                receiver.handle_data(now, header, raw, reception, codec)
            }
            DecodedPacket::Repair { header, raw } => {
                receiver.handle_repair(now, header, raw, reception, codec)
            }
            DecodedPacket::Other { .. } => PacketOutcome::Dropped,
        }
    }
}
