//! ORNL's hosts and network, section 4.3 of the review, with the constants that all rows share:
//! docs/decisions/ornl-models.md says where each is from.

use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{LinkOptions, QueueLimit};
use netblt_proto::units::Rate;

/// Rate of "a 100Mbs Network Interface card" on the wire: the most in any row, iperf's 90.5 Mbit/s
/// of 1,470 bytes with the frames around them.
pub(crate) const LINK: Rate = Rate::from_bits_per_second(94_600_000);
/// The same as the hosts report it.
pub(crate) const CARD: Rate = Rate::from_bits_per_second(100_000_000);
/// Preamble, Ethernet header, checksum and gap around each IP packet.
pub(crate) const FRAME_BYTES: u32 = 38;
/// The largest IP packet of an Ethernet.
pub(crate) const ETHERNET_BYTES: u32 = 1500;
/// IP and UDP header.
pub(crate) const HEADER_BYTES: u32 = 28;
/// Header of an IP fragment.
const IP_BYTES: u32 = 20;
/// Packets that wait for a card: Linux's `txqueuelen`.
const CARD_QUEUE: u32 = 100;
/// The same in bytes of full packets, with their frames.
pub(crate) const FULL_CARD: u64 = CARD_QUEUE as u64 * (ETHERNET_BYTES + FRAME_BYTES) as u64;
/// Bytes that a program may have queued there before it has to wait: the default send buffer of a
/// socket on Linux 2.4.
pub(crate) const SEND_BUFFER: u64 = 65_536;
/// Packets queued for a program: a receive buffer of the same size, in which a full packet takes 2
/// kB.
pub(crate) const RECEIVE_BUFFER: usize = 32;
/// "--delay 35.000" each way, and the rest of the 70.6 ms that ping measured.
pub(crate) const DELAY: Duration = Duration::from_micros(35_300);
/// Round-trip time.
pub(crate) const ROUND_TRIP: Duration = Duration::from_micros(70_600);
/// "--drop 0.0107" each way, in per cent.
const DROP: Probability = Probability::from_ppb(107_000);
/// Processor time for a packet sent or received: fitted to the rate of SABUL's sender, which keeps
/// the processor busy, onto a card that could carry more.
pub(crate) const PACKET_CPU_TIME: Duration = Duration::from_micros(105);
/// Time of a write, whatever its size (fseek and fwrite): fitted to Tsunami's file, written in
/// blocks of 1,466 bytes.
pub(crate) const WRITE: Duration = Duration::from_micros(330);
/// Blocks that wait in Tsunami's ring to be written: `MAX_BLOCKS_QUEUED` in its client. "The
/// message 'FULL! -- ring_reserve() blocking' also appeared at the client regularly" (section 6).
pub(crate) const RING: u32 = 4096;
/// Rate at which the hosts' disks, that is their caches, read and write.
pub(crate) const DISK: Rate = Rate::from_bytes_per_second(100_000_000);

/// One direction between the hosts, for datagrams of so many fragments.
pub(crate) fn link(loss: bool, fragments: u32) -> LinkOptions {
    LinkOptions {
        rate: Some(LINK),
        delay: DELAY,
        loss: match loss {
            // One lost fragment loses the whole datagram.
            true => Probability::from_ppb(DROP.ppb() * fragments),
            false => Probability::NEVER,
        },
        queue: QueueLimit::Packets(CARD_QUEUE / fragments.max(1)),
        ..LinkOptions::default()
    }
}

/// The same for a sender that is notified when its card has no room: Linux 2.4 then enters
/// "congestion window reduced" and loses nothing.
pub(crate) fn with_full_card_mark(link: LinkOptions) -> LinkOptions {
    LinkOptions { queue: QueueLimit::Unlimited, ..link }
}

/// Number of IP packets of a datagram, and their bytes on the wire.
pub(crate) fn on_wire(datagram_bytes: u32) -> (u32, u32) {
    let room = ETHERNET_BYTES - IP_BYTES;
    let fragments = (datagram_bytes + HEADER_BYTES - IP_BYTES).div_ceil(room).max(1);
    let headers = HEADER_BYTES + IP_BYTES * (fragments - 1) + FRAME_BYTES * fragments;
    (fragments, datagram_bytes + headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "1 16K block is about 12 packets" (section 4.3.1).
    #[test]
    fn datagrams_become_the_packets_that_the_review_counts() {
        assert_eq!(on_wire(1472), (1, 1538));
        assert_eq!(on_wire(16_390), (12, 16_390 + 28 + 11 * 20 + 12 * 38));
    }
}
