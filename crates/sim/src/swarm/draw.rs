//! Drawing a world: its ends, disks, and the path before anything is wrong with it.

use std::sync::Arc;
use std::time::Duration;

use netblt_path::rng::Rng;
use netblt_path::scenario::Scenario;
use netblt_path::{LinkOptions, MarkAbove, QueueLimit};
use netblt_proto::config::{
    AuthorizedKeys, Config, FecPercent, FecPolicy, Identity, PublicKey, Role, Secret, StaticKey,
    UNLIMITED_BURST, Wire,
};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::units::Rate;

use super::dice::Dice;
use super::faults;
use super::sketch::{MAX_TIME, Sketch, bound_rounds, sketch};
use crate::disk::{DiskOptions, Stall};
use crate::host::HostOptions;
use crate::setup::Setup;

/// The longest round trip and buffer time for a receiver that cannot prove its address at once.
const STRANGERS_ROUND: Duration = Duration::from_millis(500);
/// The largest buffer it gets.
const STRANGERS_BUFFER: u32 = 1 << 14;

pub(super) fn setup(seed: u64, scenario: Option<&Scenario>) -> Setup {
    let mut sketch = sketch(seed, scenario);
    bound_rounds(&mut sketch);
    let hosts = [sketch.active, opposite(sketch.active)].map(|role| host(seed, &sketch, role));
    let [active, passive] = hosts;
    let mut setup = Setup::new(seed, sketch.bytes, active, passive);
    setup.at_least_one |= Dice::new(seed, "at least one").percent(50);
    let mut dice = Dice::new(seed, "have");
    if sketch.wire == Wire::Sealed && sketch.bytes > 0 && dice.percent(30) {
        setup.have = dice.scale(1, sketch.bytes.min(20_000)) as u32;
    }
    if sketch.wire == Wire::Sealed && Dice::new(seed, "keys").percent(25) {
        open_by_keys(seed, &mut setup);
    }
    setup.greets = Dice::new(seed, "greets").percent(75);
    setup.icmp = Dice::new(seed, "icmp").percent(50);
    (setup.there, setup.back) = match scenario {
        Some(scenario) => (scenario.up.clone(), scenario.down.clone()),
        None => links(seed, &sketch, agreed_bytes(&setup)),
    };
    faults::add(seed, &sketch, scenario.is_none(), &mut setup);
    setup
}

/// Static keys in place of the secret, and a few others that are accepted as well.
fn open_by_keys(seed: u64, setup: &mut Setup) {
    let mut rng = Rng::named(seed, "static keys");
    let mut key = || {
        let mut private = [0; 32];
        rng.fill(&mut private);
        StaticKey::from_bytes(private)
    };
    let (client, server) = (key(), key());
    let mut clients: Vec<PublicKey> = (0..seed % 4).map(|_| key().public()).collect();
    clients.push(client.public());
    setup.keys = Some([client.public(), server.public()]);
    let calling = Identity::client(client, server.public());
    let (authorized, none) = AuthorizedKeys::new(server, &clients);
    assert!(none.is_empty(), "keys that were made are keys");
    setup.active.config.identity = Some(calling.expect("a key that was made is one"));
    setup.passive.config.identity = Some(Identity::server(Arc::new(authorized)));
}

fn opposite(role: Role) -> Role {
    match role {
        Role::Sender => Role::Receiver,
        Role::Receiver => Role::Sender,
    }
}

