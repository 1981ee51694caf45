//! A path that carries much and little in turn.

use super::sim::{Path, World};
use super::{M, adaptive, ms, shares};
use crate::units::Rate;

/// From `high` to `low` Mbit/s and back, each for so many milliseconds.
fn turning(each: u64, (high, low): (u64, u64), rtt: u64, queue: u64) -> Path {
    let mut path = Path::new(high * M, ms(rtt), 0, queue);
    let mbit = |n: u64| if n.is_multiple_of(2) { high } else { low };
    let step = |n| (ms(each * n), Rate::from_bits_per_second(mbit(n) * M));
    path.steps = (1..80_000 / each).map(step).collect();
    path
}

#[test]
fn a_rate_that_is_gone_for_good_is_not_tried_for_long() {
    let mut path = turning(1000, (50, 20), 40, 100);
    path.steps.truncate(15);
    let mut world = World::new(path.clone(), vec![adaptive(&path)]);
    world.run(ms(19_000));
    let low = Rate::from_bits_per_second(20 * M);
    let (got, tally) = shares(&mut world, ms(20_000), low);
    println!("{got:?} {tally:?}");
    assert!(got[0] >= 970 && tally.dropped == 0, "{got:?} {tally:?}");
    assert!(tally.mean_wait() <= ms(4), "{tally:?}");
}
