//! Properties of the `rfc998` codec. Its bytes are checked one by one in
//! `tests/it/rfc998_vectors.rs`.

use super::*;
use crate::wire::packet::{Accepted, End, Go, IndexRange, Resend, Verdict};
use proptest::prelude::*;

const PORTS: Ports = Ports { local: 1025, foreign: 9 };
/// Packets in a full buffer, where RESEND asks for "the rest".
const FULL: u32 = 900;

fn text() -> impl Strategy<Value = String> {
    "[^\0]{0,120}".prop_map(|mut text| {
        text.truncate(text.floor_char_boundary(MAX_REASON));
        text
    })
}

fn ports() -> impl Strategy<Value = Ports> {
    any::<(u16, u16)>().prop_map(|(local, foreign)| Ports { local, foreign })
}

fn millis_up_to(most: u64) -> impl Strategy<Value = Duration> {
    (0..=most).prop_map(Duration::from_millis)
}

fn bursts() -> impl Strategy<Value = Burst> {
    (1u32..=65_535, millis_up_to(65_535))
        .prop_map(|(packets, interval)| Burst { packets, interval })
}

fn parameters() -> impl Strategy<Value = Parameters> {
    (
        any::<(u32, u32, bool, bool)>(),
        prop::option::of(1u64..=u64::from(u32::MAX)),
        (0u32..=65_535, 0u32..=65_535),
        bursts(),
        0u64..=65_535,
        text(),
    )
        .prop_map(
            |((uid, buffer_bytes, checksum, write), transfer, sizes, burst, death, client)| {
                Parameters {
                    uid,
                    buffer_bytes,
                    transfer_bytes: transfer,
                    packet_bytes: sizes.0,
                    burst,
                    death_timer: Duration::from_secs(death),
                    checksum,
                    mode: if write { TransferMode::Write } else { TransferMode::Read },
                    max_outstanding: sizes.1,
                    client,
                }
            },
        )
}

fn data_headers(reference: ControlSeq) -> impl Strategy<Value = DataHeader> {
    (any::<(u32, u16, bool, bool)>(), near(reference)).prop_map(|(fields, ack)| DataHeader {
        number: PacketNumber(0),
        buffer: BufferNumber(u64::from(fields.0)),
        index: PacketIndex(u32::from(fields.1)),
        generation: 0,
        law: 0,
        last_of_buffer: fields.2,
        last_buffer: fields.3,
        ack,
    })
}

/// Sequence numbers that 16 bits can tell apart when `reference` is known.
fn near(reference: ControlSeq) -> impl Strategy<Value = ControlSeq> {
    any::<u16>().prop_map(move |low| reference.widen(low))
}

fn messages() -> impl Strategy<Value = Message> {
    let go = any::<u32>().prop_map(|n| {
        let first = BufferNumber(u64::from(n));
        Message::Go(Go { first, count: 1, packet_bytes: 0, generation: 0 })
    });
    let ok = (any::<u32>(), prop::option::of(bursts()), millis_up_to(65_535)).prop_map(
        |(n, offer, control_timer)| {
            let first = BufferNumber(u64::from(n));
            Message::Ok(Accepted { first, count: 1, offer, control_timer })
        },
    );
    let resend = (any::<u32>(), prop::collection::vec((1u32..9, 1u32..9), 0..6)).prop_map(
        |(n, gaps_and_lengths)| {
            let mut missing = Vec::new();
            let mut at = 65_400;
            for (gap, len) in gaps_and_lengths {
                missing.push(IndexRange { start: at + gap, end: at + gap + len });
                at += gap + len;
            }
            Message::Resend(Resend { buffer: BufferNumber(u64::from(n)), missing })
        },
    );
    prop_oneof![go, ok, resend]
}

fn control(limit: usize, messages: &[(ControlSeq, Message)], out: &mut Vec<u8>) -> usize {
    let mut writer = ControlWriter998::new(PORTS, FULL, limit, out);
    let fit = messages.iter().take_while(|(seq, message)| writer.push(*seq, message)).count();
    writer.finish();
    fit
}

fn resend(ranges: &[(u32, u32)]) -> Message {
    let missing = ranges.iter().map(|r| IndexRange { start: r.0, end: r.1 }).collect();
    Message::Resend(Resend { buffer: BufferNumber(3), missing })
}

