//! Paths with a policer: what is beyond its rate is lost at once, and nothing waits.

use super::controller::tolerant;
use super::*;

fn policed(mbit: u64, bucket_bytes: u64) -> Path {
    let mut path = Path::new(mbit * M, ms(100), 0, 100);
    (path.policer, path.queue_bytes) = (true, bucket_bytes);
    path.line = Some(Rate::from_bits_per_second(1000 * M));
    path
}

/// Its loss is not excused, and its bucket is not taken for a faster path for ever.
#[test]
fn what_a_policer_takes_is_answered() {
    for (mbit, bucket, least) in [
        (20, 64_000, 870),
        (20, 512_000, 960),
        (20, 2_000_000, 980),
        (100, 64_000, 760),
        (100, 512_000, 880),
        (100, 2_000_000, 930),
    ] {
        let path = policed(mbit, bucket);
        let mut world = World::new(path.clone(), vec![tolerant(&path, ms(0))]);
        world.run(ms(20_000));
        let (got, tally) = shares(&mut world, ms(40_000), path.rate);
        let lost = tally.dropped * 1000 / tally.sent;
        println!("{mbit} Mbit/s, bucket of {bucket}: {got:?}, {lost} of 1000 lost");
        assert!(got[0] >= least && lost <= 20, "{got:?} {tally:?}");
    }
}

/// When the policer has gone, what is there is found.
#[test]
fn a_path_that_is_no_longer_policed_is_filled() {
    let mut path = policed(20, 512_000);
    let faster = Rate::from_bits_per_second(100 * M);
    path.steps = vec![(ms(40_000), faster)];
    let mut world = World::new(path.clone(), vec![tolerant(&path, ms(0))]);
    world.run(ms(60_000));
    let got = share(&mut world, ms(10_000), faster);
    assert!(got >= 800, "{got}");
}
