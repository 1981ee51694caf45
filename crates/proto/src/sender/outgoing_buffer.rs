//! One granted buffer at the sender, and its packets that must still be sent.

use std::ops::Range;

use crate::buffer::{Buffer, Geometry};
use crate::sender::coin_test::Toss;
use crate::sender::fec::Unheard;
use crate::sender::resend_rounds::{Heard, Rounds};
use crate::sender::states::{BufferState, BufferStep};
use crate::units::PacketIndex;
use crate::wire::packet::IndexRange;
use crate::wire::ranges::RangeSet;

/// A buffer from its GO to its OK (RFC 998 §5.2.2: SENDING).
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) geometry: Geometry,
    pub(crate) generation: u8,
    state: BufferState,
    full: Option<Full>,
    pub(super) unheard: Unheard,
}

#[derive(Debug)]
struct Full {
    buffer: Buffer,
    packets: u32,
    /// First index that the first pass has not reached.
    fresh: u32,
    /// Bytes sent before a renewed GO restarted the first pass.
    sent: usize,
    /// Packets to send again, all below `next_unsent`.
    again: RangeSet,
    rounds: Rounds,
    /// Packets that the first pass skipped by coin and that never left.
    unsent: RangeSet,
    /// Packets that left by coin, without a guess since.
    tossed: RangeSet,
    last_buffer: bool,
}

/// One packet to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) index: PacketIndex,
    pub(crate) range: Range<usize>,
    pub(crate) last_of_buffer: bool,
    pub(crate) last_buffer: bool,
    pub(crate) resend: bool,
}

impl Outgoing {
    pub(crate) fn new(geometry: Geometry, generation: u8) -> Self {
        let unheard = Unheard::default();
        Self { geometry, generation, state: BufferState::Granted, full: None, unheard }
    }

    /// Bytes that the client filled it with.
    pub(crate) fn filled_bytes(&self) -> Option<u64> {
        self.full.as_ref().map(|full| full.buffer.filled().len() as u64)
    }

    /// The client filled it.
    pub(crate) fn fill(&mut self, buffer: Buffer, last_buffer: bool) {
        let packets = self.geometry.packets(buffer.filled().len());
        self.full = Some(Full {
            buffer,
            packets,
            fresh: 0,
            sent: 0,
            again: RangeSet::default(),
            rounds: Rounds::default(),
            unsent: RangeSet::default(),
            tossed: RangeSet::default(),
            last_buffer,
        });
        self.state = self.state.after(BufferStep::Supplied);
    }

    /// Whether a GO of `generation` is newer than the one in force: messages come in any order.
    pub(crate) fn is_older(&self, generation: u8) -> bool {
        (1..128).contains(&generation.wrapping_sub(self.generation))
    }

    /// A renewed GO restarts the buffer with another packet size (`docs/protocol.md §6.5`). False
    /// if that is not worth it: the new packets are larger, and the buffer has begun in the smaller
    /// ones, which the receiver still accepts if they are of the generation before.
    pub(crate) fn renew(&mut self, geometry: Geometry, generation: u8) -> bool {
        let begun = self.full.as_ref().is_some_and(|full| full.fresh > 0);
        let next = generation == self.generation.wrapping_add(1);
        if begun && next && geometry.packet_bytes > self.geometry.packet_bytes {
            return false;
        }
        let before = std::mem::replace(&mut self.geometry, geometry);
        self.generation = generation;
        self.unheard = Unheard::default();
        if let Some(full) = &mut self.full {
            let len = full.buffer.filled().len();
            full.sent = full.sent.max(before.range(PacketIndex(full.fresh), len).start);
            full.packets = geometry.packets(full.buffer.filled().len());
            full.fresh = 0;
            full.again = RangeSet::default();
        }
        self.state = self.state.after(BufferStep::Renewed);
        true
    }

    /// Its state.
    #[cfg(test)]
    pub(crate) fn state(&self) -> BufferState {
        self.state
    }

