//! An outgoing packet of a buffer.
//!
//! The scheduler and the FEC queue fill it in, and here it becomes a datagram. All files of the
//! folder share these types.

use std::ops::Range;

use crate::codec::Codec;
use crate::units::{BufferNumber, ControlSeq, PacketIndex, PacketNumber};
use crate::wire::packet::{DataHeader, RepairHeader};

/// A part of a buffer that leaves as DATA or LDATA.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DataPacket {
    pub(crate) index: PacketIndex,
    pub(crate) range: Range<usize>,
    pub(crate) last_of_buffer: bool,
    pub(crate) last_buffer: bool,
    pub(crate) resend: bool,
}

/// A packet that leaves now.
#[derive(Debug)]
pub(crate) struct OutgoingPacket<'a> {
    pub(crate) number: BufferNumber,
    pub(crate) generation: u8,
    pub(crate) what: PacketBody,
    pub(crate) data: &'a [u8],
    /// It is the last packet of its buffer that is due.
    pub(crate) ends: bool,
}

/// Its contents.
#[derive(Debug)]
pub(crate) enum PacketBody {
    /// A part of its buffer: DATA or LDATA.
    Data(DataPacket),
    /// A repair packet: REPAIR, of a buffer whose image has `image_bytes`.
    Repair { index: u32, image_bytes: u32 },
}

impl OutgoingPacket<'_> {
    /// Appends its datagram, which acknowledges `ack` and has the code `law` of an emulated
    /// protocol.
    pub(crate) fn put(
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
