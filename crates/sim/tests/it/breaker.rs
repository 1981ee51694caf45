//! The circuit breaker of a sender that keeps its rate (`docs/protocol §7.5`).

use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{LinkOptions, QueueLimit};
use netblt_proto::config::{Config, FixedRate, Policy, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::units::Rate;
use netblt_sim::host::HostOptions;
use netblt_sim::outcome::Outcome;
use netblt_sim::setup::Setup;
use netblt_sim::world::World;

const MBIT: u64 = 1_000_000;

/// `bytes` at `sent` Mbit/s over a path of `carried` Mbit/s and 40 ms that loses so many percent.
fn transfer(bytes: u64, sent: u64, carried: u64, percent: u32) -> Outcome {
    let host = |role| {
        let mut config = Config::new(Wire::Sealed, role);
        config.secret = Some(Secret([7; 32]));
        config.cipher = Cipher::Aes256Gcm;
        let pace = FixedRate::rate(Rate::from_bits_per_second(sent * MBIT));
        config.policy = Policy::Fixed(pace.expect("it is a rate"));
        HostOptions::new(config)
    };
    let mut setup = Setup::new(1, bytes, host(Role::Sender), host(Role::Receiver));
    let rate = Some(Rate::from_bits_per_second(carried * MBIT));
    let rtt = Duration::from_millis(40);
    let queue = QueueLimit::bdp(rate, rtt);
    let link = LinkOptions { rate, delay: rtt / 2, queue, ..LinkOptions::default() };
    (setup.there, setup.back) =
        (LinkOptions { loss: Probability::from_percent(percent), ..link.clone() }, link);
    setup.deadline = Duration::from_secs(200);
    let outcome = World::new(setup).run();
    assert_eq!(outcome.problem(), None, "{outcome}");
    outcome
}

/// Lost and sent packets, and seconds.
fn figures(outcome: &Outcome) -> (u64, u64, f64) {
    let stats = outcome.sent();
    (stats.data_packets_lost, stats.data_packets_sent, outcome.transfer_time().as_secs_f64())
}

/// Without the breaker three packets of four would be lost to the end.
#[test]
fn a_path_that_is_overrun_fourfold_is_sent_what_it_carries_after_twenty_seconds() {
    let (lost, sent, seconds) = figures(&transfer(100_000_000, 80, 20, 0));
    println!("{lost} of {sent} lost, {seconds:.1} s");
    assert!(lost * 5 < sent * 3 && seconds < 50.0, "{lost} of {sent}, {seconds} s");
}

/// A third of random loss halves the rate once, and no more.
#[test]
fn losses_that_do_not_answer_to_the_rate_halve_it_once() {
    let (lost, sent, seconds) = figures(&transfer(40_000_000, 16, 20, 30));
    println!("{lost} of {sent} lost, {seconds:.1} s");
    // 160 Mbit in the first ten seconds, and 8 Mbit/s after.
    assert!((35.0..70.0).contains(&seconds), "{seconds}");
}

#[test]
fn a_little_loss_changes_nothing() {
    let (lost, sent, seconds) = figures(&transfer(60_000_000, 16, 20, 5));
    println!("{lost} of {sent} lost, {seconds:.1} s");
    assert!((30.0..36.0).contains(&seconds), "{seconds}");
}
