//! Other flows on the path of a transfer, and sockets that hold little.

use std::time::Duration;

use netblt_path::{LinkOptions, QueueLimit};
use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::units::Rate;
use netblt_sim::bottleneck::{FlowOptions, Kind};
use netblt_sim::host::{HostOptions, Stops};
use netblt_sim::outcome::Outcome;
use netblt_sim::setup::Setup;
use netblt_sim::world::World;

const RTT: Duration = Duration::from_millis(40);

fn mbit(n: u64) -> Rate {
    Rate::from_bits_per_second(n * 1_000_000)
}

/// 10 MB over 20 Mbit/s.
fn transfer(change: impl FnOnce(&mut Setup)) -> Outcome {
    let host = |role| {
        let mut config = Config::new(Wire::Sealed, role);
        config.secret = Some(Secret([1; 32]));
        config.cipher = Cipher::Aes256Gcm;
        config.trace = true;
        HostOptions::new(config)
    };
    let mut setup = Setup::new(1, 10_000_000, host(Role::Sender), host(Role::Receiver));
    let rate = Some(mbit(20));
    let queue = QueueLimit::bdp(rate, RTT);
    let link = LinkOptions { rate, delay: RTT / 2, queue, ..LinkOptions::default() };
    (setup.there, setup.back) = (link.clone(), link);
    change(&mut setup);
    let outcome = World::new(setup).run();
    assert!(outcome.is_success(), "\n{outcome}");
    outcome
}

fn goodput(outcome: &Outcome) -> u64 {
    outcome.goodput().bits_per_second() / 100_000
}

#[test]
fn a_neighbour_takes_its_part_of_the_way_that_it_goes() {
    let beside = |kind, reverse| {
        let outcome = transfer(|setup| {
            let flow = FlowOptions::new(kind, RTT / 2, Duration::ZERO);
            setup.neighbours.push(FlowOptions { reverse, ..flow });
        });
        goodput(&outcome)
    };
    let steady = Kind::Steady(mbit(12));
    let (alone, half) = (goodput(&transfer(|_| {})), beside(Kind::CUBIC, false));
    let (rest, against) = (beside(steady, false), beside(steady, true));
    println!("{alone} {half} {rest} {against}, in tenths of Mbit/s");
    assert!(alone > 160 && against > 160, "{alone} {against}");
    assert!((50..130).contains(&half), "{half}");
    assert!((55..=80).contains(&rest), "{rest}");
}

#[test]
fn a_socket_that_holds_little_loses_what_comes_while_its_host_stands_still() {
    let outcome = |socket_bytes| {
        transfer(|setup| {
            let (period, stopped) = (Duration::from_millis(20), Duration::from_millis(10));
            let until = Duration::from_secs(1000);
            setup.passive.stops = Some(Stops { period, stopped, scattered: None, until });
            setup.passive.socket_bytes = socket_bytes;
        })
    };
    assert_eq!(outcome(None).received().overrun, 0);
    let small = outcome(Some(10_000));
    assert!(small.received().overrun > 10, "{small}");
    assert!(small.receiver().trace.contains("\"event\":\"overrun\""));
    assert!(small.sender().trace.contains("\"event\":\"rate\""));
}
