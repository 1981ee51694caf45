//! Arbitrary bytes through every parser: none may panic, and what parses must be what its encoder
//! writes. Where reserved bytes are ignored they are cleared first, so that the bytes themselves
//! can be compared; where the format has several spellings, the values are.

use netblt_proto::content::{check_name, encode_table, parse_image, table_len};
use netblt_proto::units::{BufferNumber, ControlSeq, PacketNumber};
use netblt_proto::wire::packet::{Message, Parameters};
use netblt_proto::wire::rfc998::{self, Packet998, Ports};
use netblt_proto::wire::sealed;

use super::bytes::Bytes;

/// Does the first byte's kind of thing with the others.
pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    match bytes.byte() % 12 {
        0 => plain(bytes.short(), bytes.rest()),
        1 => plain_with_sums(bytes),
        2 => headers(bytes.rest()),
        3 => headers(&versioned(bytes, 32)),
        4 => control(bytes.rest()),
        5 => null_ack(bytes.rest()),
        6 => small_bodies(bytes.rest()),
        7 => offer(bytes.rest()),
        8 => frames(bytes.rest()),
        9 => frames(&versioned(bytes, sealed::OPEN_BYTES)),
        10 => {
            let buffer_bytes = bytes.pick([0, 1, 1 << 10, 1 << 20, 1 << 26, u32::MAX]);
            image(bytes.rest(), buffer_bytes);
        }
        _ => name(bytes.rest()),
    }
}

// ---- rfc998

fn plain(reference: u16, bytes: &[u8]) {
    let reference = ControlSeq(u32::from(reference) << 9);
    for checksum in [false, true] {
        if let Ok((ports, packet)) = rfc998::parse(bytes, checksum, reference) {
            plain_again(ports, &packet, checksum, reference);
        }
    }
}

/// No fuzzer guesses a checksum: here they are right, and the version and length too.
fn plain_with_sums(mut bytes: Bytes<'_>) {
    let (kind, reference) = (bytes.byte(), bytes.short());
    let mut packet = vec![0, 0, rfc998::VERSION, kind, 0, 0];
    packet.extend_from_slice(bytes.rest());
    packet.truncate(usize::from(u16::MAX));
    packet.resize(packet.len().max(rfc998::HEADER_BYTES), 0);
    let length = packet.len() as u16;
    packet[4..6].copy_from_slice(&length.to_be_bytes());
    let covered = match kind {
        6 | 7 => {
            packet.resize(packet.len().max(rfc998::DATA_HEADER_BYTES), 0);
            let length = packet.len() as u16;
            packet[4..6].copy_from_slice(&length.to_be_bytes());
            let sum = checksum(&packet[rfc998::DATA_HEADER_BYTES..]);
            packet[20..22].copy_from_slice(&sum.to_be_bytes());
            rfc998::DATA_HEADER_BYTES
        }
        _ => packet.len(),
    };
    let sum = checksum(&packet[..covered]);
    packet[..2].copy_from_slice(&sum.to_be_bytes());
    let parsed = rfc998::parse(&packet, true, ControlSeq(u32::from(reference)));
    if let 2 | 4 | 11 = kind {
        assert_eq!(parsed.is_ok(), packet.len() == rfc998::HEADER_BYTES, "{packet:?}");
    }
    plain(reference, &packet);
}

/// The sum as RFC 998 defines it (§8), word by word.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Encodes what was parsed, and parses it again.
fn plain_again(ports: Ports, packet: &Packet998<'_>, checksum: bool, reference: ControlSeq) {
    let mut out = Vec::new();
    match packet {
        Packet998::Open(parameters) => rfc998::encode_open(ports, parameters, &mut out),
        Packet998::Response(parameters) => rfc998::encode_response(ports, parameters, &mut out),
        Packet998::Keepalive => rfc998::encode_keepalive(ports, &mut out),
        Packet998::Quit(reason) => rfc998::encode_quit(ports, reason, &mut out),
        Packet998::QuitAck => rfc998::encode_quit_ack(ports, &mut out),
        Packet998::Abort(reason) => rfc998::encode_abort(ports, reason, &mut out),
        Packet998::Data { header, data } => {
            rfc998::encode_data(ports, header, data, checksum, &mut out);
        }
        Packet998::NullAck(null_ack) => rfc998::encode_null_ack(ports, null_ack, &mut out),
        Packet998::Control(messages) => put_messages(ports, messages, &mut out),
        Packet998::Refused(reason) => rfc998::encode_refused(ports, reason, &mut out),
        Packet998::Done => rfc998::encode_done(ports, &mut out),
    }
    let again = rfc998::parse(&out, checksum, reference);
    assert_eq!(again, Ok((ports, packet.clone())), "encoded {out:?}");
}

