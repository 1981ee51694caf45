//! BLAKE3 of the files of a tree, kept from one comparison to the next: a file whose inode, length
//! and times are the same is not read again.
//!
//! The cache is a file of this user's, outside of the tree. Its directories stand in the order of a
//! walk, so that neither reading nor writing it needs more memory than one directory.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;

use crate::cancel::Cancel;
use crate::disk::safe_open;
use crate::home;
use crate::mirror::entry::{EntryKind, TreeEntry};
use crate::mirror::names::order;

const TITLE: &[u8] = b"netblt digests 1\n";
/// A file that changed so shortly before it was read may change again within the resolution of
/// times, and is not kept.
const SETTLED: Duration = Duration::from_secs(2);
/// Longest name in the cache.
const MAX_NAME: u32 = 1 << 16;

/// What tells that a file is unchanged: device, inode, length, and the times of modification and of
/// the last change of its inode.
type Version = [u64; 7];
type Known = HashMap<Vec<u8>, (Version, [u8; 32])>;

/// The digests of one tree.
#[derive(Debug)]
pub(crate) struct DigestCache {
    place: Option<PathBuf>,
    old: Option<BufReader<File>>,
    /// The next directory of `old`.
    next: Option<(Vec<u8>, Known)>,
    new: Option<BufWriter<File>>,
    began: SystemTime,
    cancel: Cancel,
}

/// The digests of one directory.
#[derive(Debug)]
pub(crate) struct DirectoryDigests {
    old: Known,
    new: Known,
    settled: i64,
    cancel: Cancel,
}

impl DigestCache {
    /// The cache of this directory's tree, which may not exist yet. Without a home there is none,
    /// and all files are read.
    pub(crate) fn of(root: &Path, cancel: &Cancel) -> Self {
        let place = fs::metadata(root).ok().and_then(|found| {
            let id = [found.dev().to_be_bytes(), found.ino().to_be_bytes()].concat();
            let hash = blake3::derive_key("netblt mirror 1 cache", &id);
            let hex = blake3::Hash::from_bytes(hash).to_hex();
            home::cache(&format!("digests/{}", hex.get(..32).unwrap_or_default()))
        });
        Self::at(place, cancel)
    }

    fn at(place: Option<PathBuf>, cancel: &Cancel) -> Self {
        let mut cache = Self {
            place,
            old: None,
            next: None,
            new: None,
            began: SystemTime::now(),
            cancel: cancel.clone(),
        };
        cache.begin();
        cache
    }

    /// Reads from the start, and writes a new file beside the old one.
    fn begin(&mut self) {
        let Some(place) = &self.place else { return };
        let open = || {
            let mut file = BufReader::new(File::open(place)?);
            let mut title = [0; TITLE.len()];
            file.read_exact(&mut title)?;
            Ok::<_, io::Error>((title == *TITLE).then_some(file))
        };
        self.old = open().ok().flatten();
        let create = || {
            place.parent().map_or(Ok(()), fs::create_dir_all)?;
            let mut file = BufWriter::new(File::create(beside(place))?);
            file.write_all(TITLE)?;
            Ok::<_, io::Error>(file)
        };
        self.new = create().ok();
        self.next = self.read();
    }

    /// The known digests of a directory. Directories are asked for in the order of a walk; of one
    /// out of order nothing is known.
    pub(crate) fn directory(&mut self, name: &[u8]) -> DirectoryDigests {
        while self.next.as_ref().is_some_and(|(next, _)| order(next, name).is_lt()) {
            self.next = self.read();
        }
        let old = match self.next.take() {
            Some((next, known)) if next == name => {
                self.next = self.read();
                known
            }
            other => {
                self.next = other;
                Known::new()
            }
        };
        let settled = self.began.checked_sub(SETTLED).unwrap_or(UNIX_EPOCH);
        let settled = settled.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let settled = i64::try_from(settled).unwrap_or(i64::MAX);
        DirectoryDigests { old, new: Known::new(), settled, cancel: self.cancel.clone() }
    }

    /// Keeps the digests of a directory.
    pub(crate) fn note(&mut self, name: &[u8], known: DirectoryDigests) {
        let written = self.new.as_mut().map_or(Ok(()), |out| write(out, name, &known.new));
        if written.is_err() {
            self.new = None;
        }
    }

    /// All directories were listed: the new file takes the old one's place. A failure costs no more
    /// than the time to read the files again.
    pub(crate) fn finish(mut self) {
        self.replace();
    }

    /// The same, and the directories can be asked for again.
    pub(crate) fn restart(&mut self) {
        self.replace();
        self.begin();
    }

    fn replace(&mut self) {
        let (Some(place), Some(new)) = (&self.place, self.new.take()) else { return };
        let written = new.into_inner().map_err(io::IntoInnerError::into_error);
        let written = written.and_then(|file| file.sync_all());
        if written.and_then(|()| fs::rename(beside(place), place)).is_err() {
            let _ = fs::remove_file(beside(place));
        }
    }

    /// The next directory of the old file. What cannot be read counts as its end.
    fn read(&mut self) -> Option<(Vec<u8>, Known)> {
        let read = read_directory(self.old.as_mut()?);
        if read.is_err() {
            self.old = None;
        }
        read.ok()
    }
}

