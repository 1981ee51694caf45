//! The arrival of DATA and repair packets: from the datagram into its buffer.
//!
//! A packet is decrypted into its position (`docs/protocol §5.6`), counted, and shown to the loss
//! detector. A full buffer leaves with an OK.

use super::Receiver;
use super::assemblies::{OpenedData, TakenRepair};
use crate::api::{Event, RecvMeta};
use crate::codec::Codec;
use crate::loss_detection::Arrival;
use crate::negotiated::PacketOutcome;
use crate::time::Instant;
use crate::trace::{Stage, TraceEvent};
use crate::units::BufferNumber;
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
                self.stats.data_packets_duplicate += 1;
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
        self.stats.repair_packets_received += 1;
        match self.assemblies.take_repair(header) {
            TakenRepair::Unused => return PacketOutcome::Authentic,
            TakenRepair::Misplaced(fault) => return PacketOutcome::Violation(fault),
            TakenRepair::Stored { begins: true } => {
                self.note_buffer(now, header.buffer, Stage::Begun);
            }
            TakenRepair::Stored { begins: false } => {}
        }
        if self.restore(now, header.buffer) {
            self.stats.first_data_at.get_or_insert(now);
            self.on_full(now, header.buffer);
        }
        PacketOutcome::Authentic
    }

    fn on_new(&mut self, now: Instant, header: &DataHeader, len: usize) {
        let number = header.buffer;
        let Some(taken) = self.assemblies.take_data(header, len) else { return };
        if taken.begins {
            self.note_buffer(now, number, Stage::Begun);
        }
        self.stats.data_packets_received += 1;
        self.stats.first_data_at.get_or_insert(now);
        self.stats.image_bytes += len as u64;
        let arrival = Arrival {
            number: header.number,
            buffer: number,
            index: header.index,
            last_of_buffer: header.last_of_buffer,
            ack: header.ack,
        };
        let timing = self.timing();
        if self.requests.on_arrival(now, &arrival, &timing) {
            self.first_pass.advance(now, timing.burst.interval, &mut self.stats);
        }
        self.first_pass.moved(len);
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
        self.stats.packets_repaired += packets;
        self.stats.image_bytes += bytes as u64;
        self.first_pass.moved(bytes);
        self.requests.on_restored();
        self.trace.note(now, || TraceEvent::Repair { number: number.0, packets });
        true
    }

    fn on_full(&mut self, now: Instant, number: BufferNumber) {
        let Some((buffer, packets)) = self.assemblies.take_full(number) else { return };
        self.requests.on_complete(number, packets);
        self.stats.buffers_done += 1;
        self.control.push_ok(number);
        self.grants.on_filled();
        self.note_buffer(now, number, Stage::Filled);
        self.events.push_back(Event::Filled(number, buffer));
        self.grant(now);
        self.check_complete();
    }
}
