//! What clients change while a transfer runs (`docs/protocol §6.9`).

use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{LinkOptions, QueueLimit};
use netblt_proto::config::{
    Ceiling, Config, FixedRate, Policy, Role, RuntimeSettings, Secret, Wire,
};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::units::Rate;
use netblt_sim::host::HostOptions;
use netblt_sim::outcome::Outcome;
use netblt_sim::setup::Setup;
use netblt_sim::side::Side;
use netblt_sim::world::World;

const MIB: u64 = 1 << 20;
const BOTH: [Wire; 2] = [Wire::Rfc998, Wire::Sealed];
const DEATH_TIMER: Duration = Duration::from_secs(20);
const PAUSED: RuntimeSettings =
    RuntimeSettings { policy: None, ceiling: Ceiling::Configured, paused: true };

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn mbps(n: u64) -> Rate {
    Rate::from_bits_per_second(n * 1_000_000)
}

fn below(rate: Rate) -> RuntimeSettings {
    RuntimeSettings { ceiling: Ceiling::At(rate), ..RuntimeSettings::default() }
}

/// A transfer over 20 Mbit/s and 40 ms from the active end; what is lost, in parts of a million.
fn world(wire: Wire, bytes: u64, loss: u32) -> Setup {
    let host = |role| {
        let mut config = Config::new(wire, role);
        config.secret = Some(Secret([7; 32]));
        config.cipher = Cipher::Aes256Gcm;
        config.buffer_bytes = 1 << 16;
        config.death_timer = DEATH_TIMER;
        HostOptions::new(config)
    };
    let mut setup = Setup::new(3, bytes, host(Role::Sender), host(Role::Receiver));
    let (rate, rtt) = (Some(mbps(20)), Duration::from_millis(40));
    let queue = QueueLimit::bdp(rate, rtt);
    let mut link = LinkOptions { rate, delay: rtt / 2, queue, ..LinkOptions::default() };
    link.loss = Probability::from_ppm(loss);
    (setup.there, setup.back) = (link.clone(), link);
    setup.deadline = secs(2000);
    setup
}

fn run(setup: Setup) -> Outcome {
    let outcome = World::new(setup).run();
    assert!(outcome.is_success(), "{outcome}");
    outcome
}

/// Twelve times the death timer, with packets under way and lost when it begins: neither end takes
/// the other for dead, or for one that gets nowhere.
#[test]
fn a_pause_of_any_length_ends_nothing() {
    for wire in BOTH {
        for loss in [0, 50_000] {
            for side in Side::BOTH {
                let mut setup = world(wire, 8 * MIB, loss);
                let (from, until) = (secs(1), secs(241));
                setup.steers =
                    vec![(side, from, PAUSED), (side, until, RuntimeSettings::default())];
                let without = run(world(wire, 8 * MIB, loss)).duration;
                let outcome = run(setup);
                let least = until - from + without - secs(2);
                // What was granted, or begun, may come meanwhile: less is left to do afterwards.
                let granted = secs(4);
                assert!(outcome.duration + granted > least, "{wire:?} {side:?} {outcome}");
                assert!(outcome.duration < until + without + secs(3), "{wire:?} {outcome}");
                let waited = outcome.sent().waited.paused;
                let by_sender = side == Side::Active;
                assert_eq!(waited > secs(230), by_sender, "{wire:?} {side:?} {outcome}");
                let (resent, lost) =
                    (outcome.sent().data_packets_resent, outcome.sent().data_packets_lost);
                assert!(resent <= lost + lost / 4 + 40, "{wire:?} {side:?} {outcome}");
            }
        }
    }
}

/// The sender repeats the message three times; here all three are lost.
#[test]
fn a_pause_message_lost_on_the_way_is_sent_again_when_the_receiver_asks() {
    let mut setup = world(Wire::Sealed, 8 * MIB, 300_000);
    setup.steers = vec![
        (Side::Active, secs(2), PAUSED),
        (Side::Active, secs(122), RuntimeSettings::default()),
    ];
    let outcome = run(setup);
    assert!(outcome.duration > secs(122), "{outcome}");
}

