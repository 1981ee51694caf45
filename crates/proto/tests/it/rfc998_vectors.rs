//! RFC 998 packets in hex, checked by hand against the figures of RFC 998 §8, one for every packet
//! type and every control message: encoded they are these bytes, parsed these bytes are they.
//!
//! The checksums were summed apart from the code under test. Tables name offset, bytes and field
//! as the RFC's figures do; a control message's offsets count from where it begins.

use std::time::Duration;

use netblt_proto::units::{BufferNumber, ControlSeq, PacketIndex, PacketNumber};
use netblt_proto::wire::packet::{
    Accepted, Burst, DataHeader, Go, IndexRange, Message, NullAck, Parameters, Resend, TransferMode,
};
use netblt_proto::wire::rfc998::{self, ControlWriter998, Packet998, Ports, parse};

/// The ports of every packet here: 0x0401 is local, 0x0009 foreign.
const PORTS: Ports = Ports { local: 1025, foreign: 9 };

/// The bytes of a string of hexadecimal digits, in groups as it pleases the eye.
fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    assert!(digits.len().is_multiple_of(2));
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Encoded, the packet is `digits`; parsed, `digits` are the packet.
fn check(digits: &str, packet: Packet998<'_>, encode: impl FnOnce(&mut Vec<u8>)) {
    let expected = hex(digits);
    let mut out = Vec::new();
    encode(&mut out);
    assert_eq!(out, expected, "encoding {packet:?}");
    assert_eq!(parse(&expected, true, ControlSeq(0)), Ok((PORTS, packet)));
}

/// The same for a CONTROL packet; sequence numbers are widened from `reference`.
fn check_control(digits: &str, reference: ControlSeq, messages: &[(ControlSeq, Message)]) {
    let expected = hex(digits);
    let mut out = Vec::new();
    let mut writer = ControlWriter998::new(PORTS, 8, expected.len(), &mut out);
    for (seq, message) in messages {
        assert!(writer.push(*seq, message));
    }
    writer.finish();
    assert_eq!(out, expected, "encoding {messages:?}");
    let packet = Packet998::Control(messages.to_vec());
    assert_eq!(parse(&expected, true, reference), Ok((PORTS, packet)));
}

fn burst(packets: u32, millis: u64) -> Burst {
    Burst { packets, interval: Duration::from_millis(millis) }
}

fn data_header(buffer: u64, ack: u32, index: u32) -> DataHeader {
    DataHeader {
        number: PacketNumber(0),
        buffer: BufferNumber(buffer),
        index: PacketIndex(index),
        generation: 0,
        law: 0,
        last_of_buffer: false,
        last_buffer: false,
        ack: ControlSeq(ack),
    }
}

fn go(first: u64) -> Message {
    Message::Go(Go { first: BufferNumber(first), count: 1, packet_bytes: 0, generation: 0 })
}

fn ok(first: u64, offer: Option<Burst>, timer_millis: u64) -> Message {
    let control_timer = Duration::from_millis(timer_millis);
    Message::Ok(Accepted { first: BufferNumber(first), count: 1, offer, control_timer })
}

fn resend(buffer: u64, ranges: &[(u32, u32)]) -> Message {
    let missing = ranges.iter().map(|r| IndexRange { start: r.0, end: r.1 }).collect();
    Message::Resend(Resend { buffer: BufferNumber(buffer), missing })
}

/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | 1a96 | Checksum |
/// | 2 | 02 | Version |
/// | 3 | 00 | Type |
/// | 4 | 002c | Length: 44 |
/// | 6 | 0401 | Local Port |
/// | 8 | 0009 | Foreign Port |
/// | 10 | 0000 | Longword Alignment Padding |
/// | 12 | deadbeef | Connection Unique ID |
/// | 16 | 00020000 | Buffer Size |
/// | 20 | 12345678 | Transfer Size |
/// | 24 | 04b8 | DATA packet size: 1208 |
/// | 26 | 0008 | Burst Size |
/// | 28 | 0028 | Burst Rate: 40 ms |
/// | 30 | 012c | Death Timer Value: 300 s |
/// | 32 | 0003 | Reserved (MBZ), C, M |
/// | 34 | 0002 | Maximum # Outstanding Buffers |
/// | 36 | 66696c65 00000000 | Client String: four letters need four zeros |
#[test]
fn open() {
    let parameters = Parameters {
        uid: 0xdead_beef,
        buffer_bytes: 0x2_0000,
        transfer_bytes: Some(0x1234_5678),
        packet_bytes: 1208,
        burst: burst(8, 40),
        death_timer: Duration::from_secs(300),
        checksum: true,
        mode: TransferMode::Write,
        max_outstanding: 2,
        client: "file".to_owned(),
    };
    let bytes = "1a96 02 00 002c 0401 0009 0000
        deadbeef 00020000 12345678 04b8 0008 0028 012c 0003 0002 66696c65 00000000";
    check(bytes, Packet998::Open(parameters.clone()), |out| {
        rfc998::encode_open(PORTS, &parameters, out);
    });
}

