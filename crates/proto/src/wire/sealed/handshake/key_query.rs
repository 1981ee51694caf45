//! WHO and KEY: a client asks a server for its public key (`docs/protocol §3.2, §4.9`).
//!
//! Neither is authenticated: a user compares the key's fingerprint, or trusts the first key seen
//! (RFC 7435). The server keeps no state, and its answer is shorter than the question.

use crate::crypto::static_keys::{KEY_BYTES, PublicKey};
use crate::wire::sealed::{PacketType, ParseError, Reader, VERSION};

/// Matches the answer to its question.
pub type Nonce = [u8; 12];

/// Bytes of WHO (`docs/protocol §3.2`).
pub const WHO_BYTES: usize = 64;
/// Bytes of KEY (`docs/protocol §3.2`).
pub const KEY_PACKET_BYTES: usize = 16 + KEY_BYTES;

/// WHO: asks for the public key. `nonce` is fresh for every question.
pub fn build_who(nonce: Nonce) -> [u8; WHO_BYTES] {
    let mut who = [0; WHO_BYTES];
    who[..16].copy_from_slice(&begin(PacketType::Who, nonce));
    who
}

/// Parses a WHO: its nonce. The padding is not read.
pub fn parse_who(bytes: &[u8]) -> Result<Nonce, ParseError> {
    let mut reader = Reader::new(bytes);
    let nonce = head(&mut reader, PacketType::Who)?;
    reader.bytes(WHO_BYTES - 16)?;
    reader.finish()?;
    Ok(nonce)
}

/// KEY: the answer to the WHO with that nonce.
pub fn build_key(nonce: Nonce, key: &PublicKey) -> [u8; KEY_PACKET_BYTES] {
    let mut packet = [0; KEY_PACKET_BYTES];
    packet[..16].copy_from_slice(&begin(PacketType::Key, nonce));
    packet[16..].copy_from_slice(&key.0);
    packet
}

/// Parses a KEY: the nonce of the WHO, and the key.
pub fn parse_key(bytes: &[u8]) -> Result<(Nonce, PublicKey), ParseError> {
    let mut reader = Reader::new(bytes);
    let nonce = head(&mut reader, PacketType::Key)?;
    let key = PublicKey(reader.array()?);
    reader.finish()?;
    Ok((nonce, key))
}

fn begin(kind: PacketType, nonce: Nonce) -> [u8; 16] {
    let mut bytes = [0, 0, VERSION, kind as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes[4..].copy_from_slice(&nonce);
    bytes
}

fn head(reader: &mut Reader<'_>, kind: PacketType) -> Result<Nonce, ParseError> {
    let [_, _, version, byte] = reader.array()?;
    if version != VERSION {
        return Err(ParseError::Version(version));
    }
    if byte != kind as u8 {
        return Err(ParseError::Kind(byte));
    }
    reader.array()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_shorter_than_who_and_returns_its_nonce() {
        let key = PublicKey([9; 32]);
        let (who, key_packet) = (build_who([5; 12]), build_key([5; 12], &key));
        assert!(key_packet.len() < who.len());
        assert_eq!((&who[..5], &key_packet[..5]), (&[0, 0, 12, 17, 5][..], &[0, 0, 12, 18, 5][..]));
        assert_eq!((&who[16..], &key_packet[16..]), (&[0; 48][..], &[9; 32][..]));
        assert_eq!((parse_who(&who), parse_key(&key_packet)), (Ok([5; 12]), Ok(([5; 12], key))));
        assert_eq!(parse_who(&key_packet), Err(ParseError::Kind(18)));
        assert_eq!(parse_key(&who), Err(ParseError::Kind(17)));
        assert_eq!(parse_who(&who[..63]), Err(ParseError::Truncated));
        assert_eq!(parse_key(&[&key_packet[..], &[0]].concat()), Err(ParseError::Trailing));
        let mut old = who;
        old[2] = VERSION - 1;
        assert_eq!(parse_who(&old), Err(ParseError::Version(VERSION - 1)));
    }
}
