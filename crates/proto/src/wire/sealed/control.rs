//! The body of CONTROL: the data receiver's messages and report (`docs/protocol §3.3`).

use std::time::Duration;

use super::{ParseError, Reader, cut};
use crate::limits::{MAX_HAVE, MAX_OUTSTANDING, MAX_RANGES, MAX_REASON, MAX_SEALED_PACKET_BYTES};
use crate::time::micros_u32;
use crate::units::{BufferNumber, ControlSeq, PacketNumber, Rate};
use crate::wire::packet::{
    Accepted, Burst, Go, Have, IndexRange, Message, RateLimit, Report, Resend, Verdict,
};

/// Bytes of an item before its own fields; a report has its clock in the last four.
const ITEM_BYTES: usize = 8;
const GO_BYTES: usize = ITEM_BYTES + 16;
const OK_BYTES: usize = ITEM_BYTES + 24;
const RESEND_BYTES: usize = ITEM_BYTES + 8;
const RANGE_BYTES: usize = 8;
const DONE_BYTES: usize = ITEM_BYTES + 40;
const REPORT_BYTES: usize = ITEM_BYTES + 48;

const GO: u8 = 0;
const OK: u8 = 1;
const RESEND: u8 = 2;
const DONE: u8 = 3;
const REPORT: u8 = 4;
const HAVE: u8 = 5;

/// The body's flag: END was received.
const END_RECEIVED: u8 = 1;
/// The code of the negotiated rate.
const AGREED: [u8; 3] = [0xff; 3];
/// DONE's item flag.
const VERIFIED: u8 = 1;
/// HAVE's item flag.
const LAST: u8 = 1;

/// The content of a CONTROL packet (`docs/protocol §3.3`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlBody {
    /// The receiver has the sender's END (`docs/protocol §7.1`).
    pub end_received: bool,
    /// The sender's rate limit (`docs/protocol §6.9`).
    pub rate_limit: RateLimit,
    /// Messages of the FIFO in this packet, in the order they were written.
    pub messages: Vec<(ControlSeq, Message)>,
    /// Feedback, if some was due.
    pub report: Option<Report>,
}

/// Appends the body of a CONTROL packet, item by item, to what a `Vec` holds already
/// (`docs/protocol §3.3`). An item that does not fit is left out whole.
///
/// Counts, packet sizes and texts beyond their bounds are cut to them; of a RESEND's ranges the
/// first [`MAX_RANGES`] are written, and it should have one. Zero stands for no offer in OK.
#[derive(Debug)]
pub struct ControlWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Where the body begins.
    start: usize,
    /// How long `out` may become.
    end: usize,
}

impl<'a> ControlWriter<'a> {
    /// Begins a body of at most `limit` bytes behind what is in `out`. The 4 bytes that are no
    /// item are written whatever the limit.
    pub fn new(out: &'a mut Vec<u8>, end_received: bool, limit: usize) -> Self {
        let (start, end) = (out.len(), out.len().saturating_add(limit));
        out.extend_from_slice(&[if end_received { END_RECEIVED } else { 0 }, 0, 0, 0]);
        Self { out, start, end }
    }

    /// Writes the rate limit. A rate is rounded down to 16 significant bits, and up to one byte a
    /// second.
    pub fn set_rate_limit(&mut self, limit: RateLimit) {
        if let Some(field) = self.out.get_mut(self.start + 1..self.start + 4) {
            field.copy_from_slice(&rate_limit_bytes(limit));
        }
    }

    /// Appends `message`; false if it does not fit.
    pub fn push_message(&mut self, seq: ControlSeq, message: &Message) -> bool {
        match message {
            Message::Go(go) => self.push_go(seq, go),
            Message::Ok(accepted) => self.push_ok(seq, accepted),
            Message::Resend(resend) => self.push_resend(seq, resend),
            Message::Done(verdict) => self.push_done(seq, verdict),
            Message::Have(have) => self.push_have(seq, have),
        }
    }

