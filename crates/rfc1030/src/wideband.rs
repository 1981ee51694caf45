//! The Wideband satellite network, from a PC/AT on an Ethernet to a SUN-3 on another (RFC 1030 §7,
//! appendices I and IV).
//!
//! A packet crosses an Ethernet and a gateway to a BSAT, which reserves room on the channel: a
//! reservation takes 600 ms, and a failed one as long again. Reserved datagrams leave in order in
//! frames of 24,054 bits, one every 21.22 ms, whole or not at all, those of both directions in the
//! same frames; then they cross the satellite. All ten BSATs keep the same schedule, and reserved
//! datagrams that wait for a frame fill the buffers of their earth station interfaces. An overflow
//! takes the BSAT down, and the network halts with the BSAT of the sender.

use std::collections::BTreeMap;
use std::time::Duration;

use netblt_path::rng::{Probability, Rng};
use netblt_proto::time::{Instant, earliest};
use netblt_sim::check::kind;
use netblt_sim::simulator::Medium;

use crate::lab::{Port, SharedMedium};
use crate::machines::{ETHERNET_PC_AT, SUN_3};
use crate::rows::Row;
use crate::run::{Sample, pair_of, run_row};
use crate::station::IP_BYTES;

/// One frame (appendix I).
const FRAME: Duration = Duration::from_micros(21_220);
/// Usable bits in it (appendix I).
const FRAME_BITS: u64 = 24_054;
/// Reservations come in steps of this (§7).
const RESERVATION: Duration = Duration::from_millis(600);
/// Earth, satellite, earth; with the reservation and the frames it makes the RTT 1.8 s (§7).
const PROPAGATION: Duration = Duration::from_millis(270);
/// Delay of Ethernets and gateways one way.
const GATEWAYS: Duration = Duration::from_millis(15);
/// A larger IP packet is fragmented: 1432 bytes of data pass, 1434 do not (§7, appendix IV).
const WHOLE_BYTES: u64 = 1432 + 24 + 20;

/// Stations on the channel (§7).
const BSATS: u64 = 10;
/// Index of the sender's station in the order of buffer sizes: four went down (§7), and when it is
/// down no more data arrive.
const HOME: u64 = 4;
/// Difference in buffer size between an interface and the next larger one.
const STEP_BYTES: u64 = 20;

/// The smallest of those buffers in bytes: 13 full packets and some of control fit into it, and 14
/// do not. 5 packets every 50 ms overrun it with seeds 1 to 1,000.
pub const BUFFER_BYTES: u64 = 19_400;

/// Fitted parameters of the network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channel {
    /// Rate of packets that the destination host drops, after they have used the channel.
    pub(super) loss: Probability,
    /// Rate of datagrams whose reservation fails.
    pub(super) late: Probability,
    /// Rate of second fragments whose reservation fails.
    pub(super) fragment_late: Probability,
    /// The smallest buffer of an earth station interface, in bytes.
    pub(super) buffer_bytes: u64,
}

#[derive(Debug)]
struct Packet {
    to: Port,
    bytes: Vec<u8>,
    /// Fragments still on the way.
    parts: u32,
    /// The destination host drops it: it is the SUN-3 whose losses RFC 1030 §7 counts.
    lost: bool,
}

/// The network with its one channel, shared by any number of connections.
pub(super) struct Wideband {
    channel: Channel,
    random: Rng,
    lateness: Rng,
    packets: BTreeMap<u64, Packet>,
    pushed: u64,
    /// Datagrams with a pending or granted reservation: packet and bytes, by the time of the grant.
    reserved: BTreeMap<(Instant, u64, u32), u64>,
    arrivals: BTreeMap<(Instant, u64, u32), ()>,
    next_frame: Instant,
    lost_data: u64,
    most_waiting: u64,
    /// BSATs that are down.
    down: u64,
    halted: Option<Instant>,
}

impl Channel {
    /// The channel without loss.
    pub(super) fn usual() -> Self {
        Self {
            loss: Probability::NEVER,
            late: Probability::from_ppm(1000),
            fragment_late: Probability::from_ppm(250_000),
            buffer_bytes: BUFFER_BYTES,
        }
    }
}

impl Wideband {
    pub(super) fn new(channel: Channel, seed: u64) -> Self {
        let mut random = Rng::named(seed, "wideband");
        // The frame schedule is independent of a program's start.
        let phase = random.below(FRAME.as_nanos() as u64);
        Self {
            channel,
            random,
            lateness: Rng::named(seed, "reservations"),
            packets: BTreeMap::new(),
            pushed: 0,
            reserved: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            next_frame: Instant::from_nanos(phase),
            lost_data: 0,
            most_waiting: 0,
            down: 0,
            halted: None,
        }
    }

