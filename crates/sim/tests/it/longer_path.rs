//! Paths that become longer while a transfer runs (`docs/protocol §6.2, §6.3`): what was
//! measured before must age, or a receiver asks again for what is under way.

use std::time::Duration;

use netblt_path::{Change, LinkOptions, QueueLimit};
use netblt_proto::config::{Config, FixedRate, Policy, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::units::Rate;
use netblt_sim::host::HostOptions;
use netblt_sim::outcome::Outcome;
use netblt_sim::setup::Setup;
use netblt_sim::world::World;

const RATE: Rate = Rate::from_bits_per_second(50_000_000);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A round trip of the first of these, and of the second from then on.
struct Step {
    before: Duration,
    after: Duration,
    at: Duration,
}

fn transfer(wire: Wire, bytes: u64, step: &Step, (fixed, loss): (Option<u64>, u32)) -> Outcome {
    let host = |role| {
        let mut config = Config::new(wire, role);
        if wire == Wire::Sealed {
            config.secret = Some(Secret([7; 32]));
            config.cipher = Cipher::Aes256Gcm;
        }
        if let Some(megabits) = fixed {
            let rate = Rate::from_bits_per_second(megabits * 1_000_000);
            config.policy = Policy::Fixed(FixedRate::rate(rate).expect("a rate"));
        }
        HostOptions::new(config)
    };
    let mut setup = Setup::new(1, bytes, host(Role::Sender), host(Role::Receiver));
    let schedule = vec![Change { at: step.at, delay: Some(step.after / 2), ..Change::default() }];
    let rate = Some(RATE);
    let queue = QueueLimit::bdp(rate, step.after);
    let loss = netblt_path::rng::Probability::from_ppb(loss * 1_000_000);
    let link = LinkOptions { rate, delay: step.before / 2, queue, schedule, ..Default::default() };
    setup.there = LinkOptions { loss, ..link.clone() };
    setup.back = link;
    setup.deadline = Duration::from_secs(300);
    World::new(setup).run()
}

/// The step comes when a quarter of the data has arrived. `most` per thousand of what is sent may
/// come twice; and all of it takes so long.
fn check(what: &str, wire: Wire, after: u64, with: (Option<u64>, u32), most: (u64, Duration)) {
    let step = Step { before: ms(10), after: ms(after), at: ms(3000) };
    let outcome = transfer(wire, 60_000_000, &step, with);
    let (sent, received) = (outcome.sent(), outcome.received());
    let twice = received.data_packets_duplicate * 1000 / sent.data_packets_sent;
    let (took, rtt) = (outcome.transfer_time(), received.rtt.expect("measured"));
    let (of, lost) = (sent.data_packets_sent, received.data_packets_lost);
    println!("{what} {after}: {took:?}, {twice}/1000 of {of} twice, {rtt:?}, lost {lost}");
    assert_eq!(outcome.problem(), None, "{what}\n{outcome}");
    assert!(rtt.abs_diff(step.after) < step.after / 4, "{what}: {rtt:?}");
    assert!(twice <= most.0, "{what}: {twice} of 1,000");
    assert!(took <= most.1, "{what}: {took:?}");
}

#[test]
fn a_receiver_on_a_path_that_became_longer_asks_for_nothing_twice() {
    for after in [300, 500] {
        check("45 Mbit/s", Wire::Sealed, after, (Some(45), 0), (9, ms(12_500)));
        check("1 % lost", Wire::Sealed, after, (Some(45), 10), (9, ms(13_000)));
        check("adaptive", Wire::Sealed, after, (None, 0), (9, ms(25_000)));
        // One that keeps to its rate goes by RFC 998's timer.
        check("rfc998", Wire::Rfc998, after, (None, 10), (9, ms(40_000)));
    }
}

/// A fifth more is sent than the path takes: most of what is lost is asked for in the last round
/// trips. It took 94 s for 500 ms, since the way back counted as full for ever.
#[test]
fn losses_on_a_path_that_became_longer_are_asked_for_at_once() {
    for after in [300, 500] {
        check("60 Mbit/s", Wire::Sealed, after, (Some(60), 0), (9, ms(12_000)));
    }
}

/// Numbers that are passed over, and probes of packet size, are no losses.
#[test]
fn a_receiver_on_a_clean_path_has_lost_nothing() {
    let step = Step { before: ms(40), after: ms(40), at: ms(3000) };
    let outcome = transfer(Wire::Sealed, 20_000_000, &step, (Some(45), 0));
    assert_eq!(outcome.problem(), None, "\n{outcome}");
    assert_eq!(outcome.received().data_packets_lost, 0);
    assert_eq!(outcome.sent().data_packets_lost, 0);
    let outcome = transfer(Wire::Sealed, 20_000_000, &step, (Some(45), 10));
    let (sent, received) = (outcome.sent(), outcome.received());
    let (there, here) = (sent.data_packets_lost, received.data_packets_lost);
    assert!(there > 100 && here.abs_diff(there) <= there / 20, "{there} there, {here} here");
}
