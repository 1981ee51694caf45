//! Failures of commands with their exit codes, and the table of codes for help and manual pages.
//!
//! The list of codes is the library's [`netblt::ExitCode`].

use std::fmt::Write as _;
use std::io::{self, ErrorKind};
use std::path::Path;

pub use netblt::ExitCode as Code;
use netblt::{Error, RequestErrorKind};
use netblt_proto::api::printable;

use crate::hints;

/// Codes for special uses, which the general help leaves out.
const SPECIAL: [Code; 2] = [Code::Again, Code::Pipe];

/// The table, for `--help` and the manual.
pub fn help() -> String {
    let mut text = String::from("Exit codes:\n");
    for code in Code::ALL.into_iter().filter(|code| !SPECIAL.contains(code)) {
        let _ = writeln!(text, "  {:>2}  {}", code.number(), code.meaning());
    }
    text
}

/// A failed command's message and exit code.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: Code,
    /// The message, without control characters.
    pub message: String,
    /// Whether a server is busy, so that a later try may succeed.
    pub busy: bool,
    /// Whether the message was shown already, or must not be shown.
    pub silent: bool,
}

impl Failure {
    /// A failure with this message.
    pub fn new(code: Code, message: impl AsRef<str>) -> Self {
        let message = printable(&plain(message.as_ref()));
        Self { code, message, busy: false, silent: false }
    }

    /// Standard output cannot be written. The failed write itself has reported it.
    pub fn stdout(error: &io::Error) -> Self {
        let gone = error.kind() == ErrorKind::BrokenPipe;
        let code = if gone { Code::Pipe } else { Code::File };
        Self { silent: true, ..Self::new(code, format!("standard output: cannot write: {error}")) }
    }

    /// A command line that makes no sense.
    pub fn usage(message: impl AsRef<str>) -> Self {
        Self::new(Code::Usage, message)
    }

    /// A transfer's error; `sending` if data may have left already.
    pub fn transfer(error: &Error, sending: bool) -> Self {
        if let Error::File { path, source, .. } = error
            && source.kind() == ErrorKind::BrokenPipe
            && path == Path::new("standard output")
        {
            return Self::stdout(source);
        }
        let busy = matches!(error, Error::Denied { what: RequestErrorKind::Busy, .. });
        let message = format!("{error}{}", hints::on_error(error));
        Self { busy, ..Self::new(code(error, sending), message) }
    }
}

impl From<Error> for Failure {
    /// An error before any data have left.
    fn from(error: Error) -> Self {
        Self::transfer(&error, false)
    }
}

/// A message without the numbers that Rust adds to the system's errors. A file's name is followed
/// by a colon or in quotes, so a name that looks like that stays as it is.
pub fn plain(message: &str) -> String {
    const BEFORE: &str = " (os error ";
    let (mut words, mut rest) = (String::with_capacity(message.len()), message);
    while let Some((before, behind)) = rest.split_once(BEFORE) {
        words.push_str(before);
        let number = behind.trim_start_matches(|c: char| c.is_ascii_digit());
        rest = match number.strip_prefix(')') {
            Some(after) if number != behind && !after.starts_with([':', '"']) => after,
            _ => {
                words.push_str(BEFORE);
                behind
            }
        };
    }
    words.push_str(rest);
    words
}

/// The exit code of an error: that of its kind, except for a source that vanished.
fn code(error: &Error, sending: bool) -> Code {
    match error {
        // Sources are looked up before the connection opens: one that is missing later has
        // vanished.
        Error::File { source, .. } if sending && source.kind() == ErrorKind::NotFound => {
            Code::Vanished
        }
        error => error.kind().exit_code(),
    }
}

#[cfg(test)]
mod tests {
    use netblt_proto::api::CloseReason;
    use netblt_proto::config::Wire;

    use super::*;

    #[test]
    fn each_error_has_its_code() {
        let missing = |sending| {
            let source = io::Error::from(ErrorKind::NotFound);
            code(&Error::File { path: "x".into(), what: "open", source }, sending)
        };
        assert_eq!(missing(false), Code::File);
        assert_eq!(missing(true), Code::Vanished);
        let connect = |reason| {
            let wire = Wire::Sealed;
            code(&Error::Connect { peer: String::new(), wire, reason }, false).number()
        };
        let no_answer = |hint: Option<&str>| CloseReason::NoAnswer {
            hint: hint.map(str::to_owned),
            unreachable: false,
        };
        assert_eq!(connect(no_answer(None)), 35);
        let (host, source) = ("nowhere:9".to_owned(), io::Error::from(ErrorKind::NotFound));
        assert_eq!(code(&Error::Unresolved { host, source }, true).number(), 35);
        assert_eq!(connect(no_answer(Some("unknown peer"))), 5);
        assert_eq!(connect(CloseReason::Refused("busy".to_owned())), 5);
        assert_eq!(code(&Error::Ended(CloseReason::DeathTimer), true).number(), 30);
        assert_eq!(code(&Error::Ended(CloseReason::PeerQuit(String::new())), true).number(), 12);
        assert_eq!(code(&Error::Ended(CloseReason::Violation("x")), true).number(), 2);
        assert_eq!(code(&Error::NotVerified(String::new()), true).number(), 65);
        assert_eq!(code(&Error::Interrupted, true).number(), 20);
        assert_eq!(code(&Error::Restarted("twice"), true).number(), 12);
        let source = io::Error::from(ErrorKind::OutOfMemory);
        assert_eq!(code(&Error::Thread { purpose: "to read", source }, true).number(), 5);
    }

    #[test]
    fn a_system_error_is_shown_without_its_number() {
        let missing = io::Error::from_raw_os_error(2).to_string();
        assert!(missing.ends_with(" (os error 2)"));
        let words = "No such file or directory";
        for (said, shown) in [
            (missing.clone(), words.to_owned()),
            (format!("a: {missing}; b: {missing}, c"), format!("a: {words}; b: {words}, c")),
            ("x (os error 2): gone".to_owned(), "x (os error 2): gone".to_owned()),
            ("\"x (os error 2)\"".to_owned(), "\"x (os error 2)\"".to_owned()),
            (" (os error )(os error 1x".to_owned(), " (os error )(os error 1x".to_owned()),
        ] {
            assert_eq!(plain(&said), shown);
        }
    }

    #[test]
    fn messages_are_fit_for_a_terminal() {
        let error = Error::NotVerified("\u{1b}[2J".to_owned());
        assert_eq!(Failure::transfer(&error, true).message, "not verified: \\u{1b}[2J");
    }
}
