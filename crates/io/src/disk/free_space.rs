//! The check for free space, before data arrive.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, Warning, shown_path};

/// At most so many existing files and directories at the destination are looked at. If there are
/// more, the check cannot say that there is too little space.
const MOST: u32 = 100_000;

/// The destination of files.
#[derive(Clone, Debug)]
pub(crate) struct FreeSpace {
    place: PathBuf,
    /// The first parts of the names that come, if they are known.
    names: Option<BTreeSet<OsString>>,
}

impl FreeSpace {
    /// Room in a directory.
    pub(crate) fn new(place: PathBuf, names: Option<BTreeSet<OsString>>) -> Self {
        Self { place, names }
    }

    /// Whether `needs` more bytes have space here. Existing files at the destination may be
    /// replaced, or be the same already, and count as free. A file system that may store files in
    /// fewer bytes than they have gets the benefit of the doubt.
    pub(crate) fn check(&self, needs: u64) -> Result<Option<Warning>, Error> {
        let Ok(stat) = rustix::fs::statvfs(&self.place) else { return Ok(None) };
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        // Some file systems, over networks for one, report nothing.
        if needs <= free || stat.f_blocks == 0 {
            return Ok(None);
        }
        let Some(standing) = self.standing() else { return Ok(None) };
        if needs <= free.saturating_add(standing) {
            return Ok(None);
        }
        let place = self.place.clone();
        match may_compress(&self.place) {
            false => Err(Error::NoRoom { place, needs, free }),
            true => Ok(Some(Warning::LittleRoom { place: shown_path(&place), needs, free })),
        }
    }

    /// Bytes on the disk beneath the names that come; nothing if there are too many files.
    fn standing(&self) -> Option<u64> {
        let mut todo: Vec<PathBuf> = match &self.names {
            Some(names) => names.iter().map(|name| self.place.join(name)).collect(),
            None => vec![self.place.clone()],
        };
        let device = fs::metadata(&self.place).ok()?.dev();
        let (mut bytes, mut seen) = (0u64, 0);
        while let Some(path) = todo.pop() {
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            seen += 1;
            if seen > MOST {
                return None;
            }
            if metadata.dev() != device {
                continue;
            }
            bytes = bytes.saturating_add(metadata.blocks().saturating_mul(512));
            if metadata.is_dir() {
                let listing = fs::read_dir(&path).into_iter().flatten().flatten();
                todo.extend(listing.take(MOST as usize).map(|entry| entry.path()));
            }
        }
        Some(bytes)
    }
}

/// Whether files may take fewer bytes here than they have, holes aside: all but file systems that
/// are known not to do that.
#[cfg(target_os = "linux")]
fn may_compress(place: &Path) -> bool {
    const EXT: u32 = 0xef53;
    const XFS: u32 = 0x5846_5342;
    const TMPFS: u32 = 0x0102_1994;
    const FAT: u32 = 0x4d44;
    const EXFAT: u32 = 0x2011_bab0;
    // 32 bits of it are the number, whatever the type.
    let known = |number: u32| matches!(number, EXT | XFS | TMPFS | FAT | EXFAT);
    !rustix::fs::statfs(place).is_ok_and(|stat| known(stat.f_type as u32))
}

#[cfg(not(target_os = "linux"))]
fn may_compress(_: &Path) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_files_at_the_destination_count_as_free_space() {
        let to = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(to.path().join("tree")).expect("made");
        for (name, bytes) in [("tree/a", 1 << 20), ("other", 2 << 20)] {
            fs::write(to.path().join(name), vec![7; bytes]).expect("written");
        }
        let standing = |names: Option<&[&str]>| {
            let names = names.map(|names| names.iter().map(OsString::from).collect());
            FreeSpace::new(to.path().to_path_buf(), names).standing().expect("few files")
        };
        assert!((1 << 20..2 << 20).contains(&standing(Some(&["tree", "none"]))));
        assert!(standing(None) >= 3 << 20);
        assert_eq!(standing(Some(&[])), 0);
        let all = FreeSpace::new(to.path().to_path_buf(), Some(BTreeSet::new()));
        assert_eq!(all.check(0).expect("there is"), None);
        match all.check(u64::MAX) {
            Err(Error::NoRoom { needs: u64::MAX, .. }) => {}
            Ok(Some(Warning::LittleRoom { needs: u64::MAX, .. })) => {}
            other => panic!("{other:?}"),
        }
    }
}
