//! RESENDs for missing packets, in messages that fit (`docs/protocol §6.2`).

use super::{Assemblies, Receiver};
use crate::limits::MAX_RANGES;
use crate::loss_detection::ResendRequest;
use crate::time::Instant;
use crate::timers::ReceiverTimer;
use crate::trace::TraceEvent;
use crate::wire::packet::{IndexRange, Message, Resend};
use crate::wire::rfc998;

/// Bytes of a control packet that are not the ranges of a RESEND, a REPORT among them.
pub(super) const NOT_RANGES: usize = 128;
/// RESENDs of one buffer in one round on `rfc998`, where each may fill a control packet: as many
/// packets leave at once, unpaced.
const RESENDS_PER_ROUND: u32 = 16;

impl Receiver {
    /// Packets that one RESEND can name; `u32::MAX` where it names ranges.
    fn packets_per_resend(&self) -> u32 {
        match self.negotiated.profile.resends_ranges {
            true => u32::MAX,
            false => rfc998::packets_per_resend(self.message_limit()),
        }
    }

    /// Packets of one buffer to request at once.
    pub(super) fn packets_per_round(&self) -> u32 {
        self.packets_per_resend().saturating_mul(RESENDS_PER_ROUND)
    }

    /// Polls the loss detector and puts its requests into the FIFO.
    pub(super) fn request_missing(&mut self, now: Instant) {
        let timing = self.timing();
        let mut asks = std::mem::take(&mut self.requests);
        self.loss_detector.poll(now, &Assemblies(&self.assemblies), &timing, &mut asks);
        let ranges = (self.message_limit().saturating_sub(NOT_RANGES) / 8).clamp(1, MAX_RANGES);
        let (packets, end) = (self.packets_per_resend(), timing.packets_per_buffer);
        asks.sort_unstable_by_key(|ask| (ask.buffer, ask.range.start));
        for group in asks.chunk_by(|a, b| a.buffer == b.buffer) {
            for missing in messages(group, ranges, packets, end) {
                self.resend(now, Resend { buffer: group[0].buffer, missing });
            }
        }
        if self.loss_detector.expiries() > self.stats.data_timeouts {
            self.trace.note(now, || TraceEvent::Timer { timer: ReceiverTimer::Data.into() });
        }
        self.stats.data_timeouts = self.loss_detector.expiries();
        asks.clear();
        self.requests = asks;
    }

    fn resend(&mut self, now: Instant, resend: Resend) {
        let buffer = resend.buffer;
        let missing = resend.missing.clone();
        let seq = self.fifo.push(Message::Resend(resend));
        self.note_request(buffer, seq);
        let before = self.requested_packets;
        for range in missing {
            // The end of the buffer may not be known.
            let end = range.end.min(self.negotiated.geometry.max_packets());
            self.requested_packets += u64::from(end.saturating_sub(range.start));
            let (passed, open) = (self.passed_in(buffer), range.end == u32::MAX);
            match self.assemblies.get_mut(&buffer).filter(|_| open && passed == u32::MAX) {
                Some(assembly) => assembly.on_open_request(range.start),
                None => {
                    let passed = passed.min(end).saturating_sub(range.start);
                    self.passed_packets += u64::from(passed);
                }
            }
            self.loss_detector.on_requested(now, ResendRequest { buffer, range }, seq);
        }
        let packets = self.requested_packets - before;
        self.trace.note(now, || TraceEvent::Resend { number: buffer.0, packets });
    }
}

/// Cuts the requests for one buffer into messages of at most `ranges` and `packets`. A range that
/// ends in `u32::MAX` ends with the buffer, which has at most `end` packets; it is cut only if
/// those are too many.
fn messages(asks: &[ResendRequest], ranges: usize, packets: u32, end: u32) -> Vec<Vec<IndexRange>> {
    let mut messages = Vec::new();
    let (mut message, mut room) = (Vec::new(), packets);
    for ask in asks {
        let mut rest = ask.range;
        while rest.start < rest.end {
            let len = rest.end.min(end.max(rest.start)) - rest.start;
            let cut = if len <= room { rest.end } else { rest.start + room };
            if cut > rest.start {
                message.push(IndexRange { start: rest.start, end: cut });
            }
            (rest.start, room) = (cut, room.saturating_sub(len));
            if message.len() == ranges || room == 0 {
                messages.push(std::mem::take(&mut message));
                room = packets;
            }
        }
    }
    messages.extend(Some(message).filter(|message| !message.is_empty()));
    messages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::BufferNumber;

    fn cut(asks: &[(u32, u32)], ranges: usize, packets: u32, end: u32) -> Vec<Vec<(u32, u32)>> {
        let ask = |&(start, end)| ResendRequest {
            buffer: BufferNumber(1),
            range: IndexRange { start, end },
        };
        let asks: Vec<ResendRequest> = asks.iter().map(ask).collect();
        let pair = |range: &IndexRange| (range.start, range.end);
        let pairs = |message: &Vec<IndexRange>| message.iter().map(pair).collect();
        messages(&asks, ranges, packets, end).iter().map(pairs).collect()
    }

    #[test]
    fn requests_are_cut_into_messages_that_fit_without_a_gap() {
        assert_eq!(cut(&[(0, 5), (7, 9)], 64, u32::MAX, 100), [[(0, 5), (7, 9)]]);
        assert_eq!(cut(&[(0, 5), (7, 9)], 1, u32::MAX, 100), [[(0, 5)], [(7, 9)]]);
        assert_eq!(cut(&[(3, u32::MAX)], 64, u32::MAX, 100), [[(3, u32::MAX)]]);
        assert_eq!(cut(&[(3, u32::MAX)], 64, 97, 100), [[(3, u32::MAX)]]);
        assert_eq!(cut(&[(3, u32::MAX)], 64, 50, 100), [[(3, 53)], [(53, u32::MAX)]]);
        let split = cut(&[(0, 2), (4, 11)], 64, 4, 100);
        assert_eq!(split, [vec![(0, 2), (4, 6)], vec![(6, 10)], vec![(10, 11)]]);
        assert!(cut(&[], 64, 4, 100).is_empty());
    }
}
