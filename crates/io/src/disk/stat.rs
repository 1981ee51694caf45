//! The facts of one stat of a file, and whether it has content to read: for an empty file the stat
//! is enough, where a length can be trusted.

use std::fs::Metadata;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;

use crate::disk::attributes::FileTimes;
use crate::disk::{flush, safe_open};

/// The read bits of a file that every user may read.
const ALL_READ: u32 = 0o444;
/// The read bit of a file's owner.
const OWNER_READS: u32 = 0o400;

/// The stat of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileStat {
    pub(crate) length: u64,
    /// Bytes that it takes on the disk.
    pub(crate) on_disk: u64,
    /// Device and inode.
    pub(crate) id: (u64, u64),
    /// How many names it has.
    pub(crate) names: u64,
    owner: u32,
    times: FileTimes,
}

impl FileStat {
    /// When it was written to.
    pub(crate) fn modified(&self) -> SystemTime {
        let FileTimes { seconds, nanos, .. } = self.times;
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let at = match seconds {
            0.. => UNIX_EPOCH.checked_add(whole),
            _ => UNIX_EPOCH.checked_sub(whole),
        };
        at.and_then(|at| at.checked_add(Duration::from_nanos(nanos.into()))).unwrap_or(UNIX_EPOCH)
    }

    /// Its times and mode if it need not be opened: it is empty, this is its only name, and opening
    /// it would succeed. [`reports_lengths`] says whether its length can be trusted.
    pub(crate) fn of_empty(&self) -> Option<FileTimes> {
        let own = self.owner == rustix::process::geteuid().as_raw();
        let needed = if own { OWNER_READS } else { ALL_READ };
        let readable = self.times.mode & needed == needed;
        (self.length == 0 && self.names == 1 && readable).then_some(self.times)
    }
}

/// Whether a file system reports the length of every file. In others (`/proc`, FUSE, networks) a
/// file of length zero may have content.
pub(crate) fn reports_lengths(directory: impl AsFd) -> bool {
    flush::is_whole(directory)
}

impl From<&Metadata> for FileStat {
    fn from(metadata: &Metadata) -> Self {
        Self {
            length: metadata.len(),
            on_disk: metadata.blocks().saturating_mul(512),
            id: (metadata.dev(), metadata.ino()),
            names: metadata.nlink(),
            owner: metadata.uid(),
            times: FileTimes {
                mode: metadata.mode() & 0o7777,
                seconds: metadata.mtime(),
                nanos: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
            },
        }
    }
}

/// For a regular file.
#[allow(clippy::unnecessary_cast, reason = "their widths differ between systems")]
impl TryFrom<&Stat> for FileStat {
    type Error = ();

    fn try_from(stat: &Stat) -> Result<Self, ()> {
        if !safe_open::is_file(stat) {
            return Err(());
        }
        Ok(Self {
            length: u64::try_from(stat.st_size).map_err(|_| ())?,
            on_disk: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512),
            id: (stat.st_dev as u64, stat.st_ino as u64),
            names: stat.st_nlink as u64,
            owner: stat.st_uid,
            times: FileTimes {
                mode: stat.st_mode as u32 & 0o7777,
                seconds: stat.st_mtime as i64,
                nanos: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn only_an_empty_readable_file_with_one_name_need_not_be_opened() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let look = |name: &str| {
            let root = safe_open::open_directory(dir.path()).expect("opened");
            let stat = safe_open::status(&root, name.as_bytes()).expect("known").expect("there");
            let found = FileStat::try_from(&stat);
            let path = dir.path().join(name);
            let same = fs::symlink_metadata(path).expect("there");
            let found = found.ok()?;
            assert_eq!(found.modified(), same.modified().expect("known"), "{name}");
            assert_eq!(found.of_empty(), FileStat::from(&same).of_empty(), "{name}");
            found.of_empty()
        };
        let make = |name: &str, bytes: &str, mode| {
            let path = dir.path().join(name);
            fs::write(&path, bytes).expect("written");
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
        };
        make("empty", "", 0o640);
        assert_eq!(look("empty").map(|times| times.mode), Some(0o640));
        make("full", "x", 0o644);
        make("secret", "", 0o044);
        make("two", "", 0o644);
        fs::hard_link(dir.path().join("two"), dir.path().join("names")).expect("linked");
        fs::create_dir(dir.path().join("directory")).expect("made");
        for name in ["full", "secret", "two", "names", "directory"] {
            assert_eq!(look(name), None, "{name}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn empty_files_are_opened_where_lengths_mean_nothing() {
        let proc = safe_open::open_directory("/proc/self".as_ref()).expect("opened");
        let stat = safe_open::status(&proc, b"status").expect("known").expect("there");
        assert!(FileStat::try_from(&stat).is_ok_and(|found| found.length == 0));
        assert!(!reports_lengths(&proc));
    }
}
