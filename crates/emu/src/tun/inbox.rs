//! Reading a TUN device: large segments come in and packets come out, checksums complete.

use std::io;

use tun_rs::{SyncDevice, VIRTIO_NET_HDR_LEN, VirtioNetHdr, gso_split};

use netblt_relay::checksum::{fold, sum};

/// A flag of the device's header: the checksum is half done.
pub(super) const NEEDS_CSUM: u8 = 1;
/// A type of the device's header: one packet, as it is.
pub(super) const GSO_NONE: u8 = 0;

/// The most packets of one segment: 64 KiB of TCP at the smallest size anyone uses.
const MAX_SEGMENTS: usize = 512;
/// The largest IP packet.
const PACKET_BYTES: usize = 65_535;

/// Room for what one read brings.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    raw: Vec<u8>,
    /// Each as long as the largest piece seen so far.
    pieces: Vec<Vec<u8>>,
    sizes: Vec<usize>,
    filled: usize,
    /// A packet that came whole lies in `raw`, this long.
    whole: Option<usize>,
    summed: bool,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            raw: vec![0; VIRTIO_NET_HDR_LEN + PACKET_BYTES],
            pieces: vec![Vec::new(); MAX_SEGMENTS],
            sizes: vec![0; MAX_SEGMENTS],
            ..Self::default()
        }
    }

    /// Reads once. An error without a number of the system's is about one packet, which is lost.
    pub(super) fn fill(&mut self, device: &SyncDevice) -> io::Result<()> {
        (self.filled, self.whole) = (0, None);
        let len = device.recv(&mut self.raw)?;
        self.cut(len)
    }

    fn cut(&mut self, len: usize) -> io::Result<()> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let (head, rest) = self.raw.split_at_mut(VIRTIO_NET_HDR_LEN);
        let packet = len.checked_sub(VIRTIO_NET_HDR_LEN).and_then(|len| rest.get_mut(..len));
        let packet = packet.filter(|packet| packet.len() >= 20).ok_or_else(invalid)?;
        let mut header = VirtioNetHdr::decode(head)?;
        let partial = header.flags & NEEDS_CSUM != 0;
        let (start, at) = (usize::from(header.csum_start), usize::from(header.csum_offset));
        if partial && start + at + 2 > packet.len() {
            return Err(invalid());
        }
        // A packet of the host's own stack has the right checksum once it is complete. Nothing is
        // known of packets that come complete (ICMP, raw sockets).
        self.summed = partial;
        if header.gso_type == GSO_NONE {
            if partial {
                complete(packet, start, at);
            }
            self.whole = Some(packet.len());
            return Ok(());
        }
        // The given length can be that of a whole first packet. The headers say it exactly.
        let transport = if header.csum_offset == 6 {
            8
        } else {
            usize::from(*packet.get(start + 12).ok_or_else(invalid)? >> 4) * 4
        };
        header.hdr_len = u16::try_from(start + transport).map_err(|_| invalid())?;
        let v6 = packet[0] >> 4 == 6;
        let largest = usize::from(header.hdr_len) + usize::from(header.gso_size);
        let needed = packet.len().div_ceil(usize::from(header.gso_size).max(1)).min(MAX_SEGMENTS);
        for piece in &mut self.pieces[..needed] {
            if piece.len() < largest {
                piece.resize(largest, 0);
            }
        }
        let (pieces, sizes) = (&mut self.pieces[..needed], &mut self.sizes[..needed]);
        self.filled = gso_split(packet, header, pieces, sizes, 0, v6)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        Ok(())
    }

    /// What the last read brought, and whether checksums are known to be right.
    pub(super) fn packets(&self) -> impl Iterator<Item = (&[u8], bool)> {
        let whole = self.whole.map(|len| &self.raw[VIRTIO_NET_HDR_LEN..][..len]);
        let pieces = self.pieces.iter().zip(&self.sizes).take(self.filled);
        let pieces = pieces.map(|(piece, &size)| &piece[..size.min(piece.len())]);
        whole.into_iter().chain(pieces).map(|packet| (packet, self.summed))
    }
}

/// Completes the checksum of everything from `start` on, which lies `at` bytes behind that and
/// holds the sum of the pseudo header.
fn complete(packet: &mut [u8], start: usize, at: usize) {
    let checksum = match !fold(sum(&packet[start..], 0)) {
        // A UDP checksum of zero would mean that there is none (RFC 768).
        0 if at == 6 => u16::MAX,
        checksum => checksum,
    };
    packet[start + at..start + at + 2].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IPv4 and TCP with this much payload, and the partial checksum that a host leaves there.
    fn segment(payload: usize) -> Vec<u8> {
        let mut packet = vec![0x45, 2];
        packet.extend((40 + payload as u16).to_be_bytes());
        packet.extend([0, 7, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend([0, 80, 1, 2, 0, 0, 0, 9, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
        packet.extend((0..payload).map(|n| n as u8));
        let pseudo = fold(sum(&packet[12..20], 6 + 20 + payload as u64));
        packet[36..38].copy_from_slice(&pseudo.to_be_bytes());
        packet
    }

    fn load(inbox: &mut Inbox, header: VirtioNetHdr, packet: &[u8]) -> io::Result<()> {
        header.encode(&mut inbox.raw[..VIRTIO_NET_HDR_LEN])?;
        inbox.raw[VIRTIO_NET_HDR_LEN..][..packet.len()].copy_from_slice(packet);
        (inbox.filled, inbox.whole) = (0, None);
        inbox.cut(VIRTIO_NET_HDR_LEN + packet.len())
    }

    #[test]
    fn segments_become_packets_with_right_checksums() {
        let mut inbox = Inbox::new();
        for (gso_type, gso_size, count) in [(1, 1000, 4), (0, 0, 1)] {
            let header = VirtioNetHdr {
                flags: 1,
                gso_type,
                hdr_len: 1234,
                gso_size,
                csum_start: 20,
                csum_offset: 16,
            };
            load(&mut inbox, header, &segment(3500)).unwrap();
            let mut payload = Vec::new();
            for (packet, summed) in inbox.packets() {
                assert!(summed);
                let transport = packet.len() as u64 - 20;
                assert_eq!(fold(sum(&packet[20..], sum(&packet[12..20], 6 + transport))), 0xffff);
                payload.extend_from_slice(&packet[40..]);
            }
            assert_eq!(inbox.packets().count(), count);
            assert_eq!(payload, (0..3500).map(|n| n as u8).collect::<Vec<_>>());
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let mut inbox = Inbox::new();
        for at in 0..VIRTIO_NET_HDR_LEN {
            for value in [0, 1, 3, 5, 0x7f, 0xff] {
                for len in [0, 19, 20, 39, 40, 60] {
                    inbox.raw[..VIRTIO_NET_HDR_LEN].fill(1);
                    inbox.raw[at] = value;
                    (inbox.filled, inbox.whole) = (0, None);
                    // Whatever comes of it, it ends.
                    let _ = inbox.cut(VIRTIO_NET_HDR_LEN + len);
                    assert!(inbox.packets().all(|(packet, _)| packet.len() <= PACKET_BYTES));
                }
            }
        }
        assert!(inbox.cut(3).is_err());
    }
}
