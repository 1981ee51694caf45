//! The status of a file in a response. It is apart from the responses themselves, which are
//! independent of the operating system.

use rustix::fs::{FileType, Stat};

use super::requests::entry::{Entry, EntryType};

impl Entry {
    /// Something of this name and status.
    pub(super) fn of(name: &[u8], stat: &Stat) -> Self {
        let sort = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryType::File,
            FileType::Directory => EntryType::Directory,
            FileType::Symlink => EntryType::Link,
            _ => EntryType::Other,
        };
        #[allow(clippy::unnecessary_cast, reason = "their widths differ between systems")]
        let (seconds, mode) = (stat.st_mtime as i64, stat.st_mode as u32 & 0o7777);
        let length = u64::try_from(stat.st_size).unwrap_or(0);
        let on_disk = u64::try_from(stat.st_blocks).unwrap_or(u64::MAX).saturating_mul(512);
        Self {
            name: name.to_vec(),
            sort,
            length,
            data: if sort == EntryType::File { length.min(on_disk) } else { length },
            modified: (seconds, u32::try_from(stat.st_mtime_nsec).unwrap_or(0)),
            mode,
        }
    }
}
