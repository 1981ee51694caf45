//! The typed packets of both machines, whichever wire carries them.
//!
//! A packet that can be built can be encoded; bytes that do not parse never become a packet.

use std::time::Duration;

pub use crate::units::Burst;
use crate::units::{BufferNumber, ControlSeq, PacketIndex, PacketNumber, Rate};

/// Which end of the connection sends data, from the active end's view (RFC 998 §8, flag M).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferMode {
    /// The active end receives (0).
    Read,
    /// The active end sends (1).
    Write,
}

/// The parameters that OPEN proposes and RESPONSE fixes (RFC 998 §8; `docs/protocol §3.2`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Connection unique ID, chosen by the active end, unchanged in RESPONSE.
    pub uid: u32,
    /// Bytes in every buffer but the last; on `sealed` the data area, a power of two.
    pub buffer_bytes: u32,
    /// Length of the transfer if its source knows it. For the client only.
    pub transfer_bytes: Option<u64>,
    /// Data bytes in a DATA packet, header not counted.
    pub packet_bytes: u32,
    /// Burst size and interval.
    pub burst: Burst,
    /// Death timer of the end that sends this packet; each end announces its own.
    pub death_timer: Duration,
    /// Whether the data area of DATA packets is checksummed (`rfc998` only, flag C).
    pub checksum: bool,
    /// The direction of the data.
    pub mode: TransferMode,
    /// Buffers that may be outstanding, at least 1.
    pub max_outstanding: u32,
    /// Free-form string for the clients; no zero bytes.
    pub client: String,
}

/// The header of a DATA or LDATA packet; its data stay where they arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// Order of sending within the connection (`sealed`; 0 on `rfc998`).
    pub number: PacketNumber,
    /// The buffer it belongs to.
    pub buffer: BufferNumber,
    /// Its index in that buffer.
    pub index: PacketIndex,
    /// Which GO fixed the packet size it was cut with (`sealed`; 0 on `rfc998`).
    pub generation: u8,
    /// The code of the emulated protocol (`sealed`): [`crate::config::EmulatedProtocol::code`], 0
    /// for none.
    pub law: u8,
    /// LDATA: the last packet of its buffer.
    pub last_of_buffer: bool,
    /// The L flag: the last buffer of the transfer (`rfc998`).
    pub last_buffer: bool,
    /// High consecutive sequence number received.
    pub ack: ControlSeq,
}

/// The header of a REPAIR packet; its symbol stays where it arrived (`sealed`;
/// `docs/protocol §6.10`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairHeader {
    /// Order of sending within the connection.
    pub number: PacketNumber,
    /// The buffer it belongs to.
    pub buffer: BufferNumber,
    /// Which of the buffer's repair packets it is.
    pub index: u32,
    /// Which GO fixed the packet size that the buffer was cut with.
    pub generation: u8,
    /// Length of the buffer's image, in bytes.
    pub image_bytes: u32,
}

/// The sender's END: no buffer after `buffers` exists (`docs/protocol §7.1`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// How many buffers the transfer has; its last one has this number.
    pub buffers: u64,
    /// File bytes in the transfer.
    pub bytes: u64,
    /// The transfer's digest (`docs/protocol §8.3`).
    pub digest: [u8; 32],
}

/// The receiver's verdict in DONE (`docs/protocol §7.2`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Stored, flushed, and its digest is the sender's.
    pub verified: bool,
    /// File bytes that were stored.
    pub bytes: u64,
    /// The digest as the receiver computed it.
    pub digest: [u8; 32],
    /// Why it was not verified; when it was, a text of the clients, such as what was left out. At
    /// most [`MAX_REASON`](crate::limits::MAX_REASON) bytes.
    pub reason: String,
}

/// Separates the number of files that a receiver left out from their names (`docs/protocol
/// §8.6`).
pub const LEFT_OUT: &str = " left out: ";

impl Verdict {
    /// How many files were left out although all was verified, and the whole text about it
    /// (`docs/protocol §8.6`).
    pub fn left_out(&self) -> Option<(u64, &str)> {
        let (count, _) = self.reason.split_once(LEFT_OUT).filter(|_| self.verified)?;
        let digits = count.bytes().all(|byte| byte.is_ascii_digit());
        Some((count.parse().ok().filter(|count| digits && *count > 0)?, &self.reason))
    }
}

