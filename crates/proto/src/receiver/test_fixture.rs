//! A test fixture: a receiver, and single packets of a sender.

use std::time::Duration;

use super::Receiver;
use super::assembly::Assembly;
use crate::api::{Event, RecvMeta};
use crate::buffer::{Buffer, Geometry};
use crate::codec::{Codec, DecodedPacket};
use crate::crypto::cipher::Cipher;
use crate::fec::{FecBlock, FecPolicy};
use crate::loss_detection::{LossDetection, build};
use crate::negotiated::{Negotiated, PacketOutcome};
use crate::time::Instant;
use crate::units::{BufferNumber, ControlSeq, PacketIndex, PacketNumber};
use crate::wire::Wire;
use crate::wire::packet::{Burst, DataHeader, RepairHeader};
use crate::wire_profile::WireProfile;

pub(super) const PACKET: u32 = 200;
pub(super) const BUFFER: u32 = 100_000;

pub(super) fn now() -> Instant {
    Instant::from_nanos(1_000_000_000)
}

pub(super) fn image() -> Vec<u8> {
    (0..BUFFER - 55).map(|n| (n * 7 % 251) as u8).collect()
}

pub(super) struct ReceiverFixture {
    pub(super) receiver: Receiver,
    own: Codec,
    pub(super) peer: Codec,
    pub(super) block: FecBlock,
    symbols: Vec<u8>,
}

/// A receiver with `buffers` granted, the first of which is `image`.
pub(super) fn bench(buffers: u32) -> ReceiverFixture {
    let geometry = Geometry { buffer_bytes: BUFFER, packet_bytes: PACKET };
    let rtt = Some(Duration::from_millis(40));
    let negotiated = Negotiated {
        profile: WireProfile::of(Wire::Sealed),
        geometry,
        max_outstanding: buffers,
        socket_bytes: None,
        burst: Burst { packets: 8, interval: Duration::from_millis(1) },
        repair: FecPolicy::Never,
        datagram_bytes: PACKET as usize + 48,
        control_bytes: 1200,
        burst_bytes: 1200,
        opened: Instant::EPOCH,
        rtt,
        longest_rtt: rtt,
    };
    let mut receiver = Receiver::new(negotiated, build(LossDetection::EarlyGaps));
    for _ in 0..buffers {
        receiver.offer(now(), Buffer::new(BUFFER as usize));
    }
    let (a, b) = ([1; 32], [2; 32]);
    let own = Codec::sealed(1, 2, Cipher::Aes256Gcm, a, b);
    let peer = Codec::sealed(2, 1, Cipher::Aes256Gcm, b, a);
    let block = FecBlock::new(geometry, image().len() as u32).unwrap();
    let symbols = block.encode(&image(), 0..block.width()).unwrap();
    ReceiverFixture { receiver, own, peer, block, symbols }
}

impl ReceiverFixture {
    pub(super) fn header(&self, buffer: u64, index: u32) -> RepairHeader {
        let image_bytes = self.block.image_bytes();
        let (number, buffer) = (PacketNumber(0), BufferNumber(buffer));
        RepairHeader { number, buffer, index, generation: 0, image_bytes }
    }

    pub(super) fn repair(&mut self, header: RepairHeader, len: usize) -> PacketOutcome {
        let at = (header.index as usize % self.block.width() as usize) * PACKET as usize;
        let mut symbol = self.symbols[at..at + PACKET as usize].to_vec();
        symbol.resize(len, 0);
        let mut out = Vec::new();
        self.peer.put_repair(&mut out, &header, &symbol);
        self.take(out)
    }

    pub(super) fn honest(&mut self, index: u32) -> PacketOutcome {
        self.repair(self.header(1, index), PACKET as usize)
    }

    pub(super) fn data(&mut self, index: u32) -> PacketOutcome {
        self.data_at(now(), ControlSeq(1), index)
    }

    /// The same, with an acknowledgement up to `ack`.
    pub(super) fn data_at(&mut self, now: Instant, ack: ControlSeq, index: u32) -> PacketOutcome {
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

    pub(super) fn take(&mut self, out: Vec<u8>) -> PacketOutcome {
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
    pub(super) fn turn(&mut self, now: Instant) -> ControlSeq {
        self.receiver.handle_timeout(now);
        while self.receiver.poll_transmit(now, &mut self.own, &mut Vec::new()) {}
        let newest = self.receiver.unacked_requests.back().map(|(seq, _)| *seq);
        newest.unwrap_or_else(|| self.receiver.acknowledged())
    }

    pub(super) fn filled(&mut self) -> Option<Vec<u8>> {
        self.receiver.events.drain(..).find_map(|event| match event {
            Event::Filled(_, buffer) => Some(buffer.filled().to_vec()),
            _ => None,
        })
    }

    pub(super) fn held(&self) -> usize {
        self.receiver.assemblies.values().map(Assembly::held_bytes).sum()
    }
}
