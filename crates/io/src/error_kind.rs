//! The kind of an error: its number, and whether the same transfer may be tried again. It is for
//! programs that decide; people read the error itself.

use std::io;

use netblt_proto::api::CloseReason;

use crate::error::{Error, RequestErrorKind};
use crate::exit_code::ExitCode;

/// The kind of an [`Error`]. More kinds may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request is invalid: options, ticket, files to send.
    Usage,
    /// The other end broke the protocol, or reports that this one did.
    Protocol,
    /// The other end refused.
    Refused,
    /// This machine lacks memory or threads.
    Resources,
    /// A socket could not be opened or used.
    Socket,
    /// A file could not be read, written or created, or exists, or there is no room for it.
    File,
    /// A mirror would remove too much.
    Removals,
    /// The other end stopped, or vanished.
    Lost,
    /// It was cancelled here.
    Stopped,
    /// The received data differ from those that were sent.
    Unverified,
    /// The other end fell silent, or nothing moved on.
    Silent,
    /// No answer came, or no peer connected.
    Unreached,
    /// A mistake of this library.
    Fault,
}

impl ErrorKind {
    /// The exit code of the programs for it; some kinds share one.
    pub const fn exit_code(self) -> ExitCode {
        match self {
            Self::Usage => ExitCode::Usage,
            Self::Protocol => ExitCode::Protocol,
            Self::Refused | Self::Resources => ExitCode::Start,
            Self::Socket => ExitCode::Socket,
            Self::File => ExitCode::File,
            Self::Removals => ExitCode::Removals,
            Self::Lost => ExitCode::Stream,
            Self::Stopped => ExitCode::Signal,
            Self::Silent => ExitCode::Timeout,
            Self::Unreached => ExitCode::Connect,
            Self::Unverified => ExitCode::Unverified,
            Self::Fault => ExitCode::Internal,
        }
    }
}

impl Error {
    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Options(_)
            | Self::Unsendable(_)
            | Self::SeveralFiles
            | Self::OneName
            | Self::NoAddress { .. }
            | Self::OutOfReach { .. }
            | Self::Ticket(_) => ErrorKind::Usage,
            Self::File { .. }
            | Self::Exists(_)
            | Self::Name { .. }
            | Self::TooMuch { .. }
            | Self::NoRoom { .. }
            | Self::Stranded { .. }
            | Self::Unseen(_) => ErrorKind::File,
            Self::TooManyRemovals { .. } => ErrorKind::Removals,
            Self::ServerKey { .. } => ErrorKind::Refused,
            Self::Memory { .. } | Self::Thread { .. } => ErrorKind::Resources,
            Self::Content(_) => ErrorKind::Protocol,
            Self::Socket { .. } | Self::DatagramSize { .. } => ErrorKind::Socket,
            Self::Unresolved { .. } | Self::Alone(_) => ErrorKind::Unreached,
            Self::Connect { reason, .. } => unconnected(reason),
            Self::Ended(reason) => ended(reason),
            // A death of the other side's program, and none of this side's doing.
            Self::Restarted(_) => ErrorKind::Lost,
            Self::NotVerified(_) | Self::Unexpected { .. } => ErrorKind::Unverified,
            Self::Denied { what: RequestErrorKind::Busy, .. } => ErrorKind::Refused,
            Self::Denied { what: RequestErrorKind::NotUnderstood, .. } => ErrorKind::Protocol,
            Self::Denied { .. } => ErrorKind::File,
            Self::Interrupted | Self::Unconfirmed | Self::Unfinished => ErrorKind::Stopped,
            Self::Fault(_) => ErrorKind::Fault,
        }
    }

    /// Whether the same transfer may succeed if it is tried again later, unchanged. It may after a
    /// failure of a path, a peer or a resource that may be back. It cannot if the request, the
    /// files or the peer's program are wrong.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Ended(CloseReason::PeerQuit(words)) => !words.starts_with(REFUSED_WORD),
            Self::File { source, .. } | Self::Socket { source, .. } => passes(source.kind()),
            Self::Stranded { error, .. } => error.is_retryable(),
            Self::DatagramSize { .. } | Self::Unexpected { .. } => false,
            _ => match self.kind() {
                ErrorKind::Resources
                | ErrorKind::Refused
                | ErrorKind::Lost
                | ErrorKind::Unverified
                | ErrorKind::Silent
                | ErrorKind::Unreached => true,
                ErrorKind::Usage
                | ErrorKind::Protocol
                | ErrorKind::Socket
                | ErrorKind::File
                | ErrorKind::Removals
                | ErrorKind::Stopped
                | ErrorKind::Fault => false,
            },
        }
    }
}

