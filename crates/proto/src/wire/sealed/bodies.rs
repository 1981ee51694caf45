//! The bodies of NULL-ACK, QUIT, ABORT, KEEPALIVE, CHALLENGE and ANSWER (`docs/protocol §3.3`).

use std::time::Duration;

use super::{ParseError, Reader, cut};
use crate::limits::MAX_REASON;
use crate::time::micros_u32;
use crate::units::{BufferNumber, ControlSeq, PacketNumber};
use crate::wire::packet::{Burst, End, Keepalive, NullAck};

/// NULL-ACK's flag: nothing is left to send.
const DRAINED: u8 = 1;
/// NULL-ACK's flag: END follows.
const END: u8 = 2;
/// NULL-ACK's flag: the sender's client pauses.
const PAUSED: u8 = 4;
/// KEEPALIVE's flag.
const ANSWER_WANTED: u8 = 1;
/// KEEPALIVE's flag: another subflow is wanted.
const SUBFLOW_WANTED: u8 = 2;

/// The token of a CHALLENGE, which ANSWER returns (`docs/protocol §3.3`).
pub type Token = [u8; 8];

/// Appends the body of a NULL-ACK (`docs/protocol §3.3`). Its number belongs to the header; a
/// burst of no packets is written as one of one.
pub fn encode_null_ack(null_ack: &NullAck, out: &mut Vec<u8>) {
    let drained = if null_ack.sent_through.is_some() { DRAINED } else { 0 };
    let end = if null_ack.end.is_some() { END } else { 0 };
    let paused = if null_ack.paused { PAUSED } else { 0 };
    out.extend_from_slice(&null_ack.ack.0.to_be_bytes());
    out.extend_from_slice(&null_ack.burst.packets.max(1).to_be_bytes());
    out.extend_from_slice(&micros_u32(null_ack.burst.interval).to_be_bytes());
    out.extend_from_slice(&[drained | end | paused, null_ack.limit]);
    out.extend_from_slice(&null_ack.packet_bytes.to_be_bytes());
    out.extend_from_slice(&null_ack.sent_through.unwrap_or_default().0.to_be_bytes());
    out.extend_from_slice(&null_ack.back_millis.to_be_bytes());
    if let Some(end) = &null_ack.end {
        out.extend_from_slice(&end.buffers.to_be_bytes());
        out.extend_from_slice(&end.bytes.to_be_bytes());
        out.extend_from_slice(&end.digest);
    }
}

/// The body of a NULL-ACK whose header has `number` (`docs/protocol §3.3`).
pub fn parse_null_ack(number: PacketNumber, body: &[u8]) -> Result<NullAck, ParseError> {
    let mut reader = Reader::new(body);
    let ack = ControlSeq(reader.u32()?);
    let packets = reader.u32()?;
    if packets == 0 {
        return Err(ParseError::Field("burst size"));
    }
    let interval = Duration::from_micros(reader.u32()?.into());
    let [flags, limit] = reader.array()?;
    let packet_bytes = reader.u16()?;
    let buffer = BufferNumber(reader.u64()?);
    let back_millis = reader.u16()?;
    let end = if flags & END == 0 {
        None
    } else {
        Some(End { buffers: reader.u64()?, bytes: reader.u64()?, digest: reader.array()? })
    };
    reader.finish()?;
    let sent_through = (flags & DRAINED != 0).then_some(buffer);
    Ok(NullAck {
        number,
        ack,
        burst: Burst { packets, interval },
        sent_through,
        end,
        packet_bytes,
        limit,
        back_millis,
        paused: flags & PAUSED != 0,
    })
}

/// Appends the body of a QUIT or ABORT, its reason cut to [`MAX_REASON`] bytes
/// (`docs/protocol §3.3`).
pub fn encode_reason(reason: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(cut(reason, MAX_REASON).as_bytes());
}

/// The body of a QUIT or ABORT: its reason (`docs/protocol §3.3`).
pub fn parse_reason(body: &[u8]) -> Result<String, ParseError> {
    Reader::new(body).text(MAX_REASON, "reason").map(str::to_owned)
}

/// Appends the body of a KEEPALIVE (`docs/protocol §3.3`).
pub fn encode_keepalive(keepalive: Keepalive, out: &mut Vec<u8>) {
    let answer = if keepalive.answer_wanted { ANSWER_WANTED } else { 0 };
    let flags = answer | if keepalive.subflow_wanted { SUBFLOW_WANTED } else { 0 };
    out.extend_from_slice(&[flags, 0]);
    out.extend_from_slice(&keepalive.answers.to_be_bytes());
    out.resize(out.len() + usize::from(keepalive.padding), 0);
}

/// Appends the body of a CHALLENGE or ANSWER (`docs/protocol §3.3`).
pub fn encode_token(token: &Token, out: &mut Vec<u8>) {
    out.extend_from_slice(token);
}

/// The body of a CHALLENGE or ANSWER (`docs/protocol §3.3`).
pub fn parse_token(body: &[u8]) -> Result<Token, ParseError> {
    let mut reader = Reader::new(body);
    let token = reader.array()?;
    reader.finish()?;
    Ok(token)
}

/// The body of a KEEPALIVE (`docs/protocol §3.3`).
pub fn parse_keepalive(body: &[u8]) -> Result<Keepalive, ParseError> {
    let mut reader = Reader::new(body);
    let [flags, _] = reader.array()?;
    let answers = reader.u16()?;
    let padding = u16::try_from(reader.rest()).map_err(|_| ParseError::Trailing)?;
    let [answer_wanted, subflow_wanted] =
        [ANSWER_WANTED, SUBFLOW_WANTED].map(|flag| flags & flag != 0);
    Ok(Keepalive { answer_wanted, subflow_wanted, answers, padding })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_when_sent_and_refused_when_too_long() {
        let mut body = Vec::new();
        encode_reason(&"ö".repeat(300), &mut body);
        assert_eq!(parse_reason(&body), Ok("ö".repeat(200)));
        body.push(b'x');
        assert_eq!(parse_reason(&body), Err(ParseError::Field("reason")));
        assert_eq!(parse_reason(&[0xff]), Err(ParseError::Field("reason")));
    }

    #[test]
    fn a_burst_of_no_packets_is_neither_written_nor_accepted() {
        let mut body = Vec::new();
        let burst = Burst { packets: 0, interval: Duration::MAX };
        let (number, ack) = (PacketNumber(7), ControlSeq(1));
        let null_ack = NullAck {
            number,
            ack,
            burst,
            sent_through: None,
            end: None,
            packet_bytes: 0,
            limit: 0,
            back_millis: 515,
            paused: false,
        };
        encode_null_ack(&null_ack, &mut body);
        let burst = Burst { packets: 1, interval: Duration::from_micros(u32::MAX.into()) };
        assert_eq!(parse_null_ack(number, &body), Ok(NullAck { burst, ..null_ack }));
        body[7] = 0;
        assert_eq!(parse_null_ack(number, &body), Err(ParseError::Field("burst size")));
    }

    #[test]
    fn reserved_bytes_and_undefined_flags_are_ignored() {
        let answer_wanted = |body: [u8; 4]| parse_keepalive(&body).unwrap().answer_wanted;
        assert!(answer_wanted([0xff, 1, 2, 3]));
        assert!(!answer_wanted([0xfe, 1, 2, 3]));
    }
}
