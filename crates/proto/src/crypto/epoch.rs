//! The chain of keys of one direction (`docs/protocol.md §5.1, §5.3`).
//!
//! Each epoch's keys come from its secret, and so does the next epoch's secret; the way back is a
//! hash. A secret must not outlive the step that used it: each is wiped.

use aws_lc_rs::aead::{AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305};
use aws_lc_rs::aead::{LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use zeroize::{Zeroize, Zeroizing};

use super::cipher::Cipher;
use super::{Rejected, TAG_BYTES};

/// Packets an epoch has, as a power of two (`docs/protocol.md §5.1`).
pub(super) const EPOCH_SHIFT: u32 = 22;

/// The epoch a packet number belongs to (`docs/protocol.md §5.1`).
pub(super) fn epoch_of(number: u64) -> u64 {
    number >> EPOCH_SHIFT
}

/// Key and iv of one epoch.
pub(super) struct EpochKey {
    key: LessSafeKey,
    iv: [u8; 12],
}

impl EpochKey {
    fn derive(cipher: Cipher, secret: &[u8; 32]) -> Self {
        let key = Zeroizing::new(expand::<32>(secret, b"netblt 8 key"));
        let key = UnboundKey::new(algorithm(cipher), &key[..]).expect("both ciphers take 32 bytes");
        Self { key: LessSafeKey::new(key), iv: expand(secret, b"netblt 8 iv") }
    }

    /// The iv with the packet number in its last 8 bytes (`docs/protocol.md §5.3`).
    fn nonce(&self, number: u64) -> [u8; 12] {
        let mut nonce = self.iv;
        for (byte, number_byte) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= number_byte;
        }
        nonce
    }

    /// Encrypts `body` and returns its tag; `None` when it is longer than any cipher allows.
    pub(super) fn seal(&self, number: u64, header: &[u8], body: &mut [u8]) -> Option<[u8; 16]> {
        let nonce = Nonce::assume_unique_for_key(self.nonce(number));
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(header), body).ok()?;
        tag.as_ref().try_into().ok()
    }

    /// Decrypts from one place into another of exactly the right length.
    pub(super) fn open_into(
        &self,
        number: u64,
        header: &[u8],
        sealed: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Rejected> {
        let body_bytes = sealed.len().checked_sub(TAG_BYTES).ok_or(Rejected::Forged)?;
        let (body, tag) = sealed.split_at(body_bytes);
        let nonce = Nonce::assume_unique_for_key(self.nonce(number));
        self.key
            .open_separate_gather(nonce, Aad::from(header), body, tag, out)
            .map_err(|_| Rejected::Forged)?;
        Ok(body_bytes)
    }

    /// Decrypts where the packet lies; the plaintext is what remains without the tag.
    pub(super) fn open_in_place<'a>(
        &self,
        number: u64,
        header: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], Rejected> {
        let nonce = Nonce::assume_unique_for_key(self.nonce(number));
        match self.key.open_in_place(nonce, Aad::from(header), sealed) {
            Ok(body) => Ok(body),
            Err(_) => Err(Rejected::Forged),
        }
    }
}

impl Drop for EpochKey {
    fn drop(&mut self) {
        // The cipher wipes its key itself.
        self.iv.zeroize();
    }
}

/// The source of all epochs' keys of one direction, one after the other.
pub(super) struct KeyChain {
    cipher: Cipher,
    /// The secret of the epoch that [`Self::next_epoch`] will make.
    secret: Zeroizing<[u8; 32]>,
}

impl KeyChain {
    /// The chain that begins with one of the two keys of Noise's split, epoch 0's secret.
    pub(super) fn new(cipher: Cipher, secret: [u8; 32]) -> Self {
        Self { cipher, secret: Zeroizing::new(secret) }
    }

    /// The next epoch's keys; the first call makes those of epoch 0.
    pub(super) fn next_epoch(&mut self) -> EpochKey {
        let key = EpochKey::derive(self.cipher, &self.secret);
        self.secret = Zeroizing::new(expand(&self.secret, b"netblt 8 next"));
        key
    }

    /// The cipher that all epochs use.
    pub(super) fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// The secret from which the next epoch will be made.
    #[cfg(test)]
    pub(super) fn secret(&self) -> [u8; 32] {
        *self.secret
    }
}