    /// Whether its first pass is over.
    pub(crate) fn is_sent(&self) -> bool {
        self.state == BufferState::Sent
    }

    /// Whether its first pass began and is not over.
    pub(crate) fn has_begun(&self) -> bool {
        self.full.as_ref().is_some_and(|f| 0 < f.fresh && f.fresh < f.packets)
    }

    /// Whether a requested packet has not been sent again yet.
    pub(crate) fn has_again(&self) -> bool {
        self.full.as_ref().is_some_and(|f| !f.again.is_empty())
    }

    /// RESEND: marks the packets of `range` that were sent before. Those that the first pass has
    /// not reached, or that do not exist, are left out. Returns how many were marked.
    pub(crate) fn ask(&mut self, range: IndexRange) -> u64 {
        let Some(full) = &mut self.full else { return 0 };
        let end = range.end.min(full.fresh);
        if range.start >= end {
            return 0;
        }
        let asked = IndexRange { start: range.start, end };
        full.again.insert(asked);
        u64::from(end - range.start - overlap(&full.unsent, asked))
    }

    /// RESEND of `range`, before it is marked: evidence of progress in it; `progress` counts the
    /// signs so far.
    pub(super) fn hear(&mut self, range: IndexRange, signs: u64) -> Heard {
        let Some(full) = &mut self.full else { return Heard::default() };
        let end = range.end.min(full.fresh);
        if range.start >= end {
            return Heard::default();
        }
        full.rounds.on_asked(IndexRange { start: range.start, end }, &full.again, signs)
    }

    /// Takes the next packet to send, lowest index first.
    pub(crate) fn next(&mut self) -> Option<Piece> {
        let full = self.full.as_mut()?;
        let (index, resend) = match full.again.pop_first() {
            Some(index) => (index, true),
            None if full.fresh < full.packets => {
                full.fresh += 1;
                if full.fresh == full.packets {
                    self.state = self.state.after(BufferStep::PassOver);
                }
                (full.fresh - 1, false)
            }
            None => return None,
        };
        let range = self.geometry.range(PacketIndex(index), full.buffer.filled().len());
        let resend = resend || range.start < full.sent;
        Some(Piece {
            index: PacketIndex(index),
            range,
            last_of_buffer: index + 1 == full.packets,
            last_buffer: full.last_buffer,
            resend,
        })
    }

    /// The packet at `index`, sent before, once more.
    pub(super) fn piece(&self, index: u32) -> Option<Piece> {
        let full = self.full.as_ref().filter(|full| index < full.packets)?;
        Some(Piece {
            index: PacketIndex(index),
            range: self.geometry.range(PacketIndex(index), full.buffer.filled().len()),
            last_of_buffer: index + 1 == full.packets,
            last_buffer: full.last_buffer,
            resend: true,
        })
    }

    /// How many packets it has; 0 before the client filled it.
    pub(super) fn packets(&self) -> u32 {
        self.full.as_ref().map_or(0, |full| full.packets)
    }

    /// How many packets of its first pass are left.
    pub(super) fn packets_left(&self) -> u32 {
        self.full.as_ref().map_or(0, |full| full.packets.saturating_sub(full.fresh))
    }

    /// The data bytes of the packet that [`Outgoing::next`] would take.
    pub(super) fn next_bytes(&self) -> Option<usize> {
        let full = self.full.as_ref()?;
        let fresh = (full.fresh < full.packets).then_some(full.fresh);
        let index = full.again.iter().next().map(|range| range.start).or(fresh)?;
        Some(self.geometry.range(PacketIndex(index), full.buffer.filled().len()).len())
    }

