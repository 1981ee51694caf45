//! The codec: typed packets to datagrams and back, on either wire, under the keys of one
//! connection.
//!
//! Every byte that differs between the wires ends here; the machines above see typed packets, and
//! what they do differently is in their [`crate::wire_profile::WireProfile`]. DATA stays sealed
//! until the machine has found its place (`docs/protocol §5.6`).

use crate::control_fifo::ControlFifo;
use crate::crypto::aead::{Cipher, OpeningKeys, SealingKeys};
use crate::time::Instant;
use crate::units::{ControlSeq, PacketNumber};
use crate::wire::packet::{
    DataHeader, Keepalive, Message, NullAck, RateLimit, RepairHeader, Report,
};
use crate::wire::rfc998::{self, Packet998, Ports};
use crate::wire::sealed::{self, Branch, Header, PacketType, Token};
use crate::wire::{Wire, data_overhead};

/// A datagram of the connection, as far as it can be decoded before its position in a buffer is
/// known.
pub(crate) enum DecodedPacket<'a> {
    /// DATA or LDATA, not authenticated yet. `raw` is the whole datagram.
    Data { header: DataHeader, raw: &'a [u8] },
    /// REPAIR (`sealed`): the same.
    Repair { header: RepairHeader, raw: &'a [u8] },
    /// Anything else, authentic.
    Other { number: PacketNumber, bytes: usize, packet: OtherPacket },
}

impl DecodedPacket<'_> {
    /// Its number; 0 where the wire has none.
    pub(crate) fn number(&self) -> PacketNumber {
        match self {
            Self::Data { header, .. } => header.number,
            Self::Repair { header, .. } => header.number,
            Self::Other { number, .. } => *number,
        }
    }
}

/// A packet that is neither DATA nor REPAIR.
#[derive(Debug)]
pub(crate) enum OtherPacket {
    NullAck(NullAck),
    Control {
        end_received: bool,
        /// The sender's rate limit, and the number of the packet that carries it.
        limit: (PacketNumber, RateLimit),
        messages: Vec<(ControlSeq, Message)>,
        report: Option<Report>,
    },
    Keepalive(Keepalive),
    Quit(String),
    QuitAck,
    Abort(String),
    Done,
    Challenge(Token),
    Answer(Token),
    Branch(Box<Branch>),
}

/// Whether all messages of `fifo` fit into one control packet of `bytes` on `sealed`.
pub(crate) fn fits_one_sealed_packet(fifo: &ControlFifo, bytes: usize) -> bool {
    let mut body = Vec::new();
    let room = bytes.saturating_sub(sealed::HEADER_BYTES + sealed::TAG_BYTES);
    let mut writer = sealed::ControlWriter::new(&mut body, false, room);
    fifo.messages().all(|(seq, message)| writer.push_message(seq, message))
}

/// The codec of one connection.
#[derive(Debug)]
pub(crate) enum Codec {
    Rfc998(Rfc998Codec),
    Sealed(Box<SealedCodec>),
}

/// The `rfc998` wire.
#[derive(Debug)]
pub(crate) struct Rfc998Codec {
    ports: Ports,
    checksum: bool,
    packets_per_buffer: u32,
    packet_bytes: u32,
    sent: u64,
}

/// The `sealed` wire.
#[derive(Debug)]
pub(crate) struct SealedCodec {
    own_id: u32,
    peer_id: u32,
    sealing: SealingKeys,
    opening: OpeningKeys,
}

impl Codec {
    pub(crate) fn rfc998(
        ports: Ports,
        checksum: bool,
        buffer_bytes: u32,
        packet_bytes: u32,
    ) -> Self {
        let packets_per_buffer = buffer_bytes.div_ceil(packet_bytes.max(1)).max(1);
        Self::Rfc998(Rfc998Codec { ports, checksum, packets_per_buffer, packet_bytes, sent: 0 })
    }

    pub(crate) fn sealed(
        own_id: u32,
        peer_id: u32,
        cipher: Cipher,
        out: [u8; 32],
        into: [u8; 32],
    ) -> Self {
        Self::Sealed(Box::new(SealedCodec {
            own_id,
            peer_id,
            sealing: SealingKeys::new(cipher, out),
            opening: OpeningKeys::new(cipher, into),
        }))
    }

    /// The connection id that the peer puts into its packets, where the wire has one.
    pub(crate) fn own_id(&self) -> Option<u32> {
        match self {
            Self::Rfc998(_) => None,
            Self::Sealed(sealed) => Some(sealed.own_id),
        }
    }

