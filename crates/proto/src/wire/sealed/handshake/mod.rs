//! The payload of the Noise messages: the parameters (`docs/protocol §3.2`). The clear frames
//! around them are in [`frames`], WHO and KEY in [`key_query`]. BRANCH has the payload too.

pub(super) mod frames;
pub(super) mod key_query;

use std::time::Duration;

use super::{ParseError, Reader, cut};
use crate::limits::{
    DEATH_TIMER, MAX_CLIENT, MAX_OUTSTANDING, MAX_SEALED_PACKET_BYTES, MAX_TABLE_BYTES,
    SEALED_BUFFER_BYTES,
};
use crate::time::micros_u32;
use crate::wire::packet::{Burst, Parameters, TransferMode};

/// The death timer's bounds in the unit of this wire.
const DEATH_TIMER_MILLIS: [u32; 2] =
    [DEATH_TIMER.start().as_millis() as u32, DEATH_TIMER.end().as_millis() as u32];
/// The transfer size if it is not known.
const UNKNOWN: u64 = u64::MAX;

/// The payload of both handshake messages (`docs/protocol §3.2`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakePayload {
    /// Everything that both wires negotiate. The UID is in the clear frame, and `checksum` is
    /// `rfc998`'s: neither is in the payload.
    pub parameters: Parameters,
    /// Bits of the ciphers offered, or the one chosen: 1 AES-256-GCM, 2 ChaCha20-Poly1305.
    pub ciphers: u8,
    /// Most bytes that a buffer has beyond its data area.
    pub table_bytes: u32,
}

/// Appends the parameters (`docs/protocol §3.2`).
///
/// Values beyond their bounds are clamped, except the buffer size: a wrong one cannot be replaced,
/// and the peer refuses it. The client string ends before a NUL.
pub fn encode_offer(offer: &HandshakePayload, out: &mut Vec<u8>) {
    let HandshakePayload { parameters, ciphers, table_bytes } = offer;
    let [shortest, longest] = DEATH_TIMER_MILLIS.map(u128::from);
    let death_timer = parameters.death_timer.as_millis().clamp(shortest, longest);
    let client = parameters.client.split('\0').next().unwrap_or_default();
    let client = cut(client, MAX_CLIENT);
    let mode = match parameters.mode {
        TransferMode::Read => 0,
        TransferMode::Write => 1,
    };
    for word in [
        parameters.buffer_bytes,
        parameters.packet_bytes.clamp(1, MAX_SEALED_PACKET_BYTES),
        parameters.burst.packets.max(1),
        micros_u32(parameters.burst.interval),
        death_timer as u32,
        parameters.max_outstanding.clamp(1, MAX_OUTSTANDING),
    ] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(&parameters.transfer_bytes.unwrap_or(UNKNOWN).to_be_bytes());
    out.extend_from_slice(&[mode, *ciphers]);
    out.extend_from_slice(&(client.len() as u16).to_be_bytes());
    out.extend_from_slice(&(*table_bytes).min(MAX_TABLE_BYTES).to_be_bytes());
    out.extend_from_slice(client.as_bytes());
}

/// Parses the parameters of the frame with this `uid` (`docs/protocol §3.2`). Cipher bits are
/// not checked here: future ciphers may use more of them.
pub fn parse_offer(uid: u32, payload: &[u8]) -> Result<HandshakePayload, ParseError> {
    let mut reader = Reader::new(payload);
    let buffer_bytes = within(
        reader.u32()?,
        [*SEALED_BUFFER_BYTES.start(), *SEALED_BUFFER_BYTES.end()],
        "buffer size",
    )?;
    if !buffer_bytes.is_power_of_two() {
        return Err(ParseError::Field("buffer size"));
    }
    let packet_bytes = within(reader.u32()?, [1, MAX_SEALED_PACKET_BYTES], "packet size")?;
    let packets = within(reader.u32()?, [1, u32::MAX], "burst size")?;
    let interval = Duration::from_micros(reader.u32()?.into());
    let death_timer = within(reader.u32()?, DEATH_TIMER_MILLIS, "death timer")?;
    let max_outstanding = within(reader.u32()?, [1, MAX_OUTSTANDING], "outstanding buffers")?;
    let transfer_bytes = Some(reader.u64()?).filter(|&bytes| bytes != UNKNOWN);
    let mode = match reader.u8()? {
        0 => TransferMode::Read,
        1 => TransferMode::Write,
        _ => return Err(ParseError::Field("mode")),
    };
    let ciphers = reader.u8()?;
    let client_len = usize::from(reader.u16()?);
    let table_bytes = within(reader.u32()?, [0, MAX_TABLE_BYTES], "table bytes")?;
    let client = Reader::new(reader.bytes(client_len)?).text(MAX_CLIENT, "client string")?;
    reader.finish()?;
    if client.contains('\0') {
        return Err(ParseError::Field("client string"));
    }
    let parameters = Parameters {
        uid,
        buffer_bytes,
        transfer_bytes,
        packet_bytes,
        burst: Burst { packets, interval },
        death_timer: Duration::from_millis(death_timer.into()),
        checksum: false,
        mode,
        max_outstanding,
        client: client.to_owned(),
    };
    Ok(HandshakePayload { parameters, ciphers, table_bytes })
}

