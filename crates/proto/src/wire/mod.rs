//! Bytes to meaning and back: typed packets, and the two wires that carry them.

pub mod packet;
pub mod ranges;
pub mod rfc998;
pub mod sealed;

/// The two wires (`docs/protocol §2, §3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// RFC 998 to the byte, its version 2. Plaintext.
    Rfc998,
    /// Encrypted and authenticated, version [`sealed::VERSION`].
    Sealed,
}

/// Bytes of a DATA datagram that are not data (`docs/protocol §3.1`; RFC 998 §8).
pub fn data_overhead(wire: Wire) -> u32 {
    match wire {
        Wire::Rfc998 => rfc998::DATA_HEADER_BYTES as u32,
        Wire::Sealed => (sealed::DATA_HEADER_BYTES + crate::crypto::TAG_BYTES) as u32,
    }
}

/// Bytes of a KEEPALIVE without padding, the smallest packet (`docs/protocol §3.3`; RFC 998 §8).
pub(crate) fn keepalive_bytes(wire: Wire) -> usize {
    match wire {
        Wire::Rfc998 => rfc998::HEADER_BYTES,
        Wire::Sealed => sealed::KEEPALIVE_BYTES,
    }
}
