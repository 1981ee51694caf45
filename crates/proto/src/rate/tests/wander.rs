//! Paths on which the round trip wanders although nothing waits.

use super::controller::tolerant;
use super::sim::{Cubic, Path, World};
use super::{M, ms, share, shares};

#[test]
fn a_way_that_wanders_is_filled() {
    for (mbit, rtt, wander) in [(50, 40, 40), (50, 40, 80), (40, 6, 15)] {
        for seed in 1..=3 {
            let mut path = Path::new(mbit * M, ms(rtt), 0, 400);
            path.wander = ms(wander);
            let flows = vec![tolerant(&path, ms(0))];
            let mut world = World::new(path.clone(), flows).by_chance(seed);
            world.run(ms(10_000));
            let got = share(&mut world, ms(30_000), path.rate);
            println!("{mbit} Mbit/s, {rtt} ms and {wander} ms, {seed}: {got}");
            assert!(got >= 850, "{got}");
        }
    }
}

/// Where it wanders by more than twice the round trip, each rise of it is yielded to in each of its
/// round trips, which take the rate to an eighth: what was yielded in vain must come back at once.
#[test]
fn a_way_that_wanders_far_is_not_given_up() {
    is_not_given_up(3);
}

#[test]
#[ignore = "slow: .ci/nightly"]
fn a_way_that_wanders_far_is_not_given_up_with_any_seed() {
    is_not_given_up(8);
}

fn is_not_given_up(seeds: u64) {
    let (mut sum, mut few) = (0, 0);
    for mbit in [100, 200, 300] {
        for seed in 1..=seeds {
            let mut path = Path::new(mbit * M, ms(25), 0, 300);
            path.wander = ms(60);
            let mut world = World::new(path.clone(), vec![tolerant(&path, ms(0))]).by_chance(seed);
            world.run(ms(10_000));
            let got = share(&mut world, ms(20_000), path.rate);
            println!("{mbit} Mbit/s, {seed}: {got}");
            sum += got;
            few += u32::from(got < 500);
        }
    }
    let mean = sum / (3 * seeds);
    assert!(mean >= 750 && few == 0, "{mean} in the mean, {few} with less than half");
}

/// Nor is what only comes late taken for lost, although some is late at every moment: none is lost
/// here, and while the round trip is long the loss of one packet would be a queue's.
#[test]
fn what_overtakes_all_the_time_is_no_loss() {
    for (mbit, rtt, wander) in [(300, 60, 24), (200, 60, 24), (100, 90, 16)] {
        for seed in 1..=3 {
            let mut path = Path::new(mbit * M, ms(rtt), 0, 300);
            (path.wander, path.jitter) = (ms(wander), ms(4));
            let mut world = World::new(path.clone(), vec![tolerant(&path, ms(0))]).by_chance(seed);
            world.run(ms(10_000));
            let got = share(&mut world, ms(20_000), path.rate);
            println!("{mbit} Mbit/s, {rtt} ms and {wander} ms, {seed}: {got}");
            assert!(got >= 780, "{got}");
        }
    }
}

/// What a TCP's queue does is not taken for the way: beside one, where nothing wanders and where
/// something does, both have something.
#[test]
fn a_tcp_beside_is_no_way_that_wanders() {
    for wander in [0, 20, 40] {
        let mut path = Path::new(50 * M, ms(40), 0, 200);
        path.wander = ms(wander);
        let mut world = World::new(path.clone(), vec![tolerant(&path, ms(0))]);
        world.cubic = Some(Cubic::new(ms(2000)));
        world.run(ms(10_000));
        let (got, tally) = shares(&mut world, ms(60_000), path.rate);
        println!("{wander} ms beside a cubic: {got:?}, {tally:?}");
        assert!(got.iter().all(|share| *share >= 120), "{got:?}");
        assert!(got.iter().sum::<u64>() >= 900, "{got:?}");
    }
}
