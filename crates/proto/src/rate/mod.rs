//! Rate control: how much to send in a burst, and how often (RFC 998 §4).
//!
//! The machine measures, the policy decides, and the machine keeps what every policy must keep:
//! pacing, the cap on what is in flight, and the circuit breaker.

pub mod adaptive;
pub mod background;
mod breaker;
mod ceilings;
pub mod controller;
mod cubic;
pub mod fixed;
pub(crate) mod math;
mod millis;
pub mod pacer;
mod path;
pub mod sampler;
pub mod subflows;
mod train;
mod wander;
mod way_back;
mod ways;
pub mod window;

pub use cubic::Cubic;
pub(crate) use train::is_long;
pub(crate) use ways::{Idle, Order, Ways};

#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::time::Duration;

use adaptive::Adaptive;
use background::Background;
use controller::{Controller, ExcuseRecord, TestRecord, WindowChange};
use fixed::Fixed;

use crate::config::{Config, FixedRate, FixedRateSpec, Policy, Wire};
use crate::negotiated::Negotiated;
use crate::pmtud::ETHERNET_BYTES;
use crate::stats::{Learned, Remembered};
use crate::time::Instant;
use crate::units::Burst;
use crate::units::Rate;

/// What one report of the receiver showed, worked out by the machine.
/// Cumulative counts never decrease; byte counts are IP packets (`docs/protocol §6.1`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Round trip time of the newest packet reported, without the receiver's own delay.
    pub rtt: Option<Duration>,
    /// How long that packet took there, in microseconds, against the first one reported: what the
    /// way back and this host's own lateness add to a round trip is not in it. The two clocks may
    /// run apart.
    pub way_micros: Option<i64>,
    /// Rate at which packets arrived over about the last round trip, by the receiver's clock;
    /// never above the rate at which the bytes that arrived were sent.
    pub delivery_rate: Option<Rate>,
    /// Rate at which the packets of that same flight were sent, whether they arrived or not.
    pub send_rate: Option<Rate>,
    /// Bytes sent so far.
    pub sent_bytes: u64,
    /// Bytes known to have arrived so far.
    pub delivered_bytes: u64,
    /// Packets known to have arrived so far.
    pub delivered_packets: u64,
    /// Packets found missing so far; one lost twice counts twice.
    pub lost_packets: u64,
    /// Packets that arrived marked Congestion Experienced so far.
    pub marked_packets: u64,
    /// Bytes sent that are neither reported nor known to be missing.
    pub in_flight_bytes: u64,
    /// The rate during this sample was limited by something other than the policy: no data
    /// supplied, no permission (GO), so it says little about the path.
    pub app_limited: bool,
    /// Bytes that left at the same moment as the newest packet reported, up to and with it.
    pub burst_bytes: u64,
    /// How much later than the first of these that packet left.
    pub burst_time: Duration,
    /// Bytes up to that packet that had left ahead of the pace because this host had stood still
    /// and made up for it: if they wait on the path, that queue is of its own making.
    pub made_up_bytes: u64,
    /// From the newest packet of the report before to that of this one, if both say when theirs
    /// arrived.
    pub stretch: Option<Stretch>,
    /// Round trips completed since the connection opened: grows by one when a packet is reported
    /// that was sent after the previous round ended.
    pub round: u64,
}

/// What lay between two packets: how it was sent, and how it arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// Bytes sent before the first of the two.
    pub from_bytes: u64,
    /// Bytes sent from the one to the other.
    pub sent_bytes: u64,
    /// Bytes that arrived from the one to the other.
    pub arrived_bytes: u64,
    /// Time between their leaving, by this host's clock.
    pub sending: Duration,
    /// Time between their arriving, by the receiver's clock.
    pub arriving: Duration,
}

/// What a policy asks of the pacer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// Packets per burst and time between bursts.
    pub burst: Burst,
    /// Most bytes that may be in flight; `None` for no limit but the outstanding buffers.
    pub cap_bytes: Option<u64>,
    /// How much of the time in which this host stood still may be made up for at once; a
    /// millisecond in any case.
    pub catch_up: Duration,
}

impl Pacing {
    /// These burst values, and nothing else.
    pub const fn of(burst: Burst) -> Self {
        Self { burst, cap_bytes: None, catch_up: Duration::ZERO }
    }
}

/// What a policy believes, for people and traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Belief {
    /// What it is doing, in a word.
    pub phase: &'static str,
    /// What the path carries.
    pub bandwidth: Option<Rate>,
    /// The round trip without a queue.
    pub min_rtt: Option<Duration>,
    /// How long the queue is.
    pub queue: Duration,
}

