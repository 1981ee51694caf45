//! What is asked of a server, and its answers, as bytes (`docs/protocol §8.8`).

use netblt_proto::config::{PublicKey, StaticKey};
use netblt_proto::content::check_name;

pub(crate) use self::ranged::{Join, PutRange};

#[path = "request_ranges.rs"]
mod ranged;

/// The client string of a connection for one request.
pub(crate) const ASK: &str = "netblt ask";
/// The client string of a session's connection.
pub(crate) const SESSION: &str = "netblt session";
/// The first line of an answer.
pub(crate) const TITLE: &[u8] = b"netblt answer 1";
/// Under which name an answer goes.
pub(crate) const NAME: &str = "answer";
/// With what its lines end: no name has it.
pub(crate) const END: u8 = 0;
/// Longest request: two names and what goes with them.
const MAX_REQUEST: usize = 10_000;
/// Longest request that reads, and how many pieces it has at most.
pub(crate) const MAX_READ: usize = 1 << 18;
pub(crate) const MAX_PIECES: usize = 4096;
/// Bytes of a piece beside its path.
pub(crate) const PIECE_HEAD: usize = 18;
/// Longest line of an answer: numbers and a name.
pub(crate) const LONGEST_LINE: usize = 5000;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) what: RequestKind,
    /// Relative to the root, without a slash before or behind; the root itself is empty.
    pub(crate) path: Vec<u8>,
}

/// The kinds of requests, with what each needs beside a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// The file; with `trees` a directory and all in it. It comes under this name, over so many
    /// subflows at most.
    Get { trees: bool, name: Vec<u8>, subflows: u64 },
    /// Where files may go that are sent with another connection.
    Put(Put),
    /// What stands there; with `trees` how many bytes the files in a directory have, too.
    Stat { trees: bool },
    /// What is in a directory, by name, after this one, at most so many entries (0: all).
    List { after: Vec<u8>, most: u64 },
    /// A directory is to be made; `parents`: and those above it, and it may exist.
    MakeDir { parents: bool },
    /// A file or link is to go; `directory`: or an empty directory; `tree`: or one with all in it.
    Remove { directory: bool, tree: bool },
    /// Something is to stand under this path instead; `replace`: a file there goes.
    Rename { to: Vec<u8>, replace: bool },
    /// The same is to stand under this path, too.
    Copy { to: Vec<u8>, how: Copying },
    /// Pieces of files.
    Read { pieces: Vec<Piece> },
    /// What [`RequestKind::Get`] gets is to go to another server.
    Send { trees: bool, name: Vec<u8>, push: PushTarget },
    /// Where a range of a file may go that is sent with another connection.
    PutRange(PutRange),
    /// All ranges of a file are there: it is to get its name.
    Join(Join),
}

/// Where files go that a server sends by itself: another one, which awaits them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PushTarget {
    /// Under which number.
    pub(crate) number: u64,
    /// The key of that server.
    pub(crate) server: PublicKey,
    /// A key that it has lent for this.
    pub(crate) own: StaticKey,
    /// `host:port`.
    pub(crate) address: String,
}

impl PushTarget {
    fn parse(number: u64, text: &[u8]) -> Option<Self> {
        let (server, text) = text.split_first_chunk()?;
        let (own, text) = text.split_first_chunk()?;
        let (address, _) = part(text)?;
        let address = String::from_utf8(address.to_vec()).ok()?;
        let (server, own) = (PublicKey(*server), StaticKey::from_bytes(*own));
        Some(Self { number, server, own, address })
    }

    fn encode(&self) -> Vec<u8> {
        let address = self.address.as_bytes();
        let length = u16::try_from(address.len()).unwrap_or(u16::MAX).to_be_bytes();
        [&self.server.0[..], self.own.private(), &length, address].concat()
    }
}

/// How something is copied on the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copying {
    /// A file that exists is replaced.
    pub(crate) replace: bool,
    /// Directories too, with all in them.
    pub(crate) trees: bool,
    /// Times and permissions are those of what is copied.
    pub(crate) keep: bool,
}

