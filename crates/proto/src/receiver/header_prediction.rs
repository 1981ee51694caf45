//! Header prediction (Jacobson): the fast path for the DATA packet that is expected next.
//!
//! Most packets come in the order they were sent, many at one moment: after one of a buffer comes
//! the next of the same buffer, under the next number, with the same acknowledgement. Its effects
//! are then known beforehand, and nothing else need be checked. Any other event at this end drops
//! the prediction, so that its assumptions still hold when the packet arrives. A packet that
//! differs in one bit of its header takes the slow path. Both paths leave the same state, which
//! `fast_and_slow_path_leave_the_same_state` tests.

use std::fmt;

use super::Receiver;
use crate::api::RecvMeta;
use crate::codec::Codec;
use crate::time::Instant;
use crate::units::{PacketIndex, PacketNumber};
use crate::wire::packet::DataHeader;

/// The expected header of the next packet, if it arrives at the same moment and nothing else
/// happens.
#[derive(Clone, Copy)]
pub(super) struct PredictedHeader {
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

impl Receiver {
    /// Another event: drops the prediction.
    pub(crate) fn forget_prediction(&mut self) {
        self.prediction.0 = None;
    }

    /// A new packet of `len` data bytes arrived at `now`: predicts the next one, if possible.
    pub(super) fn predict(&mut self, now: Instant, header: &DataHeader, len: usize, codec: &Codec) {
        self.prediction.0 = self.next(now, header, len, codec);
    }

    fn next(
        &self,
        now: Instant,
        header: &DataHeader,
        len: usize,
        codec: &Codec,
    ) -> Option<PredictedHeader> {
        let index = PacketIndex(header.index.0.checked_add(1)?);
        let number = PacketNumber(header.number.0.checked_add(1)?);
        let header = DataHeader { number, index, last_of_buffer: false, ..*header };
        let first_pass = self.requests.expects(header.buffer, index.0)
            && !self.first_pass.begins(now, self.requests.announced_burst().interval)
            && self.assemblies.expects(&header, len);
        if !first_pass || self.trace.is_on() {
            return None;
        }
        Some(PredictedHeader { now, header, len: len + codec.data_overhead() })
    }

    /// Handles the predicted packet, predicts the next one, and returns its number. `None` for any
    /// other, or if it is not authentic: nothing has changed.
    pub(crate) fn take_predicted(
        &mut self,
        now: Instant,
        raw: &[u8],
        meta: RecvMeta,
        codec: &mut Codec,
    ) -> Option<PacketNumber> {
        let next = self.prediction.0.as_ref().filter(|next| next.is(now, raw, codec))?;
        let header = next.header;
        let DataHeader { number, buffer, index, .. } = header;
        let len = raw.len() - codec.data_overhead();
        if !self.assemblies.take_expected(&header, len, raw, codec) {
            return None;
        }
        self.count(now, number, raw.len(), raw.len(), meta);
        self.stats.data_packets_received += 1;
        self.stats.image_bytes += len as u64;
        self.first_pass.moved(len);
        self.requests.on_expected(now, buffer, index.0);
        self.advance();
        Some(number)
    }

    /// Predicts the packet after it.
    fn advance(&mut self) {
        let Some(PredictedHeader { header, .. }) = &mut self.prediction.0 else { return };
        match header.number.0.checked_add(1) {
            Some(number) => header.number = PacketNumber(number),
            None => return self.forget_prediction(),
        }
        header.index.0 += 1;
    }

    /// Whether this packet is the predicted one.
    #[cfg(test)]
    pub(crate) fn is_predicted(&self, now: Instant, raw: &[u8], codec: &Codec) -> bool {
        self.prediction.0.as_ref().is_some_and(|next| next.is(now, raw, codec))
    }
}

impl PredictedHeader {
    fn is(&self, now: Instant, raw: &[u8], codec: &Codec) -> bool {
        self.now == now && self.len == raw.len() && codec.is_under(raw, &self.header)
    }
}
