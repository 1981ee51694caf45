//! A way back that is a thousand times slower than the way there carries what a transfer needs
//! (`docs/protocol §6.2`).

use std::time::Duration;

use netblt_path::{LinkOptions, QueueLimit};
use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::units::Rate;
use netblt_sim::host::HostOptions;
use netblt_sim::outcome::Outcome;
use netblt_sim::setup::Setup;
use netblt_sim::world::World;

const RTT: Duration = Duration::from_millis(40);

fn transfer(bytes: u64, back: u64, back_queue: u64, buffer_bytes: u32, seed: u64) -> Outcome {
    let host = |role| {
        let mut config = Config::new(Wire::Sealed, role);
        config.secret = Some(Secret([7; 32]));
        config.cipher = Cipher::Aes256Gcm;
        config.buffer_bytes = buffer_bytes;
        HostOptions::new(config)
    };
    let mut setup = Setup::new(seed, bytes, host(Role::Sender), host(Role::Receiver));
    let rate = Some(Rate::from_bits_per_second(100_000_000));
    let queue = QueueLimit::bdp(rate, RTT);
    setup.there = LinkOptions { rate, delay: RTT / 2, queue, ..LinkOptions::default() };
    let rate = Some(Rate::from_bits_per_second(back));
    let queue = QueueLimit::Bytes(back_queue);
    setup.back = LinkOptions { rate, delay: RTT / 2, queue, ..LinkOptions::default() };
    setup.deadline = Duration::from_secs(300);
    World::new(setup).run()
}

/// 100 Mbit/s there, of which buffers can carry 90.5, for ten seconds: most of what is missing is
/// the start, whose round trips take as long as reports do.
#[test]
fn a_slow_way_back_does_not_slow_the_way_there() {
    let reached = |back, buffer_bytes| {
        let outcome = transfer(100_000_000, back, 20_000, buffer_bytes, 1);
        let reached = outcome.goodput().bits_per_second() / 1_000_000;
        println!("{back} bit/s back, buffers of {buffer_bytes}: {reached} Mbit/s");
        assert_eq!(outcome.problem(), None, "\n{outcome}");
        reached
    };
    let all = [64_000, 48_000, 40_000, 36_000, 32_000, 28_000].map(|back| reached(back, 1 << 20));
    assert!(all.iter().min() >= Some(&55), "{all:?}");
    assert!(all.iter().sum::<u64>() >= 70 * all.len() as u64, "{all:?}");
    assert!(reached(64_000, 1 << 16) >= 45);
}

/// Hours of reports would fit in front of the last words.
#[test]
fn a_long_queue_on_the_way_back_is_not_filled() {
    let outcome = transfer(50_000_000, 32_000, 10_000_000, 1 << 20, 1);
    assert_eq!(outcome.problem(), None, "\n{outcome}");
    let rtt = outcome.sent().rtt.expect("measured");
    assert!(rtt < Duration::from_secs(1), "{rtt:?}\n{outcome}");
}
