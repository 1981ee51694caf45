//! Queues that are too short to stay, shared with a CUBIC and with others of the same kind.

use super::sim::{Cubic, Flow, PACKET, Path, World};
use super::{Adaptive, Instant, M, Rate, RateControl, adaptive_from, ms, share, shares};

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
