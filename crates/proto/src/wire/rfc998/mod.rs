//! The `rfc998` wire: the packets of RFC 998 §8, to the byte (`docs/protocol §2`).
//!
//! Encoding appends to a caller's vector and cannot fail: what is too large for its field is cut to
//! the largest value the field has. Parsing never panics, and makes a packet of nothing but bytes
//! whose checksum holds. DATA stay where they arrived.

mod checksum;
mod control;
mod layout;

use std::time::Duration;

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use crate::limits::MAX_REASON;
use crate::units::{BufferNumber, ControlSeq, PacketIndex, PacketNumber};
use crate::wire::packet::{Burst, DataHeader, Message, NullAck, Parameters, TransferMode};
use control::parse_control;
use layout::{
    CommonHeader, DataPacketHeader, FLAG_C, FLAG_L, FLAG_M, NullAckBody, OpeningBody, burst, kind,
    low, millis, number, short,
};

pub use control::ControlWriter998;
pub(crate) use control::packets_per_resend;

/// The version byte (`docs/protocol §2.1`).
pub const VERSION: u8 = 2;
/// Bytes of the header that every packet has.
pub const HEADER_BYTES: usize = size_of::<CommonHeader>();
/// Bytes before the data in DATA and LDATA.
pub const DATA_HEADER_BYTES: usize = size_of::<DataPacketHeader>();

/// The ports in a packet, from the view of the end that sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The port of the end that sends the packet.
    pub local: u16,
    /// The port of the destination end.
    pub foreign: u16,
}

impl Ports {
    /// The same pair from the other end's view.
    #[must_use]
    pub const fn swapped(self) -> Self {
        Self { local: self.foreign, foreign: self.local }
    }
}

/// One packet, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet998<'a> {
    /// OPEN: the values as they stand there, for the passive end to judge and to refuse.
    Open(Parameters),
    /// RESPONSE, likewise.
    Response(Parameters),
    /// KEEPALIVE.
    Keepalive,
    /// QUIT and its reason.
    Quit(String),
    /// QUITACK.
    QuitAck,
    /// ABORT and its reason.
    Abort(String),
    /// DATA or LDATA.
    Data {
        /// The header; `number` and `generation` are 0.
        header: DataHeader,
        /// The data, where they arrived.
        data: &'a [u8],
    },
    /// NULL-ACK.
    NullAck(NullAck),
    /// CONTROL: its messages in their order. A GO's `packet_bytes` is 0: this wire has none there.
    Control(Vec<(ControlSeq, Message)>),
    /// REFUSED and its reason.
    Refused(String),
    /// DONE.
    Done,
}

/// Why bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError998 {
    /// Fewer bytes than a header has.
    #[error("shorter than a header")]
    Truncated,
    /// The version byte is not 2.
    #[error("version {0}")]
    Version(u8),
    /// The type byte is none of RFC 998's.
    #[error("packet type {0}")]
    Kind(u8),
    /// The length field exceeds the datagram, or does not fit the type.
    #[error("wrong length")]
    Length,
    /// The packet's checksum (of DATA: its header's) does not hold.
    #[error("wrong checksum")]
    Checksum,
    /// The checksum of the data does not hold.
    #[error("wrong data checksum")]
    DataChecksum,
    /// A string has no terminating zero.
    #[error("unterminated string")]
    Text,
    /// A control message of a type that RFC 998 does not have.
    #[error("control message type {0}")]
    MessageKind(u8),
    /// A control message that goes beyond the packet.
    #[error("control message longer than its packet")]
    MessageLength,
}

/// Reads one packet. Bytes after its length field's worth are ignored, since IP may pad.
///
/// `checksum_data`: flag C was negotiated. `reference`: a sequence number near those to come, by
/// which the 16-bit ones of the wire are widened.
pub fn parse(
    bytes: &[u8],
    checksum_data: bool,
    reference: ControlSeq,
) -> Result<(Ports, Packet998<'_>), ParseError998> {
    let (header, _) = CommonHeader::ref_from_prefix(bytes).map_err(|_| ParseError998::Truncated)?;
    if header.version != VERSION {
        return Err(ParseError998::Version(header.version));
    }
    let packet = bytes.get(..usize::from(header.length.get())).ok_or(ParseError998::Length)?;
    let body = packet.get(HEADER_BYTES..).ok_or(ParseError998::Length)?;
    let ports = Ports { local: header.local.get(), foreign: header.foreign.get() };
    if let kind::DATA | kind::LDATA = header.kind {
        return Ok((ports, parse_data(packet, checksum_data, reference)?));
    }
    if !checksum::holds(packet) {
        return Err(ParseError998::Checksum);
    }
    let packet = match header.kind {
        kind::OPEN => Packet998::Open(parse_parameters(body)?),
        kind::RESPONSE => Packet998::Response(parse_parameters(body)?),
        kind::KEEPALIVE => nothing(body, Packet998::Keepalive)?,
        kind::QUIT => Packet998::Quit(parse_text(body)?),
        kind::QUIT_ACK => nothing(body, Packet998::QuitAck)?,
        kind::ABORT => Packet998::Abort(parse_text(body)?),
        kind::NULL_ACK => Packet998::NullAck(parse_null_ack(body, reference)?),
        kind::CONTROL => Packet998::Control(parse_control(body, reference)?),
        kind::REFUSED => Packet998::Refused(parse_text(body)?),
        kind::DONE => nothing(body, Packet998::Done)?,
        other => return Err(ParseError998::Kind(other)),
    };
    Ok((ports, packet))
}

