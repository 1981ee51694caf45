//! What a sender may send, and which packet leaves next: the one place where that is decided.
//!
//! The order is `docs/protocol.md §6.4`'s: buffers begin strictly by number, and whatever was asked
//! for again goes before anything at a higher position. Between buffers and packets nothing else
//! stands: whatever else is to leave in place of a packet, repair packets for instance, is a kind
//! of [`Leaving`] that [`Schedule::next`] hands out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::doubting::Toss;
use super::outgoing::{Outgoing, Piece};
use super::rounds::Heard;
use crate::buffer::{Buffer, Geometry};
use crate::units::BufferNumber;
use crate::wire::packet::{Go, IndexRange};

/// The granted buffers and where they stand.
#[derive(Debug)]
pub(super) struct Schedule {
    outgoing: BTreeMap<BufferNumber, Outgoing>,
    /// Buffers with packets asked for again.
    again: BTreeSet<BufferNumber>,
    /// The lowest buffer whose first pass is not over.
    fresh: BufferNumber,
    next_wanted: BufferNumber,
    next_supply: BufferNumber,
    /// No buffer beyond it will be supplied.
    last: Option<BufferNumber>,
    /// Buffers that were not begun stay so.
    ends: bool,
    /// Decides what leaves while nobody knows whether the receiver hears.
    pub(super) toss: Option<Toss>,
}

/// A packet that leaves now.
#[derive(Debug)]
pub(super) struct Leaving<'a> {
    pub(super) number: BufferNumber,
    pub(super) generation: u8,
    pub(super) piece: Piece,
    pub(super) data: &'a [u8],
    /// Nothing of its buffer is left to send after it.
    pub(super) ends: bool,
}

/// What a RESEND made due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Packets that had been sent and are to be sent again.
    pub(super) packets: u64,
    /// Something of the buffer is to be sent again.
    pub(super) due: bool,
    /// What that tells, if it was to be found out.
    pub(super) heard: Heard,
}

impl Schedule {
    pub(super) fn new() -> Self {
        Self {
            outgoing: BTreeMap::new(),
            again: BTreeSet::new(),
            fresh: BufferNumber::FIRST,
            next_wanted: BufferNumber::FIRST,
            next_supply: BufferNumber::FIRST,
            last: None,
            ends: false,
            toss: None,
        }
    }

    // ---- the client's part

    /// The next buffer, filled; handed back if it was not wanted.
    pub(super) fn supply(
        &mut self,
        number: BufferNumber,
        buffer: Buffer,
        last: bool,
    ) -> Result<(), Buffer> {
        match self.outgoing.get_mut(&number) {
            Some(outgoing) if number == self.next_supply => {
                outgoing.fill(buffer, last);
                self.next_supply = number.next();
                Ok(())
            }
            _ => Err(buffer),
        }
    }

    /// No buffer after `last` will be supplied: grants beyond it lapse.
    pub(super) fn learn_last(&mut self, last: BufferNumber) {
        self.last = Some(last);
        self.outgoing.split_off(&last.next());
    }

    /// The next buffer that the client is to fill, each once.
    pub(super) fn next_wanted(&mut self) -> Option<BufferNumber> {
        let number = self.next_wanted;
        let granted = self.outgoing.contains_key(&number);
        granted.then(|| self.next_wanted = number.next()).map(|()| number)
    }

    // ---- the receiver's part

    /// GO: buffers granted, or renewed to be sent once more in other pieces.
    pub(super) fn grant(&mut self, go: &Go, geometry: Geometry) {
        let end = go.first.0.saturating_add(u64::from(go.count));
        for number in (go.first.0..end).map(BufferNumber) {
            if self.last.is_some_and(|last| number > last) {
                break;
            }
            match self.outgoing.get_mut(&number) {
                Some(known) => {
                    let newer = known.is_older(go.generation);
                    if newer && known.renew(geometry, go.generation) {
                        self.again.remove(&number);
                        self.fresh = self.fresh.min(number);
                    }
                }
                None if number >= self.next_wanted => {
                    self.outgoing.insert(number, Outgoing::new(geometry, go.generation));
                }
                None => {}
            }
        }
    }

    /// RESEND: what of it had been sent is due again. `None` for a buffer that is accepted already,
    /// or whose GO is still on the way: nothing was sent that could be missing.
    /// `signs`, of progress, are counted where nobody reports it.
    pub(super) fn ask(
        &mut self,
        number: BufferNumber,
        missing: &[IndexRange],
        signs: Option<u64>,
    ) -> Option<Asked> {
        let outgoing = self.outgoing.get_mut(&number)?;
        let mut heard = Heard::default();
        for (range, signs) in missing.iter().zip(signs.into_iter().cycle()) {
            let one = outgoing.hear(*range, signs);
            heard.shorter |= one.shorter;
            heard.vain = heard.vain.max(one.vain);
        }
        let packets = missing.iter().map(|range| outgoing.ask(*range)).sum();
        let due = outgoing.has_again();
        if due {
            self.again.insert(number);
        }
        Some(Asked { packets, due, heard })
    }

    /// OK: takes out the buffers of `range`; `None` if one of them was never sent.
    pub(super) fn accept(
        &mut self,
        range: Range<BufferNumber>,
    ) -> Option<Vec<(BufferNumber, Outgoing)>> {
        let mut within = self.outgoing.range(range.clone());
        if range.end > self.next_supply || within.any(|(_, outgoing)| !outgoing.is_all_sent()) {
            return None;
        }
        let accepted: Vec<BufferNumber> = self.outgoing.range(range).map(|(n, _)| *n).collect();
        let taken = accepted.into_iter().filter_map(|number| {
            self.again.remove(&number);
            Some((number, self.outgoing.remove(&number)?))
        });
        Some(taken.collect())
    }

