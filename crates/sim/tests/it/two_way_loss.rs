//! Losses in both directions cost what those of the data cost, and no silence beyond
//! (`docs/protocol §6.2`).

use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{LinkOptions, QueueLimit};
use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::loss_detection::LossDetection;
use netblt_proto::units::Rate;
use netblt_sim::check::kind;
use netblt_sim::host::HostOptions;
use netblt_sim::outcome::Outcome;
use netblt_sim::setup::Setup;
use netblt_sim::side::Side;
use netblt_sim::world::{Tamper, World};

const RTT: Duration = Duration::from_millis(40);

/// 20 MB over 100 Mbit/s, with so many percent of loss there and back.
fn transfer(there: u32, back: u32, buffer_bytes: u32, seed: u64) -> Outcome {
    send(20_000_000, (there, back), buffer_bytes, seed)
}

fn send(bytes: u64, (there, back): (u32, u32), buffer_bytes: u32, seed: u64) -> Outcome {
    let host = |role| {
        let mut config = Config::new(Wire::Sealed, role);
        config.secret = Some(Secret([7; 32]));
        config.cipher = Cipher::Aes256Gcm;
        config.buffer_bytes = buffer_bytes;
        HostOptions::new(config)
    };
    run(Setup::new(seed, bytes, host(Role::Sender), host(Role::Receiver)), (there, back))
}

fn run(mut setup: Setup, (there, back): (u32, u32)) -> Outcome {
    let rate = Some(Rate::from_bits_per_second(100_000_000));
    let queue = QueueLimit::bdp(rate, RTT);
    let link = LinkOptions { rate, delay: RTT / 2, queue, ..LinkOptions::default() };
    (setup.there, setup.back) = (link.clone(), link);
    setup.there.loss = Probability::from_percent(there);
    setup.back.loss = Probability::from_percent(back);
    let outcome = World::new(setup).run();
    assert!(outcome.is_success(), "\n{outcome}");
    outcome
}

/// Of ten OPENs, each sent once, all would be in vain in one world of eighteen.
#[test]
fn an_opening_comes_through_where_half_is_lost_either_way() {
    let mut times: Vec<_> =
        (1..=200).map(|seed| send(1000, (50, 50), 1 << 16, seed).duration).collect();
    times.sort_unstable();
    println!("{:?}, {:?}, {:?}", times[100], times[180], times[199]);
    assert!(times[100] < Duration::from_secs(4) && times[180] < Duration::from_secs(10));
}

#[test]
fn losses_on_the_way_back_cost_little_more() {
    cost_little_more(1);
}

#[test]
#[ignore = "slow: .ci/nightly"]
fn losses_on_the_way_back_cost_little_more_with_any_seed() {
    cost_little_more(2);
}

fn cost_little_more(seeds: u64) {
    for percent in [10, 15, 20, 25] {
        for buffer_bytes in [1 << 20, 1 << 16] {
            for seed in 1..=seeds {
                let one = transfer(percent, 0, buffer_bytes, seed).goodput();
                let both = transfer(percent, percent, buffer_bytes, seed);
                let (one, two) = (one.bits_per_second(), both.goodput().bits_per_second());
                println!("{percent} %, {buffer_bytes}, seed {seed}: {one} one way, {two} both");
                assert!(two * 100 >= one * 70, "{percent} %: {one} and {two}\n{both}");
            }
        }
    }
}

/// A stranger that opens a sender of `rfc998`, and asks for a hole as soon as something overtook
/// it, names some of what it lacks and not all, as if it had the rest. What had gone to it until
/// then was a debt for whose sake nothing more went there: ten of these gave up.
#[test]
fn a_stranger_that_asks_for_some_of_its_holes_gets_them() {
    gets_its_holes(20);
}

#[test]
#[ignore = "slow: .ci/nightly"]
fn a_stranger_that_asks_for_some_of_its_holes_gets_them_with_any_seed() {
    gets_its_holes(100);
}

