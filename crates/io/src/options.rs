//! What a transfer is told: the library's face of the command line.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use netblt_proto::config::{Ceiling, Policy, Repair, Steering, Wire, first_buffers};
use netblt_proto::content::FileRange;
use netblt_proto::limits::{
    DEFAULT_BUFFER_BYTES, DEFAULT_BUFFER_MEMORY, DEFAULT_DEATH_TIMER, DEFAULT_MAX_FILES,
};
use netblt_proto::units::Rate;
use netblt_proto::wire::packet::Burst;

use crate::carried::Carried;
use crate::lanes::Lanes;
use crate::memory_budget::MemoryShare;
use crate::name_log::NameLog;

/// Which IP versions to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// Whatever works.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

/// What to do about a destination that exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overwrite {
    /// Leave it as it is; with [`Options::atomic`] refuse the transfer. What is the same already
    /// counts as received.
    #[default]
    Never,
    /// Replace it, at the end and at once.
    Always,
}

/// What to do with what is left of a transfer that was broken off (`sealed`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resume {
    /// Go on from it.
    #[default]
    Auto,
    /// Do not look at it, and leave nothing for the next one either.
    Never,
    /// Read it again, and go on from what proves to be right.
    Verify,
}

/// What to send.
#[derive(Debug)]
#[non_exhaustive]
pub enum Source {
    /// Files and directories; directories are walked.
    Paths(Vec<PathBuf>),
    /// The same, with more to say of them.
    Selection(Selection),
    /// Bytes of unknown length: [`Source::reader`], [`Source::stdin`].
    Stream(Input),
}

/// Files and directories to send, under which names, and what is left out.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Paths, each with the name under which it arrives if that is not its own: one part, without
    /// slashes.
    pub items: Vec<(PathBuf, Option<OsString>)>,
    /// Directories that are not sent themselves, each with names of what is in it and is sent: it
    /// arrives under these names, and is dealt with as what is found further in. Links are links,
    /// what cannot be sent is left out, and all of nothing is nothing.
    pub contents: Vec<(PathBuf, Vec<OsString>)>,
    /// What is found in directories and matches one of these is left out, and all that is in it.
    /// `*`, `?` and `[...]` as shells know them; a pattern with a slash that is not its last
    /// character is compared with the whole name that arrives, another one with its last part; one
    /// with a slash at its end is for directories only.
    pub exclude: Vec<OsString>,
    /// Nothing but what this takes is looked at; a directory that it does not take is not entered.
    pub only: Option<Only>,
    /// Symbolic links in directories are followed: what they lead to goes in their place.
    pub follow: bool,
    /// A file that changes while it is sent is sent as it was read, as long as that is as many
    /// bytes as it had when it was found, and a warning names it; otherwise it is left out.
    pub allow_changes: bool,
    /// Files for which this holds are passed over, and nothing is said of them.
    pub pass: Option<Pass>,
    /// What the receiver is told of permissions, made of what they are.
    pub modes: Option<Modes>,
    /// Not all of the one file, but this of it, for a receiver that expects that
    /// ([`Server::put_range`] does this).
    ///
    /// [`Server::put_range`]: crate::serve::remote::Server::put_range
    pub range: Option<FileRange>,
}

impl From<Vec<PathBuf>> for Selection {
    fn from(paths: Vec<PathBuf>) -> Self {
        let items = paths.into_iter().map(|path| (path, None)).collect();
        Self { items, ..Self::default() }
    }
}

/// What a receiver asked for: a sender that sends anything else is refused.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// Names of files and directories, the first parts of all that may come; of no account where
    /// [`Expected::only`] decides.
    pub names: BTreeSet<OsString>,
    /// Whether directories may come.
    pub directories: bool,
    /// Which names may come.
    pub only: Option<Only>,
}

impl Expected {
    /// Whether this may come; `directory`: it is one.
    pub(crate) fn check(&self, name: &[u8], directory: bool) -> Result<(), &'static str> {
        let first = name.split(|byte| *byte == b'/').next().unwrap_or_default();
        let asked = match &self.only {
            Some(only) => only.takes(name, directory),
            None => self.names.contains(OsStr::from_bytes(first)),
        };
        if !asked {
            return Err("nobody asked for it");
        }
        if !self.directories && (directory || first.len() < name.len()) {
            return Err("nobody asked for directories");
        }
        Ok(())
    }
}

