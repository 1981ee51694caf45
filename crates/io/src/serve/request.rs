//! What is asked of a server, and its answers, as bytes (`docs/protocol.md §8.8`).

use netblt_proto::content::check_name;

/// The client string of who asks.
pub(crate) const ASK: &str = "netblt ask";
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
    pub(crate) what: What,
    /// Relative to the root, without a slash before or behind; the root itself is empty.
    pub(crate) path: Vec<u8>,
}

/// The kinds of requests, with what each needs beside a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The file; with `trees` a directory and all in it. It comes under this name.
    Get { trees: bool, name: Vec<u8> },
    /// Where files may go that are sent with another connection.
    Put(Put),
    /// What stands there.
    Stat,
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
    /// What tells what is left of it from what others leave.
    pub(crate) label: Option<[u8; 32]>,
}

/// Flags, by kind.
const TREES: u16 = 1;
const PARENTS: u16 = 1;
const DIRECTORY: u16 = 1;
const TREE: u16 = 2;
const REPLACE: u16 = 1;
const DIRECTORIES: u16 = 2;
const KEEP: u16 = 4;
/// The kind whose requests are longer.
const READ: u8 = 9;

impl Put {
    fn flags(self) -> u16 {
        let Self { replace, several, tree, atomic, preserve, times, verify, label: _ } = self;
        let all = [replace, several, tree, atomic, preserve, times, verify];
        all.iter().rev().fold(0, |flags, flag| flags << 1 | u16::from(*flag))
    }

    fn of(flags: u16, label: &[u8]) -> Self {
        let bit = |at: u32| flags >> at & 1 == 1;
        Self {
            replace: bit(0),
            several: bit(1),
            tree: bit(2),
            atomic: bit(3),
            preserve: bit(4),
            times: bit(5),
            verify: bit(6),
            label: label.try_into().ok(),
        }
    }
}

