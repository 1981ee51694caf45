//! Drawing a world: sizes, ends, disks, and the path before anything is wrong with it.

use std::time::Duration;

use netblt_path::rng::{Probability, Rng};
use netblt_path::scenario::Scenario;
use netblt_path::{LinkOptions, MarkAbove, QueueLimit};
use netblt_proto::config::{Config, NO_LIMIT, Pace, Policy, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::units::Rate;
use netblt_proto::wire::packet::Burst;

use super::faults;
use crate::disk::{DiskOptions, Stall};
use crate::host::HostOptions;
use crate::setup::Setup;

/// Packets in a transfer, about: more would only take longer.
const MAX_PACKETS: u64 = 40_000;
/// A transfer without faults takes at most about this long.
const MAX_TIME: Duration = Duration::from_secs(60);

/// A stream of draws.
pub(super) struct Dice(Rng);

impl Dice {
    pub(super) fn new(seed: u64, name: &str) -> Self {
        Self(Rng::named(seed, name))
    }

    pub(super) fn range(&mut self, low: u64, high: u64) -> u64 {
        self.0.range(low..=high.max(low))
    }

    /// A number from `low` to `high`, every power of two of it as likely as the others.
    pub(super) fn scale(&mut self, low: u64, high: u64) -> u64 {
        let (low, high) = (low.max(1), high.max(low).max(1));
        let power = self.range(u64::from(low.ilog2()), u64::from(high.ilog2()));
        self.range((1 << power).max(low), (2 << power.min(62)).min(high))
    }

    pub(super) fn percent(&mut self, percent: u32) -> bool {
        self.0.chance(Probability::from_percent(percent))
    }

    pub(super) fn time(&mut self, low: Duration, high: Duration) -> Duration {
        Duration::from_nanos(self.scale(low.as_nanos() as u64, high.as_nanos() as u64))
    }

    /// A time somewhere within `whole`.
    pub(super) fn within(&mut self, whole: Duration) -> Duration {
        Duration::from_nanos(self.range(0, whole.as_nanos() as u64))
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.range(0, of.len() as u64 - 1) as usize]
    }
}

/// What was drawn for the transfer, before it is made into hosts and paths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sketch {
    pub(super) wire: Wire,
    pub(super) bytes: u64,
    pub(super) datagram: u32,
    pub(super) buffer: u32,
    pub(super) outstanding: u32,
    /// Of the slower direction that data take.
    pub(super) rate: Rate,
    pub(super) rtt: Duration,
    pub(super) policy: Policy,
    pub(super) burst: Burst,
    pub(super) active: Role,
}

pub(super) fn setup(seed: u64, scenario: Option<&Scenario>) -> Setup {
    let mut sketch = sketch(seed, scenario);
    bound_rounds(&mut sketch);
    let hosts = [sketch.active, opposite(sketch.active)].map(|role| host(seed, &sketch, role));
    let [active, passive] = hosts;
    let mut setup = Setup::new(seed, sketch.bytes, active, passive);
    setup.at_least_one |= Dice::new(seed, "at least one").percent(50);
    setup.icmp = Dice::new(seed, "icmp").percent(50);
    (setup.there, setup.back) = match scenario {
        Some(scenario) => (scenario.up.clone(), scenario.down.clone()),
        None => links(seed, &sketch),
    };
    faults::add(seed, &sketch, scenario.is_none(), &mut setup);
    setup
}

fn opposite(role: Role) -> Role {
    match role {
        Role::Sender => Role::Receiver,
        Role::Receiver => Role::Sender,
    }
}

fn sketch(seed: u64, scenario: Option<&Scenario>) -> Sketch {
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
        _ => dice.scale(100, 9000),
    };
    // Enough data in each packet that there are not too many.
    let least = bytes.div_ceil(MAX_PACKETS) + 48;
    let datagram = datagram.max(least) as u32;
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
    Sketch { wire, bytes, datagram, buffer, outstanding, rate, rtt, policy, burst, active }
}

fn slower(scenario: &Scenario) -> Option<Rate> {
    [scenario.up.rate, scenario.down.rate].into_iter().flatten().min()
}

/// Fixed policies know about the path's rate, as RFC 998 demands of people, more or less.
fn policy(seed: u64, wire: Wire, path: Rate, datagram: u32) -> (Policy, Burst) {
    let mut dice = Dice::new(seed, "policy");
    let share = if dice.percent(80) { dice.range(20, 100) } else { dice.range(100, 150) };
    let rate = path.scaled(share, 100);
    // `rfc998` counts in milliseconds, so its bursts may have to be larger.
    let (grain, most) = match wire {
        Wire::Rfc998 => (Duration::from_millis(1), 400),
        Wire::Sealed => (Duration::from_micros(1), 64),
    };
    let packet = u64::from(datagram) + 28;
    let in_a_grain = rate.bytes_in(grain) / packet;
    let packets = dice.scale(1, most.min(8 + in_a_grain * 2)).max(in_a_grain).max(1);
    let exact = rate.time_for(packets * packet);
    let grains = (exact.as_nanos() / grain.as_nanos()).max(1) as u32;
    let burst = Burst { packets: packets.min(65_535) as u32, interval: grain * grains };
    let ceiling = dice.percent(30).then(|| path.scaled(dice.range(20, 150), 100));
    let fixed = dice.percent(35);
    let pace = Pace::bursts(burst).filter(|_| fixed);
    (pace.map_or(Policy::Fair { ceiling }, Policy::Fixed), burst)
}

