//! What an error comes to: of what kind it is, which number stands for it, and whether the same
//! transfer may be tried again. For programs that decide; people read the error itself.

use std::io::ErrorKind;

use netblt_proto::api::Reason;

use crate::error::{Denial, Error};

/// Of what kind an [`Error`] is. More kinds may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// What was asked for makes no sense: options, ticket, what is to be sent.
    Usage,
    /// The other end broke the protocol, or says that this one did.
    Protocol,
    /// The other end refused.
    Refused,
    /// This machine lacks memory or threads.
    Resources,
    /// A socket could not be opened or used.
    Socket,
    /// A file could not be read, written or created, or exists, or there is no room for it.
    File,
    /// The other end stopped, or vanished.
    Lost,
    /// It was cancelled here.
    Stopped,
    /// What arrived is not what was sent.
    Unverified,
    /// The other end fell silent, or nothing moved on.
    Silent,
    /// Nobody answered, or nobody came.
    Unreached,
    /// A mistake of this library.
    Fault,
}

impl Kind {
    /// The exit code of the program `netblt` for it, from 1 to 35; some kinds share one.
    pub const fn number(self) -> u8 {
        match self {
            Self::Usage => 1,
            Self::Protocol => 2,
            Self::Refused | Self::Resources => 5,
            Self::Socket => 10,
            Self::File => 11,
            Self::Lost => 12,
            Self::Stopped => 20,
            Self::Unverified | Self::Fault => 23,
            Self::Silent => 30,
            Self::Unreached => 35,
        }
    }
}

impl Error {
    /// Of what kind it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Options(_)
            | Self::Unsendable(_)
            | Self::SeveralFiles
            | Self::OneName
            | Self::NoAddress { .. }
            | Self::OutOfReach { .. }
            | Self::Ticket(_) => Kind::Usage,
            Self::File { .. }
            | Self::Exists(_)
            | Self::Name { .. }
            | Self::TooMuch { .. }
            | Self::NoRoom { .. }
            | Self::Stranded { .. }
            | Self::Unseen(_) => Kind::File,
            Self::ServerKey { .. } => Kind::Refused,
            Self::Memory { .. } | Self::Thread { .. } => Kind::Resources,
            Self::Content(_) => Kind::Protocol,
            Self::Socket { .. } | Self::DatagramSize { .. } => Kind::Socket,
            Self::Unresolved { .. } | Self::Alone(_) => Kind::Unreached,
            Self::Connect { reason, .. } => unconnected(reason),
            Self::Ended(reason) => ended(reason),
            // A death of the other side's program, and none of this side's doing.
            Self::Restarted(_) => Kind::Lost,
            Self::NotVerified(_) => Kind::Unverified,
            Self::Denied { what: Denial::Busy, .. } => Kind::Refused,
            Self::Denied { what: Denial::NotUnderstood, .. } => Kind::Protocol,
            Self::Denied { .. } => Kind::File,
            Self::Interrupted | Self::Unconfirmed | Self::Unfinished => Kind::Stopped,
            Self::Fault(_) => Kind::Fault,
        }
    }

    /// Whether the same transfer may go well if it is tried again, with nothing changed but time:
    /// of a path, a peer or a resource that may be back, yes; of what is wrong with the request,
    /// the files or the peer's program, no.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Ended(Reason::PeerQuit(words)) => !words.starts_with(REFUSED_WORD),
            Self::File { source, .. } | Self::Socket { source, .. } => passes(source.kind()),
            Self::Stranded { error, .. } => error.is_retryable(),
            Self::DatagramSize { .. } => false,
            _ => match self.kind() {
                Kind::Resources
                | Kind::Refused
                | Kind::Lost
                | Kind::Unverified
                | Kind::Silent
                | Kind::Unreached => true,
                Kind::Usage
                | Kind::Protocol
                | Kind::Socket
                | Kind::File
                | Kind::Stopped
                | Kind::Fault => false,
            },
        }
    }
}

/// How the words begin of a receiver that takes nothing of what is offered
/// (`docs/protocol.md §8.6`).
pub(crate) const REFUSED_WORD: &str = "refused: ";

/// Whether what the system says may be otherwise soon.
fn passes(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::AddrInUse
            | ErrorKind::AddrNotAvailable
            | ErrorKind::HostUnreachable
            | ErrorKind::Interrupted
            | ErrorKind::NetworkDown
            | ErrorKind::NetworkUnreachable
            | ErrorKind::OutOfMemory
            | ErrorKind::ResourceBusy
            | ErrorKind::StaleNetworkFileHandle
            | ErrorKind::TimedOut
            | ErrorKind::WouldBlock
    )
}

fn unconnected(reason: &Reason) -> Kind {
    match reason {
        Reason::Refused(_) | Reason::NoAnswer { hint: Some(_), .. } => Kind::Refused,
        Reason::Violation(_) | Reason::PeerAborted(_) => Kind::Protocol,
        _ => Kind::Unreached,
    }
}

fn ended(reason: &Reason) -> Kind {
    match reason {
        Reason::Violation(_) | Reason::PeerAborted(_) => Kind::Protocol,
        Reason::DeathTimer | Reason::Stalled(_) => Kind::Silent,
        // A receiver without room, for one: its program is well, and has said so.
        Reason::PeerQuit(words) if words.starts_with(REFUSED_WORD) => Kind::Refused,
        Reason::Refused(_) => Kind::Refused,
        Reason::NoAnswer { .. } => Kind::Unreached,
        Reason::Quit => Kind::Stopped,
        Reason::PeerQuit(_) | Reason::Unreachable | Reason::Forgotten => Kind::Lost,
        Reason::Finished => Kind::Unverified,
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
    fn what_may_pass_is_tried_again_and_nothing_else() {
        let file = |kind| {
            let source = io::Error::from(kind);
            Error::File { path: "x".into(), what: "open", source }
        };
        let connect = |reason| Error::Connect { peer: String::new(), wire: Wire::Sealed, reason };
        let no_answer = Reason::NoAnswer { hint: None, unreachable: true };
        let quit = |words: &str| Error::Ended(Reason::PeerQuit(words.to_owned()));
        for (error, number, again) in [
            (file(ErrorKind::PermissionDenied), 11, false),
            (file(ErrorKind::StorageFull), 11, false),
            (file(ErrorKind::StaleNetworkFileHandle), 11, true),
            (Error::Exists("x".into()), 11, false),
            (Error::Unsendable(Unsendable::Nothing), 1, false),
            (Error::Memory { count: 1, bytes: 1 }, 5, true),
            (Error::Alone(Duration::ZERO), 35, true),
            (connect(no_answer), 35, true),
            (connect(Reason::Refused("busy".to_owned())), 5, true),
            (connect(Reason::Violation("x")), 2, false),
            (quit("interrupted"), 12, true),
            (quit("refused: there is no room"), 5, false),
            (Error::Ended(Reason::DeathTimer), 30, true),
            (Error::Ended(Reason::Forgotten), 12, true),
            (Error::NotVerified(String::new()), 23, true),
            (Error::Interrupted, 20, false),
            (Error::Fault("x"), 23, false),
        ] {
            assert_eq!((error.kind().number(), error.is_retryable()), (number, again), "{error:?}");
        }
    }
}
