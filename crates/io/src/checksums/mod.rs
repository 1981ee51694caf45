//! Checksums of the content of files beside BLAKE3, computed while the data pass: which there are,
//! how they are computed, and the lists that they are compared with.

pub(crate) mod algorithm;
pub(crate) mod bag;
pub(crate) mod content_hashes;
pub(crate) mod expectation;
pub(crate) mod expected_digests;
mod hasher;
pub(crate) mod options;