/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | 57bf | Checksum |
/// | 2 | 02 | Version |
/// | 3 | 01 | Type |
/// | 4 | 0028 | Length: 40 |
/// | 6 | 0401 | Local Port |
/// | 8 | 0009 | Foreign Port |
/// | 10 | 0000 | Longword Alignment Padding |
/// | 12 | deadbeef | Connection Unique ID |
/// | 16 | 00010000 | Buffer Size |
/// | 20 | 00000000 | Transfer Size: not known |
/// | 24 | 0400 | DATA packet size: 1024 |
/// | 26 | 0005 | Burst Size |
/// | 28 | 002d | Burst Rate: 45 ms |
/// | 30 | 003c | Death Timer Value: 60 s |
/// | 32 | 0000 | Reserved (MBZ), C, M |
/// | 34 | 0001 | Maximum # Outstanding Buffers |
/// | 36 | 00000000 | Client String: empty |
#[test]
fn response() {
    let parameters = Parameters {
        uid: 0xdead_beef,
        buffer_bytes: 0x1_0000,
        transfer_bytes: None,
        packet_bytes: 1024,
        burst: burst(5, 45),
        death_timer: Duration::from_secs(60),
        checksum: false,
        mode: TransferMode::Read,
        max_outstanding: 1,
        client: String::new(),
    };
    let bytes = "57bf 02 01 0028 0401 0009 0000
        deadbeef 00010000 00000000 0400 0005 002d 003c 0000 0001 00000000";
    check(bytes, Packet998::Response(parameters.clone()), |out| {
        rfc998::encode_response(PORTS, &parameters, out);
    });
}

/// The two flags of OPEN and RESPONSE apart: 0x0002 is C, 0x0001 is M.
#[test]
fn flags_of_opening_packets() {
    for (sum, flags, checksum, mode) in [
        ("57be", "0001", false, TransferMode::Write),
        ("57bd", "0002", true, TransferMode::Read),
        ("57bc", "0003", true, TransferMode::Write),
        // Reserved bits are ignored.
        ("57c2", "fffc", false, TransferMode::Read),
    ] {
        let bytes = hex(&format!(
            "{sum} 02 01 0028 0401 0009 0000 deadbeef 00010000 00000000
            0400 0005 002d 003c {flags} 0001 00000000"
        ));
        let Ok((PORTS, Packet998::Response(parameters))) = parse(&bytes, false, ControlSeq(0))
        else {
            panic!("{flags} did not parse")
        };
        assert_eq!((parameters.checksum, parameters.mode), (checksum, mode), "{flags}");
    }
}

/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | f9e7 | Checksum |
/// | 2 | 02 | Version |
/// | 3 | 02 | Type |
/// | 4 | 000c | Length: 12 |
/// | 6 | 0401 | Local Port |
/// | 8 | 0009 | Foreign Port |
/// | 10 | 0000 | Longword Alignment Padding |
#[test]
fn keepalive() {
    check("f9e7 02 02 000c 0401 0009 0000", Packet998::Keepalive, |out| {
        rfc998::encode_keepalive(PORTS, out);
    });
}

/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | 2033 | Checksum |
/// | 2 | 02 | Version |
/// | 3 | 03 | Type |
/// | 4 | 0018 | Length: 24 |
/// | 6 | 0401 | Local Port |
/// | 8 | 0009 | Foreign Port |
/// | 10 | 0000 | Longword Alignment Padding |
/// | 12 | 6469736b 2066756c 6c000000 | Reason: "disk full", three zeros |
#[test]
fn quit() {
    let bytes = "2033 02 03 0018 0401 0009 0000 6469736b 2066756c 6c000000";
    check(bytes, Packet998::Quit("disk full".to_owned()), |out| {
        rfc998::encode_quit(PORTS, "disk full", out);
    });
}

