//! A client that opens a connection as the protocol wants it, and from then on says what it likes.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use netblt::{PublicKey, StaticKey};
use netblt_proto::config::Role;
use netblt_proto::crypto::aead::{Cipher, OpeningKeys, SealingKeys};
use netblt_proto::crypto::noise::{HandshakeAuth, Initiator};
use netblt_proto::crypto::static_pairing::StaticPairing;
use netblt_proto::units::{BufferNumber, ControlSeq, PacketIndex, PacketNumber};
use netblt_proto::wire::packet::{
    Burst, DataHeader, Go, Have, Keepalive, Message, Parameters, TransferMode,
};
use netblt_proto::wire::sealed::{
    self, ControlWriter, DATA_HEADER_BYTES, HandshakePayload, Header, PacketType,
};

pub(crate) type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Datagrams are no longer than this.
const ROOM: usize = 1400;
/// A server that says nothing for so long is not waited for.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often an OPEN is sent.
const TRIES: u32 = 4;

/// Whom it calls, and as whom.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) own: StaticKey,
    pub(crate) server: PublicKey,
}

/// A connection, seen from the side that means harm.
pub(crate) struct Rogue {
    socket: UdpSocket,
    sealing: SealingKeys,
    opening: OpeningKeys,
    /// The server's connection id.
    to: u32,
    /// Data bytes in a packet.
    pub(crate) packet_bytes: u32,
    /// The next control message's number.
    seq: u32,
}

/// An offer such as an honest client makes.
pub(crate) fn plain(role: Role, client: &str) -> HandshakePayload {
    let mode = if role == Role::Sender { TransferMode::Write } else { TransferMode::Read };
    let parameters = Parameters {
        uid: 1,
        buffer_bytes: 1 << 20,
        transfer_bytes: None,
        packet_bytes: 1184,
        burst: Burst { packets: 65_535, interval: Duration::ZERO },
        death_timer: Duration::from_secs(60),
        checksum: false,
        mode,
        max_outstanding: 64,
        client: client.to_owned(),
    };
    HandshakePayload { parameters, ciphers: 3, table_bytes: 8192 }
}

impl Rogue {
    /// Opens with this offer, and confirms.
    pub(crate) fn open(target: &Target, offer: &HandshakePayload) -> Result<Self, Failed> {
        let any = if target.address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(target.address)?;
        let mut random = [0; 40];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let (entropy, ids) = random.split_first_chunk::<32>().ok_or("too few random bytes")?;
        let id = u32::from_be_bytes(*ids.first_chunk().ok_or("too few random bytes")?) | 1;
        let bond = StaticPairing::with_server(&target.own, target.server)?;
        let clear = sealed::key_open_clear(id, id);
        let prologue = [b"netblt 9", &clear[..], &bond.id().0].concat();
        let mut payload = Vec::new();
        sealed::encode_offer(offer, &mut payload);
        let means = HandshakeAuth::Keys { own: &target.own, peer: target.server };
        let (mut initiator, noise) = Initiator::start(means, &prologue, *entropy, &payload)?;
        let mac = bond.mac_key();
        let mut open = sealed::build_open(&clear, Some(bond.id()), &noise, |p| mac.mac(p));
        let response = respond(&socket, &mut open)?;
        let frame = sealed::parse_response(&response)?;
        let (settled, keys) = initiator.finish(frame.noise)?;
        let settled = sealed::parse_offer(id, settled.get(16..).ok_or("no parameters")?)?;
        let cipher = Cipher::from_bit(settled.ciphers).ok_or("a cipher that is not known")?;
        let mut rogue = Self {
            socket,
            sealing: SealingKeys::new(cipher, keys.initiator_to_responder),
            opening: OpeningKeys::new(cipher, keys.responder_to_initiator),
            to: frame.connection,
            packet_bytes: settled.parameters.packet_bytes,
            seq: 1,
        };
        let mut body = Vec::new();
        let wanted = Keepalive { answer_wanted: true, ..Keepalive::default() };
        sealed::encode_keepalive(wanted, &mut body);
        rogue.say(PacketType::Keepalive, &body);
        Ok(rogue)
    }

    /// A packet under the transport keys.
    pub(crate) fn say(&mut self, kind: PacketType, body: &[u8]) {
        let number = self.sealing.next_number();
        let header = Header { kind, generation: 0, connection: self.to, number };
        self.put(number, &sealed::encode_header(&header), body);
    }

