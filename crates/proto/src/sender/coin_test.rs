//! Address validation of a receiver by coins (`docs/protocol §2.3`). The sender skips each
//! not-yet-sent packet with probability 1/2, as if the path had lost it. A correct RESEND then
//! proves that the receiver gets the packets.

use super::Sender;
use crate::limits::{IPV6_HEADER_BYTES, UDP_HEADER_BYTES};
use crate::units::{BufferNumber, ControlSeq};
use crate::wire::packet::{IndexRange, Message};
use crate::wire::rfc998::HEADER_BYTES;

/// Bytes of a NULL-ACK on `rfc998`, with all headers.
const NULL_ACK: u64 = HEADER_BYTES as u64 + 8 + IPV6_HEADER_BYTES as u64 + UDP_HEADER_BYTES as u64;

/// The coins, and the room within the amplification limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoinTest {
    state: u64,
    /// Bytes that may leave, and header bytes of a packet.
    room: u64,
    headers: u64,
}

impl CoinTest {
    /// Whether a packet of `data_bytes` may leave.
    pub(super) fn has_room(&self, data_bytes: usize) -> bool {
        data_bytes as u64 + self.headers <= self.room
    }

    /// Counts a packet that leaves.
    pub(super) fn spend(&mut self, data_bytes: usize) {
        self.room = self.room.saturating_sub(data_bytes as u64 + self.headers);
    }

    /// Tosses a coin. SplitMix64: an observer never sees enough bits to find the seed.
    pub(super) fn is_heads(&mut self) -> bool {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) & 1 == 1
    }
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
    pub(super) fn note(&mut self, coins: Option<u32>) {
        match coins {
            Some(coins) => self.right = self.right.saturating_add(coins),
            None => self.wrong = true,
        }
    }
}

impl Sender {
    /// Starts the coin test with `seed`, or ends it (`None`).
    pub(crate) fn test_by_coins(&mut self, seed: Option<u64>) {
        let headers = u64::from(self.negotiated.profile.data_overhead) + self.sampler.overhead();
        self.schedule.set_coin_test(seed.map(|state| CoinTest { state, room: 0, headers }));
    }

    /// Sets the bytes of IP packets that may leave while the receiver's address is not validated.
    pub(crate) fn set_allowance(&mut self, bytes: u64) {
        if let Some(coin_test) = &mut self.schedule.coin_test {
            coin_test.room = bytes;
        }
    }

    /// Whether the receiver's address is not validated.
    pub(super) fn is_unvalidated(&self) -> bool {
        self.schedule.coin_test.is_some()
    }

    /// Whether data or an acknowledgement wait for room within the amplification limit.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.schedule.waits_for_room() || (self.acks.owed.is_some() && !self.may_acknowledge())
    }

    /// The evidence since the last call.
    pub(crate) fn take_coin_evidence(&mut self) -> CoinEvidence {
        std::mem::take(&mut self.coin_evidence)
    }

    /// Checks the coins that the RESENDs of a control packet guess. Successive RESENDs of one
    /// buffer with ascending ranges count as one: each has room for few ranges.
    pub(super) fn check_coins(&mut self, messages: &[(ControlSeq, Message)]) {
        let high = self.acks.received.high();
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
                    self.check_coins_of(asked.take());
                    asked = Some((resend.buffer, resend.missing.clone()));
                }
            }
        }
        self.check_coins_of(asked);
    }

    fn check_coins_of(&mut self, asked: Option<(BufferNumber, Vec<IndexRange>)>) {
        if let Some((buffer, missing)) = asked {
            self.coin_evidence.note(self.schedule.check_coins(buffer, &missing));
        }
    }

    /// Whether a NULL-ACK may leave.
    pub(super) fn may_acknowledge(&self) -> bool {
        self.schedule.coin_test.is_none_or(|coin_test| coin_test.room >= NULL_ACK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{Buffer, Geometry};
    use crate::sender::outgoing_buffer::OutgoingBuffer;

    #[test]
    fn packets_without_room_stay_due_and_others_toss_one_coin() {
        let mut buffer = Buffer::new(2000);
        buffer.set_len(2000);
        let mut outgoing =
            OutgoingBuffer::new(Geometry { buffer_bytes: 2000, packet_bytes: 10 }, 0);
        outgoing.fill(buffer, true);
        let mut coin_test = CoinTest { state: 7, room: 14, headers: 5 };
        assert_eq!(
            (outgoing.next_bytes(), outgoing.next_by_coin(&mut coin_test)),
            (Some(10), None)
        );
        assert!(!outgoing.has_begun(), "nothing was passed over");
        coin_test.room = 15 * 200;
        let left = std::iter::from_fn(|| outgoing.next_by_coin(&mut coin_test)).count();
        assert!((60..140).contains(&left), "{left} of 200");
        assert!(outgoing.is_sent() && !outgoing.is_all_sent() && outgoing.next_bytes().is_none());
        assert_eq!(outgoing.coin_sent() as usize, left);
    }
}
