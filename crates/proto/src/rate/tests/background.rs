//! The law that yields to everybody else: what it takes of an idle path, and what it leaves.

use std::time::Duration;

use super::controller::tolerant;
use super::sim::{Cubic, Flow, PACKET, Path, World};
use super::{M, ms, part, shares};
use crate::rate::background::Background;
use crate::rate::{RateControl as _, Sample};
use crate::time::Instant;
use crate::units::Rate;

fn background(path: &Path, start: u64) -> Flow {
    let law = Background::new(PACKET as u32, Some(path.rtt), None);
    Flow::new(Box::new(law), ms(start))
}

/// The paths that policies are judged on, with queues of a quarter of a product, one and four.
pub(super) fn paths() -> impl Iterator<Item = (u64, Path)> {
    let paths = [(50 * M, 40), (100 * M, 70)].into_iter();
    paths.flat_map(|(bits, rtt)| {
        [25, 100, 400].map(|queue| (queue, Path::new(bits, ms(rtt), 0, queue)))
    })
}

#[test]
fn an_idle_path_is_used_and_its_queue_short() {
    for (queue, path) in paths() {
        let mut world = World::new(path.clone(), vec![background(&path, 0)]);
        let (first, _) = shares(&mut world, ms(10_000), path.rate);
        let (got, tally) = shares(&mut world, ms(60_000), path.rate);
        let wait = part(tally.mean_wait(), path.rtt);
        println!("{:?} {queue} %: {first:?}, {got:?}, wait {wait}, {tally:?}", path.rtt);
        assert!(first[0] >= 850 && got[0] >= 920, "{first:?} {got:?}");
        assert!(wait <= 100 && tally.dropped * 1000 <= tally.sent, "{wait} {tally:?}");
    }
}

#[test]
fn what_is_lost_at_random_costs_little() {
    // More than 2 % is congestion to it, for it makes no test.
    for (loss, least) in [(1000, 950), (10_000, 900), (50_000, 150)] {
        for (_, mut path) in paths() {
            (path.loss, path.jitter) = (loss, ms(5));
            let mut world = World::new(path.clone(), vec![background(&path, 0)]);
            world.run(ms(20_000));
            let (got, tally) = shares(&mut world, ms(60_000), path.rate);
            println!("{loss} ppm, {:?}: {got:?} {tally:?}", path.rtt);
            assert!(got[0] >= least, "{loss} ppm: {got:?}");
        }
    }
}

#[test]
fn a_cubic_is_left_nearly_what_it_would_have_alone() {
    is_left_to_a_cubic(paths().take(3), &[(0, 10_000), (15_000, 0)]);
}

/// In either order, and wherever in its growth the TCP is by then.
#[test]
#[ignore = "slow: .ci/nightly"]
fn a_cubic_is_left_nearly_what_it_would_have_alone_whenever_it_starts() {
    let starts = [(0, 0), (0, 10_000), (10_000, 0), (15_000, 0), (18_500, 0)];
    is_left_to_a_cubic(paths(), &starts);
}

/// The start of this law and that of the CUBIC are in milliseconds.
fn is_left_to_a_cubic(paths: impl Iterator<Item = (u64, Path)>, starts: &[(u64, u64)]) {
    for (queue, path) in paths {
        for &(own, its) in starts {
            let mut world = World::new(path.clone(), vec![background(&path, own)]);
            world.cubic = Some(Cubic::new(ms(its)));
            world.run(ms(own.max(its)));
            let (early, _) = shares(&mut world, ms(20_000), path.rate);
            let (got, _) = shares(&mut world, ms(60_000), path.rate);
            println!("{:?} {queue} %, from {own} and {its}: {early:?}, {got:?}", path.rtt);
            assert!(early[1] >= 700 && got[1] >= 975, "{early:?} {got:?}");
        }
    }
}

