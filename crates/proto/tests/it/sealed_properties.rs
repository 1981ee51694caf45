//! The `sealed` wire against random bytes: none makes it panic, and what parses is what
//! was meant (`docs/protocol §3`).

use std::time::Duration;

use netblt_proto::units::{BufferNumber, ControlSeq, PacketNumber, Rate};
use netblt_proto::wire::packet::*;
use netblt_proto::wire::sealed::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn burst(packets: u32, micros: u64) -> Burst {
    Burst { packets, interval: Duration::from_micros(micros) }
}

fn message() -> impl Strategy<Value = Message> {
    let buffers = || (1..u64::MAX - 4096, 1..=4096u32);
    let micros = || any::<u32>().prop_map(|micros| Duration::from_micros(micros.into()));
    let offer = proptest::option::of((1u32.., any::<u32>()));
    let go =
        (buffers(), 1..=65_000u32, any::<u8>()).prop_map(|((first, count), size, generation)| {
            let first = BufferNumber(first);
            Message::Go(Go { first, count, packet_bytes: size, generation })
        });
    let ok = (buffers(), offer, micros()).prop_map(|((first, count), offer, control_timer)| {
        let first = BufferNumber(first);
        let offer = offer.map(|(packets, micros)| burst(packets, micros.into()));
        Message::Ok(Accepted { first, count, offer, control_timer })
    });
    let resend = (1u64.., vec((0..1000u32, 1..1000u32), 1..=64)).prop_map(|(buffer, runs)| {
        let mut at = 0;
        let missing = runs.into_iter().map(|(gap, len)| {
            let start = at + gap;
            at = start + len;
            IndexRange { start, end: at }
        });
        Message::Resend(Resend { buffer: BufferNumber(buffer), missing: missing.collect() })
    });
    let done = (any::<bool>(), any::<u64>(), any::<[u8; 32]>(), ".{0,100}").prop_map(
        |(verified, bytes, digest, reason)| {
            Message::Done(Verdict { verified, bytes, digest, reason })
        },
    );
    let have = (vec(any::<u8>(), 0..=512), any::<bool>())
        .prop_map(|(bytes, last)| Message::Have(Have { bytes, last }));
    prop_oneof![go, ok, resend, done, have]
}

fn report() -> impl Strategy<Value = Report> {
    any::<(u32, u32, [u64; 5], u16)>().prop_map(
        |(at_micros, highest_age_micros, counts, largest)| {
            let [packets, bytes, highest, marked, missing] = counts;
            let highest = PacketNumber(highest);
            Report {
                at_micros,
                packets,
                bytes,
                highest,
                highest_age_micros,
                marked,
                missing,
                largest,
            }
        },
    )
}

/// Every rate that a CONTROL packet can say exactly, and the words that are no rate.
fn rate_limit() -> impl Strategy<Value = RateLimit> {
    let rate = (1..=u16::MAX, 0..=48u32)
        .prop_map(|(mantissa, exponent)| u64::from(mantissa) << exponent)
        .prop_map(|bytes| RateLimit::At(Rate::from_bytes_per_second(bytes)));
    prop_oneof![Just(RateLimit::Unset), Just(RateLimit::Agreed), rate]
}

fn encoded(control: &ControlBody) -> Vec<u8> {
    let mut body = Vec::new();
    let mut writer = ControlWriter::new(&mut body, control.end_received, usize::MAX);
    writer.set_rate_limit(control.rate_limit);
    assert!(control.report.iter().all(|report| writer.push_report(report)));
    assert!(control.messages.iter().all(|(seq, message)| writer.push_message(*seq, message)));
    body
}

/// Bytes that look like items, so that more than one of a thousand parses.
fn items() -> impl Strategy<Value = Vec<u8>> {
    let item = (0..6u8, any::<u8>(), vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 0..64));
    vec((item, any::<bool>()), 0..4).prop_map(|items| {
        let mut body = vec![0; 4];
        for ((kind, flags, fields), exact) in items {
            let lens = [24, 32, 24, 50, 56];
            let exact = lens.get(usize::from(kind)).filter(|_| exact);
            let len = exact.copied().unwrap_or(fields.len() + 4);
            body.extend([kind, flags, 0, len as u8]);
            body.extend(fields.iter().chain(std::iter::repeat(&1)).take(len - 4));
        }
        body
    })
}

