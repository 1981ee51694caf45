//! The arrival of DATA and repair packets: from the datagram into its buffer.
//!
//! A packet is decrypted into its position (`docs/protocol §5.6`), counted, and shown to the loss
//! detector. A full buffer leaves with an OK. The expected packet takes a short way
//! ([`HeaderPrediction`](super::header_prediction)).

use std::time::Duration;

use super::Receiver;
use super::assemblies::{OpenedData, TakenRepair};
use super::header_prediction::following;
use crate::api::{Event, RecvMeta};
use crate::codec::Codec;
use crate::loss_detection::Arrival;
use crate::negotiated::PacketOutcome;
use crate::time::Instant;
use crate::trace::{Stage, TraceEvent};
use crate::units::{BufferNumber, PacketNumber};
use crate::wire::packet::{DataHeader, RepairHeader};

impl Receiver {
    /// A DATA or LDATA packet, still sealed.
    pub(crate) fn handle_data(
        &mut self,
        now: Instant,
        header: &DataHeader,
        raw: &[u8],
        meta: RecvMeta,
        codec: &mut Codec,
    ) -> PacketOutcome {
        let len = codec.data_len(raw);
        let Some(opened) = self.assemblies.open_data(header, len, raw, codec) else {
            return PacketOutcome::Dropped;
        };
        self.on_authentic(now, header.number, raw.len(), raw.len(), meta);
        if !self.requests.knows_protocol() {
            let ack = self.control.acknowledged();
            self.requests.follow(now, header.law, self.assemblies.numbers(), ack);
        }
        self.on_ack(now, header.ack);
        match opened {
            OpenedData::New => {
                self.on_new(now, header, len);
                self.predict(now, header, len, codec);
            }
            OpenedData::Duplicate => {
                self.data.on_duplicate();
                self.assemblies.on_duplicate(header.buffer);
                self.requests.on_duplicate(now);
            }
            OpenedData::Misplaced(fault) => return PacketOutcome::Violation(fault),
        }
        PacketOutcome::Authentic
    }

    /// A REPAIR packet, still sealed.
    pub(crate) fn handle_repair(
        &mut self,
        now: Instant,
        header: &RepairHeader,
        raw: &[u8],
        meta: RecvMeta,
        codec: &mut Codec,
    ) -> PacketOutcome {
        if !self.assemblies.open_repair(codec.data_len(raw), raw, codec) {
            return PacketOutcome::Dropped;
        }
        self.on_authentic(now, header.number, raw.len(), raw.len(), meta);
        self.data.on_repair();
        match self.assemblies.take_repair(header) {
            TakenRepair::Unused => return PacketOutcome::Authentic,
            TakenRepair::Misplaced(fault) => return PacketOutcome::Violation(fault),
            TakenRepair::Stored { begins: true } => {
                self.note_buffer(now, header.buffer, Stage::Begun);
            }
            TakenRepair::Stored { begins: false } => {}
        }
        if self.restore(now, header.buffer) {
            self.on_full(now, header.buffer);
        }
        PacketOutcome::Authentic
    }

    /// An authentic packet of the sender, of this many bytes without and with padding.
    pub(crate) fn on_authentic(
        &mut self,
        now: Instant,
        number: PacketNumber,
        bytes: usize,
        whole: usize,
        meta: RecvMeta,
    ) {
        self.forget_prediction();
        self.control.on_packet(meta.host_stall());
        if self.negotiated.profile.reports {
            self.count(now, number, bytes, whole, meta);
        }
    }

    /// Counts it for REPORT.
    fn count(
        &mut self,
        now: Instant,
        number: PacketNumber,
        bytes: usize,
        whole: usize,
        meta: RecvMeta,
    ) {
        let arrived_at = match meta.age {
            Duration::ZERO => now,
            age => {
                let control = &self.control;
                let (interval, spacing) = (control.report_interval(), control.reverse_spacing());
                self.feedback.arrival_time(now, age, interval, spacing)
            }
        };
        self.feedback.on_packet(arrived_at, number, bytes, whole, meta.ecn);
    }

    fn on_new(&mut self, now: Instant, header: &DataHeader, len: usize) {
        let number = header.buffer;
        let Some(taken) = self.assemblies.take_data(header, len) else { return };
        if taken.begins {
            self.note_buffer(now, number, Stage::Begun);
        }
        let arrival = Arrival {
            number: header.number,
            buffer: number,
            index: header.index,
            last_of_buffer: header.last_of_buffer,
            ack: header.ack,
        };
        let timing = self.timing();
        let is_first_pass = self.requests.on_arrival(now, &arrival, &timing);
        self.data.on_new(now, len, is_first_pass.then_some(timing.burst.interval));
        if header.last_buffer {
            self.learn_last(now, number);
        }
        let is_restored = self.restore(now, number);
        if taken.fills || is_restored {
            self.on_full(now, number);
        }
    }

    /// Restores a buffer from its repair packets, if they are enough. Returns whether it is
    /// complete.
    fn restore(&mut self, now: Instant, number: BufferNumber) -> bool {
        let Some((packets, bytes)) = self.assemblies.restore(number) else { return false };
        let packets = u64::from(packets);
        self.data.on_restored(packets, bytes);
        self.requests.on_restored();
        self.trace.note(now, || TraceEvent::Repair { number: number.0, packets });
        true
    }

    fn on_full(&mut self, now: Instant, number: BufferNumber) {
        let Some((buffer, packets)) = self.assemblies.take_full(number) else { return };
        self.requests.on_complete(number, packets);
        self.data.on_complete(now);
        self.control.push_ok(number);
        self.grants.on_filled();
        self.note_buffer(now, number, Stage::Filled);
        self.events.push_back(Event::Filled(number, buffer));
        self.grant(now);
        self.check_complete();
    }

    // ---- header prediction

    /// Another event: drops the prediction.
    pub(crate) fn forget_prediction(&mut self) {
        self.prediction.forget();
    }

    /// A new packet of `len` data bytes arrived at `now`: predicts the next one, if possible.
    fn predict(&mut self, now: Instant, header: &DataHeader, len: usize, codec: &Codec) {
        let Some(next) = following(header) else { return };
        let interval = self.requests.announced_burst().interval;
        let is_predictable = self.assemblies.expects(&next, len)
            && self.requests.expects(next.buffer, next.index.0)
            && !self.data.begins_burst(now, interval)
            && !self.trace.is_on();
        if is_predictable {
            self.prediction.expect(now, next, len + codec.data_overhead());
        }
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
        let header = self.prediction.find(now, raw, codec)?;
        let len = raw.len() - codec.data_overhead();
        if !self.assemblies.take_expected(&header, len, raw, codec) {
            return None;
        }
        self.count(now, header.number, raw.len(), raw.len(), meta);
        self.data.on_expected(len);
        self.requests.on_expected(now, header.buffer, header.index.0);
        self.prediction.advance();
        Some(header.number)
    }

    /// Whether this packet is the predicted one.
    #[cfg(test)]
    pub(crate) fn is_predicted(&self, now: Instant, raw: &[u8], codec: &Codec) -> bool {
        self.prediction.find(now, raw, codec).is_some()
    }
}