    /// Appends `report`; false if it does not fit. A body has at most one.
    pub fn push_report(&mut self, report: &Report) -> bool {
        if !self.begin(REPORT, 0, REPORT_BYTES, report.at_micros) {
            return false;
        }
        self.put(report.highest_age_micros.to_be_bytes());
        self.put(report.largest.to_be_bytes());
        self.put([0; 2]);
        let Report { packets, bytes, highest, marked, missing, .. } = *report;
        for count in [packets, bytes, highest.0, marked, missing] {
            self.put(count.to_be_bytes());
        }
        true
    }

    fn push_go(&mut self, seq: ControlSeq, go: &Go) -> bool {
        if !self.begin(GO, 0, GO_BYTES, seq.0) {
            return false;
        }
        let packet_bytes = go.packet_bytes.clamp(1, MAX_SEALED_PACKET_BYTES) as u16;
        self.put(go.first.0.to_be_bytes());
        self.put(go.count.clamp(1, MAX_OUTSTANDING).to_be_bytes());
        self.put(packet_bytes.to_be_bytes());
        self.put([go.generation, 0]);
        true
    }

    fn push_ok(&mut self, seq: ControlSeq, accepted: &Accepted) -> bool {
        if !self.begin(OK, 0, OK_BYTES, seq.0) {
            return false;
        }
        let offer = accepted.offer.unwrap_or(Burst { packets: 0, interval: Duration::ZERO });
        self.put(accepted.first.0.to_be_bytes());
        self.put(accepted.count.clamp(1, MAX_OUTSTANDING).to_be_bytes());
        self.put(offer.packets.to_be_bytes());
        self.put(micros_u32(offer.interval).to_be_bytes());
        self.put(micros_u32(accepted.control_timer).to_be_bytes());
        true
    }

    fn push_resend(&mut self, seq: ControlSeq, resend: &Resend) -> bool {
        let ranges = &resend.missing[..resend.missing.len().min(MAX_RANGES)];
        if !self.begin(RESEND, 0, RESEND_BYTES + ranges.len() * RANGE_BYTES, seq.0) {
            return false;
        }
        self.put(resend.buffer.0.to_be_bytes());
        for range in ranges {
            self.put(range.start.to_be_bytes());
            self.put(range.end.to_be_bytes());
        }
        true
    }

    fn push_done(&mut self, seq: ControlSeq, verdict: &Verdict) -> bool {
        let reason = cut(&verdict.reason, MAX_REASON);
        let flags = if verdict.verified { VERIFIED } else { 0 };
        if !self.begin(DONE, flags, DONE_BYTES + reason.len(), seq.0) {
            return false;
        }
        self.put(verdict.bytes.to_be_bytes());
        self.put(verdict.digest);
        self.out.extend_from_slice(reason.as_bytes());
        true
    }

    fn push_have(&mut self, seq: ControlSeq, have: &Have) -> bool {
        let bytes = &have.bytes[..have.bytes.len().min(MAX_HAVE)];
        let flags = if have.last { LAST } else { 0 };
        if !self.begin(HAVE, flags, ITEM_BYTES + bytes.len(), seq.0) {
            return false;
        }
        self.out.extend_from_slice(bytes);
        true
    }

    /// Begins an item of `len` bytes, whose second word is `word`, if it fits.
    fn begin(&mut self, kind: u8, flags: u8, len: usize, word: u32) -> bool {
        if self.end.saturating_sub(self.out.len()) < len {
            return false;
        }
        // The longest item, a RESEND of 64 ranges, has 528 bytes.
        let [.., high, low] = len.to_be_bytes();
        self.put([kind, flags, high, low]);
        self.put(word.to_be_bytes());
        true
    }

    fn put<const N: usize>(&mut self, field: [u8; N]) {
        self.out.extend_from_slice(&field);
    }
}

