//! CONTROL packets: GO, OK and RESEND messages, as many as fit (RFC 998 §5.2.1, §8).

use std::time::Duration;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, IntoBytes};

use super::layout::{
    MessageHead, OkTail, ResendTail, burst, kind, low, message_kind, millis, number, short,
};
use super::{HEADER_BYTES, ParseError998, Ports, common_header, complete};
use crate::limits::MAX_PACKETS_PER_BUFFER;
use crate::units::{BufferNumber, ControlSeq};
use crate::wire::packet::{Accepted, Go, IndexRange, Message, Resend};

/// Writes one CONTROL packet, message by message.
#[derive(Debug)]
pub struct ControlWriter998<'a> {
    out: &'a mut Vec<u8>,
    /// Where in `out` the packet begins.
    start: usize,
    limit: usize,
    packets_per_buffer: u32,
}

/// How many packets a RESEND can name that is alone in a control packet of `limit` bytes.
pub(crate) fn packets_per_resend(limit: usize) -> u32 {
    let limit = limit.min(usize::from(u16::MAX));
    u32::try_from(numbers_in(limit.saturating_sub(HEADER_BYTES))).unwrap_or(0).max(1)
}

/// How many fit into a message of `bytes`: they come in pairs, so that it stays aligned.
fn numbers_in(bytes: usize) -> usize {
    bytes.saturating_sub(size_of::<MessageHead>() + size_of::<ResendTail>()) / 4 * 2
}

impl<'a> ControlWriter998<'a> {
    /// Begins a packet at the end of `out` that shall not exceed `limit` bytes.
    /// `packets_per_buffer`: of a full buffer, what a RESEND "to the end of the buffer" names.
    pub fn new(ports: Ports, packets_per_buffer: u32, limit: usize, out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(common_header(ports, kind::CONTROL, HEADER_BYTES).as_bytes());
        Self { out, start, limit: limit.min(usize::from(u16::MAX)), packets_per_buffer }
    }

    /// Appends `message` as a whole, or answers false if there is no room for it.
    ///
    /// This wire names one buffer a message: GO and OK for `n` buffers become `n` messages, which
    /// take the sequence numbers from `seq` on. A RESEND that would not even fit if it were alone
    /// names, when it is the first, as many packets as fit; the data timer asks for the others.
    /// DONE and HAVE messages do not exist here and leave no trace.
    pub fn push(&mut self, seq: ControlSeq, message: &Message) -> bool {
        match message {
            Message::Go(go) => self.push_each(message_kind::GO, seq, go.first, go.count, &[]),
            Message::Ok(ok) => {
                let tail = OkTail {
                    burst_packets: short(ok.offer.map_or(0, |o| o.packets)),
                    burst_millis: ok.offer.map_or(U16::ZERO, |o| millis(o.interval)),
                    control_timer_millis: millis(ok.control_timer),
                    padding: U16::ZERO,
                };
                self.push_each(message_kind::OK, seq, ok.first, ok.count, tail.as_bytes())
            }
            Message::Resend(resend) => self.push_resend(seq, resend),
            Message::Done(_) | Message::Have(_) => true,
        }
    }

    /// Fills in length and checksum. Without this the packet is none.
    pub fn finish(self) {
        complete(self.out.get_mut(self.start..).unwrap_or_default());
    }

    fn room(&self) -> usize {
        self.limit.saturating_sub(self.out.len() - self.start)
    }

    fn push_each(
        &mut self,
        kind: u8,
        seq: ControlSeq,
        first: BufferNumber,
        count: u32,
        tail: &[u8],
    ) -> bool {
        let bytes = size_of::<MessageHead>() + tail.len();
        if (count as usize).saturating_mul(bytes) > self.room() {
            return false;
        }
        for i in 0..count {
            let seq = ControlSeq(seq.0.wrapping_add(i));
            let buffer = BufferNumber(first.0.saturating_add(u64::from(i)));
            self.push_head(kind, seq, buffer);
            self.out.extend_from_slice(tail);
        }
        true
    }

