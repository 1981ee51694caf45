//! The path of a DATA packet into its buffer.
//!
//! The position of a packet is checked before decryption, and it is decrypted into its position
//! (`docs/protocol §5.6`). Repair packets are handled in `fec.rs`.

use super::Receiver;
use super::assembly::Placement;
use crate::api::{Event, RecvMeta};
use crate::codec::Codec;
use crate::loss_detection::Arrival;
use crate::negotiated::PacketOutcome;
use crate::time::Instant;
use crate::trace::Stage;
use crate::units::BufferNumber;
use crate::wire::packet::{Accepted, DataHeader, Message};

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
        let (range, fault) = self.locate(header, len);
        let opened =
            match range.clone().and_then(|r| Some((r, self.assemblies.get_mut(&header.buffer)?))) {
                Some((range, assembly)) => codec.open_data(raw, assembly.slot(range)),
                None => {
                    // A duplicate, or a violation: it counts only if it is authentic.
                    self.scratch.resize(len, 0);
                    codec.open_data(raw, &mut self.scratch)
                }
            };
        if !opened {
            return PacketOutcome::Dropped;
        }
        self.on_authentic(now, header.number, raw.len(), raw.len(), meta);
        if !self.requests.knows_protocol() {
            let (outstanding, ack) = (self.assemblies.keys().copied(), self.fifo.acknowledged());
            self.requests.follow(now, header.law, outstanding, ack);
        }
        self.on_ack(now, header.ack);
        match (range, fault) {
            (Some(_), _) => {
                self.on_new(now, header, len);
                self.predict(now, header, len, codec);
            }
            (None, Some(fault)) => return PacketOutcome::Violation(fault),
            (None, None) => {
                self.stats.data_packets_duplicate += 1;
                if let Some(assembly) = self.assemblies.get_mut(&header.buffer) {
                    assembly.on_void();
                }
                self.requests.on_duplicate(now);
            }
        }
        PacketOutcome::Authentic
    }

    /// The range of the data of `header` in its buffer; or none, for a duplicate, or with the
    /// fault.
    fn locate(
        &self,
        header: &DataHeader,
        len: usize,
    ) -> (Option<std::ops::Range<usize>>, Option<&'static str>) {
        let Some(assembly) = self.assemblies.get(&header.buffer) else {
            let granted = header.buffer < self.next_grant && header.buffer.0 > 0;
            return (None, (!granted).then_some("data without GO"));
        };
        match assembly.place(header.generation, header.index, len, header.last_of_buffer) {
            Some(Placement::Missing(range)) => (Some(range), None),
            Some(Placement::Present) | None => (None, None),
            Some(Placement::Nowhere) => (None, Some("a packet outside its buffer")),
        }
    }

    fn on_new(&mut self, now: Instant, header: &DataHeader, len: usize) {
        let number = header.buffer;
        let Some(assembly) = self.assemblies.get_mut(&number) else { return };
        let begins = !assembly.has_begun();
        assembly.fix_generation(header.generation);
        assembly.mark(header.index, len, header.last_of_buffer);
        let mut full = assembly.is_complete();
        if begins {
            self.note_buffer(now, number, Stage::Begun);
        }
        self.stats.data_packets_received += 1;
        self.stats.first_data_at.get_or_insert(now);
        self.stats.image_bytes += len as u64;
        let timing = self.timing();
        let arrival = Arrival {
            number: header.number,
            buffer: number,
            index: header.index,
            last_of_buffer: header.last_of_buffer,
            ack: header.ack,
        };
        if self.requests.on_arrival(now, &arrival, &timing) {
            self.first_pass.advance(now, timing.burst.interval, &mut self.stats);
        }
        self.first_pass.moved(len);
        if header.last_buffer {
            self.learn_last(now, number);
        }
        full |= self.restore(now, number);
        if full {
            self.on_full(now, number);
        }
    }

    pub(super) fn on_full(&mut self, now: Instant, number: BufferNumber) {
        let Some(assembly) = self.assemblies.remove(&number) else { return };
        self.requests.on_complete(number, assembly.packets());
        self.stats.buffers_done += 1;
        let offer = self.offer_to_make();
        self.fifo.push(Message::Ok(Accepted {
            first: number,
            count: 1,
            offer,
            control_timer: self.rtt.timeout(),
        }));
        self.held += 1;
        self.note_buffer(now, number, Stage::Filled);
        self.events.push_back(Event::Filled(number, assembly.into_buffer()));
        self.grant(now);
        self.check_complete();
    }
}
