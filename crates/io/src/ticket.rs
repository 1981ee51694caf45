//! The ticket: the addresses and the secret of a listening end, in one line.
//!
//! ```text
//! netblt1:<secret, 43 characters>@192.0.2.7:4000,host.example:4000,2001:db8::7:4000/<check, 6>
//! ```
//!
//! The line survives shells, mail and chat without quotes: letters, digits and `-_.:,@/%` only.
//! IPv6 addresses stand without their brackets, which zsh takes for a pattern. The port is always
//! what follows the last colon. The check covers every character before its slash and comes last.
//! So a line that was cut short, wrapped or mistyped is not taken for a wrong secret, which would
//! look like an attack. `Debug` and all errors keep the secret to themselves. `Display` is the one
//! way to show it.

use std::borrow::Cow;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use data_encoding::BASE64URL_NOPAD;
use netblt_proto::config::{Identity, Secret};

pub use crate::error::{AddressError, MAX_ADDRESSES, MAX_BYTES, PREFIX, TicketError};

/// Characters of the base64url of a secret.
const SECRET_CHARS: usize = 43;
/// Characters of the check: 36 bits.
const CHECK_CHARS: usize = 6;
/// Keeps this use of the hash apart from every other one.
const CHECK_CONTEXT: &str = "netblt 1 ticket check";

/// The addresses of a listening end, and the secret that proves the right to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// `host:port` or `[v6]:port`, at least one, in order of preference.
    pub addresses: Vec<String>,
    /// One-time secret of 256 bits.
    pub secret: Secret,
}

/// How the two ends meet: which end connects, and where.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Rendezvous {
    /// Print a ticket and wait (`sealed`).
    Listen,
    /// Listen at [`NetworkOptions::port`](crate::NetworkOptions::port) for a peer that knows this
    /// secret, which both ends have by other means (`sealed`).
    Await(Secret),
    /// Use a ticket (`sealed`).
    Connect(Ticket),
    /// Connect to a server whose public key is known, by a static key of one's own (`sealed`).
    Call {
        /// `host:port` or `[v6]:port`, at least one, in order of preference.
        addresses: Vec<String>,
        /// An active end's: [`Identity::client`].
        identity: Identity,
    },
    /// Be the passive end: listen at this local address (`rfc998`). `host:port`, where port 0 lets
    /// the system choose, or `host` on raw IP.
    Passive(String),
    /// Be the active end: open a connection to this address (`rfc998`). `host:port`, or `host` on
    /// raw IP.
    Active(String),
}

impl Rendezvous {
    /// Whether this side waits for the other one to come.
    pub fn listens(&self) -> bool {
        matches!(self, Self::Listen | Self::Await(_) | Self::Passive(_))
    }
}

impl Ticket {
    /// Whether `text` is meant to be a ticket, of whatever version and however damaged.
    pub fn looks_like(text: &str) -> bool {
        let Some(rest) = text.trim_start().strip_prefix("netblt") else {
            return false;
        };
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        after.len() < rest.len() && after.starts_with(':')
    }
}

/// `HOST`, `HOST:PORT`, an IPv6 address, or one in brackets with or without a port, as
/// `host:port` or `[v6]:port`. Without a port in it, `port` is taken. A zone follows `%`, or `%25`
/// as in addresses of the web ([RFC 6874](https://www.rfc-editor.org/rfc/rfc6874)).
pub fn address(text: &str, port: Option<u16>) -> Result<String, AddressError> {
    let no_port = || AddressError::Port(text.to_owned());
    let (host, own) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or_else(no_port)?)),
        // A bare IPv6 address; one with a port needs its brackets here.
        None if is_v6(text) => (text, None),
        None => match text.rsplit_once(':') {
            Some((host, own)) => (host, Some(own)),
            None => (text, None),
        },
    };
    let port = match own {
        Some(own) => parse_port(own).ok_or_else(no_port)?,
        None => port.filter(|port| *port != 0).ok_or_else(no_port)?,
    };
    join(&plain_zone(host), port).ok_or_else(|| AddressError::Host(text.to_owned()))
}

/// An IPv6 address with its zone behind a bare `%`, however it was written. Whatever else it is
/// stays as it is.
pub fn plain_zone(host: &str) -> Cow<'_, str> {
    match host.split_once("%25") {
        Some((address, zone)) if !zone.is_empty() && address.parse::<Ipv6Addr>().is_ok() => {
            format!("{address}%{zone}").into()
        }
        _ => host.into(),
    }
}

fn join(host: &str, port: u16) -> Option<String> {
    if is_v6(host) {
        Some(format!("[{host}]:{port}"))
    } else {
        is_name(host).then(|| format!("{host}:{port}"))
    }
}

