//! The interface between a machine and its driver: inputs with their times, outputs to be polled.
//!
//! The driver's contract, the same for the real loop and the virtual one:
//!
//! * call `handle_*` and the client's verbs (`offer`, `supply`, ...) with times that never go back;
//! * after any of them, poll `poll_transmit` until `None`, then `poll_event` until `None`;
//! * call `handle_timeout` no later than `next_timeout` says, which may change after every call.
//!
//! Nothing a peer sends makes a call panic or fail: bad datagrams are counted and dropped, fatal
//! ones become [`Event::Closed`].

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::buffer::Buffer;
use crate::units::BufferNumber;
use crate::wire::packet::{End, Parameters, Verdict};

/// ECN codepoints in use (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// ECN-capable.
    Ect0,
    /// Congestion experienced.
    Ce,
}

/// Metadata of a received datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecvMeta {
    /// Its ECN mark, if any.
    pub ecn: Option<Ecn>,
    /// Time since it arrived at this host, if the host reports it: it may have waited for the
    /// driver among others. Zero if unknown.
    pub age: Duration,
    /// Datagrams that this host's socket had no room for since it was opened, if the host reports
    /// it. A batch that it merged counts as one.
    pub overrun: u32,
}

/// A shorter wait is usual on a busy host.
const STARVED_AFTER: Duration = Duration::from_millis(100);

impl RecvMeta {
    /// Time for which this host was suspended or starved while the datagram waited. It does not
    /// count in the round trip that the datagram ends.
    pub(crate) fn host_stall(&self) -> Duration {
        if self.age < STARVED_AFTER { Duration::ZERO } else { self.age }
    }
}

impl From<Option<Ecn>> for RecvMeta {
    /// With this mark, just arrived.
    fn from(ecn: Option<Ecn>) -> Self {
        Self { ecn, ..Self::default() }
    }
}

/// The addresses of a path: the peer's, and the local one that it sends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// The other end's address.
    pub peer: SocketAddr,
    /// The local address, if it matters; else the system chooses.
    pub local: Option<IpAddr>,
}

/// One datagram from the network.
pub struct Datagram<'a> {
    /// Where it came from.
    pub from: SocketAddr,
    /// The local address it came to, if answers must come from there.
    pub local: Option<IpAddr>,
    /// Its ECN mark, and how long it has waited at this host.
    pub meta: RecvMeta,
    /// Its bytes; the machine may decrypt in place.
    pub bytes: &'a mut [u8],
}

/// One or more datagrams for the network, appended to the caller's batch: `len` bytes cut into
/// pieces of `segment` bytes, the last of which may be shorter. At most 64 pieces and 65,507 bytes,
/// so that each fits one GSO send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Destination.
    pub to: SocketAddr,
    /// Local address to send from; `None`: the system chooses.
    pub local: Option<IpAddr>,
    /// ECN mark to set.
    pub ecn: Option<Ecn>,
    /// Bytes in every datagram but the last.
    pub segment: usize,
    /// Bytes in all of them.
    pub len: usize,
}

/// An event for the client of the machine.
#[derive(Debug)]
pub enum Event {
    /// The connection is open, with these parameters in force: a packet under its keys has arrived.
    /// If another connection was open before (the peer was started again with the same ticket), it
    /// is closed, every buffer it held has been returned in an event, and the transfer starts over
    /// from buffer 1.
    Opened {
        /// The peer's address so far; it may move.
        peer: SocketAddr,
        /// The negotiated parameters; death timer and `client` are the peer's.
        parameters: Parameters,
        /// The most a buffer may hold: its data area and, on `sealed`, its extent table.
        image_bytes: u32,
    },
    /// Sender: the receiver has an empty buffer for this number; supply it when it is filled.
    /// Numbers come in order, each once.
    Wanted(BufferNumber),
    /// Sender: this buffer was accepted (or the connection ended) and its memory is free again.
    Released(BufferNumber, Buffer),
    /// Sender, on `sealed`: one HAVE message, a part of the list of data that the receiver has
    /// already. Messages come in any order.
    PeerHas {
        /// Its position in the list, from 1.
        place: u32,
        /// Its bytes, for the client.
        bytes: Vec<u8>,
        /// Whether no message has a higher position.
        last: bool,
    },
    /// Receiver: this buffer is complete. Each number comes once, in any order.
    Filled(BufferNumber, Buffer),
    /// Receiver: an empty or incomplete buffer handed back, for which no data will come.
    Returned(Buffer),
    /// Receiver: every buffer of the transfer has been handed out. On `sealed` the sender's END has
    /// arrived and a verdict is due; `rfc998` has no verdict.
    Complete(Option<End>),
    /// Sender: the receiver's DONE. `None` on `rfc998`, which has no verdict.
    Finished(Option<Verdict>),
    /// No packet of the peer has arrived for three seconds.
    Silent,
    /// After [`Event::Silent`]: a packet of the peer has arrived.
    Answering,
    /// The end. No event follows, no packet leaves.
    Closed(CloseReason),
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Everything was transferred, and acknowledged by the other end.
    Finished,
    /// The other end's client gave up, with its reason (QUIT).
    PeerQuit(String),
    /// This end gave up, and the peer acknowledged QUIT (or QUIT was sent as often as makes sense).
    Quit,
    /// The other end's machine gave up, with its reason (ABORT).
    PeerAborted(String),
    /// The death timer ran out: no packet arrived for that long.
    DeathTimer,
    /// Packets arrived, but the transfer made no progress for the death timer (`docs/protocol
    /// §7.6`).
    Stalled(Stall),
    /// OPEN was never answered. Holds the unauthenticated hint, if one came.
    NoAnswer {
        /// The text of an unauthenticated REFUSED, if one came.
        hint: Option<String>,
        /// The host answered that nothing listens on the port.
        unreachable: bool,
    },
    /// The passive end refused, with proof of its identity.
    Refused(String),
    /// For ten seconds the peer's host answered that the port is closed, and nothing else arrived.
    Unreachable,
    /// UNKNOWN came from the peer's address, and nothing else: its program was started again.
    Forgotten,
    /// The peer authenticated itself and then broke the protocol.
    Violation(&'static str),
}

/// The stall that closed a connection whose peer still answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The kind of stall.
    pub what: StallKind,
    /// Time without progress.
    pub lasted: Duration,
    /// Packets of the peer meanwhile.
    pub received: u64,
    /// Packets of data sent meanwhile, or asked for again; for [`StallKind::Control`], control
    /// packets.
    pub attempts: u64,
}

