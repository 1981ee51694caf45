//! Packets outside data and control. They get their packet numbers when they leave: those that wait
//! for a validated address must not delay the others.

use std::collections::VecDeque;

use crate::amplification_limit::AmplificationLimit;
use crate::api::Route;
use crate::codec::Codec;
use crate::limits::MAX_REASON;
use crate::units::PacketNumber;
use crate::wire::packet::Keepalive;
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

    /// Most bytes of its text on `rfc998`.
    fn most_text_bytes(&self) -> usize {
        match self {
            Self::Quit(reason) => reason.len().min(MAX_REASON) + 4,
            Self::Abort(what) => what.len() + 4,
            Self::Keepalive(_) | Self::QuitAck | Self::Done => 0,
            Self::Answer(..) | Self::Branch(_) => 0,
        }
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
#[derive(Debug)]
pub(super) struct Outbox {
    packets: VecDeque<OutboxPacket>,
    /// Bytes of a packet without text.
    empty_bytes: usize,
}

impl Outbox {
    pub(super) fn new(empty_bytes: usize) -> Self {
        Self { packets: VecDeque::new(), empty_bytes }
    }

    pub(super) fn push(&mut self, packet: OutboxPacket) {
        if self.packets.len() < MAX_PACKETS {
            self.packets.push_back(packet);
        }
    }

    /// Drops all of them.
    pub(super) fn clear(&mut self) {
        self.packets.clear();
    }

    fn ready(&self, validated: Option<Route>, limit: Option<&AmplificationLimit>) -> Option<usize> {
        self.packets.iter().position(|packet| {
            let bytes = self.empty_bytes + packet.most_text_bytes();
            let may = limit.is_none_or(|limit| limit.allows(bytes));
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
        let packet = self.packets.remove(self.ready(validated, limit)?)?;
        let route = packet.route().or(validated)?;
        Some((route, packet.put(codec, out)))
    }
}
