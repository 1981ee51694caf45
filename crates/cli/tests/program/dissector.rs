//! The Wireshark dissector, watched by `tshark` on captures made here: packets of the real codecs,
//! in a file written by hand. Without `tshark` these tests say that they were skipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use netblt_proto::config::PublicKey;
use netblt_proto::crypto::TAG_BYTES;
use netblt_proto::crypto::static_pairing::KeyId;
use netblt_proto::units::{BufferNumber, ControlSeq, PacketIndex, PacketNumber};
use netblt_proto::wire::packet::{
    Accepted, Burst, DataHeader, Go, IndexRange, Message, NullAck, Parameters, RepairHeader,
    Resend, TransferMode,
};
use netblt_proto::wire::rfc998::{self, Ports};
use netblt_proto::wire::sealed::{self, Header, PacketType};
use serde_json::Value;
use tempfile::TempDir;

use crate::testenv::skip;

const PORTS: Ports = Ports { local: 4000, foreign: 5000 };
/// IP protocols.
const NETBLT: u8 = 30;
const UDP: u8 = 17;
/// Packets are IP packets and nothing around them (LINKTYPE_RAW).
const RAW_IP: u32 = 101;

/// Whether there is a `tshark`; says so if not.
fn has_tshark() -> bool {
    let found = Command::new("tshark").arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        skip("no `tshark`");
    }
    found
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wireshark/netblt.lua")
}

/// A capture in the making.
struct Capture(Vec<u8>);

impl Capture {
    fn new() -> Self {
        let mut file = Vec::new();
        // Magic of microsecond times, version 2.4, time zone and accuracy, longest packet, link.
        for word in [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65_535, RAW_IP] {
            file.extend_from_slice(&u32::to_le_bytes(word));
        }
        Self(file)
    }

