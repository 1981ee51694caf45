//! The programs and one run: those of the review with their protocols, packet sizes and I/O, and
//! NETBLT.

use std::time::Duration;

use netblt_path::Path;
use netblt_proto::config::{Config, EmulatedProtocol, Emulation, Policy, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::time::Instant;
use netblt_proto::units::Rate;
use netblt_sim::disk::DiskOptions;
use netblt_sim::host::{HostOptions, Transfer};

use crate::lab::{Behaviour, CARRIED_BYTES, Lab};
use crate::model::{self, CARD, FRAME_BYTES};

/// Packets of data in a buffer.
const BUFFER_PACKETS: u32 = 1024;
/// Data and NETBLT's headers around it.
const CARRIED_DATAGRAM: u32 = CARRIED_BYTES + 48;
/// Upper bound on the duration of a run.
const DEADLINE: Duration = Duration::from_secs(600);
/// The file of section 4.3.2, in bytes.
pub const FILE_BYTES: u64 = 214_649_928;
/// QUANTA and iperf keep a given rate: that of iperf's own row, 90.5 Mbit/s of 1,470 bytes, in IP
/// packets.
const GIVEN: Rate = Rate::from_bits_per_second(92_200_000);
/// A TCP's default socket buffer on Linux 2.4.
const UNTUNED_WINDOW: u64 = 65_536;

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Parallel streams of TCP with Linux 2.4's congestion control; tuned, or with default socket
    /// buffers.
    Tcp {
        /// Number of streams.
        streams: u32,
        /// With buffers that do not limit it.
        tuned: bool,
    },
    /// iperf's datagrams, which are never resent.
    Udp,
    /// FOBS.
    Fobs,
    /// QUANTA, that is RBUDP.
    Quanta,
    /// SABUL.
    Sabul,
    /// Tsunami.
    Tsunami,
    /// Programs that came later, and those that the review only names, on the same path.
    Later(EmulatedProtocol),
    /// NETBLT without a given rate.
    Ours,
}

/// Program and conditions of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The program.
    pub entry: Entry,
    /// Disk to disk.
    pub file: bool,
    /// Packets are dropped on the way.
    pub loss: bool,
}

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Bits of data a second, as the program would have reported it.
    pub bits_per_second: u64,
    /// Packets lost, as the program would have counted them.
    pub lost: u64,
    /// Packets of data that did not reach their program.
    pub really_lost: u64,
    /// Packets sent again.
    pub resent: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that reached their program.
    pub received: u64,
    /// Duplicates among the packets that reached the program.
    pub duplicates: u64,
    /// Number of requests to send everything again (Tsunami's REQUEST_RESTART).
    pub restarts: u64,
    /// Time from the first packet until the sender knows that all data arrived.
    pub time: Duration,
    /// First problem, if any.
    pub problem: Option<String>,
}

impl Entry {
    /// The program's name.
    pub fn name(self) -> String {
        match self {
            Self::Tcp { streams, tuned } => {
                format!("TCP x{streams}{}", if tuned { "" } else { ", untuned" })
            }
            Self::Udp => "UDP".to_owned(),
            Self::Fobs => "FOBS".to_owned(),
            Self::Quanta => "QUANTA (RBUDP)".to_owned(),
            Self::Sabul => "SABUL".to_owned(),
            Self::Tsunami => "Tsunami".to_owned(),
            Self::Later(EmulatedProtocol::Udt) => "UDT".to_owned(),
            Self::Later(EmulatedProtocol::Cubic) => "CUBIC".to_owned(),
            Self::Later(EmulatedProtocol::HighSpeed) => "HighSpeed TCP".to_owned(),
            Self::Later(EmulatedProtocol::Scalable) => "Scalable TCP".to_owned(),
            Self::Later(EmulatedProtocol::Bbr) => "BBR".to_owned(),
            Self::Later(protocol) => protocol.name().to_owned(),
            Self::Ours => "netblt".to_owned(),
        }
    }

    /// The program of a row of the review, if it is simulated.
    pub fn of(application: &str) -> Option<Self> {
        Some(match application {
            "iperf-tcp-3" => Self::Tcp { streams: 3, tuned: true },
            "iperf-udp" => Self::Udp,
            "fobs" => Self::Fobs,
            "quanta" => Self::Quanta,
            "sabul" => Self::Sabul,
            "tsunami" => Self::Tsunami,
            _ => return None,
        })
    }

    /// Whether the review has rows of the program.
    pub fn is_reviewed(self) -> bool {
        let untuned = matches!(self, Self::Tcp { streams, tuned } if streams != 3 || !tuned);
        !untuned && !matches!(self, Self::Later(_) | Self::Ours)
    }

