//! What a passive end does about a datagram.

use super::Opened;

/// What to do about a datagram.
pub(crate) enum Answer<'a> {
    /// It was nothing.
    Nothing,
    /// Send this back, no longer than what came.
    Reply(Vec<u8>),
    /// Send both back, a RESPONSE and the first words; together they are no longer than what came.
    Greeting(Vec<u8>, Vec<u8>),
    /// The peer of the half-open connection that stands was started again: send this (`rfc998`).
    Again(Vec<u8>),
    /// The peer of the connection that stands has shown that it hears: send this (`rfc998`).
    Heard(Vec<u8>),
    /// A connection is open; the datagram, if handed back, is its first.
    Opened(Box<Opened>, Option<&'a mut [u8]>),
}

impl std::fmt::Debug for Answer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing => f.write_str("Nothing"),
            Self::Again(packet) => write!(f, "Again({} bytes)", packet.len()),
            Self::Heard(packet) => write!(f, "Heard({} bytes)", packet.len()),
            Self::Reply(packet) => write!(f, "Reply({} bytes)", packet.len()),
            Self::Greeting(response, words) => {
                write!(f, "Greeting({} and {} bytes)", response.len(), words.len())
            }
            Self::Opened(..) => f.write_str("Opened"),
        }
    }
}
