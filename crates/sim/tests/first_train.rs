//! A path of which nothing is known is filled from its first trains on, whenever the sender has
//! its first data (docs/decisions/fast-start.md).

use std::time::Duration;

use netblt_path::{LinkOptions, QueueLimit};
use netblt_proto::config::{Config, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::units::Rate;
use netblt_sim::disk::DiskOptions;
use netblt_sim::host::HostOptions;
use netblt_sim::outcome::Outcome;
use netblt_sim::setup::Setup;
use netblt_sim::world::World;

const RTT: Duration = Duration::from_millis(100);

fn host(role: Role) -> HostOptions {
    let mut config = Config::new(Wire::Sealed, role);
    config.secret = Some(Secret([1; 32]));
    config.cipher = Cipher::Aes256Gcm;
    config.datagram_bytes = 1472;
    HostOptions::new(config)
}

/// Half a second of data, and a queue of a third of a product, from a disk that takes so long.
fn world(mbit: u64, latency: Duration) -> Outcome {
    let rate = Rate::from_bits_per_second(mbit * 1_000_000);
    let mut sender = host(Role::Sender);
    sender.disk = DiskOptions { latency, ..DiskOptions::default() };
    let mut setup = Setup::new(1, mbit * 62_500, sender, host(Role::Receiver));
    let queue = QueueLimit::Bytes(mbit * 4_000);
    let link = LinkOptions { rate: Some(rate), delay: RTT / 2, queue, ..LinkOptions::default() };
    (setup.there, setup.back, setup.greets) = (link.clone(), link, true);
    let outcome = World::new(setup).run();
    assert!(outcome.is_success(), "\n{outcome}");
    outcome
}

/// What opens the connection leaves as long before the first train as the first data take to come.
/// A receiver that sees no pause between them tells of both at once: taken for one train, they
/// showed 118 to 155 Mbit/s of 1 Gbit/s, and 66 of 100.
#[test]
fn data_that_come_a_moment_after_the_opening_are_a_train_of_their_own() {
    for mbit in [20, 50, 100, 200, 300, 500, 1000] {
        let at_once = world(mbit, Duration::ZERO).transfer_time();
        for micros in [200, 400, 600, 800, 1000, 1500, 3000] {
            let time = world(mbit, Duration::from_micros(micros)).transfer_time();
            println!("{mbit} Mbit/s, {micros} us: {time:?}, at once {at_once:?}");
            assert!(time <= at_once * 5 / 4, "{mbit} Mbit/s, {micros} us: {time:?}, {at_once:?}");
        }
    }
}
