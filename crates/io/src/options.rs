//! The options of a transfer: the library's counterpart of the command line.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use netblt_proto::config::{Wire, first_buffers};
use netblt_proto::content::FileRange;
use netblt_proto::limits::{DEFAULT_BUFFER_BYTES, DEFAULT_BUFFER_MEMORY};
use netblt_proto::wire::packet::Burst;

use crate::carried::Carried;
use crate::checksums::algorithm::Digests;
use crate::checksums::options::ChecksumOptions;
use crate::control::Control;
use crate::memory_budget::MemoryShare;
use crate::name_log::NameLog;
use crate::settings::TransferSettings;

/// The source of a transfer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Source {
    /// Files and directories; directories are walked.
    Paths(Vec<PathBuf>),
    /// Files and directories with their names and rules.
    Selection(Selection),
    /// Bytes of unknown length: [`Source::reader`], [`Source::stdin`].
    Stream(Input),
}

/// Files and directories to send, with their names, and those to leave out.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Paths, each with the name under which it arrives if that is not its own: one part, without
    /// slashes.
    pub items: Vec<(PathBuf, Option<OsString>)>,
    /// Directories whose contents alone are sent, each with the names of the entries to send. They
    /// arrive under these names, and are handled like entries further in: links stay links, and
    /// entries that cannot be sent are left out. An empty list is no error.
    pub contents: Vec<(PathBuf, Vec<OsString>)>,
    /// Patterns of entries in directories that are left out with their contents: `*`, `?` and
    /// `[...]` as in shells. A pattern with a slash before its end is compared with the whole name
    /// that arrives, any other with its last part. One with a slash at its end is for directories
    /// only.
    pub exclude: Vec<OsString>,
    /// A filter of names. A directory that it refuses is not entered.
    pub only: Option<NameFilter>,
    /// Symbolic links in directories are followed: what they lead to goes in their place.
    pub follow: bool,
    /// A file that changes while it is sent is sent as it was read, with a warning, if it has as
    /// many bytes as it had when it was found. Otherwise it is left out.
    pub allow_changes: bool,
    /// Files for which this holds are skipped without a warning.
    pub skip: Option<SkipFilter>,
    /// Changes the permissions that the receiver is sent.
    pub modes: Option<Modes>,
    /// Only this range of the single file is sent, to a receiver that expects the range
    /// ([`Client::put_range`] does this).
    ///
    /// [`Client::put_range`]: crate::serve::client::Client::put_range
    pub range: Option<FileRange>,
}

impl From<Vec<PathBuf>> for Selection {
    fn from(paths: Vec<PathBuf>) -> Self {
        let items = paths.into_iter().map(|path| (path, None)).collect();
        Self { items, ..Self::default() }
    }
}

/// The files that a receiver requested: a sender that sends anything else is refused.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// Names of files and directories, the first parts of all that may come. Ignored where
    /// [`Expected::only`] decides.
    pub names: BTreeSet<OsString>,
    /// Whether directories may come.
    pub directories: bool,
    /// Which names may come.
    pub only: Option<NameFilter>,
}

impl Expected {
    /// Whether a file with this name may come; `directory`: a directory.
    pub(crate) fn check(&self, name: &[u8], directory: bool) -> Result<(), &'static str> {
        let first = name.split(|byte| *byte == b'/').next().unwrap_or_default();
        let asked = match &self.only {
            Some(only) => only.accepts(name, directory),
            None => self.names.contains(OsStr::from_bytes(first)),
        };
        if !asked {
            return Err("it was not requested");
        }
        if !self.directories && (directory || first.len() < name.len()) {
            return Err("no directory was requested");
        }
        Ok(())
    }
}

type Accepts = dyn Fn(&[u8], bool) -> bool + Send + Sync;
type Skips = dyn Fn(&[u8], u64, SystemTime) -> bool + Send + Sync;
type Callback = dyn Fn(&FileDigest) + Send + Sync;
type Changes = dyn Fn(u32, bool) -> u32 + Send + Sync;

/// Decides by the name under which a file or directory arrives whether it is included.
#[derive(Clone)]
pub struct NameFilter(Arc<Accepts>);

impl NameFilter {
    /// `accepts` is called for every name, perhaps from several threads.
    pub fn new(accepts: impl Fn(&[u8], bool) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(accepts))
    }

    /// Whether this name is included; `directory`: it is a directory's.
    pub fn accepts(&self, name: &[u8], directory: bool) -> bool {
        (self.0)(name, directory)
    }
}

/// A file that is finished at this end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileDigest {
    /// Its name as it arrives, which may be any bytes.
    pub name: Vec<u8>,
    /// Its length.
    pub bytes: u64,
    /// BLAKE3 of its content, as `b3sum` computes it.
    pub blake3: [u8; 32],
    /// All digests of its content: BLAKE3 and those of [`Options::checksums`].
    pub digests: Digests,
}