fn gets_its_holes(seeds: u64) {
    let stranger = |role| {
        let mut config = Config::new(Wire::Rfc998, role);
        config.client.clear();
        config.recovery = LossDetection::EarlyGaps;
        config.datagram_bytes = 1472;
        config.buffer_bytes = 1 << 20;
        HostOptions::new(config)
    };
    for seed in 1..=seeds {
        let setup = Setup::new(seed, 5_000_000, stranger(Role::Receiver), stranger(Role::Sender));
        run(setup, (5, 5));
    }
}

/// How many seconds 20 MB take over 50 Mbit/s and 40 ms between two strangers on `rfc998`, with so
/// many percent of loss either way, buffers of so many bytes, and the first packet `lost` of a kind
/// from a side.
fn strangers(
    seed: u64,
    active: Role,
    loss: u32,
    buffer_bytes: u32,
    lost: Option<(Side, u8)>,
) -> f64 {
    let host = |role| {
        let mut config = Config::new(Wire::Rfc998, role);
        config.client.clear();
        (config.buffer_bytes, config.max_outstanding) = (buffer_bytes, (32 << 20) / buffer_bytes);
        HostOptions::new(config)
    };
    let passive = if active == Role::Sender { Role::Receiver } else { Role::Sender };
    let mut setup = Setup::new(seed, 20_000_000, host(active), host(passive));
    let rate = Some(Rate::from_bits_per_second(50_000_000));
    let queue = QueueLimit::bdp(rate, RTT);
    let link = LinkOptions { rate, delay: RTT / 2, queue, ..LinkOptions::default() };
    (setup.there, setup.back) = (link.clone(), link);
    for way in [&mut setup.there, &mut setup.back] {
        way.loss = Probability::from_percent(loss);
    }
    let mut left = lost;
    let world = World::new(setup).tamper(move |sight| {
        let this = left.is_some_and(|(from, kind)| (sight.from, sight.clear.kind) == (from, kind));
        let lost = if this { left.take() } else { None };
        lost.map_or(Tamper::Pass, |_| Tamper::Drop)
    });
    let outcome = world.run();
    assert!(outcome.is_success(), "\n{outcome}");
    outcome.duration.as_secs_f64()
}

/// The next OPEN leaves after a second, so the path may be one of a second: it is tried slowly. But
/// what shows that it is not is believed at once, on either side: 124 and 20 s where data timers
/// went by the first buffer's pace, and a smallest round trip of 41.2 ms was never put right.
#[test]
fn an_opening_packet_that_was_lost_is_not_paid_for_to_the_end() {
    let lost = [(Side::Active, kind::OPEN), (Side::Passive, kind::RESPONSE)];
    for (buffer_bytes, most) in [(1 << 20, 18.0), (1 << 16, 7.5)] {
        for (active, lost) in
            [(Role::Sender, lost[0]), (Role::Sender, lost[1]), (Role::Receiver, lost[1])]
        {
            let times = (1..=5).map(|seed| strangers(seed, active, 1, buffer_bytes, Some(lost)));
            let mean = times.sum::<f64>() / 5.0;
            println!("{buffer_bytes} {active:?} {lost:?}: {mean:.1} s");
            assert!(mean <= most, "{buffer_bytes} {active:?} {lost:?}: {mean:.1} s");
        }
    }
}

/// What is lost is asked for when the sender has gone past it, not when a buffer would be over at
/// the pace of the first ones; and a round trip without a sample is estimated. Where a
/// tenth is lost, both of the first two OPENs are once in 28 times. 9.3, 3.8 and 24 s before.
#[test]
fn losses_cost_rfc998_little_from_the_first_buffer_on() {
    cost_rfc998_little(6);
}

#[test]
#[ignore = "slow: .ci/nightly"]
fn losses_cost_rfc998_little_from_the_first_buffer_on_with_any_seed() {
    cost_rfc998_little(20);
}

fn cost_rfc998_little(seeds: u64) {
    for (loss, buffer_bytes, most) in [(1, 1 << 20, 6.5), (1, 1 << 16, 4.5), (10, 1 << 16, 15.0)] {
        let times = (1..=seeds).map(|seed| strangers(seed, Role::Sender, loss, buffer_bytes, None));
        let mean = times.sum::<f64>() / seeds as f64;
        println!("{loss} %, {buffer_bytes}: {mean:.1} s");
        assert!(mean <= most, "{loss} %, {buffer_bytes}: {mean:.1} s");
    }
}
