//! The operands of `netblt cp`, parsed as scp does.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::exit::Failure;
use crate::host::{Host, decoded, wrong};
use crate::server_client::address::ServerPath;

/// A source or the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Local(PathBuf),
    Remote(Host, OsString),
    /// On a server of files.
    ServerPath(ServerPath),
}

impl Location {
    /// `[user@]host:path`, `scp://[user@]host[:port]/path`, or else a path here. A path with a
    /// colon before its first slash is written `./a:b`.
    pub(crate) fn parse(text: &OsStr) -> Result<Self, Failure> {
        let bytes = text.as_bytes();
        if ServerPath::looks_like(text) {
            return ServerPath::parse(text).map(Self::ServerPath);
        }
        if let Some(rest) = bytes.strip_prefix(b"scp://") {
            return uri(rest, text);
        }
        let local = || Ok(Self::Local(PathBuf::from(text)));
        let Some(colon) = colon(bytes) else { return local() };
        let (host, path) = (&bytes[..colon], &bytes[colon + 1..]);
        // A path with a drive letter, as on Windows.
        if host.len() == 1 && path.starts_with(b"\\") {
            return local();
        }
        let host = Host::parse(host, None, text)?;
        let path = if path.is_empty() { OsString::from(".") } else { os(path) };
        Ok(Self::Remote(host, path))
    }
}

/// The colon after a host's name, if there is one before any slash. Addresses with colons are in
/// brackets.
fn colon(bytes: &[u8]) -> Option<usize> {
    let user = bytes.iter().position(|b| *b == b'@').filter(|at| !bytes[..*at].contains(&b'/'));
    let start = user.map_or(0, |at| at + 1);
    let mut in_brackets = bytes.get(start) == Some(&b'[') && bytes.contains(&b']');
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b']' => in_brackets = false,
            b'/' if !in_brackets => return None,
            b':' if at == 0 => return None,
            b':' if !in_brackets => return Some(at),
            _ => {}
        }
    }
    None
}

fn uri(rest: &[u8], whole: &OsStr) -> Result<Location, Failure> {
    let slash = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    let host = Host::of_authority(authority, whole)?;
    let path = decoded(path.strip_prefix(b"/").unwrap_or_default())
        .ok_or_else(|| wrong(whole, "a % in it is not followed by two hexadecimal digits"))?;
    let path = if path.is_empty() { OsString::from(".") } else { OsString::from_vec(path) };
    Ok(Location::Remote(host, path))
}

fn os(bytes: &[u8]) -> OsString {
    OsStr::from_bytes(bytes).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(text: &str) -> (Option<String>, String, Option<u16>, String) {
        match Location::parse(OsStr::new(text)).expect(text) {
            Location::Remote(Host { user, name, port }, path) => {
                (user, name, port, path.to_string_lossy().into_owned())
            }
            Location::Local(_) | Location::ServerPath(_) => panic!("{text} is elsewhere"),
        }
    }

    #[test]
    fn operands_are_parsed_as_scp_parses_them() {
        let of = |user: Option<&str>, name: &str, port, path: &str| {
            (user.map(str::to_owned), name.to_owned(), port, path.to_owned())
        };
        for (text, place) in [
            ("host:", of(None, "host", None, ".")),
            ("host:a b", of(None, "host", None, "a b")),
            ("me@host:~/x:y", of(Some("me"), "host", None, "~/x:y")),
            ("me@[2001:db8::1]:/x", of(Some("me"), "2001:db8::1", None, "/x")),
            ("[::1]:x", of(None, "::1", None, "x")),
            ("scp://host", of(None, "host", None, ".")),
            ("scp://me@host:2222/a%20b", of(Some("me"), "host", Some(2222), "a b")),
            ("scp://[::1]:22//etc", of(None, "::1", Some(22), "/etc")),
            ("[fe80::1%25eth0]:x", of(None, "fe80::1%eth0", None, "x")),
            ("me@[fe80::1%eth0]:x", of(Some("me"), "fe80::1%eth0", None, "x")),
            ("scp://[fe80::1%25eth0]:22/x", of(None, "fe80::1%eth0", Some(22), "x")),
        ] {
            assert_eq!(remote(text), place);
        }
        for text in ["a", "./a:b", "/a:b", "a/b:c", ":a", "C:\\x", "../x@y:z", "a/b@c:d"] {
            let place = Location::parse(OsStr::new(text)).expect(text);
            assert_eq!(place, Location::Local(text.into()));
        }
    }

    #[test]
    fn a_name_is_never_an_option_or_more_than_a_word() {
        for text in [
            "-oProxyCommand=x:y",
            "me@-x:y",
            "-l@host:x",
            "$(x)@host:y",
            "a`b`:c",
            "a b:c",
            "@host:x",
            "me@:x",
            "scp://host:99999/x",
            "scp://host/%zz",
            "scp://-x/y",
        ] {
            let failure = Location::parse(OsStr::new(text)).expect_err(text);
            assert!(failure.message.contains(text), "{failure:?}");
        }
    }
}