/// Called once for each file. At a receiver: when it has its name, or when all of it was written to
/// a stream and verified. At a sender: when the receiver has it under its name, which is known when
/// the receiver has verified everything. It is not called for files that the receiver left out, and
/// for no file if those are more than the receiver can list
/// ([`Warning::ArrivedUnknown`](crate::Warning)), nor for other names of the same file (hard
/// links). A receiver reports all files again after a restart. A receiver calls it from its disk
/// thread, which waits for it.
#[derive(Clone)]
pub struct OnFile(Arc<Callback>);

impl OnFile {
    /// `callback` is called for each file.
    pub fn new(callback: impl Fn(&FileDigest) + Send + Sync + 'static) -> Self {
        Self(Arc::new(callback))
    }

    pub(crate) fn notify(&self, name: &[u8], bytes: u64, digests: Digests) {
        let blake3 = digests.blake3();
        (self.0)(&FileDigest { name: name.to_vec(), bytes, blake3, digests });
    }
}

impl fmt::Debug for OnFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnFile")
    }
}

/// Decides whether a file is skipped.
#[derive(Clone)]
pub struct SkipFilter(Arc<Skips>);

impl SkipFilter {
    /// `skips` is called for every file, with the name under which it would arrive, its bytes and
    /// its time of modification.
    pub fn new(skips: impl Fn(&[u8], u64, SystemTime) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(skips))
    }

    /// Whether this file is skipped.
    pub fn skips(&self, name: &[u8], bytes: u64, modified: SystemTime) -> bool {
        (self.0)(name, bytes, modified)
    }
}

/// Maps a file's permissions to those that are sent.
#[derive(Clone)]
pub struct Modes(Arc<Changes>);

impl Modes {
    /// `changes` is called for every file and directory (`true`), with its permission bits.
    pub fn new(changes: impl Fn(u32, bool) -> u32 + Send + Sync + 'static) -> Self {
        Self(Arc::new(changes))
    }

    /// The permission bits to send in place of `mode`. `directory`: they are a directory's.
    pub fn of(&self, mode: u32, directory: bool) -> u32 {
        (self.0)(mode, directory)
    }
}

impl fmt::Debug for Modes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Modes(..)")
    }
}

impl fmt::Debug for NameFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NameFilter(..)")
    }
}

impl fmt::Debug for SkipFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SkipFilter(..)")
    }
}

/// A stream to send.
pub struct Input {
    pub(crate) name: OsString,
    /// Its name in errors.
    pub(crate) label: &'static str,
    pub(crate) reader: Box<dyn Read + Send>,
}

impl Source {
    /// One file or directory.
    pub fn path(path: impl Into<PathBuf>) -> Self {
        Self::Paths(vec![path.into()])
    }

    /// The content of `reader`, sent under this name. It is read once, so a receiver that is
    /// restarted amid the transfer ends it.
    pub fn reader(name: impl Into<OsString>, reader: impl Read + Send + 'static) -> Self {
        Self::Stream(Input { name: name.into(), label: "the stream", reader: Box::new(reader) })
    }

    /// Standard input, offered under this name.
    pub fn stdin(name: impl Into<OsString>) -> Self {
        let reader = Box::new(io::stdin());
        Self::Stream(Input { name: name.into(), label: "standard input", reader })
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Input({}, {:?})", self.label, self.name)
    }
}

/// The options of a transfer. Its files and the address of the other end are given separately.
///
/// ```
/// use netblt::Options;
///
/// let mut options = Options::default();
/// options.settings.verify = true;
/// options.buffers.count = 128;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The wire.
    pub wire: Wire,
    /// How data and files are transferred.
    pub settings: TransferSettings,
    /// This end's addresses and packets.
    pub network: NetworkOptions,
    /// The buffers in memory.
    pub buffers: BufferOptions,
    /// Changes and pauses the transfer while it runs.
    pub control: Option<Control>,
    /// The options of the `rfc998` wire.
    pub rfc998: Rfc998,
    /// The label separates the parts of a broken transfer from those of others into the same
    /// directory. Each of several transfers at once can be resumed by one with the same label.
    /// Without labels only the first can. Transfers with labels make one tree together, so each
    /// sets the attributes of the directories that it sends, also where they exist. The label goes
    /// to a server that receives files. It is ignored with [`TransferSettings::atomic`].
    pub label: Option<[u8; 32]>,
    /// A range of a file is received, into a file that others fill, too.
    pub(crate) range: Option<FileRange>,
    /// The files that a sender may send, if not all ([`crate::Destination::Directory`]).
    pub expected: Option<Expected>,
    /// The first parts of the names that come, if they are known: existing files beneath them may
    /// be replaced, and count as free space ([`crate::Destination::Directory`]).
    pub incoming_names: Option<BTreeSet<OsString>>,
    /// The name of the single file that may then be received ([`crate::Destination::Directory`]). A
    /// broken transfer is resumed whatever name it had then.
    pub rename: Option<OsString>,
    /// Write the names and digests of the transferred files here, in the format of
    /// [`ChecksumOptions::manifest_format`] (`sealed`).
    pub manifest: Option<PathBuf>,
    /// Digests of the files beside BLAKE3 (`sealed`). They are ignored for a stream that is
    /// received, and for a range of a file.
    pub checksums: ChecksumOptions,
    /// Called for every finished file (`sealed`).
    pub on_file: Option<OnFile>,
    /// Write trace events (JSON lines) here.
    pub trace: Option<PathBuf>,
    /// The request to a server.
    pub(crate) server_request: ServerRequest,
    /// A server's memory for names.
    pub(crate) memory_share: MemoryShare,
    /// Gets the names of the files that are sent or received.
    pub(crate) name_log: Option<NameLog>,
}