    fn push_resend(&mut self, seq: ControlSeq, resend: &Resend) -> bool {
        let fixed = size_of::<MessageHead>() + size_of::<ResendTail>();
        let most = numbers_in(self.room());
        let clip = |end| if end == u32::MAX { self.packets_per_buffer } else { end };
        let indexes = |r: &IndexRange| r.start..clip(r.end).min(MAX_PACKETS_PER_BUFFER);
        let asked: usize = resend.missing.iter().map(|r| indexes(r).len()).sum();
        let alone = self.out.len() - self.start == HEADER_BYTES;
        if self.room() < fixed || (asked > most && !(alone && most > 0)) {
            return false;
        }
        // A message too long for the count is too long for the packet as well.
        let count = asked.min(most) as u16;
        let numbers = resend.missing.iter().flat_map(indexes).take(usize::from(count));
        let numbers: Vec<U16> = numbers.map(short).collect();
        self.push_head(message_kind::RESEND, seq, resend.buffer);
        let tail = ResendTail { missing: U16::new(count), padding: U16::ZERO };
        self.out.extend_from_slice(tail.as_bytes());
        self.out.extend_from_slice(numbers.as_bytes());
        self.out.extend_from_slice(&[0; 2][..usize::from(count % 2) * 2]);
        true
    }

    fn push_head(&mut self, kind: u8, seq: ControlSeq, buffer: BufferNumber) {
        let head = MessageHead { kind, padding: 0, seq: low(seq), buffer: number(buffer) };
        self.out.extend_from_slice(head.as_bytes());
    }
}

/// All messages of a control packet. One that cannot be understood hides where the next begins, so
/// it spoils the packet; at least 8 bytes a message bound their number.
pub(super) fn parse_control(
    mut rest: &[u8],
    reference: ControlSeq,
) -> Result<Vec<(ControlSeq, Message)>, ParseError998> {
    let mut messages = Vec::new();
    while !rest.is_empty() {
        let (head, after) =
            MessageHead::ref_from_prefix(rest).map_err(|_| ParseError998::MessageLength)?;
        let buffer = BufferNumber(u64::from(head.buffer.get()));
        let (message, after) = match head.kind {
            message_kind::GO => {
                (Message::Go(Go { first: buffer, count: 1, packet_bytes: 0, generation: 0 }), after)
            }
            message_kind::OK => parse_ok(buffer, after)?,
            message_kind::RESEND => parse_resend(buffer, after)?,
            other => return Err(ParseError998::MessageKind(other)),
        };
        messages.push((reference.widen(head.seq.get()), message));
        rest = after;
    }
    Ok(messages)
}

fn parse_ok(first: BufferNumber, bytes: &[u8]) -> Result<(Message, &[u8]), ParseError998> {
    let (fields, after) =
        OkTail::ref_from_prefix(bytes).map_err(|_| ParseError998::MessageLength)?;
    let offer = burst(fields.burst_packets, fields.burst_millis);
    let ok = Accepted {
        first,
        count: 1,
        offer: (offer.packets != 0).then_some(offer),
        control_timer: Duration::from_millis(u64::from(fields.control_timer_millis.get())),
    };
    Ok((Message::Ok(ok), after))
}

fn parse_resend(buffer: BufferNumber, bytes: &[u8]) -> Result<(Message, &[u8]), ParseError998> {
    let (fields, after) =
        ResendTail::ref_from_prefix(bytes).map_err(|_| ParseError998::MessageLength)?;
    let count = usize::from(fields.missing.get());
    let (numbers, after) = after
        .split_at_checked(count.next_multiple_of(2) * 2)
        .ok_or(ParseError998::MessageLength)?;
    let (numbers, _) = numbers.as_chunks::<2>();
    let mut numbers: Vec<u16> =
        numbers.iter().take(count).map(|n| u16::from_be_bytes(*n)).collect();
    // Nothing obliges a peer to name them in order, or once; sorting is cheap when it did.
    numbers.sort_unstable();
    let mut missing: Vec<IndexRange> = Vec::new();
    for start in numbers.into_iter().map(u32::from) {
        match missing.last_mut() {
            Some(last) if start <= last.end => last.end = start + 1,
            _ => missing.push(IndexRange { start, end: start + 1 }),
        }
    }
    Ok((Message::Resend(Resend { buffer, missing }), after))
}
