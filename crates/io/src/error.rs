//! Why a transfer failed, in words for the user.

use std::io;
use std::path::PathBuf;

use netblt_proto::machine::Reason;

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something on this side's disk.
    #[error("{path}: {what}: {source}", path = path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The destination exists and overwriting was not asked for.
    #[error("{} exists; nothing was written (use --overwrite always to replace it)", .0.display())]
    Exists(PathBuf),
    /// The sender offered a name that must not be created here.
    #[error(
        "the sender offers a file named \"{name}\", which is refused: {why}; nothing was written"
    )]
    Name {
        /// The name, fit for a terminal.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// What the sender says of its files contradicts itself.
    #[error("the sender's description of its files is broken: {0}")]
    Content(&'static str),
    /// The socket could not be opened or used.
    #[error("{what}: {source}")]
    Socket {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// A host name that stands for no address.
    #[error("cannot look up {host}: {source}")]
    Unresolved {
        /// The name, with its port if it has one.
        host: String,
        /// What the system said.
        source: io::Error,
    },
    /// A ticket that is none.
    #[error("this is not a netblt ticket: {0}")]
    Ticket(String),
    /// The connection could not be opened.
    #[error("cannot reach {peer}: {reason}{advice}")]
    Connect {
        /// Where to.
        peer: String,
        /// Why not.
        reason: Reason,
        /// What to do, beginning with a separator, or empty.
        advice: &'static str,
    },
    /// The connection was open and ended before the transfer was verified.
    #[error("the transfer is incomplete: {0}")]
    Ended(Reason),
    /// The bytes that arrived are not the bytes that were sent.
    #[error("not verified: {0}")]
    NotVerified(String),
    /// Something in the options makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The user stopped it.
    #[error("stopped")]
    Interrupted,
}