/// The start of the words of a receiver that refuses the files (`docs/protocol §8.6`).
pub(crate) const REFUSED_WORD: &str = "refused: ";

/// Whether the system's error may pass soon.
fn passes(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::AddrInUse
            | io::ErrorKind::AddrNotAvailable
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::Interrupted
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::OutOfMemory
            | io::ErrorKind::ResourceBusy
            | io::ErrorKind::StaleNetworkFileHandle
            | io::ErrorKind::TimedOut
            | io::ErrorKind::WouldBlock
    )
}

fn unconnected(reason: &CloseReason) -> ErrorKind {
    match reason {
        CloseReason::Refused(_) | CloseReason::NoAnswer { hint: Some(_), .. } => ErrorKind::Refused,
        CloseReason::Violation(_) | CloseReason::PeerAborted(_) => ErrorKind::Protocol,
        _ => ErrorKind::Unreached,
    }
}

fn ended(reason: &CloseReason) -> ErrorKind {
    match reason {
        CloseReason::Violation(_) | CloseReason::PeerAborted(_) => ErrorKind::Protocol,
        CloseReason::DeathTimer | CloseReason::Stalled(_) => ErrorKind::Silent,
        // For example a receiver without space: its program works, and has said so.
        CloseReason::PeerQuit(words) if words.starts_with(REFUSED_WORD) => ErrorKind::Refused,
        CloseReason::Refused(_) => ErrorKind::Refused,
        CloseReason::NoAnswer { .. } => ErrorKind::Unreached,
        CloseReason::Quit => ErrorKind::Stopped,
        CloseReason::PeerQuit(_) | CloseReason::Unreachable | CloseReason::Forgotten => {
            ErrorKind::Lost
        }
        CloseReason::Finished => ErrorKind::Unverified,
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use netblt_proto::config::Wire;

    use super::*;
    use crate::error::Unsendable;

    #[test]
    fn only_passing_errors_are_retried() {
        let file = |kind| {
            let source = io::Error::from(kind);
            Error::File { path: "x".into(), what: "open", source }
        };
        let connect = |reason| Error::Connect { peer: String::new(), wire: Wire::Sealed, reason };
        let no_answer = CloseReason::NoAnswer { hint: None, unreachable: true };
        let quit = |words: &str| Error::Ended(CloseReason::PeerQuit(words.to_owned()));
        for (error, number, again) in [
            (file(io::ErrorKind::PermissionDenied), 11, false),
            (file(io::ErrorKind::StorageFull), 11, false),
            (file(io::ErrorKind::StaleNetworkFileHandle), 11, true),
            (Error::Exists("x".into()), 11, false),
            (Error::Unsendable(Unsendable::Nothing), 1, false),
            (Error::Memory { count: 1, bytes: 1 }, 5, true),
            (Error::Alone(Duration::ZERO), 35, true),
            (connect(no_answer), 35, true),
            (connect(CloseReason::Refused("busy".to_owned())), 5, true),
            (connect(CloseReason::Violation("x")), 2, false),
            (quit("interrupted"), 12, true),
            (quit("refused: there is no room"), 5, false),
            (Error::Ended(CloseReason::DeathTimer), 30, true),
            (Error::Ended(CloseReason::Forgotten), 12, true),
            (Error::NotVerified(String::new()), 65, true),
            (Error::Unexpected { name: Vec::new(), why: String::new() }, 65, false),
            (Error::Interrupted, 20, false),
            (Error::Fault("x"), 70, false),
        ] {
            assert_eq!(
                (error.kind().exit_code().number(), error.is_retryable()),
                (number, again),
                "{error:?}"
            );
        }
    }
}