type Takes = dyn Fn(&[u8], bool) -> bool + Send + Sync;
type Passes = dyn Fn(&[u8], u64, SystemTime) -> bool + Send + Sync;
type Hears = dyn Fn(&FileSum) + Send + Sync;
type Changes = dyn Fn(u32, bool) -> u32 + Send + Sync;

/// Whether a name, as it arrives, is meant; and whether it is a directory's.
#[derive(Clone)]
pub struct Only(Arc<Takes>);

impl Only {
    /// Asked of every name, from several threads perhaps.
    pub fn new(takes: impl Fn(&[u8], bool) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(takes))
    }

    /// Whether this name is meant; `directory`: it is a directory's.
    pub fn takes(&self, name: &[u8], directory: bool) -> bool {
        (self.0)(name, directory)
    }
}

/// A file that is through at this end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileSum {
    /// Its name as it arrives, which may be any bytes.
    pub name: Vec<u8>,
    /// Its length.
    pub bytes: u64,
    /// BLAKE3 of its content, as `b3sum` computes it.
    pub blake3: [u8; 32],
}

/// Called for each file once: at a receiver when it has its name, or when all of it was written to
/// a stream and is what was sent; at a sender when the receiver has it under its name, which is
/// known when the receiver has verified everything. It is not called for what the receiver left
/// out, and for no file if that is more than the receiver can name
/// ([`Warning::Untellable`](crate::Warning)), nor for other names of the same file (hard links); at
/// a receiver all come again after a restart.
/// Called from the disk's thread of a receiver, which waits.
#[derive(Clone)]
pub struct OnFile(Arc<Hears>);

impl OnFile {
    /// Calls this.
    pub fn new(hears: impl Fn(&FileSum) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hears))
    }

    pub(crate) fn tell(&self, name: &[u8], bytes: u64, blake3: [u8; 32]) {
        (self.0)(&FileSum { name: name.to_vec(), bytes, blake3 });
    }
}

impl fmt::Debug for OnFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnFile")
    }
}

/// Whether a file is to be passed over.
#[derive(Clone)]
pub struct Pass(Arc<Passes>);

impl Pass {
    /// Asked of every file, by the name under which it would arrive, its bytes and its time of
    /// modification.
    pub fn new(passes: impl Fn(&[u8], u64, SystemTime) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(passes))
    }

    /// Whether this file is.
    pub fn passes(&self, name: &[u8], bytes: u64, modified: SystemTime) -> bool {
        (self.0)(name, bytes, modified)
    }
}

/// Which permissions are told of a file that has these.
#[derive(Clone)]
pub struct Modes(Arc<Changes>);

impl Modes {
    /// Asked of every file and directory (`true`), with its permission bits.
    pub fn new(changes: impl Fn(u32, bool) -> u32 + Send + Sync + 'static) -> Self {
        Self(Arc::new(changes))
    }

    /// The permission bits that are told of these; `directory`: they are a directory's.
    pub fn of(&self, mode: u32, directory: bool) -> u32 {
        (self.0)(mode, directory)
    }
}

impl fmt::Debug for Modes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Modes(..)")
    }
}

impl fmt::Debug for Only {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Only(..)")
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pass(..)")
    }
}

/// A stream to send.
pub struct Input {
    pub(crate) name: OsString,
    /// What errors call it.
    pub(crate) label: &'static str,
    pub(crate) reader: Box<dyn Read + Send>,
}

impl Source {
    /// One file or directory.
    pub fn path(path: impl Into<PathBuf>) -> Self {
        Self::Paths(vec![path.into()])
    }