    /// Most bytes queued in the earth station's buffer so far.
    pub(super) fn most_waiting(&self) -> u64 {
        self.most_waiting
    }

    fn reserve(&mut self, at: Instant, number: u64, part: u32, bytes: u64) {
        let chance = if part > 0 { self.channel.fragment_late } else { self.channel.late };
        // A second fragment's failed reservation is detected one reservation later still.
        let again = if part > 0 { RESERVATION * 2 } else { RESERVATION };
        let mut ready = at + RESERVATION;
        while self.lateness.chance(chance) {
            ready += again;
        }
        self.reserved.insert((ready, number, part), bytes);
    }

    /// When the next non-empty frame leaves.
    fn frame_at(&self) -> Option<Instant> {
        let (ready, ..) = self.reserved.keys().next()?;
        let wait = ready.since(self.next_frame).as_nanos() as u64;
        let frames = wait.div_ceil(FRAME.as_nanos() as u64);
        Some(self.next_frame + Duration::from_nanos(frames * FRAME.as_nanos() as u64))
    }

    fn send_frame(&mut self, at: Instant) {
        let mut room = FRAME_BITS;
        while let Some(entry) = self.reserved.first_entry() {
            let ((ready, number, part), bits) = (*entry.key(), *entry.get() * 8);
            if ready > at || bits > room {
                break;
            }
            room -= bits;
            entry.remove();
            self.arrivals.insert((at + PROPAGATION + GATEWAYS, number, part), ());
        }
        self.next_frame = at + FRAME;
        let waiting = self.reserved.range(..=(at, u64::MAX, u32::MAX)).map(|(_, bytes)| bytes);
        let waiting = waiting.sum::<u64>();
        self.most_waiting = self.most_waiting.max(waiting);
        while self.down < BSATS && waiting > self.channel.buffer_bytes + self.down * STEP_BYTES {
            self.down += 1;
            if self.down == HOME {
                self.halted = Some(at);
                break;
            }
        }
    }
}

impl Medium for Wideband {
    type Arrival = (Port, Vec<u8>);

    fn next(&self) -> Option<Instant> {
        earliest([self.frame_at(), self.arrivals.keys().next().map(|(at, ..)| *at)])
    }

    fn pop(&mut self, now: Instant) -> Option<(Port, Vec<u8>)> {
        while let Some(at) = self.frame_at().filter(|at| *at <= now) {
            self.send_frame(at);
        }
        while let Some(entry) = self.arrivals.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, number, _), ()) = entry.remove_entry();
            let Some(packet) = self.packets.get_mut(&number) else { continue };
            packet.parts -= 1;
            if packet.parts > 0 {
                continue;
            }
            let packet = self.packets.remove(&number)?;
            if !packet.lost {
                return Some((packet.to, packet.bytes));
            }
            let data = matches!(packet.bytes.get(3), Some(&kind::DATA | &kind::LDATA));
            self.lost_data += u64::from(data);
        }
        None
    }
}

impl SharedMedium for Wideband {
    fn push(&mut self, now: Instant, from: Port, bytes: Vec<u8>) {
        let len = bytes.len() as u64 + u64::from(IP_BYTES);
        let lost = self.random.chance(self.channel.loss);
        let number = self.pushed;
        self.pushed += 1;
        let parts = if len > WHOLE_BYTES {
            // Fragments but the last carry a multiple of eight bytes (RFC 791).
            let first = (WHOLE_BYTES - u64::from(IP_BYTES)) / 8 * 8 + u64::from(IP_BYTES);
            self.reserve(now, number, 0, first);
            self.reserve(now, number, 1, len - first + u64::from(IP_BYTES));
            2
        } else {
            self.reserve(now, number, 0, len);
            1
        };
        let to = Port { pair: from.pair, side: from.side.other() };
        self.packets.insert(number, Packet { to, bytes, parts, lost });
    }

    fn lost_data(&self) -> u64 {
        self.lost_data
    }

    fn crashed(&self) -> Option<Instant> {
        self.halted
    }

    fn down(&self) -> u64 {
        self.down
    }
}

pub(super) fn run(row: &Row, seed: u64, record: bool) -> Sample {
    let sent = row.packets() + u64::from(row.resent);
    let loss = (u64::from(row.lost) * 1_000_000_000 / sent.max(1)) as u32;
    let channel = Channel { loss: Probability::from_ppb(loss), ..Channel::usual() };
    let (sender, receiver) = pair_of(row, ETHERNET_PC_AT, SUN_3);
    run_row(row, seed, Wideband::new(channel, seed), sender, receiver, record)
}