    /// Takes out every buffer.
    pub(super) fn take_all(&mut self) -> BTreeMap<BufferNumber, Outgoing> {
        self.again.clear();
        std::mem::take(&mut self.outgoing)
    }

    // ---- who may hear nothing (docs/protocol.md §2.3)

    /// From now on `toss` decides what leaves; or nothing does, and what it passed over is due.
    pub(super) fn doubt(&mut self, toss: Option<Toss>) {
        self.toss = toss;
        if self.toss.is_none() {
            let passed_over = self.outgoing.iter_mut();
            let due = passed_over.filter_map(|(number, o)| o.release().then_some(*number));
            self.again.extend(due);
        }
    }

    /// RESEND, before it is obeyed: how many tosses it calls right, or `None` if one of them wrong.
    pub(super) fn call(&mut self, number: BufferNumber, missing: &[IndexRange]) -> Option<u32> {
        match self.outgoing.get_mut(&number) {
            Some(outgoing) if self.toss.is_some() => outgoing.call(missing),
            _ => Some(0),
        }
    }

    // ---- what leaves

    /// The lowest buffer with something to send.
    pub(super) fn due(&mut self) -> Option<BufferNumber> {
        if let Some(number) = self.again.first() {
            return Some(*number);
        }
        while self.fresh < self.next_supply
            && self.outgoing.get(&self.fresh).is_none_or(Outgoing::is_sent)
        {
            self.fresh = self.fresh.next();
        }
        (self.fresh < self.next_supply && self.may_begin()).then_some(self.fresh)
    }

    /// The same, without advancing to it.
    pub(super) fn front(&self) -> Option<&Outgoing> {
        if let Some(number) = self.again.first() {
            return self.outgoing.get(number);
        }
        let supplied = self.fresh.min(self.next_supply)..self.next_supply;
        self.outgoing.range(supplied).map(|(_, outgoing)| outgoing).find(|o| !o.is_sent())
    }

    /// Whether something may be due: asked without looking for it.
    pub(super) fn may_be_due(&self) -> bool {
        !self.again.is_empty() || self.fresh < self.next_supply && self.may_begin()
    }

    /// No buffer is begun from now on.
    pub(super) fn begin_nothing(&mut self) {
        self.ends = true;
    }

    /// Whether a part of a buffer was sent, and its first pass is not over.
    pub(super) fn is_amid_buffer(&self) -> bool {
        self.outgoing.get(&self.fresh).is_some_and(Outgoing::has_begun)
    }

    fn may_begin(&self) -> bool {
        !self.ends || self.is_amid_buffer()
    }

    /// Whether something is asked for again.
    pub(super) fn has_again(&self) -> bool {
        !self.again.is_empty()
    }

    /// Takes the packet that leaves next, if one of so many data bytes `fits` now.
    pub(super) fn next(&mut self, mut fits: impl FnMut(u32) -> bool) -> Option<Leaving<'_>> {
        let (number, piece) = loop {
            let number = self.due()?;
            let outgoing = self.outgoing.get_mut(&number)?;
            if !fits(outgoing.geometry.packet_bytes) {
                return None;
            }
            let piece = match &mut self.toss {
                None => outgoing.next(),
                Some(toss) => outgoing.next_in_doubt(toss),
            };
            if !outgoing.has_again() {
                self.again.remove(&number);
            }
            match piece {
                Some(piece) => break (number, piece),
                None if self.toss.is_some() => {}
                None => return None,
            }
        };
        let outgoing = self.outgoing.get_mut(&number)?;
        let again = outgoing.has_again();
        let ends = !again && outgoing.is_sent();
        let data = outgoing.bytes(piece.range.clone());
        Some(Leaving { number, generation: outgoing.generation, piece, data, ends })
    }

    // ---- how it stands

    /// Everything below was supplied.
    pub(super) fn next_supply(&self) -> BufferNumber {
        self.next_supply
    }

    /// Buffers granted and not accepted.
    pub(super) fn outstanding(&self) -> u32 {
        self.outgoing.len() as u32
    }

    /// Buffers that the client is to fill.
    pub(super) fn unsupplied(&self) -> u32 {
        self.next_wanted.0.saturating_sub(self.next_supply.0) as u32
    }

    /// Whether the client owes a buffer that is to come.
    pub(super) fn waits_for_source(&self) -> bool {
        let more = self.last.is_none_or(|last| self.next_supply <= last);
        more && self.next_supply < self.next_wanted
    }

    /// Whether some buffer was supplied and is not accepted.
    pub(super) fn has_supplied(&self) -> bool {
        self.outgoing.first_key_value().is_some_and(|(lowest, _)| *lowest < self.next_supply)
    }

    /// Whether the last buffer was supplied.
    fn is_supplied(&self) -> bool {
        self.last.is_some_and(|last| self.next_supply > last)
    }

    /// Whether everything there is was accepted.
    pub(super) fn is_accepted(&self) -> bool {
        self.is_supplied() && self.outgoing.is_empty()
    }

    /// Whether everything there is was sent.
    pub(super) fn is_sent(&self) -> bool {
        self.is_supplied() && self.outgoing.values().all(Outgoing::is_sent)
    }

    /// The granted buffers.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &Outgoing> {
        self.outgoing.values()
    }

    /// The buffer `number`, if it is granted and not accepted.
    #[cfg(test)]
    pub(super) fn buffer(&self, number: BufferNumber) -> Option<&Outgoing> {
        self.outgoing.get(&number)
    }
}