/// This end's addresses and packets.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct NetworkOptions {
    /// Local address to bind.
    pub bind: Option<IpAddr>,
    /// Local UDP port; 0 lets the system choose.
    pub port: u16,
    /// Addresses to put into the ticket instead of this machine's own.
    pub advertise: Vec<String>,
    /// Datagrams do not go over UDP but through this, to the program at its other end (`sealed`,
    /// [`Rendezvous::Await`](crate::Rendezvous::Await) and, at [`Carried::peer`],
    /// [`Rendezvous::Connect`](crate::Rendezvous::Connect)). It takes one connection, not several
    /// [`TransferSettings::streams`].
    pub carried: Option<Carried>,
    /// Size of the IP packets to send, in bytes. On `sealed` the most that may be where the path
    /// takes more; `None` for 16 KiB. On `rfc998` the size; `None` for 1,260.
    pub mtu: Option<u16>,
    /// Data bytes in a DATA packet; `None`: what [`NetworkOptions::mtu`] leaves room for.
    pub packet_bytes: Option<u16>,
    /// While listening: how long to wait for a peer. `None`: until cancelled.
    pub wait: Option<Duration>,
    /// Burst values to propose where the policy is not [`Policy::Fixed`](crate::Policy::Fixed). A
    /// receiver's values bound the rate of the sender, also if the sender's policy is fixed.
    pub burst: Option<Burst>,
    /// The text for the other end's client; `None` for the name of this program.
    pub client: Option<String>,
}

/// The buffers of a transfer in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferOptions {
    /// Bytes in a buffer, a power of two.
    pub bytes: u32,
    /// How many buffers exist in this process at first.
    pub count: u32,
    /// The most bytes of buffers, where the path can use more than there are at first (`sealed`);
    /// 0: no more than those.
    pub memory: u64,
}

/// A request to a server (`docs/protocol §8.8`).
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerRequest {
    /// A receiver's request.
    pub(crate) request: Vec<u8>,
    /// Bytes that are to come, as far as the server has announced them, for progress.
    pub(crate) total: Option<u64>,
    /// The number of an announced upload.
    pub(crate) put: Option<u64>,
}

/// Bytes in a buffer of `rfc998`: 50 Mbit/s, 40 ms and 1 % of loss carried 17 Mbit/s in buffers of
/// 1 MiB and 45 in these.
const RFC998_BUFFER_BYTES: u32 = 1 << 16;

impl Default for Options {
    /// Options for every path: the `sealed` wire, a fair rate, one minute for a silent peer.
    fn default() -> Self {
        Self::new(Wire::Sealed)
    }
}

impl Options {
    /// The defaults of a wire.
    pub fn new(wire: Wire) -> Self {
        Self {
            wire,
            settings: TransferSettings::default(),
            network: NetworkOptions::default(),
            buffers: BufferOptions::of(wire),
            control: None,
            rfc998: Rfc998::default(),
            label: None,
            range: None,
            expected: None,
            incoming_names: None,
            rename: None,
            manifest: None,
            checksums: ChecksumOptions::default(),
            on_file: None,
            trace: None,
            server_request: ServerRequest::default(),
            memory_share: MemoryShare::default(),
            name_log: None,
        }
    }
}

impl BufferOptions {
    /// The defaults of a wire.
    pub fn of(wire: Wire) -> Self {
        let (bytes, memory) = match wire {
            Wire::Sealed => (DEFAULT_BUFFER_BYTES, DEFAULT_BUFFER_MEMORY),
            Wire::Rfc998 => (RFC998_BUFFER_BYTES, 0),
        };
        Self { bytes, count: Self::default_count(wire, bytes), memory }
    }

    /// The default number of buffers of this size.
    pub fn default_count(wire: Wire, bytes: u32) -> u32 {
        first_buffers(wire, bytes)
    }
}

/// The options of the `rfc998` wire (`docs/protocol §2`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rfc998 {
    /// Directly on IP (protocol 30), without UDP; takes the privilege CAP_NET_RAW.
    pub raw_ip: bool,
    /// This end's NETBLT port. `None`: the active end's is its UDP port, or any on raw IP; the
    /// passive end's is whatever it is called by, or [`crate::net::raw_ip::PORT`] on raw IP.
    pub port: Option<u16>,
    /// The other end's NETBLT port, for the active end. `None`: its UDP port, or
    /// [`crate::net::raw_ip::PORT`].
    pub peer_port: Option<u16>,
    /// Do not ask for checksums of the data (flag C).
    pub no_checksum: bool,
}
