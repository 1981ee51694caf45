//! What a transfer over a path will be like, worked out before it starts: how much the path can
//! carry at best, what burst, buffers and memory that takes, how long it will last, and what one
//! TCP stream would get. Arithmetic only: nothing here runs, draws or waits.
//!
//! The estimates are those of a sender that has the path to itself and knows its rate
//! (`--policy fixed`); one that has to find it needs some round trips more.

pub mod framing;
pub mod repair;
pub mod tcp;

use std::time::Duration;

use netblt_proto::config::{Wire, first_buffers};
use netblt_proto::limits::{
    BUFFER_BYTES, DEFAULT_BUFFER_BYTES, DEFAULT_BUFFER_MEMORY, DEFAULT_TABLE_BYTES, EXTENT_BYTES,
    MAX_OUTSTANDING, MIN_SEALED_PACKET_BYTES, TRAILER_BYTES,
};
use netblt_proto::rate::{burst_for, burst_in_millis, counted_bytes};
use netblt_proto::units::Rate;
use netblt_proto::wire::data_overhead;
use netblt_proto::wire::packet::Burst;

pub use framing::{Carrier, Framing};
pub use tcp::Tcp;

use crate::rng::Probability;

/// More loss than this is not forecast for: repair would take more than the data.
pub const MAX_LOSS: Probability = Probability::from_percent(50);
/// Most buffers that may be outstanding (`docs/protocol §9`).
pub const MAX_BUFFERS: u64 = MAX_OUTSTANDING as u64;
/// What a `sealed` buffer of one file adds to its data: one extent and the table's length
/// (`docs/protocol §8.1, §8.2`).
const TABLE_BYTES: u32 = (EXTENT_BYTES + TRAILER_BYTES) as u32;
/// A TCP header (RFC 9293) and the time stamps that every system sends (RFC 7323), padded.
const TCP_BYTES: u32 = 20 + 12;
/// Round trips from the first packet to the first data on their way. On `sealed` the first GO comes
/// with RESPONSE if the sender opens (a receiver that opens takes half a round trip more); on
/// `rfc998` it waits for what confirms them (`docs/protocol §2.3, §4.1, §4.3`).
const SETUP_ROUND_TRIPS: (f64, f64) = (1.0, 2.0);
/// Round trips from the last data sent to the end of the later end: their way, the last word's and
/// its acknowledgement's; on `rfc998` the DONE packet as well (`docs/protocol §7.2, §7.3`).
const CLOSING_ROUND_TRIPS: (f64, f64) = (1.5, 2.0);

/// Packets a second that one process moves, about: it talks from one thread. Measured over loopback
/// (`docs/results/core.md`); a faster machine moves more, and one with slow disks less.
pub const PROCESS_PACKETS: f64 = 1e6;

/// What is known about a path and wanted of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// What the narrowest link carries, everything on it counted that `framing` adds; not zero.
    pub rate: Rate,
    /// The round trip.
    pub rtt: Duration,
    /// Packets lost on the way of the data, at most [`MAX_LOSS`].
    pub loss: Probability,
    /// The largest IP packet, in bytes.
    pub mtu: u32,
    /// What is around an IP packet on that link.
    pub framing: Framing,
    /// What netblt's packets travel in.
    pub carrier: Carrier,
    /// The wire that is used.
    pub wire: Wire,
    /// What the slower host does for each packet while the wire is idle.
    pub processing: Duration,
    /// Bytes in a buffer, not zero; `None`: the usual ones, larger if the path needs it.
    pub buffer_bytes: Option<u32>,
    /// Bytes to transfer.
    pub size: Option<u64>,
}

/// Why there is no forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoForecast {
    /// The rate is zero.
    #[error("the rate is zero: it has to be greater")]
    NoRate,
    /// Beyond [`MAX_LOSS`].
    #[error("more than half of the packets lost: there is nothing to plan")]
    TooLossy,
    /// Headers leave no room for data.
    #[error("packets of {0} bytes have no room for data")]
    TooSmall(u32),
    /// A buffer of zero bytes.
    #[error("a buffer of nothing holds nothing")]
    NoBuffer,
}

