//! The assembly of one buffer: which packets have arrived, and the position of the next.
//!
//! Inputs: its packets, its repair packets, and the control messages about it. Outputs: its holes,
//! and in the end the buffer.

use std::ops::Range;

use super::fec::StoredSymbols;
use super::states::{ReceivingState, ReceivingStep};
use crate::buffer::{Buffer, Geometry};
use crate::fec::FecBlock;
use crate::units::{ControlSeq, PacketIndex};
use crate::wire::packet::{IndexRange, RepairHeader};

/// A granted buffer that is being filled.
#[derive(Debug)]
pub(super) struct Assembly {
    buffer: Buffer,
    geometry: Geometry,
    generation: u8,
    /// Generations after the first so far.
    renewals: u8,
    /// The geometry and generation before, if the sender may still use them.
    former: Option<(Geometry, u8)>,
    /// A packet or a repair packet of this generation came, so the sender uses it.
    generation_fixed: bool,
    state: ReceivingState,
    /// The newest GO or RESEND for it.
    last_request: ControlSeq,
    /// One bit per packet.
    have: Vec<u64>,
    received: u32,
    /// Known once LDATA arrived.
    total: Option<u32>,
    len: usize,
    /// One more than the highest index received.
    top: u32,
    held: Option<Box<StoredSymbols>>,
    /// A packet of it came, of any generation.
    any_arrived: bool,
}

/// The use of a repair packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SymbolUse {
    /// It can replace a missing packet.
    Wanted(FecBlock),
    /// It has arrived already.
    Present,
    /// None: it contradicts what is known of the buffer.
    Nowhere,
}

/// The position of a packet's data.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// This range, and they are missing.
    Missing(Range<usize>),
    /// They have arrived already.
    Present,
    /// Nowhere: the packet contradicts what is known of the buffer.
    Nowhere,
}

impl Assembly {
    pub(super) fn new(buffer: Buffer, geometry: Geometry, generation: u8) -> Self {
        let words = (geometry.max_packets() as usize).div_ceil(64);
        Self {
            buffer,
            geometry,
            generation,
            renewals: generation,
            former: None,
            generation_fixed: false,
            state: ReceivingState::AckWait,
            last_request: ControlSeq::default(),
            have: vec![0; words],
            received: 0,
            total: None,
            len: 0,
            top: 0,
            held: None,
            any_arrived: false,
        }
    }

    /// Data bytes in its packets.
    pub(super) fn packet_bytes(&self) -> u32 {
        self.geometry.packet_bytes
    }

    /// Restarts with another packet size under the next generation. Returns the bytes that it had.
    pub(super) fn renew(&mut self, geometry: Geometry) -> usize {
        let grows = geometry.packet_bytes > self.geometry.packet_bytes;
        let former = grows.then_some((self.geometry, self.generation));
        let last = self.total.map_or(0, |total| {
            self.len - (total as usize - 1) * self.geometry.packet_bytes as usize
        });
        let others = self.received as usize - usize::from(self.total.is_some());
        let void = others * self.geometry.packet_bytes as usize + last;
        let buffer = std::mem::replace(&mut self.buffer, Buffer::new(0));
        let came = self.any_arrived;
        *self = Self::new(buffer, geometry, self.renewals.wrapping_add(1));
        (self.former, self.any_arrived) = (former, came);
        void
    }

    /// The newest generation.
    pub(super) fn generation(&self) -> u8 {
        self.generation
    }

    /// Whether nothing of it has come and it was granted once, with packets so small that larger
    /// ones are worth a GO. A sender that has begun it stays with the small ones.
    pub(super) fn is_small(&self, packet_bytes: u32) -> bool {
        let own = self.geometry.packet_bytes;
        !self.generation_fixed && self.former.is_none() && own < packet_bytes - packet_bytes / 16
    }

