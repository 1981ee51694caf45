//! FEC at the receiver (`docs/protocol §6.10`): repair packets are stored, within bounds, until
//! a buffer's packets and repair packets are enough to restore it.

use super::Receiver;
use super::assembly::{Assembly, SymbolUse};
use crate::api::RecvMeta;
use crate::codec::Codec;
use crate::negotiated::PacketOutcome;
use crate::time::Instant;
use crate::trace::{Stage, TraceEvent};
use crate::units::BufferNumber;
use crate::wire::packet::RepairHeader;

/// Most bytes of stored repair packets over all buffers, and at least those of one buffer.
const MAX_STORED_BYTES: usize = 1 << 20;

impl Receiver {
    /// A REPAIR packet, still sealed.
    pub(crate) fn handle_repair(
        &mut self,
        now: Instant,
        header: &RepairHeader,
        raw: &[u8],
        meta: RecvMeta,
        codec: &mut Codec,
    ) -> PacketOutcome {
        let len = codec.data_len(raw);
        let mut symbol = std::mem::take(&mut self.scratch);
        symbol.resize(len, 0);
        let taken = match codec.open_data(raw, &mut symbol) {
            false => PacketOutcome::Dropped,
            true => {
                self.on_authentic(now, header.number, raw.len(), raw.len(), meta);
                self.stats.repair_packets_received += 1;
                self.take_repair(now, header, &symbol)
            }
        };
        self.scratch = symbol;
        taken
    }

    fn take_repair(&mut self, now: Instant, header: &RepairHeader, symbol: &[u8]) -> PacketOutcome {
        let number = header.buffer;
        let room = self.negotiated.geometry.buffer_bytes as usize;
        let held: usize = self.assemblies.values().map(Assembly::held_bytes).sum();
        let Some(assembly) = self.assemblies.get_mut(&number) else {
            let granted = number < self.next_grant;
            return match granted {
                true => PacketOutcome::Authentic,
                false => PacketOutcome::Violation("a repair packet without GO"),
            };
        };
        match assembly.symbol_use(header, symbol.len()) {
            Some(SymbolUse::Wanted(block)) if held + symbol.len() <= room.max(MAX_STORED_BYTES) => {
                let begins = !assembly.has_begun() && assembly.held_bytes() == 0;
                assembly.fix_generation(header.generation);
                assembly.hold(block, header.index, symbol);
                if begins {
                    self.note_buffer(now, number, Stage::Begun);
                }
            }
            Some(SymbolUse::Nowhere) => {
                return PacketOutcome::Violation("a repair packet outside its buffer");
            }
            Some(SymbolUse::Wanted(_) | SymbolUse::Present) | None => {
                return PacketOutcome::Authentic;
            }
        }
        if self.restore(now, number) {
            self.stats.first_data_at.get_or_insert(now);
            self.on_full(now, number);
        }
        PacketOutcome::Authentic
    }