fn algorithm(cipher: Cipher) -> &'static Algorithm {
    match cipher {
        Cipher::Aes256Gcm => &AES_256_GCM,
        Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
    }
}

struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand with SHA-256 (`docs/protocol.md §5.1`).
fn expand<const N: usize>(secret: &[u8; 32], info: &[u8]) -> [u8; N] {
    const { assert!(N <= 255 * 32, "longer than HKDF-Expand can make it") }
    let mut out = [0; N];
    Prk::new_less_safe(HKDF_SHA256, secret)
        .expand(&[info], Bytes(N))
        .and_then(|okm| okm.fill(&mut out))
        .expect("the length is one that HKDF-Expand makes");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn counting_secret() -> [u8; 32] {
        std::array::from_fn(|i| i as u8)
    }

    /// Key and iv of epochs 0 to 2 and the secret of epoch 3, computed with Python's `hmac`.
    #[test]
    fn the_chain_agrees_with_an_independent_hkdf() {
        let expected = [
            (
                "3e9bec9267009c98683ec2305c98e6b3517233a243018355d28770ff4a200db8",
                "773c1f9ccc1f7ca892aa93ac",
            ),
            (
                "c2c944438ebf85e590dd7b9eaff761b9ebe7eecc911aaaa454197e654cacc51e",
                "6cc1beb9493dc8088ee34ee6",
            ),
            (
                "d5f76a76ba77a137a70b10df92a2811e15f67431878da69b00b03c124bcc8d48",
                "7046505d699cc7fa3dee7919",
            ),
        ];
        let mut chain = KeyChain::new(Cipher::Aes256Gcm, counting_secret());
        for (key, iv) in expected {
            let secret = chain.secret();
            assert_eq!(hex(&expand::<32>(&secret, b"netblt 8 key")), key);
            assert_eq!(hex(&chain.next_epoch().iv), iv);
        }
        let last = "db95a5334a5cf72f42fab1336107af7a0d1b7c58e8cd452f4d7cdda1c7ebed02";
        assert_eq!(hex(&chain.secret()), last);
    }

    /// Whole packets, sealed with Python's `cryptography`: number 5 of epoch 0, then 7 of epoch 1.
    #[test]
    fn sealed_bytes_agree_with_an_independent_implementation() {
        let table = [
            (
                Cipher::Aes256Gcm,
                "90858add83e058564d822c26e7078875f9c0ec800b176ffab9d73ea6",
                "d6c5ca2052ed7ffbb6a22b31f928d1483ae9f156e83c2202016cf860",
            ),
            (
                Cipher::ChaCha20Poly1305,
                "0ecea9c920054f77c7f8fd5f5067debdfe37d584a5274e0df69be482",
                "5a3b2eacbb8be1e1da46024682be6d168806af2d9fb2beaf6b40b2e1",
            ),
        ];
        for (cipher, first, second) in table {
            let mut chain = KeyChain::new(cipher, counting_secret());
            for (number, expected) in [(5, first), ((1 << EPOCH_SHIFT) + 7, second)] {
                let mut packet = b"hello netblt".to_vec();
                let key = chain.next_epoch();
                let tag = key.seal(number, b"header of sixtee", &mut packet).unwrap();
                packet.extend_from_slice(&tag);
                assert_eq!(hex(&packet), expected, "{cipher:?}");
            }
        }
    }

    #[test]
    fn nonces_differ_within_an_epoch_and_across_its_border() {
        let mut chain = KeyChain::new(Cipher::Aes256Gcm, [7; 32]);
        let border = 1 << EPOCH_SHIFT;
        let mut nonces = std::collections::BTreeSet::new();
        for numbers in [border - 1000..border, border..border + 1000] {
            let key = chain.next_epoch();
            numbers.for_each(|number| assert!(nonces.insert(key.nonce(number))));
        }
    }

    #[test]
    fn a_packet_too_short_for_a_tag_is_forged() {
        let key = KeyChain::new(Cipher::Aes256Gcm, [7; 32]).next_epoch();
        for len in 0..TAG_BYTES {
            assert_eq!(key.open_into(0, b"", &vec![0; len], &mut []), Err(Rejected::Forged));
            assert_eq!(key.open_in_place(0, b"", &mut vec![0; len]), Err(Rejected::Forged));
        }
    }
}
