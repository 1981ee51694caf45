//! The algorithms of checksums, sets of them, and the digests of one file. Nothing is computed
//! here.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;

/// An algorithm for the digest of a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum HashAlgorithm {
    /// BLAKE3, which each transfer computes anyway.
    Blake3,
    /// SHA-256 (FIPS 180-4).
    Sha256,
    /// SHA-512 (FIPS 180-4).
    Sha512,
    /// MD5 (RFC 1321): it finds accidents, and no attacks.
    Md5,
    /// CRC-32C (RFC 3720), most significant byte first: it finds accidents, and no attacks.
    Crc32c,
    /// Adler-32 (RFC 1950), most significant byte first: it finds accidents, and no attacks.
    Adler32,
}

impl HashAlgorithm {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Blake3, Self::Sha256, Self::Sha512, Self::Md5, Self::Crc32c, Self::Adler32];

    /// Its name in options and lists.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blake3 => "blake3",
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
            Self::Md5 => "md5",
            Self::Crc32c => "crc32c",
            Self::Adler32 => "adler32",
        }
    }

    /// Bytes of a digest.
    pub const fn digest_bytes(self) -> usize {
        match self {
            Self::Blake3 | Self::Sha256 => 32,
            Self::Sha512 => 64,
            Self::Md5 => 16,
            Self::Crc32c | Self::Adler32 => 4,
        }
    }

    /// The algorithm of this name, in any case.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for HashAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of algorithms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashAlgorithms(u8);

impl HashAlgorithms {
    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this one is among them.
    pub fn contains(self, algorithm: HashAlgorithm) -> bool {
        self.0 & algorithm.bit() != 0
    }

    /// These and those.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// These without one.
    #[must_use]
    pub fn without(self, algorithm: HashAlgorithm) -> Self {
        Self(self.0 & !algorithm.bit())
    }

    /// Bytes of the digests of all of them.
    pub(crate) fn digest_bytes(self) -> usize {
        self.iter().map(HashAlgorithm::digest_bytes).sum()
    }

    /// The set as a number.
    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    /// The set that has this number.
    pub(crate) fn from_bits(bits: u8) -> Self {
        HashAlgorithm::ALL.into_iter().filter(|algorithm| bits & algorithm.bit() != 0).collect()
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = HashAlgorithm> {
        HashAlgorithm::ALL.into_iter().filter(move |algorithm| self.contains(*algorithm))
    }
}

impl FromIterator<HashAlgorithm> for HashAlgorithms {
    fn from_iter<I: IntoIterator<Item = HashAlgorithm>>(all: I) -> Self {
        Self(all.into_iter().fold(0, |set, algorithm| set | algorithm.bit()))
    }
}

impl FromStr for HashAlgorithms {
    type Err = String;

    /// Names between commas.
    fn from_str(text: &str) -> Result<Self, String> {
        let algorithm = |name: &str| {
            HashAlgorithm::named(name).ok_or_else(|| {
                let all = HashAlgorithm::ALL.map(HashAlgorithm::name).join(", ");
                format!("there is no algorithm \"{name}\"; there are {all}")
            })
        };
        text.split(',').map(|name| algorithm(name.trim())).collect()
    }
}

impl fmt::Display for HashAlgorithms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(HashAlgorithm::name).collect();
        f.write_str(&names.join(","))
    }
}

/// The digests of one file's content, by several algorithms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    algorithms: HashAlgorithms,
    /// One after the other, in the order of [`HashAlgorithm::ALL`]: a list may have a million.
    bytes: Box<[u8]>,
}

impl Digests {
    /// The digest of this algorithm, if it was computed.
    pub fn get(&self, algorithm: HashAlgorithm) -> Option<&[u8]> {
        self.iter().find(|(own, _)| *own == algorithm).map(|(_, digest)| digest)
    }