/// What a policy measured of its path, for traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathView {
    /// This sender's part of what the bottleneck carries, in millionths, if it is known.
    pub share_ppm: Option<u64>,
    /// Mean difference of one report's round trip to the next one's, or of one round's to the next
    /// one's: what a queue hardly does.
    pub varies_by: Duration,
    /// What only the way back adds to a round trip.
    pub way_back: Duration,
}

/// A rate control policy: it takes in reports, and gives burst size and interval.
pub trait RateControl: Debug + Send {
    /// A report arrived.
    fn on_sample(&mut self, now: Instant, sample: &Sample);
    /// Data are in flight and no report has come for several round trips (at least three).
    fn on_silence(&mut self, now: Instant);
    /// Nothing was sent yet, and a round trip is at most `longest`, which may be long.
    /// Whether it goes by that from now on.
    fn on_first_answer(&mut self, _longest: Duration) -> bool {
        false
    }
    /// The receiver offered burst values in an OK (RFC 998 §4): never faster than that, until it
    /// offers others. On `rfc998` they are never looser than those before.
    fn on_offer(&mut self, now: Instant, offer: Burst);
    /// The user's newest limit of the rate; `None` if there is none. A law that ignores it is held
    /// below it by the sender.
    fn on_ceiling(&mut self, _now: Instant, _ceiling: Option<Rate>) {}
    /// It takes the place of another law, by which data went at about `rate` where the smallest
    /// round trip is `rtt`. What is counted was counted from the beginning.
    fn take_over(&mut self, _now: Instant, _rate: Rate, _rtt: Duration) {}
    /// The client had paused for so long, and goes on.
    fn on_pause_over(&mut self, _now: Instant, _lasted: Duration) {}
    /// The datagrams of the transfer are now this many bytes long, IP and UDP headers included.
    fn on_packet_bytes(&mut self, bytes: u32);
    /// Nothing was sent yet. What an earlier connection learned of this path, whose round trip is
    /// `rtt` now, if that was measured.
    fn recall(&mut self, _known: Remembered, _rtt: Option<Duration>) {}
    /// All that there is to send are so many bytes of payload, of which nothing was reported yet.
    fn on_whole(&mut self, _bytes: u64) {}
    /// What is worth remembering of the path.
    fn learned(&self) -> Learned {
        Learned::Nothing
    }
    /// What holds now.
    fn pacing(&self) -> Pacing;
    /// Whether it looks for the path's rate with packets whose times others must not disturb.
    fn tries(&self) -> bool {
        false
    }
    /// What it believes.
    fn belief(&self) -> Belief;
    /// What it measured of the path, as far as that holds at this time.
    fn path_view(&self, _now: Instant) -> PathView {
        PathView::default()
    }
    /// Whether a burst is so many whole packets' worth of bytes, and not just so many packets as
    /// RFC 998 has it. A policy that compares what it paced with what arrived must say yes; where
    /// packets count all the same, `on_packet_bytes` gives their mean size.
    fn charges_bytes(&self) -> bool {
        false
    }
    /// Whether it sends less where packets arrive marked Congestion Experienced. Data ask for marks
    /// (ECT(0), RFC 3168) only then: a mark that nothing answers takes the place of a loss that the
    /// path needs (RFC 8085 §3.1.7).
    fn answers_marks(&self) -> bool {
        false
    }
    /// Whether a circuit breaker has reduced the rate below the one that was asked for.
    fn is_reduced(&self) -> bool {
        false
    }
    /// So many packets of data left.
    fn on_data_sent(&mut self, _now: Instant, _packets: u32) {}
    /// The receiver asked for so many packets again; those it asked for before among them.
    fn on_resend(&mut self, _now: Instant, _packets: u64) {}
    /// When it wants to be called although nothing is reported: laws that act by a clock of their
    /// own have one (UDT's every 10 ms).
    fn next_timeout(&self) -> Option<Instant> {
        None
    }
    /// That time has come.
    fn on_timeout(&mut self, _now: Instant) {}
    /// The oldest change of its window that was not traced yet.
    fn take_change(&mut self) -> Option<WindowChange> {
        None
    }
    /// The newest test of its losses that is over and was not traced yet.
    fn take_test(&mut self) -> Option<TestRecord> {
        None
    }
    /// The newest excuse of its losses that began or ended and was not traced yet.
    fn take_excuse(&mut self) -> Option<ExcuseRecord> {
        None
    }
}

/// A rate law at work, and what it needs of the machine.
#[derive(Debug)]
pub(crate) struct Law {
    pub(crate) control: Box<dyn RateControl>,
    /// It learns from what becomes of the data: the machine has to infer that where no
    /// report says it, to announce its rate to the other end, and to stop where no report comes.
    pub(crate) learns: bool,
    /// What else its protocol has of its own.
    pub(crate) ways: Ways,
}

