//! A transfer between two ends in one memory, of which one end's work counts.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use netblt_proto::api::{Datagram, Event, RecvMeta};
use netblt_proto::buffer::Buffer;
use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_proto::wire::packet::{End, Verdict};

use super::counting::measured;

/// Buffers of the transfer, and at once.
const BUFFERS: u64 = 48;
const STOCK: u64 = 16;
const BUFFER_BYTES: usize = 1 << 20;
/// The way from one end to the other.
const DELAY: Duration = Duration::from_millis(1);

/// Whose work counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Buffers in, packets out.
    Sender,
    /// Packets in, buffers out.
    Receiver,
}

struct World {
    counted: Side,
    now: Instant,
    sender: Endpoint,
    receiver: Endpoint,
    /// On their way, in order; to the receiver if so.
    flying: VecDeque<(Instant, Side, Vec<u8>)>,
    /// One packet of data in so many is lost; 0: none.
    lose: u64,
    dice: u64,
    stock: Vec<Buffer>,
    wanted: VecDeque<netblt_proto::units::BufferNumber>,
    closed: u32,
}

/// A transfer over packets of `datagram_bytes`, of which one in `lose` is lost. Answers how many
/// packets of data the side that counts has sent or received.
pub(crate) fn machine(counted: Side, datagram_bytes: u32, lose: u64) -> u64 {
    let config = |role| Config {
        secret: Some(Secret([7; 32])),
        buffer_bytes: BUFFER_BYTES as u32,
        table_bytes: 0,
        max_outstanding: STOCK as u32,
        cipher: Cipher::Aes256Gcm,
        datagram_bytes,
        ..Config::new(Wire::Sealed, role)
    };
    let now = Instant::EPOCH;
    let mut world = World {
        counted,
        now,
        sender: Endpoint::active(config(Role::Sender), address(Side::Receiver), now, [1; 32]),
        receiver: Endpoint::passive(config(Role::Receiver), now, [2; 32]),
        flying: VecDeque::new(),
        lose,
        dice: 0x9e37_79b9_7f4a_7c15,
        stock: (0..STOCK).map(|_| Buffer::new(BUFFER_BYTES)).collect(),
        wanted: VecDeque::new(),
        closed: 0,
    };
    (0..STOCK).for_each(|_| world.receiver.offer(now, Buffer::new(BUFFER_BYTES)));
    while world.closed < 2 {
        let went_on = world.step();
        let World { now, sender, receiver, .. } = &world;
        assert!(went_on, "stuck: {:?}, {:?}", sender.stats(*now), receiver.stats(*now));
    }
    match counted {
        Side::Sender => world.sender.stats(world.now).data_packets_sent,
        Side::Receiver => world.receiver.stats(world.now).data_packets_received,
    }
}

fn address(side: Side) -> SocketAddr {
    match side {
        Side::Sender => ([192, 0, 2, 1], 1).into(),
        Side::Receiver => ([192, 0, 2, 2], 2).into(),
    }
}

impl World {
    fn end(&mut self, side: Side) -> &mut Endpoint {
        match side {
            Side::Sender => &mut self.sender,
            Side::Receiver => &mut self.receiver,
        }
    }

    /// What one end does, counted if it is the one.
    fn at<T>(&mut self, side: Side, act: impl FnOnce(&mut Endpoint) -> T) -> T {
        let counts = side == self.counted;
        let end = self.end(side);
        if counts { measured(|| act(end)) } else { act(end) }
    }

    /// Everything that is due, and on to what is due next; false if nothing is.
    fn step(&mut self) -> bool {
        let now = self.now;
        while let Some((_, to, mut bytes)) = self.flying.pop_front_if(|(at, ..)| *at <= now) {
            let from = if to == Side::Sender { Side::Receiver } else { Side::Sender };
            let from = address(from);
            self.at(to, |end| {
                let bytes = &mut bytes[..];
                end.handle_datagram(
                    now,
                    Datagram { from, local: None, meta: RecvMeta::default(), bytes },
                );
            });
        }
        for side in [Side::Sender, Side::Receiver] {
            self.serve(side);
        }
        let due = self.flying.front().map(|(at, ..)| *at);
        let (sender, receiver) = (self.sender.next_timeout(now), self.receiver.next_timeout(now));
        let next = [due, sender, receiver].into_iter().flatten().min();
        self.now = self.now.max(next.unwrap_or_default());
        next.is_some() || self.closed == 2
    }

    fn serve(&mut self, side: Side) {
        let now = self.now;
        let (other, mut batch) = match side {
            Side::Sender => (Side::Receiver, Vec::with_capacity(1 << 16)),
            Side::Receiver => (Side::Sender, Vec::with_capacity(1 << 16)),
        };
        self.at(side, |end| {
            if end.next_timeout(now).is_some_and(|at| at <= now) {
                end.handle_timeout(now);
            }
        });
        loop {
            while let Some(event) = self.at(side, Endpoint::poll_event) {
                self.take(side, event);
            }
            self.feed();
            batch.clear();
            let sent = self.at(side, |end| end.poll_transmit(now, &mut batch));
            let Some(transmit) = sent else { return };
            for packet in batch.chunks(transmit.segment) {
                // The opening is not what is measured.
                let data = side == Side::Sender && packet.len() > 1300;
                if !data || !self.is_lost() {
                    self.flying.push_back((now + DELAY, other, packet.to_vec()));
                }
            }
        }
    }

    fn is_lost(&mut self) -> bool {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.lose > 0 && self.dice.is_multiple_of(self.lose)
    }

    fn take(&mut self, side: Side, event: Event) {
        let now = self.now;
        match event {
            Event::Wanted(number) if number.0 <= BUFFERS => self.wanted.push_back(number),
            Event::Released(_, buffer) => self.stock.push(buffer),
            Event::Filled(_, buffer) => self.at(side, |end| end.offer(now, buffer)),
            Event::Complete(Some(end)) => {
                let End { bytes, digest, .. } = end;
                let verdict = Verdict { verified: true, bytes, digest, reason: String::new() };
                self.receiver.judge(now, verdict);
            }
            Event::Closed(_) => self.closed += 1,
            _ => {}
        }
    }

    fn feed(&mut self) {
        let now = self.now;
        while !self.stock.is_empty()
            && let Some(number) = self.wanted.pop_front()
            && let Some(mut buffer) = self.stock.pop()
        {
            buffer.set_len(BUFFER_BYTES);
            let last = number.0 == BUFFERS;
            self.at(Side::Sender, |end| end.supply(now, number, buffer, last));
            if last {
                let bytes = BUFFERS * BUFFER_BYTES as u64;
                self.sender.end(now, End { buffers: BUFFERS, bytes, digest: [0; 32] });
            }
        }
    }
}