/// Exponent (1) and mantissa (2) of a rate in bytes a second.
fn rate_limit_bytes(limit: RateLimit) -> [u8; 3] {
    match limit {
        RateLimit::Unset => [0; 3],
        RateLimit::Agreed => AGREED,
        RateLimit::At(rate) => {
            let rate = rate.bytes_per_second().max(1);
            let exponent = (u64::BITS - rate.leading_zeros()).saturating_sub(u16::BITS);
            let [high, low] = ((rate >> exponent) as u16).to_be_bytes();
            [exponent as u8, high, low]
        }
    }
}

fn parse_rate_limit(bytes: [u8; 3]) -> Result<RateLimit, ParseError> {
    let [exponent, high, low] = bytes;
    let mantissa = u64::from(u16::from_be_bytes([high, low]));
    match bytes {
        [0, 0, 0] => Ok(RateLimit::Unset),
        AGREED => Ok(RateLimit::Agreed),
        _ if mantissa == 0 || u32::from(exponent) > u64::BITS - u16::BITS => {
            Err(ParseError::Field("rate limit"))
        }
        _ => Ok(RateLimit::At(Rate::from_bytes_per_second(mantissa << exponent))),
    }
}

/// The body of a CONTROL packet (`docs/protocol §3.3`). Takes memory in proportion to it.
pub fn parse_control(body: &[u8]) -> Result<ControlBody, ParseError> {
    let mut reader = Reader::new(body);
    let [flags, limit @ ..] = reader.array::<4>()?;
    let end_received = flags & END_RECEIVED != 0;
    let rate_limit = parse_rate_limit(limit)?;
    let mut control = ControlBody { end_received, rate_limit, ..ControlBody::default() };
    while !reader.is_empty() {
        let [kind, flags] = reader.array()?;
        let len = usize::from(reader.u16()?);
        let word = reader.u32()?;
        let fields = len.checked_sub(ITEM_BYTES).ok_or(ParseError::Field("item length"))?;
        let mut item = Reader::new(reader.bytes(fields)?);
        let message = match kind {
            GO => Message::Go(parse_go(&mut item)?),
            OK => Message::Ok(parse_ok(&mut item)?),
            RESEND => Message::Resend(parse_resend(&mut item)?),
            DONE => Message::Done(parse_done(flags, &mut item)?),
            HAVE => Message::Have(parse_have(flags, fields, &mut item)?),
            REPORT if control.report.is_none() => {
                control.report = Some(parse_report(word, &mut item)?);
                item.finish()?;
                continue;
            }
            _ => return Err(ParseError::Kind(kind)),
        };
        item.finish()?;
        control.messages.push((ControlSeq(word), message));
    }
    Ok(control)
}

/// The buffers of a GO or OK: some that exist, and not more than may be outstanding.
fn parse_buffers(item: &mut Reader<'_>) -> Result<(BufferNumber, u32), ParseError> {
    let (first, count) = (parse_buffer(item)?, item.u32()?);
    if count == 0 || count > MAX_OUTSTANDING || first.0.checked_add(count.into()).is_none() {
        return Err(ParseError::Field("buffer count"));
    }
    Ok((first, count))
}

fn parse_buffer(item: &mut Reader<'_>) -> Result<BufferNumber, ParseError> {
    let buffer = BufferNumber(item.u64()?);
    if buffer < BufferNumber::FIRST {
        return Err(ParseError::Field("buffer number"));
    }
    Ok(buffer)
}

fn parse_go(item: &mut Reader<'_>) -> Result<Go, ParseError> {
    let (first, count) = parse_buffers(item)?;
    let packet_bytes = u32::from(item.u16()?);
    let [generation, _] = item.array()?;
    if packet_bytes == 0 || packet_bytes > MAX_SEALED_PACKET_BYTES {
        return Err(ParseError::Field("packet size"));
    }
    Ok(Go { first, count, packet_bytes, generation })
}

