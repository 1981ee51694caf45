//! Putting packets of one flow together again, as a network card does on receiving (GRO): a write
//! into a device costs as much for forty packets as for one.
//!
//! Packets are only ever put together with the one before, so order is kept, gaps stay gaps, and
//! everything that differs in more than a card would ignore stays apart.

use tun_rs::{
    VIRTIO_NET_HDR_GSO_TCPV4, VIRTIO_NET_HDR_GSO_TCPV6, VIRTIO_NET_HDR_GSO_UDP_L4,
    VIRTIO_NET_HDR_LEN, VirtioNetHdr,
};

use super::inbox::{GSO_NONE, NEEDS_CSUM};
use netblt_relay::checksum::{fold, sum};

/// The largest IP packet, which what is put together looks like.
const MAX_BYTES: usize = 65_535;
/// The system takes no more datagrams than this at a time.
const MAX_SEGMENTS: u64 = 64;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

/// What a packet has to have to be put together with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    v6: bool,
    protocol: u8,
    /// Bytes of the IP header.
    ip: usize,
    /// Bytes of both headers.
    headers: usize,
    payload: usize,
}

/// A few packets that look like one large one.
#[derive(Debug)]
pub(super) struct Gather {
    /// The header of the device, then the packet.
    bytes: Vec<u8>,
    packets: u64,
    /// `None`: nothing can join.
    shape: Option<Shape>,
    /// The last packet was shorter than the first, or closes what came before it.
    closed: bool,
    /// The device takes several datagrams as one.
    udp: bool,
}

impl Gather {
    pub(super) fn new(udp: bool) -> Self {
        Self { bytes: Vec::new(), packets: 0, shape: None, closed: false, udp }
    }

    /// Begins with this packet; `summed`: its checksums are correct.
    pub(super) fn begin(&mut self, packet: &[u8], summed: bool) {
        self.bytes.clear();
        self.bytes.resize(VIRTIO_NET_HDR_LEN, 0);
        self.bytes.extend_from_slice(packet);
        self.packets = 1;
        self.shape = if summed { shape(packet) } else { None };
        self.shape = self.shape.filter(|shape| shape.protocol == TCP || self.udp);
        self.closed = self.shape.is_some_and(|shape| is_last(packet, shape));
    }

    /// Adds a packet if it belongs behind the last one; whether it does.
    pub(super) fn join(&mut self, packet: &[u8], summed: bool) -> bool {
        let Some(first) = self.shape.filter(|_| summed && !self.closed) else { return false };
        let Some(next) = shape(packet) else { return false };
        let len = self.bytes.len() - VIRTIO_NET_HDR_LEN + next.payload;
        let alike = Shape { payload: first.payload, ..next } == first;
        if !alike || next.payload > first.payload || len > MAX_BYTES {
            return false;
        }
        let before = &self.bytes[VIRTIO_NET_HDR_LEN..];
        if self.packets >= MAX_SEGMENTS || !follows(before, packet, first, self.packets) {
            return false;
        }
        self.closed = next.payload < first.payload || is_last(packet, next);
        if first.protocol == TCP {
            let flags = VIRTIO_NET_HDR_LEN + first.ip + 13;
            self.bytes[flags] |= packet[first.ip + 13] & PSH;
        }
        self.bytes.extend_from_slice(&packet[first.headers..]);
        self.packets += 1;
        true
    }

    /// How many packets there are, and what to write into the device; `None` when there are none.
    pub(super) fn finish(&mut self) -> Option<(u64, &[u8])> {
        if self.packets == 0 {
            return None;
        }
        if let Some(shape) = self.shape.filter(|_| self.packets > 1) {
            self.seal(shape);
        }
        Some((self.packets, &self.bytes))
    }

    pub(super) fn clear(&mut self) {
        (self.packets, self.shape) = (0, None);
    }