/// The kinds of stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallKind {
    /// At a sender: its data.
    Data,
    /// At a receiver: missing packets of buffers that have begun.
    Missing,
    /// At a receiver: its control messages.
    Control,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, lasted, received, attempts } = self;
        write!(f, "nothing new was stored for {} s: ", lasted.as_secs())?;
        match what {
            StallKind::Data => {
                write!(f, "{attempts} packets of data were sent, and nothing says that any arrived")
            }
            StallKind::Missing => {
                write!(f, "{attempts} packets of data were asked for again, and none came")
            }
            StallKind::Control => {
                write!(f, "{attempts} control packets were sent, and nothing says that any arrived")
            }
        }?;
        write!(f, ", though {received} other packets came from there; perhaps only small ones pass")
    }
}

impl CloseReason {
    /// One word for traces.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::PeerQuit(_) => "peer_quit",
            Self::Quit => "quit",
            Self::PeerAborted(_) => "peer_aborted",
            Self::DeathTimer => "death_timer",
            Self::Stalled(_) => "stalled",
            Self::NoAnswer { .. } => "no_answer",
            Self::Refused(_) => "refused",
            Self::Unreachable => "unreachable",
            Self::Forgotten => "forgotten",
            Self::Violation(_) => "violation",
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => write!(f, "finished"),
            Self::PeerQuit(why) => write!(f, "the other end stopped: {}", printable(why)),
            Self::Quit => write!(f, "stopped here"),
            Self::PeerAborted(why) => write!(f, "the other end aborted: {}", printable(why)),
            Self::DeathTimer => {
                write!(f, "nothing was received from the other end until the death timer ran out")
            }
            Self::Stalled(stalled) => write!(f, "{stalled}"),
            Self::NoAnswer { hint: Some(hint), .. } => {
                write!(f, "refused, by an answer without proof: {}", printable(hint))
            }
            Self::NoAnswer { unreachable: true, .. } => write!(f, "nothing listens on that port"),
            Self::NoAnswer { .. } => write!(f, "no answer"),
            Self::Refused(why) => write!(f, "the other end refused: {}", printable(why)),
            Self::Unreachable => {
                write!(f, "the other end's program is gone: its host refuses the packets")
            }
            Self::Forgotten => {
                write!(f, "the other end's program was started again and knows nothing of this")
            }
            Self::Violation(what) => write!(f, "the other end broke the protocol: {what}"),
        }
    }
}

/// Makes a string of the peer safe for a terminal: control and invisible characters are escaped.
pub fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let odd = c.is_control() || is_invisible(c);
            let escaped: Box<dyn Iterator<Item = char>> =
                if odd { Box::new(c.escape_unicode()) } else { Box::new(std::iter::once(c)) };
            escaped
        })
        .collect()
}

/// The same for bytes: those that are no UTF-8 are shown in hexadecimal (`\xff`).
pub fn printable_bytes(text: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in text.utf8_chunks() {
        shown.push_str(&printable(chunk.valid()));
        shown.push_str(&chunk.invalid().escape_ascii().to_string());
    }
    shown
}

/// Whether a character has no width on a terminal, or changes the direction of writing: every
/// format character (Cf), line or paragraph separator (Zl, Zp) and default-ignorable character of
/// Unicode 15. Joiners and variation selectors are among them: a name that shows as another one
/// costs more than an escape too many.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_escapes_control_and_bidi_characters() {
        assert_eq!(printable("a\u{1b}[2Jb\n\u{202e}c"), "a\\u{1b}[2Jb\\u{a}\\u{202e}c");
        assert_eq!(printable("größer 文"), "größer 文");
        assert!(printable("a\u{61c}b\u{ad}c\u{e0041}").is_ascii());
    }

    /// Every Cf, Zl and Zp of Unicode 15.
    #[test]
    fn printable_escapes_every_format_character_and_separator() {
        let ranges: [(u32, u32); 21] = [
            (0xad, 0xad),
            (0x600, 0x605),
            (0x61c, 0x61c),
            (0x6dd, 0x6dd),
            (0x70f, 0x70f),
            (0x890, 0x891),
            (0x8e2, 0x8e2),
            (0x180e, 0x180e),
            (0x200b, 0x200f),
            (0x2028, 0x202e),
            (0x2060, 0x2064),
            (0x2066, 0x206f),
            (0xfeff, 0xfeff),
            (0xfff9, 0xfffb),
            (0x110bd, 0x110bd),
            (0x110cd, 0x110cd),
            (0x13430, 0x1343f),
            (0x1bca0, 0x1bca3),
            (0x1d173, 0x1d17a),
            (0xe0001, 0xe0001),
            (0xe0020, 0xe007f),
        ];
        for c in ranges.into_iter().flat_map(|(first, last)| first..=last) {
            let c = char::from_u32(c).unwrap();
            assert!(printable(&c.to_string()).is_ascii(), "{c:?}");
        }
    }
}