    /// Its geometry in `generation`, if that is valid.
    fn cut_in(&self, generation: u8) -> Option<Geometry> {
        match self.former {
            _ if generation == self.generation => Some(self.geometry),
            Some((geometry, former)) if generation == former => Some(geometry),
            _ => None,
        }
    }

    /// Its first packet or repair packet came: only this generation is valid from now on.
    pub(super) fn fix_generation(&mut self, generation: u8) {
        self.generation_fixed = true;
        if let Some((geometry, former)) = self.former.take()
            && generation == former
        {
            (self.geometry, self.generation) = (geometry, former);
            self.have = vec![0; (geometry.max_packets() as usize).div_ceil(64)];
        }
    }

    /// The position of packet `index` of `generation` with `len` bytes of data; `None` if that
    /// generation is not valid.
    pub(super) fn place(
        &self,
        generation: u8,
        index: PacketIndex,
        len: usize,
        last: bool,
    ) -> Option<Placement> {
        let geometry = self.cut_in(generation)?;
        Some(self.place_in(geometry, index, len, last))
    }

    fn place_in(
        &self,
        geometry: Geometry,
        index: PacketIndex,
        len: usize,
        last: bool,
    ) -> Placement {
        let limit = self.total.unwrap_or(geometry.max_packets());
        if index.0 >= limit {
            return Placement::Nowhere;
        }
        if self.has(index.0) {
            return Placement::Present;
        }
        let whole = geometry.packet_bytes as usize;
        let start = index.0 as usize * whole;
        let fits = start + len <= geometry.buffer_bytes as usize;
        let proper = match (last, self.total) {
            (true, None) => len <= whole && index.0 >= self.top && (len > 0 || index.0 == 0),
            (true, Some(total)) => index.0 + 1 == total && len <= whole,
            (false, None) => len == whole,
            (false, Some(total)) => index.0 + 1 < total && len == whole,
        };
        if fits && proper { Placement::Missing(start..start + len) } else { Placement::Nowhere }
    }

    /// The memory at `place`.
    pub(super) fn slot(&mut self, place: Range<usize>) -> &mut [u8] {
        self.buffer.space().get_mut(place).unwrap_or_default()
    }

    /// A GO or RESEND for it went into the FIFO under `seq`.
    pub(super) fn asked(&mut self, seq: ControlSeq) {
        self.last_request = seq;
        self.state = self.state.after(ReceivingStep::Asked, self.has_begun());
    }

    /// The sender has the message `seq`, which was about this buffer.
    pub(super) fn acknowledged(&mut self, seq: ControlSeq) {
        if seq == self.last_request {
            self.state = self.state.after(ReceivingStep::Acknowledged, self.has_begun());
        }
    }

    /// Its state.
    #[cfg(test)]
    pub(super) fn state(&self) -> ReceivingState {
        self.state
    }

    /// Packet `index` is in its slot now.
    pub(super) fn mark(&mut self, index: PacketIndex, len: usize, last: bool) {
        if let Some(word) = self.have.get_mut(index.0 as usize / 64) {
            *word |= 1 << (index.0 % 64);
            self.received += 1;
            self.any_arrived = true;
            self.top = self.top.max(index.0 + 1);
        }
        if last {
            self.total = Some(index.0 + 1);
            self.len = index.0 as usize * self.geometry.packet_bytes as usize + len;
        }
        let full = self.total == Some(self.received);
        let step = if full { ReceivingStep::Filled } else { ReceivingStep::Arrived };
        self.state = self.state.after(step, true);
    }

    /// The use of a repair packet of `len` bytes; `None` if its generation is not valid.
    pub(super) fn symbol_use(&self, header: &RepairHeader, len: usize) -> Option<SymbolUse> {
        let geometry = self.cut_in(header.generation)?;
        let Some(block) = FecBlock::new(geometry, header.image_bytes) else {
            return Some(SymbolUse::Nowhere);
        };
        let proper = header.index < block.width() && len == block.symbol_bytes();
        let held = self.held.as_ref();
        if !proper || !self.agrees(&block) || held.is_some_and(|held| held.block() != block) {
            return Some(SymbolUse::Nowhere);
        }
        let present = held.is_some_and(|held| held.has(header.index));
        Some(if present { SymbolUse::Present } else { SymbolUse::Wanted(block) })
    }

