//! Tests of the whole receiver: single packets of a sender arrive at it.

use std::time::Duration;

use super::Receiver;
use super::assemblies::MAX_STORED_BYTES;
use crate::api::{Event, RecvMeta};
use crate::buffer::{Buffer, Geometry};
use crate::codec::{Codec, DecodedPacket};
use crate::crypto::cipher::Cipher;
use crate::fec::FecBlock;
use crate::loss_detection::{LossDetection, build};
use crate::negotiated::{Negotiated, PacketOutcome};
use crate::time::Instant;
use crate::units::{BufferNumber, ControlSeq, PacketIndex, PacketNumber};
use crate::wire::Wire;
use crate::wire::packet::{DataHeader, NullAck, RepairHeader};

const PACKET: u32 = 200;
const BUFFER: u32 = 100_000;

fn now() -> Instant {
    Instant::from_nanos(1_000_000_000)
}

fn image() -> Vec<u8> {
    (0..BUFFER - 55).map(|n| (n * 7 % 251) as u8).collect()
}

/// The parameters of a connection over a path of 40 ms.
pub(super) fn negotiated(wire: Wire, max_outstanding: u32) -> Negotiated {
    Negotiated {
        geometry: Geometry { buffer_bytes: BUFFER, packet_bytes: PACKET },
        max_outstanding,
        datagram_bytes: PACKET as usize + 48,
        ..Negotiated::example(wire)
    }
}

/// A NULL-ACK that announces packets of `packet_bytes`.
pub(super) fn null_ack(number: u64, ack: ControlSeq, packet_bytes: u16) -> NullAck {
    NullAck {
        number: PacketNumber(number),
        ack,
        burst: negotiated(Wire::Sealed, 1).burst,
        sent_through: None,
        end: None,
        packet_bytes,
        limit: 0,
        back_millis: 0,
        paused: false,
    }
}

struct ReceiverFixture {
    receiver: Receiver,
    own: Codec,
    peer: Codec,
    block: FecBlock,
    symbols: Vec<u8>,
}

/// A receiver with `buffers` granted, the first of which is `image`.
fn bench(buffers: u32) -> ReceiverFixture {
    let negotiated = negotiated(Wire::Sealed, buffers);
    let mut receiver = Receiver::new(negotiated, build(LossDetection::EarlyGaps));
    for _ in 0..buffers {
        receiver.offer(now(), Buffer::new(BUFFER as usize));
    }
    let (a, b) = ([1; 32], [2; 32]);
    let own = Codec::sealed(1, 2, Cipher::Aes256Gcm, a, b);
    let peer = Codec::sealed(2, 1, Cipher::Aes256Gcm, b, a);
    let block = FecBlock::new(negotiated.geometry, image().len() as u32).unwrap();
    let symbols = block.encode(&image(), 0..block.width()).unwrap();
    ReceiverFixture { receiver, own, peer, block, symbols }
}

impl ReceiverFixture {
    fn header(&self, buffer: u64, index: u32) -> RepairHeader {
        let image_bytes = self.block.image_bytes();
        let (number, buffer) = (PacketNumber(0), BufferNumber(buffer));
        RepairHeader { number, buffer, index, generation: 0, image_bytes }
    }

    fn repair(&mut self, header: RepairHeader, len: usize) -> PacketOutcome {
        let at = (header.index as usize % self.block.width() as usize) * PACKET as usize;
        let mut symbol = self.symbols[at..at + PACKET as usize].to_vec();
        symbol.resize(len, 0);
        let mut out = Vec::new();
        self.peer.put_repair(&mut out, &header, &symbol);
        self.take(out)
    }

    fn honest(&mut self, index: u32) -> PacketOutcome {
        self.repair(self.header(1, index), PACKET as usize)
    }

    fn data(&mut self, index: u32) -> PacketOutcome {
        self.data_at(now(), ControlSeq(1), index)
    }

