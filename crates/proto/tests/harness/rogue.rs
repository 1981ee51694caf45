//! One real endpoint against a peer that holds the secret and means harm, or is broken: everything
//! it says authenticates, and nothing of it need make sense (`docs/protocol §3`).
//!
//! Whatever it does, the endpoint must not panic, lose a buffer, say a thing twice, spin, or wait
//! for ever when the peer has gone silent.

use std::net::SocketAddr;
use std::time::Duration;

use netblt_proto::api::{Datagram, Ecn, RecvMeta};
use netblt_proto::config::{Role, Secret};
use netblt_proto::crypto::aead::{Cipher, SealingKeys};
use netblt_proto::crypto::mac::MacKey;
use netblt_proto::crypto::noise::{HandshakeAuth, Initiator};
use netblt_proto::crypto::static_pairing::{KeyId, StaticPairing};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::Instant;
use netblt_proto::units::{BufferNumber, ControlSeq, PacketIndex, PacketNumber};
use netblt_proto::wire::packet::{
    Accepted, Burst, DataHeader, End, Go, Have, IndexRange, Message, NullAck, Parameters,
    RepairHeader, Report, Resend, TransferMode, Verdict,
};
use netblt_proto::wire::sealed::{self, HandshakePayload, Header, PacketType};

use super::bytes::Bytes;
use super::conversation::setup::{Keys, Setup};
use super::conversation::side::{Common, Side};

/// Things it says at most.
const MAX_EVENTS: usize = 500;
/// Steps in which the endpoint must come to its end when no more packets arrive.
const MAX_STEPS: usize = 30_000;
/// Longest body of bytes that mean nothing.
const MAX_NOISE: usize = 64;

static SECRET: Secret = Secret([7; 32]);
const CONNECTION: u32 = 0x0102_0304;
const UID: u32 = 9;

fn rogue() -> SocketAddr {
    ([192, 0, 2, 9], 9).into()
}

/// Lives through the conversation that `data` describe.
pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let Some(mut duel) = Duel::open(&mut bytes) else { return };
    for _ in 0..MAX_EVENTS {
        if bytes.is_empty() || duel.side.closed.is_some() {
            break;
        }
        duel.event(&mut bytes);
    }
    duel.fall_silent();
}

/// What it opens with: the secret, or the key that is let in.
fn proof(by_keys: bool) -> (HandshakeAuth<'static>, Option<KeyId>, MacKey) {
    if !by_keys {
        return (HandshakeAuth::Secret(&SECRET), None, MacKey::from_secret(&SECRET));
    }
    let keys = Keys::shared();
    let peer = keys.server.public();
    let bond = StaticPairing::with_server(&keys.client, peer).expect("a key that is one");
    (HandshakeAuth::Keys { own: &keys.client, peer }, Some(bond.id()), bond.mac_key().clone())
}

struct Duel {
    common: Common,
    now: Instant,
    side: Side,
    keys: SealingKeys,
    /// Connection id of the real end.
    to: u32,
    packet_bytes: u32,
    /// The next control message's number, if it keeps to that.
    seq: u32,
    /// The next piece of data, if it keeps to that.
    next: (u64, u32),
}

impl Duel {
    /// Opens as the active end. The parameters offered are the bytes' choice too.
    fn open(bytes: &mut Bytes<'_>) -> Option<Self> {
        let setup = Setup::of_rogue(bytes);
        let role = if setup.sender_is_active { Role::Receiver } else { Role::Sender };
        let (config, stock) = match role {
            Role::Sender => (&setup.sender, setup.stocks.0),
            Role::Receiver => (&setup.receiver, setup.stocks.1),
        };
        let now = Instant::from_nanos(1_000_000_000);
        let endpoint = Endpoint::passive(config.clone(), now, [2; 32]);
        let capacity = (config.buffer_bytes + config.table_bytes) as usize;
        let address = ([192, 0, 2, 1], 1).into();
        let mut side = Side::new(role, endpoint, address, (stock, capacity));
        side.automatic = setup.automatic[0];
        side.homes = vec![rogue()];
        let mut common = Common { setup, plan: None, ever_complete: false };

        let (means, key, mac_key) = proof(common.setup.by_keys);
        let clear = match key {
            None => sealed::open_clear(CONNECTION, UID),
            Some(_) => sealed::key_open_clear(CONNECTION, UID),
        };
        let mut payload = Vec::new();
        sealed::encode_offer(&offer(role, bytes), &mut payload);
        let id = key.as_ref().map_or(&[][..], |id| &id.0);
        let prologue = [b"netblt 9", &clear[..], id].concat();
        let (mut initiator, noise) =
            Initiator::start(means, &prologue, [1; 32], &payload).expect("a short payload");
        let mut open = sealed::build_open(&clear, key, &noise, |parts| mac_key.mac(parts));

        let mut sent = Vec::new();
        side.turn(now, &mut common, &mut sent);
        side.on_received(rogue(), open.len());
        side.endpoint.handle_datagram(
            now,
            Datagram { from: rogue(), local: None, meta: RecvMeta::default(), bytes: &mut open },
        );
        side.turn(now, &mut common, &mut sent);
        let (_, response) = sent.pop()?;
        let frame = sealed::parse_response(&response).ok()?;
        let (payload, keys) = initiator.finish(frame.noise).expect("a true RESPONSE");
        let settled = sealed::parse_offer(UID, &payload[16..]).expect("true parameters");
        let cipher = Cipher::from_bit(settled.ciphers).expect("one of those offered");
        Some(Self {
            common,
            now,
            side,
            keys: SealingKeys::new(cipher, keys.initiator_to_responder),
            to: frame.connection,
            packet_bytes: settled.parameters.packet_bytes,
            seq: 1,
            next: (1, 0),
        })
    }

