//! Removes files, links and directories, and what broken transfers left (*remove*).

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, Dir};
use rustix::io::Errno;

use super::answer::done;
use super::context::HandlerContext;
use super::place::MAX_DOWN;
use crate::cancel::Cancel;
use crate::disk::safe_open;
use crate::disk::sites;
use crate::disk::staging::{self, Open, Staging};
use crate::error::RequestErrorKind;
use crate::request_error::RequestError;
use crate::serve::requests::remove::RemoveRequest;
use crate::serve::response::Done;

/// Most names in memory at once while a directory is removed.
const AT_ONCE: usize = 1024;

/// Removes what is at the path.
pub(super) fn perform(
    remove: &RemoveRequest,
    path: &[u8],
    root: &OwnedFd,
    with: &HandlerContext<'_>,
) -> Result<Done, RequestError> {
    let RemoveRequest { directory, tree } = *remove;
    done(remove_at(root, path, directory, tree, with.cancel)?, with.layout)
}

/// Whether the path is that of the parts of a transfer with a label, or of the ranges of a file.
pub(super) fn is_left(remove: &RemoveRequest, path: &[u8]) -> bool {
    let (parent, leaf) = safe_open::split(path);
    let own = staging::has_ours(parent);
    remove.tree && (staging::label_of(leaf).is_some() || staging::is_ranges(leaf)) && !own
}

/// Removes what is at the path. Returns how many entries were removed.
fn remove_at(
    root: &OwnedFd,
    path: &[u8],
    directory: bool,
    tree: bool,
    cancel: &Cancel,
) -> Result<u64, RequestError> {
    if path.is_empty() {
        return Err(RequestError::new(
            RequestErrorKind::Forbidden,
            "the root itself is not removed",
        ));
    }
    let (parent, leaf) = safe_open::split(path);
    let parent = safe_open::directory(root.as_fd(), parent)?;
    let stat = safe_open::status(&parent, leaf)?.ok_or_else(|| io::Error::from(Errno::NOENT))?;
    if let Some(label) = staging::label_of(leaf) {
        let kept = Staging::keep(&parent, &staging::kept_name(Some(&label)), Open::There)?;
        let used = || {
            RequestError::new(
                RequestErrorKind::Busy,
                "a transfer is using it, or it is another user's",
            )
        };
        sites::remove_home(kept.ok_or_else(used)?, &parent, &parent);
        return Ok(1);
    }
    if staging::is_ranges(leaf) {
        crate::disk::ranges::remove(&parent, leaf)?;
        return Ok(1);
    }
    let name = OsStr::from_bytes(leaf);
    let mut count = 0;
    let flags = match (safe_open::is_directory(&stat), directory || tree) {
        (false, _) => AtFlags::empty(),
        (true, true) => AtFlags::REMOVEDIR,
        (true, false) => {
            return Err(RequestError::new(RequestErrorKind::IsADirectory, "it is a directory"));
        }
    };
    if tree && flags == AtFlags::REMOVEDIR {
        clear(&safe_open::directory(parent.as_fd(), leaf)?, MAX_DOWN, &mut count, cancel)?;
    }
    rustix::fs::unlinkat(&parent, name, flags).map_err(io::Error::from)?;
    Ok(count + 1)
}

/// Removes the contents of a directory. Links in it are removed, and their targets are not touched.
fn clear(
    directory: &OwnedFd,
    down: u32,
    count: &mut u64,
    cancel: &Cancel,
) -> Result<(), RequestError> {
    if down == 0 {
        return Err(RequestError::new(
            RequestErrorKind::Failed,
            "the directories in it are too many levels deep",
        ));
    }
    loop {
        // A directory may have millions of names. This is how many are in memory at a time.
        let names = Dir::read_from(directory).map_err(io::Error::from)?;
        let names = names.flatten().map(|found| found.file_name().to_bytes().to_vec());
        let names = names.filter(|name| !matches!(&name[..], b"." | b".."));
        let names: Vec<Vec<u8>> = names.take(AT_ONCE).collect();
        if names.is_empty() {
            return Ok(());
        }
        names.iter().try_for_each(|name| clear_one(directory, name, down, count, cancel))?;
    }
}

fn clear_one(
    directory: &OwnedFd,
    name: &[u8],
    down: u32,
    count: &mut u64,
    cancel: &Cancel,
) -> Result<(), RequestError> {
    if cancel.is_cancelled() {
        return Err(RequestError::new(RequestErrorKind::Failed, "interrupted"));
    }
    let leaf = OsStr::from_bytes(name);
    match rustix::fs::unlinkat(directory, leaf, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {
            let below = safe_open::directory(directory.as_fd(), name)?;
            clear(&below, down - 1, count, cancel)?;
            let gone = rustix::fs::unlinkat(directory, leaf, AtFlags::REMOVEDIR);
            gone.map_err(io::Error::from)?;
        }
        Err(Errno::NOENT) | Ok(()) => {}
        Err(error) => return Err(io::Error::from(error).into()),
    }
    *count += 1;
    Ok(())
}
