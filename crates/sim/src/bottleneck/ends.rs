//! Both ends of a flow, and what they send to each other.

use std::fmt::Debug;
use std::time::Duration;

use netblt_path::Payload;
use netblt_path::rng::Rng;
use netblt_proto::api::Ecn;
use netblt_proto::time::Instant;
use netblt_proto::wire::packet::Report;

/// A packet, which has no bytes but a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowPacket {
    pub(super) flow: usize,
    /// IP bytes.
    pub(super) bytes: u32,
    pub(super) sent_at: Instant,
    pub(super) body: Body,
}

/// The content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// One of ours opens its connection, and is answered.
    Open,
    Opened,
    /// The packet of this number.
    Data(u64),
    /// TCP's acknowledgement.
    Ack(Ack),
    /// A report of the arrivals so far.
    Report(Report),
}

/// An acknowledgement: the packet that made it, and those that came of late, so that a lost one
/// costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) number: u64,
    any: bool,
    /// The highest number that came, and in bit n whether the one n + 1 below it did.
    pub(super) highest: u64,
    pub(super) below: u128,
    /// Packets that came marked.
    pub(super) marked: u64,
}

impl Ack {
    /// The packet of this number came.
    pub(super) fn take(&mut self, number: u64, marked: bool) {
        self.number = number;
        self.marked += u64::from(marked);
        if !std::mem::replace(&mut self.any, true) {
            self.highest = number;
        }
        match number.checked_sub(self.highest) {
            Some(0) => {}
            Some(more) => {
                let moved = u32::try_from(more).unwrap_or(u32::MAX);
                let before = self.below.checked_shl(moved).unwrap_or(0);
                self.below = before | 1_u128.checked_shl(moved - 1).unwrap_or(0);
                self.highest = number;
            }
            None => self.below |= self.bit(number),
        }
    }

    fn bit(&self, number: u64) -> u128 {
        let below = (self.highest - number).saturating_sub(1);
        u32::try_from(below).ok().and_then(|below| 1_u128.checked_shl(below)).unwrap_or(0)
    }

    /// Whether that packet is known to have come.
    pub(super) fn covers(&self, number: u64) -> bool {
        number == self.number
            || number == self.highest
            || number < self.highest && self.below & self.bit(number) != 0
    }
}

impl Body {
    /// Whether it goes to the receiver.
    pub(super) fn is_forward(&self) -> bool {
        matches!(self, Self::Open | Self::Data(_))
    }
}

impl Payload for FlowPacket {
    fn len_bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Packets are never corrupted here.
    fn flip_bit(&mut self, _bit: usize) {}
}

/// The packets that the ends of one flow send now.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Bodies with their IP bytes.
    pub(super) packets: Vec<(Body, u32)>,
    /// The chances of this flow.
    pub(super) rng: Rng,
}

impl Outbox {
    pub(super) fn push(&mut self, body: Body, bytes: u32) {
        self.packets.push((body, bytes));
    }
}

/// IP bytes of what goes back: an acknowledgement with time stamps, or a report.
pub(super) const FEEDBACK_BYTES: u32 = 80;

/// Sender and receiver of a flow.
pub(super) trait Ends: Debug + Send {
    /// When [`Ends::work`] is wanted next.
    fn due(&self, now: Instant) -> Instant;
    /// Timers run out, data leave.
    fn work(&mut self, now: Instant, out: &mut Outbox);
    /// A packet came to the receiver.
    fn on_data(&mut self, now: Instant, packet: &FlowPacket, ecn: Option<Ecn>, out: &mut Outbox);
    /// Feedback of the receiver has arrived at the sender.
    fn on_feedback(&mut self, now: Instant, body: &Body, out: &mut Outbox);
    /// The sender's phase, in a word.
    fn phase(&self) -> &'static str {
        ""
    }
    /// How long each piece took that was carried whole, and when it began.
    fn pieces(&self) -> &[(Instant, Duration)] {
        &[]
    }
}
