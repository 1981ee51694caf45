//! The directory of the control sockets, which no other user can enter: one socket for each
//! process, named by its number. Each look removes those of processes that are gone.

use std::fs::{self, DirBuilder};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, process};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::{Reply, Request};

/// Longest line that is read, in bytes.
pub(super) const MAX_LINE: u64 = 16 << 10;
/// How long either end waits for the other: both are on this machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// How often a socket is tried in a directory that others remove.
const TRIES: u32 = 10;
/// The end of a socket's name.
const SUFFIX: &str = "sock";

/// The directory; made if it is not there. An error if anybody else could enter it.
fn directory() -> io::Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|path| path.is_absolute() && path.is_dir());
    let path = match runtime {
        Some(path) => path.join("netblt"),
        None => env::temp_dir().join(format!("netblt-{user}")),
    };
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // In a directory for all users, another one may have made it first. A link may lead anywhere.
    let found = fs::symlink_metadata(&path)?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
        let text = format!("{} is not this user's alone", path.display());
        return Err(io::Error::new(ErrorKind::PermissionDenied, text));
    }
    Ok(path)
}

/// This process's socket, and where it is.
pub(super) fn listen() -> io::Result<(UnixListener, PathBuf)> {
    let bind = || {
        let path = directory()?.join(format!("{}.{SUFFIX}", process::id()));
        // It is left over from a process with the same number.
        let _ = fs::remove_file(&path);
        UnixListener::bind(&path).map(|listener| (listener, path))
    };
    for _ in 1..TRIES {
        match bind() {
            // The last process in the directory has removed it meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            bound => return bound,
        }
    }
    bind()
}

/// Removes a socket, and the directory with the last one.
pub(super) fn remove(socket: &Path) {
    let _ = fs::remove_file(socket);
    if let Some(directory) = socket.parent() {
        let _ = fs::remove_dir(directory);
    }
}

/// The processes that have a socket and may live, by their numbers.
pub(crate) fn processes() -> io::Result<Vec<u32>> {
    let directory = directory()?;
    let mut found = Vec::new();
    for entry in fs::read_dir(&directory)? {
        let path = entry?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        if let Some(pid) = number.filter(|_| path.extension().is_some_and(|end| end == SUFFIX)) {
            match UnixStream::connect(&path) {
                // Its process is gone, or does not listen yet.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    if !lives(pid) {
                        remove(&path);
                    }
                }
                Err(_) => {}
                Ok(_) => found.push(pid),
            }
        }
    }
    let _ = fs::remove_dir(&directory);
    found.sort_unstable();
    Ok(found)
}

/// Whether there is such a process, whosever it is.
fn lives(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// Asks the process `pid`.
pub(crate) fn ask(pid: u32, request: &Request) -> io::Result<Reply> {
    let path = directory()?.join(format!("{pid}.{SUFFIX}"));
    let mut stream = UnixStream::connect(path)?;
    put(&mut stream, request)?;
    take(&stream)
}

/// Writes one line.
pub(super) fn put(stream: &mut UnixStream, what: &impl serde::Serialize) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Reads one line.
pub(super) fn take<T: serde::de::DeserializeOwned>(stream: &UnixStream) -> io::Result<T> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_LINE)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}
