//! The outstanding buffers: granted, and not yet full.
//!
//! Inputs: empty buffers, packets and acknowledgements. Outputs: the position of a packet, the
//! packets that are missing, and full buffers. A packet's position is checked before decryption,
//! and it is decrypted into its position (`docs/protocol §5.6`).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::assembly::{Assembly, Placement, SymbolUse};
#[cfg(test)]
use super::states::ReceivingState;
use crate::buffer::{Buffer, Geometry};
use crate::codec::Codec;
use crate::loss_detection::MissingRanges;
use crate::units::{BufferNumber, ControlSeq};
use crate::wire::packet::{DataHeader, IndexRange, RepairHeader};

/// Most bytes of stored repair packets over all buffers, and at least those of one buffer.
pub(super) const MAX_STORED_BYTES: usize = 1 << 20;

/// The outstanding buffers.
#[derive(Debug)]
pub(super) struct Assemblies {
    outstanding: BTreeMap<BufferNumber, Assembly>,
    /// The number of the next buffer to grant.
    next: BufferNumber,
    /// Unacknowledged GOs and RESENDs with their buffers, in order.
    unacked: VecDeque<(ControlSeq, BufferNumber)>,
    /// Most bytes of stored repair packets over all buffers.
    most_stored: usize,
    /// Memory for a packet that has no position, and for a repair packet.
    scratch: Vec<u8>,
}

/// An authentic DATA packet after decryption.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OpenedData {
    /// Its data are in their position.
    New,
    /// Its data were there already, or its generation is not valid.
    Duplicate,
    /// It has no position, and this is the fault.
    Misplaced(&'static str),
}

/// A packet of data that was new.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// It was the first one of its buffer.
    pub(super) begins: bool,
    /// It was the last missing one.
    pub(super) fills: bool,
}

/// A decrypted repair packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TakenRepair {
    /// It is stored; `begins`: as the first packet of its buffer.
    Stored { begins: bool },
    /// It is of no use.
    Unused,
    /// It is impossible, and this is the fault.
    Misplaced(&'static str),
}

impl Assemblies {
    pub(super) fn new(geometry: Geometry) -> Self {
        Self {
            outstanding: BTreeMap::new(),
            next: BufferNumber::FIRST,
            unacked: VecDeque::new(),
            most_stored: (geometry.buffer_bytes as usize).max(MAX_STORED_BYTES),
            scratch: vec![0; geometry.packet_bytes as usize],
        }
    }

    // ---- grants

    /// The number of the next buffer to grant.
    pub(super) fn next(&self) -> BufferNumber {
        self.next
    }

    /// How many are outstanding.
    pub(super) fn len(&self) -> u32 {
        self.outstanding.len() as u32
    }