    fn event(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.byte() % 16 {
            0 => self.noise(bytes),
            1 | 2 => self.orders(bytes),
            3 => self.proper_order(bytes),
            4 => self.data(bytes),
            5 | 6 => self.proper_data(bytes),
            7 => self.null_ack(bytes),
            8 => self.small(bytes),
            9..=11 => self.tick(),
            12 => self.wait(bytes),
            _ => self.client(bytes),
        }
    }

    // ---- what it says

    /// A packet of any type, its body of any bytes.
    fn noise(&mut self, bytes: &mut Bytes<'_>) {
        let kind = PacketType::ALL[usize::from(bytes.byte()) % PacketType::ALL.len()];
        if kind.is_handshake() {
            return;
        }
        let len = bytes.index(MAX_NOISE);
        let body: Vec<u8> = (0..len).map(|_| bytes.byte()).collect();
        if kind.is_data() {
            let header = self.header(bytes);
            return self.put_data(
                &DataHeader { last_of_buffer: kind == PacketType::Ldata, ..header },
                &body,
            );
        }
        self.put(kind, &body);
    }

    /// A CONTROL packet of messages that parse.
    fn orders(&mut self, bytes: &mut Bytes<'_>) {
        let mut body = Vec::new();
        let count = bytes.byte();
        let mut writer = sealed::ControlWriter::new(&mut body, count & 128 != 0, 1200);
        for _ in 0..=count % 4 {
            let kind = bytes.byte();
            if kind % 5 == 4 {
                writer.push_report(&report(bytes));
                continue;
            }
            let seq = match kind & 128 {
                0 => self.seq,
                _ => number(bytes, u64::from(self.seq)) as u32,
            };
            writer.push_message(
                ControlSeq(seq),
                &message(kind, bytes, self.next.0, self.packet_bytes),
            );
            if kind & 128 == 0 {
                self.seq = self.seq.wrapping_add(1);
            }
        }
        self.put(PacketType::Control, &body);
    }

    /// What a receiver that means well might say next.
    fn proper_order(&mut self, bytes: &mut Bytes<'_>) {
        let (what, buffer) = (bytes.byte(), BufferNumber(self.next.0));
        let message = match what % 4 {
            0 => Message::Go(Go {
                first: buffer,
                count: 1,
                packet_bytes: self.packet_bytes,
                generation: 0,
            }),
            1 => Message::Ok(Accepted {
                first: buffer,
                count: 1,
                offer: None,
                control_timer: Duration::from_millis(50),
            }),
            2 => Message::Resend(Resend {
                buffer,
                missing: vec![IndexRange { start: u32::from(what >> 2), end: u32::MAX }],
            }),
            _ => Message::Done(Verdict {
                verified: what & 4 == 0,
                bytes: 0,
                digest: [9; 32],
                reason: String::new(),
            }),
        };
        self.next.0 += u64::from(what % 4 == 1);
        let mut body = Vec::new();
        let mut writer = sealed::ControlWriter::new(&mut body, false, 1200);
        writer.push_message(ControlSeq(self.seq), &message);
        self.seq = self.seq.wrapping_add(1);
        self.put(PacketType::Control, &body);
    }

    fn header(&self, bytes: &mut Bytes<'_>) -> DataHeader {
        DataHeader {
            number: PacketNumber(0),
            buffer: BufferNumber(number(bytes, self.next.0).max(1)),
            index: PacketIndex(number(bytes, self.next.1.into()) as u32),
            generation: bytes.byte() & 3,
            law: 0,
            last_of_buffer: bytes.flag(),
            last_buffer: false,
            ack: ControlSeq(number(bytes, 1) as u32),
        }
    }

