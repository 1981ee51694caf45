//! Draws the transfer of a world: its size, its ends and its rate.

use std::time::Duration;

use netblt_path::scenario::Scenario;
use netblt_proto::config::{FixedRate, Policy, Role, Wire};
use netblt_proto::rate::counted_bytes;
use netblt_proto::units::Rate;
use netblt_proto::wire::packet::Burst;

use super::dice::Dice;

/// Packets in a transfer, about: more would only take longer.
const MAX_PACKETS: u64 = 40_000;
/// A transfer without faults takes at most about this long.
pub(super) const MAX_TIME: Duration = Duration::from_secs(60);
/// The largest datagram that is drawn.
const MAX_DATAGRAM: u32 = 9000;
/// Headers of IPv4 and UDP.
const OVERHEAD: u32 = 28;

/// The drawn transfer, before it is made into hosts and paths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sketch {
    pub(super) wire: Wire,
    pub(super) bytes: u64,
    pub(super) datagram: u32,
    /// The largest datagram that the path lets pass.
    pub(super) largest: u32,
    pub(super) buffer: u32,
    pub(super) outstanding: u32,
    /// The rate of the slower direction that data take.
    pub(super) rate: Rate,
    pub(super) rtt: Duration,
    pub(super) policy: Policy,
    pub(super) burst: Burst,
    pub(super) active: Role,
}

pub(super) fn sketch(seed: u64, scenario: Option<&Scenario>) -> Sketch {
    let wire = if Dice::new(seed, "wire").percent(33) { Wire::Rfc998 } else { Wire::Sealed };
    let mut dice = Dice::new(seed, "size");
    let bytes = match dice.range(0, 19) {
        0 => 0,
        1..=9 => dice.scale(1, 1 << 20),
        _ => dice.range(1 << 20, 16 << 20),
    };
    let mut dice = Dice::new(seed, "datagram");
    let datagram = match dice.range(0, 3) {
        0 => 1232,
        1 => dice.pick(&[576, 1200, 1472, 8972]),
        _ => dice.scale(100, u64::from(MAX_DATAGRAM)),
    };
    // Enough data in each packet that there are not too many.
    let least = bytes.div_ceil(MAX_PACKETS) + 48;
    let largest = scenario.map_or(MAX_DATAGRAM, largest);
    let datagram = (datagram.max(least) as u32).min(largest);
    let mut dice = Dice::new(seed, "window");
    let buffer = match wire {
        Wire::Sealed => 1 << dice.range(10, 20),
        Wire::Rfc998 => dice.scale(1 << 10, 1 << 20) as u32,
    };
    let outstanding = dice.scale(1, 64) as u32;
    let mut dice = Dice::new(seed, "path");
    let drawn = dice.scale(256_000, 1_000_000_000);
    let slowest = Rate::over(bytes, MAX_TIME).bits_per_second() * 2;
    let rate = Rate::from_bits_per_second(drawn.max(slowest));
    let rtt = dice.time(Duration::from_micros(100), Duration::from_secs(2));
    let (rate, rtt) = match scenario {
        Some(scenario) => (slower(scenario).unwrap_or(rate), scenario.rtt()),
        None => (rate, rtt),
    };
    let mut dice = Dice::new(seed, "roles");
    let active = if dice.percent(50) { Role::Sender } else { Role::Receiver };
    let (policy, burst) = policy(seed, wire, rate, datagram);
    Sketch { wire, bytes, datagram, largest, buffer, outstanding, rate, rtt, policy, burst, active }
}

fn slower(scenario: &Scenario) -> Option<Rate> {
    [scenario.up.rate, scenario.down.rate].into_iter().flatten().min()
}

/// The largest datagram that passes in both directions at all times.
fn largest(scenario: &Scenario) -> u32 {
    let links = [&scenario.up, &scenario.down].into_iter();
    let mtus =
        links.flat_map(|link| link.schedule.iter().map(|change| change.mtu).chain([link.mtu]));
    let narrowest = mtus.flatten().min().map_or(u32::MAX, u32::from);
    narrowest.saturating_sub(OVERHEAD).min(MAX_DATAGRAM)
}

/// Fixed policies know about the path's rate, as RFC 998 demands of people, more or less.
pub(super) fn policy(seed: u64, wire: Wire, path: Rate, datagram: u32) -> (Policy, Burst) {
    let mut dice = Dice::new(seed, "policy");
    let share = if dice.percent(80) { dice.range(20, 100) } else { dice.range(100, 150) };
    let rate = path.scaled(share, 100);
    // `rfc998` counts in milliseconds, so its bursts may have to be larger.
    let (grain, most) = match wire {
        Wire::Rfc998 => (Duration::from_millis(1), 400),
        Wire::Sealed => (Duration::from_micros(1), 64),
    };
    let packet = u64::from(counted_bytes(wire, datagram)) + 28;
    let in_a_grain = rate.bytes_in(grain) / packet;
    let packets = dice.scale(1, most.min(8 + in_a_grain * 2)).max(in_a_grain).max(1);
    let exact = rate.time_for(packets * packet);
    let grains = (exact.as_nanos() / grain.as_nanos()).max(1) as u32;
    let burst = Burst { packets: packets.min(65_535) as u32, interval: grain * grains };
    let ceiling = dice.percent(30).then(|| path.scaled(dice.range(20, 150), 100));
    let fixed = dice.percent(35);
    let pace = FixedRate::bursts(burst).filter(|_| fixed);
    let mut controller = Dice::new(seed, "controller");
    let fair = match wire == Wire::Sealed {
        true if controller.percent(15) => match controller.percent(50) {
            true => Policy::Aggressive { ceiling },
            false => Policy::Cubic { ceiling },
        },
        _ => Policy::Fair { ceiling },
    };
    (pace.map_or(fair, Policy::Fixed), burst)
}

/// A buffer and its answers take up to three round trips: with few and small ones, a long path
/// would take for ever.
pub(super) fn bound_rounds(sketch: &mut Sketch) {
    loop {
        let window = u64::from(sketch.buffer) * u64::from(sketch.outstanding);
        let rounds = sketch.bytes.div_ceil(window) as u32;
        if rounds <= 4000 && (sketch.rtt * 3).saturating_mul(rounds) <= MAX_TIME {
            return;
        }
        if sketch.buffer < 1 << 20 {
            sketch.buffer = (sketch.buffer * 2).min(1 << 20);
        } else {
            sketch.outstanding *= 2;
        }
    }
}