    fn policy(self) -> Policy {
        let of = |protocol| Emulation::of(protocol);
        let recreation = match self {
            Self::Ours | Self::Udp => return Policy::Fair { ceiling: None },
            Self::Fobs => Emulation { rate: Some(CARD), ..of(EmulatedProtocol::Fobs) },
            Self::Quanta => Emulation { rate: Some(GIVEN), ..of(EmulatedProtocol::Rbudp) },
            Self::Sabul => of(EmulatedProtocol::Sabul),
            Self::Tsunami => of(EmulatedProtocol::Tsunami),
            Self::Later(protocol) => of(protocol),
            Self::Tcp { tuned, .. } => Emulation {
                window_bytes: (!tuned).then_some(UNTUNED_WINDOW),
                ..of(EmulatedProtocol::RenoDelayed)
            },
        };
        Policy::Emulated(recreation)
    }
}

impl Trial {
    /// Bytes of data in a packet, and of its datagram's header: together they fill an Ethernet's
    /// packet, but for Tsunami's from memory, which are 16,384 bytes in fragments.
    pub(crate) fn packet(&self) -> (u32, u32) {
        match self.entry {
            Entry::Tcp { .. } => (1448, 24),
            Entry::Udp => (1470, 0),
            Entry::Fobs => (1466, 6),
            Entry::Quanta => (1460, 12),
            Entry::Sabul => (1468, 4),
            Entry::Tsunami if self.file => (1466, 6),
            Entry::Tsunami => (16_384, 6),
            // NETBLT has 48 bytes around its data.
            Entry::Later(_) | Entry::Ours => (1424, 48),
        }
    }

    /// Packets of data: as many as in the program's own row.
    fn packets(&self) -> u64 {
        let (data, _) = self.packet();
        match self.entry {
            _ if self.file => FILE_BYTES.div_ceil(u64::from(data)),
            Entry::Tcp { streams: 3, tuned: true } => 150_564,
            // Programs without a row: 80 MB are enough.
            Entry::Tcp { .. } | Entry::Later(_) => 80_000_000_u64.div_ceil(u64::from(data)),
            Entry::Udp => 153_849,
            Entry::Fobs => 136_427,
            Entry::Quanta => 137_742,
            Entry::Sabul => 140_000,
            Entry::Tsunami => 13_102,
            // 200 MB.
            Entry::Ours => 200_000_000_u64.div_ceil(u64::from(data)),
        }
    }

    pub(crate) fn behaviour(&self, wire_bytes: u32) -> Behaviour {
        let (data, _) = self.packet();
        let overruns = matches!(self.entry, Entry::Sabul | Entry::Tcp { .. });
        // "blocksize controls not only the size of the blocks sent but also the size of the file
        // reads and writes" (section 4.3.2).
        let blocks = self.file && self.entry == Entry::Tsunami;
        let write = if blocks { model::WRITE } else { Duration::ZERO };
        // "The sender and receiver are NOT threaded" (section 5): a chunk is read, or written, and
        // nothing else is done.
        let chunk = (self.file && self.entry == Entry::Fobs).then(|| {
            let bytes = FOBS_CHUNK_BUFFERS * u64::from(BUFFER_PACKETS) * u64::from(data);
            (FOBS_CHUNK_BUFFERS, model::DISK.time_for(bytes))
        });
        let full_card_mark = matches!(self.entry, Entry::Tcp { .. });
        Behaviour { wire_bytes, overruns, full_card_mark, write, chunk }
    }

    /// Runs it once.
    pub fn run(&self, seed: u64) -> Sample {
        match self.entry {
            Entry::Udp => self.blast(seed),
            _ => self.transfer(seed),
        }
    }

