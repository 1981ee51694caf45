//! The exit codes of the programs: one list for the library, the programs and their documents.

use std::process;

/// The exit code of a program of netblt. The numbers are rsync's where rsync has one for the case,
/// so that scripts written for rsync understand them; 65, 70 and 75 are those of sysexits.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExitCode {
    /// Everything arrived and is verified.
    Success = 0,
    /// The command line makes no sense.
    Usage = 1,
    /// The peer broke the protocol.
    Protocol = 2,
    /// The peer refused, or this end could not start.
    Start = 5,
    /// A socket failed.
    Socket = 10,
    /// A file failed.
    File = 11,
    /// The peer stopped.
    Stream = 12,
    /// Stopped by a signal.
    Signal = 20,
    /// Something was left out and named.
    Partial = 23,
    /// A file to send vanished.
    Vanished = 24,
    /// A mirror would remove more than `--max-delete` allows.
    Removals = 25,
    /// The death timer ran out.
    Timeout = 30,
    /// No connection.
    Connect = 35,
    /// The received data are not proved to be those that were sent, or files are not the ones that
    /// were expected (`EX_DATAERR`).
    Unverified = 65,
    /// A mistake of netblt itself (`EX_SOFTWARE`).
    Internal = 70,
    /// A fleet's task is to be started again later (`EX_TEMPFAIL`).
    Again = 75,
    /// The reader of standard output went away: the program ends by SIGPIPE, which a shell shows
    /// as this number.
    Pipe = 141,
}

impl ExitCode {
    /// All, by number.
    pub const ALL: [Self; 17] = [
        Self::Success,
        Self::Usage,
        Self::Protocol,
        Self::Start,
        Self::Socket,
        Self::File,
        Self::Stream,
        Self::Signal,
        Self::Partial,
        Self::Vanished,
        Self::Removals,
        Self::Timeout,
        Self::Connect,
        Self::Unverified,
        Self::Internal,
        Self::Again,
        Self::Pipe,
    ];

    /// The code with this number, such as that of a child process.
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.number() == number)
    }

    /// The number that a shell sees.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The meaning of the code, for the help and the manual.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Success => {
                "every byte arrived, is stored and verified (the rfc998 wire cannot verify)"
            }
            Self::Usage => "the command line or the ticket makes no sense",
            Self::Protocol => "the other side broke the protocol or aborted",
            Self::Start => "the other side refused, or this side could not start",
            Self::Socket => "a socket could not be opened or used",
            Self::File => "a file could not be read, written or created, or exists",
            Self::Stream => "the other side stopped, or its program vanished",
            Self::Signal => "stopped by Ctrl-C or a signal",
            Self::Partial => "something, perhaps all, was left out and named",
            Self::Vanished => "a file to send vanished during the transfer",
            Self::Removals => "a mirror would remove more than it may",
            Self::Timeout => {
                "the other side fell silent, or nothing moved on, until the death timer ran out"
            }
            Self::Connect => {
                "could not connect: no answer, unknown host, or no peer connected in time"
            }
            Self::Unverified => "the data could not be verified, or are not the expected ones",
            Self::Internal => "an internal error of netblt: please report it",
            Self::Again => "a fleet's task shall run again later",
            Self::Pipe => "the reader of standard output went away (SIGPIPE)",
        }
    }
}

impl From<ExitCode> for process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_one_code() {
        for (at, code) in ExitCode::ALL.into_iter().enumerate() {
            assert_eq!(ExitCode::of(code.number()), Some(code));
            let earlier = &ExitCode::ALL[..at];
            assert!(earlier.iter().all(|other| other.number() < code.number()), "{code:?}");
        }
        assert_eq!(ExitCode::of(99), None);
    }
}
