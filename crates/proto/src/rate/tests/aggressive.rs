//! The law that takes more than its share: how much, and what it does alone.

use super::background::paths;
use super::controller::tolerant;
use super::sim::{Cubic, Flow, PACKET, Path, World};
use super::{M, ms, part, shares};
use crate::rate::controller::Controller;
use crate::units::Rate;

fn aggressive(path: &Path) -> Flow {
    let law = Controller::new(PACKET as u32, Some(path.rtt), None).tolerant().weighted(4);
    Flow::new(Box::new(law), ms(0))
}

#[test]
fn beside_a_cubic_it_has_more_than_a_fair_sender_there_whatever_the_queue() {
    has_more_beside_a_cubic(paths().take(3), &[0]);
}

#[test]
#[ignore = "slow: .ci/nightly"]
fn beside_a_cubic_it_has_more_than_a_fair_sender_there_whoever_begins() {
    has_more_beside_a_cubic(paths(), &[0, 10_000]);
}

/// With a CUBIC that starts so many milliseconds later.
fn has_more_beside_a_cubic(paths: impl Iterator<Item = (u64, Path)>, starts: &[u64]) {
    for (queue, path) in paths {
        for &start in starts {
            let beside_cubic = |flow: Flow| {
                let mut world = World::new(path.clone(), vec![flow]);
                world.cubic = Some(Cubic::new(ms(start)));
                world.run(ms(start + 60_000));
                shares(&mut world, ms(60_000), path.rate)
            };
            let (got, tally) = beside_cubic(aggressive(&path));
            let (fair, _) = beside_cubic(tolerant(&path, ms(0)));
            println!("{:?} {queue} %, from {start}: {got:?}, fair {fair:?} {tally:?}", path.rtt);
            assert!(got[0] >= 390 && got[0] * 10 >= fair[0] * 13 && got[1] >= 60, "{got:?}");
            assert!(got.iter().sum::<u64>() >= 980, "{got:?}");
            assert!(tally.dropped * 100 <= tally.sent, "{tally:?}");
        }
    }
}

#[test]
fn beside_the_fair_law_too() {
    for (queue, path) in paths() {
        let mut world = World::new(path.clone(), vec![aggressive(&path), tolerant(&path, ms(0))]);
        world.run(ms(10_000));
        let (got, _) = shares(&mut world, ms(60_000), path.rate);
        println!("{:?} {queue} %: {got:?}", path.rtt);
        assert!(got[0] >= 600 && got[1] >= 60, "{got:?}");
    }
}

#[test]
fn alone_it_fills_the_path_and_loses_little() {
    for (queue, path) in paths() {
        let mut world = World::new(path.clone(), vec![aggressive(&path)]);
        world.run(ms(5000));
        let (got, tally) = shares(&mut world, ms(60_000), path.rate);
        let wait = part(tally.mean_wait(), path.rtt);
        println!("{:?} {queue} %: {got:?}, wait {wait}, {tally:?}", path.rtt);
        assert!(got[0] >= 980 && tally.dropped * 100 <= tally.sent * 3, "{got:?} {tally:?}");
    }
}

#[test]
fn a_path_that_becomes_slower_is_not_flooded_for_long() {
    let low = Rate::from_bits_per_second(20 * M);
    let mut path = Path::new(100 * M, ms(50), 1000, 100);
    path.steps = vec![(ms(5000), low)];
    let mut world = World::new(path.clone(), vec![aggressive(&path)]);
    world.run(ms(5000));
    let down = world.run(ms(2000));
    let (got, settled) = shares(&mut world, ms(8000), low);
    println!("{down:?} {got:?} {settled:?}");
    assert!(down.dropped < 9000, "{down:?}");
    assert!(got[0] >= 950 && settled.dropped * 50 <= settled.sent, "{got:?} {settled:?}");
}
