//! What stands on the wire around the data: frames, gaps, headers and tags, and the share of the
//! wire's time that is left when a host needs some of its own for every packet.

use std::time::Duration;

use netblt_proto::config::Wire;
use netblt_proto::limits::{
    IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, MAX_SEALED_PACKET_BYTES, UDP_HEADER_BYTES,
};
use netblt_proto::units::Rate;
use netblt_proto::wire::data_overhead;

/// What carries IP packets, and so what the rate of the link counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// IEEE 802.3: preamble, header, frame check sequence and gap.
    #[default]
    Ethernet,
    /// Ethernet with one VLAN tag (IEEE 802.1Q).
    Vlan,
    /// Ethernet with two VLAN tags (IEEE 802.1ad).
    DoubleVlan,
    /// PPP over Ethernet (RFC 2516), as on many home lines.
    Pppoe,
    /// Nothing: the rate counts IP packets, as netblt's own rates do (`docs/protocol §6.1`).
    Ip,
}

/// Preamble and start of frame, 8 bytes; addresses and type, 14; frame check sequence, 4
/// (IEEE 802.3 §3.1.1).
const ETHERNET_FRAME_BYTES: u32 = 8 + 14 + 4;
/// The gap between frames, 96 bit times (IEEE 802.3 §4.4.2): 9.6 us at 10 Mbit/s.
pub const ETHERNET_GAP_BYTES: u32 = 12;
/// Shorter ones are padded to this (IEEE 802.3 §3.2.7).
const ETHERNET_LEAST_BYTES: u32 = 46;
/// One tag (IEEE 802.1Q §9.6).
const VLAN_TAG_BYTES: u32 = 4;
/// PPPoE's header, 6 bytes, and PPP's protocol field, 2 (RFC 2516 §4).
const PPPOE_BYTES: u32 = 8;

impl Framing {
    /// Bytes of the wire's time that an IP packet of `ip_bytes` takes, gap included.
    pub fn wire_bytes(self, ip_bytes: u32) -> u32 {
        let (inside, tags) = match self {
            Self::Ip => return ip_bytes,
            Self::Ethernet => (0, 0),
            Self::Vlan => (0, VLAN_TAG_BYTES),
            Self::DoubleVlan => (0, 2 * VLAN_TAG_BYTES),
            Self::Pppoe => (PPPOE_BYTES, 0),
        };
        let payload = ip_bytes.saturating_add(inside).max(ETHERNET_LEAST_BYTES);
        payload.saturating_add(ETHERNET_FRAME_BYTES + tags + ETHERNET_GAP_BYTES)
    }
}

/// What netblt's packets travel in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// UDP over IPv4.
    #[default]
    Udp4,
    /// UDP over IPv6.
    Udp6,
    /// IPv4 itself, protocol 30 (`rfc998` only).
    RawIp4,
}

impl Carrier {
    /// Bytes before netblt's own header.
    pub fn overhead_bytes(self) -> u32 {
        match self {
            Self::Udp4 => IPV4_HEADER_BYTES + UDP_HEADER_BYTES,
            Self::Udp6 => IPV6_HEADER_BYTES + UDP_HEADER_BYTES,
            Self::RawIp4 => IPV4_HEADER_BYTES,
        }
    }

    /// Bytes of the IP header alone.
    pub(super) fn ip_header_bytes(self) -> u32 {
        match self {
            Self::Udp4 | Self::RawIp4 => IPV4_HEADER_BYTES,
            Self::Udp6 => IPV6_HEADER_BYTES,
        }
    }
}

/// Data bytes in an IP packet of `ip_bytes`, 0 if there is no room for any.
pub fn data_bytes(ip_bytes: u32, carrier: Carrier, wire: Wire) -> u32 {
    let overhead = carrier.overhead_bytes() + data_overhead(wire);
    let most = match wire {
        Wire::Rfc998 => u32::from(u16::MAX) - data_overhead(wire),
        Wire::Sealed => MAX_SEALED_PACKET_BYTES,
    };
    ip_bytes.saturating_sub(overhead).min(most)
}

/// Seconds that `bytes` take at `rate`, which is not zero.
pub fn seconds(bytes: u32, rate: Rate) -> f64 {
    f64::from(bytes) / rate.bytes_per_second() as f64
}

/// The share of a wire's time that one host can fill: t_f / (t_f + t_p), where t_f is a frame's
/// time on the wire and t_p what the host does for each frame while the wire is idle (A. Klietz,
/// comp.protocols.tcp-ip, March 1988). 1 if both are nothing.
pub fn utilisation(frame: Duration, processing: Duration) -> f64 {
    let (frame, processing) = (frame.as_secs_f64(), processing.as_secs_f64());
    if processing == 0.0 { 1.0 } else { frame / (frame + processing) }
}

/// The same the other way round: t_p of a host that fills `share` (above 0, at most 1) of the
/// wire's time with frames of that length.
pub fn processing(frame: Duration, share: f64) -> Duration {
    let seconds = frame.as_secs_f64() * (1.0 / share - 1.0);
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_as_long_as_their_standards_say() {
        for (framing, ip, wire) in [
            (Framing::Ethernet, 1500, 1538),
            (Framing::Ethernet, 9000, 9038),
            (Framing::Ethernet, 20, 84),
            (Framing::Vlan, 1500, 1542),
            (Framing::DoubleVlan, 1500, 1546),
            (Framing::Pppoe, 1492, 1538),
            (Framing::Ip, 1500, 1500),
        ] {
            assert_eq!(framing.wire_bytes(ip), wire, "{framing:?} {ip}");
        }
        assert_eq!(Framing::DoubleVlan.wire_bytes(u32::MAX), u32::MAX);
    }

    #[test]
    fn headers_and_tags_leave_this_much() {
        assert_eq!(data_bytes(1500, Carrier::Udp4, Wire::Sealed), 1424);
        assert_eq!(data_bytes(1500, Carrier::Udp6, Wire::Sealed), 1404);
        assert_eq!(data_bytes(1500, Carrier::Udp4, Wire::Rfc998), 1448);
        assert_eq!(data_bytes(1500, Carrier::RawIp4, Wire::Rfc998), 1456);
        assert_eq!(data_bytes(76, Carrier::Udp4, Wire::Sealed), 0);
        assert_eq!(data_bytes(u32::MAX, Carrier::Udp4, Wire::Sealed), 65_000);
    }

    #[test]
    fn utilisation_and_processing_are_inverse() {
        let (frame, host) = (Duration::from_micros(1200), Duration::from_micros(400));
        assert_eq!(utilisation(frame, host), 0.75);
        assert_eq!(processing(frame, 0.75), host);
        assert_eq!(utilisation(Duration::ZERO, Duration::ZERO), 1.0);
        assert_eq!(processing(frame, 0.0), Duration::ZERO);
    }
}