fn put_messages(ports: Ports, messages: &[(ControlSeq, Message)], out: &mut Vec<u8>) {
    let mut writer = rfc998::ControlWriter998::new(ports, 1, usize::from(u16::MAX), out);
    for (seq, message) in messages {
        assert!(writer.push(*seq, message), "what came in one packet fits one");
    }
    writer.finish();
}

// ---- sealed

/// A sealed packet's first four bytes, and what follows brought to at least `len` bytes.
fn versioned(mut bytes: Bytes<'_>, len: usize) -> Vec<u8> {
    let mut packet = vec![bytes.byte(), bytes.byte(), sealed::VERSION, bytes.byte() % 19];
    packet.extend_from_slice(bytes.rest());
    packet.resize(packet.len().max(len), 0);
    packet
}

fn headers(bytes: &[u8]) {
    let mut canonical = bytes.to_vec();
    if let Some(reserved) = canonical.first_mut() {
        *reserved = 0;
    }
    let kind = sealed::kind_of(bytes);
    if let Ok(header) = sealed::parse_header(bytes) {
        assert_eq!(kind, Some(header.kind));
        if !header.kind.is_of_buffer() {
            canonical[1] = 0;
        }
        assert_eq!(sealed::encode_header(&header), canonical[..sealed::HEADER_BYTES]);
    }
    if let Ok((connection, header)) = sealed::parse_data_header(bytes) {
        assert!(kind.is_some_and(sealed::PacketType::is_data));
        assert!(header.buffer >= BufferNumber::FIRST);
        let encoded = sealed::encode_data_header(connection, &header);
        assert_eq!(encoded, bytes[..sealed::DATA_HEADER_BYTES]);
    }
    if let Ok((connection, header)) = sealed::parse_repair_header(bytes) {
        assert_eq!(kind, Some(sealed::PacketType::Repair));
        assert!(header.buffer >= BufferNumber::FIRST);
        let encoded = sealed::encode_repair_header(connection, &header);
        assert_eq!(encoded, canonical[..sealed::DATA_HEADER_BYTES]);
    }
}

fn control(body: &[u8]) {
    let Ok(parsed) = sealed::parse_control(body) else { return };
    let mut out = Vec::new();
    let mut writer = sealed::ControlWriter::new(&mut out, parsed.end_received, body.len());
    writer.set_rate_limit(parsed.rate_limit);
    if let Some(report) = &parsed.report {
        assert!(writer.push_report(report));
    }
    for (seq, message) in &parsed.messages {
        assert!(writer.push_message(*seq, message), "what came in one packet fits one");
    }
    assert_eq!(out.len(), body.len(), "items have one length each");
    assert_eq!(sealed::parse_control(&out), Ok(parsed));
}

fn null_ack(body: &[u8]) {
    let number = PacketNumber(7);
    let Ok(parsed) = sealed::parse_null_ack(number, body) else { return };
    let mut canonical = body.to_vec();
    // Drained, END, paused; what limits the sender may be any number.
    canonical[12] &= 7;
    if parsed.sent_through.is_none() {
        canonical[16..24].fill(0);
    }
    let mut out = Vec::new();
    sealed::encode_null_ack(&parsed, &mut out);
    assert_eq!(out, canonical);
    assert_eq!(sealed::parse_null_ack(number, &out), Ok(parsed));
}

fn small_bodies(body: &[u8]) {
    let mut out = Vec::new();
    if let Ok(reason) = sealed::parse_reason(body) {
        sealed::encode_reason(&reason, &mut out);
        assert_eq!(out, body);
        out.clear();
    }
    if let Ok(token) = sealed::parse_token(body) {
        sealed::encode_token(&token, &mut out);
        assert_eq!(out, body);
        out.clear();
    }
    if let Ok(branch) = sealed::parse_branch(body) {
        sealed::encode_branch(&branch, &mut out);
        assert_eq!(sealed::parse_branch(&out), Ok(branch));
        out.clear();
    }
    if let Ok(keepalive) = sealed::parse_keepalive(body) {
        sealed::encode_keepalive(keepalive, &mut out);
        // An answer, a subflow.
        let mut canonical = vec![body[0] & 3, 0, body[2], body[3]];
        canonical.resize(body.len(), 0);
        assert_eq!(out, canonical);
    }
}