/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | f9e5 | Checksum |
/// | 2 | 02 | Version |
/// | 3 | 04 | Type |
/// | 4 | 000c | Length: 12 |
/// | 6 | 0401 | Local Port |
/// | 8 | 0009 | Foreign Port |
/// | 10 | 0000 | Longword Alignment Padding |
#[test]
fn quit_ack() {
    check("f9e5 02 04 000c 0401 0009 0000", Packet998::QuitAck, |out| {
        rfc998::encode_quit_ack(PORTS, out);
    });
}

/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | 59f1 | Checksum |
/// | 2 | 02 | Version |
/// | 3 | 05 | Type |
/// | 4 | 0014 | Length: 20 |
/// | 6 | 0401 | Local Port |
/// | 8 | 0009 | Foreign Port |
/// | 10 | 0000 | Longword Alignment Padding |
/// | 12 | 62616420 75696400 | Reason: "bad uid", one zero |
#[test]
fn abort() {
    let bytes = "59f1 02 05 0014 0401 0009 0000 62616420 75696400";
    check(bytes, Packet998::Abort("bad uid".to_owned()), |out| {
        rfc998::encode_abort(PORTS, "bad uid", out);
    });
}

/// Without C: the data checksum is sent as zero, and not looked at.
///
/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | e9bb | Checksum, of the 24 bytes of header |
/// | 2 | 02 | Version |
/// | 3 | 06 | Type |
/// | 4 | 0020 | Length: 32 |
/// | 6 | 0401 | Local Port |
/// | 8 | 0009 | Foreign Port |
/// | 10 | 0000 | Longword Alignment Padding |
/// | 12 | 01020304 | Buffer Number |
/// | 16 | 0506 | High Consecutive Seq Num Rcvd |
/// | 18 | 0708 | Packet Number |
/// | 20 | 0000 | Data Area Checksum Value |
/// | 22 | 0000 | Reserved (MBZ), L |
/// | 24 | 10111213 14151617 | data |
#[test]
fn data_without_checksum() {
    let header = data_header(0x0102_0304, 0x0506, 0x0708);
    let data = hex("10111213 14151617");
    let bytes = hex("e9bb 02 06 0020 0401 0009 0000 01020304 0506 0708 0000 0000
        10111213 14151617");
    let mut out = Vec::new();
    rfc998::encode_data(PORTS, &header, &data, false, &mut out);
    assert_eq!(out, bytes);
    let expected = Packet998::Data { header, data: &data };
    assert_eq!(parse(&bytes, false, ControlSeq(0)), Ok((PORTS, expected)));
    assert_eq!(parse(&bytes, true, ControlSeq(0)), Err(rfc998::ParseError998::DataChecksum));
}

/// With C, and an odd number of bytes: the pad is summed but not sent.
///
/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | 79c8 | Checksum, of the 24 bytes of header |
/// | 2 | 02 | Version |
/// | 3 | 06 | Type |
/// | 4 | 001d | Length: 29 |
/// | 6 | 0401 | Local Port |
/// | 8 | 0009 | Foreign Port |
/// | 10 | 0000 | Longword Alignment Padding |
/// | 12 | 00000003 | Buffer Number |
/// | 16 | 0007 | High Consecutive Seq Num Rcvd |
/// | 18 | 0002 | Packet Number |
/// | 20 | 7ffe | Data Area Checksum Value |
/// | 22 | 0000 | Reserved (MBZ), L |
/// | 24 | ffff0001 80 | data |
#[test]
fn data_with_checksum() {
    let header = data_header(3, 7, 2);
    let data = hex("ffff0001 80");
    let bytes = "79c8 02 06 001d 0401 0009 0000 00000003 0007 0002 7ffe 0000 ffff0001 80";
    check(bytes, Packet998::Data { header, data: &data }, |out| {
        rfc998::encode_data(PORTS, &header, &data, true, out);
    });
}

/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | 3da1 | Checksum, of the 24 bytes of header |
/// | 2 | 02 | Version |
/// | 3 | 07 | Type |
/// | 4 | 001d | Length: 29 |
/// | 6 | 0401 | Local Port |
/// | 8 | 0009 | Foreign Port |
/// | 10 | 0000 | Longword Alignment Padding |
/// | 12 | 00000001 | Buffer Number |
/// | 16 | 0001 | High Consecutive Seq Num Rcvd |
/// | 18 | 0000 | Packet Number |
/// | 20 | bc2d | Data Area Checksum Value |
/// | 22 | 0001 | Reserved (MBZ), L |
/// | 24 | 68656c6c 6f | data: "hello" |
#[test]
fn ldata() {
    let header = DataHeader { last_of_buffer: true, last_buffer: true, ..data_header(1, 1, 0) };
    let bytes = "3da1 02 07 001d 0401 0009 0000 00000001 0001 0000 bc2d 0001 68656c6c 6f";
    check(bytes, Packet998::Data { header, data: b"hello" }, |out| {
        rfc998::encode_data(PORTS, &header, b"hello", true, out);
    });
}

/// An empty transfer (`docs/protocol §2.1`): the checksum of no data is ffff.
///
/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | f9d4 | Checksum |
/// | 2 | 02 | Version |
/// | 3 | 07 | Type |
/// | 4 | 0018 | Length: 24 |
/// | 6 | 0401 | Local Port |
/// | 8 | 0009 | Foreign Port |
/// | 10 | 0000 | Longword Alignment Padding |
/// | 12 | 00000001 | Buffer Number |
/// | 16 | 0000 | High Consecutive Seq Num Rcvd |
/// | 18 | 0000 | Packet Number |
/// | 20 | ffff | Data Area Checksum Value |
/// | 22 | 0001 | Reserved (MBZ), L |
#[test]
fn ldata_of_an_empty_transfer() {
    let header = DataHeader { last_of_buffer: true, last_buffer: true, ..data_header(1, 0, 0) };
    let bytes = "f9d4 02 07 0018 0401 0009 0000 00000001 0000 0000 ffff 0001";
    check(bytes, Packet998::Data { header, data: &[] }, |out| {
        rfc998::encode_data(PORTS, &header, &[], true, out);
    });
}

/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | e76d | Checksum |
/// | 2 | 02 | Version |
/// | 3 | 08 | Type |
/// | 4 | 0014 | Length: 20 |
/// | 6 | 0401 | Local Port |
/// | 8 | 0009 | Foreign Port |
/// | 10 | 0000 | Longword Alignment Padding |
/// | 12 | 1234 | High Consecutive Seq Num Rcvd |
/// | 14 | 0006 | New Burst Size |
/// | 16 | 0032 | New Burst Rate: 50 ms |
/// | 18 | 0000 | Longword Alignment Padding |
#[test]
fn null_ack() {
    let null_ack = NullAck {
        number: PacketNumber(0),
        ack: ControlSeq(0x1234),
        burst: burst(6, 50),
        sent_through: None,
        end: None,
        packet_bytes: 0,
        limit: 0,
        back_millis: 0,
        paused: false,
    };
    let bytes = "e76d 02 08 0014 0401 0009 0000 1234 0006 0032 0000";
    check(bytes, Packet998::NullAck(null_ack), |out| {
        rfc998::encode_null_ack(PORTS, &null_ack, out);
    });
}

/// The packet:
///
/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | f9d6 | Checksum |
/// | 2 | 02 | Version |
/// | 3 | 09 | Type |
/// | 4 | 0014 | Length: 20 |
/// | 6 | 0401 | Local Port |
/// | 8 | 0009 | Foreign Port |
/// | 10 | 0000 | Longword Alignment Padding |
///
/// The message:
///
/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | 00 | Type: GO |
/// | 1 | 00 | Word Padding |
/// | 2 | 0001 | Sequence Number |
/// | 4 | 00000001 | Buffer Number |
#[test]
fn control_go() {
    let bytes = "f9d6 02 09 0014 0401 0009 0000 00 00 0001 00000001";
    check_control(bytes, ControlSeq(0), &[(ControlSeq(1), go(1))]);
}

/// The message, in a packet of 28 bytes:
///
/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | 01 | Type: OK |
/// | 1 | 00 | Word Padding |
/// | 2 | 0002 | Sequence Number |
/// | 4 | 00000001 | Buffer Number |
/// | 8 | 000a | New Offered Burst Size |
/// | 10 | 0014 | New Offered Burst Rate: 20 ms |
/// | 12 | 015e | Current control timer value: 350 ms |
/// | 14 | 0000 | Longword Alignment Padding |
#[test]
fn control_ok() {
    let bytes = "f751 02 09 001c 0401 0009 0000 01 00 0002 00000001 000a 0014 015e 0000";
    let message = ok(1, Some(burst(10, 20)), 350);
    check_control(bytes, ControlSeq(0), &[(ControlSeq(2), message)]);
}

/// An OK without an offer: both of its fields are zero.
#[test]
fn control_ok_without_offer() {
    let bytes = "f76d 02 09 001c 0401 0009 0000 01 00 0003 00000002 0000 0000 015e 0000";
    check_control(bytes, ControlSeq(0), &[(ControlSeq(3), ok(2, None, 350))]);
}

/// The message, in a packet of 32 bytes:
///
/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | 02 | Type: RESEND |
/// | 1 | 00 | Word Padding |
/// | 2 | 0004 | Sequence Number |
/// | 4 | 00000003 | Buffer Number |
/// | 8 | 0003 | Number of Missing Packets |
/// | 10 | 0000 | Longword Alignment Padding |
/// | 12 | 0000 0005 0006 | Packet Numbers |
/// | 18 | 0000 | Padding (if necessary): it is |
#[test]
fn control_resend() {
    let bytes = "f7b7 02 09 0020 0401 0009 0000
        02 00 0004 00000003 0003 0000 0000 0005 0006 0000";
    let message = resend(3, &[(0, 1), (5, 7)]);
    check_control(bytes, ControlSeq(0), &[(ControlSeq(4), message)]);
}

/// An even number of packet numbers: nothing to pad.
#[test]
fn control_resend_of_an_even_number() {
    let bytes = "f7b5 02 09 001c 0401 0009 0000 02 00 0005 00000004 0002 0000 0007 0009";
    let message = resend(4, &[(7, 8), (9, 10)]);
    check_control(bytes, ControlSeq(0), &[(ControlSeq(5), message)]);
}

/// Where the last packet is not known, every number that a full buffer of eight packets could
/// have is named (`docs/protocol §2.1`).
#[test]
fn control_resend_to_the_end_of_the_buffer() {
    let bytes = hex("f7b9 02 09 001c 0401 0009 0000 02 00 0006 00000002 0002 0000 0006 0007");
    let mut out = Vec::new();
    let mut writer = ControlWriter998::new(PORTS, 8, 1200, &mut out);
    assert!(writer.push(ControlSeq(6), &resend(2, &[(6, u32::MAX)])));
    writer.finish();
    assert_eq!(out, bytes);
    let expected = Packet998::Control(vec![(ControlSeq(6), resend(2, &[(6, 8)]))]);
    assert_eq!(parse(&bytes, true, ControlSeq(0)), Ok((PORTS, expected)));
}

/// Messages back to back, where the sequence numbers of the wire wrap (ffff, 0000, 0001).
///
/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 4 | 0034 | Length: 52 |
/// | 12 | 01 00 ffff 00000007 0005 002d 00c8 0000 | OK for buffer 7: 5 packets, 45 ms, 200 ms |
/// | 28 | 00 00 0000 00000009 | GO for buffer 9 |
/// | 36 | 02 00 0001 00000008 0001 0000 0003 0000 | RESEND of packet 3 of buffer 8 |
#[test]
fn control_of_three_messages() {
    let bytes = "f5a1 02 09 0034 0401 0009 0000
        01 00 ffff 00000007 0005 002d 00c8 0000
        00 00 0000 00000009
        02 00 0001 00000008 0001 0000 0003 0000";
    let messages = [
        (ControlSeq(0x1_ffff), ok(7, Some(burst(5, 45)), 200)),
        (ControlSeq(0x2_0000), go(9)),
        (ControlSeq(0x2_0001), resend(8, &[(3, 4)])),
    ];
    check_control(bytes, ControlSeq(0x1_fff0), &messages);
}

/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | 8b6c | Checksum |
/// | 2 | 02 | Version |
/// | 3 | 0a | Type |
/// | 4 | 0010 | Length: 16 |
/// | 6 | 0401 | Local Port |
/// | 8 | 0009 | Foreign Port |
/// | 10 | 0000 | Longword Alignment Padding |
/// | 12 | 6e6f0000 | Reason: "no", two zeros |
#[test]
fn refused() {
    let bytes = "8b6c 02 0a 0010 0401 0009 0000 6e6f0000";
    check(bytes, Packet998::Refused("no".to_owned()), |out| {
        rfc998::encode_refused(PORTS, "no", out);
    });
}

/// | offset | bytes | field |
/// | --- | --- | --- |
/// | 0 | f9de | Checksum |
/// | 2 | 02 | Version |
/// | 3 | 0b | Type |
/// | 4 | 000c | Length: 12 |
/// | 6 | 0401 | Local Port |
/// | 8 | 0009 | Foreign Port |
/// | 10 | 0000 | Longword Alignment Padding |
#[test]
fn done() {
    check("f9de 02 0b 000c 0401 0009 0000", Packet998::Done, |out| {
        rfc998::encode_done(PORTS, out);
    });
}
