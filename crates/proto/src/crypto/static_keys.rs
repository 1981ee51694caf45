//! Static keys: X25519 pairs that identify ends for longer than a connection (`docs/protocol
//! §4.8`).
//!
//! The curve is AWS-LC's, in constant time; private keys are wiped when they go.

use std::fmt;

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use zeroize::Zeroizing;

/// Bytes of a public key, and of a private one.
pub const KEY_BYTES: usize = 32;

/// The public half of a static key: 32 bytes of X25519 (RFC 7748).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; KEY_BYTES]);

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "PublicKey({a:02x}{b:02x}{c:02x}{d:02x}..)")
    }
}

/// A public key of low order, with which every private key gives the same result: it is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is a number with which everybody agrees on the same, not a key")]
pub struct InvalidPublicKey;

/// A static key: the private half, and the public one that follows from it. Wiped when it goes.
#[derive(Clone)]
pub struct StaticKey {
    private: Zeroizing<[u8; KEY_BYTES]>,
    public: PublicKey,
}

impl StaticKey {
    /// The key with this private half. Any 32 unpredictable bytes are one.
    pub fn from_bytes(private: [u8; KEY_BYTES]) -> Self {
        let private = Zeroizing::new(private);
        let public = public_of(&private);
        Self { private, public }
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// The private half, for storage.
    pub fn private(&self) -> &[u8; KEY_BYTES] {
        &self.private
    }

    /// The Diffie-Hellman secret shared with the owner of `peer`: only both owners can compute it.
    pub(super) fn shared_with(
        &self,
        peer: &PublicKey,
    ) -> Result<Zeroizing<[u8; KEY_BYTES]>, InvalidPublicKey> {
        shared(&self.private, &peer.0)
    }
}

impl PartialEq for StaticKey {
    fn eq(&self, other: &Self) -> bool {
        self.public == other.public
    }
}

impl Eq for StaticKey {}

impl fmt::Debug for StaticKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StaticKey({:?})", self.public)
    }
}

/// The public half of a private key.
pub(super) fn public_of(private: &[u8; KEY_BYTES]) -> PublicKey {
    let mut public = [0; KEY_BYTES];
    let computed = PrivateKey::from_private_key(&X25519, private)
        .ok()
        .and_then(|key| key.compute_public_key().ok())
        .expect("any 32 bytes are a private key of X25519");
    public.copy_from_slice(computed.as_ref());
    PublicKey(public)
}

/// The shared secret of a private and a public key; an error if it would be zero.
pub(super) fn shared(
    private: &[u8; KEY_BYTES],
    public: &[u8; KEY_BYTES],
) -> Result<Zeroizing<[u8; KEY_BYTES]>, InvalidPublicKey> {
    let private = PrivateKey::from_private_key(&X25519, private).map_err(|_| InvalidPublicKey)?;
    agree(&private, UnparsedPublicKey::new(&X25519, public), InvalidPublicKey, |secret| {
        let mut shared = Zeroizing::new([0; KEY_BYTES]);
        shared.copy_from_slice(secret);
        Ok(shared)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> [u8; 32] {
        let digit = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
        std::array::from_fn(digit)
    }

    /// RFC 7748 §6.1.
    #[test]
    fn shared_secrets_match_rfc_7748() {
        let bob = StaticKey::from_bytes(bytes(
            "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
        ));
        let public = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f";
        assert_eq!(bob.public(), PublicKey(bytes(public)));
        let alice = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a";
        let agreed = bob.shared_with(&PublicKey(bytes(alice))).unwrap();
        let both = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742";
        assert_eq!(*agreed, bytes(both));
    }

    #[test]
    fn a_low_order_key_is_invalid() {
        let own = StaticKey::from_bytes([7; 32]);
        let mut one = [0; 32];
        one[0] = 1;
        for public in [[0; 32], one] {
            assert_eq!(own.shared_with(&PublicKey(public)), Err(InvalidPublicKey));
        }
    }

    #[test]
    fn only_the_public_half_of_a_key_is_printed() {
        let own = StaticKey::from_bytes([7; 32]);
        let PublicKey([a, b, c, d, ..]) = own.public();
        let begin = format!("PublicKey({a:02x}{b:02x}{c:02x}{d:02x}..)");
        assert_eq!(format!("{own:?}"), format!("StaticKey({begin})"));
        assert_eq!(own.private(), &[7; 32]);
    }
}
