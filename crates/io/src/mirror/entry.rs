//! An entry of a directory, with all that a mirror compares.

/// A short hash of a name or of attributes.
pub(crate) type Short = [u8; 16];

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct TreeEntry {
    /// Its name in the directory.
    #[cfg_attr(feature = "serde", serde(with = "super::text"))]
    pub(crate) name: Vec<u8>,
    pub(crate) kind: EntryKind,
    /// Permission bits.
    pub(crate) mode: u32,
    /// The time of modification.
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
    /// A hash of the owner, extended attributes and access lists that are compared.
    pub(crate) extras: Option<Short>,
}

/// The kind of an entry, and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) enum EntryKind {
    File {
        length: u64,
        /// A later name of a file: the hash of the first name of that file in the tree.
        link: Option<Short>,
        /// BLAKE3 of the content, where that is compared.
        digest: Option<[u8; 32]>,
    },
    Directory,
    SymbolicLink {
        #[cfg_attr(feature = "serde", serde(with = "super::text"))]
        target: Vec<u8>,
    },
    /// A pipe, a socket or a device.
    Special,
}

impl TreeEntry {
    pub(crate) fn is_directory(&self) -> bool {
        self.kind == EntryKind::Directory
    }

    /// Memory and message bytes that it takes, about.
    pub(crate) fn cost(&self) -> usize {
        let target = match &self.kind {
            EntryKind::SymbolicLink { target } => target.len(),
            _ => 0,
        };
        500 + 2 * (self.name.len() + target)
    }

    fn hash(&self, hasher: &mut blake3::Hasher) {
        let mut bytes = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_be_bytes()).update(bytes);
        };
        bytes(&self.name);
        match &self.kind {
            EntryKind::File { length, link, digest } => {
                bytes(b"file");
                bytes(&length.to_be_bytes());
                bytes(link.as_ref().map_or(&[][..], |link| link));
                bytes(digest.as_ref().map_or(&[][..], |digest| digest));
            }
            EntryKind::Directory => bytes(b"directory"),
            EntryKind::SymbolicLink { target } => {
                bytes(b"link");
                bytes(target);
            }
            EntryKind::Special => bytes(b"special"),
        }
        bytes(&self.mode.to_be_bytes());
        bytes(&self.seconds.to_be_bytes());
        bytes(&self.nanos.to_be_bytes());
        bytes(self.extras.as_ref().map_or(&[][..], |extras| extras));
    }
}

/// The digest of a directory's entries: equal directories need no further comparison.
pub(crate) fn digest_of(entries: &[TreeEntry]) -> Short {
    let mut hasher = blake3::Hasher::new_derive_key("netblt mirror 1 directory");
    entries.iter().for_each(|entry| entry.hash(&mut hasher));
    shortened(&hasher)
}

/// The hash of a name in the tree.
pub(crate) fn hash_of(name: &[u8]) -> Short {
    shortened(blake3::Hasher::new_derive_key("netblt mirror 1 name").update(name))
}

pub(crate) fn shortened(hasher: &blake3::Hasher) -> Short {
    let mut out = Short::default();
    hasher.finalize_xof().fill(&mut out);
    out
}
