//! The directory of a file's ranges (`docs/protocol §8.9`): it has the file, with its full
//! length from the beginning, and a name for each complete range.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use netblt_proto::content::FileRange;
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use crate::disk::staging::{self, Open, ranges_name};
use crate::disk::{flush, safe_open};

/// The file.
pub(crate) const WHOLE: &str = "whole";

/// The name of a range that is there.
pub(crate) fn leaf(range: FileRange) -> String {
    format!("{:016x}-{:x}", range.offset, range.length)
}

/// Opens the directory, or makes it, and sees to it that the file is there.
pub(crate) fn open(parent: &OwnedFd, label: &[u8; 32], total: u64) -> io::Result<OwnedFd> {
    let name = ranges_name(label);
    match rustix::fs::mkdirat(parent, &name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let directory = safe_open::directory(parent.as_fd(), name.as_bytes())?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = rustix::fs::openat(&directory, WHOLE, flags | OFlags::NONBLOCK, mode)?;
    let stat = rustix::fs::fstat(&file)?;
    let length = u64::try_from(stat.st_size).unwrap_or(0);
    if !safe_open::is_file(&stat) || length > total {
        return Err(io::Error::other("what is there of this file is not of this length"));
    }
    // Several processes may do this at once, each with the same result.
    if length < total {
        has_links(&directory)?;
        rustix::fs::ftruncate(&file, total)?;
        flush::sync(&file)?;
        flush::directory(&directory)?;
    }
    Ok(directory)
}

/// A range is another name of the file.
fn has_links(directory: &OwnedFd) -> io::Result<()> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|_| Errno::IO)?;
    let other = format!("{WHOLE}-{:016x}", u64::from_be_bytes(random));
    match rustix::fs::linkat(directory, WHOLE, directory, &other, AtFlags::empty()) {
        Ok(()) => Ok(rustix::fs::unlinkat(directory, &other, AtFlags::empty())?),
        Err(Errno::PERM | Errno::NOTSUP | Errno::NOSYS | Errno::MLINK) => {
            let why = "the file system has no hard links, so no file is put in ranges there";
            Err(io::Error::other(why))
        }
        Err(error) => Err(error.into()),
    }
}

/// The directory and the file in it, if all its ranges of so many bytes are complete; or the number
/// of a missing one.
pub(crate) fn whole(
    parent: &OwnedFd,
    label: &[u8; 32],
    total: u64,
    bytes: u64,
) -> io::Result<Result<(OwnedFd, OwnedFd), FileRange>> {
    let directory = safe_open::directory(parent.as_fd(), ranges_name(label).as_bytes())?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::openat(&directory, WHOLE, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    for range in FileRange::all(total, bytes) {
        let there = safe_open::status(&directory, leaf(range).as_bytes())?;
        let same =
            there.is_some_and(|there| (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino));
        if !same {
            return Ok(Err(range));
        }
    }
    let right = safe_open::is_file(&stat) && u64::try_from(stat.st_size) == Ok(total);
    if !right {
        return Err(io::Error::other("what is there of this file is not of this length"));
    }
    Ok(Ok((directory, file)))
}

/// The names of such directories in a directory.
pub(crate) fn names(parent: &OwnedFd) -> Vec<Vec<u8>> {
    let Ok(listing) = Dir::read_from(parent) else { return Vec::new() };
    let names = listing.flatten().map(|entry| entry.file_name().to_bytes().to_vec());
    names.filter(|name| staging::is_ranges(name)).collect()
}

/// Bytes on the disk in such a directory, and when something was added last.
pub(crate) fn room(parent: &OwnedFd, leaf: &[u8]) -> io::Result<(u64, SystemTime)> {
    let directory = safe_open::directory(parent.as_fd(), leaf)?;
    let file = safe_open::status(&directory, WHOLE.as_bytes())?;
    let stat = match file {
        Some(stat) => stat,
        None => rustix::fs::fstat(&directory)?,
    };
    let modified = u64::try_from(stat.st_mtime).unwrap_or(0);
    let bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
    Ok((bytes, UNIX_EPOCH + Duration::from_secs(modified)))
}

/// Removes such a directory with its contents. One in use stays, and is an error.
pub(crate) fn remove(parent: &OwnedFd, leaf: &[u8]) -> io::Result<()> {
    let directory = safe_open::directory(parent.as_fd(), leaf)?;
    let entries: Vec<Vec<u8>> = Dir::read_from(&directory)?
        .flatten()
        .map(|entry| entry.file_name().to_bytes().to_vec())
        .filter(|name| !matches!(&name[..], b"." | b".."))
        .collect();
    for name in &entries {
        if let Some(label) = staging::label_of(name) {
            let kept =
                staging::Staging::keep(&directory, &staging::kept_name(Some(&label)), Open::There)?;
            kept.ok_or(Errno::BUSY)?.remove(&directory);
        }
    }
    for name in entries.iter().filter(|name| staging::label_of(name).is_none()) {
        match rustix::fs::unlinkat(&directory, OsStr::from_bytes(name), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(rustix::fs::unlinkat(parent, OsStr::from_bytes(leaf), AtFlags::REMOVEDIR)?)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn a_file_is_whole_when_all_its_ranges_have_their_names() {
        let place = tempfile::tempdir().expect("a directory");
        let parent = OwnedFd::from(File::open(place.path()).expect("opened"));
        let (label, total, bytes) = ([7; 32], 5000, 2048);
        assert!(whole(&parent, &label, total, bytes).is_err());
        open(&parent, &label, total).expect("made");
        open(&parent, &label, total).expect("there");
        assert!(open(&parent, &label, total - 1).is_err());
        let own = place.path().join(ranges_name(&label));
        assert_eq!(fs::metadata(own.join(WHOLE)).expect("the file").len(), total);
        for range in FileRange::all(total, bytes) {
            let found = whole(&parent, &label, total, bytes).expect("looked at");
            assert_eq!(found.err(), Some(range));
            // Another file under the name of a range is none.
            fs::write(own.join(leaf(range)), "x").expect("written");
            let found = whole(&parent, &label, total, bytes).expect("looked at");
            assert_eq!(found.err(), Some(range));
            fs::remove_file(own.join(leaf(range))).expect("removed");
            fs::hard_link(own.join(WHOLE), own.join(leaf(range))).expect("a name");
        }
        assert!(whole(&parent, &label, total, bytes).expect("looked at").is_ok());
        assert_eq!(names(&parent), [ranges_name(&label).into_bytes()]);
        assert!(staging::is_ours(ranges_name(&label).as_bytes()));
        assert!(room(&parent, &names(&parent)[0]).expect("looked at").1 <= SystemTime::now());
        let label = Some([1; 32]);
        let directory = OwnedFd::from(File::open(&own).expect("opened"));
        let inner = staging::kept_name(label.as_ref());
        let held =
            staging::Staging::keep(&directory, &inner, Open::Made).expect("made").expect("free");
        assert!(remove(&parent, &names(&parent)[0]).is_err() && own.join(WHOLE).exists());
        held.leave();
        remove(&parent, &names(&parent)[0]).expect("removed");
        assert!(!own.exists());
    }
}