/// Appends an OPEN.
pub fn encode_open(ports: Ports, parameters: &Parameters, out: &mut Vec<u8>) {
    put(ports, kind::OPEN, out, |out| put_parameters(parameters, out));
}

/// Appends a RESPONSE.
pub fn encode_response(ports: Ports, parameters: &Parameters, out: &mut Vec<u8>) {
    put(ports, kind::RESPONSE, out, |out| put_parameters(parameters, out));
}

/// Appends a KEEPALIVE.
pub fn encode_keepalive(ports: Ports, out: &mut Vec<u8>) {
    put(ports, kind::KEEPALIVE, out, |_| {});
}

/// Appends a QUIT. A reason is cut at [`MAX_REASON`] bytes, and at a zero byte.
pub fn encode_quit(ports: Ports, reason: &str, out: &mut Vec<u8>) {
    put(ports, kind::QUIT, out, |out| put_text(reason, out));
}

/// Appends a QUITACK.
pub fn encode_quit_ack(ports: Ports, out: &mut Vec<u8>) {
    put(ports, kind::QUIT_ACK, out, |_| {});
}

/// Appends an ABORT; its reason is cut like QUIT's.
pub fn encode_abort(ports: Ports, reason: &str, out: &mut Vec<u8>) {
    put(ports, kind::ABORT, out, |out| put_text(reason, out));
}

/// Appends a REFUSED; its reason is cut like QUIT's.
pub fn encode_refused(ports: Ports, reason: &str, out: &mut Vec<u8>) {
    put(ports, kind::REFUSED, out, |out| put_text(reason, out));
}

/// Appends a DONE packet.
pub fn encode_done(ports: Ports, out: &mut Vec<u8>) {
    put(ports, kind::DONE, out, |_| {});
}

/// Appends a NULL-ACK.
pub fn encode_null_ack(ports: Ports, null_ack: &NullAck, out: &mut Vec<u8>) {
    let body = NullAckBody {
        ack: low(null_ack.ack),
        burst_packets: short(null_ack.burst.packets),
        burst_millis: millis(null_ack.burst.interval),
        padding: U16::ZERO,
    };
    put(ports, kind::NULL_ACK, out, |out| out.extend_from_slice(body.as_bytes()));
}

/// Appends a DATA or LDATA packet; `checksum`: flag C was negotiated.
///
/// The index must be below [`MAX_PACKETS_PER_BUFFER`](crate::limits::MAX_PACKETS_PER_BUFFER) and
/// the data no longer than the packet size agreed upon, which its 16-bit field bounds.
pub fn encode_data(
    ports: Ports,
    header: &DataHeader,
    data: &[u8],
    checksum: bool,
    out: &mut Vec<u8>,
) {
    let kind = if header.last_of_buffer { kind::LDATA } else { kind::DATA };
    let data_checksum = if checksum { checksum::checksum(data) } else { 0 };
    let mut packet = DataPacketHeader {
        common: common_header(ports, kind, DATA_HEADER_BYTES + data.len()),
        buffer: number(header.buffer),
        ack: low(header.ack),
        index: short(header.index.0),
        data_checksum: U16::new(data_checksum),
        flags: U16::new(if header.last_buffer { FLAG_L } else { 0 }),
    };
    packet.common.checksum = U16::new(checksum::checksum(packet.as_bytes()));
    out.extend_from_slice(packet.as_bytes());
    out.extend_from_slice(data);
}

fn parse_data(
    packet: &[u8],
    checksum_data: bool,
    reference: ControlSeq,
) -> Result<Packet998<'_>, ParseError998> {
    let (head, data) = packet.split_at_checked(DATA_HEADER_BYTES).ok_or(ParseError998::Length)?;
    let fields = DataPacketHeader::ref_from_bytes(head).map_err(|_| ParseError998::Length)?;
    if !checksum::holds(head) {
        return Err(ParseError998::Checksum);
    }
    if checksum_data && checksum::checksum(data) != fields.data_checksum.get() {
        return Err(ParseError998::DataChecksum);
    }
    let header = DataHeader {
        number: PacketNumber(0),
        buffer: BufferNumber(u64::from(fields.buffer.get())),
        index: PacketIndex(u32::from(fields.index.get())),
        generation: 0,
        law: 0,
        last_of_buffer: fields.common.kind == kind::LDATA,
        last_buffer: fields.flags.get() & FLAG_L != 0,
        ack: reference.widen(fields.ack.get()),
    };
    Ok(Packet998::Data { header, data })
}

