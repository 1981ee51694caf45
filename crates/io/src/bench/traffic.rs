//! The application of one connection: memory that is sent, or memory that is received and checked.
//!
//! Every [`STRIDE`] bytes of a buffer begin with its number and the offset in it, so that a buffer
//! that arrives in another's place, or mixed up, is found at little cost.

use std::time::Duration;

use netblt_proto::api::{CloseReason, Event};
use netblt_proto::buffer::Buffer;
use netblt_proto::buffer_autotuning::BufferAutotuner;
use netblt_proto::config::{Role, Wire};
use netblt_proto::endpoint::Endpoint;
use netblt_proto::limits::DEFAULT_DATAGRAM_BYTES;
use netblt_proto::stats::Stats;
use netblt_proto::time::Instant;
use netblt_proto::units::BufferNumber;
use netblt_proto::wire::packet::{End, Parameters, Verdict};

use super::messages::{Load, TestResult};
use crate::error::Error;
use crate::transfer::buffer_pool::SPARE_BYTES;

/// From one mark to the next.
const STRIDE: usize = 1024;
/// A timed sender fills no more than this ahead of the packets that have left, so that it can stop
/// in time.
const AHEAD: Duration = Duration::from_millis(20);
/// Nor does it put more into a buffer than leaves in this time, where buffers may differ.
const PIECE: Duration = Duration::from_millis(100);

/// The result of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TestDone {
    pub(super) bytes: u64,
    pub(super) verified: bool,
    pub(super) data_timeouts: Option<u64>,
}

/// The client of one connection.
#[derive(Debug)]
pub(super) enum Traffic {
    TrafficSource(TrafficSource),
    TrafficSink(TrafficSink),
}

#[derive(Debug)]
pub(super) struct TrafficSource {
    load: Load,
    opened: Instant,
    buffer_bytes: usize,
    /// A packet's worth, where packets may become larger than they are at first.
    packet_bytes: usize,
    /// All buffers but the last are of one size (RFC 998 §5.2.2).
    even: bool,
    /// Filled once; only the marks change.
    stock: Vec<Buffer>,
    pool: BufferCount,
    wanted: u64,
    next: u64,
    supplied_bytes: u64,
    ended: bool,
    verdict: Option<Verdict>,
}

#[derive(Debug)]
pub(super) struct TrafficSink {
    buffer_bytes: usize,
    pool: BufferCount,
    bytes: u64,
    /// Buffers with wrong content.
    corrupt: u64,
    /// Whether all of it is here, and nothing else.
    whole: Option<bool>,
}

/// How many buffers a connection has, and how many it may have.
#[derive(Clone, Copy, Debug)]
struct BufferCount {
    made: u32,
    /// How many its path has use of, as far as is known.
    wanted: u32,
    need: BufferAutotuner,
    /// Never more than were agreed on, never 0.
    limit: u32,
    agreed: u32,
    /// There was memory for none.
    lacking: bool,
}

impl BufferCount {
    /// At most as many as were agreed on, and so many at first.
    fn new(parameters: &Parameters, at_first: u32) -> Self {
        let agreed = parameters.max_outstanding.max(1);
        let need = BufferAutotuner::new(parameters.buffer_bytes);
        Self { made: 0, wanted: at_first, need, limit: agreed, agreed, lacking: false }
    }

    /// Updates the number of buffers that the path can use.
    fn look(&mut self, now: Instant, end: &Endpoint) {
        let (moved, rtt) = end.moved();
        self.wanted = self.wanted.max(self.need.buffers(now, moved, rtt));
    }

    /// Whether one more may be made. If so, it counts as made.
    fn take(&mut self) -> bool {
        let may = self.made < self.limit.min(self.wanted);
        self.made += u32::from(may);
        may
    }

    /// One that it may have. If memory is limited it has no more from then on than there were.
    fn make(&mut self, bytes: usize) -> Option<Buffer> {
        if !self.take() {
            return None;
        }
        let spare = Buffer::try_new(SPARE_BYTES);
        let made = spare.and_then(|_spare| Buffer::try_new(bytes)).ok();
        if made.is_none() {
            self.made -= 1;
            self.lacking = self.made == 0;
            self.agreed = self.made.max(1);
            self.limit = self.limit.min(self.agreed);
        }
        made
    }

    /// Whether one that came back is to go, for there are too many.
    fn shrink(&mut self) -> bool {
        let must = self.made > self.limit;
        self.made -= u32::from(must);
        must
    }
}

