//! Paths with a policer: what is beyond its rate is lost at once, and nothing waits.

use super::*;

fn policed(mbit: u64, bucket_bytes: u64) -> Path {
    let mut path = Path::new(mbit * M, ms(100), 0, 100);
    (path.policer, path.queue_bytes) = (true, bucket_bytes);
    path.line = Some(Rate::from_bits_per_second(1000 * M));
    path
}

/// Its loss is not taken for loss at rest, and its bucket not for a faster path for ever.
#[test]
fn what_a_policer_takes_is_not_lost_for_ever() {
    for mbit in [20, 100] {
        for bucket in [64_000, 512_000, 2_000_000] {
            let path = policed(mbit, bucket);
            let mut world = World::new(path.clone(), vec![adaptive(&path)]);
            world.run(ms(20_000));
            let (got, tally) = shares(&mut world, ms(40_000), path.rate);
            let lost = tally.dropped * 1000 / tally.sent;
            println!("{mbit} Mbit/s, bucket of {bucket}: {got:?}, {lost} of 1000 lost");
            assert!(got[0] >= 930, "{got:?} {tally:?}");
            assert!(lost <= 25, "{got:?} {tally:?}");
        }
    }
}

/// What is lost at random as well is found out, and sent again.
#[test]
fn random_loss_behind_a_policer_is_made_up_for() {
    let mut path = policed(50, 200_000);
    path.loss = 20_000;
    let mut world = World::new(path.clone(), vec![adaptive(&path)]);
    world.run(ms(20_000));
    let (got, tally) = shares(&mut world, ms(40_000), path.rate);
    println!("{got:?} {tally:?}");
    assert!(got[0] >= 910 && tally.dropped * 1000 <= tally.sent * 35, "{got:?} {tally:?}");
}

/// When the policer has gone, what is there is found.
#[test]
fn a_path_that_is_no_longer_policed_is_filled() {
    let mut path = policed(20, 512_000);
    let faster = Rate::from_bits_per_second(100 * M);
    path.steps = vec![(ms(40_000), faster)];
    let mut world = World::new(path.clone(), vec![adaptive(&path)]);
    world.run(ms(60_000));
    let got = share(&mut world, ms(10_000), faster);
    assert!(got >= 800, "{got}");
}

/// Where a round trip is short a queue may be no longer than hosts are late, so what it loses looks
/// like loss at rest, and a sender that makes up for that loses the more. It tries whether what it
/// believes in is so.
#[test]
fn what_a_short_queue_of_a_short_path_loses_is_not_made_up_for() {
    for (kbit, micros, loss, queue) in [
        (100_000, 2100, 0, 10),
        (100_000, 1760, 50_000, 10),
        (250_000, 2180, 0, 50),
        (75_000, 4850, 0, 25),
        (20_000, 2260, 50_000, 25),
        (6250, 2180, 10_000, 400),
        (5000, 2120, 0, 100),
    ] {
        for seed in 1..=3 {
            let path = Path::new(kbit * 1000, Duration::from_micros(micros), loss, queue);
            let mut world = World::new(path.clone(), vec![adaptive(&path)]).by_chance(seed);
            world.run(ms(8000));
            let (got, tally) = shares(&mut world, ms(12_000), path.rate);
            println!("{kbit} kbit/s, {micros} us, {loss}, {queue}: {got:?}, {tally:?}");
            assert!(tally.dropped * 20 <= tally.sent * 3, "{tally:?}");
            assert!(got[0] >= 900, "{got:?}");
        }
    }
}

/// A burst of a millisecond is more than such a queue has room for.
#[test]
fn bursts_are_shorter_where_a_short_path_loses() {
    for (mbit, micros, loss, queue, least) in [
        (200, 1180, 0, 10, 850),
        (200, 1000, 1000, 25, 900),
        (500, 1500, 1000, 10, 700),
        (1000, 2000, 0, 6, 750),
    ] {
        for seed in 1..=3 {
            let path = Path::new(mbit * M, Duration::from_micros(micros), loss, queue);
            let mut world = World::new(path.clone(), vec![adaptive(&path)]).by_chance(seed);
            world.run(ms(8000));
            let (got, tally) = shares(&mut world, ms(12_000), path.rate);
            println!("{mbit} Mbit/s, {micros} us, {loss}, {queue}: {got:?}, {tally:?}");
            assert!(got[0] >= least, "{got:?}");
            assert!(tally.dropped * 100 <= tally.sent * 13, "{tally:?}");
        }
    }
}

/// What one of them tries shows nothing while the other goes on, unless it tries far less.
#[test]
fn two_on_a_short_path_do_not_flood_its_short_queue() {
    for (mbit, micros, queue) in
        [(100, 1240, 50), (100, 2000, 50), (200, 5450, 25), (500, 2000, 50), (1000, 1000, 50)]
    {
        for seed in 1..=4 {
            let path = Path::new(mbit * M, Duration::from_micros(micros), 0, queue);
            let flows = vec![adaptive_from(&path, ms(0)), adaptive_from(&path, ms(700))];
            let mut world = World::new(path.clone(), flows).by_chance(seed);
            world.run(ms(8000));
            let (got, tally) = shares(&mut world, ms(12_000), path.rate);
            println!("{mbit} Mbit/s, {micros} us, {queue}: {got:?}, {tally:?}");
            assert!(got.iter().sum::<u64>() >= 970, "{got:?}");
            assert!(got.iter().all(|got| *got >= 200), "{got:?}");
            assert!(tally.dropped * 100 <= tally.sent * 12, "{tally:?}");
        }
    }
}
