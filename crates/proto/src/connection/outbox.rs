//! Packets outside data and control. They get their packet numbers when they leave: those that wait
//! for a validated address must not delay the others.

use std::collections::VecDeque;

use crate::amplification_limit::AmplificationLimit;
use crate::api::Route;
use crate::codec::Codec;
use crate::limits::MAX_REASON;
use crate::units::PacketNumber;
use crate::wire::packet::Keepalive;
use crate::wire::rfc998;
use crate::wire::sealed::{Branch, Token};

/// Most packets in the outbox: the peer can provoke them, and none may be able to leave.
const MAX_PACKETS: usize = 64;

/// A packet that is neither data nor control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OutboxPacket {
    Keepalive(Keepalive),
    Quit(String),
    QuitAck,
    Abort(&'static str),
    Done,
    /// It goes to the address that the CHALLENGE came from.
    Answer(Token, Route),
    Branch(Box<Branch>),
}

impl OutboxPacket {
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

    fn put(&self, codec: &mut Codec, out: &mut Vec<u8>) -> PacketNumber {
        match self {
            Self::Keepalive(keepalive) => codec.put_keepalive(out, *keepalive),
            Self::Quit(reason) => codec.put_quit(out, reason),
            Self::QuitAck => codec.put_quit_ack(out),
            Self::Abort(what) => codec.put_abort(out, what),
            Self::Done => codec.put_done(out),
            Self::Answer(token, _) => codec.put_answer(out, token),
            Self::Branch(branch) => codec.put_branch(out, branch),
        }
    }
}

/// The packets that wait to leave.
#[derive(Debug, Default)]
pub(super) struct Outbox(VecDeque<OutboxPacket>);

impl Outbox {
    pub(super) fn push(&mut self, packet: OutboxPacket) {
        if self.0.len() < MAX_PACKETS {
            self.0.push_back(packet);
        }
    }

    /// Drops all of them.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn ready(&self, validated: Option<Route>, limit: Option<&AmplificationLimit>) -> Option<usize> {
        self.0.iter().position(|packet| {
            let may = limit.is_none_or(|limit| limit.allows(packet.most_plain_bytes()));
            may && packet.route().or(validated).is_some()
        })
    }

    /// Whether a packet can leave.
    pub(super) fn is_ready(
        &self,
        validated: Option<Route>,
        limit: Option<&AmplificationLimit>,
    ) -> bool {
        self.ready(validated, limit).is_some()
    }

    /// Appends the next packet that can leave. Returns its destination and number.
    pub(super) fn poll(
        &mut self,
        validated: Option<Route>,
        limit: Option<&AmplificationLimit>,
        codec: &mut Codec,
        out: &mut Vec<u8>,
    ) -> Option<(Route, PacketNumber)> {
        let packet = self.0.remove(self.ready(validated, limit)?)?;
        let route = packet.route().or(validated)?;
        Some((route, packet.put(codec, out)))
    }
}
