//! Why a server does not do what it was asked: what its words begin with (`docs/protocol.md §8.8`).

use std::io::{self, ErrorKind};

use crate::error::Denial;

/// How the words of a server begin.
const PREFIX: &str = "serve: ";

const WORDS: [(Denial, &str); 10] = [
    (Denial::NotFound, "not-found"),
    (Denial::Forbidden, "forbidden"),
    (Denial::Exists, "exists"),
    (Denial::NotADirectory, "not-a-directory"),
    (Denial::IsADirectory, "is-a-directory"),
    (Denial::NotEmpty, "not-empty"),
    (Denial::Busy, "busy"),
    (Denial::NoRoom, "no-room"),
    (Denial::Failed, "failed"),
    (Denial::NotUnderstood, "not-understood"),
];

impl Denial {
    /// Its word on the wire, in audit logs and in JSON.
    pub fn word(self) -> &'static str {
        let known = WORDS.iter().find(|(denial, _)| *denial == self);
        known.map_or("failed", |(_, word)| word)
    }

    /// Whether the same request may be granted later, with nothing changed but the time.
    pub fn is_passing(self) -> bool {
        self == Self::Busy
    }

    /// What an error of the system's amounts to.
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Self::Forbidden,
            ErrorKind::AlreadyExists => Self::Exists,
            ErrorKind::NotADirectory => Self::NotADirectory,
            ErrorKind::IsADirectory => Self::IsADirectory,
            ErrorKind::DirectoryNotEmpty => Self::NotEmpty,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::NoRoom,
            _ => Self::Failed,
        }
    }
}

/// What a server says in place of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denied {
    pub(crate) what: Denial,
    /// For people.
    pub(crate) why: String,
}

impl Denied {
    pub(crate) fn new(what: Denial, why: impl Into<String>) -> Self {
        Self { what, why: why.into() }
    }

    /// The reason of a QUIT that says it.
    pub(crate) fn words(&self) -> String {
        format!("{PREFIX}{}: {}", self.what.word(), self.why)
    }

    /// What the reason of a QUIT says, if a server's request is what it is about. Of a kind that
    /// is not known, that it failed.
    pub(crate) fn parse(words: &str) -> Option<Self> {
        let (word, why) = words.strip_prefix(PREFIX)?.split_once(": ")?;
        Some(Self::of_word(word.as_bytes(), why))
    }

    /// What a word stands for.
    pub(crate) fn of_word(word: &[u8], why: impl Into<String>) -> Self {
        let known = WORDS.iter().find(|(_, known)| known.as_bytes() == word);
        Self::new(known.map_or(Denial::Failed, |(denial, _)| *denial), why)
    }
}

impl From<io::Error> for Denied {
    fn from(error: io::Error) -> Self {
        let what = Denial::of(&error);
        let why = match what {
            Denial::NotFound => "no such file or directory".to_owned(),
            Denial::Forbidden => "permission denied".to_owned(),
            Denial::Exists => "it exists".to_owned(),
            Denial::NotADirectory => "not a directory".to_owned(),
            Denial::IsADirectory => "it is a directory".to_owned(),
            Denial::NotEmpty => "the directory is not empty".to_owned(),
            Denial::NoRoom => "there is no room".to_owned(),
            // A lookup that would have left the root, or by way of a link.
            _ if is_escape(&error) => return Self::new(Denial::Forbidden, THROUGH_A_LINK),
            _ => error.to_string(),
        };
        Self { what, why }
    }
}

const THROUGH_A_LINK: &str = "a symbolic link is in the path, and none is followed";

fn is_escape(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::LOOP | Errno::XDEV))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_understood() {
        for (what, _) in WORDS {
            let denied = Denied::new(what, "a: b");
            assert_eq!(Denied::parse(&denied.words()), Some(denied));
        }
        let newer = Denied::parse("serve: on-tape: come tomorrow");
        assert_eq!(newer, Some(Denied::new(Denial::Failed, "come tomorrow")));
        assert_eq!(Denied::parse("refused: there is no room"), None);
        assert_eq!(Denied::parse("serve: "), None);
    }

    #[test]
    fn errors_of_the_system_have_their_kind() {
        use rustix::io::Errno;
        for (errno, what) in [
            (Errno::NOENT, Denial::NotFound),
            (Errno::ACCESS, Denial::Forbidden),
            (Errno::NOTEMPTY, Denial::NotEmpty),
            (Errno::LOOP, Denial::Forbidden),
            (Errno::XDEV, Denial::Forbidden),
            (Errno::NOSPC, Denial::NoRoom),
            (Errno::IO, Denial::Failed),
        ] {
            assert_eq!(Denied::from(io::Error::from(errno)).what, what);
        }
    }
}