fn parse_ok(item: &mut Reader<'_>) -> Result<Accepted, ParseError> {
    let (first, count) = parse_buffers(item)?;
    let burst = Burst { packets: item.u32()?, interval: Duration::from_micros(item.u32()?.into()) };
    let offer = (burst.packets > 0).then_some(burst);
    let control_timer = Duration::from_micros(item.u32()?.into());
    Ok(Accepted { first, count, offer, control_timer })
}

fn parse_resend(item: &mut Reader<'_>) -> Result<Resend, ParseError> {
    let buffer = parse_buffer(item)?;
    let mut missing: Vec<IndexRange> = Vec::new();
    while !item.is_empty() {
        if missing.len() == MAX_RANGES {
            return Err(ParseError::Field("range count"));
        }
        let range = IndexRange { start: item.u32()?, end: item.u32()? };
        let free_from = missing.last().map_or(0, |last| last.end);
        if range.start < free_from || range.start >= range.end {
            return Err(ParseError::Field("range"));
        }
        missing.push(range);
    }
    if missing.is_empty() {
        return Err(ParseError::Field("range count"));
    }
    Ok(Resend { buffer, missing })
}

fn parse_done(flags: u8, item: &mut Reader<'_>) -> Result<Verdict, ParseError> {
    let (bytes, digest) = (item.u64()?, item.array()?);
    let reason = item.text(MAX_REASON, "reason")?.to_owned();
    Ok(Verdict { verified: flags & VERIFIED != 0, bytes, digest, reason })
}

fn parse_have(flags: u8, len: usize, item: &mut Reader<'_>) -> Result<Have, ParseError> {
    if len > MAX_HAVE {
        return Err(ParseError::Field("length of HAVE"));
    }
    Ok(Have { bytes: item.bytes(len)?.to_vec(), last: flags & LAST != 0 })
}