proptest! {
    #[test]
    fn control_bodies_are_read_as_they_were_written(
        end_received in any::<bool>(),
        rate_limit in rate_limit(),
        messages in vec((any::<u32>().prop_map(ControlSeq), message()), 0..10),
        report in proptest::option::of(report()),
    ) {
        let control = ControlBody { end_received, rate_limit, messages, report };
        prop_assert_eq!(parse_control(&encoded(&control)), Ok(control));
    }

    #[test]
    fn a_single_message_is_whole_or_nothing(message in message()) {
        let messages = vec![(ControlSeq(1), message)];
        let body = encoded(&ControlBody { messages, ..ControlBody::default() });
        for len in (0..4).chain(5..body.len()) {
            prop_assert!(parse_control(&body[..len]).is_err());
        }
        let mut out = Vec::new();
        let messages = parse_control(&body).unwrap().messages;
        let mut writer = ControlWriter::new(&mut out, false, body.len() - 1);
        prop_assert!(!writer.push_message(ControlSeq(1), &messages[0].1));
        prop_assert_eq!(out.len(), 4);
    }

    #[test]
    fn parsed_bodies_encode_to_equal_bytes(body in prop_oneof![items(), vec(any::<u8>(), 0..99)]) {
        if let Ok(control) = parse_control(&body) {
            let again = encoded(&control);
            prop_assert_eq!(again.len(), body.len());
            prop_assert_eq!(parse_control(&again), Ok(control));
        }
    }

    #[test]
    fn no_bytes_make_a_body_panic(body in vec(any::<u8>(), 0..200)) {
        if let Ok(null_ack) = parse_null_ack(PacketNumber(0), &body) {
            let mut again = Vec::new();
            encode_null_ack(&null_ack, &mut again);
            prop_assert_eq!(parse_null_ack(PacketNumber(0), &again), Ok(null_ack));
        }
        let _ = (parse_control(&body), parse_keepalive(&body), parse_reason(&body));
        let _ = parse_offer(0, &body);
    }

    #[test]
    fn no_bytes_make_a_frame_panic(
        bytes in prop_oneof![vec(any::<u8>(), 0..200), vec(any::<u8>(), 1200)],
        version in prop_oneof![Just(7u8), any::<u8>()],
        kind in 0..17u8,
        len in 0..300u16,
    ) {
        let mut bytes = bytes;
        let [high, low] = len.to_be_bytes();
        for (at, byte) in [(2, version), (3, kind), (16, high), (17, low), (48, high), (49, low)] {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        let _ = (parse_open(&bytes), parse_open_of_any_version(&bytes), parse_response(&bytes));
        let _ = (parse_cookie(&bytes), parse_refused(&bytes), open_mac(&bytes), kind_of(&bytes));
        let _ = (parse_unknown(&bytes), parse_token(&bytes), build_unknown(&bytes));
        set_cookie(&mut bytes, &[7; 32]);
    }

    #[test]
    fn frames_are_read_as_they_were_built(
        ids in (1u32.., 1u32.., any::<u32>()),
        noise in vec(any::<u8>(), 0..=MAX_NOISE_BYTES),
        cookie in any::<[u8; 32]>(),
        mac in any::<[u8; 16]>(),
        reason in ".{0,100}",
    ) {
        let (to, own, uid) = ids;
        let mut open = build_open(&open_clear(own, uid), None, &noise, |_| mac);
        set_cookie(&mut open, &cookie);
        let frame = parse_open(&open).unwrap();
        prop_assert_eq!((frame.connection, frame.uid, frame.cookie), (own, uid, cookie));
        prop_assert_eq!((frame.noise, frame.mac), (&noise[..], mac));
        let response = build_response(&response_clear(to, own, uid), &noise);
        let frame = ResponseFrame { to, connection: own, uid, noise: &noise };
        prop_assert_eq!(parse_response(&response), Ok(frame));
        let refused = build_refused(to, uid, false, &reason, |_| mac);
        let frame = parse_refused(&refused).unwrap();
        prop_assert_eq!((frame.reason, frame.mac), (reason.as_bytes(), mac));
        for bytes in [&response[..], &refused[..]] {
            let cut = &bytes[..bytes.len() - 1];
            prop_assert!(parse_response(cut).is_err() && parse_refused(cut).is_err());
        }
    }
}
