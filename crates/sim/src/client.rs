//! The client of a machine in the virtual world: a source that reads buffers from its disk, or a
//! sink that writes them to it. Each has a stock of buffers, makes more where the path has use of
//! them and it may, and loses none.

use std::collections::{BTreeMap, VecDeque};

use netblt_proto::buffer::Buffer;
use netblt_proto::config::Wire;
use netblt_proto::endpoint::Endpoint;
use netblt_proto::time::{Instant, earliest};
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::{End, Verdict};

use crate::content::Content;
use crate::disk::Disk;

/// Every buffer a host has, distinguished by capacities that differ by a byte.
#[derive(Clone, Debug)]
pub(crate) struct Stock {
    smallest: usize,
    /// Whether each is inside the machine now.
    inside: Vec<bool>,
}

impl Stock {
    /// A stock of `count` buffers that hold at least `capacity` bytes each.
    pub(crate) fn new(count: u32, capacity: usize) -> (Self, Vec<Buffer>) {
        let buffers = (0..count as usize).map(|n| Buffer::new(capacity + n)).collect();
        (Self { smallest: capacity, inside: vec![false; count as usize] }, buffers)
    }

    /// Whether `buffer` may go in: it is ours, and outside.
    pub(crate) fn lend(&mut self, buffer: &Buffer) -> bool {
        self.turn(buffer, true)
    }

    /// Whether `buffer` may come out: it is ours, and inside.
    pub(crate) fn take_back(&mut self, buffer: &Buffer) -> bool {
        self.turn(buffer, false)
    }

    fn turn(&mut self, buffer: &Buffer, inside: bool) -> bool {
        let at = buffer.capacity().checked_sub(self.smallest);
        let place = at.and_then(|at| self.inside.get_mut(at));
        place.is_some_and(|place| std::mem::replace(place, inside) != inside)
    }

    /// One more, outside.
    pub(crate) fn make(&mut self) -> Buffer {
        self.inside.push(false);
        Buffer::new(self.smallest + self.inside.len() - 1)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.inside.len()
    }

    /// How many are inside the machine.
    pub(crate) fn inside(&self) -> usize {
        self.inside.iter().filter(|inside| **inside).count()
    }
}

/// Bytes of a buffer's mark in the digest over all.
const MARK: usize = 16;

/// The mark of a buffer in the digest over all: its number and its length. Its bytes follow from
/// these, and [`crate::host`] has compared every one of them.
fn mark(number: u64, buffer: &Buffer) -> [u8; MARK] {
    (u128::from(number) << 64 | buffer.filled().len() as u128).to_be_bytes()
}

/// The tools of a client.
pub(crate) struct Tools<'a> {
    pub(crate) now: Instant,
    pub(crate) wire: Wire,
    pub(crate) endpoint: &'a mut Endpoint,
    pub(crate) content: &'a Content,
    pub(crate) disk: &'a mut Disk,
    pub(crate) stock: &'a mut Stock,
}

/// A buffer that was to go into the machine was there already, or is none of the stock.
#[derive(Debug)]
pub struct LentTwice;

/// The sending client.
#[derive(Debug)]
pub(crate) struct Source {
    free: Vec<Buffer>,
    wanted: VecDeque<u64>,
    /// Being read: when it is done, its number, and in which connection it was wanted.
    reading: VecDeque<(Instant, u64, u32, Buffer)>,
    connection: u32,
    /// The marks of all supplied buffers.
    marks: Vec<u8>,
    supplied: u64,
    end_at: Option<Instant>,
    /// The receiver's HAVE, by place, and the last place.
    had: BTreeMap<u32, Vec<u8>>,
    last_had: Option<u32>,
    /// It reads nothing before HAVE has arrived.
    waits: bool,
}

impl Source {
    pub(crate) fn new(free: Vec<Buffer>) -> Self {
        Self {
            free,
            wanted: VecDeque::new(),
            reading: VecDeque::new(),
            connection: 0,
            marks: Vec::new(),
            supplied: 0,
            end_at: None,
            had: BTreeMap::new(),
            last_had: None,
            waits: false,
        }
    }

    /// A connection is open: everything starts over.
    pub(crate) fn on_opened(&mut self, now: Instant, content: &Content, disk: &Disk, waits: bool) {
        self.waits = waits;
        self.connection += 1;
        self.wanted.clear();
        self.marks.clear();
        self.supplied = 0;
        (self.had, self.last_had) = (BTreeMap::new(), None);
        self.end_at = (content.shape().buffers() == 0).then(|| disk.flushed(now));
    }