/// Bytes of a file on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which file.
    pub path: Vec<u8>,
    /// Where it begins.
    pub offset: u64,
    /// How many bytes; what lies beyond the end of the file is not there.
    pub bytes: u64,
}

/// How files are to be put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Put {
    /// Files that exist are replaced.
    pub(crate) replace: bool,
    /// The path must be a directory.
    pub(crate) several: bool,
    /// The one source is a directory.
    pub(crate) tree: bool,
    /// All or nothing.
    pub(crate) atomic: bool,
    /// Permissions are the sender's whatever the server's mask.
    pub(crate) preserve: bool,
    /// Times are the sender's.
    pub(crate) times: bool,
    /// Files are read again before they get their names.
    pub(crate) verify: bool,
    /// Distinguishes its staging files from those of other transfers.
    pub(crate) label: Option<[u8; 32]>,
    /// Another server brings them, with a key that is lent for it.
    pub(crate) via_server: bool,
    /// If not 0: nothing is to come, not even what was announced under this number.
    pub(crate) cancels_upload: u64,
}

/// Flags, by kind.
const TREES: u16 = 1;
const PARENTS: u16 = 1;
const DIRECTORY: u16 = 1;
const TREE: u16 = 2;
const REPLACE: u16 = 1;
const DIRECTORIES: u16 = 2;
const KEEP: u16 = 4;
/// The kind with longer requests.
const READ: u8 = 9;

impl Put {
    fn flags(self) -> u16 {
        let Self { replace, several, tree, atomic, preserve, times, verify, .. } = self;
        let all = [replace, several, tree, atomic, preserve, times, verify, self.via_server];
        all.iter().rev().fold(0, |flags, flag| flags << 1 | u16::from(*flag))
    }

    fn of(flags: u16, cancels_upload: u64, label: &[u8]) -> Self {
        let bit = |at: u32| flags >> at & 1 == 1;
        Self {
            replace: bit(0),
            several: bit(1),
            tree: bit(2),
            atomic: bit(3),
            preserve: bit(4),
            times: bit(5),
            verify: bit(6),
            via_server: bit(7),
            cancels_upload,
            label: label.try_into().ok(),
        }
    }
}

/// Every kind of request, by its number, and its word for logs and counts.
pub(crate) const WORDS: [(u8, &str); 12] = [
    (1, "get"),
    (2, "put"),
    (3, "stat"),
    (4, "list"),
    (5, "mkdir"),
    (6, "remove"),
    (7, "rename"),
    (8, "copy"),
    (READ, "read"),
    (10, "send"),
    (11, "put-range"),
    (12, "join"),
];

impl RequestKind {
    /// The number of its kind.
    fn kind(&self) -> u8 {
        match self {
            Self::Get { .. } => 1,
            Self::Put(_) => 2,
            Self::Stat { .. } => 3,
            Self::List { .. } => 4,
            Self::MakeDir { .. } => 5,
            Self::Remove { .. } => 6,
            Self::Rename { .. } => 7,
            Self::Copy { .. } => 8,
            Self::Read { .. } => READ,
            Self::Send { .. } => 10,
            Self::PutRange(_) => 11,
            Self::Join(_) => 12,
        }
    }

    /// Whether it may be asked again when it is unknown whether it was answered.
    pub(crate) fn changes_nothing(&self) -> bool {
        matches!(self, Self::Stat { .. } | Self::List { .. } | Self::Read { .. })
    }
}