fn parse_parameters(body: &[u8]) -> Result<Parameters, ParseError998> {
    let (fields, client) = OpeningBody::ref_from_prefix(body).map_err(|_| ParseError998::Length)?;
    let flags = fields.flags.get();
    let transfer_bytes = u64::from(fields.transfer_bytes.get());
    Ok(Parameters {
        uid: fields.uid.get(),
        buffer_bytes: fields.buffer_bytes.get(),
        transfer_bytes: (transfer_bytes != 0).then_some(transfer_bytes),
        packet_bytes: u32::from(fields.packet_bytes.get()),
        burst: burst(fields.burst_packets, fields.burst_millis),
        death_timer: Duration::from_secs(u64::from(fields.death_timer_secs.get())),
        checksum: flags & FLAG_C != 0,
        mode: if flags & FLAG_M != 0 { TransferMode::Write } else { TransferMode::Read },
        max_outstanding: u32::from(fields.max_outstanding.get()),
        client: parse_text(client)?,
    })
}

fn parse_null_ack(body: &[u8], reference: ControlSeq) -> Result<NullAck, ParseError998> {
    let fields = NullAckBody::ref_from_bytes(body).map_err(|_| ParseError998::Length)?;
    let said = burst(fields.burst_packets, fields.burst_millis);
    Ok(NullAck {
        number: PacketNumber(0),
        ack: reference.widen(fields.ack.get()),
        // The acknowledgement is worth more than an impossible burst size.
        burst: Burst { packets: said.packets.max(1), ..said },
        sent_through: None,
        end: None,
        packet_bytes: 0,
        limit: 0,
        back_millis: 0,
        paused: false,
    })
}

/// The text of a string field: up to its first zero byte, and to the bound of §9. Another end's
/// text in another encoding is better read in part than refused.
fn parse_text(field: &[u8]) -> Result<String, ParseError998> {
    let end = field.iter().position(|b| *b == 0).ok_or(ParseError998::Text)?;
    let mut text = String::from_utf8_lossy(&field[..end]).into_owned();
    text.truncate(text.floor_char_boundary(MAX_REASON));
    Ok(text)
}

fn nothing<'a>(body: &[u8], packet: Packet998<'a>) -> Result<Packet998<'a>, ParseError998> {
    if body.is_empty() { Ok(packet) } else { Err(ParseError998::Length) }
}

/// Appends a packet whose body `write` appends.
fn put(ports: Ports, kind: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(common_header(ports, kind, HEADER_BYTES).as_bytes());
    write(out);
    complete(out.get_mut(start..).unwrap_or_default());
}

fn put_parameters(parameters: &Parameters, out: &mut Vec<u8>) {
    let mode = if parameters.mode == TransferMode::Write { FLAG_M } else { 0 };
    let checksum = if parameters.checksum { FLAG_C } else { 0 };
    let transfer = parameters.transfer_bytes.and_then(|n| u32::try_from(n).ok());
    let death_timer = parameters.death_timer.as_nanos().div_ceil(1_000_000_000);
    let body = OpeningBody {
        uid: U32::new(parameters.uid),
        buffer_bytes: U32::new(parameters.buffer_bytes),
        transfer_bytes: U32::new(transfer.unwrap_or(0)),
        packet_bytes: short(parameters.packet_bytes),
        burst_packets: short(parameters.burst.packets),
        burst_millis: millis(parameters.burst.interval),
        death_timer_secs: short(death_timer),
        flags: U16::new(mode | checksum),
        max_outstanding: short(parameters.max_outstanding),
    };
    out.extend_from_slice(body.as_bytes());
    put_text(&parameters.client, out);
}

/// Appends a string, at least one zero byte, and more of them up to a multiple of 4.
fn put_text(text: &str, out: &mut Vec<u8>) {
    let text = text.split('\0').next().unwrap_or_default();
    let text = &text[..text.floor_char_boundary(MAX_REASON)];
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(&[0; 4][text.len() % 4..]);
}

fn common_header(ports: Ports, kind: u8, length: usize) -> CommonHeader {
    CommonHeader {
        checksum: U16::ZERO,
        version: VERSION,
        kind,
        length: short(length),
        local: U16::new(ports.local),
        foreign: U16::new(ports.foreign),
        padding: U16::ZERO,
    }
}

/// Fills in the length and the checksum, which is still zero, of a packet that is otherwise whole.
fn complete(packet: &mut [u8]) {
    let length = packet.len();
    if let Ok((header, _)) = CommonHeader::mut_from_prefix(packet) {
        header.length = short(length);
    }
    let value = checksum::checksum(packet);
    if let Ok((header, _)) = CommonHeader::mut_from_prefix(packet) {
        header.checksum = U16::new(value);
    }
}

#[cfg(test)]
mod tests;
