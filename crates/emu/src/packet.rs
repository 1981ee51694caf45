//! The properties of an IP packet that an emulator needs: the length of its header, its ECN field,
//! and whether routers would forward it. Nothing in here trusts the bytes.

use netblt_proto::api::Ecn;
use netblt_relay::checksum::fold;

/// The codepoint "congestion experienced".
const CE: u8 = 0b11;

/// The header of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IpHeader {
    /// Bytes of it: 20 and more, or 40.
    pub(crate) len: usize,
    /// IPv6.
    pub(crate) v6: bool,
    /// The ECN codepoint.
    ecn: u8,
    /// To a multicast group that lives on one link: routers never forward these.
    pub(crate) link_local_group: bool,
}

impl IpHeader {
    /// `None` if this is no IP packet.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => {
                let len = usize::from(bytes[0] & 0xf) * 4;
                if len < 20 || bytes.len() < len {
                    return None;
                }
                let link_local_group = bytes[16..19] == [224, 0, 0];
                Some(Self { len, v6: false, ecn: bytes[1] & 3, link_local_group })
            }
            6 if bytes.len() >= 40 => {
                let link_local_group = bytes[24] == 0xff && bytes[25] & 0xf <= 2;
                Some(Self { len: 40, v6: true, ecn: bytes[1] >> 4 & 3, link_local_group })
            }
            _ => None,
        }
    }

    /// As the link model has it.
    pub(crate) fn ecn(&self) -> Option<Ecn> {
        match self.ecn {
            0 => None,
            CE => Some(Ecn::Ce),
            _ => Some(Ecn::Ect0),
        }
    }
}

/// Sets "congestion experienced", and mends the checksum of an IPv4 header.
pub(crate) fn mark_ce(bytes: &mut [u8]) {
    let Some(header) = IpHeader::parse(bytes) else { return };
    if header.v6 {
        bytes[1] |= CE << 4;
        return;
    }
    let word = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let before = word(bytes, 0);
    bytes[1] |= CE;
    // RFC 1624 §3: HC' = ~(~HC + ~m + m').
    let sum = u32::from(!word(bytes, 10)) + u32::from(!before) + u32::from(word(bytes, 0));
    let checksum = !fold(u64::from(sum));
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use netblt_relay::checksum::sum;

    use super::*;

    fn v4(tos: u8) -> Vec<u8> {
        let mut bytes =
            vec![0x45, tos, 0, 28, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let checksum = !fold(sum(&bytes, 0));
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes.extend([0; 8]);
        bytes
    }

    #[test]
    fn marks_keep_the_checksum_right() {
        for tos in 0..=255 {
            let mut bytes = v4(tos);
            mark_ce(&mut bytes);
            assert_eq!(fold(sum(&bytes[..20], 0)), 0xffff, "{tos}");
            assert_eq!(bytes[1], tos | 3);
        }
        let mut v6 = vec![0; 48];
        v6[0] = 0x60;
        v6[1] = 0x10;
        assert_eq!(IpHeader::parse(&v6).unwrap().ecn(), Some(Ecn::Ect0));
        mark_ce(&mut v6);
        assert_eq!(IpHeader::parse(&v6).unwrap().ecn(), Some(Ecn::Ce));
    }

    #[test]
    fn only_ip_is_ip() {
        assert_eq!(IpHeader::parse(&[]), None);
        assert_eq!(IpHeader::parse(&[0x45; 19]), None);
        assert_eq!(IpHeader::parse(&[0x44; 40]), None);
        assert_eq!(IpHeader::parse(&[0x60; 39]), None);
        let mut bytes = v4(2);
        assert_eq!(IpHeader::parse(&bytes).unwrap().ecn(), Some(Ecn::Ect0));
        assert!(!IpHeader::parse(&bytes).unwrap().link_local_group);
        bytes[16..20].copy_from_slice(&[224, 0, 0, 22]);
        assert!(IpHeader::parse(&bytes).unwrap().link_local_group);
    }
}
