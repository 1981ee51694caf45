//! Queues that are too short to stay, shared with a CUBIC and with others of the same kind.

use super::sim::{Cubic, Flow, PACKET, Path, World};
use super::{Adaptive, Instant, M, Rate, RateControl, adaptive_from, ms, share, shares};

/// Jain's index, in thousandths.
fn evenness(got: &[u64]) -> u64 {
    let sum: u64 = got.iter().sum();
    let squares: u64 = got.iter().map(|share| share * share).sum();
    sum * sum * 1000 / (got.len() as u64 * squares).max(1)
}

/// Each probe up costs the CUBIC its window, so who probes on as if alone has three quarters.
#[test]
fn beside_a_cubic_both_have_a_third_at_least() {
    for (mbit, rtt) in [(20, 80), (50, 40), (100, 20), (100, 50)] {
        for (seed, start) in [(1, 0), (2, 0), (3, 5000)] {
            let path = Path::new(mbit * M, ms(rtt), 0, 25);
            let mut world = World::new(path.clone(), vec![adaptive_from(&path, ms(0))]);
            world = world.by_chance(seed);
            world.cubic = Some(Cubic::new(ms(start)));
            world.run(ms(15_000));
            let (got, tally) = shares(&mut world, ms(60_000), path.rate);
            println!("{mbit} Mbit/s, {rtt} ms, cubic from {start}: {got:?}, {tally:?}");
            let ours = got[0] * 1000 / (got[0] + got[1]);
            assert!((333..=667).contains(&ours), "{mbit} {rtt} {start}: {got:?}");
            assert!(got.iter().sum::<u64>() >= 960, "{got:?}");
            assert!(tally.dropped * 1000 <= tally.sent * 5, "{tally:?}");
        }
    }
}

#[test]
fn four_share_alike_and_lose_little() {
    for apart in [0, 1000, 5000] {
        let (mut even, mut dropped, mut sent) = (0, 0, 0);
        for seed in 1..=3 {
            let path = Path::new(50 * M, ms(39 + seed), 0, 25);
            let flows = (0..4).map(|n| adaptive_from(&path, ms(n * apart))).collect();
            let mut world = World::new(path.clone(), flows).by_chance(seed);
            world.run(ms(20_000 + 4 * apart));
            let (got, tally) = shares(&mut world, ms(60_000), path.rate);
            println!("{apart} ms apart: {got:?}, {tally:?}");
            assert!(got.iter().sum::<u64>() >= 980, "{got:?}");
            even += evenness(&got);
            (dropped, sent) = (dropped + tally.dropped, sent + tally.sent);
        }
        assert!(even >= 3 * 990, "{apart}: {even}");
        assert!(dropped * 1000 <= sent * 12, "{apart}: {dropped} of {sent}");
    }
}

/// Who came into a long queue takes what is left of it for a short one, and then its loss for the
/// path's own, unless it remembers that there was more.
#[test]
fn a_long_queue_is_not_taken_for_a_short_one() {
    for seed in 1..=3 {
        let path = Path::new(100 * M, ms(19 + seed), 0, 100);
        let flows = (0..8).map(|n| adaptive_from(&path, ms(n * 1000))).collect();
        let mut world = World::new(path.clone(), flows).by_chance(seed);
        world.run(ms(28_000));
        let (got, tally) = shares(&mut world, ms(60_000), path.rate);
        println!("{got:?}, {tally:?}");
        assert!(tally.dropped * 100 <= tally.sent * 4, "{tally:?}");
        assert!(evenness(&got) >= 800, "{got:?}");
    }
}

/// Where a path carries more than was leapt to, successive probes find it, and the last of them is
/// bold: that it overflows the queue is its own doing, and nobody is to be given way to.
#[test]
fn a_bold_probe_that_overflows_a_short_queue_meets_nobody() {
    for (seed, believed) in (1..).zip([72, 38, 45, 87, 4, 58, 66, 70, 75, 84, 90]) {
        let loss = [0, 1000, 10_000][seed as usize % 3];
        let path = Path::new(100 * M, ms(100), loss, 32);
        let mut law = Adaptive::new(PACKET as u32, Some(path.rtt), None);
        let rate = path.rate.bytes_per_second() / 100 * believed;
        law.take_over(Instant::EPOCH, Rate::from_bytes_per_second(rate), path.rtt);
        let flow = Flow::new(Box::new(law), ms(0));
        let mut world = World::new(path.clone(), vec![flow]).by_chance(seed);
        for second in 0..15 {
            let tally = world.run(ms(1000));
            let phase = world.flows[0].policy.belief().phase;
            println!("{believed} % at {second} s: {phase} {tally:?}");
            assert_ne!(phase, "contest", "{believed} % at {second} s");
        }
        let got = share(&mut world, ms(10_000), path.rate);
        assert!(got >= 970, "{believed} %: {got}");
    }
}

/// What a start loses beside others is not the path's own. Who goes on believing that sends twice
/// what arrives, since half of it is lost anyhow, and leaves nobody anything.
#[test]
fn what_a_start_beside_others_lost_is_not_believed_in_for_long() {
    let beside_a_cubic = [
        (50, 40, 25, 35),
        (50, 40, 15, 21),
        (100, 20, 15, 25),
        (100, 20, 25, 29),
        (200, 30, 35, 1),
    ];
    let beside_its_own = [(20, 80, 50, 1), (20, 80, 50, 11), (100, 50, 20, 2), (200, 30, 25, 8)];
    let cases = beside_a_cubic.map(|case| (case, true)).into_iter();
    for ((mbit, rtt, queue, seed), cubic) in cases.chain(beside_its_own.map(|case| (case, false))) {
        let path = Path::new(mbit * M, ms(rtt), 0, queue);
        let mut flows = vec![adaptive_from(&path, ms(3000 + seed * 97))];
        if !cubic {
            flows.push(adaptive_from(&path, ms(0)));
        }
        let mut world = World::new(path.clone(), flows).by_chance(seed);
        world.cubic = cubic.then(|| Cubic::new(ms(0)));
        world.run(ms(15_000));
        let (got, tally) = shares(&mut world, ms(20_000), path.rate);
        println!("{mbit} Mbit/s, {rtt} ms, queue {queue}, {seed}, {cubic}: {got:?}, {tally:?}");
        assert!(tally.dropped * 1000 <= tally.sent * 25, "{tally:?}");
        assert!(got.iter().all(|share| *share >= 100), "{got:?}");
    }
}
