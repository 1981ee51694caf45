//! What may be put together and what not.

use tun_rs::gso_split;

use super::*;

/// A packet with right checksums.
fn packet(v6: bool, protocol: u8, sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let transport = if protocol == TCP { 20 } else { 8 } + payload.len() as u16;
    let mut bytes = Vec::new();
    if v6 {
        bytes.extend([0x60, 0, 0, 0]);
        bytes.extend(transport.to_be_bytes());
        bytes.extend([protocol, 64]);
        bytes.extend([1; 16]);
        bytes.extend([2; 16]);
    } else {
        bytes.extend([0x45, 0]);
        bytes.extend((20 + transport).to_be_bytes());
        bytes.extend([0, 9, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let checksum = !fold(sum(&bytes, 0));
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    let ip = bytes.len();
    bytes.extend([0, 80, 1, 2]);
    if protocol == TCP {
        bytes.extend(sequence.to_be_bytes());
        bytes.extend([0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    } else {
        bytes.extend(transport.to_be_bytes());
        bytes.extend([0, 0]);
    }
    bytes.extend(payload);
    let addresses = if v6 { 8..40 } else { 12..20 };
    let pseudo = sum(&bytes[addresses], u64::from(protocol) + u64::from(transport));
    let checksum = !fold(sum(&bytes[ip..], pseudo));
    let at = ip + if protocol == TCP { 16 } else { 6 };
    bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

#[test]
fn coalesced_packets_are_split_to_the_same() {
    for (v6, protocol) in [(false, TCP), (true, TCP), (false, UDP), (true, UDP)] {
        let mut gather = Gather::new(true);
        let mut packets = Vec::new();
        for n in 0..5_u32 {
            let payload = vec![n as u8; if n == 4 { 300 } else { 1000 }];
            let flags = if n == 4 { ACK | PSH } else { ACK };
            let mut packet = packet(v6, protocol, 77 + 1000 * n, flags, &payload);
            if !v6 {
                // The identification counts on where segments are cut.
                packet[4..6].copy_from_slice(&(9 + n as u16).to_be_bytes());
                packet[10..12].fill(0);
                let checksum = !fold(sum(&packet[..20], 0));
                packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            if n == 0 {
                gather.begin(&packet, true);
            } else {
                assert!(gather.join(&packet, true), "{v6} {protocol} {n}");
            }
            packets.push(packet);
        }
        let (count, bytes) = gather.finish().unwrap();
        assert_eq!(count, 5);
        let mut bytes = bytes.to_vec();
        let (head, large) = bytes.split_at_mut(VIRTIO_NET_HDR_LEN);
        let header = VirtioNetHdr::decode(head).unwrap();
        let (mut pieces, mut sizes) = (vec![vec![0; 1500]; 5], vec![0; 5]);
        let cut = gso_split(large, header, &mut pieces, &mut sizes, 0, v6).unwrap();
        assert_eq!(cut, 5);
        for ((piece, size), packet) in pieces.iter().zip(sizes).zip(&packets) {
            assert_eq!(&piece[..size], packet, "{v6} {protocol}");
        }
        gather.clear();
        assert!(gather.finish().is_none());
    }
}

#[test]
fn packets_that_a_card_keeps_apart_stay_apart() {
    let data = [7; 100];
    let first = packet(false, TCP, 1, ACK, &data);
    let good = packet(false, TCP, 101, ACK, &data);
    let mut gather = Gather::new(true);
    let mut joins = |first: &[u8], summed: bool, next: &[u8]| {
        gather.begin(first, summed);
        gather.join(next, true)
    };
    assert!(joins(&first, true, &good));
    assert!(!joins(&first, false, &good), "unknown checksums");
    assert!(!joins(&first, true, &packet(false, TCP, 102, ACK, &data)), "a gap");
    assert!(!joins(&first, true, &packet(false, TCP, 1, ACK, &data)), "a copy");
    assert!(!joins(&first, true, &packet(false, TCP, 101, ACK | 1, &data)), "an end");
    assert!(!joins(&first, true, &packet(false, TCP, 101, ACK, &[7; 101])), "longer");
    assert!(!joins(&first, true, &packet(false, TCP, 101, ACK, &[])), "an acknowledgement");
    assert!(!joins(&first, true, &packet(true, TCP, 101, ACK, &data)), "another family");
    assert!(!joins(&packet(false, TCP, 1, ACK | PSH, &data), true, &good), "pushed");
    let mut marked = good.clone();
    crate::packet::mark_ce(&mut marked);
    assert!(!joins(&first, true, &marked), "marked");
    let mut other = good.clone();
    other[21] = 81;
    assert!(!joins(&first, true, &other), "another port");
    let udp = packet(false, UDP, 0, 0, &data);
    assert!(joins(&udp, true, &udp));
    let mut plain = Gather::new(false);
    plain.begin(&udp, true);
    assert!(!plain.join(&udp, true), "a device without datagram segments");
}

#[test]
fn any_bytes_are_survived() {
    let mut rng = netblt_path::rng::Rng::new(4);
    let mut gather = Gather::new(true);
    for _ in 0..20_000 {
        let mut bytes = packet(rng.below(2) == 1, TCP, 1, ACK, &[3; 10]);
        bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
        for _ in 0..rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte = rng.next_u64() as u8;
            }
        }
        if !gather.join(&bytes, true) {
            let _ = gather.finish();
            gather.begin(&bytes, true);
        }
    }
}