impl Request {
    /// Its word, for logs and counts.
    pub(crate) fn word(&self) -> &'static str {
        let kind = self.what.kind();
        WORDS.iter().find(|(known, _)| *known == kind).map_or("none", |(_, word)| word)
    }

    /// Why a client with these permissions may not ask it.
    pub(crate) fn check_permission(&self, read: bool, write: bool) -> Option<&'static str> {
        let (reads, writes) = match self.what {
            RequestKind::Get { .. } | RequestKind::Stat { .. } | RequestKind::List { .. } => {
                (true, false)
            }
            RequestKind::Read { .. } | RequestKind::Send { .. } => (true, false),
            RequestKind::Put(_) | RequestKind::MakeDir { .. } | RequestKind::Remove { .. } => {
                (false, true)
            }
            RequestKind::Rename { .. } | RequestKind::PutRange(_) | RequestKind::Join(_) => {
                (false, true)
            }
            RequestKind::Copy { .. } => (true, true),
        };
        match (reads && !read, writes && !write) {
            (_, true) => Some("no write permission"),
            (true, _) => Some("no read permission"),
            _ => None,
        }
    }

    /// The number of the announced upload to cancel.
    pub(crate) fn cancels_upload(&self) -> Option<u64> {
        match self.what {
            RequestKind::Put(put) => Some(put.cancels_upload).filter(|number| *number != 0),
            _ => None,
        }
    }

    /// Over how many subflows files may come that are asked for (`docs/protocol §4.11`).
    pub(crate) fn subflows(&self) -> u64 {
        match self.what {
            RequestKind::Get { subflows, .. } => subflows,
            _ => 0,
        }
    }

    /// Whether another server brings the announced upload.
    pub(crate) fn is_via_server(&self) -> bool {
        matches!(self.what, RequestKind::Put(Put { via_server: true, .. }))
    }

    /// Whether it announces an upload.
    pub(crate) fn is_put(&self) -> bool {
        let puts = matches!(self.what, RequestKind::Put(_) | RequestKind::PutRange(_));
        puts && self.cancels_upload().is_none()
    }

    /// Bytes of memory for it, and for performing it.
    pub(crate) fn cost(&self) -> u64 {
        const PIECE: u64 = 64;
        match &self.what {
            // They are copied once.
            RequestKind::Read { pieces } => {
                2 * pieces.iter().map(|piece| piece.path.len() as u64 + PIECE).sum::<u64>()
            }
            _ => 0,
        }
    }

    /// All paths in it.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &[u8]> {
        let (to, pieces) = match &self.what {
            RequestKind::Rename { to, .. }
            | RequestKind::Copy { to, .. }
            | RequestKind::Join(Join { to, .. }) => (Some(&to[..]), &[][..]),
            RequestKind::Read { pieces } => (None, &pieces[..]),
            _ => (None, &[][..]),
        };
        let pieces = pieces.iter().map(|piece| &piece.path[..]);
        [&self.path[..]].into_iter().chain(to).chain(pieces)
    }

    /// Its other path, for logs: the target.
    pub(crate) fn target(&self) -> Vec<u8> {
        match &self.what {
            RequestKind::Rename { to, .. } | RequestKind::Copy { to, .. } => to.clone(),
            RequestKind::Join(join) => join.to.clone(),
            RequestKind::Send { push, .. } => push.address.clone().into_bytes(),
            _ => Vec::new(),
        }
    }

    /// The key that two uploads of the same files have in common: the path, and for files with a
    /// label, behind a zero byte, the label.
    pub(crate) fn upload_key(&self) -> Vec<u8> {
        match self.what {
            RequestKind::Put(Put { label: Some(label), .. })
            | RequestKind::PutRange(PutRange { label, .. }) => {
                [&self.path[..], &[0], &label].concat()
            }
            _ => self.path.clone(),
        }
    }

    /// Its bytes, which precede those of HAVE (`docs/protocol §8.7`).
    pub(crate) fn encode(&self) -> Vec<u8> {
        let none: &[u8] = &[];
        let (flags, number, name) = match &self.what {
            RequestKind::Get { trees, name, subflows } => {
                (u16::from(*trees) * TREES, *subflows, &name[..])
            }
            RequestKind::Put(put) => (
                put.flags(),
                put.cancels_upload,
                put.label.as_ref().map_or(none, |label| &label[..]),
            ),
            RequestKind::Stat { trees } => (u16::from(*trees) * TREES, 0, none),
            RequestKind::List { after, most } => (0, *most, &after[..]),
            RequestKind::MakeDir { parents } => (u16::from(*parents) * PARENTS, 0, none),
            RequestKind::Remove { directory, tree } => {
                let flags = [u16::from(*directory) * DIRECTORY, u16::from(*tree) * TREE];
                (flags[0] | flags[1], 0, none)
            }
            RequestKind::Rename { to, replace } => (u16::from(*replace) * REPLACE, 0, &to[..]),
            RequestKind::Copy { to, how } => {
                let Copying { replace, trees, keep } = *how;
                let flags = [(replace, REPLACE), (trees, DIRECTORIES), (keep, KEEP)];
                let flags = flags.iter().filter(|(is, _)| *is).map(|(_, bit)| bit).sum();
                (flags, 0, &to[..])
            }
            RequestKind::Read { .. } => (0, 0, none),
            RequestKind::Send { trees, name, push } => {
                (u16::from(*trees) * TREES, push.number, &name[..])
            }
            RequestKind::PutRange(put) => (put.flags(), 0, &put.label[..]),
            RequestKind::Join(join) => (join.flags(), join.total, &join.to[..]),
        };
        let mut text = vec![self.what.kind()];
        text.extend(flags.to_be_bytes());
        text.extend(number.to_be_bytes());
        for part in [&self.path[..], name] {
            text.extend(u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
            text.extend(part);
        }
        if let RequestKind::Read { pieces } = &self.what {
            let mut before = &self.path;
            for piece in pieces {
                let path: &[u8] = if piece.path == *before { &[] } else { &piece.path };
                text.extend(u16::try_from(path.len()).unwrap_or(u16::MAX).to_be_bytes());
                text.extend(path);
                text.extend(piece.offset.to_be_bytes());
                text.extend(piece.bytes.to_be_bytes());
                before = &piece.path;
            }
        }
        match &self.what {
            RequestKind::Send { push, .. } => text.extend(push.encode()),
            RequestKind::PutRange(put) => text.extend(put.encode()),
            RequestKind::Join(join) => text.extend(join.encode()),
            _ => {}
        }
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        [&length.to_be_bytes()[..], &text].concat()
    }

    /// A request and the rest of the bytes, if it is valid. Fields behind the known ones are
    /// ignored.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (text, rest) = rest.split_at_checked(length).filter(|_| length <= MAX_READ)?;
        let ([kind], text) = text.split_first_chunk::<1>()?;
        if *kind != READ && length > MAX_REQUEST {
            return None;
        }
        let (flags, text) = text.split_first_chunk::<2>()?;
        let (number, text) = text.split_first_chunk::<8>()?;
        let (path, text) = part(text)?;
        let (name, text) = part(text)?;
        let flags = u16::from_be_bytes(*flags);
        let what = match kind {
            1 => {
                let (trees, subflows) = (flags & TREES != 0, u64::from_be_bytes(*number));
                RequestKind::Get { trees, name: one_part(name)?, subflows }
            }
            2 => RequestKind::Put(Put::of(flags, u64::from_be_bytes(*number), name)),
            3 => RequestKind::Stat { trees: flags & TREES != 0 },
            4 => RequestKind::List { after: name.to_vec(), most: u64::from_be_bytes(*number) },
            5 => RequestKind::MakeDir { parents: flags & PARENTS != 0 },
            6 => RequestKind::Remove { directory: flags & DIRECTORY != 0, tree: flags & TREE != 0 },
            7 => RequestKind::Rename { to: any_path(name)?, replace: flags & REPLACE != 0 },
            8 => {
                let is = |flag| flags & flag != 0;
                let (replace, trees, keep) = (is(REPLACE), is(DIRECTORIES), is(KEEP));
                RequestKind::Copy { to: any_path(name)?, how: Copying { replace, trees, keep } }
            }
            &READ => RequestKind::Read { pieces: pieces(path, text)? },
            10 => {
                let push = PushTarget::parse(u64::from_be_bytes(*number), text)?;
                RequestKind::Send { trees: flags & TREES != 0, name: one_part(name)?, push }
            }
            11 => RequestKind::PutRange(PutRange::parse(flags, name, text)?),
            12 => RequestKind::Join(Join::parse(flags, u64::from_be_bytes(*number), name, text)?),
            _ => return None,
        };
        Some((Self { what, path: any_path(path)? }, rest))
    }
}

