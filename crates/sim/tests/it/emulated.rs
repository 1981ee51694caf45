//! Whole transfers by other protocols' rules: whatever a law does, every byte arrives once, and the
//! end is known (`docs/protocol §6.8`).

use std::time::Duration;

use netblt_path::rng::Probability;
use netblt_path::{LinkOptions, QueueLimit};
use netblt_proto::config::{Config, EmulatedProtocol, Emulation, Policy, Role, Secret, Wire};
use netblt_proto::crypto::aead::Cipher;
use netblt_proto::units::Rate;
use netblt_sim::host::HostOptions;
use netblt_sim::outcome::Outcome;
use netblt_sim::setup::Setup;
use netblt_sim::world::World;

const RTT: Duration = Duration::from_millis(40);
const BYTES: u64 = 3_000_000;

/// Over 20 Mbit/s, with so much going wrong in every thousand packets, both ways; `narrow` to few
/// buffers.
fn transfer(protocol: EmulatedProtocol, per_mille: u32, narrow: bool, seed: u64) -> Outcome {
    let host = |role| {
        let mut config = Config::new(Wire::Sealed, role);
        config.secret = Some(Secret([7; 32]));
        config.cipher = Cipher::Aes256Gcm;
        (config.buffer_bytes, config.max_outstanding) =
            if narrow { (1 << 16, 4) } else { (1 << 18, 64) };
        let rate = Some(Rate::from_bits_per_second(18_000_000));
        config.policy = Policy::Emulated(Emulation { rate, ..Emulation::of(protocol) });
        HostOptions::new(config)
    };
    let mut setup = Setup::new(seed, BYTES, host(Role::Sender), host(Role::Receiver));
    let rate = Some(Rate::from_bits_per_second(20_000_000));
    let fault = Probability::from_ppb(per_mille * 1_000_000);
    let link = LinkOptions {
        rate,
        delay: RTT / 2,
        queue: QueueLimit::bdp(rate, RTT),
        loss: fault,
        reorder: fault,
        duplicate: fault,
        ..LinkOptions::default()
    };
    (setup.there, setup.back) = (link.clone(), link);
    setup.deadline = Duration::from_secs(600);
    World::new(setup).run()
}

#[test]
fn every_law_delivers_all_data() {
    for protocol in EmulatedProtocol::ALL {
        for (per_mille, narrow) in [(0, false), (1, false), (20, true), (50, false)] {
            for seed in 1..=3 {
                let outcome = transfer(protocol, per_mille, narrow, seed);
                let name = protocol.name();
                assert!(outcome.is_success(), "{name}, {per_mille}, {narrow}\n{outcome}");
                assert_eq!(outcome.problem(), None, "{name}, {per_mille}\n{outcome}");
            }
        }
    }
}

/// On a path that loses nothing each is known by what it does there.
#[test]
fn on_a_path_without_faults_each_shows_its_ways() {
    for protocol in EmulatedProtocol::ALL {
        let outcome = transfer(protocol, 0, false, 9);
        let (sent, received) = (outcome.sent(), outcome.received());
        let rate = outcome.goodput().bits_per_second();
        println!("{}: {rate} bit/s, {} again", protocol.name(), sent.data_packets_resent);
        match protocol {
            // It repeats the last packet until it hears that all is here: for a round trip.
            EmulatedProtocol::Tsunami | EmulatedProtocol::Fobs => {
                assert!(sent.data_packets_resent > 20, "{outcome}");
                assert_eq!(received.data_packets_duplicate, sent.data_packets_resent, "{outcome}");
            }
            // A blast at a rate that fits is one pass.
            EmulatedProtocol::Rbudp => assert_eq!(sent.data_packets_resent, 0, "{outcome}"),
            _ => {}
        }
    }
}