    /// A packet of data.
    pub(crate) fn data(&mut self, buffer: u64, index: u32, last: bool, data: &[u8]) {
        let number = self.sealing.next_number();
        let header = DataHeader {
            number,
            buffer: BufferNumber(buffer),
            index: PacketIndex(index),
            generation: 0,
            law: 0,
            last_of_buffer: last,
            last_buffer: false,
            ack: ControlSeq(1),
        };
        self.put(number, &sealed::encode_data_header(self.to, &header), data);
    }

    fn put(&mut self, number: PacketNumber, clear: &[u8], body: &[u8]) {
        let mut datagram = [clear, body].concat();
        let tag = self.sealing.seal_in_place(number, clear, &mut datagram[clear.len()..]);
        datagram.extend_from_slice(&tag);
        let _ = self.socket.send(&datagram);
    }

    /// Control messages, as many as a packet has room for, each with the next number.
    pub(crate) fn control(&mut self, messages: &[Message]) {
        let mut body = Vec::new();
        let mut writer = ControlWriter::new(&mut body, false, ROOM);
        for message in messages {
            if writer.push_message(ControlSeq(self.seq), message) {
                self.seq = self.seq.wrapping_add(1);
            }
        }
        self.say(PacketType::Control, &body);
    }

    /// Asks: the text of `docs/protocol §8.8`, and that it has nothing.
    pub(crate) fn ask(&mut self, kind: u8, (path, name): (&str, &str)) {
        let mut text = vec![kind, 0, 0];
        text.extend(0u64.to_be_bytes());
        for part in [path, name] {
            text.extend((part.len() as u16).to_be_bytes());
            text.extend(part.as_bytes());
        }
        let bytes = [&(text.len() as u32).to_be_bytes()[..], &text].concat();
        self.control(&[Message::Have(Have { bytes, last: true })]);
    }

    /// Permission for so many buffers.
    pub(crate) fn go(&mut self, first: u64, count: u32) {
        let (packet_bytes, first) = (self.packet_bytes, BufferNumber(first));
        self.control(&[Message::Go(Go { first, count, packet_bytes, generation: 0 })]);
    }

    /// The next datagram that has come, if there is one before that time has passed.
    fn next_packet(&self, within: Duration) -> Option<Vec<u8>> {
        let mut datagram = vec![0; 65_536];
        let _ = self.socket.set_read_timeout(Some(within.max(Duration::from_micros(1))));
        let len = self.socket.recv(&mut datagram).ok()?;
        datagram.truncate(len);
        Some(datagram)
    }

    /// Takes what has come; whether the server has ended the connection, or knows it no more.
    pub(crate) fn is_over(&self) -> bool {
        while let Some(datagram) = self.next_packet(Duration::ZERO) {
            if matches!(
                sealed::kind_of(&datagram),
                Some(PacketType::Quit | PacketType::Abort | PacketType::Unknown)
            ) {
                return true;
            }
        }
        false
    }

    /// The first data that come, in the clear.
    pub(crate) fn first_data(&mut self) -> Option<Vec<u8>> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let mut datagram = self.next_packet(PATIENCE)?;
            let Ok((_, header)) = sealed::parse_data_header(&datagram) else { continue };
            let (clear, body) = datagram.split_at_mut(DATA_HEADER_BYTES);
            if let Ok(data) = self.opening.open_in_place(header.number, clear, body) {
                return Some(data.to_vec());
            }
        }
        None
    }
}

/// What an OPEN draws in the end, with the cookie that is asked for.
fn respond(socket: &UdpSocket, open: &mut [u8]) -> Result<Vec<u8>, Failed> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut answer = vec![0; 2048];
    for _ in 0..TRIES {
        socket.send(open)?;
        let Ok(len) = socket.recv(&mut answer) else { continue };
        match sealed::kind_of(&answer[..len]) {
            Some(PacketType::Response) => {
                answer.truncate(len);
                return Ok(answer);
            }
            Some(PacketType::Cookie) => {
                sealed::set_cookie(open, &sealed::parse_cookie(&answer[..len])?.cookie);
            }
            Some(PacketType::Refused) => return Err("refused".into()),
            _ => {}
        }
    }
    Err("no answer".into())
}
