//! Every decision of the laws, as hashes: a change that means to change nothing leaves them as they
//! are. One that means to change something accepts the new ones (`INSTA_UPDATE=always`) and says
//! why.

use std::fmt::Write;
use std::time::Duration;

use super::sim::{Flow, PACKET, Path, World};
use super::{Adaptive, Background, M, ms};
use crate::rate::RateControl;
use crate::rate::controller::Controller;
use crate::units::Rate;

/// What each path is called, and the path.
fn paths() -> Vec<(&'static str, Path)> {
    let clean = Path::new(50 * M, ms(40), 0, 100);
    let mbit = |n: u64| Rate::from_bits_per_second(n * M);
    vec![
        ("clean", clean.clone()),
        ("short queue", Path::new(50 * M, ms(40), 0, 10)),
        ("1 % lost", Path::new(100 * M, ms(70), 10_000, 100)),
        ("10 % lost", Path::new(20 * M, ms(40), 100_000, 100)),
        ("fast", Path::new(500 * M, ms(50), 100, 100)),
        ("reordering", Path { jitter: ms(20), ..clean.clone() }),
        ("wander", Path { wander: ms(20), ..clean.clone() }),
        ("marks", Path { mark_bytes: 60_000, ..clean.clone() }),
        ("policer", Path { policer: true, line: Some(mbit(1000)), ..clean.clone() }),
        ("slower", Path { steps: vec![(ms(4000), mbit(10))], ..clean.clone() }),
        ("outage", Path { steps: vec![(ms(3000), Rate::ZERO), (ms(5000), mbit(50))], ..clean }),
    ]
}

fn laws(path: &Path) -> Vec<(&'static str, Box<dyn RateControl>)> {
    let (packet, rtt) = (PACKET as u32, Some(path.rtt));
    let cubic = || Controller::new(packet, rtt, None);
    vec![
        ("fair", Box::new(cubic().tolerant())),
        ("aggressive", Box::new(cubic().tolerant().weighted(4))),
        ("cubic", Box::new(cubic())),
        ("background", Box::new(Background::new(packet, rtt, None))),
        ("older law", Box::new(Adaptive::new(packet, rtt, None))),
    ]
}

/// The hash of one flow alone, and those of two of a kind together.
fn hashes(path: &Path, at: usize) -> [String; 2] {
    [1_u64, 2].map(|flows| {
        let flow = |n| Flow::new(laws(path).swap_remove(at).1, ms(n * 1500));
        let mut world = World::new(path.clone(), (0..flows).map(flow).collect());
        world.run(Duration::from_secs(8));
        let mut all = blake3::Hasher::new();
        for flow in &world.flows {
            all.update(flow.record.finalize().as_bytes());
        }
        all.finalize().to_hex()[..16].to_owned()
    })
}

#[test]
fn decisions_of_every_law() {
    let mut table = String::new();
    for (name, path) in paths() {
        for (at, (law, _)) in laws(&path).iter().enumerate() {
            let [alone, two] = hashes(&path, at);
            let _ = writeln!(table, "{name:12} {law:12} {alone} {two}");
        }
    }
    insta::assert_snapshot!("decisions", table);
}