fn host(seed: u64, sketch: &Sketch, role: Role) -> HostOptions {
    let own = sketch.wire == Wire::Rfc998;
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
    let calls = role == sketch.active && role == Role::Receiver && own;
    if calls && !(is_stranger(sketch) && Dice::new(seed, "stranger").percent(70)) {
        config.client.insert_str(0, "netblt ");
    }
    config.transfer_bytes = dice.percent(50).then_some(sketch.bytes);
    if role == Role::Sender {
        config.policy = sketch.policy;
        config.repair = repair(seed, sketch.wire);
    }
    let mut socket = Dice::new(seed, "socket");
    config.socket_bytes = socket.percent(50).then(|| socket.scale(1, 8 << 20) as u32);
    // On `sealed` a fair sender has no burst values of its own.
    config.burst = if role == Role::Sender && own { sketch.burst } else { UNLIMITED_BURST };
    if dice.percent(20) {
        // The other end must give way.
        config.datagram_bytes =
            dice.scale(u64::from(sketch.datagram), u64::from(sketch.largest)) as u32;
        config.max_outstanding = sketch.outstanding * 2;
    }
    let mut host = HostOptions::new(config);
    if dice.percent(20) {
        let double = u64::from(sketch.outstanding) * 2;
        host.stock = dice.range(u64::from(sketch.outstanding).div_ceil(2), double) as u32;
    }
    host.disk = disk(&mut dice, sketch);
    if Dice::new(seed, "most").percent(50) {
        host.most = sketch.outstanding * 2;
    }
    host
}

fn repair(seed: u64, wire: Wire) -> FecPolicy {
    let mut dice = Dice::new(seed, "repair");
    let share = dice.scale(1, u64::from(FecPercent::MAX)) as u8;
    match dice.range(0, 9) {
        0..=2 if wire == Wire::Sealed => FecPolicy::Auto,
        3 if wire == Wire::Sealed => {
            FecPercent::percent(share).map_or(FecPolicy::Never, FecPolicy::Share)
        }
        _ => FecPolicy::Never,
    }
}

/// Whether a calling receiver may be one that cannot return the number in a RESPONSE
/// (`docs/protocol §2.3`). It proves its address by what it asks for again, whenever the data
/// timer of a buffer expires, so that long buffers and round trips take very long to begin.
fn is_stranger(sketch: &Sketch) -> bool {
    // It gets smaller buffers, and no more of them.
    let window = u64::from(sketch.buffer.min(STRANGERS_BUFFER)) * u64::from(sketch.outstanding);
    let rounds = sketch.bytes.div_ceil(window).min(1 << 20) as u32;
    let short = sketch.rtt + sketch.rate.time_for(u64::from(sketch.buffer)) <= STRANGERS_ROUND;
    let alike = sketch.buffer <= STRANGERS_BUFFER * 4 && sketch.datagram <= 1500;
    short && alike && (sketch.rtt * 3).saturating_mul(rounds) <= MAX_TIME
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

/// The IP packets that the ends agree on.
fn agreed_bytes(setup: &Setup) -> u64 {
    let ends = [&setup.active, &setup.passive].map(|host| host.config.datagram_bytes);
    u64::from(ends[0].min(ends[1])) + 28
}

/// Both directions of a path with nothing wrong but its size.
pub(super) fn links(seed: u64, sketch: &Sketch, agreed: u64) -> (LinkOptions, LinkOptions) {
    let mut dice = Dice::new(seed, "links");
    let packet = u64::from(sketch.datagram) + 28;
    // Both ends may have larger packets, and on `rfc998` they never become smaller.
    let room = if sketch.wire == Wire::Rfc998 { agreed * 10 } else { 0 };
    let share = Duration::from_nanos(dice.range(10, 90) * sketch.rtt.as_nanos() as u64 / 100);
    let mut link = |delay| {
        let bdp = sketch.rate.bytes_in(sketch.rtt);
        // Smaller than a burst or two it would never hold any.
        let least = (packet * 10).max(u64::from(sketch.burst.packets) * packet * 3 / 2);
        let queue = match dice.range(0, 3) {
            0 => QueueLimit::Unlimited,
            1 => QueueLimit::bdp(Some(sketch.rate), sketch.rtt),
            _ => QueueLimit::Bytes(dice.scale(least, (bdp * 4).max(least * 8)).max(2400.max(room))),
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