    /// The cipher of its packets, where they have one.
    pub(crate) fn cipher(&self) -> Option<Cipher> {
        match self {
            Self::Rfc998(_) => None,
            Self::Sealed(sealed) => Some(sealed.sealing.cipher()),
        }
    }

    /// The number of the packet that leaves next.
    pub(crate) fn upcoming(&self) -> PacketNumber {
        match self {
            Self::Rfc998(plain) => PacketNumber(plain.sent),
            Self::Sealed(sealed) => sealed.sealing.upcoming(),
        }
    }

    /// The number of the packet whose first bytes are quoted, in ICMP for example, if this end sent
    /// it. A quote proves only that its author saw the packet. On `rfc998`, where packets have no
    /// numbers, it proves nothing, and the newest packet is assumed.
    pub(crate) fn quoted(&self, bytes: &[u8]) -> Option<PacketNumber> {
        let sealed = match self {
            Self::Rfc998(plain) => return Some(PacketNumber(plain.sent)),
            Self::Sealed(sealed) => sealed,
        };
        let header = sealed::parse_header(bytes).ok()?;
        (header.connection == sealed.peer_id && sealed.sealing.has_handed_out(header.number))
            .then_some(header.number)
    }

    /// The same for the number that an UNKNOWN quotes.
    pub(crate) fn unknown(&self, bytes: &[u8]) -> Option<PacketNumber> {
        let Self::Sealed(sealed) = self else { return None };
        let (connection, number) = sealed::parse_unknown(bytes).ok()?;
        (connection == sealed.peer_id && sealed.sealing.has_handed_out(number)).then_some(number)
    }

    /// Bytes of data in a DATA datagram.
    pub(crate) fn data_len(&self, raw: &[u8]) -> usize {
        raw.len().saturating_sub(self.data_overhead())
    }

    /// Bytes of a DATA datagram that are not data.
    pub(crate) fn data_overhead(&self) -> usize {
        let wire = match self {
            Self::Rfc998(_) => Wire::Rfc998,
            Self::Sealed(_) => Wire::Sealed,
        };
        data_overhead(wire) as usize
    }

    /// Skips a packet number (`sealed`, RFC 9000 §21.4): a peer that reports it invents its
    /// reports.
    pub(crate) fn skip_number(&mut self) -> Option<PacketNumber> {
        match self {
            Self::Rfc998(_) => None,
            Self::Sealed(sealed) => Some(sealed.sealing.next_number()),
        }
    }

    // ---- in