/// Body of a NULL-ACK: the data sender's packet without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NullAck {
    /// Order of sending (`sealed`; 0 on `rfc998`).
    pub number: PacketNumber,
    /// High consecutive sequence number received.
    pub ack: ControlSeq,
    /// The burst values now in force.
    pub burst: Burst,
    /// The sender has nothing to send now. Of the buffers up to this one it has sent, before this
    /// packet, all that messages up to `ack` ask for (`sealed`; `docs/protocol §6.4`).
    pub sent_through: Option<BufferNumber>,
    /// The end of the transfer, repeated until the receiver acknowledges it (`sealed`).
    pub end: Option<End>,
    /// The largest DATA packets that reach the receiver, in data bytes; 0: not set (`sealed`;
    /// `docs/protocol §6.5`).
    pub packet_bytes: u16,
    /// What limits the transfer so far, by the sender's client; 0: not set (`sealed`;
    /// `docs/protocol §8.6`).
    pub limit: u8,
    /// The queueing delay of the reverse path, in milliseconds (`sealed`; `docs/protocol §6.3`).
    pub back_millis: u16,
    /// The sender's client pauses: no data come until this is cleared (`sealed`; `docs/protocol
    /// §6.9`).
    pub paused: bool,
}

/// GO: permission to send buffers `first .. first + count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Go {
    /// The first buffer that may be sent.
    pub first: BufferNumber,
    /// How many, at least 1; always 1 on `rfc998`.
    pub count: u32,
    /// Data bytes in each packet of these buffers (`sealed`; negotiated on `rfc998`).
    pub packet_bytes: u32,
    /// Name of this packet size, echoed in DATA (`sealed`).
    pub generation: u8,
}

/// OK: buffers `first .. first + count` are assembled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The first buffer that is complete.
    pub first: BufferNumber,
    /// How many, at least 1; always 1 on `rfc998`.
    pub count: u32,
    /// New offered burst size and interval, if an offer is made.
    pub offer: Option<Burst>,
    /// Current control timer value, from which the sender derives its dally.
    pub control_timer: Duration,
}

/// The receiver's rate limit for the sender (`sealed`), in each of its CONTROL packets
/// (`docs/protocol §6.9`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateLimit {
    /// Not set.
    #[default]
    Unset,
    /// The negotiated rate.
    Agreed,
    /// At most this rate, within the negotiated one.
    At(Rate),
}

/// RESEND: the packets of `buffer` that are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resend {
    /// The buffer with holes.
    pub buffer: BufferNumber,
    /// The missing packets, as half-open ranges of packet indexes, ascending, not touching. An end
    /// of `u32::MAX` means "to the end of the buffer, wherever that is".
    pub missing: Vec<IndexRange>,
}

/// A half-open range of packet indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexRange {
    /// First index in the range.
    pub start: u32,
    /// First index after it.
    pub end: u32,
}

/// One sequenced message of the control FIFO (RFC 998 §5.2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A receiver's buffer is empty.
    Go(Go),
    /// A receiver's buffer is full.
    Ok(Accepted),
    /// A receiver's buffer has holes.
    Resend(Resend),
    /// The transfer is stored and verified, with a verdict (`sealed`).
    Done(Verdict),
    /// Data that the receiver has already (`sealed`).
    Have(Have),
}

/// HAVE: a part of the list of data that the receiver has already, sent before the first GO
/// (`docs/protocol §8.7`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Have {
    /// At most [`MAX_HAVE`](crate::limits::MAX_HAVE) bytes, for the clients.
    pub bytes: Vec<u8>,
    /// Nothing follows.
    pub last: bool,
}

/// Feedback outside the FIFO: unreliable, the newest wins (`docs/protocol §6.3`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// When the report was made, by the receiver's clock, in microseconds since the connection
    /// opened there. Wraps after 71 minutes.
    pub at_micros: u32,
    /// Distinct authentic packets received so far.
    pub packets: u64,
    /// Datagram bytes in them.
    pub bytes: u64,
    /// Highest packet number received.
    pub highest: PacketNumber,
    /// How long before this report the highest one arrived, in microseconds.
    pub highest_age_micros: u32,
    /// Packets that arrived marked Congestion Experienced.
    pub marked: u64,
    /// Packets found missing so far; a packet that is lost twice counts twice.
    pub missing: u64,
    /// The largest datagram that arrived lately, in bytes (`docs/protocol §6.3`).
    pub largest: u16,
}

/// A KEEPALIVE (RFC 998 §5.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keepalive {
    /// The sender of this packet wants a KEEPALIVE back: it has received nothing for a while, or
    /// probes whether a datagram of this size arrives (`sealed`; `docs/protocol §6.5, §7.4`).
    pub answer_wanted: bool,
    /// The passive end asks for another subflow (`sealed`; `docs/protocol §4.11`).
    pub subflow_wanted: bool,
    /// Bytes of the datagram that this one answers; 0: it answers none (`sealed`).
    pub answers: u16,
    /// Bytes of padding behind the body (`sealed`).
    pub padding: u16,
}
