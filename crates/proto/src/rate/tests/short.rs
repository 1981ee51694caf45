//! Short round trips, whose queues are no longer than hosts are late: what is lost there looks like
//! loss at rest (docs/decisions/adaptive-rate.md, *A short queue of a short path*).

use super::*;

/// What each of so many got, in thousandths, and what the link did, when they had found it. Queues
/// are in percent of a product, loss in millionths.
fn settled(
    flows: u64,
    (kbit, micros, loss, queue): (u64, u64, u64, u64),
    seed: u64,
) -> (Vec<u64>, Tally) {
    let path = Path::new(kbit * 1000, Duration::from_micros(micros), loss, queue);
    let flows = (0..flows).map(|n| adaptive_from(&path, ms(n * 700))).collect();
    let mut world = World::new(path.clone(), flows).by_chance(seed);
    world.run(ms(8000));
    let (got, tally) = shares(&mut world, ms(12_000), path.rate);
    println!("{kbit} kbit/s, {micros} us, {loss}, {queue}: {got:?}, {tally:?}");
    (got, tally)
}

/// A sender that makes up for it loses the more. It tries whether what it believes in is so.
#[test]
fn what_a_short_queue_of_a_short_path_loses_is_not_made_up_for() {
    for path in [
        (100_000, 2100, 0, 10),
        (100_000, 1760, 50_000, 10),
        (250_000, 2180, 0, 50),
        (75_000, 4850, 0, 25),
        (20_000, 2260, 50_000, 25),
        (6250, 2180, 10_000, 400),
        (5000, 2120, 0, 100),
    ] {
        for seed in 1..=3 {
            let (got, tally) = settled(1, path, seed);
            assert!(tally.dropped * 20 <= tally.sent * 3, "{tally:?}");
            assert!(got[0] >= 900, "{got:?}");
        }
    }
}

/// A burst of a millisecond is more than such a queue has room for.
#[test]
fn bursts_are_shorter_where_a_short_path_loses() {
    for (path, least) in [
        ((200_000, 1180, 0, 10), 850),
        ((200_000, 1000, 1000, 25), 900),
        ((500_000, 1500, 1000, 10), 700),
        ((1_000_000, 2000, 0, 6), 750),
    ] {
        for seed in 1..=3 {
            let (got, tally) = settled(1, path, seed);
            assert!(got[0] >= least, "{got:?}");
            assert!(tally.dropped * 100 <= tally.sent * 13, "{tally:?}");
        }
    }
}

/// What one of them tries shows nothing while the other goes on, unless it tries far less.
#[test]
fn two_on_a_short_path_do_not_flood_its_short_queue() {
    for path in [
        (100_000, 1240, 0, 50),
        (100_000, 2000, 0, 50),
        (200_000, 5450, 0, 25),
        (500_000, 2000, 0, 50),
        (1_000_000, 1000, 0, 50),
    ] {
        for seed in 1..=4 {
            let (got, tally) = settled(2, path, seed);
            assert!(got.iter().sum::<u64>() >= 970, "{got:?}");
            assert!(got.iter().all(|got| *got >= 200), "{got:?}");
            assert!(tally.dropped * 100 <= tally.sent * 12, "{tally:?}");
        }
    }
}
