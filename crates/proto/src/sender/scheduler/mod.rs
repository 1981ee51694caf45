//! The scheduler: what a sender may send, and which packet leaves next.
//!
//! The order is that of `docs/protocol §6.4`: buffers begin strictly by number, and resends go
//! before any packet at a higher position. Inputs: GO, RESEND, OK and the client's buffers.
//! Outputs: all packets of data, repair packets included, from [`Scheduler::next`].

mod coin_test;
mod fec_queue;
mod outgoing_buffer;
mod packet;
mod resend_rounds;
mod unconfirmed;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

pub(crate) use coin_test::{CoinEvidence, CoinTest};
use fec_queue::FecQueue;
pub(super) use outgoing_buffer::OutgoingBuffer;
#[cfg(test)]
pub(super) use outgoing_buffer::SendingState;
pub(super) use packet::{DataPacket, OutgoingPacket, PacketBody};
pub(super) use resend_rounds::ResendEvidence;
pub(super) use unconfirmed::UNCONFIRMED_TRIPS;

use crate::buffer::{Buffer, Geometry};
use crate::rate::{Idle, Order, Ways};
use crate::time::Instant;
use crate::units::BufferNumber;
use crate::wire::packet::{Go, IndexRange};

/// The granted buffers and their order.
#[derive(Debug)]
pub(super) struct Scheduler {
    outgoing: BTreeMap<BufferNumber, OutgoingBuffer>,
    /// Buffers with packets to send again.
    retransmits: BTreeSet<BufferNumber>,
    /// The lowest buffer whose first pass is not over.
    first_pass_at: BufferNumber,
    next_wanted: BufferNumber,
    next_supply: BufferNumber,
    /// No buffer beyond it will be supplied.
    last: Option<BufferNumber>,
    /// No further buffer begins.
    no_new_buffers: bool,
    /// The same, while the client pauses.
    paused: bool,
    ways: Ways,
    /// The next buffer and packet that an idle sender repeats.
    repeat: Option<(BufferNumber, u32)>,
    repairs: FecQueue,
}

/// The result of a RESEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResendResult {
    /// Packets to send again.
    pub(super) packets: u64,
    /// Whether the buffer has packets to send again.
    pub(super) due: bool,
    /// Evidence of progress in the RESEND, if counted.
    pub(super) evidence: ResendEvidence,
}