/// A connection that branches from another (`docs/protocol §4.10`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Its number among those of its parent connection.
    pub number: u64,
    /// Its parameters; the cipher is the parent connection's.
    pub offer: HandshakePayload,
}

/// Appends the body of a BRANCH (`docs/protocol §3.3`).
pub fn encode_branch(branch: &Branch, out: &mut Vec<u8>) {
    out.extend_from_slice(&branch.number.to_be_bytes());
    encode_offer(&branch.offer, out);
}

/// The body of a BRANCH (`docs/protocol §3.3`).
pub fn parse_branch(body: &[u8]) -> Result<Branch, ParseError> {
    let mut reader = Reader::new(body);
    let number = reader.u64()?;
    let offer = parse_offer(0, reader.remaining())?;
    Ok(Branch { number, offer })
}

fn within(value: u32, [min, max]: [u32; 2], name: &'static str) -> Result<u32, ParseError> {
    if (min..=max).contains(&value) { Ok(value) } else { Err(ParseError::Field(name)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> HandshakePayload {
        let parameters = Parameters {
            uid: 7,
            buffer_bytes: 1 << 20,
            transfer_bytes: None,
            packet_bytes: 1184,
            burst: Burst { packets: 8, interval: Duration::from_millis(1) },
            death_timer: Duration::from_secs(300),
            checksum: false,
            mode: TransferMode::Write,
            max_outstanding: 64,
            client: "x".to_owned(),
        };
        HandshakePayload { parameters, ciphers: 3, table_bytes: 8192 }
    }

    fn sent(change: impl FnOnce(&mut HandshakePayload)) -> Result<HandshakePayload, ParseError> {
        let (mut offer, mut payload) = (offer(), Vec::new());
        change(&mut offer);
        encode_offer(&offer, &mut payload);
        parse_offer(7, &payload)
    }

    #[test]
    fn encoded_values_are_within_bounds() {
        assert_eq!(sent(|_| {}), Ok(offer()));
        let low = sent(|o| {
            o.parameters.packet_bytes = 0;
            o.parameters.burst = Burst { packets: 0, interval: Duration::ZERO };
            o.parameters.death_timer = Duration::ZERO;
            o.parameters.max_outstanding = 0;
            o.parameters.client = "a\0b".to_owned();
        })
        .unwrap();
        let burst = Burst { packets: 1, interval: Duration::ZERO };
        assert_eq!((low.parameters.packet_bytes, low.parameters.burst), (1, burst));
        assert_eq!(low.parameters.death_timer, Duration::from_secs(1));
        assert_eq!((low.parameters.max_outstanding, low.parameters.client.as_str()), (1, "a"));
        let high = sent(|o| {
            o.parameters.packet_bytes = u32::MAX;
            o.parameters.death_timer = Duration::MAX;
            o.parameters.max_outstanding = u32::MAX;
            o.parameters.client = "文".repeat(200);
            o.table_bytes = u32::MAX;
        })
        .unwrap();
        assert_eq!((high.parameters.packet_bytes, high.parameters.max_outstanding), (65_000, 4096));
        assert_eq!(high.parameters.death_timer, Duration::from_secs(49 * 24 * 3600));
        assert_eq!((high.parameters.client.len(), high.table_bytes), (399, 1 << 20));
    }

    #[test]
    fn values_out_of_bounds_are_refused() {
        let wrong_sizes = [0, 1 << 9, 1000, (1 << 20) + 1, 1 << 27, u32::MAX];
        for bytes in wrong_sizes {
            let result = sent(|o| o.parameters.buffer_bytes = bytes);
            assert_eq!(result, Err(ParseError::Field("buffer size")), "{bytes}");
        }
        let mut payload = Vec::new();
        encode_offer(&offer(), &mut payload);
        let cases: [(usize, &[u8], &str); 9] = [
            (4, &0u32.to_be_bytes(), "packet size"),
            (4, &65_001u32.to_be_bytes(), "packet size"),
            (8, &0u32.to_be_bytes(), "burst size"),
            (16, &999u32.to_be_bytes(), "death timer"),
            (16, &4_233_600_001u32.to_be_bytes(), "death timer"),
            (20, &4097u32.to_be_bytes(), "outstanding buffers"),
            (32, &[2], "mode"),
            (36, &((1u32 << 20) + 1).to_be_bytes(), "table bytes"),
            (40, &[0], "client string"),
        ];
        for (at, field, name) in cases {
            let mut payload = payload.clone();
            payload[at..at + field.len()].copy_from_slice(field);
            assert_eq!(parse_offer(7, &payload), Err(ParseError::Field(name)));
        }
        payload[40] = 0xff;
        assert_eq!(parse_offer(7, &payload), Err(ParseError::Field("client string")));
        payload[40] = b'x';
        payload.extend_from_slice(&[b'x'; 400]);
        assert_eq!(parse_offer(7, &payload), Err(ParseError::Trailing));
        payload[34..36].copy_from_slice(&401u16.to_be_bytes());
        assert_eq!(parse_offer(7, &payload), Err(ParseError::Field("client string")));
    }
}