#[test]
fn a_ceiling_holds_from_now_on_and_is_lifted_again() {
    for wire in BOTH {
        let mut setup = world(wire, 20 * MIB, 1000);
        // 2 Mbit/s for forty seconds: they carry 10 MB at most, in place of 100.
        setup.steers = vec![
            (Side::Active, secs(2), below(mbps(2))),
            (
                Side::Active,
                secs(42),
                RuntimeSettings { ceiling: Ceiling::Unlimited, ..below(mbps(1)) },
            ),
        ];
        let without = run(world(wire, 20 * MIB, 1000)).duration;
        let outcome = run(setup);
        // Nine tenths of the forty are lost, and two seconds more to find the rate again.
        assert!(outcome.duration > without + secs(35), "{wire:?} {without:?} {outcome}");
        assert!(outcome.duration < without + secs(39), "{wire:?} {without:?} {outcome}");
        assert!(outcome.sent().data_packets_resent < 400, "{outcome}");
    }
}

#[test]
fn a_receiver_slows_its_sender_down_and_lets_it_go_again() {
    let mut setup = world(Wire::Sealed, 20 * MIB, 1000);
    setup.steers = vec![
        (Side::Passive, secs(2), below(mbps(2))),
        (
            Side::Passive,
            secs(42),
            RuntimeSettings { ceiling: Ceiling::Unlimited, ..below(mbps(1)) },
        ),
    ];
    let without = run(world(Wire::Sealed, 20 * MIB, 1000)).duration;
    let outcome = run(setup);
    assert!(outcome.duration > without + secs(34), "{without:?} {outcome}");
    assert!(outcome.duration < without + secs(40), "{without:?} {outcome}");
}

#[test]
fn a_sender_goes_over_to_another_policy_and_back() {
    let mut setup = world(Wire::Sealed, 40 * MIB, 1000);
    let fixed = Policy::Fixed(FixedRate::rate(mbps(4)).expect("a rate"));
    let fair = Policy::Fair { ceiling: None };
    let to = |policy| RuntimeSettings { policy: Some(policy), ..RuntimeSettings::default() };
    setup.steers = vec![(Side::Active, secs(5), to(fixed)), (Side::Active, secs(15), to(fair))];
    let without = run(world(Wire::Sealed, 40 * MIB, 1000)).duration;
    let outcome = run(setup);
    // Four fifths of the ten seconds.
    assert!(outcome.duration > without + secs(7), "{without:?} {outcome}");
    assert!(outcome.duration < without + Duration::from_millis(9000), "{without:?} {outcome}");
    assert!(outcome.sent().data_packets_lost < 200, "{outcome}");
}

/// 20 MiB take 8.4 s at the least.
#[test]
fn every_policy_delivers_all_data() {
    for (loss, most) in [(0, 11), (10_000, 14), (100_000, 45)] {
        for policy in [
            Policy::Fair { ceiling: None },
            Policy::Background { ceiling: None },
            Policy::Aggressive { ceiling: None },
        ] {
            let mut setup = world(Wire::Sealed, 20 * MIB, loss);
            setup.active.config.policy = policy;
            let outcome = run(setup);
            println!("{} {loss}: {:?}", policy.name(), outcome.duration);
            // It makes no test, and more than 2 % is congestion to it.
            let yields = matches!(policy, Policy::Background { .. }) && loss > 20_000;
            let most = if yields { 300 } else { most };
            assert!(outcome.duration < secs(most), "{} {outcome}", policy.name());
        }
    }
}

#[test]
fn a_ceiling_holds_under_every_policy() {
    for policy in [
        Policy::Fair { ceiling: Some(mbps(4)) },
        Policy::Background { ceiling: Some(mbps(4)) },
        Policy::Aggressive { ceiling: Some(mbps(4)) },
    ] {
        let mut setup = world(Wire::Sealed, 5 * MIB, 1000);
        setup.active.config.policy = policy;
        let outcome = run(setup);
        // 10.5 s without headers.
        assert!(outcome.duration > Duration::from_millis(10_900), "{} {outcome}", policy.name());
        assert!(outcome.duration < secs(13), "{} {outcome}", policy.name());
    }
}

#[test]
fn one_policy_follows_another() {
    let mut setup = world(Wire::Sealed, 60 * MIB, 1000);
    let policies = [
        Policy::Background { ceiling: None },
        Policy::Aggressive { ceiling: None },
        Policy::Fixed(FixedRate::rate(mbps(15)).expect("a rate")),
        Policy::Background { ceiling: None },
        Policy::Fair { ceiling: None },
    ];
    let steered = (2..).step_by(4).zip(policies);
    setup.steers = steered
        .map(|(at, policy)| {
            let policy = Some(policy);
            (Side::Active, secs(at), RuntimeSettings { policy, ..RuntimeSettings::default() })
        })
        .collect();
    let without = run(world(Wire::Sealed, 60 * MIB, 1000)).duration;
    let outcome = run(setup);
    assert!(outcome.duration < without + secs(5), "{without:?} {outcome}");
}
