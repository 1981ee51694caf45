//! One granted buffer at the sender, from its GO to its OK, and its states (`docs/protocol §10.1`).
//!
//! It decides which of its packets leaves next. Inputs: GO, the client's data and RESENDs. Outputs:
//! packets, lowest index first, and what is known of those that left.

use std::ops::Range;
use std::time::Duration;

use super::packet::DataPacket;
use super::resend_rounds::{ResendEvidence, ResendRounds};
use super::unconfirmed::UnconfirmedPackets;
use crate::buffer::{Buffer, Geometry};
use crate::fec::FecBlock;
use crate::time::Instant;
use crate::units::PacketIndex;
use crate::wire::packet::IndexRange;
use crate::wire::ranges::RangeSet;

/// A buffer from its GO to its OK (RFC 998 §5.2.2: SENDING).
#[derive(Debug)]
pub(crate) struct OutgoingBuffer {
    geometry: Geometry,
    generation: u8,
    state: SendingState,
    data: Option<SuppliedData>,
    unconfirmed: UnconfirmedPackets,
}

#[derive(Debug)]
struct SuppliedData {
    buffer: Buffer,
    packets: u32,
    /// First index that the first pass has not reached.
    next_unsent: u32,
    /// Bytes sent before a renewed GO restarted the first pass.
    sent: usize,
    /// Packets to send again, all below `next_unsent`.
    retransmits: RangeSet,
    rounds: ResendRounds,
    last_buffer: bool,
}

/// The states of a sending buffer, from its GO until its OK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendingState {
    /// The client must fill it.
    Granted,
    /// Its first pass is under way.
    Sending,
    /// Its first pass is over; RESENDs are answered.
    Sent,
}

/// The events of a [`SendingState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendingStep {
    /// The client filled it.
    Supplied,
    /// The last packet of the first pass left.
    PassOver,
    /// GO again, with another packet size: restarts the first pass.
    Renewed,
}

impl SendingState {
    /// The state after `step`.
    #[must_use]
    fn after(self, step: SendingStep) -> Self {
        match (self, step) {
            (Self::Granted, SendingStep::Supplied) => Self::Sending,
            (Self::Sending, SendingStep::PassOver) => Self::Sent,
            (Self::Sent, SendingStep::Renewed) => Self::Sending,
            (state, _) => state,
        }
    }
}

impl OutgoingBuffer {
    pub(crate) fn new(geometry: Geometry, generation: u8) -> Self {
        let unconfirmed = UnconfirmedPackets::default();
        Self { geometry, generation, state: SendingState::Granted, data: None, unconfirmed }
    }

    /// Data bytes of its full packets.
    pub(crate) fn packet_bytes(&self) -> u32 {
        self.geometry.packet_bytes
    }

    /// The generation of its GO.
    pub(crate) fn generation(&self) -> u8 {
        self.generation
    }

    /// Bytes that the client filled it with.
    pub(crate) fn filled_bytes(&self) -> Option<u64> {
        self.data.as_ref().map(|data| data.buffer.filled().len() as u64)
    }

    /// The client filled it.
    pub(crate) fn fill(&mut self, buffer: Buffer, last_buffer: bool) {
        let packets = self.geometry.packets(buffer.filled().len());
        self.data = Some(SuppliedData {
            buffer,
            packets,
            next_unsent: 0,
            sent: 0,
            retransmits: RangeSet::default(),
            rounds: ResendRounds::default(),
            last_buffer,
        });
        self.state = self.state.after(SendingStep::Supplied);
    }

    /// Whether a GO of `generation` is newer than the one in force: messages come in any order.
    pub(crate) fn is_older(&self, generation: u8) -> bool {
        (1..128).contains(&generation.wrapping_sub(self.generation))
    }

