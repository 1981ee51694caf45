//! `[USER@]HOST[:PORT]`, and bytes that an address writes with a percent sign.

use std::ffi::OsStr;

use netblt::ticket::plain_zone;

use crate::exit::Failure;

/// A machine as ssh knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) user: Option<String>,
    pub(crate) name: String,
    pub(crate) port: Option<u16>,
}

impl Host {
    /// `[USER@]HOST[:PORT]`, an IPv6 address in brackets.
    pub(crate) fn of_authority(authority: &[u8], whole: &OsStr) -> Result<Self, Failure> {
        let after_user = authority.iter().rposition(|b| *b == b'@').map_or(0, |at| at + 1);
        let closed = authority.iter().rposition(|b| *b == b']').unwrap_or(after_user);
        let (host, port) = match authority[closed..].iter().position(|b| *b == b':') {
            Some(at) => (&authority[..closed + at], Some(&authority[closed + at + 1..])),
            None => (authority, None),
        };
        let bad_port = || wrong(whole, "its port is not a number from 1 to 65535");
        let port = match port {
            Some(port) => {
                let port = str::from_utf8(port).ok().and_then(|port| port.parse::<u16>().ok());
                Some(port.filter(|port| *port > 0).ok_or_else(bad_port)?)
            }
            None => None,
        };
        Self::parse(host, port, whole)
    }

    pub(crate) fn parse(text: &[u8], port: Option<u16>, whole: &OsStr) -> Result<Self, Failure> {
        let text = str::from_utf8(text).map_err(|_| wrong(whole, "the host's name is no text"))?;
        let (user, name) = match text.rsplit_once('@') {
            Some((user, name)) => (Some(user.to_owned()), name),
            None => (None, text),
        };
        let name = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
            Some(inner) => &*plain_zone(inner),
            None => name,
        };
        // ssh puts both into commands of a shell, if its configuration says so.
        if !is_plain(name) {
            return Err(wrong(whole, "the host's name is empty or has characters that none has"));
        }
        if user.as_deref().is_some_and(|user| !is_plain(user)) {
            return Err(wrong(whole, "the user's name is empty or has characters that none has"));
        }
        Ok(Self { user, name: name.to_owned(), port })
    }
}

/// Whether neither ssh takes it for an option nor a shell for more than a word.
fn is_plain(name: &str) -> bool {
    let odd =
        |c: char| c.is_whitespace() || c.is_control() || "'\"`$\\;&<>|(){}[]*?!#~^,=/".contains(c);
    !name.is_empty() && !name.starts_with('-') && !name.contains(odd)
}

pub(crate) fn wrong(text: &OsStr, why: &str) -> Failure {
    let text = text.to_string_lossy();
    Failure::usage(format!("{text}: {why} (a file of such a name is written ./{text})"))
}

/// Text whose `%XX` are bytes. Nothing if a percent sign is not followed by two hexadecimal digits.
pub(crate) fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            let digits = str::from_utf8(digits).ok().filter(|d| !d.starts_with('+'))?;
            out.push(u8::from_str_radix(digits, 16).ok()?);
            rest = after;
        } else {
            out.push(*first);
        }
    }
    Some(out)
}