    /// The same while the receiver's address is not validated: a coin skips each new packet with
    /// probability 1/2, as if the path had lost it. A packet without room stays due.
    pub(super) fn next_in_doubt(&mut self, toss: &mut Toss) -> Option<Piece> {
        while self.next_bytes().is_some_and(|bytes| toss.has_room(bytes)) {
            let piece = self.next()?;
            let full = self.full.as_mut()?;
            let index = piece.index.0;
            let one = IndexRange { start: index, end: index + 1 };
            let never = !piece.resend || full.unsent.contains(index);
            if !never || toss.is_heads() {
                toss.spend(piece.range.len());
                full.unsent.remove(one);
                if never {
                    full.tossed.insert(one);
                }
                return Some(Piece { resend: !never, ..piece });
            }
            full.unsent.insert(one);
        }
        None
    }

    /// Whether every packet has left.
    pub(super) fn is_all_sent(&self) -> bool {
        self.is_sent() && self.full.as_ref().is_none_or(|full| full.unsent.is_empty())
    }

    /// Queues the packets that never left. Returns whether there were any.
    pub(super) fn release(&mut self) -> bool {
        let Some(full) = &mut self.full else { return false };
        let unsent = std::mem::take(&mut full.unsent);
        unsent.iter().for_each(|range| full.again.insert(range));
        full.tossed = RangeSet::default();
        !unsent.is_empty()
    }

    /// RESEND of `missing` claims that all packets between its ranges arrived. Returns how many
    /// coins that guesses right; `None` if one of the packets never left.
    pub(super) fn call(&mut self, missing: &[IndexRange]) -> Option<u32> {
        let Some(full) = &mut self.full else { return Some(0) };
        let mut right = Some(0);
        for pair in missing.windows(2) {
            let between = IndexRange { start: pair[0].end, end: pair[1].start.min(full.fresh) };
            if between.start >= between.end {
                continue;
            }
            let there = overlap(&full.unsent, between) == 0;
            right = right.filter(|_| there).map(|n| n + overlap(&full.tossed, between));
            full.tossed.remove(between);
        }
        // The missing ranges themselves prove nothing.
        missing.iter().for_each(|range| full.tossed.remove(*range));
        right
    }

    /// Coins that an OK guesses right.
    pub(super) fn tossed(&self) -> u32 {
        self.full.as_ref().map_or(0, |full| full.tossed.len())
    }

    /// The bytes of a packet.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.full.as_ref().and_then(|f| f.buffer.filled().get(range)).unwrap_or_default()
    }

    /// All of its bytes.
    pub(super) fn image(&self) -> &[u8] {
        self.full.as_ref().map_or(&[], |full| full.buffer.filled())
    }

    /// The buffer back, if it was supplied.
    pub(crate) fn into_buffer(self) -> Option<Buffer> {
        self.full.map(|f| f.buffer)
    }

    /// Length of its image.
    pub(crate) fn len(&self) -> usize {
        self.full.as_ref().map_or(0, |f| f.buffer.filled().len())
    }
}

/// How many numbers of `range` are in `set`.
fn overlap(set: &RangeSet, range: IndexRange) -> u32 {
    set.intersect(range).map(|cut| cut.end - cut.start).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(len: usize) -> Outgoing {
        let mut buffer = Buffer::new(100);
        buffer.set_len(len);
        let mut outgoing = Outgoing::new(Geometry { buffer_bytes: 100, packet_bytes: 10 }, 0);
        outgoing.fill(buffer, false);
        outgoing
    }

    #[test]
    fn resends_go_before_the_rest_of_the_first_pass() {
        let mut o = filled(35);
        assert_eq!(o.next().unwrap().index, PacketIndex(0));
        assert_eq!(o.next().unwrap().index, PacketIndex(1));
        o.ask(IndexRange { start: 1, end: u32::MAX });
        let again = o.next().unwrap();
        assert!(again.resend && again.index == PacketIndex(1));
        assert!(!o.next().unwrap().resend);
        let last = o.next().unwrap();
        assert!(last.last_of_buffer && last.range == (30..35) && o.is_sent());
        assert!(o.next().is_none());
    }

    #[test]
    fn what_does_not_exist_is_not_sent() {
        let mut o = filled(10);
        o.next();
        o.ask(IndexRange { start: 1, end: 50 });
        assert!(o.next().is_none());
    }
}
