//! FEC at the receiver (`docs/protocol.md §6.10`): repair packets are stored, within bounds, until
//! a buffer's packets and repair packets are enough to restore it.

use super::Receiver;
use super::assembly::{Assembly, Symbol};
use crate::api::Reception;
use crate::codec::Link;
use crate::negotiated::Taken;
use crate::time::Instant;
use crate::trace::{Stage, TraceEvent};
use crate::units::BufferNumber;
use crate::wire::packet::RepairHeader;

/// Most bytes of stored repair packets over all buffers, and at least those of one buffer.
const MOST_HELD: usize = 1 << 20;

impl Receiver {
    /// A REPAIR packet, still sealed.
    pub(crate) fn handle_repair(
        &mut self,
        now: Instant,
        header: &RepairHeader,
        raw: &[u8],
        reception: Reception,
        link: &mut Link,
    ) -> Taken {
        let len = link.data_len(raw);
        let mut symbol = std::mem::take(&mut self.scratch);
        symbol.resize(len, 0);
        let taken = match link.open_data(raw, &mut symbol) {
            false => Taken::Dropped,
            true => {
                self.on_authentic(now, header.number, (raw.len(), raw.len()), reception);
                self.stats.repair_packets_received += 1;
                self.take_repair(now, header, &symbol)
            }
        };
        self.scratch = symbol;
        taken
    }

    fn take_repair(&mut self, now: Instant, header: &RepairHeader, symbol: &[u8]) -> Taken {
        let number = header.buffer;
        let room = self.negotiated.geometry.buffer_bytes as usize;
        let held: usize = self.assemblies.values().map(Assembly::held_bytes).sum();
        let Some(assembly) = self.assemblies.get_mut(&number) else {
            let granted = number < self.next_grant;
            return match granted {
                true => Taken::Authentic,
                false => Taken::Violation("a repair packet without GO"),
            };
        };
        match assembly.judge(header, symbol.len()) {
            Some(Symbol::Wanted(block)) if held + symbol.len() <= room.max(MOST_HELD) => {
                let begins = !assembly.has_begun() && assembly.held_bytes() == 0;
                assembly.settle(header.generation);
                assembly.hold(block, header.index, symbol);
                if begins {
                    self.note_buffer(now, number, Stage::Begun);
                }
            }
            Some(Symbol::Nowhere) => {
                return Taken::Violation("a repair packet outside its buffer");
            }
            Some(Symbol::Wanted(_) | Symbol::Present) | None => return Taken::Authentic,
        }
        if self.restore(now, number) {
            self.stats.first_data_at.get_or_insert(now);
            self.on_full(now, number);
        }
        Taken::Authentic
    }

    /// Restores a buffer from its repair packets, if they are enough. Returns whether it is
    /// complete.
    pub(super) fn restore(&mut self, now: Instant, number: BufferNumber) -> bool {
        let restored = self.assemblies.get_mut(&number).and_then(Assembly::restore);
        let Some((packets, bytes)) = restored else { return false };
        self.stats.packets_repaired += u64::from(packets);
        self.stats.image_bytes += bytes as u64;
        self.first_pass.moved(bytes);
        self.asked_before = self.asked_packets;
        let packets = u64::from(packets);
        self.trace.note(now, || TraceEvent::Repair { number: number.0, packets });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::test_fixture::{BUFFER, Bench, PACKET, bench, image};

    /// The fault, a change of the header that causes it, and the length of the symbol.
    type Case = (&'static str, fn(&mut RepairHeader), usize);

    #[test]
    fn holes_are_filled_whatever_comes_first_and_whatever_is_missing() {
        let packets = bench(1).block.packets();
        for last in [false, true] {
            for repairs_first in [false, true] {
                let mut bench = bench(1);
                let lost = |n: u32| n % 100 == 7 || n == 0 || last && n + 1 == packets;
                let holes = (0..packets).filter(|n| lost(*n)).count() as u32;
                let repairs: Vec<u32> = (3..3 + holes).collect();
                let data = |bench: &mut Bench| {
                    for n in (0..packets).filter(|n| !lost(*n)) {
                        assert_eq!(bench.data(n), Taken::Authentic);
                    }
                };
                if !repairs_first {
                    data(&mut bench);
                    assert_eq!(bench.filled(), None);
                }
                for index in repairs {
                    assert_eq!(bench.honest(index), Taken::Authentic);
                }
                if repairs_first {
                    data(&mut bench);
                }
                assert_eq!(bench.filled(), Some(image()), "{last} {repairs_first}");
                assert_eq!(bench.receiver.stats.packets_repaired, u64::from(holes));
                assert_eq!(bench.receiver.stats.image_bytes, image().len() as u64);
                assert_eq!((bench.held(), bench.honest(40)), (0, Taken::Authentic), "too late");
                assert_eq!(bench.filled(), None, "once");
            }
        }
    }

    #[test]
    fn what_no_honest_sender_would_say_ends_the_connection() {
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
            assert!(matches!(bench.repair(header, len), Taken::Violation(_)), "{what}");
            assert_eq!(bench.held(), 0, "{what}");
        }
        let mut two = bench(2);
        two.honest(0);
        let other = RepairHeader { image_bytes: BUFFER - 1000, ..two.header(1, 1) };
        assert!(matches!(two.repair(other, packet), Taken::Violation(_)), "two lengths");
    }

    #[test]
    fn a_void_generation_is_passed_over_and_a_copy_is_kept_once() {
        let mut bench = bench(2);
        let void = RepairHeader { generation: 3, ..bench.header(1, 0) };
        assert_eq!((bench.repair(void, PACKET as usize), bench.held()), (Taken::Authentic, 0));
        for _ in 0..3 {
            assert_eq!(bench.honest(0), Taken::Authentic);
        }
        assert_eq!(bench.held(), PACKET as usize);
    }

    #[test]
    fn what_is_forged_changes_nothing() {
        let mut bench = bench(1);
        let mut out = Vec::new();
        bench.peer.put_repair(&mut out, &bench.header(1, 0), &[5; PACKET as usize]);
        for byte in [16, 24, 28, 40] {
            let mut forged = out.clone();
            forged[byte] ^= 1;
            assert_eq!(bench.take(forged), Taken::Dropped);
        }
        assert_eq!((bench.held(), bench.receiver.stats.repair_packets_received), (0, 0));
    }

    #[test]
    fn symbols_take_no_more_memory_than_they_may() {
        let mut bench = bench(80);
        let width = bench.block.width();
        for buffer in 1..=80 {
            for index in 0..width {
                let taken = bench.repair(bench.header(buffer, index), PACKET as usize);
                assert_eq!(taken, Taken::Authentic);
            }
        }
        let sent = 80 * width as usize * PACKET as usize;
        assert!(sent > MOST_HELD && bench.held() <= MOST_HELD, "{}", bench.held());
        assert!(bench.held() > MOST_HELD * 9 / 10);
    }
}
