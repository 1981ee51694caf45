//! The error of a request to a server, and the start of its words (`docs/protocol §8.8`).

use std::io::{self, ErrorKind};

use crate::error::RequestErrorKind;

/// How the words of a server begin.
const PREFIX: &str = "serve: ";

const WORDS: [(RequestErrorKind, &str); 10] = [
    (RequestErrorKind::NotFound, "not-found"),
    (RequestErrorKind::Forbidden, "forbidden"),
    (RequestErrorKind::Exists, "exists"),
    (RequestErrorKind::NotADirectory, "not-a-directory"),
    (RequestErrorKind::IsADirectory, "is-a-directory"),
    (RequestErrorKind::NotEmpty, "not-empty"),
    (RequestErrorKind::Busy, "busy"),
    (RequestErrorKind::NoRoom, "no-room"),
    (RequestErrorKind::Failed, "failed"),
    (RequestErrorKind::NotUnderstood, "not-understood"),
];

impl RequestErrorKind {
    /// Its word on the wire, in audit logs and in JSON.
    pub fn word(self) -> &'static str {
        let known = WORDS.iter().find(|(denial, _)| *denial == self);
        known.map_or("failed", |(_, word)| word)
    }

    /// Whether the same request may be granted later, with nothing changed but the time.
    pub fn is_passing(self) -> bool {
        self == Self::Busy
    }

    /// The kind for a system's error.
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

/// A server's refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestError {
    pub(crate) what: RequestErrorKind,
    /// For people.
    pub(crate) why: String,
}

impl RequestError {
    pub(crate) fn new(what: RequestErrorKind, why: impl Into<String>) -> Self {
        Self { what, why: why.into() }
    }

    /// The reason of its QUIT.
    pub(crate) fn words(&self) -> String {
        format!("{PREFIX}{}: {}", self.what.word(), self.why)
    }

    /// Parses the reason of a QUIT, if it is about a server's request. An unknown kind becomes a
    /// failure.
    pub(crate) fn parse(words: &str) -> Option<Self> {
        let (word, why) = words.strip_prefix(PREFIX)?.split_once(": ")?;
        Some(Self::of_word(word.as_bytes(), why))
    }

    /// The error for a word.
    pub(crate) fn of_word(word: &[u8], why: impl Into<String>) -> Self {
        let known = WORDS.iter().find(|(_, known)| known.as_bytes() == word);
        Self::new(known.map_or(RequestErrorKind::Failed, |(denial, _)| *denial), why)
    }
}

impl From<io::Error> for RequestError {
    fn from(error: io::Error) -> Self {
        let what = RequestErrorKind::of(&error);
        let why = match what {
            RequestErrorKind::NotFound => "no such file or directory".to_owned(),
            RequestErrorKind::Forbidden => "permission denied".to_owned(),
            RequestErrorKind::Exists => "it exists".to_owned(),
            RequestErrorKind::NotADirectory => "not a directory".to_owned(),
            RequestErrorKind::IsADirectory => "it is a directory".to_owned(),
            RequestErrorKind::NotEmpty => "the directory is not empty".to_owned(),
            RequestErrorKind::NoRoom => "not enough space".to_owned(),
            // A lookup that would have left the root, or by way of a link.
            _ if is_escape(&error) => {
                return Self::new(RequestErrorKind::Forbidden, THROUGH_A_LINK);
            }
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
    fn a_servers_refusal_is_parsed_as_it_was_written() {
        for (what, _) in WORDS {
            let denied = RequestError::new(what, "a: b");
            assert_eq!(RequestError::parse(&denied.words()), Some(denied));
        }
        let newer = RequestError::parse("serve: on-tape: come tomorrow");
        assert_eq!(newer, Some(RequestError::new(RequestErrorKind::Failed, "come tomorrow")));
        assert_eq!(RequestError::parse("refused: there is no room"), None);
        assert_eq!(RequestError::parse("serve: "), None);
    }

    #[test]
    fn errors_of_the_system_have_their_kind() {
        use rustix::io::Errno;
        for (errno, what) in [
            (Errno::NOENT, RequestErrorKind::NotFound),
            (Errno::ACCESS, RequestErrorKind::Forbidden),
            (Errno::NOTEMPTY, RequestErrorKind::NotEmpty),
            (Errno::LOOP, RequestErrorKind::Forbidden),
            (Errno::XDEV, RequestErrorKind::Forbidden),
            (Errno::NOSPC, RequestErrorKind::NoRoom),
            (Errno::IO, RequestErrorKind::Failed),
        ] {
            assert_eq!(RequestError::from(io::Error::from(errno)).what, what);
        }
    }
}