fn parse_report(at_micros: u32, item: &mut Reader<'_>) -> Result<Report, ParseError> {
    let highest_age_micros = item.u32()?;
    let largest = item.u16()?;
    item.array::<2>()?;
    Ok(Report {
        at_micros,
        highest_age_micros,
        packets: item.u64()?,
        bytes: item.u64()?,
        highest: PacketNumber(item.u64()?),
        marked: item.u64()?,
        missing: item.u64()?,
        largest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resend(ranges: &[(u32, u32)]) -> Message {
        let missing = ranges.iter().map(|&(start, end)| IndexRange { start, end }).collect();
        Message::Resend(Resend { buffer: BufferNumber(1), missing })
    }

    fn body_of(message: &Message) -> Vec<u8> {
        let mut body = Vec::new();
        assert!(ControlWriter::new(&mut body, false, 1200).push_message(ControlSeq(1), message));
        body
    }

    #[test]
    fn an_item_that_does_not_fit_is_left_out_whole() {
        let go = Go { first: BufferNumber(1), count: 1, packet_bytes: 1184, generation: 0 };
        let mut out = vec![9; 16];
        let mut writer = ControlWriter::new(&mut out, false, 4 + 2 * GO_BYTES);
        assert!(!writer.push_report(&Report::default()));
        assert!(writer.push_message(ControlSeq(1), &Message::Go(go)));
        assert!(!writer.push_message(ControlSeq(2), &resend(&[(0, 1), (2, 3)])));
        assert!(writer.push_message(ControlSeq(2), &resend(&[(0, 1)])));
        assert!(!writer.push_message(ControlSeq(3), &Message::Go(go)));
        assert_eq!(out.len(), 16 + 4 + 2 * GO_BYTES);
        assert_eq!(parse_control(&out[16..]).unwrap().messages.len(), 2);
        assert!(!ControlWriter::new(&mut out, false, 0).push_message(ControlSeq(3), &resend(&[])));
    }

    #[test]
    fn counts_are_cut_when_sent_and_refused_when_out_of_bounds() {
        let go = |first, count, packet_bytes| {
            let first = BufferNumber(first);
            body_of(&Message::Go(Go { first, count, packet_bytes, generation: 1 }))
        };
        for (count, packet_bytes) in [(0, 0), (u32::MAX, u32::MAX)] {
            assert!(parse_control(&go(1, count, packet_bytes)).is_ok());
        }
        assert!(parse_control(&go(u64::MAX - 1, 1, 1)).is_ok());
        assert_eq!(parse_control(&go(u64::MAX, 1, 1)), Err(ParseError::Field("buffer count")));
        assert_eq!(parse_control(&go(0, 1, 1)), Err(ParseError::Field("buffer number")));
        let with = |at: usize, field: &[u8]| {
            let mut body = go(1, 1, 1);
            body[at..at + field.len()].copy_from_slice(field);
            parse_control(&body)
        };
        assert_eq!(with(20, &0u32.to_be_bytes()), Err(ParseError::Field("buffer count")));
        assert!(with(20, &4096u32.to_be_bytes()).is_ok());
        assert_eq!(with(20, &4097u32.to_be_bytes()), Err(ParseError::Field("buffer count")));
        assert_eq!(with(24, &0u16.to_be_bytes()), Err(ParseError::Field("packet size")));
        assert!(with(24, &65_000u16.to_be_bytes()).is_ok());
        assert_eq!(with(24, &65_001u16.to_be_bytes()), Err(ParseError::Field("packet size")));
        assert_eq!(with(4, &[6]), Err(ParseError::Kind(6)));
        assert_eq!(with(6, &[0, 7]), Err(ParseError::Field("item length")));
        assert_eq!(with(6, &[0, 23]), Err(ParseError::Truncated));
        assert_eq!(with(6, &[0, 25]), Err(ParseError::Truncated));
    }

    #[test]
    fn ranges_ascend_and_are_bounded() {
        let parse = |ranges: &[(u32, u32)]| parse_control(&body_of(&resend(ranges)));
        assert!(parse(&[(0, 1), (1, 2), (7, u32::MAX)]).is_ok());
        assert_eq!(parse(&[]), Err(ParseError::Field("range count")));
        for wrong in [&[(1, 1)][..], &[(2, 1)], &[(0, 2), (1, 3)], &[(5, 6), (0, 1)]] {
            assert_eq!(parse(wrong), Err(ParseError::Field("range")), "{wrong:?}");
        }
        let many: Vec<_> = (0..65).map(|i| (2 * i, 2 * i + 1)).collect();
        let cut = parse(&many).unwrap();
        assert_eq!(cut.messages, [(ControlSeq(1), resend(&many[..64]))]);
        let mut body = body_of(&resend(&many[..64]));
        body[6..8].copy_from_slice(&(528u16 + 8).to_be_bytes());
        body.extend_from_slice(&[0, 0, 1, 0, 0, 0, 1, 1]);
        assert_eq!(parse_control(&body), Err(ParseError::Field("range count")));
    }

    #[test]
    fn a_have_message_beyond_its_bound_is_refused() {
        for (len, last) in [(0, true), (1, false), (MAX_HAVE, true)] {
            let have = Message::Have(Have { bytes: vec![7; len], last });
            let parsed = parse_control(&body_of(&have)).unwrap();
            assert_eq!(parsed.messages, [(ControlSeq(1), have)]);
        }
        let mut long = body_of(&Message::Have(Have { bytes: vec![7; MAX_HAVE], last: false }));
        long[6..8].copy_from_slice(&((ITEM_BYTES + MAX_HAVE + 1) as u16).to_be_bytes());
        long.push(7);
        assert_eq!(parse_control(&long), Err(ParseError::Field("length of HAVE")));
    }

    #[test]
    fn a_control_packet_with_two_reports_is_refused() {
        let mut body = Vec::new();
        let mut writer = ControlWriter::new(&mut body, true, 1200);
        assert!(writer.push_report(&Report::default()));
        assert!(parse_control(&body).unwrap().report.is_some());
        let again = body[4..].to_vec();
        body.extend_from_slice(&again);
        assert_eq!(parse_control(&body), Err(ParseError::Kind(REPORT)));
    }
}
