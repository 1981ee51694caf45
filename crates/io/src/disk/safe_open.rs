//! Opens files beneath a directory handle, and never outside of it.
//!
//! Every name here is relative to the handle and resolved without following any symbolic link. So
//! an attacker who plants a link or swaps a directory meanwhile leads no transfer elsewhere
//! (`docs/protocol §8.4`). Linux does that in one call, `openat2`. Elsewhere, and where a
//! sandbox forbids that call, it is done part by part.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// A rename during a lookup makes `openat2` return "again". More often than this it is an attack.
const LOOKUPS: u32 = 100;

/// Opens a directory by a path of the user's own, links included.
pub(crate) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// A path to an open file, valid as long as that is open (Linux).
pub(crate) fn path_of(handle: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd()))
}

/// Opens `name` beneath `root`.
pub(crate) fn open(root: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let name = OsStr::from_bytes(name);
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    #[cfg(target_os = "linux")]
    match open_at_once(root, name, flags) {
        Err(Errno::NOSYS | Errno::PERM) => {}
        done => return Ok(done?),
    }
    open_by_parts(root, name, flags)
}

/// Opens the directory `name` beneath `root` for reading, so that it can also be flushed. The empty
/// name is the root itself.
pub(crate) fn directory(root: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    if name.is_empty() {
        return root.try_clone_to_owned();
    }
    open(root, name, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Opens the file `name` beneath `root` for reading. The caller checks its type. Opening a pipe
/// does not wait for its writer.
pub(crate) fn file(root: BorrowedFd<'_>, name: &[u8]) -> io::Result<File> {
    open(root, name, OFlags::RDONLY | OFlags::NONBLOCK).map(File::from)
}

/// Makes a new file. An old one of that name was left by a dead process, or by an archive, and may
/// be another name of a file that matters.
pub(crate) fn create_new(
    directory: &OwnedFd,
    name: impl rustix::path::Arg + Copy,
) -> io::Result<File> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// The symbolic link `name` beneath `root`: its status and its target.
pub(crate) fn link(root: BorrowedFd<'_>, name: &[u8]) -> io::Result<(Stat, Vec<u8>)> {
    let (parent, leaf) = split(name);
    let (parent, leaf) = (directory(root, parent)?, OsStr::from_bytes(leaf));
    let target = rustix::fs::readlinkat(&parent, leaf, Vec::new())?.into_bytes();
    Ok((rustix::fs::statat(&parent, leaf, AtFlags::SYMLINK_NOFOLLOW)?, target))
}

/// The status of `leaf`, one part, in `directory`; `None` if it does not exist. Links are not
/// followed.
pub(crate) fn status(directory: impl AsFd, leaf: &[u8]) -> io::Result<Option<Stat>> {
    match rustix::fs::statat(directory, OsStr::from_bytes(leaf), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a status is that of something that a file may take the place of.
pub(crate) fn is_replaceable(stat: &Stat) -> bool {
    let kind = FileType::from_raw_mode(stat.st_mode);
    matches!(kind, FileType::RegularFile | FileType::Symlink)
}

/// Whether a status is that of a regular file.
pub(crate) fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_file()
}

/// Whether a status is that of a directory.
pub(crate) fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_dir()
}

/// The number of an error of the system's.
pub(crate) fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Whether it is this one.
pub(crate) fn errno_is(error: &io::Error, errno: Errno) -> bool {
    Errno::from_io_error(error) == Some(errno)
}

/// A name as its parent, empty for the root, and its last part.
pub(crate) fn split(name: &[u8]) -> (&[u8], &[u8]) {
    match name.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (name.get(..at).unwrap_or_default(), name.get(at + 1..).unwrap_or_default()),
        None => (&[], name),
    }
}

#[cfg(target_os = "linux")]
fn open_at_once(root: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    use rustix::fs::{ResolveFlags, openat2};
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mut outcome = Err(Errno::AGAIN);
    for _ in 0..LOOKUPS {
        outcome = openat2(root, name, flags, Mode::empty(), resolve);
        if !matches!(outcome, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    outcome
}

/// The same without `openat2`: no part may be a link, and none may lead up.
fn open_by_parts(root: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
    let on_the_way = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let (parents, leaf) = split(name.as_bytes());
    let mut here: Option<OwnedFd> = None;
    for part in parents.split(|byte| *byte == b'/').filter(|_| !parents.is_empty()) {
        let next = open_part(here.as_ref().map_or(root, |fd| fd.as_fd()), part, on_the_way)?;
        here = Some(next);
    }
    open_part(here.as_ref().map_or(root, |fd| fd.as_fd()), leaf, flags)
}

fn open_part(directory: BorrowedFd<'_>, part: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    if matches!(part, b"" | b"." | b"..") || part.contains(&b'/') {
        return Err(Errno::XDEV.into());
    }
    Ok(rustix::fs::openat(directory, OsStr::from_bytes(part), flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn by_parts(root: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        open_by_parts(root, OsStr::from_bytes(name), flags)
    }

    #[test]
    fn no_open_leaves_the_directory() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let inside = dir.path().join("inside");
        fs::create_dir_all(inside.join("a/b")).expect("created");
        fs::write(inside.join("a/b/file"), "x").expect("written");
        fs::write(dir.path().join("secret"), "x").expect("written");
        symlink("../secret", inside.join("link")).expect("linked");
        symlink("..", inside.join("up")).expect("linked");
        symlink("a", inside.join("alias")).expect("linked");
        let root = open_directory(&inside).expect("opened");
        let absolute = dir.path().join("secret");
        let outside: [&[u8]; 6] = [
            b"../secret",
            b"a/../../secret",
            b"link",
            b"up/secret",
            b"alias/b/file",
            absolute.as_os_str().as_bytes(),
        ];
        for name in outside {
            assert!(file(root.as_fd(), name).is_err());
            assert!(by_parts(root.as_fd(), name).is_err());
        }
        assert!(file(root.as_fd(), b"a/b/file").is_ok());
        assert!(by_parts(root.as_fd(), b"a/b/file").is_ok());
        assert!(directory(root.as_fd(), b"a/b").is_ok());
        assert!(directory(root.as_fd(), b"").is_ok());
        assert!(directory(root.as_fd(), b"up").is_err());
    }

    #[test]
    fn a_name_splits_at_its_last_slash() {
        assert_eq!(split(b"a"), (&b""[..], &b"a"[..]));
        assert_eq!(split(b"a/b/c"), (&b"a/b"[..], &b"c"[..]));
    }
}