/// A buffer and its answers take up to three round trips: with few and small ones, a long path
/// would take for ever.
fn bound_rounds(sketch: &mut Sketch) {
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

fn host(seed: u64, sketch: &Sketch, role: Role) -> HostOptions {
    let name = if role == Role::Sender { "sender" } else { "receiver" };
    let mut dice = Dice::new(seed, name);
    let mut config = Config::new(sketch.wire, role);
    config.secret = (sketch.wire == Wire::Sealed).then_some(Secret([seed as u8; 32]));
    // The same on machines with and without AES instructions.
    config.cipher = Cipher::Aes256Gcm;
    config.buffer_bytes = sketch.buffer;
    config.table_bytes = if dice.percent(50) { 0 } else { dice.scale(1, 8192) as u32 };
    config.datagram_bytes = sketch.datagram;
    config.max_outstanding = sketch.outstanding;
    config.checksum = true;
    config.client = "x".repeat(dice.range(0, 20) as usize);
    config.transfer_bytes = dice.percent(50).then_some(sketch.bytes);
    if role == Role::Sender {
        config.policy = sketch.policy;
    }
    // On `sealed` a fair sender has no burst values of its own.
    let own = sketch.wire == Wire::Rfc998;
    config.burst = if role == Role::Sender && own { sketch.burst } else { NO_LIMIT };
    if dice.percent(20) {
        // The other end must give way.
        config.datagram_bytes = dice.scale(u64::from(sketch.datagram), 9000) as u32;
        config.max_outstanding = sketch.outstanding * 2;
    }
    let mut host = HostOptions::new(config);
    if dice.percent(20) {
        let double = u64::from(sketch.outstanding) * 2;
        host.stock = dice.range(u64::from(sketch.outstanding).div_ceil(2), double) as u32;
    }
    host.disk = disk(&mut dice, sketch);
    host
}

fn disk(dice: &mut Dice, sketch: &Sketch) -> DiskOptions {
    if dice.percent(50) {
        return DiskOptions::default();
    }
    let buffers = (sketch.bytes / u64::from(sketch.buffer)).max(1) as u32;
    let slowest = Rate::over(sketch.bytes, MAX_TIME);
    let rate = sketch.rate.scaled(dice.scale(5, 1000), 100).max(slowest);
    let latency = dice.time(Duration::from_micros(1), Duration::from_millis(20));
    let stall = |dice: &mut Dice| Stall {
        at: dice.within(MAX_TIME / 4),
        lasts: dice.time(Duration::from_millis(1), Duration::from_secs(10)),
    };
    let stalls = if dice.percent(30) { dice.range(1, 5) } else { 0 };
    DiskOptions {
        latency: latency.min(MAX_TIME / buffers),
        rate: dice.percent(70).then_some(rate),
        stalls: (0..stalls).map(|_| stall(dice)).collect(),
        flush: dice.time(Duration::from_micros(1), Duration::from_secs(5)),
    }
}

/// Both directions of a path with nothing wrong but its size.
fn links(seed: u64, sketch: &Sketch) -> (LinkOptions, LinkOptions) {
    let mut dice = Dice::new(seed, "links");
    let packet = u64::from(sketch.datagram) + 28;
    let share = Duration::from_nanos(dice.range(10, 90) * sketch.rtt.as_nanos() as u64 / 100);
    let mut link = |delay| {
        let bdp = sketch.rate.bytes_in(sketch.rtt);
        // Smaller than a burst or two it would never hold any.
        let least = (packet * 10).max(u64::from(sketch.burst.packets) * packet * 3 / 2);
        let queue = match dice.range(0, 3) {
            0 => QueueLimit::Unlimited,
            1 => QueueLimit::bdp(Some(sketch.rate), sketch.rtt),
            _ => QueueLimit::Bytes(dice.scale(least, (bdp * 4).max(least * 8)).max(2400)),
        };
        let mark =
            dice.percent(20).then(|| MarkAbove::Bytes(dice.scale(packet * 4, bdp.max(packet * 8))));
        LinkOptions {
            rate: Some(sketch.rate),
            delay,
            queue,
            ecn_mark: mark,
            ..LinkOptions::default()
        }
    };
    let (mut there, mut back) = (link(share), link(sketch.rtt - share));
    if dice.percent(30) {
        // Feedback has less room than data.
        let feedback = if sketch.active == Role::Sender { &mut back } else { &mut there };
        feedback.rate = Some(sketch.rate.scaled(dice.scale(1, 8), 8));
    }
    (there, back)
}