/// An aggressive sender takes as much as so many fair ones.
const AGGRESSIVE_WEIGHT: u32 = 4;

/// The law of `policy`, for a connection with IP packets of `overhead` bytes more than datagrams.
pub(crate) fn build(policy: Policy, negotiated: &Negotiated, overhead: u32) -> Law {
    let packet = match negotiated.profile.paces_bytes {
        true => negotiated.burst_bytes + overhead,
        false => negotiated.mean_packet_bytes(overhead),
    };
    let ceiling = match policy {
        Policy::Fixed(_) => return fixed(negotiated.burst, negotiated, packet),
        Policy::Background { ceiling } if negotiated.profile.reports => {
            let law = Background::new(packet, negotiated.rtt, ceiling).within(negotiated.burst);
            return Law { control: Box::new(law), learns: true, ways: Ways::OURS };
        }
        Policy::Cubic { ceiling } if negotiated.profile.reports => {
            let law = Controller::new(packet, negotiated.rtt, ceiling).within(negotiated.burst);
            return Law { control: Box::new(law), learns: true, ways: Ways::OURS };
        }
        Policy::Fair { ceiling } if negotiated.profile.reports && !has_long_path(negotiated) => {
            let law = Controller::new(packet, negotiated.rtt, ceiling).tolerant();
            let control = Box::new(law.within(negotiated.burst));
            return Law { control, learns: true, ways: Ways::OURS };
        }
        Policy::Aggressive { ceiling } if negotiated.profile.reports => {
            let law = Controller::new(packet, negotiated.rtt, ceiling).tolerant();
            let law = law.weighted(AGGRESSIVE_WEIGHT).within(negotiated.burst);
            return Law { control: Box::new(law), learns: true, ways: Ways::OURS };
        }
        Policy::Fair { ceiling }
        | Policy::Background { ceiling }
        | Policy::Aggressive { ceiling }
        | Policy::Cubic { ceiling } => ceiling,
        // Its law is built elsewhere; here it is one that finds the rate, below that ceiling.
        Policy::Emulated(recreation) => recreation.rate,
    };
    // What is only a bound would make doubling slow, unless it is long.
    let bound = negotiated.longest_rtt.filter(|rtt| is_long(*rtt));
    let rtt = negotiated.rtt.or(bound);
    let mut adaptive = Adaptive::new(packet, rtt, ceiling).within(negotiated.burst);
    if keeps_to_the_letter(negotiated) {
        adaptive = adaptive.to_the_letter(negotiated.burst);
    }
    if !negotiated.profile.reports {
        let packets = u64::from(negotiated.geometry.max_packets());
        adaptive = adaptive.told_by_buffers(packets * u64::from(packet));
    }
    Law { control: Box::new(adaptive), learns: true, ways: Ways::OURS }
}

fn fixed(burst: Burst, negotiated: &Negotiated, packet: u32) -> Law {
    let fixed = Fixed::new(burst, packet);
    let fixed = if negotiated.profile.paces_bytes { fixed.of_bytes() } else { fixed };
    let fixed = if negotiated.profile.reports { fixed.with_breaker() } else { fixed };
    Law { control: Box::new(fixed), learns: false, ways: Ways::OURS }
}

/// The law of `policy`, for a connection that was opened with another one: of a fixed one the pace
/// was not agreed on.
pub(crate) fn build_anew(policy: Policy, negotiated: &Negotiated, overhead: u32) -> Law {
    let packet = negotiated.burst_bytes + overhead;
    match policy {
        Policy::Fixed(FixedRate(spec)) => {
            let own = match spec {
                FixedRateSpec::Bursts(burst) => burst,
                FixedRateSpec::Rate(rate) => burst_for(rate, packet),
            };
            fixed(negotiated.burst.slower(own), negotiated, packet)
        }
        policy => build(policy, negotiated, overhead),
    }
}

/// Where no round trip was measured, from this bound of it on it may take a second.
const LONG_BOUND: Duration = Duration::from_millis(1500);

/// Whether a round trip may take a second or more. A window finds such a path full by a queue or a
/// loss, a second after it was too much; a network like RFC 1030's Wideband breaks down by that
/// (`docs/decisions/long-paths.md`).
fn has_long_path(negotiated: &Negotiated) -> bool {
    // A bound is longer than the round trip: by 0.5 s where one OPEN was lost.
    let bounded = || negotiated.longest_rtt.is_some_and(|bound| bound >= LONG_BOUND);
    negotiated.rtt.map_or_else(bounded, is_long)
}

