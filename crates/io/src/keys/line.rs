//! A public key as a line of text, and its fingerprint.
//!
//! ```text
//! netblt-x25519 <43 characters of base64url> comment
//! ```

use std::fmt;
use std::str::FromStr;

use netblt_proto::api::printable;
use netblt_proto::config::{Identity, PublicKey, StaticKey};

use crate::ticket::{decode, encode};

/// The type of the key: the word before it.
pub const KIND: &str = "netblt-x25519";
/// The longest comment, in bytes.
pub const MAX_COMMENT: usize = 256;

/// A public key with what its owner calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicLine {
    /// The key.
    pub key: PublicKey,
    /// The rest of the line, often `user@host`; may be empty.
    pub comment: String,
}

impl fmt::Display for PublicLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{KIND} {}", encode(&self.key.0))?;
        let comment = printable(&self.comment);
        if comment.is_empty() { Ok(()) } else { write!(f, " {comment}") }
    }
}

impl FromStr for PublicLine {
    type Err = String;

    /// Parses the line, or returns its error.
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = word(text);
        if kind != KIND {
            return Err(format!("\"{}\" stands where {KIND} should", printable(kind)));
        }
        let (key, comment) = word(rest);
        if comment.len() > MAX_COMMENT {
            return Err(format!("its comment has more than {MAX_COMMENT} bytes"));
        }
        Ok(Self { key: public_key(key)?, comment: comment.to_owned() })
    }
}

/// A public key in base64url.
pub fn public_key(text: &str) -> Result<PublicKey, String> {
    let bytes = decode(text).ok_or_else(|| {
        let of = printable(text);
        format!("\"{of}\" is no key, which has 43 letters, digits, - and _")
    })?;
    let key = PublicKey(bytes);
    // Any key will do to find out.
    let other = StaticKey::from_bytes([1; 32]);
    match Identity::client(other, key) {
        Ok(_) => Ok(key),
        Err(none) => Err(none.to_string()),
    }
}

/// By what people know a key: `BLAKE3:` and its BLAKE3 in base64url.
pub fn fingerprint(key: &PublicKey) -> String {
    format!("BLAKE3:{}", encode(blake3::hash(&key.0).as_bytes()))
}

/// The first word of a text, and the rest behind the space.
pub(super) fn word(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> PublicKey {
        StaticKey::from_bytes([7; 32]).public()
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        for comment in ["", "me@laptop", "two words, and more"] {
            let line = PublicLine { key: key(), comment: comment.to_owned() };
            assert_eq!(line.to_string().parse(), Ok(line));
        }
        let text = format!("  {KIND}\t{}   me \n", encode(&key().0));
        assert_eq!(text.parse::<PublicLine>().unwrap().comment, "me");
    }

    #[test]
    fn an_error_names_what_is_wrong() {
        let good = encode(&key().0);
        for (text, wrong) in [
            (String::new(), "\"\" stands where netblt-x25519 should"),
            (format!("ssh-ed25519 {good}"), "\"ssh-ed25519\" stands where netblt-x25519 should"),
            (format!("{KIND} {}", &good[1..]), "is no key, which has 43"),
            (format!("{KIND} {}", good.replace(&good[..1], "*")), "is no key, which has 43"),
            (format!("{KIND} {}", "A".repeat(43)), "with which everybody agrees"),
            (format!("{KIND} {good} {}", "x".repeat(257)), "more than 256 bytes"),
        ] {
            let error = text.parse::<PublicLine>().unwrap_err();
            assert!(error.contains(wrong), "{text}: {error}");
        }
    }

    #[test]
    fn a_fingerprint_is_the_hash_of_the_key() {
        let printed = fingerprint(&key());
        assert_eq!(printed, format!("BLAKE3:{}", encode(blake3::hash(&key().0).as_bytes())));
        assert_eq!(printed.len(), "BLAKE3:".len() + 43);
        assert_ne!(printed, fingerprint(&StaticKey::from_bytes([8; 32]).public()));
    }
}