impl Traffic {
    /// The connection is open. Buffers are made when it is fed.
    pub(super) fn open(
        now: Instant,
        role: Role,
        load: Load,
        (wire, parameters, at_first): (Wire, &Parameters, u32),
    ) -> Self {
        let buffer_bytes = parameters.buffer_bytes as usize;
        match role {
            Role::Sender => Self::TrafficSource(TrafficSource {
                load,
                opened: now,
                buffer_bytes,
                packet_bytes: parameters.packet_bytes.min(DEFAULT_DATAGRAM_BYTES) as usize,
                even: wire == Wire::Rfc998,
                stock: Vec::new(),
                pool: BufferCount::new(parameters, at_first),
                wanted: 0,
                next: 1,
                supplied_bytes: 0,
                ended: false,
                verdict: None,
            }),
            Role::Receiver => {
                let pool = BufferCount::new(parameters, at_first);
                Self::TrafficSink(TrafficSink {
                    bytes: 0,
                    corrupt: 0,
                    whole: None,
                    buffer_bytes,
                    pool,
                })
            }
        }
    }

    /// Bytes that have moved, to within a packet: in the first pass from a sender, in new packets
    /// to a receiver.
    pub(super) fn moved(&self, now: Instant, end: &Endpoint) -> u64 {
        let stats = end.stats(now);
        match self {
            Self::TrafficSource(source) => source.first_pass(&stats),
            Self::TrafficSink(_) => stats.image_bytes,
        }
    }

    /// Every turn of the loop.
    pub(super) fn supply(&mut self, now: Instant, end: &mut Endpoint) {
        self.pool().look(now, end);
        match self {
            Self::TrafficSource(source) => source.supply(now, end),
            Self::TrafficSink(sink) => sink.offer(now, end),
        }
    }

    /// From now on it may have this many buffers, 1 at least: those that it has beyond go as they
    /// come back.
    pub(super) fn allow(&mut self, buffers: u32) {
        let pool = self.pool();
        pool.limit = buffers.clamp(1, pool.agreed);
    }

    /// How many buffers it has.
    pub(super) fn buffers(&mut self) -> u32 {
        self.pool().made
    }

    /// Whether there was memory for no buffer at all.
    pub(super) fn lacks_memory(&mut self) -> Option<Error> {
        let bytes = match self {
            Self::TrafficSource(source) => source.buffer_bytes,
            Self::TrafficSink(sink) => sink.buffer_bytes,
        };
        self.pool().lacking.then_some(Error::Memory { count: 1, bytes })
    }

    fn pool(&mut self) -> &mut BufferCount {
        match self {
            Self::TrafficSource(source) => &mut source.pool,
            Self::TrafficSink(sink) => &mut sink.pool,
        }
    }

    /// Something happened.
    pub(super) fn take(&mut self, now: Instant, event: Event, end: &mut Endpoint) {
        match (self, event) {
            (Self::TrafficSource(source), Event::Wanted(number)) => {
                source.wanted = number.0;
                source.supply(now, end);
            }
            (Self::TrafficSource(source), Event::Released(_, buffer)) => {
                let kept = (!source.pool.shrink()).then_some(buffer);
                source.stock.extend(kept);
            }
            (Self::TrafficSource(source), Event::Finished(verdict)) => source.verdict = verdict,
            (Self::TrafficSink(sink), Event::Filled(number, buffer)) => {
                sink.bytes += buffer.filled().len() as u64;
                sink.corrupt += u64::from(!is_marked(&buffer, number));
                if !sink.pool.shrink() {
                    end.offer(now, buffer);
                }
            }
            (Self::TrafficSink(sink), Event::Complete(announced)) => {
                let all = announced.is_none_or(|announced| announced.bytes == sink.bytes);
                let whole = all && sink.corrupt == 0;
                sink.whole = Some(whole);
                if announced.is_some() {
                    end.judge(now, sink.verdict(whole, end.stats(now).data_timeouts));
                }
            }
            _ => {}
        }
    }

    /// The result, if the connection ended regularly: with this `reason`, or after a verdict. An
    /// error if the received content is wrong.
    pub(super) fn done(&mut self, reason: &CloseReason) -> Option<Result<TestDone, Error>> {
        match self {
            Self::TrafficSource(source) => {
                let verdict = source.verdict.take();
                if *reason != CloseReason::Finished && verdict.is_none() {
                    return None;
                }
                let bytes = source.supplied_bytes;
                Some(match verdict {
                    Some(verdict) if !verdict.verified => Err(Error::NotVerified(verdict.reason)),
                    Some(verdict) => {
                        let result = TestResult::parse(&verdict.reason);
                        let data_timeouts = result.map(|result| result.data_timeouts);
                        Ok(TestDone { bytes, verified: true, data_timeouts })
                    }
                    None => Ok(TestDone { bytes, verified: false, data_timeouts: None }),
                })
            }
            Self::TrafficSink(sink) => Some(match sink.whole? {
                true => Ok(TestDone { bytes: sink.bytes, verified: true, data_timeouts: None }),
                false => Err(Error::NotVerified(sink.complaint())),
            }),
        }
    }
}