    fn data(&mut self, bytes: &mut Bytes<'_>) {
        let header = self.header(bytes);
        let len = number(bytes, self.packet_bytes.into()).min(2000) as usize;
        self.put_data(&header, &vec![0x5a; len]);
    }

    /// The data that come next, perhaps the last of their buffer.
    fn proper_data(&mut self, bytes: &mut Bytes<'_>) {
        let what = bytes.byte();
        let (buffer, index) = self.next;
        let last = what & 1 == 1;
        let header = DataHeader {
            number: PacketNumber(0),
            buffer: BufferNumber(buffer),
            index: PacketIndex(index),
            generation: 0,
            law: 0,
            last_of_buffer: last,
            last_buffer: false,
            ack: ControlSeq(u32::from(what >> 3)),
        };
        self.next = if last { (buffer + 1, 0) } else { (buffer, index.wrapping_add(1)) };
        let len = if last { usize::from(what) } else { self.packet_bytes as usize };
        self.put_data(&header, &vec![0x5a; len]);
    }

    /// A repair packet, perhaps one that may be.
    fn repair(&mut self, bytes: &mut Bytes<'_>) {
        let packet = u64::from(self.packet_bytes);
        let image_bytes = number(bytes, packet * u64::from(self.next.1)) as u32;
        let near = u64::from(bytes.byte() % 16);
        let header = RepairHeader {
            number: self.keys.next_number(),
            buffer: BufferNumber(number(bytes, self.next.0).max(1)),
            index: number(bytes, near) as u32,
            generation: bytes.byte() & 3,
            image_bytes,
        };
        let len = number(bytes, packet.min(image_bytes.into())).min(2000) as usize;
        let clear = sealed::encode_repair_header(self.to, &header);
        self.send(header.number, &clear, &vec![0x5a; len]);
    }

    fn null_ack(&mut self, bytes: &mut Bytes<'_>) {
        let flags = bytes.byte();
        let near = self.next.0;
        let end = |bytes: &mut Bytes<'_>| End {
            buffers: number(bytes, near.saturating_sub(1)),
            bytes: number(bytes, 0),
            digest: [bytes.byte() & 1; 32],
        };
        let null_ack = NullAck {
            number: PacketNumber(0),
            ack: ControlSeq(number(bytes, 1) as u32),
            burst: burst(bytes),
            sent_through: (flags & 1 == 1).then(|| BufferNumber(number(bytes, near))),
            end: (flags & 2 == 2).then(|| end(bytes)),
            packet_bytes: if flags & 4 == 4 { number(bytes, 1200) as u16 } else { 0 },
            limit: 0,
            back_millis: 0,
            paused: flags & 8 == 8,
        };
        let mut body = Vec::new();
        sealed::encode_null_ack(&null_ack, &mut body);
        self.put(PacketType::NullAck, &body);
    }

    fn small(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.byte() % 8 {
            0 => self.put(PacketType::Quit, "größer".as_bytes()),
            1 => self.put(PacketType::QuitAck, &[]),
            2 => self.put(PacketType::Abort, b"why"),
            3 => self.put(PacketType::Done, &[]),
            7 => self.repair(bytes),
            kind => self.put(PacketType::Keepalive, &[kind & 1, 0, kind, bytes.byte(), 0, 0, 0]),
        }
    }

    fn put(&mut self, kind: PacketType, body: &[u8]) {
        let number = self.keys.next_number();
        let header = Header { kind, generation: 0, connection: self.to, number };
        let clear = sealed::encode_header(&header);
        self.send(number, &clear, body);
    }

    fn put_data(&mut self, header: &DataHeader, data: &[u8]) {
        let number = self.keys.next_number();
        let clear = sealed::encode_data_header(self.to, &DataHeader { number, ..*header });
        self.send(number, &clear, data);
    }

    fn send(&mut self, number: PacketNumber, clear: &[u8], body: &[u8]) {
        let mut datagram = [clear, body].concat();
        let tag = self.keys.seal_in_place(number, clear, &mut datagram[clear.len()..]);
        datagram.extend_from_slice(&tag);
        self.side.on_received(rogue(), datagram.len());
        let ecn = (number.0.is_multiple_of(3)).then_some(Ecn::Ce);
        let bytes = &mut datagram;
        self.side.endpoint.handle_datagram(
            self.now,
            Datagram { from: rogue(), local: None, meta: ecn.into(), bytes },
        );
        self.turn();
    }

    // ---- what else happens

    fn tick(&mut self) {
        if let Some(next) = self.side.endpoint.next_timeout(self.now) {
            self.now = self.now.max(next);
            self.turn();
        }
    }

    fn wait(&mut self, bytes: &mut Bytes<'_>) {
        let micros = bytes.pick([1, 100, 1_000, 20_000, 300_000, 1_500_000, 4_000_000, 60_000_000]);
        self.now += Duration::from_micros(micros);
        self.turn();
    }

    fn client(&mut self, bytes: &mut Bytes<'_>) {
        let (now, side) = (self.now, &mut self.side);
        match bytes.byte() % 16 {
            0 => side.give_up(now, "enough"),
            1 => {
                let quote = side.last_sent.clone();
                side.endpoint.handle_unreachable(now, &quote);
            }
            2 => side.offer_nonsense(now, 5),
            3..=5 => drop(side.end(now)),
            6..=8 => drop(side.judge(now, &self.common.setup)),
            _ => drop(side.supply(now, &self.common) || side.offer(now)),
        }
        self.turn();
    }

    fn turn(&mut self) {
        // Its answers are of no interest to one who does not listen.
        self.side.turn(self.now, &mut self.common, &mut Vec::new());
    }

    /// No more packets arrive: an end that is open must find out.
    fn fall_silent(&mut self) {
        for _ in 0..MAX_STEPS {
            if self.side.closed.is_some() || self.side.openings == 0 {
                return;
            }
            let next = self.side.endpoint.next_timeout(self.now);
            let Some(next) = next else { panic!("no timer: {}", self.side.state(self.now)) };
            self.now = self.now.max(next);
            self.turn();
        }
        panic!("it does not come to an end: {}", self.side.state(self.now));
    }
}

