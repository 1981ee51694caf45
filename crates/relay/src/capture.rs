//! Captures the packets of a path for Wireshark and tcpdump (pcapng, IP packets, nanoseconds).
//!
//! The file has two interfaces, the two ends of the path. Each packet is in it when its sender
//! hands it in (outbound) and, unless it is lost, when it leaves the path for the other end
//! (inbound): what two captures, one on each host, would hold together.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::checksum::{fold, sum};

/// IP behind four bytes with the address family. LINKTYPE_RAW needs none, but several libpcap
/// versions refuse files with two interfaces of it.
const LINKTYPE_NULL: u16 = 0;
/// Those four bytes, in the order of the file.
const IPV4: [u8; 4] = 2_u32.to_le_bytes();
const IPV6: [u8; 4] = 24_u32.to_le_bytes();

/// One end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The side that connects: host a, or a relay's clients.
    A,
    /// Its target.
    B,
}

/// Which way a packet went at an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The end sent it.
    Out,
    /// The end received it.
    In,
}

/// A file being written.
#[derive(Debug)]
pub struct Capture {
    file: Mutex<Sink>,
}

#[derive(Debug)]
struct Sink {
    file: BufWriter<File>,
    /// The first failure; nothing is written after it.
    failed: Option<io::Error>,
}

impl Capture {
    /// Begins a file, over any that was there.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        file.write_all(&prelude())?;
        Ok(Self { file: Mutex::new(Sink { file, failed: None }) })
    }

    /// Adds an IP packet, now. Failures are kept for [`Capture::finish`]: a full disk must not end
    /// the network.
    pub fn packet(&self, end: End, way: Way, parts: [&[u8]; 2]) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let mut sink = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if sink.failed.is_none() {
            sink.failed = write_packet(&mut sink.file, end, way, nanos, parts).err();
        }
    }

    /// Adds a UDP datagram from `from` to `to` with the headers that it would have.
    pub fn datagram(
        &self,
        end: End,
        way: Way,
        (from, to): (SocketAddr, SocketAddr),
        payload: &[u8],
    ) {
        let header = udp_header(from, to, payload);
        self.packet(end, way, [&header, payload]);
    }

    /// Writes out the rest in memory. Returns the first error, if there was one.
    pub fn finish(&self) -> io::Result<()> {
        let mut sink = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        match sink.failed.take() {
            Some(error) => Err(error),
            None => sink.file.flush(),
        }
    }
}

/// Section header and the two interfaces.
fn prelude() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut section = Vec::new();
    section.extend(0x1a2b_3c4d_u32.to_le_bytes());
    section.extend([1, 0, 0, 0]);
    section.extend(u64::MAX.to_le_bytes());
    block(&mut bytes, 0x0a0d_0d0a, &section);
    for name in [b"a", b"b"] {
        let mut interface = Vec::new();
        interface.extend(LINKTYPE_NULL.to_le_bytes());
        interface.extend([0, 0]);
        interface.extend(0_u32.to_le_bytes());
        option(&mut interface, 2, name);
        // if_tsresol: 10^-9 s.
        option(&mut interface, 9, &[9]);
        option(&mut interface, 0, &[]);
        block(&mut bytes, 1, &interface);
    }
    bytes
}

fn block(bytes: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let len = 12 + body.len() as u32;
    bytes.extend(kind.to_le_bytes());
    bytes.extend(len.to_le_bytes());
    bytes.extend(body);
    bytes.extend(len.to_le_bytes());
}

fn option(bytes: &mut Vec<u8>, code: u16, value: &[u8]) {
    bytes.extend(code.to_le_bytes());
    bytes.extend((value.len() as u16).to_le_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn write_packet(
    file: &mut impl Write,
    end: End,
    way: Way,
    nanos: u64,
    parts: [&[u8]; 2],
) -> io::Result<()> {
    let v6 = parts[0].first().is_some_and(|first| first >> 4 == 6);
    let family = if v6 { IPV6 } else { IPV4 };
    let len = family.len() + parts[0].len() + parts[1].len();
    let padding = len.next_multiple_of(4) - len;
    // Options: the direction flags, and the end of options.
    let total = 32 + len + padding + 8 + 4;
    let mut head = Vec::with_capacity(28);
    for word in [
        6,
        total as u32,
        match end {
            End::A => 0,
            End::B => 1,
        },
        (nanos >> 32) as u32,
        nanos as u32,
        len as u32,
        len as u32,
    ] {
        head.extend(word.to_le_bytes());
    }
    file.write_all(&head)?;
    file.write_all(&family)?;
    file.write_all(parts[0])?;
    file.write_all(parts[1])?;
    file.write_all(&[0; 3][..padding])?;
    let flags: u32 = match way {
        Way::In => 1,
        Way::Out => 2,
    };
    let mut tail = Vec::with_capacity(16);
    option(&mut tail, 2, &flags.to_le_bytes());
    option(&mut tail, 0, &[]);
    tail.extend((total as u32).to_le_bytes());
    file.write_all(&tail)
}

/// IP and UDP headers as the first host on the way would see them.
fn udp_header(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let udp_len = (8 + payload.len()) as u16;
    let (mut ip, pseudo) = match (from.ip().to_canonical(), to.ip().to_canonical()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut ip = vec![0x45, 0];
            ip.extend(udp_len.saturating_add(20).to_be_bytes());
            ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
            ip.extend(from.octets());
            ip.extend(to.octets());
            let checksum = !fold(sum(&ip, 0));
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            (ip, 12)
        }
        (from, to) => {
            let octets = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            let mut ip = vec![0x60, 0, 0, 0];
            ip.extend(udp_len.to_be_bytes());
            ip.extend([17, 64]);
            ip.extend(octets(from));
            ip.extend(octets(to));
            (ip, 8)
        }
    };
    let mut udp = Vec::new();
    udp.extend(from.port().to_be_bytes());
    udp.extend(to.port().to_be_bytes());
    udp.extend(udp_len.to_be_bytes());
    let addresses = sum(&ip[pseudo..], 17 + u64::from(udp_len));
    let checksum = match !fold(sum(payload, sum(&udp, addresses))) {
        0 => u16::MAX,
        checksum => checksum,
    };
    udp.extend(checksum.to_be_bytes());
    ip.extend(udp);
    ip
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole() {
        let mut bytes = prelude();
        for len in 0..5 {
            write_packet(&mut bytes, End::B, Way::In, 7 << 32, [&[1; 20], &[2; 4][..len]]).unwrap();
            let before = bytes.len() % 4;
            assert_eq!(before, 0);
            if len == 4 {
                break;
            }
        }
        let (mut at, mut blocks) = (0, 0);
        while at < bytes.len() {
            let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            let len = word(at + 4) as usize;
            assert_eq!(word(at + len - 4) as usize, len);
            at += len;
            blocks += 1;
        }
        assert_eq!(blocks, 8);
    }

    #[test]
    fn headers_have_right_checksums() {
        for (from, to) in [("10.0.0.1:7", "10.0.0.2:9"), ("[::1]:7", "[::2]:9")] {
            let payload = [1, 2, 3];
            let header = udp_header(from.parse().unwrap(), to.parse().unwrap(), &payload);
            let (ip, udp) = header.split_at(header.len() - 8);
            let skip = if ip.len() == 20 { 12 } else { 8 };
            let total = sum(&ip[skip..], 17 + 11);
            assert_eq!(fold(sum(&payload, sum(udp, total))), 0xffff);
        }
    }
}
