//! Emulation of other bulk protocols on the `sealed` wire (`docs/protocol §6.8`): each has a
//! rate law and a loss detector, and some an order of sending, a timer, and an idle behaviour.
//!
//! They emulate algorithms, from papers, published source and ORNL's review of them (F. Fowler et
//! al., "UDP bulk transfer protocols", 2003: cited as "review"), not programs or packets. Circuit
//! breaker, pacing, bounds and the close are the machine's, as for every law.
//!
//! `sabul`, `tsunami`, `fobs`, `rbudp` and `udt` are whole protocols. `bbr`,
//! `window` and the laws beside it are TCP's, whose recovery is ours: it asks for what was
//! overtaken, once, as TCP's selective acknowledgements do.

pub(crate) mod bbr;
mod bitmaps;
mod cubic;
mod fobs;
mod highspeed;
mod nak_reports;
mod rbudp;
mod reno;
mod sabul;
mod scalable;
mod tcp_window;
#[cfg(test)]
mod tests;
mod tsunami;
mod udt;
mod window_growth;

use std::net::IpAddr;
use std::time::Duration;

use crate::buffer::Geometry;
use crate::config::{Config, EmulatedProtocol, Emulation, FecPolicy, Policy, Wire};
use crate::loss_detection::LossDetector;
use crate::negotiated::Negotiated;
use crate::rate::{self, Belief, Idle, Law, Order, Pacing, RateControl, Sample, Ways, burst_for};
use crate::time::Instant;
use crate::units::{Burst, Rate};
use crate::wire_profile::WireProfile;

/// Time without feedback, and with nothing left to send, after which outstanding data count as
/// lost: the originals' TCP control channels would have repeated their messages. SABUL's EXP timer
/// is the same.
const ALL_LOST_AFTER: Duration = Duration::from_secs(1);

/// Builds the rate law of `policy`. Packets go to `peer` with `overhead` bytes of headers; the law
/// gets the saved rate of the path.
pub(crate) fn build(
    config: &Config,
    policy: Policy,
    negotiated: &Negotiated,
    (overhead, peer): (u32, IpAddr),
) -> Law {
    let mut law = match policy {
        Policy::Emulated(recreation) if negotiated.profile.reports => {
            recreate(&recreation, negotiated, overhead)
        }
        policy => rate::build(policy, negotiated, overhead),
    };
    if let Some(known) = config.remembers(peer) {
        law.control.recall(known, negotiated.rtt);
    }
    law
}

/// The rate law of `policy` alone, for a simulator without connections: as on a `sealed` connection
/// with IP packets of `packet_bytes` and a measured round trip of `rtt`, without negotiated limits
/// or a saved rate.
pub fn law(policy: Policy, packet_bytes: u32, rtt: Duration) -> Box<dyn RateControl> {
    const BUFFER_BYTES: u32 = 1 << 20;
    let overhead = 28;
    let datagram = packet_bytes.saturating_sub(overhead).max(1);
    let profile = WireProfile::of(Wire::Sealed);
    let data = datagram.saturating_sub(profile.data_overhead).max(1);
    let unlimited = Burst { packets: u32::from(u16::MAX), interval: Duration::from_millis(1) };
    let negotiated = Negotiated {
        profile,
        geometry: Geometry { buffer_bytes: BUFFER_BYTES, packet_bytes: data },
        max_outstanding: 1,
        socket_bytes: None,
        burst: unlimited,
        repair: FecPolicy::Never,
        datagram_bytes: datagram as usize,
        control_bytes: datagram as usize,
        burst_bytes: datagram,
        opened: Instant::EPOCH,
        rtt: Some(rtt),
        longest_rtt: Some(rtt),
    };
    match policy {
        Policy::Emulated(recreation) => recreate(&recreation, &negotiated, overhead).control,
        policy => rate::build_anew(policy, &negotiated, overhead).control,
    }
}

fn recreate(recreation: &Emulation, negotiated: &Negotiated, overhead: u32) -> Law {
    let packet = negotiated.burst_bytes + overhead;
    let rate = recreation.rate;
    let control: Box<dyn RateControl> = match recreation.protocol {
        EmulatedProtocol::Sabul => Box::new(sabul::Sabul::new(packet)),
        EmulatedProtocol::Tsunami => Box::new(tsunami::Tsunami::new(rate, packet)),
        EmulatedProtocol::Fobs => Box::new(fobs::Fobs::new(rate, packet)),
        EmulatedProtocol::Rbudp => Box::new(rbudp::Rbudp::new(rate, packet)),
        EmulatedProtocol::Udt => Box::new(udt::Udt::new(packet, negotiated.rtt, rate)),
        EmulatedProtocol::Bbr => Box::new(bbr::Bbr::new(packet, negotiated.rtt)),
        tcp => Box::new(tcp_window::TcpWindow::new(
            tcp,
            packet,
            recreation.window_bytes,
            negotiated.rtt,
        )),
    };
    let offered = negotiated
        .burst_limit()
        .map(|burst| Rate::over(u64::from(burst.packets) * u64::from(packet), burst.interval));
    let own = match recreation.protocol {
        EmulatedProtocol::Tsunami | EmulatedProtocol::Fobs | EmulatedProtocol::Rbudp => None,
        _ => rate,
    };
    let control = Box::new(Under { law: control, offered, own, client: None, packet });
    let packets = negotiated.geometry.max_packets();
    Law { control, learns: true, ways: ways(recreation.protocol, packets) }
}

