//! Whole transfers under `--policy cubic` and `fair` (docs/design/rate-control.md).

use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{Change, LinkOptions, Outage, QueueLimit};
use netblt_proto::config::{Config, Policy, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::units::Rate;
use netblt_sim::host::HostOptions;
use netblt_sim::outcome::Outcome;
use netblt_sim::setup::Setup;
use netblt_sim::world::World;

const RTT: Duration = Duration::from_millis(40);

fn host(role: Role, policy: Policy) -> HostOptions {
    let mut config = Config::new(Wire::Sealed, role);
    config.secret = Some(Secret([1; 32]));
    config.cipher = Cipher::Aes256Gcm;
    config.datagram_bytes = 1472;
    config.policy = policy;
    HostOptions::new(config)
}

/// 20 MB over 50 Mbit/s and 40 ms with a queue of one product.
fn transfer(policy: Policy, change: impl FnOnce(&mut Setup)) -> Outcome {
    let (sender, receiver) = (host(Role::Sender, policy), host(Role::Receiver, policy));
    let mut setup = Setup::new(1, 20_000_000, sender, receiver);
    let rate = Some(Rate::from_bits_per_second(50_000_000));
    let queue = QueueLimit::Bytes(250_000);
    let link = LinkOptions { rate, delay: RTT / 2, queue, ..LinkOptions::default() };
    (setup.there, setup.back) = (link.clone(), link);
    change(&mut setup);
    let outcome = World::new(setup).run();
    assert!(outcome.is_success(), "\n{outcome}");
    outcome
}

#[test]
fn a_clean_path_is_filled() {
    let outcome = transfer(Policy::Cubic { ceiling: None }, |_| ());
    let time = outcome.transfer_time();
    println!("{time:?}, {} lost", outcome.sent().data_packets_lost);
    // 3.4 s are the least.
    assert!(time < Duration::from_millis(4400), "{time:?}");
}

#[test]
fn a_ceiling_holds() {
    let ceiling = Some(Rate::from_bits_per_second(20_000_000));
    let time = transfer(Policy::Cubic { ceiling }, |_| ()).transfer_time();
    println!("{time:?}");
    assert!(time > Duration::from_secs(8) && time < Duration::from_secs(10), "{time:?}");
}

#[test]
fn random_loss_slows_it_as_it_slows_tcp() {
    let lossy = |setup: &mut Setup| setup.there.loss = Probability::from_percent(1);
    let cubic = transfer(Policy::Cubic { ceiling: None }, lossy).transfer_time();
    let fair = transfer(Policy::Fair { ceiling: None }, lossy).transfer_time();
    println!("cubic {cubic:?}, fair {fair:?}");
    assert!(cubic > fair * 3, "{cubic:?} {fair:?}");
}

#[test]
fn it_goes_on_after_an_outage() {
    let outage = |setup: &mut Setup| {
        let at = |seconds, outage| Change {
            at: Duration::from_secs(seconds),
            outage: Some(outage),
            ..Change::default()
        };
        let schedule = vec![at(1, Outage::Drop), at(9, Outage::None)];
        (setup.there.schedule, setup.back.schedule) = (schedule.clone(), schedule);
    };
    let time = transfer(Policy::Cubic { ceiling: None }, outage).transfer_time();
    println!("{time:?}");
    assert!(time < Duration::from_secs(15), "{time:?}");
}

/// Random loss costs `fair` little, and `cubic` most of the path.
#[test]
fn a_fair_sender_keeps_its_rate_at_random_loss() {
    for (percent, most) in [(0, 4400), (1, 4600), (5, 5000)] {
        let lossy = |setup: &mut Setup| setup.there.loss = Probability::from_percent(percent);
        let time = transfer(Policy::Fair { ceiling: None }, lossy).transfer_time();
        println!("{percent} % lost: {time:?}");
        assert!(time < Duration::from_millis(most), "{percent} % {time:?}");
    }
}