/// The messages after encoding and parsing.
fn round_trip(limit: usize, messages: &[(ControlSeq, Message)]) -> Vec<(ControlSeq, Message)> {
    let mut out = Vec::new();
    control(limit, messages, &mut out);
    assert!(out.len() <= limit.max(HEADER_BYTES) && out.len() % 4 == 0);
    match parse(&out, true, ControlSeq(0)) {
        Ok((PORTS, Packet998::Control(messages))) => messages,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        checksum: bool,
        reference: u32,
    ) {
        let _ = parse(&bytes, checksum, ControlSeq(reference));
    }

    /// Bytes that pass the checksum and the length, so that the parsers behind see them.
    #[test]
    fn arbitrary_bodies_never_panic(
        kind in 0u8..14,
        message in 0u8..4,
        body in prop::collection::vec(prop_oneof![Just(0), any::<u8>()], 0..200),
    ) {
        let mut out = Vec::new();
        put(PORTS, kind, &mut out, |out| {
            out.push(message);
            out.extend_from_slice(&body);
        });
        let _ = parse(&out, false, ControlSeq(0));
    }

    #[test]
    fn opening_packets_survive_a_round_trip(ports in ports(), parameters in parameters()) {
        let mut out = Vec::new();
        encode_open(ports, &parameters, &mut out);
        prop_assert_eq!(out.len() % 4, 0);
        let expected = Packet998::Open(parameters.clone());
        prop_assert_eq!(parse(&out, false, ControlSeq(0)), Ok((ports, expected)));
        out.clear();
        encode_response(ports, &parameters, &mut out);
        let expected = Packet998::Response(parameters);
        prop_assert_eq!(parse(&out, false, ControlSeq(0)), Ok((ports, expected)));
    }

    #[test]
    fn reasons_survive_a_round_trip(ports in ports(), reason in text()) {
        type Case = (fn(Ports, &str, &mut Vec<u8>), fn(String) -> Packet998<'static>);
        let cases: [Case; 3] = [
            (encode_quit, Packet998::Quit),
            (encode_abort, Packet998::Abort),
            (encode_refused, Packet998::Refused),
        ];
        for (encode, packet) in cases {
            let mut out = Vec::new();
            encode(ports, &reason, &mut out);
            let parsed = parse(&out, true, ControlSeq(0));
            prop_assert_eq!(parsed, Ok((ports, packet(reason.clone()))));
        }
    }

    #[test]
    fn data_survive_a_round_trip_with_and_without_checksum(
        (reference, header) in any::<u32>().prop_flat_map(|r| {
            (Just(ControlSeq(r)), data_headers(ControlSeq(r)))
        }),
        data in prop::collection::vec(any::<u8>(), 0..1500),
        checksum: bool,
        padding in 0usize..20,
    ) {
        let mut out = vec![7];
        encode_data(PORTS, &header, &data, checksum, &mut out);
        out.resize(out.len() + padding, 0xaa);
        let parsed = parse(&out[1..], checksum, reference);
        prop_assert_eq!(parsed, Ok((PORTS, Packet998::Data { header, data: &data })));
    }

    #[test]
    fn null_acks_survive_a_round_trip(reference: u32, low: u16, burst in bursts()) {
        let reference = ControlSeq(reference);
        let ack = reference.widen(low);
        let number = PacketNumber(0);
        let (sent_through, end) = (None, None);
        let null_ack = NullAck {
            number,
            ack,
            burst,
            sent_through,
            end,
            packet_bytes: 0,
            limit: 0,
            back_millis: 0,
            paused: false,
        };
        let mut out = Vec::new();
        encode_null_ack(PORTS, &null_ack, &mut out);
        let parsed = parse(&out, true, reference);
        prop_assert_eq!(parsed, Ok((PORTS, Packet998::NullAck(null_ack))));
    }

    #[test]
    fn control_messages_that_fit_survive_a_round_trip(
        (reference, messages) in any::<u32>().prop_flat_map(|r| {
            let message = (near(ControlSeq(r)), messages());
            (Just(ControlSeq(r)), prop::collection::vec(message, 0..40))
        }),
        limit in 400usize..1300,
    ) {
        let mut out = vec![1, 2, 3];
        let fit = control(limit, &messages, &mut out);
        prop_assert!(out.len() - 3 <= limit);
        let expected = Packet998::Control(messages[..fit].to_vec());
        prop_assert_eq!(parse(&out[3..], true, reference), Ok((PORTS, expected)));
    }

    #[test]
    fn a_flipped_bit_is_found(
        data in prop::collection::vec(any::<u8>(), 0..64),
        bit in any::<prop::sample::Index>(),
    ) {
        let header = data_header(1);
        let mut out = Vec::new();
        encode_data(PORTS, &header, &data, true, &mut out);
        let bit = bit.index(out.len() * 8);
        out[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(parse(&out, true, ControlSeq(0)).is_err());
    }
}

fn data_header(index: u32) -> DataHeader {
    DataHeader {
        number: PacketNumber(5),
        buffer: BufferNumber(1),
        index: PacketIndex(index),
        generation: 3,
        law: 0,
        last_of_buffer: false,
        last_buffer: false,
        ack: ControlSeq(0),
    }
}

#[test]
fn a_run_of_grants_becomes_one_message_per_buffer_or_none() {
    let go = Go { first: BufferNumber(4), count: 3, packet_bytes: 1000, generation: 2 };
    let run = [(ControlSeq(7), Message::Go(go))];
    let one = |n| Go { first: BufferNumber(n), count: 1, packet_bytes: 0, generation: 0 };
    let each: Vec<_> =
        (0u32..3).map(|i| (ControlSeq(7 + i), Message::Go(one(4 + u64::from(i))))).collect();
    assert_eq!(round_trip(36, &run), each);
    assert_eq!(round_trip(35, &run), []);
    let endless = Go { count: u32::MAX, ..go };
    assert_eq!(round_trip(1200, &[(ControlSeq(7), Message::Go(endless))]), []);
}

#[test]
fn an_open_range_ends_with_a_full_buffer() {
    let open = resend(&[(890, u32::MAX)]);
    assert_eq!(round_trip(1200, &[(ControlSeq(1), open)])[0].1, resend(&[(890, FULL)]));
    let nowhere = resend(&[(2000, u32::MAX)]);
    assert_eq!(round_trip(1200, &[(ControlSeq(1), nowhere)])[0].1, resend(&[]));
    let beyond = resend(&[(65_534, 1 << 20), (1 << 21, 1 << 22)]);
    assert_eq!(round_trip(1200, &[(ControlSeq(1), beyond)])[0].1, resend(&[(65_534, 65_536)]));
}

#[test]
fn a_resend_larger_than_a_packet_is_cut_only_in_first_place() {
    let large = (ControlSeq(2), resend(&[(0, 20), (30, u32::MAX)]));
    let go = Go { first: BufferNumber(9), count: 1, packet_bytes: 0, generation: 0 };
    let go = (ControlSeq(1), Message::Go(go));
    // 12 for the header, 12 for the message: room for 38 numbers.
    let cut = (ControlSeq(2), resend(&[(0, 20), (30, 48)]));
    assert_eq!(round_trip(101, &[large.clone(), go.clone()]), [cut]);
    assert_eq!(round_trip(101, &[go.clone(), large.clone()]), [go]);
    assert_eq!(round_trip(27, std::slice::from_ref(&large)), []);
    assert_eq!(round_trip(0, &[large]), []);
}

#[test]
fn fields_that_rfc998_lacks_are_not_written() {
    let verdict =
        Verdict { verified: true, bytes: 1, digest: [1; 32], reason: String::from("none") };
    assert_eq!(round_trip(1200, &[(ControlSeq(1), Message::Done(verdict))]), []);
    let end = End { buffers: 1, bytes: 1, digest: [1; 32] };
    let burst = Burst { packets: 1, interval: Duration::ZERO };
    let plain = NullAck {
        number: PacketNumber(0),
        ack: ControlSeq(1),
        burst,
        sent_through: None,
        end: None,
        packet_bytes: 0,
        limit: 0,
        back_millis: 0,
        paused: false,
    };
    let full = NullAck {
        number: PacketNumber(8),
        sent_through: Some(BufferNumber(3)),
        end: Some(end),
        packet_bytes: 1000,
        ..plain
    };
    let mut out = Vec::new();
    encode_null_ack(PORTS, &full, &mut out);
    assert_eq!(parse(&out, true, ControlSeq(0)), Ok((PORTS, Packet998::NullAck(plain))));
}

#[test]
fn duplicate_and_unordered_packet_numbers_are_sorted() {
    let mut out = Vec::new();
    put(PORTS, kind::CONTROL, &mut out, |out| {
        out.extend_from_slice(&[2, 0, 0, 1, 0, 0, 0, 3, 0, 5, 0xff, 0xff]);
        out.extend_from_slice(&[0, 9, 0, 2, 0, 1, 0, 9, 0, 2, 0xff, 0xff]);
    });
    let expected = vec![(ControlSeq(1), resend(&[(1, 3), (9, 10)]))];
    assert_eq!(parse(&out, true, ControlSeq(0)), Ok((PORTS, Packet998::Control(expected))));
}

#[test]
fn values_saturate_and_times_round_up() {
    let parameters = Parameters {
        uid: 1,
        buffer_bytes: 1 << 20,
        transfer_bytes: Some(1 << 32),
        packet_bytes: 70_000,
        burst: Burst { packets: 70_000, interval: Duration::from_micros(1001) },
        death_timer: Duration::MAX,
        checksum: false,
        mode: TransferMode::Read,
        max_outstanding: 70_000,
        client: format!("{}\0hidden", "é".repeat(300)),
    };
    let mut out = Vec::new();
    encode_open(PORTS, &parameters, &mut out);
    let Ok((_, Packet998::Open(read))) = parse(&out, false, ControlSeq(0)) else {
        panic!("not an OPEN")
    };
    assert_eq!((read.packet_bytes, read.max_outstanding), (65_535, 65_535));
    assert_eq!(read.burst, Burst { packets: 65_535, interval: Duration::from_millis(2) });
    assert_eq!((read.death_timer, read.transfer_bytes), (Duration::from_secs(65_535), None));
    assert_eq!(read.client, "é".repeat(MAX_REASON / 2));
}

#[test]
fn errors_name_the_field() {
    let mut good = Vec::new();
    encode_data(PORTS, &data_header(1), b"four", true, &mut good);
    let error = |change: fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        parse(&bytes, true, ControlSeq(0)).err()
    };
    assert_eq!(error(|_| {}), None);
    assert_eq!(error(|b| b.truncate(11)), Some(ParseError998::Truncated));
    assert_eq!(error(|b| b[2] = 6), Some(ParseError998::Version(6)));
    assert_eq!(error(|b| b.truncate(27)), Some(ParseError998::Length));
    assert_eq!(error(|b| b[5] = 11), Some(ParseError998::Length));
    assert_eq!(error(|b| b[5] = 23), Some(ParseError998::Length));
    assert_eq!(error(|b| b[19] ^= 1), Some(ParseError998::Checksum));
    assert_eq!(error(|b| b[24] ^= 1), Some(ParseError998::DataChecksum));

    let made = |kind, body: &[u8]| {
        let mut out = Vec::new();
        put(PORTS, kind, &mut out, |out| out.extend_from_slice(body));
        parse(&out, true, ControlSeq(0)).err()
    };
    assert_eq!(made(12, &[]), Some(ParseError998::Kind(12)));
    assert_eq!(made(kind::DONE, &[0; 4]), Some(ParseError998::Length));
    assert_eq!(made(kind::NULL_ACK, &[0; 4]), Some(ParseError998::Length));
    assert_eq!(made(kind::OPEN, &[0; 20]), Some(ParseError998::Length));
    assert_eq!(made(kind::OPEN, &[0; 24]), Some(ParseError998::Text));
    assert_eq!(made(kind::QUIT, b"four"), Some(ParseError998::Text));
    assert_eq!(made(kind::CONTROL, &[]), None);
    assert_eq!(made(kind::CONTROL, &[3; 8]), Some(ParseError998::MessageKind(3)));
    assert_eq!(made(kind::CONTROL, &[0; 4]), Some(ParseError998::MessageLength));
    assert_eq!(made(kind::CONTROL, &[1, 0, 0, 0, 0, 0, 0, 0]), Some(ParseError998::MessageLength));
    let three_of_two = [2, 0, 0, 1, 0, 0, 0, 1, 0, 3, 0, 0, 0, 1, 0, 2];
    assert_eq!(made(kind::CONTROL, &three_of_two), Some(ParseError998::MessageLength));
}