#[test]
fn the_fair_law_is_left_nearly_all() {
    for (queue, path) in paths() {
        for (own, its) in [(0, 7000), (7000, 0)] {
            let flows = vec![tolerant(&path, ms(its)), background(&path, own)];
            let mut world = World::new(path.clone(), flows);
            world.run(ms(20_000));
            let (got, _) = shares(&mut world, ms(60_000), path.rate);
            println!("{:?} {queue} %, from {own} and {its}: {got:?}", path.rtt);
            assert!(got[0] >= 970, "{got:?}");
        }
    }
}

#[test]
fn two_of_them_share() {
    for (queue, path) in paths() {
        let flows = vec![background(&path, 0), background(&path, 7000)];
        let mut world = World::new(path.clone(), flows);
        world.run(ms(30_000));
        let (got, tally) = shares(&mut world, ms(60_000), path.rate);
        let wait = part(tally.mean_wait(), path.rtt);
        println!("{:?} {queue} %: {got:?}, wait {wait}", path.rtt);
        assert!(got.iter().all(|share| *share >= 400), "{got:?}");
        assert!(got.iter().sum::<u64>() >= 950, "{got:?}");
    }
}

/// Who was there goes, and what it had is taken; and the other way round.
#[test]
fn it_takes_what_becomes_free_and_gives_it_back() {
    takes_and_gives_back(4);
}

#[test]
#[ignore = "slow: .ci/nightly"]
fn it_takes_what_becomes_free_and_gives_it_back_in_many_draws() {
    takes_and_gives_back(12);
}

fn takes_and_gives_back(draws: u64) {
    let path = Path::new(50 * M, ms(40), 0, 100);
    let mut taken = 0;
    for seed in 1..=draws {
        let mut fair = tolerant(&path, ms(0));
        // Twenty seconds with data, and twenty without.
        fair.pauses = Duration::from_secs(40);
        let mut world = World::new(path.clone(), vec![fair, background(&path, 0)]).by_chance(seed);
        for _ in 0..4 {
            let (busy, _) = shares(&mut world, ms(20_000), path.rate);
            let (idle, _) = shares(&mut world, ms(20_000), path.rate);
            println!("{busy:?} then {idle:?}");
            assert!(busy[0] >= 950 && idle[1] >= 600, "{busy:?} {idle:?}");
            taken += idle[1];
        }
    }
    // It looks again 2 s after nothing waits any more, or 4 s.
    assert!(taken / (4 * draws) >= 750, "{taken}");
}

#[test]
fn a_longer_route_is_no_queue_for_ever() {
    let mut law = Background::new(1260, Some(ms(40)), None);
    let (mut sample, mut now) = (Sample::default(), Instant::EPOCH);
    let mut hear = |law: &mut Background, rtt: u64| {
        now += ms(10);
        // The path carries 50 Mbit/s, and keeps no queue of what is beyond.
        let rate = law.belief().bandwidth.expect("it has one");
        let rate = rate.min(Rate::from_bits_per_second(50 * M));
        sample.rtt = Some(ms(rtt));
        sample.delivered_bytes += rate.bytes_in(ms(10));
        sample.delivered_packets = sample.delivered_bytes / 1260;
        sample.round += u64::from(now.as_nanos() / 1_000_000 % rtt < 10);
        sample.delivery_rate = Some(rate);
        sample.in_flight_bytes = law.pacing().cap_bytes.expect("a window");
        law.on_sample(now, &sample);
        rate
    };
    let before = (0..300).map(|_| hear(&mut law, 40)).last().expect("some");
    let longer = (0..2000).map(|_| hear(&mut law, 70)).last().expect("some");
    // Two minutes of looks, and what it takes to come back.
    let later = (0..20_000).map(|_| hear(&mut law, 70)).skip(19_000).max().expect("some");
    println!("{before} {longer} {later}");
    assert!(longer < before.scaled(1, 10) && later > before.scaled(1, 2));
}