impl DirectoryDigests {
    /// Adds the digest to a file's entry, and reads the file if it is not known.
    pub(crate) fn complete(
        &mut self,
        directory: &OwnedFd,
        entry: TreeEntry,
        stat: &Stat,
    ) -> io::Result<TreeEntry> {
        let EntryKind::File { length, link, digest: None } = entry.kind else { return Ok(entry) };
        let version = version_of(stat);
        let known = self.old.get(&entry.name).filter(|(old, _)| *old == version);
        let digest = match known {
            Some((_, digest)) => *digest,
            None => hash_file(&safe_open::file(directory.as_fd(), &entry.name)?, &self.cancel)?,
        };
        if stat.st_mtime.max(stat.st_ctime) < self.settled {
            self.new.insert(entry.name.clone(), (version, digest));
        }
        Ok(TreeEntry { kind: EntryKind::File { length, link, digest: Some(digest) }, ..entry })
    }
}

#[allow(clippy::unnecessary_cast, reason = "their widths differ between systems")]
fn version_of(stat: &Stat) -> Version {
    [
        stat.st_dev as u64,
        stat.st_ino as u64,
        stat.st_size as u64,
        stat.st_mtime as u64,
        stat.st_mtime_nsec as u64,
        stat.st_ctime as u64,
        stat.st_ctime_nsec as u64,
    ]
}

fn beside(place: &Path) -> PathBuf {
    place.with_extension("new")
}

fn write(out: &mut impl Write, name: &[u8], known: &Known) -> io::Result<()> {
    write_bytes(out, name)?;
    out.write_all(&(known.len() as u64).to_be_bytes())?;
    for (name, (version, digest)) in known {
        write_bytes(out, name)?;
        version.iter().try_for_each(|number| out.write_all(&number.to_be_bytes()))?;
        out.write_all(digest)?;
    }
    Ok(())
}

fn write_bytes(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    out.write_all(&length.to_be_bytes())?;
    out.write_all(bytes)
}

fn read_directory(input: &mut impl Read) -> io::Result<(Vec<u8>, Known)> {
    let (name, mut known) = (read_bytes(input)?, Known::new());
    for _ in 0..read_number(input)? {
        let (name, mut version, mut digest) = (read_bytes(input)?, Version::default(), [0; 32]);
        for number in &mut version {
            *number = read_number(input)?;
        }
        input.read_exact(&mut digest)?;
        known.insert(name, (version, digest));
    }
    Ok((name, known))
}

fn read_bytes(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > MAX_NAME {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length as usize];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_number(input: &mut impl Read) -> io::Result<u64> {
    let mut number = [0; 8];
    input.read_exact(&mut number)?;
    Ok(u64::from_be_bytes(number))
}

/// BLAKE3 of an open file, read in large pieces.
pub(crate) fn hash_file(file: &File, cancel: &Cancel) -> io::Result<[u8; 32]> {
    use std::io::Read as _;
    let (mut hasher, mut piece) = (blake3::Hasher::new(), vec![0; 1 << 20]);
    let mut file = file;
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(*hasher.finalize().as_bytes()),
            Ok(read) => drop(hasher.update(piece.get(..read).unwrap_or_default())),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if cancel.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::filter::Filter;
    use crate::mirror::tree::{DirectoryWalk, MirrorTree};

    fn digests(root: &Path, place: &Path) -> Vec<(Vec<u8>, [u8; 32])> {
        let cancel = Cancel::default();
        let cache = DigestCache::at(Some(place.to_owned()), &cancel);
        let tree = MirrorTree::open(root, Filter::default(), &cancel).expect("opened");
        let (mut tree, mut walk) = (tree.with_digests(Some(cache)), DirectoryWalk::new());
        let mut found = Vec::new();
        while let Some((_, listing)) = walk.next(&mut tree).expect("listed") {
            assert_eq!(listing.problems, Vec::<String>::new());
            for entry in listing.entries {
                if let EntryKind::File { digest, .. } = entry.kind {
                    found.push((entry.name, digest.expect("a digest")));
                }
            }
        }
        tree.finish();
        found
    }

    #[test]
    fn a_file_that_is_unchanged_is_not_read_again() {
        let place = tempfile::tempdir().expect("a directory");
        let (root, cache) = (place.path().join("tree"), place.path().join("cache"));
        fs::create_dir_all(root.join("d")).expect("made");
        for name in ["a", "d/b", "d.c"] {
            fs::write(root.join(name), name).expect("written");
        }
        // A file of now is not kept.
        let now = digests(&root, &cache);
        assert_eq!(fs::metadata(&cache).expect("written").len(), 17 + 2 * 12 + 1);
        let text = b"netblt digests 1\n".to_vec();
        let mut forged = text;
        let known = |leaf: &str| {
            let stat = rustix::fs::stat(root.join(leaf)).expect("there");
            (version_of(&stat), [7; 32])
        };
        write(&mut forged, b"", &Known::from([(b"a".to_vec(), known("a"))])).expect("written");
        let (mut version, digest) = known("d/b");
        version[2] += 1;
        let other = Known::from([(b"b".to_vec(), (version, digest))]);
        write(&mut forged, b"d", &other).expect("written");
        fs::write(&cache, &forged).expect("written");
        let cached = digests(&root, &cache);
        assert_eq!(cached[0], (b"a".to_vec(), [7; 32]), "taken from the cache");
        assert_eq!(cached[1..], now[1..], "another length is another file");
        // A broken cache is none.
        fs::write(&cache, &forged[..forged.len() - 1]).expect("written");
        assert_eq!(digests(&root, &cache)[1..], now[1..]);
    }
}