/// One full DATA packet, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Data in it.
    pub data_bytes: u32,
    /// The IP packet.
    pub ip_bytes: u32,
    /// What it takes of the wire, framing and gap included.
    pub wire_bytes: u32,
}

/// Buffers that keep the path full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Data bytes in each.
    pub bytes: u32,
    /// Packets in each.
    pub packets: u64,
    /// How many must be outstanding, 2 to [`MAX_BUFFERS`] (1 if there is no more to send).
    pub count: u64,
    /// Whether `count` was cut to [`MAX_BUFFERS`]: the path cannot be filled.
    pub too_few: bool,
    /// Memory for all of them, on each side.
    pub memory_bytes: u64,
    /// Rounds of RESEND that are enough for 99 of 100 buffers.
    pub repair_rounds: u32,
}

/// How long a transfer takes, in its parts; all saturate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Until the first data leave.
    pub setup: Duration,
    /// Until all data were sent, with all that was sent again meanwhile.
    pub transfer: Duration,
    /// Repairing what was lost of the last flight, when nothing else is left to send.
    pub repair: Duration,
    /// From then on until both sides know.
    pub closing: Duration,
}

impl Times {
    /// From start to finish.
    pub fn total(&self) -> Duration {
        let parts = [self.setup, self.transfer, self.repair, self.closing];
        parts.iter().fold(Duration::ZERO, |sum, part| sum.saturating_add(*part))
    }
}

/// What one TCP stream would get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// The kind of TCP.
    pub tcp: Tcp,
    /// Bits of data a second.
    pub bits_per_second: f64,
    /// Whether the link limits it, and not what the link loses.
    pub fills_link: bool,
}

/// What a transfer over the path will be like.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// One packet.
    pub packet: Packet,
    /// Such packets a second.
    pub packets_per_second: f64,
    /// The share of the wire's time that the hosts can fill, 0 to 1.
    pub utilisation: f64,
    /// The value for `--rate`: it counts IP packets.
    pub ip_rate: Rate,
    /// Bits of data a second at best, each lost packet sent again.
    pub goodput_bps: f64,
    /// Buffers of this size that there are at most if nothing is said (`docs/protocol §9`).
    pub default_buffers: u64,
    /// The same as [`Self::goodput_bps`] if no more than [`Self::default_buffers`] are outstanding.
    pub default_goodput_bps: f64,
    /// The same of one process at each end, if that is less than the path could carry: at
    /// [`PROCESS_PACKETS`] a second.
    pub process_bps: Option<f64>,
    /// Bandwidth-delay product: bytes of IP packets in one round trip, saturating.
    pub bdp_bytes: u64,
    /// Burst size and interval.
    pub burst: Burst,
    /// Buffers that keep the path full.
    pub buffers: Buffers,
    /// How long it takes, if the size is known.
    pub times: Option<Times>,
    /// One TCP stream of each kind.
    pub tcp: [Stream; 4],
}

impl Forecast {
    /// Works out the answer to `question`.
    pub fn new(question: &Question) -> Result<Self, NoForecast> {
        let path = Basis::new(question)?;
        let buffers = path.buffers();
        let goodput = path.goodput_bps(buffers.bytes);
        let held = |count| path.goodput_held_bps(buffers.bytes, count);
        let goodput_bps = if buffers.too_few { held(MAX_BUFFERS) } else { goodput };
        let process_bps = goodput * PROCESS_PACKETS * path.period;
        let at_first = u64::from(first_buffers(question.wire, buffers.bytes));
        let default_buffers = match question.wire {
            Wire::Sealed => at_first.max(DEFAULT_BUFFER_MEMORY / u64::from(buffers.bytes.max(1))),
            Wire::Rfc998 => at_first,
        };
        Ok(Self {
            packet: path.packet,
            packets_per_second: 1.0 / path.period,
            utilisation: path.utilisation,
            ip_rate: path.ip_rate,
            goodput_bps,
            default_buffers,
            default_goodput_bps: held(default_buffers),
            process_bps: (process_bps < goodput_bps).then_some(process_bps),
            bdp_bytes: path.ip_rate.bytes_in(question.rtt),
            burst: path.burst(),
            buffers,
            times: question.size.map(|size| path.times(size, &buffers)),
            tcp: Tcp::ALL.map(|tcp| path.stream(tcp)),
        })
    }
}

