//! The library's errors as Python's: which class of `netblt.errors` stands for which, and with
//! which `errno`.

use std::io;

use netblt::{CloseReason, Error, ErrorKind, ExitCode, RequestErrorKind};
use pyo3::prelude::*;

// Of errors that no call of the system's has said; Linux's numbers.
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;
const ENOTEMPTY: i32 = 39;
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EPERM: i32 = 1;
const ECONNABORTED: i32 = 103;
const ECONNRESET: i32 = 104;
const ETIMEDOUT: i32 = 110;
const ECONNREFUSED: i32 = 111;
const EHOSTUNREACH: i32 = 113;

/// The exception for an error: of the package, and of Python's own kind. `sending`: data may have
/// left already.
pub(crate) fn raised(py: Python<'_>, error: &Error, sending: bool) -> PyErr {
    let (class, errno) = class(error);
    let vanished = sending && class == "NotFoundError";
    let code = if vanished { ExitCode::Vanished } else { error.kind().exit_code() }.number();
    let filename = match error {
        // As `os.fsdecode` has it, where it is not text.
        Error::File { path, .. } | Error::Exists(path) => Some(path.as_os_str()),
        _ => None,
    };
    let make = || {
        let class = py.import("netblt.errors")?.getattr(class)?;
        class.call1((error.to_string(), code, error.is_retryable(), errno, filename))
    };
    match make() {
        Ok(exception) => PyErr::from_value(exception),
        Err(failed) => failed,
    }
}

/// Its class, and the number of the system's error.
fn class(error: &Error) -> (&'static str, Option<i32>) {
    match error {
        Error::File { source, .. } => of_file(source),
        Error::Denied { what, .. } => of_server(*what),
        Error::Exists(_) => ("ExistsError", Some(EEXIST)),
        Error::NoRoom { .. } => ("NoRoomError", Some(ENOSPC)),
        Error::TooMuch { .. } => ("FileError", Some(EFBIG)),
        Error::Name { .. } => ("FileError", Some(EPERM)),
        Error::Stranded { error, .. } => class(error),
        Error::Memory { .. } => ("MemoryShortError", None),
        Error::Socket { source, .. } | Error::Thread { source, .. } => {
            ("SystemCallError", source.raw_os_error())
        }
        Error::Unresolved { .. } => ("UnreachableError", Some(EHOSTUNREACH)),
        Error::Alone(_) => ("SilentError", Some(ETIMEDOUT)),
        Error::Connect { reason, .. } => match (error.kind(), reason) {
            (ErrorKind::Refused, _) => ("RefusedError", Some(ECONNREFUSED)),
            (ErrorKind::Protocol, _) => ("ProtocolError", Some(ECONNABORTED)),
            // The host has answered that nothing listens there.
            (_, CloseReason::NoAnswer { unreachable: true, .. } | CloseReason::Unreachable) => {
                ("RefusedError", Some(ECONNREFUSED))
            }
            _ => ("SilentError", Some(ETIMEDOUT)),
        },
        _ => match error.kind() {
            ErrorKind::Usage => ("UsageError", None),
            ErrorKind::Protocol => ("ProtocolError", Some(ECONNABORTED)),
            ErrorKind::Refused => ("RefusedError", Some(ECONNREFUSED)),
            ErrorKind::Socket | ErrorKind::Resources => ("SystemCallError", None),
            ErrorKind::File => ("FileError", None),
            ErrorKind::Lost => ("LostError", Some(ECONNRESET)),
            ErrorKind::Stopped => ("StoppedError", None),
            ErrorKind::Unverified => ("UnverifiedError", None),
            ErrorKind::Silent => ("SilentError", Some(ETIMEDOUT)),
            ErrorKind::Unreached => ("UnreachableError", Some(EHOSTUNREACH)),
            _ => ("NetbltError", None),
        },
    }
}

/// What a server does not do is mostly what the system would not do here.
fn of_server(what: RequestErrorKind) -> (&'static str, Option<i32>) {
    match what {
        RequestErrorKind::NotFound => ("NotFoundError", Some(ENOENT)),
        RequestErrorKind::Forbidden => ("DeniedError", Some(EACCES)),
        RequestErrorKind::Exists => ("ExistsError", Some(EEXIST)),
        RequestErrorKind::NotADirectory => ("NotADirectoryError", Some(ENOTDIR)),
        RequestErrorKind::IsADirectory => ("IsADirectoryError", Some(EISDIR)),
        RequestErrorKind::NotEmpty => ("FileError", Some(ENOTEMPTY)),
        RequestErrorKind::NoRoom => ("NoRoomError", Some(ENOSPC)),
        RequestErrorKind::Busy => ("RefusedError", Some(ECONNREFUSED)),
        RequestErrorKind::Failed => ("FileError", None),
        _ => ("ProtocolError", Some(ECONNABORTED)),
    }
}

fn of_file(source: &io::Error) -> (&'static str, Option<i32>) {
    let errno = source.raw_os_error();
    match (source.kind(), errno) {
        (io::ErrorKind::NotFound, _) => ("NotFoundError", errno.or(Some(ENOENT))),
        (io::ErrorKind::PermissionDenied, _) => ("DeniedError", errno.or(Some(EACCES))),
        (io::ErrorKind::AlreadyExists, _) => ("ExistsError", errno.or(Some(EEXIST))),
        (io::ErrorKind::StorageFull, _) => ("NoRoomError", errno.or(Some(ENOSPC))),
        _ => ("FileError", errno),
    }
}