    /// Whether `block` fits what is known of the buffer.
    fn agrees(&self, block: &FecBlock) -> bool {
        let known = (block.packets(), block.image_bytes() as usize);
        self.top <= known.0 && self.total.is_none_or(|total| (total, self.len) == known)
    }

    /// Stores a wanted symbol.
    pub(super) fn hold(&mut self, block: FecBlock, index: u32, symbol: &[u8]) {
        let new = || Box::new(StoredSymbols::new(block));
        self.held.get_or_insert_with(new).insert(index, symbol);
    }

    /// Bytes of the stored symbols.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.bytes())
    }

    /// Restores the missing packets from the symbols, if they are enough; at most once per buffer.
    /// Returns the restored packets and bytes.
    pub(super) fn restore(&mut self) -> Option<(u32, usize)> {
        let held = self.held.take_if(|held| held.are_enough(self.received))?;
        let block = held.block();
        if !self.agrees(&block) {
            return None;
        }
        let have = std::mem::take(&mut self.have);
        let is_here = |index| has(&have, index);
        let restored = held.decode(self.buffer.space(), is_here);
        let missing = (0..block.packets()).filter(|index| !is_here(*index));
        let bytes = missing.map(|index| block.range(index).len()).sum();
        self.have = have;
        if !restored {
            return None;
        }
        let packets = block.packets() - self.received;
        (self.received, self.top) = (block.packets(), block.packets());
        self.total = Some(block.packets());
        self.len = block.image_bytes() as usize;
        self.state = self.state.after(ReceivingStep::Filled, true);
        Some((packets, bytes))
    }

    fn has(&self, index: u32) -> bool {
        has(&self.have, index)
    }

    /// Whether every packet is here.
    pub(super) fn is_complete(&self) -> bool {
        self.state == ReceivingState::Received
    }

    /// Whether any packet is here.
    pub(super) fn has_begun(&self) -> bool {
        self.received > 0
    }

    /// A duplicate, or a packet of an old generation came.
    pub(super) fn on_void(&mut self) {
        self.any_arrived = true;
    }

    /// Its packets: all of them, or, while that number is unknown, those that are here.
    pub(super) fn packets(&self) -> u32 {
        self.total.unwrap_or(self.received)
    }

    /// Whether its sender has it, since a packet of any generation came.
    pub(super) fn is_supplied(&self) -> bool {
        self.any_arrived
    }

    /// Whether its last packet is here.
    pub(super) fn has_ended(&self) -> bool {
        self.total.is_some()
    }

    /// Upper bound of the missing packets.
    pub(super) fn missing(&self) -> u32 {
        self.total.unwrap_or(self.geometry.max_packets()) - self.received
    }

    /// The full buffer, its length set; or the empty or incomplete one, its length 0.
    pub(super) fn into_buffer(mut self) -> Buffer {
        let len = if self.is_complete() { self.len } else { 0 };
        self.buffer.set_len(len);
        self.buffer
    }

    /// Hands every hole within `range` to `each`, ascending; the part past the known end, while
    /// that end is unknown, as one range up to `u32::MAX` (or to the end of `range`).
    pub(super) fn holes(&self, range: IndexRange, each: &mut dyn FnMut(IndexRange)) {
        let limit = self.total.unwrap_or(self.geometry.max_packets());
        let end = range.end.min(limit);
        let mut at = range.start;
        while at < end {
            let Some(start) = self.next_missing(at, end) else { return };
            let stop = self.next_present(start, end);
            let open = stop == end && self.total.is_none() && range.end == u32::MAX;
            each(IndexRange { start, end: if open { u32::MAX } else { stop } });
            at = stop;
        }
    }

    fn next_missing(&self, from: u32, end: u32) -> Option<u32> {
        self.scan(from, end, |word| !word)
    }

    fn next_present(&self, from: u32, end: u32) -> u32 {
        self.scan(from, end, |word| word).unwrap_or(end)
    }

    /// First index in `from..end` whose bit is set after `view`.
    fn scan(&self, from: u32, end: u32, view: impl Fn(u64) -> u64) -> Option<u32> {
        let mut at = from;
        while at < end {
            let word = view(*self.have.get(at as usize / 64)?) >> (at % 64);
            if word != 0 {
                let found = at + word.trailing_zeros();
                return (found < end).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
}

fn has(have: &[u64], index: u32) -> bool {
    have.get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn assembly(packets: u32) -> Assembly {
        let geometry = Geometry { buffer_bytes: packets * 10, packet_bytes: 10 };
        Assembly::new(Buffer::new(packets as usize * 10), geometry, 0)
    }

    fn holes(a: &Assembly) -> Vec<(u32, u32)> {
        let mut found = Vec::new();
        a.holes(IndexRange { start: 0, end: u32::MAX }, &mut |r| found.push((r.start, r.end)));
        found
    }

    #[test]
    fn the_length_of_a_buffer_is_unknown_until_ldata_comes() {
        let mut a = assembly(200);
        a.mark(PacketIndex(0), 10, false);
        a.mark(PacketIndex(70), 10, false);
        assert_eq!(holes(&a), [(1, 70), (71, u32::MAX)]);
        a.mark(PacketIndex(99), 4, true);
        assert_eq!(holes(&a), [(1, 70), (71, 99)]);
        assert_eq!(a.missing(), 97);
    }

    #[test]
    fn contradicting_packets_have_no_position() {
        let mut a = assembly(20);
        assert_eq!(a.place(0, PacketIndex(3), 9, false), Some(Placement::Nowhere));
        assert_eq!(a.place(0, PacketIndex(20), 10, false), Some(Placement::Nowhere));
        assert_eq!(a.place(0, PacketIndex(3), 10, false), Some(Placement::Missing(30..40)));
        a.mark(PacketIndex(5), 10, false);
        assert_eq!(
            a.place(0, PacketIndex(4), 3, true),
            Some(Placement::Nowhere),
            "the end lies before what is here"
        );
        a.mark(PacketIndex(9), 3, true);
        assert_eq!(a.place(0, PacketIndex(10), 10, false), Some(Placement::Nowhere));
        assert_eq!(a.place(0, PacketIndex(8), 3, true), Some(Placement::Nowhere));
        assert_eq!(a.place(0, PacketIndex(9), 3, true), Some(Placement::Present));
    }

    #[test]
    fn a_repair_packet_fixes_the_generation() {
        let cut = |packet_bytes| Geometry { buffer_bytes: 200, packet_bytes };
        let mut a = Assembly::new(Buffer::new(200), cut(10), 0);
        assert!(a.is_small(20));
        a.renew(cut(20));
        assert!(!a.is_small(20) && a.generation() == 1);
        // The sender stays with the generation in which it has begun, and a third is not granted.
        let block = FecBlock::new(cut(10), 200).expect("it can be repaired");
        a.fix_generation(0);
        a.hold(block, 0, &[0; 10]);
        assert!(!a.is_small(20) && a.generation() == 0);
    }

    proptest! {
        #[test]
        fn holes_are_the_missing_packets(
            present in proptest::collection::btree_set(0u32..150, 0..150),
        ) {
            let mut a = assembly(151);
            for &i in &present {
                a.mark(PacketIndex(i), 10, false);
            }
            a.mark(PacketIndex(150), 10, true);
            let listed: Vec<u32> = holes(&a).into_iter().flat_map(|(s, e)| s..e).collect();
            let expected: Vec<u32> = (0..150).filter(|i| !present.contains(i)).collect();
            prop_assert_eq!(listed, expected);
        }
    }
}
