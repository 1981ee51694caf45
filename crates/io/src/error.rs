//! Why a transfer failed, in words for the user of the library; a program adds which of its own
//! options would help.

use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use netblt_proto::api::{CloseReason, printable, printable_bytes};
use netblt_proto::config::Wire;

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something on this side's disk.
    #[error("{path}: {what}: {}", system_message(source), path = path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// The action that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The destination exists and overwriting was not asked for.
    #[error("{} exists; nothing was written", .0.display())]
    Exists(PathBuf),
    /// The sender offered a name that must not be created here.
    #[error(
        "the sender offers a file named \"{name}\", which is refused: {why}; nothing was written"
    )]
    Name {
        /// The name, fit for a terminal.
        name: String,
        /// Its error.
        why: &'static str,
    },
    /// The sender offers more than a stream can take.
    #[error(
        "the sender offers several files or a directory, and standard output can take one file \
         only; receive into a directory instead"
    )]
    SeveralFiles,
    /// One name was given, and the sender has more than one file for it.
    #[error("the sender offers several files or a directory, which cannot all have the one name")]
    OneName,
    /// The sender's description of its files is contradictory.
    #[error("the sender's description of its files is broken: {0}")]
    Content(&'static str),
    /// Something cannot be sent.
    #[error(transparent)]
    Unsendable(#[from] Unsendable),
    /// The options contradict each other or the wire.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The sender goes beyond a budget of [`crate::options::Options`].
    #[error("the sender sends more than {most} {what}")]
    TooMuch {
        /// The unit of the bound.
        what: &'static str,
        /// How much was allowed.
        most: u64,
    },
    /// A mirror would remove more than [`crate::mirror::MirrorSettings::max_delete`] allows.
    #[error(
        "{removed} of {entries} entries would be removed, {}; nothing was changed",
        match empty {
            true => "since the source is empty".to_owned(),
            false => format!("and the limit is {limit}"),
        }
    )]
    TooManyRemovals {
        /// Entries that would be removed.
        removed: u64,
        /// Entries of the destination.
        entries: u64,
        /// The limit, a number or a share.
        limit: String,
        /// Whether it is refused because the source has no entries at all.
        empty: bool,
    },
    /// There is too little free space.
    #[error(
        "{}: not enough space: {} needed, {} free; free some space, or receive elsewhere",
        .place.display(), in_units(*.needs), in_units(*.free)
    )]
    NoRoom {
        /// The destination.
        place: PathBuf,
        /// Bytes that are to come, without those that are here and without holes.
        needs: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The files could not be given their names, and not all of that could be taken back.
    #[error(
        "{error}; some files could not be put back: they are in {}",
        .place.display()
    )]
    Stranded {
        /// The place of the rest.
        place: PathBuf,
        /// The error that interrupted it.
        error: Box<Error>,
    },
    /// There is no memory for the buffers.
    #[error("there is no memory for {count} buffers of {bytes} bytes")]
    Memory {
        /// How many.
        count: u32,
        /// How large.
        bytes: usize,
    },
    /// The socket could not be opened or used.
    #[error("{what}: {}", system_message(source))]
    Socket {
        /// The action that failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// This machine cannot send datagrams of the size that was asked for.
    #[error("this machine's interface takes no datagrams of {bytes} bytes{}", and_limit(*limit))]
    DatagramSize {
        /// Bytes in each.
        bytes: u32,
        /// Bytes of the IP packets that it takes, if known.
        limit: Option<u32>,
    },
    /// A thread could not be started.
    #[error("cannot start a thread {purpose}: {}", system_message(source))]
    Thread {
        /// Its purpose.
        purpose: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A host name without an address.
    #[error("cannot look up {host}: {}", system_message(source))]
    Unresolved {
        /// The name, with its port if it has one.
        host: String,
        /// The system's error.
        source: io::Error,
    },
    /// The names have addresses, and none is of the requested IP version.
    #[error("no usable address{version}: {addresses}")]
    NoAddress {
        /// `" over IPv4"` and the like, or nothing.
        version: &'static str,
        /// The names.
        addresses: String,
    },
    /// No address to go to can be reached from where the socket is.
    #[error("a socket on {local} cannot reach {addresses}")]
    OutOfReach {
        /// The address of the socket.
        local: SocketAddr,
        /// The destinations.
        addresses: String,
    },
    /// A ticket that is none.
    #[error("this is not a netblt ticket: {0}")]
    Ticket(#[from] TicketError),
    /// A server has another static key than the one that is known.
    #[error(
        "THE KEY OF {server} HAS CHANGED. Either the server has a new key, or another machine \
         answers in its place and would see all that is sent. Known key: {known}. Key now: \
         {offered}. Ask the server's administrator for the fingerprint over another channel. If \
         the new key is right, remove line {line} of {} and try again; nothing was sent",
        .path.display()
    )]
    ServerKey {
        /// `host:port`, fit for a terminal.
        server: String,
        /// Fingerprint of the key that is known.
        known: String,
        /// Fingerprint of the key that the server now offers.
        offered: String,
        /// The file with the known one.
        path: PathBuf,
        /// In which line, from 1.
        line: usize,
    },
    /// The ticket could not be handed over.
    #[error(
        "the ticket cannot be written, and without it no peer can connect: {}",
        system_message(.0)
    )]
    Unseen(io::Error),
    /// No peer connected while this side listened.
    #[error("timed out: no peer connected within {} s", .0.as_secs_f64())]
    Alone(Duration),
    /// The connection could not be opened.
    #[error("cannot reach {peer}: {reason}")]
    Connect {
        /// The destination.
        peer: String,
        /// Over which wire.
        wire: Wire,
        /// Why not.
        reason: CloseReason,
    },
    /// The connection was open and ended before the transfer was verified.
    #[error("the transfer is incomplete: {0}")]
    Ended(CloseReason),
    /// The other side was restarted, and this transfer cannot start over.
    #[error("the peer restarted: {0}")]
    Restarted(&'static str),
    /// The bytes that arrived are not the bytes that were sent.
    #[error("not verified: {0}")]
    NotVerified(String),
    /// A file is not the one that [`ChecksumOptions::expected`](crate::ChecksumOptions::expected)
    /// lists.
    #[error("{}: {UNEXPECTED}: {why}", shown(.name))]
    Unexpected {
        /// Its name in the transfer.
        name: Vec<u8>,
        /// Its digest, and that of the list.
        why: String,
    },
    /// A server has refused a request.
    #[error("the server says: {}", printable(.why))]
    Denied {
        /// The kind of the refusal.
        what: RequestErrorKind,
        /// In words.
        why: String,
    },
    /// It was cancelled.
    #[error("stopped")]
    Interrupted,
    /// The user stopped the sender when everything had arrived and the verdict was due.
    #[error(
        "stopped after everything was sent, and before the other side confirmed that it is \
         stored; check there"
    )]
    Unconfirmed,
    /// The user stopped the receiver when files were being given their names, and the disk did not
    /// come to an end with it.
    #[error(
        "stopped while files were being renamed into place: they are complete and verified, and \
         the next transfer to the same place finishes the renames"
    )]
    Unfinished,
    /// A mistake of this library.
    #[error("a fault in netblt itself: {0}")]
    Fault(&'static str),
}