/// What all parts of the answer need.
struct Basis<'a> {
    question: &'a Question,
    packet: Packet,
    /// Seconds from the start of one full packet to the start of the next.
    period: f64,
    utilisation: f64,
    ip_rate: Rate,
    /// 0 to 1/2.
    loss: f64,
    rtt: f64,
}

impl<'a> Basis<'a> {
    fn new(question: &'a Question) -> Result<Self, NoForecast> {
        let Question { rate, rtt, loss, mtu, framing, carrier, wire, .. } = *question;
        if rate == Rate::ZERO {
            return Err(NoForecast::NoRate);
        }
        if loss > MAX_LOSS {
            return Err(NoForecast::TooLossy);
        }
        if question.buffer_bytes == Some(0) {
            return Err(NoForecast::NoBuffer);
        }
        let data_bytes = framing::data_bytes(mtu, carrier, wire);
        if data_bytes < MIN_SEALED_PACKET_BYTES {
            return Err(NoForecast::TooSmall(mtu));
        }
        // No larger than what they hold, if that is less than the path would carry.
        let ip_bytes = data_bytes + carrier.overhead_bytes() + data_overhead(wire);
        let packet = Packet { data_bytes, ip_bytes, wire_bytes: framing.wire_bytes(ip_bytes) };
        let frame = framing::seconds(packet.wire_bytes, rate);
        let period = frame + question.processing.as_secs_f64();
        // At least one: as a rate it must not be nothing.
        let bytes_per_second = (f64::from(ip_bytes) / period).round().max(1.0) as u64;
        Ok(Self {
            question,
            packet,
            period,
            utilisation: frame / period,
            ip_rate: Rate::from_bytes_per_second(bytes_per_second),
            loss: f64::from(loss.ppb()) / 1e9,
            rtt: rtt.as_secs_f64(),
        })
    }

    /// Packets in a buffer of `data_bytes` data.
    fn packets(&self, data_bytes: u64) -> u64 {
        let table = if self.question.wire == Wire::Sealed { TABLE_BYTES } else { 0 };
        let image = data_bytes.saturating_add(u64::from(table));
        image.div_ceil(u64::from(self.packet.data_bytes))
    }

    /// Seconds that so many packets take with all that is sent again for them. The pacer counts
    /// packets, so a short one takes as long as a full one.
    fn seconds(&self, packets: u64) -> f64 {
        packets as f64 * self.period / (1.0 - self.loss)
    }

    /// With as many buffers as it takes.
    fn goodput_bps(&self, buffer_bytes: u32) -> f64 {
        let packets = self.packets(u64::from(buffer_bytes));
        f64::from(buffer_bytes) * 8.0 / self.seconds(packets)
    }

    /// With `count` buffers outstanding: each is taken for as long as it takes to fill.
    fn goodput_held_bps(&self, buffer_bytes: u32, count: u64) -> f64 {
        let packets = self.packets(u64::from(buffer_bytes));
        let held = self.held(packets, repair::rounds_expected(packets, self.loss));
        let bits = count as f64 * f64::from(buffer_bytes) * 8.0;
        (bits / held).min(self.goodput_bps(buffer_bytes))
    }

    /// Seconds of one round of repair: the question's and the answer's way, and before it the time
    /// until a hole counts as a loss (`docs/protocol §6.4`). On `sealed` that is the reordering
    /// window, at first a quarter of the round trip; on `rfc998` a data timer, which runs for as
    /// long as the rest of the buffer should take.
    fn repair_round(&self, buffer_packets: u64) -> f64 {
        match self.question.wire {
            Wire::Sealed => self.rtt * 1.25,
            Wire::Rfc998 => self.rtt + self.seconds(buffer_packets),
        }
    }

