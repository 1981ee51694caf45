//! Which checksums a transfer has, and their use.

use std::sync::Arc;

use super::algorithm::{HashAlgorithm, HashAlgorithms};
use super::expected_digests::ExpectedDigests;

/// The checksums that this end computes beside BLAKE3, and their use.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ChecksumOptions {
    /// The algorithms, beside those that [`Self::manifest_format`] needs.
    pub algorithms: HashAlgorithms,
    /// The format of [`Options::manifest`](crate::Options::manifest).
    pub manifest_format: ManifestFormat,
    /// The digests that the files are to have. A file with another one is left out, and counted in
    /// [`Summary::unexpected`](crate::Summary::unexpected); with
    /// [`TransferSettings::atomic`](crate::TransferSettings::atomic) it ends the transfer. A name
    /// that does not come is counted in [`Summary::skipped`](crate::Summary::skipped).
    pub expected: Option<Arc<ExpectedDigests>>,
    /// Store the digests in attributes of received files: `user.shatag.ALGORITHM`, and in
    /// `user.shatag.ts` the time of modification for which they hold. They are SHA-256 if no
    /// algorithm is chosen.
    pub store: bool,
}

/// The format of a manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManifestFormat {
    /// BLAKE3, as `b3sum` writes and checks it.
    #[default]
    B3sum,
    /// SHA-256, as `sha256sum` writes and checks it.
    Sha256sum,
    /// MD5, as `md5sum` writes and checks it.
    Md5sum,
    /// The manifest is the directory of a bag (BagIt, RFC 8493), which gets its `bagit.txt` and a
    /// `manifest-ALGORITHM.txt` for each algorithm; for SHA-512 if none is chosen.
    Bagit,
    /// JSON lines with all digests (`docs/reference/json.md`).
    Json,
}

impl ChecksumOptions {
    /// All algorithms whose digests are needed; `manifest`: there is one.
    pub(crate) fn needed(&self, manifest: bool) -> HashAlgorithms {
        let none = HashAlgorithms::default();
        let format = if manifest { self.manifest_format.algorithms(self.algorithms) } else { none };
        let expected = self.expected.as_ref().map(|list| list.algorithms());
        let all = self.algorithms.and(format).and(expected.unwrap_or_default());
        all.and(self.stored())
    }

    /// The algorithms whose digests are stored.
    pub(crate) fn stored(&self) -> HashAlgorithms {
        match (self.store, self.algorithms.is_empty()) {
            (false, _) => HashAlgorithms::default(),
            (true, true) => [HashAlgorithm::Sha256].into_iter().collect(),
            (true, false) => self.algorithms,
        }
    }
}

impl ManifestFormat {
    /// The algorithms whose digests such a manifest has, if these are chosen.
    pub fn algorithms(self, chosen: HashAlgorithms) -> HashAlgorithms {
        let only = |algorithm| [algorithm].into_iter().collect();
        match self {
            Self::B3sum => only(HashAlgorithm::Blake3),
            Self::Sha256sum => only(HashAlgorithm::Sha256),
            Self::Md5sum => only(HashAlgorithm::Md5),
            Self::Bagit if chosen.is_empty() => only(HashAlgorithm::Sha512),
            Self::Bagit => chosen,
            Self::Json => chosen.and(only(HashAlgorithm::Blake3)),
        }
    }
}