impl TrafficSource {
    /// Supplies the requested buffers: all of them, or just in time if a clock ends the test.
    fn supply(&mut self, now: Instant, end: &mut Endpoint) {
        while !self.ended && self.next <= self.wanted {
            let (len, last) = match self.load {
                Load::Bytes(all) => {
                    let left = all - self.supplied_bytes;
                    let len = left.min(self.buffer_bytes as u64);
                    (len as usize, len == left)
                }
                Load::Time(time) if now.since(self.opened) >= time => {
                    (self.packet_bytes.min(self.buffer_bytes), true)
                }
                Load::Time(_) => match self.in_time(now, end) {
                    Some(len) => (len, false),
                    None => return,
                },
            };
            let Some(mut buffer) = self.empty() else { return };
            let number = BufferNumber(self.next);
            buffer.set_len(len);
            mark(&mut buffer, number);
            self.supplied_bytes += len as u64;
            end.supply(now, number, buffer, last);
            if last {
                self.ended = true;
                end.end(
                    now,
                    End { buffers: number.0, bytes: self.supplied_bytes, digest: [0; 32] },
                );
            }
            self.next += 1;
        }
    }

    /// How much a timed sender puts into the next buffer; `None` while enough waits to be sent.
    fn in_time(&self, now: Instant, end: &Endpoint) -> Option<usize> {
        let stats = end.stats(now);
        let least = if self.even { self.buffer_bytes } else { self.packet_bytes };
        let piece = stats.pacing_rate.bytes_in(PIECE) as usize;
        let piece = piece.clamp(least.min(self.buffer_bytes), self.buffer_bytes);
        let ahead = self.supplied_bytes - self.first_pass(&stats);
        (ahead < (piece as u64).max(stats.pacing_rate.bytes_in(AHEAD))).then_some(piece)
    }

    fn first_pass(&self, stats: &Stats) -> u64 {
        stats.first_pass_bytes.min(self.supplied_bytes)
    }

    fn empty(&mut self) -> Option<Buffer> {
        if let Some(buffer) = self.stock.pop() {
            return Some(buffer);
        }
        let mut buffer = self.pool.make(self.buffer_bytes)?;
        // Content that no link can compress.
        let mut state = u64::from(self.pool.made);
        for word in buffer.space().chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        Some(buffer)
    }
}

impl TrafficSink {
    fn offer(&mut self, now: Instant, end: &mut Endpoint) {
        while let Some(buffer) = self.pool.make(self.buffer_bytes) {
            end.offer(now, buffer);
        }
    }

    fn complaint(&self) -> String {
        match self.corrupt {
            0 => "bytes are missing or too many".to_owned(),
            n => format!("{n} buffers were not what was sent"),
        }
    }

    fn verdict(&self, whole: bool, data_timeouts: u64) -> Verdict {
        let reason = match whole {
            true => TestResult { data_timeouts }.to_string(),
            false => self.complaint(),
        };
        Verdict { verified: whole, bytes: self.bytes, digest: [0; 32], reason }
    }
}

fn mark_of(number: BufferNumber, at: usize) -> [u8; 8] {
    (number.0.rotate_right(24) ^ at as u64).to_le_bytes()
}

fn mark(buffer: &mut Buffer, number: BufferNumber) {
    let len = buffer.filled().len();
    let space = buffer.space().get_mut(..len).unwrap_or_default();
    for (i, piece) in space.chunks_mut(STRIDE).enumerate() {
        if let Some(place) = piece.first_chunk_mut::<8>() {
            *place = mark_of(number, i * STRIDE);
        }
    }
}

fn is_marked(buffer: &Buffer, number: BufferNumber) -> bool {
    buffer.filled().chunks(STRIDE).enumerate().all(|(i, piece)| {
        piece.first_chunk::<8>().is_none_or(|place| *place == mark_of(number, i * STRIDE))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_memory_for_more_a_connection_keeps_the_buffers_it_has() {
        let (agreed, need) = (8, BufferAutotuner::new(1000));
        let none = BufferCount { made: 0, wanted: 5, need, limit: agreed, agreed, lacking: false };
        let mut pool = none;
        assert!(pool.make(1000).is_some() && pool.make(1000).is_some());
        // More than any machine has.
        assert!(pool.make(usize::MAX >> 1).is_none() && !pool.lacking);
        assert_eq!((pool.made, pool.limit), (2, 2));
        pool = none;
        assert_eq!((0..9).filter(|_| pool.take()).count(), 5, "no more than are of use");
        pool = none;
        assert!(pool.make(usize::MAX >> 1).is_none() && pool.lacking);
    }

    #[test]
    fn a_buffer_in_anothers_place_is_detected() {
        let mut buffer = Buffer::new(10_000);
        buffer.set_len(9_999);
        mark(&mut buffer, BufferNumber(7));
        assert!(is_marked(&buffer, BufferNumber(7)));
        assert!(!is_marked(&buffer, BufferNumber(8)));
        buffer.space().copy_within(0..2048, 2048);
        assert!(!is_marked(&buffer, BufferNumber(7)));
    }
}
