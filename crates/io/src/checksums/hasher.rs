//! One computation of one algorithm. BLAKE3 is not among them: the transfer computes it.

use sha2::Digest as _;

use super::algorithm::HashAlgorithm;

/// The state of a computation.
pub(super) enum Hasher {
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
    Md5(md5::Md5),
    Crc32c(u32),
    Adler32(simd_adler32::Adler32),
}

impl Hasher {
    /// Nothing is in it; `None` for BLAKE3.
    pub(super) fn new(algorithm: HashAlgorithm) -> Option<Self> {
        match algorithm {
            HashAlgorithm::Blake3 => None,
            HashAlgorithm::Sha256 => Some(Self::Sha256(sha2::Sha256::new())),
            HashAlgorithm::Sha512 => Some(Self::Sha512(sha2::Sha512::new())),
            HashAlgorithm::Md5 => Some(Self::Md5(md5::Md5::new())),
            HashAlgorithm::Crc32c => Some(Self::Crc32c(0)),
            HashAlgorithm::Adler32 => Some(Self::Adler32(simd_adler32::Adler32::new())),
        }
    }

    pub(super) fn update(&mut self, data: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(data),
            Self::Sha512(hasher) => hasher.update(data),
            Self::Md5(hasher) => hasher.update(data),
            Self::Crc32c(crc) => *crc = crc32c::crc32c_append(*crc, data),
            Self::Adler32(hasher) => hasher.write(data),
        }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        match self {
            Self::Sha256(hasher) => hasher.finalize().to_vec(),
            Self::Sha512(hasher) => hasher.finalize().to_vec(),
            Self::Md5(hasher) => hasher.finalize().to_vec(),
            Self::Crc32c(crc) => crc.to_be_bytes().to_vec(),
            Self::Adler32(hasher) => hasher.finish().to_be_bytes().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::algorithm::hex;
    use super::*;

    fn digest(algorithm: HashAlgorithm, parts: &[&[u8]]) -> String {
        let mut hasher = Hasher::new(algorithm).expect("not BLAKE3");
        parts.iter().for_each(|part| hasher.update(part));
        hex(&hasher.finish())
    }

    #[test]
    fn published_vectors_hold() {
        use HashAlgorithm::{Adler32, Crc32c, Md5, Sha256, Sha512};
        let million = vec![b'a'; 1_000_000];
        let two = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        let vectors: [(HashAlgorithm, &[u8], &str); 15] = [
            // FIPS 180-4, the examples of NIST.
            (Sha256, b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            (Sha256, b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (Sha256, two, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"),
            (Sha256, &million, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
            (
                Sha512,
                b"",
                "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce\
                 47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e",
            ),
            (
                Sha512,
                b"abc",
                "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                 2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
            ),
            // RFC 1321, A.5.
            (Md5, b"", "d41d8cd98f00b204e9800998ecf8427e"),
            (Md5, b"abc", "900150983cd24fb0d6963f7d28e17f72"),
            (Md5, b"message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            // RFC 3720, B.4: 32 bytes each. The RFC prints them the other way round.
            (Crc32c, &[0; 32], "8a9136aa"),
            (Crc32c, &[0xff; 32], "62a8ab43"),
            (Crc32c, b"123456789", "e3069283"),
            // RFC 1950 begins with 1; the second is computed by hand from its definition.
            (Adler32, b"", "00000001"),
            (Adler32, b"abc", "024d0127"),
            (Adler32, b"Wikipedia", "11e60398"),
        ];
        for (algorithm, data, expected) in vectors {
            assert_eq!(digest(algorithm, &[data]), expected, "{algorithm}");
            let (first, second) = data.split_at(data.len() / 3);
            assert_eq!(digest(algorithm, &[first, second]), expected, "{algorithm}");
        }
        assert!(Hasher::new(HashAlgorithm::Blake3).is_none());
    }
}