    /// What `reader` gives until it ends, offered under this name. It is read once, so a receiver
    /// that is started again amid the transfer ends it.
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

/// What of a file goes beyond its permission bits and its time: a sender tells it, and a receiver
/// sets it, only if each is told to (`sealed`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Owner and group; by their names, where both systems know them. What this user may not set
    /// is named.
    pub owner: bool,
    /// Extended attributes of the namespace `user`.
    pub xattrs: bool,
    /// POSIX access lists; a receiver then keeps permissions as if it were told to.
    pub acls: bool,
}

/// Everything about a transfer but what moves, and where the other end is.
///
/// ```
/// use netblt::Options;
///
/// let mut options = Options::default();
/// options.buffers = 128;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Which wire.
    pub wire: Wire,
    /// Local address to bind.
    pub bind: Option<IpAddr>,
    /// Local UDP port; 0 lets the system choose.
    pub port: u16,
    /// Addresses to put into the ticket instead of this machine's own.
    pub advertise: Vec<String>,
    /// Which IP versions to use.
    pub family: Family,
    /// Datagrams do not go over UDP but through this, to the program at its other end (`sealed`,
    /// [`Rendezvous::Await`](crate::Rendezvous::Await) and, at [`Carried::peer`],
    /// [`Rendezvous::Connect`](crate::Rendezvous::Connect)). It takes one connection, not several
    /// [`Options::lanes`].
    pub carried: Option<Carried>,
    /// Size of the IP packets to send, in bytes. On `sealed` the most that may be where the path
    /// takes more; `None` for 16 KiB. On `rfc998` the size; `None` for 1,260.
    pub mtu: Option<u16>,
    /// Data bytes in a DATA packet; `None`: what [`Options::mtu`] leaves room for.
    pub packet_bytes: Option<u16>,
    /// How long to wait for a silent peer.
    pub death_timer: Duration,
    /// While listening: how long to wait for somebody to come; `None`: until cancelled.
    pub wait: Option<Duration>,
    /// How to choose the rate. A receiver's ceiling is proposed as burst values.
    pub policy: Policy,
    /// What changes that, and pauses the transfer, while it runs.
    pub control: Option<Control>,
    /// A sender that chooses its own rate remembers the path for a day, in
    /// `$XDG_CACHE_HOME/netblt/paths` or `~/.cache/netblt/paths`, and begins the next transfer to
    /// the same peer with half of its rate (`sealed`). Only addresses, rates and times are kept.
    pub memory: bool,
    /// What a sender spends on repair packets (`docs/protocol.md §6.10`): [`Repair::Auto`] unless
    /// told otherwise. Only `sealed` knows them; of a share on `rfc998` is said so.
    pub repair: Repair,
    /// Burst values to propose where the policy is not [`Policy::Fixed`]: a receiver's are the most
    /// that it lets the sender send, whatever that one's policy.
    pub burst: Option<Burst>,
    /// Over how many connections a transfer goes at most, each with a socket and a thread of its
    /// own: as many as both ends say (`sealed`, [`crate::send`] and [`crate::receive`]).
    pub lanes: Lanes,
    /// What to tell the other end's client; `None` for the name of this program.
    pub client: Option<String>,
    /// What only the `rfc998` wire knows.
    pub rfc998: Rfc998,
    /// What to do about files that exist.
    pub overwrite: Overwrite,
    /// All or nothing: what cannot be read, has changed while it was read, or stands in the way at
    /// the receiver ends the transfer. Otherwise it is left out, told as a warning, and counted in
    /// [`Summary::skipped`](crate::Summary::skipped) (`sealed`).
    pub atomic: bool,
    /// What to do with what is left of a transfer that was broken off. A sender sends everything
    /// if it is [`Resume::Never`].
    pub resume: Resume,
    /// Read every file again from the disk before it gets its name, and leave out what is not what
    /// was received; what is left of a transfer that was broken off is read again, too
    /// ([`crate::Destination::Directory`]).
    pub verify: bool,
    /// How long what is left of a transfer is kept.
    pub partial_expiry: Duration,
    /// What is left of a transfer that is broken off is told by this from what others into the same
    /// directory leave, so that each of several at once can be gone on with by one of the same
    /// label; without a label only the first. Such transfers make one tree together, so each gives
    /// the directories that it tells of their attributes, also where they exist. It goes to a
    /// server that files are put on. Of no account with [`Options::atomic`].
    pub label: Option<[u8; 32]>,
    /// A range of a file is received, into a file that others fill, too.
    pub(crate) range: Option<FileRange>,
    /// Keep the sender's permission bits whatever this user's mask (umask) says.
    pub preserve: bool,
    /// Give files and directories the sender's times of modification, and not those of arrival.
    pub keep_times: bool,
    /// What goes with files beyond that.
    pub extras: Extras,
    /// What a sender may send, if not everything ([`crate::Destination::Directory`]).
    pub expected: Option<Expected>,
    /// The first parts of the names that come, if they are known: what stands beneath them may be
    /// replaced, and counts as room ([`crate::Destination::Directory`]).
    pub coming: Option<BTreeSet<OsString>>,
    /// The name that a file gets, of which there may then be one only
    /// ([`crate::Destination::Directory`]). A transfer that was broken off is gone on with
    /// whatever name was asked for then.
    pub rename: Option<OsString>,
    /// Most files and directories to receive, those that names imply among them.
    pub max_files: u64,
    /// Most file bytes to receive.
    pub max_bytes: Option<u64>,
    /// Write the names and BLAKE3 digests of what was transferred here, as `b3sum` does (`sealed`).
    pub manifest: Option<PathBuf>,
    /// Tell this of every file that is through (`sealed`).
    pub on_file: Option<OnFile>,
    /// Write trace events (JSON lines) here.
    pub trace: Option<PathBuf>,
    /// Bytes in a buffer, a power of two.
    pub buffer_bytes: u32,
    /// How many buffers exist in this process at first.
    pub buffers: u32,
    /// Up to so many bytes of buffers, where the path has use of more than there are at first
    /// (`sealed`); 0: none but those.
    pub buffer_memory: u64,
    /// What is asked of a server.
    pub(crate) asked: Asked,
    /// What a server has for names.
    pub(crate) memory_share: MemoryShare,
    /// Gets the names of what is sent or received.
    pub(crate) name_log: Option<NameLog>,
}