/// Whether a sender keeps to RFC 998's letter in its burst values (`docs/protocol §6.7`). Over a
/// path for trains what is announced is a round trip old by the time it holds, and a network that
/// is overrun by a twentieth meanwhile may not recover: there the law's own values hold at once.
pub(crate) fn keeps_to_the_letter(negotiated: &Negotiated) -> bool {
    negotiated.profile.strict_bursts && !negotiated.longest_rtt.is_some_and(is_long)
}

/// About this long is a burst: long enough that a loop which wakes late keeps up, short enough
/// that a queue hardly sees it.
const BURST_TIME: Duration = Duration::from_millis(1);
/// Most packets in a burst: what one send takes at an Ethernet's packet size.
const MAX_BURST: u64 = 44;
/// Most packets in a burst above [`FAST`], where each send must carry all it can.
const MAX_FAST_BURST: u64 = 64;
/// The rate from which bursts may be as large as a send can be.
pub(crate) const FAST: Rate = Rate::from_bits_per_second(5_000_000_000);
/// Longest time between bursts, however low the rate: the sender must not look dead.
const MAX_INTERVAL: Duration = Duration::from_secs(10);

/// The burst values that make `rate` with packets of `packet_bytes`: about a millisecond's worth in
/// a burst, and the interval exact to a nanosecond.
pub fn burst_for(rate: Rate, packet_bytes: u32) -> Burst {
    let packet_bytes = u64::from(packet_bytes.max(1));
    let most = if rate > FAST { MAX_FAST_BURST } else { MAX_BURST };
    let packets = (rate.bytes_in(BURST_TIME) / packet_bytes).clamp(1, most);
    let interval = rate.time_for(packets * packet_bytes);
    let interval = interval.clamp(Duration::from_nanos(1), MAX_INTERVAL);
    Burst { packets: packets as u32, interval }
}

/// The datagram, in bytes, that burst values count where those sent may have `datagram_bytes`: what
/// they do have the path decides, on the way (`docs/protocol §4.4`).
pub fn counted_bytes(wire: Wire, datagram_bytes: u32) -> u32 {
    match wire {
        Wire::Rfc998 => datagram_bytes,
        Wire::Sealed => datagram_bytes.min(ETHERNET_BYTES),
    }
}

/// The burst values that an end with `config` proposes.
pub fn proposed_burst(config: &Config) -> Burst {
    let packet_bytes = counted_bytes(config.wire, config.datagram_bytes) + config.overhead_bytes;
    match (config.policy, config.wire) {
        (Policy::Fixed(FixedRate(FixedRateSpec::Bursts(burst))), _) => burst,
        (Policy::Fixed(FixedRate(FixedRateSpec::Rate(rate))), Wire::Sealed) => {
            burst_for(rate, packet_bytes)
        }
        (Policy::Fixed(FixedRate(FixedRateSpec::Rate(rate))), Wire::Rfc998) => {
            burst_in_millis(rate, packet_bytes)
        }
        _ => config.burst,
    }
}

/// The longest interval tried for a burst of whole milliseconds.
const MAX_BURST_MILLIS: u64 = 100;

/// The burst values in whole milliseconds, which is what RFC 998's OPEN can say, that come nearest
/// to `rate` and never above it: the shortest interval that loses less than one part in a hundred,
/// or else the one that loses least.
pub fn burst_in_millis(rate: Rate, packet_bytes: u32) -> Burst {
    let packet_bytes = u64::from(packet_bytes.max(1));
    // A rate is cut to whole bytes; the packet that just fits must not be lost by that.
    let whole = Rate::from_bytes_per_second(rate.bytes_per_second().saturating_add(1));
    let packets_in = |millis| whole.bytes_in(Duration::from_millis(millis)) / packet_bytes;
    let kept = |millis| (packets_in(millis) * packet_bytes) as f64 / millis as f64;
    let full = rate.bytes_per_second() as f64 / 1000.0;
    let good = (1..=MAX_BURST_MILLIS).find(|millis| kept(*millis) >= full * 0.99);
    let best = || (1..=MAX_BURST_MILLIS).max_by(|a, b| kept(*a).total_cmp(&kept(*b)));
    let millis = good.or_else(best).unwrap_or(1);
    match packets_in(millis) {
        // Not even one in all that time.
        0 => {
            let millis = rate.time_for(packet_bytes).as_nanos().div_ceil(1_000_000);
            let millis = u16::try_from(millis).unwrap_or(u16::MAX);
            Burst { packets: 1, interval: Duration::from_millis(u64::from(millis)) }
        }
        packets => Burst {
            packets: u32::from(u16::try_from(packets).unwrap_or(u16::MAX)),
            interval: Duration::from_millis(millis),
        },
    }
}
