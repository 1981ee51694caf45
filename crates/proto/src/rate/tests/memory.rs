//! A path that an earlier connection knew: tried carefully, and forgotten where it is not so any
//! more.

use std::time::Duration;

use super::sim::{Flow, PACKET, Path, World};
use super::{M, ms};
use crate::rate::RateControl;
use crate::rate::controller::Controller;
use crate::stats::{Learned, Remembered};
use crate::units::Rate;

const HOUR: Duration = Duration::from_secs(3600);

/// A flow over `path` that knows this of one, whose handshake was measured or not.
fn world(path: &Path, megabits: u64, millis: u64, age: Duration, measured: bool) -> World {
    let known =
        Remembered { rate: Rate::from_bits_per_second(megabits * M), min_rtt: ms(millis), age };
    let rtt = measured.then_some(path.rtt);
    let mut policy = Controller::new(PACKET as u32, rtt, None).tolerant();
    policy.recall(known, rtt);
    let mut flow = Flow::new(Box::new(policy), Duration::ZERO);
    flow.lateness = Duration::from_nanos(1);
    World::new(path.clone(), vec![flow])
}

/// What was sent in each of the first round trips, of what the path holds, in hundredths.
fn sent(world: &mut World, path: &Path, rounds: usize) -> Vec<u64> {
    let product = path.rate.bytes_in(path.rtt) / PACKET;
    (0..rounds).map(|_| world.run(path.rtt).sent * 100 / product).collect()
}

#[test]
fn half_at_first_and_no_more_until_that_is_known_to_pass() {
    let path = Path::new(1000 * M, ms(100), 0, 100);
    for (age, first) in [(Duration::ZERO, 50), (HOUR, 50), (HOUR * 2, 25), (HOUR * 24, 25)] {
        let mut world = world(&path, 1000, 100, age, true);
        let sent = sent(&mut world, &path, 6);
        println!("{age:?}: {sent:?}");
        // What was sent at first is known to pass a round trip after it was: till then no growth.
        assert!(sent[..2].iter().all(|part| *part >= first - 3 && *part <= first + 3), "{sent:?}");
        assert!(sent[2] <= first * 2 + 3 && sent[4..].iter().sum::<u64>() >= 150, "{sent:?}");
    }
}

#[test]
fn an_unmeasured_handshake_waits_for_the_first_report() {
    let path = Path::new(1000 * M, ms(100), 0, 100);
    let mut world = world(&path, 1000, 100, Duration::ZERO, false);
    let sent = sent(&mut world, &path, 4);
    println!("{sent:?}");
    assert!(sent[0] <= 1 && (40..=56).contains(&sent[1]), "{sent:?}");
}

#[test]
fn another_path_and_an_old_one_are_not_tried() {
    let path = Path::new(1000 * M, ms(100), 0, 100);
    for (millis, age, tried) in [
        (81, Duration::ZERO, true),
        (124, Duration::ZERO, true),
        (79, Duration::ZERO, false),
        (127, Duration::ZERO, false),
        (100, HOUR * 25, false),
    ] {
        let sent = sent(&mut world(&path, 1000, millis, age, true), &path, 1);
        assert_eq!(sent[0] > 20, tried, "{millis} ms, {age:?}: {sent:?}");
    }
}

#[test]
fn what_is_too_much_is_given_up_and_forgotten() {
    for (queue, megabits) in [(100, 400), (25, 400), (25, 1000)] {
        let path = Path::new(100 * M, ms(100), 0, queue);
        let mut world = world(&path, megabits, 100, Duration::ZERO, true);
        // Until the queue is seen, what was tried has been sent, once and a part of it again.
        let first = world.run(ms(150));
        let tried = Rate::from_bits_per_second(megabits * M / 2).bytes_in(ms(150)) / PACKET;
        println!("{queue} {megabits}: {first:?}");
        assert!(first.sent <= tried * 105 / 100, "{queue} {megabits}: {first:?}");
        let next = world.run(ms(100));
        assert!(next.dropped <= next.sent, "{next:?}");
        assert_eq!(world.flows[0].policy.learned(), Learned::Wrong, "{queue} {megabits}");
        // Half of what came through, and soon more.
        let later = world.run(ms(1000));
        println!("{queue} {megabits}: {next:?} {later:?}");
        assert!(later.dropped * 20 <= later.sent, "{later:?}");
        world.run(ms(3000));
        let used = world.run(ms(1000));
        println!("{used:?}");
        assert!(world.used(&used, ms(1000)) >= 850, "{used:?}");
        let learned = world.flows[0].policy.learned();
        let Learned::Path(known) = learned else { panic!("{learned:?}") };
        let bits = known.rate.bits_per_second();
        assert!((80 * M..110 * M).contains(&bits), "{known:?}");
        assert_eq!(known.min_rtt.as_millis() / 10, 10);
    }
}

#[test]
fn little_is_not_worth_remembering() {
    let path = Path::new(2 * M, ms(100), 0, 100);
    let mut world = world(&path, 2, 100, Duration::ZERO, true);
    assert_eq!(world.flows[0].policy.learned(), Learned::Nothing);
    world.run(ms(4000));
    assert_eq!(world.flows[0].policy.learned(), Learned::Wrong);
}

/// The host's lateness varies what a probe finds, and where the first loss falls.
#[test]
fn one_packet_lost_in_a_thousand_costs_a_known_path_little() {
    costs_little(&[(200, 50), (100, 70), (50, 40)]);
}

#[test]
#[ignore = "slow: .ci/nightly"]
fn one_packet_lost_in_a_thousand_costs_a_known_fast_path_little() {
    costs_little(&[(1000, 100)]);
}

/// A path of so many Mbit/s and milliseconds.
fn costs_little(paths: &[(u64, u64)]) {
    for &(megabits, millis) in paths {
        let path = Path::new(megabits * M, ms(millis), 1000, 100);
        let used: Vec<u64> = (0..6)
            .map(|seed| {
                let known = megabits * 95 / 100;
                let mut world = world(&path, known, millis, Duration::ZERO, true);
                world.flows[0].lateness = Duration::from_micros(20 + 37 * seed);
                world.run(path.rtt * 40);
                let later = world.run(path.rtt * 80);
                world.used(&later, path.rtt * 80)
            })
            .collect();
        println!("{megabits} Mbit/s, {millis} ms: {used:?}");
        assert!(used.iter().all(|part| *part >= 930), "{used:?}");
    }
}
