//! Two endpoints, a delay and a loss: the smallest whole conversations.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use netblt_proto::buffer::Buffer;
use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::machine::{Datagram, Event, Reason};
use netblt_proto::time::Instant;
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::{End, Verdict};
use netblt_proto::wire::sealed::destination;

const STOCK: u64 = 4;
const BUFFER: u32 = 1 << 16;

/// One end and what its client knows.
struct Side {
    endpoint: Endpoint,
    address: SocketAddr,
    closed: Option<Reason>,
}

struct Pair {
    now: Instant,
    sender: Side,
    receiver: Side,
    delay: Duration,
    /// One datagram in so many is lost, at random; 0 for none.
    lose: u64,
    random: u64,
    sent: u64,
    flying: BTreeMap<(Instant, u64), (bool, Vec<u8>)>,
    data: Vec<u8>,
    got: Vec<u8>,
    verdict: Option<Verdict>,
}

fn config(wire: Wire, role: Role) -> Config {
    Config {
        secret: Some(Secret([7; 32])),
        buffer_bytes: BUFFER,
        max_outstanding: STOCK as u32,
        cipher: Cipher::Aes256Gcm,
        ..Config::new(wire, role)
    }
}

impl Pair {
    fn new(wire: Wire, sender_is_active: bool, bytes: usize, lose: u64) -> Self {
        let (a, b): (SocketAddr, SocketAddr) =
            (([192, 0, 2, 1], 1).into(), ([192, 0, 2, 2], 2).into());
        let (s, r) = (config(wire, Role::Sender), config(wire, Role::Receiver));
        let now = Instant::EPOCH;
        let (sender, mut receiver) = if sender_is_active {
            (Endpoint::active(s, b, now, [1; 32]), Endpoint::passive(r, now, [2; 32]))
        } else {
            (Endpoint::passive(s, now, [1; 32]), Endpoint::active(r, a, now, [2; 32]))
        };
        for _ in 0..STOCK {
            receiver.offer(now, Buffer::new(BUFFER as usize + 8192));
        }
        Self {
            now,
            sender: Side { endpoint: sender, address: a, closed: None },
            receiver: Side { endpoint: receiver, address: b, closed: None },
            delay: Duration::from_millis(20),
            lose,
            random: 0x9e37_79b9_7f4a_7c15,
            sent: 0,
            flying: BTreeMap::new(),
            data: (0..bytes).map(|i| (i * 31 + i / 251) as u8).collect(),
            got: vec![0; bytes],
            verdict: None,
        }
    }

    fn run(&mut self) {
        for _ in 0..2_000_000 {
            self.deliver();
            self.serve_sender();
            self.serve_receiver();
            if self.sender.closed.is_some() && self.receiver.closed.is_some() {
                return;
            }
            let next = [
                self.flying.keys().next().map(|k| k.0),
                self.sender.endpoint.next_timeout(self.now),
                self.receiver.endpoint.next_timeout(self.now),
            ];
            let Some(next) = next.into_iter().flatten().min() else { break };
            self.now = self.now.max(next);
        }
        panic!(
            "stuck at {:?}: sender {:?} {:?}, receiver {:?} {:?}",
            self.now,
            self.sender.closed,
            self.sender.endpoint.stats(self.now),
            self.receiver.closed,
            self.receiver.endpoint.stats(self.now)
        );
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.flying.first_entry() {
            if entry.key().0 > self.now {
                return;
            }
            let (to_receiver, mut bytes) = entry.remove();
            let (to, from) = if to_receiver {
                (&mut self.receiver, self.sender.address)
            } else {
                (&mut self.sender, self.receiver.address)
            };
            to.endpoint.handle_datagram(self.now, Datagram { from, ecn: None, bytes: &mut bytes });
        }
    }

    fn launch(&mut self, to_receiver: bool) {
        let mut batch = Vec::new();
        let side = if to_receiver { &mut self.sender } else { &mut self.receiver };
        if side.endpoint.next_timeout(self.now).is_some_and(|at| at <= self.now) {
            side.endpoint.handle_timeout(self.now);
        }
        while let Some(transmit) = side.endpoint.poll_transmit(self.now, &mut batch) {
            for datagram in batch.chunks(transmit.segment) {
                self.sent += 1;
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                if self.lose == 0 || !self.random.is_multiple_of(self.lose) {
                    let at = (self.now + self.delay, self.sent);
                    self.flying.insert(at, (to_receiver, datagram.to_vec()));
                }
            }
            batch.clear();
        }
    }