    /// An IPv4 packet from 192.0.2.1 to 192.0.2.2, of which only `kept` bytes were captured.
    fn ip(&mut self, protocol: u8, payload: &[u8], kept: usize) {
        let length = (20 + payload.len()) as u16;
        let mut packet = vec![0x45, 0];
        packet.extend_from_slice(&length.to_be_bytes());
        packet.extend_from_slice(&[0, 0, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        packet.extend_from_slice(payload);
        let kept = kept.min(packet.len());
        for word in [0, 0, kept as u32, packet.len() as u32] {
            self.0.extend_from_slice(&word.to_le_bytes());
        }
        self.0.extend_from_slice(&packet[..kept]);
    }

    fn udp(&mut self, ports: (u16, u16), datagram: &[u8]) {
        self.udp_cut(ports, datagram, usize::MAX);
    }

    fn udp_cut(&mut self, ports: (u16, u16), datagram: &[u8], kept: usize) {
        let mut payload = Vec::new();
        for field in [ports.0, ports.1, (8 + datagram.len()) as u16, 0] {
            payload.extend_from_slice(&field.to_be_bytes());
        }
        payload.extend_from_slice(datagram);
        self.ip(UDP, &payload, kept);
    }

    /// What `tshark` makes of it: the fields of each packet's NETBLT tree, or null if it has none.
    fn dissected(&self, options: &[&str]) -> Vec<Value> {
        let (layers, _) = self.tshark(options);
        layers.into_iter().map(|mut layers| layers["netblt"].take()).collect()
    }

    /// All layers of each packet, and its line of the list.
    fn tshark(&self, options: &[&str]) -> (Vec<Value>, Vec<String>) {
        let directory = TempDir::new().expect("a temporary directory");
        let file = directory.path().join("netblt.pcap");
        std::fs::write(&file, &self.0).expect("a file");
        let run = |format: &[&str]| {
            let mut command = Command::new("tshark");
            // No user's settings or plugins.
            command.env("HOME", directory.path()).env("XDG_CONFIG_HOME", directory.path());
            command.arg("-X").arg(format!("lua_script:{}", script().display()));
            command.arg("-n").arg("-r").arg(&file).args(options).args(format);
            let output = command.output().expect("tshark runs");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{errors}");
            assert!(!errors.to_lowercase().contains("lua"), "{errors}");
            // Old versions of tshark let bytes through that are not UTF-8.
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let json = run(&["-T", "json", "--no-duplicate-keys"]);
        let failed = json.lines().find(|line| line.contains("Lua Error"));
        assert_eq!(failed, None, "the script fails");
        let packets: Vec<Value> = serde_json::from_str(&json).expect("JSON");
        let layers = packets.into_iter().map(|mut p| p["_source"]["layers"].take()).collect();
        let lines = run(&["-T", "fields", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info"]);
        (layers, lines.lines().map(str::to_owned).collect())
    }
}

/// All values of the field `name` in a tree, in their order.
fn values(tree: &Value, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    match tree {
        Value::Object(members) => {
            for (key, value) in members {
                match value {
                    Value::String(text) if key == name => found.push(text.clone()),
                    Value::Array(list) if key == name => {
                        let texts = list.iter().filter_map(Value::as_str).map(str::to_owned);
                        found.extend(texts);
                    }
                    other => found.extend(values(other, name)),
                }
            }
        }
        Value::Array(list) => found.extend(list.iter().flat_map(|item| values(item, name))),
        _ => {}
    }
    found
}

#[track_caller]
fn expect(tree: &Value, fields: &[(&str, &str)]) {
    for (name, expected) in fields {
        let found = values(tree, &format!("netblt.{name}")).join(" ");
        assert_eq!(&found, expected, "netblt.{name} in {tree:#}");
    }
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut packet = Vec::new();
    encode(&mut packet);
    packet
}

fn parameters() -> Parameters {
    Parameters {
        uid: 0x1234_5678,
        buffer_bytes: 14_320,
        transfer_bytes: Some(716_000),
        packet_bytes: 1432,
        burst: Burst { packets: 5, interval: Duration::from_millis(55) },
        death_timer: Duration::from_secs(300),
        checksum: true,
        mode: TransferMode::Write,
        max_outstanding: 22,
        client: "over the Wideband".to_owned(),
    }
}

fn data_header(last_of_buffer: bool) -> DataHeader {
    DataHeader {
        number: PacketNumber((3 << 22) + 17),
        buffer: BufferNumber(7),
        index: PacketIndex(9),
        generation: 2,
        law: 0,
        last_of_buffer,
        last_buffer: last_of_buffer,
        ack: ControlSeq(41),
    }
}

fn messages() -> [(ControlSeq, Message); 3] {
    let go = Go { first: BufferNumber(8), count: 1, packet_bytes: 0, generation: 0 };
    let ok = Accepted {
        first: BufferNumber(6),
        count: 1,
        offer: Some(Burst { packets: 4, interval: Duration::from_millis(60) }),
        control_timer: Duration::from_millis(1900),
    };
    let missing = [(2, 4), (9, 10)].map(|(start, end)| IndexRange { start, end });
    let resend = Resend { buffer: BufferNumber(7), missing: missing.to_vec() };
    let messages = [Message::Ok(ok), Message::Go(go), Message::Resend(resend)];
    let mut seq = 39;
    messages.map(|message| {
        seq += 1;
        (ControlSeq(seq), message)
    })
}

fn control() -> Vec<u8> {
    encoded(|out| {
        let mut writer = rfc998::ControlWriter998::new(PORTS, 10, 500, out);
        for (seq, message) in &messages() {
            assert!(writer.push(*seq, message));
        }
        writer.finish();
    })
}

fn sealed_repair() -> Vec<u8> {
    let header = RepairHeader {
        number: PacketNumber(5),
        buffer: BufferNumber(7),
        index: 1,
        generation: 2,
        image_bytes: 3,
    };
    let mut packet = sealed::encode_repair_header(0xa1b2_c3d4, &header).to_vec();
    packet.resize(packet.len() + 3, 0xee);
    packet.resize(packet.len() + TAG_BYTES, 0xdd);
    packet
}

/// One of every type, in the order of the types.
fn rfc998_packets() -> Vec<Vec<u8>> {
    let null_ack = NullAck {
        number: PacketNumber(0),
        ack: ControlSeq(41),
        burst: parameters().burst,
        sent_through: None,
        end: None,
        packet_bytes: 0,
        limit: 0,
        back_millis: 0,
        paused: false,
    };
    vec![
        encoded(|out| rfc998::encode_open(PORTS, &parameters(), out)),
        encoded(|out| rfc998::encode_response(PORTS.swapped(), &parameters(), out)),
        encoded(|out| rfc998::encode_keepalive(PORTS, out)),
        encoded(|out| rfc998::encode_quit(PORTS, "enough", out)),
        encoded(|out| rfc998::encode_quit_ack(PORTS, out)),
        encoded(|out| rfc998::encode_abort(PORTS, "broken", out)),
        encoded(|out| rfc998::encode_data(PORTS, &data_header(false), b"abc", true, out)),
        encoded(|out| rfc998::encode_data(PORTS, &data_header(true), b"abcd", false, out)),
        encoded(|out| rfc998::encode_null_ack(PORTS, &null_ack, out)),
        control(),
        encoded(|out| rfc998::encode_refused(PORTS, "no room", out)),
        encoded(|out| rfc998::encode_done(PORTS, out)),
    ]
}

/// What must be seen of them, wherever they travel.
fn check_rfc998(trees: &[Value]) {
    assert_eq!(trees.len(), 12);
    for (kind, tree) in trees.iter().enumerate() {
        let kind = kind.to_string();
        expect(tree, &[("wire", "rfc998"), ("version", "2"), ("type", &kind)]);
        expect(tree, &[("checksum.good", "1"), ("truncated", ""), ("unknown", "")]);
    }
    expect(&trees[1], &[("local_port", "5000"), ("foreign_port", "4000")]);
    for opening in &trees[..2] {
        expect(
            opening,
            &[
                ("uid", "0x12345678"),
                ("buffer_size", "14320"),
                ("transfer_size", "716000"),
                ("packet_size", "1432"),
                ("burst_size", "5"),
                ("burst_interval", "55"),
                ("death_timer", "300"),
                ("flags", "0x0003"),
                ("flags.write", "1"),
                ("flags.checksum", "1"),
                ("max_outstanding", "22"),
                ("client", "over the Wideband"),
            ],
        );
    }
    for (kind, reason) in [(3, "enough"), (5, "broken"), (10, "no room")] {
        expect(&trees[kind], &[("reason", reason), ("local_port", "4000")]);
    }
    let place = [("buffer", "7"), ("index", "9"), ("ack", "41")];
    expect(&trees[6], &place);
    expect(&trees[6], &[("data", "61:62:63"), ("data.length", "3"), ("flags.last", "0")]);
    expect(&trees[6], &[("data_checksum.good", "1"), ("length", "27")]);
    expect(&trees[7], &place);
    expect(
        &trees[7],
        &[("data", "61:62:63:64"), ("data_checksum", "0x0000"), ("data_checksum.good", "")],
    );
    expect(&trees[7], &[("flags.last", "1")]);
    expect(&trees[8], &[("ack", "41"), ("burst_size", "5"), ("burst_interval", "55")]);
    expect(
        &trees[9],
        &[
            ("message", "1 0 2"),
            ("message.sequence", "40 41 42"),
            ("buffer", "6 8 7"),
            ("burst_size", "4"),
            ("burst_interval", "60"),
            ("control_timer", "1900"),
            ("resend.count", "3"),
            ("resend.index", "2 3 9"),
        ],
    );
}

#[test]
fn rfc998_over_udp_is_recognised_by_its_content() {
    if !has_tshark() {
        return;
    }
    let mut capture = Capture::new();
    for packet in rfc998_packets() {
        capture.udp((4000, 5000), &packet);
    }
    check_rfc998(&capture.dissected(&[]));
    let (_, lines) = capture.tshark(&[]);
    for (line, says) in [
        (0, "OPEN 14320-byte buffers, 1432-byte packets, 5 packets every 55 ms"),
        (3, "QUIT enough"),
        (4, "QUITACK"),
        (6, "DATA buffer 7 packet 9 ack 41, 3 bytes"),
        (7, "LDATA buffer 7 packet 9 ack 41, 4 bytes, last buffer"),
        (8, "NULL-ACK ack 41, 5 packets every 55 ms"),
        (9, "CONTROL OK(6) GO(8) RESEND(7: 3 packets)"),
    ] {
        assert_eq!(lines[line], format!("NETBLT\t{says}"));
    }
}

#[test]
fn rfc998_is_known_by_its_ip_protocol() {
    if !has_tshark() {
        return;
    }
    let mut capture = Capture::new();
    for packet in rfc998_packets() {
        capture.ip(NETBLT, &packet, usize::MAX);
    }
    check_rfc998(&capture.dissected(&[]));
}

/// A body as long as the one that is meant, and a tag; its content cannot be seen.
fn sealed_packet(kind: PacketType, body: usize) -> Vec<u8> {
    let header = Header { kind, generation: 0, connection: 0xa1b2_c3d4, number: PacketNumber(5) };
    let mut packet = sealed::encode_header(&header).to_vec();
    packet.resize(packet.len() + body, 0xee);
    packet.resize(packet.len() + TAG_BYTES, 0xdd);
    packet
}

fn sealed_data(last: bool) -> Vec<u8> {
    let mut packet = sealed::encode_data_header(0xa1b2_c3d4, &data_header(last)).to_vec();
    packet.extend_from_slice(&[0xee; 3]);
    packet.extend_from_slice(&[0xdd; TAG_BYTES]);
    packet
}

/// One of every type, in the order of the types.
fn sealed_packets() -> Vec<Vec<u8>> {
    let clear = sealed::open_clear(0xa1b2_c3d4, 0x0102_0304);
    let response = sealed::response_clear(0xa1b2_c3d4, 0x0000_0009, 0x0102_0304);
    let mut open = sealed::build_open(&clear, None, &[0xcc; 100], |_| [0xdd; 16]);
    sealed::set_cookie(&mut open, &[0xaa; 32]);
    let unknown = sealed::build_unknown(&sealed_packet(PacketType::Control, 60));
    vec![
        open,
        sealed::build_response(&response, &[0xcc; 120]),
        sealed_packet(PacketType::Keepalive, 4),
        sealed_packet(PacketType::Quit, 6),
        sealed_packet(PacketType::QuitAck, 0),
        sealed_packet(PacketType::Abort, 6),
        sealed_data(false),
        sealed_data(true),
        sealed_packet(PacketType::NullAck, 24),
        sealed_packet(PacketType::Control, 60),
        sealed::build_refused(0xa1b2_c3d4, 0x0102_0304, false, "busy", |_| [0; 16]),
        sealed_packet(PacketType::Done, 0),
        sealed::build_cookie(0xa1b2_c3d4, 0x0102_0304, &[0xaa; 32], |_| [0xdd; 16]),
        unknown.expect("a packet of some length").to_vec(),
        sealed_packet(PacketType::Challenge, 8),
        sealed_packet(PacketType::Answer, 8),
        sealed_repair(),
        sealed::build_who([0xbb; 12]).to_vec(),
        sealed::build_key([0xbb; 12], &PublicKey([0xee; 32])).to_vec(),
        sealed_packet(PacketType::Branch, 60),
    ]
}

#[test]
fn sealed_headers_are_shown_and_bodies_are_not() {
    if !has_tshark() {
        return;
    }
    let mut capture = Capture::new();
    for packet in sealed_packets() {
        capture.udp((4000, 5000), &packet);
    }
    let trees = capture.dissected(&[]);
    assert_eq!(trees.len(), 20);
    let bytes = |byte: &str, count: usize| vec![byte; count].join(":");
    let (tag, cookie) = (bytes("dd", 16), bytes("aa", 32));
    for (kind, tree) in trees.iter().enumerate() {
        let kind = kind.to_string();
        expect(tree, &[("wire", "sealed"), ("version", "12"), ("type", &kind), ("truncated", "")]);
    }
    for handshake in [0, 1, 10, 12] {
        expect(&trees[handshake], &[("uid", "0x01020304"), ("encrypted", ""), ("number", "")]);
    }
    let (noise, padding) = (bytes("cc", 100), bytes("00", 1184 - 150));
    expect(&trees[0], &[("connection", "0x00000000"), ("connection.chosen", "0xa1b2c3d4")]);
    expect(&trees[0], &[("cookie", &cookie), ("noise.length", "100"), ("noise", &noise)]);
    expect(&trees[0], &[("padding", &padding), ("mac", &tag)]);
    expect(&trees[1], &[("connection", "0xa1b2c3d4"), ("connection.chosen", "0x00000009")]);
    expect(&trees[1], &[("noise.length", "120"), ("noise", &bytes("cc", 120))]);
    expect(&trees[10], &[("reason", "busy"), ("hint", "1"), ("mac", &bytes("00", 16))]);
    expect(&trees[12], &[("cookie", &cookie), ("mac", &tag), ("connection", "0xa1b2c3d4")]);
    for (kind, body) in
        [(2, 4), (3, 6), (4, 0), (5, 6), (8, 24), (9, 60), (11, 0), (14, 8), (15, 8), (19, 60)]
    {
        let (length, encrypted) = (body.to_string(), bytes("ee", body));
        expect(&trees[kind], &[("connection", "0xa1b2c3d4"), ("number", "5"), ("epoch", "0")]);
        expect(&trees[kind], &[("encrypted.length", &length), ("encrypted", &encrypted)]);
        expect(&trees[kind], &[("tag", &tag)]);
    }
    expect(&trees[13], &[("connection", "0xa1b2c3d4"), ("number", "5"), ("encrypted", "")]);
    for data in &trees[6..8] {
        expect(data, &[("generation", "2"), ("number", "12582929"), ("epoch", "3")]);
        expect(data, &[("buffer", "7"), ("index", "9"), ("ack", "41")]);
        expect(data, &[("encrypted", "ee:ee:ee"), ("tag", &tag), ("data", "")]);
    }
    for (kind, key) in [(17, String::new()), (18, bytes("ee", 32))] {
        expect(&trees[kind], &[("nonce", &bytes("bb", 12)), ("public_key", &key)]);
    }
    let (_, lines) = capture.tshark(&[]);
    for (line, says) in [
        (0, "OPEN uid 0x01020304, with a cookie"),
        (6, "DATA number 12582929 buffer 7 packet 9 ack 41, 3 bytes encrypted"),
        (9, "CONTROL number 5, 60 bytes encrypted"),
        (10, "REFUSED uid 0x01020304 (hint): busy"),
    ] {
        assert_eq!(lines[line], format!("NETBLT\t{says}"));
    }
}

#[test]
fn an_open_by_a_static_key_shows_which() {
    if !has_tshark() {
        return;
    }
    let clear = sealed::key_open_clear(0xa1b2_c3d4, 0x0102_0304);
    let open = sealed::build_open(&clear, Some(KeyId([0xab; 8])), &[0xcc; 100], |_| [0xdd; 16]);
    let mut capture = Capture::new();
    capture.udp((4000, 5000), &open);
    capture.udp((4001, 5001), &sealed::shorten_open(&open).expect("it is not long"));
    let bytes = |byte: &str, count: usize| vec![byte; count].join(":");
    for tree in capture.dissected(&[]) {
        expect(&tree, &[("means", "1"), ("key_id", &bytes("ab", 8)), ("mac", &bytes("dd", 16))]);
        expect(&tree, &[("noise.length", "100"), ("noise", &bytes("cc", 100))]);
    }
}

#[test]
fn foreign_packets_are_left_to_other_dissectors_and_damaged_ones_are_marked() {
    if !has_tshark() {
        return;
    }
    let mut damaged = rfc998_packets().swap_remove(6);
    damaged[26] ^= 1;
    let mut wrong = rfc998_packets().swap_remove(2);
    wrong[6] ^= 1;
    let mut capture = Capture::new();
    // Each between ports of its own: one that is recognised speaks for its conversation.
    capture.udp((40001, 5000), b"just some words, none of them NETBLT's");
    capture.udp((40002, 5000), &[0, 0, 2]);
    capture.udp((40003, 5000), &[0; 40]);
    capture.udp((40004, 5000), &wrong);
    capture.udp((40005, 5000), &sealed_packets()[0][..1199]);
    capture.udp((40006, 5000), &damaged);
    capture.udp_cut((40007, 5000), &sealed_packets()[9], 28 + 40);
    capture.udp_cut((40008, 5000), &rfc998_packets()[7], 28 + 26);
    let trees = capture.dissected(&[]);
    for tree in &trees[..5] {
        assert!(tree.is_null(), "{tree:#}");
    }
    expect(&trees[5], &[("checksum.good", "1"), ("data_checksum.good", "0")]);
    expect(&trees[6], &[("wire", "sealed"), ("encrypted.length", "60")]);
    assert_eq!(values(&trees[6], "netblt.encrypted"), [vec!["ee"; 24].join(":")]);
    expect(&trees[7], &[("data", "61:62"), ("data.length", "4"), ("data_checksum.good", "")]);
    // A user who decodes it as NETBLT gets it dissected, with its faults marked.
    let forced = capture.dissected(&["-d", "udp.port==40004,netblt"]);
    expect(&forced[3], &[("type", "2"), ("checksum.good", "0")]);
}

/// A range beyond the captured bytes is an error in Lua: only the functions of one section, which
/// compare with the captured length, call `range`. This one needs no `tshark`.
#[test]
fn ranges_are_taken_in_one_section_alone() {
    let text = std::fs::read_to_string(script()).expect("the script");
    let (before, rest) = text.split_once("---- Reading ---").expect("the section");
    let (_, after) = rest.split_once("\n---- ").expect("a next section");
    for part in [before, after] {
        assert_eq!(part.lines().find(|line| line.contains(":range(")), None);
    }
}

/// Every packet, as every way to recognise it sees it.
fn in_every_way(capture: &mut Capture, packet: &[u8], kept: usize) {
    capture.ip(NETBLT, packet, 20 + kept);
    capture.udp_cut((4000, 5000), packet, 28 + kept);
    // By its content alone.
    capture.udp_cut((4001, 5001), packet, 28 + kept);
}

fn all_packets() -> Vec<Vec<u8>> {
    let mut packets = rfc998_packets();
    packets.extend(sealed_packets());
    let clear = sealed::key_open_clear(0xa1b2_c3d4, 0x0102_0304);
    let open = sealed::build_open(&clear, Some(KeyId([0xab; 8])), &[0xcc; 100], |_| [0xdd; 16]);
    packets.push(sealed::shorten_open(&open).expect("it is not long"));
    packets.push(open);
    packets
}

/// `tshark` would say "Lua Error".
#[test]
fn no_length_breaks_it() {
    if !has_tshark() {
        return;
    }
    let mut capture = Capture::new();
    for packet in all_packets() {
        for length in 0..packet.len().min(100) {
            in_every_way(&mut capture, &packet, length);
            in_every_way(&mut capture, &packet[..length], length);
        }
    }
    let trees = capture.dissected(&["-d", "udp.port==4000,netblt"]);
    assert!(trees.iter().filter(|tree| !tree.is_null()).count() > 1000);
}

/// Nothing that is on a wire makes the script fail.
#[test]
fn no_bytes_break_it() {
    if !has_tshark() {
        return;
    }
    let mut capture = Capture::new();
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize % below
    };
    for packet in all_packets().iter().cycle().take(1500) {
        let mut packet = packet.clone();
        for _ in 0..random(4) {
            let at = random(packet.len());
            packet[at] = random(256) as u8;
        }
        packet.truncate(random(packet.len() + 40));
        let kept = random(packet.len() + 40);
        in_every_way(&mut capture, &packet, kept);
    }
    let trees = capture.dissected(&["-d", "udp.port==4000,netblt"]);
    assert!(trees.iter().filter(|tree| !tree.is_null()).count() > 1000);
}
