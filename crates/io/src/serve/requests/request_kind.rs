//! The table of the kinds of requests: number, name, permission, and bounds.

use self::Access::{Read, ReadAndWrite, Write};
use self::Repeat::{Never, WhenLost};

/// Longest request: two names and the other fields.
const MAX_REQUEST: usize = 10_000;
/// Longest request of a kind that has a list.
pub(crate) const MAX_LONG_REQUEST: usize = 1 << 18;

/// A kind of request to a server. Its value is its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum RequestKind {
    /// Sends a file or a tree.
    Get = 1,
    /// Announces an upload, which comes with another connection.
    Put = 2,
    /// Reads the status of a path.
    Stat = 3,
    /// Lists the entries of a directory.
    List = 4,
    /// Makes a directory.
    MakeDir = 5,
    /// Removes a file, a link or a directory.
    Remove = 6,
    /// Gives a file, a link or a directory another name.
    Rename = 7,
    /// Copies a file, a link or a directory on the server.
    Copy = 8,
    /// Reads pieces of files.
    Read = 9,
    /// Sends a file or a tree to another server.
    Send = 10,
    /// Announces the upload of a range of a file.
    PutRange = 11,
    /// Makes a file of its ranges.
    Join = 12,
}

/// The permissions that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    ReadAndWrite,
}

/// Whether a request may be repeated if it is unknown whether the server performed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    Never,
    /// The request changes nothing, so it may be repeated if its answer was lost.
    WhenLost,
}

/// A row of the table.
struct Row {
    name: &'static str,
    access: Access,
    repeat: Repeat,
    max_bytes: usize,
}

const fn row(name: &'static str, access: Access, repeat: Repeat, max_bytes: usize) -> Row {
    Row { name, access, repeat, max_bytes }
}

impl RequestKind {
    /// All kinds, by number.
    pub(crate) const ALL: [Self; 12] = [
        Self::Get,
        Self::Put,
        Self::Stat,
        Self::List,
        Self::MakeDir,
        Self::Remove,
        Self::Rename,
        Self::Copy,
        Self::Read,
        Self::Send,
        Self::PutRange,
        Self::Join,
    ];

    const fn row(self) -> Row {
        match self {
            Self::Get => row("get", Read, Never, MAX_REQUEST),
            Self::Put => row("put", Write, Never, MAX_REQUEST),
            Self::Stat => row("stat", Read, WhenLost, MAX_REQUEST),
            Self::List => row("list", Read, WhenLost, MAX_REQUEST),
            Self::MakeDir => row("mkdir", Write, Never, MAX_REQUEST),
            Self::Remove => row("remove", Write, Never, MAX_REQUEST),
            Self::Rename => row("rename", Write, Never, MAX_REQUEST),
            Self::Copy => row("copy", ReadAndWrite, Never, MAX_REQUEST),
            Self::Read => row("read", Read, WhenLost, MAX_LONG_REQUEST),
            // *send* also takes a permission of its own, which the server checks: the client
            // chooses the address to which the server connects.
            Self::Send => row("send", Read, Never, MAX_REQUEST),
            Self::PutRange => row("put-range", Write, Never, MAX_REQUEST),
            Self::Join => row("join", Write, Never, MAX_REQUEST),
        }
    }

    /// The kind with this number on the wire.
    pub(super) fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Its number on the wire.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    /// Its name in messages, audit logs and metrics.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The permissions that it needs.
    pub(crate) fn access(self) -> Access {
        self.row().access
    }

    /// Whether a request of this kind may be repeated if its answer was lost.
    pub(crate) fn is_repeatable(self) -> bool {
        self.row().repeat == WhenLost
    }

    /// The longest request of this kind, in bytes behind the length.
    pub(crate) fn max_bytes(self) -> usize {
        self.row().max_bytes
    }
}

impl Access {
    /// Why a client with these permissions may not send such a request.
    pub(crate) fn refusal(self, read: bool, write: bool) -> Option<&'static str> {
        let (reads, writes) = match self {
            Read => (true, false),
            Write => (false, true),
            ReadAndWrite => (true, true),
        };
        match (reads && !read, writes && !write) {
            (_, true) => Some("no write permission"),
            (true, false) => Some("no read permission"),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOL: &str = include_str!("../../../../../docs/protocol/requests.md");

    #[test]
    fn numbers_count_from_one_and_names_differ() {
        for (kind, number) in RequestKind::ALL.into_iter().zip(1..) {
            assert_eq!((kind.number(), RequestKind::of(number)), (number, Some(kind)));
            let same = RequestKind::ALL.iter().filter(|other| other.name() == kind.name());
            assert_eq!(same.count(), 1, "{kind:?}");
        }
        assert_eq!(RequestKind::of(0), None);
        assert_eq!(RequestKind::of(RequestKind::ALL.len() as u8 + 1), None);
    }

    #[test]
    fn the_protocols_table_of_requests_is_this_one() {
        let rows = PROTOCOL.split("| kind | name | permission |").nth(1).expect("the table");
        let rows = rows.lines().skip(2).take_while(|line| line.starts_with('|'));
        let cells = |row: &str| -> Vec<String> {
            row.split('|').skip(1).take(3).map(|cell| cell.trim().to_owned()).collect()
        };
        let written: Vec<Vec<String>> = rows.map(cells).collect();
        let access = |kind: RequestKind| match kind.access() {
            Read => "read",
            Write => "write",
            ReadAndWrite => "read, write",
        };
        let row = |kind: RequestKind| {
            vec![kind.number().to_string(), format!("`{}`", kind.name()), access(kind).to_owned()]
        };
        assert_eq!(written, RequestKind::ALL.map(row));
    }

    #[test]
    fn permissions_are_checked_and_a_copy_takes_both() {
        let refused = |kind: RequestKind| {
            [(true, false), (false, true), (true, true)]
                .map(|(read, write)| kind.access().refusal(read, write).is_some())
        };
        for kind in RequestKind::ALL {
            let [reader, writer, both] = refused(kind);
            assert!((reader || writer) && !both, "{kind:?}");
        }
        assert_eq!(refused(RequestKind::Copy), [true, true, false]);
        assert_eq!(refused(RequestKind::Rename), [true, false, false]);
        assert_eq!(refused(RequestKind::Read), [false, true, false]);
        assert_eq!(refused(RequestKind::Stat), [false, true, false]);
        assert_eq!(refused(RequestKind::Send), [false, true, false]);
        assert_eq!(refused(RequestKind::MakeDir), [true, false, false]);
    }
}