    fn serve_sender(&mut self) {
        self.launch(true);
        let last = (self.data.len().div_ceil(BUFFER as usize) as u64).max(1);
        while let Some(event) = self.sender.endpoint.poll_event() {
            match event {
                Event::Wanted(number) if number.0 <= last => {
                    let start = (number.0 as usize - 1) * BUFFER as usize;
                    let piece = &self.data[start..(start + BUFFER as usize).min(self.data.len())];
                    let mut buffer = Buffer::new(BUFFER as usize);
                    buffer.space()[..piece.len()].copy_from_slice(piece);
                    buffer.set_len(piece.len());
                    self.sender.endpoint.supply(self.now, number, buffer, number.0 == last);
                    if number.0 == last {
                        let end =
                            End { buffers: last, bytes: self.data.len() as u64, digest: [9; 32] };
                        self.sender.endpoint.end(self.now, end);
                    }
                }
                Event::Finished(verdict) => self.verdict = verdict,
                Event::Closed(reason) => self.sender.closed = Some(reason),
                _ => {}
            }
        }
        self.launch(true);
    }

    fn serve_receiver(&mut self) {
        self.launch(false);
        while let Some(event) = self.receiver.endpoint.poll_event() {
            match event {
                Event::Filled(BufferNumber(number), mut buffer) => {
                    let start = (number as usize - 1) * BUFFER as usize;
                    let bytes = buffer.filled();
                    self.got[start..start + bytes.len()].copy_from_slice(bytes);
                    buffer.set_len(0);
                    self.receiver.endpoint.offer(self.now, buffer);
                }
                Event::Complete(Some(end)) => {
                    let verdict = Verdict {
                        verified: true,
                        bytes: end.bytes,
                        digest: end.digest,
                        reason: String::new(),
                    };
                    self.receiver.endpoint.judge(self.now, verdict);
                }
                Event::Closed(reason) => self.receiver.closed = Some(reason),
                _ => {}
            }
        }
        self.launch(false);
    }
}

fn transfer(wire: Wire, sender_is_active: bool, bytes: usize, lose: u64) -> Pair {
    let mut pair = Pair::new(wire, sender_is_active, bytes, lose);
    pair.run();
    assert!(pair.got == pair.data, "the bytes differ");
    assert_eq!(pair.sender.closed, Some(Reason::Finished));
    assert_eq!(pair.receiver.closed, Some(Reason::Finished));
    assert_eq!(pair.verdict.is_some(), wire == Wire::Sealed);
    pair
}

#[test]
fn every_way_round_on_a_clean_path() {
    for wire in [Wire::Sealed, Wire::Rfc998] {
        for sender_is_active in [true, false] {
            for bytes in [0, 1, 1000, 65_536, 65_537, 1_000_000] {
                let pair = transfer(wire, sender_is_active, bytes, 0);
                let stats = pair.sender.endpoint.stats(pair.now);
                assert_eq!(stats.data_packets_resent, 0, "{wire:?} {bytes} {stats:?}");
            }
        }
    }
}

#[test]
fn every_way_round_on_a_lossy_path() {
    for wire in [Wire::Sealed, Wire::Rfc998] {
        for sender_is_active in [true, false] {
            for lose in [3, 5, 10, 100] {
                transfer(wire, sender_is_active, 300_000, lose);
            }
        }
    }
}

#[test]
fn packets_are_addressed_to_the_ids_that_an_end_says() {
    let (a, b): (SocketAddr, SocketAddr) = (([192, 0, 2, 1], 1).into(), ([192, 0, 2, 2], 2).into());
    let now = Instant::EPOCH;
    let mut sender = Endpoint::active(config(Wire::Sealed, Role::Sender), b, now, [1; 32]);
    let mut receiver = Endpoint::passive(config(Wire::Sealed, Role::Receiver), now, [2; 32]);
    let own = sender.connection_id();
    assert!(own.is_some());
    assert_eq!(receiver.connection_id(), None);
    let mut to_receiver = Vec::new();
    for turn in 0..6 {
        let (from, to, address) = match turn % 2 {
            0 => (&mut sender, &mut receiver, a),
            _ => (&mut receiver, &mut sender, b),
        };
        let mut batch = Vec::new();
        if from.poll_transmit(now, &mut batch).is_none() {
            continue;
        }
        match (turn, destination(&batch)) {
            (0, id) => assert_eq!(id, None, "OPEN is for whoever listens"),
            (_, id) if turn % 2 == 1 => assert_eq!(id, own),
            (_, id) => to_receiver.extend(id),
        }
        to.handle_datagram(now, Datagram { from: address, ecn: None, bytes: &mut batch });
    }
    assert_eq!(to_receiver.first().copied(), receiver.connection_id());
    // Somebody opens another: both ids lead here until one is confirmed.
    let mut again = Endpoint::active(config(Wire::Sealed, Role::Sender), b, now, [3; 32]);
    let mut open = Vec::new();
    again.poll_transmit(now, &mut open).unwrap();
    receiver.handle_datagram(now, Datagram { from: a, ecn: None, bytes: &mut open });
    assert_eq!(receiver.connection_ids().count(), 2);
    assert_eq!(receiver.connection_ids().next(), to_receiver.first().copied());
    let plain = Endpoint::active(config(Wire::Rfc998, Role::Sender), b, now, [1; 32]);
    assert_eq!(plain.connection_id(), None);
}
