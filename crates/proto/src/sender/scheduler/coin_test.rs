//! Address validation of a receiver by coins (`docs/protocol §2.3`), on a wire in plain text.
//!
//! While the test runs, it decides which packets of the first pass leave: it skips each with
//! probability 1/2, as if the path had lost it. A correct RESEND or OK then proves that the
//! receiver gets the packets. Inputs: the room within the amplification limit and the receiver's
//! messages. Outputs: packets and [`CoinEvidence`].

use std::collections::BTreeMap;
use std::ops::Range;

use super::outgoing_buffer::OutgoingBuffer;
use super::packet::DataPacket;
use crate::limits::{IPV6_HEADER_BYTES, UDP_HEADER_BYTES};
use crate::units::{BufferNumber, ControlSeq};
use crate::wire::packet::{IndexRange, Message};
use crate::wire::ranges::RangeSet;
use crate::wire::rfc998::HEADER_BYTES;

/// Bytes of a NULL-ACK on `rfc998`, with all headers.
const NULL_ACK: u64 = HEADER_BYTES as u64 + 8 + IPV6_HEADER_BYTES as u64 + UDP_HEADER_BYTES as u64;

/// The coins of an unvalidated receiver, and the room within the amplification limit.
#[derive(Debug)]
pub(crate) struct CoinTest {
    state: u64,
    /// Bytes that may leave, and header bytes of a packet.
    room: u64,
    headers: u64,
    buffers: BTreeMap<BufferNumber, BufferCoins>,
    evidence: CoinEvidence,
}

/// The tossed coins of one buffer.
#[derive(Debug, Default)]
struct BufferCoins {
    /// Packets that the first pass skipped by coin and that never left.
    skipped: RangeSet,
    /// Packets that left by coin, without a guess since.
    sent: RangeSet,
}

/// The receiver's evidence that it gets the packets, since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoinEvidence {
    /// Coins guessed right.
    pub(crate) right: u32,
    /// A coin was guessed wrong.
    pub(crate) wrong: bool,
}

impl CoinEvidence {
    /// Counts right guesses; `None`: one was wrong.
    fn note(&mut self, coins: Option<u32>) {
        match coins {
            Some(coins) => self.right = self.right.saturating_add(coins),
            None => self.wrong = true,
        }
    }
}

impl CoinTest {
    /// A test with coins from `seed`, of packets with `headers` bytes around their data.
    pub(crate) fn new(seed: u64, headers: u64) -> Self {
        let (buffers, evidence) = (BTreeMap::new(), CoinEvidence::default());
        Self { state: seed, room: 0, headers, buffers, evidence }
    }

    /// Sets the bytes of IP packets that may leave.
    pub(crate) fn set_room(&mut self, bytes: u64) {
        self.room = bytes;
    }

    /// The evidence since the last call.
    pub(crate) fn take_evidence(&mut self) -> CoinEvidence {
        std::mem::take(&mut self.evidence)
    }

    /// Whether a NULL-ACK may leave.
    pub(crate) fn may_acknowledge(&self) -> bool {
        self.room >= NULL_ACK
    }

    /// Whether a next packet of so many data bytes waits for room.
    pub(crate) fn holds(&self, next_bytes: Option<usize>) -> bool {
        next_bytes.is_some_and(|bytes| !self.has_room(bytes))
    }

    /// Takes the next packet of buffer `number` to send. Each new packet is skipped with
    /// probability 1/2, and a packet without room stays due.
    pub(super) fn next(
        &mut self,
        number: BufferNumber,
        outgoing: &mut OutgoingBuffer,
    ) -> Option<DataPacket> {
        while outgoing.next_bytes().is_some_and(|bytes| self.has_room(bytes)) {
            let piece = outgoing.next()?;
            let index = piece.index.0;
            let one = IndexRange { start: index, end: index + 1 };
            let skipped = |coins: &BufferCoins| coins.skipped.contains(index);
            let never = !piece.resend || self.buffers.get(&number).is_some_and(skipped);
            if !never || self.is_heads() {
                self.room = self.room.saturating_sub(piece.range.len() as u64 + self.headers);
                if never {
                    let coins = self.buffers.entry(number).or_default();
                    coins.skipped.remove(one);
                    coins.sent.insert(one);
                }
                return Some(DataPacket { resend: !never, ..piece });
            }
            self.buffers.entry(number).or_default().skipped.insert(one);
        }
        None
    }

    fn has_room(&self, data_bytes: usize) -> bool {
        data_bytes as u64 + self.headers <= self.room
    }

