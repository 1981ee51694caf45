//! Header prediction (Jacobson): the fast path for the DATA packet that is expected next.
//!
//! Most packets come in the order they were sent, many at one moment: after one of a buffer comes
//! the next of the same buffer, under the next number, with the same acknowledgement. Its effects
//! are then known beforehand, and nothing else need be checked. Any other event at this end drops
//! the prediction, so that its assumptions still hold when the packet arrives. A packet that
//! differs in one bit of its header takes the slow path. Both paths leave the same state, which
//! `fast_and_slow_path_leave_the_same_state` tests.
//!
//! Inputs: a header that may be expected, and datagrams. Output: the header of the datagram that
//! has it.

use std::fmt;

use crate::codec::Codec;
use crate::time::Instant;
use crate::units::{PacketIndex, PacketNumber};
use crate::wire::packet::DataHeader;

/// The expected header of the next packet, if it arrives at the same moment and nothing else
/// happens.
#[derive(Clone, Copy)]
struct PredictedHeader {
    now: Instant,
    header: DataHeader,
    /// Bytes of the whole datagram.
    len: usize,
}

/// The prediction. It is no state: without it the results are the same.
#[derive(Default)]
pub(super) struct HeaderPrediction(Option<PredictedHeader>);

impl fmt::Debug for HeaderPrediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeaderPrediction")
    }
}

/// The header of the packet after that of `header` in the same buffer.
pub(super) fn following(header: &DataHeader) -> Option<DataHeader> {
    let index = PacketIndex(header.index.0.checked_add(1)?);
    let number = PacketNumber(header.number.0.checked_add(1)?);
    Some(DataHeader { number, index, last_of_buffer: false, ..*header })
}

impl HeaderPrediction {
    /// Expects a datagram of `len` bytes with `header` at `now`.
    pub(super) fn expect(&mut self, now: Instant, header: DataHeader, len: usize) {
        self.0 = Some(PredictedHeader { now, header, len });
    }

    /// Another event: drops the prediction.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// The header of `raw`, if that is the expected datagram.
    pub(super) fn find(&self, now: Instant, raw: &[u8], codec: &Codec) -> Option<DataHeader> {
        let next = self.0.as_ref()?;
        let is_next = next.now == now && next.len == raw.len() && codec.is_under(raw, &next.header);
        is_next.then_some(next.header)
    }

    /// The expected packet has arrived: expects the one after it.
    pub(super) fn advance(&mut self) {
        let Some(PredictedHeader { header, .. }) = &mut self.0 else { return };
        match following(header) {
            Some(next) => *header = next,
            None => self.forget(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{BufferNumber, ControlSeq};

    #[test]
    fn the_last_number_is_followed_by_none() {
        let header = DataHeader {
            number: PacketNumber(5),
            buffer: BufferNumber(1),
            index: PacketIndex(u32::MAX - 1),
            generation: 0,
            law: 0,
            last_of_buffer: false,
            last_buffer: false,
            ack: ControlSeq(0),
        };
        let next = following(&header).expect("there is one");
        assert_eq!((next.number, next.index), (PacketNumber(6), PacketIndex(u32::MAX)));
        assert!(following(&next).is_none());
    }
}