fn offer(payload: &[u8]) {
    let Ok(offer) = sealed::parse_offer(7, payload) else { return };
    let Parameters { buffer_bytes, packet_bytes, max_outstanding, .. } = offer.parameters;
    assert!(buffer_bytes.is_power_of_two() && packet_bytes > 0 && max_outstanding > 0);
    let mut out = Vec::new();
    sealed::encode_offer(&offer, &mut out);
    assert_eq!(out, payload);
}

fn frames(bytes: &[u8]) {
    let canonical = |reserved: &[std::ops::Range<usize>]| {
        let mut canonical = bytes.to_vec();
        reserved.iter().for_each(|range| canonical[range.clone()].fill(0));
        canonical
    };
    if let Ok(open) = sealed::parse_open(bytes) {
        assert_eq!(sealed::parse_open_of_any_version(bytes), Ok(open));
        let (clear, behind) = match open.key {
            None => (sealed::open_clear(open.connection, open.uid), 50),
            Some(_) => (sealed::key_open_clear(open.connection, open.uid), 58),
        };
        let mut built = sealed::build_open(&clear, open.key, open.noise, |_| open.mac);
        sealed::set_cookie(&mut built, &open.cookie);
        let padding = behind + open.noise.len()..sealed::OPEN_BYTES - 16;
        assert_eq!(built, canonical(&[1..2, 4..8, padding]));
        assert_eq!(sealed::open_mac(bytes), open.mac);
    }
    let _ = sealed::parse_open_of_any_version(bytes);
    if let Ok(response) = sealed::parse_response(bytes) {
        let clear = sealed::response_clear(response.to, response.connection, response.uid);
        let built = sealed::build_response(&clear, response.noise);
        assert_eq!(built, canonical(std::slice::from_ref(&(0..2))));
    }
    if let Ok(cookie) = sealed::parse_cookie(bytes) {
        let built = sealed::build_cookie(cookie.to, cookie.uid, &cookie.cookie, |_| cookie.mac);
        assert_eq!(built, canonical(&[0..2, 8..12]));
        assert_eq!([cookie.covered, &cookie.mac[..]].concat(), bytes);
    }
    if let Ok(refused) = sealed::parse_refused(bytes) {
        assert_eq!([refused.covered, &refused.mac[..]].concat(), bytes);
        if let Ok(reason) = std::str::from_utf8(refused.reason) {
            let sealed::RefusedFrame { to, uid, for_now, mac, .. } = refused;
            let built = sealed::build_refused(to, uid, for_now, reason, |_| mac);
            let other = if for_now { 0..2 } else { 8..12 };
            assert_eq!(built, canonical(&[0..2, other]));
        }
    }
    if let Ok(nonce) = sealed::parse_who(bytes) {
        let padding = 16..sealed::WHO_BYTES;
        assert_eq!(sealed::build_who(nonce)[..], canonical(&[0..2, padding]));
    }
    if let Ok((nonce, key)) = sealed::parse_key(bytes) {
        let reserved = std::slice::from_ref(&(0..2));
        assert_eq!(sealed::build_key(nonce, &key)[..], canonical(reserved));
    }
    if let Ok((connection, number)) = sealed::parse_unknown(bytes) {
        let rest = [&connection.to_be_bytes()[..], &number.0.to_be_bytes()].concat();
        assert_eq!(bytes[8..], rest);
    }
}

// ---- content

fn image(image: &[u8], buffer_bytes: u32) {
    let Ok((data, extents)) = parse_image(image, buffer_bytes) else { return };
    assert!(data.len() <= buffer_bytes as usize);
    let described: u64 = extents.iter().map(|extent| u64::from(extent.data_bytes())).sum();
    assert_eq!(described, data.len() as u64);
    assert!(extents.iter().all(|e| e.offset.checked_add(e.length.into()).is_some()));
    // Further attributes of a kind that is not known are not kept.
    assert!(data.len() + table_len(&extents) <= image.len());
    let mut again = data.to_vec();
    encode_table(&extents, &mut again).expect("a table that was read can be written");
    assert_eq!(parse_image(&again, buffer_bytes), Ok((data, extents)));
}

fn name(name: &[u8]) {
    let Ok(()) = check_name(name) else { return };
    assert!(!name.is_empty() && name.len() <= 4096);
    for part in name.split(|&byte| byte == b'/') {
        assert!(!part.is_empty() && part.len() <= 255 && part != b"." && part != b"..");
        assert!(part.iter().all(|&byte| byte != 0));
    }
}
