//! Names in the manifests of a bag (BagIt, RFC 8493): paths in the bag, whose files are in `data`.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::algorithm::HashAlgorithm;

/// Where the files of a transfer are in a bag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BagPlace {
    /// The path of the destination in the bag; `None` where that is not known.
    before: Option<Vec<u8>>,
}

impl BagPlace {
    /// The place of a destination in the bag of this directory. A destination outside of it is
    /// taken for a copy of its `data`.
    pub(crate) fn of(bag: &Path, destination: Option<&Path>) -> Self {
        let real = |path: &Path| fs::canonicalize(path).ok();
        let before = destination.and_then(|destination| {
            let (bag, destination) = (real(bag)?, real(destination)?);
            Some(destination.strip_prefix(bag).ok()?.as_os_str().as_bytes().to_vec())
        });
        Self { before }
    }

    /// The path in the bag of a file that has this name in the transfer.
    pub(crate) fn path(&self, name: &[u8]) -> Vec<u8> {
        let data = &b"data"[..];
        match &self.before {
            Some(before) if before.is_empty() => name.to_vec(),
            Some(before) => [before, &b"/"[..], name].concat(),
            None if name.starts_with(b"data/") => name.to_vec(),
            None => [data, b"/", name].concat(),
        }
    }
}

/// Whether a path in a bag is that of a file of its payload.
pub(crate) fn is_payload(path: &[u8]) -> bool {
    path.starts_with(b"data/")
}

/// The name of the manifest of this algorithm.
pub(crate) fn manifest_of(algorithm: HashAlgorithm) -> String {
    format!("manifest-{algorithm}.txt")
}

/// A path as a manifest has it: CR, LF and % in percent-encoding (RFC 8493 §2.1.3).
pub(crate) fn encoded(path: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(path.len());
    for byte in path {
        match byte {
            b'\r' | b'\n' | b'%' => line.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            byte => line.push(*byte),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_encoded_as_the_rfc_says() {
        for (path, line) in [
            (&b"data/a b"[..], &b"data/a b"[..]),
            (b"data/a\r\nb%c\\", b"data/a%0D%0Ab%25c\\"),
            (b"data/%0A", b"data/%250A"),
            (b"data/\xff", b"data/\xff"),
        ] {
            assert_eq!(encoded(path), line);
        }
    }

    #[test]
    fn names_are_paths_in_the_bag() {
        let bag = tempfile::tempdir().expect("a directory");
        let data = bag.path().join("data");
        fs::create_dir_all(data.join("in")).expect("made");
        let elsewhere = tempfile::tempdir().expect("a directory");
        let path = |destination: Option<&Path>| BagPlace::of(bag.path(), destination).path(b"a/b");
        assert_eq!(path(Some(&*data)), b"data/a/b");
        let deep = data.join("in/../in");
        assert_eq!(path(Some(&*deep)), b"data/in/a/b");
        assert_eq!(path(Some(bag.path())), b"a/b");
        assert_eq!(path(Some(elsewhere.path())), b"data/a/b");
        let unknown = BagPlace::of(bag.path(), None);
        assert_eq!(unknown.path(b"data/a"), b"data/a");
        assert!(is_payload(&unknown.path(b"database")) && !is_payload(b"database/x"));
    }
}