/// The pieces to read. One without a path has that of the request.
fn pieces(path: &[u8], mut text: &[u8]) -> Option<Vec<Piece>> {
    let mut found: Vec<Piece> = Vec::new();
    while !text.is_empty() && found.len() < MAX_PIECES {
        let (own, rest) = part(text)?;
        let (offset, rest) = rest.split_first_chunk::<8>()?;
        let (bytes, rest) = rest.split_first_chunk::<8>()?;
        let before = found.last().map_or(path, |piece| &piece.path[..]);
        let path = any_path(if own.is_empty() { before } else { own })?;
        let (offset, bytes) = (u64::from_be_bytes(*offset), u64::from_be_bytes(*bytes));
        found.push(Piece { path, offset, bytes });
        text = rest;
    }
    text.is_empty().then_some(found)
}

/// The root, or something beneath it.
fn any_path(path: &[u8]) -> Option<Vec<u8>> {
    (path.is_empty() || check_name(path).is_ok()).then(|| path.to_vec())
}

fn part(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, text) = text.split_first_chunk::<2>()?;
    text.split_at_checked(u16::from_be_bytes(*length).into())
}

/// A name under which something can arrive.
fn one_part(name: &[u8]) -> Option<Vec<u8>> {
    check_name(name).ok()?;
    (!name.contains(&b'/')).then(|| name.to_vec())
}