    pub(crate) fn on_wanted(&mut self, number: BufferNumber, content: &Content) {
        // The peer may grant more than there is.
        if number.0 <= content.shape().buffers() {
            self.wanted.push_back(number.0);
        }
    }

    pub(crate) fn on_had(&mut self, place: u32, bytes: Vec<u8>, last: bool) {
        self.last_had = self.last_had.or(last.then_some(place));
        self.had.insert(place, bytes);
        self.waits &= self.last_had.is_none_or(|last| last as usize != self.had.len());
    }

    /// The receiver's HAVE, if any has arrived: not all of it if a piece is missing.
    pub(crate) fn had(&self) -> Option<Vec<u8>> {
        let whole = self.last_had.is_some_and(|last| last as usize == self.had.len());
        let known = !self.had.is_empty();
        known.then(|| if whole { self.had.values().flatten().copied().collect() } else { vec![] })
    }

    pub(crate) fn on_released(&mut self, buffer: Buffer) {
        self.free.push(buffer);
    }

    /// Supplies read buffers, reads the next ones, and marks the end.
    pub(crate) fn feed(&mut self, tools: &mut Tools<'_>) -> Result<(), LentTwice> {
        loop {
            while !self.waits
                && !self.wanted.is_empty()
                && let Some(buffer) = self.free.pop()
            {
                let number = self.wanted.pop_front().unwrap_or_default();
                let done = tools.disk.start(tools.now, tools.content.image_len(number));
                self.reading.push_back((done, number, self.connection, buffer));
            }
            if self.reading.front().is_none_or(|(done, ..)| *done > tools.now) {
                break;
            }
            let Some((_, number, connection, buffer)) = self.reading.pop_front() else { break };
            if connection == self.connection {
                self.supply(tools, number, buffer)?;
            } else {
                self.free.push(buffer);
            }
        }
        if self.end_at.is_some_and(|at| at <= tools.now) && tools.wire == Wire::Sealed {
            self.end_at = None;
            tools.endpoint.end(tools.now, self.end(tools.content));
        }
        Ok(())
    }

    fn supply(
        &mut self,
        tools: &mut Tools<'_>,
        number: u64,
        mut buffer: Buffer,
    ) -> Result<(), LentTwice> {
        tools.content.fill(number, &mut buffer);
        self.marks.extend(mark(number, &buffer));
        if !tools.stock.lend(&buffer) {
            return Err(LentTwice);
        }
        let last = number == tools.content.shape().buffers();
        let flag = last && tools.wire == Wire::Rfc998;
        tools.endpoint.supply(tools.now, BufferNumber(number), buffer, flag);
        self.supplied = number;
        if last && tools.wire == Wire::Sealed {
            self.end_at = Some(tools.disk.flushed(tools.now));
        }
        Ok(())
    }

    /// The highest number supplied in this connection.
    pub(crate) fn supplied(&self) -> u64 {
        self.supplied
    }

    fn end(&self, content: &Content) -> End {
        End {
            buffers: content.shape().buffers(),
            bytes: content.shape().bytes,
            digest: *blake3::hash(&self.marks).as_bytes(),
        }
    }

    pub(crate) fn wake(&self) -> Option<Instant> {
        let begins = !self.waits && !self.wanted.is_empty() && !self.free.is_empty();
        let begin = begins.then_some(Instant::EPOCH);
        earliest([begin, self.reading.front().map(|(done, ..)| *done), self.end_at])
    }

    /// Buffers that are here and not in the machine.
    pub(crate) fn held(&self) -> usize {
        self.free.len() + self.reading.len()
    }
}

/// The receiving client.
#[derive(Debug)]
pub(crate) struct Sink {
    /// Not offered: no more data will come for them.
    idle: Vec<Buffer>,
    writing: VecDeque<(Instant, Buffer)>,
    /// The marks of received buffers, by number.
    marks: Vec<Option<[u8; MARK]>>,
    bytes: u64,
    filled: u64,
    offered: u64,
    complete: Option<Option<End>>,
    judge_at: Option<Instant>,
    verdict: Option<bool>,
}

impl Sink {
    pub(crate) fn new(idle: Vec<Buffer>) -> Self {
        Self {
            idle,
            writing: VecDeque::new(),
            marks: Vec::new(),
            bytes: 0,
            filled: 0,
            offered: 0,
            complete: None,
            judge_at: None,
            verdict: None,
        }
    }

