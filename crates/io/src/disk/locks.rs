//! The locks of directories in use: by flock(2), and where a file system has no locks (Lustre,
//! NFS), by a file that names the process. Nothing is known of a process on another host, so its
//! directories count as in use. No lock is waited for.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::disk::fault_injection::{self, Call};

/// The file that names the process.
pub(crate) const HOLDER: &str = "holder";
/// The most bytes of it that are read.
const HOLDER_BYTES: u64 = 400;
/// How often a lock is tried again that was just taken over or released.
const TRIES: u32 = 8;

/// A held lock, until it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    /// Where the file system has no locks: the directory with the file.
    named: Option<OwnedFd>,
}

impl Hold {
    /// Whether it is no lock of the file system.
    pub(crate) fn is_by_name(&self) -> bool {
        self.named.is_some()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(directory) = &self.named {
            // It may be gone with all else that was there.
            let _ = rustix::fs::unlinkat(directory, HOLDER, AtFlags::empty());
        }
    }
}

/// Locks a directory, with this lock file in it; `None` if a living process has it. `look`: nothing
/// is written there.
pub(crate) fn take(
    directory: &OwnedFd,
    file: impl AsFd,
    look: bool,
) -> Result<Option<Hold>, Errno> {
    match lock(directory, file) {
        Ok(()) => Ok(Some(Hold { named: None })),
        Err(error) if is_lockless(error) && look => {
            let free = !is_alive(&read(directory, HOLDER)?);
            Ok(free.then_some(Hold { named: None }))
        }
        Err(error) if is_lockless(error) => take_by_name(directory),
        Err(_) => Ok(None),
    }
}

/// Whether a living process has a directory.
pub(crate) fn is_taken(directory: &OwnedFd, file: impl AsFd) -> bool {
    match lock(directory, file) {
        Ok(()) => false,
        Err(error) if is_lockless(error) => {
            read(directory, HOLDER).is_ok_and(|holder| is_alive(&holder))
        }
        Err(error) => error == Errno::WOULDBLOCK,
    }
}

fn lock(directory: &OwnedFd, file: impl AsFd) -> Result<(), Errno> {
    fault_injection::at_handle(directory, Call::Lock)?;
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)
}

fn is_lockless(error: Errno) -> bool {
    matches!(error, Errno::NOSYS | Errno::NOLCK | Errno::NOTSUP)
}

fn take_by_name(directory: &OwnedFd) -> Result<Option<Hold>, Errno> {
    for _ in 0..TRIES {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::openat(directory, HOLDER, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => {
                let named = Some(directory.as_fd().try_clone_to_owned().map_err(|_| Errno::IO)?);
                let hold = Hold { named };
                File::from(file).write_all(own().as_bytes()).map_err(|_| Errno::IO)?;
                return Ok(Some(hold));
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        let holder = read(directory, HOLDER)?;
        // A file that was just made is empty at first.
        if is_alive(&holder) || holder.is_empty() {
            return Ok(None);
        }
        if !remove_dead(directory, &holder)? {
            return Ok(None);
        }
    }
    Ok(None)
}

/// Removes the file of a dead process; false if another process has put its own there meanwhile.
fn remove_dead(directory: &OwnedFd, dead: &str) -> Result<bool, Errno> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|_| Errno::IO)?;
    let aside = format!("{HOLDER}.{:016x}", u64::from_be_bytes(random));
    match rustix::fs::renameat(directory, HOLDER, directory, &aside) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(true),
        Err(error) => return Err(error),
    }
    let is_dead = read(directory, &aside)? == dead;
    if !is_dead {
        // It goes back, unless it has been replaced in the meantime.
        let _ = rustix::fs::linkat(directory, &aside, directory, HOLDER, AtFlags::empty());
    }
    rustix::fs::unlinkat(directory, &aside, AtFlags::empty())?;
    Ok(is_dead)
}

/// The content of a file; empty if it does not exist.
fn read(directory: &OwnedFd, name: &str) -> Result<String, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(String::new()),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(HOLDER_BYTES).read_to_string(&mut text).map_err(|_| Errno::IO)?;
    Ok(text)
}

/// The content of this process's file: its host, its number, and its start time.
fn own() -> String {
    let process = std::process::id();
    format!("{}\n{process}\n{}\n", host(), started(process).unwrap_or_default())
}

/// Whether a process that wrote this lives, as far as can be known.
fn is_alive(holder: &str) -> bool {
    let mut lines = holder.lines();
    let (Some(there), Some(process), began) = (lines.next(), lines.next(), lines.next()) else {
        return false;
    };
    let Ok(process) = process.parse() else { return true };
    there != host() || started(process).is_some_and(|start| Some(&start[..]) == began)
}

/// When a process was started, if there is one of this number.
#[cfg(target_os = "linux")]
fn started(process: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Its name, in parentheses, may be anything.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19).map(str::to_owned)
}

#[cfg(not(target_os = "linux"))]
fn started(process: u32) -> Option<String> {
    let process = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw)?;
    // One of another user cannot be asked, and is there.
    let gone = rustix::process::test_kill_process(process) == Err(Errno::SRCH);
    (!gone).then(String::new)
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::fault_injection::{Fault, forget, plan};

    #[test]
    fn without_file_locks_a_file_names_the_process() {
        for why in [Errno::NOSYS, Errno::NOLCK, Errno::NOTSUP] {
            let place = tempfile::tempdir().expect("a directory");
            plan(place.path(), Call::Lock, 0, u32::MAX, Fault::Error(why));
            let directory = OwnedFd::from(File::open(place.path()).expect("opened"));
            let file = File::create(place.path().join("README")).expect("made");
            let take = |look| take(&directory, &file, look).expect("asked");
            assert!(!is_taken(&directory, &file) && take(true).is_some());
            let hold = take(false).expect("free");
            assert!(hold.is_by_name() && is_taken(&directory, &file));
            assert!(take(false).is_none() && take(true).is_none());
            drop(hold);
            assert!(!is_taken(&directory, &file) && !place.path().join(HOLDER).exists());
            // A process that is gone, one that has its number by now, and one of another host.
            let dead = format!("{}\n4194305\n1\n", host());
            let other = format!("{}\n{}\n1\n", host(), std::process::id());
            let far = "some-other-host\n1\n1\n".to_owned();
            for (holder, free) in [(dead, true), (other, cfg!(target_os = "linux")), (far, false)] {
                std::fs::write(place.path().join(HOLDER), &holder).expect("written");
                assert_eq!(is_taken(&directory, &file), !free, "{holder}");
                assert_eq!(take(true).is_some(), free, "{holder}");
                assert_eq!(take(false).is_some(), free, "{holder}");
                let left = std::fs::read_dir(place.path()).expect("listed").count();
                assert_eq!(left, if free { 1 } else { 2 }, "{holder}");
            }
            forget(place.path());
        }
    }
}