impl Request {
    /// Its word, for logs.
    pub(crate) fn word(&self) -> &'static str {
        match self.what {
            What::Get { .. } => "get",
            What::Put(_) => "put",
            What::Stat => "stat",
            What::List { .. } => "list",
            What::MakeDir { .. } => "mkdir",
            What::Remove { .. } => "remove",
            What::Rename { .. } => "rename",
            What::Copy { .. } => "copy",
            What::Read { .. } => "read",
        }
    }

    /// Why it is not for somebody who may read or write.
    pub(crate) fn forbidden(&self, read: bool, write: bool) -> Option<&'static str> {
        let (reads, writes) = match self.what {
            What::Get { .. } | What::Stat | What::List { .. } | What::Read { .. } => (true, false),
            What::Put(_) | What::MakeDir { .. } | What::Remove { .. } => (false, true),
            What::Rename { .. } => (false, true),
            What::Copy { .. } => (true, true),
        };
        match (reads && !read, writes && !write) {
            (_, true) => Some("nothing may be changed here"),
            (true, _) => Some("nothing may be read here"),
            _ => None,
        }
    }

    /// All paths in it.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &[u8]> {
        let (to, pieces) = match &self.what {
            What::Rename { to, .. } | What::Copy { to, .. } => (Some(&to[..]), &[][..]),
            What::Read { pieces } => (None, &pieces[..]),
            _ => (None, &[][..]),
        };
        let pieces = pieces.iter().map(|piece| &piece.path[..]);
        [&self.path[..]].into_iter().chain(to).chain(pieces)
    }

    /// What it is about, for whoever comes after somebody who has fallen silent: its path, and for
    /// files that are put under a label, behind a zero byte, that too.
    pub(crate) fn spot(&self) -> Vec<u8> {
        match self.what {
            What::Put(Put { label: Some(label), .. }) => [&self.path[..], &[0], &label].concat(),
            _ => self.path.clone(),
        }
    }

    /// Its bytes, which stand before those of what is here (`docs/protocol.md §8.7`).
    pub(crate) fn encode(&self) -> Vec<u8> {
        let none: &[u8] = &[];
        let (kind, flags, number, name) = match &self.what {
            What::Get { trees, name } => (1u8, u16::from(*trees) * TREES, 0, &name[..]),
            What::Put(put) => {
                (2, put.flags(), 0, put.label.as_ref().map_or(none, |label| &label[..]))
            }
            What::Stat => (3, 0, 0, none),
            What::List { after, most } => (4, 0, *most, &after[..]),
            What::MakeDir { parents } => (5, u16::from(*parents) * PARENTS, 0, none),
            What::Remove { directory, tree } => {
                let flags = [u16::from(*directory) * DIRECTORY, u16::from(*tree) * TREE];
                (6, flags[0] | flags[1], 0, none)
            }
            What::Rename { to, replace } => (7, u16::from(*replace) * REPLACE, 0, &to[..]),
            What::Copy { to, how } => {
                let Copying { replace, trees, keep } = *how;
                let flags = [(replace, REPLACE), (trees, DIRECTORIES), (keep, KEEP)];
                let flags = flags.iter().filter(|(is, _)| *is).map(|(_, bit)| bit).sum();
                (8, flags, 0, &to[..])
            }
            What::Read { .. } => (READ, 0, 0, none),
        };
        let mut text = vec![kind];
        text.extend(flags.to_be_bytes());
        text.extend(number.to_be_bytes());
        for part in [&self.path[..], name] {
            text.extend(u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
            text.extend(part);
        }
        if let What::Read { pieces } = &self.what {
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
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        [&length.to_be_bytes()[..], &text].concat()
    }

    /// A request and what follows it; nothing if it is none. What stands behind the fields that
    /// are known is passed over.
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
            1 => What::Get { trees: flags & TREES != 0, name: one_part(name)? },
            2 => What::Put(Put::of(flags, name)),
            3 => What::Stat,
            4 => What::List { after: name.to_vec(), most: u64::from_be_bytes(*number) },
            5 => What::MakeDir { parents: flags & PARENTS != 0 },
            6 => What::Remove { directory: flags & DIRECTORY != 0, tree: flags & TREE != 0 },
            7 => What::Rename { to: any_path(name)?, replace: flags & REPLACE != 0 },
            8 => {
                let is = |flag| flags & flag != 0;
                let (replace, trees, keep) = (is(REPLACE), is(DIRECTORIES), is(KEEP));
                What::Copy { to: any_path(name)?, how: Copying { replace, trees, keep } }
            }
            &READ => What::Read { pieces: pieces(path, text)? },
            _ => return None,
        };
        Some((Self { what, path: any_path(path)? }, rest))
    }
}

/// What is to be read, with the path of the first piece if it has none of its own.
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

/// What kind of thing something on a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Sort {
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
    /// What it is.
    pub sort: Sort,
    /// Bytes in it.
    pub length: u64,
    /// Time of modification: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// Permission bits.
    pub mode: u32,
}

/// A line of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Entry(Entry),
    /// There are more entries after the last one.
    More,
    /// Under which number files are put, and the name that a single one gets, if it is not to keep
    /// its own.
    Put(u64, Vec<u8>),
    /// So many were made, removed, renamed or copied.
    Done(u64),
    /// So many bytes of a file follow.
    Data(u64),
    /// A piece of a file that cannot be read: a word for why, and that for people.
    Denied(String, String),
}

