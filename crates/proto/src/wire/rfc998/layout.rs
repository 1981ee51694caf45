//! The figures of RFC 998 §8 as `repr(C)` structures, their constants, and what a field can hold.

use std::time::Duration;

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::units::{BufferNumber, ControlSeq};
use crate::wire::packet::Burst;

/// Values of the type byte (RFC 998 §8).
pub(super) mod kind {
    pub(crate) const OPEN: u8 = 0;
    pub(crate) const RESPONSE: u8 = 1;
    pub(crate) const KEEPALIVE: u8 = 2;
    pub(crate) const QUIT: u8 = 3;
    pub(crate) const QUIT_ACK: u8 = 4;
    pub(crate) const ABORT: u8 = 5;
    pub(crate) const DATA: u8 = 6;
    pub(crate) const LDATA: u8 = 7;
    pub(crate) const NULL_ACK: u8 = 8;
    pub(crate) const CONTROL: u8 = 9;
    pub(crate) const REFUSED: u8 = 10;
    pub(crate) const DONE: u8 = 11;
}

/// Values of the type byte of a control message (RFC 998 §8).
pub(super) mod message_kind {
    pub(crate) const GO: u8 = 0;
    pub(crate) const OK: u8 = 1;
    pub(crate) const RESEND: u8 = 2;
}

/// OPEN and RESPONSE: the active end writes.
pub(super) const FLAG_M: u16 = 0x0001;
/// OPEN and RESPONSE: data are checksummed.
pub(super) const FLAG_C: u16 = 0x0002;
/// DATA and LDATA: of the last buffer of the transfer.
pub(super) const FLAG_L: u16 = 0x0001;

/// The first three words of every figure.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct CommonHeader {
    pub(super) checksum: U16,
    pub(super) version: u8,
    pub(super) kind: u8,
    pub(super) length: U16,
    pub(super) local: U16,
    pub(super) foreign: U16,
    pub(super) padding: U16,
}

/// OPEN and RESPONSE, up to the client string.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct OpeningBody {
    pub(super) uid: U32,
    pub(super) buffer_bytes: U32,
    pub(super) transfer_bytes: U32,
    pub(super) packet_bytes: U16,
    pub(super) burst_packets: U16,
    pub(super) burst_millis: U16,
    pub(super) death_timer_secs: U16,
    pub(super) flags: U16,
    pub(super) max_outstanding: U16,
}

/// DATA and LDATA, up to the data.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct DataPacketHeader {
    pub(super) common: CommonHeader,
    pub(super) buffer: U32,
    pub(super) ack: U16,
    pub(super) index: U16,
    pub(super) data_checksum: U16,
    pub(super) flags: U16,
}

/// NULL-ACK, all of it.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct NullAckBody {
    pub(super) ack: U16,
    pub(super) burst_packets: U16,
    pub(super) burst_millis: U16,
    pub(super) padding: U16,
}

/// GO, all of it, and the beginning of OK and RESEND.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct MessageHead {
    pub(super) kind: u8,
    pub(super) padding: u8,
    pub(super) seq: U16,
    pub(super) buffer: U32,
}

/// The rest of OK.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct OkTail {
    pub(super) burst_packets: U16,
    pub(super) burst_millis: U16,
    pub(super) control_timer_millis: U16,
    pub(super) padding: U16,
}

/// The rest of RESEND, up to the packet numbers.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct ResendTail {
    pub(super) missing: U16,
    pub(super) padding: U16,
}

/// Burst values from their two fields.
pub(super) fn burst(packets: U16, millis: U16) -> Burst {
    let interval = Duration::from_millis(u64::from(millis.get()));
    Burst { packets: u32::from(packets.get()), interval }
}

/// A field of 16 bits, saturating.
pub(super) fn short(value: impl TryInto<u16>) -> U16 {
    U16::new(value.try_into().unwrap_or(u16::MAX))
}

/// Milliseconds, rounded up so that no timer shrinks on its way.
pub(super) fn millis(duration: Duration) -> U16 {
    short(duration.as_nanos().div_ceil(1_000_000))
}

/// The low 16 bits, which is what the wire has of a sequence number.
pub(super) fn low(seq: ControlSeq) -> U16 {
    U16::new(seq.0 as u16)
}

/// The low 32 bits: RFC 998's transfers end before its buffer numbers do.
pub(super) fn number(buffer: BufferNumber) -> U32 {
    U32::new(buffer.0 as u32)
}
