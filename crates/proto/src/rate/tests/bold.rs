//! The law that takes more than its share: how much, and what it does alone.

use super::background::paths;
use super::sim::{Cubic, Flow, PACKET, Path, World};
use super::{M, adaptive, ms, part, shares};
use crate::rate::adaptive::Adaptive;
use crate::units::Rate;

fn bold(path: &Path) -> Flow {
    let law = Adaptive::new(PACKET as u32, Some(path.rtt), None).bold();
    Flow::new(Box::new(law), ms(0))
}

#[test]
fn beside_a_cubic_it_has_more_than_half_whatever_the_queue() {
    for (queue, path) in paths() {
        for start in [0, 10_000] {
            let mut world = World::new(path.clone(), vec![bold(&path)]);
            world.cubic = Some(Cubic::new(ms(start)));
            world.run(ms(start + 10_000));
            let (got, tally) = shares(&mut world, ms(60_000), path.rate);
            println!("{:?} {queue} %, from {start}: {got:?} {tally:?}", path.rtt);
            assert!(got[0] >= 650 && got[1] >= 15, "{got:?}");
            assert!(got.iter().sum::<u64>() >= 980, "{got:?}");
            assert!(tally.dropped * 100 <= tally.sent * 10, "{tally:?}");
        }
    }
}

#[test]
fn beside_the_fair_law_too() {
    for (queue, path) in paths() {
        let mut world = World::new(path.clone(), vec![bold(&path), adaptive(&path)]);
        world.run(ms(10_000));
        let (got, _) = shares(&mut world, ms(60_000), path.rate);
        println!("{:?} {queue} %: {got:?}", path.rtt);
        assert!(got[0] >= 600 && got[1] >= 60, "{got:?}");
    }
}

#[test]
fn alone_it_fills_the_path_and_loses_little() {
    for (queue, path) in paths() {
        let mut world = World::new(path.clone(), vec![bold(&path)]);
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
    let mut world = World::new(path.clone(), vec![bold(&path)]);
    world.run(ms(5000));
    let down = world.run(ms(2000));
    let (got, settled) = shares(&mut world, ms(8000), low);
    println!("{down:?} {got:?} {settled:?}");
    assert!(down.dropped < 9000, "{down:?}");
    assert!(got[0] >= 950 && settled.dropped * 50 <= settled.sent, "{got:?} {settled:?}");
}