/// A number near `near`, or at one of the places where arithmetic goes wrong.
fn number(bytes: &mut Bytes<'_>, near: u64) -> u64 {
    let how = bytes.byte();
    match how {
        0..=127 => near.saturating_add(u64::from(how & 15)).saturating_sub(u64::from(how >> 4)),
        128..=191 => u64::from(how & 63),
        192..=223 => 1 << (how & 31),
        224..=239 => u64::from(u32::MAX) - u64::from(how & 15),
        _ => u64::MAX - u64::from(how & 15),
    }
}

fn burst(bytes: &mut Bytes<'_>) -> Burst {
    let packets = number(bytes, 1) as u32;
    Burst { packets, interval: Duration::from_micros(number(bytes, 0).min(1 << 33)) }
}

fn offer(role: Role, bytes: &mut Bytes<'_>) -> HandshakePayload {
    let parameters = Parameters {
        uid: UID,
        buffer_bytes: 1 << (10 + bytes.byte() % 17),
        transfer_bytes: bytes.flag().then(|| number(bytes, 0)),
        packet_bytes: number(bytes, 128) as u32,
        burst: burst(bytes),
        death_timer: Duration::from_secs(number(bytes, 1).min(1 << 20)),
        checksum: false,
        mode: if role == Role::Sender { TransferMode::Read } else { TransferMode::Write },
        max_outstanding: number(bytes, 1) as u32,
        client: String::new(),
    };
    HandshakePayload { parameters, ciphers: bytes.byte(), table_bytes: number(bytes, 0) as u32 }
}

fn message(kind: u8, bytes: &mut Bytes<'_>, near: u64, packet_bytes: u32) -> Message {
    let first = BufferNumber(number(bytes, near));
    match kind % 5 {
        0 => Message::Go(Go {
            first,
            count: number(bytes, 1) as u32,
            packet_bytes: number(bytes, packet_bytes.into()) as u32,
            generation: bytes.byte() & 3,
        }),
        1 => Message::Ok(Accepted {
            first,
            count: number(bytes, 1) as u32,
            offer: bytes.flag().then(|| burst(bytes)),
            control_timer: Duration::from_micros(number(bytes, 0).min(1 << 33)),
        }),
        2 => {
            let ranges = (0..=bytes.byte() % 4).map(|_| IndexRange {
                start: number(bytes, 0) as u32,
                end: number(bytes, 1) as u32,
            });
            Message::Resend(Resend { buffer: first, missing: ranges.collect() })
        }
        3 => {
            let len = usize::from(bytes.byte()) * 2;
            Message::Have(Have { bytes: vec![bytes.byte(); len], last: bytes.flag() })
        }
        _ => Message::Done(Verdict {
            verified: bytes.flag(),
            bytes: first.0,
            digest: [9; 32],
            reason: "no".repeat(usize::from(bytes.byte())),
        }),
    }
}

fn report(bytes: &mut Bytes<'_>) -> Report {
    Report {
        at_micros: number(bytes, 0) as u32,
        packets: number(bytes, 1),
        bytes: number(bytes, 1),
        highest: PacketNumber(number(bytes, 1)),
        highest_age_micros: number(bytes, 0) as u32,
        marked: number(bytes, 0),
        missing: number(bytes, 0),
        largest: number(bytes, 1200) as u16,
    }
}