    /// Offers every buffer there is.
    pub(crate) fn offer_all(&mut self, tools: &mut Tools<'_>) -> Result<(), LentTwice> {
        for buffer in std::mem::take(&mut self.idle) {
            self.offer(tools, buffer)?;
        }
        Ok(())
    }

    pub(crate) fn offer(&mut self, tools: &mut Tools<'_>, buffer: Buffer) -> Result<(), LentTwice> {
        if !tools.stock.lend(&buffer) {
            return Err(LentTwice);
        }
        self.offered += 1;
        tools.endpoint.offer(tools.now, buffer);
        Ok(())
    }

    /// A connection is open: everything starts over.
    pub(crate) fn on_opened(&mut self) {
        self.marks.clear();
        self.bytes = 0;
        self.filled = 0;
        self.complete = None;
        self.judge_at = None;
        self.verdict = None;
    }

    /// A buffer came. False if it came before.
    pub(crate) fn on_filled(&mut self, tools: &mut Tools<'_>, number: u64, buffer: Buffer) -> bool {
        let at = number.saturating_sub(1) as usize;
        if self.marks.len() <= at {
            self.marks.resize(at + 1, None);
        }
        let new = self.marks[at].replace(mark(number, &buffer)).is_none();
        self.filled += u64::from(new);
        self.bytes += tools.content.shape().data_len(number) as u64;
        let done = tools.disk.start(tools.now, buffer.filled().len());
        self.writing.push_back((done, buffer));
        new
    }

    pub(crate) fn on_returned(&mut self, buffer: Buffer) {
        self.idle.push(buffer);
    }

    pub(crate) fn on_complete(&mut self, now: Instant, end: Option<End>, disk: &Disk) {
        self.complete = Some(end);
        self.judge_at = Some(disk.flushed(now));
    }

    /// Offers written buffers again, and sends the verdict when all are written.
    pub(crate) fn feed(&mut self, tools: &mut Tools<'_>) -> Result<(), LentTwice> {
        while self.writing.front().is_some_and(|(done, _)| *done <= tools.now) {
            let Some((_, buffer)) = self.writing.pop_front() else { break };
            self.offer(tools, buffer)?;
        }
        if self.judge_at.is_some_and(|at| at <= tools.now) && self.writing.is_empty() {
            self.judge_at = None;
            let verdict = self.judge();
            self.verdict = Some(verdict.verified);
            tools.endpoint.judge(tools.now, verdict);
        }
        Ok(())
    }

    fn judge(&self) -> Verdict {
        let mut all = Vec::with_capacity(self.marks.len() * MARK);
        all.extend(self.marks.iter().flatten().flatten());
        let digest = *blake3::hash(&all).as_bytes();
        let verified = match self.complete.flatten() {
            Some(end) => {
                let whole = all.len() as u64 == end.buffers * MARK as u64;
                whole && end.digest == digest && end.bytes == self.bytes
            }
            // This wire has no END: the oracle compared every byte.
            None => true,
        };
        let reason = if verified { String::new() } else { "the digests differ".to_owned() };
        Verdict { verified, bytes: self.bytes, digest, reason }
    }

    pub(crate) fn verdict(&self) -> Option<bool> {
        self.verdict
    }

    /// How many buffers came in this connection.
    pub(crate) fn filled(&self) -> u64 {
        self.filled
    }

    /// How many were ever offered.
    pub(crate) fn offered(&self) -> u64 {
        self.offered
    }

    pub(crate) fn wake(&self) -> Option<Instant> {
        let judge = self.judge_at.filter(|_| self.writing.is_empty());
        earliest([self.writing.front().map(|(done, _)| *done), judge])
    }

    /// Buffers that are here and not in the machine.
    pub(crate) fn held(&self) -> usize {
        self.idle.len() + self.writing.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stock_knows_its_buffers_and_where_they_are() {
        let (mut stock, buffers) = Stock::new(2, 100);
        assert!(stock.lend(&buffers[0]) && !stock.lend(&buffers[0]));
        assert!(!stock.take_back(&buffers[1]) && stock.take_back(&buffers[0]));
        assert!(!stock.lend(&Buffer::new(102)) && !stock.lend(&Buffer::new(99)));
        assert_eq!(stock.inside(), 0);
    }
}