    /// Each algorithm with its digest.
    pub fn iter(&self) -> impl Iterator<Item = (HashAlgorithm, &[u8])> {
        let mut at = 0;
        self.algorithms.iter().filter_map(move |algorithm| {
            let digest = self.bytes.get(at..at + algorithm.digest_bytes());
            at += algorithm.digest_bytes();
            digest.map(|digest| (algorithm, digest))
        })
    }

    /// The digest of this algorithm in hexadecimal digits, if it was computed.
    pub fn hex(&self, algorithm: HashAlgorithm) -> Option<String> {
        self.get(algorithm).map(hex)
    }

    /// BLAKE3 of the content, which the transfer computes; zero if it is not there.
    pub(crate) fn blake3(&self) -> [u8; 32] {
        let digest = self.get(HashAlgorithm::Blake3).and_then(|digest| digest.try_into().ok());
        digest.unwrap_or_default()
    }

    /// BLAKE3 alone.
    pub(crate) fn of_blake3(digest: &[u8; 32]) -> Self {
        [(HashAlgorithm::Blake3, digest.to_vec())].into_iter().collect()
    }

    /// Their bytes in the order of [`HashAlgorithm::ALL`].
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The digests of these algorithms, from such bytes; `None` if there are fewer or more.
    pub(crate) fn from_bytes(algorithms: HashAlgorithms, bytes: Box<[u8]>) -> Option<Self> {
        (bytes.len() == algorithms.digest_bytes()).then_some(Self { algorithms, bytes })
    }

    /// Which there are.
    pub(crate) fn algorithms(&self) -> HashAlgorithms {
        self.algorithms
    }
}

impl FromIterator<(HashAlgorithm, Vec<u8>)> for Digests {
    fn from_iter<I: IntoIterator<Item = (HashAlgorithm, Vec<u8>)>>(all: I) -> Self {
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_unstable();
        let algorithms = all.iter().map(|(algorithm, _)| *algorithm).collect();
        Self { algorithms, bytes: all.into_iter().flat_map(|(_, digest)| digest).collect() }
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_names_is_a_set() {
        let set: HashAlgorithms = "md5, SHA256,md5".parse().expect("names");
        assert_eq!(set.to_string(), "sha256,md5");
        assert!(set.contains(HashAlgorithm::Md5) && !set.contains(HashAlgorithm::Blake3));
        assert_eq!(set.without(HashAlgorithm::Md5).to_string(), "sha256");
        let all: HashAlgorithms = HashAlgorithm::ALL.into_iter().collect();
        assert_eq!(all.to_string().parse(), Ok(all));
        assert_eq!(HashAlgorithms::from_bits(all.bits()), all);
        assert_eq!(HashAlgorithms::from_bits(set.bits() | 0x80), set);
        for (text, name) in [("sha1", "sha1"), ("", ""), ("md5,,crc32c", "")] {
            let said = text.parse::<HashAlgorithms>().expect_err("no algorithm");
            assert!(said.starts_with(&format!("there is no algorithm \"{name}\"; ")), "{said}");
        }
    }

    #[test]
    fn digests_are_found_by_algorithm_and_survive_as_bytes() {
        let digest = |a: HashAlgorithm| vec![a as u8 + 1; a.digest_bytes()];
        let some = [HashAlgorithm::Crc32c, HashAlgorithm::Blake3, HashAlgorithm::Sha512];
        let digests: Digests = some.into_iter().map(|a| (a, digest(a))).collect();
        for algorithm in HashAlgorithm::ALL {
            let expected = some.contains(&algorithm).then(|| digest(algorithm));
            assert_eq!(digests.get(algorithm), expected.as_deref(), "{algorithm}");
        }
        assert_eq!(digests.hex(HashAlgorithm::Crc32c).as_deref(), Some("05050505"));
        let again = Digests::from_bytes(digests.algorithms(), digests.bytes().into());
        assert_eq!(again, Some(digests.clone()));
        assert_eq!(Digests::from_bytes(digests.algorithms(), [0].into()), None);
    }
}