    /// Makes the headers those of one large packet.
    fn seal(&mut self, shape: Shape) {
        let (head, packet) = self.bytes.split_at_mut(VIRTIO_NET_HDR_LEN);
        let (total, transport) = (packet.len() as u16, (packet.len() - shape.ip) as u16);
        let addresses = if shape.v6 {
            packet[4..6].copy_from_slice(&transport.to_be_bytes());
            8..40
        } else {
            packet[2..4].copy_from_slice(&total.to_be_bytes());
            packet[10..12].fill(0);
            let checksum = !fold(sum(&packet[..shape.ip], 0));
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            12..20
        };
        let csum_offset = if shape.protocol == TCP {
            16
        } else {
            packet[shape.ip + 4..shape.ip + 6].copy_from_slice(&transport.to_be_bytes());
            6
        };
        // Half a checksum is what the receiving system expects: it trusts the rest.
        let pseudo = u64::from(shape.protocol) + u64::from(transport);
        let pseudo = fold(sum(&packet[addresses], pseudo));
        let at = shape.ip + usize::from(csum_offset);
        packet[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
        let header = VirtioNetHdr {
            flags: NEEDS_CSUM,
            gso_type: match (shape.protocol, shape.v6) {
                (TCP, false) => VIRTIO_NET_HDR_GSO_TCPV4,
                (TCP, true) => VIRTIO_NET_HDR_GSO_TCPV6,
                (UDP, _) => VIRTIO_NET_HDR_GSO_UDP_L4,
                _ => GSO_NONE,
            },
            hdr_len: shape.headers as u16,
            gso_size: shape.payload as u16,
            csum_start: shape.ip as u16,
            csum_offset,
        };
        // The room is as long as it has to be; there is nothing else that could fail.
        let _ = header.encode(head);
    }
}

/// Whether a packet can have company at all.
fn shape(packet: &[u8]) -> Option<Shape> {
    let (v6, ip, protocol) = match packet.first()? {
        // No options, and no fragment.
        0x45 if packet.len() >= 20 && packet[6] & 0x3f == 0 && packet[7] == 0 => {
            (false, 20, packet[9])
        }
        first if first >> 4 == 6 && packet.len() >= 40 => (true, 40, packet[6]),
        _ => return None,
    };
    let claimed = if v6 {
        40 + usize::from(u16::from_be_bytes([packet[4], packet[5]]))
    } else {
        usize::from(u16::from_be_bytes([packet[2], packet[3]]))
    };
    let headers = match protocol {
        TCP => {
            let flags = *packet.get(ip + 13)?;
            if flags & !PSH != ACK {
                return None;
            }
            ip + usize::from(packet[ip + 12] >> 4) * 4
        }
        UDP => ip + 8,
        _ => return None,
    };
    let minimum = ip + if protocol == TCP { 20 } else { 8 };
    let payload = packet.len().checked_sub(headers).filter(|&payload| payload > 0)?;
    let whole = claimed == packet.len() && headers >= minimum;
    whole.then_some(Shape { v6, protocol, ip, headers, payload })
}

/// TCP's push flag says: hand over what there is.
fn is_last(packet: &[u8], shape: Shape) -> bool {
    shape.protocol == TCP && packet[shape.ip + 13] & PSH != 0
}

/// Whether `packet` comes directly behind the `packets` that begin like `before`. Both are of one
/// shape.
fn follows(before: &[u8], packet: &[u8], shape: Shape, packets: u64) -> bool {
    let same = |range: std::ops::Range<usize>| before[range.clone()] == packet[range];
    let word = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let ip = if shape.v6 {
        same(0..4) && same(6..40)
    } else {
        // The numbers of packets that may be cut further on must go on as they would.
        let number = word(before, 4).wrapping_add(packets as u16);
        let numbered = packet[6] & 0x40 != 0 || word(packet, 4) == number;
        same(0..2) && same(6..10) && same(12..20) && numbered
    };
    let ports = shape.ip..shape.ip + 4;
    if shape.protocol == UDP {
        return ip && same(ports);
    }
    let at = shape.ip + 4;
    let sequence = |bytes: &[u8]| u32::from_be_bytes([0, 1, 2, 3].map(|n| bytes[at + n]));
    let expected = sequence(before).wrapping_add((before.len() - shape.headers) as u32);
    // Acknowledgement, window and options too; checksum, urgent pointer and push flag do not count.
    ip && same(ports)
        && sequence(packet) == expected
        && same(shape.ip + 8..shape.ip + 13)
        && same(shape.ip + 14..shape.ip + 16)
        && same(shape.ip + 20..shape.headers)
}

#[cfg(test)]
mod tests;