    /// Whether none is outstanding.
    pub(super) fn is_empty(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// Their numbers, ascending.
    pub(super) fn numbers(&self) -> impl Iterator<Item = BufferNumber> {
        self.outstanding.keys().copied()
    }

    /// `buffer` is granted in `geometry` under the next number.
    pub(super) fn grant(&mut self, buffer: Buffer, geometry: Geometry) {
        self.outstanding.insert(self.next, Assembly::new(buffer, geometry, 0));
        self.next = self.next.next();
    }

    /// Whether a buffer was granted in packets so small that packets of `packet_bytes` are worth
    /// another GO.
    pub(super) fn has_small(&self, packet_bytes: u32) -> bool {
        self.outstanding.values().any(|assembly| assembly.is_small(packet_bytes))
    }

    /// The buffers granted with packets larger than `packet_bytes`, or so small that another GO is
    /// worth it.
    pub(super) fn of_other_size(&self, packet_bytes: u32) -> Vec<BufferNumber> {
        let is_odd = |a: &Assembly| a.packet_bytes() > packet_bytes || a.is_small(packet_bytes);
        let odd = self.outstanding.iter().filter(|(_, assembly)| is_odd(assembly));
        odd.map(|(number, _)| *number).collect()
    }

    /// `number` is granted again, in `geometry`. Returns the bytes that it had, and its generation.
    pub(super) fn renew(&mut self, number: BufferNumber, geometry: Geometry) -> Option<(u64, u8)> {
        let assembly = self.outstanding.get_mut(&number)?;
        Some((assembly.renew(geometry) as u64, assembly.generation()))
    }

    // ---- control messages

    /// A GO or RESEND for `number` was put into the FIFO under `seq`. False if it is not
    /// outstanding.
    pub(super) fn on_requested(&mut self, number: BufferNumber, seq: ControlSeq) -> bool {
        let Some(assembly) = self.outstanding.get_mut(&number) else { return false };
        assembly.asked(seq);
        self.unacked.push_back((seq, number));
        true
    }

    /// The sender acknowledged every message up to `ack`.
    pub(super) fn on_acknowledged(&mut self, ack: ControlSeq) {
        while let Some((seq, number)) = self.unacked.pop_front_if(|(seq, _)| ack.reaches(*seq)) {
            if let Some(assembly) = self.outstanding.get_mut(&number) {
                assembly.acknowledged(seq);
            }
        }
    }

    // ---- packets

    /// Decrypts a DATA packet with `len` bytes of data: into its position, if it has one. A
    /// duplicate or a violation is decrypted too, for it counts only if it is authentic. `None` if
    /// it is not.
    pub(super) fn open_data(
        &mut self,
        header: &DataHeader,
        len: usize,
        raw: &[u8],
        codec: &mut Codec,
    ) -> Option<OpenedData> {
        let position = self.locate(header, len);
        let slot = match (&position, self.outstanding.get_mut(&header.buffer)) {
            (Ok(Some(range)), Some(assembly)) => assembly.slot(range.clone()),
            _ => {
                self.scratch.resize(len, 0);
                &mut self.scratch[..]
            }
        };
        if !codec.open_data(raw, slot) {
            return None;
        }
        Some(match position {
            Ok(Some(_)) => OpenedData::New,
            Ok(None) => OpenedData::Duplicate,
            Err(fault) => OpenedData::Misplaced(fault),
        })
    }

    /// The range of the data of `header` in its buffer; none for a duplicate.
    fn locate(
        &self,
        header: &DataHeader,
        len: usize,
    ) -> Result<Option<Range<usize>>, &'static str> {
        let Some(assembly) = self.outstanding.get(&header.buffer) else {
            let granted = header.buffer < self.next && header.buffer.0 > 0;
            return if granted { Ok(None) } else { Err("data without GO") };
        };
        match assembly.place(header.generation, header.index, len, header.last_of_buffer) {
            Some(Placement::Missing(range)) => Ok(Some(range)),
            Some(Placement::Present) | None => Ok(None),
            Some(Placement::Nowhere) => Err("a packet outside its buffer"),
        }
    }

    /// The packet that [`Self::open_data`] found new counts as received.
    pub(super) fn take_data(&mut self, header: &DataHeader, len: usize) -> Option<Taken> {
        let assembly = self.outstanding.get_mut(&header.buffer)?;
        let begins = !assembly.has_begun();
        assembly.fix_generation(header.generation);
        assembly.mark(header.index, len, header.last_of_buffer);
        Some(Taken { begins, fills: assembly.is_complete() })
    }

    /// A duplicate of `number` came, or a packet of an old generation.
    pub(super) fn on_duplicate(&mut self, number: BufferNumber) {
        if let Some(assembly) = self.outstanding.get_mut(&number) {
            assembly.on_void();
        }
    }

    /// Whether the packet of `header`, if it comes next with `len` bytes of data, changes nothing
    /// but its own position.
    pub(super) fn expects(&self, header: &DataHeader, len: usize) -> bool {
        self.outstanding.get(&header.buffer).is_some_and(|assembly| {
            let place = assembly.place(header.generation, header.index, len, false);
            matches!(place, Some(Placement::Missing(_)))
                && !assembly.has_ended()
                && assembly.held_bytes() == 0
        })
    }

    /// Decrypts the packet that [`Self::expects`] confirmed, and counts it as received. False if it
    /// is not authentic: nothing has changed.
    pub(super) fn take_expected(
        &mut self,
        header: &DataHeader,
        len: usize,
        raw: &[u8],
        codec: &mut Codec,
    ) -> bool {
        let Some(assembly) = self.outstanding.get_mut(&header.buffer) else { return false };
        let place = assembly.place(header.generation, header.index, len, false);
        let Some(Placement::Missing(range)) = place else { return false };
        if !codec.open_numbered(header.number, raw, assembly.slot(range)) {
            return false;
        }
        assembly.mark(header.index, len, false);
        true
    }

