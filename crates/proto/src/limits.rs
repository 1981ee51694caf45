//! The protocol's bounds and defaults, each in this one place (`docs/protocol §9`).
//!
//! Packet formats are with their wire, and the bounds of one machine with that machine.

use std::ops::RangeInclusive;
use std::time::Duration;

// ---- headers beneath ours

/// Bytes of an IPv4 header without options (RFC 791).
pub const IPV4_HEADER_BYTES: u32 = 20;
/// Bytes of an IPv6 header without extensions (RFC 8200).
pub const IPV6_HEADER_BYTES: u32 = 40;
/// Bytes of a UDP header (RFC 768).
pub const UDP_HEADER_BYTES: u32 = 8;

// ---- datagrams and packets

/// The largest datagram, in bytes of UDP payload: what IPv4 can carry.
pub const MAX_DATAGRAM_BYTES: u32 = 65_507;
/// The default datagram: every path with IPv6 carries it.
pub const DEFAULT_DATAGRAM_BYTES: u32 = 1232;
/// The most datagrams in one send: the limit of GSO.
pub const MAX_BATCH: usize = 64;
/// The fewest data bytes in a packet of `rfc998`: an old implementation may want packets as small
/// as the smallest buffer.
pub const MIN_PACKET_BYTES: u32 = 1;
/// Bytes that a control packet of `rfc998` may have however small DATA packets are, so that every
/// message fits.
pub const MIN_CONTROL_BYTES: usize = 128;
/// The fewest data bytes in a packet of `sealed`: RFC 998 §4's poor ones, so that every control
/// item has room, and no peer can make each byte cost as much as a large packet
/// (`docs/protocol §3.2`).
pub const MIN_SEALED_PACKET_BYTES: u32 = 128;
/// The most data bytes in a packet of `sealed`: what fits a UDP datagram with the header and tag,
/// rounded down. GO has 2 bytes for it (`docs/protocol §3.3`).
pub const MAX_SEALED_PACKET_BYTES: u32 = 65_000;
/// The most packets in a buffer of `rfc998`, whose packet numbers have 16 bits.
pub const MAX_PACKETS_PER_BUFFER: u32 = 1 << 16;
/// The longest burst interval: one that is longer would look like death.
pub const MAX_BURST_INTERVAL: Duration = Duration::from_secs(65);

// ---- buffers

/// The most buffers outstanding, and the most in one GO or OK.
pub const MAX_OUTSTANDING: u32 = 4096;
/// Default number of outstanding buffers.
pub const DEFAULT_OUTSTANDING: u32 = 64;
/// Buffers of `sealed` that a program has at first by default: of 1 MiB, they and the rest of its
/// memory are less than 64 MiB.
pub const FIRST_BUFFERS: u32 = 48;
/// Default bound of the buffers of `rfc998`, and of their bytes.
pub const RFC998_BUFFERS: u32 = 512;
/// See [`RFC998_BUFFERS`].
pub const RFC998_BUFFER_MEMORY: u32 = 32 << 20;
/// Default bound of buffer bytes of `sealed`: twice the bandwidth-delay product of 20 Gbit/s and
/// 100 ms.
pub const DEFAULT_BUFFER_MEMORY: u64 = 512 << 20;
/// Bytes in a buffer of `rfc998`: "buffers of any size" (RFC 998 §3), up to what a host can hold.
pub const BUFFER_BYTES: RangeInclusive<u32> = 1..=1 << 26;
/// Bytes in the data area of a buffer of `sealed`, a power of two (`docs/protocol §3.2`).
pub const SEALED_BUFFER_BYTES: RangeInclusive<u32> = 1 << 10..=1 << 26;
/// Default bytes in a buffer.
pub const DEFAULT_BUFFER_BYTES: u32 = 1 << 20;

// ---- the extent table of `sealed` (`docs/protocol §8`)

/// The most bytes that a buffer has beyond its data area.
pub const MAX_TABLE_BYTES: u32 = 1 << 20;
/// Default bytes beyond the data area.
pub const DEFAULT_TABLE_BYTES: u32 = 8192;
/// The most files and directories in a transfer.
pub const MAX_FILES: u64 = 1 << 24;
/// Default bound of the files and directories that a receiver accepts (`docs/protocol §8.5`).
pub const DEFAULT_MAX_FILES: u64 = 1 << 21;
/// Bytes of the table's length, with which every image ends.
pub const TRAILER_BYTES: usize = 4;
/// Bytes of an extent that has neither attributes nor digest.
pub const EXTENT_BYTES: usize = 24;
/// Bytes of an extent's attributes without the name.
pub const ATTRIBUTES_BYTES: usize = 18;
/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 32;
/// The longest name, in bytes (`docs/protocol §8.4`).
pub const MAX_NAME: usize = 4096;
/// The longest part of a name, in bytes (`docs/protocol §8.4`).
pub const MAX_PART: usize = 255;
/// The most parts of a name (`docs/protocol §8.4`): each may be a directory to be made.
pub const MAX_DEPTH: usize = 128;

/// The longest target of a symbolic link, in bytes: PATH_MAX of Linux without its final zero.
pub const MAX_TARGET: usize = 4095;
/// The most bytes of holes that one buffer may describe: they cost nothing to send, and at most a
/// second of hashing to receive.
pub const MAX_HOLES_BYTES: u64 = 1 << 30;

// ---- control

/// The most ranges in one RESEND message.
pub const MAX_RANGES: usize = 64;
/// The most bytes in one HAVE message (`docs/protocol §3.3`): as long as the longest RESEND.
pub const MAX_HAVE: usize = 512;
/// The most bytes in all HAVE messages of a receiver: four million small files.
pub const MAX_HAVE_IN_ALL: usize = 64 << 20;
/// Most unacknowledged HAVE messages: as many as spaced control packets carry in some 100 ms.
pub const MAX_HAVE_UNHEARD: usize = 256;
/// The longest reason in QUIT, ABORT, REFUSED and DONE, in bytes; longer ones are cut.
pub const MAX_REASON: usize = 400;
/// Subflows of a transfer at a time, the main connection among them (`docs/protocol §4.11`).
pub const MAX_SUBFLOWS: u8 = 32;
/// Subflows of a connection over its life, each with a number of its own: lost ones are replaced,
/// and one bit each marks the used numbers.
pub const MAX_SUBFLOW_NUMBER: u8 = 63;
/// How far an image may be ahead of the first missing one (`docs/protocol §8.10`): more than all
/// subflows together have outstanding.
pub const MAX_AHEAD: u64 = 1 << 18;
/// The longest client string, in bytes (`docs/protocol §3.2`).
pub const MAX_CLIENT: usize = 400;
/// The death timer.
pub const DEATH_TIMER: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(49 * 24 * 3600);
/// Default death timer.
pub const DEFAULT_DEATH_TIMER: Duration = Duration::from_secs(60);

// ---- memory

/// Most peers with a saved rate: a machine sends to few, and the list is searched linearly.
pub const MAX_REMEMBERED: usize = 256;
