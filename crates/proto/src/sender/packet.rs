//! An outgoing packet of a buffer: the schedule returns it, and it is encoded here.

use super::outgoing_buffer::Piece;
use crate::codec::Link;
use crate::units::{BufferNumber, ControlSeq, PacketNumber};
use crate::wire::packet::{DataHeader, RepairHeader};

/// A packet that leaves now.
#[derive(Debug)]
pub(super) struct Leaving<'a> {
    pub(super) number: BufferNumber,
    pub(super) generation: u8,
    pub(super) what: What,
    pub(super) data: &'a [u8],
    /// It is the last packet of its buffer that is due.
    pub(super) ends: bool,
}

/// Its contents.
#[derive(Debug)]
pub(super) enum What {
    /// A part of its buffer: DATA or LDATA.
    Piece(Piece),
    /// A repair packet: REPAIR, of a buffer whose image has `image_bytes`.
    Repair { index: u32, image_bytes: u32 },
}

impl Leaving<'_> {
    /// Appends its datagram, which acknowledges `ack` and has the code `law` of an emulated
    /// protocol.
    pub(super) fn put(
        &self,
        ack: ControlSeq,
        law: u8,
        link: &mut Link,
        out: &mut Vec<u8>,
    ) -> PacketNumber {
        // The codec assigns the number.
        let (number, buffer, generation) = (PacketNumber(0), self.number, self.generation);
        match &self.what {
            What::Piece(Piece { index, last_of_buffer, last_buffer, .. }) => {
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
                link.put_data(out, &header, self.data)
            }
            What::Repair { index, image_bytes } => {
                let (index, image_bytes) = (*index, *image_bytes);
                let header = RepairHeader { number, buffer, index, generation, image_bytes };
                link.put_repair(out, &header, self.data)
            }
        }
    }
}
