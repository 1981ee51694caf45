//! The laws on paths of many kinds, without the machine.

mod aggressive;
mod background;
mod bbr;
mod controller;
mod goldens;
mod memory;
mod policed;
mod short;
mod sim;
mod sizes;
mod start;
mod starved;
mod turns;
mod wander;

use std::time::Duration;

use controller::tolerant;
use sim::{Cubic, Flow, PACKET, Path, Tally, World};

use crate::rate::adaptive::Adaptive;
use crate::rate::background::Background;
use crate::rate::{RateControl, Sample, burst_for};
use crate::time::Instant;
use crate::units::Rate;

const M: u64 = 1_000_000;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn adaptive(path: &Path) -> Flow {
    Flow::new(Box::new(Adaptive::new(PACKET as u32, Some(path.rtt), None)), Duration::ZERO)
}

/// What each flow (and last the TCP, if there is one) got of the link in `time`, in thousandths.
fn shares(world: &mut World, time: Duration, rate: Rate) -> (Vec<u64>, Tally) {
    let counts = |world: &World| -> Vec<u64> {
        let tcp = world.cubic.iter().map(|cubic| cubic.delivered);
        world.flows.iter().map(Flow::arrived).chain(tcp).collect()
    };
    let before = counts(world);
    let tally = world.run(time);
    let full = rate.bytes_in(time) / PACKET;
    let got = counts(world).iter().zip(before).map(|(n, b)| (n - b) * 1000 / full).collect();
    (got, tally)
}

fn share(world: &mut World, time: Duration, rate: Rate) -> u64 {
    shares(world, time, rate).0[0]
}

fn part(wait: Duration, rtt: Duration) -> u64 {
    (wait.as_nanos() * 1000 / rtt.as_nanos()) as u64
}

/// Burst values count packets of the size that was agreed on, and those sent may be larger.
#[test]
fn what_a_receiver_offers_is_the_same_rate_whatever_the_packets() {
    let (path, megabyte) = (Duration::from_millis(1), Rate::from_bytes_per_second(1_000_000));
    let laws: [Box<dyn RateControl>; 2] = [
        Box::new(Adaptive::new(1500, Some(path), None)),
        Box::new(Background::new(1500, Some(path), None)),
    ];
    for mut law in laws {
        law.on_packet_bytes(16_384);
        law.take_over(Instant::EPOCH, Rate::from_bytes_per_second(100_000_000), path);
        law.on_offer(Instant::EPOCH, burst_for(megabyte, 1500));
        let crate::units::Burst { packets, interval } = law.pacing().burst;
        let rate = Rate::over(u64::from(packets) * 16_384, interval);
        assert!(rate <= megabyte, "{rate:?} of {law:?}");
    }
}

#[test]
fn a_rate_is_kept_to_a_thousandth_at_every_packet_size() {
    for megabits in [1, 2, 10, 100, 200, 1000, 2500, 10_000, 40_000] {
        let rate = Rate::from_bits_per_second(megabits * 1_000_000);
        for packet in [300, 1260, 1500, 9000] {
            let burst = burst_for(rate, packet);
            let most = if megabits > 5000 { 64 } else { 44 };
            assert!((1..=most).contains(&burst.packets), "{burst:?}");
            let made = Rate::over(u64::from(burst.packets * packet), burst.interval);
            let wrong = made.bytes_per_second().abs_diff(rate.bytes_per_second());
            assert!(wrong * 1000 < rate.bytes_per_second(), "{rate} {made} {burst:?}");
        }
    }
}

/// A CUBIC that fills a queue of four products leaves a tenth of the path.
#[test]
fn beside_a_cubic_that_fills_its_queue_neither_starves() {
    let paths = [(50, 40, 100, 330), (50, 40, 400, 50), (100, 50, 100, 120), (100, 50, 400, 90)];
    for (mbit, rtt, queue, least) in paths {
        for start in [0, 10_000] {
            let path = Path::new(mbit * M, ms(rtt), 0, queue);
            let mut world = World::new(path.clone(), vec![tolerant(&path, ms(0))]);
            world.cubic = Some(Cubic::new(ms(start)));
            world.run(ms(start));
            let (got, _) = shares(&mut world, ms(60_000), path.rate);
            println!("{mbit} Mbit/s {rtt} ms, queue {queue} %, cubic from {start}: {got:?}");
            assert!(got[0] >= least && got[1] >= 300, "{got:?}");
            assert!(got.iter().sum::<u64>() >= 980, "{got:?}");
        }
    }
}

#[test]
fn when_a_cubic_has_gone_its_queue_goes_too() {
    for queue in [100, 400] {
        let path = Path::new(50 * M, ms(40), 0, queue);
        let mut world = World::new(path.clone(), vec![tolerant(&path, ms(0))]);
        world.cubic = Some(Cubic::new(ms(1000)).until(ms(20_000)));
        world.run(ms(20_000));
        world.run(ms(6000));
        let (got, tally) = shares(&mut world, ms(30_000), path.rate);
        println!("queue {queue} %: {got:?}, wait {:?}", tally.mean_wait());
        assert!(got[0] >= 970 && tally.dropped == 0, "{got:?} {tally:?}");
        assert!(tally.mean_wait() < path.rtt / 4, "{tally:?}");
    }
}

