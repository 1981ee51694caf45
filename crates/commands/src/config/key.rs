//! The keys of the configuration file.

use crate::args::TICKET_VARIABLE;

/// The key of an option in the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// The name in the file.
    pub(crate) name: &'static str,
    /// The option of the command line.
    pub(crate) option: &'static str,
    /// What replaces the key's value besides its own option: options on the command line, and
    /// variables of the environment.
    pub(crate) unless: &'static [&'static str],
    /// Whether the value is a path, in which a leading `~/` is the user's home.
    pub(crate) is_path: bool,
    /// Whether only servers of files use the key. ssh has a configuration of its own.
    pub(crate) servers_only: bool,
}

impl Key {
    /// All keys.
    pub(crate) const ALL: [Self; 13] = [
        Self::of("rate", "--rate", &["-l", "--bwlimit"]),
        Self::of("policy", "--policy", &[]),
        Self::of("fec", "--fec", &[]),
        Self::of("streams", "--streams", &[]),
        Self::of("udp-port", "--udp-port", &[]),
        Self::of("death-timer", "--death-timer", &[]),
        Self::of("resume", "--resume", &[]),
        Self::of("keep-partial", "--keep-partial", &[]),
        Self::of("fallback", "--fallback", &[]),
        Self::of("remote-netblt", "--remote-netblt", &["--install"]),
        Self::path("ticket-file", "--ticket-file", &["-i", TICKET_VARIABLE]),
        Self::path("known-servers", "--known-servers", &[]),
        Self { servers_only: true, ..Self::path("key", "-i", &["--ticket-file", TICKET_VARIABLE]) },
    ];

    const fn of(name: &'static str, option: &'static str, unless: &'static [&'static str]) -> Self {
        Self { name, option, unless, is_path: false, servers_only: false }
    }

    const fn path(
        name: &'static str,
        option: &'static str,
        unless: &'static [&'static str],
    ) -> Self {
        Self { is_path: true, ..Self::of(name, option, unless) }
    }

    /// The key of this name; letters of either case are the same.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name.eq_ignore_ascii_case(name))
    }
}