    /// Decrypts a repair packet with `len` bytes, for [`Self::take_repair`]. False if it is not
    /// authentic.
    pub(super) fn open_repair(&mut self, len: usize, raw: &[u8], codec: &mut Codec) -> bool {
        self.scratch.resize(len, 0);
        codec.open_data(raw, &mut self.scratch)
    }

    /// Stores the repair packet that was decrypted last, if it is of use.
    pub(super) fn take_repair(&mut self, header: &RepairHeader) -> TakenRepair {
        let stored = self.stored_bytes();
        let Some(assembly) = self.outstanding.get_mut(&header.buffer) else {
            return match header.buffer < self.next {
                true => TakenRepair::Unused,
                false => TakenRepair::Misplaced("a repair packet without GO"),
            };
        };
        let symbol = &self.scratch;
        match assembly.symbol_use(header, symbol.len()) {
            Some(SymbolUse::Wanted(block)) if stored + symbol.len() <= self.most_stored => {
                let begins = !assembly.has_begun() && assembly.held_bytes() == 0;
                assembly.fix_generation(header.generation);
                assembly.hold(block, header.index, symbol);
                TakenRepair::Stored { begins }
            }
            Some(SymbolUse::Nowhere) => {
                TakenRepair::Misplaced("a repair packet outside its buffer")
            }
            Some(SymbolUse::Wanted(_) | SymbolUse::Present) | None => TakenRepair::Unused,
        }
    }

    /// Bytes of stored repair packets.
    pub(super) fn stored_bytes(&self) -> usize {
        self.outstanding.values().map(Assembly::held_bytes).sum()
    }

    /// Restores the missing packets of `number` from its repair packets, if they are enough.
    /// Returns the restored packets and bytes.
    pub(super) fn restore(&mut self, number: BufferNumber) -> Option<(u32, usize)> {
        self.outstanding.get_mut(&number)?.restore()
    }

    // ---- what is known of them

    /// Whether the sender has one of them, since a packet of it came.
    pub(super) fn is_any_supplied(&self) -> bool {
        self.outstanding.values().any(Assembly::is_supplied)
    }

    /// Whether a packet of a buffer after `last` is here.
    pub(super) fn has_data_after(&self, last: BufferNumber) -> bool {
        self.outstanding.range(last.next()..).any(|(_, assembly)| assembly.has_begun())
    }

    /// Whether the last packet of `number` is here, or it is not outstanding.
    pub(super) fn has_ended(&self, number: BufferNumber) -> bool {
        self.outstanding.get(&number).is_none_or(Assembly::has_ended)
    }

    /// The state of `number`, for tables; `None` if it was not granted.
    #[cfg(test)]
    pub(super) fn state(&self, number: BufferNumber) -> Option<ReceivingState> {
        match self.outstanding.get(&number) {
            Some(assembly) => Some(assembly.state()),
            None => (number < self.next).then_some(ReceivingState::Received),
        }
    }

    /// The newest unacknowledged GO or RESEND.
    #[cfg(test)]
    pub(super) fn newest_request(&self) -> Option<ControlSeq> {
        self.unacked.back().map(|(seq, _)| *seq)
    }

    // ---- their end

    /// Removes the full buffer `number`. Returns it with its number of packets.
    pub(super) fn take_full(&mut self, number: BufferNumber) -> Option<(Buffer, u32)> {
        let assembly = self.outstanding.remove(&number)?;
        let packets = assembly.packets();
        Some((assembly.into_buffer(), packets))
    }

    /// Removes the buffers after `last`, which are not full.
    pub(super) fn take_after(
        &mut self,
        last: BufferNumber,
    ) -> impl Iterator<Item = (BufferNumber, Buffer)> + use<> {
        let after = self.outstanding.split_off(&last.next()).into_iter();
        after.map(|(number, assembly)| (number, assembly.into_buffer()))
    }

    /// Removes them all.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (BufferNumber, Buffer)> + use<> {
        let all = std::mem::take(&mut self.outstanding).into_iter();
        all.map(|(number, assembly)| (number, assembly.into_buffer()))
    }
}

impl MissingRanges for Assemblies {
    fn holes(&self, buffer: BufferNumber, range: IndexRange, each: &mut dyn FnMut(IndexRange)) {
        if let Some(assembly) = self.outstanding.get(&buffer) {
            assembly.holes(range, each);
        }
    }

    fn missing(&self, buffer: BufferNumber) -> u32 {
        self.outstanding.get(&buffer).map_or(0, Assembly::missing)
    }
}
