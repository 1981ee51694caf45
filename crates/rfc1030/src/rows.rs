//! The figures that RFC 1030 published, appendices II to IV, in its own columns.

use std::time::Duration;

/// One of the three networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Appendix II: a 10 Mbit/s Proteon Token Ring between two PC/ATs.
    Ring,
    /// Appendix III: a 10 Mbit/s Ethernet between two PC/ATs with 3C500 interfaces.
    Ethernet,
    /// Appendix IV: the Wideband satellite network, from a PC/AT to a SUN-3.
    Wideband,
}

impl Network {
    /// All three, in the RFC's order.
    pub const ALL: [Self; 3] = [Self::Ring, Self::Ethernet, Self::Wideband];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ring => "Proteon ring",
            Self::Ethernet => "Ethernet",
            Self::Wideband => "Wideband",
        }
    }

    const fn csv(self) -> &'static str {
        match self {
            Self::Ring => include_str!("rfc1030_proteon_ring.csv"),
            Self::Ethernet => include_str!("rfc1030_ethernet.csv"),
            Self::Wideband => include_str!("rfc1030_wideband.csv"),
        }
    }

    /// The rows of its table.
    pub fn rows(self) -> Vec<Row> {
        self.csv().lines().skip(1).filter_map(|line| Row::parse(self, line)).collect()
    }
}

/// One row: the parameters of a transfer and what RFC 1030 measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// On which network.
    pub network: Network,
    /// Packets in a burst.
    pub burst_packets: u32,
    /// Milliseconds from the start of one burst to that of the next.
    pub interval_ms: u32,
    /// Bytes of data in a DATA packet.
    pub packet_bytes: u32,
    /// Bytes in a buffer.
    pub buffer_bytes: u32,
    /// Thousands of bytes in the transfer.
    pub transfer_kilobytes: u32,
    /// Buffers that may be outstanding.
    pub outstanding: u32,
    /// Data packets lost.
    pub lost: u32,
    /// Data packets sent again.
    pub resent: u32,
    /// Data timeouts at the receiver; appendix IV has none.
    pub timeouts: Option<u32>,
    /// Steady-state throughput in bits per second.
    pub bits_per_second: u64,
}

impl Row {
    fn parse(network: Network, line: &str) -> Option<Self> {
        let mut fields = line.split(',');
        let mut next = || fields.next()?.trim().parse::<u32>().ok();
        Some(Self {
            network,
            burst_packets: next()?,
            interval_ms: next()?,
            packet_bytes: next()?,
            buffer_bytes: next()?,
            transfer_kilobytes: next()?,
            outstanding: next()?,
            lost: next()?,
            resent: next()?,
            timeouts: if network == Network::Wideband { None } else { Some(next()?) },
            bits_per_second: megabits(fields.next()?)?,
        })
    }

    /// Bytes in the transfer.
    pub fn bytes(&self) -> u64 {
        u64::from(self.transfer_kilobytes) * 1000
    }

    /// Packets in the transfer, each counted once.
    pub fn packets(&self) -> u64 {
        self.bytes().div_ceil(u64::from(self.packet_bytes.max(1)))
    }

    /// The burst interval.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(u64::from(self.interval_ms))
    }
}

/// Bits per second from a decimal number of millions of them, without a float.
fn megabits(text: &str) -> Option<u64> {
    let (whole, part) = text.trim().split_once('.')?;
    let scale = 10_u64.checked_pow(6_u32.checked_sub(part.len() as u32)?)?;
    Some(whole.parse::<u64>().ok()? * 1_000_000 + part.parse::<u64>().ok()? * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_tables_is_here() {
        assert_eq!(Network::ALL.map(|network| network.rows().len()), [39, 29, 28]);
        let row = Network::Ethernet.rows()[9];
        assert_eq!((row.outstanding, row.lost, row.timeouts), (2, 206, Some(198)));
        assert_eq!((row.bits_per_second, row.packets()), (995_000, 1000));
        assert_eq!(Network::Wideband.rows()[0].timeouts, None);
    }
}