/// What is asked of a server (`docs/protocol.md §8.8`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// A receiver's request.
    pub(crate) request: Vec<u8>,
    /// Bytes that are to come, as far as the server has told before, for progress.
    pub(crate) total: Option<u64>,
    /// The number that a sender was told.
    pub(crate) put: Option<u64>,
}

/// How long parts of files are kept.
const PARTIAL_EXPIRY: Duration = Duration::from_secs(7 * 24 * 3600);
/// Bytes in a buffer of `rfc998`: 50 Mbit/s, 40 ms and 1 % of loss carried 17 Mbit/s in buffers of
/// 1 MiB and 45 in these.
const RFC998_BUFFER_BYTES: u32 = 1 << 16;

impl Default for Options {
    /// What fits every path: the `sealed` wire, a fair rate, one minute for a silent peer.
    fn default() -> Self {
        Self::new(Wire::Sealed)
    }
}

impl Options {
    /// The defaults of a wire.
    pub fn new(wire: Wire) -> Self {
        let buffer_bytes = match wire {
            Wire::Sealed => DEFAULT_BUFFER_BYTES,
            Wire::Rfc998 => RFC998_BUFFER_BYTES,
        };
        Self {
            wire,
            bind: None,
            port: 0,
            advertise: Vec::new(),
            carried: None,
            family: Family::Any,
            mtu: None,
            packet_bytes: None,
            death_timer: DEFAULT_DEATH_TIMER,
            wait: None,
            policy: Policy::Fair { ceiling: None },
            control: None,
            memory: false,
            repair: Repair::Auto,
            burst: None,
            lanes: Lanes::default(),
            client: None,
            rfc998: Rfc998::default(),
            overwrite: Overwrite::Never,
            atomic: false,
            resume: Resume::Auto,
            verify: false,
            partial_expiry: PARTIAL_EXPIRY,
            label: None,
            range: None,
            preserve: false,
            keep_times: true,
            extras: Extras::default(),
            expected: None,
            coming: None,
            rename: None,
            max_files: DEFAULT_MAX_FILES,
            max_bytes: None,
            manifest: None,
            on_file: None,
            trace: None,
            buffer_bytes,
            buffers: Self::default_buffers(wire, buffer_bytes),
            buffer_memory: match wire {
                Wire::Sealed => DEFAULT_BUFFER_MEMORY,
                Wire::Rfc998 => 0,
            },
            asked: Asked::default(),
            memory_share: MemoryShare::default(),
            name_log: None,
        }
    }

