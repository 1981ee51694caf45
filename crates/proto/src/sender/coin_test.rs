//! Address validation of a receiver by coins (`docs/protocol.md §2.3`). The sender skips each
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
pub(super) struct Toss {
    state: u64,
    /// Bytes that may leave, and header bytes of a packet.
    room: u64,
    headers: u64,
}

impl Toss {
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
pub(crate) struct Calls {
    /// Coins guessed right.
    pub(crate) right: u32,
    /// A coin was guessed wrong.
    pub(crate) wrong: bool,
}

impl Calls {
    /// Counts right guesses; `None`: one was wrong.
    pub(super) fn note(&mut self, tosses: Option<u32>) {
        match tosses {
            Some(tosses) => self.right = self.right.saturating_add(tosses),
            None => self.wrong = true,
        }
    }
}

impl Sender {
    /// Starts the coin test with `seed`, or ends it (`None`).
    pub(crate) fn doubt(&mut self, seed: Option<u64>) {
        let headers = u64::from(self.negotiated.rules.data_overhead) + self.sampler.overhead();
        self.schedule.doubt(seed.map(|state| Toss { state, room: 0, headers }));
    }

    /// Sets the bytes of IP packets that may leave while the receiver's address is not validated.
    pub(crate) fn allow(&mut self, bytes: u64) {
        if let Some(toss) = &mut self.schedule.toss {
            toss.room = bytes;
        }
    }

    /// Whether the receiver's address is not validated.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.schedule.toss.is_some()
    }

    /// Whether data or an acknowledgement wait for room within the amplification limit.
    pub(crate) fn waits_for_room(&self) -> bool {
        self.schedule.waits_for_room() || (self.duties.owed.is_some() && !self.may_acknowledge())
    }

    /// The evidence since the last call.
    pub(crate) fn take_calls(&mut self) -> Calls {
        std::mem::take(&mut self.calls)
    }

    /// Checks the coins that the RESENDs of a control packet guess. Successive RESENDs of one
    /// buffer with ascending ranges count as one: each has room for few ranges.
    pub(super) fn hear_calls(&mut self, messages: &[(ControlSeq, Message)]) {
        let high = self.duties.inbox.high();
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
                    self.hear_call(asked.take());
                    asked = Some((resend.buffer, resend.missing.clone()));
                }
            }
        }
        self.hear_call(asked);
    }

    fn hear_call(&mut self, asked: Option<(BufferNumber, Vec<IndexRange>)>) {
        if let Some((buffer, missing)) = asked {
            self.calls.note(self.schedule.call(buffer, &missing));
        }
    }

    /// Whether a NULL-ACK may leave.
    pub(super) fn may_acknowledge(&self) -> bool {
        self.schedule.toss.is_none_or(|toss| toss.room >= NULL_ACK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{Buffer, Geometry};
    use crate::sender::outgoing_buffer::Outgoing;

    #[test]
    fn what_has_no_room_stays_due_and_what_has_is_tossed_once() {
        let mut buffer = Buffer::new(2000);
        buffer.set_len(2000);
        let mut outgoing = Outgoing::new(Geometry { buffer_bytes: 2000, packet_bytes: 10 }, 0);
        outgoing.fill(buffer, true);
        let mut toss = Toss { state: 7, room: 14, headers: 5 };
        assert_eq!((outgoing.next_bytes(), outgoing.next_in_doubt(&mut toss)), (Some(10), None));
        assert!(!outgoing.has_begun(), "nothing was passed over");
        toss.room = 15 * 200;
        let left = std::iter::from_fn(|| outgoing.next_in_doubt(&mut toss)).count();
        assert!((60..140).contains(&left), "{left} of 200");
        assert!(outgoing.is_sent() && !outgoing.is_all_sent() && outgoing.next_bytes().is_none());
        assert_eq!(outgoing.tossed() as usize, left);
    }
}
