//! Beside who does not yield: what it has, and for how long; and that nobody else is taken for one.

use std::time::Duration;

use super::sim::{Cubic, Flow, PACKET, Path, World};
use super::{M, adaptive_from, ms, shares};
use crate::gallery::bbr::Bbr;
use crate::units::Rate;

fn bbr(path: &Path, start: Duration) -> Flow {
    Flow::new(Box::new(Bbr::new(PACKET as u32, Some(path.rtt))), start)
}

/// How often one of the flows was seen to hold on, of so many looks.
fn looks(world: &mut World, count: u32) -> u32 {
    let mut seen = 0;
    for _ in 0..count {
        world.run(ms(250));
        let stands = world.flows.iter().any(|flow| flow.policy.belief().phase == "stand");
        seen += u32::from(stands);
    }
    seen
}

#[test]
fn it_ends_when_nobody_is_there_any_more() {
    for queue in [25, 100] {
        let path = Path::new(50 * M, ms(40), 0, queue);
        let mut other = bbr(&path, ms(0));
        // It has data for 40 s, and then none for as long.
        other.pauses = ms(80_000);
        let mut world = World::new(path.clone(), vec![adaptive_from(&path, ms(0)), other]);
        world.run(ms(20_000));
        let beside = looks(&mut world, 80);
        world.run(ms(14_000));
        let alone = looks(&mut world, 60);
        let (got, tally) = shares(&mut world, ms(6000), path.rate);
        println!("queue {queue} %: {beside} of 80, then {alone} of 60, {got:?} {tally:?}");
        assert!(beside >= 60 && alone == 0, "{beside} {alone}");
        assert!(got[0] >= 950, "{got:?}");
    }
}

/// A CUBIC, and others like itself, yield.
/// It stands beside a BBR; then the path carries a tenth of what it did for half of each second,
/// and to hold on would lose a third.
#[test]
fn it_gives_up_where_much_is_lost() {
    let mut path = Path::new(50 * M, ms(40), 0, 25);
    let mbit = |n: u64| if n.is_multiple_of(2) { 5 } else { 50 };
    let step = |n| (ms(60_000 + 500 * n), Rate::from_bits_per_second(mbit(n) * M));
    path.steps = (0..60).map(step).collect();
    let flows = vec![adaptive_from(&path, ms(0)), bbr(&path, ms(0))];
    let mut world = World::new(path, flows);
    world.run(ms(55_000));
    let (before, after) = (looks(&mut world, 20), looks(&mut world, 40));
    println!("{before} of 20, then {after} of 40");
    assert!(before >= 15 && after <= 5, "{before} {after}");
}

#[test]
fn nobody_who_yields_is_taken_for_one_who_does_not() {
    for queue in [25, 100, 400] {
        let path = Path::new(50 * M, ms(40), 0, queue);
        for count in [1, 2, 4] {
            let flows = (0..count).map(|n| adaptive_from(&path, ms(1000 * n))).collect();
            let mut world = World::new(path.clone(), flows);
            if count == 1 {
                world.cubic = Some(Cubic::new(ms(2000)));
            }
            let seen = looks(&mut world, 320);
            println!("queue {queue} %, {count}: {seen} of 320");
            assert_eq!(seen, 0, "queue {queue} %, {count}");
        }
    }
}
