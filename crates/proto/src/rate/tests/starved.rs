//! Senders that stand still for 20 ms of every 50: they use most of the path, and leave others
//! their part.

use super::controller::tolerant;
use super::sim::{Cubic, Path, Stops, World};
use super::{M, ms, part, shares};
use crate::time::nanos;

fn stops(offset_millis: u64) -> Option<Stops> {
    let [stopped, period, offset] = [20, 50, offset_millis].map(|millis| nanos(ms(millis)));
    Some(Stops { stopped, period, offset })
}

#[test]
fn a_sender_that_stops_uses_most_of_the_path() {
    for (bits, rtt, least) in [(10, 40, 800), (50, 40, 720), (50, 100, 690), (100, 20, 740)] {
        let path = Path::new(bits * M, ms(rtt), 0, 100);
        let mut flow = tolerant(&path, ms(0));
        flow.stops = stops(0);
        let mut world = World::new(path.clone(), vec![flow]);
        world.run(ms(10_000));
        let (got, tally) = shares(&mut world, ms(30_000), path.rate);
        let wait = part(tally.mean_wait(), path.rtt);
        println!("{bits} Mbit/s {rtt} ms: {got:?}, wait {wait}");
        assert!(got[0] >= least, "{got:?}");
        // As long as it stands still, and little more.
        assert!(wait <= 500 && tally.dropped * 100 <= tally.sent, "{wait} {tally:?}");
    }
}

#[test]
fn senders_that_stop_share_with_each_other_and_with_a_cubic() {
    share(&[(50, 40), (100, 20)]);
}

#[test]
#[ignore = "slow: .ci/nightly"]
fn senders_that_stop_share_a_fast_path() {
    share(&[(500, 40)]);
}

/// A path of so many Mbit/s and milliseconds.
fn share(paths: &[(u64, u64)]) {
    for &(bits, rtt) in paths {
        let path = Path::new(bits * M, ms(rtt), 0, 100);
        for cubic in [false, true] {
            let mut flows = vec![tolerant(&path, ms(0)), tolerant(&path, ms(2000))];
            flows.truncate(if cubic { 1 } else { 2 });
            for (flow, offset) in flows.iter_mut().zip([0, 31]) {
                flow.stops = stops(offset);
            }
            let mut world = World::new(path.clone(), flows);
            world.cubic = cubic.then(|| Cubic::new(ms(2000)));
            world.run(ms(10_000));
            let (got, tally) = shares(&mut world, ms(30_000), path.rate);
            println!("{bits} Mbit/s {rtt} ms, cubic {cubic}: {got:?}");
            assert!(got.iter().all(|share| *share >= 90), "{got:?}");
            assert!(tally.dropped * 100 <= tally.sent * 2, "{tally:?}");
        }
    }
}
