//! `--policy fair` alone on whole paths that the tests of its law do not have: ones whose
//! length changes, whose way back is slow, that lose in runs, or that are fast.

use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{LinkOptions, QueueLimit, scenario};
use netblt_proto::config::{Config, Policy, Role, Secret, Wire};
use netblt_proto::units::Rate;
use netblt_sim::host::HostOptions;
use netblt_sim::setup::Setup;
use netblt_sim::world::World;

/// A link with a queue of one product.
fn link(mbit: u64, rtt_ms: u64, loss_ppm: u32) -> LinkOptions {
    let (rate, rtt) = (Rate::from_bits_per_second(mbit * 1_000_000), Duration::from_millis(rtt_ms));
    LinkOptions {
        rate: Some(rate),
        delay: rtt / 2,
        queue: QueueLimit::Bytes(rate.bytes_in(rtt)),
        loss: Probability::from_ppm(loss_ppm),
        ..LinkOptions::default()
    }
}

/// A host whose datagrams have up to `bytes`, IP and UDP headers not counted.
fn host(role: Role, bytes: u32) -> HostOptions {
    let mut config = Config::new(Wire::Sealed, role);
    config.secret = Some(Secret([3; 32]));
    (config.datagram_bytes, config.overhead_bytes) = (bytes, 28);
    config.policy = Policy::Fair { ceiling: None };
    HostOptions::new(config)
}

/// Sends for about so long, and answers what part of the first direction's rate that took, in per
/// cent, and how many of 10,000 packets were lost to its queue.
fn used(there: &LinkOptions, back: &LinkOptions, seconds: u64, seed: u64) -> (u64, u64) {
    let host = |role| host(role, 1472);
    let rate = there.rate.expect("a link with a rate");
    let bytes = rate.bytes_in(Duration::from_secs(seconds)) * 95 / 100;
    let mut setup = Setup::new(seed, bytes, host(Role::Sender), host(Role::Receiver));
    (setup.there, setup.back) = (there.clone(), back.clone());
    setup.deadline = Duration::from_secs(20 * seconds);
    let outcome = World::new(setup).run();
    assert_eq!(outcome.problem(), None, "\n{outcome}");
    let link = &outcome.paths.0[0];
    let lost = link.lost_queue.packets * 10_000 / link.entered.packets.max(1);
    let used = bytes * 100 / rate.bytes_in(outcome.transfer_time()).max(1);
    println!("seed {seed}: {used} % used, {lost} of 10,000 lost to the queue");
    (used, lost)
}

/// Round trips of 40, 50 and 32 ms in turn, 15 s each, losses in runs of six. The smallest round
/// trip of all was kept for ever: 21 to 25 % were used.
#[test]
fn a_path_whose_length_changes_is_used() {
    let network = scenario::named("leo-satellite").expect("a network that is shipped");
    let used = [1, 2, 3, 4].map(|seed| used(&network.down, &network.up, 40, seed).0);
    assert!(used.iter().sum::<u64>() >= 75 * 4 && used.iter().min() >= Some(&70), "{used:?}");
}

/// Its reports wait for each other, so that round trips are long although nothing waits on the way
/// there: 54 % were used.
#[test]
fn a_slow_way_back_is_no_queue_on_the_way_there() {
    let queue = QueueLimit::Bytes(20_000);
    let rate = Some(Rate::from_bits_per_second(64_000));
    let back = LinkOptions { rate, queue, ..link(1, 40, 0) };
    let (used, lost) = used(&link(100, 40, 0), &back, 30, 1);
    assert!(used >= 75 && lost <= 100);
}

/// So few losses take a window of this size down to a twentieth. A queue that was not seen for half
/// a minute was not remembered, and a report of a thousand packets with nine losses counted as one
/// of nine: 12 % were used.
#[test]
fn few_losses_do_not_slow_a_fast_path() {
    let path = link(1000, 100, 1000);
    let (used, lost) = used(&path, &path, 15, 1);
    assert!(used >= 85 && lost <= 50);
}

/// Packets that grew by six in the start made the same rate look like a sixth, and the start end.
#[test]
fn larger_packets_do_not_end_the_start() {
    let path = link(2000, 40, 0);
    let large = |role| host(role, 8972);
    let mut setup = Setup::new(1, 500_000_000, large(Role::Sender), large(Role::Receiver));
    (setup.there, setup.back) = (path.clone(), path);
    let outcome = World::new(setup).run();
    assert_eq!(outcome.problem(), None, "\n{outcome}");
    let mbit = outcome.goodput().bits_per_second() / 1_000_000;
    println!("{mbit} Mbit/s");
    assert!(mbit >= 1300, "{mbit}");
}