/// The kind of a server's refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestErrorKind {
    /// There is no such file or directory.
    NotFound,
    /// The key does not allow it, or the server's system.
    Forbidden,
    /// It exists already.
    Exists,
    /// It is no directory, and had to be one.
    NotADirectory,
    /// It is a directory, and a file was meant.
    IsADirectory,
    /// It is a directory with something in it.
    NotEmpty,
    /// The server has too much to do: later it may do it.
    Busy,
    /// It does not find room.
    NoRoom,
    /// It was tried and failed.
    Failed,
    /// The server does not understand the request: it is of another version.
    NotUnderstood,
}

/// Why something cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsendable {
    /// No file and no directory was named.
    #[error("there is nothing to send; name a file")]
    Nothing,
    /// More files than a transfer can have.
    #[error("more than {0} files are too many for one transfer; pack them first")]
    TooMany(u64),
    /// A receiver would refuse the name.
    #[error("\"{name}\" cannot be sent under its name: {why}; rename it or leave it out")]
    Name {
        /// The name, fit for a terminal.
        name: String,
        /// Its error.
        why: &'static str,
    },
    /// A name that the extent table cannot hold.
    #[error("\"{name}\" is too long a name for the {room} bytes that a buffer has beside its data")]
    LongName {
        /// The name, fit for a terminal.
        name: String,
        /// Bytes in a table.
        room: u32,
    },
    /// The file is not the one of which a range was to be sent.
    #[error("it is not a file of the length that it had when its ranges were planned")]
    Range,
    /// A path such as `/`, which has no last part.
    #[error("{0} has no name under which it could arrive; send the directories in it")]
    NoName(String),
    /// Two paths with the same last part.
    #[error(
        "{first} and {second} would both arrive as \"{name}\"; send them one after the other, or a \
         directory that holds both"
    )]
    SameName {
        /// One path.
        first: String,
        /// The other.
        second: String,
        /// The name of both.
        name: String,
    },
    /// More than `rfc998` can carry.
    #[error(
        "the rfc998 wire carries one file and no directories; send one file, or use the sealed wire"
    )]
    Plain,
}