    fn transfer(&self, seed: u64) -> Sample {
        let (data, header) = self.packet();
        let (fragments, wire_bytes) = model::on_wire(data + header);
        let streams = match self.entry {
            Entry::Tcp { streams, .. } => streams,
            _ => 1,
        };
        let mut there = model::link(self.loss, fragments);
        if matches!(self.entry, Entry::Tcp { .. }) {
            there = model::with_full_card_mark(there);
        }
        let mut lab = Lab::new(there, model::link(self.loss, 1), seed, DEADLINE);
        let packets = self.packets();
        // Each stream has enough data for all: iperf ends by time and not by size.
        let bytes = packets * u64::from(CARRIED_BYTES);
        if streams > 1 {
            lab.until(packets);
        }
        for stream in 0..streams {
            let host = |role| self.host(role, wire_bytes - fragments * FRAME_BYTES, packets);
            let seed = seed * 100 + u64::from(stream);
            let transfer = Transfer { seed, bytes, at_least_one: false, have: 0, greets: true };
            lab.add(transfer, host(Role::Sender), host(Role::Receiver), self.behaviour(wire_bytes));
        }
        let (runs, lost) = lab.run();
        let mut sample = Sample::default();
        for run in runs {
            let (sent, received) = (run.sent, run.received);
            let came = received.data_packets_received + received.data_packets_duplicate;
            sample.sent += sent.data_packets_sent;
            sample.resent += sent.data_packets_resent;
            sample.received += came;
            sample.duplicates += received.data_packets_duplicate;
            sample.lost += sent.data_packets_asked;
            let tsunami = self.entry == Entry::Tsunami;
            sample.restarts += if tsunami { received.data_timeouts } else { 0 };
            sample.time = sample.time.max(run.time);
            sample.problem = sample.problem.or(run.problem);
        }
        sample.really_lost = lost;
        sample.lost = match self.entry {
            // The program counts a loss twice: at once, and in the next tabulation.
            Entry::Sabul => sample.lost * 2,
            _ => sample.really_lost,
        };
        sample.bits_per_second = self.reported_rate(packets * u64::from(data), sample.time);
        sample
    }

    /// Bits a second as the program reported them: Tsunami's megabits have 2^20 bits.
    fn reported_rate(&self, bytes: u64, time: Duration) -> u64 {
        let bits = Rate::over(bytes, time).bits_per_second();
        match self.entry {
            Entry::Tsunami => (u128::from(bits) * 1_000_000 / (1 << 20)) as u64,
            _ => bits,
        }
    }

    pub(crate) fn host(&self, role: Role, ip_bytes: u32, packets: u64) -> HostOptions {
        let mut config = Config::new(Wire::Sealed, role);
        config.secret = Some(Secret([7; 32]));
        config.cipher = Cipher::Aes256Gcm;
        config.buffer_bytes = BUFFER_PACKETS * CARRIED_BYTES;
        config.table_bytes = 0;
        config.datagram_bytes = CARRIED_DATAGRAM;
        // Rates count the modelled size of a packet, not the simulated one.
        config.overhead_bytes = ip_bytes - CARRIED_DATAGRAM;
        config.policy = self.entry.policy();
        let all = u32::try_from(packets.div_ceil(u64::from(BUFFER_PACKETS))).unwrap_or(u32::MAX);
        config.max_outstanding = match self.behaviour(0).chunk {
            Some((buffers, _)) => u32::try_from(buffers).unwrap_or(u32::MAX),
            None if self.entry == Entry::Ours => config.max_outstanding,
            None => all.max(1),
        };
        let mut host = HostOptions::new(config);
        if self.file && self.behaviour(0).chunk.is_none() {
            let (data, _) = self.packet();
            let rate = model::DISK.scaled(u64::from(CARRIED_BYTES), u64::from(data));
            host.disk =
                DiskOptions { latency: model::WRITE, rate: Some(rate), ..DiskOptions::default() };
        }
        host
    }

    /// iperf's datagrams: lost ones are not resent.
    fn blast(&self, seed: u64) -> Sample {
        let (data, header) = self.packet();
        let (_, wire_bytes) = model::on_wire(data + header);
        let mut path: Path<Vec<u8>> = Path::new(model::link(self.loss, 1), seed, "there");
        let interval = GIVEN.time_for(u64::from(wire_bytes - FRAME_BYTES));
        let (mut now, mut received) = (Instant::EPOCH, 0);
        for _ in 0..self.packets() {
            path.push(now, wire_bytes, None, Vec::new());
            now += interval;
            while path.pop(now).is_some() {
                received += 1;
            }
        }
        while let Some(at) = path.next() {
            now = now.max(at);
            while path.pop(at).is_some() {
                received += 1;
            }
        }
        let time = now.since(Instant::EPOCH);
        let lost = self.packets() - received;
        Sample {
            bits_per_second: self.reported_rate(received * u64::from(data), time),
            lost,
            really_lost: lost,
            sent: self.packets(),
            received,
            time,
            ..Sample::default()
        }
    }
}

/// FOBS's chunk of 71,527 packets, in NETBLT's buffers.
const FOBS_CHUNK_BUFFERS: u64 = 70;

/// Most that the link can carry of NETBLT's packets, which fill an Ethernet frame.
pub fn best(loss: bool) -> Rate {
    let (data, header) = Trial { entry: Entry::Ours, file: false, loss }.packet();
    let (_, wire_bytes) = model::on_wire(data + header);
    let kept = 1_000_000_000 - u64::from(model::link(loss, 1).loss.ppb());
    let rate = model::LINK.scaled(u64::from(data), u64::from(wire_bytes));
    rate.scaled(kept, 1_000_000_000)
}