/// The scheduling of `protocol`, with buffers of `packets_per_buffer`.
fn ways(protocol: EmulatedProtocol, packets_per_buffer: u32) -> Ways {
    let own = Ways { law: protocol.code(), ..Ways::OURS };
    let all_lost_after = Some(ALL_LOST_AFTER);
    match protocol {
        EmulatedProtocol::Sabul | EmulatedProtocol::Udt | EmulatedProtocol::Rbudp => {
            Ways { all_lost_after, ..own }
        }
        // "TSUNAMI continues to retransmit the last block/packet until receiving a REQUEST_STOP"
        // (review §6).
        EmulatedProtocol::Tsunami => Ways { idle: Idle::Repeats(1), all_lost_after, ..own },
        // "FOBS gives priority to new data and transmits a CHUNK(default 100MB) of data before
        // doing retransmits"; "after sending the first chunk, packets 70000-71229 were
        // re-transmitted" (review §6).
        EmulatedProtocol::Fobs => Ways {
            order: Order::NewFirst,
            chunk: Some(fobs::chunk_buffers(packets_per_buffer)),
            idle: Idle::Repeats(fobs::SEGMENT_PACKETS),
            all_lost_after,
            ..own
        },
        EmulatedProtocol::Reno
        | EmulatedProtocol::RenoDelayed
        | EmulatedProtocol::Cubic
        | EmulatedProtocol::HighSpeed
        | EmulatedProtocol::Scalable
        | EmulatedProtocol::Bbr => own,
    }
}

/// The loss detector of a receiver whose sender emulates the protocol with the code `law`. `None`
/// for the receiver's own: without emulation, with TCP's laws, and for unknown codes.
pub(crate) fn recovery(law: u8, packets_per_buffer: u32) -> Option<Box<dyn LossDetector>> {
    Some(match EmulatedProtocol::from_code(law)? {
        EmulatedProtocol::Sabul => Box::new(sabul::recovery()),
        EmulatedProtocol::Tsunami => Box::new(tsunami::Requests::new()),
        EmulatedProtocol::Fobs => Box::new(fobs::recovery(packets_per_buffer)),
        EmulatedProtocol::Rbudp => Box::new(rbudp::recovery()),
        EmulatedProtocol::Udt => Box::new(udt::recovery()),
        _ => return None,
    })
}

/// A law under three ceilings: the receiver's offer, the configured one, and the client's at run
/// time.
#[derive(Debug)]
struct Under {
    law: Box<dyn RateControl>,
    offered: Option<Rate>,
    own: Option<Rate>,
    client: Option<Rate>,
    packet: u32,
}

impl RateControl for Under {
    fn on_sample(&mut self, now: Instant, sample: &Sample) {
        self.law.on_sample(now, sample);
    }

    fn on_silence(&mut self, now: Instant) {
        self.law.on_silence(now);
    }

    fn on_offer(&mut self, now: Instant, offer: Burst) {
        let bytes = u64::from(offer.packets) * u64::from(self.packet);
        self.offered = (!offer.interval.is_zero()).then(|| Rate::over(bytes, offer.interval));
        self.law.on_offer(now, offer);
    }

    fn on_ceiling(&mut self, _now: Instant, ceiling: Option<Rate>) {
        self.client = ceiling;
    }

    fn on_packet_bytes(&mut self, bytes: u32) {
        self.packet = bytes.max(1);
        self.law.on_packet_bytes(bytes);
    }

    fn pacing(&self) -> Pacing {
        let pacing = self.law.pacing();
        let bytes = u64::from(pacing.burst.packets) * u64::from(self.packet);
        let unbounded = pacing.burst.interval.is_zero();
        match [self.offered, self.own, self.client].into_iter().flatten().min() {
            Some(most) if unbounded || Rate::over(bytes, pacing.burst.interval) > most => {
                Pacing { burst: burst_for(most, self.packet), ..pacing }
            }
            _ => pacing,
        }
    }

    fn belief(&self) -> Belief {
        self.law.belief()
    }

    fn charges_bytes(&self) -> bool {
        self.law.charges_bytes()
    }

    fn answers_marks(&self) -> bool {
        self.law.answers_marks()
    }

    fn on_data_sent(&mut self, now: Instant, packets: u32) {
        self.law.on_data_sent(now, packets);
    }

    fn on_resend(&mut self, now: Instant, packets: u64) {
        self.law.on_resend(now, packets);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.law.next_timeout()
    }

    fn on_timeout(&mut self, now: Instant) {
        self.law.on_timeout(now);
    }
}

/// `us` microseconds as a duration.
fn micros(us: f64) -> Duration {
    Duration::from_nanos((us * 1000.0).max(1.0) as u64)
}
