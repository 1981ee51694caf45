//! A path that is remembered is filled in its third round trip, whatever the sender's disk does
//! meanwhile (docs/decisions/fast-start.md, *Path memory*).

use std::time::Duration;

use netblt_path::{LinkOptions, QueueLimit};
use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::stats::Remembered;
use netblt_proto::units::Rate;
use netblt_sim::disk::Stall;
use netblt_sim::host::HostOptions;
use netblt_sim::outcome::Outcome;
use netblt_sim::setup::Setup;
use netblt_sim::side::Side;
use netblt_sim::world::World;

const RTT: Duration = Duration::from_millis(100);

fn host(role: Role) -> HostOptions {
    let mut config = Config::new(Wire::Sealed, role);
    config.secret = Some(Secret([1; 32]));
    config.cipher = Cipher::Aes256Gcm;
    config.datagram_bytes = 1472;
    HostOptions::new(config)
}

/// 200 MB over 1 Gbit/s, 100 ms and a queue of a third of that, which are remembered.
fn world(change: impl FnOnce(&mut HostOptions)) -> Outcome {
    let rate = Rate::from_bits_per_second(1_000_000_000);
    let mut sender = host(Role::Sender);
    let known = Remembered { rate, min_rtt: RTT, age: Duration::ZERO };
    sender.config.remembered = vec![(Side::Passive.address().ip(), known)];
    change(&mut sender);
    let mut setup = Setup::new(1, 200_000_000, sender, host(Role::Receiver));
    let queue = QueueLimit::Bytes(4_000_000);
    let link = LinkOptions { rate: Some(rate), delay: RTT / 2, queue, ..LinkOptions::default() };
    (setup.there, setup.back, setup.greets) = (link.clone(), link, true);
    let outcome = World::new(setup).run();
    assert!(outcome.is_success(), "\n{outcome}");
    outcome
}

/// Packets sent while data were short tell little of the path. Those that came a moment after the
/// grant were no such: taken for it, they made half of these runs probe past the goal, and lose
/// 3,900 packets and a third of the time.
#[test]
fn a_sender_whose_data_come_late_goes_on_all_the_same() {
    let ms = Duration::from_millis;
    for (latency, stalled, most) in [(0, 0, 2010), (1, 0, 2010), (7, 0, 2020), (5, 25, 2150)] {
        let outcome = world(|host| {
            host.disk.latency = ms(latency);
            host.disk.stalls = vec![Stall { at: ms(105), lasts: ms(stalled) }];
        });
        let (time, lost) = (outcome.transfer_time(), outcome.sent().data_packets_lost);
        println!("{latency} ms, {stalled} ms: {time:?}, {lost} lost");
        assert!(time <= ms(most) && lost == 0, "{latency} {stalled}: {time:?}, {lost} lost");
    }
}