impl Line {
    /// Its bytes, with its end.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut line = match self {
            Self::Entry(entry) => {
                let sort = match entry.sort {
                    Sort::File => 'f',
                    Sort::Directory => 'd',
                    Sort::Link => 'l',
                    Sort::Other => 'o',
                };
                let ((seconds, nanos), length) = (entry.modified, entry.length);
                let head = format!("{sort} {length} {seconds} {nanos} {} ", entry.mode);
                [head.as_bytes(), &entry.name].concat()
            }
            Self::More => b"more".to_vec(),
            Self::Put(number, name) => [format!("put {number} ").as_bytes(), name].concat(),
            Self::Done(count) => format!("done {count}").into_bytes(),
            Self::Data(bytes) => format!("data {bytes}").into_bytes(),
            Self::Denied(word, why) => {
                format!("denied {word} {}", why.replace('\0', " ")).into_bytes()
            }
        };
        line.push(END);
        line
    }

    /// What a line says; of a kind that is not known, nothing.
    pub(crate) fn parse(line: &[u8]) -> Result<Option<Self>, ()> {
        let mut words = line.splitn(6, |byte| *byte == b' ');
        let sort = match words.next().unwrap_or_default() {
            b"f" => Sort::File,
            b"d" => Sort::Directory,
            b"l" => Sort::Link,
            b"o" => Sort::Other,
            b"more" => return Ok(Some(Self::More)),
            b"done" => return Ok(Some(Self::Done(number(words.next()).ok_or(())?))),
            b"data" => return Ok(Some(Self::Data(number(words.next()).ok_or(())?))),
            b"denied" => {
                let (word, why) = line
                    .get(7..)
                    .and_then(|rest| {
                        let at = rest.iter().position(|byte| *byte == b' ')?;
                        Some((rest.get(..at)?, rest.get(at + 1..)?))
                    })
                    .ok_or(())?;
                let text = |bytes| str::from_utf8(bytes).map_err(|_| ());
                let why = text(why)?.replace('\0', " ");
                return Ok(Some(Self::Denied(text(word)?.replace('\0', " "), why)));
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
            Some(Entry { name, sort, length, modified, mode })
        })();
        entry.map(|entry| Some(Self::Entry(entry))).ok_or(())
    }
}

