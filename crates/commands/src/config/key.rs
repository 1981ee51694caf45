//! The keys of the configuration file.

/// An option that the configuration file may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// As the file has it.
    pub(crate) name: &'static str,
    /// As the command line has it.
    pub(crate) option: &'static str,
    /// Options that exclude it on the command line, besides itself.
    pub(crate) unless: &'static [&'static str],
    /// Its value is a path, in which `~/` is the user's home.
    pub(crate) is_path: bool,
    /// It is for servers of files only: ssh has a configuration of its own.
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
        Self::path("ticket-file", "--ticket-file"),
        Self::path("known-servers", "--known-servers"),
        Self { servers_only: true, ..Self::path("key", "-i") },
    ];

    const fn of(name: &'static str, option: &'static str, unless: &'static [&'static str]) -> Self {
        Self { name, option, unless, is_path: false, servers_only: false }
    }

    const fn path(name: &'static str, option: &'static str) -> Self {
        Self { is_path: true, ..Self::of(name, option, &[]) }
    }

    /// The key of this name; letters of either case are the same.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name.eq_ignore_ascii_case(name))
    }
}