impl Scheduler {
    pub(super) fn new(ways: Ways) -> Self {
        Self {
            outgoing: BTreeMap::new(),
            retransmits: BTreeSet::new(),
            first_pass_at: BufferNumber::FIRST,
            next_wanted: BufferNumber::FIRST,
            next_supply: BufferNumber::FIRST,
            last: None,
            no_new_buffers: false,
            paused: false,
            ways,
            repeat: None,
            repairs: FecQueue::default(),
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

    /// Bytes in a buffer that was supplied, until it is accepted.
    pub(super) fn supplied_bytes(&self, number: BufferNumber) -> Option<u64> {
        self.outgoing.get(&number)?.filled_bytes()
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

    /// GO: grants buffers, or restarts them with another packet size.
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
                        self.retransmits.remove(&number);
                        self.first_pass_at = self.first_pass_at.min(number);
                    }
                }
                None if number >= self.next_wanted => {
                    self.outgoing.insert(number, OutgoingBuffer::new(geometry, go.generation));
                }
                None => {}
            }
        }
    }

    /// Whether there may be a GO for this buffer that has not come.
    pub(super) fn may_be_granted(&self, number: BufferNumber) -> bool {
        let known = number < self.next_wanted || self.outgoing.contains_key(&number);
        !known && self.last.is_none_or(|last| number <= last)
    }

    /// RESEND: marks sent packets as due again. `None` for a buffer that is accepted already, or
    /// whose GO has not arrived: no packet was sent that could be missing. `progress` has the signs
    /// so far, on a wire without REPORTs.
    pub(super) fn ask(
        &mut self,
        number: BufferNumber,
        missing: &[IndexRange],
        progress: Option<u64>,
    ) -> Option<ResendResult> {
        let outgoing = self.outgoing.get_mut(&number)?;
        let mut evidence = ResendEvidence::default();
        for (range, progress) in missing.iter().zip(progress.into_iter().cycle()) {
            let one = outgoing.note_resend(*range, progress);
            evidence.shorter |= one.shorter;
            evidence.futile = evidence.futile.max(one.futile);
        }
        let packets = missing.iter().map(|range| outgoing.ask(*range)).sum();
        let due = outgoing.has_retransmits();
        if due {
            self.retransmits.insert(number);
        }
        Some(ResendResult { packets, due, evidence })
    }

    /// OK: takes out the buffers of `range`; `None` if one of them was never sent.
    pub(super) fn accept(
        &mut self,
        range: Range<BufferNumber>,
    ) -> Option<Vec<(BufferNumber, OutgoingBuffer)>> {
        let mut within = self.outgoing.range(range.clone());
        if range.end > self.next_supply || within.any(|(_, outgoing)| !outgoing.is_sent()) {
            return None;
        }
        let accepted: Vec<BufferNumber> = self.outgoing.range(range).map(|(n, _)| *n).collect();
        let taken = accepted.into_iter().filter_map(|number| {
            self.retransmits.remove(&number);
            Some((number, self.outgoing.remove(&number)?))
        });
        Some(taken.collect())
    }

    /// Takes out every buffer.
    pub(super) fn take_all(&mut self) -> BTreeMap<BufferNumber, OutgoingBuffer> {
        self.retransmits.clear();
        std::mem::take(&mut self.outgoing)
    }

    // ---- what leaves

    /// The buffer whose packet leaves next.
    pub(super) fn due(&mut self) -> Option<BufferNumber> {
        let retransmits = self.retransmits.first().copied();
        if retransmits.is_some() && self.ways.order == Order::ResendsFirst {
            return retransmits;
        }
        while self.first_pass_at < self.next_supply
            && self.outgoing.get(&self.first_pass_at).is_none_or(OutgoingBuffer::is_sent)
        {
            self.first_pass_at = self.first_pass_at.next();
        }
        let fresh = self.first_pass_at < self.next_supply && self.may_begin();
        fresh.then_some(self.first_pass_at).or(retransmits)
    }

    /// The same, without advancing to it.
    pub(super) fn front(&self) -> Option<&OutgoingBuffer> {
        if let Some(number) = self.retransmits.first() {
            return self.outgoing.get(number);
        }
        let supplied = self.first_pass_at.min(self.next_supply)..self.next_supply;
        self.outgoing.range(supplied).map(|(_, outgoing)| outgoing).find(|o| !o.is_sent())
    }

    /// Whether a packet may be due, without a search.
    pub(super) fn may_be_due(&self) -> bool {
        let fresh = self.first_pass_at < self.next_supply && self.may_begin();
        !self.retransmits.is_empty()
            || fresh
            || self.repairs.may_have_some()
            || self.repeats().is_some()
    }

    /// The data bytes of the packet at the front.
    pub(super) fn next_bytes(&self) -> Option<usize> {
        self.front().and_then(OutgoingBuffer::next_bytes)
    }

    /// Whether a packet leaves on request: one that is due, unless it is `held`, or one that an
    /// idle sender repeats.
    pub(super) fn has_some(&mut self, held: bool) -> bool {
        let due = self.due().is_some() && !held;
        due || self.has_repairs() || self.repeats().is_some()
    }

    /// The scheduling profile of this sender.
    pub(super) fn ways(&self) -> &Ways {
        &self.ways
    }

    /// The last buffer of the chunk that is under way, as far as it is known and supplied.
    fn chunk_end(&self) -> Option<BufferNumber> {
        let (lowest, _) = self.outgoing.first_key_value()?;
        let end = match self.ways.chunk {
            Some(buffers) => (lowest.0 - 1) / buffers.max(1) * buffers.max(1) + buffers,
            None => u64::MAX,
        };
        let end = self.last.map_or(end, |last| last.0.min(end));
        (end < self.next_supply.0).then_some(BufferNumber(end))
    }

    /// The packet that an idle sender repeats: its whole chunk was sent, and not all is accepted.
    /// It repeats the packets in turn, without those of accepted buffers.
    fn repeats(&self) -> Option<(BufferNumber, u32)> {
        let Idle::Repeats(multiple) = self.ways.idle else { return None };
        let end = self.chunk_end()?;
        let over =
            self.first_pass_at > end || self.outgoing.range(..=end).all(|(_, o)| o.is_sent());
        if !over || !self.retransmits.is_empty() {
            return None;
        }
        if let Some((number, index)) = self.repeat
            && number <= end
            && self.outgoing.get(&number).is_some_and(|o| index < o.packets())
        {
            return self.repeat;
        }
        let (first, _) = self.outgoing.first_key_value()?;
        let count = |outgoing: &OutgoingBuffer| u64::from(outgoing.packets());
        let (number, last) = self.outgoing.range(..=end).next_back()?;
        if multiple <= 1 {
            return Some((*number, last.packets().checked_sub(1)?));
        }
        // Buffers of a chunk are of one size but for its last.
        let before = (number.0 - 1) % self.ways.chunk.unwrap_or(u64::MAX).max(1);
        let each = self.outgoing.get(first).map_or(1, count).max(1);
        let all = before * each + count(last);
        let from = (all - 1) / u64::from(multiple) * u64::from(multiple);
        let start = number.0 - before + from / each;
        let (start, index) = if start < first.0 { (first.0, 0) } else { (start, from % each) };
        let found = self.outgoing.range(BufferNumber(start)..=end).next();
        found.map(|(n, _)| (*n, if n.0 == start { index as u32 } else { 0 }))
    }

    /// The last buffer up to which everything was sent, if nothing is due.
    pub(super) fn sent_through(&self) -> BufferNumber {
        BufferNumber(self.first_pass_at.min(self.next_supply).0.saturating_sub(1))
    }

    /// Marks all sent and not accepted packets to be sent again.
    pub(super) fn resend_all(&mut self) {
        let all = IndexRange { start: 0, end: u32::MAX };
        for (number, outgoing) in &mut self.outgoing {
            outgoing.ask(all);
            if outgoing.has_retransmits() {
                self.retransmits.insert(*number);
            }
        }
    }

    /// No further buffer begins.
    pub(super) fn stop_new_buffers(&mut self) {
        self.no_new_buffers = true;
    }

    /// No further buffer begins while `paused`.
    pub(super) fn hold(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Whether a part of a buffer was sent, and its first pass is not over.
    pub(super) fn is_amid_buffer(&self) -> bool {
        self.outgoing.get(&self.first_pass_at).is_some_and(OutgoingBuffer::has_begun)
    }

    fn may_begin(&self) -> bool {
        let within = self.ways.chunk.is_none_or(|buffers| {
            let chunk = |number: &BufferNumber| (number.0 - 1) / buffers.max(1);
            self.outgoing
                .keys()
                .next()
                .is_none_or(|lowest| chunk(lowest) == chunk(&self.first_pass_at))
        });
        within && (!self.no_new_buffers && !self.paused || self.is_amid_buffer())
    }

    /// Whether any packet is to be sent again.
    pub(super) fn has_retransmits(&self) -> bool {
        !self.retransmits.is_empty()
    }

    /// Takes the packet that leaves next, if one with its data bytes `fits` now. While the
    /// receiver's address is not validated, the coins decide which packets of a buffer leave.
    pub(super) fn next(
        &mut self,
        mut coins: Option<&mut CoinTest>,
        mut fits: impl FnMut(u32) -> bool,
    ) -> Option<OutgoingPacket<'_>> {
        let (number, piece) = loop {
            let due = self.due();
            if self.repairs.goes_before(due, &self.outgoing) {
                return self.repairs.next(&self.outgoing, fits);
            }
            let Some(number) = due else { return self.repeated(fits) };
            let outgoing = self.outgoing.get_mut(&number)?;
            if !fits(outgoing.packet_bytes()) {
                return None;
            }
            let piece = match &mut coins {
                None => outgoing.next(),
                Some(coins) => coins.next(number, outgoing),
            };
            if !outgoing.has_retransmits() {
                self.retransmits.remove(&number);
            }
            match piece {
                Some(piece) => break (number, piece),
                // Coins skipped all of it.
                None if coins.as_ref().is_some_and(|coins| !coins.holds(self.next_bytes())) => {}
                None => return None,
            }
        };
        let outgoing = self.outgoing.get_mut(&number)?;
        let retransmits = outgoing.has_retransmits();
        let ends = !retransmits && outgoing.is_sent();
        let data = outgoing.bytes(piece.range.clone());
        let (generation, what) = (outgoing.generation(), PacketBody::Data(piece));
        Some(OutgoingPacket { number, generation, what, data, ends })
    }

    /// The next packet that an idle sender repeats.
    fn repeated(&mut self, mut fits: impl FnMut(u32) -> bool) -> Option<OutgoingPacket<'_>> {
        let (number, index) = self.repeats()?;
        let outgoing = self.outgoing.get(&number)?;
        if !fits(outgoing.packet_bytes()) {
            return None;
        }
        let more = index + 1 < outgoing.packets();
        self.repeat = Some(if more { (number, index + 1) } else { (number.next(), 0) });
        let piece = outgoing.piece(index)?;
        let data = outgoing.bytes(piece.range.clone());
        let (generation, what) = (outgoing.generation(), PacketBody::Data(piece));
        Some(OutgoingPacket { number, generation, what, data, ends: false })
    }

    // ---- repair packets (docs/protocol §6.10)

    /// A packet left. Returns whether it ended its buffer's first pass, and repair packets may
    /// follow.
    pub(super) fn note_left(
        &mut self,
        now: Instant,
        number: BufferNumber,
        piece: &DataPacket,
    ) -> bool {
        self.outgoing.get_mut(&number).is_some_and(|outgoing| outgoing.note_left(now, piece))
    }

    /// How many packets of buffer `number` left too lately to have been requested again; 0 if they
    /// have more than `most` data bytes.
    pub(super) fn unconfirmed(
        &mut self,
        now: Instant,
        number: BufferNumber,
        rtt: Option<Duration>,
        most: u32,
    ) -> u32 {
        let outgoing = self.outgoing.get_mut(&number);
        let fits = outgoing.filter(|outgoing| outgoing.packet_bytes() <= most);
        fits.map_or(0, |outgoing| outgoing.unconfirmed(now, rtt))
    }

    /// The same of all buffers.
    pub(super) fn all_unconfirmed(
        &mut self,
        now: Instant,
        rtt: Option<Duration>,
        most: u32,
    ) -> impl Iterator<Item = (BufferNumber, u32)> {
        let all = self.outgoing.iter_mut().map(move |(number, outgoing)| {
            let packets = outgoing.unconfirmed(now, rtt);
            (*number, if outgoing.packet_bytes() <= most { packets } else { 0 })
        });
        all.filter(|(_, packets)| *packets > 0)
    }

    /// Queues the next `count` repair packets of a buffer, as far as it has them. Returns how many.
    pub(super) fn repair(&mut self, now: Instant, number: BufferNumber, count: u32) -> u32 {
        let Some(outgoing) = self.outgoing.get_mut(&number) else { return 0 };
        self.repairs.push(now, number, outgoing, count)
    }

    /// Whether repair packets are queued.
    pub(super) fn has_repairs(&mut self) -> bool {
        self.repairs.has_some(&self.outgoing)
    }

    /// Drops all repair packets: they would be too long.
    pub(super) fn forget_repairs(&mut self) {
        self.repairs = FecQueue::default();
    }

    // ---- how it stands

    /// All buffers below this one were supplied.
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

    /// Whether a wanted buffer is not supplied yet.
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

    /// Whether every buffer was accepted.
    pub(super) fn is_accepted(&self) -> bool {
        self.is_supplied() && self.outgoing.is_empty()
    }

    /// Whether every buffer was sent.
    pub(super) fn is_sent(&self) -> bool {
        self.is_supplied() && self.outgoing.values().all(OutgoingBuffer::is_sent)
    }

    /// Buffers and packets of first passes that are not over, once the last buffer is supplied.
    pub(super) fn left(&self) -> Option<(u32, u64)> {
        let left =
            self.outgoing.range(self.first_pass_at..).map(|(_, outgoing)| outgoing.packets_left());
        let add =
            |(buffers, packets), left| (buffers + u32::from(left > 0), packets + u64::from(left));
        self.is_supplied().then(|| left.fold((0, 0), add))
    }

    /// The granted buffers.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &OutgoingBuffer> {
        self.outgoing.values()
    }

    /// How many packets buffer `number` has; 0 if it is not here.
    pub(super) fn packets_of(&self, number: BufferNumber) -> u32 {
        self.outgoing.get(&number).map_or(0, OutgoingBuffer::packets)
    }

    /// The buffer `number`, if it is granted and not accepted.
    #[cfg(test)]
    pub(super) fn buffer(&self, number: BufferNumber) -> Option<&OutgoingBuffer> {
        self.outgoing.get(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: IndexRange = IndexRange { start: 0, end: u32::MAX };

    /// Buffers of four packets, all granted and supplied.
    fn supplied(ways: Ways, buffers: u64) -> Scheduler {
        let mut scheduler = Scheduler::new(ways);
        let geometry = Geometry { buffer_bytes: 40, packet_bytes: 10 };
        let count = buffers as u32;
        let go = Go { first: BufferNumber(1), count, packet_bytes: 10, generation: 0 };
        scheduler.grant(&go, geometry);
        while let Some(number) = scheduler.next_wanted() {
            let mut buffer = Buffer::new(40);
            buffer.set_len(40);
            scheduler.supply(number, buffer, false).expect("it was wanted");
        }
        scheduler.learn_last(BufferNumber(buffers));
        scheduler
    }

    fn take(scheduler: &mut Scheduler, packets: usize) -> Vec<(u64, u32, bool)> {
        let mut taken = Vec::new();
        while taken.len() < packets
            && let Some(leaving) = scheduler.next(None, |_| true)
        {
            let PacketBody::Data(piece) = leaving.what else { panic!("a repair packet") };
            taken.push((leaving.number.0, piece.index.0, piece.resend));
        }
        taken
    }

    #[test]
    fn resends_go_before_or_after_new_packets_by_the_profile() {
        for order in [Order::ResendsFirst, Order::NewFirst] {
            let mut scheduler = supplied(Ways { order, ..Ways::OURS }, 2);
            take(&mut scheduler, 5);
            scheduler.ask(BufferNumber(1), &[IndexRange { start: 1, end: 2 }], None);
            let rest: Vec<_> = take(&mut scheduler, 9)
                .into_iter()
                .map(|(_, _, retransmits)| retransmits)
                .collect();
            let first = order == Order::ResendsFirst;
            assert_eq!(rest, [first, false, false, !first]);
        }
    }

    #[test]
    fn an_idle_sender_repeats_the_end_of_its_chunk_until_it_is_accepted() {
        let ways = Ways { chunk: Some(2), idle: Idle::Repeats(5), ..Ways::OURS };
        let mut scheduler = supplied(ways, 3);
        assert_eq!(take(&mut scheduler, 8).last(), Some(&(2, 3, false)));
        // From the last multiple of five on, round and round.
        assert_eq!(
            take(&mut scheduler, 4),
            [(2, 1, true), (2, 2, true), (2, 3, true), (2, 1, true)]
        );
        scheduler.ask(BufferNumber(1), &[IndexRange { start: 3, end: 4 }], None);
        assert_eq!(take(&mut scheduler, 2), [(1, 3, true), (2, 2, true)]);
        scheduler.accept(BufferNumber(1)..BufferNumber(3));
        assert_eq!(
            take(&mut scheduler, 5),
            [0, 1, 2, 3]
                .map(|n| (3, n, false))
                .into_iter()
                .chain([(3, 0, true)])
                .collect::<Vec<_>>()
        );
        scheduler.accept(BufferNumber(3)..BufferNumber(4));
        assert!(!scheduler.has_some(false) && !scheduler.may_be_due());
    }

    #[test]
    fn an_idle_sender_repeats_the_last_packet_until_it_is_accepted() {
        let mut scheduler = supplied(Ways { idle: Idle::Repeats(1), ..Ways::OURS }, 2);
        take(&mut scheduler, 8);
        assert_eq!(take(&mut scheduler, 3), [(2, 3, true); 3]);
        scheduler.resend_all();
        assert_eq!(take(&mut scheduler, 9).len(), 9);
        assert!(scheduler.ask(BufferNumber(2), &[ALL], None).is_some());
        let mut ours = supplied(Ways::OURS, 2);
        take(&mut ours, 8);
        assert!(!ours.has_some(false) && ours.sent_through() == BufferNumber(2));
    }

    #[test]
    fn repair_packets_leave_behind_their_buffer_and_lapse_with_it() {
        let mut scheduler = supplied(Ways::OURS, 2);
        take(&mut scheduler, 3);
        let one = BufferNumber(1);
        assert_eq!(scheduler.repair(Instant::EPOCH, one, 2), 2);
        assert_eq!(take(&mut scheduler, 1), [(1, 3, false)], "the buffer's own packets first");
        let repair = scheduler.next(None, |_| true).expect("it goes before the next buffer");
        assert!(matches!(repair.what, PacketBody::Repair { .. }) && repair.number == one);
        assert!(scheduler.has_repairs());
        scheduler.accept(one..one.next());
        assert!(!scheduler.has_repairs(), "nothing is left to repair");
        assert_eq!(take(&mut scheduler, 1), [(2, 0, false)]);
    }
}
