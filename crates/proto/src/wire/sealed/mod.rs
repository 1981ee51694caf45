//! The `sealed` wire (version 12) byte by byte, without its cryptography (`docs/protocol §3`).
//!
//! What is read and written here is plaintext: [`crate::crypto`] seals bodies, opens them, and
//! makes MACs and Noise messages. Clear headers are read before authentication, so they cost no
//! allocation. Bodies are read only after authentication, and strictly: bytes that do not parse to
//! the last one, or a value beyond its bound, never become a packet. Reserved bytes and undefined
//! flags are sent as zero and ignored when received.

mod bodies;
mod control;
mod handshake;
mod header;
mod reader;

use thiserror::Error;

pub use bodies::{
    Token, encode_keepalive, encode_null_ack, encode_reason, encode_token, parse_keepalive,
    parse_null_ack, parse_reason, parse_token,
};
pub use control::{ControlBody, ControlWriter, parse_control};
pub use handshake::frames::{
    CookieFrame, MAX_NOISE_BYTES, OpenFrame, RefusedFrame, ResponseFrame, UNKNOWN_BYTES,
    build_cookie, build_open, build_refused, build_response, build_unknown, key_open_clear,
    open_clear, open_mac, parse_cookie, parse_open, parse_open_of_any_version, parse_refused,
    parse_response, parse_unknown, response_clear, set_cookie, shorten_open, widen_open,
};
pub use handshake::key_query::{
    KEY_PACKET_BYTES, Nonce, WHO_BYTES, build_key, build_who, parse_key, parse_who,
};
pub use handshake::{
    Branch, HandshakePayload, encode_branch, encode_offer, parse_branch, parse_offer,
};
pub use header::{
    Header, PacketType, destination, encode_data_header, encode_header, encode_repair_header,
    is_data_header, kind_of, parse_data_header, parse_header, parse_repair_header,
};
pub(crate) use reader::Reader;

pub use crate::crypto::TAG_BYTES;

/// The version byte of this wire (`docs/protocol §3.1`).
pub const VERSION: u8 = 12;

/// Bytes of clear header before every body (`docs/protocol §3.1`).
pub const HEADER_BYTES: usize = 16;

/// Bytes of clear header before the data of DATA and LDATA, and the symbol of REPAIR
/// (`docs/protocol §3.1`).
pub const DATA_HEADER_BYTES: usize = 32;

/// Bytes of a KEEPALIVE without padding (`docs/protocol §3.3`).
pub const KEEPALIVE_BYTES: usize = HEADER_BYTES + 4 + TAG_BYTES;

/// Bytes of a CHALLENGE, which is also what its ANSWER has.
pub const CHALLENGE_BYTES: u64 = (HEADER_BYTES + size_of::<Token>() + TAG_BYTES) as u64;

/// Bytes of every whole OPEN, so that nothing it draws is larger (`docs/protocol §3.2`).
pub const OPEN_BYTES: usize = 1200;

/// Bytes of an OPEN without most of its padding, for paths that take no more; nothing it draws is
/// larger either (`docs/protocol §3.2`).
pub const SHORT_OPEN_BYTES: usize = 564;

/// Bytes of a short OPEN by a static key, whose Noise message is longer (`docs/protocol §3.2,
/// §4.8`).
pub const SHORT_KEY_OPEN_BYTES: usize = SHORT_OPEN_BYTES + 56;

/// Why bytes are not a packet; it is dropped and counted (`docs/protocol §3.1`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// Shorter than its layout.
    #[error("shorter than its layout")]
    Truncated,
    /// Longer than its layout.
    #[error("bytes beyond the end of its layout")]
    Trailing,
    /// Another version of the protocol.
    #[error("version {0}")]
    Version(u8),
    /// A type, or an item kind, that does not exist or not in this place.
    #[error("type {0} is unknown or out of place")]
    Kind(u8),
    /// The named field has a value beyond its bounds.
    #[error("{0} out of bounds")]
    Field(&'static str),
}

/// `text` cut to at most `max` bytes, between characters.
fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_cut_between_characters() {
        assert_eq!(cut("größer", 3), "gr");
        assert_eq!(cut("größer", 4), "grö");
        assert_eq!(cut("größer", 400), "größer");
    }
}