fn number<T: std::str::FromStr>(text: Option<&[u8]>) -> Option<T> {
    str::from_utf8(text?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<Request> {
        let put = Put { replace: true, atomic: true, times: true, ..Put::default() };
        let labelled = Put { verify: true, label: Some([0; 32]), ..put };
        let whats = [
            What::Get { trees: true, name: b"n\xff".to_vec() },
            What::Put(put),
            What::Put(labelled),
            What::Stat,
            What::List { after: b"x".to_vec(), most: 1000 },
            What::MakeDir { parents: true },
            What::Remove { directory: true, tree: false },
            What::Remove { directory: false, tree: true },
            What::Rename { to: b"b/\xfe".to_vec(), replace: true },
            What::Copy { to: b"c".to_vec(), how: Copying { trees: true, ..Copying::default() } },
            What::Copy { to: vec![], how: Copying { keep: true, replace: true, trees: false } },
        ];
        whats.map(|what| Request { what, path: b"a/\xfe b".to_vec() }).into()
    }

    #[test]
    fn a_request_is_understood_and_what_follows_is_left() {
        for request in requests() {
            let bytes = [&request.encode()[..], b"rest"].concat();
            assert_eq!(Request::parse(&bytes), Some((request, &b"rest"[..])));
        }
    }

    #[test]
    fn what_is_no_request_is_none_wherever_it_is_cut() {
        for request in requests() {
            let bytes = request.encode();
            for end in 0..bytes.len() {
                assert_eq!(Request::parse(&bytes[..end]), None);
            }
        }
        for path in [&b"../x"[..], b"/etc", b"a//b", b"a/./b", b"a\0"] {
            let bytes = Request { what: What::Stat, path: path.to_vec() }.encode();
            assert_eq!(Request::parse(&bytes), None, "{}", String::from_utf8_lossy(path));
        }
        for to in [&b"../x"[..], b"/etc", b"a/../../b"] {
            let (path, to) = (b"a".to_vec(), to.to_vec());
            let whats = [
                What::Rename { to: to.clone(), replace: false },
                What::Copy { to: to.clone(), how: Copying::default() },
                What::Read { pieces: vec![Piece { path: to, offset: 0, bytes: 1 }] },
            ];
            for what in whats {
                let bytes = Request { what, path: path.clone() }.encode();
                assert_eq!(Request::parse(&bytes), None);
            }
        }
        for name in [&b""[..], b"..", b"a/b"] {
            let what = What::Get { trees: false, name: name.to_vec() };
            assert_eq!(Request::parse(&Request { what, path: vec![] }.encode()), None);
        }
        let mut odd = requests()[0].encode();
        odd[4] = 99;
        assert_eq!(Request::parse(&odd), None);
    }

    #[test]
    fn pieces_are_understood_and_bounded() {
        let piece = |path: &[u8], offset| Piece { path: path.to_vec(), offset, bytes: u64::MAX };
        let of = |pieces| Request { what: What::Read { pieces }, path: b"a/\xfe".to_vec() };
        let some = vec![piece(b"a/\xfe", 0), piece(b"a/\xfe", 7), piece(b"b", u64::MAX)];
        for pieces in [vec![], some, vec![piece(b"x", 1); MAX_PIECES]] {
            let request = of(pieces);
            let bytes = [&request.encode()[..], b"rest"].concat();
            assert_eq!(Request::parse(&bytes), Some((request, &b"rest"[..])));
        }
        assert_eq!(Request::parse(&of(vec![piece(b"x", 1); MAX_PIECES + 1]).encode()), None);
        let two = vec![piece(&[b'x'; 200], 1), piece(b"b", 1)];
        let long: Vec<Piece> = std::iter::repeat_n(two, 1300).flatten().collect();
        assert!(long.len() < MAX_PIECES && Request::parse(&of(long).encode()).is_none());
        let mut cut = of(vec![piece(b"x", 1)]).encode();
        cut.pop();
        let length = u32::try_from(cut.len() - 4).expect("short");
        cut[..4].copy_from_slice(&length.to_be_bytes());
        assert_eq!(Request::parse(&cut), None);
    }

    #[test]
    fn only_who_may_read_and_write_may_copy() {
        let refused = |what| {
            let request = Request { what, path: vec![] };
            [(true, false), (false, true), (true, true)]
                .map(|(read, write)| request.forbidden(read, write).is_some())
        };
        let to = b"x".to_vec();
        let copy = What::Copy { to: to.clone(), how: Copying::default() };
        assert_eq!(refused(copy), [true, true, false]);
        assert_eq!(refused(What::Rename { to, replace: true }), [true, false, false]);
        assert_eq!(refused(What::Read { pieces: vec![] }), [false, true, false]);
        assert_eq!(refused(What::Stat), [false, true, false]);
        assert_eq!(refused(What::MakeDir { parents: true }), [true, false, false]);
    }

    #[test]
    fn a_users_path_becomes_plain_and_never_leads_up() {
        for (path, is) in [("", ""), ("/", ""), ("/a//b/", "a/b"), ("./a/.", "a")] {
            assert_eq!(plain(path.as_bytes()).as_deref(), Ok(is.as_bytes()));
        }
        assert!(plain(b"a/../b").is_err());
        assert!(plain(b"..").is_err());
    }

    #[test]
    fn lines_are_understood() {
        let entry = |name: &[u8], sort| Entry {
            name: name.to_vec(),
            sort,
            length: 7,
            modified: (-3, 999_999_999),
            mode: 0o644,
        };
        for line in [
            Line::Entry(entry(b"a b \xff", Sort::File)),
            Line::Entry(entry(b"", Sort::Directory)),
            Line::Entry(entry(b"l", Sort::Link)),
            Line::Entry(entry(b"o", Sort::Other)),
            Line::More,
            Line::Put(u64::MAX, b"x y".to_vec()),
            Line::Put(0, vec![]),
            Line::Done(3),
            Line::Data(u64::MAX),
            Line::Denied("not-found".to_owned(), "no such file".to_owned()),
        ] {
            let bytes = line.encode();
            let (end, bytes) = bytes.split_last().expect("not empty");
            assert_eq!((*end, Line::parse(bytes)), (END, Ok(Some(line))));
        }
        for odd in
            [&b"f 1 2 3 4 ../x"[..], b"f x 1 1 1 a", b"put 1", b"put 1 a/b", b"done", b"data x"]
        {
            assert_eq!(Line::parse(odd), Err(()), "{}", String::from_utf8_lossy(odd));
        }
        assert_eq!(Line::parse(b"tape 1"), Ok(None));
    }
}