    /// Seconds from a buffer's GO to its OK.
    fn held(&self, packets: u64, rounds: f64) -> f64 {
        self.rtt + self.seconds(packets) + rounds * self.repair_round(packets)
    }

    fn buffers(&self) -> Buffers {
        let mut bytes = self.question.buffer_bytes.unwrap_or(DEFAULT_BUFFER_BYTES);
        let mut buffers = self.buffers_of(bytes);
        while self.question.buffer_bytes.is_none() && buffers.too_few && bytes < *BUFFER_BYTES.end()
        {
            bytes *= 2;
            buffers = self.buffers_of(bytes);
        }
        buffers
    }

    fn buffers_of(&self, bytes: u32) -> Buffers {
        let packets = self.packets(u64::from(bytes));
        let repair_rounds = repair::rounds_enough(packets, self.loss);
        let held = self.held(packets, f64::from(repair_rounds));
        // One more, which is being stored.
        let needed = (held / self.seconds(packets)).ceil() as u64;
        let needed = needed.saturating_add(1);
        let all = self.question.size.map_or(u64::MAX, |size| size.div_ceil(u64::from(bytes)));
        let count = needed.min(all.max(1));
        let room = if self.question.wire == Wire::Sealed { DEFAULT_TABLE_BYTES } else { 0 };
        Buffers {
            bytes,
            packets,
            count: count.min(MAX_BUFFERS),
            too_few: count > MAX_BUFFERS,
            memory_bytes: count.min(MAX_BUFFERS) * (u64::from(bytes) + u64::from(room)),
            repair_rounds,
        }
    }

    fn burst(&self) -> Burst {
        let Question { wire, carrier, .. } = &self.question;
        let overhead = carrier.overhead_bytes();
        let counted = counted_bytes(*wire, self.packet.ip_bytes - overhead) + overhead;
        match wire {
            Wire::Sealed => burst_for(self.ip_rate, counted),
            Wire::Rfc998 => burst_in_millis(self.ip_rate, counted),
        }
    }

    fn times(&self, size: u64, buffers: &Buffers) -> Times {
        let bytes = u64::from(buffers.bytes);
        let whole = size / bytes;
        let rest = self.packets(size % bytes);
        let rest = if size.is_multiple_of(bytes) { u64::from(whole == 0) } else { rest };
        let packets = whole.saturating_mul(buffers.packets).saturating_add(rest);
        let full = self.seconds(packets);
        let transfer = if buffers.too_few {
            full.max(size as f64 * 8.0 / self.goodput_held_bps(buffers.bytes, buffers.count))
        } else {
            full
        };
        // What was lost before is repaired while there is still something new to send.
        let round = self.repair_round(packets.min(buffers.packets));
        let flight = ((round / self.period).ceil() as u64).clamp(1, packets);
        let repair = repair::rounds_expected(flight, self.loss) * round;
        let of_wire = |(sealed, rfc998)| match self.question.wire {
            Wire::Sealed => sealed,
            Wire::Rfc998 => rfc998,
        };
        Times {
            setup: duration(self.rtt * of_wire(SETUP_ROUND_TRIPS)),
            transfer: duration(transfer),
            repair: duration(repair),
            closing: duration(self.rtt * of_wire(CLOSING_ROUND_TRIPS)),
        }
    }

    fn stream(&self, tcp: Tcp) -> Stream {
        let Question { rate, rtt, mtu, framing, carrier, .. } = *self.question;
        let segment_bytes = mtu.saturating_sub(carrier.ip_header_bytes() + TCP_BYTES);
        let frame = framing::seconds(framing.wire_bytes(mtu), rate);
        let period = frame + self.question.processing.as_secs_f64();
        let link = f64::from(segment_bytes) * 8.0 / period * (1.0 - self.loss);
        let alone = tcp.bits_per_second(self.loss, rtt, segment_bytes);
        Stream { tcp, bits_per_second: alone.min(link), fills_link: alone >= link }
    }
}

/// Saturating.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests;