    /// A renewed GO restarts the buffer with another packet size (`docs/protocol §6.5`). False
    /// if that is not worth it: the new packets are larger, and the buffer has begun in the smaller
    /// ones, which the receiver still accepts if they are of the generation before.
    pub(crate) fn renew(&mut self, geometry: Geometry, generation: u8) -> bool {
        let begun = self.data.as_ref().is_some_and(|data| data.next_unsent > 0);
        let next = generation == self.generation.wrapping_add(1);
        if begun && next && geometry.packet_bytes > self.geometry.packet_bytes {
            return false;
        }
        let before = std::mem::replace(&mut self.geometry, geometry);
        self.generation = generation;
        self.unconfirmed = UnconfirmedPackets::default();
        if let Some(data) = &mut self.data {
            let len = data.buffer.filled().len();
            data.sent = data.sent.max(before.range(PacketIndex(data.next_unsent), len).start);
            data.packets = geometry.packets(data.buffer.filled().len());
            data.next_unsent = 0;
            data.retransmits = RangeSet::default();
        }
        self.state = self.state.after(SendingStep::Renewed);
        true
    }

    /// Its state.
    #[cfg(test)]
    pub(crate) fn state(&self) -> SendingState {
        self.state
    }

    /// Whether its first pass is over.
    pub(crate) fn is_sent(&self) -> bool {
        self.state == SendingState::Sent
    }

    /// Whether its first pass began and is not over.
    pub(crate) fn has_begun(&self) -> bool {
        self.data.as_ref().is_some_and(|f| 0 < f.next_unsent && f.next_unsent < f.packets)
    }

    /// Whether a requested packet has not been sent again yet.
    pub(crate) fn has_retransmits(&self) -> bool {
        self.data.as_ref().is_some_and(|f| !f.retransmits.is_empty())
    }

    /// RESEND: marks the packets of `range` that were sent before. Those that the first pass has
    /// not reached, or that do not exist, are left out. Returns how many were marked.
    pub(crate) fn ask(&mut self, range: IndexRange) -> u64 {
        let Some(data) = &mut self.data else { return 0 };
        let end = range.end.min(data.next_unsent);
        if range.start >= end {
            return 0;
        }
        let asked = IndexRange { start: range.start, end };
        data.retransmits.insert(asked);
        u64::from(end - range.start)
    }

    /// RESEND of `range`, before it is marked: evidence of progress in it; `progress` counts the
    /// signs so far.
    pub(super) fn note_resend(&mut self, range: IndexRange, progress: u64) -> ResendEvidence {
        let Some(data) = &mut self.data else { return ResendEvidence::default() };
        let end = range.end.min(data.next_unsent);
        if range.start >= end {
            return ResendEvidence::default();
        }
        data.rounds.on_request(IndexRange { start: range.start, end }, &data.retransmits, progress)
    }

    /// Takes the next packet to send, lowest index first.
    pub(crate) fn next(&mut self) -> Option<DataPacket> {
        let data = self.data.as_mut()?;
        let (index, resend) = match data.retransmits.pop_first() {
            Some(index) => (index, true),
            None if data.next_unsent < data.packets => {
                data.next_unsent += 1;
                if data.next_unsent == data.packets {
                    self.state = self.state.after(SendingStep::PassOver);
                }
                (data.next_unsent - 1, false)
            }
            None => return None,
        };
        let range = self.geometry.range(PacketIndex(index), data.buffer.filled().len());
        let resend = resend || range.start < data.sent;
        Some(DataPacket {
            index: PacketIndex(index),
            range,
            last_of_buffer: index + 1 == data.packets,
            last_buffer: data.last_buffer,
            resend,
        })
    }

    /// The packet at `index`, sent before, once more.
    pub(super) fn piece(&self, index: u32) -> Option<DataPacket> {
        let data = self.data.as_ref().filter(|data| index < data.packets)?;
        Some(DataPacket {
            index: PacketIndex(index),
            range: self.geometry.range(PacketIndex(index), data.buffer.filled().len()),
            last_of_buffer: index + 1 == data.packets,
            last_buffer: data.last_buffer,
            resend: true,
        })
    }

    /// How many packets it has; 0 before the client filled it.
    pub(super) fn packets(&self) -> u32 {
        self.data.as_ref().map_or(0, |data| data.packets)
    }

