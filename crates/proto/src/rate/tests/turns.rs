//! A path that carries much and little in turn.

use super::sim::{Cubic, Flow, PACKET, Path, World};
use super::{M, adaptive, ms, shares};
use crate::gallery::bbr::Bbr;
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
fn what_comes_back_again_and_again_is_soon_used() {
    // Each in thousands of what passes at best, and of all packets sent; what they were without
    // trials is in docs/decisions/adaptive-rate.md: 664 to 923, and 18 to 55.
    let cells = [
        (500, (50, 20), 20, 100, 940, 15),
        (500, (50, 20), 40, 100, 905, 20),
        (500, (50, 20), 40, 200, 900, 15),
        (1000, (50, 20), 40, 50, 945, 30),
        (1000, (50, 20), 80, 100, 905, 20),
        (500, (200, 100), 20, 200, 955, 5),
        (500, (200, 100), 40, 100, 920, 10),
        (1000, (200, 100), 80, 100, 915, 8),
    ];
    for cell in cells {
        hold(cell);
    }
}

/// For so many milliseconds each, between so many Mbit/s: at least so much of what passes at best,
/// and at most so many packets lost, in thousands.
fn hold((each, (high, low), rtt, queue, least, most): (u64, (u64, u64), u64, u64, u64, u64)) {
    let path = turning(each, (high, low), rtt, queue);
    let mut world = World::new(path.clone(), vec![adaptive(&path)]);
    world.run(ms(12_000));
    let best = Rate::from_bits_per_second((high + low) / 2 * M);
    let (got, tally) = shares(&mut world, ms(60_000), best);
    let lost = tally.dropped * 1000 / tally.sent;
    let what = format!("{high}, {low} each {each}, {rtt} ms, {queue} %: {got:?}, lost {lost}");
    println!("{what}");
    assert!(got[0] >= least && lost <= most, "{what}");
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

/// From deep to high and back no round trip wanders, and what the little loses is no loss at rest.
#[test]
fn what_is_far_less_now_and_then_is_no_round_trip_that_wanders() {
    // What they were while it was taken for that is in docs/decisions/adaptive-rate.md: 140 to 720
    // of a thousand packets lost.
    let cells = [
        (500, (100, 10), 20, 100, 720, 50),
        (1000, (100, 10), 20, 100, 870, 25),
        (2000, (100, 10), 40, 100, 780, 35),
        (5000, (100, 10), 40, 200, 740, 140),
        (500, (20, 5), 40, 50, 870, 95),
        (1000, (20, 5), 20, 50, 950, 30),
        (1000, (100, 25), 40, 100, 900, 25),
        (500, (50, 10), 40, 200, 580, 50),
        (1000, (50, 10), 40, 100, 850, 35),
        (300, (200, 100), 40, 50, 760, 50),
    ];
    for cell in cells {
        hold(cell);
    }
}

/// What it knows of the path is forgotten: a contest begins as ever, and a BBR is known.
#[test]
fn a_path_that_turned_and_stays_is_as_any_other() {
    for queue in [25, 50, 100, 400] {
        for bbr in [false, true] {
            let mut path = turning(1000, (50, 20), 40, queue);
            path.steps.truncate(16);
            let mut flows = vec![adaptive(&path)];
            if bbr {
                let law = Bbr::new(PACKET as u32, Some(path.rtt));
                flows.push(Flow::new(Box::new(law), ms(25_000)));
            }
            let mut world = World::new(path.clone(), flows);
            world.cubic = (!bbr).then(|| Cubic::new(ms(25_000)));
            world.run(ms(40_000));
            let (got, _) = shares(&mut world, ms(60_000), path.rate);
            println!("{queue} %, a BBR {bbr}: {got:?}");
            assert!(got.iter().all(|share| *share >= 350), "{queue} % {bbr}: {got:?}");
        }
    }
}
