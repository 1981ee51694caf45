//! The clear headers of packets after the handshake (`docs/protocol §3.1`).
//!
//! Read from every datagram before authentication: without allocation, and checked for validity
//! only.

use zerocopy::byteorder::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{DATA_HEADER_BYTES, HEADER_BYTES, ParseError, VERSION};
use crate::units::{BufferNumber, ControlSeq, PacketIndex, PacketNumber};
use crate::wire::packet::{DataHeader, RepairHeader};

/// Makes the enum of packet types and its reading from one list, so that no type can be sent and
/// not read.
macro_rules! packet_types {
    ($($(#[$doc:meta])* $name:ident = $byte:literal,)+) => {
        /// Packet types: 0 to 11 are RFC 998's (`docs/protocol §3.1`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum PacketType {
            $($(#[$doc])* $name = $byte,)+
        }

        impl PacketType {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The type that `byte` stands for, if any (`docs/protocol §3.1`).
            pub const fn from_byte(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some(Self::$name),)+
                    _ => None,
                }
            }
        }
    };
}

packet_types! {
    /// Proposes a connection.
    Open = 0,
    /// Accepts it.
    Response = 1,
    /// Shows that its sender is alive, or asks whether the peer is.
    Keepalive = 2,
    /// The client gave up.
    Quit = 3,
    /// QUIT has arrived.
    QuitAck = 4,
    /// The machine gave up.
    Abort = 5,
    /// Data.
    Data = 6,
    /// The last data of a buffer.
    Ldata = 7,
    /// The data sender's packet without data.
    NullAck = 8,
    /// Control messages and a report.
    Control = 9,
    /// The passive end does not want the connection.
    Refused = 10,
    /// The receiver is finished and gone.
    Done = 11,
    /// A cookie, which the next OPEN must carry to validate its address.
    Cookie = 12,
    /// The connection of a packet is not known here.
    Unknown = 13,
    /// A token, which the peer must return to validate its address.
    Challenge = 14,
    /// The token of a CHALLENGE.
    Answer = 15,
    /// A coded packet that replaces any one missing packet of its buffer.
    Repair = 16,
    /// Asks for a server's public key.
    Who = 17,
    /// The server's public key.
    Key = 18,
    /// A connection branches from this one.
    Branch = 19,
}

impl PacketType {
    /// DATA or LDATA (`docs/protocol §3.1`).
    pub const fn is_data(self) -> bool {
        matches!(self, Self::Data | Self::Ldata)
    }

    /// A packet of some buffer, DATA, LDATA or REPAIR: these have the longer header
    /// (`docs/protocol §3.1`).
    pub const fn is_of_buffer(self) -> bool {
        matches!(self, Self::Data | Self::Ldata | Self::Repair)
    }

    /// A packet under no transport keys, which has no packet number (`docs/protocol §3.2`).
    pub const fn is_handshake(self) -> bool {
        matches!(
            self,
            Self::Open
                | Self::Response
                | Self::Refused
                | Self::Cookie
                | Self::Unknown
                | Self::Who
                | Self::Key
        )
    }
}

/// The header of every packet after the handshake (`docs/protocol §3.1`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type of the packet; never one of the handshake's.
    pub kind: PacketType,
    /// Which GO fixed the packet size; 0 on all but DATA, LDATA and REPAIR.
    pub generation: u8,
    /// Connection id chosen by the end the packet goes to.
    pub connection: u32,
    /// Order of sending in this direction.
    pub number: PacketNumber,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Clear {
    /// A field of DATA and LDATA; else reserved.
    law: u8,
    generation: u8,
    version: u8,
    kind: u8,
    connection: U32,
    number: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct DataClear {
    clear: Clear,
    buffer: U64,
    index: U32,
    ack: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RepairClear {
    clear: Clear,
    buffer: U64,
    index: U32,
    image_bytes: U32,
}

// The layouts are the protocol's, and the encoders' arrays have exactly their size.
const _: () = assert!(size_of::<Clear>() == HEADER_BYTES);
const _: () = assert!(size_of::<DataClear>() == DATA_HEADER_BYTES);
const _: () = assert!(size_of::<RepairClear>() == DATA_HEADER_BYTES);

/// The type of a datagram of this version, whatever else is in it (`docs/protocol §3.1`).
pub fn kind_of(bytes: &[u8]) -> Option<PacketType> {
    match bytes {
        [_, _, VERSION, kind, ..] => PacketType::from_byte(*kind),
        _ => None,
    }
}

/// The connection id that a datagram of this version is addressed to: the one that the end it goes
/// to has chosen. `None` for an OPEN, which knows none yet, for WHO and KEY, and for anything else
/// that is not of this version. Nothing is proven by it (`docs/protocol §3.1, §3.2`).
pub fn destination(bytes: &[u8]) -> Option<u32> {
    kind_of(bytes)
        .filter(|kind| !matches!(kind, PacketType::Open | PacketType::Who | PacketType::Key))?;
    let id = bytes.get(4..8)?.first_chunk()?;
    Some(u32::from_be_bytes(*id)).filter(|id| *id != 0)
}

/// Parses the 16 clear bytes that begin a packet after the handshake; the rest is not read.
/// Handshake packets are [`ParseError::Kind`] (`docs/protocol §3.1`).
pub fn parse_header(bytes: &[u8]) -> Result<Header, ParseError> {
    let (clear, _) = Clear::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
    clear.header()
}

/// The 32 clear bytes that begin DATA and LDATA, and the connection id in them; what follows is
/// not looked at. Other types are [`ParseError::Kind`] (`docs/protocol §3.1`).
pub fn parse_data_header(bytes: &[u8]) -> Result<(u32, DataHeader), ParseError> {
    let Header { kind, generation, connection, number } = parse_header(bytes)?;
    if !kind.is_data() {
        return Err(ParseError::Kind(kind as u8));
    }
    let (data, _) = DataClear::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
    let buffer = BufferNumber(data.buffer.get());
    if buffer < BufferNumber::FIRST {
        return Err(ParseError::Field("buffer number"));
    }
    let header = DataHeader {
        number,
        buffer,
        index: PacketIndex(data.index.get()),
        generation,
        law: data.clear.law,
        last_of_buffer: kind == PacketType::Ldata,
        last_buffer: false,
        ack: ControlSeq(data.ack.get()),
    };
    Ok((connection, header))
}

/// The 32 clear bytes that begin REPAIR, and the connection id in them; what follows is not looked
/// at. Other types are [`ParseError::Kind`] (`docs/protocol §3.1`).
pub fn parse_repair_header(bytes: &[u8]) -> Result<(u32, RepairHeader), ParseError> {
    let Header { kind, generation, connection, number } = parse_header(bytes)?;
    if kind != PacketType::Repair {
        return Err(ParseError::Kind(kind as u8));
    }
    let (repair, _) = RepairClear::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
    let buffer = BufferNumber(repair.buffer.get());
    if buffer < BufferNumber::FIRST {
        return Err(ParseError::Field("buffer number"));
    }
    let (index, image_bytes) = (repair.index.get(), repair.image_bytes.get());
    Ok((connection, RepairHeader { number, buffer, index, generation, image_bytes }))
}

/// The clear header of REPAIR (`docs/protocol §3.1`).
pub fn encode_repair_header(connection: u32, header: &RepairHeader) -> [u8; DATA_HEADER_BYTES] {
    let RepairHeader { number, buffer, index, generation, image_bytes } = *header;
    zerocopy::transmute!(RepairClear {
        clear: Clear::new(&Header { kind: PacketType::Repair, generation, connection, number }),
        buffer: buffer.0.into(),
        index: index.into(),
        image_bytes: image_bytes.into(),
    })
}

/// The clear header of a packet after the handshake (`docs/protocol §3.1`). A generation is
/// written only where there is one.
pub fn encode_header(header: &Header) -> [u8; HEADER_BYTES] {
    zerocopy::transmute!(Clear::new(header))
}

/// The clear header of DATA, or of LDATA if it is the last of its buffer
/// (`docs/protocol §3.1`). `last_buffer` is not said on this wire.
pub fn encode_data_header(connection: u32, header: &DataHeader) -> [u8; DATA_HEADER_BYTES] {
    let kind = if header.last_of_buffer { PacketType::Ldata } else { PacketType::Data };
    let DataHeader { generation, law, number, .. } = *header;
    zerocopy::transmute!(DataClear {
        clear: Clear { law, ..Clear::new(&Header { kind, generation, connection, number }) },
        buffer: header.buffer.0.into(),
        index: header.index.0.into(),
        ack: header.ack.0.into(),
    })
}

/// Whether a packet begins with exactly what [`encode_data_header`] makes of `header`; asked of
/// almost every packet that comes, so without making it (`docs/protocol §3.1`).
pub fn is_data_header(bytes: &[u8], connection: u32, header: &DataHeader) -> bool {
    let Ok((data, _)) = DataClear::ref_from_prefix(bytes) else { return false };
    let kind = if header.last_of_buffer { PacketType::Ldata } else { PacketType::Data };
    let clear = &data.clear;
    clear.number.get() == header.number.0
        && data.index.get() == header.index.0
        && data.buffer.get() == header.buffer.0
        && data.ack.get() == header.ack.0
        && clear.connection.get() == connection
        && (clear.version, clear.kind) == (VERSION, kind as u8)
        && (clear.generation, clear.law) == (header.generation, header.law)
}

impl Clear {
    fn new(header: &Header) -> Self {
        Self {
            law: 0,
            generation: if header.kind.is_of_buffer() { header.generation } else { 0 },
            version: VERSION,
            kind: header.kind as u8,
            connection: header.connection.into(),
            number: header.number.0.into(),
        }
    }

    fn header(&self) -> Result<Header, ParseError> {
        if self.version != VERSION {
            return Err(ParseError::Version(self.version));
        }
        let kind = PacketType::from_byte(self.kind)
            .filter(|kind| !kind.is_handshake())
            .ok_or(ParseError::Kind(self.kind))?;
        Ok(Header {
            kind,
            generation: if kind.is_of_buffer() { self.generation } else { 0 },
            connection: self.connection.get(),
            number: PacketNumber(self.number.get()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_type_byte_maps_to_its_type_and_back() {
        assert_eq!(PacketType::ALL.len(), 20);
        for byte in 0..=255 {
            assert_eq!(
                PacketType::from_byte(byte).map(|kind| kind as u8),
                (byte <= 19).then_some(byte)
            );
        }
    }

    #[test]
    fn only_packets_after_the_handshake_have_the_header() {
        let mut bytes = [0; DATA_HEADER_BYTES];
        bytes[2] = VERSION;
        bytes[23] = 1;
        for kind in 0..=255 {
            bytes[3] = kind;
            let sealed = matches!(kind, 2..=9 | 11 | 14..=16 | 19);
            assert_eq!(parse_header(&bytes).is_ok(), sealed, "type {kind}");
            assert_eq!(parse_data_header(&bytes).is_ok(), matches!(kind, 6 | 7), "type {kind}");
            assert_eq!(parse_repair_header(&bytes).is_ok(), kind == 16, "type {kind}");
            assert_eq!(kind_of(&bytes).is_some(), kind <= 19, "type {kind}");
        }
        (bytes[2], bytes[3]) = (2, 6);
        assert_eq!(parse_header(&bytes), Err(ParseError::Version(2)));
        assert_eq!(kind_of(&bytes), None);
    }

    proptest! {
        #[test]
        fn a_header_that_parses_is_the_one_encoded(
            bytes in any::<[u8; DATA_HEADER_BYTES]>(),
            bit in 0..8 * DATA_HEADER_BYTES,
        ) {
            let mut bytes = bytes;
            (bytes[2], bytes[3]) = (VERSION, bytes[3] % PacketType::ALL.len() as u8);
            if let Ok(header) = parse_header(&bytes) {
                if !header.kind.is_of_buffer() {
                    bytes[1] = 0;
                }
                let encoded = encode_header(&header);
                prop_assert_eq!(&encoded[1..], &bytes[1..HEADER_BYTES]);
            }
            if let Ok((connection, header)) = parse_data_header(&bytes) {
                prop_assert_eq!(encode_data_header(connection, &header), bytes);
                prop_assert!(is_data_header(&bytes, connection, &header));
                let mut other = bytes;
                other[bit / 8] ^= 1 << (bit % 8);
                prop_assert!(!is_data_header(&other, connection, &header));
                prop_assert!(!is_data_header(&bytes[..bit / 8], connection, &header));
            }
            if let Ok((connection, header)) = parse_repair_header(&bytes) {
                bytes[0] = 0;
                prop_assert_eq!(encode_repair_header(connection, &header), bytes);
            }
        }

        #[test]
        fn no_bytes_make_a_header_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (kind_of(&bytes), parse_header(&bytes), parse_data_header(&bytes));
            let _ = parse_repair_header(&bytes);
        }
    }
}