/// Why options make no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// `sealed` has buffers of certain sizes only.
    #[error("a buffer of {0} bytes is impossible: use a power of two from 1 KiB to 64 MiB")]
    BufferBytes(u32),
    /// Less memory than the buffers of so many sessions need.
    #[error("{} of memory is too little for that many at once", in_units(*.0))]
    Memory(u64),
    /// An extent table is too large.
    #[error("an extent table of {0} bytes is impossible: at most {1}")]
    TableBytes(u32, u32),
    /// A ticket on a wire that knows none.
    #[error("tickets are for the sealed wire")]
    Ticket,
    /// Static keys on a wire that knows none.
    #[error("static keys are for the sealed wire")]
    Keys,
    /// A public key that is none.
    #[error("invalid server key (low-order point)")]
    NoKey,
    /// A call with the identity of a server.
    #[error("connecting requires a client key and the server's public key")]
    NoClient,
    /// An address where a ticket is needed.
    #[error("the sealed wire meets by ticket")]
    NoTicket,
    /// An address for the ticket that is none.
    #[error("an address for the ticket: {0}")]
    Advertised(#[from] AddressError),
    /// A share of repair packets on a wire that knows none.
    #[error("the rfc998 wire has no repair packets")]
    Repair,
    /// A directory on a wire that carries no names.
    #[error("the rfc998 wire carries no names: name the file to receive into")]
    Directory,
    /// A file name on a wire that carries its own.
    #[error("the sealed wire carries names: name the directory to receive into")]
    File,
    /// A path that cannot be a file's.
    #[error("{0} does not name a file")]
    NoFile(String),
    /// An invalid pattern.
    #[error("\"{text}\" is no pattern: {why}")]
    Pattern {
        /// The pattern.
        text: String,
        /// Its error.
        why: String,
    },
    /// A path that no server can be asked for.
    #[error("\"{path}\" is no path on a server: {why}")]
    Path {
        /// The path, fit for a terminal.
        path: String,
        /// Its error.
        why: &'static str,
    },
    /// A file name that must not be.
    #[error("\"{name}\" cannot be stored: {why}")]
    FileName {
        /// The name, fit for a terminal.
        name: String,
        /// Its error.
        why: &'static str,
    },
}

/// Something the user should know that ends nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// Something in a directory that is neither a file nor a directory is not sent.
    #[error("skipped {path}: it is a {what}")]
    Skipped {
        /// Its path, fit for a terminal.
        path: String,
        /// Its type.
        what: &'static str,
    },
    /// Something to be sent cannot be read and is left out.
    #[error("skipped {path}: it {what}: {why}")]
    Unreadable {
        /// Its path, fit for a terminal.
        path: String,
        /// The action that fails.
        what: &'static str,
        /// The system's error.
        why: String,
    },
    /// An attribute of a file that was to be sent cannot be, and is left out.
    #[error("left out extended attributes or access lists of {path}: {why}")]
    AttributesOmitted {
        /// Its path, fit for a terminal.
        path: String,
        /// Why not.
        why: String,
    },
    /// A file that arrived and does not get its name, or that could not be received, and why.
    #[error("left out {0}")]
    LeftOut(String),
    /// The receiver's report of left-out files: how many, and the names of the first.
    #[error("the other side says: {0}")]
    TheyLeftOut(String),
    /// Something besides, in words.
    #[error("{0}")]
    Note(String),
    /// A file changed while it was being sent, and was sent as it was read.
    #[error("{path} changed while it was being sent, and was sent as it was read: {how}")]
    Changing {
        /// Which file.
        path: String,
        /// The change.
        how: String,
    },
    /// The receiver has left out more files than it can name: which have arrived is not known.
    #[error(
        "the receiver left out more files than it can name, so none is reported as arrived; \
         everything else is verified"
    )]
    ArrivedUnknown,
    /// So many more are not sent, for similar reasons.
    #[error("skipped {0} more")]
    SkippedMore(u64),
    /// A file beside the transfer (a trace, a manifest) cannot be written. It is incomplete, and
    /// the transfer goes on without it.
    #[error("{path}: cannot write the {what}: {why}; the file is incomplete")]
    Unwritten {
        /// Its path, fit for a terminal.
        path: String,
        /// Its type.
        what: &'static str,
        /// The system's error.
        why: String,
    },
    /// The data of a broken transfer are kept here.
    #[error("partial files are kept in {0}; run the same transfer again to resume")]
    Kept(String),
    /// There is enough space only if the file system stores the files in fewer bytes than they
    /// have.
    #[error(
        "{place}: {} needed, {} free: there may not be enough space",
        in_units(*.needs), in_units(*.free)
    )]
    LittleRoom {
        /// The destination, fit for a terminal.
        place: String,
        /// Bytes that are to come, without those that are here and without holes.
        needs: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// A stream has broken off, and cannot be resumed.
    #[error(
        "a stream cannot be read twice: the transfer has to start over, and nothing of it that has \
         arrived is kept (a file or a directory could be resumed)"
    )]
    StreamLost,
    /// A leftover of a killed receiver in the destination, and its fate.
    #[error("{0}")]
    Leftover(String),
    /// One of several addresses cannot be looked up. The others are tried.
    #[error("{0}")]
    Unresolved(String),
    /// This machine's interface takes only smaller packets than are sent, and on this wire they
    /// cannot become smaller. If that stays so, [`Error::DatagramSize`] ends the transfer.
    #[error(
        "this machine's interface takes no datagrams of {bytes} bytes{}, and on this wire they \
         cannot become smaller",
        and_limit(*limit)
    )]
    DatagramSize {
        /// Bytes in our datagrams.
        bytes: u32,
        /// Bytes of the IP packets that it takes, if known.
        limit: Option<u32>,
    },
    /// No answer has come for some seconds. Attempts go on (`sealed`).
    #[error(
        "no answer yet; perhaps nothing listens there any more, a firewall drops UDP, or the path \
         takes no packets of 592 bytes, which an opening has at least"
    )]
    NoAnswerYet,
    /// A router reports that packets are too large. If nothing moves, the report is true.
    #[error(
        "the network says that packets of {bytes} bytes are too large on the way, and {limit} pass"
    )]
    PacketSize {
        /// Bytes in our IP packets.
        bytes: u32,
        /// Bytes that pass.
        limit: u32,
    },
}