/// A path as a user writes it, as a request has it: slashes at either end and doubled ones do not
/// count, nor does a part `.`; there is nothing above the root.
pub(crate) fn plain(path: &[u8]) -> Result<Vec<u8>, &'static str> {
    let parts = path.split(|byte| *byte == b'/');
    let parts: Vec<&[u8]> = parts.filter(|part| !matches!(*part, b"" | b".")).collect();
    let path = parts.join(&b'/');
    if !path.is_empty() {
        check_name(&path)?;
    }
    Ok(path)
}

/// The type of a file on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum EntryType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, pipe or socket.
    Other,
}

/// Something on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Its name, one part; that of the root is empty.
    pub name: Vec<u8>,
    /// Its type.
    pub sort: EntryType,
    /// Bytes in it.
    pub length: u64,
    /// Those of them that are no holes, as far as the server has reported.
    pub data: u64,
    /// Time of modification: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// Permission bits.
    pub mode: u32,
}

/// A line of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResponseItem {
    Entry(Entry),
    /// Bytes of the entry before it that are no holes.
    Room(u64),
    /// There are more entries after the last one.
    More,
    /// Under which number files are put, and the name that a single one gets, if it is not to keep
    /// its own.
    Put(u64, Vec<u8>),
    /// How many were made, removed, renamed or copied.
    Done(u64),
    /// The private half of a lent key, for one upload.
    Key(StaticKey),
    /// How far it is: bytes, bytes in all (0: not known), and of them those that were there
    /// before; files, and those that were left out; what limits it, by its place in
    /// [`LimitedBy::ALL`](crate::LimitedBy::ALL).
    Moved([u64; 6]),
    /// Bytes of a file follow.
    Data(u64),
    /// A piece of a file that cannot be read: a word for why, and that for people.
    Denied(String, String),
}

