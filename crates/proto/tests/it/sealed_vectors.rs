//! The `sealed` wire against bytes written by hand from `docs/protocol §3, §8`. Each line of a
//! vector begins where its comment says.

use std::time::Duration;

use netblt_proto::content::{
    Attributes, Extent, ExtraAttributes, Kind as Content, encode_table, parse_image,
};
use netblt_proto::crypto::static_pairing::KeyId;
use netblt_proto::units::{BufferNumber, ControlSeq, PacketIndex, PacketNumber, Rate};
use netblt_proto::wire::packet::*;
use netblt_proto::wire::sealed::*;

/// Hex, each line of it up to `;`. `x*n` is the byte x, n times.
fn hex(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let vectors = text.lines().filter_map(|line| line.split(';').next());
    for word in vectors.flat_map(str::split_whitespace) {
        let (digits, times) = word.split_once('*').unwrap_or((word, "1"));
        let byte = u8::from_str_radix(digits, 16).expect("two hex digits");
        bytes.extend(vec![byte; times.parse().expect("a number")]);
    }
    bytes
}

fn burst(packets: u32, micros: u64) -> Burst {
    Burst { packets, interval: Duration::from_micros(micros) }
}

/// Every prefix that is shorter than `bytes` fails to parse.
fn no_prefix_parses<'a, T>(bytes: &'a [u8], parse: impl Fn(&'a [u8]) -> Result<T, ParseError>) {
    for len in 0..bytes.len() {
        assert!(parse(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
    }
}

// ---- headers (§3.1)

#[test]
fn header() {
    let bytes = hex("00 00 0c 09             ;  0 reserved, reserved, version, CONTROL
                     de ad be ef             ;  4 connection id
                     00 00 01 02 03 04 05 06 ;  8 packet number");
    let header = Header {
        kind: PacketType::Control,
        generation: 0,
        connection: 0xdead_beef,
        number: PacketNumber(0x0102_0304_0506),
    };
    assert_eq!(encode_header(&header)[..], bytes);
    assert_eq!(encode_header(&Header { generation: 5, ..header })[..], bytes);
    assert_eq!(parse_header(&bytes), Ok(header));
    assert_eq!(kind_of(&bytes), Some(PacketType::Control));
    let reserved = [&[0xff, 0xff], &bytes[2..]].concat();
    assert_eq!(parse_header(&reserved), Ok(header));
    no_prefix_parses(&bytes, parse_header);
}

#[test]
fn repair_header() {
    let bytes = hex("00 2a 0c 10             ;  0 reserved, generation, version, REPAIR
                     00 00 00 01             ;  4 connection id
                     00 00 00 00 00 40 00 00 ;  8 packet number
                     00 00 00 01 00 00 00 02 ; 16 buffer number
                     00 00 00 0d             ; 24 number of the repair packet
                     00 10 00 05             ; 28 length of the image");
    let header = RepairHeader {
        number: PacketNumber(1 << 22),
        buffer: BufferNumber(0x1_0000_0002),
        index: 13,
        generation: 42,
        image_bytes: (1 << 20) + 5,
    };
    assert_eq!(encode_repair_header(1, &header)[..], bytes);
    assert_eq!(parse_repair_header(&bytes), Ok((1, header)));
    no_prefix_parses(&bytes, parse_repair_header);
    let first = [&bytes[..16], &[0; 8], &bytes[24..]].concat();
    assert_eq!(parse_repair_header(&first), Err(ParseError::Field("buffer number")));
    assert_eq!(parse_data_header(&bytes), Err(ParseError::Kind(16)));
}

#[test]
fn data_header() {
    let bytes = hex("02 2a 0c 07             ;  0 rules, generation, version, LDATA
                     00 00 00 01             ;  4 connection id
                     00 00 00 00 00 40 00 00 ;  8 packet number
                     00 00 00 01 00 00 00 02 ; 16 buffer number
                     00 00 03 75             ; 24 packet index
                     ff ff ff fe             ; 28 high consecutive sequence number");
    let header = DataHeader {
        number: PacketNumber(1 << 22),
        buffer: BufferNumber(0x1_0000_0002),
        index: PacketIndex(885),
        generation: 42,
        law: 2,
        last_of_buffer: true,
        last_buffer: false,
        ack: ControlSeq(0xffff_fffe),
    };
    assert_eq!(encode_data_header(1, &header)[..], bytes);
    assert_eq!(parse_data_header(&bytes), Ok((1, header)));
    no_prefix_parses(&bytes, parse_data_header);
    let mut data = bytes.clone();
    data[3] = 6;
    let not_last = DataHeader { last_of_buffer: false, ..header };
    assert_eq!(encode_data_header(1, &not_last)[..], data);
    assert_eq!(parse_data_header(&data), Ok((1, not_last)));
}

// ---- bodies (§3.3)

fn check_null_ack(bytes: &[u8], null_ack: &NullAck) {
    let mut body = Vec::new();
    encode_null_ack(null_ack, &mut body);
    assert_eq!(body, bytes);
    assert_eq!(parse_null_ack(null_ack.number, bytes).as_ref(), Ok(null_ack));
    no_prefix_parses(bytes, |bytes| parse_null_ack(null_ack.number, bytes));
    let longer = [bytes, &[0]].concat();
    assert_eq!(parse_null_ack(null_ack.number, &longer), Err(ParseError::Trailing));
}

#[test]
fn null_ack_with_nothing_new() {
    let bytes = hex("00 00 00 07             ;  0 high consecutive sequence number
                     00 00 00 08             ;  4 burst size
                     00 00 03 e8             ;  8 burst interval
                     00 00                   ; 12 flags, reserved
                     00 00                   ; 14 no packet size
                     00 00 00 00 00 00 00 00 ; 16 nothing drained
                     00 00                   ; 24 no queue on the way back");
    let (number, ack, burst) = (PacketNumber(9), ControlSeq(7), burst(8, 1000));
    check_null_ack(
        &bytes,
        &NullAck {
            number,
            ack,
            burst,
            sent_through: None,
            end: None,
            packet_bytes: 0,
            limit: 0,
            back_millis: 0,
            paused: false,
        },
    );
}

#[test]
fn null_ack_with_everything() {
    let bytes = hex("00 00 00 07             ;  0 high consecutive sequence number
                     00 00 00 08             ;  4 burst size
                     00 00 03 e8             ;  8 burst interval
                     07 04                   ; 12 flags: drained, END, paused; the sender's limit
                     03 a4                   ; 14 packet size
                     00 00 00 00 00 00 00 05 ; 16 drained up to this buffer
                     01 2c                   ; 24 milliseconds longer on the way back
                     00 00 00 00 00 00 00 06 ; 26 END: buffers
                     00 00 00 00 00 60 00 01 ; 34 END: bytes
                     d1*32                   ; 42 END: digest");
    let end = End { buffers: 6, bytes: 0x60_0001, digest: [0xd1; 32] };
    let null_ack = NullAck {
        number: PacketNumber(9),
        ack: ControlSeq(7),
        burst: burst(8, 1000),
        sent_through: Some(BufferNumber(5)),
        end: Some(end),
        packet_bytes: 932,
        limit: 4,
        back_millis: 300,
        paused: true,
    };
    check_null_ack(&bytes, &null_ack);
    // END alone: the buffer's 8 bytes stay, and are zero.
    let mut bytes = bytes;
    (bytes[12], bytes[23]) = (2, 0);
    check_null_ack(&bytes, &NullAck { sent_through: None, paused: false, ..null_ack });
}

/// END was received, a report, and each message that there is.
const ONE_OF_EACH: &str = "
    01 00 00 00             ;   0 END was received; reserved
    04 00 00 38             ;   4 REPORT, flags, 56 bytes
    00 0f 42 40             ;   8 receiver's clock
    00 00 00 fa             ;  12 age of the highest
    04 d0 00 00             ;  16 largest datagram, reserved
    00 00 00 00 00 00 27 10 ;  20 packets
    00 00 00 00 00 b7 1b 00 ;  28 bytes
    00 00 00 00 00 00 27 11 ;  36 highest packet number
    00 00 00 00 00 00 00 03 ;  44 marked
    00 00 00 00 00 00 00 02 ;  52 missing
    00 00 00 18             ;  60 GO, flags, 24 bytes
    00 00 00 09             ;  64 sequence number
    00 00 00 00 00 00 00 0a ;  68 first buffer
    00 00 00 04             ;  76 count
    04 a0                   ;  80 packet size
    02 00                   ;  82 generation, reserved
    01 00 00 20             ;  84 OK, flags, 32 bytes
    00 00 00 0a             ;  88 sequence number
    00 00 00 00 00 00 00 01 ;  92 first buffer
    00 00 00 02             ; 100 count
    00 00 00 10             ; 104 offered burst size
    00 00 01 f4             ; 108 offered burst interval
    00 00 c3 50             ; 112 control timer
    02 00 00 20             ; 116 RESEND, flags, 32 bytes
    00 00 00 0b             ; 120 sequence number
    00 00 00 00 00 00 00 03 ; 124 buffer
    00 00 00 05 00 00 00 07 ; 132 first range
    00 00 01 00 ff ff ff ff ; 140 second range, to the end
    03 01 00 32             ; 148 DONE, verified, 50 bytes
    00 00 00 0c             ; 152 sequence number
    00 00 00 00 00 60 00 01 ; 156 bytes
    d1*32                   ; 164 digest
    6f 6b                   ; 196 reason: ok
";

#[test]
fn control_with_one_of_each() {
    let bytes = hex(ONE_OF_EACH);
    let report = Report {
        at_micros: 1_000_000,
        packets: 10_000,
        bytes: 12_000_000,
        highest: PacketNumber(10_001),
        highest_age_micros: 250,
        marked: 3,
        missing: 2,
        largest: 1232,
    };
    let go = Go { first: BufferNumber(10), count: 4, packet_bytes: 1184, generation: 2 };
    let accepted = Accepted {
        first: BufferNumber(1),
        count: 2,
        offer: Some(burst(16, 500)),
        control_timer: Duration::from_millis(50),
    };
    let missing = vec![IndexRange { start: 5, end: 7 }, IndexRange { start: 256, end: u32::MAX }];
    let resend = Resend { buffer: BufferNumber(3), missing };
    let (digest, reason) = ([0xd1; 32], "ok".to_owned());
    let verdict = Verdict { verified: true, bytes: 0x60_0001, digest, reason };
    let messages = vec![
        (ControlSeq(9), Message::Go(go)),
        (ControlSeq(10), Message::Ok(accepted)),
        (ControlSeq(11), Message::Resend(resend)),
        (ControlSeq(12), Message::Done(verdict)),
    ];
    let mut body = Vec::new();
    let mut writer = ControlWriter::new(&mut body, true, bytes.len());
    assert!(writer.push_report(&report));
    assert!(messages.iter().all(|(seq, message)| writer.push_message(*seq, message)));
    assert!(!writer.push_message(ControlSeq(13), &messages[0].1));
    assert_eq!(body, bytes);
    let rate_limit = RateLimit::Unset;
    let control = ControlBody { end_received: true, rate_limit, messages, report: Some(report) };
    assert_eq!(parse_control(&bytes), Ok(control));
    for len in 0..bytes.len() {
        let between_items = [4, 60, 84, 116, 148].contains(&len);
        assert_eq!(parse_control(&bytes[..len]).is_ok(), between_items, "{len} bytes");
    }
}

#[test]
fn control_without_items_and_ok_without_an_offer() {
    assert_eq!(parse_control(&hex("00 00*3")), Ok(ControlBody::default()));
    let bytes = hex("00 00 00 00             ;   0 flags, reserved
                     01 00 00 20             ;   4 OK, flags, 32 bytes
                     00 00 00 01             ;   8 sequence number
                     00 00 00 00 00 00 00 01 ;  12 first buffer
                     00 00 00 01             ;  20 count
                     00 00 00 00             ;  24 no burst size
                     00 00 00 00             ;  28 no burst interval
                     00 1e 84 80             ;  32 control timer");
    let accepted = Accepted {
        first: BufferNumber(1),
        count: 1,
        offer: None,
        control_timer: Duration::from_secs(2),
    };
    let message = Message::Ok(accepted);
    let mut body = Vec::new();
    assert!(ControlWriter::new(&mut body, false, 36).push_message(ControlSeq(1), &message));
    assert_eq!(body, bytes);
    assert_eq!(parse_control(&bytes).unwrap().messages, [(ControlSeq(1), message)]);
}

#[test]
fn control_says_how_fast_a_sender_may_be() {
    let rate = |bytes| RateLimit::At(Rate::from_bytes_per_second(bytes));
    for (bytes, limit) in [
        ("00 00 00 00", RateLimit::Unset),
        ("00 ff ff ff", RateLimit::Agreed),
        ("00 00 00 01", rate(1)),
        ("00 01 f4 24 ; 1 Mbit/s", rate(125_000)),
        ("00 10 ff ff", rate(0xffff_0000)),
        ("00 30 ff ff", rate(0xffff << 48)),
    ] {
        let mut body = Vec::new();
        ControlWriter::new(&mut body, false, 4).set_rate_limit(limit);
        assert_eq!(body, hex(bytes), "{limit:?}");
        let said = ControlBody { rate_limit: limit, ..ControlBody::default() };
        assert_eq!(parse_control(&body), Ok(said));
    }
    // Rounded down; nothing a second cannot be said.
    let mut body = Vec::new();
    ControlWriter::new(&mut body, false, 4).set_rate_limit(rate(125_001));
    assert_eq!(parse_control(&body).unwrap().rate_limit, rate(125_000));
    for bad in ["00 01 00 00", "00 31 00 01", "00 ff ff fe"] {
        assert!(parse_control(&hex(bad)).is_err(), "{bad}");
    }
}

#[test]
fn reasons_and_keepalives() {
    let mut body = Vec::new();
    encode_reason("größer", &mut body);
    assert_eq!(body, hex("67 72 c3 b6 c3 9f 65 72"));
    assert_eq!(parse_reason(&body), Ok("größer".to_owned()));
    assert_eq!(parse_reason(&[]), Ok(String::new()));
    for (answer_wanted, subflow_wanted, answers, padding, bytes) in [
        (false, false, 0, 0, "00 00 00 00"),
        (true, false, 0, 0, "01 00 00 00"),
        (false, true, 0, 0, "02 00 00 00"),
        (true, false, 0, 3, "01 00 00 00 00 00 00"),
        (false, false, 1472, 0, "00 00 05 c0"),
    ] {
        let keepalive = Keepalive { answer_wanted, subflow_wanted, answers, padding };
        let mut body = Vec::new();
        encode_keepalive(keepalive, &mut body);
        assert_eq!(body, hex(bytes));
        assert_eq!(parse_keepalive(&body), Ok(keepalive));
        no_prefix_parses(&body[..4], parse_keepalive);
    }
}

// ---- the handshake (§3.2)

#[test]
fn parameters() {
    let bytes = hex("00 10 00 00             ;  0 buffer size
                     00 00 04 a0             ;  4 packet size
                     00 00 00 08             ;  8 burst size
                     00 00 03 e8             ; 12 burst interval
                     00 04 93 e0             ; 16 death timer
                     00 00 00 40             ; 20 outstanding buffers
                     ff*8                    ; 24 transfer size: unknown
                     01                      ; 32 WRITE
                     03                      ; 33 ciphers: both
                     00 06                   ; 34 length of the client string
                     00 00 20 00             ; 36 table bytes
                     6e 65 74 62 6c 74       ; 40 client string: netblt");
    let mut offer = HandshakePayload {
        parameters: Parameters {
            uid: 0xcafe,
            buffer_bytes: 1 << 20,
            transfer_bytes: None,
            packet_bytes: 1184,
            burst: burst(8, 1000),
            death_timer: Duration::from_secs(300),
            checksum: false,
            mode: TransferMode::Write,
            max_outstanding: 64,
            client: "netblt".to_owned(),
        },
        ciphers: 3,
        table_bytes: 8192,
    };
    let check = |bytes: &[u8], offer: &HandshakePayload| {
        let mut payload = Vec::new();
        encode_offer(offer, &mut payload);
        assert_eq!(payload, bytes);
        assert_eq!(parse_offer(0xcafe, bytes).as_ref(), Ok(offer));
        no_prefix_parses(bytes, |bytes| parse_offer(0xcafe, bytes));
        let longer = [bytes, &[0]].concat();
        assert_eq!(parse_offer(0xcafe, &longer), Err(ParseError::Trailing));
    };
    check(&bytes, &offer);
    let known = [&bytes[..24], &hex("00*7 05 00"), &bytes[33..]].concat();
    offer.parameters.transfer_bytes = Some(5);
    offer.parameters.mode = TransferMode::Read;
    check(&known, &offer);
}

#[test]
fn open() {
    let bytes = hex("00 00 0c 00             ;    0 reserved, reserved, version, OPEN
                     00 00 00 00             ;    4 zero
                     11 22 33 44             ;    8 connection id
                     55 66 77 88             ;   12 connection unique ID
                     00*32                   ;   16 no cookie
                     00 60                   ;   48 length of the Noise message
                     0e*96                   ;   50 Noise message 1
                     00*1038                 ;  146 zero
                     aa*16                   ; 1184 MAC");
    let clear = open_clear(0x1122_3344, 0x5566_7788);
    let mut open = build_open(&clear, None, &[0x0e; 96], |parts| {
        assert_eq!(parts, [&bytes[..16], &bytes[48..1184]]);
        [0xaa; 16]
    });
    assert_eq!(open, bytes);
    assert_eq!(bytes.len(), OPEN_BYTES);
    assert_eq!(open_mac(&open), [0xaa; 16]);
    let frame = OpenFrame {
        connection: 0x1122_3344,
        uid: 0x5566_7788,
        key: None,
        cookie: [0; 32],
        noise: &[0x0e; 96],
        mac: [0xaa; 16],
        covered_before: &bytes[..16],
        covered_after: &bytes[48..1184],
    };
    assert_eq!(parse_open(&bytes), Ok(frame));
    assert_eq!(parse_open_of_any_version(&bytes), Ok(frame));
    no_prefix_parses(&bytes, parse_open);
    assert_eq!(parse_open(&[&bytes[..], &[0]].concat()), Err(ParseError::Trailing));
    set_cookie(&mut open, &[0xc0; 32]);
    assert_eq!(open, [&bytes[..16], &[0xc0; 32], &bytes[48..]].concat());
    assert_eq!(parse_open(&open), Ok(OpenFrame { cookie: [0xc0; 32], ..frame }));
}

#[test]
fn open_by_a_key() {
    let bytes = hex("01 00 0c 00             ;    0 by a static key, reserved, version, OPEN
                     00 00 00 00             ;    4 zero
                     11 22 33 44             ;    8 connection id
                     55 66 77 88             ;   12 connection unique ID
                     00*32                   ;   16 no cookie
                     00 60                   ;   48 length of the Noise message
                     1d*8                    ;   50 key id
                     0e*96                   ;   58 Noise message 1
                     00*1030                 ;  154 zero
                     aa*16                   ; 1184 MAC");
    let clear = key_open_clear(0x1122_3344, 0x5566_7788);
    let open = build_open(&clear, Some(KeyId([0x1d; 8])), &[0x0e; 96], |parts| {
        assert_eq!(parts, [&bytes[..16], &bytes[48..1184]]);
        [0xaa; 16]
    });
    assert_eq!(open, bytes);
    let frame = parse_open(&bytes).unwrap();
    assert_eq!((frame.key, frame.noise), (Some(KeyId([0x1d; 8])), &[0x0e; 96][..]));
    no_prefix_parses(&bytes, parse_open);
    let short = shorten_open(&bytes).unwrap();
    assert_eq!(short, [&bytes[..604], &[0xaa; 16]].concat());
}

#[test]
fn response() {
    let bytes = hex("00 00 0c 01             ;  0 reserved, reserved, version, RESPONSE
                     11 22 33 44             ;  4 the active end's id
                     99 aa bb cc             ;  8 the passive end's id
                     55 66 77 88             ; 12 connection unique ID
                     00 70                   ; 16 length of the Noise message
                     0e*112                  ; 18 Noise message 2");
    let clear = response_clear(0x1122_3344, 0x99aa_bbcc, 0x5566_7788);
    assert_eq!(clear[..], bytes[..16]);
    assert_eq!(build_response(&clear, &[0x0e; 112]), bytes);
    let frame = ResponseFrame {
        to: 0x1122_3344,
        connection: 0x99aa_bbcc,
        uid: 0x5566_7788,
        noise: &[0x0e; 112],
    };
    assert_eq!(parse_response(&bytes), Ok(frame));
    no_prefix_parses(&bytes, parse_response);
    assert_eq!(parse_response(&[&bytes[..], &[0]].concat()), Err(ParseError::Trailing));
}

#[test]
fn cookie() {
    let bytes = hex("00 00 0c 0c             ;  0 reserved, reserved, version, COOKIE
                     11 22 33 44             ;  4 the active end's id
                     00 00 00 00             ;  8 zero
                     55 66 77 88             ; 12 connection unique ID
                     c0*32                   ; 16 cookie
                     aa*16                   ; 48 MAC");
    let built = build_cookie(0x1122_3344, 0x5566_7788, &[0xc0; 32], |covered| {
        assert_eq!(covered, &bytes[..48]);
        [0xaa; 16]
    });
    assert_eq!(built, bytes);
    let frame = CookieFrame {
        to: 0x1122_3344,
        uid: 0x5566_7788,
        cookie: [0xc0; 32],
        mac: [0xaa; 16],
        covered: &bytes[..48],
    };
    assert_eq!(parse_cookie(&bytes), Ok(frame));
    no_prefix_parses(&bytes, parse_cookie);
    assert_eq!(parse_cookie(&[&bytes[..], &[0]].concat()), Err(ParseError::Trailing));
}

#[test]
fn refused() {
    let bytes = hex("00 00 0c 0a             ;  0 reserved, reserved, version, REFUSED
                     11 22 33 44             ;  4 the active end's id
                     00 00 00 00             ;  8 zero
                     55 66 77 88             ; 12 connection unique ID
                     00 04                   ; 16 length of the reason
                     62 75 73 79             ; 18 reason: busy
                     aa*16                   ; 22 MAC");
    let built = build_refused(0x1122_3344, 0x5566_7788, false, "busy", |covered| {
        assert_eq!(covered, &bytes[..22]);
        [0xaa; 16]
    });
    assert_eq!(built, bytes);
    let frame = RefusedFrame {
        to: 0x1122_3344,
        uid: 0x5566_7788,
        for_now: false,
        reason: b"busy",
        mac: [0xaa; 16],
        covered: &bytes[..22],
    };
    assert_eq!(parse_refused(&bytes), Ok(frame));
    no_prefix_parses(&bytes, parse_refused);
    assert_eq!(parse_refused(&[&bytes[..], &[0]].concat()), Err(ParseError::Trailing));
    let mut for_now = bytes;
    for_now[11] = 1;
    assert!(parse_refused(&for_now).is_ok_and(|frame| frame.for_now));
}

#[test]
fn unknown() {
    let packet = hex("00 00 0c 09             ;  0 reserved, reserved, version, CONTROL
                      11 22 33 44             ;  4 connection id
                      00 00 00 00 00 00 00 07 ;  8 packet number
                      aa*24                   ; 16 body and tag");
    let unknown = hex("00 00 0c 0d             ;  0 reserved, reserved, version, UNKNOWN
                       00 00 00 00             ;  4 zero
                       11 22 33 44             ;  8 the connection id that is not known
                       00 00 00 00 00 00 00 07 ; 12 the number of the packet that bore it");
    assert_eq!(build_unknown(&packet).unwrap()[..], unknown);
    assert_eq!(parse_unknown(&unknown), Ok((0x1122_3344, PacketNumber(7))));
    no_prefix_parses(&unknown, parse_unknown);
    assert_eq!(parse_unknown(&[&unknown[..], &[0]].concat()), Err(ParseError::Trailing));
}

#[test]
fn challenge_and_answer() {
    let token = [1, 2, 3, 4, 5, 6, 7, 8];
    let mut body = Vec::new();
    encode_token(&token, &mut body);
    assert_eq!((&body[..], parse_token(&body)), (&token[..], Ok(token)));
    no_prefix_parses(&body, parse_token);
    assert_eq!(parse_token(&[0; 9]), Err(ParseError::Trailing));
}

// ---- content (§8.1, §8.2)

#[test]
fn image() {
    let bytes = hex("aa*5                    ;   0 data of file 3
                     bb*2                    ;   5 data of file 4
                     00 00 00 00 00 00 00 03 ;   7 file number
                     00 00 00 00 00 30 00 00 ;  15 offset
                     00 00 00 05             ;  23 length
                     02 00 00 00             ;  27 last, file, reserved
                     d3*32                   ;  31 digest
                     00 00 00 00 00 00 00 04 ;  63 file number
                     00 00 00 00 00 00 00 00 ;  71 offset
                     00 00 00 02             ;  79 length
                     03 00 00 00             ;  83 first and last, file, reserved
                     00 00 01 a4             ;  87 mode 0644
                     ff ff ff ff ff ff ff ff ;  91 seconds
                     00 00 00 07             ;  99 nanoseconds
                     00 03                   ; 103 length of the name
                     61 2f 62                ; 105 name: a/b
                     d4*32                   ; 108 digest
                     00 00 00 00 00 00 00 05 ; 140 file number
                     00 00 00 00 00 00 00 00 ; 148 offset
                     00 00 00 00             ; 156 length
                     01 01 00 00             ; 160 first, directory, reserved
                     00 00 01 ed             ; 164 mode 0755
                     00 00 00 00 00 00 00 01 ; 168 seconds
                     00 00 00 00             ; 176 nanoseconds
                     00 01                   ; 180 length of the name
                     64                      ; 182 name: d
                     00 00 00 b0             ; 183 length of the table");
    let end = Extent {
        file: 3,
        offset: 3 << 20,
        length: 5,
        kind: Content::File,
        pieces: None,
        attributes: None,
        digest: Some([0xd3; 32]),
    };
    let named = |mode, mtime_seconds, mtime_nanos, name: &str| {
        let (name, more) = (name.as_bytes().to_vec(), ExtraAttributes::default());
        Some(Attributes { mode, mtime_seconds, mtime_nanos, name, more })
    };
    let whole = Extent {
        file: 4,
        offset: 0,
        length: 2,
        kind: Content::File,
        pieces: None,
        attributes: named(0o644, -1, 7, "a/b"),
        digest: Some([0xd4; 32]),
    };
    let directory = Extent {
        file: 5,
        offset: 0,
        length: 0,
        kind: Content::Directory,
        pieces: None,
        attributes: named(0o755, 1, 0, "d"),
        digest: None,
    };
    let extents = vec![end, whole, directory];
    let mut built = hex("aa*5 bb*2");
    encode_table(&extents, &mut built).unwrap();
    assert_eq!(built, bytes);
    assert_eq!(parse_image(&bytes, 1 << 20), Ok((&bytes[..7], extents)));
    for len in 0..bytes.len() {
        assert!(parse_image(&bytes[..len], 1 << 20).is_err(), "{len} bytes");
    }
}
