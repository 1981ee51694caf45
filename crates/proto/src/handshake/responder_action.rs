//! What the passive end of a handshake answers.

use super::Opened;

/// The response to a datagram.
pub(crate) enum ResponderAction<'a> {
    /// None: the datagram is ignored.
    Nothing,
    /// Send this back; it is no longer than the datagram.
    Reply(Vec<u8>),
    /// Send both back, RESPONSE and the early control packet; together they are no longer than the
    /// datagram.
    ReplyWithControl(Vec<u8>, Vec<u8>),
    /// The peer of the half-open connection was restarted: send this (`rfc998`).
    Reopened(Vec<u8>),
    /// The peer's address is validated: send this (`rfc998`).
    Validated(Vec<u8>),
    /// A connection is open; the datagram, if handed back, is its first.
    Opened(Box<Opened>, Option<&'a mut [u8]>),
}

impl std::fmt::Debug for ResponderAction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing => f.write_str("Nothing"),
            Self::Reopened(packet) => write!(f, "Reopened({} bytes)", packet.len()),
            Self::Validated(packet) => write!(f, "Validated({} bytes)", packet.len()),
            Self::Reply(packet) => write!(f, "Reply({} bytes)", packet.len()),
            Self::ReplyWithControl(response, early_control) => {
                write!(f, "ReplyWithControl({} and {} bytes)", response.len(), early_control.len())
            }
            Self::Opened(..) => f.write_str("Opened"),
        }
    }
}