    /// The same, with an acknowledgement up to `ack`.
    fn data_at(&mut self, now: Instant, ack: ControlSeq, index: u32) -> PacketOutcome {
        let header = DataHeader {
            number: PacketNumber(0),
            buffer: BufferNumber(1),
            index: PacketIndex(index),
            generation: 0,
            law: 0,
            last_of_buffer: index + 1 == self.block.packets(),
            last_buffer: false,
            ack,
        };
        let mut out = Vec::new();
        self.peer.put_data(&mut out, &header, &image()[self.block.range(index)]);
        self.take_at(now, out)
    }

    fn take(&mut self, out: Vec<u8>) -> PacketOutcome {
        self.take_at(now(), out)
    }

    fn take_at(&mut self, now: Instant, mut out: Vec<u8>) -> PacketOutcome {
        match self.own.receive(&mut out, ControlSeq(0)) {
            Some(DecodedPacket::Data { header, raw }) => {
                self.receiver.handle_data(now, &header, raw, RecvMeta::default(), &mut self.own)
            }
            Some(DecodedPacket::Repair { header, raw }) => {
                self.receiver.handle_repair(now, &header, raw, RecvMeta::default(), &mut self.own)
            }
            _ => panic!("not a packet of a buffer"),
        }
    }

    /// Fires timers and polls control packets. Returns the newest GO or RESEND.
    fn turn(&mut self, now: Instant) -> ControlSeq {
        self.receiver.handle_timeout(now);
        while self.receiver.poll_transmit(now, &mut self.own, &mut Vec::new()) {}
        self.receiver.assemblies.newest_request().unwrap_or_else(|| self.receiver.acknowledged())
    }

    fn filled(&mut self) -> Option<Vec<u8>> {
        self.receiver.events.drain(..).find_map(|event| match event {
            Event::Filled(_, buffer) => Some(buffer.filled().to_vec()),
            _ => None,
        })
    }

    fn held(&self) -> usize {
        self.receiver.assemblies.stored_bytes()
    }
}

// ---- repair packets

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
            assert_eq!(bench.receiver.stats().packets_repaired, u64::from(holes));
            assert_eq!(bench.receiver.stats().image_bytes, image().len() as u64);
            assert_eq!((bench.held(), bench.honest(40)), (0, PacketOutcome::Authentic), "too late");
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
    assert_eq!((bench.repair(void, PACKET as usize), bench.held()), (PacketOutcome::Authentic, 0));
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
    assert_eq!((bench.held(), bench.receiver.stats().repair_packets_received), (0, 0));
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

// ---- evidence of progress

/// A sender that acknowledges everything, and resends in its first generation only.
#[test]
fn data_of_an_old_generation_for_ever_are_a_stall() {
    let mut bench = bench(1);
    let mut ack = bench.turn(now());
    assert_eq!(bench.data_at(now(), ack, 0), PacketOutcome::Authentic);
    bench.receiver.handle_null_ack(now(), &null_ack(9, ack, 150));
    let mut seen = Vec::new();
    for n in 1..100 {
        let now = now() + Duration::from_millis(500) * n;
        assert_eq!(bench.data_at(now, ack, n), PacketOutcome::Authentic);
        ack = bench.turn(now);
        seen.extend(bench.receiver.underway()[0]);
    }
    assert_eq!(bench.receiver.stats().data_packets_duplicate, 99, "all of it is void");
    let (Some(first), Some(last)) = (seen.first(), seen.last()) else {
        panic!("nothing is watched")
    };
    assert!(seen.len() > 90 && first.signs == last.signs && first.tries < last.tries);
}

#[test]
fn a_sender_without_data_so_far_may_wait() {
    let mut bench = bench(1);
    for n in 0..100 {
        let now = now() + Duration::from_millis(500) * n;
        bench.turn(now);
        bench.receiver.on_ack(now, ControlSeq(1));
        assert_eq!(bench.receiver.underway()[0], None);
    }
    assert!(bench.receiver.requests.unanswered().is_some());
}