    /// How many buffers there are if nobody says, of this size.
    pub fn default_buffers(wire: Wire, buffer_bytes: u32) -> u32 {
        first_buffers(wire, buffer_bytes)
    }
}

/// What only the `rfc998` wire knows (`docs/protocol.md §2`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rfc998 {
    /// Directly on IP (protocol 30), without UDP; takes the privilege CAP_NET_RAW.
    pub raw_ip: bool,
    /// This end's NETBLT port. `None`: the active end's is its UDP port, or any on raw IP; the
    /// passive end's is whatever it is called by, or [`crate::net::raw_ip::PORT`] on raw IP.
    pub port: Option<u16>,
    /// The other end's NETBLT port, told by the active end. `None`: its UDP port, or
    /// [`crate::net::raw_ip::PORT`].
    pub peer_port: Option<u16>,
    /// Do not ask for checksums of the data (flag C).
    pub no_checksum: bool,
}

/// Changes a transfer from any thread while it runs: its rate, its policy, and whether it goes on
/// at all. Give a clone of it in [`Options::control`](crate::Options::control), and keep one.
///
/// What was said before the transfer began holds from its beginning, and what is said last, for as
/// long as it runs, connections that take the place of others included. It is noticed within 100
/// ms. With `rfc998` a sender's policy stays as it was told, and a receiver can only pause.
///
/// ```
/// use netblt::{Control, Options, Rate};
///
/// let control = Control::new();
/// let mut options = Options::default();
/// options.control = Some(control.clone());
/// // ... `netblt::send` runs on another thread ...
/// control.set_rate(Some(Rate::from_bits_per_second(50_000_000)));
/// control.pause();
/// control.resume();
/// assert!(!control.is_paused());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Control(Arc<Mutex<Wish>>);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wish {
    pub(crate) steering: Steering,
    /// How often it was changed.
    pub(crate) changes: u64,
    /// The transfer could not go over to this policy.
    pub(crate) refused: Option<Policy>,
}

impl Control {
    /// A handle that has changed nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Never faster than this, in bytes of IP packets a second; `None`: no ceiling, whatever
    /// [`Options::policy`](crate::Options::policy) says. A receiver asks its sender for it, who
    /// obeys (`sealed`). Nothing goes beyond what both ends agreed on at the opening.
    pub fn set_rate(&self, most: Option<Rate>) {
        self.change(|steering| steering.ceiling = most.map_or(Ceiling::Lifted, Ceiling::At));
    }

    /// Sender: how the rate is chosen from now on, with the ceiling in `policy` unless
    /// [`Control::set_rate`] says otherwise. [`Policy::Recreated`] can neither be left nor taken
    /// up; [`Control::refused`] tells.
    pub fn set_policy(&self, policy: Policy) {
        self.change(|steering| steering.policy = Some(policy));
    }

    /// Nothing moves until [`Control::resume`]: a sender sends no data (`rfc998`: begins no other
    /// buffer), a receiver gives no more permission, so that what it has given still comes. The
    /// connection stays.
    pub fn pause(&self) {
        self.change(|steering| steering.paused = true);
    }

    /// Goes on.
    pub fn resume(&self) {
        self.change(|steering| steering.paused = false);
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.lock().steering.paused
    }

    /// What was said so far.
    pub fn steering(&self) -> Steering {
        self.lock().steering
    }

    /// The policy that the transfer could not go over to, if that was wanted last.
    pub fn refused(&self) -> Option<Policy> {
        self.lock().refused
    }

    fn change(&self, change: impl FnOnce(&mut Steering)) {
        let mut wish = self.lock();
        change(&mut wish.steering);
        wish.changes += 1;
        wish.refused = None;
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Wish> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