    /// Restores a buffer from its repair packets, if they are enough. Returns whether it is
    /// complete.
    pub(super) fn restore(&mut self, now: Instant, number: BufferNumber) -> bool {
        let restored = self.assemblies.get_mut(&number).and_then(Assembly::restore);
        let Some((packets, bytes)) = restored else { return false };
        self.stats.packets_repaired += u64::from(packets);
        self.stats.image_bytes += bytes as u64;
        self.first_pass.moved(bytes);
        self.requests.on_restored();
        let packets = u64::from(packets);
        self.trace.note(now, || TraceEvent::Repair { number: number.0, packets });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::test_fixture::{BUFFER, PACKET, ReceiverFixture, bench, image};

    /// The fault, a change of the header that causes it, and the length of the symbol.
    type Case = (&'static str, fn(&mut RepairHeader), usize);

    #[test]
    fn any_losses_are_restored_in_any_order_of_arrival() {
        let packets = bench(1).block.packets();
        for last in [false, true] {
            for repairs_first in [false, true] {
                let mut bench = bench(1);
                let lost = |n: u32| n % 100 == 7 || n == 0 || last && n + 1 == packets;
                let holes = (0..packets).filter(|n| lost(*n)).count() as u32;
                let repairs: Vec<u32> = (3..3 + holes).collect();
                let data = |bench: &mut ReceiverFixture| {
                    for n in (0..packets).filter(|n| !lost(*n)) {
                        assert_eq!(bench.data(n), PacketOutcome::Authentic);
                    }
                };
                if !repairs_first {
                    data(&mut bench);
                    assert_eq!(bench.filled(), None);
                }
                for index in repairs {
                    assert_eq!(bench.honest(index), PacketOutcome::Authentic);
                }
                if repairs_first {
                    data(&mut bench);
                }
                assert_eq!(bench.filled(), Some(image()), "{last} {repairs_first}");
                assert_eq!(bench.receiver.stats.packets_repaired, u64::from(holes));
                assert_eq!(bench.receiver.stats.image_bytes, image().len() as u64);
                assert_eq!(
                    (bench.held(), bench.honest(40)),
                    (0, PacketOutcome::Authentic),
                    "too late"
                );
                assert_eq!(bench.filled(), None, "once");
            }
        }
    }

    #[test]
    fn an_impossible_repair_packet_is_a_violation() {
        let packet = PACKET as usize;
        let cases: [Case; 8] = [
            ("no GO", |h| h.buffer.0 = 3, packet),
            ("a number past the last", |h| h.index = 128, packet),
            ("an absurd number", |h| h.index = u32::MAX, packet),
            ("an image longer than a buffer", |h| h.image_bytes = BUFFER + 1, packet),
            ("an absurd image", |h| h.image_bytes = u32::MAX, packet),
            ("a short symbol", |_| {}, packet - 2),
            ("no symbol", |_| {}, 0),
            ("an image that ends before what is here", |h| h.image_bytes = 200, packet),
        ];
        for (what, change, len) in cases {
            let mut bench = bench(2);
            bench.data(2);
            let mut header = bench.header(1, 5);
            change(&mut header);
            assert!(matches!(bench.repair(header, len), PacketOutcome::Violation(_)), "{what}");
            assert_eq!(bench.held(), 0, "{what}");
        }
        let mut two = bench(2);
        two.honest(0);
        let other = RepairHeader { image_bytes: BUFFER - 1000, ..two.header(1, 1) };
        assert!(matches!(two.repair(other, packet), PacketOutcome::Violation(_)), "two lengths");
    }

    #[test]
    fn an_old_generation_is_ignored_and_a_duplicate_is_stored_once() {
        let mut bench = bench(2);
        let void = RepairHeader { generation: 3, ..bench.header(1, 0) };
        assert_eq!(
            (bench.repair(void, PACKET as usize), bench.held()),
            (PacketOutcome::Authentic, 0)
        );
        for _ in 0..3 {
            assert_eq!(bench.honest(0), PacketOutcome::Authentic);
        }
        assert_eq!(bench.held(), PACKET as usize);
    }

    #[test]
    fn a_forged_repair_packet_changes_nothing() {
        let mut bench = bench(1);
        let mut out = Vec::new();
        bench.peer.put_repair(&mut out, &bench.header(1, 0), &[5; PACKET as usize]);
        for byte in [16, 24, 28, 40] {
            let mut forged = out.clone();
            forged[byte] ^= 1;
            assert_eq!(bench.take(forged), PacketOutcome::Dropped);
        }
        assert_eq!((bench.held(), bench.receiver.stats.repair_packets_received), (0, 0));
    }

    #[test]
    fn the_memory_of_symbols_is_bounded() {
        let mut bench = bench(80);
        let width = bench.block.width();
        for buffer in 1..=80 {
            for index in 0..width {
                let taken = bench.repair(bench.header(buffer, index), PACKET as usize);
                assert_eq!(taken, PacketOutcome::Authentic);
            }
        }
        let sent = 80 * width as usize * PACKET as usize;
        assert!(sent > MAX_STORED_BYTES && bench.held() <= MAX_STORED_BYTES, "{}", bench.held());
        assert!(bench.held() > MAX_STORED_BYTES * 9 / 10);
    }
}
