//! The work of an end for packets of an attacker that has no secret, or only recorded packets.

use std::net::SocketAddr;
use std::time::Duration;

use netblt_proto::api::{Datagram, Event, RecvMeta};
use netblt_proto::buffer::Buffer;
use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;

const BUFFER_BYTES: usize = 1 << 20;
/// First bytes of DATA before the data, and what follows them.
const HEADER_BYTES: usize = 32;

/// What comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attack {
    /// Bytes at random, as many as an OPEN has.
    Noise,
    /// An OPEN by another ticket.
    WrongOpen,
    /// The same true OPEN again, while it waits to be confirmed.
    SameOpen,
    /// A true OPEN of which nothing is known: one of long ago, or from who has the ticket.
    TrueOpen,
    /// DATA of a connection that there is not.
    UnknownData,
    /// DATA of the connection, with an authentic header but for its number, and another body.
    ForgedData,
    /// DATA of the connection that came before.
    ReplayedData,
}

/// An end, and what comes to it.
pub(crate) struct Target {
    attack: Attack,
    end: Endpoint,
    packets: Vec<Vec<u8>>,
    sent: usize,
    batch: Vec<u8>,
}

impl Target {
    /// An end, before anything comes.
    pub(crate) fn new(attack: Attack) -> Self {
        let (mut end, data) = match attack {
            Attack::ForgedData | Attack::ReplayedData => open(),
            _ => (passive(), Vec::new()),
        };
        let opens = |secret, count: usize| (0..count).map(move |n| opening(secret, n)).collect();
        let packets: Vec<Vec<u8>> = match attack {
            Attack::Noise => (0..64).map(noise).collect(),
            Attack::WrongOpen => opens(8, 64),
            Attack::SameOpen => opens(7, 1),
            Attack::TrueOpen => opens(7, 64),
            Attack::UnknownData => vec![open().1.swap_remove(0)],
            Attack::ForgedData => (0..64).map(|n| forged(&data, n)).collect(),
            Attack::ReplayedData => data,
        };
        let mut batch = Vec::with_capacity(1 << 16);
        while end.poll_transmit(Instant::EPOCH, &mut batch).is_some() {}
        Self { attack, end, packets, sent: 0, batch }
    }

    /// The next packet.
    pub(crate) fn next(&mut self) -> Vec<u8> {
        let packet = self.packets[self.sent % self.packets.len()].clone();
        self.sent += 1;
        if self.attack == Attack::TrueOpen {
            // Else most would get a refusal for now, or a cookie.
            self.end = passive();
        }
        packet
    }

    /// It comes, and what it draws leaves.
    pub(crate) fn hit(&mut self, bytes: &mut [u8]) {
        let (now, from) = (Instant::EPOCH, ([203, 0, 113, 5], 998).into());
        let meta = RecvMeta::default();
        self.end.handle_datagram(now, Datagram { from, local: None, meta, bytes });
        self.batch.clear();
        while self.end.poll_transmit(now, &mut self.batch).is_some() {}
    }
}

fn config(role: Role, secret: u8) -> Config {
    Config {
        secret: Some(Secret([secret; 32])),
        buffer_bytes: BUFFER_BYTES as u32,
        table_bytes: 0,
        max_outstanding: 1,
        cipher: Cipher::Aes256Gcm,
        datagram_bytes: 1472,
        ..Config::new(Wire::Sealed, role)
    }
}

fn address(n: u8) -> SocketAddr {
    ([192, 0, 2, n], 9).into()
}

fn passive() -> Endpoint {
    Endpoint::passive(config(Role::Receiver, 7), Instant::EPOCH, [2; 32])
}

/// An OPEN, the `n`-th by a holder of `secret`.
fn opening(secret: u8, n: usize) -> Vec<u8> {
    let mut entropy = [secret; 32];
    entropy[..8].copy_from_slice(&n.to_le_bytes());
    let config = config(Role::Sender, secret);
    let mut caller = Endpoint::active(config, address(2), Instant::EPOCH, entropy);
    let mut open = Vec::new();
    caller.poll_transmit(Instant::EPOCH, &mut open);
    open
}

fn noise(n: usize) -> Vec<u8> {
    let mut dice = 0x9e37_79b9_7f4a_7c15 ^ n as u64;
    let mut next = || {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice as u8
    };
    (0..1200).map(|_| next()).collect()
}

/// DATA with the header of one that came, some numbers later.
fn forged(data: &[Vec<u8>], n: usize) -> Vec<u8> {
    let mut packet = data[data.len() - 1].clone();
    let number = u64::from_be_bytes(packet[8..16].try_into().unwrap_or_default());
    packet[8..16].copy_from_slice(&(number + 1 + n as u64).to_be_bytes());
    packet[HEADER_BYTES..].fill(n as u8);
    packet
}

/// A receiver amid a transfer, and the full packets that came to it.
fn open() -> (Endpoint, Vec<Vec<u8>>) {
    let now = Instant::EPOCH;
    let mut caller = Endpoint::active(config(Role::Sender, 7), address(2), now, [1; 32]);
    let mut end = passive();
    end.offer(now, Buffer::new(BUFFER_BYTES));
    let mut came = Vec::new();
    for step in 0..200_u32 {
        let now = now + Duration::from_millis(1) * step;
        for packet in sent(&mut caller, now) {
            if packet.len() > 1300 {
                came.push(packet.clone());
            }
            give(&mut end, now, address(1), packet);
        }
        for packet in sent(&mut end, now) {
            give(&mut caller, now, address(2), packet);
        }
        while let Some(event) = caller.poll_event() {
            if let Event::Wanted(number) = event {
                let mut buffer = Buffer::new(BUFFER_BYTES);
                buffer.set_len(BUFFER_BYTES);
                caller.supply(now, number, buffer, false);
            }
        }
        if came.len() > 64 {
            break;
        }
    }
    assert!(came.len() > 64, "a transfer is under way");
    (end, came)
}

fn sent(end: &mut Endpoint, now: Instant) -> Vec<Vec<u8>> {
    if end.next_timeout(now).is_some_and(|at| at <= now) {
        end.handle_timeout(now);
    }
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while let Some(transmit) = end.poll_transmit(now, &mut batch) {
        all.extend(batch.chunks(transmit.segment).map(<[u8]>::to_vec));
        batch.clear();
    }
    all
}

fn give(end: &mut Endpoint, now: Instant, from: SocketAddr, mut bytes: Vec<u8>) {
    let meta = RecvMeta::default();
    end.handle_datagram(now, Datagram { from, local: None, meta, bytes: &mut bytes });
}