    /// How many packets of its first pass are left.
    pub(super) fn packets_left(&self) -> u32 {
        self.data.as_ref().map_or(0, |data| data.packets.saturating_sub(data.next_unsent))
    }

    /// The data bytes of the packet that [`OutgoingBuffer::next`] would take.
    pub(super) fn next_bytes(&self) -> Option<usize> {
        let data = self.data.as_ref()?;
        let fresh = (data.next_unsent < data.packets).then_some(data.next_unsent);
        let index = data.retransmits.iter().next().map(|range| range.start).or(fresh)?;
        Some(self.geometry.range(PacketIndex(index), data.buffer.filled().len()).len())
    }

    /// A packet of it left. Returns whether it ended the first pass, and repair packets may follow.
    pub(super) fn note_left(&mut self, now: Instant, piece: &DataPacket) -> bool {
        self.unconfirmed.on_left(now, piece);
        piece.last_of_buffer && self.is_sent() && !self.unconfirmed.is_repaired()
    }

    /// How many packets left too lately to have been requested again.
    pub(super) fn unconfirmed(&mut self, now: Instant, rtt: Option<Duration>) -> u32 {
        let packets = self.packets();
        self.unconfirmed.packets(now, rtt, packets)
    }

    /// Its block and the indexes of the next `count` repair packets, as far as it has them.
    pub(super) fn next_repairs(
        &mut self,
        now: Instant,
        count: u32,
    ) -> Option<(FecBlock, Range<u32>)> {
        let image_bytes = u32::try_from(self.len()).unwrap_or(u32::MAX);
        let block = FecBlock::new(self.geometry, image_bytes)?;
        let indexes = self.unconfirmed.next_repairs(now, count, block.width());
        Some((block, indexes))
    }

    /// The bytes of a packet.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.data.as_ref().and_then(|f| f.buffer.filled().get(range)).unwrap_or_default()
    }

    /// All of its bytes.
    pub(super) fn image(&self) -> &[u8] {
        self.data.as_ref().map_or(&[], |data| data.buffer.filled())
    }

    /// The buffer back, if it was supplied.
    pub(crate) fn into_buffer(self) -> Option<Buffer> {
        self.data.map(|f| f.buffer)
    }

    /// Length of its image.
    pub(crate) fn len(&self) -> usize {
        self.data.as_ref().map_or(0, |f| f.buffer.filled().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(len: usize) -> OutgoingBuffer {
        let mut buffer = Buffer::new(100);
        buffer.set_len(len);
        let mut outgoing = OutgoingBuffer::new(Geometry { buffer_bytes: 100, packet_bytes: 10 }, 0);
        outgoing.fill(buffer, false);
        outgoing
    }

    #[test]
    fn resends_go_before_the_rest_of_the_first_pass() {
        let mut o = filled(35);
        assert_eq!(o.next().unwrap().index, PacketIndex(0));
        assert_eq!(o.next().unwrap().index, PacketIndex(1));
        o.ask(IndexRange { start: 1, end: u32::MAX });
        let retransmits = o.next().unwrap();
        assert!(retransmits.resend && retransmits.index == PacketIndex(1));
        assert!(!o.next().unwrap().resend);
        let last = o.next().unwrap();
        assert!(last.last_of_buffer && last.range == (30..35) && o.is_sent());
        assert!(o.next().is_none());
    }

    #[test]
    fn a_resend_of_packets_beyond_the_end_sends_nothing() {
        let mut o = filled(10);
        o.next();
        o.ask(IndexRange { start: 1, end: 50 });
        assert!(o.next().is_none());
    }

    #[test]
    fn every_state_of_a_buffer_against_every_step() {
        use SendingState::{Granted, Sending, Sent};
        let steps = [SendingStep::Supplied, SendingStep::PassOver, SendingStep::Renewed];
        for (state, after) in [
            (Granted, [Sending, Granted, Granted]),
            (Sending, [Sending, Sent, Sending]),
            (Sent, [Sent, Sent, Sending]),
        ] {
            assert_eq!(steps.map(|step| state.after(step)), after, "{state:?}");
        }
    }
}
