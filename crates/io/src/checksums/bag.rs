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

/// The algorithm of a manifest, by the name that it has in its bag: `manifest-sha256.txt`.
pub(crate) fn algorithm_of(manifest: &Path) -> Option<HashAlgorithm> {
    let name = manifest.file_name()?.to_str()?;
    HashAlgorithm::named(name.strip_prefix("manifest-")?.strip_suffix(".txt")?)
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

/// The path of which a manifest has this. Other sequences than those of CR, LF and % are kept: many
/// programs do not encode %.
pub(crate) fn decoded(mut line: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(line.len());
    while let Some((first, rest)) = line.split_first() {
        let code = rest.get(..2).filter(|_| *first == b'%').map(<[u8]>::to_ascii_uppercase);
        let byte = match code.as_deref() {
            Some(b"0D") => Some(b'\r'),
            Some(b"0A") => Some(b'\n'),
            Some(b"25") => Some(b'%'),
            _ => None,
        };
        path.push(byte.unwrap_or(*first));
        line = if byte.is_some() { rest.get(2..).unwrap_or_default() } else { rest };
    }
    path
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
            assert_eq!(decoded(line), path);
        }
        assert_eq!(decoded(b"100%"), b"100%");
        assert_eq!(decoded(b"%0d%zz%2"), b"\r%zz%2");
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

    #[test]
    fn a_manifest_is_named_after_its_algorithm() {
        for algorithm in HashAlgorithm::ALL {
            let name = manifest_of(algorithm);
            assert_eq!(algorithm_of(&Path::new("bag").join(name)), Some(algorithm));
        }
        assert_eq!(algorithm_of(Path::new("tagmanifest-md5.txt")), None);
        assert_eq!(algorithm_of(Path::new("manifest-sha1.txt")), None);
    }
}