    /// Decodes a datagram. `None`: it belongs to another connection, which leaves it unchanged, or
    /// is not authentic. `reference` is a control sequence number near those to come.
    pub(crate) fn receive<'a>(
        &mut self,
        bytes: &'a mut [u8],
        reference: ControlSeq,
    ) -> Option<DecodedPacket<'a>> {
        match self {
            Self::Rfc998(plain) => plain.receive(bytes, reference),
            Self::Sealed(sealed) => sealed.receive(bytes),
        }
    }

    /// Decrypts the data of `raw` into `slot`, which is just as long. False: it is not authentic,
    /// and the slot holds no data.
    pub(crate) fn open_data(&mut self, raw: &[u8], slot: &mut [u8]) -> bool {
        match self {
            // The checksum was proof enough when the datagram was parsed.
            Self::Rfc998(_) => match raw.get(rfc998::DATA_HEADER_BYTES..) {
                Some(data) if data.len() == slot.len() => {
                    slot.copy_from_slice(data);
                    true
                }
                _ => false,
            },
            Self::Sealed(sealed) => sealed.open_data(raw, slot),
        }
    }

    /// The same for a packet whose header is known: its number is `number`.
    pub(crate) fn open_numbered(
        &mut self,
        number: PacketNumber,
        raw: &[u8],
        slot: &mut [u8],
    ) -> bool {
        let (Self::Sealed(sealed), Some((clear, body))) =
            (self, raw.split_at_checked(sealed::DATA_HEADER_BYTES))
        else {
            return false;
        };
        sealed.opening.open_into(number, clear, body, slot).is_ok()
    }

    /// Whether `raw` has exactly this clear header (`sealed`).
    pub(crate) fn is_under(&self, raw: &[u8], header: &DataHeader) -> bool {
        match self {
            Self::Rfc998(_) => false,
            Self::Sealed(sealed) => sealed::is_data_header(raw, sealed.own_id, header),
        }
    }

    /// Whether a packet is authentic under the keys of this connection. Changes nothing.
    pub(crate) fn authenticates(&self, bytes: &[u8]) -> bool {
        let Self::Sealed(sealed) = self else { return false };
        let Ok(header) = sealed::parse_header(bytes) else { return false };
        let clear = match header.kind {
            kind if kind.is_of_buffer() => sealed::DATA_HEADER_BYTES,
            _ => sealed::HEADER_BYTES,
        };
        let parts = bytes.split_at_checked(clear);
        parts.is_some_and(|(clear, body)| sealed.opening.authenticates(header.number, clear, body))
    }

    // ---- out

    /// Appends a DATA or LDATA datagram and returns the number it got.
    pub(crate) fn put_data(
        &mut self,
        out: &mut Vec<u8>,
        header: &DataHeader,
        data: &[u8],
    ) -> PacketNumber {
        match self {
            Self::Rfc998(plain) => {
                rfc998::encode_data(plain.ports, header, data, plain.checksum, out);
                plain.number()
            }
            Self::Sealed(sealed) => sealed.put_data(out, header, data),
        }
    }

    /// Appends a REPAIR datagram (`sealed`) and returns the number it got.
    pub(crate) fn put_repair(
        &mut self,
        out: &mut Vec<u8>,
        header: &RepairHeader,
        symbol: &[u8],
    ) -> PacketNumber {
        match self {
            // That wire has none, and its sender makes none.
            Self::Rfc998(plain) => plain.number(),
            Self::Sealed(sealed) => sealed.put_repair(out, header, symbol),
        }
    }

    pub(crate) fn put_null_ack(&mut self, out: &mut Vec<u8>, null_ack: &NullAck) -> PacketNumber {
        match self {
            Self::Rfc998(plain) => {
                rfc998::encode_null_ack(plain.ports, null_ack, out);
                plain.number()
            }
            Self::Sealed(sealed) => {
                sealed.put(out, PacketType::NullAck, |body| sealed::encode_null_ack(null_ack, body))
            }
        }
    }

    /// Appends a control packet of at most `limit` bytes with the messages that are due. Returns
    /// whether some did not fit.
    pub(crate) fn put_control(
        &mut self,
        now: Instant,
        out: &mut Vec<u8>,
        limit: usize,
        (end_received, rate_limit): (bool, RateLimit),
        report: Option<&Report>,
        fifo: &mut ControlFifo,
    ) -> bool {
        match self {
            Self::Rfc998(plain) => {
                plain.number();
                let mut writer = rfc998::ControlWriter998::new(
                    plain.ports,
                    plain.packets_per_buffer,
                    limit,
                    out,
                );
                let more = fifo.transmit(now, |seq, message| writer.push(seq, message));
                writer.finish();
                more
            }
            Self::Sealed(sealed) => {
                let limit = limit.saturating_sub(sealed::HEADER_BYTES + sealed::TAG_BYTES);
                let mut more = false;
                sealed.put(out, PacketType::Control, |body| {
                    let mut writer = sealed::ControlWriter::new(body, end_received, limit);
                    writer.set_rate_limit(rate_limit);
                    if let Some(report) = report {
                        writer.push_report(report);
                    }
                    more = fifo.transmit(now, |seq, message| writer.push_message(seq, message));
                });
                more
            }
        }
    }

    pub(crate) fn put_keepalive(
        &mut self,
        out: &mut Vec<u8>,
        keepalive: Keepalive,
    ) -> PacketNumber {
        match self {
            Self::Rfc998(plain) => plain.put(|ports| rfc998::encode_keepalive(ports, out)),
            Self::Sealed(sealed) => sealed
                .put(out, PacketType::Keepalive, |body| sealed::encode_keepalive(keepalive, body)),
        }
    }

    pub(crate) fn put_quit(&mut self, out: &mut Vec<u8>, reason: &str) -> PacketNumber {
        match self {
            Self::Rfc998(plain) => plain.put(|ports| rfc998::encode_quit(ports, reason, out)),
            Self::Sealed(sealed) => {
                sealed.put(out, PacketType::Quit, |body| sealed::encode_reason(reason, body))
            }
        }
    }

    pub(crate) fn put_quit_ack(&mut self, out: &mut Vec<u8>) -> PacketNumber {
        match self {
            Self::Rfc998(plain) => plain.put(|ports| rfc998::encode_quit_ack(ports, out)),
            Self::Sealed(sealed) => sealed.put(out, PacketType::QuitAck, |_| {}),
        }
    }

    pub(crate) fn put_abort(&mut self, out: &mut Vec<u8>, reason: &str) -> PacketNumber {
        match self {
            Self::Rfc998(plain) => plain.put(|ports| rfc998::encode_abort(ports, reason, out)),
            Self::Sealed(sealed) => {
                sealed.put(out, PacketType::Abort, |body| sealed::encode_reason(reason, body))
            }
        }
    }

    /// Appends a CHALLENGE (`sealed`).
    pub(crate) fn put_challenge(&mut self, out: &mut Vec<u8>, token: &Token) -> PacketNumber {
        self.put_token(out, PacketType::Challenge, token)
    }

    /// Appends the ANSWER to a CHALLENGE (`sealed`).
    pub(crate) fn put_answer(&mut self, out: &mut Vec<u8>, token: &Token) -> PacketNumber {
        self.put_token(out, PacketType::Answer, token)
    }

    /// Appends a BRANCH (`sealed`).
    pub(crate) fn put_branch(&mut self, out: &mut Vec<u8>, branch: &Branch) -> PacketNumber {
        match self {
            Self::Rfc998(plain) => plain.number(),
            Self::Sealed(sealed) => {
                sealed.put(out, PacketType::Branch, |body| sealed::encode_branch(branch, body))
            }
        }
    }

    fn put_token(&mut self, out: &mut Vec<u8>, kind: PacketType, token: &Token) -> PacketNumber {
        match self {
            // `rfc998` has no path validation: its peers do not move.
            Self::Rfc998(plain) => plain.number(),
            Self::Sealed(sealed) => sealed.put(out, kind, |body| sealed::encode_token(token, body)),
        }
    }

    pub(crate) fn put_done(&mut self, out: &mut Vec<u8>) -> PacketNumber {
        match self {
            Self::Rfc998(plain) => plain.put(|ports| rfc998::encode_done(ports, out)),
            Self::Sealed(sealed) => sealed.put(out, PacketType::Done, |_| {}),
        }
    }
}