/// An IPv6 address, perhaps with a zone.
fn is_v6(host: &str) -> bool {
    let (address, zone) = host.split_once('%').unwrap_or((host, "0"));
    let zone_is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    address.parse::<Ipv6Addr>().is_ok()
        && (1..=32).contains(&zone.len())
        && zone.chars().all(zone_is_plain)
}

/// An IPv4 address or something a resolver may know. Names made of digits and dots alone are
/// addresses that lost a part.
fn is_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && label.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    };
    let digits = host.chars().all(|c| c.is_ascii_digit() || c == '.');
    let host_labels = host.strip_suffix('.').unwrap_or(host);
    host.parse::<Ipv4Addr>().is_ok()
        || (!digits && host.len() <= 253 && host_labels.split('.').all(label))
}

/// Digits only: `parse` alone would take `+5`.
fn parse_port(text: &str) -> Option<u16> {
    let digits = text.chars().all(|c| c.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port != 0)
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare: Vec<String> =
            self.addresses.iter().map(|address| address.replace(['[', ']'], "")).collect();
        let body = format!("{PREFIX}{}@{}", encode(&self.secret.0), bare.join(","));
        write!(f, "{body}/{}", check(&body))
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        let text = text.trim();
        let rest = match text.strip_prefix(PREFIX) {
            Some(rest) => rest,
            None if text.is_empty() => return Err(TicketError::Empty),
            None if Self::looks_like(text) => return Err(TicketError::Version),
            None if PREFIX.starts_with(text) => return Err(TicketError::CutShort),
            None => return Err(TicketError::Prefix),
        };
        if text.len() > MAX_BYTES {
            return Err(TicketError::TooLong);
        }
        if let Some(odd) = rest.chars().find(|c| !is_ticket_char(*c)) {
            return Err(TicketError::Character(odd));
        }
        let (body, given) = text.rsplit_once('/').ok_or(TicketError::CutShort)?;
        let expected = check(body);
        if given.len() < CHECK_CHARS && expected.starts_with(given) {
            return Err(TicketError::CutShort);
        }
        if given != expected {
            return Err(TicketError::Mistyped);
        }
        let rest = body.strip_prefix(PREFIX).ok_or(TicketError::Mistyped)?;
        let (secret, list) = rest.split_once('@').ok_or(TicketError::Mistyped)?;
        let secret = Secret(decode(secret).ok_or(TicketError::Mistyped)?);
        let count = list.split(',').count();
        if count > MAX_ADDRESSES {
            return Err(TicketError::Addresses(count));
        }
        let addresses = list.split(',').map(bare_address).collect::<Result<_, AddressError>>()?;
        Ok(Self { addresses, secret })
    }
}

/// An address as in a ticket: the port follows the last colon.
fn bare_address(text: &str) -> Result<String, AddressError> {
    let no_port = || AddressError::Port(text.to_owned());
    let (host, port) = text.rsplit_once(':').ok_or_else(no_port)?;
    let port = parse_port(port).ok_or_else(no_port)?;
    join(host, port).ok_or_else(|| AddressError::Host(text.to_owned()))
}

fn is_ticket_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | ',' | '@' | '/' | '%')
}

fn check(body: &str) -> String {
    let mut text = encode(&blake3::derive_key(CHECK_CONTEXT, body.as_bytes()));
    text.truncate(CHECK_CHARS);
    text
}

/// Base64url without padding, of 32 bytes.
pub(crate) fn encode(bytes: &[u8; 32]) -> String {
    BASE64URL_NOPAD.encode(bytes)
}

