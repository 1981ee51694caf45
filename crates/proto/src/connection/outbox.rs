//! Packets outside data and control. They get their packet numbers when they leave: those that wait
//! for a validated address must not delay the others.

use std::collections::VecDeque;

use crate::amplification_limit::Doubt;
use crate::api::Route;
use crate::codec::Link;
use crate::limits::MAX_REASON;
use crate::units::PacketNumber;
use crate::wire::packet::Keepalive;
use crate::wire::rfc998;
use crate::wire::sealed::{Branch, Token};

/// Most packets in the outbox: the peer can provoke them, and none may be able to leave.
const MAX_WAITING: usize = 64;

/// A packet that is neither data nor control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Single {
    Keepalive(Keepalive),
    Quit(String),
    QuitAck,
    Abort(&'static str),
    Done,
    /// It goes to the address that the CHALLENGE came from.
    Answer(Token, Route),
    Branch(Box<Branch>),
}

impl Single {
    fn route(&self) -> Option<Route> {
        match self {
            Self::Answer(_, route) => Some(*route),
            _ => None,
        }
    }

    /// Its most bytes on `rfc998`.
    fn most_plain_bytes(&self) -> usize {
        let text = match self {
            Self::Quit(reason) => reason.len().min(MAX_REASON) + 4,
            Self::Abort(what) => what.len() + 4,
            Self::Keepalive(_) | Self::QuitAck | Self::Done => 0,
            Self::Answer(..) | Self::Branch(_) => 0,
        };
        rfc998::HEADER_BYTES + text
    }

    fn put(&self, link: &mut Link, out: &mut Vec<u8>) -> PacketNumber {
        match self {
            Self::Keepalive(keepalive) => link.put_keepalive(out, *keepalive),
            Self::Quit(reason) => link.put_quit(out, reason),
            Self::QuitAck => link.put_quit_ack(out),
            Self::Abort(what) => link.put_abort(out, what),
            Self::Done => link.put_done(out),
            Self::Answer(token, _) => link.put_answer(out, token),
            Self::Branch(branch) => link.put_branch(out, branch),
        }
    }
}

/// The packets that wait to leave.
#[derive(Debug, Default)]
pub(super) struct Singles(VecDeque<Single>);

impl Singles {
    pub(super) fn push(&mut self, single: Single) {
        if self.0.len() < MAX_WAITING {
            self.0.push_back(single);
        }
    }

    /// Drops all of them.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn ready(&self, home: Option<Route>, doubt: Option<&Doubt>) -> Option<usize> {
        self.0.iter().position(|single| {
            let may = doubt.is_none_or(|doubt| doubt.allows(single.most_plain_bytes()));
            may && single.route().or(home).is_some()
        })
    }

    /// Whether a packet can leave.
    pub(super) fn is_ready(&self, home: Option<Route>, doubt: Option<&Doubt>) -> bool {
        self.ready(home, doubt).is_some()
    }

    /// Appends the next packet that can leave. Returns its destination and number.
    pub(super) fn poll(
        &mut self,
        home: Option<Route>,
        doubt: Option<&Doubt>,
        link: &mut Link,
        out: &mut Vec<u8>,
    ) -> Option<(Route, PacketNumber)> {
        let single = self.0.remove(self.ready(home, doubt)?)?;
        let route = single.route().or(home)?;
        Some((route, single.put(link, out)))
    }
}
