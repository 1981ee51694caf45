//! The queue of repair packets (`docs/protocol §6.10`).
//!
//! Input: how many repair packets of which buffer are to leave. Outputs: the packets, each when it
//! leaves: nothing is coded before, and no buffer but the one at the front.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::outgoing_buffer::OutgoingBuffer;
use super::packet::{OutgoingPacket, PacketBody};
use crate::fec::FecBlock;
use crate::time::Instant;
use crate::units::BufferNumber;

/// Repair packets to send, and the symbols of the buffer at the front.
#[derive(Debug, Default)]
pub(super) struct FecQueue {
    due: VecDeque<FecJob>,
    coded: Vec<u8>,
}

#[derive(Clone, Debug)]
struct FecJob {
    buffer: BufferNumber,
    generation: u8,
    block: FecBlock,
    /// Indexes still to send; their symbols are coded, if any are.
    indexes: Range<u32>,
}

impl FecQueue {
    /// Queues the next `count` repair packets of buffer `number`, as far as it has them. Returns
    /// how many.
    pub(super) fn push(
        &mut self,
        now: Instant,
        number: BufferNumber,
        outgoing: &mut OutgoingBuffer,
        count: u32,
    ) -> u32 {
        let Some((block, indexes)) = outgoing.next_repairs(now, count) else { return 0 };
        let made = indexes.len() as u32;
        if made > 0 {
            let generation = outgoing.generation();
            self.due.push_back(FecJob { buffer: number, generation, block, indexes });
        }
        made
    }

    /// Whether repair packets are queued, obsolete ones included.
    pub(super) fn may_have_some(&self) -> bool {
        !self.due.is_empty()
    }

    /// Whether repair packets are queued. Those of buffers that are accepted, or granted again, are
    /// dropped.
    pub(super) fn has_some(&mut self, buffers: &BTreeMap<BufferNumber, OutgoingBuffer>) -> bool {
        while let Some(due) = self.due.front() {
            let outgoing = buffers.get(&due.buffer);
            let valid = outgoing.is_some_and(|o| o.generation() == due.generation);
            if valid && !due.indexes.is_empty() {
                return true;
            }
            self.coded.clear();
            self.due.pop_front();
        }
        false
    }

    /// Whether a repair packet goes before anything of buffer `next`.
    pub(super) fn goes_before(
        &mut self,
        next: Option<BufferNumber>,
        buffers: &BTreeMap<BufferNumber, OutgoingBuffer>,
    ) -> bool {
        self.may_have_some()
            && self.has_some(buffers)
            && self.due.front().is_some_and(|due| next.is_none_or(|n| n > due.buffer))
    }

    /// Takes the repair packet that leaves next, if one of its buffer's packets `fits`.
    pub(super) fn next(
        &mut self,
        buffers: &BTreeMap<BufferNumber, OutgoingBuffer>,
        mut fits: impl FnMut(u32) -> bool,
    ) -> Option<OutgoingPacket<'_>> {
        let due = self.due.front_mut()?;
        let outgoing = buffers.get(&due.buffer)?;
        if !fits(outgoing.packet_bytes()) {
            return None;
        }
        let len = due.block.symbol_bytes();
        if self.coded.is_empty() {
            self.coded = due.block.encode(outgoing.image(), due.indexes.clone())?;
        }
        let index = due.indexes.next()?;
        let left = (due.indexes.len() + 1) * len;
        let at = self.coded.len().checked_sub(left)?;
        let data = self.coded.get(at..at + len)?;
        let what = PacketBody::Repair { index, image_bytes: due.block.image_bytes() };
        let (number, generation) = (due.buffer, due.generation);
        Some(OutgoingPacket { number, generation, what, data, ends: false })
    }
}
