//! Short round trips, whose queues are no longer than hosts are late.

use super::controller::tolerant;
use super::*;

/// What each of so many got, in thousandths, and what the link did, when they had found it. Queues
/// are in percent of a product, loss in millionths.
fn settled(
    flows: u64,
    (kbit, micros, loss, queue): (u64, u64, u64, u64),
    seed: u64,
) -> (Vec<u64>, Tally) {
    let path = Path::new(kbit * 1000, Duration::from_micros(micros), loss, queue);
    let flows = (0..flows).map(|n| tolerant(&path, ms(n * 700))).collect();
    let mut world = World::new(path.clone(), flows).by_chance(seed);
    world.run(ms(8000));
    let (got, tally) = shares(&mut world, ms(12_000), path.rate);
    println!("{kbit} kbit/s, {micros} us, {loss}, {queue}: {got:?}, {tally:?}");
    (got, tally)
}

/// A sender that made up for such a loss would lose the more.
#[test]
fn what_a_short_queue_of_a_short_path_loses_is_not_made_up_for() {
    for (path, least) in [
        ((100_000, 2100, 0, 10), 890),
        ((100_000, 1760, 50_000, 10), 300),
        ((250_000, 2180, 0, 50), 910),
        ((75_000, 4850, 0, 25), 890),
        ((20_000, 2260, 50_000, 25), 780),
        ((6250, 2180, 10_000, 400), 930),
        ((5000, 2120, 0, 100), 970),
    ] {
        for seed in 1..=3 {
            let (got, tally) = settled(1, path, seed);
            assert!(tally.dropped * 20 <= tally.sent, "{tally:?}");
            assert!(got[0] >= least, "{got:?}");
        }
    }
}

/// A burst of a millisecond is more than such a queue has room for: much of the path is not used.
#[test]
fn a_queue_of_less_than_a_burst_is_not_flooded() {
    for (path, least) in [
        ((200_000, 1180, 0, 10), 400),
        ((200_000, 1000, 1000, 25), 300),
        ((500_000, 1500, 1000, 10), 200),
        ((1_000_000, 2000, 0, 6), 50),
    ] {
        for seed in 1..=3 {
            let (got, tally) = settled(1, path, seed);
            assert!(got[0] >= least, "{got:?}");
            assert!(tally.dropped * 100 <= tally.sent * 5, "{tally:?}");
        }
    }
}

#[test]
fn two_on_a_short_path_do_not_flood_its_short_queue() {
    two_do_not_flood(1);
}

#[test]
#[ignore = "slow: .ci/nightly"]
fn two_on_a_short_path_do_not_flood_its_short_queue_with_any_seed() {
    two_do_not_flood(4);
}

fn two_do_not_flood(seeds: u64) {
    for (path, least) in [
        ((100_000, 1240, 0, 50), 950),
        ((100_000, 2000, 0, 50), 920),
        ((200_000, 5450, 0, 25), 940),
        ((500_000, 2000, 0, 50), 930),
        ((1_000_000, 1000, 0, 50), 550),
    ] {
        for seed in 1..=seeds {
            let (got, tally) = settled(2, path, seed);
            assert!(got.iter().sum::<u64>() >= least, "{got:?}");
            assert!(got.iter().all(|got| *got >= 200), "{got:?}");
            assert!(tally.dropped * 100 <= tally.sent * 8, "{tally:?}");
        }
    }
}