#[test]
fn after_an_outage_half_of_the_path_is_soon_used() {
    for (from, until, after, least) in
        [(5000, 35_000, 100, 930), (5000, 8000, 50, 520), (5000, 5400, 100, 430)]
    {
        let mut path = Path::new(100 * M, ms(50), 1000, 100);
        let healed = Rate::from_bits_per_second(after * M);
        path.steps = vec![(ms(from), Rate::ZERO), (ms(until), healed)];
        let mut world = World::new(path.clone(), vec![tolerant(&path, ms(0))]);
        world.run(ms(from));
        let outage = world.run(ms(until - from));
        // While no report comes, what was allowed in flight and a few probes are sent at most.
        assert!(outage.dropped < 1100, "{outage:?}");
        world.run(ms(1500));
        let (got, tally) = shares(&mut world, ms(1000), healed);
        println!("{from} to {until}: {} sent in vain, then {got:?}", outage.dropped);
        assert!(got[0] >= least, "{got:?} {tally:?}");
    }
}

#[test]
fn clumps_and_reordering_do_not_disturb() {
    for (clump, jitter, least) in [(10, 0, 880), (0, 10, 970), (5, 5, 970)] {
        let mut path = Path::new(100 * M, ms(50), 1000, 100);
        (path.clump, path.jitter) = (ms(clump), ms(jitter));
        let mut world = World::new(path.clone(), vec![tolerant(&path, ms(0))]);
        world.run(ms(2000));
        let (got, tally) = shares(&mut world, ms(8000), path.rate);
        println!("clump {clump} jitter {jitter}: {got:?}, wait {:?}", tally.mean_wait());
        assert!(got[0] >= least && tally.dropped == 0, "{got:?} {tally:?}");
    }
}

#[test]
fn pauses_for_want_of_data_cost_nothing_but_themselves() {
    let path = Path::new(100 * M, ms(50), 1000, 100);
    let mut flow = tolerant(&path, ms(0));
    flow.pauses = ms(300);
    let mut world = World::new(path.clone(), vec![flow]);
    world.run(ms(3000));
    let (got, tally) = shares(&mut world, ms(9000), path.rate);
    println!("{got:?} of 500, {} dropped", tally.dropped);
    assert!(got[0] >= 470 && tally.dropped < 100, "{got:?} {tally:?}");
}

#[test]
fn late_timers_do_not_matter() {
    let path = Path::new(1000 * M, ms(20), 100, 100);
    let mut flow = tolerant(&path, ms(0));
    flow.lateness = ms(1);
    let mut world = World::new(path.clone(), vec![flow]);
    world.run(ms(1000));
    let got = share(&mut world, ms(2000), path.rate);
    assert!(got >= 900, "{got}");
}

/// What a start loses beside others is not the path's own: a sender that excuses it for long sends
/// twice what arrives, and leaves the others nothing.
#[test]
fn what_a_start_beside_others_lost_is_not_excused_for_long() {
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
        let mut flows = vec![tolerant(&path, ms(3000 + seed * 97))];
        if !cubic {
            flows.push(tolerant(&path, ms(0)));
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

#[test]
fn marks_alone_slow_the_law_of_long_paths_down() {
    let mut policy = Adaptive::new(1260, Some(ms(1500)), None);
    let mut sample = Sample { rtt: Some(ms(1500)), ..Sample::default() };
    let mut rate_after = |marks: u64| {
        let mut policy_rate = Rate::ZERO;
        for _ in 0..10 {
            let at = Instant::EPOCH + ms(1500) * (sample.round as u32 + 1);
            sample.round += 1;
            sample.delivered_packets += 400;
            sample.marked_packets += marks;
            let now = Rate::over(
                u64::from(policy.pacing().burst.packets) * 1260,
                policy.pacing().burst.interval,
            );
            let rate = now.min(Rate::from_bits_per_second(100 * M));
            (sample.send_rate, sample.delivery_rate) = (Some(now), Some(rate));
            policy.on_sample(at, &sample);
            policy_rate = now;
        }
        policy_rate
    };
    let before = rate_after(0);
    let after = rate_after(40);
    assert!(after < before.scaled(9, 10), "{before} {after}");
}

#[test]
fn the_ceiling_of_a_long_path_holds_and_is_reached() {
    let path = Path::new(100 * M, ms(1500), 1000, 100);
    let ceiling = Rate::from_bits_per_second(30 * M);
    let policy = Adaptive::new(PACKET as u32, Some(path.rtt), Some(ceiling));
    let mut world = World::new(path, vec![Flow::new(Box::new(policy), ms(0))]);
    for step in 0..8 {
        let got = share(&mut world, ms(5000), ceiling);
        println!("{step}: {got}");
        assert!(got <= 1020 && (step < 4 || got >= 950), "{step}: {got}");
    }
}

/// Queues of an eighth of a product, and of a sixteenth, where a round trip takes seconds.
#[test]
fn where_a_round_trip_is_long_it_looks_before_it_leaps() {
    // The faster ones are found at half of what they carry, and the rest in steps of 25 ms.
    let paths =
        [(M, 1800, 12, 950), (M, 1200, 25, 950), (10 * M, 2500, 6, 650), (100 * M, 1000, 15, 950)];
    for (bits, rtt, queue, least) in paths {
        for loss in [0, 5000] {
            let path = Path::new(bits, ms(rtt), loss, queue);
            let mut world = World::new(path.clone(), vec![adaptive(&path)]);
            let first = world.run(ms(60_000));
            let (got, tally) = shares(&mut world, ms(120_000), path.rate);
            let wait = tally.mean_wait();
            println!("{bits} {rtt} {queue} {loss}: {first:?} then {got:?}, {tally:?} {wait:?}");
            assert_eq!((first.dropped, tally.dropped), (0, 0), "{first:?} {tally:?}");
            assert!(got[0] >= least, "{got:?}");
        }
    }
}
