//! The adaptive policy on the `rfc998` wire, where only OK and RESEND tell, on ordinary paths.

use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{LinkOptions, QueueLimit};
use netblt_proto::config::{Config, Policy, Role, Wire};
use netblt_proto::units::Rate;
use netblt_sim::host::HostOptions;
use netblt_sim::outcome::Outcome;
use netblt_sim::setup::Setup;
use netblt_sim::side::Side;
use netblt_sim::world::World;

const DATA_BYTES: u64 = 1208;
const PACKET_BYTES: u64 = 1260;

/// A transfer over `mbit` and `rtt_ms`, with a queue of one product of the two.
fn world(mbit: u64, rtt_ms: u64, loss_ppm: u32, buffer_bytes: u32, seed: u64) -> Outcome {
    let host = |role| {
        let mut config = Config::new(Wire::Rfc998, role);
        assert_eq!(config.policy, Policy::Fair { ceiling: None });
        config.buffer_bytes = buffer_bytes;
        config.max_outstanding = (8 << 20) / buffer_bytes;
        HostOptions::new(config)
    };
    let rate = Rate::from_bits_per_second(mbit * 1_000_000);
    let rtt = Duration::from_millis(rtt_ms);
    let bytes = rate.bytes_in(Duration::from_secs(20));
    let mut setup = Setup::new(seed, bytes, host(Role::Sender), host(Role::Receiver));
    let link = LinkOptions {
        rate: Some(rate),
        delay: rtt / 2,
        loss: Probability::from_ppm(loss_ppm),
        queue: QueueLimit::bdp(Some(rate), rtt),
        ..LinkOptions::default()
    };
    (setup.there, setup.back) = (link.clone(), link);
    World::new(setup).run()
}

/// A sender that was opened has no round trip from the handshake: the first GO bounds it.
#[test]
fn a_sender_that_is_opened_does_not_overrun_a_long_path() {
    let host = |role| {
        let mut config = Config::new(Wire::Rfc998, role);
        config.buffer_bytes = 12 * DATA_BYTES as u32;
        HostOptions::new(config)
    };
    let mut setup = Setup::new(1, 5_000_000, host(Role::Receiver), host(Role::Sender));
    let link = LinkOptions {
        rate: Some(Rate::from_bits_per_second(1_100_000)),
        delay: Duration::from_millis(900),
        queue: QueueLimit::Bytes(30_000),
        ..LinkOptions::default()
    };
    (setup.there, setup.back) = (link.clone(), link);
    let outcome = World::new(setup).run();
    assert!(outcome.is_success(), "\n{outcome}");
    assert_eq!(outcome.paths[Side::Passive].lost_queue.packets, 0, "\n{outcome}");
    assert!(outcome.goodput().bits_per_second() > 600_000, "\n{outcome}");
}

/// Goodput of what is possible, in thousandths: the least of so many seeds.
fn part(mbit: u64, rtt_ms: u64, loss_ppm: u32, packets: u32, seeds: u64) -> u64 {
    let mut least = u64::MAX;
    for seed in 1..=seeds {
        let outcome = world(mbit, rtt_ms, loss_ppm, packets * DATA_BYTES as u32, seed);
        assert!(outcome.is_success(), "\n{outcome}");
        let possible = Rate::from_bits_per_second(mbit * 1_000_000)
            .scaled(DATA_BYTES, PACKET_BYTES)
            .scaled(u64::from(1_000_000 - loss_ppm), 1_000_000);
        let part = outcome.goodput().bytes_per_second() * 1000 / possible.bytes_per_second();
        least = least.min(part);
    }
    println!("{mbit} Mbit/s, {rtt_ms} ms, {loss_ppm} ppm, buffers of {packets} packets: {least}");
    least
}

/// 25 MB over 10 Mbit/s and the like: no less than this of what is possible, in thousandths.
#[test]
fn small_buffers_fill_ordinary_paths() {
    small_buffers_fill_paths(1);
}

#[test]
#[ignore = "slow: .ci/nightly"]
fn small_buffers_fill_ordinary_paths_with_any_seed() {
    small_buffers_fill_paths(2);
}

fn small_buffers_fill_paths(seeds: u64) {
    for (mbit, rtt_ms, loss, least) in [
        (1, 50, 0, 850),
        (1, 50, 10_000, 750),
        (10, 10, 0, 930),
        (10, 10, 10_000, 930),
        (10, 50, 0, 950),
        (10, 50, 10_000, 950),
        (10, 50, 50_000, 850),
        (10, 200, 10_000, 900),
        (50, 50, 0, 950),
        (50, 50, 10_000, 950),
        (50, 50, 50_000, 900),
    ] {
        let part = part(mbit, rtt_ms, loss, 16, seeds);
        assert!(part >= least, "{mbit} Mbit/s, {rtt_ms} ms, {loss} ppm: {part}");
    }
}

/// An OK for each 300 kB comes too seldom to do well, but nothing collapses.
#[test]
fn large_buffers_cost_but_do_not_stall() {
    large_buffers_do_not_stall(1);
}

#[test]
#[ignore = "slow: .ci/nightly"]
fn large_buffers_cost_but_do_not_stall_with_any_seed() {
    large_buffers_do_not_stall(2);
}

fn large_buffers_do_not_stall(seeds: u64) {
    for (mbit, rtt_ms) in [(10, 10), (10, 50), (50, 50)] {
        for (loss, packets, least) in [(0, 64, 900), (10_000, 64, 700), (10_000, 256, 700)] {
            let part = part(mbit, rtt_ms, loss, packets, seeds);
            assert!(part >= least, "{mbit} Mbit/s, {rtt_ms} ms, {loss} ppm, {packets}: {part}");
        }
    }
}

/// Of a buffer of 1 MiB seven packets are lost at random. When the rate is twice the path's, it is
/// hundreds, each buffer is asked for several times, and no time is known any more: startup has to
/// end all the same.
#[test]
fn the_largest_buffers_do_not_overrun_the_path_for_good() {
    for seed in 1..=3 {
        let outcome = world(50, 40, 10_000, 1 << 20, seed);
        assert!(outcome.is_success(), "\n{outcome}");
        let there = &outcome.paths[Side::Active];
        let (lost, entered) = (there.lost_queue.packets, there.entered.packets);
        println!("seed {seed}: {lost} of {entered} lost to the queue");
        assert!(lost * 1000 < entered * 25, "{lost} of {entered}\n{outcome}");
    }
}