    /// Tosses a coin. SplitMix64: an observer never sees enough bits to find the seed.
    fn is_heads(&mut self) -> bool {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) & 1 == 1
    }

    /// How many packets of `missing` never left.
    pub(crate) fn never_sent(&self, number: BufferNumber, missing: &[IndexRange]) -> u64 {
        let Some(coins) = self.buffers.get(&number) else { return 0 };
        missing.iter().map(|range| u64::from(overlap(&coins.skipped, *range))).sum()
    }

    /// Whether a packet of these buffers never left.
    pub(crate) fn has_skipped(&self, buffers: Range<BufferNumber>) -> bool {
        self.buffers.range(buffers).any(|(_, coins)| !coins.skipped.is_empty())
    }

    /// OK: guesses the coins of this buffer right.
    pub(crate) fn on_accepted(&mut self, number: BufferNumber) {
        let coins = self.buffers.remove(&number);
        self.evidence.note(Some(coins.map_or(0, |coins| coins.sent.len())));
    }

    /// The test is over: the packets that never left, by buffer.
    pub(crate) fn into_skipped(self) -> impl Iterator<Item = (BufferNumber, Vec<IndexRange>)> {
        self.buffers.into_iter().map(|(number, coins)| (number, coins.skipped.iter().collect()))
    }

    /// Checks the coins that the RESENDs of a control packet guess, which are above `high`.
    /// Successive RESENDs of one buffer with ascending ranges count as one: each has room for few
    /// ranges.
    pub(crate) fn check(&mut self, high: ControlSeq, messages: &[(ControlSeq, Message)]) {
        let mut asked: Option<(BufferNumber, Vec<IndexRange>)> = None;
        for (seq, message) in messages {
            let Message::Resend(resend) = message else { continue };
            if high.reaches(*seq) {
                continue;
            }
            let first = resend.missing.first().map(|range| range.start);
            match &mut asked {
                Some((buffer, missing))
                    if *buffer == resend.buffer
                        && missing.last().map(|range| range.end) <= first =>
                {
                    missing.extend_from_slice(&resend.missing);
                }
                _ => {
                    self.check_one(asked.take());
                    asked = Some((resend.buffer, resend.missing.clone()));
                }
            }
        }
        self.check_one(asked);
    }

    /// RESEND claims that all packets between its ranges arrived. If one of them never left, the
    /// guess is wrong.
    fn check_one(&mut self, asked: Option<(BufferNumber, Vec<IndexRange>)>) {
        let Some((buffer, missing)) = asked else { return };
        let Some(coins) = self.buffers.get_mut(&buffer) else { return };
        let mut right = Some(0);
        for pair in missing.windows(2) {
            let between = IndexRange { start: pair[0].end, end: pair[1].start };
            if between.start >= between.end {
                continue;
            }
            let there = overlap(&coins.skipped, between) == 0;
            right = right.filter(|_| there).map(|n| n + overlap(&coins.sent, between));
            coins.sent.remove(between);
        }
        // The missing ranges themselves prove nothing.
        missing.iter().for_each(|range| coins.sent.remove(*range));
        self.evidence.note(right);
    }
}

/// How many numbers of `range` are in `set`.
fn overlap(set: &RangeSet, range: IndexRange) -> u32 {
    set.intersect(range).map(|cut| cut.end - cut.start).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{Buffer, Geometry};

    const ONE: BufferNumber = BufferNumber(1);

    #[test]
    fn packets_without_room_stay_due_and_others_toss_one_coin() {
        let mut buffer = Buffer::new(2000);
        buffer.set_len(2000);
        let mut outgoing =
            OutgoingBuffer::new(Geometry { buffer_bytes: 2000, packet_bytes: 10 }, 0);
        outgoing.fill(buffer, true);
        let mut coins = CoinTest::new(7, 5);
        coins.set_room(14);
        assert_eq!((outgoing.next_bytes(), coins.next(ONE, &mut outgoing)), (Some(10), None));
        assert!(!outgoing.has_begun(), "nothing was passed over");
        coins.set_room(15 * 200);
        let left = std::iter::from_fn(|| coins.next(ONE, &mut outgoing)).count();
        assert!((60..140).contains(&left), "{left} of 200");
        let two = BufferNumber(2);
        assert!(coins.has_skipped(ONE..two) && !coins.has_skipped(two..two));
        assert!(outgoing.is_sent() && outgoing.next_bytes().is_none());
        coins.on_accepted(ONE);
        assert_eq!(coins.take_evidence(), CoinEvidence { right: left as u32, wrong: false });
    }

    #[test]
    fn a_resend_guesses_the_packets_between_its_ranges() {
        let mut coins = CoinTest::new(7, 5);
        let range = |start, end| IndexRange { start, end };
        let tossed = coins.buffers.entry(ONE).or_default();
        tossed.skipped.insert(range(2, 4));
        tossed.sent.insert(range(0, 2));
        tossed.sent.insert(range(4, 9));
        let ask = |coins: &mut CoinTest, missing: &[IndexRange]| {
            let resend = crate::wire::packet::Resend { buffer: ONE, missing: missing.to_vec() };
            coins.check(ControlSeq(0), &[(ControlSeq(1), Message::Resend(resend))]);
            coins.take_evidence()
        };
        let right = ask(&mut coins, &[range(2, 4), range(7, 8)]);
        assert_eq!(right, CoinEvidence { right: 3, wrong: false });
        assert_eq!(ask(&mut coins, &[range(2, 4), range(8, 9)]), CoinEvidence::default(), "once");
        assert!(ask(&mut coins, &[range(2, 3), range(5, 6)]).wrong, "3 never left");
        assert_eq!(coins.never_sent(ONE, &[range(0, 3), range(3, 9)]), 2);
    }
}