/// The action that fails for a file that is not the one in a list of digests.
pub(crate) const UNEXPECTED: &str = "is not the file that the list of expected digests has";

/// Every ticket of this version begins so.
pub const PREFIX: &str = "netblt1:";
/// Most addresses a ticket may hold.
pub const MAX_ADDRESSES: usize = 16;
/// Longest ticket, in bytes: a bound for readers of standard input.
pub const MAX_BYTES: usize = 4096;

/// Why a text is no ticket. Never holds the secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TicketError {
    /// No text at all.
    #[error("it is empty")]
    Empty,
    /// Something else altogether.
    #[error("a ticket begins with \"{PREFIX}\"")]
    Prefix,
    /// A ticket of some other version of this program.
    #[error("it was made by another version of netblt; use the same version on both sides")]
    Version,
    /// The end is missing.
    #[error("it is cut short; copy the whole line")]
    CutShort,
    /// Something that no ticket contains, a line break in a wrapped paste for one.
    #[error("it contains the character {0:?}; copy it again, as one line")]
    Character(char),
    /// The check does not fit the rest.
    #[error("a character in it is wrong, missing or too many; copy it again")]
    Mistyped,
    /// More than [`MAX_BYTES`].
    #[error("it is longer than {MAX_BYTES} characters")]
    TooLong,
    /// An address that is none.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// More than [`MAX_ADDRESSES`], or none.
    #[error("it holds {0} addresses; a ticket holds 1 to {MAX_ADDRESSES}")]
    Addresses(usize),
}

/// Why a text is no address for a ticket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Neither a name nor an IP address.
    #[error("{0:?} is neither a host name nor an IP address")]
    Host(String),
    /// No port, or none that exists.
    #[error("{0:?} lacks a port from 1 to 65535 (HOST:PORT)")]
    Port(String),
}

/// A name made fit for a terminal.
pub(crate) fn shown(name: &[u8]) -> String {
    printable_bytes(name)
}

/// A path made fit for a terminal.
pub(crate) fn shown_path(path: &Path) -> String {
    shown(path.as_os_str().as_bytes())
}

/// A number of bytes, for people.
pub(crate) fn in_units(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let power = (bytes.ilog2() / 10).clamp(1, UNITS.len() as u32);
    let whole = bytes as f64 / f64::from(power * 10).exp2();
    let unit = UNITS.get(power as usize - 1).copied().unwrap_or_default();
    format!("{whole:.2} {unit}")
}

/// The system's error for people: without the number that Rust adds.
pub(crate) fn system_message(error: &io::Error) -> String {
    let text = error.to_string();
    let number = error.raw_os_error().map(|number| format!(" (os error {number})"));
    let words = number.and_then(|number| text.strip_suffix(&number).map(str::to_owned));
    words.unwrap_or(text)
}

/// An error of this side's disk; the path is made fit for a terminal.
pub(crate) fn file_error(path: &Path, what: &'static str, source: io::Error) -> Error {
    Error::File { path: PathBuf::from(shown(path.as_os_str().as_bytes())), what, source }
}

/// The size that an interface takes, in words.
fn and_limit(limit: Option<u32>) -> String {
    limit.map_or_else(String::new, |limit| format!(", only IP packets of up to {limit}"))
}