/// The reverse of [`encode`]; one text for each value, so stray bits at the end are refused.
pub(crate) fn decode(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    // It wants just the room that it fills.
    if text.len() != SECRET_CHARS {
        return None;
    }
    BASE64URL_NOPAD.decode_mut(text.as_bytes(), &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket() -> Ticket {
        let mut secret = [0; 32];
        for (i, byte) in secret.iter_mut().enumerate() {
            *byte = (i * 83 + 7) as u8;
        }
        let addresses = ["192.0.2.7:4000", "host-1.example:4001", "[2001:db8::7]:65535"];
        Ticket { addresses: addresses.map(str::to_owned).to_vec(), secret: Secret(secret) }
    }

    #[test]
    fn a_printed_ticket_is_parsed_to_the_same() {
        let text = ticket().to_string();
        assert_eq!(
            text,
            "netblt1:B1qtAFOm-Uyf8kWY6z6R5DeK3TCD1il8zyJ1yBtuwRQ@192.0.2.7:4000,\
             host-1.example:4001,2001:db8::7:65535/SeA43e"
        );
        assert_eq!(text.parse(), Ok(ticket()));
        assert_eq!(format!("  {text}\r\n").parse(), Ok(ticket()));
        assert!(text.chars().all(is_ticket_char));
        assert!(Ticket::looks_like(&text));
        assert!(!Ticket::looks_like("./netblt1:x"));
        assert!(!Ticket::looks_like("netblt:x"));
    }

    #[test]
    fn every_cut_and_every_wrong_character_is_noticed() {
        let text = ticket().to_string();
        for end in 0..text.len() {
            assert!(text[..end].parse::<Ticket>().is_err(), "{}", &text[..end]);
        }
        for at in 0..text.len() {
            for wrong in ["A", "b", "0", "-", ":", "/", "@", ",", " ", "\n", "é", ""] {
                let mangled = format!("{}{wrong}{}", &text[..at], &text[at + 1..]);
                assert!(mangled == text || mangled.parse::<Ticket>().is_err(), "{mangled}");
            }
        }
    }

    #[test]
    fn every_error_names_its_cause() {
        let text = ticket().to_string();
        let error = |text: &str| text.parse::<Ticket>().expect_err("not a ticket");
        assert_eq!(error(" \n"), TicketError::Empty);
        assert_eq!(error("./photos"), TicketError::Prefix);
        assert_eq!(error("netblt7:abc"), TicketError::Version);
        assert_eq!(error("netbl"), TicketError::CutShort);
        assert_eq!(error(&text[..30]), TicketError::CutShort);
        assert_eq!(error(&text[..text.len() - 2]), TicketError::CutShort);
        assert_eq!(error(&text.replace("qtA", "qta")), TicketError::Mistyped);
        assert_eq!(error(&text.replace(",host", ",\nhost")), TicketError::Character('\n'));
        assert_eq!(error(&format!("netblt1:{}", "a".repeat(5000))), TicketError::TooLong);
    }

    #[test]
    fn neither_debug_nor_an_error_shows_the_secret() {
        let mut bad = ticket();
        bad.addresses = vec!["no port".to_owned()];
        let secret = encode(&bad.secret.0);
        assert!(!format!("{bad:?}").contains(&secret));
        let error = bad.to_string().parse::<Ticket>().expect_err("no port");
        assert!(!format!("{error:?} {error}").contains(&secret));
        bad.addresses = vec!["h:1".to_owned(); 17];
        assert_eq!(bad.to_string().parse::<Ticket>(), Err(TicketError::Addresses(17)));
    }

    #[test]
    fn addresses_are_taken_with_and_without_a_port() {
        for (text, expected) in [
            ("192.0.2.7", "192.0.2.7:9"),
            ("192.0.2.7:80", "192.0.2.7:80"),
            ("example.org.", "example.org.:9"),
            ("a_b:80", "a_b:80"),
            ("::1", "[::1]:9"),
            ("[::1]", "[::1]:9"),
            ("[fe80::1%eth0]:80", "[fe80::1%eth0]:80"),
        ] {
            assert_eq!(address(text, Some(9)).as_deref(), Ok(expected));
        }
        let bad = ["", ":80", "a b", "-o", "1.2.3", "h:0", "h:+5", "h:65536", "[::1]x", "[h]:8:8"];
        for text in bad {
            assert!(address(text, Some(9)).is_err(), "{text}");
        }
        for (text, expected) in [
            ("[fe80::1%25eth0]", "[fe80::1%eth0]:9"),
            ("[fe80::1%25eth0]:7", "[fe80::1%eth0]:7"),
            ("fe80::1%25eth0", "[fe80::1%eth0]:9"),
            ("[fe80::1%eth0]:7", "[fe80::1%eth0]:7"),
            // The 25th interface.
            ("[fe80::1%25]", "[fe80::1%25]:9"),
        ] {
            assert_eq!(address(text, Some(9)).as_deref(), Ok(expected));
        }
        assert!(address("[fe80::1%25e th0]", Some(9)).is_err());
        assert!(address("host", None).is_err());
    }

    #[test]
    fn base64_is_that_of_rfc_4648() {
        assert_eq!(encode(&[0xff; 32]), "_".repeat(42) + "8");
        assert_eq!(decode(&encode(&[0xa5; 32])), Some([0xa5; 32]));
        assert_eq!(decode(&("_".repeat(42) + "9")), None);
        assert_eq!(decode("short"), None);
        for other in ["+", "/", "=", " ", "\n"] {
            assert_eq!(decode(&("A".repeat(42) + other)), None, "{other:?}");
        }
    }
}