impl Rfc998Codec {
    fn number(&mut self) -> PacketNumber {
        self.sent += 1;
        PacketNumber(self.sent - 1)
    }

    fn put(&mut self, encode: impl FnOnce(Ports)) -> PacketNumber {
        encode(self.ports);
        self.number()
    }

    fn receive<'a>(&mut self, bytes: &'a [u8], reference: ControlSeq) -> Option<DecodedPacket<'a>> {
        let (ports, packet) = rfc998::parse(bytes, self.checksum, reference).ok()?;
        if ports != self.ports.swapped() {
            return None;
        }
        let packet = match packet {
            Packet998::Data { header, data } => {
                let raw = bytes.get(..rfc998::DATA_HEADER_BYTES + data.len())?;
                return Some(DecodedPacket::Data { header, raw });
            }
            Packet998::NullAck(null_ack) => OtherPacket::NullAck(null_ack),
            Packet998::Control(mut messages) => {
                // GO has no packet size on `rfc998`: the negotiated one holds.
                for (_, message) in &mut messages {
                    if let Message::Go(go) = message {
                        go.packet_bytes = self.packet_bytes;
                    }
                }
                let limit = (PacketNumber(0), RateLimit::Unset);
                OtherPacket::Control { end_received: false, limit, messages, report: None }
            }
            Packet998::Keepalive => OtherPacket::Keepalive(Keepalive::default()),
            Packet998::Quit(reason) => OtherPacket::Quit(reason),
            Packet998::QuitAck => OtherPacket::QuitAck,
            Packet998::Abort(reason) => OtherPacket::Abort(reason),
            Packet998::Done => OtherPacket::Done,
            Packet998::Open(_) | Packet998::Response(_) | Packet998::Refused(_) => return None,
        };
        Some(DecodedPacket::Other { number: PacketNumber(0), bytes: bytes.len(), packet })
    }
}

