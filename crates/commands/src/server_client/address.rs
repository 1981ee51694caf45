//! `netblt://[HOST[:PORT]]/PATH`: something on a server.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use crate::exit::Failure;
use crate::host::{Host, decoded};

/// Something on a server, as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerPath {
    /// The server's address, unless the ticket has it.
    pub(crate) host: Option<Host>,
    /// The path beneath the root. A slash at its end is kept.
    pub(crate) path: Vec<u8>,
    /// The same as a pattern, if there is a wildcard in it. One that is written with a percent sign
    /// is a character.
    pub(crate) pattern: Option<Vec<u8>>,
}

impl ServerPath {
    /// Whether a text is meant to be such an address.
    pub(crate) fn looks_like(text: &OsStr) -> bool {
        text.as_bytes().starts_with(b"netblt://")
    }

    /// Parses an address. A percent sign with two hexadecimal digits is a byte.
    pub(crate) fn parse(text: &OsStr) -> Result<Self, Failure> {
        let wrong = |why: &str| Failure::usage(format!("{}: {why}", text.to_string_lossy()));
        let rest = text.as_bytes().strip_prefix(b"netblt://");
        let rest = rest.ok_or_else(|| wrong("is no netblt://HOST/PATH"))?;
        let slash = rest.iter().position(|byte| *byte == b'/');
        let (authority, path) = rest.split_at(slash.unwrap_or(rest.len()));
        let written = path.strip_prefix(b"/").unwrap_or_default();
        let not_hex = || wrong("a % in it is not followed by two hexadecimal digits");
        let path = decoded(written).ok_or_else(not_hex)?;
        let pattern = match written.iter().any(|byte| WILD.contains(byte)) {
            true => Some(decoded(&escaped(written)).ok_or_else(not_hex)?),
            false => None,
        };
        let host = match authority {
            b"" => None,
            authority => Some(Host::of_authority(authority, text)?),
        };
        Ok(Self { host, path, pattern })
    }

    /// Its last part, under which it arrives; that of the root is the host's name.
    pub(crate) fn name(&self) -> OsString {
        let host = self.host.as_ref().map_or("root", |host| &host.name);
        netblt::serve::client::name_of(&self.path, host)
    }

    /// As it is shown.
    pub(crate) fn shown(&self) -> String {
        let path = OsString::from_vec(self.path.clone());
        let host = self.host.as_ref().map_or("", |host| &host.name);
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let port = self.host.as_ref().and_then(|host| host.port);
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        format!("netblt://{host}{port}/{}", path.to_string_lossy())
    }
}

/// The characters that start a wildcard.
const WILD: &[u8] = b"*?[";

/// Wildcards that are written with a percent sign, in brackets.
fn escaped(written: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(written.len());
    let mut rest = written;
    while let Some((first, after)) = rest.split_first() {
        let code = rest.get(..3).filter(|_| *first == b'%');
        match code.and_then(decoded).as_deref() {
            Some([byte]) if WILD.contains(byte) => out.extend([b'[', *byte, b']']),
            _ => out.push(*first),
        }
        let is_wild = code.and_then(decoded).is_some_and(|code| WILD.contains(&code[0]));
        rest = if is_wild { rest.get(3..).unwrap_or_default() } else { after };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Option<(String, Option<u16>)>, String) {
        let served = ServerPath::parse(OsStr::new(text)).expect(text);
        let host = served.host.map(|host| (host.name, host.port));
        (host, String::from_utf8_lossy(&served.path).into_owned())
    }

    #[test]
    fn a_wildcard_is_one_unless_it_is_written_as_a_byte() {
        for (text, pattern) in [
            ("netblt://host/a/*.gz", Some("a/*.gz")),
            ("netblt://host/a%2A%20%5bb?", Some("a[*] [[]b?")),
            ("netblt://host/a%2A", None),
            ("netblt://host/a%20b", None),
        ] {
            let served = ServerPath::parse(OsStr::new(text)).expect(text);
            assert_eq!(served.pattern.as_deref(), pattern.map(str::as_bytes), "{text}");
        }
    }

    #[test]
    fn addresses_are_read() {
        let host = |name: &str, port| Some((name.to_owned(), port));
        for (text, is) in [
            ("netblt:///a/b", (None, "a/b")),
            ("netblt://", (None, "")),
            ("netblt://host", (host("host", None), "")),
            ("netblt://host/", (host("host", None), "")),
            ("netblt://me@host:7000/a%20b/", (host("host", Some(7000)), "a b/")),
            ("netblt://[2001:db8::1]:7000/x", (host("2001:db8::1", Some(7000)), "x")),
            ("netblt://[2001:db8::1]/x", (host("2001:db8::1", None), "x")),
        ] {
            assert_eq!(parse(text), (is.0, is.1.to_owned()), "{text}");
        }
        for text in ["netblt://[::1]:9982/x", "netblt://[::1]/", "netblt://host:1/y", "netblt:///z"]
        {
            assert_eq!(ServerPath::parse(OsStr::new(text)).expect(text).shown(), text);
        }
        for text in ["netblt://host:0/x", "netblt://host/%zz", "netblt://-o/x", "scp://h/x"] {
            assert!(ServerPath::parse(OsStr::new(text)).is_err(), "{text}");
        }
    }
}
