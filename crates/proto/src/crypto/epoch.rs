//! The chain of keys of one direction (`docs/protocol §5.1, §5.3`).
//!
//! Each epoch's keys derive from its secret, and so does the next epoch's secret; a hash prevents
//! the reverse. A secret must not outlive the step that used it: each is wiped.

use aws_lc_rs::aead::{AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305};
use aws_lc_rs::aead::{LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use zeroize::{Zeroize, Zeroizing};

use super::cipher::Cipher;
use super::{OpenError, TAG_BYTES};

/// Packets an epoch has, as a power of two (`docs/protocol §5.1`).
pub(super) const EPOCH_SHIFT: u32 = 22;

/// The epoch a packet number belongs to (`docs/protocol §5.1`).
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
        let key = Zeroizing::new(expand::<32>(secret, b"netblt 9 key"));
        let key = UnboundKey::new(algorithm(cipher), &key[..]).expect("both ciphers take 32 bytes");
        Self { key: LessSafeKey::new(key), iv: expand(secret, b"netblt 9 iv") }
    }

    /// The iv with the packet number in its last 8 bytes (`docs/protocol §5.3`).
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

    /// Encrypts `body` from where it lies into `out`, which has room for it and its tag. False when
    /// it has not, or the body is longer than any cipher allows.
    pub(super) fn seal_into(
        &self,
        number: u64,
        header: &[u8],
        body: &[u8],
        out: &mut [u8],
    ) -> bool {
        let Some((sealed, tag)) = out.split_at_mut_checked(body.len()) else { return false };
        let nonce = Nonce::assume_unique_for_key(self.nonce(number));
        let aad = Aad::from(header);
        self.key.seal_out_of_place_scatter(nonce, aad, body, sealed, &[], tag).is_ok()
    }

    /// Decrypts from one place into another of exactly the right length.
    pub(super) fn open_into(
        &self,
        number: u64,
        header: &[u8],
        sealed: &[u8],
        out: &mut [u8],
    ) -> Result<usize, OpenError> {
        let body_bytes = sealed.len().checked_sub(TAG_BYTES).ok_or(OpenError::Forged)?;
        let (body, tag) = sealed.split_at(body_bytes);
        let nonce = Nonce::assume_unique_for_key(self.nonce(number));
        self.key
            .open_separate_gather(nonce, Aad::from(header), body, tag, out)
            .map_err(|_| OpenError::Forged)?;
        Ok(body_bytes)
    }

    /// Decrypts where the packet lies; the plaintext is what remains without the tag.
    pub(super) fn open_in_place<'a>(
        &self,
        number: u64,
        header: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], OpenError> {
        let nonce = Nonce::assume_unique_for_key(self.nonce(number));
        match self.key.open_in_place(nonce, Aad::from(header), sealed) {
            Ok(body) => Ok(body),
            Err(_) => Err(OpenError::Forged),
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
        self.secret = Zeroizing::new(expand(&self.secret, b"netblt 9 next"));
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

/// HKDF-Expand with SHA-256 (`docs/protocol §5.1`).
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
                "057fd909d4c4e83d3cb4f54cd67a48802b67fb72044b3d7d0a5a9c0a4a4ea967",
                "af1c55939c05a7dca2b84deb",
            ),
            (
                "c0b16d60c4d2f93165c678805b59ac09953c5a96cf93d1e2bbf7932ed1829a41",
                "fc9e8c817deeb54913c6cfb8",
            ),
            (
                "d329ff18c7c16cf921cc8b3642cda2f0fa11aa32698c982adc7cd758966441cc",
                "c511d7cecb6fec7d52c68990",
            ),
        ];
        let mut chain = KeyChain::new(Cipher::Aes256Gcm, counting_secret());
        for (key, iv) in expected {
            let secret = chain.secret();
            assert_eq!(hex(&expand::<32>(&secret, b"netblt 9 key")), key);
            assert_eq!(hex(&chain.next_epoch().iv), iv);
        }
        let last = "e1a6eab62c7786cf3464373c5f01f47e1990cb44119e65fcd35851d93fcc7084";
        assert_eq!(hex(&chain.secret()), last);
    }

    /// Whole packets, sealed with Python's `cryptography`: number 5 of epoch 0, then 7 of epoch 1.
    #[test]
    fn sealed_bytes_agree_with_an_independent_implementation() {
        let table = [
            (
                Cipher::Aes256Gcm,
                "b8779dd4ca99bab7ec022e05018405c92f60bb3d74175deb33b753a4",
                "2403fefea81281b3b72c9eb1a99066cab297038969da0685231009d8",
            ),
            (
                Cipher::ChaCha20Poly1305,
                "0a308d57995eb961e0b4449f75877fc83258b4463483b799bee9541d",
                "3afa41b4f7f176a55399527b8ecae4046ac8adac2c01dd73027dc942",
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
            assert_eq!(key.open_into(0, b"", &vec![0; len], &mut []), Err(OpenError::Forged));
            assert_eq!(key.open_in_place(0, b"", &mut vec![0; len]), Err(OpenError::Forged));
        }
    }
}
