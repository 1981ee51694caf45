//! A path that carries much and little in turn.

use super::controller::tolerant;
use super::sim::{Path, World};
use super::{M, ms, shares};
use crate::units::Rate;

/// From `high` to `low` Mbit/s and back, each for so many milliseconds.
fn turning(each: u64, (high, low): (u64, u64), rtt: u64, queue: u64) -> Path {
    let mut path = Path::new(high * M, ms(rtt), 0, queue);
    let mbit = |n: u64| if n.is_multiple_of(2) { high } else { low };
    let step = |n| (ms(each * n), Rate::from_bits_per_second(mbit(n) * M));
    path.steps = (1..80_000 / each).map(step).collect();
    path
}

/// For so many milliseconds each, between so many Mbit/s: the part of what passes at best, and of
/// all packets the lost ones, in thousands.
#[test]
fn what_comes_back_again_and_again_is_used() {
    for (each, (high, low), rtt, queue, least, most) in [
        (500, (50, 20), 20, 100, 840, 15),
        (500, (50, 20), 40, 100, 720, 10),
        (500, (50, 20), 40, 200, 850, 5),
        (1000, (50, 20), 40, 50, 700, 20),
        (1000, (50, 20), 80, 100, 720, 8),
        (500, (200, 100), 20, 200, 920, 5),
        (500, (200, 100), 40, 100, 800, 8),
        (1000, (200, 100), 80, 100, 820, 8),
        (500, (100, 10), 20, 100, 280, 30),
        (1000, (100, 10), 20, 100, 500, 30),
        (2000, (100, 10), 40, 100, 400, 25),
        (5000, (100, 10), 40, 200, 780, 20),
        (500, (20, 5), 40, 50, 540, 50),
        (1000, (20, 5), 20, 50, 830, 50),
        (500, (50, 10), 40, 200, 500, 10),
    ] {
        let path = turning(each, (high, low), rtt, queue);
        let mut world = World::new(path.clone(), vec![tolerant(&path, ms(0))]);
        world.run(ms(12_000));
        let best = Rate::from_bits_per_second((high + low) / 2 * M);
        let (got, tally) = shares(&mut world, ms(60_000), best);
        let lost = tally.dropped * 1000 / tally.sent;
        let what = format!("{high}, {low} each {each}, {rtt} ms, {queue} %: {got:?}, lost {lost}");
        println!("{what}");
        assert!(got[0] >= least && lost <= most, "{what}");
    }
}

/// A CUBIC keeps a part of the queue of the last high rate until its short queue begins.
#[test]
fn a_rate_that_is_gone_for_good_is_not_tried_for_long() {
    let mut path = turning(1000, (50, 20), 40, 100);
    path.steps.truncate(15);
    let mut world = World::new(path.clone(), vec![tolerant(&path, ms(0))]);
    world.run(ms(19_000));
    let low = Rate::from_bits_per_second(20 * M);
    let (got, tally) = shares(&mut world, ms(20_000), low);
    println!("{got:?} {tally:?}");
    assert!(got[0] >= 970 && tally.dropped == 0, "{got:?} {tally:?}");
    assert!(tally.mean_wait() <= ms(12), "{tally:?}");
}
