//! An outgoing packet of a buffer: the schedule returns it, and it is encoded here.

use super::outgoing_buffer::DataPacket;
use crate::codec::Codec;
use crate::units::{BufferNumber, ControlSeq, PacketNumber};
use crate::wire::packet::{DataHeader, RepairHeader};

/// A packet that leaves now.
#[derive(Debug)]
pub(super) struct OutgoingPacket<'a> {
    pub(super) number: BufferNumber,
    pub(super) generation: u8,
    pub(super) what: PacketBody,
    pub(super) data: &'a [u8],
    /// It is the last packet of its buffer that is due.
    pub(super) ends: bool,
}

/// Its contents.
#[derive(Debug)]
pub(super) enum PacketBody {
    /// A part of its buffer: DATA or LDATA.
    Data(DataPacket),
    /// A repair packet: REPAIR, of a buffer whose image has `image_bytes`.
    Repair { index: u32, image_bytes: u32 },
}

impl OutgoingPacket<'_> {
    /// Appends its datagram, which acknowledges `ack` and has the code `law` of an emulated
    /// protocol.
    pub(super) fn put(
        &self,
        ack: ControlSeq,
        law: u8,
        codec: &mut Codec,
        out: &mut Vec<u8>,
    ) -> PacketNumber {
        // The codec assigns the number.
        let (number, buffer, generation) = (PacketNumber(0), self.number, self.generation);
        match &self.what {
            PacketBody::Data(DataPacket { index, last_of_buffer, last_buffer, .. }) => {
                let header = DataHeader {
                    number,
                    buffer,
                    index: *index,
                    generation,
                    law,
                    last_of_buffer: *last_of_buffer,
                    last_buffer: *last_buffer,
                    ack,
                };
                codec.put_data(out, &header, self.data)
            }
            PacketBody::Repair { index, image_bytes } => {
                let (index, image_bytes) = (*index, *image_bytes);
                let header = RepairHeader { number, buffer, index, generation, image_bytes };
                codec.put_repair(out, &header, self.data)
            }
        }
    }
}