impl ResponseItem {
    /// Its bytes, with its end.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut line = match self {
            Self::Entry(entry) => {
                let sort = match entry.sort {
                    EntryType::File => 'f',
                    EntryType::Directory => 'd',
                    EntryType::Link => 'l',
                    EntryType::Other => 'o',
                };
                let ((seconds, nanos), length) = (entry.modified, entry.length);
                let head = format!("{sort} {length} {seconds} {nanos} {} ", entry.mode);
                [head.as_bytes(), &entry.name].concat()
            }
            Self::Room(bytes) => format!("room {bytes}").into_bytes(),
            Self::More => b"more".to_vec(),
            Self::Put(number, name) => [format!("put {number} ").as_bytes(), name].concat(),
            Self::Done(count) => format!("done {count}").into_bytes(),
            Self::Key(key) => {
                let digits = |text, byte: &u8| format!("{text}{byte:02x}");
                key.private().iter().fold("key ".to_owned(), digits).into_bytes()
            }
            Self::Moved(counts) => {
                counts.iter().fold("moved".to_owned(), |text, n| format!("{text} {n}")).into_bytes()
            }
            Self::Data(bytes) => format!("data {bytes}").into_bytes(),
            Self::Denied(word, why) => {
                format!("denied {word} {}", why.replace('\0', " ")).into_bytes()
            }
        };
        line.push(END);
        line
    }

    /// Parses an item, without its end. An unknown kind gives `None`.
    pub(crate) fn parse(line: &[u8]) -> Result<Option<Self>, ()> {
        let mut words = line.splitn(6, |byte| *byte == b' ');
        let sort = match words.next().unwrap_or_default() {
            b"f" => EntryType::File,
            b"d" => EntryType::Directory,
            b"l" => EntryType::Link,
            b"o" => EntryType::Other,
            b"more" => return Ok(Some(Self::More)),
            b"room" => return Ok(Some(Self::Room(number(words.next()).ok_or(())?))),
            b"done" => return Ok(Some(Self::Done(number(words.next()).ok_or(())?))),
            b"data" => return Ok(Some(Self::Data(number(words.next()).ok_or(())?))),
            b"key" => {
                let key = words.next().and_then(of_digits).ok_or(())?;
                return Ok(Some(Self::Key(StaticKey::from_bytes(key))));
            }
            b"moved" => {
                let mut words = line.split(|byte| *byte == b' ').skip(1);
                let mut counts = [0; 6];
                for count in &mut counts {
                    *count = number(words.next()).ok_or(())?;
                }
                return Ok(Some(Self::Moved(counts)));
            }
            b"denied" => {
                let (word, why) = line
                    .get(7..)
                    .and_then(|rest| {
                        let at = rest.iter().position(|byte| *byte == b' ')?;
                        Some((rest.get(..at)?, rest.get(at + 1..)?))
                    })
                    .ok_or(())?;
                let text = |bytes| str::from_utf8(bytes).map(str::to_owned).map_err(|_| ());
                return Ok(Some(Self::Denied(text(word)?, text(why)?)));
            }
            b"put" => {
                let rest = line.get(4..).unwrap_or_default();
                let at = rest.iter().position(|byte| *byte == b' ').ok_or(())?;
                let (count, name) = rest.split_at(at);
                let name = name.get(1..).unwrap_or_default();
                let name = if name.is_empty() { Some(Vec::new()) } else { one_part(name) };
                let number = number(Some(count)).ok_or(())?;
                return Ok(Some(Self::Put(number, name.ok_or(())?)));
            }
            _ => return Ok(None),
        };
        let entry = (|| {
            let length = number(words.next())?;
            let modified = (number(words.next())?, number(words.next())?);
            let mode = number(words.next())?;
            let name = words.next()?;
            let name = if name.is_empty() { Vec::new() } else { one_part(name)? };
            Some(Entry { name, sort, length, data: length, modified, mode })
        })();
        entry.map(|entry| Some(Self::Entry(entry))).ok_or(())
    }
}

/// 32 bytes of 64 hexadecimal digits.
fn of_digits(text: &[u8]) -> Option<[u8; 32]> {
    let text = str::from_utf8(text).ok()?;
    let digits = text.len() == 64 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate().filter(|_| digits) {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    digits.then_some(bytes)
}

fn number<T: std::str::FromStr>(text: Option<&[u8]>) -> Option<T> {
    str::from_utf8(text?).ok()?.parse().ok()
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