impl SealedCodec {
    fn receive<'a>(&mut self, bytes: &'a mut [u8]) -> Option<DecodedPacket<'a>> {
        let header = sealed::parse_header(bytes).ok().filter(|h| h.connection == self.own_id)?;
        if self.opening.is_replay(header.number) {
            return None;
        }
        if let PacketType::Data | PacketType::Ldata = header.kind {
            let (_, header) = sealed::parse_data_header(bytes).ok()?;
            return Some(DecodedPacket::Data { header, raw: bytes });
        }
        if header.kind == PacketType::Repair {
            let (_, header) = sealed::parse_repair_header(bytes).ok()?;
            return Some(DecodedPacket::Repair { header, raw: bytes });
        }
        let len = bytes.len();
        let (clear, body) = bytes.split_at_mut(sealed::HEADER_BYTES);
        let body = self.opening.open_in_place(header.number, clear, body).ok()?;
        let packet = incoming(header.kind, header.number, body)?;
        Some(DecodedPacket::Other { number: header.number, bytes: len, packet })
    }

    fn open_data(&mut self, raw: &[u8], slot: &mut [u8]) -> bool {
        let Some((clear, body)) = raw.split_at_checked(sealed::DATA_HEADER_BYTES) else {
            return false;
        };
        let Ok(header) = sealed::parse_header(clear) else { return false };
        self.opening.open_into(header.number, clear, body, slot).is_ok()
    }

    fn put_data(&mut self, out: &mut Vec<u8>, header: &DataHeader, data: &[u8]) -> PacketNumber {
        let number = self.sealing.next_number();
        let clear = sealed::encode_data_header(self.peer_id, &DataHeader { number, ..*header });
        self.seal(number, &clear, data, out);
        number
    }

    fn put_repair(
        &mut self,
        out: &mut Vec<u8>,
        header: &RepairHeader,
        symbol: &[u8],
    ) -> PacketNumber {
        let number = self.sealing.next_number();
        let header = RepairHeader { number, ..*header };
        let clear = sealed::encode_repair_header(self.peer_id, &header);
        self.seal(number, &clear, symbol, out);
        number
    }

    /// Appends `clear`, and `data` sealed behind it.
    fn seal(&mut self, number: PacketNumber, clear: &[u8], data: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(clear);
        let at = out.len();
        out.resize(at + data.len() + sealed::TAG_BYTES, 0);
        self.sealing.seal_into(number, clear, data, &mut out[at..]);
    }

    fn put(
        &mut self,
        out: &mut Vec<u8>,
        kind: PacketType,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> PacketNumber {
        let number = self.sealing.next_number();
        let clear = sealed::encode_header(&Header {
            kind,
            generation: 0,
            connection: self.peer_id,
            number,
        });
        out.extend_from_slice(&clear);
        let at = out.len();
        write(out);
        let tag = self.sealing.seal_in_place(number, &clear, &mut out[at..]);
        out.extend_from_slice(&tag);
        number
    }
}

/// Parses the body of an authentic packet.
fn incoming(kind: PacketType, number: PacketNumber, body: &[u8]) -> Option<OtherPacket> {
    Some(match kind {
        PacketType::NullAck => OtherPacket::NullAck(sealed::parse_null_ack(number, body).ok()?),
        PacketType::Control => {
            let control = sealed::parse_control(body).ok()?;
            OtherPacket::Control {
                end_received: control.end_received,
                limit: (number, control.rate_limit),
                messages: control.messages,
                report: control.report,
            }
        }
        PacketType::Keepalive => OtherPacket::Keepalive(sealed::parse_keepalive(body).ok()?),
        PacketType::Quit => OtherPacket::Quit(sealed::parse_reason(body).ok()?),
        PacketType::QuitAck if body.is_empty() => OtherPacket::QuitAck,
        PacketType::Abort => OtherPacket::Abort(sealed::parse_reason(body).ok()?),
        PacketType::Done if body.is_empty() => OtherPacket::Done,
        PacketType::Challenge => OtherPacket::Challenge(sealed::parse_token(body).ok()?),
        PacketType::Answer => OtherPacket::Answer(sealed::parse_token(body).ok()?),
        PacketType::Branch => OtherPacket::Branch(Box::new(sealed::parse_branch(body).ok()?)),
        PacketType::QuitAck | PacketType::Done => return None,
        // These are read elsewhere: by their buffer, or without transport keys.
        PacketType::Data | PacketType::Ldata | PacketType::Repair => return None,
        PacketType::Open | PacketType::Response | PacketType::Refused => return None,
        PacketType::Cookie | PacketType::Unknown | PacketType::Who | PacketType::Key => {
            return None;
        }
    })
}
